"""Triton kernels with num_ctas=2, which Triton compiles to clusters: right values, and errors for mistakes."""

from __future__ import annotations

import re

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed; it compiles the kernels of these tests")

from ptxdiff import emulated
from ptxdiff.emulator.errors import ExecutionError, MemoryFault, PtxError
from ptxdiff.emulator.kernel.run import Buffer, load_kernel, run_kernel
from ptxdiff.triton.compile import compile_kernel
from ptxdiff.triton.spec import Compilation, FunctionRef, Parameters, PointerType, specialise
from tests.support.emulator import cluster_triton
from tests.support.tritons import installed, since

N = 1024
X = np.arange(N, dtype=np.float32)


@since(3, 9, "it does not compile a sum over two blocks")
def test_a_sum_goes_through_both_blocks() -> None:
    y = np.zeros(3, np.float32)
    emulated(cluster_triton.summed, target="sm_90a")[(3,)](np.tile(X, 3), y, N=N, num_ctas=2)
    np.testing.assert_array_equal(y, np.full(3, X.sum()))


def test_a_product_is_shared_by_two_blocks() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((128, 64), (64, 64)))
    c = np.zeros((128, 64), np.float32)
    emulated(cluster_triton.product, target="sm_90a")[(1,)](a, b, c, M=128, N=64, K=64, num_ctas=2)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


@pytest.fixture(scope="module")
def compiled() -> Compilation:
    if installed() < (3, 9):
        pytest.skip("Triton before 3.9 does not compile a sum over two blocks")
    kernel = cluster_triton.summed
    spec = specialise(
        FunctionRef.of(kernel), {"x": PointerType("fp32", True), "y": PointerType("fp32", True), "N": N},
        Parameters.of(kernel), target="sm_90a", enable_fp_fusion=True, num_warps=4, options=(("num_ctas", 2),),
    )  # fmt: skip
    found = compile_kernel(spec)
    assert isinstance(found, Compilation), found
    return found


def launched(compiled: Compilation, text: str) -> np.ndarray:
    y = np.zeros(1, np.float32)
    buffers = [Buffer(X.copy(), "x"), Buffer(y, "y")]
    run_kernel(load_kernel(text), buffers, (2,), num_threads=128, shared_bytes=compiled.shared)
    return y


BARRIER = re.compile(r"\tbarrier\.cluster\.arrive\S*;\n(\t.*\n)*?\tbarrier\.cluster\.wait\S*;\n")


def test_each_barrier_of_the_cluster_is_needed(compiled: Compilation) -> None:
    """The first lies between a block's store and the other block's load, the last before the end."""
    found = list(BARRIER.finditer(compiled.ptx))
    assert len(found) == 2
    assert launched(compiled, compiled.ptx)[0] == X.sum()
    texts = [compiled.ptx[: m.start()] + compiled.ptx[m.end() :] for m in found]
    with pytest.raises(MemoryFault, match=r"may not have begun.*cluster_triton.py:"):
        launched(compiled, texts[0])
    with pytest.raises(MemoryFault, match=r"may have ended.*cluster_triton.py:"):
        launched(compiled, texts[1])


def test_a_wrong_rank_is_detected(compiled: Compilation) -> None:
    mapa = re.compile(r"(mapa\.shared::cluster\.u32 \t%r\d+, %r\d+, )%r\d+;")
    assert mapa.search(compiled.ptx)
    assert launched(compiled, mapa.sub(r"\g<1>0;", compiled.ptx))[0] != X.sum()
    with pytest.raises(MemoryFault, match=r"rank 2 in a cluster of 2 blocks.*cluster_triton.py:"):
        launched(compiled, mapa.sub(r"\g<1>2;", compiled.ptx))


def test_a_wait_without_an_arrival_is_reported(compiled: Compilation) -> None:
    text = re.sub(r"\tbarrier\.cluster\.arrive\S*;\n", "", compiled.ptx, count=1)
    with pytest.raises(ExecutionError, match="at which it has not arrived"):
        launched(compiled, text)


def test_a_grid_must_consist_of_whole_clusters(compiled: Compilation) -> None:
    with pytest.raises(PtxError, match="not made of clusters"):
        run_kernel(
            load_kernel(compiled.ptx), [Buffer(X, "x"), Buffer(X.copy(), "y")], (3,), shared_bytes=compiled.shared
        )
