"""Derive the asm that runs from the asm in a case: packed forms of one instruction, and constraints.

Triton hands an asm block the elements of each argument in 32-bit registers: as many per register as fit, the first in
the low bits, outputs numbered before inputs. An author who writes one instruction for one element therefore has to
renumber operands and, for 8-bit and 16-bit operands, to move halves and bytes in and out of those registers. This
module does that, always with early-clobber outputs (`=&r`), because a derived block writes its first outputs before it
has read its last inputs.

It takes the width of each operand from the instruction's type suffixes. It raises DerivationError if they do not
determine the widths, or if the operands cover different numbers of elements.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ptxdiff.emulator.text import TYPES
from ptxdiff.model.arguments import format_of
from ptxdiff.model.case import Case
from ptxdiff.model.variants import DERIVED_PACKS, AsmText, AsmVariant, CaseError, InstructionText, single_instruction
from ptxdiff.references.formats import Format

_WIDENING = ("mul.wide",)
_COUNTS_TO_32_BITS = ("popc", "clz", "bfind")
# Unless their type has 32 bits, some sources of these have another width than the type.
_MIXED = ("mad.wide", "shl", "shr", "bfe", "bfi", "bmsk", "szext", "slct")
_PREDICATES = ("selp.", "setp.", "vote.")


class DerivationError(CaseError):
    """The asm cannot be derived; the message says why and what to write instead."""


@dataclass(frozen=True)
class AsmForm:
    """The asm of one pack factor, with `$0` and LLVM's constraints.

    convention: "triton", for asm that `tl.inline_asm_elementwise` takes unchanged, or "llvm", as for `ptxdiff.emulate`.
    `compiled_form` translates the latter for Triton.
    """

    text: str
    constraints: str
    pack: int
    convention: Literal["triton", "llvm"] = "triton"


def packs_of(case: Case, variant: AsmVariant) -> tuple[int, ...]:
    """The pack factors with which a variant runs.

    These are the default packs that the instruction's width allows (an instruction on two elements excludes pack 1).
    Packs that a case names are all kept; `asm_form` refuses impossible ones.
    """
    if variant.derived_packs != DERIVED_PACKS:
        return variant.derived_packs or tuple(variant.texts)
    return tuple(p for p in DERIVED_PACKS if _derivable(case, variant, p)) or DERIVED_PACKS


def _derivable(case: Case, variant: AsmVariant, pack: int) -> bool:
    try:
        asm_form(case, variant, pack)
    except DerivationError:
        return False
    return True


def asm_form(case: Case, variant: AsmVariant, pack: int) -> AsmForm:
    """The text and constraints of a variant at a pack factor.

    Raises DerivationError if a form cannot be derived.
    """
    key = (id(case), id(variant), pack)
    if key not in _forms:
        if len(_forms) >= _MOST_FORMS:
            _forms.clear()
        _forms[key] = (case, variant, _asm_form(case, variant, pack))
    return _forms[key][2]


_MOST_FORMS = 1024
_forms: dict[tuple[int, int, int], tuple[Case, AsmVariant, AsmForm]] = {}
"""By the ids of case and variant, which are kept alive, so that no other object gets them."""


def _asm_form(case: Case, variant: AsmVariant, pack: int) -> AsmForm:
    given = variant.texts.get(1 if variant.derived_packs else pack)
    if given is None:
        raise DerivationError(f"no asm for pack {pack}; there is one for {', '.join(map(str, variant.texts))}")
    if variant.convention == "triton":
        if variant.derived_packs:
            return derive(case, given.text, pack)
        return AsmForm(given.text, given.constraints or derive_constraints(case, pack), pack)
    return _translated(case, variant, given, pack)


def compiled_form(case: Case, form: AsmForm) -> AsmForm:
    """The asm for `tl.inline_asm_elementwise`, which computes the same bits as the form.

    Raises DerivationError if the operands do not fit the case, or have no counterpart in Triton.
    """
    if form.convention == "triton":
        return form
    from ptxdiff.emulator import PtxError, in_tritons_form

    outputs, inputs = ([f.unit_bits for f in side] for side in _arguments(case))
    try:
        text, constraints = in_tritons_form(form.text, form.constraints, inputs, outputs, form.pack)
    except PtxError as e:
        raise DerivationError(str(e)) from None
    return AsmForm(text, constraints, form.pack)


def _translated(case: Case, variant: AsmVariant, given: AsmText, pack: int) -> AsmForm:
    """The form of asm that is not in Triton's convention."""
    from ptxdiff.emulator import PtxError
    from ptxdiff.emulator.text import spelled

    constraints = given.constraints
    if constraints is None and not variant.derived_packs and pack > 1:
        raise DerivationError(
            f"constraints= is missing: with convention={variant.convention!r} and pack {pack} they say which elements "
            "an operand holds"
        )
    numbers = ",".join(["=r"] * len(case.outputs) + ["r"] * len(case.inputs) * (2 if variant.derived_packs else 1))
    try:
        found = spelled(given.text, numbers if constraints is None else constraints, variant.convention)
    except PtxError as e:
        raise DerivationError(str(e)) from None
    if variant.derived_packs:
        return derive(case, found.text, pack)
    if constraints is None:
        return AsmForm(found.text, derive_constraints(case, pack), pack)
    _check_constants(case, found.expressions, pack)
    _check_order(case, found.expressions, found.constraints)
    return AsmForm(found.text, found.constraints, pack, "llvm")


