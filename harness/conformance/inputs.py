"""The inputs of a form: a pure function of its seed and an index, the same in Python, on the host and on a device.

Inputs of at most 32 bits in total are enumerated by the index in a scattered order, so that all can be tried. For more
bits, the low four bits of the index choose a stratum for all operands, so that operands can be related: equal except
for the sign, with near exponents, a product near an end of the range, an addend that cancels a product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.conformance.forms import FormSnippet
from ptxdiff.emulator.numeric.bits import mask, scalar, shr64, wrap64
from ptxdiff.emulator.numeric.vectorise import ArrayFunction
from ptxdiff.emulator.text.types import NARROW, ScalarType
from ptxdiff.inputs.edges import edge_units, product
from ptxdiff.references.formats import FORMATS

Columns = list[NDArray[Any]]

EXHAUSTIVE_BITS = 32
"""Forms with at most this many input bits can be tried on all inputs."""
SCATTER = -7046029254386353131
"""An odd number: index times it, truncated to the input's bits, gives every input once, and the first ones are spread
everywhere."""

# By PTX type: codes in a register, and exponent and fraction bits of a code. All other types are one integer.
SHAPES = {
    "f16": (1, 5, 10), "bf16": (1, 8, 7), "f32": (1, 8, 23), "tf32": (1, 8, 23), "f64": (1, 11, 52),
    "f16x2": (2, 5, 10), "bf16x2": (2, 8, 7), "f32x2": (2, 8, 23),
    "u16x2": (2, 0, 0), "s16x2": (2, 0, 0), "u8x4": (4, 0, 0), "s8x4": (4, 0, 0),
    **{f"{n.name}x4": (4, n.exponent_bits, n.mantissa_bits) for n in NARROW if f"{n.name}x4" in n.types},
    "e2m1p4x4": (4, 0, 0), "ue8m0x4": (4, 0, 0),
}  # fmt: skip
_EDGES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}


def shape_of(kind: ScalarType, bits: int) -> tuple[int, int, int, int]:
    """The layout of a type in a register: codes, bits of a code, exponent bits, fraction bits (0 and 0 for
    integers)."""
    if kind.width == 1:
        return 1, 1, 0, 0
    codes, exponent, fraction = SHAPES.get(kind.name, (1, 0, 0))
    # An 8-bit operand in a wider register: the bits above it must not matter, so they are drawn too.
    return codes, max(kind.width, bits) // codes if kind.width < bits else kind.width // codes, exponent, fraction


@scalar
def mixed(x: int) -> int:
    """A well mixed 64-bit word: the finalizer of splitmix64 (Steele, Lea and Flood, 2014)."""
    x = wrap64((x ^ shr64(x, 30)) * -4658895280553007687)
    x = wrap64((x ^ shr64(x, 27)) * -7723592293110705685)
    return x ^ shr64(x, 31)


@scalar
def chosen(word: int, count: int) -> int:
    """A number from 0 to `count` - 1, from a random word."""
    return (shr64(word, 11) & 0xFFFFFFFF) % count


@scalar
def drawn_integer(h: int, g: int, stratum: int, column: int, width: int, first: int) -> int:
    """An integer pattern of a stratum, from two random words."""
    k = chosen(g, width)
    if stratum < 5:
        return h
    if stratum < 8:  # of any bit length, of both signs
        value = shr64(h, 1) >> (62 - k) if k < 62 else h
        return -value if g & 1 else value
    if stratum < 10:  # next to a power of two
        value = (1 << k) + chosen(mixed(g), 5) - 2
        return ~value if g & 1 else value
    if stratum < 11:  # a run of ones
        value = mask(k + 1) << chosen(mixed(g), width)
        return ~value if g & 1 else value
    if stratum < 12:  # halfway between two floats, or next to that: upper bits, one, zeros
        return (h & ~mask(k + 1)) + (1 << k) + chosen(mixed(g), 3) - 1
    if stratum < 13 and column > 0:
        value = first + chosen(g, 5) - 2
        return -value if h & 1 else value
    if stratum < 15:  # small: counts, positions, ends of bytes
        return chosen(h, 2 * width + 8) - 4
    value = 0
    for byte in range(8):
        pick = chosen(wrap64(g * (2 * byte + 3)), 6)
        part = h >> (8 * byte) & 0xFF
        if pick < 5:
            part = 0x01 if pick == 1 else (0x7F if pick == 2 else (0x80 if pick == 3 else 0xFF * (pick == 4)))
        value |= part << (8 * byte)
    return value


@scalar
def limited(exponent: int, ebits: int) -> int:
    """An exponent field, clamped to its range."""
    return min(max(exponent, 0), mask(ebits))


@scalar
def edge_fraction(h: int, word: int, mbits: int) -> int:
    """A fraction with no bit, all bits, one bit or all bits but one set, or a neighbour of these."""
    pick = chosen(word, 8)
    bit = 1 << chosen(h, mbits)
    if pick < 3:
        return pick
    if pick < 5:
        return mask(mbits) - (pick - 3)
    if pick < 6:
        return bit
    return mask(mbits) ^ bit if pick < 7 else (bit - 1) & mask(mbits)


@scalar
def edge_exponent(word: int, ebits: int) -> int:
    """An exponent field at an end of the range or next to one."""
    pick = chosen(word, 9)
    top = mask(ebits)
    bias = top >> 1
    if pick < 3:
        return pick
    return bias + pick - 4 if pick < 6 else top - (pick - 6)


@scalar
def cancelling(g: int, ebits: int, mbits: int, first: int, second: int) -> int:
    """The negative product of two floats, truncated to their format, or a neighbour of it."""
    bias = mask(ebits) >> 1
    a = (first & mask(mbits)) | 1 << mbits
    b = (second & mask(mbits)) | 1 << mbits
    cut = mbits - 26 if mbits > 26 else 0
    significand = (a >> cut) * (b >> cut) >> (mbits - 2 * cut) if mbits > 26 else a * b >> mbits
    exponent = (first >> mbits & mask(ebits)) + (second >> mbits & mask(ebits)) - bias
    if significand >> (mbits + 1):
        significand >>= 1
        exponent += 1
    sign = (shr64(first, ebits + mbits) ^ shr64(second, ebits + mbits) ^ 1) & 1
    shift = chosen(g, 4) - 1 if chosen(g, 3) else chosen(g, mbits + 4) - 2
    value = limited(exponent + shift * (shift > 1), ebits) << mbits | (significand & mask(mbits))
    value = value + (chosen(mixed(g), 7) - 3) * (shift < 2)
    return (value & mask(ebits + mbits)) | sign << (ebits + mbits)


@scalar
def drawn_float(
    h: int, g: int, stratum: int, column: int, width: int, ebits: int, mbits: int, first: int, second: int
) -> int:
    """A float's pattern of a stratum, from two random words; `first`, `second`: the values of other columns."""
    bias = mask(ebits) >> 1
    sign = (h & 1) << (ebits + mbits)
    fraction = shr64(h, 1) & mask(mbits)
    exponent = limited(bias - 12 + chosen(g, 25), ebits)
    near = sign | exponent << mbits | fraction
    if stratum < 4:
        return h
    if stratum < 8:
        return near
    if stratum < 9:
        return sign | fraction >> chosen(g, mbits)
    if stratum < 10:
        return sign | edge_exponent(g, ebits) << mbits | edge_fraction(h >> 8, mixed(g), mbits)
    if stratum < 12:  # a tie of a narrower format, or a neighbour: upper bits, one, zeros
        bit = chosen(mixed(g), mbits)
        tie = (fraction & ~mask(bit + 1)) + (1 << bit) + chosen(mixed(h), 3) - 1
        if stratum < 11:
            exponent = chosen(mixed(g + 1), mask(ebits) + 1)
        return sign | exponent << mbits | (tie & mask(mbits))
    if column == 0:
        return near if h & 2 else h
    if stratum < 13:
        other = second if column == 2 and h & 2 else first
        return (other & mask(ebits + mbits)) + chosen(g, 7) - 3 ^ sign
    have = first >> mbits & mask(ebits)
    if stratum < 14:
        return sign | limited(have + chosen(g, 2 * mbits + 9) - mbits - 4, ebits) << mbits | fraction
    if stratum < 15:  # a product, or a quotient, at an end of the range
        end = chosen(mixed(g), mbits + 6) - mbits - 2 if g & 1 else mask(ebits) - 3 + chosen(g, 6)
        wanted = end + bias - have if g & 2 else have + bias - end
        return sign | limited(wanted, ebits) << mbits | fraction
    return cancelling(g, ebits, mbits, first, second) if column == 2 else near


