"""One thing, one place: a change of one file adds an instruction, a format, a rule, or a field of a record.

Each test adds lines to one file of a copy of the package, and uses what they add in a new process. Tests beside their
subjects add a backend (`tests/backends/test_table.py`), a kind of input sets (`tests/inputs/test_kernel_sets.py`) and
an operation of the machine (`tests/emulator/isa/test_facts.py`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ptxdiff.records import Key, Timing
from ptxdiff.records.encoding import to_text

PACKAGE = Path(__file__).resolve().parents[1] / "harness"

INSTRUCTION = '''

@instruction("swaphalves.b32", "d, a", section="0")
def swap_halves(a: int) -> int:
    """The two halves, exchanged."""
    return (a >> 16 & 0xFFFF) | (a << 16)
'''
USE_INSTRUCTION = """
import numpy as np
from ptxdiff import emulate
from ptxdiff.lint.files import lint_text

words = [np.array([0x12345678, 0xFFFF0000], np.uint32)]
result = emulate("swaphalves.b32 $0, $1;", "=r,r", words, [np.uint32])
assert np.asarray(result).reshape(-1).tolist() == [0x56781234, 0x0000FFFF], result
source = '''
import triton
import triton.language as tl

@triton.jit
def f(x):
    return tl.inline_asm_elementwise("NAME.b32 $0, $1;", "=r,r", [x], dtype=tl.uint32, is_pure=True, pack=1)
'''
found = [lint_text("a.py", source.replace("NAME", name).encode()).findings for name in ("swaphalves", "swapthirds")]
assert not found[0], found[0]
assert "swapthirds" in found[1][0].message, found[1]
"""

FORMAT = """
E3M4 = Format(
    name="e3m4", code_bits=8, kind="float", exponent_bits=3, mantissa_bits=4, bias=3, infinity=True, nan="ieee",
    canonical_nan=0x7F, storage="uint8", element_type="u8",
)
"""
USE_FORMAT = """
import numpy as np
from ptxdiff import Case, asm
from ptxdiff.judging.judge import judge
from ptxdiff.model.policies import policies
from ptxdiff.references import formats

assert formats.FORMATS["e3m4"] is formats.E3M4
case = Case(
    inputs={"x": formats.E3M4}, outputs={"y": formats.E3M4}, reference=lambda x: x ^ 0x80,
    variants={"v": asm("xor.b32 $0, $1, 0x80808080;", "=r,r", pack=4)},
)
codes = np.arange(256, dtype=np.uint8)
policy = policies(case, case.variants["v"])
assert judge(case, policy, {"x": codes}, {"y": codes ^ 0x80}).passed
found = judge(case, policy, {"x": codes}, {"y": np.where(codes == 0x5C, codes, codes ^ 0x80).astype(np.uint8)})
assert found.different == 1
assert (found.offenders[0].got.value, found.offenders[0].expected.value) == ("7.0", "-7.0"), found.offenders
"""

RULE = '''

@rule("moves-nothing", "A register is moved to itself.", why="It does nothing.")
def moves_nothing(block: LintedBlock) -> Iterator[Found]:
    """Moves of one operand to itself."""
    if "mov.b32 $0, $0;" in block.text:
        yield Found(block.place(0), "moved to itself")
'''
USE_RULE = """
from ptxdiff.lint.files import lint_text

source = '''
import triton
import triton.language as tl

@triton.jit
def f(x):
    return tl.inline_asm_elementwise(
        "mov.b32 $0, $1; MORE", "=r,r", [x], dtype=tl.uint32, is_pure=True, pack=1
    )
'''
found = [lint_text("a.py", source.replace("MORE", more).encode()).findings for more in ("mov.b32 $0, $0;", "")]
assert [f.rule for f in found[0]] == ["moves-nothing"], found[0]
assert not found[1], found[1]
"""

FIELD = "    novel: int = 7\n"
USE_FIELD = """
from dataclasses import replace
from ptxdiff.records.encoding import carefully_parsed, parsed, to_json, to_text

old = parsed(OLD)
assert old.novel == 7
assert to_text(old) == OLD
new = replace(old, novel=8)
assert to_json(new)["novel"] == 8
for read in (parsed, carefully_parsed):
    assert read(to_text(new)) == new
    assert read(OLD) == old
"""


def used(tmp_path: Path, file: str, change: object, script: str, *words: str) -> None:
    """Run a script with a copy of the package in which `change` made another text of one file."""
    copy = tmp_path / "ptxdiff"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    path = copy / file
    path.write_text(change(path.read_text()))  # type: ignore[operator]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    ran = subprocess.run(
        [sys.executable, "-c", script, *words],
        env=environment,
        cwd=tmp_path,
        text=True,
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_an_instruction(tmp_path: Path) -> None:
    """The emulator runs it, and the linter knows it."""
    used(tmp_path, "emulator/isa/logic.py", lambda text: text + INSTRUCTION, USE_INSTRUCTION)


def test_a_format(tmp_path: Path) -> None:
    """A case may have it, its values are judged and shown."""
    before = "\nFORMATS: "
    used(tmp_path, "references/formats.py", lambda text: text.replace(before, FORMAT + before), USE_FORMAT)


def test_a_rule_of_the_linter(tmp_path: Path) -> None:
    """It has findings beside those of the others."""
    used(tmp_path, "lint/rules/spelling.py", lambda text: text + RULE, USE_RULE)


def test_a_field_of_a_record(tmp_path: Path) -> None:
    """It is written if it is not the default, both readers read it, and older lines read as before."""
    old = to_text(Timing(Key("c", "v", "gpu", "sm_90a", shape="8"), 8, 64, (0.5,), 0.5, 0.5, 0.5, 0.25))
    line = "    noise: Amount = 0.0\n"
    assert line in (PACKAGE / "records" / "types.py").read_text()
    used(
        tmp_path, "records/types.py", lambda text: text.replace(line, line + FIELD), f"OLD = {old!r}\n" + USE_FIELD
    )  # fmt: skip


def test_what_is_not_added_is_not_there(tmp_path: Path) -> None:
    """Without the change the scripts fail, so they show that the change makes them pass."""
    with pytest.raises(AssertionError, match="swaphalves"):
        used(tmp_path, "emulator/isa/logic.py", str, USE_INSTRUCTION)
