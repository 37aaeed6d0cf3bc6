"""Bit counting and fields, logic, shifts, byte permutation, comparison and selection of integers."""

from __future__ import annotations

import operator
from itertools import product

import numpy as np
import pytest

from ptxdiff.emulator import emulate
from ptxdiff.emulator.errors import OperandError
from tests.support.emulator.isa.integers import Plain, check, inputs, signed, width

ONES32 = 0xFFFFFFFF


def found(a: int, bits: int) -> int:
    """Position of the highest bit that differs from the sign, or -1."""
    return (~a if a < 0 else a).bit_length() - 1


@pytest.mark.parametrize("bits", [32, 64])
def test_counts(bits: int) -> None:
    check(f"popc.b{bits}", [f"b{bits}"], lambda a: bin(a).count("1"))
    check(f"clz.b{bits}", [f"b{bits}"], lambda a: bits - a.bit_length())
    check(f"brev.b{bits}", [f"b{bits}"], lambda a: int(f"{a:0{bits}b}"[::-1], 2))
    for kind in (f"u{bits}", f"s{bits}"):
        check(f"bfind.{kind}", [kind], lambda a: found(a, bits))
        check(f"bfind.shiftamt.{kind}", [kind], lambda a: -1 if found(a, bits) < 0 else bits - 1 - found(a, bits))


def nth_set(mask: int, base: int, offset: int) -> int:
    """The ISA's search: counts set bits from the base on, upwards or downwards, including the base's own bit.

    The smallest offset gives 0 on an H200.
    """
    if offset == -1 << 31:
        return 0
    if base > 31:
        return -1
    ahead = range(base, 32) if offset >= 0 else range(base, -1, -1)
    places = [p for p in ahead if mask >> p & 1]
    if offset == 0:
        return base if mask >> base & 1 else -1
    return places[abs(offset) - 1] if len(places) >= abs(offset) else -1


def test_nth_set_bit() -> None:
    masks = [0, 1, 0x80000000, ONES32, 0xAAAAAAAA, 0x00FF00F0, 0x13579BDF]
    rows = [(m, b, o & ONES32) for m in masks for b in range(34) for o in range(-34, 35)]
    check("fns.b32", ["b32", "b32", "s32"], nth_set, rows)
    check("fns.b32", ["b32", "b32", "s32"], nth_set)


def field(a: int, start: int, length: int, kind: str) -> int:
    """A bit field, bit by bit as in the ISA's pseudocode; `a` is the pattern."""
    top = width(kind) - 1
    sign = 0
    if kind[0] == "s" and length:
        sign = a >> min(start + length - 1, top) & 1
    inside = (a >> (start + i) & 1 if i < length and start + i <= top else sign for i in range(top + 1))
    return sum(bit << i for i, bit in enumerate(inside))


