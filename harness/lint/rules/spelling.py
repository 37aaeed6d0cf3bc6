"""Rules about a convention's signs: `$` and `%` before numbers, semicolons, braces."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ptxdiff.emulator import PtxError
from ptxdiff.emulator.text import parse_asm
from ptxdiff.lint.block import LintedBlock
from ptxdiff.lint.rules import rule
from ptxdiff.lint.snippet import Edit, Fix, Found

_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_LETTERS = re.compile(r"%%?[A-Za-z_]\w*")


def code(text: str) -> str:
    """The text with comments replaced by blanks, so that all offsets stay."""
    return _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


Scope = dict[str, int | None]
"""Registers that are declared between one pair of braces: the count of a range, None for a single register."""
_MARKS = re.compile(r"[{}]|\.reg\b\s*((?:\.\w+\s*)+)([^;]*)")


def _continue(scopes: list[Scope], text: str) -> None:
    """Add a statement's braces and declarations to the open scopes, the outermost first."""
    for mark in _MARKS.finditer(code(text)):
        if mark[0] == "{":
            scopes.append({})
        elif mark[0] == "}":
            if len(scopes) > 1:
                scopes.pop()
        else:
            for name, _, count in (part.strip().partition("<") for part in mark[2].split(",")):
                number = count.rstrip("> \n\t")
                scopes[-1][name.strip()] = int(number) if number.isdigit() else None


def _of_the_body(block: LintedBlock) -> list[LintedBlock]:
    """The asm statements of the same body of a C++ function, in order; of variants of a statement the first."""
    if block.snippet.convention != "cuda" or not block.snippet.body:
        return [block]
    statements: dict[tuple[int, int], LintedBlock] = {}
    for other in block.siblings:
        origin = other.snippet.origin.line, other.snippet.origin.column
        if other.snippet.body == block.snippet.body and (other is block or origin not in statements):
            statements[origin] = other
    return list(statements.values())


def scopes_before(block: LintedBlock) -> list[Scope]:
    """The scopes that are open where a CUDA statement begins: nvcc puts the statements of a function into one.

    Earlier statements of the same function declare what is in them, the outermost first.
    """
    scopes: list[Scope] = [{}]
    for other in _of_the_body(block):
        if other is block:
            break
        _continue(scopes, other.text)
    return scopes


def _closed_later(block: LintedBlock, left: int) -> int | None:
    """The line of the statement of the same function that closes the last of `left` braces that this one leaves
    open."""
    statements = _of_the_body(block)
    for other in statements[statements.index(block) + 1 :]:
        for mark in re.findall(r"[{}]", code(other.text)):
            left += 1 if mark == "{" else -1
            if left <= 0:
                return other.snippet.origin.line
    return None


def _declared(text: str) -> set[str]:
    """Names that some `.reg` declares, ranges without their count."""
    declared: set[str] = set()
    for declaration in re.finditer(r"\.reg\s+((?:\.\w+\s+)*)([^;]*)", text):
        declared |= {name.strip().partition("<")[0].strip() for name in declaration[2].split(",")}
    return declared


@rule(
    "operand-sigil",
    "An operand is written with the other dialect's sign: `%1` where `$1` is meant, or the reverse.",
    why="The compiler does not replace it, and ptxas reads it as an undeclared register.",
)
def sigil(block: LintedBlock) -> Iterator[Found]:
    """`%1` in Triton and LLVM, `$1` in CUDA, where no register is declared by that name."""
    wrong, right = ("$", "%") if block.snippet.convention == "cuda" else ("%", "$")
    text = code(block.snippet.asm)
    declared = _declared(text)
    places = [
        m
        for m in re.finditer(rf"(?<![\w$%])[{wrong}](\d+)(?![\w$<])", text)
        if m[0] not in declared and wrong not in declared
    ]
    if not places:
        return
    edits = tuple(Edit("asm", m.start(), m.start() + 1, right) for m in places)
    for n, match in enumerate(places):
        yield Found(
            match.start(),
            f"`{match[0]}` is no operand here: {_convention(block)} writes operands with `{right}`",
            f"write `{right}{match[1]}`",
            fix=Fix(f"write operands with {right}", edits) if n == 0 else None,
        )


def _convention(block: LintedBlock) -> str:
    return {"triton": "Triton", "llvm": "LLVM", "cuda": "CUDA C++"}[block.snippet.convention]


@rule(
    "percent-escape",
    "A percent sign is doubled in a dialect without that escape, or single in one that needs it doubled.",
    why="CUDA C++ makes `%%` a `%`, and clang refuses a letter after a single one; Triton and LLVM leave both signs.",
)
def percent(block: LintedBlock) -> Iterator[Found]:
    """`%%tid` in Triton and LLVM; `%tid` in a CUDA statement with operands (without operands, both are seen)."""
    cuda = block.snippet.convention == "cuda"
    if cuda and not block.parsed:
        return
    for match in _LETTERS.finditer(code(block.snippet.asm)):
        if match[0].startswith("%%") is cuda:
            continue
        right = f"%{match[0]}" if cuda else match[0][1:]
        edit = Edit("asm", match.start(), match.end(), right)
        yield Found(
            match.start(),
            f"{_convention(block)} needs `{right}` here",
            f"write `{right}`",
            fix=Fix(f"write {right}", (edit,)),
            severity="warning" if cuda else None,
        )


