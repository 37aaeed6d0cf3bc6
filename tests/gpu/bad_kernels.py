"""Kernels that misbehave on a device, and one that does not. Each bad one would end the process that runs it."""

import triton
import triton.language as tl

from harness import Case, asm, kernel
from references.formats import U8, U32


def flipped(x):
    return x ^ 1


FLIP = "xor.b32 $0, $1, 0x01010101;"


def flip(text):
    return asm(text, constraints="=r,r", pack=4)


bytes_case = Case(
    inputs={"x": U8},
    outputs={"y": U8},
    reference=flipped,
    variants={
        "right before": flip(FLIP),
        "traps": flip(f"{{ .reg .pred p; setp.eq.u32 p, $1, 0x03020100; @p trap; {FLIP} }}"),
        "loops": flip(f"{{ .reg .pred p; again: setp.eq.u32 p, $1, 0x03020100; @p bra again; {FLIP} }}"),
        # The barrier waits for more threads than the block has.
        "deadlocks": flip(f"bar.sync 1, 1024; {FLIP}"),
        "right after": flip(FLIP),
    },
)


@triton.jit
def reads_far(x_ptr, y_ptr, N, BLOCK: tl.constexpr, SHIFT: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < N
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets + SHIFT, mask=mask) ^ 1, mask=mask)


def reading(shift):
    return kernel(reads_far, grid=(1,), meta={"BLOCK": 64, "SHIFT": shift})


words = Case(
    inputs={"x_ptr": U32["N"]},
    outputs={"y_ptr": U32["N"]},
    reference=flipped,
    sizes=[{"N": 48}],
    variants={
        "right before": reading(0),
        "reads nowhere": reading(1 << 38),
        "reads past the end": reading(1),
        "right after": reading(0),
    },
)
