"""Constraints, arguments and packs: how Triton hands tensors to an asm block.

The rules are those of Triton's lowering of `tl.inline_asm_elementwise` and of LLVM's constraints for NVPTX, found by
compiling with them. An operand holds as many elements of less than 32 bits as fit in 32 bits, but no more than the pack
has. The other bits of its register are undefined.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ptxdiff.emulator.errors import BindingError, DeclaredOutside, InputWritten, TooLarge
from ptxdiff.emulator.isa.lookup import facts_of
from ptxdiff.emulator.limits import CONSTRAINTS, PACK
from ptxdiff.emulator.text.conventions import short
from ptxdiff.emulator.text.lexer import OPERAND
from ptxdiff.emulator.text.nodes import (
    BranchTargets,
    CodeBlock,
    Declaration,
    Instruction,
    Label,
    Name,
    Operand,
    Pair,
    Source,
    Vector,
    instructions,
)
from ptxdiff.emulator.text.parser import parse_asm

REGISTER_WIDTH = {"b": 1, "c": 16, "h": 16, "r": 32, "f": 32, "l": 64, "N": 64, "d": 64}
"""Constraint letter to register width in bits."""
IMMEDIATE = "n"
"""The letter of a constant operand; `i` means the same."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint: its letter, whether it is an output, whether it is an early clobber (`&`), and the output to
    which it is tied."""

    text: str
    letter: str
    output: bool
    early: bool = False
    tied: int | None = None

    @property
    def immediate(self) -> bool:
        """Whether the operand is a constant in the text instead of a register."""
        return self.letter == IMMEDIATE


@dataclass(frozen=True, slots=True)
class AsmOperand:
    """Operand `$number` of an asm block, with the elements of an argument or result that it holds.

    `tensor` is the number of the argument (for outputs: of the result). For i below `count`, element `first + i` of the
    pack is in bits `i * element_width` and up of a register of `width` bits.
    """

    number: int
    constraint: Constraint
    tensor: int
    first: int
    count: int
    element_width: int
    width: int

    @property
    def output(self) -> bool:
        """Whether the block writes it."""
        return self.constraint.output

    @property
    def describes(self) -> str:
        """What the operand holds, for messages: `$3 (input 1, elements 0 to 3 of the pack)`."""
        what = "output" if self.output else "input"
        last = self.first + self.count - 1
        part = f"element {self.first}" if self.count == 1 else f"elements {self.first} to {last}"
        return f"${self.number} ({what} {self.tensor}, {part} of the pack)"


def parse_constraints(text: str) -> tuple[Constraint, ...]:
    """Split and check a constraint string; clobbers (`~{...}`) are dropped.

    Raises BindingError where LLVM refuses the block or silently drops it; TooLarge for too many constraints.
    """
    if not isinstance(text, str):
        raise BindingError(f"constraints are a string such as '=r,r', not {type(text).__name__}")
    count = text.count(",") + 1
    if count > CONSTRAINTS.most or len(text) > 20 * CONSTRAINTS.most:
        raise TooLarge(CONSTRAINTS.refusal(max(count, len(text) // 20)))
    found: list[Constraint] = []
    for part in text.split(",") if text.strip() else []:
        part = part.strip()
        if part.startswith("~{") and part.endswith("}"):
            continue
        found.append(_constraint(part, text, found))
    return tuple(found)


def _constraint(part: str, text: str, before: Sequence[Constraint]) -> Constraint:
    def refuse(why: str) -> BindingError:
        return BindingError(f"constraint {short(part)!r} of {short(text)!r}: {why}")

    if not part:
        raise refuse("it is empty; is there a comma too many?")
    if part.startswith("+"):
        raise refuse("Triton has no read-write operands; use an output and a tied input, as in '=r,0'")
    if '"' in part:
        raise refuse("quotes belong to a CUDA statement; for that convention pass convention='cuda'")
    if any(c.isspace() for c in part):
        raise refuse("constraints are separated by commas")
    output = part.startswith("=")
    body = part[1:] if output else part.removeprefix("%")
    early = body.startswith("&")
    if early:
        if not output:
            raise refuse("only an output can be written early; write '=&r'")
        body = body[1:]
    if output and before and not before[-1].output:
        raise refuse("outputs come before inputs")
    if re.fullmatch("[0-9]{1,9}", body) and not output:
        outputs = sum(1 for c in before if c.output)
        if int(body) >= outputs:
            raise refuse(f"there is no output {body} to tie to")
        if any(c.tied == int(body) for c in before):
            raise refuse(f"another input is tied to output {body} already")
        return Constraint(part, before[int(body)].letter, False, tied=int(body))
    if body in ("n", "i") and not output and not early:
        return Constraint(part, IMMEDIATE, False)
    if body == "s":
        raise refuse("it needs the name of a symbol, and asm in Triton has none")
    if not body or not re.fullmatch(r"[A-Za-z|]+", body) or body[0] not in REGISTER_WIDTH:
        known = ", ".join(REGISTER_WIDTH)
        raise refuse(f"no such constraint for PTX; register constraints are {known}, with '=' or '=&' before outputs")
    return Constraint(part, body[0], output, early)


def check_pack(pack: object) -> None:
    """Raise BindingError or TooLarge unless `pack` is a valid number of elements for each invocation."""
    if isinstance(pack, bool) or not isinstance(pack, (int, np.integer)):
        raise BindingError(f"pack is {short(repr(pack))}; it is the number of elements of an invocation")
    if pack > PACK.most:
        raise TooLarge(PACK.refusal(int(pack)))
    if pack < 1 or pack & (pack - 1):
        raise BindingError(f"pack is {pack}; Triton needs a power of two, as tensors have a power of two elements")


def bind(
    constraints: Sequence[Constraint],
    inputs: Sequence[int],
    outputs: Sequence[int],
    pack: int,
    convention: str = "triton",
) -> tuple[AsmOperand, ...]:
    """Number the operands of a block, given the element widths (bits) of its arguments and results.

    convention: "triton", where a 32-bit register holds as many small elements as fit; or "llvm", where an operand holds
    one element, or as many as fill its register, as the number of operands implies. Raises BindingError when
    constraints and tensors do not fit together.
    """
    check_pack(pack)
    if convention != "triton":
        return _bind_one_each(constraints, inputs, outputs, pack)
    places = [(i, *place) for i, w in enumerate(outputs) for place in _split(w, pack)]
    produced = len(places)
    places += [(i, *place) for i, w in enumerate(inputs) for place in _split(w, pack)]
    _check_count("output", [c for c in constraints if c.output], produced, outputs, pack)
    _check_count("input", [c for c in constraints if not c.output], len(places) - produced, inputs, pack)
    return _operands(constraints, places)


def _operands(constraints: Sequence[Constraint], places: Sequence[tuple[int, int, int, int]]) -> tuple[AsmOperand, ...]:
    operands = []
    for number, (constraint, (tensor, first, count, width)) in enumerate(zip(constraints, places, strict=True)):
        register = 64 if constraint.immediate else REGISTER_WIDTH[constraint.letter]
        operand = AsmOperand(number, constraint, tensor, first, count, width, register)
        if register < width * count:
            raise BindingError(
                f"operand {operand.describes} has {width * count} bits and does not fit in the "
                f"{register}-bit register of constraint {constraint.text!r}"
            )
        operands.append(operand)
    return tuple(operands)


def _bind_one_each(
    constraints: Sequence[Constraint], inputs: Sequence[int], outputs: Sequence[int], pack: int
) -> tuple[AsmOperand, ...]:
    """The operands of a block whose author chose between one element for each operand and as many as fill its
    register."""
    places = []
    for what, widths in (("output", outputs), ("input", inputs)):
        own = [c for c in constraints if c.output == (what == "output")]
        shares = _shares(widths, own, pack)
        alike = [counts for counts in shares if len(set(counts) - {0}) <= 1]
        if not shares or (len(shares) > 1 and len(alike) != 1):
            raise _unplaced(what, widths, own, pack, bool(shares))
        for tensor, (width, count) in enumerate(zip(widths, (alike or shares)[0], strict=True)):
            places += [(tensor, at, count or 1, width) for at in range(0, pack if count else 1, count or 1)]
    return _operands(constraints, places)


def _shares(widths: Sequence[int], constraints: Sequence[Constraint], pack: int) -> list[tuple[int, ...]]:
    """Every possible split, at most 8: for each tensor the elements of one operand (0: a constant, one operand for
    all)."""
    ways: dict[int, list[tuple[int, ...]]] = {len(constraints): [()]}  # by the first operand not yet split
    for width in reversed(widths):
        ways = {at: _ways_from(width, constraints, at, pack, ways) for at in range(len(constraints))}
    return ways.get(0, [])


def _ways_from(
    width: int, constraints: Sequence[Constraint], at: int, pack: int, rest: Mapping[int, list[tuple[int, ...]]]
) -> list[tuple[int, ...]]:
    if constraints[at].immediate:
        return [(0, *way) for way in rest.get(at + 1, [])]
    register = REGISTER_WIDTH[constraints[at].letter]
    ways: list[tuple[int, ...]] = []
    for count in dict.fromkeys((1, min(max(register // width, 1), pack))):
        own = constraints[at : at + pack // count]
        if len(own) == pack // count and all(REGISTER_WIDTH.get(c.letter) == register for c in own):
            ways += [(count, *way) for way in rest.get(at + len(own), [])]
    return ways[:8]


def _unplaced(
    what: str, widths: Sequence[int], constraints: Sequence[Constraint], pack: int, several: bool
) -> BindingError:
    tensors = ", ".join(f"{w}-bit" for w in widths) or "no"
    words = ", ".join(c.text for c in constraints) or "none"
    operands = "1 operand" if pack == 1 else f"{pack} operands or fewer"
    if several:
        return BindingError(
            f"the constraints of the {what}s ({words}) fit pack={pack} of {tensors} elements in several ways; give "
            "every operand one element, or every operand as many as fill its register"
        )
    return BindingError(
        f"the constraints declare {len(constraints)} {what} operands ({words}), which do not fit pack={pack} of "
        f"{tensors} elements: an operand holds one element, or as many as fill its register, so that "
        + (
            f"the one tensor needs {operands}"
            if len(widths) == 1
            else f"each of {len(widths)} tensors needs {operands}"
        )
    )


def _split(width: int, pack: int) -> list[tuple[int, int, int]]:
    """(first element, count, element width) for every operand that a tensor of this element width needs."""
    count = min(max(32 // width, 1), pack)
    return [(first, count, width) for first in range(0, pack, count)]


def _check_count(what: str, own: Sequence[Constraint], need: int, widths: Sequence[int], pack: int) -> None:
    if len(own) == need:
        return
    tensors = " + ".join(f"{len(_split(w, pack))} of a {w}-bit tensor" for w in widths) or "none"
    words = (
        f"the constraints declare {len(own)} {what} operands, but pack={pack} needs {need} ({tensors}); "
        "elements of less than 32 bits share a 32-bit register"
    )
    wide = all(REGISTER_WIDTH.get(c.letter) == 64 for c in own)
    if own and wide and pack > 1 and len(own) * 2 == need and set(widths) == {32}:
        words += (
            "; in Triton a 64-bit operand holds one element of 32 bits: two of them are tensors of int64 there, and "
            "convention='llvm' here"
        )
    raise BindingError(words)


def constants_of(operands: Sequence[AsmOperand], args: Sequence[object]) -> tuple[tuple[int, int], ...]:
    """The number and signed value of each operand under constraint `n` or `i`, as LLVM writes it.

    Raises BindingError if the argument is no Python integer: a tensor is never constant, and Triton's True is -1.
    """
    found = []
    for operand in operands:
        if operand.constraint.immediate:
            value = args[operand.tensor]
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or operand.element_width < 32:
                raise BindingError(
                    f"operand {operand.describes}: constraint {operand.constraint.text!r} takes a compile-time "
                    f"constant (a Python int, in a kernel a tl.constexpr), not {short(repr(value))}"
                )
            half = 1 << (operand.element_width - 1)
            found.append((operand.number, ((int(value) + half) & (2 * half - 1)) - half))
    return tuple(found)


# Checks of an asm block as a compiler uses it ----------------------------------------------------------------------
#
# Names declared outside braces, and inputs that it writes.

_UNIQUE = "${:uid}"


def check_repeated(asm: str, operand_count: int) -> None:
    """Raise DeclaredOutside for a register, variable or label that a second copy of the block would declare again.

    A label with `${:uid}` in its name gets a different name in each copy. Raises PtxError if the text cannot be parsed.
    """
    tree, source = parse_asm(asm, operand_count)
    again = tree if _UNIQUE not in asm else parse_asm(asm.replace(_UNIQUE, "1"), operand_count)[0]
    copies = {name for name, _, _ in _outermost(again)}
    for name, what, offset in _outermost(tree):
        if name in copies:
            message = (
                f"{what} is declared outside braces; a thread that has several packs repeats the block, and "
                "ptxas then finds the name declared twice: put braces around the whole block, `{ ... }`"
            )
            raise source.error(DeclaredOutside, message, offset)


def _outermost(tree: CodeBlock) -> Iterator[tuple[str, str, int]]:
    """Name, description and place of each declaration outside braces."""
    for statement in tree.statements:
        if isinstance(statement, Declaration):
            count = f"<{statement.count}>" if statement.count is not None else ""
            kind = "variable" if statement.space != "reg" else "register" if not count else "registers"
            yield statement.name, f"{kind} {statement.name}{count}", statement.offset
        elif isinstance(statement, Label):
            yield statement.name, f"label {statement.name}", statement.offset
        elif isinstance(statement, BranchTargets):
            yield statement.label, f"label {statement.label}", statement.offset


def check_inputs(tree: CodeBlock, source: Source, constraints: Sequence[Constraint]) -> None:
    """Raise InputWritten for the first instruction that writes an input not tied to an output."""
    inputs = {n: c for n, c in enumerate(constraints) if not (c.output or c.immediate) and c.tied is None}
    for instruction in instructions(tree):
        for number in _written(instruction):
            if number in inputs:
                message = _words(source.statement(instruction.offset), number, inputs[number], constraints)
                raise source.error(InputWritten, message, instruction.offset)


def _words(statement: str, number: int, constraint: Constraint, constraints: Sequence[Constraint]) -> str:
    width = REGISTER_WIDTH[constraint.letter]
    kind = "pred" if width == 1 else f"b{width}"
    move = "mov.pred" if width == 1 else f"mov.b{width}"
    outputs = sum(c.output for c in constraints)
    return (
        f"`{statement}` writes the input ${number}, and the compiler assumes that an input keeps its value; copy it "
        f"into a register of your own (.reg .{kind} t; {move} t, ${number};), or declare one more output "
        f"'={constraint.letter}' and tie the input to it, with the output's number (here '{outputs}') as its constraint"
    )


def _written(instruction: Instruction) -> Iterator[int]:
    """The numbers of the asm operands that an instruction writes."""
    yield from _numbers(destination(instruction))


def destination(instruction: Instruction) -> Operand | None:
    """The operand that an instruction writes, by its spelling alone; None where it writes none.

    A copy gives its address `[a]`, in which no register is written.
    """
    first, *others = instruction.operands or (None,)
    count = facts_of(instruction.opcode, instruction.modifiers).destinations
    if first is None or count == 0:
        return None
    return Pair(first, others[0], first.offset) if count == 2 and len(others) > 1 else first


def _numbers(destination: Operand | None) -> Iterator[int]:
    if isinstance(destination, Pair):
        yield from _numbers(destination.first)
        yield from _numbers(destination.second)
    elif isinstance(destination, Vector):
        for element in destination.elements:
            yield from _numbers(element)
    elif isinstance(destination, Name) and destination.text.startswith(OPERAND):
        yield int(destination.text.removeprefix(OPERAND).partition(".")[0])  # video instructions write `$0.b3`
