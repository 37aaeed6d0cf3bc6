"""Parse PTX text into a syntax tree: asm blocks as written in a kernel, and whole modules as a compiler emits them.

The parser accepts what ptxas accepts, and refuses what ptxas refuses as syntax, with line and column. It neither
resolves names nor checks operands; `binding` does.
"""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ptxdiff.emulator.errors import ParseError, TooLarge
from ptxdiff.emulator.limits import INSTRUCTIONS, MODIFIERS, NESTING, OPERANDS, REGISTERS, TEXT
from ptxdiff.emulator.text.lexer import OPERAND, WARP_SIZE, Token, tokenize
from ptxdiff.emulator.text.llvmtext import at_unended_asm, expanded, without_places
from ptxdiff.emulator.text.nodes import (
    Address,
    BranchTargets,
    CodeBlock,
    Declaration,
    Function,
    Guard,
    Immediate,
    Instruction,
    Label,
    Location,
    Module,
    Name,
    Operand,
    Pair,
    Sink,
    Source,
    Statement,
    Vector,
)
from ptxdiff.emulator.text.types import VARIABLE_TYPES

_SPACES = {".reg", ".shared", ".global", ".local", ".const", ".param"}
_LINKAGE = {".visible", ".extern", ".weak", ".common"}

_HEAD = {
    "maxntid": (1, 3), "reqntid": (1, 3), "reqnctapercluster": (1, 3), "minnctapersm": (1, 1),
    "maxnreg": (1, 1), "maxclusterrank": (1, 1), "explicitcluster": (0, 0), "blocksareclusters": (0, 0),
    "noreturn": (0, 0), "abi_preserve": (1, 1), "abi_preserve_control": (1, 1),
}  # fmt: skip
"""Directives before a function's body, each with the least and greatest count of numbers it takes (ISA 11.4, 11.7)."""


def parse_asm(
    text: str, operand_count: int | None = None, constants: Mapping[int, int] | None = None
) -> tuple[CodeBlock, Source]:
    """Parse the text of an inline asm block, with LLVM's escapes (`$0`, `${1}`, `$$`).

    `operand_count`: how many operands the constraints declare; a `$n` beyond them is refused. `constants`: the values
    of operands under constraint `n`. Raises ParseError, TooLarge, and BindingError for what LLVM refuses.
    """
    source = _bounded(text)
    tokens = tokenize(source, expanded(source, operand_count, constants))
    return _Parser(source, tokens).whole(), source


def parse_module(text: str) -> Module:
    """Parse a whole PTX module. Raises ParseError."""
    source = _bounded(text)
    try:
        return _Parser(source, tokenize(source, without_places(text))).module()
    except ParseError as error:
        raise at_unended_asm(source, error) from error


def _bounded(text: str) -> Source:
    if not isinstance(text, str):
        raise ParseError(f"PTX is a string, not {type(text).__name__}")
    if len(text) > TEXT.most:
        raise TooLarge(TEXT.refusal(len(text)))
    return Source(text)


# Constant expressions (ISA 4.5), folded as ptxas 12.9 and 13.4 fold them ----------------------------------------------
#
# Integer constants have 64 bits and type .s64, or .u64 if marked U or too large for .s64. Floating-point constants are
# doubles. Integers and doubles do not mix. ptxas departs from the ISA in two ways: `c ? a : b` takes integers only and
# has the type of the chosen operand, and a literal slightly longer than 64 bits loses its upper bits.


class Unsigned(int):
    """An integer constant of type .u64; one of type .s64 is a plain int."""


Number = int | float
"""A constant: int, Unsigned or float."""
Operator = Callable[[Number, Number], Number]

_ONES = (1 << 64) - 1


def _sized(value: int, unsigned: bool) -> int:
    """An integer truncated to 64 bits, as .u64 or .s64."""
    low = value & _ONES
    if unsigned:
        return Unsigned(low)
    return low - (1 << 64) if low >> 63 else low


