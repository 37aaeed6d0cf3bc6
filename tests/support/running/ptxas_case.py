"""A case file for tests of ptxas."""

from __future__ import annotations

CASE = """
from ptxdiff import Case, asm
from ptxdiff.references.formats import U8

def flipped(x):
    return x ^ 0x5a

case = Case(
    inputs={"x": U8}, outputs={"y": U8}, reference=flipped,
    variants={
        "right": asm("xor.b32 $0, $1, 0x5a5a5a5a;", "=r,r", pack=4),
        "wrong": asm("or.b32 $0, $1, 0x5a5a5a5a;", "=r,r", pack=4),
        "both wrong": asm("{ .reg .b32 t; add.u32 t, $1, 0; xor.b32 $0, t, 0x5a5a5a5b; }", "=r,r", pack=4),
        "crashes": asm("{ .reg .b32 t; brev.b32 t, $1; brev.b32 t, t; xor.b32 $0, t, 0x5a5a5a5a; }", "=r,r", pack=4),
    },
)
"""
