"""Sparse and block-scaled products by tensor cores on a device: the emulator gives the same bits."""

import pytest

from ptxdiff.conformance import product_campaign, product_forms
from ptxdiff.emulator import Target
from ptxdiff.processes.gpus import gpu_visible

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_visible(), reason="needs an NVIDIA GPU: none is visible"),
]
FORMS = [
    "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f16.f16.f16.f16",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e5m2.f32",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s8.u8.s32",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.s32.s4.s4.s32",
    "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e5m2.f32.ue8m0",
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
]


@pytest.mark.parametrize("form", FORMS)
def test_the_emulator_has_the_devices_bits(products_device, form):
    target = Target.parse(products_device.identity.target)
    if product_forms.bounds_of()[form].requirement_unmet(target) is not None:
        pytest.skip(f"{target} has no {form}")
    tally = product_campaign.measured(products_device, form, 1 << 12)
    assert (tally.mismatches, tally.failure, tally.refused) == (0, "", ""), tally.offenders
