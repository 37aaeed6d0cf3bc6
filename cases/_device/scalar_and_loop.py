"""Horner's rule in a kernel: asm or Triton in a loop that carries the result."""

import triton
import triton.language as tl


@triton.jit
def horner(x, c, y, N, STEPS: tl.constexpr, BLOCK: tl.constexpr, HOW: tl.constexpr):
    """y = (..(c x + c) x + ..) x + c: STEPS products, in asm or in Triton."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < N, other=0.0)
    total = tl.full((BLOCK,), 0.0, tl.float32) + c
    for _ in range(STEPS):
        if HOW == "fma":
            total = tl.inline_asm_elementwise(
                "fma.rn.f32 $0, $1, $2, $3;", "=f,f,f,f", [total, value, c], dtype=tl.float32, is_pure=True, pack=1
            )
        elif HOW == "two":  # the output is written before the last input is read: it needs the early clobber
            total = tl.inline_asm_elementwise(
                "mov.b32 $0, $6; mov.b32 $1, $7; fma.rn.f32 $0, $2, $4, $0; fma.rn.f32 $1, $3, $5, $1;",
                "=&f,=&f,f,f,f,f,f,f", [total, value, c], dtype=tl.float32, is_pure=True, pack=2,
            )  # fmt: skip
        else:
            total = tl.fma(total, value, tl.full((BLOCK,), c, tl.float32))
    tl.store(y + i, total, mask=i < N)
