"""The time of a report on a synthetic catalogue with 19,200 results a run: for one run, and for a folder of thirty.

For people who work on the report: `pytest tests/reports/test_speed.py -m slow --benchmark-only`.
"""

import pytest

from ptxdiff.records import Writer
from ptxdiff.reports import html
from ptxdiff.reports.history import folder, history
from tests.support.reports import synthetic

pytest.importorskip("pytest_benchmark")
pytestmark = pytest.mark.slow


def stored(run, path):
    writer = Writer(path)
    writer.write(run.run, *run.cases.values(), *run.texts.values(), *run.results, *run.timings, run.end)
    writer.close()


@pytest.fixture(scope="module")
def base():
    return synthetic.catalogue()


def report(records, cache):
    past, newest = history(folder(records))
    return html.write_history(past, newest, records / "report.html", cache=cache)


@pytest.mark.parametrize("nights", [1, 30])
def test_report(benchmark, base, tmp_path, nights):
    for n, run in enumerate(synthetic.nights(base, nights)):
        stored(run, tmp_path / f"{n:02d}.jsonl")
    page = benchmark.pedantic(report, (tmp_path, tmp_path / "cache"), rounds=2 if nights == 1 else 1)
    assert page.stat().st_size < 5_000_000