_LITERAL = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)[uUlL]*")


def _check_constants(case: Case, expressions: Sequence[str], pack: int) -> None:
    """Raise DerivationError if a CUDA statement has more operands than the case can fill, and numbers among them."""
    numbers = [e for e in expressions if _LITERAL.fullmatch(e)]
    if numbers and len(expressions) > pack * (len(case.outputs) + len(case.inputs)):
        raise DerivationError(
            f"the statement has a register for each of the numbers {', '.join(numbers)}, and the case has no input for "
            f'them; write "n"({numbers[0]}), which puts the number into the text, and where an instruction takes no '
            "number, move it to a register there: mov.b32"
        )


def _check_order(case: Case, expressions: Sequence[str], constraints: str) -> None:
    """Raise DerivationError if a CUDA statement names the case's arguments in another order than the case.

    constraints: LLVM's. An operand `+r` has one expression for the output and for the input tied to it. It may be the
    name of either, because the case has two names for them.
    """
    names = [*case.outputs, *case.inputs]
    if len(expressions) != len(names):
        return
    allowed = [{name} for name in names]
    words = [word for word in constraints.split(",") if not word.startswith("~")]
    for place, word in enumerate(words):
        if word.isdigit() and expressions[place] == expressions[int(word)]:
            allowed[place] = allowed[int(word)] = {names[place], names[int(word)]}
    for expression, name, fine in zip(expressions, names, allowed, strict=True):
        if expression in names and expression not in fine:
            raise DerivationError(
                f"the statement has ({expression}) where the case has {name!r}; operands are the case's outputs, then "
                f"its inputs ({', '.join(names)}), and what a '+' operand reads comes last"
            )


def _arguments(case: Case) -> tuple[list[Format], list[Format]]:
    return [format_of(a) for a in case.outputs.values()], [format_of(a) for a in case.inputs.values()]


