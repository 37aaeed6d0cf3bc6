"""Instructions that public Triton kernels write inline: each is known, and legal on some target."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator import emulate, isa
from ptxdiff.emulator.isa.forms import Bound, find
from ptxdiff.emulator.targets import Target
from tests.support.emulator.legality import written

isa.load()
_LISTED = """
mov.u32 mov.b32 and.b32 shl.b32 or.b32 setp.eq.u32 prmt.b32 shr.u32 add.u32 mov.b64 lop3.b32 setp.eq.s32 selp.u32
cvt.rn.satfinite.e2m1x2.f32 setp.ne.s32 mov.b16 cvt.u32.u16 cvt.rn.f16x2.e2m1x2 sub.u32 shr.b32 add.f32 setp.ge.u32
setp.lt.u32 mul.lo.u32 fma.rn.f32 mov.f32 max.u32 min.u32 setp.gt.u32 max.f32 cvt.rn.satfinite.e4m3x2.f32
cvt.u16.u32 cvt.rn.f32.s32 ex2.approx.f32 mul.rn.f32 sub.rn.f32 cvt.f32.f16 ex2.approx.ftz.f32 mul.rn.bf16x2
add.f32.f16 abs.f32 add.f32.bf16 cvt.u32.u8 mad.lo.u32 add.bf16x2 lg2.approx.f32 mul.bf16x2 fma.rn.bf16x2
fma.rn.f32x2 add.f32x2 tanh.approx.f32 mul.f32 mul.rn.f16x2 fma.rn.ftz.f32 lg2.approx.ftz.f32 cvt.rn.bf16x2.f32
mov.u64 fma.rn.f16x2 sub.f16x2 rsqrt.approx.f32 mov.v4.b32 cvt.rpi.f32.f32 add.s32 cvt.rzi.s32.f32 cvt.u8.u32
mul.f32x2 sub.f32x2 cvt.rp.satfinite.ue8m0x2.f32 mul.f16 mul.rn.bf16 rcp.approx.ftz.f32 cvt.rs.satfinite.e4m3x4.f32
setp.lt.u64 cvt.rn.f16x2.e4m3x2 cos.approx.f32 sin.approx.f32 ex2.approx.f16x2 div.rn.f32 setp.ne.u32
cvt.rn.satfinite.e2m3x2.f32 bfe.u32 popc.b32 setp.gt.f32 cvt.f32.bf16 setp.ne.b32 cvt.u32.u64 mov.u16 shf.l.wrap.b32
min.f16x2 selp.b16 setp.lt.f16x2 min.s32 max.s32 cvt.rn.satfinite.e2m1x2.f16x2 cvt.rn.tf32.f32 cvt.rna.tf32.f32
min.NaN.xorsign.abs.f32 max.NaN.xorsign.abs.f32 cvt.rn.satfinite.e5m2x2.f32 sub.rn.bf16x2 cvt.rs.f16x2.f32 brev.b32
tanh.approx.f16x2 cvt.rs.satfinite.e2m1x4.f32 cvt.rp.ue8m0x2.f32 add.f16 add.bf16 cvt.rs.bf16x2.f32 neg.ftz.f32
abs.ftz.f32 add.ftz.f32 sub.ftz.f32 mul.ftz.f32 div.approx.ftz.f32 min.ftz.f32 max.ftz.f32 min.ftz.f16x2
max.ftz.f16x2 sqrt.approx.ftz.f32 rsqrt.approx.ftz.f32 cos.approx.ftz.f32 max.ftz.f16 ex2.approx.f16 add.rn.f32
dp4a.s32.s32 dp4a.u32.s32 and.pred add.rn.bf16x2 shf.r.wrap.b32 neg.f32 add.u64 mul.hi.u64 add.rn.f64 div.rn.f64
cvt.rni.s32.f32 cvt.rni.sat.s8.f32 sub.s32 selp.f32 cvt.u16.u8 cvt.rn.f32.u32 cvt.rn.f16x2.e3m2x2 fns.b32 bfind.u32
add.cc.u32 addc.u32 setp.ne.u64 cvt.rn.f16x2.f32 tanh.approx.bf16 sub.bf16x2 shr.s32 div.approx.f32 div.full.f32
div.full.ftz.f32 div.rn.ftz.f32 div.rz.f32 div.rz.ftz.f32 div.rm.f32 div.rm.ftz.f32 div.rp.f32 div.rp.ftz.f32
rcp.approx.f32 sqrt.approx.f32 rcp.rn.f32 sqrt.rn.f32 rcp.rn.ftz.f32 sqrt.rn.ftz.f32 rcp.rz.f32 sqrt.rz.f32
rcp.rz.ftz.f32 sqrt.rz.ftz.f32 rcp.rm.f32 sqrt.rm.f32 rcp.rm.ftz.f32 sqrt.rm.ftz.f32 rcp.rp.f32 sqrt.rp.f32
rcp.rp.ftz.f32 sqrt.rp.ftz.f32 sqrt.rn.f64 sqrt.rz.f64 sqrt.rm.f64 sqrt.rp.f64 rsqrt.approx.f64 sin.approx.ftz.f32
sub.f32
"""
SPELLINGS = _LISTED.split()
"""The elementwise spellings of a survey of 410 distinct snippets in 49 repositories, most frequent first."""
TARGETS = [Target.parse(t) for t in ("sm_80", "sm_90a", "sm_100a", "sm_120a")]


def bounds(spelling: str) -> tuple[Bound, ...]:
    opcode, *modifiers = spelling.split(".")
    return find(opcode, tuple(modifiers))


def test_all_are_known_on_some_target() -> None:
    assert [s for s in SPELLINGS if not bounds(s)] == [], "these are in real kernels and unknown here"
    nowhere = [s for s in SPELLINGS if all(b.requirement_unmet(t) is not None for b in bounds(s) for t in TARGETS)]
    assert nowhere == []


REGISTERS = "".join(f".reg .b{w} %b{w}_<9>; " for w in (8, 16, 32, 64)) + ".reg .pred %pred_<9>; "
FILLED = " ".join(
    f"mov.b32 %b32_{i}, $1; mov.b64 %b64_{i}, {{$1, $1}}; cvt.u16.u32 %b16_{i}, $1; cvt.u8.u32 %b8_{i}, $1; "
    f"setp.ne.u32 %pred_{i}, $1, {i};"
    for i in range(6)
)
FILLED += " add.cc.u32 %b32_6, $1, $1;"


@pytest.mark.sample(4)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_runs_on_some_target(spelling: str) -> None:
    """All registers have values, and the result is moved to the output."""
    modifiers = spelling.split(".")[1:]
    form, target = next((b, t) for b in bounds(spelling) for t in reversed(TARGETS) if b.requirement_unmet(t) is None)
    if form.form.function is not None:
        line, kind = written(form), form.type_of(form.form.destinations[0])
        register = "pred_0" if kind.kind == "pred" else f"b{kind.width}_0"
    else:
        register = f"b{modifiers[-1][1:]}_0"
        line = f"{spelling} %{register}, %{register[:-1]}1;"
        if spelling == "mov.v4.b32":
            line = "mov.v4.b32 {%b32_0, %b32_1, %b32_2, %b32_3}, {%b32_3, %b32_2, %b32_1, %b32_0};"
    out = {
        "pred_0": "selp.b32 $0, 1, 0, %pred_0;",
        "b8_0": "cvt.u32.u8 $0, %b8_0;",
        "b16_0": "cvt.u32.u16 $0, %b16_0;",
        "b32_0": "mov.b32 $0, %b32_0;",
        "b64_0": "cvt.u32.u64 $0, %b64_0;",
    }[register]
    got = emulate(f"{{ {REGISTERS}{FILLED} {line} {out} }}", "=r,r", [np.arange(5, dtype=np.uint32)], "uint32",
                  target=str(target))  # fmt: skip
    assert got.shape == (5,)
