"""The reduction of a load from tensor memory (tcgen05.ld.red): the least or the greatest number of each thread.

Sources: PTX ISA 9, 9.7.16.8, tcgen05.ld: the reduction is over the columns that a thread loads, and its operations are
`.min` and `.max`; these are the names of the instructions of 9.7.1.12, 9.7.1.13, 9.7.3.11 and 9.7.3.12, with `.NaN` and
`.abs` of the latter: of two zeros -0 is less; a NaN counts only with `.NaN`, or if all numbers are NaN; a NaN as result
is 0x7FFFFFFF; `.abs` takes absolute values. A probe of this instruction on a GPU of sm_103a, by others and not repeated
here, found 0x7FFFFFFF for a NaN with a payload among `.max.abs.NaN`, the payload in the loaded register, and for
.16x32bx2 a result of each thread's own columns.
"""

from __future__ import annotations

from collections.abc import Sequence

NAN = 0x7FFFFFFF


def _order(code: int, kind: str) -> int:
    """A number that is less for a lesser value of a type; for f32 -0 is less than +0."""
    if kind == "u32":
        return code
    if kind == "s32":
        return code - (code >> 31 << 32)
    magnitude = code & 0x7FFFFFFF
    return -1 - magnitude if code >> 31 else magnitude


def reduced(codes: Sequence[int], kind: str, operation: str, *, absolute: bool = False, nan: bool = False) -> int:
    """The code of the least or greatest of 32-bit codes of a type (u32, s32, f32). Raises ValueError if there are none.

    absolute, nan: the qualifiers `.abs` and `.NaN`, of f32 alone.
    """
    if kind != "f32":
        return {"min": min, "max": max}[operation](codes, key=lambda code: _order(code, kind))
    known = [code & 0x7FFFFFFF if absolute else code for code in codes if code & 0x7FFFFFFF <= 0x7F800000]
    if not known or (nan and len(known) < len(codes)):
        return NAN
    return {"min": min, "max": max}[operation](known, key=lambda code: _order(code, kind))


def columns_of(shape: str, count: int, thread: int, apart: int) -> list[tuple[int, int]]:
    """Lane and column, relative to the address, of the numbers that a thread of a warp loads.

    apart: the distance of the two accesses of .16x32bx2, of which threads 0 to 15 make the first.
    """
    first = apart * (thread // 16) if shape == "16x32bx2" else 0
    lane = thread % 16 if shape == "16x32bx2" else thread
    return [(lane, first + number) for number in range(count)]
