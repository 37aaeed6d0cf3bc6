"""`[tool.ptxdiff.lint]` of pyproject.toml: which file's settings hold, what they may hide, and what they may not."""

import pytest

from ptxdiff.cli import main
from ptxdiff.lint.files import lint_paths
from ptxdiff.lint.rules import rules
from ptxdiff.lint.settings import Configuration, Options, SettingsError, rule_names

CALL = 'y = tl.inline_asm_elementwise("{}", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)\n'
SYNTAX = CALL.format("neg.f32 $0 $1;")
RANGE = CALL.format("neg.f32 $0, $2;")
NEW = 'y = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)\n'


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Writes files below a folder of its own, which is the working directory."""
    monkeypatch.chdir(tmp_path)

    def write(settings="", **files):
        if settings:
            (tmp_path / "pyproject.toml").write_text(f"[tool.ptxdiff.lint]\n{settings}\n")
        for name, text in files.items():
            path = tmp_path / (name.replace("__", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def found(*paths, **options):
    report = lint_paths(paths, Configuration(Options(**options)))
    return sorted((f.rule, f.path.rsplit("/", 1)[-1]) for f in report.findings if f.severity != "note"), report


def test_the_names_of_rules_are_those_of_their_pages():
    assert rule_names() == tuple(rules())


def test_select_and_ignore(tree):
    folder = tree(
        'select = ["syntax", "operand-out-of-range"]\nignore = ["operand-out-of-range"]', one=SYNTAX, two=RANGE
    )
    assert found(folder)[0] == [("syntax", "one.py")]
    tree('ignore = ["syntax"]')
    assert found(folder)[0] == [("operand-out-of-range", "two.py")]


def test_the_command_line_wins(tree):
    folder = tree(
        'select = ["syntax", "operand-sigil"]\nignore = ["operand-out-of-range"]\ntargets = ["sm_90a"]',
        one=SYNTAX,
        two=RANGE,
    )
    assert found(folder, select=("operand-out-of-range",))[0] == [("operand-out-of-range", "two.py")]
    assert found(folder, ignore=("syntax",))[0] == []
    assert found(folder, isolated=True)[0] == [("operand-out-of-range", "two.py"), ("syntax", "one.py")]


def test_targets(tree):
    folder = tree('targets = ["sm_70"]', one=NEW)
    assert found(folder)[0] == [("target-lacks", "one.py")]
    assert found(folder, targets=("sm_90",))[0] == []


def test_the_nearest_settings_hold_for_each_file(tree, monkeypatch):
    """From every working directory, by every spelling of a path; a pyproject.toml without our table does not count."""
    folder = tree('ignore = ["syntax"]', a__b__one=SYNTAX, c__one=SYNTAX, d__one=SYNTAX)
    (folder / "a" / "b" / "pyproject.toml").write_text('[project]\nname = "ptxdiff-user"\n')
    (folder / "c" / "pyproject.toml").write_text('[tool.ptxdiff.lint]\nselect = ["syntax"]\n')
    (folder / "d" / "pyproject.toml").write_text("this is = [no TOML\n")
    result, report = found(folder)
    assert (result, [f.path for f in report.findings]) == ([("syntax", "one.py")], [str(folder / "c" / "one.py")])
    assert report.settings == sorted(str(folder / p) for p in ("pyproject.toml", "c/pyproject.toml"))
    monkeypatch.chdir(folder / "c")
    from pathlib import Path

    assert found(Path("../a/b/one.py"))[0] == []
    assert found(Path("one.py"))[0] == [("syntax", "one.py")]
    assert found(Path("../d/../c/one.py"))[0] == [("syntax", "one.py")]


@pytest.mark.parametrize(
    ("pattern", "covered"),
    [
        ("one.py", {"one", "a/one", "a/b/one"}),
        ("a/one.py", {"a/one"}),
        ("a/*", {"a/one", "a/two"}),
        ("a/**", {"a/one", "a/two", "a/b/one"}),
        ("**/b/*.py", {"a/b/one"}),
        ("a/**/one.py", {"a/one", "a/b/one"}),
        ("*.py", {"one", "a/one", "a/two", "a/b/one", "aa/one"}),
        ("a?/*.py", {"aa/one"}),
        ("[ab]/one.py", {"a/one"}),
        ("[!a]/one.py", set()),
        ("?ne.py", {"one", "a/one", "a/b/one", "aa/one"}),
        ("on", set()),
        ("b/one.py", set()),
        ("ONE.py", set()),
    ],
)
def test_a_pattern_of_per_file_ignores_covers_what_it_says(tree, pattern, covered):
    if pattern in ("one.py",):
        covered = covered | {"aa/one"}
    folder = tree(
        f'per-file-ignores = {{ "{pattern}" = ["syntax"] }}',
        one=SYNTAX, a__one=SYNTAX, a__two=SYNTAX, a__b__one=SYNTAX, aa__one=SYNTAX,
    )  # fmt: skip
    report = lint_paths([folder])
    everything = {"one", "a/one", "a/two", "a/b/one", "aa/one"}
    assert {f.path.removeprefix(f"{folder}/").removesuffix(".py") for f in report.findings} == everything - covered
    assert report.ignored == len(covered)


def test_per_file_ignores_hide_only_the_rules_that_they_name(tree, capsys):
    tree('per-file-ignores = { "one.py" = ["syntax"] }', one=SYNTAX + RANGE)
    assert main(["lint", "one.py"]) == 1
    out = capsys.readouterr().out
    assert "[syntax]" not in out
    assert "[operand-out-of-range]" in out
    assert "1 ignored by per-file-ignores" in out


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("gen", {"one", "src/one", "generated/one"}),
        ("gen/", {"one", "src/one", "generated/one"}),
        ("src/gen", {"one", "src/one", "gen/one", "generated/one"}),
        ("**/gen/**", {"one", "src/one", "generated/one"}),
        ("one.py", set()),
        ("src/*.py", {"one", "src/gen/one", "gen/one", "generated/one"}),
    ],
)
def test_exclude(tree, pattern, left):
    folder = tree(
        f'exclude = ["{pattern}"]',
        one=SYNTAX, src__one=SYNTAX, src__gen__one=SYNTAX, gen__one=SYNTAX, generated__one=SYNTAX,
    )  # fmt: skip
    report = lint_paths([folder])
    assert {f.path.removeprefix(f"{folder}/").removesuffix(".py") for f in report.findings} == left
    assert report.excluded


def test_a_given_path_is_linted_although_it_is_excluded(tree, capsys):
    tree('exclude = ["gen"]', gen__one=SYNTAX)
    assert main(["lint", "."]) == 0
    assert "1 path excluded by settings" in capsys.readouterr().out
    assert main(["lint", ".", "--verbose"]) == 0
    assert "gen: note: excluded by 'gen' in" in capsys.readouterr().out
    for path in ("gen", "gen/one.py"):
        assert main(["lint", path]) == 1


def test_a_given_path_that_is_excluded_by_force_is_named(tree, capsys):
    tree('exclude = ["gen"]', gen__one=SYNTAX)
    for path in ("gen", "gen/one.py"):
        assert main(["lint", "--force-exclude", path]) == 0
        assert f"{path}: note: the given path is excluded: excluded by 'gen'" in capsys.readouterr().out


WRONG = [
    ("selects = []", "no key 'selects'; did you mean select?"),
    ("per_file_ignores = {}", "did you mean per-file-ignores?"),
    ("colour = 1", "its keys are exclude, ignore, per-file-ignores, select, targets"),
    ('select = "syntax"', "select must be a list of names of rules"),
    ("ignore = [1]", "found a number, 1"),
    ("select = []", "no rule would run"),
    ('select = ["sintax"]', "did you mean syntax?"),
    ('ignore = ["ALL"]', "no rule is called 'ALL'"),
    ('per-file-ignores = ["a"]', "must be a table"),
    ('per-file-ignores = { "a.py" = "syntax" }', "per-file-ignores 'a.py' must be a list"),
    ('per-file-ignores = { "a.py" = ["sintax"] }', "did you mean syntax?"),
    ('per-file-ignores = { "sub" = ["syntax"] }', "write 'sub/**'"),
    ('per-file-ignores = { "/a.py" = ["syntax"] }', "is absolute"),
    ('exclude = ["../a"]', "relative to the folder"),
    ('exclude = ["./a"]', "relative to the folder"),
    ('exclude = [""]', "is empty"),
    ('exclude = ["{a,b}"]', "not supported"),
    ('exclude = ["!a"]', "not supported"),
    ('exclude = ["a**"]', "stands for whole folders"),
    ('exclude = ["[z-a]"]', "wrong set of characters"),
    ("exclude = ['a\\b']", "backslash"),
    ('targets = ["sm_x"]', "sm_x"),
    ('targets = "sm_90"', "must be a list of targets"),
    ("select = [", "is no TOML"),
]


@pytest.mark.parametrize(("settings", "says"), WRONG, ids=[s for s, _ in WRONG])
def test_wrong_settings_are_errors(tree, capsys, settings, says):
    """Also where no file has asm, so that a mistake is not found months later."""
    tree(settings, sub__plain="x = 1\n")
    assert main(["lint", "."]) == 2
    message = capsys.readouterr().err
    assert says in message
    assert "pyproject.toml" in message


def test_keys_in_the_wrong_table_are_errors(tree, capsys):
    folder = tree(one=SYNTAX)
    for text, says in (
        ('[tool.ptxdiff]\nselect = ["syntax"]\n', "write it in [tool.ptxdiff.lint]"),
        ('[tool.ptxdiff.lnt]\nselect = ["syntax"]\n', "did you mean lint?"),
        ("[tool]\nptxdiff = 1\n", "must be a table"),
        ('[tool.ptx-diff.lint]\nselect = ["syntax"]\n', "did you mean [tool.ptxdiff.lint]?"),
        ('[tool.PtxDiff]\nselect = ["syntax"]\n', "did you mean [tool.ptxdiff.lint]?"),
        ('[tool.ptxdiff-lint]\nselect = ["syntax"]\n', "did you mean [tool.ptxdiff.lint]?"),
    ):
        (folder / "pyproject.toml").write_text(text)
        assert main(["lint", "one.py"]) == 2
        assert says in capsys.readouterr().err


def test_settings_that_cannot_be_read_are_an_error(tree):
    folder = tree(one=SYNTAX)
    (folder / "pyproject.toml").mkdir()
    with pytest.raises(SettingsError, match="cannot be read"):
        lint_paths([folder])


def test_a_snippet_has_the_settings_of_the_working_directory(tree, capsys):
    tree('ignore = ["syntax"]')
    assert main(["lint", "--asm", "neg.f32 $0 $1;", "-c", "=f,f"]) == 0
    assert main(["lint", "--isolated", "--asm", "neg.f32 $0 $1;", "-c", "=f,f"]) == 1


def test_select_leaves_out_no_file_that_cannot_be_read(tree):
    folder = tree('select = ["operand-out-of-range"]', one=f"def (:\n{SYNTAX}")
    assert found(folder)[0] == [("unreadable-file", "one.py")]
    assert found(folder, ignore=("unreadable-file",))[0] == []


def test_a_comment_is_not_unused_because_settings_ignore_its_rule(tree):
    folder = tree('ignore = ["syntax"]', one=SYNTAX.rstrip() + "  # ptxdiff: ignore[syntax]\n")
    assert found(folder)[0] == []
    tree('per-file-ignores = { "one.py" = ["syntax"] }')
    assert found(folder)[0] == []


def test_settings_that_leave_no_rule_are_an_error(tree, capsys):
    tree('select = ["syntax"]\nignore = ["syntax"]', one=SYNTAX)
    assert main(["lint", "one.py"]) == 2
    assert "no rule is left" in capsys.readouterr().err
    assert main(["lint", "--isolated", "--select", "syntax", "--ignore", "syntax", "one.py"]) == 2


@pytest.mark.parametrize(
    "text",
    ["[tool.ptx-assembler]\nlint = 1\n", '[project]\nname = "ptxtools"\n', "ptx = [\n", "[tool.ptxdif]\nx = 1\n"],
)
def test_settings_of_other_tools_are_no_concern(tree, text):
    folder = tree(one=SYNTAX)
    (folder / "pyproject.toml").write_text(text)
    assert found(folder)[0] == [("syntax", "one.py")]
