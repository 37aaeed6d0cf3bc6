"""Campaigns over products: every form gets time, the time is divided among forms, and finished tallies are kept."""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import pytest

from ptxdiff.conformance import ledger, product_campaign, products
from ptxdiff.conformance.campaign import Measured
from ptxdiff.conformance.fetch import Identity
from ptxdiff.conformance.measure import Tally
from ptxdiff.emulator.kernel.run import Buffer, load_kernel, run_kernel
from ptxdiff.processes.gpus import Gpu

IDENTITY = Identity("Pretended", "sm_90a", "1.0", "0.0")
DENSE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
WIDE = "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16"
BLACKWELL = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e2m1.f32.ue8m0"


class Emulating(products.ProductDevice):
    """A device that is the emulator. `wrong`: changes the results of a launch, by its number."""

    def __init__(self, wrong: Any = None) -> None:
        self.identity = IDENTITY
        self.wrong = wrong
        self.launches = 0

    def kernel(self, text: str) -> str:
        return text

    def launch(self, kernel: str, arrays: list[np.ndarray], threads: int) -> None:
        blocks = -(-len(arrays[-1]) // 4)
        run_kernel(load_kernel(kernel), [*map(Buffer, arrays), len(arrays[-1])], (blocks,), num_threads=128, limit=None)
        if self.wrong:
            self.wrong(self.launches, arrays[-1])
        self.launches += 1


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "TILES", 70)
    monkeypatch.setattr(product_campaign, "TILES", 70)


@pytest.mark.parametrize(("module", "form"), [(products, DENSE), (product_campaign, SPARSE)])
def test_tiles_continue_beyond_the_drawn_ones(module: Any, form: str) -> None:
    device = Emulating()
    tally = module.measured(device, form, 210)
    assert (tally.mismatches, tally.inputs, tally.emulated, tally.failure, tally.refused) == (0, 210, 70, "", "")
    assert device.launches == 3


@pytest.mark.parametrize(("module", "form"), [(products, DENSE), (product_campaign, SPARSE)])
def test_one_wrong_register_of_a_later_tile_is_detected(module: Any, form: str) -> None:
    def wrong(launch: int, result: np.ndarray) -> None:
        if launch == 2:
            result[10, 1, 5] ^= 1

    tally = module.measured(Emulating(wrong), form, 210)
    assert tally.mismatches == 1
    assert tally.offenders[0].variant == "tile of cancelling magnitudes, register 1 of lane 5"


@pytest.mark.parametrize(("module", "form"), [(products, DENSE), (product_campaign, SPARSE)])
def test_later_tiles_differ_from_earlier_ones(module: Any, form: str) -> None:
    """For a device that repeats the first launch's results, nearly all later tiles are wrong."""
    kept: list[np.ndarray] = []

    def wrong(launch: int, result: np.ndarray) -> None:
        kept.append(result.copy())
        result[:] = kept[0]

    assert module.measured(Emulating(wrong), form, 140).mismatches > 55


@pytest.mark.parametrize(("module", "form"), [(products, DENSE), (product_campaign, SPARSE)])
def test_code_that_differs_from_whole_kernels_fails_the_form(
    module: Any, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "_computed" if module is products else "computed"
    right = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *given: right(*given) ^ np.uint32(1))
    tally = module.measured(Emulating(), form, 140)
    assert (tally.failure, tally.inputs) == (products.APART, 0)
    assert ledger.entry_of(form, [tally], "1").status == ledger.UNCONFIRMED


