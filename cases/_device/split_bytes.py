"""Bytes of a word, and a word of bytes, in plain Triton."""

import triton
import triton.language as tl


@triton.jit
def split_in_triton(x):
    """Casts drop the upper bits."""
    return x.to(tl.uint8), (x >> 8).to(tl.uint8), (x >> 16).to(tl.uint8), (x >> 24).to(tl.uint8)


@triton.jit
def joined_in_triton(a, b, c, d):
    """Wider first, then shifted."""
    low = a.to(tl.uint32) | (b.to(tl.uint32) << 8)
    return low | (c.to(tl.uint32) << 16) | (d.to(tl.uint32) << 24)


# With pack 1 each byte is in the low bits of its own register, whose upper bits do not count. With pack 4 each output
# register has its byte of four words: a transposed 4 x 4 matrix of bytes.
TRANSPOSED = """{{
    .reg .b32 t<4>;
    prmt.b32 t0, {4}, {5}, 0x5140;  prmt.b32 t1, {4}, {5}, 0x7362;
    prmt.b32 t2, {6}, {7}, 0x5140;  prmt.b32 t3, {6}, {7}, 0x7362;
    prmt.b32 {0}, t0, t2, 0x5410;   prmt.b32 {1}, t0, t2, 0x7632;
    prmt.b32 {2}, t1, t3, 0x5410;   prmt.b32 {3}, t1, t3, 0x7632;
}}"""

EIGHT = TRANSPOSED.format(*(f"${k}" for k in range(8)))
