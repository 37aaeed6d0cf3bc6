"""Rules about the declarations of registers and labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ptxdiff.emulator import SPECIAL_REGISTERS
from ptxdiff.emulator.text import (
    OPERAND,
    Address,
    BranchTargets,
    CodeBlock,
    Declaration,
    Instruction,
    Label,
    Name,
    Statement,
)
from ptxdiff.lint.block import LintedBlock
from ptxdiff.lint.flow import control_of, read_names, written_names
from ptxdiff.lint.rules import rule
from ptxdiff.lint.rules.spelling import scopes_before
from ptxdiff.lint.snippet import Edit, Fix, Found

_COMPILERS_OWN = {
    "p": "b", "rs": "hc", "r": "rf", "rd": "lNd", "f": "f", "fd": "d", "h": "h", "hh": "r",
}  # fmt: skip
"""How LLVM's backend names its registers (NVPTXRegisterInfo; %f, %fd and %h in older versions), after the percent sign,
with the constraint letters of operands that may have such names."""


def _hides_operands(block: LintedBlock, declaration: Declaration) -> bool:
    """Whether a declaration has a name that the compiler may give to an operand of this block."""
    match = re.fullmatch(r"%([a-z]+)(\d*)", declaration.name)
    if match is None or not (match[2] or declaration.count is not None):
        return False
    letters = _COMPILERS_OWN.get(match[1], "")
    return any(c.letter in letters for c in block.parsed or ())


def _braced(block: LintedBlock, words: str) -> Fix:
    end = len(block.snippet.asm)
    return Fix(words, (Edit("asm", 0, 0, "{ "), Edit("asm", end, end, " }")))


def _named_apart(block: LintedBlock, declaration: Declaration) -> bool:
    """Whether the compiler puts a number into the name that no other copy of the block has: `%=`, in LLVM `${:uid}`."""
    text = block.snippet.asm[block.place(declaration.offset) :].partition(";")[0]
    return "%=" in text or "${:uid}" in text


@rule(
    "declaration-outside-braces",
    "A register is declared outside braces.",
    why="The block appears once for each group of elements of a thread, and again wherever the function is inlined: "
    "ptxas then finds the register declared twice.",
    severity="warning",
)
def outside_braces(block: LintedBlock) -> Iterator[Found]:
    """Declarations among the outermost statements."""
    if block.tree is None or len(scopes_before(block)) > 1:
        return  # an earlier statement of the function opens the braces
    outermost = [
        s
        for s in block.tree.statements
        if isinstance(s, Declaration) and s.space == "reg" and not _named_apart(block, s)
    ]
    for n, declaration in enumerate(outermost[:1]):
        others = f" and {len(outermost) - 1} more" if len(outermost) > 1 else ""
        user = _read_later(block, outermost)
        used = f", and the statement on line {user} uses {'it' if len(outermost) == 1 else 'them'}" if user else ""
        yield Found(
            block.place(declaration.offset),
            f"{_spelled(declaration)}{others} is declared outside braces{used}",
            "write one asm statement, in braces: `{ ... }`" if user else "put braces around the whole block: `{ ... }`",
            fix=_braced(block, "put braces around the block") if n == 0 and not user else None,
        )


def _read_later(block: LintedBlock, found: list[Declaration]) -> int:
    """The line of the next statement of the same C++ function that names one of these registers; 0 if none does."""
    scope = _Names()
    for declaration in found:
        _declare(declaration, scope)
    later = False
    for other in block.siblings:
        if later and block.snippet.body and other.snippet.body == block.snippet.body:
            own = {d.name for d in other.declarations}
            named = {n.text.partition(".")[0] for i in other.instructions for n in (*read_names(i), *written_names(i))}
            if any(scope.has(name) and name not in own for name in named):
                return other.snippet.origin.line
        later = later or other is block
    return 0


def _spelled(declaration: Declaration) -> str:
    count = f"<{declaration.count}>" if declaration.count is not None else ""
    return f"{declaration.name}{count}"


@rule(
    "label-not-local",
    "A label stands outside braces.",
    why="The block appears once for each group of elements of a thread, and again wherever the function is inlined: "
    "ptxas then finds the label twice.",
    severity="warning",
)
def label_not_local(block: LintedBlock) -> Iterator[Found]:
    """Labels among the outermost statements, unless `${:uid}` makes them unique."""
    if block.tree is None or "${:uid}" in block.text:
        return
    declared = any(isinstance(s, Declaration) and s.space == "reg" for s in block.tree.statements)
    for statement in block.tree.statements:
        if isinstance(statement, Label):
            yield Found(
                block.place(statement.offset),
                f"the label {statement.name} stands outside braces",
                "put braces around the whole block: `{ ... }`",
                fix=None if declared else _braced(block, "put braces around the block"),
            )
            return


@dataclass
class _Names:
    """The declarations between one pair of braces, and the braces around it."""

    outer: _Names | None = None
    registers: dict[str, Declaration] = field(default_factory=dict)
    ranges: dict[str, int] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)

    def scopes(self) -> Iterator[_Names]:
        scope: _Names | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def has(self, name: str) -> bool:
        return any(name in s.registers or name in s.others or s.in_range(name) for s in self.scopes())

    def in_range(self, name: str) -> bool:
        match = re.match(r"(.*?)(\d+)\Z", name)
        return (
            any(
                name.startswith(prefix) and (rest := name[len(prefix) :]).isdigit() and int(rest) < count
                for prefix, count in self.ranges.items()
            )
            if match
            else False
        )


def _declare(statement: Statement, scope: _Names) -> None:
    if isinstance(statement, Declaration):
        if statement.space != "reg":
            scope.others.add(statement.name)
        elif statement.count is not None:
            scope.ranges[statement.name] = statement.count
        else:
            scope.registers[statement.name] = statement
    elif isinstance(statement, Label):
        scope.others.add(statement.name)
    elif isinstance(statement, BranchTargets):
        scope.others.add(statement.label)


def _walk(block: CodeBlock, outer: _Names | None = None) -> Iterator[tuple[Statement, _Names]]:
    """Every statement with the names that are declared before it."""
    scope = _Names(outer)
    for statement in block.statements:
        if isinstance(statement, CodeBlock):
            yield from _walk(statement, scope)
        else:
            yield statement, scope
            _declare(statement, scope)


@rule(
    "shadowed-register",
    "A declaration hides another register of the same name.",
    why="The compiler replaces operands by its registers, such as %r1 or %f2. A declaration of such a name in "
    "the block hides them, so the block reads or writes its own register instead.",
)
def shadowed(block: LintedBlock) -> Iterator[Found]:
    """Names of the same kind as the compiler's registers, and names of outer braces of the same block."""
    if block.tree is None:
        return
    for statement, scope in _walk(block.tree):
        if not isinstance(statement, Declaration) or statement.space != "reg":
            continue
        at = block.place(statement.offset)
        if _hides_operands(block, statement):
            yield Found(
                at,
                f"{_spelled(statement)} is a name of the compiler's own registers, which operands become",
                f"leave out the percent sign: `{statement.name[1:]}`",
            )
        elif scope.outer is not None and any(statement.name in s.registers for s in scope.outer.scopes()):
            yield Found(
                at,
                f"{statement.name} is declared again within braces, and hides the register declared before",
                "give it another name",
                severity="warning",
            )


