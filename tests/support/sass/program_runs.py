"""One program under one ptxas and one target, without a GPU: what its machine code gives, and whom that accuses."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ptxdiff.backends.first_difference import doubt_of_forms, doubt_of_ptx
from ptxdiff.emulator import Buffer, PtxError, load_kernel, run_kernel
from ptxdiff.emulator.text import retargeted
from ptxdiff.fuzz.assemblers import PtxasResult, assembler
from ptxdiff.fuzz.execution import MachineCodeInterpreter
from ptxdiff.model.targets import INTRODUCED, version_number
from ptxdiff.sass.cubin import MachineCode
from ptxdiff.sass.run import Ran, run_machine_code
from ptxdiff.sass.text import ScheduleDependence, Unsupported

SECONDS = 20.0
"""The time that one run of a program may take."""

Became = Literal["wrong", "schedule", "unsettled", "right", "unread", "open", "crashed", "refused"]
"""What became of a program.

wrong: -O3 gives other bits than the PTX, -O0 gives the PTX's bits, every form that ran is taught, and PTX leaves
nothing open. schedule: -O0 gives the PTX's bits, and those of -O3 depend on which lanes of a branch run first, although
the PTX's do not. unsettled: other bits that accuse nobody. unread: an instruction that the table does not have. open:
the PTX itself has no bits to compare with. crashed: ptxas ends by a signal, an error of its own, or not at all.
refused: this ptxas does not know the target, or an instruction that the target lacks.
"""


@dataclass(frozen=True)
class Program:
    """A kernel and its launch: one block.

    values: the value of each parameter, by name: an array of uint32 (its address), or an integer. Parameters that are
    not named are 0. outputs: the names of the arrays whose contents count as never written; arrays are not changed.
    """

    name: str
    text: str
    entry: str
    threads: int
    values: Mapping[str, NDArray[np.uint32] | int]
    outputs: tuple[str, ...] = ()
    named: frozenset[int] = frozenset()
    """Words that a report of the program names."""

    def on(self, target: str) -> Program:
        """The program for another target, with the version of the PTX ISA that the target needs at least."""
        text = retargeted(self.text, target)
        stated = _VERSION.search(text)
        least = INTRODUCED.get(target, "0.0")
        if stated is not None and version_number(stated[2]) < version_number(least):
            text = _VERSION.sub(rf"\g<1>{least}", text, count=1)
        return replace(self, text=text)


_VERSION = re.compile(r"^(\s*\.version\s+)([\d.]+)", re.M)
_OLDER = re.compile(r"Unsupported \.version [\d.]+; current version is '([\d.]+)'")


@dataclass(frozen=True)
class Result:
    """What became of a program, and why, in words. differs: -O3 gives other bits than the PTX, and -O0 the PTX's.

    shown: a word of the PTX and one of the machine code that differ: the first ones that the program's report names.
    """

    became: Became
    words: str = ""
    differs: bool = False
    shown: tuple[int, int] | None = None


def assembled(text: str, target: str, path: str, level: int) -> PtxasResult:
    """The machine code of a text; for a ptxas that is older than its version, by the version that this ptxas knows."""
    done = assembler(path, level).assemble(text, target)
    older = _OLDER.search(done.words) if done.ended == "refused" else None
    if older is None:
        return done
    return assembler(path, level).assemble(_VERSION.sub(rf"\g<1>{older[1]}", text, count=1), target)


def assemble_ahead(programs: Sequence[Program], target: str, path: str) -> None:
    """Assemble programs for their target, as one module where they can be joined: ptxas is called a few times for all.

    ptxas makes the same code of a kernel beside others. A program stays alone if ptxas refuses it or crashes on it, or
    if nvdisasm cannot read what ptxas made.
    """
    joined = [p for p in programs if _JOINABLE.fullmatch(p.text)]
    _known_cubins.clear()
    for level in (3, 0):
        _assemble_joined(joined, target, path, level)


_JOINABLE = re.compile(
    r"\s*\.version [\d.]+\s+\.target \w+\s+\.address_size 64\s+(?P<kernel>\.visible \.entry [^{}]*\{.*\})\s*", re.S
)
"""A module of a kernel with nothing before it. With a function behind it, ptxas refuses the joined module."""
_known_cubins: dict[tuple[str, str, str, int], tuple[PtxasResult, str]] = {}


def _assemble_joined(programs: Sequence[Program], target: str, path: str, level: int) -> None:
    if len(programs) < 2:
        return
    kernels = [_renamed(p, f"joined_{k}") for k, p in enumerate(programs)]
    version = max((_VERSION.search(p.text)[2] for p in programs), key=version_number)  # type: ignore[index]
    text = "\n".join([f".version {version}", f".target {target}", ".address_size 64", *kernels])
    done = assembled(text, target, path, level)
    if done.ended == "assembled" and not isinstance(_read(done.cubin, target), Unsupported):
        for k, program in enumerate(programs):
            _known_cubins[program.name, target, path, level] = done, f"joined_{k}"
        return
    half = len(programs) // 2
    _assemble_joined(programs[:half], target, path, level)
    _assemble_joined(programs[half:], target, path, level)


def _renamed(program: Program, name: str) -> str:
    found = _JOINABLE.fullmatch(program.text)
    assert found is not None
    return re.sub(rf"(\.entry\s+){program.entry}\b", rf"\g<1>{name}", found["kernel"], count=1)


def _made(program: Program, target: str, path: str, level: int) -> tuple[PtxasResult, str]:
    """The machine code of a program, and the name of its kernel there."""
    known = _known_cubins.get((program.name, target, path, level))
    return known or (assembled(program.text, target, path, level), program.entry)


def _buffers(program: Program, parameters: tuple[str, ...]) -> tuple[list[Buffer | int], list[NDArray[np.uint32]]]:
    """A value for each parameter of the kernel, and the arrays among them, in order."""
    values: list[Buffer | int] = []
    arrays = []
    for name in parameters:
        value = program.values.get(name, 0)
        if isinstance(value, int):
            values.append(value)
        else:
            arrays.append(np.array(value))
            values.append(Buffer(arrays[-1], name, defined=name not in program.outputs))
    return values, arrays


def _meant(program: Program, target: str) -> NDArray[np.uint32] | str:
    """All words of the arrays after the PTX has run, or why it has none."""
    key = (program.name, target)  # the same program is run for each release
    if key not in _known_meanings:
        _known_meanings[key] = _emulated(program)
    return _known_meanings[key]


_known_meanings: dict[tuple[str, str], NDArray[np.uint32] | str] = {}


def _emulated(program: Program) -> NDArray[np.uint32] | str:
    try:
        kernel = load_kernel(program.text, program.entry)
        values, arrays = _buffers(program, tuple(p.name for p in kernel.parameters))
        run_kernel(kernel, values, (1,), num_threads=program.threads, limit=SECONDS)
    except PtxError as error:
        return f"{type(error).__name__}: {error.message}"
    return _joined(arrays)


def _joined(arrays: list[NDArray[np.uint32]]) -> NDArray[np.uint32]:
    return np.concatenate([a.reshape(-1) for a in arrays]) if arrays else np.zeros(0, np.uint32)


_Given = tuple[NDArray[np.uint32], Ran] | PtxError


def _given(program: Program, cubin: bytes, entry: str, target: str) -> _Given:
    """All words of the arrays after the machine code has run, or why it has none."""
    kernels = _read(cubin, target)
    if isinstance(kernels, Unsupported):
        return kernels
    code = kernels[entry]
    own = replace(code, name="", function=replace(code.function, name=""))
    key = program.name, target, hashlib.sha256(repr(own).encode()).hexdigest()  # releases often agree
    if key not in _known_runs:
        _known_runs[key] = _interpreted(program, code)
    return _known_runs[key]


_known_runs: dict[tuple[str, str, str], _Given] = {}


@lru_cache(maxsize=4)
def _read(cubin: bytes, target: str) -> Mapping[str, MachineCode] | Unsupported:
    (read,) = MachineCodeInterpreter(target).read([cubin])
    return read


def _interpreted(program: Program, code: MachineCode) -> _Given:
    try:
        kernel = load_kernel(program.text, program.entry)
        values, arrays = _buffers(program, tuple(p.name for p in kernel.parameters))
        ran = run_machine_code(code, values, (1,), program.threads, limit=SECONDS)
    except PtxError as error:
        return error
    return _joined(arrays), ran


def result(program: Program, path: str, target: str) -> Result:
    """What became of a program, as it stands for its target, with the ptxas at a path."""
    done, entry = _made(program, target, path, 3)
    if done.ended != "assembled":
        kind: Became = "refused" if done.ended == "refused" else "crashed"
        return Result(kind, _line(done.words))
    meant = _meant(program, target)
    given = _given(program, done.cubin, entry, target)
    if isinstance(given, tuple) and not isinstance(meant, str) and np.array_equal(given[0], meant):
        return Result("right")
    lowest, entry = _made(program, target, path, 0)
    plain = _given(program, lowest.cubin, entry, target) if lowest.ended == "assembled" else None
    if isinstance(meant, str):
        parted = isinstance(given, tuple) and isinstance(plain, tuple) and not np.array_equal(given[0], plain[0])
        return Result("open", f"{meant}{'; -O0 and -O3 give different bits' if parted else ''}")
    right = isinstance(plain, tuple) and np.array_equal(plain[0], meant)
    level_0 = "" if right else f"-O0: {plain.message if isinstance(plain, PtxError) else 'other bits, too'}"
    if isinstance(given, ScheduleDependence) and right:
        return Result("schedule", given.message, differs=True)
    if isinstance(given, Unsupported):
        return Result("unread", given.message)
    if isinstance(given, PtxError):
        return Result("unsettled", f"{type(given).__name__}: {given.message}; {level_0}", differs=right)
    words, ran = given
    pairs = [(int(meant[k]), int(words[k])) for k in np.flatnonzero(words != meant)]
    shown = next((pair for pair in pairs if program.named.issuperset(pair)), pairs[0])
    kernel = load_kernel(program.text, program.entry)
    doubt = "; ".join(filter(None, (doubt_of_ptx(kernel, fusion=True), doubt_of_forms(ran, target), level_0)))
    return Result("unsettled" if doubt else "wrong", doubt, right, shown)


def _line(words: str) -> str:
    lines = [line for line in words.splitlines() if "fatal" not in line.lower()] or words.splitlines()
    return re.sub(r"^ptxas \S+ line \d+; ", "", re.sub(r"\S*program\.ptx, ", "", lines[0] if lines else ""))[:200]
