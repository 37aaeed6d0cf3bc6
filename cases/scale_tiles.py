"""Block scales to the 128 x 4 tiles that tensor cores read: by offsets, and by reshaping a tile."""

import triton
import triton.language as tl

from ptxdiff import Case, kernel
from ptxdiff.references import block_scaling
from ptxdiff.references.formats import U8

from ._device.blocks import tiled_offset


@triton.jit
def tile_by_offsets(s, t, M, K):
    """Store each scale to its place; places outside the tensor get zero."""
    row = tl.program_id(0) * 128 + tl.arange(0, 128)[:, None]
    column = tl.program_id(1) * 4 + tl.arange(0, 4)[None, :]
    values = tl.load(s + row * K + column, mask=(row < M) & (column < K), other=0)
    tl.store(t + tiled_offset(row, column, tl.cdiv(K, 4)), values)


@triton.jit
def tile_by_reshaping(s, t, M, K):
    """Rows 32 apart become neighbours; a tile is then 512 bytes in order."""
    row = tl.program_id(0) * 128 + tl.arange(0, 128)[:, None]
    column = tl.program_id(1) * 4 + tl.arange(0, 4)[None, :]
    values = tl.load(s + row * K + column, mask=(row < M) & (column < K), other=0)
    ordered = tl.reshape(tl.permute(tl.reshape(values, (4, 32, 4)), (1, 0, 2)), (512,))
    tile = tl.program_id(0) * tl.cdiv(K, 4) + tl.program_id(1)
    tl.store(t + tile * 512 + tl.arange(0, 512), ordered)


def tiles(v):
    """A program for each tile."""
    return (-(-v["M"] // 128), -(-v["K"] // 4))


case = Case(
    inputs={"s": U8["M", "K"]},
    outputs={"t": U8["ceil(M/128)*ceil(K/4)*512"]},
    reference=block_scaling.tiled_scales,
    sizes=[{"M": 1, "K": 1}, {"M": 128, "K": 4}, {"M": 130, "K": 9}, {"M": 257, "K": 4}],
    variants={"offsets": kernel(tile_by_offsets, grid=tiles), "reshaping": kernel(tile_by_reshaping, grid=tiles)},
    family="block scaling",
    source="cuBLAS, 1D block scaling factors layout; PTX ISA, tcgen05.mma",
)
