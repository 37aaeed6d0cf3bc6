"""Video instructions compared with the ISA's pseudocode (9.7.18) in plain integers, and with hardware if it differs."""

from __future__ import annotations

import operator
import random
from itertools import product

import numpy as np
import pytest

from ptxdiff.emulator import emulate
from ptxdiff.emulator.errors import OperandError, ParseError
from ptxdiff.emulator.isa.selectors import SELECTORS
from tests.support.emulator.isa.integers import check, inputs, signed

WORD = 0xFFFFFFFF
TYPES = ("u32", "s32")
PARTS = {f"b{i}": (8 * i, 8) for i in range(4)} | {f"h{i}": (16 * i, 16) for i in range(2)} | {"": (0, 32)}
PRIMARY = {
    "vadd": lambda x, y: x + y,
    "vsub": lambda x, y: x - y,
    "vabsdiff": lambda x, y: abs(x - y),
    "vmin": min,
    "vmax": max,
}
SECONDARY = ("add", "min", "max")
COMPARE = {n: getattr(operator, n) for n in ("eq", "ne", "lt", "le", "gt", "ge")}


def part(x: int, name: str, kind: str) -> int:
    """The ISA's partSelectSignExtend."""
    start, bits = PARTS[name]
    value = (x & WORD) >> start & (1 << bits) - 1
    return signed(value, bits) if kind == "s32" else value


def clamp(x: int, bits: int, kind: str) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind == "s32" else (0, (1 << bits) - 1)
    return min(max(x, low), high)


def scalar_clamp(x: int, name: str, kind: str) -> int:
    """.sat on hardware: a whole u32 has no upper limit, and for a byte or a half negative values count as too large."""
    bits = PARTS[name][1]
    if bits == 32:
        return max(x, 0) if kind == "u32" else clamp(x, 32, kind)
    top = (1 << bits - (kind == "s32")) - 1
    return min(x, top) if x >= 0 else top


def secondary(name: str, x: int, c: int, kind: str) -> int:
    """The secondary operation on hardware: .min and .max compare 64 bits, unsigned for u32."""
    if name == "add":
        return x + c
    seen = x % 2**64 if kind == "u32" else x
    return x if (seen < c) == (name == "min") else c


def merge(x: int, c: int, name: str) -> int:
    """The ISA's optMerge; on hardware .h1 takes the upper bits of the value and does not shift it."""
    start, bits = PARTS[name]
    field = ((1 << bits) - 1) << start
    return (x if name == "h1" else x << start) & field | c & ~field & WORD


def codes(kind: str, **chosen: str) -> tuple[tuple[str, int], ...]:
    """Selectors as the parser gives them: pairs of parameter and code."""
    return tuple((f"{operand}sel", SELECTORS[kind][name]) for operand, name in chosen.items() if name)


@pytest.mark.parametrize("opcode", PRIMARY)
def test_scalar_arithmetic(opcode: str) -> None:
    rng = random.Random(opcode)
    primary = PRIMARY[opcode]
    for dtype, atype, btype, sat in product(TYPES, TYPES, TYPES, (False, True)):
        spelling = f"{opcode}.{dtype}.{atype}.{btype}{'.sat' if sat else ''}"
        asel, bsel, dsel = rng.choice(list(PARTS)), rng.choice(list(PARTS)), rng.choice(list(PARTS)[:6])

        def result(a: int, b: int, name: str = "") -> int:
            value = primary(part(a, asel, atype), part(b, bsel, btype))  # noqa: B023
            value = scalar_clamp(value, name, dtype) if sat else value  # noqa: B023
            return signed(value, 32) if opcode in ("vadd", "vsub") else value

        def second(a: int, b: int, c: int, f=result, kind=dtype) -> int:
            return secondary(name, f(a, b), c, kind)  # noqa: B023

        rows = inputs(["u32"] * 3, 60)
        sources = codes("part", a=asel, b=bsel)
        check(spelling, [atype, btype], result, [r[:2] for r in rows], selected=sources)
        name = rng.choice(SECONDARY)
        check(f"{spelling}.{name}", [atype, btype, dtype], second, rows, selected=sources)
        check(
            spelling,
            [atype, btype, dtype],
            lambda a, b, c, f=result, d=dsel: merge(f(a, b, d), c, d),
            rows,
            selected=sources + codes("part", d=dsel),
        )


