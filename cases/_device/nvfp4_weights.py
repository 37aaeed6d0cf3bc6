"""NVFP4 to half formats: two codes in a byte, scales in tiles."""

import triton
import triton.language as tl

from .blocks import tiled_offset
from .narrow import widened


@triton.jit
def nibbles_to_float(byte, HARDWARE: tl.constexpr):
    """The numbers of the low and of the high nibble."""
    if HARDWARE:
        convert: tl.constexpr = """
            {
                .reg .b8 pair;
                .reg .b16 low, high;
                .reg .b32 halves;
                cvt.u8.u32 pair, $2;
                cvt.rn.f16x2.e2m1x2 halves, pair;
                mov.b32 {low, high}, halves;
                cvt.f32.f16 $0, low;
                cvt.f32.f16 $1, high;
            }
        """
        word = byte.to(tl.uint32)
        return tl.inline_asm_elementwise(
            convert, "=&f,=f,r", [word], dtype=(tl.float32, tl.float32), is_pure=True, pack=1
        )
    return widened(byte & 15, 2, 1, 8), widened(byte >> 4, 2, 1, 8)


@triton.jit
def dequantize(q, s, y, M, N, DECODE: tl.constexpr, HARDWARE: tl.constexpr, COLUMNS: tl.constexpr):
    """A row of COLUMNS bytes per program. The product of element and block scale is exact."""
    i = tl.program_id(0)
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = j < N // 2
    low, high = nibbles_to_float(tl.load(q + i * (N // 2) + j, mask=inside, other=0), HARDWARE)
    codes = tl.load(s + tiled_offset(i, j // 8, tl.cdiv(N, 64)), mask=inside, other=0)
    scale = widened(codes, 4, 3, 0x7F)
    tl.store(y + i * N + 2 * j, (low * scale * DECODE).to(y.dtype.element_ty), mask=inside)
    tl.store(y + i * N + 2 * j + 1, (high * scale * DECODE).to(y.dtype.element_ty), mask=inside)
