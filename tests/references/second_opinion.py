"""Slow, plain definitions on fractions and Python integers, that the references are held against."""

from fractions import Fraction
from itertools import product

import numpy as np
import torch

from references import formats
from references.formats import Format

DIRECTED = ("rz", "rm", "rp")


def neighbours(fmt: Format, exact: Fraction) -> tuple[Fraction, int, Fraction, int]:
    """The format's values around a non-negative number, with their codes less ignored bits.

    `above` may be the value that would follow the largest finite one; beyond that these two are given.
    """
    largest = formats.fraction(fmt, fmt.max_finite)
    size = min(exact, largest)
    exponent = fmt.min_exponent
    if size:
        # floor(log2(size)), from the lengths of numerator and denominator and one comparison
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        exponent = max(exponent - (size < Fraction(2) ** exponent), fmt.min_exponent)
    quantum = Fraction(2) ** (exponent - fmt.mantissa_bits)
    below = size // quantum * quantum
    low = formats.magnitude(fmt, formats.encode(fmt, below))
    return below, low, below + quantum, low + 1


def round_fraction(fmt: Format, exact: Fraction, rounding: str, satfinite: bool = False, negative: bool = False) -> int:
    """The code nearest to a fraction in a rounding mode; `negative` is the sign of a zero."""
    negative = exact < 0 or (exact == 0 and negative)
    size = abs(exact)
    below, low, above, high = neighbours(fmt, size)
    largest = formats.magnitude(fmt, fmt.max_finite)
    overflows = size >= above  # beyond even the value after the largest
    if overflows:
        outward = {"rn": True, "rna": True, "rz": False, "rm": negative, "rp": not negative}[rounding]
        magnitude = high if outward else low
    elif size == below:
        magnitude = low
    else:
        down = {
            "rn": size - below < above - size or (size - below == above - size and low % 2 == 0),
            "rna": size - below < above - size,
            "rz": True,
            "rm": not negative,
            "rp": negative,
        }[rounding]
        magnitude = low if down else high
    if magnitude > largest and satfinite:
        magnitude = largest
    sign = int(negative) << fmt.sign_shift if fmt.has_sign else 0
    return (magnitude << fmt.ignored_bits) | sign


def patterns(fmt: Format, count: int, seed: int) -> torch.Tensor:
    """Random codes, a quarter of them of each: any bits, exponents near the middle, small exponents, edges."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << fmt.code_bits, count, dtype=np.uint64)
    middle = np.uint64(fmt.bias + 1) + rng.integers(-3, 4, count).astype(np.uint64)
    small = rng.integers(0, fmt.mantissa_bits + 4, count).astype(np.uint64)
    keep = np.uint64((1 << fmt.code_bits - 1) | ((1 << fmt.mantissa_bits) - 1))
    shift = np.uint64(fmt.mantissa_bits)
    choice = rng.integers(0, 4, count)
    edge = rng.choice(np.array(edges(fmt), dtype=np.uint64), count)
    near = (bits & keep) | (middle << shift)
    tiny = (bits & keep) | (small << shift)
    chosen = np.choose(choice, [bits, near, tiny, edge])
    return torch.from_numpy(chosen.view(np.int64))


def edges(fmt: Format) -> list[int]:
    """Codes where something changes, both signs."""
    one = formats.encode(fmt, 1.0)
    positive = {0, 1, 2, 3, fmt.min_normal - 1, fmt.min_normal, fmt.min_normal + 1, one - 1, one, one + 1}
    positive |= {fmt.max_finite, fmt.max_finite - 1, fmt.max_finite >> 1, formats.encode(fmt, 2.0)}
    if fmt.infinity_code is not None:
        positive |= {fmt.infinity_code, fmt.infinity_code + 1, fmt.code_mask >> 1}
    return sorted(positive | {code | 1 << fmt.sign_shift for code in positive if fmt.has_sign})


def pairs(codes: list[int], width: int = 2) -> list[torch.Tensor]:
    """Every combination of `width` of the codes, one tensor an operand."""
    return list(torch.tensor(list(product(codes, repeat=width)), dtype=torch.int64).T.contiguous())


def same(expected: torch.Tensor, got: torch.Tensor, *inputs: torch.Tensor) -> None:
    """Fail with the first offender in hexadecimal unless the codes are equal."""
    wrong = torch.nonzero(expected != got).flatten()
    if len(wrong):
        at = int(wrong[0])
        operands = ", ".join(f"{int(operand[at]):#x}" for operand in inputs)
        raise AssertionError(
            f"{len(wrong)} of {len(got)} differ; first at {at}: ({operands}) expected {int(expected[at]):#x}, "
            f"got {int(got[at]):#x}"
        )
