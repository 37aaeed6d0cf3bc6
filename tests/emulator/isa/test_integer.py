"""Integer arithmetic, packed types, dot products and carries compared with Python integers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from ptxdiff.emulator import emulate
from ptxdiff.emulator.errors import UnknownInstruction, UnsupportedOnTarget
from tests.support.emulator.isa.integers import Plain, check, inputs, signed, width

TYPES = ("u16", "u32", "u64", "s16", "s32", "s64")
SIGNED = ("s16", "s32", "s64")


def clamp(x: int, kind: str) -> int:
    bits = width(kind)
    if kind[0] == "s":
        return min(max(x, -(2 ** (bits - 1))), 2 ** (bits - 1) - 1)
    return min(max(x, 0), 2**bits - 1)


def truncated(a: int, b: int) -> int:
    """The quotient rounded towards zero; all ones if b is zero."""
    if b == 0:
        return -1
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int:
    return -1 if b == 0 else a - truncated(a, b) * b


BINARY: dict[str, Plain] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "div": truncated,
    "rem": remainder,
    "min": min,
    "max": max,
}


@pytest.mark.parametrize(("name", "kind"), list(product(BINARY, TYPES)))
def test_two_sources(name: str, kind: str) -> None:
    check(f"{name}.{kind}", [kind] * 2, BINARY[name])


@pytest.mark.parametrize("kind", TYPES)
def test_upper_half_of_a_product(kind: str) -> None:
    bits = width(kind)
    check(f"mul.hi.{kind}", [kind] * 2, lambda a, b: a * b >> bits)
    check(f"mad.hi.{kind}", [kind] * 3, lambda a, b, c: (a * b >> bits) + c)
    check(f"mad.lo.{kind}", [kind] * 3, lambda a, b, c: a * b + c)


@pytest.mark.parametrize("kind", ["u16", "u32", "s16", "s32"])
def test_wide_products(kind: str) -> None:
    wide = f"{kind[0]}{2 * width(kind)}"
    check(f"mul.wide.{kind}", [kind] * 2, lambda a, b: a * b)
    check(f"mad.wide.{kind}", [kind, kind, wide], lambda a, b, c: a * b + c)


@pytest.mark.parametrize("kind", TYPES)
def test_sum_of_distances(kind: str) -> None:
    check(f"sad.{kind}", [kind] * 3, lambda a, b, c: c + abs(a - b))


@pytest.mark.parametrize("kind", SIGNED)
def test_signs(kind: str) -> None:
    check(f"abs.{kind}", [kind], abs)
    check(f"neg.{kind}", [kind], lambda a: -a)


@pytest.mark.parametrize(
    ("spelling", "sources", "plain"),
    [
        ("add.sat.s32", 2, lambda a, b: clamp(a + b, "s32")),
        ("sub.sat.s32", 2, lambda a, b: clamp(a - b, "s32")),
        ("mad.hi.sat.s32", 3, lambda a, b, c: clamp((a * b >> 32) + c, "s32")),
        ("min.relu.s32", 2, lambda a, b: max(min(a, b), 0)),
        ("max.relu.s32", 2, lambda a, b: max(a, b, 0)),
    ],
)
def test_clamped_forms(spelling: str, sources: int, plain: Plain) -> None:
    check(spelling, ["s32"] * sources, plain)


def test_unsigned_saturating_sum() -> None:
    check("add.sat.u32", ["u32"] * 2, lambda a, b: min(a + b, 2**32 - 1))


def product24(a: int, b: int, kind: str) -> int:
    """The product of the low 24 bits of both, which for s32 are in two's complement."""
    x, y = (signed(v, 24) if kind == "s32" else v & 0xFFFFFF for v in (a, b))
    return x * y


@pytest.mark.parametrize(("kind", "mode"), list(product(["u32", "s32"], ["lo", "hi"])))
def test_products_of_24_bits(kind: str, mode: str) -> None:
    shift = 16 if mode == "hi" else 0
    check(f"mul24.{mode}.{kind}", [kind] * 2, lambda a, b: product24(a, b, kind) >> shift)
    check(f"mad24.{mode}.{kind}", [kind] * 3, lambda a, b, c: (product24(a, b, kind) >> shift) + c)


