"""Kernels that misbehave on a device, and one that does not. Each bad one would end the process that runs it."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, kernel
from ptxdiff.references.formats import U8, U32


def flipped(x):
    return x ^ 1


FLIP = "xor.b32 $0, $1, 0x01010101;"


def flip(text=""):
    return asm(f"{{ {text} {FLIP} }}", constraints="=r,r", pack=4)


FIRST = ".reg .pred p; .reg .b32 t; mov.u32 t, %tid.x; setp.eq.u32 p, t, 0;"

bytes_case = Case(
    inputs={"x": U8},
    outputs={"y": U8},
    reference=flipped,
    variants={
        "right before": flip(),
        "traps": flip(f"{FIRST} @p trap;"),
        "loops": flip(f"{FIRST} again: membar.gl; @p bra again;"),
        # The barrier waits for more threads than the block has.
        "deadlocks": flip("bar.sync 1, 1024;"),
        "right after": flip(),
    },
)

sanitized = Case(
    inputs={"x": U8},
    outputs={"y": U8},
    reference=flipped,
    variants={
        "races": flip(f"{FIRST} .shared .b32 s; st.shared.b32 [s], $1; ld.shared.b32 t, [s];"),
        "diverges": flip(f"{FIRST} @p bar.sync 0;"),
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
