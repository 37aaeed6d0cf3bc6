"""Kernels that compare sparse and block-scaled mma with a GPU: ptxas assembles them, the emulator runs them, and tiles
vary."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from ptxdiff.conformance import ledger, product_campaign, product_forms
from ptxdiff.emulator.targets import Target
from ptxdiff.triton.targets import tool

SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
BOTH = "mma.sp::ordered_metadata.sync.aligned"
FORMS = {
    SPARSE: "sm_90a",
    "mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32": "sm_90a",
    "mma.sp.sync.aligned.m16n8k128.row.col.satfinite.s32.s4.u4.s32": "sm_90a",
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3": "sm_120a",
    f"{BOTH}.m16n8k64.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e2m1.f32.ue8m0": "sm_120a",
    f"{BOTH}.m16n8k128.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3": "sm_120a",
    "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e2m1.f32.ue8m0": "sm_120a",
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("form", FORMS)
def test_the_emulator_runs_its_tiles(form: str) -> None:
    known = product_campaign.program(form, FORMS[form])
    operands = product_campaign.drawn(form, FORMS[form], 0, 14)
    found = product_campaign.emulated(known, operands)
    assert [x.shape[1] for x in operands] == list(known.counts[:-1])
    assert len(np.unique(found)) > 14 * 8
    operands[-1] = np.roll(operands[-1], 1, axis=0)
    assert (product_campaign.emulated(known, operands) != found).any()


@pytest.mark.sample(3)
@pytest.mark.parametrize("form", FORMS)
def test_ptxas_assembles_the_kernel(form: str, tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="ptxas comes with Triton")
    source = tmp_path / "kernel.ptx"
    source.write_text(product_campaign.program(form, FORMS[form]).text)
    done = subprocess.run(
        [str(tool("ptxas-blackwell")), f"-arch={FORMS[form]}", str(source), "-o", str(tmp_path / "out")],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[:2000]


def test_their_definitions_have_digests_of_their_own() -> None:
    digests = {ledger.digest(form) for form in FORMS}
    assert len(digests) == len(FORMS)
    dense = ledger.digest("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    assert dense not in digests


def test_forms_that_no_available_device_has_are_not_confirmed() -> None:
    entries, hopper = ledger.read().entries, Target.parse("sm_90a")
    lacking = [n for n, b in product_forms.bounds_of().items() if b.requirement_unmet(hopper) is not None]
    assert {product_forms.bounds_of()[n].form.operation for n in lacking} >= {"mma_sp", "mma_scaled", "mma_sp_scaled"}
    assert {entries[name].status for name in lacking} == {ledger.SPECIFICATION}
    assert not any(ledger.confirmed([name]) for name in lacking[::20])