def _whole(value: Number) -> int:
    if isinstance(value, float):
        raise ArithmeticError("an integer is expected, not a floating-point number")
    return value


def _usual(operation: Callable[..., Number]) -> Operator:
    """An operator on two doubles or on two integers, which are both converted to .u64 if one of them is .u64."""

    def apply(a: Number, b: Number) -> Number:
        if isinstance(a, float) and isinstance(b, float):
            return operation(a, b)
        a, b = _whole(a), _whole(b)
        if isinstance(a, Unsigned) or isinstance(b, Unsigned):
            return _sized(_whole(operation(int(a) & _ONES, int(b) & _ONES)), True)
        return _sized(_whole(operation(a, b)), False)

    return apply


def _on_integers(operation: Callable[[int, int], int]) -> Operator:
    usual = _usual(operation)
    return lambda a, b: usual(_whole(a), _whole(b))


def _compared(operation: Callable[..., bool]) -> Operator:
    """A comparison with the result 0 or 1, a .s64."""
    usual = _usual(operation)
    return lambda a, b: int(usual(a, b))


def _divided(a: Number, b: Number) -> Number:
    if isinstance(a, float):
        return a / b
    a, b = _whole(a), _whole(b)
    quotient = abs(a) // abs(b) if (a < 0) == (b < 0) else -(abs(a) // abs(b))
    if quotient == 1 << 63 and a < 0:
        raise ArithmeticError("the quotient overflows (ptxas crashes on it)")
    return quotient


def _remainder(a: Number, b: Number) -> Number:
    return Unsigned((_whole(a) & _ONES) % (_whole(b) & _ONES))


def _left(a: Number, b: Number) -> Number:
    return _sized(_whole(a) << (_whole(b) & 63), isinstance(a, Unsigned))


def _right(a: Number, b: Number) -> Number:
    return _sized(_whole(a) >> (_whole(b) & 63), isinstance(a, Unsigned))


_BY_LEVEL: list[dict[str, Operator]] = [
    {"||": lambda a, b: int(_whole(a) != 0 or _whole(b) != 0)},
    {"&&": lambda a, b: int(_whole(a) != 0 and _whole(b) != 0)},
    {"|": _on_integers(operator.or_)},
    {"^": _on_integers(operator.xor)},
    {"&": _on_integers(operator.and_)},
    {"==": _compared(operator.eq), "!=": _compared(operator.ne)},
    {
        "<": _compared(operator.lt),
        ">": _compared(operator.gt),
        "<=": _compared(operator.le),
        ">=": _compared(operator.ge),
    },
    {"<<": _left, ">>": _right},
    {"+": _usual(operator.add), "-": _usual(operator.sub)},
    {"*": _usual(operator.mul), "/": _usual(_divided), "%": _remainder},
]
"""Binary operators from the lowest precedence to the highest."""
_BINARY = {sign: (level, apply) for level, signs in enumerate(_BY_LEVEL) for sign, apply in signs.items()}
"""Precedence level and function of each binary operator."""


