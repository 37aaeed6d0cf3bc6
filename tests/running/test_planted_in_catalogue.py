# ruff: noqa: E501
"""Mistakes planted in the catalogue: of each case file one wrong variant and one wrong reference, which have to fail.

A mistake is a replacement in the text of the case file, so that this stays in step with the cases.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxdiff.backends import create
from ptxdiff.model import load as loader
from ptxdiff.running.item import Item
from ptxdiff.running.run import run_item
from tests.support.planting import planted

# One row, one line. Columns: file, case in it, variant, target, what is wrong, the right text, the wrong text
MISTAKES = [
    ('narrow_from_f32', 'e5m2', 'cvt', 'sm_90a', 'asm', 'x2.f32 $0, $2, $1;"),', 'x2.f32 $0, $1, $2;"),'),
    ('narrow_from_f32', 'e5m2', 'integers', 'sm_90a', 'ref', 'satfinite=True, relu=relu)', "satfinite=True, relu=relu, rounding='rz')"),
    ('narrow_from_half', 'cases.bfloat16_e5m2', 'over-f32', 'sm_90a', 'asm', 'codes, y, x;', 'codes, x, y;'),
    ('narrow_from_half', 'cases.float16_e4m3', 'integers', 'sm_90a', 'ref', 'satfinite=True),', "satfinite=True, rounding='rna'),"),
    ('narrow_to_f16', 'e5m2', 'prmt', 'sm_90a', 'asm', '0x3424;\n    }', '0x3414;\n    }'),
    ('narrow_to_f16', 'e4m3', 'integers', 'sm_90a', 'ref', 'target=F16),', 'target=F16) ^ (x == 1),'),
    ('narrow_to_bf16', 'e5m2', 'over-f16', 'sm_90a', 'asm', '$0, y, x;', '$0, x, y;'),
    ('narrow_to_bf16', 'e4m3', 'integers', 'sm_90a', 'ref', 'target=BF16),', 'target=BF16, relu=True),'),
    ('e2m1_half', 'to_f16', 'fields', 'sm_90a', 'asm', '<< 12)', '<< 11)'),
    ('e2m1_half', 'from_f16', 'integers', 'sm_90a', 'ref', 'satfinite=True),', "satfinite=True, rounding='rz'),"),
    ('cvt_ue8m0', 'f32', 'integers-up', 'sm_90a', 'asm', 'size > 0x400000', 'size >= 0x400000'),
    ('cvt_ue8m0', 'f32', 'integers-up', 'sm_90a', 'ref', 'rounding=rounding, satfinite', "rounding='rz', satfinite"),
    ('cvt_tf32', 'case', 'cvt.rn', 'sm_90a', 'asm', 'cvt.rn.tf32.f32 $0', 'cvt.rz.tf32.f32 $0'),
    ('cvt_tf32', 'case', 'cvt.rna', 'sm_90a', 'ref', 'x + 0x1000)', 'x + 0xFFF)'),
    ('half_from_f32', 'f16', 'two', 'sm_90a', 'asm', 'x2.f32 $0, $2, $1;", targets', 'x2.f32 $0, $1, $2;", targets'),
    ('half_from_f32', 'f16', 'one', 'sm_90a', 'ref', 'target=target, rounding=rounding', "target=target, rounding='rna'"),
    ('half_to_f32', 'bf16', 'prmt', 'sm_90a', 'asm', '0x3244', '0x3144'),
    ('half_to_f32', 'bf16', 'shift-and-mask', 'sm_90a', 'ref', 'x << 16', 'x << 16 & 0x7FFFFFFF'),
    ('cvt_rs_half', 'bf16', 'cvt.rs', 'sm_100a', 'asm', '$0, $2, $1, $3;', '$0, $1, $2, $3;'),
    ('cvt_rs_half', 'f16', 'integers', 'sm_90a', 'ref', 'zip((low, high)', 'zip((high, low)'),
    ('cvt_rs_narrow', 'cases.e4m3', 'cvt.rs', 'sm_100a', 'asm', '{{$4, $3, $2, $1}}', '{{$1, $2, $3, $4}}'),
    ('cvt_rs_narrow', 'cases.e2m1', 'integers', 'sm_90a', 'ref', 'share(rbits, target', 'share(rbits ^ 1 << 31, target'),
    ('mx_quantize', 'mxfp8_bf16', 'floor-cvt', 'sm_90a', 'asm', 't, $2, $1;', 't, $1, $2;'),
    ('mx_quantize', 'mxfp8_bf16', 'floor-integers', 'sm_90a', 'ref', 'rule=rule)\n\n        return', "rule='ceil')\n\n        return"),
    ('mxfp4_quantize', 'bf16', 'floor-integers', 'sm_90a', 'asm', 'RULE, 2, 1, RATIO', 'RULE, 1, 1, RATIO'),
    ('mxfp4_quantize', 'bf16', 'floor-integers', 'sm_90a', 'ref', 'rule=rule)\n\n        return', "rule='ceil')\n\n        return"),
    ('nvfp4_recipes', 'bf16', 'torchao-integers', 'sm_90a', 'asm', '0.015625, 0.015625', '0.0078125, 0.0078125'),
    ('nvfp4_recipes', 'bf16', 'flashinfer-integers', 'sm_90a', 'ref', 'encode_scale=ENCODE[source], rule=rule', "encode_scale=ENCODE[source], rule='divide' if rule != 'divide' else 'torchao'"),
    ('nvfp4_weights', 'bf16', 'integers', 'sm_90a', 'asm', 'byte >> 4, 2, 1, 8', 'byte >> 4, 2, 1, 7'),
    ('nvfp4_weights', 'bf16', 'integers', 'sm_90a', 'ref', 'decode_scale=DECODE, target', 'decode_scale=DECODE * 2, target'),
    ('mx_dequantize', 'mxfp4', 'kernel', 'sm_90a', 'asm', '(j % 2) * 4', '(1 - j % 2) * 4'),
    ('mx_dequantize', 'elements.e4m3', 'triton', 'sm_90a', 'ref', 'right=UE8M0, fmt=BF16)', 'right=UE8M0, fmt=BF16, satfinite=True)'),
    ('rotary_in_place', 'case', 'asm', 'sm_90a', 'asm', 'neg.f32 t, t; ', ''),
    ('rotary_in_place', 'case', 'triton', 'sm_90a', 'asm', 'rotated(high, low, c,', 'rotated(high, tl.load(first, mask=inside), c,'),
    ('rotary_in_place', 'case', 'triton', 'sm_90a', 'asm', '    tl.store(first + H, rotated(high, low, c, s * -1.0, ASM), mask=inside)\n', ''),
    ('rotary_in_place', 'case', 'asm', 'sm_90a', 'ref', 'turned(b, a, arithmetic.negate(sin))', 'turned(b, a, sin)'),
    ('scale_tiles', 'case', 'reshaping', 'sm_90a', 'asm', '(1, 0, 2)', '(0, 1, 2)'),
    ('scale_tiles', 'case', 'offsets', 'sm_90a', 'ref', 'block_scaling.tiled_scales,', 'lambda s: block_scaling.tiled_scales(s, fill=1),'),
    ('sqrt', 'case', 'sqrt.rn', 'sm_90a', 'asm', 'sqrt.rn.f32 $0, $1;"', 'sqrt.rz.f32 $0, $1;"'),
    ('sqrt', 'case', 'sqrt.rp', 'sm_90a', 'ref', 'rounding=rounding)', "rounding='rn')"),
    ('div', 'case', 'div.rz', 'sm_90a', 'asm', 'asm(f"div.{r}.f32', 'asm(f"div.{r.replace(\'rz\', \'rm\')}.f32'),
    ('div', 'case', 'div.rm', 'sm_90a', 'ref', 'rounding=rounding, ftz=ftz)', "rounding='rp', ftz=ftz)"),
    ('exp', 'case', 'ex2.approx', 'sm_90a', 'asm', '0f3FB8AA3B; ex2.approx.f32', '0f3FB8AA5B; ex2.approx.f32'),
    ('exp', 'case', 'ex2.approx', 'sm_90a', 'ref', 'reference=faithful.exp', 'reference=lambda x: faithful.exp(x) + 6'),
    ('exp2_polynomial', 'case', 'degree-5', 'sm_90a', 'asm', 'shl.b32 e, e, 23', 'shl.b32 e, e, 22'),
    ('exp2_polynomial', 'case', 'degree-5', 'sm_90a', 'ref', '(shifted & 0x1FF) << 23', '(shifted & 0x1FE) << 23'),
    ('log', 'case', 'lg2.approx', 'sm_90a', 'asm', '0f3F317218;", match=LN)', '0f3F317258;", match=LN)'),
    ('log2', 'case', 'lg2.approx', 'sm_90a', 'ref', 'reference=exponential.lg2', 'reference=lambda x: exponential.lg2(x) + 90'),
    ('sin_cos', 'sin', 'approx', 'sm_90a', 'asm', '"approx": asm(f"{name}.approx', '"approx": asm(f"{\'cos\' if name == \'sin\' else \'sin\'}.approx'),
    ('sin_cos', 'sin', 'approx', 'sm_90a', 'ref', 'trigonometric.sin, torch', 'trigonometric.cos, torch'),
    ('tanh', 'case', 'by-exponential', 'sm_90a', 'asm', '0fC0000000, 0f3F800000', '0fC0000010, 0f3F800000'),
    ('tanh', 'case', 'tanh.approx', 'sm_90a', 'ref', 'reference=exponential.tanh,', 'reference=lambda x: exponential.tanh(x) + 9000,'),
    ('exp2_half', 'f16', 'two', 'sm_90a', 'asm', 'f"ex2.approx.{name}x2', '"tanh.approx.f16x2'),
    ('exp2_half', 'f16', 'one', 'sm_90a', 'ref', 'fmt=fmt, ftz=ftz)', 'fmt=fmt, ftz=ftz) + 3'),
    ('sigmoid', 'case', 'exponential', 'sm_90a', 'asm', 'e, e, 0f3F800000', 'e, e, 0f3F800010'),
    ('sigmoid', 'case', 'exponential', 'sm_90a', 'ref', 'faithful.sigmoid', 'lambda x: faithful.sigmoid(x) + 12'),
    ('silu', 'case', 'quotient', 'sm_90a', 'asm', '0fBFB8AA3B', '0fBFB8AB3B'),
    ('silu', 'case', 'quotient', 'sm_90a', 'ref', 'faithful.silu', 'lambda x: faithful.silu(x) + 30'),
    ('gelu_tanh', 'case', 'tanh.approx', 'sm_90a', 'asm', '0f3D122279', '0f3E122279'),
    ('gelu', 'case', 'erf', 'sm_90a', 'ref', 'reference=faithful.gelu,', 'reference=faithful.gelu_tanh,'),
    ('softplus', 'case', 'ex2-lg2', 'sm_90a', 'asm', 'setp.gt.f32 large', 'setp.lt.f32 large'),
    ('softplus', 'case', 'ex2-lg2', 'sm_90a', 'ref', 'faithful.softplus', 'lambda x: faithful.softplus(x) + 400'),
    ('erf', 'case', 'abramowitz-stegun', 'sm_90a', 'asm', '0fBE91A98E', '0fBE91AA8E'),
    ('erf', 'case', 'abramowitz-stegun', 'sm_90a', 'ref', 'reference=faithful.erf', 'reference=lambda x: faithful.erf(x) + 30'),
    ('atan2', 'case', 'polynomial', 'sm_90a', 'asm', '1.5707963267948966 - angle', '1.5707983267948966 - angle'),
    ('atan2', 'case', 'polynomial', 'sm_90a', 'ref', 'faithful.atan2', 'lambda y, x: faithful.atan2(x, y)'),
]  # fmt: skip


def test_every_mistake_finds_its_place(tmp_path: Path) -> None:
    """Cases change, so this quick test runs where the slow one below does not."""
    for number, (file, _, _, _, _, right, wrong) in enumerate(MISTAKES):
        (tmp_path / str(number)).mkdir()
        planted(tmp_path / str(number), file, lambda t, a=right, b=wrong: (t.replace(a, b), t.count(a)))  # type: ignore[misc]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "attribute", "variant", "target", "part", "right", "wrong"), MISTAKES, ids=lambda v: str(v)[:24]
)
def test_a_planted_mistake_fails(
    tmp_path: Path, file: str, attribute: str, variant: str, target: str, part: str, right: str, wrong: str
) -> None:
    """Two minutes in all, because most compile a Triton kernel."""
    path = planted(tmp_path, file, lambda text: (text.replace(right, wrong), text.count(right)))
    (loaded,) = (case for case in loader.load(path) if case.attribute == attribute)
    found = run_item(Item(loaded, variant, target, "emulator"), create("emulator"), "quick")
    assert found.verdict == "fail", [r.words for r in found.results if r.verdict == "error"]
