"""pytest's list of failures with one block for each mistake, and not one for each target that shows it.

`-vv` prints every failure. Counts, exit code, JUnit files and records always have every item.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from ptxdiff.records import Result
from ptxdiff.records.causes import FailureBlock, blocks, shown_first


class FailureBlocks:
    """A plugin that receives the failed reports of items, and shows one of each block at the end of the run."""

    def __init__(self) -> None:
        self._reports: dict[int, pytest.TestReport] = {}
        self._failures: list[Result] = []

    def add(self, report: pytest.TestReport, results: Iterable[Result]) -> None:
        """Note a failed report and the results of its item."""
        wrong = [r for r in results if r.verdict in ("fail", "error") and not r.expected_failure]
        if wrong:
            worst = [r for r in wrong if r.verdict == "error"] or wrong
            first = shown_first(worst)
            self._failures.append(first)
            self._reports[id(first)] = report

    @property
    def words(self) -> str:
        """A sentence on what is not printed; "" if everything is."""
        found = blocks(self._failures)
        left_out = len(self._failures) - len(found)
        return f"{len(self._failures)} failed items have {len(found)} causes; -vv prints each item" if left_out else ""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> Iterator[Any]:
        """While pytest prints failures and the short summary, leave out those that are shown with another."""
        failed = terminalreporter.stats.get("failed")
        if not failed or config.get_verbosity() > 1 or not self.words:
            return (yield)
        replaced: dict[int, pytest.TestReport | None] = {}
        for block in blocks(self._failures):
            replaced[id(self._reports[id(block.first)])] = self._with_others(block)
            replaced |= {id(self._reports[id(other)]): None for other in block.others}
        shown = [replaced.get(id(report), report) for report in failed]
        terminalreporter.stats["failed"] = [report for report in shown if report is not None]
        try:
            return (yield)
        finally:
            terminalreporter.stats["failed"] = failed

    def _with_others(self, block: FailureBlock) -> pytest.TestReport:
        """The report of a block's first failure, with the places of the others in its text and its summary line."""
        report = self._reports[id(block.first)]
        if not block.others:
            return report
        shown = copy.copy(report)
        shown.longrepr = longrepr = copy.deepcopy(report.longrepr)
        if isinstance(longrepr, str):
            shown.longrepr = f"{longrepr}\n\n{block.elsewhere}"
            return shown
        entries: Any = getattr(getattr(longrepr, "reprtraceback", None), "reprentries", [])
        if entries:
            entries[-1].lines += ["", block.elsewhere]
        if (crash := getattr(longrepr, "reprcrash", None)) is not None:
            crash.message += f"; {block.elsewhere.partition(':')[0]}"
        return shown
