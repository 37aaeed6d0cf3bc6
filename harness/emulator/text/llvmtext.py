"""What LLVM adds to PTX text: the escapes of inline asm, and `.loc` lines with wrong source lines."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ptxdiff.emulator.errors import BindingError, ParseError
from ptxdiff.emulator.text.lexer import OPERAND
from ptxdiff.emulator.text.nodes import Source

_BEGIN, _END = "// begin inline asm\n", "// end inline asm"
_LOC = re.compile(r"^[ \t]*\.loc[^\n]*", re.MULTILINE)


def without_places(text: str) -> str:
    """The text of a module without the `.loc` lines inside its asm blocks: a whole block has the place of its call.

    Newer LLVM writes a `.loc` for every line of a block and counts on from the line of the call, which names source
    lines that do not belong to the block.
    """
    parts: list[str] = []
    at = 0
    while (begin := text.find(_BEGIN, at)) >= 0 and (end := text.find(_END, begin)) >= 0:
        parts += text[at:begin], _LOC.sub(lambda found: " " * len(found[0]), text[begin:end])
        at = end
    return "".join([*parts, text[at:]])


def in_asm(source: Source, offset: int) -> bool:
    """Whether an offset of a module lies in an asm block."""
    at = source.original(offset)
    begin = source.text.rfind(_BEGIN, 0, at)
    return begin >= 0 and source.text.find(_END, begin) > at


_SOURCE_PLACE = re.compile(r"\.loc[^\n]*//\s*(\S+?:\d+)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def at_unended_asm(source: Source, error: ParseError) -> ParseError:
    """The error, moved to the asm block before it if that block lacks its last semicolon.

    The parser detects the missing semicolon at the next statement, in code that the author of the asm did not write.
    """
    if not error.line:
        return error
    at = source.starts[error.line - 1] + error.column - 1
    begin = source.text.rfind(_BEGIN, 0, at)
    end = source.text.find(_END, begin)
    if begin < 0 or end < 0 or ";" in _COMMENT.sub("", source.text[end : max(at, end)]):
        return error
    first = begin + len(_BEGIN)
    asm = source.text[first:end]
    for unseen in (_LOC, _COMMENT):
        asm = unseen.sub(lambda found: " " * len(found[0]), asm)
    if not asm.strip() or asm.rstrip()[-1] in ";}:":
        return error
    where = _SOURCE_PLACE.findall(source.text[:begin])
    caller = f" called at {where[-1]}" if where else ""
    first += len(asm) - len(asm.lstrip())
    return source.error(
        ParseError, f"the inline asm{caller} does not end in ';': add one to its last instruction", first
    )


_DOLLAR = re.compile(r"\$(?:(\$)|([(|)])|(\d+)|\{(\d*)(?::(\w*))?\}|)", re.ASCII)


def expanded(source: Source, operand_count: int | None, constants: Mapping[int, int] | None = None) -> str:
    """The text with LLVM's escapes (`$0`, `${1}`, `$$`) replaced; `source.moves` records where offsets changed.

    operand_count: how many operands there are, or None if that is not known. constants: the values of constant
    operands, which replace them in the text. Raises ParseError, and BindingError for an operand that LLVM refuses.
    """
    text = source.text
    if OPERAND in text:
        raise source.error(ParseError, "unexpected character '\\x01'", text.index(OPERAND))
    parts: list[str] = []
    at = length = 0
    alternative = -1
    for match in _DOLLAR.finditer(text):
        dollar, choice, plain, braced, modifier = match.groups()
        if alternative <= 0:
            parts.append(text[at : match.start()])
            length += match.start() - at
        at = match.end()
        if dollar:
            piece = "$"
        elif choice:
            # `$(a$|b$)` gives a text for each assembler dialect. PTX has one dialect, which takes the first.
            alternative = {"(": 0, "|": alternative + 1, ")": -1}[choice]
            piece = ""
        else:
            piece = _operand(source, match.start(), plain or braced, modifier, operand_count, constants or {})
            if text[at : at + 1].isalnum() or text[at : at + 1] in ("_", "$"):
                raise source.error(ParseError, f"operand {match.group()} runs into the text after it", match.start())
        if alternative <= 0:
            parts.append(piece)
            length += len(piece)
        source.moves.append((length, at))
    if alternative > 0 or (alternative == 0 and at):
        raise source.error(ParseError, "a $( is never closed by $)", at)
    parts.append(text[at:])
    return "".join(parts)


def _operand(
    source: Source,
    at: int,
    digits: str | None,
    modifier: str | None,
    count: int | None,
    constants: Mapping[int, int],
) -> str:
    if digits is None:
        raise source.error(
            BindingError, "a '$' must be followed by an operand number; a dollar sign itself is written $$", at
        )
    if not digits:
        if modifier in ("uid", "comment", "private"):
            return {"uid": "0", "comment": "//", "private": ""}[modifier]
        raise source.error(BindingError, "${} must name an operand number", at)
    if modifier not in (None, "r", ""):
        raise source.error(BindingError, f"operand modifier ':{modifier}' does not exist for PTX", at)
    number = int(digits[:9])
    if len(digits) > 9 or (count is not None and number >= count):
        have = f"the constraints declare {count} operands, $0 to ${count - 1}" if count else "there are no operands"
        raise source.error(BindingError, f"operand ${digits} does not exist: {have}", at)
    return str(constants[number]) if number in constants else f"{OPERAND}{number}"