@pytest.mark.sample(2)
@pytest.mark.parametrize(("opcode", "mode"), list(product(["vshl", "vshr"], ["wrap", "clamp"])))
def test_scalar_shifts(opcode: str, mode: str) -> None:
    shift = operator.lshift if opcode == "vshl" else operator.rshift
    numbers = (0, 1, 0x7F80FF01, 0x80000000, WORD)
    rows = [(a, b, c) for a in numbers for b in (*range(36), 0x1FF, WORD) for c in numbers]
    for dtype, atype, sat, asel in product(TYPES, TYPES, (False, True), ("", "b1", "h1")):

        def plain(a: int, b: int) -> int:
            amount = b % 32 if mode == "wrap" else min(b, 32)
            value = shift(part(a, asel, atype), amount)  # noqa: B023
            if not sat:  # noqa: B023
                return signed(value, 64)
            return signed(clamp(signed(value, 34), 32, dtype), 32)  # noqa: B023

        spelling = f"{opcode}.{dtype}.{atype}.u32{'.sat' if sat else ''}.{mode}"
        source = codes("part", a=asel)
        some = rows[::3]  # each of the numbers, with each amount
        check(spelling, [atype, "u32"], plain, [r[:2] for r in rows[::5]], selected=source)
        for name in ("min", "max"):
            check(
                f"{spelling}.{name}",
                [atype, "u32", dtype],
                lambda a, b, c, f=plain, name=name, kind=dtype: secondary(name, f(a, b), c, kind),
                some,
                selected=source,
            )
        check(
            spelling,
            [atype, "u32", dtype],
            lambda a, b, c, f=plain: merge(f(a, b), c, "b2"),
            some,
            selected=source + codes("part", d="b2"),
        )


@pytest.mark.parametrize(("cmp", "atype", "btype"), list(product(COMPARE, TYPES, TYPES)))
def test_scalar_comparison(cmp: str, atype: str, btype: str) -> None:
    rows = [*inputs(["u32"] * 3, 40), (5, 5, 9), (0x85, 0x85, 1)]
    compare = COMPARE[cmp]
    spelling = f"vset.{atype}.{btype}.{cmp}"
    check(spelling, [atype, btype], compare, [r[:2] for r in rows])
    for name in SECONDARY:
        kinds = [atype, btype, atype]
        check(f"{spelling}.{name}", kinds, lambda a, b, c, n=name: secondary(n, compare(a, b), c, atype), rows)
    check(
        spelling,
        [atype, btype, atype],
        lambda a, b, c: merge(compare(part(a, "b0", atype), part(b, "b0", btype)), c, "b3"),
        rows,
        selected=codes("part", a="b0", b="b0", d="b3"),
    )


SIGNS = [(), ("a",), ("b",), ("c",), ("a", "b"), ("a", "b", "c")]


@pytest.mark.parametrize(("atype", "btype", "signs"), list(product(TYPES, TYPES, SIGNS)))
def test_multiply_and_add(atype: str, btype: str, signs: tuple[str, ...]) -> None:
    product_negated = ("a" in signs) != ("b" in signs)
    final_signed = "s32" in (atype, btype) or product_negated or "c" in signs
    selected = tuple((f"{s}neg", 1) for s in signs)
    for po, sat, scale in product((0, 1), (0, 1), (0, 7, 15)):
        if po and signs:
            continue

        def plain(a: int, b: int, c: int) -> int:
            total = signed(a, 32) * signed(b, 32) * (-1 if product_negated else 1)
            total += signed(c, 32) * (-1 if "c" in signs else 1) + po  # noqa: B023
            total = (total if final_signed else total % 2**64) >> scale  # noqa: B023
            kind = "s32" if final_signed else "u32"
            return clamp(total if final_signed else signed(total, 64), 32, kind) if sat else total  # noqa: B023

        modifiers = (".po" if po else "") + (".sat" if sat else "") + (f".shr{scale}" if scale else "")
        rows = inputs(["u32"] * 3, 60)
        check(f"vmad.u32.{atype}.{btype}{modifiers}", [atype, btype, "u32"], plain, rows, selected=selected)


