"""wgmma.sp on a device: the emulator gives the same bits. These tests were written without a device and never ran.

Three assumptions of the emulator may fail here: the place of the metadata, that a block has L stored elements, and that
rows of b which the metadata does not select have no effect.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ptxdiff.conformance import group_products
from ptxdiff.processes.gpus import gpu_visible

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_visible(), reason="needs an NVIDIA GPU: none is visible"),
]
HEAD = "wgmma.mma_async.sp.sync.aligned."
FORMS = [
    f"{HEAD}m64n24k32.f32.f16.f16",
    f"{HEAD}m64n128k32.f16.f16.f16",
    f"{HEAD}m64n256k32.f32.bf16.bf16",
    f"{HEAD}m64n40k16.f32.tf32.tf32",
    f"{HEAD}m64n64k64.f32.e4m3.e5m2",
    f"{HEAD}m64n8k64.f16.e5m2.e4m3",
    f"{HEAD}m64n48k64.satfinite.s32.s8.u8",
]


@pytest.mark.parametrize("form", FORMS)
def test_every_layout_has_the_devices_bits(hopper_products, form):
    count = len(group_products.layouts_of(form)) * group_products.TILES
    tally = group_products.measured(hopper_products, form, count)
    assert (tally.mismatches, tally.failure, tally.refused) == (0, "", ""), tally.offenders
    assert tally.inputs == count


@pytest.mark.parametrize("form", [FORMS[0], FORMS[3]])
def test_the_other_selector_reads_the_metadata_of_the_other_threads(hopper_products, form):
    known = group_products.program(form, "sm_90a", group_products.layouts_of(form)[0])
    other = replace(known, text=known.text.replace("%m0, 0,", "%m0, 1,"))
    assert other.text != known.text
    operands = group_products.drawn(known, "selector", 7)
    arrays = group_products.arrays(known, operands)
    got = group_products.on_device(hopper_products, other, arrays)
    assert (group_products.emulated(other, arrays) == got).all()
    assert (group_products.emulated(known, arrays) != got).any()


@pytest.mark.parametrize("change", [{"fraction": 24}, {"fraction": 26}, {"terms": 8}, {"terms": 32}])
def test_a_model_off_by_one_step_is_detected(hopper_products, change):
    form = FORMS[2]
    known = group_products.program(form, "sm_90a", group_products.layouts_of(form)[0])
    how = known.product.arithmetic
    wrong = replace(known, product=replace(known.product, arithmetic=replace(how, model=replace(how.model, **change))))
    operands = group_products.drawn(known, "off by one", 28)
    got = group_products.on_device(hopper_products, known, group_products.arrays(known, operands))
    assert (group_products.computed(known, operands) == got).all()
    if change != {"terms": 32}:  # the 16 stored elements are then one block, as in the right model
        assert (group_products.computed(wrong, operands) != got).any()