@scalar
def draw(
    index: int,
    seed: int,
    column: int,
    codes: int,
    width: int,
    ebits: int,
    mbits: int,
    first: int,
    second: int,
) -> int:
    """Input number `index` of one operand; `first` and `second`: the values of columns 0 and 1, if already drawn."""
    result = 0
    for position in range(codes):
        h = mixed(index * SCATTER + seed + (column * 16 + position) * 0x2545F4914F6CDD1D)
        g = mixed(h + 0x1B873593CC9E2D51)
        at = position * width
        if ebits == 0:
            code = drawn_integer(h, g, index & 15, column, width, first >> at)
        else:
            code = drawn_float(h, g, index & 15, column, width, ebits, mbits, first >> at, second >> at)
        result |= (code & mask(width)) << at
    return result


class Inputs:
    """A snippet's inputs on the host."""

    def __init__(self, snippet: FormSnippet) -> None:
        self.snippet = snippet
        self.shapes = [shape_of(p.type, p.bits) for p in snippet.inputs]
        self.exhaustive = snippet.input_bits <= EXHAUSTIVE_BITS
        self.count = 1 << snippet.input_bits if self.exhaustive else 1 << 40

    @property
    def widths(self) -> list[int]:
        """How many bits of the index each operand takes if all inputs are tried; the first operand takes the
        highest."""
        return [1 if p.type.width == 1 else p.bits for p in self.snippet.inputs]

    def drawn(self, start: int, count: int) -> Columns:
        """`count` inputs from number `start` on, as unsigned arrays of the registers' widths."""
        return self.at(start + np.arange(count, dtype=np.int64))

    def at(self, index: NDArray[np.int64]) -> Columns:
        """The inputs with these numbers."""
        kinds = [np.dtype(f"u{p.bits // 8}") for p in self.snippet.inputs]
        if self.exhaustive:
            columns: Columns = []
            shift = sum(self.widths)
            word = index * SCATTER
            for width, kind in zip(self.widths, kinds, strict=True):
                shift -= width
                columns.append((word >> shift & ((1 << width) - 1)).astype(kind))
            return columns
        drawn: Columns = []
        zero = np.zeros(1, np.int64)
        for column, shape in enumerate(self.shapes):
            first, second = (drawn[k] if k < min(column, 2) else zero for k in (0, 1))
            drawn.append(_drawn(index, self.snippet.seed, column, shape, first, second))
        return [w.astype(kind) for w, kind in zip(drawn, kinds, strict=True)]

    def edges(self, most: int) -> Columns:
        """At most about `most` combinations of the operands' edge values."""
        rng = np.random.default_rng(self.snippet.seed)
        columns = [edge_units(FORMATS[_format(p.type, p.bits)]) for p in self.snippet.inputs]
        columns = [c & 1 if p.type.width == 1 else c for c, p in zip(columns, self.snippet.inputs, strict=True)]
        columns = [np.unique(c) for c in columns]
        rows = columns if len(columns) == 1 else product(columns, most, rng)
        return [r.astype(f"u{p.bits // 8}") for r, p in zip(rows, self.snippet.inputs, strict=True)]


