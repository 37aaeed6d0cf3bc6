"""What random programs teach of machine instructions without a row: `ptxdiff conformance --teach programs`.

A program's machine code that gives the emulator's bits is a context in which all its moves agreed; see
`ptxdiff.conformance.taught`. The kernels that teach forms of each width add theirs, and so do those of `move_kernels`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ptxdiff.conformance import teaching
from ptxdiff.emulator import PtxError
from ptxdiff.fuzz import move_kernels
from ptxdiff.fuzz.assemblers import Ptxas, assembler
from ptxdiff.fuzz.execution import MachineCodeInterpreter, NotRead, Words, expected, inputs_of, text_of
from ptxdiff.fuzz.generate import FAMILIES, program
from ptxdiff.fuzz.program import RandomProgram
from ptxdiff.model.targets import capability
from ptxdiff.triton.targets import assembler as bundled
from ptxdiff.triton.targets import probe, tool

PROGRAMS = 256
BATCH = 32
LEVELS = (0, 3)
LEAST = 80
"""The least compute capability that has all instructions of random programs."""
WIDTHS = ("add.u16", "add.u32", "add.u64", "add.f64", "fma.rn.f32", "min.u32", "selp.b32", "cvt.u32.u8")
"""Forms whose kernels load and store registers of each width."""


def move_lessons(target: str, programs: int = PROGRAMS) -> tuple[teaching.MoveLessons, list[str]]:
    """The lessons of a target, by the ptxas that Triton uses for it; and the programs whose bits differed, in words."""
    own = bundled(target)
    lessons, differing = teaching.MoveLessons(), []
    teaching.teach(WIDTHS, target, own.path, str(tool("nvdisasm")), probe()[target].ptx_version, {}, moves=lessons)
    some = [assembler(own.path, level, own.options) for level in LEVELS]
    differing += [words for by in some for words in move_kernels.taught(target, by, lessons)]
    weights = dict.fromkeys(FAMILIES, 1.0)
    if capability(target) < LEAST:
        programs = 0
    for first in range(0, programs, BATCH):
        seeds = [f"moves/{k}" for k in range(first, min(programs, first + BATCH))]
        made: list[tuple[RandomProgram, str, Words]] = []
        for seed in seeds:
            one = program(seed, capability(target), weights)
            if len(made) % 2:  # constants among the stored words, as in reduced programs
                one = replace(one, outputs=("0", "0", *one.outputs[2:]))
            try:
                made.append((one, seed, expected(one, inputs_of(seed), target)))
            except PtxError:
                continue
        for by in some:
            differing += _taught_by(made, by, target, lessons)
    return lessons, differing


def _taught_by(
    made: list[tuple[RandomProgram, str, Words]], by: Ptxas, target: str, lessons: teaching.MoveLessons
) -> list[str]:
    done = by.assemble(text_of([p for p, _, _ in made], target), target)
    if done.ended != "assembled":
        return [f"{by.label} {done.ended}: {done.words[:200]}"]
    differing = []
    for (_, seed, right), interpreted_one in zip(
        made, MachineCodeInterpreter(target).ran(done.cubin, [inputs_of(s) for _, s, _ in made]), strict=True
    ):
        if isinstance(interpreted_one, NotRead):
            continue
        outputs, ran = interpreted_one
        same = np.array_equal(outputs, right)
        if not same:
            differing.append(f"{target} program {seed} by {by.label}")
        lessons.note(ran, f"{seed} -O{by.choice.level}", agreed=same)
    return differing


def taught_again(target: str, before: str, say: Callable[[str], None], programs: int = PROGRAMS) -> str:
    """The text of `taught.MOVES` with new lines for a target. before: its text. say: gets each difference in words."""
    lessons, differing = move_lessons(target, programs)
    for difference in differing:
        say(difference)
    kept = [line for line in before.splitlines() if line and f'"target": "{target}"' not in line]
    return "".join(f"{line}\n" for line in [*kept, *lessons.lines(target)])
