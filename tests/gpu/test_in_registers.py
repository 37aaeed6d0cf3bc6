"""Variants timed in registers on the device here."""

from pathlib import Path

import pytest
import torch

from harness.model.load import load

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU: torch finds no CUDA device"),
]


def test_an_approximate_reciprocal_reaches_the_units_rate_and_an_exact_division_does_not():
    """CUDA C++ Programming Guide, throughput of native instructions: 16 results a clock and SM of MUFU."""
    from harness.processes.gpus import gpus
    from harness.timing.inregisters import time_in_registers

    quotient = next(c for c in load(Path("cases/rcp.py")) if c.attribute == "quotient")
    found, _ = time_in_registers(quotient, gpus()[0].target, ("rcp.approx.ftz", "div.rn"))
    rates = {m.name: m for m in found.measured if m.mode == "throughput"}
    assert 12 < rates["rcp.approx.ftz"].value <= 16.5
    assert rates["div.rn"].beside(rates["rcp.approx.ftz"]).verdict == "slower"
