"""Logic on bits and predicates (ISA 9.7.8)."""

from __future__ import annotations

from ptxdiff.emulator.isa.modifiers import AND
from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import mask, scalar
from ptxdiff.emulator.numeric.definedness import and_, or_

_BITS = ".b16 .b32 .b64"


@instruction("and.type", "d, a, b", section="9.7.8.1", type=".pred " + _BITS, undefined=and_)
def and_bits(a: int, b: int) -> int:
    """Bitwise and."""
    return a & b


@instruction("or.type", "d, a, b", section="9.7.8.2", type=".pred " + _BITS, undefined=or_)
def or_bits(a: int, b: int) -> int:
    """Bitwise or."""
    return a | b


@instruction("xor.type", "d, a, b", section="9.7.8.3", type=".pred " + _BITS, undefined="bits")
def xor_bits(a: int, b: int) -> int:
    """Bitwise exclusive or."""
    return a ^ b


@instruction("not.type", "d, a", section="9.7.8.4", type=".pred " + _BITS, undefined="bits")
def not_bits(a: int) -> int:
    """Bitwise complement."""
    return ~a


@instruction("cnot.type", "d, a", section="9.7.8.5", type=_BITS)
def cnot(a: int) -> int:
    """1 if a is 0, else 0."""
    return 1 if a == 0 else 0


@scalar
def by_table(a: int, b: int, c: int, table: int) -> int:
    """Any function of three bits, by its truth table: bit 4a + 2b + c of `table`."""
    result = 0
    for row in range(8):
        x = a if row & 4 else ~a
        y = b if row & 2 else ~b
        z = c if row & 1 else ~c
        result |= x & y & z & -(table >> row & 1)
    return result


@instruction("lop3.b32", "d?, a, b, c, immLut:const u32", section="9.7.8.6", undefined="logic")
def lop3(a: int, b: int, c: int, immLut: int) -> int:
    """Any function of three bits; only the low 8 bits of immLut count."""
    return by_table(a, b, c, immLut)


@instruction(
    "lop3.bool.b32",
    "d:b32|p:pred, a:b32, b:b32, c:b32, immLut:const u32, q:pred",
    section="9.7.8.6",
    bool=".or .and",
)
def lop3_bool(a: int, b: int, c: int, immLut: int, q: int, bool: int, result: int) -> int:
    """Like lop3; the predicate is (result != 0), combined with q."""
    value = by_table(a, b, c, immLut)
    if result == 0:
        return value
    found = 1 if value & mask(32) else 0
    return found & q if bool == AND else found | q
