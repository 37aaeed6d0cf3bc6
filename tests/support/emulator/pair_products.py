"""Products by pairs of blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxdiff.emulator.kernel.run import Buffer, load_kernel, run_kernel
from ptxdiff.emulator.kernel.tcgen05.operands import SWIZZLES, MatrixDescriptor
from ptxdiff.references import tensor_memory_pairs as pairs
from tests.support.emulator import tensor_memory_text as tm
from tests.support.emulator.tensor_products import SCALE_A, SCALE_B, Product, image

SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


COMMIT = (
    "mov.b16 %named, 3;\n  @%issuer tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster"
    ".multicast::cluster.b64 [%r0], %named;"
)


def of_pair(text: str, words: int, out: int, issuer: int = 0, cluster: int = 2) -> str:
    """Change a kernel of one block to one of a pair; each block has `words` of the input and `out` words of output."""
    registers = ".reg .b32 %rank; .reg .b16 %named; .reg .pred %issuer;\n"
    moved = f"""  ld.param.u64 %to, [out];
  mov.u32 %rank, %cluster_ctarank;
  mul.wide.u32 %rd0, %rank, {4 * words};
  add.s64 %in, %in, %rd0;
  mul.wide.u32 %rd0, %rank, {4 * out};
  add.s64 %to, %to, %rd0;
"""
    text = text.replace("  ld.param.u64 %to, [out];\n", moved).replace("  .reg .pred", f"  {registers}  .reg .pred", 1)
    text = text.replace(".reqntid 128", f".reqntid 128 .reqnctapercluster {cluster}")
    # An address in shared memory contains the block's rank.
    own = "  shl.b32 %r1, %x, 2;\n  mov.u32 %r2, smem;\n  add.s32 %r1, %r1, %r2;\n"
    text = text.replace("  shl.b32 %r1, %x, 2;\n", own).replace(f"[%r1+{tm.DATA + tm.BASE}]", f"[%r1+{tm.DATA}]")
    text = text.replace("cta_group::1", "cta_group::2").replace("bar.sync 0;", SYNC)
    text = text.replace(
        "  setp.eq.u32 %warp0", f"  setp.eq.and.u32 %issuer, %rank, {issuer}, %first;\n  setp.eq.u32 %warp0"
    )
    return text.replace("@%first tcgen05.mma", "@%issuer tcgen05.mma").replace(
        tm.COMMIT.replace("cta_group::1", "cta_group::2"), COMMIT
    )


def run(kernel: str, data: np.ndarray, out: np.ndarray, blocks: int = 2) -> np.ndarray:
    run_kernel(load_kernel(kernel), [Buffer(data, "input"), Buffer(out, "out")], (blocks,), shared_bytes=65536)
    return out


def ran(
    product: Product, a: np.ndarray, b: np.ndarray, cells: np.ndarray, *, enable: int = 1, issuer: int = 0,
    change: Any = lambda text: text, sparse: bool = False,
) -> np.ndarray:  # fmt: skip
    """The emulator's codes of d, m x n. cells: tensor memory of both blocks before the product, 2 x 128 x columns."""
    memories, codes = [], []
    for block in range(2):
        data = np.zeros(0, np.uint8)
        for matrix, kind, across, swizzle in zip(
            (a[block * len(a) // 2 :][: len(a) // 2], b[block * len(b) // 2 :][: len(b) // 2]),
            (product.a, product.b), product.across, product.swizzle, strict=True,
        ):  # fmt: skip
            if swizzle is None:
                codes.append(0)
                continue
            room, lead, stride = image(matrix, kind, product, across, swizzle)
            start = tm.BASE + tm.DATA + len(data)
            codes.append(MatrixDescriptor(start, lead, stride, SWIZZLES[swizzle]).code)
            data = np.concatenate([data, room])
        memories.append(np.concatenate([data.view(np.uint32), cells[block].reshape(-1)]))
    assert codes[:2] == codes[2:], "both blocks use one descriptor"
    before = f"  mov.b64 %a, {codes[0]};\n  mov.b64 %b, {codes[1]};\n  mov.b32 %x, {product.idesc};\n"
    before += f"  setp.ne.u32 %p0, {enable}, 0;\n"
    head = f"cta_group::1.kind::{product.kind}"
    head += f".block_scale{'.' * bool(product.size)}{product.size}" if product.scale else ""
    scales_of = f"[%base+{SCALE_A}], [%base+{SCALE_B}], " if product.scale else ""
    left = "%a" if product.swizzle[0] is not None else "[%base+32]"
    places = [pairs.place_of_d(product.m, product.n, *at, sparse) for at in np.ndindex(product.m, product.n)]
    count = max(c for _, _, c in places) + 1
    low = "".join(f"  and.b32 %r{i}, %r{i}, 0xffff;\n" for i in range(10, 10 + count)) * (product.d == "f16")
    body = tm.product(head, f"{left}, %b, %x, {scales_of}%p0", count, cells.shape[2], before, low)
    bytes_of = 4 * len(memories[0]) - 4 * cells[0].size
    text = tm.text(f"  add.s64 %in, %in, {bytes_of};\n{body}", bytes_of // 4, columns=64)
    kernel = change(of_pair(text, len(memories[0]), 128 * count, issuer))
    out = run(kernel, np.concatenate(memories), np.zeros(256 * count, np.uint32)).reshape(2, 128, count)
    found = np.array([out[place] for place in places]).reshape(product.m, product.n)
    return found & 0xFFFF if product.d == "f16" else found


def accumulator(product: Product, seed: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes of d before the product, m x n, and tensor memory of both blocks that holds them."""
    rng = np.random.default_rng(seed)
    kind = {"f16": np.float16, "f32": np.float32, "s32": np.int32}[product.d]
    real = (rng.standard_normal((product.m, product.n)) * 64).astype(kind)
    codes = real.view(f"u{np.dtype(kind).itemsize}").astype(np.uint32)
    cells = np.full((2, 128, width), 0xEEEEEEEE, np.uint32)
    for (r, c), code in np.ndenumerate(codes):
        cells[pairs.place_of_d(product.m, product.n, r, c)] = code
    return codes, cells
