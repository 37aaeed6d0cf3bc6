"""Measurements of wgmma: on a device that agrees, on one that does not, and with layouts shared out among all forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxdiff.conformance import group_products
from ptxdiff.conformance.fetch import Identity
from ptxdiff.emulator.kernel.run import Buffer, load_kernel, run_kernel

FORM = "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16"


class Pretended:
    """A device that is the emulator. `wrong`: changes its results."""

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
    monkeypatch.setattr(group_products, "TILES", 7)


def test_a_device_that_agrees() -> None:
    device: Any = Pretended()
    tally = group_products.measured(device, FORM, 14)
    assert (tally.mismatches, tally.inputs, tally.failure, tally.refused) == (0, 14, "", "")
    assert device.launches == 2


def test_a_device_that_does_not_agree_is_reported_with_tile_and_layout() -> None:
    def wrong(result: np.ndarray) -> None:
        result[3, 0, 5] ^= 1

    tally = group_products.measured(Pretended(wrong), FORM, 7)  # type: ignore[arg-type]
    assert tally.mismatches == 1
    assert "cancelling magnitudes" in tally.offenders[0].variant
    assert "register 0 of thread 5" in tally.offenders[0].variant


def test_a_short_time_still_measures_two_layouts() -> None:
    device: Any = Pretended()
    assert group_products.measured(device, FORM, 1 << 20, seconds=0).inputs == 14


SPARSE = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"


def test_a_sparse_form_is_measured_likewise() -> None:
    device: Any = Pretended()
    tally = group_products.measured(device, SPARSE, 14)
    assert (tally.mismatches, tally.inputs, tally.failure, tally.refused) == (0, 14, "", "")


def test_a_device_that_reads_metadata_from_other_places_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted mistake: both rows of a lane are exchanged in the emulator. The results of one tile may stay the
    same."""
    device: Any = Pretended()
    right = group_products.sparse_mma.chunks_of
    operands = []

    def wrong(words: np.ndarray, place: Any) -> np.ndarray:
        return right(words >> np.uint32(16) | words << np.uint32(16), place)

    launch = device.launch

    def launched(kernel: str, arrays: list[np.ndarray], threads: int) -> None:
        operands.append(threads)
        with monkeypatch.context() as patch:
            patch.setattr(group_products.sparse_mma, "chunks_of", wrong)
            launch(kernel, arrays, threads)

    device.launch = launched
    assert group_products.measured(device, SPARSE, 7).mismatches >= 6
    assert operands


def test_sums_of_sparse_tiles_cancel() -> None:
    """In tiles of the cancelling kind most results are far below their terms."""
    known = group_products.program(SPARSE, "sm_90a", group_products.layouts_of(SPARSE)[0])
    a, b, _, metadata = group_products.drawn(known, "cancel", 70)
    cancelling = np.flatnonzero(np.arange(70) % len(group_products.products.KINDS) == 3)
    assert group_products.products.KINDS[3] == "cancelling"
    place = known.product.storage
    assert place is not None
    found = group_products.sparse_mma
    where = found.kept(found.chunks_of(metadata.reshape(-1, 32), place), place).reshape(70, 64, -1)
    wide = np.float64
    for tile in cancelling:
        rows = b[tile][where[tile]].view(np.float16).astype(wide)  # 64 x k/2 x n
        terms = a[tile].view(np.float16).astype(wide)[:, :, None] * rows
        assert np.nanmedian(np.abs(terms.sum(1)) / np.abs(terms).sum(1)) < 0.01
