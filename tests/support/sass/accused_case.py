"""A case whose machine code is wrong, for tests of who is accused."""

from __future__ import annotations

from tests.support.sass.fault_kernels import ABSOLUTE

TARGET = "sm_100a"


CASE = """
import numpy as np
from ptxdiff import Case, PtxasFailure, ptx
from ptxdiff.references.formats import I32

TEXT = '''@ABSOLUTE@'''

def larger(x, y):
    x, y = (((v & 0xffffffff) ^ 0x80000000) - 0x80000000 for v in (x, y))
    magnitude = (((abs(x) & 0xffffffff) ^ 0x80000000) - 0x80000000)
    return (magnitude * (magnitude >= y) + y * (magnitude < y)) & 0xffffffff

case = Case(
    inputs={"x": I32["T"], "y": I32["T"]}, outputs={"d": I32["T"]}, reference=larger, sizes=[{"T": 64}],
    variants={"maximum": ptx(TEXT, grid=1, block=64, parameters=["x", "y", "d"], EXPECTED)},
)
""".replace("@ABSOLUTE@", ABSOLUTE)
