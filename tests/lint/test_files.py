"""Files and folders: which are opened, which findings a comment silences, which modules are loaded."""

import itertools
import subprocess
import sys

import pytest

from ptxdiff.lint import engine
from ptxdiff.lint.files import lint_paths, lint_text
from ptxdiff.lint.rules import rules
from ptxdiff.lint.snippet import Snippet

WRONG = 'y = tl.inline_asm_elementwise("neg.f32 $0 $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)'
RIGHT = WRONG.replace("$0 $1", "$0, $1")


def names(report):
    return [f.rule for f in report.findings]


def lint(text, path="file.py", **options):
    return lint_text(path, text.encode(), **options)


def test_a_folder(tmp_path):
    (tmp_path / "pkg" / ".git").mkdir(parents=True)
    (tmp_path / "pkg" / ".git" / "hidden.py").write_text(WRONG)
    (tmp_path / "pkg" / "one.py").write_text(f"# a line\n{WRONG}\n")
    (tmp_path / "pkg" / "none.py").write_text("print('no')\n")
    (tmp_path / "pkg" / "text.txt").write_text(WRONG)
    (tmp_path / "two.cu").write_text('asm("neg.f32 %0 %1;" : "=f"(y) : "f"(x));')
    report = lint_paths([tmp_path])
    assert [(f.path, f.line) for f in report.findings] == [
        (str(tmp_path / "two.cu"), 1),
        (str(tmp_path / "pkg" / "one.py"), 2),
    ]
    assert (report.searched, report.files, report.snippets) == (3, 2, 2)


def test_a_finding_has_its_place_in_file_and_asm():
    call = 'tl.inline_asm_elementwise(\n    """\n    neg.f32 $0 $1;\n    """, "=f,f", [x], tl.float32, True, 1)'
    (finding,) = lint(f"# é\ny = {call}\n").findings
    assert (finding.line, finding.column) == (4, 16)
    assert (finding.asm_line, finding.asm_column) == (2, 16)


@pytest.mark.parametrize(
    "text",
    [
        f"{WRONG}  # ptxdiff: ignore[syntax]",
        f"# ptxdiff: ignore[syntax]\n{WRONG}",
        f"{WRONG}  # noqa  # ptxdiff: ignore[operand-unused,syntax]".replace("operand-unused,", ""),
        WRONG.replace("$1;", "$1; // ptxdiff: ignore[syntax]"),
        WRONG.replace('"neg.f32 $0 $1;"', '"""\nneg.f32 $0 $1; // ptxdiff: ignore[syntax]\n"""'),
        WRONG.replace('"neg.f32 $0 $1;"', '"""\n// ptxdiff: ignore[syntax]\nneg.f32 $0 $1;\n"""'),
    ],
)
def test_a_comment_silences(text):
    report = lint(text)
    assert (names(report), report.silenced) == ([], 1)


@pytest.mark.parametrize(
    "text",
    [
        f"{WRONG}\n# ptxdiff: ignore[syntax]",
        f"# ptxdiff: ignore[syntax]\n\n{WRONG}",
        f"{WRONG}; s = '# ptxdiff: ignore[syntax]'",
        f"{WRONG}  # ptxdiff: ignore[operand-unused]",
    ],
)
def test_a_comment_elsewhere_or_of_another_rule_does_not_silence(text):
    assert "syntax" in names(lint(text))


def test_a_comment_for_a_rule_that_did_not_run_is_not_reported():
    assert names(lint(f"{RIGHT}  # ptxdiff: ignore[syntax]")) == ["unused-ignore"]
    assert names(lint(f"{RIGHT}  # ptxdiff: ignore[syntax]", chosen=["operand-unused"])) == []


def test_a_register_that_another_block_declares_is_named():
    other = RIGHT.replace('"neg.f32 $0, $1;"', '".reg .f32 t; neg.f32 t, $1; mov.f32 $0, t;"')
    user = RIGHT.replace('"neg.f32 $0, $1;"', '"{ neg.f32 t, $1; mov.f32 $0, t; }"')
    found = {f.rule: f for f in lint(f"def first(x):\n    {other}\n{user}\n").findings}
    assert "of first, line 2" in found["undeclared-register"].message


def test_variants_of_a_case_that_flush_differently():
    case = """
from ptxdiff import Case, asm
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F32
case = Case(inputs={"a": F32, "b": F32}, outputs={"y": F32}, reference=arithmetic.mul,
            variants={"one": asm("mul.rn.f32 $0, $1, $2;"), "two": asm("mul.rn.ftz.f32 $0, $1, $2;")})
"""
    (finding,) = lint(case).findings
    assert (finding.rule, finding.line, finding.snippet.function) == ("mixed-ftz", 6, "two")


