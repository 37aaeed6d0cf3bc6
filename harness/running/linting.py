"""pytest's item for the linter: it fails where a case file's asm has an error or a warning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.lint import outputs
from harness.lint.files import Report, lint_paths


class LintFailure(Exception):
    """Findings of a case file; the text is all of them."""


class LintItem(pytest.Item):
    """The asm of one case file, looked at and not run."""

    def runtest(self) -> None:
        """Raise LintFailure for errors and warnings; notes alone pass."""
        path = self.path
        root = self.config.rootpath
        report = lint_paths([path.relative_to(root) if path.is_relative_to(root) and Path.cwd() == root else path])
        wrong = [f for f in report.findings if f.severity != "note"]
        if wrong:
            raise LintFailure(outputs.text(Report(findings=wrong, notes=report.notes, snippets=report.snippets)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The findings, and not where in the linter they were raised."""
        return str(excinfo.value) if isinstance(excinfo.value, LintFailure) else super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """What pytest prints of a failed item."""
        return self.path, None, f"{self.path.name}: lint"


def lint_items(parent: pytest.Collector) -> Iterator[LintItem]:
    """The item of a case file, where --ptx-lint asks for one."""
    if parent.config.option.ptx_lint:
        yield LintItem.from_parent(parent, name="lint")
