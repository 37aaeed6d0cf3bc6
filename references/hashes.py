"""Integer hashes and counter-based random numbers, as kernels use them for dropout and stochastic rounding.

Codes are zero-extended 32-bit patterns (splitmix64: two's complement 64-bit ones) in and out; all arithmetic wraps.

Sources: A. Appleby, MurmurHash3 (fmix32); G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number
generators", 2014 (splitmix64, with D. Stafford's Mix13); J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random
numbers: as easy as 1, 2, 3", 2011 (Philox4x32-10); G. Marsaglia, "Xorshift RNGs", 2003.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxdiff.references.rounding import shift_right

if TYPE_CHECKING:
    from torch import Tensor

MASK32 = 0xFFFFFFFF
PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
PHILOX_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


def fmix32(h: Tensor) -> Tensor:
    """MurmurHash3's last step: a bijection of 32-bit words."""
    h = (h ^ (h >> 16)) * 0x85EBCA6B & MASK32
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & MASK32
    return h ^ (h >> 16)


def splitmix64(state: Tensor) -> Tensor:
    """The output of splitmix64 for a state to which the golden ratio has not yet been added."""
    z = state + _signed(0x9E3779B97F4A7C15)
    z = (z ^ shift_right(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ shift_right(z, 27)) * _signed(0x94D049BB133111EB)
    return z ^ shift_right(z, 31)


def _signed(pattern: int) -> int:
    return pattern - (1 << 64) if pattern >> 63 else pattern


def xorshift32(x: Tensor) -> Tensor:
    """One step of the generator with shifts 13, 17, 5; 0 stays 0."""
    x = x ^ (x << 13 & MASK32)
    x = x ^ (x >> 17)
    return x ^ (x << 5 & MASK32)


def philox(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor], rounds: int = 10
) -> list[Tensor]:
    """Philox4x32: the four random words of a 128-bit counter under a 64-bit key, low words first."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(rounds):
        low0, high0 = _halves(c0, PHILOX_MULTIPLIERS[0])
        low1, high1 = _halves(c2, PHILOX_MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + PHILOX_KEY_STEPS[0]) & MASK32, (k1 + PHILOX_KEY_STEPS[1]) & MASK32
    return [c0, c1, c2, c3]


def _halves(x: Tensor, multiplier: int) -> tuple[Tensor, Tensor]:
    """The low and the high 32 bits of a product, whose 64 bits fit an int64."""
    product = x * multiplier
    return product & MASK32, shift_right(product, 32)


def philox4x32_10(c0: Tensor, c1: Tensor, c2: Tensor, c3: Tensor, k0: Tensor, k1: Tensor) -> tuple[Tensor, ...]:
    """`philox` with each word as a separate argument."""
    return tuple(philox((c0, c1, c2, c3), (k0, k1)))
