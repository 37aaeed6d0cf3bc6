"""`ptxdiff lint`: options, formats, exit codes, repairs."""

import io
import json
import re
import sys

import pytest

from ptxdiff.cli import main
from ptxdiff.lint.fixes import repaired

WRONG = 'y = tl.inline_asm_elementwise("neg.f32 $0 $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)\n'
RIGHT = WRONG.replace("$0 $1", "$0, $1")
NOTED = RIGHT.replace("neg.f32 $0, $1;", "{ .reg .f32 t; mul.f32 t, $1, $1; add.f32 $0, t, $1; }")


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(text, name="kernel.py"):
        (tmp_path / name).write_text(text)
        return name

    return write


@pytest.mark.parametrize(("text", "code"), [(WRONG, 1), (RIGHT, 0), (NOTED, 0), ("x = 1\n", 0)])
def test_exit_codes(file, text, code):
    assert main(["lint", file(text)]) == code


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "give files"),
        (["nowhere.py"], "no file"),
        (["."], None),
        (["--select", "sintax", "."], "did you mean syntax"),
        (["--ignore", "no-such", "."], "no rule is called 'no-such'"),
        (["--explain", "no-such"], "no rule"),
        (["--asm", "ret;"], "--constraints"),
        (["--asm", "ret;", "-c", "", "."], "give either --asm or paths"),
        (["--asm", "ret;", "-c", "", "--output", "float33"], "float33"),
        (["-c", "=r", "."], "belong to a snippet"),
        (["--write", "."], "--fix"),
        (["--target", "sm_x", "."], "sm_x"),
        (["text.md"], "end in"),
    ],
)
def test_usage(file, capsys, words, says):
    file("", "text.md")
    assert main(["lint", *words]) == (2 if says else 0)
    assert (says or "nothing found") in "".join(capsys.readouterr())


def test_text_output_names_the_mistake_the_reason_and_the_repair(file, capsys):
    main(["lint", file(WRONG.replace("$0 $1", "$0, %1"))])
    out = capsys.readouterr().out
    assert out.startswith("kernel.py:1:44: error [operand-sigil] ")
    assert "asm 1:13  neg.f32 $0, %1;" in out
    assert "why: " in out and "instead: write `$1`" in out and "--fix: " in out  # noqa: PT018
    assert out.endswith("1 error in 1 block of asm in 1 file (1 searched)\n")


def test_unchecked_places_are_counted(file, capsys):
    assert main(["lint", file(WRONG.replace('"neg.f32 $0 $1;"', "ELSEWHERE"))]) == 0
    out = capsys.readouterr().out
    assert "kernel.py:1: note: not resolved" in out
    assert "1 place not looked at" in out


def test_one_snippet(capsys, monkeypatch):
    assert main(["lint", "--asm", "add.f32 $0, $1, $2;", "-c", "=f,f,f", "--output", "float32"]) == 0
    assert main(["lint", "--asm", "add.f32 %0, %1, %2;", "-c", "=f,f,f", "--convention", "cuda"]) == 0
    assert main(["lint", "--asm", "add.f32 $0, $1, $2;", "-c", "=f,f,f", "--output", "float16", "--pack", "4"]) == 1
    monkeypatch.setattr(sys, "stdin", io.StringIO("add.f32 $0, $1, $3;"))
    capsys.readouterr()
    assert main(["lint", "-", "--constraints", "=f,f,f"]) == 1
    assert "asm:1:17: error [operand-out-of-range]" in capsys.readouterr().out


def test_select_and_ignore(file, capsys):
    name = file(WRONG.replace("neg.f32 $0 $1;", ".reg .f32 t; neg.f32 t, $1; mov.f32 $0, t"))
    assert main(["lint", name, "--select", "operand-unused,syntax"]) == 0
    assert main(["lint", name, "--ignore", "missing-semicolon"]) == 0
    assert main(["lint", name, "--select", "missing-semicolon"]) == 1


def test_json(file, capsys):
    main(["lint", file(WRONG), "--format", "json"])
    value = json.loads(capsys.readouterr().out)
    (finding,) = value["findings"]
    assert (finding["rule"], finding["line"], finding["asm_column"], finding["path"]) == ("syntax", 1, 12, "kernel.py")
    assert (value["blocks"], value["files"], value["notes"]) == (1, 1, [])


