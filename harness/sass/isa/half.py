"""float16 and bfloat16 arithmetic, two values in a register."""

from __future__ import annotations

from ptxdiff.emulator.isa.compare import combine
from ptxdiff.emulator.isa.compare_float import compared
from ptxdiff.emulator.isa.convert_float import cvt_f16_f32, cvt_f32_f16
from ptxdiff.emulator.isa.float_extremes import max_halves, max_xorsign_halves, min_halves, min_xorsign_halves
from ptxdiff.emulator.isa.half import add_halves, fma_halves, mul_halves
from ptxdiff.emulator.isa.modifiers import RN
from ptxdiff.emulator.numeric.floatbits import BF16, F16, F32, is_nan
from ptxdiff.sass.isa.single import BOOLEANS, COMPARISONS
from ptxdiff.sass.rows import row

_TYPES = {"": F16, "BF16_V2": BF16}


@row("HADD2{.type}{.FTZ}{.SAT}", "R = h,h", type=_TYPES)
def hadd2(a: int, b: int, type: int, ftz: int, sat: int) -> int:
    """Two sums."""
    return add_halves(a, b, type, ftz, sat)


@row("HADD2.F32", "R = -RZ,e", "R = e,-RZ")
def hadd2_f32(a: int) -> int:
    """A float16 as a float32: the sum with -0."""
    return cvt_f32_f16(a & 0xFFFF, 0)


@row("HADD2.F32.SAT", "R = -RZ,e", "R = e,-RZ")
def hadd2_f32_sat(a: int) -> int:
    """A float16 as a float32 between 0 and 1."""
    return cvt_f32_f16(a & 0xFFFF, 1)


def _beside_a_half(a: int) -> int:
    """The bits of `hadd2_constant` that are not known: the upper half; all of them if the number is no float16."""
    narrow = cvt_f16_f32(a, RN, 0, 0, 0, 0)
    return 0xFFFF0000 if cvt_f32_f16(narrow, 0) == a and not is_nan(a, F32) else 0xFFFFFFFF


@row("HADD2", "R = -RZ,single", label="HADD2.constant", undecided=_beside_a_half)
def hadd2_constant(a: int) -> int:
    """A float16 that lies in a constant bank as a float32, in the lower half."""
    return cvt_f16_f32(a, RN, 0, 0, 0, 0)


@row("HMUL2{.type}{.FTZ}{.SAT}", "R = h,h", type=_TYPES)
def hmul2(a: int, b: int, type: int, ftz: int, sat: int) -> int:
    """Two products."""
    return mul_halves(a, b, type, ftz, sat)


@row("HFMA2{.MMA}{.type}{.FTZ}{.SAT}{.RELU}", "R = h,h,h", type=_TYPES)
def hfma2(a: int, b: int, c: int, type: int, ftz: int, sat: int, relu: int) -> int:
    """Two fused products and sums."""
    return fma_halves(a, b, c, type, relu, 0, ftz, sat)


@row("HFMA2{.MMA}{.type}.OOB{.SAT}{.RELU}", "R = h,h,h", type=_TYPES)
def hfma2_oob(a: int, b: int, c: int, type: int, sat: int, relu: int) -> int:
    """As HFMA2, but +0 where a factor is the NaN that stands for an element out of bounds."""
    return fma_halves(a, b, c, type, relu, 1, 0, sat)


@row("HMNMX2{.type}{.FTZ}{.NAN}", "R = h,h,p", type=_TYPES)
def hmnmx2(a: int, b: int, c: int, type: int, ftz: int, nan: int) -> int:
    """Two smaller numbers if the predicate is true, else two larger ones."""
    return min_halves(a, b, type, ftz, nan) if c else max_halves(a, b, type, ftz, nan)


@row("VHMNMX{.type}{.NAN}", "R = h,h,h,p", type=_TYPES)
def vhmnmx(a: int, b: int, c: int, d: int, type: int, nan: int) -> int:
    """The smallest of three numbers, in each half, if the predicate is true, else the largest."""
    if d:
        return min_halves(min_halves(a, b, type, 0, nan), c, type, 0, nan)
    return max_halves(max_halves(a, b, type, 0, nan), c, type, 0, nan)


@row("HMNMX2{.type}{.FTZ}{.NAN}.XORSIGN", "R = g,g,p", type=_TYPES)
def hmnmx2_xorsign(a: int, b: int, c: int, type: int, ftz: int, nan: int) -> int:
    """As HMNMX2 for the magnitudes, with the products of the signs."""
    return min_xorsign_halves(a, b, type, ftz, nan) if c else max_xorsign_halves(a, b, type, ftz, nan)


@row("HSETP2{.type}.cmp{.FTZ}.bool", "P,P = h,h,p", type=_TYPES, cmp=COMPARISONS, bool=BOOLEANS)
def hsetp2(a: int, b: int, c: int, type: int, cmp: int, bool: int, ftz: int, result: int) -> int:
    """Two comparisons, each joined with a predicate: of the lower halves, then of the upper ones."""
    place = 16 * result
    return combine(compared(a >> place & 0xFFFF, b >> place & 0xFFFF, cmp, ftz, type), c, bool)


@row("HSET2{.type}.BF.cmp{.FTZ}.bool", "R = h,h,p", type=_TYPES, cmp=COMPARISONS, bool=BOOLEANS)
def hset2(a: int, b: int, c: int, type: int, cmp: int, bool: int, ftz: int) -> int:
    """Two comparisons: 1.0 or 0 in each half."""
    one = 0x3F80 if type == BF16 else 0x3C00
    low = one if combine(compared(a & 0xFFFF, b & 0xFFFF, cmp, ftz, type), c, bool) else 0
    return low | (one if combine(compared(a >> 16, b >> 16, cmp, ftz, type), c, bool) else 0) << 16


@row("HSET2{.type}.cmp{.FTZ}.bool", "R = h,h,p", type=_TYPES, cmp=COMPARISONS, bool=BOOLEANS)
def hset2_mask(a: int, b: int, c: int, type: int, cmp: int, bool: int, ftz: int) -> int:
    """Two comparisons: all ones or 0 in each half."""
    low = 0xFFFF if combine(compared(a & 0xFFFF, b & 0xFFFF, cmp, ftz, type), c, bool) else 0
    return low | (0xFFFF if combine(compared(a >> 16, b >> 16, cmp, ftz, type), c, bool) else 0) << 16
