"""Values of special registers in a bare asm block, which has no grid: stand-ins, or values that a caller gives.

Lanes stand for the threads of one long one-dimensional block: `%tid.x` is the lane's number, `%laneid` that number
modulo 32. Clocks and timers read 0. With stand-ins, a block that reads such a register can run. But nothing promises
which thread computes which element, so a result that depends on a stand-in is refused unless the caller gives the
register a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ptxdiff.emulator.binding.program import Program
from ptxdiff.emulator.binding.special_registers import SPECIAL_REGISTERS, spelled
from ptxdiff.emulator.errors import BindingError, UndefinedBits, UnknownSpecialRegister
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.emulator.text.types import TYPES


def special(name: str, component: str, lanes: int) -> Array:
    """The value of a special register in each lane, as 64-bit patterns."""
    lane = np.arange(lanes, dtype=np.uint64)
    in_warp = lane % np.uint64(32)
    one = np.ones(lanes, np.uint64)
    if name == "%tid":
        return lane if component == "x" else one - one
    if name in ("%nctaid", "%nclusterid", "%cluster_nctaid", "%cluster_nctarank") or (
        name == "%ntid" and component != "x"
    ):
        return one
    if name == "%ntid":
        return one * np.uint64(lanes)
    if name == "%laneid":
        return in_warp
    if name == "%warpid":
        return lane // np.uint64(32)
    if name.startswith("%lanemask_"):
        return lane_mask(name[10:], in_warp)
    return one - one


def lane_mask(which: str, lane: Array) -> Array:
    """The values of `%lanemask_eq` and its kind for lanes of a warp, as 64-bit patterns."""
    bit = np.uint64(1) << lane
    below = bit - np.uint64(1)
    ones = np.uint64(0xFFFFFFFF)
    masks = {"eq": bit, "lt": below, "le": below | bit, "gt": ~(below | bit) & ones, "ge": ~below & ones}
    return masks[which]


def named_values(special: Mapping[str, Any], shape: tuple[int, ...], pack: int) -> dict[str, Array]:
    """The values that a caller gives special registers, as 64-bit patterns: one, or one for each element of `shape`.

    Raises BindingError for an unknown name, and for values that do not fit.
    """
    if not isinstance(special, Mapping):
        raise BindingError(f"special={special!r} is no mapping of registers' names to values: give {{'%laneid': 3}}")
    by_name = {}
    for name, given in special.items():
        if not isinstance(name, str):
            raise BindingError(f"special={{{name!r}: ...}}: a register is named by a string such as '%laneid'")
        base, _, component = name.partition(".")
        kind, vector = SPECIAL_REGISTERS.get(base, ("", False))
        if not kind or vector != (component in ("x", "y", "z", "w")) or bool(component) != vector:
            raise BindingError(f"special={{{name!r}: ...}}: no special register is written so; '%tid.x', '%laneid' are")
        try:
            values = np.asarray(given)
        except ValueError:
            raise BindingError(f"special={{{name!r}: ...}}: rows of different lengths are no array") from None
        largest = (1 << TYPES[kind].width) - 1
        if values.dtype.kind not in "iub" or (
            values.size and not 0 <= int(values.min()) <= int(values.max()) <= largest
        ):
            raise BindingError(f"special={{{name!r}: ...}}: give integers from 0 to {largest}")
        if values.size != 1 and pack > 1:
            raise BindingError(
                f"special={{{name!r}: ...}}: {pack} elements share an invocation; give one value for all"
            )
        try:
            spread = values.reshape(1) if values.size == 1 else np.broadcast_to(values, shape)
        except ValueError:
            message = f"special={{{name!r}: ...}}: shape {values.shape} does not fit the elements' {shape}"
            raise BindingError(message) from None
        by_name[name] = spread.reshape(-1).astype(np.uint64)
    return by_name


def refuse_stand_ins(program: Program, named: Mapping[str, Any], run: Callable[[bool], None]) -> None:
    """Run a program. If it fails only because a special register has no value, raise an error that says so.

    `run` takes a bool: whether stand-ins count as defined values.
    """
    try:
        run(False)
    except UndefinedBits:
        unknown = unknown_registers(program, lambda name, component: spelled(name, component) in named)
        if not unknown:
            raise
        try:
            run(True)
        except UndefinedBits:
            pass
        else:
            names = " and ".join(unknown)
            name, offset = next(iter(unknown.items()))
            message = (
                f"a result depends on {names}, and asm alone has no such value: which thread computes an element is "
                f"not promised, and clocks run on; keep it out of results, or give it a value: special={{{name!r}: 0}}"
            )
            raise program.source.error(UnknownSpecialRegister, message, offset) from None
        raise


def unknown_registers(program: Program, known: Callable[[str, str], bool]) -> dict[str, int]:
    """The special registers without a value that a program reads, with the offset of the first read."""
    first_offsets: dict[str, int] = {}
    for step in program.steps:
        if step.kind == "special":
            for name, component in step.detail:
                if not known(name, component):
                    first_offsets.setdefault(spelled(name, component), step.node.offset)
    return first_offsets
