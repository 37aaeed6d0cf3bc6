"""Case files whose variants differ only in one thing, and that thing decides their bits.

Each variant must get its own verdict, both when it runs alone and when it runs after the others.
"""

from importlib.metadata import version

HEAD = '''"""Variants alike in all but one thing."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, kernel, plain, since
from ptxdiff.references.formats import F32, U8, U32

'''

# A run-time argument is in no text, neither in the kernel's source nor in its PTX.
ARGUMENTS = (
    HEAD
    + """
@triton.jit
def offset(x, y, n, step, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y + offsets, tl.load(x + offsets, mask=mask) ^ step, mask=mask)


def flipped(x):
    return x ^ 6


def flip(step, **options):
    meta = {"step": step, "BLOCK": 128}
    return kernel(offset, grid=lambda s: (triton.cdiv(s["n"], s["BLOCK"]),), meta=meta, **options)


case = Case(
    inputs={"x": U8},
    outputs={"y": U8},
    reference=flipped,
    variants={"right": flip(6), "wrong": flip(7), "right again": flip(6)},
)
"""
)

# Constants that are equal and yet different: 0.0 and -0.0, 2 and 2.0.
CONSTANTS = (
    HEAD
    + """
@triton.jit
def chosen(x, VALUE: tl.constexpr):
    return tl.where(x == x, VALUE, 1.0)


@triton.jit
def scaled(x, BY: tl.constexpr):
    return (x * BY).to(tl.float32)


def doubled(x):
    return (2 * x).to(torch.float32).view(torch.int32).to(torch.int64)


zero = Case(
    inputs={"x": U8},
    outputs={"y": F32},
    reference=lambda x: 0 * x,
    variants={
        "zero": plain(chosen, constants={"VALUE": 0.0}),
        "minus zero": plain(chosen, constants={"VALUE": -0.0}),
    },
)
twice = Case(
    inputs={"x": U8},
    outputs={"y": F32},
    reference=doubled,
    variants={"float": plain(scaled, constants={"BY": 2.0}), "integer": plain(scaled, constants={"BY": 2})},
)
"""
)

# A function's name does not identify it: here one name is bound twice, and each variant has its own function.
TWICE = (
    HEAD
    + """
@triton.jit
def change(x):
    return x ^ 1


_former = plain(change)


@triton.jit
def change(x):
    return x ^ 2


case = Case(
    inputs={"x": U8},
    outputs={"y": U8},
    reference=lambda x: x ^ 2,
    variants={"first": _former, "second": plain(change)},
)
former = Case(inputs={"x": U8}, outputs={"y": U8}, reference=lambda x: x ^ 1, variants=case.variants)
"""
)

# One PTX text for all targets, with an instruction that older targets lack. It is not in asm(), which is checked first.
GENERATION = (
    HEAD
    + """
@triton.jit
def halves(x, y):
    return tl.inline_asm_elementwise(
        "add.u16x2 $0, $1, $2;", "=r,r,r", [x, y], dtype=tl.uint32, is_pure=True, pack=1
    )


def added(x, y):
    low = (x + y) & 0xFFFF
    return low | (((x >> 16) + (y >> 16)) & 0xFFFF) << 16


case = Case(
    inputs={"x": U32, "y": U32},
    outputs={"z": U32},
    reference=added,
    variants={"halves": plain(halves, targets=since("sm_90"))},
)
"""
)

# Triton 3.6 changes the constant -0.0 to 0.0.
KEEPS_THE_SIGN = tuple(map(int, version("triton").split(".")[:2])) > (3, 6)

FILES = {"arguments": ARGUMENTS, "constants": CONSTANTS, "twice": TWICE, "generation": GENERATION}

VERDICTS = {
    ("arguments", "right", "sm_90a"): "pass",
    ("arguments", "wrong", "sm_90a"): "fail",
    ("arguments", "right again", "sm_90a"): "pass",
    ("constants.zero", "zero", "sm_90a"): "pass",
    ("constants.zero", "minus zero", "sm_90a"): "fail" if KEEPS_THE_SIGN else "pass",
    ("constants.twice", "float", "sm_90a"): "pass",
    ("constants.twice", "integer", "sm_90a"): "fail",
    ("twice", "first", "sm_90a"): "fail",
    ("twice", "second", "sm_90a"): "pass",
    ("twice.former", "first", "sm_90a"): "pass",
    ("twice.former", "second", "sm_90a"): "fail",
    ("generation", "halves", "sm_80"): "unsupported",
    ("generation", "halves", "sm_90a"): "pass",
    ("generation", "halves", "sm_100a"): "pass",
}
"""By case, variant and target: the verdict of the emulator, alone and after other variants."""
