"""Names in ARCHITECTURE.md and CONTRIBUTING.md exist, no two classes share a name, and files are short."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = ("ARCHITECTURE.md", "CONTRIBUTING.md")
DECISIONS = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs" / "explanation" / "decisions").glob("*.md"))
FOLDERS = ("harness", "references", "reports", "cases", "tests")
_TICKED = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"\w+(?:/[\w.]+)*/?")
_DOTTED = re.compile(r"(?:ptxdiff|cases|tests)(?:\.\w+)+")


def wrong_names(text):
    """The names between backticks that do not exist.

    Names with a slash are paths below the root or below harness/, with or without `.py`. `ptxdiff.x.y` is a module, or
    a name in one.
    """
    names = [name for name in _TICKED.findall(text) if " " not in name]
    return [
        name
        for name in names
        if ("/" in name and _PATH.fullmatch(name) and not _is_place(name))
        or (_DOTTED.fullmatch(name) and not _is_object(name))
    ]


def _is_place(name):
    return any((folder / (name + end)).exists() for folder in (ROOT, ROOT / "harness") for end in ("", ".py"))


def _is_object(name):
    path, *rest = name.split(".")
    place = ROOT / path
    while rest and (place / rest[0]).is_dir():
        place /= rest.pop(0)
    if rest and (place / f"{rest[0]}.py").is_file():
        place = place / f"{rest.pop(0)}.py"
    else:
        place /= "__init__.py"
    return not rest or re.search(rf"\b{re.escape(rest[0])}\b", place.read_text()) is not None


@pytest.mark.parametrize("document", [*DOCUMENTS, "README.md", "tests/cluster/SCALE.md"])
def test_blocks_of_code_begin_and_end_on_lines_of_their_own(document):
    fences = [line for line in (ROOT / document).read_text().splitlines() if "```" in line]
    assert [line for line in fences if not line.startswith("```")] == []
    assert len(fences) % 2 == 0


@pytest.mark.parametrize("document", [*DOCUMENTS, *DECISIONS])
def test_what_the_documents_name_exists(document):
    assert wrong_names((ROOT / document).read_text()) == []


@pytest.mark.parametrize(
    "planted",
    [
        "backends/device", "sweep/graphs", "harness/grid.py", "tests/gpu/test_nothing.py", "rooms/",
        "ptxdiff.backends.device", "ptxdiff.model.variants.DIAGNOSIS_LIST", "references/format.py",
    ],
)  # fmt: skip
def test_a_wrong_name_is_detected(planted):
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert wrong_names(f"{text}\nSee `{planted}` and `judging/judge`.\n") == [planted]


def test_no_two_classes_of_the_harness_share_a_name():
    homes = defaultdict(list)
    for path in sorted((ROOT / "harness").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_top_level_folders_are_those_of_the_documents():
    """A package of ours that ARCHITECTURE.md does not name would be installed, or stay in the tree, unnoticed."""
    holding = {p.relative_to(ROOT).parts[0] for p in ROOT.glob("*/*.py")}
    assert holding - {"build"} == {*FOLDERS, "docs", "ptxdiff"}  # `ptxdiff` is the link to `harness`
