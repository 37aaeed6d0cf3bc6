"""Kernels as Triton compiles them for several generations of GPUs, compared with numpy."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed; it compiles the kernels of these tests")

from ptxdiff.emulator.errors import ExecutionError, MemoryFault, UndefinedBits
from ptxdiff.emulator.kernel.run import Buffer, Executed, load_kernel, run_kernel
from ptxdiff.triton.compile import compile_kernel
from ptxdiff.triton.spec import Compilation, FunctionRef, Parameters, PointerType, specialise
from tests.support.emulator import triton_kernels
from tests.support.sampling import only
from tests.support.tritons import since

TARGETS = ["sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a"]
QUICK = ["sm_75", "sm_120a"]
"""Other tests here are quick on sm_90a, those of `test_small_kernels` on sm_80 and sm_100a; the slow tests run each
kernel on all targets."""
BLACKWELL = ["sm_100a", "sm_120a"]
NAMES = {
    "float32": "fp32",
    "float16": "fp16",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "bfloat16": "bf16",
}


def compile_for(
    name: str, target: str, arguments: dict[str, Any], num_warps: int = 4, debug: bool = False
) -> Compilation:
    function = getattr(triton_kernels, name)
    seen = {k: PointerType(NAMES[v.dtype.name]) if isinstance(v, np.ndarray) else v for k, v in arguments.items()}
    spec = specialise(
        FunctionRef.of(function),
        seen,
        Parameters.of(function),
        target=target,
        enable_fp_fusion=False,
        num_warps=num_warps,
        options=(("debug", debug),),
    )
    compiled = compile_kernel(spec)
    assert isinstance(compiled, Compilation), compiled
    return compiled


def run(
    name: str,
    target: str,
    grid: tuple[int, ...],
    num_warps: int = 4,
    edit: Any = None,
    debug: bool = False,
    **arguments: Any,
) -> Executed:
    """Compile and run; arrays named y, q or scales are undefined at first. `edit` changes the PTX."""
    compiled = compile_for(name, target, arguments, num_warps, debug)
    signature = dict(compiled.spec.signature)
    buffers = {
        k: Buffer(v, k, defined=k not in ("y", "q", "scales")) if isinstance(v, np.ndarray) else v
        for k, v in arguments.items()
    }
    values = [v for k, v in buffers.items() if signature[k] != "constexpr"]
    ptx = edit(compiled.ptx) if edit else compiled.ptx
    return run_kernel(load_kernel(ptx), values, grid, num_threads=32 * num_warps, shared_bytes=compiled.shared)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.slow
@pytest.mark.parametrize("target", only(TARGETS, ["sm_75"]))
def test_sort(target: str, rng: np.random.Generator) -> None:
    """Triton compiles for seconds. `test_small_kernels` sorts on two other targets."""
    x = rng.integers(-1000, 1000, 512).astype(np.int32)
    y = np.zeros_like(x)
    run("sort", target, (1,), x=x, y=y, B=512)
    np.testing.assert_array_equal(y, np.sort(x))


@pytest.mark.parametrize("target", only(TARGETS, QUICK))
class TestOrdinaryKernels:
    def test_softmax(self, target: str, rng: np.random.Generator) -> None:
        x = rng.standard_normal((37, 1000)).astype(np.float32)
        y = np.zeros_like(x)
        run("softmax", target, (37,), x=x, y=y, N=1000, B=1024)
        e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
        np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)

    @pytest.mark.sample(2)
    def test_layer_norm(self, target: str, rng: np.random.Generator) -> None:
        x = rng.standard_normal((37, 1000)).astype(np.float16)
        w, b = rng.standard_normal((2, 1000)).astype(np.float32)
        y = np.zeros(x.shape, np.float32)
        run("layer_norm", target, (37,), x=x, w=w, b=b, y=y, N=1000, eps=1e-5, B=1024)
        d = x.astype(np.float64)
        expected = (d - d.mean(1, keepdims=True)) / np.sqrt(d.var(1, keepdims=True) + 1e-5) * w + b
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)

    @pytest.mark.sample(3)
    @pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
    def test_transpose(self, target: str, dtype: str, rng: np.random.Generator) -> None:
        x = rng.integers(-100, 100, (160, 208)).astype(dtype)
        y = np.zeros((208, 160), dtype)
        run("transpose", target, (3, 4), x=x, y=y, M=160, N=208, BM=64, BN=64)
        np.testing.assert_array_equal(y, x.T)

    @pytest.mark.sample(2)
    def test_histograms(self, target: str, rng: np.random.Generator) -> None:
        x = rng.integers(0, 64, 10000).astype(np.int32)
        h = np.zeros(64, np.int32)
        run("histogram_atomic", target, (10,), x=x, h=h, n=10000, B=1024)
        np.testing.assert_array_equal(h, np.bincount(x, minlength=64))
        h[:] = 0
        run("histogram_shared", target, (8,), x=x, h=h, B=1024, BINS=64)
        np.testing.assert_array_equal(h, np.bincount(x[:8192], minlength=64))

    @pytest.mark.sample(4)
    @pytest.mark.parametrize("num_warps", [1, 4, 8])
    def test_row_sums(self, target: str, num_warps: int, rng: np.random.Generator) -> None:
        x = rng.integers(0, 100, (45, 1000)).astype(np.float32)
        y = np.zeros(45, np.float32)
        run("row_sums", target, (3,), num_warps, x=x, y=y, M=45, N=1000, BM=16, BN=64)
        np.testing.assert_array_equal(y, x.sum(1))

    @pytest.mark.sample(2)
    def test_scan_and_argmax(self, target: str, rng: np.random.Generator) -> None:
        x = rng.integers(-1000, 1000, 1000).astype(np.int32)
        y = np.zeros_like(x)
        run("running_sum", target, (1,), x=x, y=y, n=1000, B=1024)
        np.testing.assert_array_equal(y, x.cumsum())
        table = rng.standard_normal((9, 1000)).astype(np.float32)
        run("argmax", target, (9,), x=table, y=(at := np.zeros(9, np.int32)), N=1000, B=1024)
        np.testing.assert_array_equal(at, table.argmax(1))

    @pytest.mark.sample(2)
    def test_a_lock_between_blocks(self, target: str, rng: np.random.Generator) -> None:
        x = rng.integers(0, 100, 128 * 6).astype(np.int32)
        lock, total = np.zeros(1, np.int32), np.zeros(1, np.int32)
        run("locked_total", target, (6,), x=x, lock=lock, total=total, B=128)
        assert (int(total[0]), int(lock[0])) == (x.sum(), 0)


@pytest.mark.parametrize("target", only(["sm_80", "sm_90a", "sm_100a"], ["sm_90a"]))
class TestOtherCodeOfTriton:
    def test_loads_ahead(self, target: str, rng: np.random.Generator) -> None:
        x = rng.integers(0, 100, (45, 1000)).astype(np.float32)
        y = np.zeros(45, np.float32)
        run("pipelined_sums", target, (3,), x=x, y=y, M=45, N=1000, BM=16, BN=64)
        np.testing.assert_array_equal(y, x.sum(1))

    def test_library_functions(self, target: str, rng: np.random.Generator) -> None:
        x = (rng.standard_normal(500) * 1e6).astype(np.float32)
        y = np.zeros_like(x)
        run("library_functions", target, (2,), x=x, y=y, n=500, B=256)
        d = x.astype(np.float64)
        np.testing.assert_allclose(y, np.sin(d) + np.abs(d) ** 0.1, rtol=1e-5, atol=1e-5)

    def test_wide_integers(self, target: str, rng: np.random.Generator) -> None:
        x = rng.integers(-(2**31), 2**31 - 1, 500).astype(np.int32)
        y = np.zeros_like(x)
        run("wide_integers", target, (2,), x=x, y=y, n=500, B=256)
        a = x.astype(np.int64)
        expected = np.fmod(np.trunc(a * 1234567 / 1000), 77) + np.trunc(a / 7) + np.fmod(a, 5)
        np.testing.assert_array_equal(y, expected)

    def test_prints_and_assertions(self, target: str) -> None:
        x = np.arange(64, dtype=np.int32)
        y = np.zeros_like(x)
        run("asserts_and_prints", target, (1,), debug=True, x=x, y=y, B=64)
        np.testing.assert_array_equal(y, x)
        x[40] = 100
        with pytest.raises(ExecutionError, match=r"device assertion failed in thread 40 .*too large"):
            run("asserts_and_prints", target, (1,), debug=True, x=x, y=y, B=64)


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", BLACKWELL)
def test_block_scaled_quantisation(target: str, rng: np.random.Generator) -> None:
    m, n = 48, 400
    x = (rng.standard_normal((m, n)) * np.exp(rng.uniform(-4, 4, (m, 1)))).astype(ml_dtypes.bfloat16)
    x[0, :16] = 0
    x[1, 16:32] = np.array([6, 5, 3.5, 2.5, 1.75, 1.25, 0.75, 0.25, -0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5, -6])
    q, scales = np.zeros((m, n // 2), np.uint8), np.zeros((m, n // 16), np.uint8)
    g = np.float32([6.0])
    run("nvfp4", target, (3, 4), x=x, q=q, scales=scales, global_scale=g, M=m, N=n, BM=16, BN=128)
    blocks = x.astype(np.float32).reshape(m, n // 16, 16)
    scale = np.minimum(np.abs(blocks).max(2), np.float32(448)).astype(ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(scales, scale.view(np.uint8))
    value = scale.astype(np.float32)
    # The kernel's division is approximate, so only blocks whose quotient is exact are compared bit for bit.
    exact = (value == 0) | (np.log2(np.where(value == 0, 1, value)) % 1 == 0)
    inverse = np.divide(g, value, out=np.zeros_like(value), where=value != 0)
    scaled = np.clip(blocks * inverse[:, :, None], -6, 6).reshape(m, n)
    codes = scaled.astype(ml_dtypes.float4_e2m1fn).view(np.uint8).reshape(m, n // 2, 2)
    expected = codes[:, :, 0] | codes[:, :, 1] << 4
    chosen = np.repeat(exact, 8, axis=1)
    assert chosen.sum() > 16
    np.testing.assert_array_equal(q[chosen], expected[chosen])


class TestMistakesAreReported:
    """Each mistake is in a kernel that Triton compiled; errors have the place in the PTX and in the Triton source."""

    def test_store_past_the_end(self) -> None:
        x = np.zeros(1000, np.int32)
        with pytest.raises(MemoryFault, match="4 bytes at offset 4000 of y, which has 4000 bytes") as caught:
            run("wrong_mask", "sm_90a", (4,), x=x, y=np.zeros(1000, np.int32), n=1000, B=256)
        assert re.search(r"triton_kernels\.py:\d+", str(caught.value))
        assert "st.global" in caught.value.source

    def test_missing_barrier(self) -> None:
        x, y = np.zeros((2, 1000), np.float32), np.zeros((2, 1000), np.float32)
        with pytest.raises(MemoryFault, match=r"race: .* shared memory .* no barrier"):
            run(
                "softmax",
                "sm_90a",
                (2,),
                edit=lambda p: re.sub(r"\n\s*bar\.sync[^\n]*", "", p),
                x=x,
                y=y,
                N=1000,
                B=1024,
            )

    @since(3, 9, "it stores to shared memory by inline asm, which this edit of the text does not find")
    def test_shared_memory_never_written(self) -> None:
        x, y = np.zeros((2, 1000), np.float32), np.zeros((2, 1000), np.float32)
        with pytest.raises(UndefinedBits, match="reach a store to y"):
            run(
                "softmax",
                "sm_80",
                (2,),
                edit=lambda p: re.sub(r"\n\s*st\.shared[^\n]*", "", p),
                x=x,
                y=y,
                N=1000,
                B=1024,
            )

    def test_pack_that_mixes_neighbours(self) -> None:
        x = np.arange(256, dtype=np.int16)
        y = np.zeros(256, np.int16)
        run("mixes_neighbours", "sm_90a", (1,), x=x, y=y, n=256, B=256)
        np.testing.assert_array_equal(y, x ^ 1)
        # 64 elements on 128 threads: a thread's pack of two holds one element and padding.
        with pytest.raises(UndefinedBits, match="reach a store to y"):
            run("mixes_neighbours", "sm_90a", (1,), x=x[:64], y=y[:64].copy(), n=64, B=64)


def test_a_compiled_kernel_is_described() -> None:
    compiled = compile_for(
        "multiply_add",
        "sm_90a",
        {"x": np.zeros(1, np.float32), "z": np.zeros(1, np.float32), "y": np.zeros(1, np.float32), "n": 64, "B": 64},
    )
    kernel = load_kernel(compiled.ptx)
    assert "ld.global" in " ".join(kernel.analysis.forms)
    assert kernel.threads == 128
