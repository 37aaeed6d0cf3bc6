"""float16 and bfloat16 arithmetic, with one or two values in a register (ISA 9.7.4).

NaN results are 0x7fff. With .ftz (float16 only) subnormal operands and results are zeros of their sign; .sat clamps
to [0, 1] with NaN as +0; .relu turns negative results, including -0, into +0.
"""

from __future__ import annotations

from ptxdiff.emulator.isa.float32 import fma_f32
from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import f32_round, f32_value, scalar
from ptxdiff.emulator.numeric.floatbits import BF16, flush, value_of
from ptxdiff.emulator.numeric.softfloat import add_odd, f16_from_f64, f16_value, narrow

OOB_NAN = 0x7FF7
"""The NaN (of either sign, in both formats) that marks an element outside a tensor.

The ISA does not state it. On an H200 only this NaN gives 0, and only as a factor.
"""


@scalar
def half_round(x: float, type: int, ftz: int) -> int:
    """A float64 (exact or rounded to odd) rounded to nearest even, and flushed as in `softfloat.f32_finish`."""
    if x != x:
        return 0x7FFF
    if type == BF16:
        return narrow(x, 8, 7, 0)
    y = narrow(x, 5, 10, 0)
    if ftz and abs(x) < 0.00006103515625:
        # Scaling 2**-14 to 2**-4 rounds as with an unbounded exponent.
        wide = narrow(x * 1024.0, 5, 10, 0) & 0x7FFF
        y = (y & 0x8000) | (0x0400 if wide >= 0x2C00 else 0)
    return y


@scalar
def _finish(x: float, type: int, ftz: int, sat: int, relu: int) -> int:
    """Round, then clamp."""
    if x != x:
        return 0 if sat else 0x7FFF
    y = half_round(x, type, ftz)
    if (sat or relu) and y & 0x8000:
        return 0
    return min(y, 0x3C00) if sat else y


@scalar
def _clear_oob(found: int, a: int, b: int, oob: int) -> int:
    """`found`, or with .oob +0 if a factor is the out-of-bounds NaN."""
    return 0 if oob and ((a & 0x7FFF) == OOB_NAN or (b & 0x7FFF) == OOB_NAN) else found


@instruction("add{.rnd}{.ftz}{.sat}.type", "d, a, b", section="9.7.4.1", type=".f16", rnd=".rn", contracts="add")
@instruction("add{.rnd}.type", "d, a, b", section="9.7.4.1", type=".bf16", requires=90, rnd=".rn", contracts="add")
def add_half(a: int, b: int, type: int, ftz: int = 0, sat: int = 0) -> int:
    """Sum, rounded to nearest even."""
    return _finish(value_of(flush(a, type, ftz), type) + value_of(flush(b, type, ftz), type), type, ftz, sat, 0)


@instruction("sub{.rnd}{.ftz}{.sat}.type", "d, a, b", section="9.7.4.2", type=".f16", rnd=".rn", contracts="sub")
@instruction("sub{.rnd}.type", "d, a, b", section="9.7.4.2", type=".bf16", requires=90, rnd=".rn", contracts="sub")
def sub_half(a: int, b: int, type: int, ftz: int = 0, sat: int = 0) -> int:
    """Difference, rounded to nearest even."""
    return add_half(a, b ^ 0x8000, type, ftz, sat)


@instruction("mul{.rnd}{.ftz}{.sat}.type", "d, a, b", section="9.7.4.3", type=".f16", rnd=".rn", contracts="mul")
@instruction("mul{.rnd}.type", "d, a, b", section="9.7.4.3", type=".bf16", requires=90, rnd=".rn", contracts="mul")
def mul_half(a: int, b: int, type: int, ftz: int = 0, sat: int = 0) -> int:
    """Product, rounded to nearest even."""
    return _finish(value_of(flush(a, type, ftz), type) * value_of(flush(b, type, ftz), type), type, ftz, sat, 0)


_RELU = {"relu": 80, "oob": 90}
_F16_CLASHES = [".sat .relu", ".ftz .oob"]


@instruction(
    "fma.rnd{.ftz}{.sat}{.relu}{.oob}.type",
    "d, a, b, c",
    section="9.7.4.4",
    type=".f16",
    rnd=".rn",
    needs=_RELU,
    excludes=_F16_CLASHES,
)
@instruction(
    "fma.rnd{.relu}{.oob}.type", "d, a, b, c", section="9.7.4.4", type=".bf16", requires=80, rnd=".rn", needs=_RELU
)
def fma_half(a: int, b: int, c: int, type: int, relu: int, oob: int, ftz: int = 0, sat: int = 0) -> int:
    """a * b + c, rounded once to nearest even; with .oob, +0 if a factor is the out-of-bounds NaN."""
    p = value_of(flush(a, type, ftz), type) * value_of(flush(b, type, ftz), type)
    found = _finish(add_odd(p, value_of(flush(c, type, ftz), type)), type, ftz, sat, relu)
    return _clear_oob(found, a, b, oob)


