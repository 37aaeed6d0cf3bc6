"""Which ptxas makes wrong machine code, by target, without a GPU: tables in Markdown.

    python -m tests.support.sass.faults_page --ptxas PATH... [--target T...] [--journal FILE] [--jobs N] [--write]

The programs are those of `tests/fuzz/ptxas_faults.json`, and those of `REPORTED`, written after public reports.
--public FOLDER: also the reproducers that somebody published in a folder (`public_programs`). --catalogue: also the
first launch of each variant of the case files. --journal: a file that gets each result at once; what it has already is
not run again, so a run that was stopped goes on, and the tables have all results of the journal. Begin a new one after
a change of the emulator or of the table of machine instructions.

What became of each program, `program_runs.Became` says.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import IO, Any

import numpy as np

from ptxdiff.fuzz.assemblers import assembler
from ptxdiff.fuzz.execution import THREADS, inputs_of, text_of
from ptxdiff.fuzz.program import RandomProgram, Statement, Variable
from ptxdiff.model.targets import version_number
from tests.support.sass import public_programs
from tests.support.sass.program_runs import Program, Result, assemble_ahead, result

PROGRAMS = Path(__file__).parents[2] / "fuzz" / "ptxas_faults.json"
PAGE = Path(__file__).parents[3] / "docs" / "results" / "ptxas-faults.md"
TARGETS = ("sm_90a", "sm_100a", "sm_120a", "sm_80", "sm_89", "sm_86", "sm_103a", "sm_110a", "sm_121a")
SHOWN = {"wrong": "wrong", "schedule": "by schedule", "right": "right", "unsettled": "unsettled", "unread": "unread",
         "open": "open", "crashed": "crashed"}  # fmt: skip
"""What a cell counts, in order, and its name in the legend."""
OWN, PUBLIC, CATALOGUE = "programs", "public", "catalogue"


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


def programs() -> list[Program]:
    """The programs of this repository, each for the target that its text names."""
    found = []
    for name, made in REPORTED.items():
        found.append(_of_one_block(name, text_of([made], "sm_80"), inputs_of(name)))
    for fault in json.loads(PROGRAMS.read_text()):
        inputs = np.tile(np.array(fault["inputs"], np.uint32), (THREADS, 1))
        found.append(_of_one_block(fault["skeleton"], fault["text"], inputs))
    return found


def _of_one_block(name: str, text: str, inputs: np.ndarray) -> Program:
    values = {"p0_in": inputs, "p0_out": np.zeros_like(inputs)}
    return Program(name, text, "p0", THREADS, values, outputs=("p0_out",))


@dataclass(frozen=True)
class Unit:
    """What one task runs: programs under one ptxas, or a variant of the catalogue under some."""

    source: str
    names: tuple[str, ...]
    target: str
    paths: tuple[str, ...]
    place: str = ""
    """The folder of a public reproducer, or the case file of a variant."""

    def without(self, done: Set[tuple[str, str, str, str]]) -> Unit:
        """The unit with the names that have no result for one of its releases."""
        left = [n for n in self.names if not {(self.source, n, _release(p), self.target) for p in self.paths} <= done]
        return replace(self, names=tuple(left))


@cache
def _release(path: str) -> str:
    return assembler(path, 3).choice.version


def units(
    paths: Sequence[str], targets: Sequence[str], public: str, catalogue: bool, files: Sequence[Path]
) -> Iterator[Unit]:
    """All that is to be run, those of one target and release together."""
    for target in targets:
        for path in paths:
            yield Unit(OWN, tuple(_own()), target, (path,))
            if public:
                yield Unit(PUBLIC, tuple(_published(public)), target, (path,), public)
    if catalogue:
        from tests.support.sass.catalogue_launches import variants

        for v in variants(targets, files):
            yield Unit(CATALOGUE, (v.name,), v.target, tuple(paths), str(v.path))


@cache
def _published(folder: str) -> Mapping[str, Program]:
    return {p.name: p for p in public_programs.programs(Path(folder))}


@cache
def _own() -> Mapping[str, Program]:
    return {p.name: p for p in programs()}


def entries(unit: Unit) -> list[dict[str, Any]]:
    """The lines of the journal for a unit."""
    if unit.source == CATALOGUE:
        from tests.support.sass.catalogue_launches import CatalogueVariant, results

        (name,) = unit.names
        variant = CatalogueVariant(Path(unit.place), *name.split("::", 1), unit.target)
        return [_entry(unit, name, path, one) for path, one in results(variant, unit.paths)]
    (path,) = unit.paths
    every = _published(unit.place) if unit.source == PUBLIC else _own()
    some = {name: every[name].on(unit.target) for name in unit.names}
    assemble_ahead(list(some.values()), unit.target, path)
    lines = []
    for name, program in some.items():
        one = result(program, path, unit.target)
        lines.append(_entry(unit, name, path, one))
        if unit.source == PUBLIC and one.shown:
            lines[-1]["named"] = [word in program.named for word in one.shown]
    return lines


def _entry(unit: Unit, name: str, path: str, one: Result) -> dict[str, Any]:
    entry = {"source": unit.source, "program": name, "ptxas": _release(path), "target": unit.target}
    return entry | {k: v for k, v in dataclasses.asdict(one).items() if v}


def run(some: Sequence[Unit], known: Sequence[Mapping[str, Any]], journal: IO[str] | None, jobs: int) -> list[Any]:
    """The entries of the units that are not known, in `jobs` processes; each is written at once."""
    done = {(e["source"], e["program"], e["ptxas"], e["target"]) for e in known}
    left = [unit for u in some if (unit := u.without(done)).names]
    found: list[Any] = []

    def add(lines: Sequence[Mapping[str, Any]]) -> None:
        found.extend(lines)
        for line in lines:
            print(f"{line['ptxas']} {line['target']} {line['became']}: {line['program']}", flush=True)
            if journal is not None:
                journal.write(json.dumps(line) + "\n")
                journal.flush()

    if jobs == 1:
        for unit in left:
            add(entries(unit))
        return found
    # Each process compiles and computes on one core; what reads these variables is imported later, in the process.
    os.environ |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "PYTEST_XDIST_WORKER_COUNT": str(jobs)}
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(entries, unit): unit for unit in left}
        for done_one in as_completed(running):
            try:
                add(done_one.result())
            except BrokenProcessPool:
                raise SystemExit("a process was ended; run the command again, which goes on with the journal") from None
            except Exception as error:  # the others go on, and the next run tries this one again
                unit = running[done_one]
                print(f"{unit.source} {unit.names} on {unit.target}: {type(error).__name__}: {error}", file=sys.stderr)
    return found


def table(some: Sequence[Mapping[str, Any]], source: str) -> list[str]:
    """The lines of the table of a source: releases by targets, with what each cell counts."""
    mine = [e for e in some if e["source"] == source]
    targets = [t for t in TARGETS if any(e["target"] == t for e in mine)]
    targets += sorted({e["target"] for e in mine} - {*targets})
    shown = [kind for kind in SHOWN if any(e["became"] == kind for e in mine)]
    counts = Counter((e["ptxas"], e["target"], e["became"]) for e in mine)
    lines = [f"Each cell: {' / '.join(SHOWN[kind] for kind in shown)}.", ""]
    lines += [f"| ptxas | {' | '.join(targets)} |", f"|---{'|---' * len(targets)}|"]
    for release in sorted({e["ptxas"] for e in mine}, key=version_number):
        cells = [_cell([counts[release, target, kind] for kind in shown], shown) for target in targets]
        lines.append(f"| {release} | {' | '.join(cells)} |")
    return lines


def _cell(numbers: Sequence[int], shown: Sequence[str]) -> str:
    if not any(numbers):
        return "n/a"
    return " / ".join(f"**{n}**" if kind == "wrong" and n else str(n) for n, kind in zip(numbers, shown, strict=True))


def reasons(some: Sequence[Mapping[str, Any]], source: str, kinds: Sequence[str]) -> list[str]:
    """For the programs that became one of some kinds: a line with the reason, the targets and the releases."""

    def what(entry: Mapping[str, Any]) -> tuple[str, str, str]:
        words = re.sub(r"\bU?R\d+\b", "R", re.sub(r"\bU?P[0-6]\b", "P", entry.get("words", "")))
        return entry["became"], entry["program"], words

    mine = sorted((e for e in some if e["source"] == source and e["became"] in kinds), key=what)
    lines = []
    for (became, program, words), same in groupby(mine, key=what):
        where: dict[str, list[str]] = {}
        for entry in same:
            where.setdefault(entry["target"], []).append(entry["ptxas"])
        places = "; ".join(f"{t}: {', '.join(sorted(v, key=version_number))}" for t, v in where.items())
        lines.append(f"- `{program}` {became} ({places}){': ' + words if words else ''}")
    return lines


def main() -> None:
    """Print the tables, or write them to the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ptxas", action="append", required=True, help="the path of a ptxas (repeatable)")
    parser.add_argument("--target", action="append", help=f"repeatable; without it {', '.join(TARGETS)}")
    parser.add_argument("--public", default="", help="a folder of reproducers")
    parser.add_argument("--catalogue", action="store_true")
    parser.add_argument("--cases", action="append", type=Path, default=[], help="with --catalogue: only this file")
    parser.add_argument("--journal", type=Path)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--reasons", action="store_true", help="also print why programs are not right")
    parser.add_argument("--write", action="store_true", help="write the tables into the page")
    args = parser.parse_args()
    known = (
        [json.loads(x) for x in args.journal.read_text().splitlines()] if args.journal and args.journal.exists() else []
    )
    every = list(units(args.ptxas, args.target or TARGETS, args.public, args.catalogue, args.cases))
    with open(args.journal or os.devnull, "a") as journal:
        some = [*known, *run(every, known, journal, args.jobs)]
    text = PAGE.read_text()
    for source in (OWN, PUBLIC, CATALOGUE):
        if any(e["source"] == source for e in some):
            lines = table(some, source)
            print(f"\n{source}", *lines, sep="\n")
            text = _with(text, source, lines)
            if args.reasons:
                print(*reasons(some, source, [k for k in SHOWN if k != "right"]), sep="\n")
    if args.write:
        PAGE.write_text(text)


def _with(page: str, source: str, lines: Sequence[str]) -> str:
    """The page with another table of a source, whose place the page marks."""
    mark = re.compile(rf"(<!-- table of {source} -->\n).*?(<!-- end -->\n)", re.S)
    return mark.sub(lambda found: "".join([found[1], *(f"{line}\n" for line in lines), found[2]]), page)


if __name__ == "__main__":
    main()
