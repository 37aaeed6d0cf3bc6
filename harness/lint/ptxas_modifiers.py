"""Which instruction names and modifiers ptxas knows outside arithmetic, whether the emulator runs them or not.

The data are in `ptxas_modifiers.txt`, asked of ptxas by `tests/support/lint/ptxas_modifiers.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path

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
    prefixes = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    name = next((prefix for prefix in prefixes if prefix in names()), "")
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
