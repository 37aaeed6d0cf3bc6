"""Reads reproducers of faults of ptxas from a folder that somebody published: `NAME/reduced.ptx`, with their launches.

This is the layout of `ptx/known-miscompiles` of github.com/SemiAnalysisAI/FuzzX. A launch is one block; the values of
its parameters are in `input.bin`, or in the constants of a CUDA file (`kInput0`, `kN`, `kX`). Nothing of such a folder
belongs into this repository.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.support.sass.program_runs import Program

WARP = 32
"""Threads of the block. The launches have 1 to 32; the emulator runs whole warps, and lanes do not communicate."""
WORDS = 4096
"""Words of the output: more than any thread of a warp writes."""
SENTINEL = 0xA5A5A5A5


def programs(folder: Path) -> list[Program]:
    """The reproducers of a folder that have a kernel, in order of their names."""
    found = [_program(path) for path in sorted(folder.glob("*/reduced.ptx"))]
    if not found:
        raise FileNotFoundError(f"{folder} has no NAME/reduced.ptx; give the folder of the reproducers")
    return found


def _program(path: Path) -> Program:
    text = path.read_text()
    (entry,) = re.findall(r"\.entry\s+(\w+)", text)
    launch = "".join(p.read_text() for p in path.parent.glob("*.cu"))
    inputs, count = _inputs(path.parent / "input.bin", launch), _constant("kN", launch, WARP)
    out = np.full(WORDS, SENTINEL, np.uint32)
    values: dict[str, NDArray[np.uint32] | int] = dict.fromkeys(("in_ptr", "unused_ptr", "dummy_ptr"), inputs)
    values |= {"out_ptr": out, "n": count, "in_n": count, "x": _constant("kX", launch, 0)}
    notes = path.parent / "NOTES.md"
    named = _words(notes.read_text()) if notes.exists() else frozenset()
    return Program(path.parent.name, text, entry, WARP, values, named=named)


def _constant(name: str, launch: str, default: int) -> int:
    stated = re.search(rf"\b{name} = (0x[0-9a-f]+|\d+)u?;", launch)
    return int(stated[1], 0) if stated else default


def _inputs(path: Path, launch: str) -> NDArray[np.uint32]:
    """The words that the kernel may read, at least one for each thread."""
    words = np.fromfile(path, np.uint32).tolist() if path.exists() else []
    listed = re.search(r"\bh_in\[\w+\] = \{([^}]+)\}", launch)
    if listed:
        words = [int(w, 16) for w in re.findall(r"0x[0-9a-f]+", listed[1])]
    for number, value in re.findall(r"\bkInput(\d+) = (0x[0-9a-f]+)u;", launch):
        words += [0] * (int(number) + 1 - len(words))
        words[int(number)] = int(value, 16)
    return np.array(words + [0] * (2 * WARP - len(words)), np.uint32)


def _words(notes: str) -> frozenset[int]:
    """The numbers of a text, as words of 32 bits."""
    numbers = re.findall(r"(?<![\w.])(0x[0-9a-fA-F]{1,8}|-?\d{1,10})(?![\w.])", notes)
    return frozenset(int(n, 0) & 0xFFFFFFFF for n in numbers if n.startswith("0x") or n == str(int(n)))