@pytest.mark.parametrize(
    ("text", "words", "result"),
    [
        ("vadd.u32.u32.u32.sat $0, $1, $2;", (0xFFFFF801, 0xFFFFFFF0), 0xFFFFF7F1),
        ("vadd.u32.u32.s32.sat $0, $1, $2;", (0xFFFFFFF0, 0x10000001), 0x0FFFFFF1),
        ("vabsdiff.u32.s32.u32.sat $0, $1, $2;", (0xFF000001, 0xFFC00000), 0x00BFFFFF),
        ("vadd.s32.s32.s32.sat $0.b1, $1.h0, $2.b1, $3;", (0xFC000000, 0x003FFFFF, 0xFFFFFFC0), 0xFFFF7FC0),
        ("vsub.u32.u32.u32.sat $0.b0, $1.b1, $2.h0, $3;", (0x00040000, 0x0003FFFF, 0x76543210), 0x765432FF),
        ("vmin.s32.u32.s32.sat $0.b1, $1.b1, $2.b0, $3;", (0x00000011, 0x0000FFFF, 0xFFFFFEFF), 0xFFFF7FFF),
        ("vmax.u32.s32.s32.sat $0.b1, $1.h0, $2.b2, $3;", (0xFFFFF000, 0xFFFFFF00, 0x00000103), 0x0000FF03),
        ("vadd.u32.s32.s32 $0.h1, $1.b3, $2.h0, $3;", (0x00010000, 0x00000003, 0x55555555), 0x00005555),
        ("vset.s32.s32.ge $0.h1, $1.b3, $2.h0, $3;", (0xF0000000, 0xFFFFC000, 0x04000000), 0x00000000),
        ("vshr.s32.u32.u32.wrap $0.h1, $1.b3, $2.h1, $3;", (0xFFC00000, 0xFC000000, 0x00000080), 0x00000080),
        ("vadd.s32.s32.s32.max $0, $1, $2, $3;", (0x55555555, 0x55555555, 0x55555555), 0x55555555),
        ("vadd.s32.u32.u32.min $0, $1, $2, $3;", (0x7FFFFFFE, 0x01000001, 0x000000FF), 0x80FFFFFF),
        ("vsub.u32.u32.u32.max $0, $1, $2, $3;", (0x00000FFF, 0x00003FFF, 0x00000080), 0xFFFFD000),
        ("vmin.u32.s32.s32.max $0, $1, $2, $3;", (0x00000001, 0xFFFFFFC0, 0x00000041), 0xFFFFFFC0),
        ("vshl.s32.u32.u32.clamp.max $0, $1, $2, $3;", (0xFFFFFFFD, 0xFFFFFEFD, 0x0000FFFF), 0x0000FFFF),
        ("vshl.u32.s32.u32.wrap.min $0, $1, $2, $3;", (0xFFFFFFFD, 0x00000010, 0x7FFFFFFE), 0x7FFFFFFE),
        ("vshr.u32.s32.u32.clamp.max $0, $1, $2, $3;", (0xFFFF0000, 0x00000803, 0xFFFFFFFC), 0xFFFFFFFF),
        ("vshr.u32.u32.u32.sat.clamp.max $0, $1, $2, $3;", (0xFEFFFFFF, 0x00000000, 0xFFFFFFFE), 0xFEFFFFFF),
        ("vset.s32.u32.lt.max $0, $1, $2, $3;", (0xFFFFC000, 0xAAAAAAAA, 0xFFFC0000), 0x00000001),
        ("vshl.s32.s32.u32.sat.clamp $0, $1, $2;", (0x76543210, 0x0000007F), 0x00000000),
        ("vshl.u32.u32.u32.sat.wrap $0, $1, $2;", (0x0000003F, 0x0FFFFFFF), 0x00000000),
        ("vshl.s32.u32.u32.sat.wrap.max $0, $1, $2, $3;", (0x00400001, 0x76543210, 0x00000803), 0x00010000),
        ("vshr.s32.u32.u32.sat.clamp $0.b0, $1.b2, $2.h0, $3;", (0x3FFFFFFF, 0xFFFF0000, 0xFFFFF000), 0xFFFFF0FF),
        ("vmad.u32.u32.u32.sat $0, $1, $2, $3;", (0x00000801, 0x00040001, 0xFFFC0000), 0x20000801),
        ("vmad.u32.u32.u32.po.shr7 $0, $1, $2, $3;", (0x00000401, 0xFFFFFEFF, 0xFFFFF7FF), 0xFFFFF7E5),
        ("vmad.s32.u32.s32.sat $0, $1, $2, $3;", (0xFC000000, 0x00000801, 0xFF000001), 0x80000000),
        ("vmad.s32.u32.u32.sat.shr15 $0, $1, $2, $3;", (0x00100000, 0xFFFFFFFE, 0x7FFFFFFE), 0x0000FFBF),
        ("vmad.s32.u32.u32.po.sat $0, $1, $2, $3;", (0x00000401, 0x00000801, 0x89ABCDEF), 0x00000000),
        ("vmad.u32.s32.u32.sat.shr7 $0, $1, $2, $3;", (0x00040000, 0xFFFC0000, 0x01000000), 0xE0020000),
    ],
)
def test_scalar_results_of_an_h200(text: str, words: tuple[int, ...], result: int) -> None:
    """Cases in which the code of ptxas 12.9 departs from the text of the ISA."""
    assert one(text, *words) == result


