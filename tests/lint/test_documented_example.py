"""Triton's documented example: the linter names its mistake and demonstrates it, and the repair makes its case pass."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import numpy as np
import pytest
import triton.language as tl

from ptxdiff import emulate
from ptxdiff.cli import main
from ptxdiff.lint.files import lint_text
from ptxdiff.lint.fixes import repaired
from ptxdiff.records import read

HEAD = "import triton\nimport triton.language as tl\n\n"


@pytest.fixture(scope="module")
def example() -> str:
    """The kernel in the docstring of the installed Triton's `tl.inline_asm_elementwise`, as a file."""
    text = tl.inline_asm_elementwise.__doc__
    start = text.rindex("\n", 0, text.index("@triton.jit")) + 1
    return HEAD + textwrap.dedent(text[start : text.index(":param asm")].rstrip()) + "\n"


def findings(text: str):
    report = lint_text("example.py", text.encode())
    assert report.notes == []
    assert report.snippets == 1
    return report.findings


def test_the_missing_early_clobber_is_the_only_finding(example):
    (finding,) = findings(example)
    assert finding.rule == "missing-early-clobber"
    assert "`cvt.u32.u8 $0, tmp0;` writes $0 before `max.f32 $4, $4, $9;` reads $9" in finding.message
    assert example.splitlines()[finding.line - 1].strip() == "cvt.u32.u8 $0, tmp0;"
    assert finding.instead == "make the constraints of $0, $1, $2, $3, $4, $5, $6, $7 '=&r'"


def test_the_shown_inputs_give_a_wrong_result(example):
    (finding,) = findings(example)
    output, source = map(int, re.search(r"with \$(\d+) and \$(\d+) in one register", finding.message).groups())
    shown = {int(n): int(bits, 16) for n, bits in re.findall(r"\$(\d+) = (0x[0-9a-f]+)", finding.message)}
    wrong = re.search(r"\$(\d+) = 0x\w+ (?:\([^)]*\) )?instead of", finding.message)[1]
    wanted = int(re.search(r"instead of (0x\w+)", finding.message)[1], 16)
    inputs = [np.uint32([shown[n]]) for n in range(8, 13)]
    dtypes = ["uint32"] * 8
    plain, shared = (
        emulate(finding.snippet.asm, finding.snippet.constraints, inputs, dtypes, share=share)[int(wrong)][0]
        for share in (None, {output: source})
    )
    assert plain == wanted
    assert shared == shown[int(wrong)]
    assert plain != shared


def test_the_repaired_example_has_no_finding(example):
    result = repaired("example.py", example)
    assert [f.rule for f in result.applied] == ["missing-early-clobber"]
    assert result.refused == []
    assert findings(result.after) == []
    changed = [line for line in result.diff().splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert changed
    assert all("=&r" in line for line in changed)


def test_from_the_command_line(example, tmp_path, capsys):
    """The mistake is named, shown as a diff, repaired with --fix, and then gone."""
    file = tmp_path / "example.py"
    file.write_text(example)
    assert main(["lint", "--fix", str(file)]) == 1
    shown = capsys.readouterr().out
    assert "error [missing-early-clobber]" in shown
    assert "in one register" in shown
    assert re.search(r"^\+.*=&r", shown, re.MULTILINE)
    assert file.read_text() == example
    assert main(["lint", "--fix", "--write", str(file)]) == 0
    assert main(["lint", str(file)]) == 0
    assert "nothing found" in capsys.readouterr().out
    assert file.read_text().replace("=&r", "=r") == example


CASE = '''"""uint8 to int32, and the maximum of it and a float32, as Triton's documentation has it."""

from ptxdiff import Case, asm
from ptxdiff.references import integer_max
from ptxdiff.references.formats import F32, I32, U8

case = Case(
    inputs={"a": U8, "b": F32},
    outputs={"c": I32, "d": F32},
    reference=integer_max.convert_and_max,
    carry={"d": "b"},
    variants={"repaired": asm(ASM, constraints=AFTER, pack=4)},
)
'''


@pytest.mark.slow
def test_the_case_of_the_repaired_example_passes(example, run_cases):
    """As documented, the example is an expected failure: cases/u8_to_i32_max.py has it."""
    (fixed,) = lint_text("example.py", repaired("example.py", example).after.encode()).texts
    source = CASE.replace("ASM", repr(fixed.asm)).replace("AFTER", repr(fixed.constraints))
    run_cases("--ptx-records=run.jsonl", example=source)
    assert {result.verdict for result in read(Path("run.jsonl")).results} == {"pass"}
