"""Conversions between formats."""

from __future__ import annotations

from ptxdiff.emulator.isa.convert_float import (
    cvt_bf16_f16,
    cvt_bf16_f32,
    cvt_bf16_f64,
    cvt_bf16x2_f32,
    cvt_f16_bf16,
    cvt_f16_f32,
    cvt_f16_f64,
    cvt_f16x2_f32,
    cvt_f32_bf16,
    cvt_f32_f64,
    cvt_f64_bf16,
    cvt_f64_f16,
    cvt_f64_f32,
    cvt_tf32_f32,
)
from ptxdiff.emulator.isa.convert_formats import RS, narrow_field, narrow_from_f32
from ptxdiff.emulator.isa.convert_integer import (
    cvt_bf16_integer,
    cvt_f16_integer,
    cvt_f32_integer,
    cvt_f64_integer,
    cvt_integer_saturated,
)
from ptxdiff.emulator.isa.convert_integral import (
    cvt_integer_bf16,
    cvt_integer_f16,
    cvt_integer_f32,
    cvt_integer_f64,
    cvt_integral_bf16,
    cvt_integral_f16,
    cvt_integral_f32,
    cvt_integral_f64,
)
from ptxdiff.emulator.isa.convert_narrow import (
    cvt_bf16x2_narrow_scaled,
    cvt_f16x2_narrow,
    cvt_narrow_bf16x2,
    cvt_narrow_f16x2,
    cvt_narrow_f32,
)
from ptxdiff.emulator.isa.convert_scale import (
    cvt_bf16x2_s2f6x2_scaled,
    cvt_bf16x2_ue8m0x2,
    cvt_s2f6x2_bf16x2_scaled,
    cvt_s2f6x2_f32_scaled,
    cvt_ue8m0x2_bf16x2,
    cvt_ue8m0x2_f32,
)
from ptxdiff.emulator.isa.convert_stochastic import cvt_bf16x2_f32_rs, cvt_f16x2_f32_rs, reversed16
from ptxdiff.emulator.isa.modifiers import RM, RN, RP, RZ
from ptxdiff.emulator.numeric.bits import sign_extend
from ptxdiff.emulator.numeric.softfloat import f32_flush
from ptxdiff.emulator.text.types import NARROW
from ptxdiff.sass.rows import row