def test_sarif_has_the_properties_of_the_schema(file, capsys):
    """The properties that SARIF 2.1.0 requires, and the kinds of value it allows (sections 3.13 to 3.30)."""
    main(["lint", file(WRONG + WRONG), "--format", "sarif"])
    log = json.loads(capsys.readouterr().out)
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"] == "ptxdiff lint"
    assert [r["id"] for r in rules] == ["syntax"]
    assert rules[0]["help"]["markdown"].startswith("# syntax")
    for result, line in zip(run["results"], (1, 2), strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == "syntax"
        assert result["level"] in ("error", "warning", "note")
        (place,) = result["locations"]
        assert place["physicalLocation"]["artifactLocation"] == {"uri": "kernel.py", "uriBaseId": "%SRCROOT%"}
        assert place["physicalLocation"]["region"] == {
            "startLine": line,
            "startColumn": 43,
            "endLine": line,
            "endColumn": 45,
        }
        assert result["message"]["text"]
    assert len({r["partialFingerprints"]["ptxdiffLint/v1"] for r in run["results"]}) == 2


def test_github(file, capsys):
    main(["lint", file(WRONG), "--format", "github"])
    first = capsys.readouterr().out.split("\n")[0]
    assert re.match(r"::error file=kernel\.py,line=1,col=43,endColumn=44,title=ptxdiff lint%3A syntax::expected", first)


def test_pages_and_the_list_of_rules(capsys):
    assert main(["lint", "--explain", "operand-sigil"]) == 0
    assert capsys.readouterr().out.startswith("# operand-sigil")
    assert main(["lint", "--rules"]) == 0
    assert "missing-semicolon " in capsys.readouterr().out


def test_repairs_are_shown_and_made_only_if_requested(file, tmp_path, capsys):
    name = file(WRONG.replace("$0 $1", "$0, %1"))
    before = (tmp_path / name).read_text()
    assert main(["lint", "--fix", name]) == 1
    assert (tmp_path / name).read_text() == before
    assert f"+{RIGHT}" in capsys.readouterr().out
    assert main(["lint", "--fix", "--write", name]) == 0
    assert (tmp_path / name).read_text() == RIGHT


BLOCK = ".reg .f32 t; {}.f32 t, $1; mov.f32 $0, t;"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"neg.f32 $0, %1"', '"neg.f32 $0, $1;"'),
        (f'"{BLOCK.format("neg")[:-1]}"', f'"{{ {BLOCK.format("neg")} }}"'),
        (f'f"{BLOCK}"'.replace("{}", "{OP}"), f'f"{{{{ {BLOCK} }}}}"'.replace("{}", "{OP}")),
        ('"""\n    neg.f32 $0, $1  // minus\n    """', '"""\n    neg.f32 $0, $1;  // minus\n    """'),
    ],
)
def test_a_repair(before, after):
    source = 'OP = "neg"\ny = tl.inline_asm_elementwise(ASM, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)\n'
    result = repaired("a.py", source.replace("ASM", before))
    assert result.after == source.replace("ASM", after)
    assert repaired("a.py", result.after).applied == []


def test_a_repair_in_cuda():
    before = '__device__ float f(float x) {\n  float y;\n  asm("neg.f32 $0, $1;" : "=f"(y) : "f"(x));\n  return y;\n}\n'
    assert repaired("a.cu", before).after == before.replace("$0, $1", "%0, %1")


def test_a_repair_that_the_file_does_not_allow_is_refused():
    """The wrong sign comes from a formatted number, so no edit of the file gives the intended text."""
    source = (
        "A = 'neg.f32 $0, %s1;' % chr(37)\nB = f'neg.f32 $0, {\"%\"!s}1;'\n"
        'y = tl.inline_asm_elementwise(B, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)\n'
    )
    result = repaired("a.py", source)
    assert [f.rule for f in result.refused] == ["operand-sigil"]
    assert (result.after, result.diff()) == (source, "")


def test_a_comment_in_a_file_gives_no_command(file, capsys):
    main(
        ["lint", file(WRONG.replace("neg.f32 $0 $1;", "neg.f32 $0 \\n::error::planted\\x1b[31m")), "--format", "github"]
    )
    out = capsys.readouterr().out
    assert not any(line.startswith("::error::planted") for line in out.split("\n"))
    assert "\x1b" not in out