def test_a_rule_that_fails_is_a_finding(monkeypatch):
    def fails(block):
        raise RuntimeError("planted")

    each = rules()["operand-unused"]
    monkeypatch.setitem(rules(), "operand-unused", type(each)(each.name, "", "", "error", fails))
    (finding,) = engine.lint(Snippet("neg.f32 $0, $1;", "=f,f", pure=True))
    assert finding.rule == "internal"
    assert "operand-unused" in finding.message
    assert "planted" in finding.message


@pytest.mark.parametrize(
    "asm", ["", ";", "}", "{", "$", "$$", "%", "\x00", "\x01", "@", "/*", "//", "a" * 5000, "{" * 500, "$99999999999"]
)
def test_no_text_makes_a_rule_fail(asm):
    constraints = ["", "=r,r", "=", ",", "r,=r", "=r,0", "=r,n", "\x00", "=b,b"]
    conventions = ["triton", "llvm", "cuda"]
    failed = []
    for given, convention, dtypes in itertools.product(constraints, conventions, (None, ("int32",))):
        found = engine.lint(Snippet(asm, given, convention, True, 1, dtypes, dtypes))
        if "internal" in {f.rule for f in found}:
            failed.append((given, convention, dtypes))
    assert failed == []


def test_nothing_heavy_is_loaded_before_asm_is_found(tmp_path):
    for n in range(3):
        (tmp_path / f"plain{n}.py").write_text("print('inline')\n")
    script = (
        "import sys, pathlib\nfrom ptxdiff.lint.files import lint_paths\n"
        f"assert lint_paths([pathlib.Path({str(tmp_path)!r})]).searched == 3\n"
        "print(sorted(m for m in ('numpy', 'numba', 'torch', 'triton', 'ptxdiff.emulator') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "content", "line", "says"),
    [
        ("a.py", f"x = 1\ndef (:\n{WRONG}".encode(), 2, "no source of Python"),
        ("a.py", f"x = 1\n# \xe9\n{WRONG}".encode("latin-1"), 2, "byte 0xe9"),
        ("a.py", WRONG.encode("utf-16"), 1, "no Python source"),
        ("a.py", WRONG.encode("utf-32-le"), 1, "no source of Python"),
        ("a.py", f"# coding: nonsense\n{WRONG}".encode(), 1, "unknown encoding"),
        ("a.py", WRONG.encode() + b"\x00", 1, "null bytes"),
        ("a.pyi", f"{'(' * 9000}1\n{WRONG}".encode(), None, "no source of Python"),
    ],
)
def test_a_python_file_that_cannot_be_read_is_an_error(tmp_path, name, content, line, says):
    (tmp_path / name).write_bytes(content)
    (finding,) = lint_paths([tmp_path]).findings
    assert (finding.rule, finding.severity, finding.path) == ("unreadable-file", "error", str(tmp_path / name))
    assert says in finding.message
    assert line in (None, finding.line)


@pytest.mark.parametrize(
    ("name", "encoding", "head"),
    [
        ("a.py", "latin-1", "# -*- coding: latin-1 -*-\n# \xe9\n"),
        ("a.py", "utf-8-sig", "# \xe9\n"),
        ("a.cu", "latin-1", "// \xe9\n"),
        ("a.cu", "utf-16", "// \xe9\n"),
        ("a.cu", "utf-8-sig", "// \xe9\n"),
    ],
)
def test_a_file_in_another_encoding_is_read(tmp_path, name, encoding, head):
    text = WRONG if name == "a.py" else 'asm("neg.f32 %0 %1;" : "=f"(y) : "f"(x));'
    (tmp_path / name).write_bytes((head + text).encode(encoding))
    assert [(f.rule, f.line) for f in lint_paths([tmp_path]).findings] == [("syntax", head.count("\n") + 1)]


def test_what_cannot_be_opened_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "loop.py").symlink_to("loop.py")
    assert names(lint_paths([tmp_path / "loop.py"])) == ["unreadable-file"]
    assert names(lint_paths([tmp_path])) == [], "a link to nothing within a folder is no source"
    assert names(lint_paths([tmp_path / "gone.py"])) == ["unreadable-file"]

    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.scandir", refused)
    (finding,) = lint_paths([tmp_path]).findings
    assert (finding.rule, finding.path) == ("unreadable-file", str(tmp_path))
    assert "cannot be listed: Permission denied" in finding.message
