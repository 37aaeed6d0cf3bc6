"""Products by tensor cores on a device: the emulator gives the same bits, a model off by one step does not."""

from dataclasses import replace

import pytest

from ptxdiff.conformance import product_forms, products
from ptxdiff.emulator import Target
from ptxdiff.processes.gpus import gpu_visible

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_visible(), reason="needs an NVIDIA GPU: none is visible"),
]
FORMS = [
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32",
    "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64",
    "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32",
    "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32",
    "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
]


@pytest.mark.parametrize("form", FORMS)
def test_the_emulator_has_the_devices_bits(products_device, form):
    target = Target.parse(products_device.identity.target)
    if product_forms.bounds_of()[form].requirement_unmet(target) is not None:
        pytest.skip(f"{target} has no {form}")
    tally = products.measured(products_device, form, 1 << 12)
    assert (tally.mismatches, tally.failure, tally.refused) == (0, "", ""), tally.offenders


@pytest.mark.parametrize("change", [{"fraction": 24}, {"fraction": 26}, {"terms": 8}])
def test_a_model_off_by_one_step_is_detected(products_device, monkeypatch, change):
    """On Hopper only. The exponent of zero terms is not changed: one step of it changes no result of these tiles."""
    if not products_device.identity.target.startswith("sm_90"):
        pytest.skip("the figures are Hopper's")
    form = FORMS[2]
    known = products.program(form, products_device.identity.target)
    how = known.product.arithmetic
    wrong = replace(known, product=replace(known.product, arithmetic=replace(how, model=replace(how.model, **change))))
    codes = products.drawn(form, products_device.identity.target, 0, 1 << 14)
    operands = [products.registers(known.product, i, codes[i - 1]).reshape(known.shape(i, 1 << 14)) for i in (1, 2, 3)]
    got = products_device.run(known, operands)
    narrow = [x.astype(t) for x, t in zip(codes, ("u2", "u2", "u4"), strict=True)]
    results = [products.registers(p.product, 0, p.product.arithmetic(*narrow)) for p in (known, wrong)]
    right, other = (r.reshape(got.shape) for r in results)
    assert (right == got).all()
    assert (other != got).any()
