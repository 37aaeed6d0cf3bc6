"""Teaches the table of machine instructions: what ptxas makes of each PTX form must give the form's bits.

A module holds one small kernel for each form: it loads the operands, runs the instruction, and stores the results.
ptxas assembles it; the machine code runs, and its bits are compared with the definition of the PTX form, on edge values
and on drawn ones. Each form of the table that ran gets a context: in agreement, or not. Short sequences of PTX, which
ptxas makes one machine instruction of, are taught in the same way (`SEQUENCES`).
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ptxdiff.conformance import forms
from ptxdiff.conformance.fetch import CudaContext
from ptxdiff.conformance.forms import FormSnippet, Port
from ptxdiff.conformance.inputs import Columns, Inputs
from ptxdiff.conformance.measure import run_emulated
from ptxdiff.conformance.taught import digest, move_digest
from ptxdiff.emulator.errors import PtxError
from ptxdiff.emulator.kernel.memory.space import Buffer
from ptxdiff.emulator.text.types import TYPES
from ptxdiff.sass.cubin import MachineCode, disassembled, machine_codes
from ptxdiff.sass.machine import Computed, RefusedStep, prepared
from ptxdiff.sass.run import Ran, run_machine_code
from ptxdiff.sass.text import Unsupported
from ptxdiff.triton.assemble import run_tool
from ptxdiff.triton.targets import assembler, probe, tool

BLOCK = 128
EDGES, DRAWN = 384, 128
"""Inputs of each form, edge values and drawn ones; whole blocks."""
LEVELS = (0, 3)
GIVEN = ("registers", "immediate")
"""How operands are given: all in registers, or the last one as a constant."""
GROUP = 64
_SECONDS = 240.0
OPEN = {
    "cvt.f32.f32": "ptxas 12.9 keeps a signalling NaN at -O3, where it moves; at -O0 it adds, which quiets",
    "cvt.f64.f64": "as cvt.f32.f32",
    "madc.hi.sat.s32": "ptxas 13.4 saturates at -O0, and not at -O3, whose bits the definition has",
}
"""Forms that teach nothing, because the ISA leaves bits open and ptxas's levels give different ones."""
PROLOGUE = "ISETP.NE.U32.AND P0, PT, RZ, UR2, PT", "UMOV UR2, 0x1"
"""The first and the last instruction of what ptxas writes before each kernel for sm_87: if UR2, which nothing wrote, is
0, all barriers are cleared. No bit of a kernel depends on it, so it teaches nothing."""


