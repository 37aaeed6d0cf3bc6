"""Measurements of wgmma: a device that agrees, one that does not, and layouts that all forms share out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.conformance import groupproducts
from harness.conformance.fetch import Identity
from harness.ptx.kernel.run import Buffer, load_kernel, run_kernel

FORM = "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16"


class Pretended:
    """A device that is the emulator; `wrong` changes what it gives."""

    def __init__(self, wrong: Any = None) -> None:
        self.identity = Identity("Pretended", "sm_90a", "1.0", "0.0")
        self.wrong = wrong
        self.launches = 0

    def kernel(self, text: str) -> str:
        return text

    def launch(self, kernel: str, arrays: list[np.ndarray], threads: int) -> None:
        self.launches += 1
        assert threads == 128 * len(arrays[-1])
        run_kernel(load_kernel(kernel), [*map(Buffer, arrays), len(arrays[-1])], (1,), num_threads=128, limit=None)
        if self.wrong:
            self.wrong(arrays[-1])


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groupproducts, "TILES", 7)


def test_a_device_that_agrees() -> None:
    device: Any = Pretended()
    tally = groupproducts.measured(device, FORM, 14)
    assert (tally.mismatches, tally.inputs, tally.failure, tally.refused) == (0, 14, "", "")
    assert device.launches == 2


def test_a_device_that_does_not_is_told_with_tile_and_layout() -> None:
    def wrong(result: np.ndarray) -> None:
        result[3, 0, 5] ^= 1

    tally = groupproducts.measured(Pretended(wrong), FORM, 7)  # type: ignore[arg-type]
    assert tally.mismatches == 1
    assert "cancelling magnitudes" in tally.offenders[0].variant
    assert "register 0 of thread 5" in tally.offenders[0].variant


def test_time_that_is_short_still_has_two_layouts() -> None:
    device: Any = Pretended()
    assert groupproducts.measured(device, FORM, 1 << 20, seconds=0).inputs == 14
