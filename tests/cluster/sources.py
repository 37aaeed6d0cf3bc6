"""Files of the project that the shared connection sends to nodes."""

NEGATION = '''
"""Negation."""
from ptxdiff import Case, asm
from ptxdiff.references.formats import F16

def reference(a):
    return a ^ 0x8000

case = Case(
    inputs={"a": F16}, outputs={"y": F16}, reference=reference, nan="payload",
    variants={
        "right": asm("xor.b32 $0, $1, 0x80008000;", "=r,r", pack=2),
        "wrong": asm("xor.b32 $0, $1, 0x80018000;", "=r,r", pack=2),
    },
)
'''

SUMS = '''
"""Sums of bytes."""
from ptxdiff import Case, asm
from ptxdiff.references.formats import U8

def total(x, y):
    return (x + y) & 255

case = Case(
    inputs={"x": U8, "y": U8}, outputs={"z": U8}, reference=total,
    variants={"right": asm("add.u32 $0, $1, $2;", "=r,r,r", pack=1)},
)
'''

LIES = """
from ptxdiff.running.cluster.messages import ItemReport


def run(order, file, nodeids):
    yield ItemReport("cases/flip.py::another[sm_90a-emulator]")
"""
