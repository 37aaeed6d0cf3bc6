"""Sources of small case files: 256 inputs, and asm that every target has."""

FLIP = '''"""Flip the lowest bit of a byte."""

from ptxdiff import Case, asm
from ptxdiff.references.formats import U8


def flipped(x):
    return x ^ 1


case = Case(
    inputs={"x": U8},
    outputs={"y": U8},
    reference=flipped,
    variants={
        "right": asm("xor.b32 $0, $1, 0x01010101;", constraints="=r,r", pack=4),
        "wrong": asm("xor.b32 $0, $1, 0x01010181;", constraints="=r,r", pack=4),
    },
)
'''

RIGHT = FLIP.replace('        "wrong": asm("xor.b32 $0, $1, 0x01010181;", constraints="=r,r", pack=4),\n', "")

CONSTANT = '''"""The same number everywhere."""

import torch

from ptxdiff import Case, asm
from ptxdiff.references.formats import I32


def forty_two():
    return torch.tensor(42)


case = Case(
    inputs={},
    outputs={"y": I32},
    reference=forty_two,
    variants={"right": asm("mov.b32 $0, 42;"), "wrong": asm("mov.b32 $0, 43;")},
)
'''

MIXED = '''"""A carry that runs from one byte into the next."""

from ptxdiff import Case, asm
from ptxdiff.references.formats import U8

case = Case(
    inputs={"x": U8},
    outputs={"y": U8},
    reference=lambda x: (x + 1) & 255,
    variants={"adds the neighbour": asm("add.u32 $0, $1, 0x01010101;", constraints="=r,r", pack=4)},
)
'''

CONSTRAINTS = '''"""What goes wrong with operands and constraints, and one variant that is right."""

from ptxdiff import Case, asm
from ptxdiff.references.formats import U32

ADD = "add.u32 $0, $1, $2;"

case = Case(
    inputs={"a": U32, "b": U32},
    outputs={"c": U32},
    reference=lambda a, b: (a + b) & 0xFFFFFFFF,
    variants={
        "one too many": asm(ADD, constraints="=r,r,r,r", pack=1),
        "one too few": asm(ADD, constraints="=r,r", pack=1),
        "read and write": asm(ADD, constraints="+r,r,r", pack=1),
        "no such operand": asm("add.u32 $0, $1, $7;", constraints="=r,r,r", pack=1),
        "tensor as immediate": asm(ADD, constraints="=r,n,r", pack=1),
        "right": asm(ADD, constraints="=r,r,r", pack=1),
    },
)
'''
