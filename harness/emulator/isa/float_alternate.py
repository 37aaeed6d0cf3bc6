"""Arithmetic on four e4m3 or e5m2 values in a register, with operands of narrow formats ("alternate", ISA 9.4, 9.7.6).

Each result is the exact sum, product or fused product, rounded once to nearest even. Four 8-bit codes fill a register
of 32 bits; six-bit codes and e2m1 in `e2m1p4x4` have a byte each, whose upper bits are ignored; `e2m1x4` is four codes
in 16 bits. With .satfinite, overflow and infinities give the largest finite value with the same sign. Without it, they
give NaN in e4m3.

The section does not define the following, which is by analogy: overflow in e5m2 gives infinity; signs of zeros and
invalid operations follow IEEE 754; a ue8m0 code of 0xff is a NaN operand; every NaN result, also of an e4m3 overflow,
is 0x7f, as for `cvt` to these formats. Overflow is decided after rounding: 464, a tie, still gives 448.

Specification only: not confirmed on hardware, where each is one instruction (QADD4, QMUL4, QFMA4). The products of e2m1
and e4m3 equal those of `cvt.rn.f16x2`, `mul.rn.f16x2` and `cvt.rn.satfinite.e4m3x2`, which published kernels use
instead. The ISA lets ptxas fuse `mul` and `add` without .rn; 13.4 does not.
"""

from __future__ import annotations

from ptxdiff.emulator.isa.convert_formats import narrow_field, narrow_is_nan, narrow_value, scale_value
from ptxdiff.emulator.isa.modifiers import CODES
from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import scalar
from ptxdiff.emulator.numeric.softfloat import RN, narrow

_RESULTS = ".e5m2x4 .e4m3x4"
_OPERANDS = ".e5m2x4 .e4m3x4 .e3m2x4 .e2m3x4 .e2m1x4 .e2m1p4x4 .ue8m0x4"
_TARGETS = "100a 103a"
_E5M2, _UE8M0 = CODES["e5m2x4"], CODES["ue8m0x4"]
_NAN = float("nan")


@scalar
def _element(a: int, number: int, type: int) -> float:
    """The value of one of the four codes of a register."""
    code = a >> narrow_field(type) * number & 0xFF
    if type == _UE8M0:
        return _NAN if code == 0xFF else scale_value(code)
    return _NAN if narrow_is_nan(code, type) else narrow_value(code, type)


@scalar
def _rounded(x: float, type: int, satfinite: int) -> int:
    """The e4m3 or e5m2 code of a result in float64.

    Products are exact there. Sums are exact too, except where a ue8m0 scale, or a product with one, is so far from the
    other term (a number of the result's format) that the result is that term or an overflow.
    """
    if x != x:
        return 0x7F
    if type == _E5M2:
        code = narrow(x, 5, 2, RN)
        return code - 1 if satfinite and code & 0x7F == 0x7C else code
    # One more exponent bit, so that the highest exponent has no infinity; the biases differ by 8.
    wide = narrow(x / 256.0, 5, 3, RN)
    sign, size = wide >> 1 & 0x80, wide & 0xFF
    if size <= 0x7E:
        return sign | size
    return sign | 0x7E if satfinite else 0x7F


@instruction(
    "add{.rnd}{.satfinite}.dtype.atype",
    "d:dtype, a:atype, c:dtype",
    section="9.7.6.1",
    requires=_TARGETS,
    undefined="four parts",
    rnd=".rn",
    dtype=_RESULTS,
    atype=_OPERANDS,
)
def add_alternate(a: int, c: int, dtype: int, atype: int, satfinite: int) -> int:
    """Four sums; `c` has the result's format."""
    found = 0
    for i in range(4):
        found |= _rounded(_element(a, i, atype) + _element(c, i, dtype), dtype, satfinite) << 8 * i
    return found


@instruction(
    "sub{.rnd}{.satfinite}.dtype.atype",
    "d:dtype, a:atype, c:dtype",
    section="9.7.6.2",
    requires=_TARGETS,
    undefined="four parts",
    rnd=".rn",
    dtype=_RESULTS,
    atype=_OPERANDS,
)
def sub_alternate(a: int, c: int, dtype: int, atype: int, satfinite: int) -> int:
    """Four differences; `c` has the result's format."""
    return add_alternate(a, c ^ 0x80808080, dtype, atype, satfinite)


@instruction(
    "mul{.rnd}{.satfinite}.dtype.atype.ctype",
    "d:dtype, a:atype, c:ctype",
    section="9.7.6.3",
    requires=_TARGETS,
    undefined="four parts",
    rnd=".rn",
    dtype=_RESULTS,
    atype=_OPERANDS,
    ctype=_OPERANDS,
)
def mul_alternate(a: int, c: int, dtype: int, atype: int, ctype: int, satfinite: int) -> int:
    """Four products."""
    found = 0
    for i in range(4):
        found |= _rounded(_element(a, i, atype) * _element(c, i, ctype), dtype, satfinite) << 8 * i
    return found


@instruction(
    "fma{.rnd}{.satfinite}.dtype.atype.btype",
    "d:dtype, a:atype, b:btype, c:dtype",
    section="9.7.6.4",
    requires=_TARGETS,
    undefined="four parts",
    rnd=".rn",
    dtype=_RESULTS,
    atype=_OPERANDS,
    btype=_OPERANDS,
)
def fma_alternate(a: int, b: int, c: int, dtype: int, atype: int, btype: int, satfinite: int) -> int:
    """Four fused multiply-adds; `c` has the result's format."""
    found = 0
    for i in range(4):
        x = _element(a, i, atype) * _element(b, i, btype) + _element(c, i, dtype)
        found |= _rounded(x, dtype, satfinite) << 8 * i
    return found
