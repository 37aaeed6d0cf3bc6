"""pytest's item for the linter. It fails if a case file's asm has an error or a warning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ptxdiff.lint import outputs
from ptxdiff.lint.files import Report, lint_paths
from ptxdiff.lint.settings import Configuration, Options
from ptxdiff.records.shown import OwnWords


class LintFailure(Exception):
    """The findings of one case file, as text."""


class LintItem(OwnWords, pytest.Item):
    """The linter on the asm of one case file, which is not run."""

    own_error = LintFailure

    def runtest(self) -> None:
        """Raise LintFailure for errors and warnings; notes alone pass."""
        path = self.path
        root = self.config.rootpath
        shown = path.relative_to(root) if path.is_relative_to(root) and Path.cwd() == root else path
        report = lint_paths([shown], Configuration(Options(force_exclude=True)))
        if report.excluded:
            pytest.skip(report.excluded[0].words)
        wrong = [f for f in report.findings if f.severity != "note"]
        if wrong:
            raise LintFailure(outputs.text(Report(findings=wrong, notes=report.notes, snippets=report.snippets)))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """The name under which pytest reports the item."""
        return self.path, None, f"{self.path.name}: lint"


def lint_items(parent: pytest.Collector) -> Iterator[LintItem]:
    """The linter's item of a case file, if --ptx-lint asks for one."""
    if parent.config.option.ptx_lint:
        yield LintItem.from_parent(parent, name="lint")
