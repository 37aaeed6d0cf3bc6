"""The table of machine instructions: what a row is, and how an instruction finds its row.

A row is closed. It names the opcode, its modifiers and the shapes of its operands. An instruction with another
modifier, suffix or shape has no row, and is `Unsupported`.

A pattern is written as nvdisasm prints the instruction: `FFMA{.FTZ}{.rnd}{.SAT}`. A modifier in capitals is a flag or,
without braces, part of the name; one in small letters is a choice, which the row lists. Shapes are written
`R,P = j,j,j`: destinations, then sources, each a kind of `SOURCES` or `DESTINATIONS`.

A definition is a short function on integers, as in `ptxdiff.emulator.isa`. Its first parameters are the sources; the
others are constants: the code of a choice, 0 or 1 for a flag, `result` for the number of the destination.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from ptxdiff.emulator.numeric.vectorise import ArrayFunction
from ptxdiff.sass.text import MachineInstruction, Operand, Unsupported

Definition = Callable[..., int]


@dataclass(frozen=True)
class SourceKind:
    """A kind of source. width: bits that the definition reads; signs: which of `-`, `~`, `|` may stand before it.

    negation: how `-` changes the bits: "two" (two's complement), "8x4" (two's complement of each byte), "carry" (one's
    complement plus 1 in one bit more), or the sign bits of a floating-point type ("f32", "f16x2", "f8x4", "f64").
    """

    width: int
    signs: str = ""
    negation: str = ""
    suffixes: tuple[str, ...] = ("",)
    immediate: str = "int"
    signed: bool = False


_HALVES = ("", "H0_H0", "H1_H1")
SOURCES: Mapping[str, SourceKind] = {
    "u": SourceKind(32),  # 32 bits as they are
    "r": SourceKind(32, immediate="none"),  # a register that is not RZ
    "s": SourceKind(32, signed=True),
    "i": SourceKind(32, "-", "two"),
    "j": SourceKind(64, "-", "carry"),  # 32 bits, whose negation can carry
    "b": SourceKind(32, "~"),
    "n": SourceKind(32, "-~", "two"),
    "f": SourceKind(32, "-|", "f32", immediate="encoding"),
    "h": SourceKind(32, "-|", "f16x2", _HALVES, immediate="encoding"),
    "H": SourceKind(32, "-|", "f16x2", immediate="encoding"),  # a pair without selection of halves
    "e": SourceKind(32, "-|", "f16x2", ("H0_H0", "H1_H1"), immediate="none"),  # one half of a register
    "a": SourceKind(32, "|", "raw", immediate="encoding"),  # a magnitude, whose sign the definition sees too
    "g": SourceKind(32, "|", "raw", _HALVES, immediate="encoding"),  # the same for a pair of halves
    "x": SourceKind(64, "-|", "f32x2", ("F32x2.HI_LO", "F32"), immediate="both"),  # F32: one number, in both halves
    "X": SourceKind(64, "-|", "f32x2", ("F32x2.LO_HI",), immediate="none"),  # a pair of float32, exchanged
    "N": SourceKind(64, "-", "f32x2", ("F32x2.HI_LO.NP",), immediate="none"),  # a pair, its upper number negated
    "Z": SourceKind(64, "-", "f32x2", ("F32x2.LO_HI.NP",), immediate="none"),  # exchanged, then the upper one negated
    "k": SourceKind(32, suffixes=("", "H1"), immediate="none"),  # one half of a register: two bytes
    "K": SourceKind(32, suffixes=("H1",), immediate="none"),  # the upper half of a register, in the lower bits
    "y": SourceKind(32, suffixes=("", "B1", "B2", "B3"), immediate="none"),  # one byte of a register
    "v": SourceKind(32, immediate="encoding"),  # 32 bits as they are, whose immediates are written as floats
    "V": SourceKind(32, immediate="encoding"),  # an immediate that is written as a float, and no other operand
    "S": SourceKind(32, immediate="encoding"),  # two scales in the upper half; another lower half than 0 is refused
    "t": SourceKind(32, suffixes=("H0", "H1"), immediate="encoding"),  # one half, always named: two scales
    "m": SourceKind(32, "-", "8x4"),  # four bytes
    "byte": SourceKind(32, suffixes=("B3210",), immediate="none"),  # four codes of small floats: one in each byte,
    "nibble": SourceKind(32, suffixes=("N6420",), immediate="none"),  # in the lower half of each,
    "nibbles": SourceKind(32, suffixes=("N3210",), immediate="none"),  # in the lower 16 bits;
    "term": SourceKind(32, "-", "f8x4", ("B3210",), immediate="none"),  # in each byte, with a sign
    "o4": SourceKind(32, suffixes=("24",), immediate="none"),  # all but the upper byte is read
    "o2": SourceKind(32, suffixes=("28",), immediate="none"),  # all but the upper four bits are read
    "z": SourceKind(32, suffixes=("SIGN",), immediate="none"),  # the sign of a register
    "single": SourceKind(32, suffixes=("F32",), immediate="none"),  # a float32 in a constant bank, beside halves
    "d": SourceKind(64, "-|", "f64", immediate="high"),
    "i2": SourceKind(32, "-", "two", signed=True),
    "-q": SourceKind(64, "-", "two", immediate="none"),  # a pair of registers that is negated
    "-u": SourceKind(32, "-", "two", immediate="none"),  # a register that is negated
    "~u": SourceKind(32, "~", immediate="none"),  # a register whose complement is read
    "~q": SourceKind(64, "~", immediate="none"),  # a pair of registers whose complement is read
    "l": SourceKind(64, "-", "long", signed=True),  # a signed word of 32 bits, whose negation can need one more
    "q": SourceKind(64, "-", "two", ("", "64")),
    "w": SourceKind(64, "~", "", ("", "64")),
    "Q": SourceKind(64, "", "", ("", "64")),
    "p": SourceKind(1, "!"),
    "p-": SourceKind(1, "!"),  # a predicate that is not PT
}
"""A plain `#` is an immediate, which the definition gets as a constant; `!PT` and `PT` are what they say."""

_WORDS = ("j", "l")
"""Kinds of 32 bits, although the definition reads 64."""

DESTINATIONS: Mapping[str, int] = {"R": 32, "R2": 64, "P": 1}


@dataclass(frozen=True)
class OperandShape:
    """Kinds of operands, destinations first. unused: the number of PT before them: predicates that are not kept.

    again: whether the last destination, a predicate, is written twice, and keeps what is written first.
    """

    destinations: tuple[str, ...]
    sources: tuple[str, ...]
    unused: int = 0
    again: bool = False

    @property
    def named(self) -> int:
        """How many predicates are PT, or another one."""
        return self.unused + self.again + sum(kind in ("PT", "!PT") for kind in self.sources)

    @classmethod
    def parse(cls, text: str) -> OperandShape:
        """From `R,P = j,j,j`, or `PT,R = j,j`, or `R,P,again = j,j`."""
        left, right = (tuple(p.strip() for p in side.split(",") if p.strip()) for side in text.split("="))
        return cls(tuple(k for k in left if k not in ("PT", "again")), right, left.count("PT"), "again" in left)


@dataclass(frozen=True, eq=False)
class InstructionRow:
    """One row of the table. choices: for a group in small letters, the code of each written modifier; "" if none.

    given: constants of the definition that belong to the whole row. last_zero: modifiers with which the last source
    must be RZ, because it is not known where the instruction puts the bits of another one. undecided: says of sources
    which bits of the first destination are not known for them; the machine then chooses these at random, as it does
    with bits that were never written.
    """

    name: str
    opcodes: tuple[str, ...]
    fixed: tuple[str, ...]
    flags: Mapping[str, str]
    choices: Mapping[str, Mapping[str, int]]
    shapes: tuple[OperandShape, ...]
    definition: Definition
    signed: frozenset[str] = frozenset()
    approximate: bool = False
    scalar: frozenset[str] = frozenset()
    given: Mapping[str, int] = field(default_factory=dict)
    last_zero: frozenset[str] = frozenset()
    undecided: Definition | None = None

    @property
    def label(self) -> str:
        """The name of the row in evidence and messages."""
        return self.name


@dataclass(frozen=True)
class RowMatch:
    """An instruction's row, the shape that fits, and the constants of its modifiers and plain immediates."""

    row: InstructionRow
    shape: OperandShape
    constants: Mapping[str, int]
    operands: tuple[tuple[str, Operand], ...] = field(default=())  # sources that are read, with their kinds

    @property
    def form(self) -> str:
        """What the machine runs, for evidence: the row with the modifiers that are written, and kinds of operands."""
        chosen = ",".join(f"{n}={v}" for n, v in sorted(self.constants.items()) if n not in ("lut", "lut2", "n"))
        return f"{self.row.name} {chosen}".strip()