def _format(kind: ScalarType, bits: int) -> str:
    name = _EDGES.get(kind.name, kind.name)
    fitting = name in FORMATS and FORMATS[name].unit_bits == bits
    return name if fitting else f"uint{bits}"


@scalar
def _placed(
    index: int, first: int, second: int, seed: int, column: int, codes: int, width: int, ebits: int, mbits: int
) -> int:
    """`draw`, with the parameters first that differ by lane."""
    return draw(index, seed, column, codes, width, ebits, mbits, first, second)


def _drawn(
    index: NDArray[Any],
    seed: int,
    column: int,
    shape: tuple[int, int, int, int],
    first: NDArray[Any],
    second: NDArray[Any],
) -> NDArray[Any]:
    """`draw` over an array of indices; a few are drawn in Python, without compiling."""
    if len(index) <= 64:
        pairs = np.broadcast_arrays(index, first, second)
        rows = zip(*(p.tolist() for p in pairs), strict=True)
        return np.array([wrap64(draw(i, seed, column, *shape, a, b)) for i, a, b in rows], np.int64)
    lanes = ArrayFunction(_placed, (seed, column, *shape), ((64, True),) * 3, 64)
    operands = [np.broadcast_to(operand, len(index)) for operand in (index, first, second)]
    return lanes.shared(len(index), *operands).view(np.int64)
