"""Programs as trees of statements: what is generated, cut down, and written as PTX.

Every statement writes new registers, so that one can be taken out and its results replaced by others of their kind.
Kinds are "r" (32 bits), "d" (64 bits), "h" (16 bits), "p" (a predicate), "f" and "e" (float32 and float64), "s" and "b"
(two float16, two bfloat16). The last four are kept apart from bits: the NaN that an instruction gives is not specified,
so that floats become bits only by statements that make all NaNs one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

KINDS = {"r": "b32", "d": "b64", "h": "b16", "p": "pred", "f": "f32", "e": "f64", "s": "b32", "b": "b32"}
INPUTS = OUTPUTS = 4
"""Words of 32 bits that a thread reads before and writes after its program."""
SHARED_WORDS = 2
"""Words of shared memory that a thread has for itself."""
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
    """One or several instructions. text: with {w0} for what it writes, {r0} for what it reads, {l0} for its labels.

    body: statements in the middle, at {body}, which end in `result`: {result}.
    """

    text: str
    writes: tuple[Variable, ...]
    reads: tuple[Operand, ...] = ()
    body: tuple[Statement, ...] = ()
    result: Operand = ""

    @property
    def opcodes(self) -> tuple[str, ...]:
        """The instructions in order, without what loops and branches are made of."""
        own = re.findall(r"(?:^|[;{}:]|@!?\S+)\s*([a-z]\w*(?:\.[\w:]+)+)\s", self.text.replace("{body}", ""))
        return (*own, *(o for s in self.body for o in s.opcodes))


@dataclass(frozen=True)
class RandomProgram:
    """Statements and the registers (kind "r") that a thread writes out in the end; "0" for a place left out."""

    statements: tuple[Statement, ...]
    outputs: tuple[Operand, ...]

    @property
    def size(self) -> int:
        """Instructions in it."""
        return sum(len(s.opcodes) for s in self.statements)

    @property
    def skeleton(self) -> str:
        """The instructions in order: programs with equal ones are taken for one fault."""
        return " ".join(o for s in self.statements for o in s.opcodes)


def registers(statements: Sequence[Statement]) -> Iterator[Variable]:
    """All that the statements write, bodies included."""
    for statement in statements:
        yield from statement.writes
        yield from registers(statement.body)


def entry(program: RandomProgram, name: str) -> str:
    """The program as a kernel that takes the addresses of inputs and outputs.

    Thread t of the grid reads words 4 t to 4 t + 3 and writes as many.
    """
    found = set(registers(program.statements))
    lines = [f".reg .{KINDS[r.kind]} {r};" for r in sorted(found, key=lambda r: (r.kind, r.number))]
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
    """The statements with other operands in the place of some registers that they read."""

    def of(operand: Operand) -> Operand:
        return names.get(operand, operand) if isinstance(operand, Variable) else operand

    return tuple(
        replace(s, reads=tuple(map(of, s.reads)), body=renamed(s.body, names), result=of(s.result)) for s in statements
    )
