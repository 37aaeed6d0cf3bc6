"""wgmma on a Hopper GPU, which compares its own results, and a campaign over a few products in several processes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ptxdiff.conformance import group_rounds, product_campaign, products
from ptxdiff.processes.gpus import gpu_visible

FORMS = [
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "wgmma.mma_async.sync.aligned.m64n256k16.f16.f16.f16",
    "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32", "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e5m2",
    "wgmma.mma_async.sync.aligned.m64n32k32.satfinite.s32.s8.u8",
    "wgmma.mma_async.sync.aligned.m64n16k256.s32.b1.b1.and.popc",
    "wgmma.mma_async.sp.sync.aligned.m64n16k32.f32.bf16.bf16",
    "wgmma.mma_async.sp.sync.aligned.m64n16k64.s32.u8.s8",
]  # fmt: skip
DENSE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_visible(), reason="needs an NVIDIA GPU: none is visible"),
]


@pytest.fixture(scope="module")
def hopper() -> products.ProductDevice:
    device = products.ProductDevice()
    if device.identity.target != "sm_90a":
        pytest.skip(f"wgmma needs sm_90a: the GPU is {device.identity.target}")
    return device


@pytest.mark.parametrize("form", FORMS)
def test_every_tile_agrees(hopper: products.ProductDevice, form: str) -> None:
    tally = group_rounds.measured(hopper, form, 1 << 15)
    assert (tally.mismatches, tally.failure, tally.refused) == (0, "", ""), tally.offenders
    assert tally.reached >= 1 << 15


def test_a_wrong_model_is_detected(hopper: products.ProductDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's comparison has one fraction bit too few: it reports mismatches where the definition finds none."""
    right = group_rounds.model_numbers
    monkeypatch.setattr(
        group_rounds, "model_numbers", lambda how: replace(right(how), fraction=24, up=right(how).up - 1)
    )
    tally = group_rounds.measured(hopper, FORMS[0], 1 << 12)
    assert "on the device than on the host" in tally.failure
    assert tally.mismatches > 100


def test_a_campaign_of_processes(hopper: products.ProductDevice) -> None:
    """Each process has a CUDA context of its own on its GPU."""
    forms = [DENSE, FORMS[0], FORMS[6]]
    found = product_campaign.campaign(forms, 1 << 13, hopper.identity.target, seconds=120, workers=2)
    assert set(found) == set(forms)
    for form, (tally,) in found.items():
        assert (tally.mismatches, tally.failure, tally.refused) == (0, "", ""), form
        assert tally.inputs >= 1 << 13
