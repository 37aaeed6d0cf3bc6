"""Conversions that sm_107 has and earlier targets do not: narrow numbers rounded toward zero (.RZ), results without a
negative zero (.PZO), and ue5m3.

Those with a scale in the last operand are in `convert_scaled`.
"""

from __future__ import annotations

from ptxdiff.emulator.isa.convert_float import cvt_bf16_f32, cvt_bf16x2_f32, cvt_f16_f32, cvt_f16x2_f32, cvt_tf32_f32
from ptxdiff.emulator.isa.convert_narrow import (
    cvt_bf16x2_narrow_scaled,
    cvt_f16x2_ue5m3x2,
    cvt_narrow_bf16x2,
    cvt_narrow_f16x2,
    cvt_narrow_f32,
)
from ptxdiff.emulator.isa.convert_scale import (
    cvt_s2f6x2_bf16x2_scaled,
    cvt_s2f6x2_f32_scaled,
    cvt_ue5m3x2_bf16x2,
    cvt_ue5m3x2_f16x2,
    cvt_ue5m3x2_f32,
)
from ptxdiff.emulator.isa.modifiers import RN, RP, RZ
from ptxdiff.emulator.text.types import NARROW
from ptxdiff.sass.rows import row

_TWO = {"": RN, "RZ": RZ}
_THREE = {"": RN, "RZ": RZ, "RP": RP}
_CODES = {n.name: n.code for n in NARROW if n.code is not None}
_PAIRS = {name.upper(): _CODES[name] for name in ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")}
_ZERO, _EITHER = {"rnd": RZ, "pzo": 0}, {"pzo": 1}


@row("F2FP{.SATFINITE}{.RELU}.F16.F32.PACK_AB{.rnd}.PZO", "R = f,f", rnd=_TWO)
def f2fp_f16_pzo(a: int, b: int, rnd: int, satfinite: int, relu: int) -> int:
    """Two float32 as float16, without a negative zero: the first in the upper half."""
    return cvt_f16x2_f32(a, b, rnd, relu, satfinite, 1)


@row("F2FP{.SATFINITE}{.RELU}.BF16.F32.PACK_AB{.rnd}.PZO", "R = f,f", rnd=_TWO)
def f2fp_bf16_pzo(a: int, b: int, rnd: int, satfinite: int, relu: int) -> int:
    """Two float32 as bfloat16, without a negative zero: the first in the upper half."""
    return cvt_bf16x2_f32(a, b, rnd, relu, satfinite, 1)


@row("F2FP{.SATFINITE}{.RELU}.F16.F32.MERGE_C{.rnd}.PZO", "R = f,RZ", rnd=_TWO)
def f2fp_f16_one_pzo(a: int, rnd: int, satfinite: int, relu: int) -> int:
    """A float32 as a float16 in the lower half, without a negative zero."""
    return cvt_f16_f32(a, rnd, 0, relu, satfinite, 1) & 0xFFFF


@row("F2FP{.SATFINITE}{.RELU}.BF16.F32.MERGE_C{.rnd}.PZO", "R = f,RZ", rnd=_TWO)
def f2fp_bf16_one_pzo(a: int, rnd: int, satfinite: int, relu: int) -> int:
    """A float32 as a bfloat16 in the lower half, without a negative zero."""
    return cvt_bf16_f32(a, rnd, 0, relu, satfinite, 1) & 0xFFFF


@row("F2FP{.SATFINITE}{.RELU}.TF32.F32.PACK_B{.rnd}.PZO", "R = f", rnd=_TWO)
def f2fp_tf32_pzo(a: int, rnd: int, satfinite: int, relu: int) -> int:
    """A float32 rounded to the precision of tf32, without a negative zero."""
    return cvt_tf32_f32(a, rnd, satfinite, relu, 1)


@row("F2FP.SATFINITE{.RELU}.form.F32.PACK_AB_MERGE_C.RZ", "R = f,f,RZ", form=_PAIRS, given=_ZERO)
@row("F2FP.SATFINITE{.RELU}.form.F32.PACK_AB_MERGE_C{.rnd}.PZO", "R = f,f,RZ", form=_PAIRS, given=_EITHER, rnd=_TWO)
def f2fp_narrow_zero(a: int, b: int, rnd: int, relu: int, pzo: int, form: int) -> int:
    """Two float32 as narrow numbers: the first in the upper part."""
    return cvt_narrow_f32(a, b, rnd, relu, pzo, form) & 0xFFFF


@row("F2FP.SATFINITE{.RELU}.form.F16.UNPACK_B_MERGE_C.RZ", "R = u,RZ", form=_PAIRS, given=_ZERO)
@row("F2FP.SATFINITE{.RELU}.form.F16.UNPACK_B_MERGE_C{.rnd}.PZO", "R = u,RZ", form=_PAIRS, given=_EITHER, rnd=_TWO)
def f2fp_narrow_f16_zero(a: int, rnd: int, relu: int, pzo: int, form: int) -> int:
    """Two float16 as narrow numbers."""
    return cvt_narrow_f16x2(a, rnd, relu, pzo, form) & 0xFFFF


@row("F2FP.SATFINITE{.RELU}.form.BF16.UNPACK_B_MERGE_C.RZ", "R = u,RZ", form=_PAIRS, given=_ZERO)
@row("F2FP.SATFINITE{.RELU}.form.BF16.UNPACK_B_MERGE_C{.rnd}.PZO", "R = u,RZ", form=_PAIRS, given=_EITHER, rnd=_TWO)
def f2fp_narrow_bf16_zero(a: int, rnd: int, relu: int, pzo: int, form: int) -> int:
    """Two bfloat16 as narrow numbers."""
    return cvt_narrow_bf16x2(a, rnd, relu, pzo, form) & 0xFFFF


@row("F2FP.SATFINITE{.RELU}.S2_6.F32.PACK_AB_MERGE_C.RZ", "R = f,f,S")
def f2fp_s2f6_zero(a: int, b: int, c: int, relu: int) -> int:
    """Two float32 as s2f6: the first in the upper byte. The upper half of the third operand has the scales."""
    return cvt_s2f6x2_f32_scaled(a, b, c >> 16, RZ, relu)


@row("F2FP.SATFINITE{.RELU}.S2_6.BF16.UNPACK_B_MERGE_C.RZ", "R = u,S")
def f2fp_s2f6_bf16_zero(a: int, c: int, relu: int) -> int:
    """Two bfloat16 as s2f6. The upper half of the second operand has the scales."""
    return cvt_s2f6x2_bf16x2_scaled(a, c >> 16, RZ, relu)


@row("F2FP{.SATFINITE}.UE5M3.F32.PACK_AB_MERGE_C{.rnd}", "R = f,f,RZ", rnd=_THREE)
def f2fp_ue5m3(a: int, b: int, rnd: int, satfinite: int) -> int:
    """Two float32 as ue5m3: the first in the upper byte."""
    return cvt_ue5m3x2_f32(a, b, rnd, satfinite)


@row("F2FP{.SATFINITE}.UE5M3.F16.UNPACK_B_MERGE_C{.rnd}", "R = u,RZ", rnd=_THREE)
def f2fp_ue5m3_f16(a: int, rnd: int, satfinite: int) -> int:
    """Two float16 as ue5m3."""
    return cvt_ue5m3x2_f16x2(a, rnd, satfinite)


@row("F2FP{.SATFINITE}.UE5M3.BF16.UNPACK_B_MERGE_C{.rnd}", "R = u,RZ", rnd=_THREE)
def f2fp_ue5m3_bf16(a: int, rnd: int, satfinite: int) -> int:
    """Two bfloat16 as ue5m3."""
    return cvt_ue5m3x2_bf16x2(a, rnd, satfinite)


@row("F2FP.F16.UE5M3.UNPACK_B", "R = k")
def f2fp_unpacked_ue5m3(a: int) -> int:
    """Two ue5m3 as float16."""
    return cvt_f16x2_ue5m3x2(a)


@row("F2FP{.SATFINITE}.BF16.UE5M3.UNPACK_B", "R = k,t")
def f2fp_scaled_ue5m3(a: int, b: int, satfinite: int, form: int = _CODES["ue5m3"]) -> int:
    """Two ue5m3 times two powers of two, as bfloat16."""
    return cvt_bf16x2_narrow_scaled(a, b, form, satfinite, 0)
