"""Which products ptxas fused into a sum, found in its machine code.

PTX leaves that open. Threads whose result depends on it are followed in the PTX, with all products fused and with none,
and in the machine code. An addition is fused where an instruction that multiplies and adds gives the fused value, and
apart where another gives the other value. A trace can mislead, so nothing is said unless the PTX, run with exactly
these products fused, has the machine code's bits in every element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptxdiff.emulator import Fusable
from ptxdiff.emulator.kernel.trace import ThreadTrace
from ptxdiff.sass.trace import TracedInstruction

if TYPE_CHECKING:
    from ptxdiff.emulator import Fuse

_FUSING = ("FFMA", "DFMA", "HFMA2", "FHFMA", "UFFMA")
"""Opcodes, without a number of elements after them, that multiply and add with one rounding."""


@dataclass(frozen=True)
class FollowedThread:
    """One thread: of the PTX with all products fused and with none, and of the machine code."""

    fused: ThreadTrace
    apart: ThreadTrace
    machine: Sequence[TracedInstruction]


def fused_in(pairs: Sequence[Fusable], threads: Sequence[FollowedThread]) -> tuple[list[Fusable], list[Fusable]]:
    """The additions that the machine code fuses, and those of which the threads do not tell.

    Of two products of one addition, only the first is looked for: the emulator fuses that one.
    """
    first = {pair.addition: pair for pair in reversed(pairs)}
    chosen, open_ = [], []
    for offset, pair in sorted(first.items()):
        votes = {vote for thread in threads for vote in _votes(offset, thread)}
        if votes == {True}:
            chosen.append(pair)
        elif votes != {False}:
            open_.append(pair)
    return chosen, open_


def _votes(addition: int, thread: FollowedThread) -> set[bool]:
    """Whether a thread's machine code has the value of an addition from a fusing instruction, or from another."""
    fused, apart = _results(thread.fused, addition), _results(thread.apart, addition)
    found = set()
    for step in thread.machine:
        value = _written(step)
        if value is None:
            continue
        fusing = step.instruction.opcode.startswith(_FUSING)
        if fusing and value in fused - apart:
            found.add(True)
        elif not fusing and value in apart - fused:
            found.add(False)
    return found


def _results(trace: ThreadTrace, addition: int) -> set[int]:
    return {
        w.value
        for s in trace.steps
        if s.executed and s.step.node.offset == addition and s.step.bound.name.split(".")[0] != "mov"
        for w in s.writes
        if w.value is not None
    }


def _written(step: TracedInstruction) -> int | None:
    values = [v for (kind, _), v in step.writes.items() if kind in ("R", "UR")]
    if not values:
        return None
    return values[0] if len(values) == 1 else values[1] << 32 | values[0]


def fused_products(
    pairs: Sequence[Fusable], threads: Sequence[FollowedThread], has_bits: Callable[[Fuse], bool]
) -> tuple[Fusable, ...] | None:
    """The additions that ptxas fused; None if that is not known. has_bits: whether PTX so fused has the same bits."""
    chosen, left = fused_in(pairs, threads)
    for more in [[], left][: 1 + bool(left)]:
        if has_bits(tuple(sorted(p.pair for p in (*chosen, *more)))):
            return tuple(sorted((*chosen, *more), key=lambda p: p.addition))
    return None


def in_words(found: Sequence[Fusable], threads: Sequence[FollowedThread]) -> Mapping[str, str]:
    """By the PTX line of fused additions: texts and lines of each product and addition."""
    places: dict[int, tuple[int, str]] = {}
    for thread in threads:
        for step in thread.apart.steps:
            places.setdefault(step.step.node.offset, (step.line, step.text))
    words: dict[str, list[str]] = {}
    for pair in found:
        if pair.product in places and pair.addition in places:
            (at, product), (line, addition) = places[pair.product], places[pair.addition]
            words.setdefault(str(line), []).append(f"{product} of line {at} into {addition} of line {line}")
    return {line: "; ".join(several) for line, several in words.items()}
