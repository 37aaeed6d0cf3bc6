"""wgmma on very many tiles, compared on the device: faults that could hide a mismatch are detected."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxdiff.conformance import group_products, group_rounds, ledger
from ptxdiff.conformance.group_rounds import KINDS
from ptxdiff.emulator.kernel import tensor_cores
from tests.support.conformance.hostgpu import HostGpu

SMALL = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use two layouts, 112 drawn tiles of each, and look at the results after every two rounds."""
    two = group_products.layouts_of(SMALL)[:2]
    monkeypatch.setattr(group_rounds, "DRAWN", 14)
    monkeypatch.setattr(group_rounds, "HOSTED", 3)
    monkeypatch.setattr(group_rounds, "TURNS", 2)
    monkeypatch.setattr(group_products, "layouts_of", lambda form: two)


def test_a_device_that_agrees() -> None:
    device = HostGpu()
    tally = group_rounds.measured(device, SMALL, 448)
    assert (tally.mismatches, tally.reached, tally.hosted, tally.failure, tally.refused) == (0, 448, 14, "", "")
    assert device.launched == {"product": 6, "check": 6}
    assert not device.memory


def test_every_a_meets_every_b_of_its_kind() -> None:
    turns = 16
    pairs = {tuple(group_rounds.rolls_of_turn(n, turns)[:2]) for n in range(turns * turns)}
    assert len(pairs) == turns * turns
    assert {x for pair in pairs for x in pair} == {KINDS * n for n in range(turns)}


@pytest.mark.slow
def test_no_tile_is_tried_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are more tiles than a layout's matrices give: each round combines them anew, and then other matrices are
    drawn."""
    seen: list[tuple[int, ...]] = []
    pools: list[str] = []
    agreeing, drawn = group_rounds.Rounds.agreeing, group_products.drawn

    def noted(rounds, batch):
        seen.extend((len(pools), *rolls) for rolls in batch)
        return agreeing(rounds, batch)

    def draw(kernel, seed, count):
        pools.append(seed)
        return [x[:28] for x in drawn(kernel, seed, count)]

    monkeypatch.setattr(group_rounds.Rounds, "agreeing", noted)
    monkeypatch.setattr(group_products, "drawn", draw)
    tally = group_rounds.measured(HostGpu(), SMALL, 28 * 20)
    assert (tally.mismatches, tally.reached) == (0, 28 * 20)
    assert len(set(seen)) == len(seen) == 20
    assert len(set(pools)) == len(pools) == 2


def test_one_wrong_result_of_a_later_round_is_detected_and_described() -> None:
    def wrong(launch: int, result: np.ndarray) -> None:
        if launch in (3, 4):  # the second round, and its tile again alone
            result.reshape(-1, 4, 128)[0 if launch == 4 else 10, 1, 5] ^= np.uint32(4)

    tally = group_rounds.measured(HostGpu(wrong), SMALL, 448)
    assert tally.mismatches == 1
    assert tally.offenders[0].variant.startswith("tile of cancelling magnitudes")
    assert tally.offenders[0].variant.endswith("register 1 of thread 5")
    assert ledger.entry_of(SMALL, [tally], "1").status == ledger.MISMATCH


def test_a_device_comparison_that_disagrees_with_the_host_fails_the_form() -> None:
    def wrong(launch: int, result: np.ndarray) -> None:
        if launch == 3:
            result[7] ^= np.uint32(4)

    tally = group_rounds.measured(HostGpu(wrong), SMALL, 448)
    assert "on the device than on the host" in tally.failure
    assert ledger.entry_of(SMALL, [tally], "1").status == ledger.UNCONFIRMED


def test_tiles_that_nothing_compared_do_not_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostGpu, "_check", lambda *given: None)
    assert group_rounds.measured(HostGpu(), SMALL, 448).mismatches >= 224


def test_a_comparison_that_detects_nothing_fails_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    def always(self: HostGpu, constants: list[int], arguments: list[int], threads: int) -> None:
        flags, each, *_, n, count = arguments
        self._behind(flags).view(np.uint32)[: count // each] += np.uint32(64 * n)

    monkeypatch.setattr(HostGpu, "_check", always)
    tally = group_rounds.measured(HostGpu(), SMALL, 448)
    assert (tally.failure, tally.reached) == (group_rounds.BLIND, 0)
    assert ledger.entry_of(SMALL, [tally], "1").status == ledger.UNCONFIRMED


def test_wrong_arithmetic_in_the_comparison_alone_fails_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """F is one too large in the comparison's kernel only: device and definition agree, so it is no mismatch."""
    right = group_rounds.model_numbers

    def wrong(how):
        return replace(right(how), fraction=24, up=right(how).up - 1)

    monkeypatch.setattr(group_rounds, "model_numbers", wrong)
    tally = group_rounds.measured(HostGpu(), SMALL, 448)
    assert "on the device than on the host" in tally.failure
    assert tally.mismatches > 100


def test_a_device_with_other_arithmetic_is_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    """L is one too large in the instruction only."""
    launch = HostGpu.launch

    def launched(self, kernel, arguments, threads):
        with pytest.MonkeyPatch.context() as patch:
            if kernel[0] == "product":
                patch.setattr(tensor_cores.Arithmetic, "__call__", other)
            launch(self, kernel, arguments, threads)

    def other(how, *operands):
        return tensor_cores._blocks(replace(how, model=how.model.of(8)), *operands)

    monkeypatch.setattr(HostGpu, "launch", launched)
    tally = group_rounds.measured(HostGpu(), SMALL, 448)
    assert (tally.failure, tally.refused) == ("", "")
    assert tally.mismatches > 30
    assert tally.offenders
    assert ledger.entry_of(SMALL, [tally], "1").status == ledger.MISMATCH
