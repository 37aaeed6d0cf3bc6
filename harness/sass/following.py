"""Follows bits that were never written through steps without a row: shared memory, exchanges, stores of halves.

The steps themselves read all that they read as bits that decide what they do. Those of this module do not: what they
load, store or exchange they only move. `follow` makes such a step note where its results then hold such bits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from ptxdiff.emulator.kernel.warp.exchange import shuffled
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.sass.machine import _WARP, Fibre, Lanes, Machine, MachineStep
from ptxdiff.sass.text import Operand
from ptxdiff.sass.warp import _MODES, table


def follow(step: MachineStep) -> MachineStep:
    """The step, which follows bits that were never written if it is one of `_FOLLOWED`."""
    followed = _FOLLOWED.get(step.instruction.opcode)
    if followed is not None and step.follow is None:
        step.follow = followed
    return step


def _run(step: Any, machine: Machine, fibre: Fibre, deciding: dict[int, int]) -> bool:
    """Run a step. deciding: of registers of which not all parts decide what it does, those that do."""
    machine.deciding = deciding
    try:
        return bool(step.run(machine, fibre))
    finally:
        machine.deciding = {}


def _load(step: Any, machine: Machine, fibre: Fibre) -> bool:
    """LDS: a register holds doubtful bytes where it loaded some."""
    machine.following, machine.loaded = True, None
    try:
        going = bool(step.run(machine, fibre))
    finally:
        machine.following = False
    doubts = machine.loaded
    if doubts is not None:
        lanes, _ = machine.guarded(step.instruction.guard, fibre.lanes)
        for k in range(max(step.size // 4, 1)):
            if step.data.number >= 0:
                parts = _parts(doubts[:, 4 * k : 4 * k + 4], step.signed)
                machine.depend("R", step.data.number + k, lanes, parts)
    return going


def _parts(doubts: Array, signed: int) -> Array:
    """The parts of a register that was loaded from at most four bytes, of which some are in doubt."""
    packed = np.packbits(doubts, axis=1, bitorder="little")[:, 0]
    upper = np.uint8(0xF & -1 << doubts.shape[1])
    return np.where(doubts[:, -1], packed | upper, packed) if signed else packed


def _store(step: Any, machine: Machine, fibre: Fibre) -> bool:
    """STS: shared memory holds doubtful bytes where some were stored."""
    lanes, count = machine.guarded(step.instruction.guard, fibre.lanes)
    registers = _registers(step.data, step.size)
    if not count or not machine.unwritten or not registers.isdisjoint(_addresses(step.where)):
        return bool(step.run(machine, fibre))
    machine.storing = _rows_in_doubt(machine, step.data, step.size, lanes, count)
    try:
        return _run(step, machine, fibre, dict.fromkeys(registers, 0))
    finally:
        machine.storing = None


def _rows_in_doubt(machine: Machine, data: Operand, size: int, lanes: Lanes, count: int) -> Array | None:
    """Which bytes of registers are in doubt, as rows; None: none is."""
    doubts = np.zeros((count, max(size, 4)), np.bool_)
    for k, number in enumerate(sorted(_registers(data, size))):
        if (parts := machine.doubts("R", number, lanes)) is not None:
            doubts[:, 4 * k : 4 * k + 4] = parts[:, None] >> np.arange(4) & 1
    doubts = doubts[:, :size]
    return doubts if doubts.any() else None


def _narrow_store(step: Any, machine: Machine, fibre: Fibre) -> bool:
    """STG of one or two bytes: the other bytes of the register decide nothing."""
    registers = _registers(step.data, step.size)
    if step.size >= 4 or not registers.isdisjoint(_addresses(step.where)):
        return bool(step.run(machine, fibre))
    return _run(step, machine, fibre, dict.fromkeys(registers, (1 << step.size) - 1))


def _exchange(step: Any, machine: Machine, fibre: Fibre) -> bool:
    """SHFL: a lane gets doubtful bytes from a lane that has them, and from one that is not there."""
    _, place, value, distance, control = step.instruction.operands
    lanes, count = machine.guarded(step.instruction.guard, fibre.lanes)
    doubts = machine.doubts("R", value.number, None)
    shared = [o for o in (distance, control) if o.kind == "R" and o.number == value.number]
    if not count or shared or (doubts is None and lanes is None):
        return bool(step.run(machine, fibre))
    by, limits = (table(machine, o).astype(np.int64) for o in (distance, control))
    source, _ = shuffled(_MODES[step.instruction.modifiers[0]], by & 31, limits)
    rows, here = np.arange(machine.warps)[:, None], np.ones(machine.lanes, np.bool_)
    if lanes is not None:
        here[:] = False
        here[lanes] = True
    parts = np.zeros(machine.lanes, np.uint8) if doubts is None else doubts
    parts = np.where(here, parts, np.uint8(0xF)).reshape(-1, _WARP)[rows, source].reshape(-1)
    parts = parts if lanes is None else parts[lanes]
    machine.random.followed = True
    try:
        going = _run(step, machine, fibre, {value.number: 0} if value.number >= 0 else {})
    finally:
        machine.random.followed = False
    if parts.any():
        machine.depend("R", place.number, lanes, parts)
    return going


def _registers(data: Operand, size: int) -> set[int]:
    return {data.number + k for k in range(max(size // 4, 1))} if data.number >= 0 else set()


def _addresses(where: Operand) -> Collection[int]:
    """The registers of an address, which may be a pair."""
    return () if where.base is None else (where.base.number, where.base.number + 1)


_FOLLOWED: dict[str, Callable[[Any, Machine, Fibre], bool]] = {
    "LDS": _load, "STS": _store, "SHFL": _exchange, "STG": _narrow_store
}  # fmt: skip
