"""Sizes of launches at which code has special cases: the numbers in it, and a launch with more programs than these.

A kernel that gets its size, or asks for the number of its program, can be wrong at one size or one program alone. The
shapes of a plan are few and small, so such a kernel also runs beside each number of its code, and once with many
elements. Sizes and programs beyond `LARGEST` elements are not run.
"""

from __future__ import annotations

from ptxdiff.model.constants import constants_of
from ptxdiff.model.ptxvariant import ComparedPtx
from ptxdiff.model.variants import LaunchedVariant
from ptxdiff.triton.launch import grid_of

LARGEST = 1 << 20
"""The most elements of a launch; the emulator runs as many in a third of a second."""
MANY = (1 << 18) + 1
"""Elements of the launch with many: more than 16 bits count, and 257 programs of 1024."""
_NUMBERS = 32
"""Numbers of the code that are used, the largest first."""


def sizes_beside(variant: LaunchedVariant) -> tuple[int, ...]:
    """The sizes, in increasing order: each number of the code that is a size, the next ones, and a large one.

    The large one has the program of every number for which `LARGEST` elements suffice, and two programs more.
    """
    numbers = sorted({n for n in constants_of(variant) if isinstance(n, int) and 1 < n <= LARGEST})
    beside = {n + k for n in numbers[-_NUMBERS:] for k in (-1, 0, 1)}
    launched = variant.together if isinstance(variant, ComparedPtx) else (variant,)
    large = max(_large(v, numbers) for v in launched)
    return tuple(sorted({n for n in beside if n <= LARGEST} | {large}))


def _large(variant: LaunchedVariant, numbers: list[int]) -> int:
    """The smallest size from `MANY` on with the programs of all these numbers that it can have."""
    most = _programs(variant, LARGEST)
    wanted = max((n + 2 for n in numbers if n + 2 <= most), default=0)
    low, high = MANY, LARGEST
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _programs(variant, middle) >= wanted else (middle + 1, high)
    return low


def _programs(variant: LaunchedVariant, size: int) -> int:
    """The programs along the widest dimension of the grid; 0 if it cannot be told for this size."""
    try:
        return max(grid_of(variant, {"n": size}), default=0)
    except Exception:  # the grid may be a function of the user; the run at this size reports the error
        return 0
