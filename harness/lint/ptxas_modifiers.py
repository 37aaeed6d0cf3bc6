"""Which instruction names and modifiers ptxas knows outside arithmetic, whether the emulator runs them or not.

The data are in `ptxas_modifiers.txt`, asked of ptxas by `tests/support/lint/ptxas_modifiers.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path

from ptxdiff.emulator.text import TYPES
from ptxdiff.suggestions import nearest

DATA = Path(__file__).with_suffix(".txt")
ANY = "any"
"""The row of all words that ptxas knows as a modifier of some instruction."""
EVERYWHERE = "everywhere"
"""The row of words that ptxas refuses at no name in particular: types, and what it ignores."""
OF = "of"
"""How the row of a name begins that has the other words that this name takes."""
NEVER = "never"
"""How the row of a name begins that has words of the two rows above that this name does not take."""

NEEDS, ALWAYS = "needs", "always"
"""How the rows of a name begin that have words of which an instruction has one; `ALWAYS`, or beside a modifier."""
TYPED = "types"
"""How the row of a name begins that has the numbers of types that an instruction may have."""


@cache
def _needs() -> dict[str, list[tuple[str, frozenset[str]]]]:
    """By name: a modifier or `ALWAYS`, and the words of which an instruction then has one."""
    found: dict[str, list[tuple[str, frozenset[str]]]] = {}
    for line in DATA.read_text(encoding="utf-8").splitlines():
        title, _, words_of_row = line.partition(": ")
        if title.startswith(f"{NEEDS} "):
            _, name, beside, _ = title.split()
            found.setdefault(name, []).append((beside, frozenset(words_of_row.split())))
    return found


@cache
def _row(title: str) -> frozenset[str]:
    rows = (line.partition(": ") for line in DATA.read_text(encoding="utf-8").splitlines())
    return next((frozenset(words.split()) for name, _, words in rows if name == title), frozenset())


def words() -> frozenset[str]:
    """The words that ptxas knows as a modifier of some instruction."""
    return _row(ANY)


def names() -> frozenset[str]:
    """The names of instructions, such as `cp.async.bulk.tensor`."""
    return _row("names")


def taken(name: str, parts: Collection[str]) -> frozenset[str]:
    """The words that an instruction of this name takes; all words if ptxas was not asked about it.

    parts: the modifiers of an instruction. A part of a longer name may stand later (`bar.cta.red` is `bar.red`); if one
    does, the words of that longer name count too.
    """
    own = _row(f"{OF} {name}")
    family = {n: set(n.removeprefix(f"{name}.").split(".")) for n in names() if n.startswith(f"{name}.")}
    later = [n for n, words_of_name in family.items() if words_of_name <= {*parts}]
    if not own or any(not _row(f"{OF} {n}") for n in later):
        known = words()
    else:
        never = _row(f"{NEVER} {name}").intersection(*(_row(f"{NEVER} {n}") for n in later))
        known = _row(EVERYWHERE).union(own, *(_row(f"{OF} {n}") for n in later)) - never
    return known.union(*family.values())


def mistake(opcode: str, modifiers: Sequence[str], opcodes: Collection[str], spelled: Collection[str] = ()) -> str:
    """What is wrong with an instruction that is not in the emulator's table; "" if ptxas may accept it.

    opcodes: all opcodes of that table, for hints. spelled: the modifiers that the table has at this opcode. Examples:
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
    known = taken(name, parts).union(spelled)
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
            shown = ", ".join(f".{word}" for word in sorted(one_of)[:6]) + ", ..." * (len(one_of) > 6)
            with_it = "" if beside == ALWAYS else f" with .{beside}"
            return f"{spelling}: {name}{with_it} needs one of the modifiers {shown}"
    counts = {int(number) for number in _row(f"{TYPED} {name}")}
    given = [word for word in modifiers if word in TYPES and word in words()]
    if counts and len(given) not in counts:
        numbers = " or ".join(map(str, sorted(counts)))
        return f"{spelling}: {name} takes {numbers} types, not {len(given)}"
    return ""