# Two halves, four bytes --------------------------------------------------------------------------------------

SIMD = PRIMARY | {"vavrg": lambda x, y: (x + y + 1 if x + y >= 0 else x + y) >> 1}


def pool(a: int, b: int, digits: str, count: int, kind: str) -> list[int]:
    """The ISA's extractAndSignExt: the elements of b:a that the digits name, the last digit first."""
    bits = 32 // count
    whole = (b & WORD) << 32 | a & WORD
    found = [whole >> bits * int(d) & (1 << bits) - 1 for d in reversed(digits)]
    return [signed(f, bits) for f in found] if kind == "s32" else found


def simd(values: list[int], c: int, mask: str, add: bool) -> int:
    """The ISA's accumulation, or merge into the elements of c."""
    bits = 32 // len(values)
    if add:
        return c + sum(v for i, v in enumerate(values) if str(i) in mask)
    old = [c >> bits * i & (1 << bits) - 1 for i in range(len(values))]
    made = [v & (1 << bits) - 1 if str(i) in mask else old[i] for i, v in enumerate(values)]
    return sum(m << bits * i for i, m in enumerate(made))


def choices(rng: random.Random, count: int) -> tuple[str, str, str]:
    """Selectors for a, b and the destination, as digits."""
    letter, kind, masks = ("h", "pair", "halves") if count == 2 else ("b", "quad", "bytes")
    names = [rng.choice(list(SELECTORS[k])) for k in (kind, kind, masks)]
    assert all(n[0] == letter for n in names)
    return names[0][1:], names[1][1:], names[2][1:]


def simd_codes(count: int, a: str, b: str, d: str) -> tuple[tuple[str, int], ...]:
    letter, kind, masks = ("h", "pair", "halves") if count == 2 else ("b", "quad", "bytes")
    return codes(kind, a=letter + a, b=letter + b) + codes(masks, d=letter + d)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("opcode", "count"), list(product(SIMD, (2, 4))))
