"""Arithmetic on operands of two floating-point formats: mixed precision (ISA 9.7.5; two values in a register from 9.4
on).

float32 results are those of float32 arithmetic on the widened operands, rounded once. float16 and bfloat16 results are
exact sums and products of float32, rounded once towards zero. The section does not define their .ftz: here float32
subnormal operands and float16 subnormal results become zeros of their sign, as elsewhere in the ISA and as in another
public model (not confirmed on hardware either).

Specification only: an H200 does not have these instructions.
"""

from __future__ import annotations

from ptxdiff.emulator.isa.float32 import RND, add_f32, fma_f32, sub_f32
from ptxdiff.emulator.isa.half import mul_half
from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import f32_round, f32_value, scalar, shl64, shr64
from ptxdiff.emulator.numeric.floatbits import BF16, F16, flush
from ptxdiff.emulator.numeric.softfloat import (
    RZ,
    add_odd,
    bf16_from_f64,
    bf16_value,
    f16_from_f64,
    f16_value,
    f32_flush,
)

_HALVES = ".f16 .bf16"
_PAIRS = ".f16x2 .bf16x2"
_PAIRED = "107f"


@scalar
def _widened(a: int, atype: int) -> int:
    """The float32 pattern of a float16 or bfloat16 one, exact."""
    return f32_round(bf16_value(a) if atype == BF16 else f16_value(a))


@instruction(
    "add{.rnd}{.sat}.f32.atype", "d:f32, a:atype, c:f32", section="9.7.5.1", requires=100, rnd=RND, atype=_HALVES
)
def add_mixed(a: int, c: int, rnd: int, sat: int, atype: int) -> int:
    """`a` widened, plus `c`, rounded once."""
    return add_f32(_widened(a, atype), c, rnd, 0, sat)


@instruction(
    "sub{.rnd}{.sat}.f32.atype", "d:f32, a:atype, c:f32", section="9.7.5.2", requires=100, rnd=RND, atype=_HALVES
)
def sub_mixed(a: int, c: int, rnd: int, sat: int, atype: int) -> int:
    """`a` widened, minus `c`, rounded once."""
    return sub_f32(_widened(a, atype), c, rnd, 0, sat)


@instruction(
    "fma.rnd{.sat}.f32.atype",
    "d:f32, a:atype, b:atype, c:f32",
    section="9.7.5.3",
    requires=100,
    rnd=RND,
    atype=_HALVES,
)
def fma_mixed(a: int, b: int, c: int, rnd: int, sat: int, atype: int) -> int:
    """`a` times `b`, both widened, plus `c`, rounded once."""
    return fma_f32(_widened(a, atype), _widened(b, atype), c, rnd, 0, sat)


# Two values in a register, to float32.


@instruction(
    "add{.rnd}.f32x2.atype.f32x2",
    "d:f32x2, a:atype, c:f32x2",
    section="9.7.5.1",
    requires=_PAIRED,
    undefined="two parts",
    rnd=RND,
    atype=_PAIRS,
)
def add_mixed_pair(a: int, c: int, rnd: int, atype: int) -> int:
    """Two sums of `a` widened and `c`."""
    low = add_mixed(a & 0xFFFF, c & 0xFFFFFFFF, rnd, 0, atype)
    return low | shl64(add_mixed(a >> 16, shr64(c, 32), rnd, 0, atype), 32)


@instruction(
    "sub{.rnd}.f32x2.atype.f32x2",
    "d:f32x2, a:atype, c:f32x2",
    section="9.7.5.2",
    requires=_PAIRED,
    undefined="two parts",
    rnd=RND,
    atype=_PAIRS,
)
def sub_mixed_pair(a: int, c: int, rnd: int, atype: int) -> int:
    """Two differences of `a` widened and `c`."""
    low = sub_mixed(a & 0xFFFF, c & 0xFFFFFFFF, rnd, 0, atype)
    return low | shl64(sub_mixed(a >> 16, shr64(c, 32), rnd, 0, atype), 32)


@instruction(
    "fma.rnd.f32x2.atype.f32x2.f32x2",
    "d:f32x2, a:atype, b:f32x2, c:f32x2",
    section="9.7.5.3",
    requires=_PAIRED,
    undefined="two parts",
    rnd=RND,
    atype=_PAIRS,
)
def fma_mixed_pair(a: int, b: int, c: int, rnd: int, atype: int) -> int:
    """Two fused multiply-adds of `a` widened, `b` and `c`. (The section's formula also widens `b`, which is float32
    already.)"""
    low = fma_f32(_widened(a & 0xFFFF, atype), b & 0xFFFFFFFF, c & 0xFFFFFFFF, rnd, 0, 0)
    return low | shl64(fma_f32(_widened(a >> 16, atype), shr64(b, 32), shr64(c, 32), rnd, 0, 0), 32)


# Two values in a register, from float32.


