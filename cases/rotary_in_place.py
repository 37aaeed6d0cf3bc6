"""Rotary embedding in place: a kernel overwrites the halves of each row that it reads, by inline PTX and by Triton."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, kernel
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F32


@triton.jit
def rotated(a, b, c, s, ASM: tl.constexpr):
    """a c - b s, the product b s rounded by itself. A sign is changed by * -1.0: Triton 3.6 subtracts from 0 for -x."""
    if not ASM:
        return tl.fma(a, c, b * s * -1.0)
    return tl.inline_asm_elementwise(
        "{ .reg .f32 t; mul.rn.f32 t, $2, $4; neg.f32 t, t; fma.rn.f32 $0, $1, $3, t; }",
        constraints="=&f,f,f,f,f", args=[a, b, c, s], dtype=tl.float32, is_pure=True, pack=1,
    )  # fmt: skip


@triton.jit
def rotate_rows(x, cos, sin, H, ASM: tl.constexpr, BLOCK: tl.constexpr):
    """A program for each row: both halves are read before either is written."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside, first = at < H, x + row * 2 * H + at
    low, high = tl.load(first, mask=inside), tl.load(first + H, mask=inside)
    c, s = tl.load(cos + row * H + at, mask=inside), tl.load(sin + row * H + at, mask=inside)
    tl.store(first, rotated(low, high, c, s, ASM), mask=inside)
    tl.store(first + H, rotated(high, low, c, s * -1.0, ASM), mask=inside)


def rotation(x, cos, sin):
    """[a c - b s, b c + a s] for the halves a and b of each row."""
    half = x.shape[1] // 2
    a, b = x[:, :half], x[:, half:]

    def turned(a, b, s):
        return arithmetic.fma(a, cos, arithmetic.negate(arithmetic.mul(b, s)))

    return torch.cat([turned(a, b, sin), turned(b, a, arithmetic.negate(sin))], 1)


case = Case(
    inputs={"x": F32["T", "2*H"], "cos": F32["T", "H"], "sin": F32["T", "H"]},
    outputs={"x": F32["T", "2*H"]},  # the same name: updated in place
    reference=rotation,
    sizes=[{"T": 1, "H": 1}, {"T": 5, "H": 16}, {"T": 33, "H": 48}],
    variants={
        "asm": kernel(rotate_rows, grid="T", meta={"ASM": True, "BLOCK": 64}),
        "triton": kernel(rotate_rows, grid="T", meta={"ASM": False, "BLOCK": 64}),
    },
    family="whole kernels",
    source="Su et al. 2021, RoFormer; PTX ISA, fma",
)