class ConstantExpressions:
    """A cursor over tokens that can read a constant expression."""

    def __init__(self, source: Source, tokens: list[Token]) -> None:
        self.source = source
        self.tokens = tokens
        self.at = 0
        self.depth = 0

    @property
    def kind(self) -> str:
        """The kind of the next token."""
        return self.tokens[self.at][0]

    @property
    def text(self) -> str:
        """The text of the next token."""
        return self.tokens[self.at][1]

    @property
    def offset(self) -> int:
        """The offset of the next token."""
        return self.tokens[self.at][2]

    def advance(self) -> None:
        """Step over one token, but never past the end."""
        if self.at < len(self.tokens) - 1:
            self.at += 1

    def accept(self, kind: str) -> bool:
        """Step over the next token if it is of this kind."""
        if self.tokens[self.at][0] == kind:
            self.at += 1
            return True
        return False

    def expect(self, kind: str, what: str) -> None:
        """Step over a token of this kind, or raise ParseError saying that `what` was expected."""
        if not self.accept(kind):
            raise self.unexpected(what)

    def take(self, kind: str, what: str) -> str:
        """The text of the next token, which must be of this kind."""
        text = self.text
        self.expect(kind, what)
        return text

    def error(self, message: str) -> ParseError:
        """A ParseError at the next token."""
        return self.source.error(ParseError, message, self.offset)

    def unexpected(self, wanted: str) -> ParseError:
        """A ParseError: `wanted` was expected, something else was found."""
        actual = "the end of the text" if self.kind == "end" else repr(self.text.replace(OPERAND, "$"))
        return self.error(f"expected {wanted}, found {actual}")

    def deeper(self) -> None:
        """Enter one more level of nesting. Raises ParseError if there are too many."""
        self.depth += 1
        if self.depth > NESTING.most:
            raise self.error(f"nested too deeply: more than {NESTING.most} {NESTING.what}")

    def integer(self, what: str) -> int:
        """A plain integer literal."""
        offset = self.offset
        try:
            return int(_integer(self.take("int", what)))
        except (ArithmeticError, ValueError) as problem:
            raise self.source.error(ParseError, f"{what}: {problem}", offset) from None

    def constant(self) -> Immediate:
        """A constant expression. Raises ParseError when it has no value."""
        start = self.at
        offset = self.offset
        try:
            if self.kind == "int" and self.tokens[start + 1][0] in (",", ";", "}", "]"):
                self.advance()
                value: Number = _integer(self.tokens[start][1])
            else:
                value = self.expression()
        except (ArithmeticError, ValueError) as problem:
            raise self.source.error(ParseError, f"constant expression: {problem}", offset) from None
        node = Immediate(value if isinstance(value, float) else int(value), offset)
        if isinstance(value, float):
            _keep_bits(node, self.tokens[start : self.at])
        return node

    def expression(self) -> Number:
        """A constant expression, or a `0f` literal, which cannot be part of a larger expression."""
        if self.kind == "float" and self.text[:2] in ("0f", "0F"):
            self.advance()
            return _float(self.tokens[self.at - 1][1])
        return self.ternary()

    def ternary(self) -> Number:
        """`condition ? a : b`, all of them integers."""
        self.deeper()
        value = self.binary(0)
        if self.accept("?"):
            yes = self.ternary()
            self.expect(":", "':' of '?:'")
            condition, yes, no = map(_whole, (value, yes, self.ternary()))
            value = yes if condition else no
        self.depth -= 1
        return value

    def binary(self, level: int) -> Number:
        """Operators of this level and of higher precedence, left associative."""
        self.deeper()
        value = self.unary()
        while (found := _BINARY.get(self.kind)) is not None and found[0] >= level:
            if self.kind == "|" and self.tokens[self.at + 1][0] == "name":
                break
            self.advance()
            value = found[1](value, self.binary(found[0] + 1))
        self.depth -= 1
        return value

    def unary(self) -> Number:
        """Signs, complements, casts, parentheses and literals."""
        kind, text = self.kind, self.text
        if kind in ("-", "+", "~", "!"):
            return self.signed(kind)
        if kind == "(":
            self.advance()
            cast = self.take("dot", "a type") if self.kind == "dot" else ""
            if cast:
                self.expect(")", "')' after the type of a cast")
                return self.cast(cast)
            value = self.expression()
            self.expect(")", "')'")
            return value
        if kind == "float" and text[:2] in ("0f", "0F"):
            raise self.error(f"{text} cannot be part of an expression; it may only be in parentheses")
        if kind not in ("int", "float"):
            raise self.unexpected("a constant")
        self.advance()
        return _integer(text) if kind == "int" else _float(text)

    def signed(self, sign: str) -> Number:
        """The operand of a prefix operator, with the operator applied."""
        self.advance()
        self.deeper()
        value = self.unary()
        self.depth -= 1
        if sign == "!":
            return int(not _whole(value))
        if sign == "~":
            return Unsigned(~_whole(value) & _ONES)
        if sign == "+":
            return value
        return -value if isinstance(value, float) else _sized(-int(value), isinstance(value, Unsigned))

    def cast(self, kind: str) -> Number:
        """`(.s64)` or `(.u64)` and the value after it."""
        value = self.unary()
        if kind not in (".s64", ".u64"):
            raise self.error(f"a constant can be cast to .s64 or .u64, not {kind}")
        return _sized(_whole(value), kind == ".u64")