def undeclared_names(block: LintedBlock) -> Iterator[tuple[Name, _Names]]:
    """Registers that neither the block nor an earlier statement of the same C++ function declares, once each."""
    if block.tree is None:
        return
    seen: set[str] = set()
    around = _Names()
    for names in scopes_before(block):
        around = _Names(around, ranges={n: c for n, c in names.items() if c is not None}, others={*names})
    for statement, scope in _walk(block.tree, around):
        if not isinstance(statement, Instruction) or control_of(statement) in ("call", "table"):
            continue
        if control_of(statement) == "branch":
            used = [statement.guard.register] if statement.guard else []
        else:
            used = [*read_names(statement), *written_names(statement)]
        symbols = _may_be_symbols(statement)
        for name in used:
            base = name.text.partition(".")[0]
            known = name.text.startswith(OPERAND) or base in SPECIAL_REGISTERS or scope.has(base) or base in seen
            symbol = base in symbols and base[:1] != "%" and not _elsewhere(block, base)
            if not known and not symbol:
                seen.add(base)
                yield name, scope


def _may_be_symbols(instruction: Instruction) -> set[str]:
    """Names that may be variables or textures of the surrounding module: addresses, and operands of mov and cvta."""
    symbols = {n.text.partition(".")[0] for o in instruction.operands if isinstance(o, Address) and (n := o.base)}
    if instruction.opcode in ("mov", "cvta", "tex", "tld4", "txq", "suq", "suld", "sust", "sured"):
        symbols |= {o.text.partition(".")[0] for o in instruction.operands[1:] if isinstance(o, Name)}
    return symbols