def _registers(fmt: Format, pack: int) -> int:
    """How many registers Triton uses for `pack` elements."""
    return pack if fmt.unit_bits >= 32 else -(-pack * fmt.unit_bits // 32)


def _letter(fmt: Format) -> str:
    if fmt.unit_bits == 64:
        return "d" if fmt.element_type == "fp64" else "l"
    return "r"


def derive_constraints(case: Case, pack: int) -> str:
    """Constraints for hand-written asm at a pack: registers by format, every output an early clobber."""
    outputs, inputs = _arguments(case)
    registers = [f"=&{_letter(f)}" for f in outputs for _ in range(_registers(f, pack))]
    registers += [_letter(f) for f in inputs for _ in range(_registers(f, pack))]
    return ",".join(registers)


def operand_bits(instruction: InstructionText) -> tuple[int, int]:
    """The width in bits of the destination and of the sources, from the type suffixes.

    Raises DerivationError if the opcode has no type, or its sources have several widths.
    """
    if instruction.opcode.startswith(_PREDICATES):
        raise DerivationError(
            f"{instruction.opcode} has a predicate among its operands, and none can be passed; write a block, "
            "with constraints= and pack="
        )
    types = [part for part in instruction.opcode.split(".")[1:] if part in TYPES]
    bits = [TYPES[t].width for t in types]
    if not types or (len(set(bits[1:])) > 1 and not instruction.opcode.startswith("cvt")):
        raise DerivationError(
            f"the operand widths of {instruction.opcode!r} do not follow from its type suffixes; "
            "write the packed forms out, with constraints= and pack="
        )
    if instruction.opcode.startswith(_MIXED) and (bits[0] != 32 or ".wide" in instruction.opcode):
        raise DerivationError(
            f"{instruction.opcode} takes operands of different widths; write the packed forms out, "
            "with constraints= and pack="
        )
    if instruction.opcode.startswith(_WIDENING):
        return 2 * bits[0], bits[0]
    if instruction.opcode.startswith(_COUNTS_TO_32_BITS):
        return 32, bits[0]
    return bits[0], bits[-1]


def derive(case: Case, text: str, pack: int) -> AsmForm:
    """The packed form of one instruction written for a single invocation (`$0`, `$1`, ... by argument)."""
    instruction = single_instruction(text)
    if instruction is None:
        raise DerivationError(
            "packed forms are derived from exactly one plain instruction; write this asm out for each pack, "
            "asm({1: ..., 4: ...}), or give its pack="
        )
    outputs, inputs = _arguments(case)
    if _takes_two_elements(instruction, outputs, inputs):
        lanes, slots = 2, _pair_slots(instruction, outputs[0], inputs[0], pack)
    else:
        _check_numbers(instruction, len(outputs) + len(inputs))
        to_bits, from_bits = operand_bits(instruction)
        widths = [to_bits] * len(outputs) + [from_bits] * len(inputs)
        formats = outputs + inputs
        lanes = _lanes(instruction, formats, widths, pack)
        slots = [_Slots.of(f, width, pack, lanes) for f, width in zip(formats, widths, strict=True)]
    base = 0
    for s in slots:
        s.base = base
        base += s.registers
    calls = range(max(1, pack // lanes))
    body = [_call(instruction, slots, call) for call in calls]
    head = [line for n, s in enumerate(slots) for line in s.declare(n)]
    load = [line for n, s in enumerate(slots[len(outputs) :], len(outputs)) for line in s.unpack(n)]
    save = [line for n, s in enumerate(slots[: len(outputs)]) for line in s.pack_up(n)]
    lines = head + load + body + save
    joined = "\n".join(f"    {line}" for line in lines)
    return AsmForm(body[0] if len(lines) == 1 else f"{{\n{joined}\n}}", derive_constraints(case, pack), pack)


def _takes_two_elements(instruction: InstructionText, outputs: Sequence[Format], inputs: Sequence[Format]) -> bool:
    """Whether it is a `cvt` of two elements of one input; $1 and $2 are then the first and the second element."""
    numbers = sorted(instruction.operands[1:])
    one_of_each = len(outputs) == len(inputs) == 1
    return instruction.opcode.startswith("cvt.") and one_of_each and numbers == ["$1", "$2"]


def _pair_slots(instruction: InstructionText, made: Format, taken: Format, pack: int) -> list[_Slots]:
    to_bits, from_bits = operand_bits(instruction)
    if instruction.opcode.startswith("cvt.pack."):
        to_bits *= 2  # the type suffix is that of one of the two
    if (to_bits, from_bits) != (2 * made.unit_bits, taken.unit_bits):
        raise DerivationError(
            f"{instruction.opcode} makes {to_bits} bits of two sources of {from_bits} bits; the case has elements of "
            f"{made.unit_bits} ({made.name}) and {taken.unit_bits} bits ({taken.name}); write the packed forms out, "
            "with constraints= and pack="
        )
    if pack % 2:
        raise DerivationError(f"{instruction.opcode} works on 2 elements at a time; pack {pack} is no multiple")
    return [_Slots.of(made, to_bits, pack, 2), _Slots.of(taken, from_bits, pack, 1, operands=2)]


def _check_numbers(instruction: InstructionText, arguments: int) -> None:
    used = {int(n) for o in instruction.operands for n in re.findall(r"\$(\d+)", o)}
    for number in sorted(used):
        if number >= arguments:
            raise DerivationError(
                f"{instruction.opcode}: ${number} names no argument; the case has {arguments} "
                f"(outputs first): $0 to ${arguments - 1}"
            )
    unused = sorted(set(range(arguments)) - used)
    if unused:
        raise DerivationError(
            f"{instruction.opcode}: argument ${unused[0]} is never used; operands are numbered outputs first"
        )


def _lanes(instruction: InstructionText, formats: Sequence[Format], widths: Sequence[int], pack: int) -> int:
    """How many elements one execution covers. Raises DerivationError unless it is the same for every operand."""
    per_operand = [width / f.unit_bits for f, width in zip(formats, widths, strict=True)]
    if len(set(per_operand)) != 1 or per_operand[0] != int(per_operand[0]):
        described = ", ".join(
            f"${n} {w} bits for {f.name}" for n, (f, w) in enumerate(zip(formats, widths, strict=True))
        )
        raise DerivationError(
            f"{instruction.opcode}: its operands cover different numbers of elements ({described}); "
            "write the packed forms out, with constraints= and pack="
        )
    lanes = int(per_operand[0])
    shares_a_register = all(f.unit_bits < 32 for f in formats)  # other bits of a register may then stay undefined
    if pack % lanes and not (pack < lanes and shares_a_register):
        raise DerivationError(f"{instruction.opcode} works on {lanes} elements at a time; pack {pack} is no multiple")
    return lanes


@dataclass
class _Slots:
    """The operands that one argument supplies to the executions of a block.

    direct: each operand is an asm register. Otherwise moves through temporaries split or join registers: `parts` pieces
    of `piece` bits for each wider register.
    """

    width: int  # bits of an operand of the instruction
    count: int  # operands in the whole block
    registers: int  # asm registers
    operands: int = 1  # of one execution
    base: int = 0

    @classmethod
    def of(cls, fmt: Format, width: int, pack: int, lanes: int, operands: int = 1) -> _Slots:
        return cls(width, max(1, pack // lanes), _registers(fmt, pack), operands)

    @property
    def direct(self) -> bool:
        return self.width == 32 or (self.width == 64 and self.registers == self.count)

    @property
    def joined(self) -> int:
        """Asm registers per operand, if operands are wider (f32x2 in a 64-bit register)."""
        return self.width // 32 if self.width > 32 and not self.direct else 0

    def name(self, argument: int, call: int) -> str:
        return f"${self.base + call}" if self.direct else f"t{argument}_{call}"

    def declare(self, argument: int) -> list[str]:
        if self.direct:
            return []
        total = self.count if self.joined else self.registers * (32 // self.width)
        return [f".reg .b{self.width} t{argument}_<{total}>;"]

    def _moves(self, argument: int) -> list[tuple[str, str]]:
        """Pairs of (wide register, braces of its narrow pieces), in order."""
        if self.joined:
            n = self.joined
            pieces = [[f"${self.base + c * n + k}" for k in range(n)] for c in range(self.count)]
            return [(f"t{argument}_{c}", f"{{{', '.join(p)}}}") for c, p in enumerate(pieces)]
        n = 32 // self.width
        return [
            (f"${self.base + r}", "{" + ", ".join(f"t{argument}_{r * n + k}" for k in range(n)) + "}")
            for r in range(self.registers)
        ]

    def unpack(self, argument: int) -> list[str]:
        """The moves from an input's asm registers to operands of the instruction's width."""
        if self.direct:
            return []
        moves = self._moves(argument)
        if self.joined:
            return [f"mov.b{self.width} {wide}, {narrow};" for wide, narrow in moves]
        return [f"mov.b32 {narrow}, {wide};" for wide, narrow in moves]

    def pack_up(self, argument: int) -> list[str]:
        """The moves from an output's operands to its asm registers."""
        if self.direct:
            return []
        moves = self._moves(argument)
        if self.joined:
            return [f"mov.b{self.width} {narrow}, {wide};" for wide, narrow in moves]
        return [f"mov.b32 {wide}, {narrow};" for wide, narrow in moves]


def _call(instruction: InstructionText, slots: Sequence[_Slots], call: int) -> str:
    def operand(found: re.Match[str]) -> str:
        number = int(found[1])
        argument = min(number, len(slots) - 1)
        each = slots[argument].operands
        return slots[argument].name(argument, call * each + number - argument)

    operands = ", ".join(re.sub(r"\$(\d+)", operand, o) for o in instruction.operands)
    return f"{instruction.opcode} {operands};"
