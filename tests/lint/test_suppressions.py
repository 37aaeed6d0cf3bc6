"""Comments that silence rules: what each covers, and what none may hide."""

import pytest

from ptxdiff.lint.files import lint_text

CALL = 'y = tl.inline_asm_elementwise("{}", "{}", [x], dtype=tl.float32, is_pure=True, pack=1)'
SYNTAX = CALL.format("neg.f32 $0 $1;", "=f,f")
RIGHT = CALL.format("neg.f32 $0, $1;", "=f,f")
BLOCK = '''y = tl.inline_asm_elementwise(
    """
    mov.f32 $0, $5;
    mov.f32 $0, $6;{}
    """, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)'''
"""Two mistakes on two lines."""
CUDA = '__device__ float f(float x) {\n  float y;\n  asm("neg.f32 %0 %1;" : "=f"(y) : "f"(x));\n  return y;\n}\n'


def lint(text, path="file.py", **options):
    return lint_text(path, text.encode(), **options)


def found(text, path="file.py", **options):
    return [(f.rule, f.line) for f in lint(text, path, **options).findings]


@pytest.mark.parametrize("comment", ["ignore", "ignore -- known", "ignore  # noqa"])
def test_ignore_alone_silences_every_rule_on_its_line(comment):
    report = lint(f"{SYNTAX}  # ptxdiff: {comment}")
    assert (report.findings, report.silenced) == ([], 1)
    assert found(f"# ptxdiff: {comment}\n{SYNTAX}") == []


def test_ignore_alone_hides_no_other_line_of_its_block():
    """Neither within the asm, nor on the last line of the call, where ignore[rule] covers the whole block."""
    assert [line for rule, line in found(BLOCK.format("")) if rule == "operand-out-of-range"] == [3, 4]
    inside = found(BLOCK.format(" // ptxdiff: ignore"))
    assert [line for rule, line in inside if rule == "operand-out-of-range"] == [3]
    after = found(BLOCK.format("") + "  # ptxdiff: ignore")
    assert [line for rule, line in after if rule == "operand-out-of-range"] == [3, 4]
    assert found(BLOCK.format("") + "  # ptxdiff: ignore[operand-out-of-range]") == []
    assert ("operand-out-of-range", 3) in found(BLOCK.format("") + "  # ptxdiff: ignore[syntax]")


@pytest.mark.parametrize(
    "comment",
    [
        "ignore syntax", "ignore: syntax", "ignore(syntax)", "ignore [syntax]", "ignore = syntax", "ignore-next",
        "ignore[]", "ignore[*]", "ignore[", "ignore, please", "ignore the operand",
    ],
)  # fmt: skip
def test_what_only_looks_like_ignore_silences_nothing_and_is_named(comment):
    report = lint(f"{SYNTAX}  # ptxdiff: {comment}")
    assert [f.rule for f in report.findings] == ["syntax", "unknown-ignore"]
    assert report.silenced == 0


def test_ignore_alone_that_silences_nothing_is_unused():
    assert found(f"{RIGHT}  # ptxdiff: ignore") == [("unused-ignore", 1)]
    # A run of some rules cannot know what the others would find.
    assert found(f"{RIGHT}  # ptxdiff: ignore", chosen=["syntax", "unused-ignore"]) == []


def test_ignore_alone_does_not_hide_a_rule_that_failed(monkeypatch):
    from ptxdiff.lint.rules import rules

    def fails(block):
        raise RuntimeError("planted")

    rule = rules()["operand-unused"]
    monkeypatch.setitem(rules(), "operand-unused", type(rule)(rule.name, "", "", "error", fails))
    assert ("internal", 1) in found(f"{RIGHT}  # ptxdiff: ignore")


@pytest.mark.parametrize(
    "comment", ["NOLINT", "NOLINT(*)", "NOLINT(ptxdiff-syntax)", "NOLINT(runtime/int, ptxdiff-syntax)", "NOLINT: why"]
)
def test_nolint(comment):
    line = CUDA.split("\n")[2]
    report = lint(CUDA.replace(line, f"{line}  // {comment}"), "a.cu")
    assert (report.findings, report.silenced) == ([], 1)
    above = CUDA.replace(line, f"  // {comment.replace('NOLINT', 'NOLINTNEXTLINE')}\n{line}")
    assert found(above, "a.cu") == []


@pytest.mark.parametrize(
    "comment",
    [
        "NOLINT(runtime/int)", "NOLINT()", "NOLINT(ptxdiff-operand-unused)", "NOLINTBEGIN", "NOLINTER", "nolint",
        "NOLINTNEXTLINE", "NOLINT(readability-*)",
    ],
)  # fmt: skip
def test_a_nolint_for_something_else_silences_nothing(comment):
    line = CUDA.split("\n")[2]
    assert ("syntax", 3) in found(CUDA.replace(line, f"{line}  // {comment}"), "a.cu")


def test_nolint_covers_one_line():
    line = CUDA.split("\n")[2]
    assert ("syntax", 4) in found(CUDA.replace(line, f"  // NOLINT\n{line}"), "a.cu")
    assert ("syntax", 5) in found(CUDA.replace(line, f"  // NOLINTNEXTLINE\n\n{line}"), "a.cu")
    assert ("syntax", 1) in found(f"{SYNTAX}  # NOLINT"), "NOLINT belongs to C++"
    assert ("syntax", 3) in found(CUDA.replace("float y;", 'const char* s = "// NOLINTNEXTLINE";'), "a.cu")


def test_an_unused_nolint_is_named_only_if_it_names_our_rule():
    right = CUDA.replace("%0 %1", "%0, %1")
    line = right.split("\n")[2]
    assert found(right.replace(line, f"{line}  // NOLINT"), "a.cu") == []
    assert found(right.replace(line, f"{line}  // NOLINT(*)"), "a.cu") == []
    assert found(right.replace(line, f"{line}  // NOLINT(ptxdiff-syntax)"), "a.cu") == [("unused-ignore", 3)]
    assert found(right.replace(line, f"{line}  // NOLINT(ptxdiff-sintax)"), "a.cu") == [("unknown-ignore", 3)]


def test_the_case_of_a_suffix_does_not_matter():
    assert found(f"{SYNTAX}  # ptxdiff: ignore", "FILE.PY") == []
    assert ("syntax", 3) in found(CUDA, "FILE.CU")
    assert found(CUDA.replace("return", "// NOLINT\n  return"), "FILE.CU") == [("syntax", 3)]
