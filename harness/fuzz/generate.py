"""Generate random programs. They are well typed and have no undefined behaviour, because their shapes have none."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

from ptxdiff.fuzz.families import FAMILIES, NEEDS, OF_WHOLE_WARPS
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
        found = []
        for _ in range(count):
            if depth and self.draw.random() < 0.07:
                found.append(self.draw.choice((self.loop, self.branch))(held, depth - 1))
            else:
                (name,) = self.draw.choices(names, [self.families.get(n, 1) for n in names])
                found.append(self.shaped(self.draw.choice(FAMILIES[name]), held))
        return found

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
        return Statement(text, writes, reads, tuple(body), inner["r"][-1])

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
                place = f"{{r{len(reads) - 1}}}"
            elif sign in ("=", "~"):
                writes.append(self.new(kind))
                if sign == "=":
                    kept.append(writes[-1])
                place = f"{{w{len(writes) - 1}}}"
            else:
                reads.append(self.register(kind, held, newest))
                place = f"{{r{len(reads) - 1}}}"
            if name:
                named[name] = place
            return place

        text = _CHOICE.sub(lambda found: self.draw.choice(found[0].split("/")), shape)
        # PTX's own braces do not collide with placeholders such as {r0}, because they contain commas or registers.
        text = _HOLE.sub(filled, text.replace("; ", ";\n"))
        for register in kept:  # added only now, so that a statement does not read its own results
            held.setdefault(register.kind, []).append(register)
        return Statement(text, tuple(writes), tuple(reads))
