"""Gluon's load_min and load_max compile to tcgen05.ld.red on sm_103a, and run with the reference's bits."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("triton.experimental.gluon", reason="this Triton has no Gluon")

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.language.nvidia.blackwell import TensorMemoryLayout, allocate_tensor_memory

from ptxdiff.emulator.kernel.run import Buffer, load_kernel, run_kernel
from ptxdiff.references.tensor_memory_reductions import reduced
from tests.support.tritons import since

pytestmark = since(3, 9, "load_max of tensor memory")

M, N = 128, 64


@gluon.jit
def extremes(
    x, y, z, M: gl.constexpr, N: gl.constexpr, LEAST: gl.constexpr, ABS: gl.constexpr, PROPAGATE: gl.constexpr
):
    spread: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [4, 1], [1, 0])
    line: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    rows: gl.constexpr = gl.SliceLayout(1, spread)
    columns: gl.constexpr = gl.SliceLayout(0, spread)
    places = gl.arange(0, M, rows)[:, None] * N + gl.arange(0, N, columns)[None, :]
    memory = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([M, N], col_stride=1))
    memory.store(gl.convert_layout(gl.load(x + places), memory.get_reg_layout()))
    if LEAST:
        whole, found = memory.load_min(abs=ABS, propagate_nan=PROPAGATE)
    else:
        whole, found = memory.load_max(abs=ABS, propagate_nan=PROPAGATE)
    gl.store(y + places, gl.convert_layout(whole, spread))
    gl.store(z + gl.arange(0, M, line), gl.convert_layout(found, line))


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("least", "absolute", "nan"), [(False, False, False), (True, True, False), (False, True, True)]
)
def test_extremes_of_rows(least: bool, absolute: bool, nan: bool) -> None:
    propagate = tl.PropagateNan.ALL if nan else tl.PropagateNan.NONE
    types = {"x": "*fp32", "y": "*fp32", "z": "*fp32"}
    names = types | dict.fromkeys(("M", "N", "LEAST", "ABS", "PROPAGATE"), "constexpr")
    constants = {(3,): M, (4,): N, (5,): least, (6,): absolute, (7,): propagate}
    source = GluonASTSource(extremes, names, constants, {(i,): [["tt.divisibility", 16]] for i in range(3)})
    made = triton.compile(source, target=GPUTarget("cuda", 103, 32), options={"num_warps": 4, "enable_fp_fusion": True})
    head = f"tcgen05.ld.red.sync.aligned.32x32b.x{N}.{'min' if least else 'max'}{'.abs' * absolute}{'.NaN' * nan}.f32"
    assert head in made.asm["ptx"]
    x = np.random.default_rng(1).standard_normal((M, N)).astype(np.float32)
    x[5, 7] = x[9] = np.nan
    y, z = np.zeros_like(x), np.zeros(M, np.float32)
    buffers = [Buffer(x, "x"), Buffer(y, "y"), Buffer(z, "z")]
    run_kernel(load_kernel(made.asm["ptx"]), buffers, (1,), shared_bytes=made.metadata.shared)
    np.testing.assert_array_equal(y.view(np.uint32), x.view(np.uint32))
    operation = "min" if least else "max"
    wanted = [reduced(row.tolist(), "f32", operation, absolute=absolute, nan=nan) for row in x.view(np.uint32)]
    np.testing.assert_array_equal(z.view(np.uint32), np.array(wanted, np.uint32))
