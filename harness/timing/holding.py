"""Checks that a timed loop has the instruction that a variant's asm tests, if ptxas has a single opcode for it.

The count of instructions alone does not show that ptxas dropped that instruction and kept those around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_PAIRS = frozenset({"e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2", "e2m1x2"})
# Opcode; modifiers, one of which the instruction must have (none required if empty); and the opcodes of machine code,
# one of which the loop must have. Read from the loops of the catalogue's asm: all of these for sm_90a; popc and dp4a
# also for sm_80 (ptxas 12.9) and sm_100a (ptxas 13.4); conversions and tanh also for sm_100a.
HOLDS: tuple[tuple[str, frozenset[str], tuple[str, ...]], ...] = (
    *((name, frozenset({"approx", "full"}), ("MUFU",)) for name in ("rcp", "rsqrt", "sqrt", "div", "ex2", "lg2")),
    *((name, frozenset({"approx"}), ("MUFU",)) for name in ("sin", "cos", "tanh")),
    ("cvt", _PAIRS, ("F2FP",)),
    ("fma", frozenset({"f16x2", "bf16x2"}), ("HFMA2",)),
    ("popc", frozenset(), ("POPC",)),
    ("brev", frozenset(), ("BREV",)),
    ("dp4a", frozenset(), ("IDP",)),
    ("dp2a", frozenset(), ("IDP",)),
    ("clz", frozenset(), ("FLO",)),
    ("bfind", frozenset(), ("FLO",)),
)


class Lacks(ValueError):
    """A loop lacks an instruction that the asm has. The message names both."""


def held_in(text: str, opcodes: Mapping[str, float]) -> None:
    """Check a loop's opcodes, by count for each application, against asm. Raises Lacks."""
    for spelling in _spellings(text):
        name, *modifiers = spelling.split(".")
        for opcode, one_of, machine in HOLDS:
            if name != opcode or (one_of and not one_of & {*modifiers}):
                continue
            if not any(count > 0 and found.startswith(machine) for found, count in opcodes.items()):
                there = ", ".join(opcodes) or "nothing"
                raise Lacks(f"the asm has {spelling}, but the loop has no {' or '.join(machine)}: it holds {there}")


def _spellings(text: str) -> Iterator[str]:
    from ptxdiff.ptx.text.nodes import CodeBlock, Instruction
    from ptxdiff.ptx.text.parser import parse_asm

    waiting: list[Any] = [parse_asm(text)[0]]
    while waiting:
        node = waiting.pop()
        if isinstance(node, CodeBlock):
            waiting += node.statements
        elif isinstance(node, Instruction):
            yield node.spelling