def _keep_bits(node: Immediate, tokens: list[Token]) -> None:
    """Record the bits if the constant is one hexadecimal float, apart from parentheses."""
    numbers = [text for kind, text, _ in tokens if kind not in ("(", ")")]
    head = numbers[0][:2].lower() if len(numbers) == 1 else ""
    if head == "0f":
        node.single = int(numbers[0][2:], 16)
    elif head == "0d":
        node.double = int(numbers[0][2:], 16)


def _integer(text: str) -> int:
    """The value of an integer literal. Raises OverflowError if ptxas refuses it as too large."""
    if text == WARP_SIZE:
        return 32
    digits = text.rstrip("U")
    head = digits[:2].lower()
    if head in ("0x", "0b"):
        base, digits = 16 if head == "0x" else 2, digits[2:]
    else:
        base = 8 if digits[0] == "0" else 10
    value = int(digits, base)
    if value // base >> 63:
        raise OverflowError(f"{text} overflows 64 bits")
    value &= _ONES
    return Unsigned(value) if text[-1] == "U" or value >> 63 else value


def _float(text: str) -> float:
    head = text[:2].lower()
    if head == "0f":
        return float(struct.unpack("<f", int(text[2:], 16).to_bytes(4, "little"))[0])
    if head == "0d":
        return float(struct.unpack("<d", int(text[2:], 16).to_bytes(8, "little"))[0])
    value = float(text)
    if value == float("inf"):
        raise OverflowError(f"{text} overflows a double")
    if value < 2.2250738585072014e-308 and text.lower().partition("e")[0].strip("0."):
        raise OverflowError(f"{text} is no normal double")
    return value


# Operands -------------------------------------------------------------------------------------------------------------


