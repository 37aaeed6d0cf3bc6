"""Rows for integer arithmetic and bit manipulation."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from ptxdiff.references import bits, comparison, integers
from ptxdiff.references.formats import I16, I32, I64, U16, U32, U64
from tests.support.references.meeting import Row, row, then

SIGNED = {"s16": I16, "s32": I32, "s64": I64}
UNSIGNED = {"u16": U16, "u32": U32, "u64": U64}
ALL = SIGNED | UNSIGNED
BITS = {"b16": U16, "b32": U32, "b64": U64}
DOUBLE = {I16: I32, I32: I64, U16: U32, U32: U64}


def not_zero(a: Any, b: Any) -> Any:
    """A mask of divisors that are not zero; the ISA leaves division by zero open."""
    return b != 0


def arithmetic() -> list[Row]:
    """Sums, products, quotients, minima and maxima."""
    rows = []
    for name, fmt in ALL.items():
        for op in ("add", "sub"):
            rows.append(row(f"{op}.{name}", partial(getattr(integers, op), fmt=fmt), [fmt] * 2, fmt))
        for op, function in (("div", integers.div), ("rem", integers.rem)):
            rows.append(row(f"{op}.{name}", partial(function, fmt=fmt), [fmt] * 2, fmt, on=not_zero))
        for op, function in (("min", integers.minimum), ("max", integers.maximum)):
            rows.append(row(f"{op}.{name}", partial(function, fmt=fmt), [fmt] * 2, fmt))
        for half in ("lo", "hi"):
            rows.append(row(f"mul.{half}.{name}", partial(integers.mul, fmt=fmt, half=half), [fmt] * 2, fmt))
            rows.append(row(f"mad.{half}.{name}", partial(integers.mad, fmt=fmt, half=half), [fmt] * 3, fmt))
        rows.append(row(f"sad.{name}", partial(integers.sad, fmt=fmt), [fmt] * 3, fmt))
        if fmt in DOUBLE:
            rows.append(row(f"mul.wide.{name}", partial(integers.mul_wide, fmt=fmt), [fmt] * 2, DOUBLE[fmt]))
        for operator in ("eq", "ne", "lt", "le", "gt", "ge") + (("lo", "ls", "hi", "hs") if name[0] == "u" else ()):
            form = f"setp.{operator}.{name}"
            text = f"{{ .reg .pred p; {form} p, $1, $2; selp.u32 $0, 1, 0, p; }}"
            compared = then(partial(comparison.compare, operator=operator, fmt=fmt), lambda t: t.to(torch.int64))
            rows.append(row(form, compared, [fmt] * 2, U32, text=text, also=[comparison.compare]))
    for name, fmt in SIGNED.items():
        rows.append(row(f"abs.{name}", partial(integers.absolute, fmt=fmt), [fmt], fmt))
        rows.append(row(f"neg.{name}", partial(integers.negate, fmt=fmt), [fmt], fmt))
    rows += [
        row("add.sat.s32", integers.add_saturating, [I32] * 2, I32),
        row("sub.sat.s32", integers.sub_saturating, [I32] * 2, I32),
        row("mad.hi.sat.s32", partial(integers.mad, half="hi", sat=True), [I32] * 3, I32),
        row("mad24.hi.sat.s32", partial(integers.mad24, half="hi", sat=True), [I32] * 3, I32),
        row("min.relu.s32", partial(integers.minimum, relu=True), [I32] * 2, I32),
        row("max.relu.s32", partial(integers.maximum, relu=True), [I32] * 2, I32),
    ]
    for (name, fmt), half in [((n, ALL[n]), h) for n in ("s32", "u32") for h in ("lo", "hi")]:
        rows.append(row(f"mul24.{half}.{name}", partial(integers.mul24, fmt=fmt, half=half), [fmt] * 2, fmt))
        rows.append(row(f"mad24.{half}.{name}", partial(integers.mad24, fmt=fmt, half=half), [fmt] * 3, fmt))
    for name, fmt in {n: ALL[n] for n in ("u32", "u64", "s32", "s64")}.items():
        for op, function in (("add", integers.add_carry), ("sub", integers.sub_borrow)):
            width = fmt.code_bits
            carried = f"{op}.cc.{name} t, $2, $3; {op}c.u32 c, 0, 0;"
            text = f"{{ .reg .b{width} t; .reg .u32 c; {carried} mov.b{width} $0, t; and.b32 $1, c, 1; }}"
            stands = frozenset({f"integers.{function.__name__}"})
            unsigned = U64 if fmt.code_bits == 64 else U32
            rows.append(Row(f"{op}.cc.{name}", text, partial(function, fmt=unsigned), (fmt, fmt), (fmt, U32), stands))
    for a, b in [(x, y) for x in ("s32", "u32") for y in ("s32", "u32")]:
        signs = {"a_signed": a == "s32", "b_signed": b == "s32"}
        rows.append(row(f"dp4a.{a}.{b}", partial(integers.dp4a, **signs), [U32] * 3, U32))
        for half in ("lo", "hi"):
            rows.append(row(f"dp2a.{half}.{a}.{b}", partial(integers.dp2a, half=half, **signs), [U32] * 3, U32))
    return rows


def fields() -> list[Row]:
    """Shifts, bit fields, counts and permutations."""
    rows = []
    for name, fmt in BITS.items():
        rows.append(row(f"shl.{name}", partial(bits.shl, fmt=fmt), [fmt, U32], fmt))
        rows.append(row(f"shr.{name}", partial(bits.shr, fmt=fmt), [fmt, U32], fmt))
        rows.append(row(f"cnot.{name}", bits.cnot, [fmt], fmt))
    rows += [row(f"shr.{n}", partial(bits.shr, fmt=f), [f, U32], f) for n, f in ALL.items()]
    for name, fmt in {"b32": U32, "b64": U64}.items():
        rows.append(row(f"bfi.{name}", partial(bits.bfi, fmt=fmt), [fmt, fmt, U32, U32], fmt))
        rows.append(row(f"clz.{name}", partial(bits.clz, fmt=fmt), [fmt], U32))
        rows.append(row(f"popc.{name}", bits.popc, [fmt], U32))
        rows.append(row(f"brev.{name}", partial(bits.brev, fmt=fmt), [fmt], fmt))
    for name, fmt in {n: ALL[n] for n in ("u32", "u64", "s32", "s64")}.items():
        rows.append(row(f"bfe.{name}", partial(bits.bfe, fmt=fmt), [fmt, U32, U32], fmt))
        for word in ("", ".shiftamt"):
            rows.append(row(f"bfind{word}.{name}", partial(bits.bfind, fmt=fmt, shift_amount=bool(word)), [fmt], U32))
    for mode in ("clamp", "wrap"):
        for left in ("l", "r"):
            shifted = partial(bits.shf, left=left == "l", mode=mode)
            rows.append(row(f"shf.{left}.{mode}.b32", shifted, [U32] * 3, U32))
        rows.append(row(f"bmsk.{mode}.b32", partial(bits.bmsk, mode=mode), [U32] * 2, U32))
        for name, fmt in (("s32", I32), ("u32", U32)):
            rows.append(row(f"szext.{mode}.{name}", partial(bits.szext, fmt=fmt, mode=mode), [fmt, U32], fmt))
    # fns: a base beyond 31 is undefined (ISA). The ISA's code takes |offset| in 32 bits, where |-2^31| overflows: then
    # an H200 finds bit 0, and the reference finds none.
    rows.append(row("fns.b32", bits.fns, [U32, U32, I32], U32, on=lambda mask, base, n: (base < 32) & (n != 1 << 31)))
    for table in (0x00, 0x1B, 0x96, 0xCA, 0xE8, 0xFF):
        text = f"lop3.b32 $0, $1, $2, $3, {table:#x};"
        rows.append(row(f"lop3.b32 {table:#x}", partial(bits.lop3, table=table), [U32] * 3, U32, text=text))
    for mode in (None, *bits.PERMUTATIONS):
        form = "prmt.b32" + (f".{mode}" if mode else "")
        rows.append(row(form, partial(bits.prmt, mode=mode), [U32] * 3, U32))
    return rows


ROWS = arithmetic() + fields()
