"""Findings about the linter itself and about comments that silence rules. The engine reports them; they have no
checks."""

from __future__ import annotations

from collections.abc import Iterator

from harness.lint.block import LintedBlock
from harness.lint.rules import rule
from harness.lint.snippet import Found


def _by_the_engine(block: LintedBlock) -> Iterator[Found]:
    return iter(())


for _name, _summary, _why in (
    (
        "internal",
        "The linter itself failed on this snippet.",
        "The rule reports nothing for this snippet; please report the failure with the snippet.",
    ),
    (
        "unknown-ignore",
        "A comment silences a rule that does not exist, or names none.",
        "It silences nothing, although its author expects it to.",
    ),
    (
        "unused-ignore",
        "A comment silences a rule that finds nothing there.",
        "It would hide the next mistake of this kind.",
    ),
):
    rule(_name, _summary, why=_why, severity="warning" if _name == "unused-ignore" else "error")(_by_the_engine)
