"""The three spellings of inline PTX, each translated to the one that LLVM reads: `$0` with `=r,r`.

"triton" and "llvm" use LLVM's spelling. They differ in what an operand holds (see `binding.constraints.bind`): in
Triton one register holds several small elements, in `llvm.inline_asm` of MLIR one element. "cuda" is the asm statement
of CUDA C++ as NVIDIA's "Inline PTX Assembly in CUDA" and clang describe it: `%0`, `%%` for a percent sign, `"=r"(y) :
"r"(x)`, `+r` for an operand that is read and written. `$` and braces have no special meaning there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from ptxdiff.emulator.errors import BindingError
from ptxdiff.emulator.text.nodes import Source

Convention = Literal["triton", "llvm", "cuda"]
CONVENTIONS: tuple[Convention, ...] = get_args(Convention)

_PERCENT = re.compile(
    r"%(?:(?P<itself>[%{|}])|(?P<unique>=)|(?P<number>\d+)|\[(?P<name>\w+)\])|(?P<dollar>\$)|(?P<stray>%)", re.ASCII
)
_STATEMENT = re.compile(r"\s*(?:__)?asm(?:__)?\b[\s\w]*\(")
_OPERAND = re.compile(r'(?:\[(\w+)\]\s*)?"([^"]*)"\s*(?:\((.*)\))?', re.S)
_NUMBER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)[uUlL]*")


@dataclass(frozen=True)
class Spelled:
    """A block in LLVM's spelling.

    `moves`: ascending pairs (offset in this text, offset in the author's text), one wherever the difference between the
    two changes. `expressions`: for a CUDA statement, the C++ expression in parentheses after each operand, outputs
    first ("" if there is none); that of an operand `+r` occurs twice.
    """

    text: str
    constraints: str
    moves: tuple[tuple[int, int], ...] = ()
    expressions: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Operand:
    constraint: str
    expression: str = ""
    name: str = ""

    @property
    def value(self) -> int | None:
        """The value of a constant operand that states its value, as in `"n"(16)`."""
        written = self.expression.strip()
        if self.constraint not in ("n", "i") or not _NUMBER.fullmatch(written):
            return None
        digits = written.rstrip("uUlL")
        return int(digits, 8) if re.fullmatch(r"[-+]?0[0-7]+", digits) else int(digits, 0)


def check_convention(convention: object) -> None:
    """Raise BindingError unless `convention` is the name of one."""
    if convention not in CONVENTIONS:
        known = "triton ($0, several small elements in a register), llvm ($0, one element in each) and cuda (%0)"
        raise BindingError(f"convention={convention!r} is none of {known}")


def spelled(asm: str, constraints: str, convention: str, *, lenient: bool = False) -> Spelled:
    """A block in LLVM's spelling.

    constraints: LLVM's constraint string. For a CUDA statement also the text with its colons, `"=r"(y) : "r"(x) :
    "memory"`, or the constraints alone with commas, `=r,+r,r`. An operand `+r` becomes an output and, after all other
    inputs, an input tied to it, as clang numbers them. A constant with its value, `"n"(16)`, is replaced by that number
    in the text and is no operand. lenient: keep text that the convention does not define, so that a caller (the linter)
    can report it. Otherwise such text raises BindingError with its place.
    """
    check_convention(convention)
    if not lenient and isinstance(asm, str) and _STATEMENT.match(asm):
        raise BindingError(
            "the text is a C++ statement, asm(...): give what it has between its quotation marks as the text, and its "
            "operands as constraints=, with convention='cuda'; several statements become one block"
        )
    if convention != "cuda":
        return Spelled(asm, constraints)
    if not isinstance(asm, str) or not isinstance(constraints, str):
        raise BindingError(f"asm and constraints are strings, not {type(asm).__name__}, {type(constraints).__name__}")
    outputs, inputs, clobbers = _operands(constraints, lenient)
    operands = [*outputs, *inputs]
    places: list[str] = []
    kept = 0
    for operand in operands:
        places.append(f"${kept}" if operand.value is None else str(operand.value))
        kept += operand.value is None
    names = {o.name: places[n] for n, o in enumerate(operands) if o.name}
    text, moves = _dollars(asm, places, names, lenient)
    both = [n for n, o in enumerate(outputs) if o.constraint.startswith("+")]
    arguments = [o for o in operands if o.value is None]
    constraint_words = [o.constraint.replace("+", "=", 1) for o in arguments]
    constraint_words += [str(n) for n in both] + clobbers
    expressions = [o.expression.strip() for o in arguments] + [outputs[n].expression.strip() for n in both]
    return Spelled(text, ",".join(constraint_words), tuple(moves), tuple(expressions))


def _dollars(
    asm: str, places: Sequence[str], names: dict[str, str], lenient: bool
) -> tuple[str, list[tuple[int, int]]]:
    source = Source(asm)
    parts: list[str] = []
    moves: list[tuple[int, int]] = []
    at = length = 0
    for match in _PERCENT.finditer(asm):
        try:
            new = _piece(source, match, places, names)
        except BindingError:
            if not lenient:
                raise
            new = "$$" if match["dollar"] else f"${match['number']}" if match["number"] else match[0]
        parts += asm[at : match.start()], new
        length += match.start() - at + len(new)
        at = match.end()
        moves.append((length, at))
    return "".join([*parts, asm[at:]]), moves


def _piece(source: Source, found: re.Match[str], places: Sequence[str], names: dict[str, str]) -> str:
    """LLVM's spelling of an escape in CUDA's. Raises BindingError if it is none."""

    def refuse(message: str) -> BindingError:
        return source.error(BindingError, message, found.start())

    if found["itself"]:
        return found["itself"]
    if found["unique"]:
        return "${:uid}"  # a different number in every copy of the block
    if found["dollar"]:
        own = re.search(r"(?<![\w$%])\$(\d+)\b", source.text[max(found.start() - 1, 0) : found.end() + 9])
        if own and int(own[1]) < len(places) and source.text.startswith(own[0], found.start()):
            raise refuse(f"in a CUDA statement operand {own[0]} is written %{own[1]}")
        return "$$"
    if found["name"]:
        if found["name"] not in names:
            raise refuse(f"no operand is named [{found['name']}]; the statement names {', '.join(names) or 'none'}")
        return names[found["name"]]
    if found["number"]:
        number = int(found["number"][:9])
        if number >= len(places):
            have = f"the statement has {len(places)} operands, %0 to %{len(places) - 1}" if places else "there are none"
            raise refuse(f"operand %{found['number']} does not exist: {have}")
        return places[number]
    if re.match(r"%[A-Za-z](?!\d)", source.text[found.start() :]):
        return "%"  # nvcc 13.0 leaves it as it stands, and takes a letter before a number for an operand's modifier
    word = re.match(r"%[A-Za-z_][\w.]*", source.text[found.start() :])
    what = word[0] if word else "%"
    raise refuse(f"in a CUDA statement {what} is written %{what}: a single % comes before an operand's number")


# the operands ------------------------------------------------------------------------------------------------


def _operands(constraints: str, lenient: bool = False) -> tuple[list[_Operand], list[_Operand], list[str]]:
    """Outputs, inputs and clobbers (as LLVM writes them) of a CUDA statement. Raises BindingError."""
    if '"' not in constraints and ":" not in constraints:
        return _bare(constraints, lenient)
    after_text = re.match(r'\s*:\s*(?::|(?:\[\w+\]\s*)?"[=+])', constraints)  # with the colon after the text
    sections = list(_split(constraints.lstrip()[1:] if after_text else constraints, ":"))
    if len(sections) > 3:
        raise BindingError(
            f"operands {short(constraints)}: {len(sections)} parts between colons; a statement has outputs, inputs "
            "and clobbers"
        )
    parts = [[p.strip() for p in _split(section, ",")] if section.strip() else [] for section in sections]
    parts += [[]] * (3 - len(parts))
    outputs, inputs = ([_operand(word, constraints) for word in part] for part in parts[:2])
    for operand in outputs:
        if operand.constraint[:1] not in ("=", "+"):
            raise BindingError(
                f'operand "{operand.constraint}" of {short(constraints)}: an output is written "=r" or "+r"; '
                "inputs stand after the first colon"
            )
    for operand in inputs:
        if operand.constraint[:1] in ("=", "+"):
            raise BindingError(
                f'operand "{operand.constraint}" of {short(constraints)}: an output stands before the first colon'
            )
    return outputs, inputs, [f"~{{{word.strip().strip(chr(34))}}}" for word in parts[2]]


def _bare(constraints: str, lenient: bool) -> tuple[list[_Operand], list[_Operand], list[str]]:
    """Outputs, inputs and clobbers from constraints with commas, `=r,+r,r,~{memory}`."""
    constraint_words = [word.strip() for word in constraints.split(",")] if constraints.strip() else []
    clobbers = [w for w in constraint_words if w.startswith("~")]
    rest = [w for w in constraint_words if not w.startswith("~")]
    outputs = [w for w in rest if w[:1] in ("=", "+")]
    if rest[: len(outputs)] != outputs and not lenient:
        raise BindingError(f"constraints {short(constraints)}: outputs come before inputs")
    return [_Operand(w) for w in outputs], [_Operand(w) for w in rest if w[:1] not in ("=", "+")], clobbers


def _operand(word: str, constraints: str) -> _Operand:
    match = _OPERAND.fullmatch(word)
    if not match:
        raise BindingError(
            f'operand {short(word)} of {short(constraints)}: an operand of a CUDA statement is written "r"(x), with '
            "the constraint in quotes and the value in parentheses"
        )
    name, constraint, expression = match.groups()
    return _Operand(constraint.strip(), expression or "", name or "")


def _split(text: str, separator: str) -> Iterator[str]:
    """The parts between separators.

    A separator inside strings or brackets does not count, nor does `::` of C++ there.
    """
    start = depth = 0
    quoted = False
    for at, character in enumerate(text):
        if character == '"':
            quoted = not quoted
        elif not quoted:
            depth += (character in "([{") - (character in ")]}")
            if character == separator and depth == 0:
                yield text[start:at]
                start = at + 1
    yield text[start:]


def short(text: str) -> str:
    """The text, or the beginning of a long one, for messages."""
    return text if len(text) <= 100 else f"{text[:100]}..."
