"""The tables of times and speed."""

from dataclasses import replace

import pytest

from ptxdiff.records import ALONE
from ptxdiff.reports import github, tabular
from ptxdiff.reports.history import history
from ptxdiff.reports.html import page
from ptxdiff.reports.model import view
from ptxdiff.reports.timing import looped, measured
from tests.support.reports import synthetic
from tests.support.reports.register_timings import loop, untimed


def test_every_variant_is_compared_with_the_first_of_its_size():
    rows = measured(synthetic.catalogue(1, per_cell=2))["rcp"]
    assert len(rows) == len(synthetic.SIZES) * len(synthetic.VARIANTS)
    assert [r.against is None for r in rows] == [True, False, False, False] * len(synthetic.SIZES)
    assert rows[0].of_copy == pytest.approx(1 / 1.02, rel=0.01)
    assert rows[3].against.verdict == "slower"


def test_the_first_is_the_first_of_the_case_file_in_any_order_of_records():
    run = synthetic.catalogue(1, per_cell=2)
    shown = [r.timing.key.variant for r in measured(run)["rcp"]]
    run.timings.reverse()
    assert [r.timing.key.variant for r in measured(run)["rcp"]] == shown
    assert shown[: len(synthetic.VARIANTS)] == list(run.cases["rcp"].variants)


def test_rates_count_what_is_read_and_what_is_written():
    row = measured(synthetic.catalogue(1, per_cell=2))["rcp"][0]
    assert row.bandwidth == pytest.approx(row.timing.bytes / row.timing.median)
    assert row.bandwidth == pytest.approx(8 * row.rate)  # a float32 is read and one is written


def test_times_of_two_nodes_are_not_compared():
    run = synthetic.catalogue(1, per_cell=2)
    second = [t for t in run.timings if t.key.variant == synthetic.VARIANTS[1]]
    run.timings = [replace(t, node="two/2b" if t in second else "one/1a") for t in run.timings]
    rows = measured(run)["rcp"]
    assert {r.against is None for r in rows if r.timing.node == "two/2b"} == {True}


def test_times_by_two_assemblers_are_not_compared():
    run = synthetic.catalogue(1, per_cell=2)
    second = [t for t in run.timings if t.key.variant == synthetic.VARIANTS[1]]
    by = "ptxas 13.0.1 -O0 (0123456789ab)"
    run.timings = [replace(t, key=replace(t.key, assembler=by), ptxas=by) if t in second else t for t in run.timings]
    rows = measured(run)["rcp"]
    assert {r.against is None for r in rows if r.timing.key.assembler} == {True}
    past, newest = history([run])
    assert by in page(view(newest), past, None)


@pytest.fixture
def registers():
    """A run with figures in registers of one case, whose records are in another order than its variants."""
    timed = [loop("asm.rn", clocks=512.0), loop(ALONE, clocks=90.0), loop("asm.approx"), untimed("triton")]
    timed += [loop("asm.rn", "latency", clocks=60.0), loop("asm.approx", "latency", clocks=20.0)]
    return replace(synthetic.catalogue(1, per_cell=9), in_registers=timed)


def test_in_registers_variants_are_compared_with_the_first_of_the_case_file(registers):
    found = looped(registers)["rcp"]
    assert [(t.mode, [r.timing.key.variant for r in t.rows]) for t in found.tables] == [
        ("throughput", ["asm.approx", "asm.rn", ALONE]),
        ("latency", ["asm.approx", "asm.rn"]),
    ]
    assert [r.against and r.against.verdict for r in found.tables[0].rows] == [None, "slower", "faster"]
    assert [t.key.variant for t in found.untimed] == ["triton"]


def test_the_page_shows_both_modes_their_instructions_and_where_the_faster_one_pays(registers):
    past, newest = history([registers])
    text = page(view(newest), past, None)
    assert "In registers on sm_90a: results a clock and SM</h3>" in text
    assert "In registers on sm_90a: clocks an application, in a dependent chain</h3>" in text
    assert "1 MUFU.RCP" in text
    assert (
        "asm.approx pays over asm.rn above 0.50 results for each byte of memory traffic: 4.0 for each element" in text
    )
    assert "triton was not timed in registers on sm_90a, throughput: the loop holds LDG.E" in text


def test_a_page_without_figures_in_registers_says_nothing_of_them():
    past, newest = history([synthetic.catalogue(1, per_cell=2)])
    assert "In registers on" not in page(view(newest), past, None)


def test_figures_in_registers_alone_make_a_section_of_speed(registers):
    past, newest = history([replace(registers, timings=[])])
    text = page(view(newest), past, None)
    assert 'href="#speed"' in text
    assert "In registers on sm_90a" in text


def test_tables_for_notebooks_and_for_github_have_them(registers):
    rows = [r for r in tabular.rows(registers) if r["kind"] == "in registers"]
    assert (rows[0]["variant"], rows[0]["shape"], rows[0]["value"]) == ("asm.rn", "throughput", 8)
    assert rows[1]["value"] == pytest.approx(45.5, abs=0.1)
    assert [r["not_timed"] for r in rows if r["variant"] == "triton"] == ["the loop holds LDG.E"]
    assert all(set(r) == set(tabular.COLUMNS) for r in tabular.rows(registers))
    assert "in registers, throughput" in "\n".join(github._speed(view(registers)))