_TWO = {"": RN, "RZ": RZ}
_ALL = {"": RN, "RZ": RZ, "RM": RM, "RP": RP}
_INTEGRAL = {"": RN, "TRUNC": RZ, "FLOOR": RM, "CEIL": RP}
_CODES = {n.name: n.code for n in NARROW if n.code is not None}
_PAIRS = {name.upper(): _CODES[name] for name in ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")}
_BYTES = {name.upper(): _CODES[name] for name in ("e4m3", "e5m2", "e2m3", "e3m2")}

_SIGNED_BYTE = {"S8": 1, "U8": 0}
_SIGNED_HALF = {"S16": 1, "U16": 0}
_SIGNED_LONG = {"S64": 1, "U64": 0}
_SMALL = {"S8": 17, "U8": 16, "S16": 33, "U16": 32}
"""Twice the bits of a small integer, plus 1 if it is signed."""
_UP_TO_WORD = {**_SMALL, "": 65, "U32": 64}


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


@row("F2FP.SATFINITE{.RELU}.form{.F32}.PACK_AB_MERGE_C", "R = f,f,u", form=_PAIRS, last_zero=("E2M1",), uniform=True)
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


@row("F2I{.FTZ}{.sign}{.rnd}.NTZ", "R = f", sign={"": 1, "U32": 0}, rnd=_INTEGRAL, uniform=True)
def f2i(a: int, ftz: int, sign: int, rnd: int) -> int:
    """A float32 as an integer of 32 bits; 0 for NaN."""
    return cvt_integer_f32(a, rnd, ftz, 32, sign)


@row("FRND{.FTZ}{.rnd}", "R = f", rnd=_INTEGRAL, uniform=True)
def frnd(a: int, ftz: int, rnd: int) -> int:
    """A float32 as an integral float32."""
    return cvt_integral_f32(a, rnd, ftz, 0)


@row("I2F{.rnd}", "R = s", rnd=_ALL, uniform=True)
@row("I2FP.F32.S32{.rnd}", "R = s", rnd=_ALL, uniform=True)
def i2f(a: int, rnd: int) -> int:
    """A signed integer as a float32."""
    return cvt_f32_integer(a, rnd, 0, 32, 1)


@row("I2F.U32{.rnd}", "R = u", rnd=_ALL, uniform=True)
@row("I2FP.F32.U32{.rnd}", "R = u", rnd=_ALL, uniform=True)
def i2f_u32(a: int, rnd: int) -> int:
    """An unsigned integer as a float32."""
    return cvt_f32_integer(a, rnd, 0, 32, 0)


@row("I2F.F16{.rnd}", "R = s", rnd=_ALL, uniform=True)
def i2f_f16(a: int, rnd: int) -> int:
    """A signed integer as a float16 in the lower half."""
    return cvt_f16_integer(a, rnd, 0, 32, 1)


@row("I2F.F16.U32{.rnd}", "R = u", rnd=_ALL, uniform=True)
def i2f_f16_u32(a: int, rnd: int) -> int:
    """An unsigned integer as a float16 in the lower half."""
    return cvt_f16_integer(a, rnd, 0, 32, 0)


@row("I2F.F16.S16{.rnd}", "R = k", rnd=_ALL, uniform=True)
def i2f_f16_s16(a: int, rnd: int) -> int:
    """Half of a register, a signed integer, as a float16 in the lower half."""
    return cvt_f16_integer(sign_extend(a, 16), rnd, 0, 16, 1)


@row("I2F.F16.U16{.rnd}", "R = k", rnd=_ALL, uniform=True)
def i2f_f16_u16(a: int, rnd: int) -> int:
    """Half of a register, an unsigned integer, as a float16 in the lower half."""
    return cvt_f16_integer(a, rnd, 0, 16, 0)


@row("F2F.BF16.F16{.rnd}", "R = k", rnd=_ALL)
def f2f_bf16_f16(a: int, rnd: int) -> int:
    """A float16 as a bfloat16 in the lower half."""
    return cvt_bf16_f16(a, rnd)


@row("F2F{.FTZ}.F16.F32{.rnd}", "R = f", rnd=_ALL, uniform=True)
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


@row("I2F.U16{.rnd}", "R = k", rnd=_ALL, uniform=True)
def i2f_u16(a: int, rnd: int) -> int:
    """Half of a word as a float32."""
    return cvt_f32_integer(a, rnd, 0, 16, 0)


@row("I2F.S16{.rnd}", "R = k", rnd=_ALL, uniform=True)
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


@row("F2FP.SATFINITE{.RELU}.F16.F32.PACK_AB{.rnd}", "R = f,f", rnd=_TWO)
def f2fp_f16_finite(a: int, b: int, rnd: int, relu: int) -> int:
    """Two float32 as float16, without infinities: the first in the upper half."""
    return cvt_f16x2_f32(a, b, rnd, relu, 1, 0)


@row("F2FP.SATFINITE{.RELU}.BF16.F32.PACK_AB{.rnd}", "R = f,f", rnd=_TWO)
def f2fp_bf16_finite(a: int, b: int, rnd: int, relu: int) -> int:
    """Two float32 as bfloat16, without infinities: the first in the upper half."""
    return cvt_bf16x2_f32(a, b, rnd, relu, 1, 0)


@row("F2FP.SATFINITE{.RELU}.TF32.F32.PACK_B{.rnd}", "R = f", rnd=_TWO)
def f2fp_tf32_finite(a: int, rnd: int, relu: int) -> int:
    """A float32 rounded to the precision of tf32, without infinities."""
    return cvt_tf32_f32(a, rnd, 1, relu, 0)


@row("F2FP{.SATFINITE}{.RELU}.F16.F32.MERGE_C{.rnd}", "R = f,RZ", rnd=_TWO)
def f2fp_f16_one(a: int, rnd: int, satfinite: int, relu: int) -> int:
    """A float32 as a float16 in the lower half."""
    return cvt_f16_f32(a, rnd, 0, relu, satfinite, 0) & 0xFFFF


@row("F2FP{.SATFINITE}{.RELU}.BF16.F32.MERGE_C{.rnd}", "R = f,RZ", rnd=_TWO)
def f2fp_bf16_one(a: int, rnd: int, satfinite: int, relu: int) -> int:
    """A float32 as a bfloat16 in the lower half."""
    return cvt_bf16_f32(a, rnd, 0, relu, satfinite, 0) & 0xFFFF


@row("F2FP{.SATFINITE}{.RELU}.F16.F32.PACK_AB.RS", "R = f,f,v")
def f2fp_f16_rs(a: int, b: int, c: int, satfinite: int, relu: int) -> int:
    """Two float32 as float16, rounded by the random bits of the third operand."""
    return cvt_f16x2_f32_rs(a, b, c, relu, satfinite)


@row("F2FP{.SATFINITE}{.RELU}.BF16.F32.PACK_AB.RS", "R = f,f,v")
def f2fp_bf16_rs(a: int, b: int, c: int, satfinite: int, relu: int) -> int:
    """Two float32 as bfloat16, rounded by the random bits of the third operand."""
    return cvt_bf16x2_f32_rs(a, b, c, relu, satfinite)


@row("F2FP.SATFINITE{.RELU}.form.F32.PACK_AB_MERGE_C.RS", "R = f,f,v", form=_PAIRS)
def f2fp_narrow_rs(a: int, b: int, c: int, relu: int, form: int) -> int:
    """Two float32 as narrow numbers, rounded by random bits: those of the upper half of the third operand.

    The other bits of the third operand move to where a second instruction reads its random bits, or its codes are kept.
    For codes of four bits this is done in each half: bytes 3 and 1 are random bits, bytes 2 and 0 move.
    """
    field = narrow_field(form)
    random = c >> 16 if field == 8 else (c >> 16 & 0xFF00) | (c >> 8 & 0xFF)
    high = narrow_from_f32(a, form, RS, relu, reversed16(random))
    pair = high << field | narrow_from_f32(b, form, RS, relu, random)
    return (c & 0xFFFF) << 16 | pair if field == 8 else (c & 0x00FF00FF) << 8 | pair


@row("F2FP.SATFINITE{.RELU}.form.F16.UNPACK_B_MERGE_C", "R = u,RZ", form=_PAIRS, uniform=True)
def f2fp_narrow_f16(a: int, relu: int, form: int) -> int:
    """Two float16 as narrow numbers."""
    return cvt_narrow_f16x2(a, RN, relu, 0, form) & 0xFFFF


@row("F2FP.SATFINITE{.RELU}.form.BF16.UNPACK_B_MERGE_C", "R = u,RZ", form=_PAIRS)
def f2fp_narrow_bf16(a: int, relu: int, form: int) -> int:
    """Two bfloat16 as narrow numbers."""
    return cvt_narrow_bf16x2(a, RN, relu, 0, form) & 0xFFFF


_MERGED = {name: _CODES[name.lower()] for name in ("E4M3", "E5M2")}
"""Forms of eight bits. Of others it is not known where the codes of the last operand go."""


@row("F2FP.SATFINITE.form{.RELU}.F16.UNPACK_B_MERGE_C", "R = u,r", form=_MERGED)
def f2fp_merged_f16(a: int, c: int, relu: int, form: int) -> int:
    """Two float16 as narrow numbers. The lower half of the second operand fills the upper half."""
    return (cvt_narrow_f16x2(a, RN, relu, 0, form) & 0xFFFF) | (c & 0xFFFF) << 16


@row("F2FP.SATFINITE.form{.RELU}.BF16.UNPACK_B_MERGE_C", "R = u,r", form=_MERGED)
def f2fp_merged_bf16(a: int, c: int, relu: int, form: int) -> int:
    """Two bfloat16 as narrow numbers. The lower half of the second operand fills the upper half."""
    return (cvt_narrow_bf16x2(a, RN, relu, 0, form) & 0xFFFF) | (c & 0xFFFF) << 16


@row("F2FP{.SATFINITE}.E8.BF16.UNPACK_B_MERGE_C.rnd", "R = u,RZ", rnd={"RZ": RZ, "RP": RP})
def f2fp_e8_bf16(a: int, rnd: int, satfinite: int) -> int:
    """Two bfloat16 as powers of two (ue8m0)."""
    return cvt_ue8m0x2_bf16x2(a, rnd, satfinite)


@row("F2FP{.SATFINITE}{.RELU}.BF16.form.UNPACK_B", "R = k,t", form=_BYTES)
@row("F2FP{.SATFINITE}{.RELU}.BF16.E2M1.UNPACK_B", "R = y,t")
def f2fp_scaled(a: int, b: int, satfinite: int, relu: int, form: int = _CODES["e2m1"]) -> int:
    """Two narrow numbers times two powers of two, as bfloat16."""
    return cvt_bf16x2_narrow_scaled(a, b, form, satfinite, relu)


@row("F2F.F16.F64{.rnd}", "R = d", rnd=_ALL)
def f2f_f16_f64(a: int, rnd: int) -> int:
    """A float64 as a float16 in the lower half."""
    return cvt_f16_f64(a, rnd, 0)


@row("F2F.BF16.F64{.rnd}", "R = d", rnd=_ALL)
def f2f_bf16_f64(a: int, rnd: int) -> int:
    """A float64 as a bfloat16 in the lower half."""
    return cvt_bf16_f64(a, rnd)


@row("F2F.F64.F16", "R2 = k")
def f2f_f64_f16(a: int) -> int:
    """A float16 as a float64."""
    return cvt_f64_f16(a, 0)


@row("F2F.F64.BF16{.rnd}", "R2 = k", rnd=_ALL)
def f2f_f64_bf16(a: int, rnd: int) -> int:
    """A bfloat16 as a float64, which is exact."""
    return cvt_f64_bf16(a)


@row("F2F.F16.BF16{.rnd}", "R = k", rnd=_ALL)
def f2f_f16_bf16(a: int, rnd: int) -> int:
    """A bfloat16 as a float16 in the lower half."""
    return cvt_f16_bf16(a, rnd)


@row("FRND.F16{.rnd}", "R = k", rnd=_INTEGRAL, uniform=True)
def frnd_f16(a: int, rnd: int) -> int:
    """A float16 as an integral float16 in the lower half."""
    return cvt_integral_f16(a, rnd, 0)


@row("FRND.BF16{.rnd}", "R = k", rnd=_INTEGRAL)
def frnd_bf16(a: int, rnd: int) -> int:
    """A bfloat16 as an integral bfloat16 in the lower half."""
    return cvt_integral_bf16(a, rnd)


@row("F2I{.FTZ}.small{.rnd}.NTZ", "R = f", small=_SMALL, rnd=_INTEGRAL)
def f2i_small(a: int, ftz: int, small: int, rnd: int) -> int:
    """A float32 as an integer of 8 or 16 bits."""
    return cvt_integer_f32(a, rnd, ftz, small >> 1, small & 1)


@row("F2IP.U8.F32{.rnd}.NTZ", "R = RZ,f,RZ", rnd={"": RN, "TRUNC": RZ})
def f2ip_u8(a: int, rnd: int) -> int:
    """A float32 as an unsigned byte."""
    return cvt_integer_f32(a, rnd, 0, 8, 0)


@row("F2IP.kind.F32{.rnd}.NTZ", "R = r,f,v", kind={"U8": 0, "S8": 1}, rnd={"": RN, "TRUNC": RZ})
def f2ip(a: int, b: int, c: int, kind: int, rnd: int) -> int:
    """Two float32 as bytes, the second in the lowest bits, below the lower half of the third operand."""
    upper, lower = cvt_integer_f32(a, rnd, 0, 8, kind), cvt_integer_f32(b, rnd, 0, 8, kind)
    return c << 16 | (upper & 0xFF) << 8 | lower & 0xFF


@row("F2I{.kind}.F16{.rnd}.NTZ", "R = k", kind=_UP_TO_WORD, rnd=_INTEGRAL)
def f2i_f16(a: int, kind: int, rnd: int) -> int:
    """A float16 as an integer of up to 32 bits."""
    return cvt_integer_f16(a, rnd, kind >> 1, kind & 1)


@row("F2I{.kind}.BF16{.rnd}.NTZ", "R = k", kind=_UP_TO_WORD, rnd=_INTEGRAL)
def f2i_bf16(a: int, kind: int, rnd: int) -> int:
    """A bfloat16 as an integer of up to 32 bits."""
    return cvt_integer_bf16(a, rnd, kind >> 1, kind & 1)


@row("F2I.kind.F16{.rnd}", "R2 = k", kind=_SIGNED_LONG, rnd=_INTEGRAL)
def f2i_64_f16(a: int, kind: int, rnd: int) -> int:
    """A float16 as an integer of 64 bits."""
    return cvt_integer_f16(a, rnd, 64, kind)


@row("F2I.kind.BF16{.rnd}", "R2 = k", kind=_SIGNED_LONG, rnd=_INTEGRAL)
def f2i_64_bf16(a: int, kind: int, rnd: int) -> int:
    """A bfloat16 as an integer of 64 bits."""
    return cvt_integer_bf16(a, rnd, 64, kind)


@row("F2I.small.F64{.rnd}", "R = d", small=_SMALL, rnd=_INTEGRAL)
def f2i_small_f64(a: int, small: int, rnd: int) -> int:
    """A float64 as an integer of 8 or 16 bits."""
    return cvt_integer_f64(a, rnd, small >> 1, small & 1)


@row("I2F.byte{.rnd}", "R = y", byte=_SIGNED_BYTE, rnd=_ALL, uniform=True)
def i2f_byte(a: int, byte: int, rnd: int) -> int:
    """A byte of a register as a float32."""
    return cvt_f32_integer(sign_extend(a, 8) if byte else a, rnd, 0, 8, byte)


@row("I2F.F16.byte{.rnd}", "R = y", byte=_SIGNED_BYTE, rnd=_ALL, uniform=True)
def i2f_f16_byte(a: int, byte: int, rnd: int) -> int:
    """A byte of a register as a float16 in the lower half."""
    return cvt_f16_integer(sign_extend(a, 8) if byte else a, rnd, 0, 8, byte)


@row("I2F.BF16.byte{.rnd}", "R = y", byte=_SIGNED_BYTE, rnd=_ALL)
def i2f_bf16_byte(a: int, byte: int, rnd: int) -> int:
    """A byte of a register as a bfloat16 in the lower half."""
    return cvt_bf16_integer(sign_extend(a, 8) if byte else a, rnd, 8, byte)


@row("I2F.F64.byte{.rnd}", "R2 = y", byte=_SIGNED_BYTE, rnd=_ALL)
def i2f_f64_byte(a: int, byte: int, rnd: int) -> int:
    """A byte of a register as a float64."""
    return cvt_f64_integer(sign_extend(a, 8) if byte else a, rnd, 0, 8, byte)


@row("I2F.BF16.half{.rnd}", "R = k", half=_SIGNED_HALF, rnd=_ALL)
def i2f_bf16_half(a: int, half: int, rnd: int) -> int:
    """Half of a register as a bfloat16 in the lower half."""
    return cvt_bf16_integer(sign_extend(a, 16) if half else a, rnd, 16, half)


@row("I2F.F64.half{.rnd}", "R2 = k", half=_SIGNED_HALF, rnd=_ALL)
def i2f_f64_half(a: int, half: int, rnd: int) -> int:
    """Half of a register as a float64."""
    return cvt_f64_integer(sign_extend(a, 16) if half else a, rnd, 0, 16, half)


@row("I2F.BF16{.rnd}", "R = s", rnd=_ALL)
def i2f_bf16(a: int, rnd: int) -> int:
    """A signed integer as a bfloat16 in the lower half."""
    return cvt_bf16_integer(a, rnd, 32, 1)


@row("I2F.BF16.U32{.rnd}", "R = u", rnd=_ALL)
def i2f_bf16_u32(a: int, rnd: int) -> int:
    """An unsigned integer as a bfloat16 in the lower half."""
    return cvt_bf16_integer(a, rnd, 32, 0)


@row("I2F.F16.long{.rnd}", "R = Q", long=_SIGNED_LONG, rnd=_ALL)
def i2f_f16_long(a: int, long: int, rnd: int) -> int:
    """A 64-bit integer as a float16 in the lower half."""
    return cvt_f16_integer(a, rnd, 0, 64, long)


@row("I2F.BF16.long{.rnd}", "R = Q", long=_SIGNED_LONG, rnd=_ALL)
def i2f_bf16_long(a: int, long: int, rnd: int) -> int:
    """A 64-bit integer as a bfloat16 in the lower half."""
    return cvt_bf16_integer(a, rnd, 64, long)


@row("I2F.F64.long{.rnd}", "R2 = Q", long=_SIGNED_LONG, rnd=_ALL)
def i2f_f64_long(a: int, long: int, rnd: int) -> int:
    """A 64-bit integer as a float64."""
    return cvt_f64_integer(a, rnd, 0, 64, long)


@row("I2I.small.S32.SAT", "R = s", small=_SMALL)
def i2i_saturated(a: int, small: int) -> int:
    """The nearest integer of 8 or 16 bits."""
    return cvt_integer_saturated(a, small >> 1, small & 1, 32, 1)


@row("F2F.FTZ.F32.BF16{.rnd}", "R = k", rnd=_ALL)
def f2f_f32_bf16(a: int, rnd: int) -> int:
    """A bfloat16 as a float32, which is exact; a subnormal becomes 0."""
    return cvt_f32_bf16(a, 1)


@row("F2FP.SATFINITE{.RELU}.E2M1{.F32}.PACK_AB_MERGE_C", "R = f,f,r")
def f2fp_merged_e2m1(a: int, b: int, c: int, relu: int, form: int = _CODES["e2m1"]) -> int:
    """Two float32 as two codes of four bits in the lowest byte. The lower bytes of the third operand move up by one."""
    return (cvt_narrow_f32(a, b, RN, relu, 0, form) & 0xFF) | c << 8


@row("F2FP{.SATFINITE}.E8.F32.PACK_AB_MERGE_C.rnd", "R = f,f,r", rnd={"RZ": RZ, "RP": RP},
     label="F2FP{.SATFINITE}.E8.F32.PACK_AB_MERGE_C.rnd+c")  # fmt: skip
def f2fp_merged_e8(a: int, b: int, c: int, rnd: int, satfinite: int) -> int:
    """Two float32 as powers of two (ue8m0). The lower half of the third operand fills the upper half."""
    return (cvt_ue8m0x2_f32(a, b, rnd, satfinite) & 0xFFFF) | (c & 0xFFFF) << 16


@row("F2FP{.SATFINITE}.E8.BF16.UNPACK_B_MERGE_C.rnd", "R = u,r", "R = V,r", rnd={"RZ": RZ, "RP": RP},
     label="F2FP{.SATFINITE}.E8.BF16.UNPACK_B_MERGE_C.rnd+c")  # fmt: skip
def f2fp_merged_e8_bf16(a: int, c: int, rnd: int, satfinite: int) -> int:
    """Two bfloat16 as powers of two (ue8m0). The lower half of the second operand fills the upper half."""
    return (cvt_ue8m0x2_bf16x2(a, rnd, satfinite) & 0xFFFF) | (c & 0xFFFF) << 16


_SIX = {name: _CODES[name.lower()] for name in ("E2M3", "E3M2")}


@row("F2FP.SATFINITE.form{.RELU}.F16.UNPACK_B_MERGE_C", "R = u,r", "R = V,r", form=_SIX,
     label="F2FP.SATFINITE.six{.RELU}.F16.UNPACK_B_MERGE_C+c")  # fmt: skip
def f2fp_merged_six_f16(a: int, c: int, relu: int, form: int) -> int:
    """Two float16 as codes of six bits. The lower half of the second operand fills the upper half."""
    return (cvt_narrow_f16x2(a, RN, relu, 0, form) & 0xFFFF) | (c & 0xFFFF) << 16


@row("F2FP.SATFINITE.form{.RELU}.BF16.UNPACK_B_MERGE_C", "R = u,r", "R = V,r", form=_SIX,
     label="F2FP.SATFINITE.six{.RELU}.BF16.UNPACK_B_MERGE_C+c")  # fmt: skip
def f2fp_merged_six_bf16(a: int, c: int, relu: int, form: int) -> int:
    """Two bfloat16 as codes of six bits. The lower half of the second operand fills the upper half."""
    return (cvt_narrow_bf16x2(a, RN, relu, 0, form) & 0xFFFF) | (c & 0xFFFF) << 16


@row("F2FP.SATFINITE{.RELU}.E2M1.F16.UNPACK_B_MERGE_C", "R = u,r", "R = V,r")
def f2fp_merged_e2m1_f16(a: int, c: int, relu: int, form: int = _CODES["e2m1"]) -> int:
    """Two float16 as codes of four bits in the lowest byte. The lower bytes of the second operand move up by one."""
    return (cvt_narrow_f16x2(a, RN, relu, 0, form) & 0xFF) | c << 8


@row("F2FP.SATFINITE{.RELU}.E2M1.BF16.UNPACK_B_MERGE_C", "R = u,r", "R = V,r")
def f2fp_merged_e2m1_bf16(a: int, c: int, relu: int, form: int = _CODES["e2m1"]) -> int:
    """Two bfloat16 as codes of four bits in the lowest byte. The lower bytes of the second operand move up by one."""
    return (cvt_narrow_bf16x2(a, RN, relu, 0, form) & 0xFF) | c << 8


# Turing and Ampere write no formats for float32 as float16.


@row("F2FP.SATFINITE{.RELU}.PACK_AB{.rnd}", "R = f,f", rnd=_TWO)
def f2fp_f16_finite_plain(a: int, b: int, rnd: int, relu: int) -> int:
    """Two float32 as float16, without infinities: the first in the upper half."""
    return cvt_f16x2_f32(a, b, rnd, relu, 1, 0)


@row("F2FP.SATFINITE{.RELU}.BF16.PACK_AB{.rnd}", "R = f,f", rnd=_TWO)
def f2fp_bf16_finite_plain(a: int, b: int, rnd: int, relu: int) -> int:
    """Two float32 as bfloat16, without infinities: the first in the upper half."""
    return cvt_bf16x2_f32(a, b, rnd, relu, 1, 0)


@row("F2FP{.SATFINITE}{.RELU}.MERGE_C{.rnd}", "R = f,RZ", rnd=_TWO)
def f2fp_f16_one_plain(a: int, rnd: int, satfinite: int, relu: int) -> int:
    """A float32 as a float16 in the lower half."""
    return cvt_f16_f32(a, rnd, 0, relu, satfinite, 0) & 0xFFFF


@row("F2FP{.SATFINITE}{.RELU}.BF16.MERGE_C{.rnd}", "R = f,RZ", rnd=_TWO)
def f2fp_bf16_one_plain(a: int, rnd: int, satfinite: int, relu: int) -> int:
    """A float32 as a bfloat16 in the lower half."""
    return cvt_bf16_f32(a, rnd, 0, relu, satfinite, 0) & 0xFFFF


# Fixed-point numbers of eight bits (s2f6), with two scales.


@row("F2FP.SATFINITE{.RELU}.S2_6.F32.PACK_AB_MERGE_C", "R = f,f,v")
def f2fp_s2f6(a: int, b: int, c: int, relu: int) -> int:
    """Two float32 as s2f6: the first in the upper byte. The upper half of the third operand has the scales, its lower
    half fills the upper half of the result."""
    return cvt_s2f6x2_f32_scaled(a, b, c >> 16, RN, relu) | (c & 0xFFFF) << 16


@row("F2FP.SATFINITE{.RELU}.S2_6.BF16.UNPACK_B_MERGE_C", "R = u,S")
def f2fp_s2f6_bf16(a: int, c: int, relu: int) -> int:
    """Two bfloat16 as s2f6. The upper half of the second operand has the scales."""
    return cvt_s2f6x2_bf16x2_scaled(a, c >> 16, RN, relu)


@row("F2FP{.SATFINITE}{.RELU}.BF16.S2_6.UNPACK_B", "R = k,t")
def f2fp_unpacked_s2f6(a: int, s: int, relu: int, satfinite: int) -> int:
    """Two s2f6 with two scales as bfloat16."""
    return cvt_bf16x2_s2f6x2_scaled(a, s, relu, satfinite)


# Of a constant pair, which nvdisasm writes as one float.


@row("F2FP.SATFINITE{.RELU}.form.F16.UNPACK_B_MERGE_C", "R = V,RZ", form=_PAIRS, uniform=True,
     label="F2FP.SATFINITE{.RELU}.form.F16.UNPACK_B_MERGE_C#")  # fmt: skip
def f2fp_narrow_f16_constant(a: int, relu: int, form: int) -> int:
    """Two float16 as narrow numbers."""
    return cvt_narrow_f16x2(a, RN, relu, 0, form) & 0xFFFF


@row("F2FP.SATFINITE{.RELU}.form.BF16.UNPACK_B_MERGE_C", "R = V,RZ", form=_PAIRS, uniform=True,
     label="F2FP.SATFINITE{.RELU}.form.BF16.UNPACK_B_MERGE_C#")  # fmt: skip
def f2fp_narrow_bf16_constant(a: int, relu: int, form: int) -> int:
    """Two bfloat16 as narrow numbers."""
    return cvt_narrow_bf16x2(a, RN, relu, 0, form) & 0xFFFF


@row("F2FP.SATFINITE.form{.RELU}.F16.UNPACK_B_MERGE_C", "R = V,r", form=_MERGED,
     label="F2FP.SATFINITE.form{.RELU}.F16.UNPACK_B_MERGE_C#")  # fmt: skip
def f2fp_merged_f16_constant(a: int, c: int, relu: int, form: int) -> int:
    """Two float16 as narrow numbers. The lower half of the second operand fills the upper half."""
    return (cvt_narrow_f16x2(a, RN, relu, 0, form) & 0xFFFF) | (c & 0xFFFF) << 16


@row("F2FP.SATFINITE.form{.RELU}.BF16.UNPACK_B_MERGE_C", "R = V,r", form=_MERGED,
     label="F2FP.SATFINITE.form{.RELU}.BF16.UNPACK_B_MERGE_C#")  # fmt: skip
def f2fp_merged_bf16_constant(a: int, c: int, relu: int, form: int) -> int:
    """Two bfloat16 as narrow numbers. The lower half of the second operand fills the upper half."""
    return (cvt_narrow_bf16x2(a, RN, relu, 0, form) & 0xFFFF) | (c & 0xFFFF) << 16


@row("F2FP{.SATFINITE}.E8.BF16.UNPACK_B_MERGE_C.rnd", "R = V,RZ", rnd={"RZ": RZ, "RP": RP},
     label="F2FP{.SATFINITE}.E8.BF16.UNPACK_B_MERGE_C.rnd#")  # fmt: skip
def f2fp_e8_bf16_constant(a: int, rnd: int, satfinite: int) -> int:
    """Two bfloat16 as powers of two (ue8m0)."""
    return cvt_ue8m0x2_bf16x2(a, rnd, satfinite)
