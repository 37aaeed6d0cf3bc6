"""Conversions between formats."""

from __future__ import annotations

from ptxdiff.emulator.isa.convert_float import (
    cvt_bf16_f16,
    cvt_bf16_f32,
    cvt_bf16x2_f32,
    cvt_f16_f32,
    cvt_f16x2_f32,
    cvt_f32_f64,
    cvt_f64_f32,
    cvt_tf32_f32,
)
from ptxdiff.emulator.isa.convert_integer import cvt_f16_integer, cvt_f32_integer, cvt_f64_integer
from ptxdiff.emulator.isa.convert_integral import cvt_integer_f32, cvt_integer_f64, cvt_integral_f32, cvt_integral_f64
from ptxdiff.emulator.isa.convert_narrow import cvt_f16x2_narrow, cvt_narrow_f32
from ptxdiff.emulator.isa.convert_scale import cvt_bf16x2_ue8m0x2, cvt_ue8m0x2_f32
from ptxdiff.emulator.isa.modifiers import RM, RN, RP, RZ
from ptxdiff.emulator.numeric.bits import sign_extend
from ptxdiff.emulator.numeric.softfloat import f32_flush
from ptxdiff.emulator.text.narrow import NARROW
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


@row("F2FP.SATFINITE{.RELU}.form{.F32}.PACK_AB_MERGE_C", "R = f,f,u", form=_PAIRS)
def f2fp_narrow(a: int, b: int, c: int, relu: int, form: int) -> int:
    """Two float32 as narrow numbers: the first in the upper part. The third operand fills the upper half."""
    return (cvt_narrow_f32(a, b, RN, relu, 0, form) & 0xFFFF) | (c & 0xFFFF) << 16


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


@row("I2F.F16.S16{.rnd}", "R = k", rnd=_ALL)
def i2f_f16_s16(a: int, rnd: int) -> int:
    """Half of a register, a signed integer, as a float16 in the lower half."""
    return cvt_f16_integer(sign_extend(a, 16), rnd, 0, 16, 1)


@row("I2F.F16.U16{.rnd}", "R = k", rnd=_ALL)
def i2f_f16_u16(a: int, rnd: int) -> int:
    """Half of a register, an unsigned integer, as a float16 in the lower half."""
    return cvt_f16_integer(a, rnd, 0, 16, 0)


@row("F2F.BF16.F16{.rnd}", "R = k", rnd=_ALL)
def f2f_bf16_f16(a: int, rnd: int) -> int:
    """A float16 as a bfloat16 in the lower half."""
    return cvt_bf16_f16(a, rnd)


@row("F2F{.FTZ}.F16.F32{.rnd}", "R = f", rnd=_ALL)
def f2f_f16(a: int, ftz: int, rnd: int) -> int:
    """A float32 as a float16 in the lower half."""
    return cvt_f16_f32(f32_flush(a, ftz), rnd, 0, 0, 0, 0)


@row("F2F{.FTZ}.BF16.F32{.rnd}", "R = f", rnd=_ALL)
def f2f_bf16(a: int, ftz: int, rnd: int) -> int:
    """A float32 as a bfloat16 in the lower half."""
    return cvt_bf16_f32(a, rnd, ftz, 0, 0, 0)


@row("I2F.F64{.rnd}", "R2 = s", rnd=_ALL)
def i2f_f64(a: int, rnd: int) -> int:
    """A signed integer as a float64."""
    return cvt_f64_integer(a, rnd, 0, 32, 1)


@row("I2F.F64.U32{.rnd}", "R2 = u", rnd=_ALL)
def i2f_f64_u32(a: int, rnd: int) -> int:
    """An unsigned integer as a float64."""
    return cvt_f64_integer(a, rnd, 0, 32, 0)


@row("I2F.S64{.rnd}", "R = Q", rnd=_ALL)
def i2f_s64(a: int, rnd: int) -> int:
    """A signed 64-bit integer as a float32."""
    return cvt_f32_integer(a, rnd, 0, 64, 1)


@row("I2F.U64{.rnd}", "R = Q", rnd=_ALL)
def i2f_u64(a: int, rnd: int) -> int:
    """An unsigned 64-bit integer as a float32."""
    return cvt_f32_integer(a, rnd, 0, 64, 0)


@row("I2F.U16{.rnd}", "R = k", rnd=_ALL)
def i2f_u16(a: int, rnd: int) -> int:
    """Half of a word as a float32."""
    return cvt_f32_integer(a, rnd, 0, 16, 0)


@row("I2F.S16{.rnd}", "R = k", rnd=_ALL)
def i2f_s16(a: int, rnd: int) -> int:
    """Half of a word, with its sign, as a float32."""
    return cvt_f32_integer(sign_extend(a, 16), rnd, 0, 16, 1)


@row("F2I{.FTZ}.kind{.rnd}", "R2 = f", kind={"S64": 1, "U64": 0}, rnd=_INTEGRAL)
def f2i_64(a: int, ftz: int, kind: int, rnd: int) -> int:
    """A float32 as an integer of 64 bits."""
    return cvt_integer_f32(a, rnd, ftz, 64, kind)


@row("F2I{.kind}.F64{.rnd}", "R = d", kind={"": 1, "U32": 0}, rnd=_INTEGRAL)
def f2i_f64(a: int, kind: int, rnd: int) -> int:
    """A float64 as an integer of 32 bits."""
    return cvt_integer_f64(a, rnd, 32, kind)


@row("F2I.kind.F64{.rnd}", "R2 = d", kind={"S64": 1, "U64": 0}, rnd=_INTEGRAL)
def f2i_64_f64(a: int, kind: int, rnd: int) -> int:
    """A float64 as an integer of 64 bits."""
    return cvt_integer_f64(a, rnd, 64, kind)


@row("FRND.F64{.rnd}", "R2 = d", rnd=_INTEGRAL)
def frnd_f64(a: int, rnd: int) -> int:
    """A float64 as an integral float64."""
    return cvt_integral_f64(a, rnd, 0)