@rule(
    "dollar-eaten",
    "A dollar sign that is no operand: LLVM reads it as an escape.",
    why="LLVM reads `$(a$|b$)` as a choice of dialects and drops one part; any other `$` is an error.",
)
def dollar(block: LintedBlock) -> Iterator[Found]:
    """`$(`, `$|`, `$)`, and a `$` that no number follows."""
    if block.snippet.convention == "cuda":
        return
    for match in re.finditer(r"\$\$|\$(?!\d)(?!\{(?:\d+(?::\w*)?|:\w+)\})(.?)", block.text, re.DOTALL):
        if match[0] == "$$":
            continue
        eaten = match[1] in "(|)" and match[1]
        reason = "begins or ends a choice of dialects, of which one part is dropped" if eaten else "names no operand"
        yield Found(
            match.start(), f"`${match[1]}` {reason}", "write `$$` for a dollar sign, or the number of the operand"
        )


def _open_braces(text: str) -> tuple[list[int], int | None]:
    """Braces that are never closed, and the first that closes nothing."""
    waiting: list[int] = []
    for at, char in enumerate(text):
        if char == "{":
            waiting.append(at)
        elif char == "}":
            if not waiting:
                return waiting, at
            waiting.pop()
    return waiting, None


_SPREAD = "nvcc keeps the statements in order, but the text of each is PTX only together with the others."
_ONE = "write one asm statement, or declare the registers in a statement of its own"


@rule(
    "unbalanced-braces",
    "A brace is opened and never closed, or closed and never opened.",
    why="The block then ends early or extends into the code around it: its names become visible there, "
    "or ptxas refuses the code.",
)
def braces(block: LintedBlock) -> Iterator[Found]:
    """Check the braces of blocks and vectors, without those of operands."""
    text = re.sub(r"\$\{[^}]*\}", lambda m: " " * len(m[0]), code(block.text))
    before = len(scopes_before(block)) - 1
    waiting, closing = _open_braces("{" * before + text)
    if closing is not None:
        at = block.form.original(closing - before)
        yield Found(at, "this `}` closes nothing", "remove it, or open a block before")
    elif len(waiting) > before:
        at = block.form.original(waiting[-1] - before)
        line = _closed_later(block, len(waiting) - before)
        if line is None:
            yield Found(at, "this `{` is never closed", "close it with `}`")
        else:
            yield Found(
                at, f"this `{{` is closed in another asm statement, on line {line}", _ONE, _SPREAD, severity="note"
            )


def alone(block: LintedBlock) -> str:
    """The text without the braces that other statements of the same function open or close: blanks stand there."""
    text = code(block.text)
    before = len(scopes_before(block)) - 1
    opened: list[int] = []
    foreign: list[int] = []
    for at, char in enumerate(text):
        if char == "{":
            opened.append(at)
        elif char == "}" and opened:
            opened.pop()
        elif char == "}" and before > 0:
            before -= 1
            foreign.append(at)
    foreign += [at for n, at in enumerate(opened) if _closed_later(block, len(opened) - n) is not None]
    return "".join(" " if at in foreign else char for at, char in enumerate(block.text)) if foreign else block.text


def missing_semicolon(block: LintedBlock) -> int | None:
    """The offset of a missing semicolon, in Triton's form: inserting one there lets the text parse, or parse
    further."""
    error = block.parse_error
    if error is None or not error.line or "';'" not in error.message:
        return None
    lines = block.text.split("\n")
    at = sum(len(line) + 1 for line in lines[: error.line - 1]) + error.column - 1
    text = code(block.text)
    before = text[:at].rstrip()
    gap = text[len(before) : at]
    if not before or not ("\n" in gap or text[at:].strip() in ("", "}")):
        return None
    try:
        parse_asm(block.text[: len(before)] + ";" + block.text[len(before) :], None, dict(block.constants))
    except PtxError as after:
        if (after.line, after.column) <= (error.line, error.column + 1):
            return None
    return len(before)


@rule(
    "missing-semicolon",
    "A statement does not end in a semicolon.",
    why="The compiler adds none: the statement continues on the next line, or at the end in the code after the block.",
)
def semicolon(block: LintedBlock) -> Iterator[Found]:
    """Places where the parser stops because a line has no semicolon at its end."""
    at = missing_semicolon(block)
    if at is not None:
        offset = block.form.original(at)
        yield Found(
            max(offset - 1, 0),
            "this statement does not end in `;`",
            "end it with `;`",
            fix=Fix("end the statement with ;", (Edit("asm", offset, offset, ";"),)),
        )


EXPLAIN = (sigil, percent, dollar, braces, semicolon)
"""Rules with better messages for a text that does not parse than the parser's."""
