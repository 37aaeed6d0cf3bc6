"""tl.dot as Triton compiles it to mma, ldmatrix and cp.async: the reference's bits, and clear errors."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed; it compiles the kernels of these tests")

import triton.language as tl

from ptxdiff import emulated
from ptxdiff.emulator.errors import MemoryFault
from ptxdiff.emulator.kernel.run import Buffer, load_kernel, run_kernel
from ptxdiff.references import tensor_core
from ptxdiff.references.formats import BF16, E4M3, E5M2, F16, F32, I8, I32, TF32, Format
from ptxdiff.references.tensor_core import ADA, AMPERE, BLACKWELL, HOPPER
from ptxdiff.triton.compile import compile_kernel
from ptxdiff.triton.spec import Compilation, FunctionRef, Parameters, PointerType, specialise
from tests.support.emulator import triton_kernels
from tests.support.sampling import only, paired

M, N, K, B, STEP = 64, 32, 96, 32, 32
GENERATIONS = {"sm_80": AMPERE, "sm_86": AMPERE, "sm_89": ADA, "sm_90a": HOPPER, "sm_120a": BLACKWELL}
TYPES = {
    "float16": (F16, np.float16),
    "bfloat16": (BF16, ml_dtypes.bfloat16),
    "float32": (TF32, np.float32),
    "e4m3": (E4M3, ml_dtypes.float8_e4m3fn),
    "e5m2": (E5M2, ml_dtypes.float8_e5m2),
}


def codes(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array.view(f"u{array.itemsize}").astype(np.int64))


def operands(kind: Any, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Magnitudes spread over some binades, with zeros."""
    found = []
    for shape in ((M, K), (K, N)):
        x = rng.standard_normal(shape) * np.exp2(rng.integers(-4, 4, shape)) * (rng.random(shape) < 0.9)
        found.append(x.astype(kind))
    return found[0], found[1]


def reference(x: np.ndarray, y: np.ndarray, fmt: Format, to: Format, generation: tensor_core.Generation) -> np.ndarray:
    zero = torch.zeros(len(x), y.shape[1], dtype=torch.int64)
    found = tensor_core.dot(
        codes(x), codes(y), zero, a_format=fmt, b_format=fmt, c_format=to, d_format=to, generation=generation
    )
    return found.numpy()


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("target", "name"),
    paired(["sm_80", "sm_86", "sm_89", "sm_90a", "sm_120a"], ["float16", "bfloat16", "float32", "e4m3", "e5m2"], 2),
)
def test_float_products(target: str, name: str) -> None:
    fmt, kind = TYPES[name]
    if fmt.code_bits == 8 and target not in ("sm_89", "sm_120a"):
        pytest.skip(f"Triton compiles no product of 8-bit floats to mma for {target}")
    x, y = operands(kind, np.random.default_rng(1))
    out = np.zeros((M, N), np.float32)
    emulated(triton_kernels.matmul, target)[(M // B, N // B)](x, y, out, M, N, K, B=B, STEP=STEP, ACC=tl.float32)
    np.testing.assert_array_equal(codes(out).numpy(), reference(x, y, fmt, F32, GENERATIONS[target]))


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", only(["sm_80", "sm_89", "sm_120a"], ["sm_80", "sm_120a"]))
def test_accumulating_in_float16(target: str) -> None:
    x, y = operands(np.float16, np.random.default_rng(2))
    out = np.zeros((M, N), np.float16)
    emulated(triton_kernels.matmul, target)[(M // B, N // B)](x, y, out, M, N, K, B=B, STEP=STEP, ACC=tl.float16)
    np.testing.assert_array_equal(codes(out).numpy(), reference(x, y, F16, F16, GENERATIONS[target]))


@pytest.mark.parametrize("target", only(["sm_80", "sm_90a", "sm_120a"], ["sm_90a"]))
def test_integer_products(target: str) -> None:
    rng = np.random.default_rng(3)
    x, y = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((M, K), (K, N)))
    out = np.zeros((M, N), np.int32)
    emulated(triton_kernels.matmul, target)[(M // B, N // B)](x, y, out, M, N, K, B=B, STEP=STEP, ACC=tl.int32)
    zero = torch.zeros(M, N, dtype=torch.int64)
    expected = tensor_core.dot_integer(codes(x), codes(y), zero, a_format=I8, b_format=I8, to=I32)
    np.testing.assert_array_equal(codes(out).numpy(), expected.numpy())


# mistakes planted in PTX of Triton -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pipelined() -> Compilation:
    values = {"M": M, "N": N, "K": K, "B": B, "STEP": STEP, "ACC": tl.float32}
    types = {"x": PointerType("fp16"), "y": PointerType("fp16"), "out": PointerType("fp32")}
    function = triton_kernels.matmul
    spec = specialise(
        FunctionRef.of(function), types | values, Parameters.of(function), target="sm_80", enable_fp_fusion=True,
        num_warps=4, options=(("num_stages", 3),),
    )  # fmt: skip
    compiled = compile_kernel(spec)
    assert isinstance(compiled, Compilation), compiled
    assert "cp.async" in compiled.ptx
    return compiled


def run(compilation: Compilation, ptx: str) -> tuple[np.ndarray, np.ndarray]:
    x, y = operands(np.float16, np.random.default_rng(4))
    out = np.zeros((M, N), np.float32)
    buffers = [Buffer(x, "x"), Buffer(y, "y"), Buffer(out, "out")]
    run_kernel(
        load_kernel(ptx), [*buffers, M, N, K], (M // B, N // B), num_threads=128, shared_bytes=compilation.shared
    )
    return codes(out).numpy(), reference(x, y, F16, F32, AMPERE)


@pytest.mark.slow
def test_a_pipelined_product_is_right(pipelined: Compilation) -> None:
    got, wanted = run(pipelined, pipelined.ptx)
    np.testing.assert_array_equal(got, wanted)


def test_a_removed_wait_is_reported(pipelined: Compilation) -> None:
    waits = list(re.finditer(r"cp\.async\.wait_group\s+\d+;", pipelined.ptx))
    first = waits[0]
    ptx = pipelined.ptx[: first.start()] + pipelined.ptx[first.end() :]
    with pytest.raises(MemoryFault, match=r"to which an asynchronous copy is under way .*triton_kernels\.py:\d+"):
        run(pipelined, ptx)


def test_a_wait_for_one_group_too_few_is_reported(pipelined: Compilation) -> None:
    ptx = re.sub(r"wait_group(\s+)(\d+)", lambda m: f"wait_group{m[1]}{int(m[2]) + 1}", pipelined.ptx)
    with pytest.raises(MemoryFault, match="to which an asynchronous copy is under way"):
        run(pipelined, ptx)


def test_a_removed_barrier_is_reported(pipelined: Compilation) -> None:
    ptx = re.sub(r"bar\.sync\s+0;", "", pipelined.ptx)
    with pytest.raises(MemoryFault, match="race"):
        run(pipelined, ptx)
