"""The site is built from the code without a warning; its generated pages hold what the code has."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs import distances, generate
from ptxdiff.cli import VERBS, conformance
from ptxdiff.lint.rules import rules

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site's folder; a warning is a failure."""
    folder = tmp_path_factory.mktemp("site")
    words = [
        sys.executable,
        "-m",
        "sphinx",
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
        str(ROOT / "docs"),
        str(folder),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


QUESTIONS = {
    "how do I test asm from CUDA": "how-to/conventions",
    "what does confirmed mean": "explanation/evidence",
    "my kernel needs two outputs": "how-to/cases",
    "in-place kernel": "how-to/in-place",
    "which ptxas": "how-to/ptxas",
    "lint a repository": "how-to/lint",
    "suppress a lint warning": "how-to/lint",
    "GitHub Actions workflow": "how-to/ci",
    "run on a GPU": "how-to/gpu",
    "measure speed of a variant": "how-to/time",
    "exit codes": "reference/exit-codes",
    "which number formats": "reference/formats",
    "flush subnormals to zero": "explanation/ftz-and-nan",
    "missing early clobber": "reference/lint-rules",
    "list of instructions supported": "reference/instructions",
    "race in shared memory": "explanation/races",
    "emulate snippet numpy array": "how-to/emulator",
    "what is not found": "explanation/limits",
    "autotuned kernel": "how-to/cases",
    "run all 2^32 inputs": "how-to/sweep",
    "kernel from tilelang PTX": "how-to/ptx",
    "tolerance ulp bound": "reference/case",
    "notebook display": "tutorial/notebook",
    "clear the cache": "how-to/reuse",
    "import my own kernels pythonpath": "how-to/cases",
    "python versions": "how-to/install",
    "keep torch installed": "how-to/install",
    "known failure xfail": "reference/case",
    "denormal": "explanation/ftz-and-nan",
    "macOS AMD": "explanation/limits",
    "trace instructions": "how-to/emulator",
    "exit status": "reference/exit-codes",
    "parallel workers cores": "how-to/run",
}
"""What a new user types into the search, and the page that answers it."""


@pytest.mark.slow
def test_a_question_finds_its_page(site):
    """The page is among the first three results, or the page of questions is, and links to it."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("the site's search is JavaScript, and there is no node to run it")
    script = Path(__file__).with_name("search.js")
    done = subprocess.run([node, script, site, *QUESTIONS], capture_output=True, text=True, check=True, timeout=100)
    links = (ROOT / "docs" / "questions.md").read_text()
    missed = {}
    for (question, page), results in zip(QUESTIONS.items(), json.loads(done.stdout), strict=True):
        listed = "questions" in results[:3] and f"({page}.md)" in links
        if page not in results[:3] and not listed:
            missed[question] = results[:4]
    assert missed == {}


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(site):
    for page in ("index.html", "tutorial/first-bug.html", "reference/instructions.html", "explanation/limits.html"):
        assert (site / page).is_file()


def test_the_command_line_has_every_verb():
    page = generate.command_line()
    assert [verb for verb in VERBS if f"## ptxdiff {verb}\n" not in page] == []


def test_the_linters_page_has_every_rule():
    page = generate.lint_rules()
    assert [name for name in rules() if f"({name})=" not in page] == []


def test_the_catalogue_has_every_case_file():
    page = generate.catalogue()
    assert [p.stem for p in (ROOT / "cases").glob("[!_]*.py") if f"`{p.stem}`" not in page] == []


@pytest.mark.slow
def test_a_case_with_approximate_instructions_has_a_plot_of_their_errors(tmp_path, monkeypatch):
    """One plot is drawn here; building the site draws all of them."""
    drawn = conformance.write
    monkeypatch.setattr(
        conformance, "write", lambda path, forms: drawn(path, forms) if "rcp" in path.name else path.touch()
    )
    generate.write_plots(tmp_path)
    page = generate.catalogue()
    shown = set(re.findall(r"errors/(\w+)\.svg", page))
    assert shown == {p.stem for p in tmp_path.iterdir()}
    assert {"rcp", "exp2", "tanh", "sqrt"} <= shown
    assert "e4m3_to_f16" not in shown
    assert "rcp.approx.ftz.f32" in (tmp_path / "rcp.svg").read_text()
    assert "div" in generate.approximate_forms()  # of two arguments: a table, and no plot
    assert "div" not in shown


@pytest.mark.slow
def test_every_case_file_has_a_plot_of_its_distances(tmp_path):
    generate.write_distances(tmp_path)
    page = generate.catalogue()
    cases = {p.stem for p in (ROOT / "cases").glob("[!_]*.py")}
    assert set(re.findall(r"\(distances/(\w+)\.svg\)", page)) == cases == {p.stem for p in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("row", "says", "colour"),
    [
        ({"ulps": {"0": 9}}, "9 codes, none wrong", None),
        ({"ulps": {"0": 8, "-1": 1}, "bound": 1}, "9 codes, at most 1 ulp, none wrong", None),
        ({"ulps": {"0": 8, "17..32": 1}, "different": 1}, "1 of 9 codes wrong", distances.WRONG),
        (
            {"ulps": {"0": 8, "-3": 1}, "different": 1, "expected": True},
            "1 of 9 codes wrong, as declared",
            distances.WRONG,
        ),
        (
            {"ulps": {}, "unchecked": 2},
            "9 codes, none wrong; 2 differ where nothing is promised",
            None,
        ),  # of integers: they have no distances
        ({"ulps": {"1": 8, "-9": 1}, "bound": None, "different": 1}, "1 of 9 codes wrong", distances.WRONG),
    ],
)
def test_a_plot_says_what_is_wrong_in_words_and_in_colour(row, says, colour):
    whole = {
        "case": "a<b",
        "variant": "v",
        "codes": 9,
        "different": 0,
        "unchecked": 0,
        "bound": 0,
        "expected": False,
        **row,
    }
    drawn = distances.plot([whole])
    assert says in drawn
    assert (distances.WRONG in drawn) == (colour is not None)
    assert "a<b" not in drawn


def test_a_plot_that_is_older_than_its_case_says_so():
    found = distances.read()
    found["files"]["rcp"]["digest"] = distances.digest(ROOT / "cases" / "rcp.py")
    assert generate.distances_of("rcp", found)[1:] == []
    found["files"]["rcp"]["digest"] = "another"
    assert "has changed since" in generate.distances_of("rcp", found)[1]
    assert "Not measured yet" in generate.distances_of("a_new_one", found)[0]


def test_only_what_a_case_uses_of_a_shared_module_counts():
    module = "A = 1\ndef f(): return g()\ndef g(): return A\ndef h(): return 'rcp.approx.f32'\n"
    assert generate.definitions_of(module, {"f"}).splitlines() == ["def f(): return g()", "def g(): return A", "A = 1"]


def test_every_page_by_hand_is_in_the_table_of_contents():
    index = (ROOT / "docs" / "index.md").read_text()
    pages = [str(p.relative_to(ROOT / "docs").with_suffix("")) for p in (ROOT / "docs").rglob("*.md")]
    pages = [page for page in pages if not page.startswith("explanation/decisions/")]  # in a table of their own
    assert [page for page in pages if page != "index" and f"\n{page}\n" not in index] == []


def test_each_decision_is_a_page_that_the_index_lists():
    folder = ROOT / "docs" / "explanation" / "decisions"
    pages = sorted(p.stem for p in folder.glob("*.md") if p.stem != "index")
    index = (folder / "index.md").read_text()
    assert len(pages) > 40
    assert [name for name in pages if f"]({name}.md)" not in index or f"\n{name}\n" not in index] == []
    assert [name for name in pages if not (folder / f"{name}.md").read_text().startswith("# ")] == []


def test_the_readme_is_short_and_its_links_lead_somewhere():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    links = [link for link in re.findall(r"\]\(([^)*]+)\)", text) if "://" not in link]
    assert [link for link in links if not (ROOT / link.partition("#")[0]).exists()] == []


@pytest.mark.parametrize("text", ["a | b", "two\nlines"])
def test_a_cell_of_a_table_is_one_line_without_bars(text):
    assert "\n" not in generate.table(("x",), [(text,)]).splitlines()[-1]
    assert generate.table(("x",), [(text,)]).splitlines()[-1].replace("\\|", "").count("|") == 2
