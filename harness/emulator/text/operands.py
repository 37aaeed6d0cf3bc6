"""Parse operands: names, constants, vectors, pairs, addresses."""

from __future__ import annotations

from collections.abc import Sequence

from ptxdiff.emulator.errors import ParseError, TooLarge
from ptxdiff.emulator.limits import OPERANDS
from ptxdiff.emulator.text.constants import ConstantExpressions
from ptxdiff.emulator.text.lexer import Token
from ptxdiff.emulator.text.nodes import Address, Name, Operand, Pair, Sink, Source, Vector


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
        elif kind == "(" and self.tokens[self.at + 1][0] in ("name", ")"):
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
        found = self.constant()
        if isinstance(found.value, float):
            raise self.source.error(ParseError, "an address takes an integer constant", found.offset)
        return found.value