@instruction(
    "fma.rnd{.relu}{.oob}.bf16",
    "d, a, b, c",
    section="9.7.4.4",
    requires=80,
    rnd=".rz .rm .rp",
    needs=_RELU,
)
def fma_bf16_directed(a: int, b: int, c: int, rnd: int) -> int:
    """Not in the ISA. The code of ptxas 12.9 and 13.4 on every target computes with float16 values.

    By its machine code, it is a float32 fma with the written rounding mode on the operands read as float16, rounded to
    the nearest float16; .relu and .oob have no effect.
    """
    x, y, z = f32_round(f16_value(a)), f32_round(f16_value(b)), f32_round(f16_value(c))
    return f16_from_f64(f32_value(fma_f32(x, y, z, rnd, 0, 0)), 0)


# Two values in a register; each half is computed separately.


@instruction(
    "add{.rnd}{.ftz}{.sat}.type",
    "d, a, b",
    section="9.7.4.1",
    type=".f16x2",
    rnd=".rn",
    contracts="add",
    undefined="halves",
)
@instruction(
    "add{.rnd}.type",
    "d, a, b",
    section="9.7.4.1",
    type=".bf16x2",
    requires=90,
    rnd=".rn",
    contracts="add",
    undefined="halves",
)
def add_halves(a: int, b: int, type: int, ftz: int = 0, sat: int = 0) -> int:
    """Two sums."""
    low = add_half(a & 0xFFFF, b & 0xFFFF, type, ftz, sat)
    return low | add_half(a >> 16, b >> 16, type, ftz, sat) << 16


@instruction(
    "sub{.rnd}{.ftz}{.sat}.type",
    "d, a, b",
    section="9.7.4.2",
    type=".f16x2",
    rnd=".rn",
    contracts="sub",
    undefined="halves",
)
@instruction(
    "sub{.rnd}.type",
    "d, a, b",
    section="9.7.4.2",
    type=".bf16x2",
    requires=90,
    rnd=".rn",
    contracts="sub",
    undefined="halves",
)
def sub_halves(a: int, b: int, type: int, ftz: int = 0, sat: int = 0) -> int:
    """Two differences."""
    low = sub_half(a & 0xFFFF, b & 0xFFFF, type, ftz, sat)
    return low | sub_half(a >> 16, b >> 16, type, ftz, sat) << 16


@instruction(
    "mul{.rnd}{.ftz}{.sat}.type",
    "d, a, b",
    section="9.7.4.3",
    type=".f16x2",
    rnd=".rn",
    contracts="mul",
    undefined="halves",
)
@instruction(
    "mul{.rnd}.type",
    "d, a, b",
    section="9.7.4.3",
    type=".bf16x2",
    requires=90,
    rnd=".rn",
    contracts="mul",
    undefined="halves",
)
def mul_halves(a: int, b: int, type: int, ftz: int = 0, sat: int = 0) -> int:
    """Two products."""
    low = mul_half(a & 0xFFFF, b & 0xFFFF, type, ftz, sat)
    return low | mul_half(a >> 16, b >> 16, type, ftz, sat) << 16


@instruction(
    "fma.rnd{.ftz}{.sat}{.relu}{.oob}.type",
    "d, a, b, c",
    section="9.7.4.4",
    type=".f16x2",
    rnd=".rn",
    needs=_RELU,
    excludes=_F16_CLASHES,
    undefined="halves",
)
@instruction(
    "fma.rnd{.relu}{.oob}.type",
    "d, a, b, c",
    section="9.7.4.4",
    type=".bf16x2",
    requires=80,
    rnd=".rn .rz .rm .rp",
    needs=_RELU,
    undefined="halves",
)
def fma_halves(a: int, b: int, c: int, type: int, relu: int, oob: int, ftz: int = 0, sat: int = 0) -> int:
    """Two fused multiply-adds, to nearest even: ptxas accepts other modes for bf16x2 and drops them."""
    low = fma_half(a & 0xFFFF, b & 0xFFFF, c & 0xFFFF, type, relu, oob, ftz, sat)
    return low | fma_half(a >> 16, b >> 16, c >> 16, type, relu, oob, ftz, sat) << 16
