"""The releases of ptxas that tests can use: those that Triton carries, and those that `PTXDIFF_FAULTY_PTXAS` names."""

from __future__ import annotations

import os

import pytest

from ptxdiff.model.compilers import TRITONS_LEVEL
from ptxdiff.triton.ptxas import assembler_at
from ptxdiff.triton.targets import assembler, tool


def release(*versions: str) -> str:
    """The path of a ptxas of one of these releases; skips the test where there is none."""
    named = os.environ.get("PTXDIFF_FAULTY_PTXAS", "").split(os.pathsep)
    for path in (*named, str(tool("ptxas")), assembler("sm_100a").path):
        if path and assembler_at(path, TRITONS_LEVEL).version.startswith(versions):
            return path
    pytest.skip(f"no ptxas of {' or '.join(versions)} here; PTXDIFF_FAULTY_PTXAS names some")
