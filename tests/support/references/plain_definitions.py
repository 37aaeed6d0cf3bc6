"""Slow, plain definitions on fractions and Python integers, with which tests compare the references."""

from fractions import Fraction
from itertools import product

import numpy as np
import torch

from ptxdiff.references import formats
from ptxdiff.references.formats import Format

DIRECTED = ("rz", "rm", "rp")


def split(fmt: Format, exact: Fraction) -> tuple[int, int, int]:
    """The code, without ignored bits, of the largest value of the format that is at most a non-negative number, as if
    codes continued after the largest; and the remainder: `rest` of `parts` equal parts of the distance to the next
    value."""
    rest, parts = exact.numerator, exact.denominator
    exponent = fmt.min_exponent
    if rest:
        # floor(log2(exact)), from the lengths of numerator and denominator and one comparison
        exponent = rest.bit_length() - parts.bit_length()
        exponent -= rest < parts << exponent if exponent >= 0 else rest << -exponent < parts
        exponent = max(exponent, fmt.min_exponent)
    quantum = exponent - fmt.mantissa_bits
    if quantum < 0:
        rest <<= -quantum
    else:
        parts <<= quantum
    count, rest = divmod(rest, parts)
    count += exponent - fmt.min_exponent << fmt.mantissa_bits
    if not fmt.has_zero:
        count -= 1 << fmt.mantissa_bits
        assert count >= 0, f"{exact} is below the least value of {fmt.name}"
    return count, rest, parts


def round_fraction(fmt: Format, exact: Fraction, rounding: str, satfinite: bool = False, negative: bool = False) -> int:
    """The code of a fraction, rounded in a mode. `negative`: the sign of a zero."""
    negative = exact < 0 or (exact == 0 and negative)
    low, rest, parts = split(fmt, abs(exact))
    largest = formats.magnitude(fmt, fmt.max_finite)
    if low > largest:  # at least the value that would follow the largest
        outward = {"rn": True, "rna": True, "rz": False, "rm": negative, "rp": not negative}[rounding]
        magnitude = largest + outward
    elif rest == 0:
        magnitude = low
    else:
        up = {
            "rn": 2 * rest > parts or (2 * rest == parts and low % 2 == 1),
            "rna": 2 * rest >= parts,
            "rz": False,
            "rm": negative,
            "rp": not negative,
        }[rounding]
        magnitude = low + up
    if magnitude > largest and satfinite:
        magnitude = largest
    sign = int(negative) << fmt.sign_shift if fmt.has_sign else 0
    return (magnitude << fmt.ignored_bits) | sign


def patterns(fmt: Format, count: int, seed: int) -> torch.Tensor:
    """Random codes, a quarter of each kind: any bits, exponents near the middle, small exponents, edges."""
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
    """Codes at which something changes, with both signs."""
    one = formats.encode(fmt, 1.0)
    positive = {0, 1, 2, 3, fmt.min_normal - 1, fmt.min_normal, fmt.min_normal + 1, one - 1, one, one + 1}
    positive |= {fmt.max_finite, fmt.max_finite - 1, fmt.max_finite >> 1, formats.encode(fmt, 2.0)}
    if fmt.infinity_code is not None:
        positive |= {fmt.infinity_code, fmt.infinity_code + 1, fmt.code_mask >> 1}
    return sorted(positive | {code | 1 << fmt.sign_shift for code in positive if fmt.has_sign})


def pairs(codes: list[int], width: int = 2) -> list[torch.Tensor]:
    """Every combination of `width` of the codes, one tensor for each operand."""
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
