"""Mutation testing of cases: plant mistakes in a variant's asm or a case's reference, and run the case with each.

A case that passes with a planted mistake would also pass the same mistake made by a person. Each mutant is one
mechanical change. The emulator runs it at quick effort, with the plan and the judge of all other runs
(`ptxdiff.running.run.run_item`). Its fate is one of these:

- *killed*: a result fails;
- *refused*: binding the asm, or calling the reference, raises an error;
- *equivalent*, *sampled* or *allowed*: it passes, and the search (`ptxdiff.mutation.settle`) finds no input on which it
  is wrong;
- *missed*: it passes, but an input is known on which it is wrong; add that input to the case's `hard_cases`;
- *undecided*: it neither ran nor was refused, because of a fault of the harness or the time limit.

`asm` locates and changes the words of asm, within Triton functions too, `kernels` changes the PTX of whole kernels,
`source` changes references. `trial` runs one mutant, and compares its machine code with the original's. `settle`
searches inputs for survivors, and asks for proofs. `campaign` runs all mutants of a case, and stores finished ones.
"""
