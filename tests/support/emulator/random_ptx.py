"""Asm blocks for property tests: mutated, made of random operands, made of random characters, or well typed."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import hypothesis.strategies as st
from hypothesis import assume

from ptxdiff.emulator import isa
from ptxdiff.emulator.binding.constraints import REGISTER_WIDTH
from ptxdiff.emulator.binding.special_registers import SPECIAL_REGISTERS
from ptxdiff.emulator.isa.forms import FORMS, Bound, Form
from ptxdiff.emulator.targets import Target
from ptxdiff.emulator.text.types import REGISTER_TYPES

isa.load()

VALID = (
    ("add.rn.f32 $0, $1, $2;", "=f,f,f"),
    ("{ .reg .pred p; setp.lt.f32 p, $1, $2; @!p mov.b32 $0, 0f3F800000; @p mov.b32 $0, $2; }", "=r,r,r"),
    ("{\n.reg .b8 t;\ncvt.rn.satfinite.e2m1x2.f32 t, $1, $2; // $0\ncvt.u32.u8 $0, t;\n}", "=r,f,f"),
    ("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, $1; mov.b32 $0, {hi, lo}; }", "=r,r,0"),
    ("{ .reg .b16 %h<4>; mov.b32 {%h0, _}, $1; mov.b32 $0, {%h0, 0}; }", "=&r,r,r"),
    ("prmt.b32 $0, $1, $2, 0x5140;", "=r,r,r"),
    ("lop3.b32 $0, $1, $2, 0b101, (0xF0 & 0xCC) | 0xAA;", "=r,r,r"),
    ("add.cc.u32 $0, $1, $2; addc.u32 $0, $0, 0;", "=&r,r,r"),
    ("{ .reg .u32 i; mov.u32 i, 0; $$loop: add.u32 i, i, 1; .reg .pred q; setp.lt.u32 q, i, 5; @q bra $$loop; "
     "mov.u32 $0, i; }", "=r,r,r"),
    (".reg .pred q; .reg .u32 i; mov.u32 i, 3;\nAGAIN: sub.u32 i, i, 1; setp.ne.u32 q, i, 0; @q bra AGAIN; "
     "mov.b32 $0, i;", "=r,r,r"),
    ("{ .reg .u32 i; .reg .pred q; mov.u32 i, 3;\nL${:uid}: sub.u32 i, i, 1;\nsetp.ne.u32 q, i, 0;\n"
     "@q bra L${:uid};\nmov.b32 $0, i; }", "=r,r,r"),
    ("{ .reg .f16x2 a; .reg .v4 .b32 acc; mov.b32 a, $1; mov.b32 acc.x, a; max.NaN.f16x2 $0, a, a; }", "=r,r,r"),
    ("vadd4.u32.s32.u32.sat $0, $1.b3210, $2.b7654, $1;", "=r,r,r"),
    ("vmad.s32.s32.u32 $0, -$1.h1, $2.b0, $1;", "=r,r,r"),
    (".reg .b16 h; cvt.rs.satfinite.e2m1x4.f32 h, {$1, $2, $1, $2}, $1; mov.b32 $0, {h, h};", "=r,r,r"),
    ("mov.u32 $0, %laneid;", "=r,r,r"),
    (".reg .pred p, q; setp.eq.f32 p|q, $1, 20.; selp.b32 $0, -1, 017, p;", "=r,f,f"),
    ("fns.b32 $0, $1, 3, -2; bfind.shiftamt.u32 $0, $0;", "=r,r,r"),
    ("shf.r.wrap.b32 $0, $1, $2, WARP_SZ - 1;", "=r,r,r"),
    ("ex2.approx.ftz.f32 $0, $1; bar.sync 0; ld.global.b32 $0, [$1+4];", "=f,f,f"),
    ("mul.f32 $0, $1, $2; add.f32 $0, $0, $1;", "=f,f,f"),
    ("cvt.pack.sat.s8.s32.b32 $0, $1, $2, $1;", "=r,r,r"),
    ("dp4a.s32.u32 $0, $1, $2, $1; brev.b32 $0, $0; clz.b32 $0, $0;", "=r,r,r"),
)  # fmt: skip
"""Blocks that run, and a few that do not, each with constraints for one output and two inputs."""

TOKENS = re.compile(r"\$\{[^}]*\}|\$\$|\$\d+|[%.]?[A-Za-z_][\w:]*|0[fFdDxX][0-9A-Fa-f]+|[\d.]+|\s+|.", re.DOTALL)
REGISTERS = sorted(REGISTER_TYPES)
DECLARED = " ".join(f".reg .{t} %{t}_<3>;" for t in REGISTERS) + " .reg .v2 .b32 %v; .reg .v4 .f32 %w;"
EVERY = tuple(f for forms in FORMS.values() for f in forms)
PLAIN = tuple(f for f in EVERY if f.function is not None and not any(s.constant or s.selector for s in f.operands))
TARGETS = ("sm_75", "sm_80", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_103f", "sm_107a", "sm_110a", "sm_120a")

IMMEDIATES = [
    *("0", "1", "-1", "+3", "31", "32", "33", "0x80000000", "0xFFFFFFFFFFFFFFFF", "18446744073709551616", "0777", "08"),
    *("0b1011", "5U", "1.0", "-2.5", "20.", ".5", "1e40", "1e400", "0f3F800000", "0F7FC00001", "0d7FF0000000000000"),
    *("-0f3F800000", "!1", "~0", "(1+2)*3", "1/0", "1.5%2", "1<<70", "(1", "(.s64)-1", "(.u64)1.5", "1?2:3", "0f1"),
    *("0x7fffffff+1", "-9223372036854775808", "'a'", '"a"', "0d1", "00", "1e300*1e300", "(.s64)(1e300*1e300)"),
]
"""Constants, and texts that only look like constants."""

WORDS = (
    *IMMEDIATES,
    *(f"%{t}_{i}" for t in REGISTERS for i in (0, 1)),
    *("$0", "$1", "$2", "$3", "$$", "$", "${0}", "${0:x}", "${", "$(", "$|", "$)", "_", "{", "}", "{_,_}", "(", ")"),
    *("[", "]", ",", ";", ":", "|", "!", "@", "-", "+", "<", ">", "%", ".", "//", "/*", "*/", "\n", " ", "é", "\x01"),
    *(".reg", ".b32", ".pred", ".v4", ".loc", ".section", ".pragma", ".align", ".branchtargets", ".shared", ".param"),
    *("bra", "exit", "ret", "call", "trap", "bar.sync", "ld.global.b32", "mov", "cvt", "add.f32", "%v.x", "%w", "%v.q"),
    *("a<3>", "a<0>", "a<999999999>", "L:", "@%pred_0", "@!%pred_1", "WARP_SZ", "%tid.x", "%clock64", "%tid"),
)


@cache
def vocabulary() -> tuple[str, ...]:
    """Words of the language: opcodes, modifiers and types with their dots, special registers."""
    modifiers = {c for forms in FORMS.values() for f in forms for g in f.groups for c in g.choices}
    return (*WORDS, *FORMS, *(f".{m}" for m in sorted(modifiers)), *sorted(SPECIAL_REGISTERS))


# Strategies are made once: hypothesis checks each new one, which took longer than drawing from it.
sampled = cache(st.sampled_from)


@cache
@st.composite
def spelled(draw: Any, forms: tuple[Form, ...]) -> Bound:
    """One of the forms with modifiers that can stand together."""
    form = draw(sampled(forms))
    choices = [((None,) if g.optional else ()) + tuple(g.choices) for g in form.groups]
    bound = Bound(form, tuple(draw(sampled(c)) for c in choices))
    assume(not bound.excluded)
    return bound


@st.composite
def mutated(draw: Any) -> tuple[str, str]:
    """A block with some tokens removed, doubled, exchanged, replaced or inserted; sometimes with random constraints."""
    asm, constraints = draw(sampled(VALID))
    tokens = TOKENS.findall(asm)
    for _ in range(draw(sampled((0, 1, 1, 2, 3, 5)))):
        at = draw(st.integers(0, max(len(tokens) - 1, 0)))
        change = draw(sampled(("drop", "double", "swap", "replace", "insert")))
        if change == "insert" or not tokens:
            tokens.insert(at, draw(sampled(vocabulary())))
        elif change == "replace":
            tokens[at] = draw(sampled(vocabulary()))
        elif change == "drop":
            del tokens[at]
        elif change == "double":
            tokens.insert(at, tokens[at])
        else:
            other = draw(st.integers(0, len(tokens) - 1))
            tokens[at], tokens[other] = tokens[other], tokens[at]
    if draw(st.integers(0, 5)) == 0:
        constraints = draw(random_constraints())
    return "".join(tokens), constraints


@cache
@st.composite
def random_constraints(draw: Any) -> str:
    """Constraints, mostly as many as there are operands."""
    letters = sampled((*REGISTER_WIDTH, "0", "1", "n", "+r", "&r", "=r", "%r", "~{memory}", "", " r", "rh", "é"))
    outputs = draw(sampled(("=r", "=&r", "=f", "=h", "=l", "=d", "=b", "=r,=r", "r", "")))
    return ",".join([outputs, *draw(st.lists(letters, min_size=1, max_size=3))])


@cache
def operand() -> st.SearchStrategy[str]:
    """Any kind of operand."""
    register = st.builds("%{}_{}".format, st.sampled_from(REGISTERS), st.integers(0, 2))
    simple = st.one_of(register, register, st.sampled_from(["$0", "$1", "$2", "_"]), st.sampled_from(IMMEDIATES))
    special = st.sampled_from(
        [*SPECIAL_REGISTERS, "%tid.x", "%ctaid.y", "%v.x", "%w.b", "%v", "WARP_SZ", "here", "nowhere"]
    )
    return st.one_of(
        simple,
        simple,
        st.lists(simple, min_size=1, max_size=5).map(lambda e: "{" + ", ".join(e) + "}"),
        st.builds("{}|{}".format, simple, simple),
        st.builds("{}{}".format, st.sampled_from("!-~"), register),
        st.builds("{}.{}".format, register, st.sampled_from(["b0", "h1", "b3210", "h10", "x"])),
        st.builds("[{}+{}]".format, simple, simple),
        special,
    )


@st.composite
def random_operands(draw: Any) -> tuple[str, str]:
    """Instructions with valid modifiers and with operands of any kind."""
    lines = []
    for _ in range(draw(st.integers(1, 3))):
        bound = draw(spelled(EVERY))
        count = len(bound.form.operands) or draw(st.integers(0, 4))
        count = max(0, count + draw(sampled((0, 0, 0, 0, -1, 1))))
        guard = draw(sampled(("", "", "", "@%pred_0 ", "@!%pred_1 ", "@%b32_0 ")))
        line = f"{guard}{bound.spelling} {', '.join(draw(operand()) for _ in range(count))};"
        lines.append(draw(sampled(("{}",) * 5 + AROUND)).replace("{}", line))
    return DECLARED + " ".join(lines) + " mov.b32 $0, $1;", "=r,r,r"


AROUND = (
    *("here: {}", "{} here:", "{ {} }", "{ .reg .f32 %b32_0; {} }", "{ here: {} bra here; }", "@%pred_0 bra here; {}"),
    *("bra here; {}", "{ {} { here: {} } }", "{} exit;", "@!%pred_1 ret; {}", "{ .reg .v2 .b32 %b32_1; {} }"),
)
"""Texts around an instruction: labels, branches, scopes that hide names."""


def characters() -> st.SearchStrategy[tuple[str, str]]:
    """Random characters, and words in random order."""
    words = st.lists(sampled(vocabulary()), max_size=20).map(" ".join)
    anything = st.binary(max_size=60).map(lambda b: b.decode("latin-1"))
    return st.tuples(
        st.one_of(words, anything, st.text(max_size=30)), st.one_of(random_constraints(), st.text(max_size=9))
    )


@st.composite
def well_typed(draw: Any) -> tuple[str, str]:
    """A program that ptxas accepts, and its target: every register is written before it is read."""
    target = draw(sampled(TARGETS))
    steps = draw(_steps(target))
    holds = {kind: [f"%{kind}_0"] for kind in ("pred", "b8", "b16", "b32", "b64")}
    lines = [f".reg .{kind} %{kind}_<{4 * len(steps) + 4}>;" for kind in holds] + [_WRITTEN]
    for number, step in enumerate(steps, 1):
        shaped = isinstance(step, str)
        lines.append(_shaped(draw, step, holds, 4 * number) if shaped else _line(draw, step, holds, 4 * number))
    newest = {kind: registers[-1] for kind, registers in holds.items()}
    lines.append(draw(sampled(_RESULTS)).format(**newest))
    return "{ " + " ".join(lines) + " }", target


@cache
def _steps(target: str) -> st.SearchStrategy[list[Bound | str]]:
    """Instructions that a target has, and shapes."""
    fitting = spelled(PLAIN).filter(lambda bound: _fits(bound, target))
    return st.lists(st.one_of(fitting, fitting, sampled(SHAPES)), min_size=1, max_size=8)


SHAPES = (
    *("mov.b32 {<+b16>, <+b16>}, <b32>;", "mov.b32 {_, <+b16>}, <b32>;", "mov.b64 {<+b32>, _}, <b64>;"),
    *("mov.b64 <+b64>, {<b32>, <b32>};", "mov.b64 {<+b16>, _, <+b16>, _}, <b64>;", "mov.b16 {<+b8>, <+b8>}, <b16>;"),
    *("mov.b32 <+b32>, {<b8>, <b8>, <b8>, <b8>};", "mov.v2.b32 {<+b32>, <+b32>}, {<b32>, 7};"),
    *("mov.u32 <+b32>, %laneid;", "mov.u32 <+b32>, %tid.x;", "mov.u64 <+b64>, %clock64;", "mov.u32 <+b32>, WARP_SZ;"),
    *("mov.b32 <+b32>, 0f3F800000;", "mov.f64 <+b64>, 0d3FF0000000000000;", "mov.b16 <+b16>, 017;"),
    *("mov.b32 <+b32>, (3 << 4) | 0b11;", "mov.s32 <+b32>, -5;", "mov.f32 <+b32>, 20.;", "mov.pred <+pred>, 1;"),
    "mov.pred <+pred>, <pred>; setp.lt.s32 <+pred>|<+pred>, <b32>, <b32>;",
    "mov.b32 <+b32 a>, <b32>; @<pred> xor.b32 <a>, <b32>, 3; @!<pred> shl.b32 <a>, <a>, 1;",
    "{ .reg .b32 t; .reg .pred q; xor.b32 t, <b32>, 3; setp.gt.s32 q, t, 0; mov.b32 <+b32 a>, t; @q mov.b32 <a>, 1; }",
    "{ .reg .b32 %b32_0; mov.b32 %b32_0, 9; { .reg .b16 %b32_0; mov.b16 %b32_0, 8; } mov.b32 <+b32>, %b32_0; }",
    "{ .reg .v4 .b32 v; mov.v4.b32 v, {<b32>, <b32>, 1, 2}; mov.b32 <+b32>, v.w; mov.b32 <+b32>, v.x; }",
    "{ .reg .f32 f0, f1; mov.b32 f0, <b32>; fma.rn.f32 f1, f0, f0, 1.5; mov.b32 <+b32>, f1; }",
    "{ .reg .pred q; mov.u32 <+b32 i>, 0; again: add.u32 <i>, <i>, 1; setp.lt.u32 q, <i>, 5; @q bra again; }",
    "{ .reg .b32 k; .reg .pred q; and.b32 k, <b32>, 3; again: setp.eq.u32 q, k, 0; @q bra done; sub.u32 k, k, 1; "
    "bra again; done: mov.b32 <+b32>, k; }",
    "{ mov.b32 <+b32 a>, 1; @<pred> bra over; mov.b32 <a>, 2; over: add.u32 <a>, <a>, <b32>; }",
    "{ mov.b32 <+b32 a>, 1; @!<pred> bra other; mov.b32 <a>, 2; bra.uni end; other: mov.b32 <a>, 3; "
    "end: not.b32 <a>, <a>; }",
    "add.cc.u32 <+b32>, <b32>, <b32>; addc.cc.u32 <+b32>, <b32>, 0; subc.u32 <+b32>, <b32>, <b32>;",
    "nanosleep.u32 <b32>; pmevent 3;",
)
"""Statements besides single instructions: `<b32>` is a register that has a value, `<+b32 a>` a new one, then `<a>`."""


def _shaped(draw: Any, shape: str, holds: dict[str, list[str]], number: int) -> str:
    """A shape with registers of `holds` and with new ones, which are added to `holds`."""
    new: dict[str, str] = {}

    def register(found: re.Match[str]) -> str:
        plus, kind, name = found.groups()
        if plus:
            written = f"%{kind}_{number + len(new)}"
            new[name or str(len(new))] = written
            return written
        return new[kind] if kind in new else draw(sampled(tuple(holds[kind])))

    text = re.sub(r"<(\+?)(\w+) ?(\w*)>", register, shape)
    for written in new.values():
        holds[written[1:].split("_")[0]].append(written)
    return text


_WRITTEN = (
    "mov.b32 %b32_0, $1; mov.b64 %b64_0, {$1, $2}; cvt.u16.u32 %b16_0, $2; cvt.u8.u32 %b8_0, $1; "
    "setp.lt.s32 %pred_0, $1, $2; add.cc.u32 %b32_1, $1, $2;"
)
_RESULTS = (
    "mov.b32 $0, {b32};",
    "cvt.u32.u16 $0, {b16};",
    "cvt.u32.u8 $0, {b8};",
    "cvt.u32.u64 $0, {b64};",
    "selp.b32 $0, 1, 0, {pred};",
)


def _fits(bound: Bound, target: str) -> bool:
    return bound.requirement_unmet(Target.parse(target)) is None and all(
        bound.type_of(s).width in (1, 8, 16, 32, 64) for s in bound.form.operands
    )


CONSTANTS = {
    **dict.fromkeys(("u16", "s16", "b16", "u32", "s32", "b32", "u64", "s64", "b64"), ("7", "0b101", "0x1F", "020")),
    "f32": ("0f40490FDB", "1.5", "20."),
    "f64": ("0dC000000000000000", "1.5"),
}
"""Constants that are valid for every operand of a type."""


def _line(draw: Any, bound: Bound, holds: dict[str, list[str]], number: int) -> str:
    """One instruction that reads registers of `holds` and writes new ones, which are added to `holds`."""
    kinds = [bound.type_of(s) for s in bound.form.operands]
    names = ["pred" if k.kind == "pred" else f"b{k.width}" for k in kinds]
    written = [f"%{n}_{number + i}" for i, (n, s) in enumerate(zip(names, bound.form.operands, strict=True))
               if s.destination]  # fmt: skip
    read = [
        draw(sampled(tuple(holds[n]))) for n, s in zip(names, bound.form.operands, strict=True) if not s.destination
    ]
    braced = [r for r, s in zip(read, bound.form.sources, strict=True) if s.vector]
    texts = ["|".join(written)]
    types = [k for k, s in zip(kinds, bound.form.operands, strict=True) if not s.destination]
    for register, spec, kind in zip(read, bound.form.sources, types, strict=True):
        if not spec.vector:
            constants = CONSTANTS.get(kind.name, ()) if len(read) > 1 else ()
            texts.append(draw(sampled((register,) * 4 + constants)))
        elif braced:
            texts.append("{" + ", ".join(braced) + "}")
            braced = []
    for register in written:
        holds[register[1:].split("_")[0]].append(register)
    return f"{bound.spelling} {', '.join(texts)};"
