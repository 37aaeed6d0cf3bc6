"""wgmma.sp on a device: the emulator has its bits. These tests were written without one, and have not run yet.

Three things are assumed and may fail here: where metadata lies, that a block has L stored elements, and that no row of
b outside the metadata counts.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.conformance import groupproducts
from harness.processes.gpus import gpu_visible

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
    count = len(groupproducts.layouts_of(form)) * groupproducts.TILES
    tally = groupproducts.measured(hopper_products, form, count)
    assert (tally.mismatches, tally.failure, tally.refused) == (0, "", ""), tally.offenders
    assert tally.inputs == count


@pytest.mark.parametrize("form", [FORMS[0], FORMS[3]])
def test_the_other_selector_takes_the_other_threads(hopper_products, form):
    known = groupproducts.program(form, "sm_90a", groupproducts.layouts_of(form)[0])
    other = replace(known, text=known.text.replace("%m0, 0,", "%m0, 1,"))
    assert other.text != known.text
    operands = groupproducts.drawn(known, "selector", 7)
    given = groupproducts.arrays(known, operands)
    got = groupproducts.on_device(hopper_products, other, given)
    assert (groupproducts.emulated(other, given) == got).all()
    assert (groupproducts.emulated(known, given) != got).any()


@pytest.mark.parametrize("change", [{"fraction": 24}, {"fraction": 26}, {"terms": 8}, {"terms": 32}])
def test_a_model_off_by_one_step_is_seen(hopper_products, change):
    form = FORMS[2]
    known = groupproducts.program(form, "sm_90a", groupproducts.layouts_of(form)[0])
    how = known.product.arithmetic
    wrong = replace(known, product=replace(known.product, arithmetic=replace(how, model=replace(how.model, **change))))
    operands = groupproducts.drawn(known, "off by one", 28)
    got = groupproducts.on_device(hopper_products, known, groupproducts.arrays(known, operands))
    assert (groupproducts.computed(known, operands) == got).all()
    if change != {"terms": 32}:  # 16 stored elements are one block either way
        assert (groupproducts.computed(wrong, operands) != got).any()
