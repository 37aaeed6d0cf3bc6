"""float32 arithmetic, comparison and the special function unit.

MUFU has the tables measured on Hopper (`ptxdiff.emulator.numeric.special_functions`); for other generations it is a
model.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from ptxdiff.emulator.isa.approximate64 import rcp_approx_f64, rsqrt_approx_ftz_f64
from ptxdiff.emulator.isa.approximate_half import ex2_half, tanh_half
from ptxdiff.emulator.isa.compare import combine
from ptxdiff.emulator.isa.compare_float import compared
from ptxdiff.emulator.isa.float32 import add_f32, add_f32x2, fma_f32, fma_f32x2, mul_f32, mul_f32x2
from ptxdiff.emulator.isa.float_extremes import greater, lesser
from ptxdiff.emulator.isa.float_mixed import add_mixed, fma_mixed
from ptxdiff.emulator.isa.modifiers import (
    EQ,
    EQU,
    GE,
    GEU,
    GT,
    GTU,
    LE,
    LEU,
    LT,
    LTU,
    NAN,
    NE,
    NEU,
    NUM,
    RM,
    RN,
    RP,
    RZ,
)
from ptxdiff.emulator.numeric.bits import shl64, shr64
from ptxdiff.emulator.numeric.floatbits import BF16, F16, F32, flush, is_nan, magnitude
from ptxdiff.emulator.numeric.special_functions import (
    unit_cos,
    unit_ex2,
    unit_lg2,
    unit_rcp,
    unit_rsqrt,
    unit_sin,
    unit_sqrt,
    unit_tanh,
)
from ptxdiff.sass.rows import row

ROUNDINGS = {"": RN, "RM": RM, "RP": RP, "RZ": RZ}
COMPARISONS = {
    "EQ": EQ, "NE": NE, "LT": LT, "LE": LE, "GT": GT, "GE": GE,
    "EQU": EQU, "NEU": NEU, "LTU": LTU, "LEU": LEU, "GTU": GTU, "GEU": GEU, "NUM": NUM, "NAN": NAN,
}  # fmt: skip
BOOLEANS = {"AND": 0, "OR": 1, "XOR": 2}


@row("FADD{.FTZ}{.rnd}{.SAT}", "R = f,f", rnd=ROUNDINGS, uniform=True)
def fadd(a: int, b: int, rnd: int, ftz: int, sat: int) -> int:
    """Sum."""
    return add_f32(a, b, rnd, ftz, sat)


@row("FMUL{.FTZ}{.rnd}{.SAT}", "R = f,f", rnd=ROUNDINGS, uniform=True)
def fmul(a: int, b: int, rnd: int, ftz: int, sat: int) -> int:
    """Product."""
    return mul_f32(a, b, rnd, ftz, sat)


@row("FFMA{.FTZ}{.rnd}{.SAT}", "R = f,f,f", rnd=ROUNDINGS, uniform=True)
def ffma(a: int, b: int, c: int, rnd: int, ftz: int, sat: int) -> int:
    """Fused product and sum."""
    return fma_f32(a, b, c, rnd, ftz, sat)


@row("FADD2{.FTZ}{.rnd}", "R2 = x,x", rnd=ROUNDINGS)
def fadd2(a: int, b: int, rnd: int, ftz: int) -> int:
    """Two sums."""
    return add_f32x2(a, b, rnd, ftz)


@row("FMUL2{.FTZ}{.rnd}", "R2 = x,x", rnd=ROUNDINGS)
def fmul2(a: int, b: int, rnd: int, ftz: int) -> int:
    """Two products."""
    return mul_f32x2(a, b, rnd, ftz)


@row("FFMA2{.FTZ}{.rnd}", "R2 = x,x,x", rnd=ROUNDINGS)
def ffma2(a: int, b: int, c: int, rnd: int, ftz: int) -> int:
    """Two fused products and sums."""
    return fma_f32x2(a, b, c, rnd, ftz)


@row("FSETP.cmp{.FTZ}.bool", "P,P = f,f,p", cmp=COMPARISONS, bool=BOOLEANS, uniform=True)
def fsetp(a: int, b: int, c: int, cmp: int, bool: int, ftz: int, result: int) -> int:
    """A comparison joined with a predicate; the second destination gets the opposite comparison, joined too."""
    return combine(compared(a, b, cmp, ftz, F32) == (result == 0), c, bool)


@row("FSET.BF.cmp{.FTZ}.bool", "R = f,f,p", cmp=COMPARISONS, bool=BOOLEANS)
def fset(a: int, b: int, c: int, cmp: int, bool: int, ftz: int) -> int:
    """1.0 if a comparison joined with a predicate holds, else 0."""
    return 0x3F800000 if combine(compared(a, b, cmp, ftz, F32), c, bool) else 0


@row("FMNMX{.FTZ}{.NAN}", "R = f,f,p", uniform=True)
def fmnmx(a: int, b: int, c: int, ftz: int, nan: int) -> int:
    """The smaller of two numbers if the predicate is true, else the larger."""
    x, y = flush(a, F32, ftz), flush(b, F32, ftz)
    return lesser(x, y, nan, F32) if c else greater(x, y, nan, F32)


@row("FMNMX{.FTZ}{.NAN}.XORSIGN", "R = a,a,p")
def fmnmx_xorsign(a: int, b: int, c: int, ftz: int, nan: int) -> int:
    """As FMNMX for the magnitudes, with the product of the two signs; a NaN has no sign."""
    x, y = flush(a, F32, ftz), flush(b, F32, ftz)
    size, other = magnitude(x, F32), magnitude(y, F32)
    found = lesser(size, other, nan, F32) if c else greater(size, other, nan, F32)
    return found if is_nan(found, F32) else found | ((a ^ b) & 0x80000000)


@row("FMNMX3{.FTZ}{.NAN}", "R = f,f,f,p")
def fmnmx3(a: int, b: int, c: int, d: int, ftz: int, nan: int) -> int:
    """The smallest of three numbers if the predicate is true, else the largest."""
    x, y, z = flush(a, F32, ftz), flush(b, F32, ftz), flush(c, F32, ftz)
    if d:
        return lesser(lesser(x, y, nan, F32), z, nan, F32)
    return greater(greater(x, y, nan, F32), z, nan, F32)


@row("FCHK", "P = f,f", approximate=True)
def fchk(a: int, b: int) -> int:
    """Whether a quotient needs the slow path: operands or quotient near the ends of the range.

    NVIDIA does not document the border. This one is an H100's, for all pairs of exponents with four fractions each
    (`tests/gpu/machine_code.py record doubts`). On both sides of a border both paths are right.
    """
    x, y = a >> 23 & 255, b >> 23 & 255
    return 0 if 25 <= x <= 254 and 2 <= y <= 251 and -124 <= x - y <= 126 else 1


@row("MUFU.RCP", "R = f", approximate=True)
def mufu_rcp(a: int) -> int:
    """About 1 / a."""
    return unit_rcp(a)


@row("MUFU.RSQ", "R = f", approximate=True)
def mufu_rsq(a: int) -> int:
    """About 1 / sqrt(a)."""
    return unit_rsqrt(a)


@row("MUFU.SQRT", "R = f", approximate=True)
def mufu_sqrt(a: int) -> int:
    """About the square root."""
    return unit_sqrt(a)


@row("MUFU.EX2", "R = f", approximate=True)
def mufu_ex2(a: int) -> int:
    """About 2**a."""
    return unit_ex2(a)


@row("MUFU.LG2", "R = f", approximate=True)
def mufu_lg2(a: int) -> int:
    """About log2(a)."""
    return unit_lg2(a)


@row("MUFU.SIN", "R = f", approximate=True)
def mufu_sin(a: int) -> int:
    """About the sine of a turns."""
    return unit_sin(a)


@row("MUFU.COS", "R = f", approximate=True)
def mufu_cos(a: int) -> int:
    """About the cosine of a turns."""
    return unit_cos(a)


@row("MUFU.TANH", "R = f", approximate=True)
def mufu_tanh(a: int) -> int:
    """About the hyperbolic tangent."""
    return unit_tanh(a)


@row("MUFU.RCP64H", "R = f", approximate=True)
def mufu_rcp64h(a: int) -> int:
    """The upper word of about 1 / a, for the upper word of a float64."""
    return shr64(rcp_approx_f64(shl64(a, 32)), 32)


@row("MUFU.RSQ64H", "R = f", approximate=True)
def mufu_rsq64h(a: int) -> int:
    """The upper word of about 1 / sqrt(a), for the upper word of a float64."""
    return shr64(rsqrt_approx_ftz_f64(shl64(a, 32)), 32)


@row("MUFU.EX2.type", "R = k", type={"F16": F16, "BF16": BF16}, approximate=True)
def mufu_ex2_half(a: int, type: int) -> int:
    """About 2**a, in the lower half."""
    return ex2_half(a, type)


@row("MUFU.TANH.type", "R = k", type={"F16": F16, "BF16": BF16}, approximate=True)
def mufu_tanh_half(a: int, type: int) -> int:
    """About the hyperbolic tangent, in the lower half."""
    return tanh_half(a, type)


@row("FHADD{.type}{.rnd}{.SAT}", "R = k,f", type={"": F16, "BF16": BF16}, rnd=ROUNDINGS)
def fhadd(a: int, b: int, type: int, rnd: int, sat: int) -> int:
    """The sum of a float16 or bfloat16 and a float32."""
    return add_mixed(a, b, rnd, sat, type)


@row("FHFMA{.type}{.rnd}{.SAT}", "R = k,k,f", type={"": F16, "BF16": BF16}, rnd=ROUNDINGS)
def fhfma(a: int, b: int, c: int, type: int, rnd: int, sat: int) -> int:
    """The fused product of two float16 or bfloat16, plus a float32."""
    return fma_mixed(a, b, c, rnd, sat, type)


@row("MUFU.EX2.type", "R = u", type={"F16x2": F16, "BF16x2": BF16}, approximate=True, label="MUFU.EX2.x2")
def mufu_ex2_halves(a: int, type: int) -> int:
    """About 2**a in each half."""
    return ex2_half(a >> 16, type) << 16 | ex2_half(a & 0xFFFF, type)


# Pairs of which the halves are exchanged, or one number is negated, come so to the definition.


_CHANGED = {"X": ".exchanged", "N": ".one_negated", "XN": ".exchanged.one_negated", "XNZ": ".exchanged_and_negated"}
"""Kinds of pairs, the last of which must occur (of two kinds both), and what they add to the label of a row."""


def _of_changed_pairs(name: str, count: int, definition: Callable[..., int]) -> None:
    for kinds, label in _CHANGED.items():
        needed = {kinds[-1]} if len(kinds) > 2 else set(kinds)
        every = (pairs for pairs in product("x" + kinds, repeat=count) if needed <= set(pairs))
        shapes = [f"R2 = {','.join(pairs)}" for pairs in every]
        pattern, more = f"{name}{{.FTZ}}{{.rnd}}", f"{name}{label}{{.FTZ}}{{.rnd}}"
        row(pattern, *shapes, rnd=ROUNDINGS, label=more)(definition)


_of_changed_pairs("FADD2", 2, fadd2)
_of_changed_pairs("FMUL2", 2, fmul2)
_of_changed_pairs("FFMA2", 3, ffma2)
