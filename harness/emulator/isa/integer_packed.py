"""Integer arithmetic and comparison on two halves or four bytes of a register.

ISA 9.7.1, bytes and .sat since ISA 9.2; `set` since ISA 9.4, 9.7.7.1.

The parameter `type` is the code of a packed type: the bits of an element, and 32 more if it is signed.
"""

from __future__ import annotations

from ptxdiff.emulator.isa.compare import ordered
from ptxdiff.emulator.isa.integer import saturate
from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import mask, scalar, sign_extend

_HALVES = ".u16x2 .s16x2"
_BYTES = ".u8x4 .s8x4"
_CMP = ".eq .ne .lt .le .gt .ge"
_UNSIGNED_CMP = _CMP + " .lo .ls .hi .hs"
_SET = "9.7.7.1 (ISA 9.4)"


@scalar
def element(x: int, i: int, type: int) -> int:
    """Element `i` of a packed register, signed or unsigned according to the type."""
    bits = type & 31
    value = x >> (i * bits) & mask(bits)
    return sign_extend(value, bits) if type & 32 else value


@scalar
def placed(value: int, i: int, type: int) -> int:
    """`value`, truncated to an element and shifted to position `i`."""
    bits = type & 31
    return (value & mask(bits)) << (i * bits)


@scalar
def bounded(value: int, sat: int, type: int) -> int:
    """`value`, clamped to an element's range if `sat`."""
    return saturate(value, type & 31, type >> 5) if sat else value


@instruction("add.type", "d, a, b", section="9.7.1.1", type=_HALVES, requires=90, undefined="halves")
@instruction("add.sat.type", "d, a, b", section="9.7.1.1", type=_HALVES, requires="107f 120f", undefined="halves")
@instruction("add{.sat}.type", "d, a, b", section="9.7.1.1", type=_BYTES, requires="107f 120f", undefined="bytes")
def add_packed(a: int, b: int, type: int, sat: int = 0) -> int:
    """Sums of the elements, wrapping, or clamped with .sat."""
    result = 0
    for i in range(32 // (type & 31)):
        result |= placed(bounded(element(a, i, type) + element(b, i, type), sat, type), i, type)
    return result


@instruction("sub{.sat}.type", "d, a, b", section="9.7.1.2", type=_BYTES, requires="107f 120f", undefined="bytes")
def sub_packed(a: int, b: int, type: int, sat: int) -> int:
    """Differences of the elements, wrapping, or clamped with .sat."""
    result = 0
    for i in range(32 // (type & 31)):
        result |= placed(bounded(element(a, i, type) - element(b, i, type), sat, type), i, type)
    return result


@instruction("neg.type", "d, a", section="9.7.1.11", type=".s8x4", requires="107f 120f", undefined="bytes")
def neg_packed(a: int, type: int) -> int:
    """Two's complement of each element; the most negative gives itself."""
    result = 0
    for i in range(32 // (type & 31)):
        result |= placed(-element(a, i, type), i, type)
    return result


@instruction("min.type", "d, a, b", section="9.7.1.12", type=".u16x2", requires=90, undefined="halves")
@instruction("min{.relu}.type", "d, a, b", section="9.7.1.12", type=".s16x2", requires=90, undefined="halves")
@instruction("min.type", "d, a, b", section="9.7.1.12", type=".u8x4", requires="107f 120f", undefined="bytes")
@instruction("min{.relu}.type", "d, a, b", section="9.7.1.12", type=".s8x4", requires="107f 120f", undefined="bytes")
def min_packed(a: int, b: int, type: int, relu: int = 0) -> int:
    """The smaller of each pair of elements; with .relu not below zero."""
    result = 0
    for i in range(32 // (type & 31)):
        value = min(element(a, i, type), element(b, i, type))
        result |= placed(max(value, 0) if relu else value, i, type)
    return result


@instruction("max.type", "d, a, b", section="9.7.1.13", type=".u16x2", requires=90, undefined="halves")
@instruction("max{.relu}.type", "d, a, b", section="9.7.1.13", type=".s16x2", requires=90, undefined="halves")
@instruction("max.type", "d, a, b", section="9.7.1.13", type=".u8x4", requires="107f 120f", undefined="bytes")
@instruction("max{.relu}.type", "d, a, b", section="9.7.1.13", type=".s8x4", requires="107f 120f", undefined="bytes")
def max_packed(a: int, b: int, type: int, relu: int = 0) -> int:
    """The larger of each pair of elements; with .relu not below zero."""
    result = 0
    for i in range(32 // (type & 31)):
        value = max(element(a, i, type), element(b, i, type))
        result |= placed(max(value, 0) if relu else value, i, type)
    return result


@instruction(
    "set.cmp.type", "d, a, b", section=_SET, cmp=_UNSIGNED_CMP, type=".u16x2", requires="107f", undefined="halves"
)
@instruction("set.cmp.type", "d, a, b", section=_SET, cmp=_CMP, type=".s16x2", requires="107f", undefined="halves")
@instruction(
    "set.cmp.type", "d, a, b", section=_SET, cmp=_UNSIGNED_CMP, type=".u8x4", requires="107f", undefined="bytes"
)
@instruction("set.cmp.type", "d, a, b", section=_SET, cmp=_CMP, type=".s8x4", requires="107f", undefined="bytes")
def set_packed(a: int, b: int, cmp: int, type: int) -> int:
    """Compare each pair of elements: all ones in the element, or zeros."""
    result = 0
    for i in range(32 // (type & 31)):
        x, y = element(a, i, type), element(b, i, type)
        result |= placed(-1 if ordered(cmp, x < y, x == y) else 0, i, type)
    return result
