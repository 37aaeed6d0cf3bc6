"""Errors in a notebook show the user's lines and the message."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from ptxdiff import Case, asm, emulate
from ptxdiff.emulator import PtxError
from ptxdiff.emulator.errors import UnknownInstruction
from ptxdiff.launcher import LaunchError
from ptxdiff.model.variants import CaseError
from ptxdiff.references.formats import U8

CELL = """
def mine(x):
    return emulate("addd.f32 $0, $1, $1;", "=f,f", [x], "float32")

mine(np.zeros(4, np.float32))
"""


def printed(cell: str) -> str:
    """What a notebook prints for a cell that fails."""
    shells = pytest.importorskip("IPython.core.interactiveshell")
    from IPython.utils.capture import capture_output

    shell = shells.InteractiveShell.instance()
    shell.push({"emulate": emulate, "np": np, "Case": Case, "asm": asm, "U8": U8})
    with capture_output() as captured:
        result = shell.run_cell(cell)
    assert result.error_in_exec is not None
    return captured.stdout + captured.stderr


def test_an_error_of_emulate_is_a_few_lines_with_the_cause():
    lines = [line for line in printed(CELL).splitlines() if line.strip()]
    assert len(lines) <= 6
    assert "cell, line 4: mine(np.zeros(4, np.float32))" in lines
    assert any("UnknownInstruction: line 1, column 1: unknown instruction 'addd.f32'" in line for line in lines)
    assert not any("harness" in line or "site-packages" in line for line in lines)


def test_an_error_of_a_case_is_a_few_lines():
    lines = printed("Case(inputs={'x': U8}, outputs={}, reference=abs, variants={})").splitlines()
    assert len([line for line in lines if line.strip()]) <= 3
    assert any(line.startswith("CaseError: a case has at least one output") for line in lines)


def test_errors_elsewhere_are_as_before():
    with pytest.raises(UnknownInstruction) as raised:
        emulate("addd.f32 $0, $1, $1;", "=f,f", [np.zeros(1, np.float32)], "float32")
    again = pickle.loads(pickle.dumps(raised.value))
    assert str(again) == str(raised.value)
    assert issubclass(PtxError, Exception)
    assert issubclass(CaseError, ValueError)
    assert issubclass(LaunchError, ValueError)
