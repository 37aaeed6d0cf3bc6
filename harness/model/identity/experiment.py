"""Everything that decides a run's bits, as one immutable value: everything that the executing machine receives."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxdiff.locations import PACKAGE, REFERENCES
from ptxdiff.model.identity.encoding import digest
from ptxdiff.model.identity.folders import files_below

DIGITS = 32


@dataclass(frozen=True)
class Experiment:
    """One run of one code on one machine. Equal experiments give equal bits and equal findings.

    machine: the executing machine, in words and versions; for the emulator with a digest of all instruction
    definitions. code: digest of the PTX text, byte for byte, or of the program that an asm form was bound to.
    launch: digest of the entry, the parameters' bytes, the memory to which they point, grid, block and shared memory;
    for asm without a kernel, of operands, storage types, pack, padding, shared registers and steps. It includes
    contraction. inputs: digest of the inputs with their names, types and shapes.
    """

    machine: str
    code: str
    launch: str
    inputs: str

    @property
    def digest(self) -> str:
        """The value in hexadecimal digits. Records hold it as `identity`."""
        return digest(self)[:DIGITS]


def experiment(machine: str, code: str, launch: Any, inputs: Mapping[str, Any]) -> Experiment:
    """The experiment of a code text, a launch description and inputs (arrays by name)."""
    return Experiment(machine, hashlib.sha256(code.encode()).hexdigest(), digest(launch), digest(dict(inputs)))


@functools.cache
def emulator(approximate: str) -> str:
    """The emulator as a machine: its choice of `approximate`, and a digest of all of `ptxdiff.emulator`."""
    return f"emulator {approximate} {_text_digest(PACKAGE / 'emulator')}"


@functools.cache
def harness() -> str:
    """A digest of the text of every module that decides a verdict: the harness and the references."""
    return digest([_text_digest(PACKAGE, _NOT_THE_HARNESS), _text_digest(REFERENCES)])[:DIGITS]


_NOT_THE_HARNESS = ("references", "reports", "examples")
"""Folders that an installed package holds and a checkout's `harness` does not."""


def _text_digest(folder: Path, without: Collection[str] = ()) -> str:
    """A digest of all modules in a folder. Raises FileNotFoundError for a folder without modules."""
    files = files_below(folder, ".py", without)
    if not files:
        raise FileNotFoundError(f"{folder} holds no Python file; identities of results are made from its text")
    found = hashlib.sha256()
    for file in files:
        text = file.read_bytes()
        found.update(f"{file.relative_to(folder)} {len(text)}\0".encode() + text)
    return found.hexdigest()[:DIGITS]