FOUR = [
    ("one.py", "# \u00e9\n" + WRONG.replace("$0 $1", "$0, %1")),
    ("two.py", 'OP = "neg"\n' + WRONG.replace('"neg.f32 $0 $1;"', 'f".reg .f32 t; {OP}.f32 t, $1; mov.f32 $0, t;"')),
    (
        "three.cu",
        '// \u00e9\nasm("neg.f32 $0,"\n " $1;" : "=f"(y) : "f"(x));\nasm("abs.f32 $0, $1;" : "=f"(y) : "f"(x));\n',
    ),
    (
        "four.py",
        "# -*- coding: latin-1 -*-\r\n# \u00e9\r\n"
        + WRONG.replace("$0 $1", "$0, $1").replace("$1;", "$1").replace("\n", "\r\n"),
    ),
]


def changed(text, changes):
    """A text with the changes made whose lines and columns a tool reads."""
    lines = text.split("\n")
    for line, column, end_line, end_column, new in sorted(changes, reverse=True):
        assert line == end_line
        lines[line - 1] = lines[line - 1][: column - 1] + new + lines[line - 1][end_column - 1 :]
    return "\n".join(lines)


@pytest.mark.parametrize(("name", "text"), FOUR, ids=[n for n, _ in FOUR])
def test_json_and_sarif_have_the_repairs_as_changes_of_the_file(file, tmp_path, capsys, name, text):
    """Made by a reader of either format, they give the file that --fix --write gives."""
    encoding = "latin-1" if "latin-1" in text else "utf-8"
    (tmp_path / name).write_bytes(text.encode(encoding))
    main(["lint", name, "--format", "json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    names = ("line", "column", "end_line", "end_column", "new")
    groups = [group["replacements"] for f in findings if "fix" in f for group in (f["fix"], *f["places"])]
    from_json = [tuple(change[n] for n in names) for group in groups for change in group]
    main(["lint", name, "--format", "sarif"])
    from_sarif = []
    for result in json.loads(capsys.readouterr().out)["runs"][0]["results"]:
        if "fixes" not in result:
            continue
        (fix,) = result["fixes"]
        (change,) = fix["artifactChanges"]
        assert change["artifactLocation"] == {"uri": name, "uriBaseId": "%SRCROOT%"}
        assert fix["description"]["text"]
        for each in change["replacements"]:
            region = [each["deletedRegion"][n] for n in ("startLine", "startColumn", "endLine", "endColumn")]
            from_sarif.append((*region, each["insertedContent"]["text"]))
    assert set(from_json) == set(from_sarif)
    assert from_json
    main(["lint", name, "--fix", "--write"])
    assert (tmp_path / name).read_bytes().decode(encoding) == changed(text, set(from_json))


def test_a_repair_that_the_file_cannot_express_is_no_change(file, capsys):
    name = file(
        "A = 'neg.f32 $0, %s1;' % chr(37)\nB = f'neg.f32 $0, {\"%\"!s}1;'\n"
        'y = tl.inline_asm_elementwise(B, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)\n'
    )
    main(["lint", name, "--format", "json"])
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["fix"]["replacements"] == []
    main(["lint", name, "--format", "sarif"])
    assert "fixes" not in json.loads(capsys.readouterr().out)["runs"][0]["results"][0]


@pytest.mark.parametrize(
    ("text", "first", "last", "about"),
    [
        (WRONG.replace("$0 $1", "$0, $15"), 1, 1, "$15"),
        (WRONG.replace("$0 $1", "$0, %1"), 1, 1, "%1"),
        (RIGHT.replace("=f,f", "=f,f,f").replace("[x]", "[x, y]"), 1, 1, None),
        (WRONG.replace('"neg.f32 $0 $1;"', '"""\nneg.f32 $0, $1;\n  mov.b32 $0, $7;\n"""'), 3, 3, "$7"),
    ],
)
def test_findings_have_an_end(file, capsys, text, first, last, about):
    main(["lint", file(text), "--format", "json"])
    finding = json.loads(capsys.readouterr().out)["findings"][0]
    assert (finding["line"], finding["end_line"]) == (first, last)
    shown = text.split("\n")[first - 1][finding["column"] - 1 : finding["end_column"] - 1]
    assert shown == about or (about is None and shown)


def test_a_finding_about_a_whole_call_ends_with_it(file, capsys):
    text = '__device__ void f(float &y, float x) {\n  asm("neg.f32 %0, %1;"\n    : "=f"(y)\n    : "f"(x), "f"(x));\n}\n'
    name = file(text, "a.cu")
    main(["lint", name, "--format", "json"])
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["rule"], finding["line"]) == ("operand-unused", 4) or (finding["end_line"] == 4)
    main(["lint", name, "--format", "github"])
    assert re.match(r"::\w+ file=a.cu,line=\d,(endLine=4|col=\d+,endColumn=\d+),title=", capsys.readouterr().out)
