"""The simulation of a driver and its GPUs agrees with arithmetic, and shows when the driver is the limit."""

import dataclasses
from pathlib import Path

import pytest

from tests.cluster.overhead import of_shards
from tests.cluster.scale import DriverCosts, Nightly, least_batch, main, most_gpus, simulate

FREE = DriverCosts(0.0, 0.0, 0.0, 0.0, 0.0)
COSTS = DriverCosts(task=1e-3, watch=1e-6, item=1e-4, record=1e-5, worker=5e-3)
SIZE = {"gpus": 50, "items": 20_000, "seconds": 0.05}


def test_with_a_driver_without_costs_only_the_items_take_time():
    found = simulate(FREE, batch=1, **SIZE)
    assert found.driver == 0
    assert found.seconds * 50 * found.gpus == pytest.approx(20_000 * 0.05, rel=0.02)
    assert found.gpus > 0.95


def test_a_driver_that_is_the_limit_takes_as_long_as_its_own_work():
    """GPU time does not matter: every task takes the driver's time `of`, except the last ones in flight."""
    found = simulate(COSTS, gpus=50, items=20_000, batch=1, seconds=1e-9, results=12)
    assert found.driver == pytest.approx(1.0, abs=0.01)
    assert found.seconds == pytest.approx(20_000 * COSTS.of(1, 12, 50), rel=0.02)


def test_batches_of_the_least_size_free_the_driver_and_halves_of_it_do_not():
    size = {"gpus": 50, "items": 100_000, "seconds": 0.02, "results": 12}
    least = least_batch(COSTS, 50, 0.02)
    assert least > 2
    assert simulate(COSTS, batch=least // 2, **size).driver > 0.99
    ideal = 100_000 * 0.02 / 50
    assert simulate(COSTS, batch=4 * least, **size).seconds < 1.1 * (ideal + 100_000 / (4 * least) / 50 * COSTS.worker)
    assert simulate(COSTS, batch=least // 2, **size).seconds > 1.2 * ideal


def test_no_batch_size_helps_if_there_are_too_many_results():
    heavy = dataclasses.replace(COSTS, record=1e-3)
    assert least_batch(heavy, 50, 0.02) is None
    assert simulate(heavy, gpus=50, items=20_000, batch=100, seconds=0.02, results=12).driver > 0.95


@pytest.mark.parametrize("batch", [1, 10, 100])
def test_one_gpu_more_than_the_most_is_one_too_many(batch):
    most = most_gpus(COSTS, 0.05, batch)
    assert most * COSTS.of(batch, 12, most) <= COSTS.worker + batch * 0.05
    assert (most + 1) * COSTS.of(batch, 12, most + 1) > COSTS.worker + batch * 0.05


MEASURED = DriverCosts(task=1382.1e-6, watch=1.7e-6, item=275.5e-6, record=351.9e-6, worker=5545e-6)


def test_the_pages_figures_are_those_of_the_simulation():
    """With the costs that the page states, for its smallest row and for its sums."""
    page = (Path(__file__).parent / "SCALE.md").read_text()
    found = simulate(MEASURED, gpus=1000, items=1_000_000, batch=100, seconds=0.5)
    assert f"| {found.seconds:,.0f} s | {most_gpus(MEASURED, 0.5, 10)} |" in page
    for seconds in (2, 5, 10):
        assert f"| {most_gpus(MEASURED, seconds, 10):,} |" in page
    assert least_batch(MEASURED, 1000, 5.0) == 10
    assert f"**{Nightly().hours(200, 5):.1f} GPU hours**" in page


def test_the_hours_of_a_night_are_a_product():
    night = Nightly(items=90.0, exhaustive=0.0, timing=0.0, spent=0.5)
    assert night.hours(200, 5) == pytest.approx(200 * 5 * 90 / 0.5 / 3600)
    assert night.hours(400, 5) == 2 * night.hours(200, 5)


def test_the_command_prints_whether_the_driver_is_the_limit(capsys):
    words = ["--gpus", "20", "--items", "2000", "--seconds", "0.5"]
    given = ["--task", "2000", "--watch", "2", "--item", "500", "--record", "300", "--worker", "7000"]
    assert main([*words, *given]) == 0
    said = capsys.readouterr().out
    assert "2000 items of 0.5 s" in said
    assert "the driver keeps up from batches of 1 on" in said
    assert main([*words[:4], "--seconds", "0.01", *given]) == 0
    assert "the driver keeps up with no batch size" in capsys.readouterr().out


def test_the_cost_of_a_shards_line_is_measured_on_a_journal(tmp_path):
    processor, clock = of_shards(tmp_path / "j.jsonl", count=5)
    assert 0 < processor <= clock + 0.01
    assert len((tmp_path / "j.jsonl").read_text().splitlines()) == 6