@rule(
    "undeclared-register",
    "A register that the block does not declare.",
    why="ptxas refuses it, unless another block of the same kernel happens to declare that name outside braces.",
)
def undeclared(block: LintedBlock) -> Iterator[Found]:
    """Names that are not declared; `register-range` reports names beyond a declared range."""
    for name, base, beyond in _undeclared(block):
        if beyond is not None or re.fullmatch(r"[%$]\d+", base):
            continue
        elsewhere = _elsewhere(block, base)
        message = (
            f"{base} is declared in another block alone ({elsewhere})" if elsewhere else f"nothing declares {base}"
        )
        yield Found(block.place(name.offset), message, f"declare it within this block's braces: `.reg ... {base};`")


def _undeclared(block: LintedBlock) -> Iterator[tuple[Name, str, tuple[str, int] | None]]:
    """Undeclared registers without their component, each with the range that its number exceeds, if any."""
    for name, scope in undeclared_names(block):
        base = name.text.partition(".")[0]
        yield name, base, _range_of(base, scope)


def _elsewhere(block: LintedBlock, name: str) -> str:
    """Which other block of the file declares a name."""
    for other, scope in _registers_of_the_file(block):
        if other is not block and other.snippet.origin.line != block.snippet.origin.line and scope.has(name):
            function = f"of {other.snippet.function}, " if other.snippet.function else ""
            return f"{function}line {other.snippet.origin.line}"
    return ""


def _registers_of_the_file(block: LintedBlock) -> list[tuple[LintedBlock, _Names]]:
    """Each block of the file that declares registers, with all of them."""
    kept = block.siblings[0].kept
    if "registers" not in kept:
        kept["registers"] = declaring = []
        for other in block.siblings:
            scope = _Names()
            for declaration in other.declarations:
                if declaration.space == "reg":
                    _declare(declaration, scope)
            if other.declarations:
                declaring.append((other, scope))
    registers: list[tuple[LintedBlock, _Names]] = kept["registers"]
    return registers


def _range_of(name: str, scope: _Names) -> tuple[str, int] | None:
    """The range with the name's prefix, if the register's number exceeds it."""
    for each in scope.scopes():
        for prefix, count in each.ranges.items():
            if name.startswith(prefix) and name[len(prefix) :].isdigit():
                return prefix, count
    return None


@rule(
    "register-range",
    "A register has a number beyond the range that is declared.",
    why="`.reg .b32 r<4>` declares r0 to r3; ptxas refuses r4.",
)
def register_range(block: LintedBlock) -> Iterator[Found]:
    """Names with the prefix of a range and a number beyond it."""
    for name, base, beyond in _undeclared(block):
        if beyond is not None:
            prefix, count = beyond
            need = int(base[len(prefix) :]) + 1
            yield Found(
                block.place(name.offset),
                f"{prefix}<{count}> declares {prefix}0 to {prefix}{count - 1}, and {base} is used",
                f"declare {prefix}<{need}>",
            )


@rule(
    "declared-twice",
    "A register or label is declared twice between the same braces, or a label is missing.",
    why="ptxas refuses it.",
)
def declared_twice(block: LintedBlock) -> Iterator[Found]:
    """Errors of binding about declarations."""
    error = block.bind_error
    if error is not None and ("declared twice" in error.message or "there is no label" in error.message):
        yield Found(block.place_of(error), error.message)
