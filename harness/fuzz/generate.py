"""Generate random programs. They are well typed and have no undefined behaviour, because their shapes have none."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

from ptxdiff.fuzz.program import INPUTS, OUTPUTS, Operand, RandomProgram, Statement, Variable

EDGES = (
    0, 1, 2, 3, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0xFFFFFFFE,
)  # fmt: skip
FLOATS = (
    0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF, 0x00800000, 0x007FFFFF, 0x80000001,
    0x3C003C00, 0x7C00FC00, 0x7BFF0001, 0x03FF8000, 0x3F803F80, 0x4F000000, 0x5F000000, 0x33800000, 0x477FF000,
)  # fmt: skip
"""Words that are edges as one float32, as two float16 or as two bfloat16."""

FIRST = (
    "mov.b64 <d=>, {<r>, <r>};",
    "cvt.u16.u32 <h=>, <r>;",
    "setp.lt.s32 <p=>, <r>, <r>;",
    "mov.b32 <f=>, <r>;",
    "cvt.rn.f64.s32 <e=>, <r>;",
    "mov.b32 <s=>, <r>;",
    "mov.b32 <b=>, <r>;",
)
"""The shapes at the start of every program, so that there is a register of each kind."""

LAST = (
    "cvt.rn.f32.f64 <f=>, <e>;",
    "mov.b32 {<h~x1>, <h~y1>}, <s>; cvt.f32.f16 <f=>, <x1>;",
    "and.b32 <r~x1>, <b>, 0xFFFF0000; mov.b32 <f=>, <x1>;",
    "mov.b64 {<r~x1>, <r~y1>}, <d>; xor.b32 <r=>, <x1>, <y1>;",
    "cvt.u32.u16 <r=>, <h>;",
    "setp.nan.f32 <p~n1>, <f:x1>, <x1>; mov.b32 <r~b1>, <x1>; selp.b32 <r=>, 0x7FC00000, <b1>, <n1>;",
    "selp.b32 <r=>, 1, 0, <p>;",
)
"""The shapes at the end of every program. They convert the newest register of each kind to a 32-bit word, so that
wrong values reach the outputs."""

_HOLE = re.compile(r"<(\d+)>|<(w)>|<([rdhpfesb])(?:([=~:])(\w*))?>|<(\w\w+)>")
_CHOICE = re.compile(r"-?\w+(?:/-?\w+)+")
_FRESH = 8  # most reads are of one of so many newest registers of a kind


def words(count: int, seed: str) -> list[int]:
    """32-bit words: random, small, and edges of integers and floats."""
    draw = random.Random(seed)
    kinds = (
        lambda: draw.getrandbits(32),
        lambda: draw.randrange(64),
        lambda: draw.choice(EDGES),
        lambda: draw.choice(FLOATS),
    )
    return [draw.choice(kinds)() for _ in range(count)]


def program(seed: str, capability: int, weights: Mapping[str, float]) -> RandomProgram:
    """The program of a seed for a compute capability. weights: of the families to use."""
    return _Generator(seed, capability, weights).program()


def shaped(draw: random.Random, shape: str, held: Held, newest: bool = False) -> Statement:
    """A statement of a shape. The registers that it writes are added to `held`. newest: whether it reads the newest."""
    maker = _Generator("", 0, {})
    maker.draw = draw
    maker.count = max(v.number for kind in held.values() for v in kind) + 1000
    return maker.shaped(shape, held, newest)


Held = dict[str, list[Variable]]
"""The registers that may be read, by kind."""


class _Generator:
    def __init__(self, seed: str, capability: int, weights: Mapping[str, float]) -> None:
        self.draw = random.Random(seed)
        usable = {n: w for n, w in weights.items() if w > 0 and NEEDS.get(n, 80) <= capability}
        # A program of a few families combines their instructions more deeply than one of all.
        most = min(len(usable), self.draw.choice((1, 2, 3, 4, 6)))
        self.families = {
            n: usable[n] for n in sorted(usable, key=lambda n: self.draw.random() ** (1 / usable[n]))[-most:]
        }
        self.count = INPUTS

    def program(self) -> RandomProgram:
        held: Held = {"r": [Variable("r", k) for k in range(INPUTS)]}
        statements = [self.shaped(shape, held) for shape in FIRST]
        statements += self.statements(self.draw.randrange(4, 28), held, whole=True, depth=2)
        statements += [self.shaped(shape, held, newest=True) for shape in LAST]
        newest = held["r"][-2 * OUTPUTS :]
        return RandomProgram(tuple(statements), tuple(self.draw.sample(newest, OUTPUTS)))

    def statements(self, count: int, held: Held, *, whole: bool, depth: int) -> list[Statement]:
        """Random statements. The registers that they write are added to `held`.

        whole: whether all threads of a warp execute them. depth: how deeply loops and branches may be nested.
        """
        names = [n for n in self.families if whole or n not in OF_WHOLE_WARPS] or ["integer"]
        made = []
        for _ in range(count):
            if depth and self.draw.random() < 0.07:
                made.append(self.draw.choice((self.loop, self.branch))(held, depth - 1))
            else:
                (name,) = self.draw.choices(names, [self.families.get(n, 1) for n in names])
                made.append(self.shaped(self.draw.choice(FAMILIES[name]), held))
        return made

    def loop(self, held: Held, depth: int) -> Statement:
        """A loop of one to eight iterations. The first register that it writes is the carried value."""
        carried, counter, steps, goes = (self.new(kind) for kind in "rrrp")
        inner = {kind: list(registers) for kind, registers in held.items()}
        inner["r"] += [carried, counter]
        body = self.statements(self.draw.randrange(1, 6), inner, whole=False, depth=depth)
        limit: Operand = self.draw.choice((str(self.draw.randrange(1, 9)), self.register("r", held)))
        text = (
            "mov.b32 {w0}, {r0};\nmov.b32 {w1}, 0;\nand.b32 {w2}, {r1}, 7;\n{l0}:\n{body}\nmov.b32 {w0}, {result};\n"
            "add.u32 {w1}, {w1}, 1;\nsetp.lt.u32 {w3}, {w1}, {w2};\n@{w3} bra {l0};"
        )
        return self.around(text, (carried, counter, steps, goes), (self.register("r", held), limit), body, inner, held)

    def branch(self, held: Held, depth: int) -> Statement:
        """Statements that some threads skip."""
        chosen, inner = self.new("r"), {kind: list(registers) for kind, registers in held.items()}
        body = self.statements(self.draw.randrange(1, 6), inner, whole=False, depth=depth)
        skips = self.draw.choice(("@", "@!"))
        text = "mov.b32 {w0}, {r0};\n" + skips + "{r1} bra {l0};\n{body}\nmov.b32 {w0}, {result};\n{l0}:"
        reads = (self.register("r", held), self.register("p", held))
        return self.around(text, (chosen,), reads, body, inner, held)

    def around(
        self,
        text: str,
        writes: tuple[Variable, ...],
        reads: tuple[Operand, ...],
        body: list[Statement],
        inner: Held,
        held: Held,
    ) -> Statement:
        """A statement with a body, whose result is the newest 32-bit word that the body writes."""
        held["r"].append(writes[0])
        return Statement(text, writes, reads, tuple(body), inner["r"][-1], tuple(range(1, len(writes))))

    def new(self, kind: str) -> Variable:
        self.count += 1
        return Variable(kind, self.count)

    def register(self, kind: str, held: Held, newest: bool = False) -> Variable:
        """A register to read, mostly one of the newest."""
        registers = held[kind]
        if newest:
            return registers[-1]
        return self.draw.choice(registers[-_FRESH:] if self.draw.random() < 0.8 else registers)

    def shaped(self, shape: str, held: Held, newest: bool = False) -> Statement:
        """A statement of a shape, with registers in its placeholders. newest: whether it reads the newest ones."""
        writes: list[Variable] = []
        reads: list[Operand] = []
        named: dict[str, str] = {}
        kept: list[Variable] = []

        def filled(hole: re.Match[str]) -> str:
            bits, word, kind, sign, name, known = hole.groups()
            if known:
                return named[known]
            if bits or word:
                reads.append(str(self.draw.getrandbits(int(bits)) if bits else words(1, str(self.draw.random()))[0]))
                operand = f"{{r{len(reads) - 1}}}"
            elif sign in ("=", "~"):
                writes.append(self.new(kind))
                if sign == "=":
                    kept.append(writes[-1])
                operand = f"{{w{len(writes) - 1}}}"
            else:
                reads.append(self.register(kind, held, newest))
                operand = f"{{r{len(reads) - 1}}}"
            if name:
                named[name] = operand
            return operand

        text = _CHOICE.sub(lambda found: self.draw.choice(found[0].split("/")), shape)
        # PTX's own braces do not collide with placeholders such as {r0}, because they contain commas or registers.
        text = _HOLE.sub(filled, text.replace("; ", ";\n"))
        for register in kept:  # added only now, so that a statement does not read its own results
            held.setdefault(register.kind, []).append(register)
        own = tuple(k for k, register in enumerate(writes) if register not in kept)
        return Statement(text, tuple(writes), tuple(reads), inner=own)


# Families of statement shapes from which random programs are made --------------------------------------------------
#
# Families of statement shapes from which random programs are made, grouped by the instructions that they test.
#
# A shape is PTX with placeholders for registers, by kind (see `fuzz.program`): `<r>` is read, `<r=>` is written.
# `<r:x1>` and `<r=x1>` also give the register a name, and `<x1>` refers to it. `<r~x1>` is written, and read only
# within the shape. `<5>` is a constant below 2^5, `<w>` a word of 32 bits, often an edge. Slashes separate
# alternatives.
#
# All shapes have defined results for all inputs: divisors are not zero, exchanges name all threads of a warp, and no
# operand of a negation is the least integer, for which the ISA (9.7.1, abs and neg) states no result. Multiplications
# and additions of floats state their rounding, so ptxas must not fuse them. The ISA (9.7.3) does not specify the bits
# or the sign of a NaN, so floats become bits, or pass on their sign, only after NaN is replaced.

_ROUNDINGS = "rn/rz/rm/rp"
_EACH = "s32/u32"

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "integer": (
        f"add/sub.{_EACH} <r=>, <r>, <r>;",
        f"mul.lo/hi.{_EACH} <r=>, <r>, <r>;",
        f"mad.lo/hi.{_EACH} <r=>, <r>, <r>, <r>;",
        f"min/max.{_EACH} <r=>, <r>, <r>;",
        "max.s32 <r~t1>, <r>, -2147483647; abs/neg.s32 <r=>, <t1>;",
        f"sad.{_EACH} <r=>, <r>, <r>, <r>;",
        "add/sub/min/max.s32 <r=>, <r>, <w>;",
        "mul.lo.s32 <r=>, <r>, <w>;",
        "add/sub.sat.s32 <r=>, <r>, <r>;",
        "or.b32 <r~t1>, <r>, 1; div/rem.u32 <r=>, <r>, <t1>;",
        "and.b32 <r~t1>, <r>, 1023; or.b32 <r~t2>, <t1>, 1; div/rem.s32 <r=>, <r>, <t2>;",
        "div/rem.u32 <r=>, <r>, 7/10/641/65537;",
        "div/rem.s32 <r=>, <r>, 3/5/-9/1000;",
        f"mul24.lo/hi.{_EACH} <r=>, <r>, <r>;",
        f"dp4a.{_EACH}.{_EACH} <r=>, <r>, <r>, <r>;",
        f"dp2a.lo/hi.{_EACH}.{_EACH} <r=>, <r>, <r>, <r>;",
    ),
    "bits": (
        "and/or/xor.b32 <r=>, <r>, <r>;",
        "and/or/xor.b32 <r=>, <r>, <w>;",
        "not/cnot.b32 <r=>, <r>;",
        "shl.b32 <r=>, <r>, <r>;",
        "shr.u32/s32/b32 <r=>, <r>, <r>;",
        "shl.b32 <r=>, <r>, <6>;",
        "shr.u32/s32 <r=>, <r>, <6>;",
        "lop3.b32 <r=>, <r>, <r>, <r>, <8>;",
        "prmt.b32 <r=>, <r>, <r>, <16>;",
        "prmt.b32 <r=>, <r>, <r>, <r>;",
        "prmt.b32.f4e/b4e/rc8/ecl/ecr/rc16 <r=>, <r>, <r>, <r>;",
        "bfe.u32/s32 <r=>, <r>, <r>, <r>;",
        "bfe.u32/s32 <r=>, <r>, <5>, <5>;",
        "bfi.b32 <r=>, <r>, <r>, <r>, <r>;",
        "bfi.b32 <r=>, <r>, <r>, <5>, <5>;",
        "shf.l/r.wrap/clamp.b32 <r=>, <r>, <r>, <r>;",
        "shf.l/r.wrap.b32 <r=>, <r>, <r>, <5>;",
        "popc/clz/brev.b32 <r=>, <r>;",
        "bfind.u32/s32 <r=>, <r>;",
        "bfind.shiftamt.u32/s32 <r=>, <r>;",
        "szext.clamp/wrap.s32/u32 <r=>, <r>, <r>;",
        "bmsk.clamp/wrap.b32 <r=>, <r>, <r>;",
    ),
    "narrow integer": (
        "cvt.u16.u32 <h=>, <r>;",
        "cvt.u32/s32.u16/s16 <r=>, <h>;",
        "add/sub.s16/u16 <h=>, <h>, <h>;",
        "mul.lo/hi.s16/u16 <h=>, <h>, <h>;",
        "mul.wide.s16/u16 <r=>, <h>, <h>;",
        "mad.lo.s16/u16 <h=>, <h>, <h>, <h>;",
        "min/max.s16/u16 <h=>, <h>, <h>;",
        "max.s16 <h~t1>, <h>, -32767; neg/abs.s16 <h=>, <t1>;",
        "and/or/xor.b16 <h=>, <h>, <h>;",
        "shl.b16 <h=>, <h>, <r>;",
        "shr.u16/s16 <h=>, <h>, <r>;",
        "mov.b32 {<h=>, <h=>}, <r>;",
        "mov.b32 <r=>, {<h>, <h>};",
        "cvt.s8/u8.s32/u32 <h=>, <r>;",
        "cvt.s32/u32.s8/u8 <r=>, <r>;",
        "cvt.sat.s8/u8/s16/u16.s32/u32 <h=>, <r>;",
        "cvt.sat.u32.s32 <r=>, <r>;",
        "cvt.pack.sat.s8/u8.s32.b32 <r=>, <r>, <r>, <r>;",
    ),
    "wide integer": (
        "mov.b64 <d=>, {<r>, <r>};",
        "mov.b64 {<r=>, <r=>}, <d>;",
        "cvt.u64/s64.u32/s32 <d=>, <r>;",
        "cvt.u32.u64 <r=>, <d>;",
        "cvt.sat.s32.s64 <r=>, <d>;",
        "add/sub.s64 <d=>, <d>, <d>;",
        "mul.lo/hi.s64/u64 <d=>, <d>, <d>;",
        "mul.wide.s32/u32 <d=>, <r>, <r>;",
        "mad.wide.s32/u32 <d=>, <r>, <r>, <d>;",
        "min/max.s64/u64 <d=>, <d>, <d>;",
        "and/or/xor.b64 <d=>, <d>, <d>;",
        "not.b64 <d=>, <d>;",
        "max.s64 <d~t1>, <d>, -9223372036854775807; neg/abs.s64 <d=>, <t1>;",
        "shl.b64 <d=>, <d>, <r>;",
        "shr.u64/s64 <d=>, <d>, <r>;",
        "shl.b64 <d=>, <d>, <6>;",
        "shr.u64/s64 <d=>, <d>, <6>;",
        "popc/clz.b64 <r=>, <d>;",
        "brev.b64 <d=>, <d>;",
        "bfe.u64/s64 <d=>, <d>, <r>, <r>;",
        "bfi.b64 <d=>, <d>, <d>, <r>, <r>;",
        "or.b64 <d~t1>, <d>, 1; div/rem.u64 <d=>, <d>, <t1>;",
    ),
    "carries": (
        "add.cc.u32 <r=>, <r>, <r>; addc.u32 <r=>, <r>, <r>;",
        "sub.cc.u32 <r=>, <r>, <r>; subc.u32 <r=>, <r>, <r>;",
        "add.cc.u32 <r=>, <r>, <r>; addc.cc.u32 <r=>, <r>, <r>; addc.u32 <r=>, <r>, 0;",
        "mad.lo.cc.u32 <r=>, <r>, <r>, <r>; madc.hi.u32 <r=>, <r>, <r>, <r>;",
        "add.cc.u64 <d=>, <d>, <d>; addc.u64 <d=>, <d>, <d>;",
        "sub.cc.u64 <d=>, <d>, <d>; subc.u64 <d=>, <d>, <d>;",
    ),
    "predicates": (
        "setp.eq/ne/lt/le/gt/ge.s32/u32 <p=>, <r>, <r>;",
        "setp.eq/ne/lt/ge.s32/u32 <p=>, <r>, <w>;",
        "setp.lt/le/gt/ge/eq.s64/u64 <p=>, <d>, <d>;",
        "setp.lt/eq/gt.u16/s16 <p=>, <h>, <h>;",
        "setp.lt/gt/ne.and/or/xor.s32 <p=>|<p=>, <r>, <r>, <p>;",
        "and/or/xor.pred <p=>, <p>, <p>;",
        "not.pred <p=>, <p>;",
        "selp.b32 <r=>, <r>, <r>, <p>;",
        "selp.b64 <d=>, <d>, <d>, <p>;",
        "set.lt/ge/eq.u32.s32/u32 <r=>, <r>, <r>;",
        "slct.s32/u32.s32 <r=>, <r>, <r>, <r>;",
        "mov.b32 <r=v1>, <r>; @<p> add.s32 <v1>, <r>, <r>;",
        "mov.b32 <r=v1>, <r>; @!<p> xor.b32 <v1>, <r>, <r>;",
        "mov.b32 <r=v1>, <r>; @<p> shl.b32 <v1>, <r>, <5>;",
        "mov.b64 <d=v1>, <d>; @<p> sub.s64 <v1>, <d>, <d>;",
        "@<p:q1> mov.b32 <r=v1>, <r>; @!<q1> mov.b32 <v1>, <r>;",
    ),
    "simd": (
        "vadd2/vsub2/vmin2/vmax2/vabsdiff2/vavrg2.u32.u32.u32 <r=>, <r>, <r>, <r>;",
        "vadd4/vsub4/vmin4/vmax4/vabsdiff4/vavrg4.u32.u32.u32 <r=>, <r>, <r>, <r>;",
        "vadd4/vsub4.s32.s32.s32.sat <r=>, <r>, <r>, <r>;",
        "vabsdiff4.u32.u32.u32.add <r=>, <r>, <r>, <r>;",
        "vset4/vset2.u32.u32.lt/ge <r=>, <r>, <r>, <r>;",
    ),
    "float32": (
        "mov.b32 <f=>, <r>;",
        f"cvt.{_ROUNDINGS}.f32.s32/u32 <f=>, <r>;",
        f"add/sub/mul.{_ROUNDINGS}.f32 <f=>, <f>, <f>;",
        f"fma.{_ROUNDINGS}.f32 <f=>, <f>, <f>, <f>;",
        "fma.rn.ftz/sat.f32 <f=>, <f>, <f>, <f>;",
        "add/mul.rn.ftz/sat.f32 <f=>, <f>, <f>;",
        "min/max.f32 <f=>, <f>, <f>;",
        "min/max.NaN/ftz.f32 <f=>, <f>, <f>;",
        "div.rn/rz.f32 <f=>, <f>, <f>;",
        "rcp/sqrt.rn.f32 <f=>, <f>;",
        "setp.eq/lt/le/gt/ge/ne/ltu/geu/num/nan.f32 <p=>, <f>, <f>;",
        "selp.f32 <f=>, <f>, <f>, <p>;",
        "cvt.rzi/rni/rmi/rpi.s32/u32.f32 <r=>, <f>;",
        "cvt.rzi.s64.f32 <d=>, <f>;",
        "cvt.rni/rzi/rmi/rpi.f32.f32 <f=>, <f>;",
        "cvt.sat.f32.f32 <f=>, <f>;",
        "testp.finite/infinite/subnormal/number.f32 <p=>, <f>;",
        "mul.rn.f32 <f=>, <f>, 0f3F800000/0f40000000/0fBF800000/0f00000000/0f80000000;",
        "add.rn.f32 <f=>, <f>, 0f3F800000/0f00000000/0f80000000;",
        "setp.nan.f32 <p~n1>, <f:x1>, <x1>; mov.b32 <r~b1>, <x1>; selp.b32 <r=>, 0x7FC00000, <b1>, <n1>;",
    ),
    "float64": (
        "cvt.rn.f64.s32/u32 <e=>, <r>;",
        "cvt.rn.f64.s64/u64 <e=>, <d>;",
        "cvt.f64.f32 <e=>, <f>;",
        "add/sub/mul.rn/rz.f64 <e=>, <e>, <e>;",
        "fma.rn/rm.f64 <e=>, <e>, <e>, <e>;",
        "min/max.f64 <e=>, <e>, <e>;",
        "setp.lt/ge/eq/nan.f64 <p=>, <e>, <e>;",
        "cvt.rzi.s32/u32.f64 <r=>, <e>;",
        "cvt.rzi.s64.f64 <d=>, <e>;",
        "cvt.rn.f32.f64 <f=>, <e>;",
        "selp.f64 <e=>, <e>, <e>, <p>;",
        "setp.nan.f64 <p~n1>, <e:x1>, <x1>; mov.b64 <d~b1>, <x1>; selp.b64 <d=>, 0x7FF8000000000000, <b1>, <n1>;",
    ),
    "half": (
        "mov.b32 <s=>, <r>;",
        "cvt.rn/rz.f16x2.f32 <s=>, <f>, <f>;",
        "add/sub/mul.rn.f16x2 <s=>, <s>, <s>;",
        "fma.rn.f16x2 <s=>, <s>, <s>, <s>;",
        "fma.rn.sat/relu.f16x2 <s=>, <s>, <s>, <s>;",
        "add/mul.rn.sat.f16x2 <s=>, <s>, <s>;",
        "min/max.f16x2 <s=>, <s>, <s>;",
        "min/max.NaN.f16x2 <s=>, <s>, <s>;",
        "mov.b32 {<h~x1>, <h~y1>}, <s>; cvt.f32.f16 <f=>, <x1>; cvt.f32.f16 <f=>, <y1>;",
    ),
    "bfloat": (
        "mov.b32 <b=>, <r>;",
        "cvt.rn/rz.bf16x2.f32 <b=>, <f>, <f>;",
        "cvt.rn.relu.bf16x2.f32 <b=>, <f>, <f>;",
        "fma.rn.bf16x2 <b=>, <b>, <b>, <b>;",
        "fma.rn.relu.bf16x2 <b=>, <b>, <b>, <b>;",
        "add/sub/mul.rn.bf16x2 <b=>, <b>, <b>;",
        "min/max.bf16x2 <b=>, <b>, <b>;",
        "min/max.NaN.bf16x2 <b=>, <b>, <b>;",
        "and.b32 <r~x1>, <b>, 0xFFFF0000; mov.b32 <f=>, <x1>;",
        "shl.b32 <r~x1>, <b>, 16; mov.b32 <f=>, <x1>;",
    ),
    "conversion": (
        "cvt.rn.satfinite.e4m3x2/e5m2x2.f32 <h=>, <f>, <f>;",
        "cvt.rn.satfinite.relu.e4m3x2/e5m2x2.f32 <h=>, <f>, <f>;",
        "cvt.rn.f16x2.e4m3x2/e5m2x2 <s=>, <h>;",
        "cvt.rn.satfinite.e4m3x2/e5m2x2.f16x2 <h=>, <s>;",
    ),
    "shared memory": (
        "st.shared.u32 [%own], <r>; ld.shared.u32/s32 <r=>, [%own];",
        "st.shared.v2.u32 [%own], {<r>, <r>}; ld.shared.u8/s8/u16/s16 <r=>, [%own+4];",
        "st.shared.v2.u32 [%own], {<r>, <r>}; st.shared.u8 [%own+1], <r>; ld.shared.u32 <r=>, [%own];",
        "st.shared.u64 [%own], <d>; ld.shared.v2.u32 {<r=>, <r=>}, [%own];",
    ),
    "warp": (
        "shfl.sync.bfly/idx.b32 <r=>, <r>, <5>, 0x1f, 0xFFFFFFFF;",
        "vote.sync.ballot.b32 <r=>, <p>, 0xFFFFFFFF;",
        "vote.sync.all/any/uni.pred <p=>, <p>, 0xFFFFFFFF;",
        "redux.sync.add/min/max.s32/u32 <r=>, <r>, 0xFFFFFFFF;",
        "redux.sync.and/or/xor.b32 <r=>, <r>, 0xFFFFFFFF;",
    ),
}

NEEDS: Mapping[str, int] = {"bfloat": 90, "conversion": 89}
"""The least compute capability that has all instructions of a family; 80 for families that are not listed."""

OF_WHOLE_WARPS = frozenset({"warp"})
"""Families that all threads of a warp must execute together, so they are not used within branches and loops."""
