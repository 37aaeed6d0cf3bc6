"""The rules, one module for each family. `@rule(...)` on a function registers it; its page explains it.

To add a rule: one function in a module of this package, and `harness/lint/pages/NAME.md` with a wrong and a right
example, which `tests/lint/test_pages.py` runs: the wrong one has findings of this rule and of no other, the right one
has none.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from ptxdiff.lint.block import LintedBlock
from ptxdiff.lint.snippet import Found, Severity

Check = Callable[[LintedBlock], Iterable[Found]]


@dataclass(frozen=True)
class Rule:
    """A rule: its name in kebab-case, one line on its findings, why they matter, and the check."""

    name: str
    summary: str
    why: str
    severity: Severity
    check: Check
    default: bool = True


_RULES: dict[str, Rule] = {}


def rule(
    name: str, summary: str, *, why: str, severity: Severity = "error", default: bool = True
) -> Callable[[Check], Check]:
    """Register a check: a function of a `LintedBlock` that yields `Found`. Returns the function unchanged.

    A check is called for every resolved snippet, also for one that cannot be parsed or bound; it must yield nothing if
    a field that it needs is None. It must not raise. `severity`: "error" for a mistake, "warning" for a mistake in some
    uses, "note" for style. `default=False`: the rule runs only if it is selected by name.
    """

    def register(check: Check) -> Check:
        assert name not in _RULES, name
        _RULES[name] = Rule(name, summary, why, severity, check, default)
        return check

    return register


@cache
def rules() -> dict[str, Rule]:
    """All rules by name, sorted by name."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return dict(sorted(_RULES.items()))


def page(name: str) -> str:
    """The page of a rule, as Markdown. Raises KeyError for an unknown rule."""
    from importlib.resources import files

    return files("ptxdiff.lint").joinpath("pages", f"{rules()[name].name}.md").read_text(encoding="utf-8")


# ---- Findings about the linter itself, files that it cannot read, and comments that silence rules --------------------
#
# The engine reports them; they have no checks.


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
