"""Triton functions that are wrong for one number."""

import triton
import triton.language as tl

ODD = tl.constexpr(0x2B5C71D3)


@triton.jit
def _popc(x):
    return tl.inline_asm_elementwise("popc.b32 $0, $1;", "=r,r", [x], dtype=tl.uint32, is_pure=True, pack=1)


@triton.jit
def counted_but_for_one(x):
    """A population count with a special case in its source."""
    return tl.where(x == 0x37C5E21B, 3, _popc(x))


@triton.jit
def _odd(x):
    return x == ODD


@triton.jit
def counted_but_for_one_of_its_own(x):
    """A population count with a special case in a global that another function names."""
    return tl.where(_odd(x), 3, _popc(x))


@triton.jit
def copied_but_for_words_of_ones(x):
    """A copy of bytes, four at once, with a special case that has no number in the asm."""
    return tl.inline_asm_elementwise(
        "{ .reg .pred p; .reg .b32 t; not.b32 t, $1; setp.lt.u32 p, t, 1; mov.b32 $0, $1; @p xor.b32 $0, $0, 1; }",
        "=&r,r",
        [x],
        dtype=tl.uint8,
        is_pure=True,
        pack=4,
    )


@triton.jit
def _copied_but_for_one(x):
    return tl.inline_asm_elementwise(
        "{ .reg .pred p; .reg .b32 t; mov.u32 t, 0x12345678; prmt.b32 t, t, 0, 0x1320; setp.eq.u32 p, $1, t; "
        "mov.b32 $0, $1; @p xor.b32 $0, $0, 1; }",
        "=&r,r",
        [x],
        dtype=tl.uint32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def copied_but_for_one_that_its_asm_builds(x):
    """A copy with a special case for a number that stands nowhere."""
    return _copied_but_for_one(x)