def test_saturating_product_of_24_bits() -> None:
    check(
        "mad24.hi.sat.s32",
        ["s32"] * 3,
        lambda a, b, c: clamp(signed(product24(a, b, "s32") >> 16, 32) + c, "s32"),
    )


@pytest.mark.parametrize("step", [pytest.param(23, id="few"), pytest.param(1, id="all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["u16", "s16"])
def test_16_bit_dividends(kind: str, step: int) -> None:
    ends = [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF]
    rows = [(a, b) for b in (0, 3, 0x8000, 0xFFFF) for a in (*range(0, 1 << 16, step), *ends)]
    check(f"div.{kind}", [kind] * 2, truncated, rows)
    check(f"rem.{kind}", [kind] * 2, remainder, rows)


# Packed types ------------------------------------------------------------------------------------------------


def elements(pattern: int, kind: str) -> list[int]:
    bits = 16 if kind.endswith("16x2") else 8
    parts = [pattern >> (bits * i) & ((1 << bits) - 1) for i in range(32 // bits)]
    return [signed(p, bits) for p in parts] if kind[0] == "s" else parts


def packed(values: list[int], kind: str) -> int:
    bits = 16 if kind.endswith("16x2") else 8
    return sum((v & ((1 << bits) - 1)) << (bits * i) for i, v in enumerate(values))


def by_element(operation: Callable[..., int], kind: str) -> Plain:
    def plain(*sources: int) -> int:
        return packed([operation(*parts) for parts in zip(*(elements(s, kind) for s in sources), strict=True)], kind)

    return plain


COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    **{word: getattr(operator, word) for word in ("eq", "ne", "lt", "le", "gt", "ge")},
    "lo": operator.lt,
    "ls": operator.le,
    "hi": operator.gt,
    "hs": operator.ge,
}


def bounded(x: int, kind: str) -> int:
    return clamp(x, f"{kind[0]}{16 if kind.endswith('16x2') else 8}")


PACKED = [
    *((f"add.{k}", 2, by_element(lambda a, b: a + b, k), k) for k in ("u16x2", "s16x2", "u8x4", "s8x4")),
    *((f"sub.{k}", 2, by_element(lambda a, b: a - b, k), k) for k in ("u8x4", "s8x4")),
    *((f"min.{k}", 2, by_element(min, k), k) for k in ("u16x2", "s16x2", "u8x4", "s8x4")),
    *((f"max.{k}", 2, by_element(max, k), k) for k in ("u16x2", "s16x2", "u8x4", "s8x4")),
    *((f"min.relu.{k}", 2, by_element(lambda a, b: max(min(a, b), 0), k), k) for k in ("s16x2", "s8x4")),
    *((f"max.relu.{k}", 2, by_element(lambda a, b: max(a, b, 0), k), k) for k in ("s16x2", "s8x4")),
    *(
        (f"add.sat.{k}", 2, by_element(lambda a, b, k=k: bounded(a + b, k), k), k)
        for k in ("u16x2", "s16x2", "u8x4", "s8x4")
    ),
    *((f"sub.sat.{k}", 2, by_element(lambda a, b, k=k: bounded(a - b, k), k), k) for k in ("u8x4", "s8x4")),
    ("neg.s8x4", 1, by_element(lambda a: -a, "s8x4"), "s8x4"),
    *(
        (f"set.{cmp}.{k}", 2, by_element(lambda a, b, holds=holds: -1 if holds(a, b) else 0, k), k)
        for k in ("u16x2", "s16x2", "u8x4", "s8x4")
        for cmp, holds in COMPARISONS.items()
        if k[0] == "u" or cmp not in ("lo", "ls", "hi", "hs")
    ),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("spelling", "sources", "plain", "kind"), PACKED, ids=[p[0] for p in PACKED])
def test_packed_elements(spelling: str, sources: int, plain: Plain, kind: str) -> None:
    check(spelling, [kind] * sources, plain)


def pairs_of_bytes(kind: str) -> list[tuple[int, int]]:
    """Every pair of bytes once, four in a register; each element gets every first byte and every second byte."""
    found = []
    for b in range(256):
        for first in range(0, 256, 4):
            found.append((packed([first + (i + b) % 4 for i in range(4)], kind), packed([b] * 4, kind)))
    return found


SPREAD_PAIRS = [(a | b << 16, b | a << 24) for a in range(256) for b in range(256)]
"""Every pair of bytes in the lowest element, with a zero in each other element."""


@pytest.mark.sample(2)
@pytest.mark.parametrize("spread", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["u8x4", "s8x4"])
def test_every_pair_of_bytes(kind: str, spread: bool) -> None:
    rows = SPREAD_PAIRS if spread else pairs_of_bytes(kind)
    check(f"add.sat.{kind}", [kind] * 2, by_element(lambda a, b: bounded(a + b, kind), kind), rows)
    check(f"min.{kind}", [kind] * 2, by_element(min, kind), rows)
    check(f"set.lt.{kind}", [kind] * 2, by_element(lambda a, b: -(a < b), kind), rows)


def test_the_packed_comparison_that_the_isa_shows() -> None:
    """`set.ge.s16x2`: -32641 against -514 does not hold, 1531 against -508 does; unsigned words need unsigned types."""
    a, b = np.uint32([0x05FB807F]), np.uint32([0xFE04FDFE])
    assert emulate("set.ge.s16x2 $0, $1, $2;", "=r,r,r", [a, b], "uint32", target="sm_107a")[0] == 0xFFFF0000
    with pytest.raises(UnsupportedOnTarget, match=r"set\.ge\.s16x2 needs sm_107f; the target is sm_120a"):
        emulate("set.ge.s16x2 $0, $1, $2;", "=r,r,r", [a, b], "uint32", target="sm_120a")
    with pytest.raises(UnknownInstruction, match="has no form with these modifiers"):
        emulate("set.hs.s16x2 $0, $1, $2;", "=r,r,r", [a, b], "uint32", target="sm_107a")


# Dot products ------------------------------------------------------------------------------------------------


def parts(x: int, bits: int, kind: str) -> list[int]:
    found = [x >> (bits * i) & ((1 << bits) - 1) for i in range(32 // bits)]
    return [signed(f, bits) for f in found] if kind == "s32" else found


@pytest.mark.parametrize(("atype", "btype"), list(product(["u32", "s32"], repeat=2)))
def test_dot_products(atype: str, btype: str) -> None:
    def four(a: int, b: int, c: int) -> int:
        return c + sum(x * y for x, y in zip(parts(a, 8, atype), parts(b, 8, btype), strict=True))

    check(f"dp4a.{atype}.{btype}", ["u32"] * 3, four)
    for mode, first in (("lo", 0), ("hi", 2)):

        def two(a: int, b: int, c: int, first: int = first) -> int:
            picked = parts(b, 8, btype)[first : first + 2]
            return c + sum(x * y for x, y in zip(parts(a, 16, atype), picked, strict=True))

        check(f"dp2a.{mode}.{atype}.{btype}", ["u32"] * 3, two)


# Carries -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_carry_and_borrow(kind: str) -> None:
    bits = width(kind)
    ones = (1 << bits) - 1
    two, three = [kind, kind], [kind, kind, "pred"]
    check(f"add.cc.{kind}", two, lambda a, b: a + b)
    check(f"add.cc.{kind}", two, lambda a, b: (a & ones) + (b & ones) >> bits, result=1)
    check(f"addc.{kind}", three, lambda a, b, cc: a + b + cc)
    check(f"addc.cc.{kind}", three, lambda a, b, cc: (a & ones) + (b & ones) + cc >> bits, result=1)
    check(f"sub.cc.{kind}", two, lambda a, b: a - b)
    check(f"sub.cc.{kind}", two, lambda a, b: (a & ones) >= (b & ones), result=1)
    check(f"subc.{kind}", three, lambda a, b, cc: a + (~b & ones) + cc)
    check(f"subc.cc.{kind}", three, lambda a, b, cc: (a & ones) + (~b & ones) + cc >> bits, result=1)


@pytest.mark.parametrize(("kind", "mode"), list(product(["u32", "s32", "u64", "s64"], ["lo", "hi"])))
def test_carry_of_a_product(kind: str, mode: str) -> None:
    bits = width(kind)
    ones = (1 << bits) - 1

    def half(a: int, b: int) -> int:
        return (a * b >> (bits if mode == "hi" else 0)) & ones

    check(f"mad.{mode}.cc.{kind}", [kind] * 3, lambda a, b, c: half(a, b) + (c & ones) >> bits, result=1)
    four = [kind, kind, kind, "pred"]
    check(f"madc.{mode}.{kind}", four, lambda a, b, c, cc: half(a, b) + c + cc)
    check(f"madc.{mode}.cc.{kind}", four, lambda a, b, c, cc: half(a, b) + (c & ones) + cc >> bits, result=1)


@pytest.mark.parametrize(
    ("spelling", "plain"),
    [
        ("addc.sat.s32", lambda a, b, cc: clamp(a + b + cc, "s32")),
        ("subc.sat.s32", lambda a, b, cc: clamp(a - b - 1 + cc, "s32")),
        # An H200 does not clamp, and 16-bit forms add the bits of the product from 32 on.
        ("madc.hi.sat.s32", lambda a, b, c, cc: (a * b >> 32) + c + cc),
        ("madc.hi.s16", lambda a, b, c, cc: (a * b >> 32) + c + cc),
        ("madc.hi.u16", lambda a, b, c, cc: c + cc),
    ],
)
def test_odd_sums_with_carry(spelling: str, plain: Plain) -> None:
    kind = spelling.rpartition(".")[2]
    check(spelling, [kind] * (3 if spelling.startswith("madc") else 2) + ["pred"], plain)


def test_additions_read_the_flag_that_subtractions_write() -> None:
    """As on an H200: a difference that does not borrow sets the flag."""
    a, b = np.array([5, 5, 5], np.uint32), np.array([3, 5, 7], np.uint32)
    text = "{ .reg .b32 t; sub.cc.u32 t, $1, $2; addc.u32 $0, 0, 0; }"
    np.testing.assert_array_equal(emulate(text, "=r,r,r", [a, b], "uint32"), [1, 1, 0])
    text = "{ .reg .b32 t; add.cc.u32 t, $1, $2; subc.u32 $0, 0, 0; }"
    np.testing.assert_array_equal(emulate(text, "=r,r,r", [a, ~b + 1], "uint32"), [0, 0, 0xFFFFFFFF])


def wide(columns: list[list[int]]) -> list[np.ndarray]:
    return [np.array(c, np.uint32) for c in columns]


def test_a_chain_adds_and_subtracts_96_bits() -> None:
    rows = inputs(["u32"] * 6, 200)
    for opcode, sign in (("add", 1), ("sub", -1)):
        text = f"{opcode}.cc.u32 $0, $3, $6; {opcode}c.cc.u32 $1, $4, $7; {opcode}c.u32 $2, $5, $8;"
        got = emulate(text, "=&r,=&r,=&r,r,r,r,r,r,r", wide(list(zip(*rows, strict=True))), ["uint32"] * 3)
        for row, result in zip(rows, zip(*(g.tolist() for g in got), strict=True), strict=True):
            x, y = (row[i] | row[i + 1] << 32 | row[i + 2] << 64 for i in (0, 3))
            total = x + sign * y & (1 << 96) - 1
            assert result == (total & 0xFFFFFFFF, total >> 32 & 0xFFFFFFFF, total >> 64)


def test_a_chain_of_products_makes_128_bits() -> None:
    """The extended-precision product that the ISA shows at madc."""
    text = """
        mul.lo.u32 $0, $4, $6;
        mul.hi.u32 $1, $4, $6;
        mad.lo.cc.u32 $1, $5, $6, $1;
        madc.hi.u32 $2, $5, $6, 0;
        mad.lo.cc.u32 $1, $4, $7, $1;
        madc.hi.cc.u32 $2, $4, $7, $2;
        addc.u32 $3, 0, 0;
        mad.lo.cc.u32 $2, $5, $7, $2;
        madc.hi.u32 $3, $5, $7, $3;
    """
    rows = inputs(["u32"] * 4, 200)
    got = emulate(text, "=&r,=&r,=&r,=&r,r,r,r,r", wide(list(zip(*rows, strict=True))), ["uint32"] * 4)
    for row, result in zip(rows, zip(*(g.tolist() for g in got), strict=True), strict=True):
        expected = (row[0] | row[1] << 32) * (row[2] | row[3] << 32)
        assert result == tuple(expected >> (32 * i) & 0xFFFFFFFF for i in range(4))