def _sequences() -> Iterator[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
    """Name, text, and the types of outputs and inputs."""
    text = ""
    for number in (1, 2, 3, 4):
        for kind, register in (("u64.u32", "b64"), ("s64.s32", "b64")):
            text = f"cvt.{kind} w, $2; shl.b64 w, w, {number}; add.u64 $0, $1, w;"
            yield f"address {kind} {number}", f"{{ .reg .b64 w; {text} }}", ("b64",), (register, "b32")
    for kind in ("u32", "s32"):
        for first, second in (("max", "max"), ("min", "min"), ("max", "min"), ("min", "max")):
            text = f"{first}.{kind} w, $1, $2; {second}.{kind} $0, w, $3;"
            yield f"{first} {second} {kind}", f"{{ .reg .b32 w; {text} }}", (kind,), (kind,) * 3
        for last in ("max", "min"):
            for operation in ("add", "sub"):
                text = f"{operation}.{kind} w, $1, $2; {last}.{kind} $0, w, $3;"
                yield f"{operation} {last} {kind}", f"{{ .reg .b32 w; {text} }}", (kind,), (kind,) * 3
    for shift, kind in (("shl.b32", "u32"), ("shr.u32", "u32"), ("shr.s32", "s32")):
        text = f"{{ .reg .b32 w; and.b32 w, $2, 31; {shift} $0, $1, w; }}"
        yield f"wrapped {shift}", text, (kind,), (kind, "u32")
        text = f"{{ .reg .b32 v, w; and.b32 w, $2, 31; {shift} v, $1, w; xor.b32 $0, v, $2; }}"
        yield f"wrapped {shift} and xor", text, (kind,), (kind, "u32")
    for kind in ("u32", "s32"):
        for by in (7, 16, 25):
            text = f"{{ .reg .b32 w; shr.{kind} w, $1, {by}; sub.u32 $0, w, $2; }}"
            yield f"shifted {kind} by {by} and sub", text, ("u32",), ("u32",) * 2
    for number in (7, 100, 1000, 65537):
        for operation in ("div", "rem"):
            for kind in ("u32", "s32"):
                yield f"{operation}.{kind} by {number}", f"{operation}.{kind} $0, $1, {number};", (kind,), (kind,)
    for number in (-1, 0x7FF8000000000000, -0x7FFFFFFFFFFFFFFF):
        yield f"add.s64 of {number}", f"add.s64 $0, $1, {number};", ("b64",), ("b64",)
        yield f"xor.b64 of {number}", f"xor.b64 $0, $1, {number};", ("b64",), ("b64",)
        yield f"max.s64 of {number}", f"max.s64 $0, $1, {number};", ("b64",), ("b64",)
        text = f"{{ .reg .pred p; setp.ne.u32 p, $2, 0; selp.b64 $0, $1, {number}, p; }}"
        yield f"selp.b64 of {number}", text, ("b64",), ("b64", "u32")
    for operation in ("add", "sub"):
        text = f"{operation}.cc.u64 $0, $2, $3; {operation}c.u64 $1, $4, $5;"
        yield f"{operation} with carry u64", text, ("b64",) * 2, ("b64",) * 4
        text = f"{{ .reg .b64 w; {operation}.cc.u64 w, $1, $2; {operation}c.u64 $0, $2, $1; }}"
        yield f"carry of {operation} u64", text, ("b64",), ("b64",) * 2
    for one, other in ((1, 2), (2, 1)):
        text = f"{{ .reg .b64 w; sub.cc.u64 w, ${one}, ${other}; subc.u64 $0, 0, 0; }}"
        yield f"borrow of {one} and {other} u64", text, ("b64",), ("b64",) * 2
        text = f"{{ .reg .b64 v, w; sub.cc.u64 v, $3, $4; subc.cc.u64 w, ${one}, ${other}; subc.u64 $0, 0, 0; }}"
        yield f"borrow of {one} and {other} u128", text, ("b64",), ("b64",) * 4
    for kind in ("u32", "u64"):
        text = f"{{ .reg .b{kind[1:]} w; mad.lo.cc.{kind} w, $1, $2, $3; madc.hi.{kind} $0, $1, $2, $4; }}"
        yield f"mad with carry {kind}", text, (f"b{kind[1:]}",), (f"b{kind[1:]}",) * 4
        text = f"{{ .reg .b{kind[1:]} w; mad.hi.cc.{kind} w, $1, $2, $3; addc.{kind} $0, w, $4; }}"
        yield f"carry of mad.hi {kind}", text, (f"b{kind[1:]}",), (f"b{kind[1:]}",) * 4
    for operation in ("add", "mul"):
        text = f"mov.b64 v, {{$1, $1}}; mov.b64 w, {{$2, $3}}; {operation}.rn.f32x2 $0, v, w;"
        yield f"{operation} f32x2 of one", f"{{ .reg .b64 v, w; {text} }}", ("b64",), ("f32",) * 3
        text = f"mov.b64 w, {{$2, $2}}; {operation}.rn.f32x2 $0, $1, w;"
        yield f"{operation} f32x2 by one", f"{{ .reg .b64 w; {text} }}", ("b64",), ("b64", "f32")
        text = f"mov.b64 {{p, q}}, $1; abs.f32 p, p; abs.f32 q, q; mov.b64 v, {{p, q}}; {operation}.rn.f32x2 $0, v, $2;"
        yield f"{operation} f32x2 of magnitudes", f"{{ .reg .b64 v; .reg .b32 p, q; {text} }}", ("b64",), ("b64",) * 2
    text = "mov.b64 w, {$3, $3}; fma.rn.f32x2 $0, $1, $2, w;"
    yield "fma f32x2 and one", f"{{ .reg .b64 w; {text} }}", ("b64",), ("b64", "b64", "f32")
    for kind in ("u64", "s64"):
        text = f"{{ .reg .b64 w; mul.hi.{kind} w, $1, $2; shr.u64 $0, w, 32; }}"
        yield f"upper half of mul.hi.{kind}", text, ("b64",), ("b64",) * 2
        text = f"{{ .reg .b64 w; mad.hi.{kind} w, $1, $2, $3; shr.{kind} $0, w, 35; }}"
        yield f"upper part of mad.hi.{kind}", text, ("b64",), ("b64",) * 3
    text = "mad.lo.cc.u64 v, $1, $2, $3; madc.hi.u64 w, $1, $2, $3; shr.u64 w, w, 33; xor.b64 $0, v, w;"
    yield "upper part of madc.hi.u64", f"{{ .reg .b64 v, w; {text} }}", ("b64",), ("b64",) * 3
    text = "{ mad.lo.cc.u32 $0, $3, $4, $5; madc.hi.cc.s32 $1, $3, $4, $6; addc.u32 $2, $5, $6; }"
    yield "mad with two carries s32", text, ("b32",) * 3, ("b32",) * 4
    text = "{ mad.lo.cc.u32 $0, $3, $4, $5; madc.hi.cc.s32 $1, $3, $4, 0; addc.u32 $2, $5, 0; }"
    yield "mad and carry s32", text, ("b32",) * 3, ("b32",) * 3
    for by in (5, 12, 25):
        text = f"{{ .reg .b32 w; shr.s32 w, $2, {by}; add.cc.u32 $0, w, $3; addc.u32 $1, $3, 0; }}"
        yield f"shifted s32 by {by} and add with carry", text, ("u32",) * 2, ("u32",) * 2
    yield from _shifted_sums()
    yield from _three_halves()
    for rounding in ("rni", "rzi", "rmi", "rpi"):
        for kind in ("s64", "u64"):
            for flush in ("", ".ftz"):
                text = f"cvt.{rounding}.ftz.f32.f32 w, $1; cvt.rzi{flush}.{kind}.f32 $0, w;"
                yield f"{kind} of {rounding}, rzi{flush}", f"{{ .reg .f32 w; {text} }}", ("b64",), ("f32",)
    for rounding in ("rn", "rz"):
        text = f"neg.f32 w, $1; cvt.{rounding}.bf16.f32 v, w; cvt.u32.u16 $0, v;"
        yield f"bf16 by {rounding} of neg.f32", f"{{ .reg .b16 v; .reg .f32 w; {text} }}", ("b32",), ("f32",)
    for join in ("or", "xor"):
        for comparison in ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"):
            text = f"setp.ge.u32 p, $1, 7; set.{comparison}.{join}.f32.f32 $0, $2, $3, p;"
            yield f"set {comparison} {join} f32", f"{{ .reg .pred p; {text} }}", ("f32",), ("u32", "f32", "f32")
    for join in ("or", "and"):
        for table in (0x96, 0x2A):
            text = f"setp.ge.u32 q, $1, 7; lop3.{join}.b32 $0|p, $2, $3, $4, {table}, q;"
            yield f"lop3 {table} {join}", f"{{ .reg .pred p, q; {text} }}", ("b32",), ("u32", "b32", "b32", "b32")
    for half in ("low", "high"):
        chosen = "mov.b32 {v, w}, $1;" if half == "low" else "mov.b32 {w, v}, $1;"
        for conversion in ("f32.u16", "f32.s16", "f16.u16", "f16.s16"):
            to = conversion[:3]
            text = f"cvt.rn.{conversion} x, v; mov.b{to[1:]} y, x;"
            last = "mov.b32 $0, y;" if to == "f32" else "cvt.u32.u16 $0, y;"
            registers = f".reg .b16 v, w; .reg .b{to[1:]} x, y;"
            yield f"{half} half {conversion}", f"{{ {registers} {chosen} {text} {last} }}", ("b32",), ("b32",)
        text = f"{{ .reg .b16 v, w, x; {chosen} cvt.rn.bf16.f16 x, v; cvt.u32.u16 $0, x; }}"
        yield f"{half} half bf16.f16", text, ("b32",), ("b32",)
    for name in ("e5m2x2", "e4m3x2"):
        pairs = f"cvt.rn.satfinite.{name}.f32 v, $1, $2; cvt.rn.satfinite.{name}.f32 w, $3, $4;"
        text = f"{{ .reg .b16 v, w; {pairs} mov.b32 $0, {{v, w}}; }}"
        yield f"two {name}", text, ("b32",), ("f32",) * 4
        for kind in ("f16x2", "bf16x2"):
            for relu in ("", ".relu"):
                yield from _two_narrow(name, kind, relu)
    for relu in ("", ".relu"):
        for kind in ("f16x2", "bf16x2"):
            for name in ("e2m3x2", "e3m2x2"):
                yield from _two_narrow(name, kind, relu)
            yield _four_e2m1(f"{kind}{relu}", f"cvt.rn.satfinite{relu}.e2m1x2.{kind} {{to}}, {{of}};", "b32", "0123")
            yield _four_e2m1(f"{kind}{relu}", f"cvt.rn.satfinite{relu}.e2m1x2.{kind} {{to}}, {{of}};", "b32", "3120")
        for order in ("0123", "3120"):
            yield _four_e2m1(f"f32{relu}", f"cvt.rn.satfinite{relu}.e2m1x2.f32 {{to}}, $1, {{of}};", "f32", order)
    for rounding in ("rz", "rp", "rz.satfinite", "rp.satfinite"):
        for kind, given in (("bf16x2", ("$1", "$2")), ("f32", ("$1, $2", "$3, $4"))):
            pairs = " ".join(f"cvt.{rounding}.ue8m0x2.{kind} {to}, {of};" for to, of in zip("vw", given, strict=True))
            read = ("b32",) * 2 if kind == "bf16x2" else ("f32",) * 4
            yield f"two ue8m0x2 by {rounding} from {kind}", f"{{ .reg .b16 v, w; {pairs} mov.b32 $0, {{v, w}}; }}", (
                "b32",), read  # fmt: skip
            text = f"{{ .reg .b16 v, w; .reg .b32 x; {pairs} mov.b32 x, {{w, v}}; xor.b32 $0, x, $1; }}"
            yield f"two ue8m0x2 by {rounding} from {kind} and xor", text, ("b32",), read

    for kind in ("u8x4", "s8x4"):
        for constant in ("0x80808080", "0x80007f01"):
            text = f"{{ .reg .b32 w; mov.b32 w, {constant}; sub.sat.{kind} $0, $1, w; }}"
            yield f"sub.sat.{kind} of {constant}", text, ("b32",), ("b32",)
    for relu in ("", ".relu"):
        for kind, given in (("bf16x2", ("$1", "$2")), ("f32", ("$1, $2", "$3, $4"))):
            for scaled, scale in (("", ""), (".scaled::n2::ue8m0", ", s")):
                operation = f"cvt.rn.satfinite{relu}{scaled}.s2f6x2.{kind}"
                pairs = " ".join(f"{operation} {to}, {of}{scale};" for to, of in zip("vw", given, strict=True))
                read = ("b32",) * 2 if kind == "bf16x2" else ("f32",) * 4
                taken = f"cvt.u16.u32 s, ${len(read) + 1};" if scaled else ""
                read = (*read, "b32") if scaled else read
                text = f"{{ .reg .b16 s, v, w; {taken} {pairs} mov.b32 $0, {{v, w}}; }}"
                yield f"two {'scaled ' if scaled else ''}s2f6x2 from {kind}{relu}", text, ("b32",), read


def _shifted_sums() -> Iterator[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
    """Sums and differences of shifted numbers, and of products, with carries in and out."""
    for by in (4, 12, 28):
        for operation in ("add", "sub"):
            text = f"{operation}.cc.u32 $0, $2, $3; shl.b32 w, $4, {by}; {operation}c.u32 $1, w, $5;"
            yield f"{operation} of shl {by} with carry", f"{{ .reg .b32 w; {text} }}", ("b32",) * 2, ("b32",) * 4
            text = f"{operation}.cc.u32 $0, $3, $4; shl.b32 w, $5, {by}; {operation}c.cc.u32 $1, w, $6;"
            text = f"{text} {operation}c.u32 $2, $3, $4;"
            yield f"{operation} of shl {by} with carries", f"{{ .reg .b32 w; {text} }}", ("b32",) * 3, ("b32",) * 4
            text = f"cvt.u64.u32 w, $2; shl.b64 w, w, {by}; {operation}.cc.u64 $0, w, $3; {operation}c.u64 $1, $3, 0;"
            yield f"{operation} of shl u32 {by} and carry", f"{{ .reg .b64 w; {text} }}", ("b64",) * 2, ("b32", "b64")
            text = f"shr.s32 w, $3, {by}; {operation}.cc.u32 $0, $4, $5; {operation}c.cc.u32 $1, w, $6;"
            text = f"{text} {operation}c.u32 $2, $4, 0;"
            yield f"{operation} of shr s32 {by} with carries", f"{{ .reg .b32 w; {text} }}", ("b32",) * 3, ("b32",) * 4
        text = f"cvt.u64.u32 w, $1; shl.b64 w, w, {by}; sub.u64 $0, w, $2;"
        yield f"sub of shl u32 {by}", f"{{ .reg .b64 w; {text} }}", ("b64",), ("b32", "b64")
        for one, other in (("w", "$2"), ("$2", "w")):
            text = f"shl.b32 w, $1, {by}; sub.cc.u32 x, {one}, {other}; subc.u32 $0, $3, $4;"
            yield f"borrow of {one}-{other}, w shl {by}", f"{{ .reg .b32 w, x; {text} }}", ("b32",), ("b32",) * 4
    text = "mul.wide.u32 w, $1, $2; sub.u64 $0, w, $3;"
    yield "mul.wide.u32 and sub", f"{{ .reg .b64 w; {text} }}", ("b64",), ("b32", "b32", "b64")
    text = "shr.u32 v, $1, 3; mul.wide.u32 w, v, 12345; sub.u64 $0, w, $2;"
    yield "mul.wide.u32 by 12345 and sub", f"{{ .reg .b32 v; .reg .b64 w; {text} }}", ("b64",), ("b32", "b64")
    for kind in ("u32", "s32"):
        for operation in ("add", "sub"):
            for low in ("u32", "u64"):
                text = f"mul.wide.{kind} w, $4, $5; {operation}.cc.{low} $0, $2, $3; {operation}c.u64 $1, w, $6;"
                yield f"mul.wide.{kind} and {operation} with carry {low}", f"{{ .reg .b64 w; {text} }}", (
                    f"b{low[1:]}", "b64"), (f"b{low[1:]}",) * 2 + ("b32", "b32", "b64")  # fmt: skip
    text = "mul.wide.u32 w, $2, $3; sub.cc.u64 $0, w, $4; subc.u64 $1, $4, 0;"
    yield "mul.wide.u32 and sub with borrow", f"{{ .reg .b64 w; {text} }}", ("b64",) * 2, ("b32", "b32", "b64")


def _three_halves() -> Iterator[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
    """The largest and the smallest of three numbers, in each half of a register."""
    for operation in ("max", "min"):
        for kind in ("u16x2", "s16x2", "relu.s16x2", "relu.s32", "f16x2", "NaN.f16x2", "bf16x2", "NaN.bf16x2"):
            text = f"{operation}.{kind} w, $1, $2; {operation}.{kind} $0, w, $3;"
            yield f"{operation} of three {kind}", f"{{ .reg .b32 w; {text} }}", ("b32",), ("b32",) * 3
            text = f"{operation}.{kind} w, $2, $3; {operation}.{kind} $0, $1, w;"
            yield f"{operation} of one and two {kind}", f"{{ .reg .b32 w; {text} }}", ("b32",), ("b32",) * 3
        for kind in ("f16x2", "NaN.f16x2", "bf16x2", "NaN.bf16x2"):
            of = kind.split(".")[-1]
            for sign in ("neg", "abs"):
                text = f"{sign}.{of} v, $1; {operation}.{kind} w, $2, v; {operation}.{kind} $0, w, $3;"
                yield f"{operation} of {sign} of three {kind}", f"{{ .reg .b32 v, w; {text} }}", ("b32",), ("b32",) * 3
            text = (
                f"mov.b32 {{x, y}}, $1; mov.b32 v, {{y, y}}; {operation}.{kind} w, $2, v; {operation}.{kind} $0, w, $3;"
            )
            text = f"{{ .reg .b16 x, y; .reg .b32 v, w; {text} }}"
            yield f"{operation} of a half of three {kind}", text, ("b32",), ("b32",) * 3


def _two_narrow(name: str, kind: str, relu: str) -> Iterator[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
    """Two registers of two elements each, converted to two narrow numbers each and joined, and with an xor behind."""
    pairs = " ".join(f"cvt.rn.satfinite{relu}.{name}.{kind} {to}, ${n};" for n, to in ((1, "v"), (2, "w")))
    text = f"{{ .reg .b16 v, w; {pairs} mov.b32 $0, {{v, w}}; }}"
    yield f"two {name} from {kind}{relu}", text, ("b32",), ("b32",) * 2
    text = f"{{ .reg .b16 v, w; .reg .b32 x; {pairs} mov.b32 x, {{w, v}}; xor.b32 $0, x, $1; }}"
    yield f"two {name} from {kind}{relu} and xor", text, ("b32",), ("b32",) * 2


def _four_e2m1(of: str, conversion: str, kind: str, order: str) -> tuple[str, str, tuple[str, ...], tuple[str, ...]]:
    """Four conversions to pairs of e2m1, whose codes fill a register in some order of the inputs."""
    each = " ".join(conversion.format(to=f"c{k}", of=f"${int(n) + 1}") for k, n in enumerate(order))
    text = f"{{ .reg .b8 c0, c1, c2, c3; {each} mov.b32 $0, {{c0, c1, c2, c3}}; }}"
    return f"four e2m1x2 from {of} as {order}", text, ("b32",), (kind,) * 4


SEQUENCES = {name: (text, outputs, inputs) for name, text, outputs, inputs in _sequences()}
"""Short texts, with the types of their outputs and inputs."""


def _snippet(name: str) -> FormSnippet | None:
    """The asm of a form or of a sequence; None if the form has none."""
    if name not in SEQUENCES:
        return next(iter(forms.snippets(name)), None)
    text, outputs, inputs = SEQUENCES[name]
    made, read = (
        tuple(Port(f"{letter}{k}", TYPES[t], TYPES[t].width) for k, t in enumerate(types))
        for letter, types in (("d", outputs), ("a", inputs))
    )
    return FormSnippet(name, "", text, made, read, forms.bounds_of()["add.u32"])


@dataclass
class Lesson:
    """What is known of one form of the table: contexts in which it agreed and differed.

    confirmed: contexts in which a device, with the same machine code, gave the words of the interpreter. refuted: those
    in which it gave others.
    """

    agreed: set[str] = field(default_factory=set)
    differed: set[str] = field(default_factory=set)
    confirmed: set[str] = field(default_factory=set)
    refuted: set[str] = field(default_factory=set)


@dataclass
class MoveLessons:
    """What kernels showed of instructions without a row: by form and digest, the contexts that agreed and differed."""

    agreed: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    differed: dict[tuple[str, str], set[str]] = field(default_factory=dict)

    def note(self, ran: Ran, context: str, *, agreed: bool) -> None:
        """Count a kernel whose bits were those of its PTX, or others."""
        for form, step in ran.moves.items():
            (self.agreed if agreed else self.differed).setdefault((form, move_digest(step)), set()).add(context)

    def lines(self, target: str) -> list[str]:
        """The lines of the ledger `taught.MOVES` for a target."""
        return [
            json.dumps({"target": target, "form": form, "agreed": len(self.agreed.get((form, digest), ())),
                        "differed": len(self.differed.get((form, digest), ())), "digest": digest})
            for form, digest in sorted({*self.agreed, *self.differed})
        ]  # fmt: skip


@dataclass(frozen=True)
class FormTask:
    """A kernel to assemble: a snippet, how its operands are given, and its inputs and expected outputs."""

    name: str
    snippet: FormSnippet
    given: str
    columns: Columns
    expected: Columns


def tasks(names: Iterable[str], given: str, target: str) -> Iterator[FormTask]:
    """A task for each form that the target has."""
    for number, name in enumerate(names):
        snippet = _snippet(name)
        if snippet is None or not snippet.inputs or name in OPEN:
            continue
        if name not in SEQUENCES and forms.lacking(name, target):
            continue
        if given == "immediate" and (len(snippet.inputs) < 2 or snippet.inputs[-1].type.width == 1):
            continue
        if given == "immediate" and snippet.bound.form.approximate:
            continue  # ptxas may compute a part of it with other roundings
        columns = _columns(snippet, given)
        expected = run_emulated(snippet, columns, target)
        if not isinstance(expected, str):
            yield FormTask(f"form_{number}", snippet, given, columns, expected)


def _columns(snippet: FormSnippet, given: str) -> Columns:
    inputs = Inputs(snippet)
    edges, drawn = inputs.edges(EDGES), inputs.drawn(0, DRAWN)
    count = EDGES + DRAWN
    columns = [np.resize(np.concatenate([d, e[:EDGES]]), count) for e, d in zip(edges, drawn, strict=True)]
    if given == "immediate":
        columns[-1] = np.full(count, columns[-1][snippet.seed % DRAWN], columns[-1].dtype)
    return columns


def module(some: Sequence[FormTask], version: str, target: str) -> str:
    """The PTX of tasks."""
    return "\n".join([f".version {version}", f".target {target}", ".address_size 64", *map(_kernel, some)])


def _kernel(task: FormTask) -> str:
    snippet = task.snippet
    ports = [*((f"out{k}", p) for k, p in enumerate(snippet.outputs)),
             *((f"in{k}", p) for k, p in enumerate(snippet.inputs))]  # fmt: skip
    parameters = ", ".join(f".param .u64 {name}" for name, _ in ports)
    lines = [f".visible .entry {task.name}({parameters}) {{", ".reg .b32 %thread, %block, %index;", ".reg .b64 %p, %o;"]
    lines += [f".reg .b{port.bits} %v{k};" for k, (_, port) in enumerate(ports)]
    lines += ["mov.u32 %thread, %tid.x;", "mov.u32 %block, %ctaid.x;"]
    lines.append(f"mad.lo.u32 %index, %block, {BLOCK}, %thread;")
    first = len(snippet.outputs)
    for k, (name, port) in enumerate(ports):
        if k < first:
            continue
        if task.given == "immediate" and k == len(ports) - 1:
            lines.append(f"mov.b{port.bits} %v{k}, {int(task.columns[-1][0]):#x};")
        else:
            lines += [*_address(name, port.bits), f"ld.global.b{port.bits} %v{k}, [%p];"]
    lines.append(re.sub(r"\$(\d+)", r"%v\1", snippet.text))
    for k, (name, port) in enumerate(ports[:first]):
        lines += [*_address(name, port.bits), f"st.global.b{port.bits} [%p], %v{k};"]
    return "\n".join([*lines, "ret;", "}"])


def _address(name: str, bits: int) -> list[str]:
    return [f"ld.param.u64 %p, [{name}];", "cvta.to.global.u64 %p, %p;", f"mul.wide.u32 %o, %index, {bits // 8};",
            "add.u64 %p, %p, %o;"]  # fmt: skip


def assembled(
    some: Sequence[FormTask], ptxas: str, level: int, version: str, target: str
) -> tuple[list[FormTask], bytes]:
    """The tasks that ptxas accepts, and their cubin; a module that it refuses is halved."""
    with tempfile.TemporaryDirectory(prefix="ptxdiff-") as folder:
        source, cubin = Path(folder, "forms.ptx"), Path(folder, "forms.cubin")
        source.write_text(module(some, version, target))
        command = [ptxas, f"-O{level}", "--fmad=false", f"--gpu-name={target}", str(source), "-o", str(cubin)]
        status, output = run_tool(command, _SECONDS)
        if not status and cubin.exists():
            return list(some), cubin.read_bytes()
    blamed = {int(n) for n in re.findall(r"line (\d+); error", output)}
    lines = module(some, version, target).splitlines()
    starts = [k + 1 for k, line in enumerate(lines) if line.startswith(".visible")]
    bad = {max(k for k, s in enumerate(starts) if s <= n) for n in blamed if n >= starts[0]}
    kept = [t for k, t in enumerate(some) if k not in bad]
    return assembled(kept, ptxas, level, version, target) if bad and kept else ([], b"")


def teach(
    names: Sequence[str],
    target: str,
    ptxas: str,
    nvdisasm: str,
    version: str,
    lessons: dict[str, Lesson],
    device: CudaContext | None = None,
    moves: MoveLessons | None = None,
) -> dict[str, str]:
    """Run forms on a target at all levels; adds to the lessons. Returns the contexts that did not agree, with words.

    device: a GPU of the target, which runs the same machine code. moves: gets the lessons on instructions without rows.
    """
    complaints: dict[str, str] = {}
    for given in GIVEN:
        every = list(tasks(names, given, target))
        for level in LEVELS:
            for start in range(0, len(every), GROUP):
                some, cubin = assembled(every[start : start + GROUP], ptxas, level, version, target)
                if not some:
                    continue
                codes = machine_codes(cubin, disassembled(cubin, nvdisasm))
                loaded = None if device is None else (device, device.load(cubin))
                for task in some:
                    context = f"{task.snippet.form} {given} -O{level}"
                    complaint = _try(task, codes[task.name], context, lessons, loaded, moves)
                    if complaint:
                        complaints[context] = complaint
    return complaints


def _try(
    task: FormTask, code: MachineCode, context: str, lessons: dict[str, Lesson],
    loaded: tuple[CudaContext, Any] | None = None, moves: MoveLessons | None = None,
) -> str:  # fmt: skip
    outputs = [np.zeros_like(e) for e in task.expected]
    buffers = [Buffer(o, f"output {k}", defined=False) for k, o in enumerate(outputs)]
    buffers += [Buffer(np.array(c), f"input {k}") for k, c in enumerate(task.columns)]
    try:
        ran = run_machine_code(code, buffers, (len(task.columns[0]) // BLOCK,), BLOCK)
    except Unsupported as refusal:
        return f"unsupported: {refusal.message}"
    except PtxError as error:
        return f"error: {error}"
    wrong = np.zeros(len(outputs[0]), np.bool_)
    for got, expected in zip(outputs, task.expected, strict=True):
        wrong |= got != expected
    if moves is not None:
        moves.note(ran, context, agreed=not wrong.any())
    on_device = None if loaded is None else _on_device(task, *loaded)
    same = on_device is not None and all((a == b).all() for a, b in zip(outputs, on_device, strict=True))
    for form in _teaching(code, ran.forms):
        lesson = lessons.setdefault(form, Lesson())
        (lesson.differed if wrong.any() else lesson.agreed).add(context)
        if on_device is not None:
            (lesson.confirmed if same else lesson.refuted).add(context)
    if on_device is not None and not same:
        return "the device gives other words than the interpreter"
    if not wrong.any():
        return ""
    at = int(wrong.argmax())
    shown = [", ".join(f"0x{int(c[at]):x}" for c in side) for side in (task.columns, task.expected, outputs)]
    return f"{int(wrong.sum())} of {len(wrong)} differ: ({shown[0]}) gives {shown[2]}, not {shown[1]}"


def _teaching(code: MachineCode, ran: Iterable[str]) -> list[str]:
    """Of the forms that ran, those that occur after a `PROLOGUE`."""
    texts = [i.text for i in code.function.instructions]
    if not texts or texts[0] != PROLOGUE[0] or PROLOGUE[1] not in texts:
        return list(ran)
    after = list(prepared(code).values())[texts.index(PROLOGUE[1]) + 1 :]
    own = {s.form for s in after if isinstance(s, Computed)}
    return [form for form in ran if form in own]


def _on_device(task: FormTask, device: CudaContext, module: Any) -> Columns:
    """The outputs of a task's kernel on a device. module: the loaded cubin."""
    outputs = [np.zeros_like(e) for e in task.expected]
    arrays = [*outputs, *map(np.ascontiguousarray, task.columns)]
    pointers = [device.allocate(a.nbytes) for a in arrays]
    for pointer, array in zip(pointers, arrays, strict=True):
        device.upload(pointer, array)
    device.start(device.kernel(module, task.name), pointers, len(task.columns[0]) // BLOCK, BLOCK)
    for pointer, array in zip(pointers, outputs, strict=False):
        device.download(array, pointer)
    for pointer in pointers:
        device.free(pointer)
    return outputs


def lines(lessons: dict[str, Lesson], target: str, of: str) -> list[str]:
    """The lines of the ledger for a target's lessons. of: "forms" or "sequences", whichever taught them."""
    made: list[dict[str, Any]] = []
    for form, lesson in sorted(lessons.items()):
        entry: dict[str, Any] = {"target": target, "form": form, "agreed": len(lesson.agreed),
                                 "differed": len(lesson.differed), "digest": digest(form)}  # fmt: skip
        if of != "forms":
            entry["of"] = of
        if lesson.confirmed:
            entry["confirmed"] = len(lesson.confirmed)
        if lesson.refuted:
            entry["refuted"] = len(lesson.refuted)
            entry["example"] = min(lesson.refuted)
        if lesson.differed:
            entry["example"] = min(lesson.differed)
        made.append(entry)
    return [json.dumps(entry) for entry in made]


def few(names: Sequence[str], target: str, contexts: int) -> list[str]:
    """So many of some forms that each form of the table is in the machine code of `contexts` of them, if in so many.

    ptxas assembles all of them once, at level 3 with operands in registers; none runs.
    """
    tools = assembler(target).path, str(tool("nvdisasm"))
    every = []
    for number, name in enumerate(names):
        snippet = _snippet(name)
        if snippet is None or not snippet.inputs or name in OPEN or forms.lacking(name, target):
            continue
        every.append(FormTask(f"form_{number}", snippet, "registers", [], []))
    left: Counter[str] = Counter()
    chosen = []
    for start in range(0, len(every), GROUP):
        some, cubin = assembled(every[start : start + GROUP], tools[0], LEVELS[-1], probe()[target].ptx_version, target)
        codes = machine_codes(cubin, disassembled(cubin, tools[1])) if some else {}
        for task in some:
            steps = prepared(codes[task.name]).values()
            found = set(_teaching(codes[task.name], (s.form for s in steps if isinstance(s, Computed))))
            if not any(isinstance(s, RefusedStep) for s in steps) and any(left[f] < contexts for f in found):
                left.update(found)
                chosen.append(task.snippet.form)
    return chosen


def taught_again(
    of: str, target: str, before: str, say: Callable[[str], None], device: CudaContext | None = None,
    names: Sequence[str] | None = None,
) -> str:  # fmt: skip
    """The ledger's text with new lines for what forms or sequences teach on a target. Raises NoAssembler and NoTriton.

    of: "forms" or "sequences". before: the ledger's text. say: gets each context that did not agree, in words. device:
    as for `teach`. names: only these forms or sequences. Lines that hold stay then, unless a context differs or more
    contexts than before agree.
    """
    every = tuple(SEQUENCES) if of == "sequences" else tuple(forms.bounds_of())
    lessons: dict[str, Lesson] = {}
    version = probe()[target].ptx_version
    tools = assembler(target).path, str(tool("nvdisasm"))
    complaints = teach(every if names is None else names, target, *tools, version, lessons, device)
    for context, complaint in complaints.items():
        say(f"{target} {context}: {complaint}")
    kept, made = [], []
    confirmed: dict[tuple[str, str], int] = {}
    for line in before.splitlines():
        entry = json.loads(line)
        if (entry["target"], entry.get("of", "forms")) != (target, of):
            kept.append(line)
            continue
        lesson = lessons.get(entry["form"], Lesson())
        holds = entry["digest"] == digest(entry["form"]) and entry["agreed"] >= len(lesson.agreed)
        if names is not None and holds and not (lesson.differed or lesson.refuted):
            kept.append(line)
            lessons.pop(entry["form"], None)
        elif entry.get("confirmed"):
            confirmed[entry["form"], entry["digest"]] = entry["confirmed"]
    for entry in map(json.loads, lines(lessons, target, of)):
        earlier = confirmed.get((entry["form"], entry["digest"]))  # what a device said of this definition stays
        made.append(json.dumps(entry if device is not None or not earlier else {**entry, "confirmed": earlier}))
    return "".join(f"{line}\n" for line in [*kept, *made])