ROWS: dict[str, list[InstructionRow]] = {}
"""All rows by opcode."""

_GROUP = re.compile(r"(\{?)\.([A-Za-z0-9_]+)\}?")


def row(
    pattern: str,
    *shapes: str,
    uniform: bool = False,
    approximate: bool = False,
    given: Mapping[str, int] | None = None,
    last_zero: Sequence[str] = (),
    label: str = "",
    undecided: Definition | None = None,
    **choices: Mapping[str, int] | Sequence[str],
) -> Callable[[Definition], Definition]:
    """Declare a row. uniform: the same instruction exists for uniform registers, with a U before its name.

    given: constants of the definition that no modifier chooses. last_zero, undecided: see `InstructionRow`. label: the
    name in evidence, for a row whose pattern another one has, with other operands.
    """
    opcode = re.match(r"^[A-Z0-9]+", pattern)
    assert opcode is not None
    fixed, flags, groups = [], {}, {}
    for brace, word in _GROUP.findall(pattern[opcode.end() :]):
        if word in choices:
            codes = choices[word]
            listed = dict(codes) if isinstance(codes, Mapping) else {w: i for i, w in enumerate(codes)}
            if brace and "" not in listed:
                listed[""] = 0
            groups[word] = listed
        elif brace:
            flags[word] = word.lower()
        else:
            fixed.append(word)
    opcodes = (opcode[0], f"U{opcode[0]}") if uniform else (opcode[0],)

    def declare(definition: Definition) -> Definition:
        made = InstructionRow(
            label or pattern, opcodes, tuple(fixed), flags, groups, tuple(map(OperandShape.parse, shapes)), definition,
            approximate=approximate, given=dict(given or {}), last_zero=frozenset(last_zero),
            undecided=undecided,
        )  # fmt: skip
        for name in opcodes:
            ROWS.setdefault(name, []).append(made)
        return definition

    return declare


