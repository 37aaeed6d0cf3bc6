"""Numbers that an asm block builds at run time from its constants alone, and that meet its inputs.

A comparison with a number that the code builds in several steps (by a loop, `prmt`, float arithmetic) is as much a
special case as one with a number that stands in it. Registers start unknown, as if all inputs were. A step whose
sources are all known runs; its results are known too. A step that reads a known value beside an unknown one has a
constant that meets an input. So no input is sampled: values that depend on none are found exactly.

Where an unknown predicate decides, both ways are followed. Registers that nothing wrote, special registers, memory and
other threads are unknown.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ptxdiff.emulator.asm_block import assemble
from ptxdiff.emulator.binding.program import Program, ReadSlot, Step
from ptxdiff.emulator.errors import PtxError
from ptxdiff.emulator.machine.frame import Frame
from ptxdiff.emulator.machine.lockstep import execute

STEPS = 1 << 13
"""Steps that are followed in one block, of all ways together."""

_FLOATS = {"f16": "<e", "f16x2": "<e", "bf16": "", "bf16x2": "", "f32": "<f", "f64": "<d"}
_WIDTHS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}

Number = tuple[int, tuple[float, ...]]
State = tuple[int | None, ...]
"""The value of every register of a program, as bits; None where it is unknown."""


@functools.lru_cache(maxsize=512)
def built_constants(asm: str, constraints: str) -> tuple[tuple[int, tuple[float, ...]], ...]:
    """The distinct numbers other than zero that meet an input, in the order in which they were last met.

    Each is the bits that an instruction reads, of 8 to 64 bits, and the finite values of the floats as which it reads
    them. Constants of the text count too, as the machine reads them. None for a block that the emulator refuses on
    every target.
    """
    try:
        program = assemble(asm, constraints, None).program
    except PtxError:
        return ()
    met: dict[int, tuple[float, ...]] = {}
    for bits, floats in _met(program):
        met[bits] = tuple(dict.fromkeys([*met.pop(bits, ()), *floats]))
    return tuple(met.items())


def _runs(step: Step) -> bool:
    """Whether a step changes registers alone, by their values alone."""
    return step.facts.registers_only and step.kind not in ("special", "ld_param", "param_move", "param_parts", "branch")


def _met(program: Program) -> Iterator[Number]:
    """The numbers that meet unknown values, on all ways through the program."""
    pending: list[tuple[int, State]] = [(0, (None,) * len(program.registers))]
    seen: set[tuple[int, State]] = set()
    frame = Frame(program, 1)
    left = STEPS
    while pending and left > 0:
        at, state = pending.pop()
        while at < len(program.steps) and (at, state) not in seen and left > 0:
            seen.add((at, state))
            left -= 1
            step = program.steps[at]
            holds = _holds(step, state)
            if step.bound.form.facts.control or step.kind in ("branch", "exit"):
                ways = [step.target] if holds is not False and step.kind == "branch" and step.target >= 0 else []
                if holds is not True:
                    ways.append(at + 1)
                if not ways:
                    break
                pending += [(way, state) for way in ways[:-1]]
                at = ways[-1]
                continue
            at += 1
            if holds is False:
                continue
            after, numbers = _stepped(frame, step, state)
            yield from numbers
            if holds is None and after != state:
                pending.append((at, after))  # and it goes on as if the step had not run
            else:
                state = after


def _holds(step: Step, state: State) -> bool | None:
    """Whether the step's guard is true; None if that is unknown."""
    if step.guard < 0:
        return True
    value = state[step.guard]
    return None if value is None else bool(value & 1) != step.guard_negated


def _stepped(frame: Frame, step: Step, state: State) -> tuple[State, list[Number]]:
    """The registers after a step, and the numbers that met unknown values in it."""
    values = [_read(r, state) for r in step.sources]
    after = list(state)
    numbers: list[Number] = []
    if None not in values and _runs(step) and _executed(frame, step, state):
        for writer in step.destinations:
            for slot in (writer.slot, writer.upper):
                if slot >= 0:
                    lanes = frame.values[slot]
                    known = lanes is not None and frame.undefined[slot] is None
                    after[slot] = int(lanes[0]) if known and lanes is not None else None
        return tuple(after), numbers
    for reader, value in zip(step.sources, values, strict=True):
        if value and reader.width > 1:
            numbers.append((value, tuple(_as_floats(step, value, reader.width))))
    for writer in step.destinations:
        for slot in (writer.slot, writer.upper):
            if slot >= 0:
                after[slot] = None
    return tuple(after), numbers


def _read(reader: ReadSlot, state: State) -> int | None:
    if reader.shared or reader.slot < -1:
        return None
    value = reader.pattern if reader.slot == -1 else state[reader.slot]
    return None if value is None else value & (1 << reader.width) - 1


def _executed(frame: Frame, step: Step, state: State) -> bool:
    """Run a step on one lane, on the registers that it reads. Returns False where the emulator has no result."""
    for slot in {r.slot for r in step.sources if r.slot >= 0}:
        frame.values[slot] = np.array([state[slot]], np.uint64)
        frame.undefined[slot] = None
    for writer in step.destinations:
        for slot in (writer.slot, writer.upper):
            if slot >= 0 and all(r.slot != slot for r in step.sources):
                frame.values[slot] = frame.undefined[slot] = None
    try:
        execute(frame, step if step.guard < 0 else replace(step, guard=-1), None)
    except Exception:  # the run of the block reports the same error; planning goes on without its numbers
        return False
    return True


def _as_floats(step: Step, bits: int, width: int) -> Iterator[float]:
    """The finite values of bits that a step reads as floats."""
    for name in dict.fromkeys(m for m in step.node.modifiers if m in _FLOATS):
        kind = name.removesuffix("x2")
        for part in (bits, bits >> 16) if name.endswith("x2") and width == 32 else (bits,):
            if width != _WIDTHS[kind] and not name.endswith("x2"):
                continue
            value = _value(kind, part & (1 << _WIDTHS[kind]) - 1)
            if value and math.isfinite(value):
                yield value


def _value(kind: str, bits: int) -> float:
    if kind == "bf16":
        return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])
    letter = {16: "<H", 32: "<I", 64: "<Q"}[_WIDTHS[kind]]
    return float(struct.unpack(_FLOATS[kind], struct.pack(letter, bits))[0])
