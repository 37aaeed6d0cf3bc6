"""Baselines of known findings: what they hide, and above all what they may not hide."""

import json

import pytest

from ptxdiff.cli import main
from ptxdiff.lint.baseline import LintBaselineError, read_baseline

BLOCK = '''
def f(x):
    return tl.inline_asm_elementwise(
        """
        mov.f32 $0, $5;
        neg.f32 $0, $1; // sign
        """, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
'''
SIGIL = BLOCK.replace("mov.f32 $0, $5", "neg.f32 $0, %1")


@pytest.fixture
def lint(tmp_path, monkeypatch, capsys):
    """Lints texts by file name with a baseline; returns the exit code and what was printed."""
    monkeypatch.chdir(tmp_path)

    def run(*options, paths=(".",), baseline="known.json", **texts):
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(text)
        code = main(["lint", "--baseline", baseline, *options, *paths])
        return code, capsys.readouterr().out

    return run


def test_known_findings_are_not_reported_and_new_ones_are(lint):
    code, out = lint("--write-baseline", one=BLOCK)
    assert (code, "known.json: 1 known findings" in out) == (0, True)
    code, out = lint()
    assert (code, "1 known from the baseline" in out) == (0, True)
    code, out = lint(two=BLOCK)
    assert (code, "two.py:5:21: error [operand-out-of-range]" in out, "one.py" in out) == (1, True, False)


@pytest.mark.parametrize(
    "after",
    [
        f"# a line\n\n{BLOCK}",
        BLOCK.replace("\n    ", "\n        ").replace("def f(x):", "class A:\n    def f(x):"),
        BLOCK.replace("mov.f32 $0,", "mov.f32    $0,"),
        BLOCK.replace('"""\n        mov', '"""\n\n        mov'),
        BLOCK.replace("def f(x)", "def renamed(x)"),
    ],
)
def test_a_known_finding_survives_what_does_not_change_its_block(lint, after):
    lint("--write-baseline", one=BLOCK)
    assert after != BLOCK
    code, out = lint(one=after)
    assert (code, "gone" in out) == (0, False), out


@pytest.mark.parametrize(
    "after",
    [
        BLOCK.replace("neg.f32 $0, $1;", "neg.f32 $0, $6;"),  # the same rule at another place of the block
        BLOCK.replace("mov.f32 $0, $5", "mov.f32 $0, $6"),  # the same rule, other words
        BLOCK.replace("mov.f32 $0, $5", "add.f32 $0, $5, $5"),  # twice in one place's statement
        BLOCK.replace("$0, $5;\n       ", "$0, $5; //"),  # a comment now takes the next instruction
        BLOCK.replace('"=f,f"', '"=r,f"'),
        BLOCK.replace("is_pure=True", "is_pure=False"),
        BLOCK.replace("tl.float32", "tl.float16"),
        BLOCK.replace("neg.f32 $0, $1", "abs.f32 $0, $1"),
        BLOCK + BLOCK,
        f"{BLOCK}    # ptxdiff: ignore[sintax]\n",
    ],
)
def test_a_change_of_the_block_brings_its_findings_back(lint, after):
    lint("--write-baseline", one=BLOCK)
    assert after != BLOCK
    code, out = lint(one=after)
    assert code == 1, out


def test_a_new_finding_of_another_rule_in_a_known_block_is_new(lint):
    """The block is the same; the target, or the rules that run, have changed."""
    lint("--write-baseline", one=BLOCK.replace("mov.f32 $0, $5", "tanh.approx.f32 $0, $1; .reg .f32 t"))
    assert lint()[0] == 0
    code, out = lint("--target", "sm_70")
    assert (code, "[target-lacks]" in out, "[declaration-outside-braces]" in out) == (1, True, False)
    lint("--write-baseline", "--select", "operand-unused", two=BLOCK)
    assert lint()[0] == 1


def test_equal_findings_are_counted(lint):
    lint("--write-baseline", one=BLOCK * 3)
    assert lint(one=BLOCK * 3)[0] == 0
    code, out = lint(one=BLOCK * 4)
    assert code == 1
    assert "1 error in 4 blocks" in out
    assert "3 known" in out


def test_a_path_given_twice_counts_once(lint):
    lint("--write-baseline", paths=(".", "one.py"), one=BLOCK)
    assert lint(one=BLOCK * 2)[0] == 1


def test_what_is_gone_is_named(lint, tmp_path):
    lint("--write-baseline", one=BLOCK * 2, two=SIGIL)
    code, out = lint(one=BLOCK)
    assert (code, "one.py: gone from the baseline's findings: [operand-out-of-range]" in out) == (0, True)
    (tmp_path / "two.py").unlink()
    assert "two.py: gone from the baseline's findings: [operand-sigil]" in lint()[1]
    lint("--write-baseline")
    assert "gone" not in lint()[1]
    assert lint(one=BLOCK * 2)[0] == 1, "what was gone is new if it comes back"


def test_a_run_of_some_files_or_rules_leaves_the_other_entries(lint):
    lint("--write-baseline", one=BLOCK, two=SIGIL)
    for options in ({"paths": ("one.py",)}, {"paths": ("two.py",)}):
        assert "gone" not in lint(**options)[1]
    assert "gone" not in lint("--select", "syntax")[1]
    lint("--write-baseline", paths=("one.py",))
    lint("--write-baseline", "--select", "operand-sigil")
    assert lint()[0] == 0


def test_the_working_directory_does_not_matter(lint, tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "one.py").write_text(BLOCK)
    lint("--write-baseline")
    monkeypatch.chdir(tmp_path / "sub")
    assert lint(paths=("one.py",), baseline="../known.json")[0] == 0
    assert lint(paths=(str(tmp_path),), baseline=str(tmp_path / "known.json"))[0] == 0
    (tmp_path / "one.py").write_text(BLOCK)
    assert lint(paths=("..",), baseline="../known.json")[0] == 1, "a file of the same name elsewhere is another file"


def test_a_file_that_cannot_be_read_is_never_known(lint):
    """What is in it was not examined: known today, it would hide every mistake of tomorrow."""
    code, out = lint("--write-baseline", one=f"def (:\n{BLOCK}")
    assert (code, "[unreadable-file]" in out) == (1, True)
    assert lint()[0] == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "--write-baseline makes it"),
        ("", "is no baseline"),
        ("[]", "must have"),
        ('{"format": "ptxdiff lint baseline 2", "findings": []}', "must have"),
        ('{"format": "ptxdiff lint baseline 1"}', "must be a list"),
        ('{"format": "ptxdiff lint baseline 1", "findings": [{"path": "a"}]}', "finding 1 must have path, rule"),
    ],
)
def test_what_is_no_baseline_is_an_error(tmp_path, content, says):
    file = tmp_path / "known.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(LintBaselineError, match=says):
        read_baseline(str(file))


def test_an_edited_entry_is_an_error(lint, tmp_path):
    lint("--write-baseline", one=BLOCK)
    file = tmp_path / "known.json"
    value = json.loads(file.read_text())
    (entry,) = value["findings"]
    for findings, says in (
        ([{**entry, "count": True}], "count of finding 1"),
        ([{**entry, "more": 1}], "nothing else"),
        ([entry, entry], "twice"),
    ):
        file.write_text(json.dumps({**value, "findings": findings}))
        with pytest.raises(LintBaselineError, match=says):
            read_baseline(str(file))


@pytest.mark.parametrize(
    "words",
    [["--write-baseline", "."], ["--baseline", "a", "--asm", "ret;", "-c", ""], ["--baseline", "none.json", "."]],
)
def test_usage(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["lint", *words]) == 2