class Operands(ConstantExpressions):
    """The part of the parser that reads operands.

    `signed_operands`: the instruction takes `-a`, as vmad does. `call`: it is a call, which has names in parentheses.
    """

    def __init__(self, source: Source, tokens: list[Token]) -> None:
        super().__init__(source, tokens)
        self.signed_operands = self.call = False

    def countable(self, listed: Sequence[Operand]) -> None:
        """Raise TooLarge for a list of too many operands."""
        if len(listed) > OPERANDS.most:
            raise self.source.error(TooLarge, OPERANDS.refusal(len(listed)), self.offset)

    def operand(self) -> Operand:
        """One operand, `a|b` included."""
        self.deeper()
        kind, offset = self.kind, self.offset
        if kind == "{":
            node: Operand = self.vector()
        elif kind == "[":
            node = self.address()
        elif kind == "sink":
            self.advance()
            node = Sink(offset)
        elif kind == "name":
            node = self.name()
            if self.accept("+"):
                node.displacement = self.displacement()
        elif kind == "!" and self.tokens[self.at + 1][0] == "name":
            self.advance()
            node = self.name()
            node.negated = True
        elif kind == "-" and self.tokens[self.at + 1][0] == "name":
            if not self.signed_operands:
                raise self.error("an operand cannot be negated here; PTX has neg for that")
            self.advance()
            node = self.name()
            node.minus = True
        elif kind == "(" and (self.call or self.tokens[self.at + 1][0] in ("name", ")")):
            if not self.call:
                raise self.error("only a call takes names in parentheses; a vector has braces")
            node = self.arguments()
        elif kind in ("int", "float", "-", "+", "~", "!", "("):
            node = self.constant()
        else:
            raise self.unexpected("an operand")
        if self.kind == "|":
            self.advance()
            node = Pair(node, self.operand(), offset)
        self.depth -= 1
        return node

    def name(self) -> Name:
        """An identifier with its component."""
        node = Name(self.text, self.offset)
        self.advance()
        if self.kind == "dot":
            node.text += self.text
            self.advance()
        return node

    def vector(self) -> Vector:
        """`{a, b}`, the opening brace being next."""
        node = Vector([], self.offset)
        self.advance()
        while True:
            node.elements.append(self.operand())
            self.countable(node.elements)
            if not self.accept(","):
                break
        self.expect("}", "',' or '}' in a vector")
        return node

    def arguments(self) -> Vector:
        """The names between the parentheses of a call."""
        node = Vector([], self.offset)
        self.advance()
        while self.kind != ")":
            node.elements.append(self.operand())
            self.countable(node.elements)
            if not self.accept(","):
                break
        self.expect(")", "',' or ')' after an argument")
        return node

    def address(self) -> Address:
        """`[base+displacement]`, the opening bracket being next."""
        offset = self.offset
        self.advance()
        base: Name | None = None
        displacement = 0
        if self.kind == "name":
            base = self.name()
            if self.kind in ("+", "-"):
                minus = self.kind == "-"
                self.advance()
                if self.kind == "name":
                    raise self.error("an address adds a constant to a register, not a register to a register")
                value = self.displacement()
                displacement = -value if minus else value
        else:
            displacement = self.displacement()
        node = Address(base, displacement, offset)
        while self.accept(","):
            node.extra.append(self.operand())
        self.expect("]", "']' after the address")
        return node

    def displacement(self) -> int:
        """The constant in an address."""
        constant = self.constant()
        if isinstance(constant.value, float):
            raise self.source.error(ParseError, "an address takes an integer constant", constant.offset)
        return constant.value