def test_simd_arithmetic(opcode: str, count: int) -> None:
    rng = random.Random(opcode)
    for dtype, atype, btype, end in product(TYPES, TYPES, TYPES, ("", ".sat", ".add")):
        asel, bsel, mask = choices(rng, count)

        def plain(a: int, b: int, c: int) -> int:
            xs, ys = pool(a, b, asel, count, atype), pool(a, b, bsel, count, btype)  # noqa: B023
            values = [SIMD[opcode](x, y) for x, y in zip(xs, ys, strict=True)]
            if end == ".sat":  # noqa: B023
                values = [clamp(v, 32 // count, dtype) for v in values]  # noqa: B023
            return simd(values, c, mask, end == ".add")  # noqa: B023

        spelling = f"{opcode}{count}.{dtype}.{atype}.{btype}{end}"
        rows = inputs(["u32"] * 3, 40)
        check(spelling, [atype, btype, dtype], plain, rows, selected=simd_codes(count, asel, bsel, mask))


@pytest.mark.parametrize(("cmp", "count"), list(product(COMPARE, (2, 4))))
def test_simd_comparison(cmp: str, count: int) -> None:
    rng = random.Random(cmp)
    for atype, btype, end in product(TYPES, TYPES, ("", ".add")):
        asel, bsel, mask = choices(rng, count)

        def plain(a: int, b: int, c: int) -> int:
            xs, ys = pool(a, b, asel, count, atype), pool(a, b, bsel, count, btype)  # noqa: B023
            values = [int(COMPARE[cmp](x, y)) for x, y in zip(xs, ys, strict=True)]
            return simd(values, c, mask, end == ".add")  # noqa: B023

        spelling = f"vset{count}.{atype}.{btype}.{cmp}{end}"
        rows = inputs(["u32"] * 3, 40)
        check(spelling, [atype, btype, "u32"], plain, rows, selected=simd_codes(count, asel, bsel, mask))


# Spelling ----------------------------------------------------------------------------------------------------


def one(text: str, *words: int) -> int:
    constraints = ",".join(["=r", *"r" * len(words)])
    return int(emulate(text, constraints, [np.array([w], np.uint32) for w in words], "uint32")[0])


def test_selectors_and_signs_as_written() -> None:
    assert one("vadd.u32.u32.u32 $0.b1, $1.b0, $2.h1, $3;", 0x12, 0x00050000, 0xAABBCCDD) == 0xAABB17DD
    assert one("vadd4.u32.u32.u32 $0.b10, $1, $2.b4567, $3;", 0x01020304, 0x10203040, 0xAABB0000) == 0xAABB2314
    assert one("vadd2.u32.u32.u32 $0, $1, $2, $3;", 0x00010002, 0x00100020, 0) == 0x00110022
    assert one("vmad.s32.u32.u32 $0, -$1.b0, $2, $3;", 0x105, 6, 1) == -29 & WORD
    assert one("vmad.s32.s32.s32 $0, $1, $2, -$3;", 5, 6, 40) == -10 & WORD


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("vadd.u32.u32.u32 $0.b4, $1, $2, $3;", "has no selector .b4"),
        ("vadd.u32.u32.u32 $0.b0, $1, $2;", "takes no selector"),
        ("vadd.u32.u32.u32.add $0.b0, $1, $2, $3;", "takes no selector"),
        ("vadd.u32.u32.u32.add $0, $1, $2, $3.b0;", "takes no selector"),
        ("vadd2.u32.u32.u32 $0.h01, $1, $2, $3;", "has no selector .h01"),
        ("vadd4.u32.u32.u32 $0, $1.b321, $2, $3;", "four digits"),
        ("vadd4.u32.u32.u32 $0, 5, $2, $3;", "must be a register"),
        ("vmad.u32.u32.u32 $0, -$1, $2, -$3;", "only one of the three"),
        ("vmad.u32.u32.u32.po $0, $1, $2, -$3;", "only one of the three"),
    ],
)
def test_operands_that_ptxas_refuses(text: str, words: str) -> None:
    with pytest.raises(OperandError, match=words):
        one(text, 1, 2, 3)


def test_only_vmad_negates() -> None:
    with pytest.raises(ParseError, match="cannot be negated"):
        one("add.u32 $0, -$1, $2;", 1, 2)
