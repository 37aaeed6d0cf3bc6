"""Which instruction names and modifiers ptxas knows outside arithmetic, whether the emulator runs them or not.

The data are in `ptxas_modifiers.txt`, asked of ptxas by `tests/support/lint/ptxas_modifiers.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cache
from pathlib import Path

from ptxdiff.suggestions import nearest

DATA = Path(__file__).with_suffix(".txt")
ANY = "any"
"""The row of all words that ptxas knows as a modifier of some instruction."""
OF = "of"
"""How the row of a name begins that has the words that this name takes in some context."""
NEEDS, ALWAYS = "needs", "always"
"""How the rows of a name begin that have words of which an instruction has one; `ALWAYS`, or beside a modifier."""
KIND = "kind"
"""How a row begins that has the words of one kind, such as `state spaces`."""
COUNTS = "counts"
"""How the row of a name and a kind begins that has the numbers of such words that an instruction may have."""
TYPES_KIND = "types"
"""The kind of types, of which an instruction may have one twice."""
LATER = "later"
"""How the row of a name begins that has the words that may stand before its last part."""


@cache
def _needs() -> dict[str, list[tuple[str, frozenset[str]]]]:
    """By name: a modifier or `ALWAYS`, and the words of which an instruction then has one."""
    rows: dict[str, list[tuple[str, frozenset[str]]]] = {}
    for line in DATA.read_text(encoding="utf-8").splitlines():
        title, _, words_of_row = line.partition(": ")
        if title.startswith(f"{NEEDS} "):
            _, name, beside, _ = title.split()
            rows.setdefault(name, []).append((beside, frozenset(words_of_row.split())))
    return rows


@cache
def _rows() -> dict[str, frozenset[str]]:
    rows = (line.partition(": ") for line in DATA.read_text(encoding="utf-8").splitlines())
    return {title: frozenset(words_of_row.split()) for title, _, words_of_row in rows}


def _row(title: str) -> frozenset[str]:
    return _rows().get(title, frozenset())


def number_of(words_of_kind: Collection[str], modifiers: Iterable[str], kind: str) -> int:
    """How many words of a kind there are; ptxas takes all but types twice (`vote.sync.all.all`)."""
    given = [word for word in modifiers if word in words_of_kind]
    return len(given) if kind == TYPES_KIND else len({*given})


@cache
def _kinds() -> dict[str, frozenset[str]]:
    """By kind its words."""
    return {title.removeprefix(f"{KIND} "): _row(title) for title in _rows() if title.startswith(f"{KIND} ")}


def words() -> frozenset[str]:
    """The words that ptxas knows as a modifier of some instruction."""
    return _row(ANY)


def names() -> frozenset[str]:
    """The names of instructions, such as `cp.async.bulk.tensor`."""
    return _row("names")


def taken(name: str, parts: Sequence[str]) -> frozenset[str]:
    """The words that an instruction of this name takes; all words if ptxas was not asked about it.

    parts: all parts of a spelling. A part of a longer name may stand later (`bar.cta.red` is `bar.red`); if one does,
    the words of that longer name count too.
    """
    later = [n for n in names() if n.startswith(f"{name}.") and _stands_later(n.removeprefix(f"{name}."), n, parts)]
    rows = [_rows().get(f"{OF} {n}", words()) for n in (name, *later)]
    return frozenset().union(*rows, *(n.removeprefix(f"{name}.").split(".") for n in later))


def _stands_later(rest: str, name: str, parts: Sequence[str]) -> bool:
    """Whether the last part of a longer name stands later in a spelling, behind words that may stand before it."""
    if rest not in parts or f"{LATER} {name}" not in _rows():
        return False
    before = parts[name.count(".") : parts.index(rest)]
    return _row(f"{LATER} {name}").issuperset(before)


def mistake(opcode: str, modifiers: Sequence[str], opcodes: Collection[str]) -> str:
    """What is wrong with an instruction that is not in the emulator's table; "" if ptxas may accept it.

    opcodes: all opcodes of that table, for hints. Examples:
    `unknown instruction 'fmax.f32'; near it there is max`,
    `ld.globl.b32: ld has no modifier .globl (near it: .global)`, `ld.global.bfly.b32: ld has no modifier .bfly`.
    """
    parts = [opcode, *modifiers]
    spelling = ".".join(parts)
    name = _name(parts)
    part = ".".join(parts[: name.count(".") + 2])  # of `barrier.cluster.sync`, `barrier.cluster`
    family = [n for n in names() if n.startswith(f"{opcode}.")]
    if not name and not family and opcode in opcodes:
        name = part = opcode  # such as `alloca`, for which ptxas gives no name
    if not name or (part not in names() and any(n.startswith(f"{part}.") for n in names())):
        near = nearest(spelling if family else opcode, family or {*opcodes, *names()}, 0.5)
        hint = f"; near it there is {', '.join(near)}" if near else ""
        return f"unknown instruction {spelling!r}{hint}"
    known = taken(name, parts)
    strange = next((word for word in parts[name.count(".") + 1 :] if word not in known), None)
    if strange is None:
        return ""
    near = nearest(strange, known, 0.5)
    hint = f" (near it: {', '.join('.' + n for n in near)})" if near else ""
    return f"{spelling}: {name} has no modifier .{strange}{hint}"


def _name(parts: Sequence[str]) -> str:
    """The longest name of an instruction that a spelling begins with; "" if there is none."""
    prefixes = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((prefix for prefix in prefixes if prefix in names()), "")


@cache
def asked(opcode: str) -> bool:
    """Whether ptxas was asked about an opcode."""
    return any(name == opcode or name.startswith(f"{opcode}.") for name in names())


@cache
def _only_in_names() -> frozenset[str]:
    """The parts of names that are no modifiers, such as `tensor`."""
    return frozenset(part for name in names() for part in name.split(".")) - words()


def misplaced(opcode: str, modifiers: Sequence[str]) -> str:
    """Which part of a name stands where ptxas reads a modifier; "" if none does.

    ptxas reads names first, and then modifiers in any order. Example: `cp.async.bulk.2d.tensor: .tensor is no modifier,
    and must stand before .2d`.
    """
    parts = [opcode, *modifiers]
    name = _name(parts)
    start = name.count(".") + 1
    suspects = [p for p in parts[start + 1 :] if p in _only_in_names()]
    part = next((p for p in suspects if p not in taken(name, parts)), None)
    return f"{'.'.join(parts)}: .{part} is no modifier, and must stand before .{parts[start]}" if part else ""


def lack(opcode: str, modifiers: Sequence[str]) -> str:
    """Which modifier an instruction must have and has not, or how many types; "" if nothing is missing.

    Examples: `bar.and.pred: bar needs one of the modifiers .arrive, .red, .sync, .warp`,
    `match.any.sync: match takes 1 types, not 0`.
    """
    parts = [opcode, *modifiers]
    name = _name(parts)
    spelling, modifiers = ".".join(parts), parts[name.count(".") + 1 :]
    for beside, one_of in _needs().get(name, ()):
        if (beside == ALWAYS or beside in modifiers) and one_of.isdisjoint(modifiers):
            # ptxas has another error beside a hint, but no instruction must have one.
            offered = sorted(one_of - {"L2::cache_hint"})
            shown = ", ".join(f".{word}" for word in offered[:6]) + ", ..." * (len(offered) > 6)
            with_it = "" if beside == ALWAYS else f" with .{beside}"
            return f"{spelling}: {name}{with_it} needs one of the modifiers {shown}"
    for kind, of_kind in _kinds().items():
        counts = {int(number) for number in _row(f"{COUNTS} {name} {kind}")}
        count = number_of(of_kind, modifiers, kind)
        if counts and count not in counts:
            numbers = " or ".join(map(str, sorted(counts)))
            return f"{spelling}: {name} takes {numbers} {kind}, not {count}"
    return ""