class _Parser(Operands):
    """Recursive descent over the token list."""

    def __init__(self, source: Source, tokens: list[Token]) -> None:
        super().__init__(source, tokens)
        self.location: Location | None = None
        self.files: dict[int, str] = {}
        self.statements = 0

    def whole(self) -> CodeBlock:
        """Parse the whole text of an asm block."""
        block = CodeBlock([], 0)
        while self.kind != "end":
            self.statement(block.statements)
        return block

    # statements ------------------------------------------------------------------------------------------

    def block(self) -> CodeBlock:
        """`{ statements }`, the opening brace being next."""
        node = CodeBlock([], self.offset)
        self.advance()
        while self.kind != "}":
            if self.kind == "end":
                raise self.source.error(ParseError, "this '{' is never closed", node.offset)
            self.statement(node.statements)
        self.advance()
        return node

    def statement(self, into: list[Statement]) -> None:
        """Parse one statement and append its nodes to `into`."""
        self.statements += 1
        if self.statements > INSTRUCTIONS.most:
            raise self.source.error(TooLarge, INSTRUCTIONS.refusal(self.statements), self.offset)
        kind = self.kind
        if kind == "name":
            if self.tokens[self.at + 1][0] == ":":
                name, offset = self.text, self.offset
                self.at += 2
                listed = self.text == ".branchtargets"
                into.append(self.branch_targets(name, offset) if listed else Label(name, offset))
            else:
                into.append(self.instruction(None))
        elif kind == "@":
            into.append(self.instruction(self.guard()))
        elif kind == "{":
            into.append(self.nested_block())
        elif kind == "dot":
            self.directive(into)
        else:
            raise self.unexpected("an instruction, a label, a declaration or '}'")

    def nested_block(self) -> CodeBlock:
        self.deeper()
        node = self.block()
        self.depth -= 1
        return node

    def guard(self) -> Guard:
        self.advance()
        negated = self.accept("!")
        if self.kind != "name":
            raise self.unexpected("a predicate register after '@'")
        name = Name(self.text, self.offset)
        self.advance()
        return Guard(name, negated)

    def instruction(self, guard: Guard | None) -> Instruction:
        if self.kind != "name":
            raise self.unexpected("an instruction")
        opcode, offset = self.text, self.offset
        if opcode.startswith(OPERAND):
            raise self.error(f"operand ${opcode[1:]} stands where an instruction should")
        self.advance()
        modifiers: list[str] = []
        while self.kind == "dot":
            modifiers.append(self.text[1:])
            self.advance()
        if len(modifiers) > MODIFIERS.most:
            raise self.source.error(TooLarge, MODIFIERS.refusal(len(modifiers)), offset)
        operands: list[Operand] = []
        self.signed_operands, self.call = opcode == "vmad", opcode == "call"
        if self.kind != ";":
            operands.append(self.operand())
            while self.accept(","):
                operands.append(self.operand())
                self.countable(operands)
        if self.kind != ";":
            name = ".".join((opcode, *modifiers))
            raise self.unexpected(f"',' or ';' after the operands of {name}")
        self.advance()
        return Instruction(opcode, tuple(modifiers), operands, guard, offset, self.location)

    def directive(self, into: list[Statement]) -> None:
        word = self.text
        if word in _SPACES:
            into.extend(self.declarations())
        elif word == ".loc":
            self.advance()
            self.location = self.loc()
        elif word == ".pragma":
            self.advance()
            self.expect("string", "a string after .pragma")
            while self.accept(","):
                self.expect("string", "a string after ','")
            self.expect(";", "';' after .pragma")
        elif word == ".callprototype":
            self.skip_to(";")
        else:
            raise self.error(f"directive {word} is not allowed here")

    def branch_targets(self, label: str, offset: int) -> BranchTargets:
        self.advance()
        node = BranchTargets(label, [], offset)
        while not node.targets or self.accept(","):
            if self.kind != "name":
                raise self.unexpected("a label")
            node.targets.append(self.name())
            self.countable(node.targets)
        self.expect(";", "',' or ';' after the targets of a branch")
        return node

    def loc(self) -> Location:
        numbers = [self.integer("a number of .loc") for _ in range(3)]
        location = Location(numbers[0], numbers[1], numbers[2])
        while self.accept(","):
            word = self.text
            self.advance()
            if word == "function_name":
                self.expect("name", "a label after function_name")
                if self.accept("+"):
                    self.integer("a number")
            elif word == "inlined_at":
                at = [self.integer("a number of inlined_at") for _ in range(3)]
                location.inlined_at = Location(at[0], at[1], at[2])
            else:
                raise self.error(f"{word!r} is no attribute of .loc")
        return location

    # declarations ----------------------------------------------------------------------------------------

    def declarations(self) -> list[Declaration]:
        """`.reg .b32 a, b<4>;` and its like, to the semicolon."""
        declared = self.declaration_list(several=True)
        self.expect(";", f"',' or ';' after the declaration of {declared[-1].name if declared else 'nothing'}")
        return declared

    def declaration_list(self, several: bool) -> list[Declaration]:
        space = self.text[1:]
        self.advance()
        vector, align, kind = 1, 0, ""
        while self.kind == "dot":
            word = self.text
            if word == ".align":
                self.advance()
                align = self.integer("an alignment")
                if align <= 0 or align & (align - 1) or align > 1 << 30:
                    raise self.error(f".align {align} is no power of two up to 2^30")
                continue
            if kind and word != ".ptr":
                raise self.error(f"{word} comes after the type .{kind}; the type comes last")
            if word in (".v2", ".v4") or (word == ".v8" and space != "reg"):
                vector = int(word[2:])
            elif word == ".ptr":
                self.advance()
                while self.text in (".global", ".shared", ".const", ".local", ".param"):
                    self.advance()
                continue
            else:
                kind = word[1:]
            self.advance()
        if not kind:
            raise self.unexpected("a type such as .b32")
        if space == "reg" and self.kind == ";":
            return []  # ptxas accepts a declaration without a name.
        declared_ones = [self.declared(space, kind, vector, align)]
        while several and self.accept(","):
            declared_ones.append(self.declared(space, kind, vector, align))
        return declared_ones

    def declared(self, space: str, kind: str, vector: int, align: int) -> Declaration:
        if self.kind != "name" or self.text.startswith(OPERAND):
            raise self.unexpected("a name to declare")
        if kind not in VARIABLE_TYPES and space != "reg":
            raise self.error(f"a variable in .{space} memory has no type .{kind}")
        node = Declaration(space, kind, self.text, self.offset, vector=vector, align=align)
        self.advance()
        if self.accept("<"):
            node.count = self.integer("a count of registers")
            if node.count > REGISTERS.most:
                raise self.source.error(TooLarge, REGISTERS.refusal(node.count), node.offset)
            self.expect(">", "'>' after the count of registers")
        if space == "reg" and self.kind in ("[", "="):
            raise self.error("a register is no array and has no initial value")
        while self.accept("["):
            if self.kind == "]":
                node.size = None
            elif node.size is not None:
                node.size *= self.integer("an array size")
                if node.size >> 63:
                    raise self.error(f"{node.name} has 2^63 elements or more")
            self.expect("]", "']' after the array size")
        if self.accept("="):
            node.values = self.initial_values()
        return node

    def initial_values(self) -> list[int]:
        if not self.accept("{"):
            return [self.initial_value()]
        values: list[int] = []
        while self.kind != "}":
            values.append(self.initial_value())
            if not self.accept(","):
                break
        self.expect("}", "'}' after the initial values")
        return values

    def initial_value(self) -> int:
        value = self.constant()
        if value.single is not None:
            return value.single
        if value.double is not None:
            return value.double
        if isinstance(value.value, float):
            raise self.source.error(ParseError, "write float initial values as 0f or 0d literals", value.offset)
        return value.value

    # modules ---------------------------------------------------------------------------------------------

    def module(self) -> Module:
        version = target = ""
        sized = False
        functions: list[Function] = []
        variables: list[Declaration] = []
        while self.kind != "end":
            word = self.text
            if self.kind != "dot":
                raise self.unexpected("a directive")
            if word == ".version":
                if version:
                    raise self.error(".version stands once, at the begin of the module")
                self.advance()
                version = self.take("float", "a version such as 8.8")
            elif word == ".target":
                self.advance()
                if not self.text.startswith("sm_"):
                    raise self.unexpected("a target such as sm_90a")
                target = self.take("name", "a target such as sm_90a")
                while self.accept(","):
                    self.take("name", "a target option")
            elif word == ".address_size":
                if sized:
                    raise self.error(".address_size stands once")
                self.advance()
                self.address_size()
                sized = True
            elif word == ".file":
                self.file()
            elif word in (".entry", ".func"):
                functions.append(self.function())
            elif word in _LINKAGE:
                self.advance()
                if self.text in _LINKAGE:
                    raise self.error(f"{self.text} comes after {word}; a name has one linkage")
                if word == ".extern" and self.text in (".entry", ".func"):
                    functions.append(self.declared_elsewhere())
            elif word in _SPACES - {".reg", ".param"}:
                variables.extend(self.declarations())
            elif word == ".loc":
                self.advance()
                self.loc()
            else:
                raise self.error(f"directive {word} is not known here")
        return Module(version, target, functions, variables, self.files, self.source)

    def file(self) -> None:
        self.advance()
        number = self.integer("the number of a file")
        self.files[number] = self.take("string", "a file name")[1:-1]
        while self.accept(","):
            self.integer("a number")

    def function(self) -> Function:
        kernel = self.text == ".entry"
        offset = self.offset
        self.advance()
        results = self.parameters() if not kernel and self.kind == "(" else []
        name = self.take("name", "the name of a function")
        parameters = self.parameters() if self.kind == "(" else []
        directives: dict[str, list[int]] = {}
        while self.kind == "dot":
            word = self.text[1:]
            if word in ("maxntid", "reqntid") and directives.keys() & {"maxntid", "reqntid"} - {word}:
                raise self.error(".maxntid and .reqntid exclude each other")
            directives[word] = self.function_directive(word, kernel)
        self.location = None
        body = self.block() if self.kind == "{" else None
        if body is None:
            self.expect(";", "'{' or ';' after the head of a function")
        return Function(name, kernel, parameters, directives, body, offset, results)

    def address_size(self) -> None:
        """Parse `.address_size`. Only 64-bit addresses are supported; GPUs from sm_90 on have no others."""
        offset = self.offset
        if (size := self.integer("32 or 64")) != 64:
            known = "the emulator runs modules with addresses of 64 bits"
            raise self.source.error(ParseError, f".address_size {size}: {known if size == 32 else '32 or 64'}", offset)

    def function_directive(self, word: str, kernel: bool) -> list[int]:
        """The numbers of a directive before a function's body."""
        if word == "pragma":
            self.advance()
            self.expect("string", "a string after .pragma")
            self.expect(";", "';' after .pragma")
            return []
        if word not in _HEAD or (word == "noreturn" and kernel):
            raise self.error(f"directive .{word} is not allowed before a function's body")
        self.advance()
        numbers: list[int] = []
        if self.kind == "int":
            numbers.append(self.integer("a number"))
            while self.accept(","):
                numbers.append(self.integer("a number"))
        if 0 in numbers[:1] and word != "abi_preserve_control":
            raise self.error(f".{word} 0: a number of at least 1")
        fewest, most = _HEAD[word]
        if not fewest <= len(numbers) <= most:
            raise self.error(f".{word} takes {fewest} to {most} numbers, not {len(numbers)}")
        return numbers

    def declared_elsewhere(self) -> Function:
        """Parse a function after .extern, which has no body."""
        offset = self.offset
        declaration = self.function()
        if declaration.body is not None:
            raise self.source.error(ParseError, f"{declaration.name} is .extern and has a body", offset)
        return declaration

    def parameters(self) -> list[Declaration]:
        parameters: list[Declaration] = []
        self.advance()
        while self.kind != ")" or parameters:
            if self.text not in (".param", ".reg"):
                raise self.unexpected(".param")
            parameters.extend(self.declaration_list(several=False))
            if not self.accept(","):
                break
        self.expect(")", "',' or ')' after a parameter")
        return parameters

    def skip_to(self, kind: str) -> None:
        while self.kind not in (kind, "end"):
            self.advance()
        self.expect(kind, f"{kind!r}")


