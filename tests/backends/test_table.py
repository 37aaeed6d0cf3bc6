"""The table of backends: a row is all that a new one needs, from the option to the record."""

from __future__ import annotations

import os
import sys

import pytest

from ptxdiff.records import read

PLUGIN = """
from ptxdiff import backends
from ptxdiff.backends.emulator import EmulatorBackend

class Mine(EmulatorBackend):
    name = "mine"

backends.BACKENDS["mine"] = backends.BackendKind(
    "runs as the emulator does", lambda settings: Mine(settings.cpu_limit), automatic=False, asm_alone=True
)
"""
CASE = """
from ptxdiff import Case, asm
from ptxdiff.references.formats import U32

case = Case(
    inputs={"x": U32}, outputs={"y": U32}, reference=lambda x: (x + 1) & 0xFFFFFFFF,
    variants={"right": asm("add.u32 $0, $1, 1;", "=r,r"), "wrong": asm("add.u32 $0, $1, 2;", "=r,r")},
)
"""


@pytest.mark.slow  # it begins a Python process, which imports everything anew
def test_a_row_is_all_that_a_new_backend_needs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its variants are collected under its name, run, judged and recorded, in a process that begins with the row."""
    monkeypatch.setenv("PTXDIFF_ASM_ALONE", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(pytester.path), *filter(None, sys.path))))
    pytester.makepyfile(my_backend=PLUGIN, plus=CASE)
    options = ("--ptx-backend=mine", "--ptx-target=sm_100a", "--ptx-records=records")
    ran = pytester.runpytest_subprocess("-p", "my_backend", *options, "plus.py", "-rf")
    ran.assert_outcomes(passed=1, failed=1)
    ran.stdout.fnmatch_lines(["*plus.py::wrong[[]sm_100a-mine]*"])
    (file,) = (pytester.path / "records").glob("*.jsonl*")
    assert {(r.key.variant, r.key.backend, r.verdict) for r in read(file).results} == {
        ("right", "mine", "pass"), ("wrong", "mine", "fail"),
    }  # fmt: skip