@scalar
def _source(a: int, number: int, dtype: int) -> float:
    """The value of one of two float32, flushed if the result is float16."""
    return f32_value(f32_flush(shr64(a, 32) if number else a & 0xFFFFFFFF, 1 if dtype == F16 else 0))


@scalar
def _cut(x: float, dtype: int) -> int:
    """A float64 (exact or rounded to odd) rounded towards zero to float16 (flushed) or bfloat16; NaN is 0x7fff."""
    return bf16_from_f64(x, RZ) if dtype == BF16 else flush(f16_from_f64(x, RZ), F16, 1)


@instruction(
    "add.rnd.ftz.dtype.f32x2.f32x2",
    "d:dtype, a:f32x2, c:f32x2",
    section="9.7.5.1",
    requires=_PAIRED,
    undefined="two parts",
    rnd=".rz",
    dtype=".f16x2",
)
@instruction(
    "add.rnd.dtype.f32x2.f32x2",
    "d:dtype, a:f32x2, c:f32x2",
    section="9.7.5.1",
    requires=_PAIRED,
    undefined="two parts",
    rnd=".rz",
    dtype=".bf16x2",
)
def add_cut(a: int, c: int, dtype: int) -> int:
    """Two sums of float32, rounded once, towards zero."""
    low = _cut(add_odd(_source(a, 0, dtype), _source(c, 0, dtype)), dtype)
    return low | _cut(add_odd(_source(a, 1, dtype), _source(c, 1, dtype)), dtype) << 16


@instruction(
    "sub.rnd.ftz.dtype.f32x2.f32x2",
    "d:dtype, a:f32x2, c:f32x2",
    section="9.7.5.2",
    requires=_PAIRED,
    undefined="two parts",
    rnd=".rz",
    dtype=".f16x2",
)
@instruction(
    "sub.rnd.dtype.f32x2.f32x2",
    "d:dtype, a:f32x2, c:f32x2",
    section="9.7.5.2",
    requires=_PAIRED,
    undefined="two parts",
    rnd=".rz",
    dtype=".bf16x2",
)
def sub_cut(a: int, c: int, dtype: int) -> int:
    """Two differences of float32, rounded once, towards zero."""
    low = _cut(add_odd(_source(a, 0, dtype), -_source(c, 0, dtype)), dtype)
    return low | _cut(add_odd(_source(a, 1, dtype), -_source(c, 1, dtype)), dtype) << 16


@instruction(
    "mul.rnd.ftz.dtype.f32x2.f32x2",
    "d:dtype, a:f32x2, c:f32x2",
    section="9.7.5.4",
    requires=_PAIRED,
    undefined="two parts",
    rnd=".rz",
    dtype=".f16x2",
)
@instruction(
    "mul.rnd.dtype.f32x2.f32x2",
    "d:dtype, a:f32x2, c:f32x2",
    section="9.7.5.4",
    requires=_PAIRED,
    undefined="two parts",
    rnd=".rz",
    dtype=".bf16x2",
)
def mul_cut(a: int, c: int, dtype: int) -> int:
    """Two products of float32, rounded once, towards zero."""
    low = _cut(_source(a, 0, dtype) * _source(c, 0, dtype), dtype)
    return low | _cut(_source(a, 1, dtype) * _source(c, 1, dtype), dtype) << 16


# float16 times bfloat16.


@scalar
def _converted(c: int, type: int) -> int:
    """A half of the other format converted to this one, rounded to nearest even; NaN is 0x7fff."""
    return bf16_from_f64(f16_value(c), 0) if type == BF16 else f16_from_f64(bf16_value(c), 0)


@instruction(
    "mul.f16x2.f16x2.bf16x2",
    "d:f16x2, a:f16x2, c:bf16x2",
    section="9.7.5.4",
    requires=_PAIRED,
    contracts="mul",
    undefined="halves",
    given={"type": F16},
)
@instruction(
    "mul.bf16x2.bf16x2.f16x2",
    "d:bf16x2, a:bf16x2, c:f16x2",
    section="9.7.5.4",
    requires=_PAIRED,
    contracts="mul",
    undefined="halves",
    given={"type": BF16},
)
def mul_other_half(a: int, c: int, type: int) -> int:
    """Two products of `a` and `c` converted to the format of `a`, each product rounded to nearest even.

    The section converts first and does not say how. Here the conversion also rounds to nearest even (as in another
    public model). So a product is rounded twice, and a large bfloat16 becomes infinity before the multiplication.
    Hardware has one instruction (HMUL2), which may round once. If ptxas 13.4 fuses the product with a sum, its machine
    code has no conversion: the fused multiply-add reads `c` as of the other format.
    """
    low = mul_half(a & 0xFFFF, _converted(c & 0xFFFF, type), type, 0, 0)
    return low | mul_half(a >> 16, _converted(c >> 16, type), type, 0, 0) << 16
