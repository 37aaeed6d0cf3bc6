"""Parse PTX text into a syntax tree: asm blocks as written in a kernel, and whole modules as a compiler emits them.

The parser accepts what ptxas accepts, and refuses what ptxas refuses as syntax, with line and column. It neither
resolves names nor checks operands; `binding` does.
"""

from __future__ import annotations

from collections.abc import Mapping

from ptxdiff.emulator.errors import ParseError, TooLarge
from ptxdiff.emulator.limits import INSTRUCTIONS, MODIFIERS, REGISTERS, TEXT
from ptxdiff.emulator.text.lexer import OPERAND, Token, tokenize
from ptxdiff.emulator.text.llvmtext import at_unended_asm, expanded, without_places
from ptxdiff.emulator.text.nodes import (
    BranchTargets,
    CodeBlock,
    Declaration,
    Function,
    Guard,
    Instruction,
    Label,
    Location,
    Module,
    Name,
    Operand,
    Source,
    Statement,
)
from ptxdiff.emulator.text.operands import Operands
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
    source = _sized(text)
    tokens = tokenize(source, expanded(source, operand_count, constants))
    return _Parser(source, tokens).whole(), source


def parse_module(text: str) -> Module:
    """Parse a whole PTX module. Raises ParseError."""
    source = _sized(text)
    try:
        return _Parser(source, tokenize(source, without_places(text))).module()
    except ParseError as error:
        raise at_unended_asm(source, error) from error


def _sized(text: str) -> Source:
    if not isinstance(text, str):
        raise ParseError(f"PTX is a string, not {type(text).__name__}")
    if len(text) > TEXT.most:
        raise TooLarge(TEXT.refusal(len(text)))
    return Source(text)


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