# ---- Headers of modules, which compilers often write before identical code -------------------------------------------

# Empty lines and comments, then the two directives, each alone on its line, as LLVM writes them.
_HEADER = re.compile(r"\A((?:[ \t]*(?://[^\n]*)?\n)*)\.version (\d+\.\d+)\n\.target (sm_\d{2,3}[af]?)\n")


@dataclass(frozen=True)
class Headed:
    """A text with a neutral header, and the version and target of its original header.

    Lines and columns below the header do not change. A text with a header in another layout is left unchanged;
    `version` and `target` are then empty.
    """

    text: str
    version: str = ""
    target: str = ""


_TARGET = re.compile(r"^([ \t]*\.target[ \t]+)sm_\d{2,3}[af]?", re.M)


def retargeted(text: str, target: str) -> str:
    """A module's text with another target, for running PTX of an older GPU on a later one."""
    return _TARGET.sub(lambda found: f"{found[1]}{target}", text, count=1)


def without_header(text: str) -> Headed:
    """A module's text with a neutral header, and its original version and target."""
    match = _HEADER.match(text) if isinstance(text, str) else None
    if match is None:
        return Headed(text)
    return Headed(f"{match[1]}.version 0.0\n.target sm_00\n{text[match.end() :]}", match[2], match[3])
