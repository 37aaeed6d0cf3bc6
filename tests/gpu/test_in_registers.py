"""Variants timed in registers on a device."""

from pathlib import Path

import pytest
import torch

from ptxdiff.model.load import load
from ptxdiff.records import from_json, to_json

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU: torch finds no CUDA device"),
]


def test_an_approximate_reciprocal_reaches_the_units_rate_and_an_exact_division_does_not():
    """CUDA C++ Programming Guide, throughput of native instructions: 16 results a clock and SM of MUFU."""
    from ptxdiff.processes.gpus import gpus
    from ptxdiff.timing.in_registers import time_in_registers

    quotient = next(c for c in load(Path("cases/rcp.py")) if c.attribute == "quotient")
    found = time_in_registers(quotient, gpus()[0].target, ("rcp.approx.ftz", "div.rn"))
    rates = {t.key.variant: t for t in found if t.mode == "throughput"}
    assert not any(t.words for t in found)
    assert all(from_json(to_json(t)) == t for t in found)
    assert 12 < rates["rcp.approx.ftz"].value <= 16.5
    assert rates["div.rn"].beside(rates["rcp.approx.ftz"]).verdict == "slower"
