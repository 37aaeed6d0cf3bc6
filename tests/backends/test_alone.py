"""Asm that runs without a kernel: its findings are checked in Triton's kernel around the asm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ptxdiff.backends.emulator import EmulatorBackend
from ptxdiff.jobs import Job, Setup, block_of
from ptxdiff.model.load import load
from tests.support.tritons import since

CASES = Path(__file__).resolve().parents[2] / "cases"


@since(3, 9, "cvt.scaled is written in a version of the PTX ISA that it does not state")
def test_undefined_bits_of_a_partial_pack_are_decided_by_tritons_kernel():
    pytest.importorskip("triton")
    loaded = next(c for c in load(CASES / "mx_dequantize.py") if c.name == "mx_dequantize.elements.e4m3")
    case = loaded.case
    units = {n: np.full(3, 0x7F, np.uint8) for n in case.inputs}
    setup = Setup(pack=2, block=block_of(2), shape=(3,), alone=True)
    job = Job(case, loaded.name, loaded.path, "cvt.scaled", case.variants["cvt.scaled"], "sm_100a", setup, units)
    alone, compiled = (EmulatorBackend().run(replace(job, setup=s)) for s in (setup, replace(setup, alone=False)))
    assert alone.findings == compiled.findings == ()
    for name, bits in compiled.outputs.items():
        assert np.array_equal(np.asarray(alone.outputs[name]), np.asarray(bits))