def match(instruction: MachineInstruction) -> RowMatch:
    """The row of an instruction. Raises Unsupported if there is none, or if two rows fit.

    A row that has PT at a place fits better than one that writes a predicate there.
    """
    found = [m for r in ROWS.get(instruction.opcode, ()) if (m := _match(r, instruction)) is not None]
    most = max((m.shape.named for m in found), default=0)
    found = [m for m in found if m.shape.named == most]
    if len(found) != 1:
        why = "has no row in the table" if not found else "fits several rows of the table"
        raise Unsupported(f"{instruction.text} {why}")
    return found[0]


def _match(row: InstructionRow, instruction: MachineInstruction) -> RowMatch | None:
    left = list(instruction.modifiers)
    if [w for w in left if w in row.fixed] != list(row.fixed):
        return None
    left = [w for w in left if w not in row.fixed]
    if len(set(left)) != len(left):
        return None
    constants = dict(row.given)
    for name, codes in row.choices.items():
        picks = [w for w in left if w in codes]
        if len(picks) > 1 or (not picks and "" not in codes):
            return None
        constants[name] = codes[picks[0] if picks else ""]
        left = [w for w in left if w not in picks]
    for word, name in row.flags.items():
        constants[name] = int(word in left)
        left = [w for w in left if w != word]
    if left:
        return None
    if row.last_zero.intersection(instruction.modifiers):
        last = instruction.operands[-1]
        if last.kind != "R" or last.number != -1:
            return None
    for shape in row.shapes:
        sources = _operands(shape, instruction, constants)
        if sources is not None:
            return RowMatch(row, shape, {**constants, **sources[1]}, tuple(sources[0]))
    return None


def _operands(
    shape: OperandShape, instruction: MachineInstruction, constants: Mapping[str, int]
) -> tuple[list[tuple[str, Operand]], dict[str, int]] | None:
    """The sources and plain immediates of an instruction, if its operands have this shape."""
    uniform = instruction.opcode.startswith("U") and instruction.opcode in _UNIFORM
    unused, operands = instruction.operands[: shape.unused], list(instruction.operands[shape.unused :])
    if len(operands) < len(shape.destinations) or any(o != Operand("UP" if uniform else "P", 7) for o in unused):
        return None
    for kind in shape.destinations:
        operand = operands.pop(0)
        wanted = "P" if kind == "P" else "R"
        if operand.kind != ("U" + wanted if uniform else wanted) or operand.negated or operand.absolute:
            return None
        if operand.inverted or operand.suffix:
            return None
        if kind == "R2" and operand.number > 0 and operand.number % 2:
            return None
    if shape.again and (not operands or operand.number == 7 or operands.pop(0) != operand):
        return None
    sources: list[tuple[str, Operand]] = []
    plain: dict[str, int] = {}
    for kind in shape.sources:
        if not operands:
            return None
        operand = operands.pop(0)
        if kind.startswith("#"):
            if operand.kind != "int" or operand.absolute or operand.inverted or operand.value is None:
                return None
            plain[kind[1:]] = operand.value
        elif kind in ("PT", "!PT"):
            if operand.kind not in ("P", "UP") or operand.number != 7 or operand.inverted != (kind == "!PT"):
                return None
        elif kind in ("RZ", "-RZ"):
            register = operand.kind == ("UR" if uniform else "R") and operand.number == -1
            zero = register and not operand.absolute and not operand.inverted
            if not zero or operand.negated != (kind == "-RZ") or operand.suffix not in ("", "H0_H0"):
                return None
        elif not _fits(kind, operand, uniform):
            return None
        else:
            sources.append((kind, operand))
            # The two halves of a packed immediate are written as two literals.
            if kind in ("h", "H", "g") and operand.kind == "float":
                if not operands or operands[0].kind != "float":
                    return None
                operands.pop(0)
    return None if operands else (sources, plain)