# campaigns -----------------------------------------------------------------------------------------------------


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of forms that no run measured have an entry each, and what it says takes a third of a second."""
    monkeypatch.setattr(ledger, "_unmeasured", lambda form, identity: ledger.Entry(form, ledger.UNCONFIRMED))


def pretended(form: str, tiles: int, seconds: float, start: int = 0) -> Tally:
    """A tally of a thousand tiles a second, as from a GPU of its own."""
    return Tally(form, os.environ.get("CUDA_VISIBLE_DEVICES", ""), reached=min(tiles, int(1000 * seconds)))


def dying(form: str, tiles: int, seconds: float, start: int = 0) -> Tally:
    if form == WIDE:
        os._exit(3)
    return pretended(form, tiles, seconds)


@pytest.mark.slow
def test_cheap_forms_run_first_and_others_get_their_remaining_time() -> None:
    came: list[Tally] = []
    found = product_campaign.campaign(
        [WIDE, BLACKWELL, DENSE], 5000, "sm_90a", seconds=60, workers=1, found=came.append, measuring=pretended
    )
    assert [t.form for t in came] == [DENSE, WIDE]
    assert [t.reached for t in came] == [5000, 5000]
    assert set(found) == {DENSE, WIDE}


@pytest.mark.slow
def test_short_time_is_divided_among_forms() -> None:
    began = time.monotonic()
    found = product_campaign.campaign([WIDE, DENSE], 10**9, "sm_90a", seconds=40, workers=1, measuring=pretended)
    assert 15_000 < found[DENSE][0].reached <= 20_000 < found[WIDE][0].reached <= 40_000
    assert time.monotonic() - began < 40


def test_cheap_forms_finish_under_a_limit() -> None:
    assert product_campaign.limit([1, 100, 2, 50], 43) == 20
    assert product_campaign.limit([1, 100, 2, 50], 153) == math.inf
    assert product_campaign.limit([5, 5], 4) == 2


def test_every_form_gets_time() -> None:
    forms = list(product_campaign.bounds_of())
    ordered = product_campaign.in_turn(forms, 1 << 20)
    assert sorted(ordered) == forms
    for side in (True, False):
        times = [product_campaign.estimate(n, 1 << 20) for n in ordered if n.startswith("wgmma") is side]
        assert times == sorted(times)
    assert len({n.startswith("wgmma") for n in ordered[:10]}) == 2


def test_no_form_is_begun_when_time_is_up() -> None:
    printed: list[str] = []
    assert not product_campaign.campaign([WIDE], 7, "sm_90a", seconds=1, progress=printed.append, measuring=pretended)
    assert printed == [f"no time is left for 1 forms, from {WIDE} on"]


def test_tallies_from_before_a_crash_are_kept() -> None:
    printed: list[str] = []
    found = product_campaign.campaign(
        [WIDE, DENSE], 7, "sm_90a", seconds=60, workers=1, progress=printed.append, measuring=dying
    )
    assert set(found) == {DENSE}
    assert "a process died" in printed[-1]


def failing(form: str, tiles: int, seconds: float, start: int = 0) -> Tally:
    if form == DENSE:
        raise RuntimeError("cuMemAlloc_v2: CUDA_ERROR_ILLEGAL_ADDRESS")
    return pretended(form, tiles, seconds)


@pytest.mark.slow
def test_tiles_of_an_earlier_run_are_counted_and_not_tried_again(others: None) -> None:
    book = ledger.Ledger(
        {"1": ledger.Campaign(*vars(IDENTITY).values(), "2026-01-01")},
        {n: ledger.Entry(n, ledger.CONFIRMED, "1", inputs=100, definition=ledger.digest(n)) for n in (DENSE, WIDE)},
    )
    before = product_campaign.before_of([DENSE, WIDE, SPARSE], IDENTITY, book)
    assert before == {DENSE: 100, WIDE: 100}
    assert not product_campaign.before_of([DENSE], replace(IDENTITY, driver="1.1"), book)
    found = product_campaign.campaign([DENSE], 250, "sm_90a", seconds=60, workers=1, before=before, measuring=pretended)
    assert (found[DENSE][0].reached, found[DENSE][0].inputs) == (150, 250)
    entry = ledger.updated(book, Measured(IDENTITY, found), date(2026, 1, 2)).entries[DENSE]
    assert (entry.inputs, entry.status) == (250, ledger.CONFIRMED)


@pytest.mark.parametrize(("module", "form"), [(products, DENSE), (product_campaign, SPARSE)])
def test_a_later_run_has_other_tiles(module: Any, form: str) -> None:
    seen: list[np.ndarray] = []

    def noted(launch: int, result: np.ndarray) -> None:
        seen.append(result.copy())

    for start in (0, 70):
        assert module.measured(Emulating(noted), form, 70, start=start).mismatches == 0
    assert ((seen[0] != seen[1]).any(axis=(1, 2))).mean() > 0.9


def test_a_form_in_which_the_device_fails_keeps_its_entry() -> None:
    printed: list[str] = []
    found = product_campaign.campaign(
        [WIDE, DENSE], 7, "sm_90a", seconds=60, workers=1, progress=printed.append, measuring=failing
    )
    assert set(found) == {WIDE}
    assert any("ILLEGAL_ADDRESS" in words for words in printed)


@pytest.mark.slow
def test_a_device_that_only_fails_ends_the_campaign() -> None:
    forms = [f for f in product_campaign.bounds_of() if f.startswith("wgmma")][:6]
    printed: list[str] = []
    assert not product_campaign.campaign(
        forms, 7, "sm_90a", seconds=60, workers=1, progress=printed.append, measuring=broken
    )
    assert len(printed) == 3


def broken(form: str, tiles: int, seconds: float, start: int = 0) -> Tally:
    raise RuntimeError("no")


def test_each_process_has_a_core_and_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def gpu(visible: str, name: str, target: str) -> Gpu:
        return Gpu(visible, name, visible, target, 1)

    listed = (gpu("0", "A", "sm_90a"), gpu("1", "B", "sm_120a"), gpu("2", "A", "sm_90a"), gpu("3", "C", "sm_90a"))
    monkeypatch.setattr(product_campaign, "gpus", lambda: listed)
    monkeypatch.setattr(product_campaign, "_cores", lambda: [4, 5])
    assert product_campaign.places_of_workers(3, "sm_90a") == [(4, "0"), (5, "2"), (4, "0")]


def test_without_a_gpu_each_process_has_a_core(no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_campaign, "_cores", lambda: [4, 5])
    assert product_campaign.places_of_workers(1, "sm_90a") == [(4, None)]


def test_forms_that_remain() -> None:
    entries = {
        DENSE: ledger.Entry(DENSE, ledger.CONFIRMED, inputs=100),
        SPARSE: ledger.Entry(SPARSE, ledger.CONFIRMED, inputs=99),
        WIDE: ledger.Entry(WIDE, ledger.MISMATCH, inputs=1000),
    }
    assert product_campaign.left_to_do(entries, 100, entries) == [SPARSE, WIDE]


def test_a_shorter_run_does_not_replace_the_entry_of_a_longer_one(others: None) -> None:
    def after(book: ledger.Ledger, tally: Tally) -> ledger.Entry:
        return ledger.updated(book, Measured(IDENTITY, {DENSE: [tally]}), date(2026, 1, 2)).entries[DENSE]

    book = ledger.Ledger(
        {"1": ledger.Campaign("Pretended", "sm_90a", "1.0", "0.0", "2026-01-01")},
        {DENSE: ledger.Entry(DENSE, ledger.CONFIRMED, "1", inputs=100, definition=ledger.digest(DENSE))},
    )
    assert after(book, Tally(DENSE, "", reached=50)).inputs == 100
    assert after(book, Tally(DENSE, "", reached=150)).inputs == 150
    assert after(book, Tally(DENSE, "", reached=50, mismatches=1)).status == ledger.MISMATCH
    assert after(book, Tally(DENSE, "", failure="no memory")).status == ledger.CONFIRMED
    assert after(ledger.Ledger(), Tally(DENSE, "", failure="no memory")).status == ledger.UNCONFIRMED
    old = ledger.Ledger(book.runs, {DENSE: replace(book.entries[DENSE], definition="older")})
    assert after(old, Tally(DENSE, "", reached=50)).inputs == 50
    assert after(old, Tally(DENSE, "", failure="no memory")).status == ledger.UNCONFIRMED
