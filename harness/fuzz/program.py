"""Random programs as trees of statements, and their PTX text.

Every statement writes new registers, so that it can be removed and its results replaced by other registers of the same
kind. Kinds are "r" (32 bits), "d" (64 bits), "h" (16 bits), "p" (a predicate), "f" and "e" (float32 and float64), "s"
and "b" (two float16, two bfloat16). The last four have separate kinds because the bits of a NaN result are not
specified; only statements that replace all NaNs by one convert floats to bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

KINDS = {"r": "b32", "d": "b64", "h": "b16", "p": "pred", "f": "f32", "e": "f64", "s": "b32", "b": "b32"}
INPUTS = OUTPUTS = 4
"""The number of 32-bit words that a thread reads before its program, and writes after it."""
SHARED_WORDS = 2
"""The number of 32-bit words of shared memory that each thread has."""
BLOCK = 128


@dataclass(frozen=True)
class Variable:
    """A register. Numbers below `INPUTS` are the inputs, of kind "r"."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"%{self.kind}{self.number}"


Operand = Variable | str
"""A register or a constant."""


@dataclass(frozen=True)
class Statement:
    """One or several instructions.

    text: PTX with the placeholders {w0}, {w1}, ... for `writes`, {r0}, {r1}, ... for `reads`, and {l0}, {l1} for
    labels. body: statements at the placeholder {body}. result: the operand at {result}, which the body computes.
    inner: the places in `writes` of registers that no other statement may read. They may hold the bits of a NaN, or
    half a result.
    """

    text: str
    writes: tuple[Variable, ...]
    reads: tuple[Operand, ...] = ()
    body: tuple[Statement, ...] = ()
    result: Operand = ""
    inner: tuple[int, ...] = ()

    @property
    def results(self) -> tuple[Variable, ...]:
        """The registers that other statements may read."""
        return tuple(w for k, w in enumerate(self.writes) if k not in self.inner)

    @property
    def opcodes(self) -> tuple[str, ...]:
        """The opcodes with their modifiers in order, without the branches of loops."""
        own = re.findall(r"(?:^|[;{}:]|@!?\S+)\s*([a-z]\w*(?:\.[\w:]+)+)\s", self.text.replace("{body}", ""))
        return (*own, *(o for s in self.body for o in s.opcodes))


@dataclass(frozen=True)
class RandomProgram:
    """A program. outputs: the registers (kind "r") that a thread stores at the end, or "0" for an unused output."""

    statements: tuple[Statement, ...]
    outputs: tuple[Operand, ...]

    @property
    def size(self) -> int:
        """The number of instructions."""
        return sum(len(s.opcodes) for s in self.statements)

    @property
    def skeleton(self) -> str:
        """The opcodes in order. Programs with equal skeletons count as one fault."""
        return " ".join(o for s in self.statements for o in s.opcodes)


def registers(statements: Sequence[Statement]) -> Iterator[Variable]:
    """All registers that the statements and their bodies write."""
    for statement in statements:
        yield from statement.writes
        yield from registers(statement.body)


def entry(program: RandomProgram, name: str) -> str:
    """The program as a kernel that takes the addresses of inputs and outputs.

    Thread t of the grid reads words 4 t to 4 t + 3 and writes as many.
    """
    used = sorted(set(registers(program.statements)), key=lambda r: (r.kind, r.number))
    # One declaration for each kind is parsed faster than one for each register.
    lines = [f".reg .{KINDS[kind]} {', '.join(map(str, same))};" for kind, same in groupby(used, lambda r: r.kind)]
    labels = iter(range(1 << 30))
    body = "\n".join(_written(s, lambda: f"$L{next(labels)}") for s in program.statements)
    outputs = ", ".join(map(str, program.outputs))
    inputs = ", ".join(f"%r{k}" for k in range(INPUTS))
    shared = f".shared .align 16 .b8 own[{4 * SHARED_WORDS * BLOCK}];\n" if "own" in body else ""
    return f""".visible .entry {name}(.param .u64 {name}_in, .param .u64 {name}_out) .maxntid {BLOCK}
{{
{shared}.reg .b32 {inputs}, %thread, %place, %own; .reg .b64 %in, %out, %at;
ld.param.u64 %in, [{name}_in]; ld.param.u64 %out, [{name}_out];
mov.u32 %thread, %tid.x; mov.u32 %place, %ctaid.x;
mad.lo.u32 %place, %place, {BLOCK}, %thread; mul.wide.u32 %at, %place, {4 * INPUTS};
add.u64 %in, %in, %at; add.u64 %out, %out, %at;
{f"mov.u32 %own, own; mad.lo.u32 %own, %thread, {4 * SHARED_WORDS}, %own;" if shared else "mov.u32 %own, 0;"}
ld.global.v4.u32 {{{inputs}}}, [%in];
{chr(10).join(lines)}
{body}
st.global.v4.u32 [%out], {{{outputs}}};
ret;
}}
"""


def module(entries: Sequence[str], target: str, version: str) -> str:
    """A module of kernels."""
    return f".version {version}\n.target {target}\n.address_size 64\n\n" + "\n".join(entries)


def _written(statement: Statement, label: Callable[[], str]) -> str:
    names = {f"w{k}": str(r) for k, r in enumerate(statement.writes)}
    names |= {f"r{k}": str(o) for k, o in enumerate(statement.reads)}
    names |= {f"l{k}": label() for k in range(2) if f"{{l{k}}}" in statement.text}
    names |= {"result": str(statement.result), "body": "\n".join(_written(s, label) for s in statement.body)}
    return re.sub(r"\{(\w+)\}", lambda found: names[found[1]], statement.text)


def renamed(statements: Sequence[Statement], names: dict[Variable, Operand]) -> tuple[Statement, ...]:
    """The statements with some of the registers that they read replaced. names: register to operand."""

    def of(operand: Operand) -> Operand:
        return names.get(operand, operand) if isinstance(operand, Variable) else operand

    return tuple(
        replace(s, reads=tuple(map(of, s.reads)), body=renamed(s.body, names), result=of(s.result)) for s in statements
    )
