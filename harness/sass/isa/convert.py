"""Conversions between formats."""

from __future__ import annotations

from ptxdiff.ptx.isa.convert_float import (
    cvt_bf16x2_f32,
    cvt_f16x2_f32,
    cvt_f32_f64,
    cvt_f64_f32,
    cvt_tf32_f32,
)
from ptxdiff.ptx.isa.convert_integer import cvt_f16_integer, cvt_f32_integer
from ptxdiff.ptx.isa.convert_integral import cvt_integer_f32, cvt_integral_f32
from ptxdiff.ptx.isa.convert_narrow import cvt_f16x2_narrow, cvt_narrow_f32
from ptxdiff.ptx.isa.convert_scale import cvt_bf16x2_ue8m0x2, cvt_ue8m0x2_f32
from ptxdiff.ptx.isa.modifiers import RM, RN, RP, RZ
from ptxdiff.ptx.text.narrow import NARROW
from ptxdiff.sass.rows import row

_TWO = {"": RN, "RZ": RZ}
_ALL = {"": RN, "RZ": RZ, "RM": RM, "RP": RP}
_INTEGRAL = {"": RN, "TRUNC": RZ, "FLOOR": RM, "CEIL": RP}
_CODES = {n.name: n.code for n in NARROW if n.code is not None}
_PAIRS = {name.upper(): _CODES[name] for name in ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")}
_BYTES = {name.upper(): _CODES[name] for name in ("e4m3", "e5m2", "e2m3", "e3m2")}


@row("F2FP{.rnd}{.RELU}{.F16}{.F32}.PACK_AB", "R = f,f", rnd=_TWO)
def f2fp_f16(a: int, b: int, rnd: int, relu: int) -> int:
    """Two float32 as float16: the first in the upper half."""
    return cvt_f16x2_f32(a, b, rnd, relu, 0, 0)


@row("F2FP{.rnd}{.RELU}.BF16{.F32}.PACK_AB", "R = f,f", rnd=_TWO)
def f2fp_bf16(a: int, b: int, rnd: int, relu: int) -> int:
    """Two float32 as bfloat16: the first in the upper half."""
    return cvt_bf16x2_f32(a, b, rnd, relu, 0, 0)


@row("F2FP{.RELU}.TF32.F32.PACK_B{.rnd}", "R = f", rnd=_TWO)
def f2fp_tf32(a: int, rnd: int, relu: int) -> int:
    """A float32 rounded to the precision of tf32."""
    return cvt_tf32_f32(a, rnd, 0, relu, 0)


@row("F2FP.SATFINITE{.RELU}.form{.F32}.PACK_AB_MERGE_C", "R = f,f,RZ", form=_PAIRS)
def f2fp_narrow(a: int, b: int, relu: int, form: int) -> int:
    """Two float32 as narrow numbers: the first in the upper part. The third operand would fill the upper half."""
    return cvt_narrow_f32(a, b, RN, relu, 0, form)


@row("F2FP{.SATFINITE}.E8.F32.PACK_AB_MERGE_C.rnd", "R = f,f,RZ", rnd={"RZ": RZ, "RP": RP})
def f2fp_e8(a: int, b: int, rnd: int, satfinite: int) -> int:
    """Two float32 as powers of two (ue8m0): the first in the upper byte."""
    return cvt_ue8m0x2_f32(a, b, rnd, satfinite)


@row("F2FP.F16{.RELU}.form.UNPACK_B", "R = k", form=_BYTES)
@row("F2FP.F16{.RELU}.E2M1.UNPACK_B", "R = y")
def f2fp_unpacked(a: int, relu: int, form: int = _CODES["e2m1"]) -> int:
    """Two narrow numbers as float16."""
    return cvt_f16x2_narrow(a, form, relu)


@row("F2FP.BF16.E8.UNPACK_B", "R = k")
def f2fp_unpacked_e8(a: int) -> int:
    """Two powers of two (ue8m0) as bfloat16."""
    return cvt_bf16x2_ue8m0x2(a)


@row("F2F.F32.F64{.rnd}", "R = d", rnd=_ALL)
def f2f_f32(a: int, rnd: int) -> int:
    """A float64 as a float32."""
    return cvt_f32_f64(a, rnd, 0, 0)


@row("F2F.F64.F32", "R2 = f")
def f2f_f64(a: int) -> int:
    """A float32 as a float64."""
    return cvt_f64_f32(a, 0, 0)


@row("F2I{.FTZ}{.sign}{.rnd}.NTZ", "R = f", sign={"": 1, "U32": 0}, rnd=_INTEGRAL)
def f2i(a: int, ftz: int, sign: int, rnd: int) -> int:
    """A float32 as an integer of 32 bits; 0 for NaN."""
    return cvt_integer_f32(a, rnd, ftz, 32, sign)


@row("FRND{.FTZ}{.rnd}", "R = f", rnd=_INTEGRAL)
def frnd(a: int, ftz: int, rnd: int) -> int:
    """A float32 as an integral float32."""
    return cvt_integral_f32(a, rnd, ftz, 0)


@row("I2F{.rnd}", "R = s", rnd=_ALL)
@row("I2FP.F32.S32{.rnd}", "R = s", rnd=_ALL)
def i2f(a: int, rnd: int) -> int:
    """A signed integer as a float32."""
    return cvt_f32_integer(a, rnd, 0, 32, 1)


@row("I2F.U32{.rnd}", "R = u", rnd=_ALL)
@row("I2FP.F32.U32{.rnd}", "R = u", rnd=_ALL)
def i2f_u32(a: int, rnd: int) -> int:
    """An unsigned integer as a float32."""
    return cvt_f32_integer(a, rnd, 0, 32, 0)


@row("I2F.F16{.rnd}", "R = s", rnd=_ALL)
def i2f_f16(a: int, rnd: int) -> int:
    """A signed integer as a float16 in the lower half."""
    return cvt_f16_integer(a, rnd, 0, 32, 1)


@row("I2F.F16.U32{.rnd}", "R = u", rnd=_ALL)
def i2f_f16_u32(a: int, rnd: int) -> int:
    """An unsigned integer as a float16 in the lower half."""
    return cvt_f16_integer(a, rnd, 0, 32, 0)
