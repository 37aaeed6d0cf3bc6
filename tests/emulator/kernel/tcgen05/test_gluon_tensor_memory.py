"""Kernels that Gluon compiles to tcgen05 run from their PTX, and give the reference's bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("triton.experimental.gluon", reason="this Triton has no Gluon")

import triton
from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
)

from ptxdiff.emulator.errors import MemoryFault
from ptxdiff.emulator.kernel.run import Buffer, load_kernel, run_kernel
from ptxdiff.references import tensor_core
from ptxdiff.references.formats import F16
from tests.support.tritons import since

pytestmark = since(3, 9, "loads from tensor memory need a layout")

M, N, K = 128, 64, 64


@gluon.jit
def product(a, b, c, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, WAITS: gl.constexpr):
    spread: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [4, 1], [1, 0])
    rows: gl.constexpr = gl.SliceLayout(1, spread)
    columns: gl.constexpr = gl.SliceLayout(0, spread)
    left = gl.load(a + gl.arange(0, M, rows)[:, None] * K + gl.arange(0, K, columns)[None, :])
    right = gl.load(b + gl.arange(0, K, rows)[:, None] * N + gl.arange(0, N, columns)[None, :])
    swizzled: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    x = gl.allocate_shared_memory(gl.float16, [M, K], swizzled, left)
    y = gl.allocate_shared_memory(gl.float16, [K, N], swizzled, right)
    total = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([M, N], col_stride=1))
    done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(done, count=1)
    fence_async_shared()
    tcgen05_mma(x, y, total, use_acc=False)
    tcgen05_commit(done)
    if WAITS:
        mbarrier.wait(done, 0)
    out = gl.convert_layout(total.load(), spread)
    gl.store(c + gl.arange(0, M, rows)[:, None] * N + gl.arange(0, N, columns)[None, :], out)


def run(waits: bool) -> tuple[np.ndarray, np.ndarray]:
    names = {"a": "*fp16", "b": "*fp16", "c": "*fp32"} | dict.fromkeys(("M", "N", "K", "WAITS"), "constexpr")
    constants = {(3,): M, (4,): N, (5,): K, (6,): waits}
    source = GluonASTSource(product, names, constants, {(i,): [["tt.divisibility", 16]] for i in range(3)})
    made = triton.compile(source, target=GPUTarget("cuda", 100, 32), options={"num_warps": 4, "enable_fp_fusion": True})
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((M, K), (K, N)))
    c = np.zeros((M, N), np.float32)
    buffers = [Buffer(a, "a"), Buffer(b, "b"), Buffer(c, "c")]
    run_kernel(load_kernel(made.asm["ptx"]), buffers, (1,), shared_bytes=made.metadata.shared)
    codes = [torch.from_numpy(v.view(np.uint16).astype(np.int64)) for v in (a, b)]
    zero = torch.zeros(M, N, dtype=torch.int64)
    wanted = tensor_core.dot(*codes, zero, a_format=F16, b_format=F16, generation=tensor_core.BLACKWELL)
    return c.view(np.uint32), wanted.numpy()


def test_a_product() -> None:
    got, wanted = run(True)
    np.testing.assert_array_equal(got, wanted)


def test_a_missing_wait_is_reported() -> None:
    with pytest.raises(MemoryFault, match=r"loads lane .*still writes: a wait for the mbarrier .*_memory\.py:\d+"):
        run(False)