def lengths(bits: int) -> list[tuple[int, ...]]:
    some = [0, 1, 5, bits // 2, bits - 1, bits, bits + 1, 255, 256, 257, 256 + bits, 0x8000, ONES32]
    values = [0, 1 << (bits - 1), (1 << bits) - 1, 0xB7A93C51D2E4F608 >> (64 - bits), 0x5A << (bits - 9)]
    return [(v, s, n) for v in values for s in some for n in some]


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_bit_field_extract(kind: str) -> None:
    """Only the 32-bit form takes position and length modulo 256 (the 64-bit form does what ptxas's code does)."""
    bits = width(kind)

    def plain(a: int, b: int, c: int) -> int:
        if bits == 32:
            b, c = b & 255, c & 255
        return field(a & (1 << bits) - 1, min(b, 512), min(c, 512), kind)

    check(f"bfe.{kind}", [kind, "u32", "u32"], plain, lengths(bits))
    check(f"bfe.{kind}", [kind, "u32", "u32"], plain)


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_field_insert(bits: int) -> None:
    def plain(a: int, b: int, c: int, d: int) -> int:
        start, length = (c & 255, d & 255) if bits == 32 else (min(c, 512), min(d, 512))
        for i in range(min(length, bits)):
            if start + i < bits:
                b = b & ~(1 << (start + i)) | (a >> i & 1) << (start + i)
        return b

    kind = f"b{bits}"
    kinds = [kind, kind, "u32", "u32"]
    check(f"bfi.{kind}", kinds, plain, [(v, ~v & (1 << bits) - 1, s, n) for v, s, n in lengths(bits)])
    check(f"bfi.{kind}", kinds, plain)


@pytest.mark.parametrize(("mode", "kind"), list(product(["wrap", "clamp"], ["u32", "s32"])))
def test_sign_or_zero_extension(mode: str, kind: str) -> None:
    def plain(a: int, b: int) -> int:
        if mode == "clamp" and b >= 32:
            return a
        length = b % 32
        if length == 0:
            return 0
        return signed(a, length) if kind == "s32" else a % (1 << length)

    rows = [(a, b) for a in (0, 1, 0x80000000, ONES32, 0xB7A93C51) for b in range(70)]
    check(f"szext.{mode}.{kind}", [kind, "u32"], plain, rows)
    check(f"szext.{mode}.{kind}", [kind, "u32"], plain)


@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_bit_mask(mode: str) -> None:
    def plain(a: int, b: int) -> int:
        if mode == "clamp" and a >= 32:
            return 0
        start, length = (a % 32, b % 32) if mode == "wrap" else (a, min(b, 32))
        return sum(1 << i for i in range(32) if start <= i < start + length)

    check(f"bmsk.{mode}.b32", ["u32"] * 2, plain, [(a, b) for a in range(70) for b in range(70)])
    check(f"bmsk.{mode}.b32", ["u32"] * 2, plain)


@pytest.mark.parametrize(("half", "kind"), list(product(["lo", "hi"], ["u64", "s64"])))
def test_carry_less_product(half: str, kind: str) -> None:
    def plain(a: int, b: int, c: int) -> int:
        total = 0
        for i in range(64):
            if b >> i & 1:
                total ^= (a & (1 << 64) - 1) << i
        return (total >> 64 if half == "hi" else total) ^ c

    check(f"clmad.{half}.{kind}", [kind] * 3, plain, inputs([kind] * 3, 150))


# Logic -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["b16", "b32", "b64", "pred"])
def test_logic(kind: str) -> None:
    check(f"and.{kind}", [kind] * 2, operator.and_)
    check(f"or.{kind}", [kind] * 2, operator.or_)
    check(f"xor.{kind}", [kind] * 2, operator.xor)
    check(f"not.{kind}", [kind], operator.invert)
    if kind != "pred":
        check(f"cnot.{kind}", [kind], lambda a: int(a == 0))


def looked_up(a: int, b: int, c: int, table: int) -> int:
    return sum((table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1) << i for i in range(32))


def test_every_table_of_three_bits() -> None:
    """The constants from which the ISA builds a table give that table back."""
    for table in range(256):
        [got] = emulate(f"lop3.b32 $0, $1, $2, $3, {table};", "=r,r,r,r", columns((0xF0, 0xCC, 0xAA)), "uint32")
        assert got & 0xFF == table


def columns(*rows: tuple[int, ...]) -> list[np.ndarray]:
    return [np.array(c, np.uint32) for c in zip(*rows, strict=True)]


@pytest.mark.parametrize(("op", "q"), list(product(["or", "and"], [0, 1])))
def test_table_with_a_predicate(op: str, q: int) -> None:
    rows = [*inputs(["b32"] * 3, 30), (0, 0, 0), (ONES32, ONES32, ONES32)]
    text = f"{{.reg .pred p; lop3.{op}.b32 $0|p, $2, $3, $4, 0x80, {q}; selp.u32 $1, 1, 0, p;}}"
    values, flags = emulate(text, "=&r,=&r,r,r,r", columns(*rows), ["uint32", "uint32"])
    for (a, b, c), value, flag in zip(rows, values, flags, strict=True):
        assert value == looked_up(a, b, c, 0x80)
        assert flag == ((value != 0) | q if op == "or" else (value != 0) & q)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lop3.or.b32 $0, $1, $2, $3, 1, 1;", "further destination, p"),
        ("lop3.or.b32 $0|_, $1, $2, $3, 1, 1;", "cannot discard"),
        ("lop3.b32 $0, $1, $2, $3, $3;", "constant"),
        ("add.u32 _, $1, $2;", "cannot discard"),
    ],
)
def test_operands_that_ptxas_refuses(text: str, words: str) -> None:
    with pytest.raises(OperandError, match=words):
        emulate(text, "=r,r,r,r", columns((1, 2, 3)), "uint32")


def test_the_result_of_lop3_may_be_discarded() -> None:
    text = "{.reg .pred p; lop3.b32 _, $1, $2, $3, 1; lop3.and.b32 _|p, $1, $2, $3, 0x80, 1; selp.u32 $0, 1, 0, p;}"
    assert emulate(text, "=r,r,r,r", columns((1, 3, 5), (1, 2, 4)), "uint32").tolist() == [1, 0]


# Shifts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_shifts(bits: int) -> None:
    check(f"shl.b{bits}", [f"b{bits}", "u32"], lambda a, b: a << min(b, bits))
    for kind in (f"b{bits}", f"u{bits}", f"s{bits}"):
        check(f"shr.{kind}", [kind, "u32"], lambda a, b: a >> min(b, bits))


@pytest.mark.parametrize(("direction", "mode"), list(product("lr", ["wrap", "clamp"])))
def test_funnel_shifts(direction: str, mode: str) -> None:
    def plain(a: int, b: int, c: int) -> int:
        amount = c % 32 if mode == "wrap" else min(c, 32)
        pair = b << 32 | a
        return pair << amount >> 32 if direction == "l" else pair >> amount

    rows = [(0x81234567, 0xFEDCBA98, c) for c in range(70)]
    check(f"shf.{direction}.{mode}.b32", ["b32", "b32", "u32"], plain, rows)
    check(f"shf.{direction}.{mode}.b32", ["b32", "b32", "u32"], plain)


