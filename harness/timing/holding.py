"""Whether a timed loop holds the instruction that a variant's asm tests, where ptxas has a single one for it.

Counting instructions does not show that ptxas dropped the one that matters and kept what stands around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_PAIRS = frozenset({"e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2", "e2m1x2"})
# Opcode, modifiers of which the instruction has one (none asked for where empty), and the machine code's opcodes of
# which the loop has one. Read from the loops of the catalogue's asm: for sm_90a all of these; popc and dp4a for sm_80
# (ptxas 12.9) and sm_100a (ptxas 13.4) too, and for sm_100a the conversions and tanh.
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
    """A loop without an instruction that the asm has; the message names both."""


def held_in(text: str, opcodes: Mapping[str, float]) -> None:
    """Check a loop's opcodes, by count of an application, against asm. Raises Lacks."""
    for spelling in _spellings(text):
        name, *modifiers = spelling.split(".")
        for opcode, one_of, machine in HOLDS:
            if name != opcode or (one_of and not one_of & {*modifiers}):
                continue
            if not any(count > 0 and found.startswith(machine) for found, count in opcodes.items()):
                there = ", ".join(opcodes) or "nothing"
                raise Lacks(f"the asm has {spelling}, and the loop no {' or '.join(machine)}: it holds {there}")


def _spellings(text: str) -> Iterator[str]:
    from harness.ptx.text.nodes import CodeBlock, Instruction
    from harness.ptx.text.parser import parse_asm

    waiting: list[Any] = [parse_asm(text)[0]]
    while waiting:
        node = waiting.pop()
        if isinstance(node, CodeBlock):
            waiting += node.statements
        elif isinstance(node, Instruction):
            yield node.spelling
