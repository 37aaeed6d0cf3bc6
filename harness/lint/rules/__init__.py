"""Which rules there are. One module a family: `@rule(...)` on a function registers it, its page explains it.

To add a rule: one function in a module of this package, and `harness/lint/pages/NAME.md` with a wrong and a right
example, which `tests/lint/test_pages.py` runs: the wrong one has findings of this very rule and of no other, the right
one has none.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from harness.lint.block import LintedBlock
from harness.lint.snippet import Found, Severity

Check = Callable[[LintedBlock], Iterable[Found]]


@dataclass(frozen=True)
class Rule:
    """A rule: its name in kebab-case, one line that says what it finds, why that matters, and the check."""

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

    A check is called for every snippet that was resolved, also for one that does not parse or bind; it looks at what it
    needs and yields nothing where that is None. It must not raise. `severity`: "error" for what is wrong, "warning" for
    what is wrong in some use, "note" for style. `default=False`: runs where it is selected by name alone.
    """

    def register(check: Check) -> Check:
        assert name not in _RULES, name
        _RULES[name] = Rule(name, summary, why, severity, check, default)
        return check

    return register


@cache
def rules() -> dict[str, Rule]:
    """All rules by name, in order of name."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return dict(sorted(_RULES.items()))


def page(name: str) -> str:
    """The page of a rule, as Markdown. Raises KeyError for an unknown rule."""
    from importlib.resources import files

    return files("harness.lint").joinpath("pages", f"{rules()[name].name}.md").read_text(encoding="utf-8")