PERMUTATIONS = {
    "f4e": ["3210", "4321", "5432", "6543"],
    "b4e": ["5670", "6701", "7012", "0123"],
    "rc8": ["0000", "1111", "2222", "3333"],
    "ecl": ["3210", "3211", "3222", "3333"],
    "ecr": ["0000", "1110", "2210", "3210"],
    "rc16": ["1010", "3232", "1010", "3232"],
}
"""The ISA's table: for each mode and selector the source bytes, the highest first."""


def picked(a: int, b: int, digits: list[int]) -> int:
    """Bytes of b:a by selector digits, the lowest first; 8 and up spread the byte's sign."""
    pool = (b << 32 | a).to_bytes(8, "little")
    made = [(0xFF if pool[d & 7] & 0x80 else 0) if d & 8 else pool[d & 7] for d in digits]
    return int.from_bytes(bytes(made), "little")


def test_permutation_by_selector() -> None:
    check("prmt.b32", ["b32"] * 3, lambda a, b, c: picked(a, b, [c >> 4 * i & 15 for i in range(4)]))
    rows = [(0x33007F80, 0x81FE0142, c) for c in range(1 << 16)]
    check("prmt.b32", ["b32"] * 3, lambda a, b, c: picked(a, b, [c >> 4 * i & 15 for i in range(4)]), rows)


@pytest.mark.parametrize("mode", PERMUTATIONS)
def test_permutation_by_mode(mode: str) -> None:
    def plain(a: int, b: int, c: int) -> int:
        return picked(a, b, [int(d) for d in reversed(PERMUTATIONS[mode][c & 3])])

    check(f"prmt.b32.{mode}", ["b32"] * 3, plain)


# Comparison and selection ------------------------------------------------------------------------------------

COMPARE = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge,
}  # fmt: skip
JOIN = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
KINDS = dict.fromkeys(("b16", "b32", "b64"), ("eq", "ne"))
KINDS |= {k: tuple(COMPARE)[:6] for k in ("s16", "s32", "s64")}
KINDS |= {k: tuple(COMPARE) for k in ("u16", "u32", "u64")}
TRUE = {"u32": ONES32, "s32": ONES32, "f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}


@pytest.mark.parametrize("kind", KINDS)
def test_comparisons(kind: str) -> None:
    rows = inputs([kind, kind], 60) + [(x, x) for (x,) in inputs([kind], 5)]
    for name in KINDS[kind]:
        compare: Plain = COMPARE[name]
        check(f"setp.{name}.{kind}", [kind] * 2, compare, rows)
        check(f"setp.{name}.{kind}", [kind] * 2, lambda a, b, c=compare: not c(a, b), rows, result=1)


@pytest.mark.parametrize(("kind", "join"), list(product(["b16", "s32", "u64"], JOIN)))
def test_joined_comparisons(kind: str, join: str) -> None:
    rows = inputs([kind, kind, "pred"], 60)
    three = [kind, kind, "pred"]
    for name in KINDS[kind][::3]:
        compare, joined = COMPARE[name], JOIN[join]
        check(f"setp.{name}.{join}.{kind}", three, lambda a, b, c, f=compare, j=joined: j(f(a, b), c), rows)
        spelling = f"setp.{name}.{join}.{kind}"
        check(spelling, three, lambda a, b, c, f=compare, j=joined: j(not f(a, b), c), rows, result=1)


@pytest.mark.parametrize(("to", "kind"), list(product(TRUE, ["b32", "s64", "u16"])))
def test_set_writes_a_value(to: str, kind: str) -> None:
    true = TRUE[to]
    check(f"set.ne.{to}.{kind}", [kind] * 2, lambda a, b: true if a != b else 0)
    three = [kind, kind, "pred"]
    check(f"set.eq.xor.{to}.{kind}", three, lambda a, b, c: true if (a == b) ^ c else 0)


@pytest.mark.parametrize("kind", ["b16", "u32", "s64", "b64"])
def test_selection(kind: str) -> None:
    check(f"selp.{kind}", [kind, kind, "pred"], lambda a, b, p: a if p else b)
    check(f"slct.{kind}.s32", [kind, kind, "s32"], lambda a, b, c: a if c >= 0 else b)


@pytest.mark.parametrize("ftz", [False, True])
def test_selection_by_the_sign_of_a_float(ftz: bool) -> None:
    """c >= 0 chooses a: -0 does so too, NaN does not, and a negative subnormal does so only if it is flushed."""
    chosen = {
        0: 1, 0x80000000: 1, 0x3F800000: 1, 0xBF800000: 0, 0x7F800000: 1, 0xFF800000: 0, 0x7FC00000: 0,
        0x7F800001: 0, 0xFFC00000: 0, 1: 1, 0x80000001: int(ftz), 0x807FFFFF: int(ftz), 0x80800000: 0,
    }  # fmt: skip
    spelling = "slct.ftz.b32.f32" if ftz else "slct.b32.f32"
    check(spelling, ["b32"] * 3, lambda a, b, c: a if chosen[c] else b, [(11, 22, c) for c in chosen])
