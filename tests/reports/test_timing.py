"""The table of speed."""

from dataclasses import replace

import pytest

from reports.timing import measured
from tests.reports import synthetic


def test_every_variant_stands_beside_the_first_of_its_size():
    rows = measured(synthetic.catalogue(1, per_cell=2))["rcp"]
    assert len(rows) == len(synthetic.SIZES) * len(synthetic.VARIANTS)
    assert [r.against is None for r in rows] == [True, False, False, False] * len(synthetic.SIZES)
    assert rows[0].of_copy == pytest.approx(1 / 1.02, rel=0.01)
    assert rows[3].against.verdict == "slower"


def test_the_first_is_the_first_of_the_case_file_in_whatever_order_records_come():
    run = synthetic.catalogue(1, per_cell=2)
    shown = [r.timing.key.variant for r in measured(run)["rcp"]]
    run.timings.reverse()
    assert [r.timing.key.variant for r in measured(run)["rcp"]] == shown
    assert shown[: len(synthetic.VARIANTS)] == list(run.cases["rcp"].variants)


def test_rates_count_what_is_read_and_what_is_written():
    row = measured(synthetic.catalogue(1, per_cell=2))["rcp"][0]
    assert row.bandwidth == pytest.approx(row.timing.bytes / row.timing.median)
    assert row.bandwidth == pytest.approx(8 * row.rate)  # a float32 read and one written


def test_times_of_two_nodes_do_not_stand_beside_each_other():
    run = synthetic.catalogue(1, per_cell=2)
    second = [t for t in run.timings if t.key.variant == synthetic.VARIANTS[1]]
    run.timings = [replace(t, node="two/2b" if t in second else "one/1a") for t in run.timings]
    rows = measured(run)["rcp"]
    assert {r.against is None for r in rows if r.timing.node == "two/2b"} == {True}
