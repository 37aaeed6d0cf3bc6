"""Derive `references/hard_cases.py`: the float32 inputs whose results float64 cannot round safely.

The script computes the float64 result for every float32 input of each function. If the result is within 32 units in the
last place of float64 from the midpoint of two float32 values, the input goes into the table, with the result that
mpmath finds at 200 bits. This takes a few minutes. After adding a function, run the script from the root of the
project.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import mpmath
import torch
from torch import Tensor

from ptxdiff.references import formats
from ptxdiff.references.formats import F32

MARGIN = 32
CHUNK = 1 << 22
ONE = 0x3F800000

EXACT: dict[str, Callable[[mpmath.mpf], mpmath.mpf]] = {
    "ex2": lambda x: mpmath.power(2, x),
    "lg2": lambda x: mpmath.log(x, 2),
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "tanh": mpmath.tanh,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
}
FLOAT64: dict[str, Callable[[Tensor], Tensor]] = {
    "ex2": torch.exp2,
    "lg2": torch.log2,
    "sin": torch.sin,
    "cos": torch.cos,
    "tanh": torch.tanh,
    "rsqrt": torch.rsqrt,
}
# Odd and even functions need one sign. Below the first code the result rounds to 1 or to the operand; after the last it
# is zero, infinite or 1. rsqrt repeats every two binades.
RANGES: dict[str, list[tuple[int, int]]] = {
    "ex2": [(0x32000000, 0x43200000), (0xB2000000, 0xC3200000)],
    "lg2": [(0x00000001, 0x7F800000)],
    "sin": [(0x37000000, 0x7F800000)],
    "cos": [(0x37000000, 0x7F800000)],
    "tanh": [(0x37000000, 0x41800000)],
    "rsqrt": [(ONE, ONE + (1 << 24))],
}


def candidates(name: str) -> Iterator[int]:
    """Codes whose float64 result is too close to a midpoint of float32: by its low 29 bits, or where the result is
    subnormal in float32, by its distance in units of 2^-149."""
    for first, last in RANGES[name]:
        for start in range(first, last, CHUNK):
            codes = torch.arange(start, min(start + CHUNK, last))
            value = codes.to(torch.int32).view(torch.float32).to(torch.float64)
            result = FLOAT64[name](value)
            near = ((result.view(torch.int64) & ((1 << 29) - 1)) - (1 << 28)).abs() <= MARGIN
            if name == "ex2":
                units = result * 2.0**149
                near_subnormal = (units - units.floor() - 0.5).abs() <= units * MARGIN * 2.0**-52
                near = torch.where(result < 2.0**-126, near_subnormal, near)
            yield from codes[near].tolist()


def exactly(name: str, code: int) -> int:
    """The float32 nearest to the true value, found by comparison with the neighbouring midpoints."""
    with mpmath.workprec(300):
        true = EXACT[name](mpmath.mpf(formats.value(F32, code)))
        size = abs(true)
        low = formats.ordinal(F32, int(torch.tensor(float(size), dtype=torch.float32).view(torch.int32).item()))
        below, middle, above = (to_mpf(low + step) for step in (-1, 0, 1))
        if size > (middle + above) / 2:
            low += 1
        elif size < (below + middle) / 2:
            low -= 1
        elif size in ((middle + above) / 2, (below + middle) / 2):
            even = [place for place in (low - 1, low, low + 1) if place % 2 == 0]
            low = min(even, key=lambda place: abs(to_mpf(place) - size))
    return min(low, 0x7F800000) | (1 << 31 if true < 0 else 0)


def to_mpf(place: int) -> mpmath.mpf:
    """The exact value of a float32 from its place among the values; infinity has the value 2^128, and later places
    follow."""
    infinity = 0x7F800000
    return mpmath.mpf(2) ** 128 if place >= infinity else mpmath.mpf(formats.value(F32, max(place, 0)))


def main() -> None:
    """Write the module."""
    lines = [HEADER]
    for name in EXACT:
        table = [(code, exactly(name, code)) for code in sorted(candidates(name))]
        lines.append(f"    {name!r}: (".replace("'", '"'))
        pairs = [f"(0x{code:08X}, 0x{result:08X})," for code, result in table]
        lines += ["        " + " ".join(pairs[start : start + 4]) for start in range(0, len(pairs), 4)]
        lines.append("    ),")
        print(name, len(table))
    lines += ["}", "# fmt: on"]
    Path("references/hard_cases.py").write_text("\n".join(lines) + "\n")


HEADER = '''"""float32 inputs whose results lie so close to the middle of two float32 values that float64 cannot decide.

For each function (input code, correctly rounded result code), in ascending order: all inputs whose float64 result is
within 32 units in its last place of a midpoint, the results found at 300 bits. Odd and even functions list positive
inputs; rsqrt lists [1, 4), the rest follows by powers of four. Written by `tests/references/derive_hard_cases.py`.
"""

# fmt: off
HARD_CASES: dict[str, tuple[tuple[int, int], ...]] = {'''

if __name__ == "__main__":
    main()
