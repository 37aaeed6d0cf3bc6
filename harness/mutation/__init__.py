"""Mutation of cases: planted mistakes in a variant's asm and in a case's reference, run as the case itself is run.

A case whose inputs do not tell a planted mistake from the right code would pass the same mistake made by a person. Each
mutant is one mechanical change. It is run at quick effort by the emulator, by the plan and the judge of every other run
(`harness.running.run.run_item`), and is then

- *killed*: a result fails;
- *refused*: binding the asm, or calling the reference, ends in an error, so that nobody could run it;
- *equivalent*, *sampled* or *allowed*: it passes, and no input that was searched for tells it from the right code
  (`harness.mutation.settle`);
- *missed*: it passes, and an input is known on which it is wrong: that input belongs among the case's `hard_cases`;
- *undecided*: it neither ran nor was refused, for a fault of the harness or an end of time.

`instructions` shows where the words of asm stand, `asm` changes them, `inline` puts that into Triton functions,
`kernels` changes the PTX of whole kernels, `source` changes references, `trial` runs one mutant, `settle` searches on
for survivors that have other machine code (`machinecode`), `campaign` does all of a case, and `journal` keeps what is
done.
"""
