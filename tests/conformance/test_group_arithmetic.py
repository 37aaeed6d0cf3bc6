"""The device's arithmetic of wgmma equals the definition, both compiled for the host and as PTX."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.conformance import group_products, group_rounds
from ptxdiff.conformance.group_rounds import KINDS
from tests.support.conformance.hostgpu import HostGpu
from tests.support.sampling import only

FORMS = [
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16",
    "wgmma.mma_async.sync.aligned.m64n16k16.f16.f16.f16",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16",
    "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32",
    "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2",
    "wgmma.mma_async.sync.aligned.m64n8k32.f16.e5m2.e4m3",
    "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8",
    "wgmma.mma_async.sync.aligned.m64n8k32.satfinite.s32.u8.s8",
    "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc",
    "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16",
    "wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.tf32.tf32",
    "wgmma.mma_async.sp.sync.aligned.m64n8k64.f16.e4m3.e4m3",
    "wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.s8.s8",
]


# Sparse forms have the same arithmetic; of each the elements are drawn and moved in another way.
@pytest.mark.sample(6)
@pytest.mark.parametrize("form", only(FORMS, [*FORMS[:10], FORMS[12]]))
def test_the_arithmetic_is_the_definition_s(form: str) -> None:
    """On all kinds of magnitudes and combinations of matrices every result agrees; if d is changed, no result
    agrees."""
    layout = group_products.layouts_of(form)[2]
    kernel = group_products.program(form, "sm_90a", layout)
    tiles = 4 * KINDS
    operands = group_products.drawn(kernel, form, tiles)
    device = HostGpu()
    rolls = [KINDS, 2 * KINDS, 3 * KINDS]
    moved = [np.roll(x, -n, axis=0) for x, n in zip(operands, [*rolls[:2], 0, *rolls[2:]], strict=False)]
    with group_rounds.loaded(device, kernel, operands) as rounds:
        expected = group_products.computed(kernel, moved)
        device.upload(rounds.places["d"], expected)
        assert group_rounds.right_tiles(rounds.check(rolls, tiles), kernel).all()
        device.upload(rounds.places["d"], expected ^ np.uint32(0x00010001))
        assert not rounds.check(rolls, tiles).any()
    assert not device.memory


WHOLE = [FORMS[0], FORMS[6], FORMS[8], FORMS[9]]


@pytest.mark.slow
@pytest.mark.parametrize("form", only(WHOLE, WHOLE[1:3]))
def test_the_kernel_that_a_gpu_runs_gives_the_same(form: str) -> None:
    """The PTX itself, in the emulator, counts the same as the functions compiled for the host."""
    kernel = group_products.program(form, "sm_90a", group_products.layouts_of(form)[1])
    operands = group_products.drawn(kernel, form, KINDS)
    found = []
    for whole in (False, True):
        device = HostGpu(whole=whole)
        with group_rounds.loaded(device, kernel, operands) as rounds:
            expected = group_products.computed(kernel, operands)
            expected[:, 0, 3:40:5] ^= np.uint32(1)
            device.upload(rounds.places["d"], expected)
            found.append(rounds.check([0, 0, 0], KINDS))
    assert (found[0] == found[1]).all()
    assert (found[0] == 64 * 8 - 8).all()
