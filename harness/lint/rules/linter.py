"""Findings about the linter itself, files that it cannot read, and comments that silence rules.

The engine reports them; they have no checks.
"""

from __future__ import annotations

from collections.abc import Iterator

from ptxdiff.lint.block import LintedBlock
from ptxdiff.lint.rules import rule
from ptxdiff.lint.snippet import Found


def _by_the_engine(block: LintedBlock) -> Iterator[Found]:
    return iter(())


for _name, _summary, _why in (
    (
        "internal",
        "The linter itself failed on this snippet.",
        "The rule reports nothing for this snippet; please report the failure with the snippet.",
    ),
    (
        "unreadable-file",
        "A file cannot be read, is no text in its encoding, or is no Python that parses.",
        "Nothing in it was examined.",
    ),
    (
        "unknown-ignore",
        "A comment silences a rule that does not exist, or cannot be understood.",
        "It silences nothing, although its author expects it to.",
    ),
    (
        "unused-ignore",
        "A comment silences a rule, or all, where there is nothing to silence.",
        "It would hide the next mistake.",
    ),
):
    rule(_name, _summary, why=_why, severity="warning" if _name == "unused-ignore" else "error")(_by_the_engine)
