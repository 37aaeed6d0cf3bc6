"""Every rule has a page, and the page's examples are the rule's tests: wrong ones are found, right ones are not."""

import re

import pytest

from ptxdiff.lint.files import lint_text
from ptxdiff.lint.rules import page, rules

_SECTION = re.compile(r"^## (Wrong|Right)\b.*?$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SUFFIX = {"python": "py", "cuda": "cu"}
BY_THE_ENGINE = {"internal", "unreadable-file"}


def examples():
    """Rule, wrong or right, number, file name, targets, text: every fenced example of every page.

    A fence may state a target after its language: ```python target=sm_80
    """
    for name in rules():
        if name in BY_THE_ENGINE:
            continue
        for section in _SECTION.finditer(page(name)):
            for n, fence in enumerate(_FENCE.finditer(section[2])):
                targets = [w.partition("=")[2] for w in fence[2].split() if w.startswith("target=")]
                yield name, section[1], n, f"example.{_SUFFIX[fence[1]]}", targets, fence[3]


EXAMPLES = list(examples())


def findings(rule, path, targets, text):
    chosen = None if rules()[rule].default else [rule]
    report = lint_text(path, text.encode(), chosen=chosen, targets=targets)
    return report, {f.rule for f in report.findings}


@pytest.mark.parametrize(
    ("rule", "kind", "path", "targets", "text"),
    [(r, k, p, g, t) for r, k, _, p, g, t in EXAMPLES],
    ids=[f"{r}-{k.lower()}-{n}" for r, k, n, _, _, _ in EXAMPLES],
)
def test_an_example_of_a_page(rule, kind, path, targets, text):
    report, found = findings(rule, path, targets, text)
    assert report.notes == []
    assert report.snippets > 0
    assert found == ({rule} if kind == "Wrong" else set()), [f.message for f in report.findings]


@pytest.mark.parametrize("rule", sorted(set(rules()) - BY_THE_ENGINE))
def test_every_rule_has_a_page_with_both_examples(rule):
    text = page(rule)
    assert text.startswith(f"# {rule}\n")
    assert {kind for name, kind, *_ in EXAMPLES if name == rule} == {"Wrong", "Right"}


OWN = {"unknown-ignore", "unused-ignore"}
"""Rules about the comments themselves."""


@pytest.mark.parametrize(
    ("rule", "path", "targets", "text"),
    [(r, p, g, t) for r, k, _, p, g, t in EXAMPLES if k == "Wrong" and r not in OWN],
    ids=[f"{r}-{n}" for r, k, n, _, _, _ in EXAMPLES if k == "Wrong" and r not in OWN],
)
def test_a_comment_silences_every_rule(rule, path, targets, text):
    """A comment on each line that has a finding, or at the end of the last line of its call."""
    report, _ = findings(rule, path, targets, text)
    sign = "#" if path.endswith(".py") else "//"
    lines = text.split("\n")
    for line in {f.snippet.origin.last for f in report.findings}:
        lines[line - 1] += f"  {sign} ptxdiff: ignore[{rule}]"
    again, found = findings(rule, path, targets, "\n".join(lines))
    assert (found, again.silenced) == (set(), sum(1 + len(f.places) for f in report.findings))
