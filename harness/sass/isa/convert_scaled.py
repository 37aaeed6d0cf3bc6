"""Conversions of sm_107 to narrow numbers that divide by a scale: a power of two, in the last operand's highest byte.

ptxas clears the other bytes of that operand. What the instruction would do with them is not known, nor what it leaves
above the codes.
"""

from __future__ import annotations

from ptxdiff.emulator.isa.convert_narrow import (
    cvt_narrow_bf16x2_scaled,
    cvt_narrow_f16x2_scaled,
    cvt_narrow_f32_scaled,
)
from ptxdiff.emulator.isa.convert_scale import (
    cvt_ue5m3x2_bf16x2_scaled,
    cvt_ue5m3x2_f16x2_scaled,
    cvt_ue5m3x2_f32_scaled,
)
from ptxdiff.emulator.isa.modifiers import RN, RZ
from ptxdiff.emulator.text.types import NARROW
from ptxdiff.sass.rows import row

_CODES = {n.name: n.code for n in NARROW if n.code is not None}
_PAIRS = {name.upper(): _CODES[name] for name in ("e4m3", "e5m2", "e2m3", "e3m2")}
_E2M1 = _CODES["e2m1"]
_TWO = {"": RN, "RZ": RZ}
_OTHERS = 0xFFFFFF
"""The bytes beside the scale."""


def _above_codes(a: int, b: int, c: int) -> int:
    return 0xFFFFFFFF if c & _OTHERS else 0xFFFF0000


def _above_codes_of_pair(a: int, c: int) -> int:
    return 0xFFFFFFFF if c & _OTHERS else 0xFFFF0000


def _above_four_bits(a: int, b: int, c: int) -> int:
    return 0xFFFFFFFF if c & _OTHERS else 0xFFFFFF00


def _above_four_bits_of_pair(a: int, c: int) -> int:
    return 0xFFFFFFFF if c & _OTHERS else 0xFFFFFF00


@row("F2FP.SATFINITE{.RELU}.form.F32.PACK_AB_MERGE_C.SCALE_BY_C{.rnd}{.PZO}", "R = f,f,u", form=_PAIRS, rnd=_TWO,
     undecided=_above_codes)  # fmt: skip
@row("F2FP.SATFINITE{.RELU}.E2M1.F32.PACK_AB_MERGE_C.SCALE_BY_C{.rnd}{.PZO}", "R = f,f,u", rnd=_TWO,
     undecided=_above_four_bits)  # fmt: skip
def f2fp_narrow_scaled(a: int, b: int, c: int, rnd: int, relu: int, pzo: int, form: int = _E2M1) -> int:
    """Two float32 as narrow numbers: the first in the upper part."""
    return cvt_narrow_f32_scaled(a, b, c >> 24, rnd, relu, pzo, form)


@row("F2FP.SATFINITE{.RELU}.form.F16.UNPACK_B_MERGE_C.SCALE_BY_C{.rnd}{.PZO}", "R = u,u", form=_PAIRS, rnd=_TWO,
     undecided=_above_codes_of_pair)  # fmt: skip
@row("F2FP.SATFINITE{.RELU}.E2M1.F16.UNPACK_B_MERGE_C.SCALE_BY_C{.rnd}{.PZO}", "R = u,u", rnd=_TWO,
     undecided=_above_four_bits_of_pair)  # fmt: skip
def f2fp_narrow_f16_scaled(a: int, c: int, rnd: int, relu: int, pzo: int, form: int = _E2M1) -> int:
    """Two float16 as narrow numbers."""
    return cvt_narrow_f16x2_scaled(a, c >> 24, rnd, relu, pzo, form)


@row("F2FP.SATFINITE{.RELU}.form.BF16.UNPACK_B_MERGE_C.SCALE_BY_C{.rnd}{.PZO}", "R = u,u", form=_PAIRS, rnd=_TWO,
     undecided=_above_codes_of_pair)  # fmt: skip
@row("F2FP.SATFINITE{.RELU}.E2M1.BF16.UNPACK_B_MERGE_C.SCALE_BY_C{.rnd}{.PZO}", "R = u,u", rnd=_TWO,
     undecided=_above_four_bits_of_pair)  # fmt: skip
def f2fp_narrow_bf16_scaled(a: int, c: int, rnd: int, relu: int, pzo: int, form: int = _E2M1) -> int:
    """Two bfloat16 as narrow numbers."""
    return cvt_narrow_bf16x2_scaled(a, c >> 24, rnd, relu, pzo, form)


@row("F2FP{.SATFINITE}.UE5M3.F32.PACK_AB_MERGE_C.SCALE_BY_C{.rnd}", "R = f,f,u", rnd=_TWO, undecided=_above_codes)
def f2fp_ue5m3_scaled(a: int, b: int, c: int, rnd: int, satfinite: int) -> int:
    """Two float32 as ue5m3: the first in the upper byte."""
    return cvt_ue5m3x2_f32_scaled(a, b, c >> 24, rnd, satfinite)


@row("F2FP{.SATFINITE}.UE5M3.F16.UNPACK_B_MERGE_C.SCALE_BY_C{.rnd}", "R = u,u", rnd=_TWO,
     undecided=_above_codes_of_pair)  # fmt: skip
def f2fp_ue5m3_f16_scaled(a: int, c: int, rnd: int, satfinite: int) -> int:
    """Two float16 as ue5m3."""
    return cvt_ue5m3x2_f16x2_scaled(a, c >> 24, rnd, satfinite)


@row("F2FP{.SATFINITE}.UE5M3.BF16.UNPACK_B_MERGE_C.SCALE_BY_C{.rnd}", "R = u,u", rnd=_TWO,
     undecided=_above_codes_of_pair)  # fmt: skip
def f2fp_ue5m3_bf16_scaled(a: int, c: int, rnd: int, satfinite: int) -> int:
    """Two bfloat16 as ue5m3."""
    return cvt_ue5m3x2_bf16x2_scaled(a, c >> 24, rnd, satfinite)