def _fits(kind: str, operand: Operand, uniform: bool) -> bool:
    source = SOURCES[kind]
    if operand.negated and operand.kind != "int" and "-" not in source.signs:
        return False
    if operand.inverted and not set("~!") & set(source.signs):
        return False
    if operand.absolute and "|" not in source.signs:
        return False
    if kind in ("a", "g") and not operand.absolute and operand.kind != "float":
        return False
    if kind in ("X", "N", "Z") and operand.number < 0:
        return False
    if kind == "V" and operand.kind != "float":
        return False
    if kind == "single" and operand.kind != "c":
        return False
    if kind == "r" and (operand.kind != "R" or operand.number < 0):
        return False
    if (kind in ("-u", "-q") and not operand.negated) or (kind in ("~u", "~q") and not operand.inverted):
        return False
    if kind == "p-" and operand.number == 7:
        return False
    if kind in ("p", "p-"):
        return operand.kind == "UP" or (operand.kind == "P" and not uniform)
    if operand.kind in ("int", "float"):
        floating = source.immediate in ("encoding", "high", "both")
        if source.immediate == "none" or (operand.kind == "float" and not floating):
            return False
        if operand.suffix not in source.suffixes and (operand.suffix or kind == "t"):
            return False
        return not (operand.absolute or operand.inverted)
    if operand.suffix not in source.suffixes:
        return False
    if operand.kind == "c":
        return operand.bank in (0, 2, 3, 4) and operand.base is None and operand.uniform is None
    pair = source.width == 64 and kind not in _WORDS and operand.suffix != "F32"
    if pair and operand.number > 0 and operand.number % 2:
        return False
    return operand.kind == "UR" or (operand.kind == "R" and not uniform)


_UNIFORM: set[str] = set()


def finish() -> None:
    """Learn which opcodes work on uniform registers, once all rows are declared."""
    for opcode, rows in ROWS.items():
        if opcode.startswith("U") and any(opcode[1:] in r.opcodes for r in rows):
            _UNIFORM.add(opcode)


def is_uniform(opcode: str) -> bool:
    """Whether an instruction of this opcode runs once for a warp, on uniform registers."""
    return opcode in _UNIFORM


def functions_of(match: RowMatch) -> tuple[ArrayFunction, ...]:
    """The definition over arrays, one for each destination."""
    kinds = tuple((SOURCES[k].width, SOURCES[k].signed) for k, _ in match.operands)
    code = match.row.definition.__code__
    names = code.co_varnames[: code.co_argcount]
    constants = names[len(kinds) :]
    made = []
    for number, kind in enumerate(match.shape.destinations):
        defaults = dict(zip(names[::-1], (match.row.definition.__defaults__ or ())[::-1], strict=False))
        values = tuple(number if n == "result" else {**defaults, **match.constants}[n] for n in constants)
        made.append(_array_function(match.row.definition, values, kinds, DESTINATIONS[kind]))
    return tuple(made)


def undecided_of(match: RowMatch) -> ArrayFunction | None:
    """Which bits of the first destination are not known, over arrays of the sources; None if all always are."""
    if match.row.undecided is None:
        return None
    kinds = tuple((SOURCES[k].width, SOURCES[k].signed) for k, _ in match.operands)
    return _array_function(match.row.undecided, (), kinds, DESTINATIONS[match.shape.destinations[0]])


@cache
def _array_function(
    definition: Definition, constants: tuple[int, ...], kinds: tuple[tuple[int, bool], ...], width: int
) -> ArrayFunction:
    return ArrayFunction(definition, constants, kinds, width)
