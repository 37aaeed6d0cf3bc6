"""Which ptxas makes wrong machine code of public and fuzzed programs, by target, without a GPU: a table in Markdown.

`python -m tests.support.sass.faults_page --ptxas PATH... [--target T...] [--write]`. The programs are those of
`tests/fuzz/ptxas_faults.json`, which hardware found wrong, and those of `REPORTED`, written after public reports. A
cell counts as "wrong" the programs whose machine code at -O3 gives other bits than the PTX, where -O0 gives the PTX's
bits and every form that ran is believed. The rest of those with other bits is unsettled.
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ptxdiff.fuzz.assemblers import Ptxas, assembler
from ptxdiff.fuzz.execution import THREADS, MachineCodeInterpreter, NotRead, emulated, inputs_of, text_of
from ptxdiff.fuzz.judge import interpreted_proof
from ptxdiff.fuzz.program import RandomProgram, Statement, Variable

PROGRAMS = Path(__file__).parents[2] / "fuzz" / "ptxas_faults.json"
PAGE = Path(__file__).parents[3] / "docs" / "results" / "ptxas-faults.md"
TARGETS = ("sm_80", "sm_90a", "sm_100a", "sm_120a")


def _program(*instructions: str) -> RandomProgram:
    """A program of instructions on registers %r4, %h4 and so on, whose last one writes the output %r9."""
    statements = tuple(
        Statement(text, tuple(Variable(kind, int(n)) for kind, n in re.findall(r"^\S+ %([rh])(\d+)", text)))
        for text in instructions
    )
    return RandomProgram(statements, (Variable("r", 9), "0", "0", "0"))


REPORTED = {
    "pytorch/pytorch 190973": _program("neg.s32 %r5, %r0;", "max.s32 %r6, %r0, %r5;", "max.s32 %r9, %r6, %r1;"),
    "triton-lang/triton 11581": _program(
        "mov.b32 %r4, 65537;", "add.s16x2 %r5, %r0, %r4;", "add.s16x2 %r6, %r1, %r4;", "xor.b32 %r9, %r5, %r6;"
    ),
    "NVIDIA/cccl 10958": _program("cvt.u16.u32 %h4, %r0;", "abs.s16 %h5, %h4;", "cvt.u32.u16 %r9, %h5;"),
}


@dataclass
class Tried:
    """The programs of one ptxas and target, by what became of them."""

    accused: int = 0
    unsettled: int = 0
    right: int = 0
    unread: int = 0
    refused: int = 0

    def cell(self) -> str:
        """A cell of the table."""
        parts = [f"**{self.accused}** wrong" if self.accused else "0 wrong"]
        parts += [f"{n} {word}" for word in ("unsettled", "right", "unread", "refused") if (n := getattr(self, word))]
        return ", ".join(parts)


def programs(target: str) -> dict[str, tuple[str, np.ndarray]]:
    """The text of each program for a target, and its inputs."""
    found = {}
    for name, made in REPORTED.items():
        found[name] = text_of([made], target), inputs_of(name)
    for fault in json.loads(PROGRAMS.read_text()):
        inputs = np.tile(np.array(fault["inputs"], np.uint32), (THREADS, 1))
        version, _ = text_of([], target).split("\n", 1)
        text = re.sub(r"^\.version .*\n\.target \w+", f"{version}\n.target {target}", fault["text"])
        found[fault["skeleton"]] = text, inputs
    return found


def outcome(text: str, inputs: np.ndarray, path: str, target: str) -> str:
    """What became of a program: the name of a field of `Tried`."""
    runner = MachineCodeInterpreter(target)

    def given(by: Ptxas) -> np.ndarray | NotRead | None:
        done = by.assemble(text, target)
        return runner.run(done.cubin, [inputs])[0] if done.ended == "assembled" else None

    by = assembler(path, 3)
    got = given(by)
    if got is None:  # the target lacks an instruction
        return "refused"
    right = emulated(text, "p0", inputs)
    if isinstance(got, NotRead):
        return "unread"
    if np.array_equal(got, right):
        return "right"
    lowest = given(assembler(path, 0))
    lane = int(np.flatnonzero((got != right).any(axis=1))[0])
    proved = lowest is not None and not isinstance(lowest, NotRead) and np.array_equal(lowest, right)
    return "accused" if proved and not interpreted_proof(text, target, by, inputs, lane)[0] else "unsettled"


def table(paths: list[str], targets: list[str], say=print) -> list[str]:
    """The lines of the table."""
    lines = [f"| ptxas | {' | '.join(targets)} |", f"|---{'|---' * len(targets)}|"]
    for path in paths:
        cells = []
        for target in targets:
            tried = Tried()
            for name, (text, inputs) in programs(target).items():
                became = outcome(text, inputs, path, target)
                setattr(tried, became, getattr(tried, became) + 1)
                say(f"{assembler(path, 3).choice.version} {target} {became}: {name}")
            cells.append(tried.cell())
        lines.append(f"| {assembler(path, 3).choice.version} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Print the table, or write it to the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ptxas", action="append", required=True)
    parser.add_argument("--target", action="append")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    lines = table(args.ptxas, args.target or list(TARGETS))
    print("\n".join(lines))
    if args.write:
        text = PAGE.read_text()
        head, rest = text.split("<!-- table -->\n")[0], text.split("<!-- end -->\n")[-1]
        PAGE.write_text(f"{head}<!-- table -->\n" + "\n".join(lines) + f"\n<!-- end -->\n{rest}")


if __name__ == "__main__":
    main()
