"""tl.dot as Triton compiles it to wgmma on sm_90a: the reference's bits, and clear errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed; it compiles the kernels of these tests")

import triton.language as tl

from ptxdiff import emulated
from ptxdiff.emulator.errors import ExecutionError, MemoryFault, PtxError
from ptxdiff.emulator.kernel.run import Buffer, load_kernel, run_kernel
from ptxdiff.references import tensor_core
from ptxdiff.references.formats import BF16, E4M3, E5M2, F16, F32, I8, I32, TF32, Format
from ptxdiff.triton.compile import compile_kernel
from ptxdiff.triton.spec import Compilation, FunctionRef, Parameters, PointerType, specialise
from tests.support.emulator import triton_kernels
from tests.support.sampling import only

M = N = B = 64
K, STEP = 128, 64
TYPES = {
    "float16": (F16, np.float16),
    "bfloat16": (BF16, ml_dtypes.bfloat16),
    "float32": (TF32, np.float32),
    "e4m3": (E4M3, ml_dtypes.float8_e4m3fn),
    "e5m2": (E5M2, ml_dtypes.float8_e5m2),
}


def codes(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array.view(f"u{array.itemsize}").astype(np.int64))


def operands(kind: Any, seed: int, k: int = K) -> tuple[np.ndarray, np.ndarray]:
    """Magnitudes spread over some binades, with zeros."""
    rng = np.random.default_rng(seed)
    found = []
    for shape in ((M, k), (k, N)):
        x = rng.standard_normal(shape) * np.exp2(rng.integers(-4, 4, shape)) * (rng.random(shape) < 0.9)
        found.append(x.astype(kind))
    return found[0], found[1]


def reference(x: np.ndarray, y: np.ndarray, fmt: Format, to: Format = F32) -> np.ndarray:
    zero = torch.zeros(len(x), y.shape[1], dtype=torch.int64)
    known = {"a_format": fmt, "b_format": fmt, "c_format": to, "d_format": to}
    return tensor_core.dot(codes(x), codes(y), zero, **known, generation=tensor_core.HOPPER_WGMMA).numpy()


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", only(TYPES, ["float16", "float32", "e4m3"]))
def test_float_products(name: str) -> None:
    fmt, kind = TYPES[name]
    x, y = operands(kind, 1)
    out = np.zeros((M, N), np.float32)
    emulated(triton_kernels.matmul, "sm_90a")[(1, 1)](x, y, out, M, N, K, B=B, STEP=STEP, ACC=tl.float32)
    np.testing.assert_array_equal(codes(out).numpy(), reference(x, y, fmt))


@pytest.mark.slow
def test_accumulating_in_float16() -> None:
    x, y = operands(np.float16, 2)
    out = np.zeros((M, N), np.float16)
    emulated(triton_kernels.matmul, "sm_90a")[(1, 1)](x, y, out, M, N, K, B=B, STEP=STEP, ACC=tl.float16)
    np.testing.assert_array_equal(codes(out).numpy(), reference(x, y, F16, F16))


def test_integer_products() -> None:
    rng = np.random.default_rng(3)
    x, y = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((M, K), (K, N)))
    out = np.zeros((M, N), np.int32)
    emulated(triton_kernels.matmul, "sm_90a")[(1, 1)](x, y, out, M, N, K, B=B, STEP=STEP, ACC=tl.int32)
    zero = torch.zeros(M, N, dtype=torch.int64)
    expected = tensor_core.dot_integer(codes(x), codes(y), zero, a_format=I8, b_format=I8, to=I32)
    np.testing.assert_array_equal(codes(out).numpy(), expected.numpy())


@pytest.mark.slow
def test_elements_of_a_in_registers() -> None:
    """Elements that are computed before the product stay in registers, in another layout than shared memory's."""
    x, y = operands(np.float16, 5)
    out = np.zeros((M, N), np.float32)
    arguments = (x, y, out, M, N, K)
    emulated(triton_kernels.matmul_of_twice, "sm_90a")[(1, 1)](*arguments, B=B, STEP=STEP)
    assert re.search(r"wgmma\.mma_async\S+ \{[^}]*\}, \{", compiled("matmul_of_twice").ptx)
    np.testing.assert_array_equal(codes(out).numpy(), reference(x + x, y, F16))


# mistakes planted in PTX of Triton -----------------------------------------------------------------------------


@cache
def compiled(name: str, stages: int = 3, kind: str = "fp16") -> Compilation:
    values: dict[str, Any] = {"M": M, "N": N, "K": K, "B": B, "STEP": STEP}
    values |= {"ACC": tl.float32} if name == "matmul" else {}
    types = {"x": PointerType(kind), "y": PointerType(kind), "out": PointerType("fp32")}
    function = getattr(triton_kernels, name)
    spec = specialise(
        FunctionRef.of(function), types | values, Parameters.of(function), target="sm_90a", enable_fp_fusion=True,
        num_warps=4, options=(("num_stages", stages),),
    )  # fmt: skip
    found = compile_kernel(spec)
    assert isinstance(found, Compilation), found
    return found


def run(ptx: str, shared: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = operands(np.float16, 4)
    out = np.zeros((M, N), np.float32)
    buffers = [Buffer(x, "x"), Buffer(y, "y"), Buffer(out, "out")]
    run_kernel(load_kernel(ptx), [*buffers, M, N, K], (1, 1), num_threads=128, shared_bytes=shared)
    return codes(out).numpy(), reference(x, y, F16)


def replaced(pattern: str, by: str) -> Callable[[str], str]:
    def changed(text: str) -> str:
        found, count = re.subn(pattern, by, text)
        assert count >= 1
        return found

    return changed


def test_the_ptx_of_triton_gives_the_right_bits() -> None:
    got, wanted = run(compiled("matmul").ptx, compiled("matmul").shared)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (
            replaced(r"wgmma\.wait_group\S+\s+\d;", ""),
            MemoryFault,
            r"wgmma in line \d+ still reads: wgmma.wait_group 1",
        ),
        (replaced(r"(wgmma\.wait_group\S+\s+)0;", r"\g<1>1;"), ExecutionError, r"reads %r\d+, .*: wgmma.wait_group 0"),
        (replaced(r"wgmma\.commit_group\S+;", ""), MemoryFault, "still reads: wgmma.commit_group and wgmma.wait_group"),
        (replaced(r"wgmma\.fence\S+;", ""), ExecutionError, "issues its first wgmma without a wgmma.fence"),
        (replaced(r"bar\.sync\s+0;", ""), MemoryFault, "race: the wgmma of thread .* which another thread wrote"),
    ],
    ids=["wait", "last wait", "commit", "fence", "barrier"],
)
def test_mistakes_are_reported(change: Callable[[str], str], kind: type[PtxError], words: str) -> None:
    """The error has the line of the Triton kernel."""
    with pytest.raises(kind, match=words) as caught:
        run(change(compiled("matmul").ptx), compiled("matmul").shared)
    assert re.search(r"triton_kernels\.py:\d+", str(caught.value))


def test_a_matrix_to_which_a_copy_is_under_way_is_reported() -> None:
    """A proxy fence and a barrier after the copies do not replace the wait for them."""
    found = compiled("matmul")
    fence = "fence.proxy.async.shared::cta;"
    waits = replaced(r"(cp\.async\.wait_group\s+\d;)", rf"\1 {fence}")(found.ptx)
    got, wanted = run(waits, found.shared)
    np.testing.assert_array_equal(got, wanted)
    words = "gives wgmma shared memory at offset .* an asynchronous copy is under way"
    with pytest.raises(MemoryFault, match=words):
        run(replaced(r"cp\.async\.wait_group\s+\d;", fence)(found.ptx), found.shared)


def test_accumulators_of_a_product_of_another_shape_are_reported() -> None:
    """Products of one shape may accumulate one after the other; of another shape only after a wait."""
    found = compiled("matmul")
    product = re.search(r"wgmma\.mma_async\S*\.m64n64k16\S* \{([^}]*)\}, ([^;]*);", found.ptx)
    assert product
    registers = ", ".join(product[1].split(",")[:4])
    small = product[0].replace("m64n64k16", "m64n8k16").replace(product[1], registers)
    wait = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; wgmma.fence.sync.aligned;"
    run(found.ptx.replace(product[0], f"{product[0]} {wait} {small} {wait}", 1), found.shared)
    with pytest.raises(ExecutionError, match=r"gives wgmma %r\d+, which the wgmma in line .* is still to write"):
        run(found.ptx.replace(product[0], f"{product[0]} {small} {wait}", 1), found.shared)


def test_a_removed_proxy_fence_is_reported() -> None:
    """The fence follows stores to shared memory; after cp.async Triton 3.6 itself writes no fence."""
    found = compiled("matmul", stages=1)
    assert "cp.async" not in found.ptx
    ptx = replaced(r"fence\.proxy\.async\S*;", "")(found.ptx)
    with pytest.raises(MemoryFault, match=r"which a thread wrote, and no fence.proxy.async lies between .*\.py:\d+"):
        run(ptx, found.shared)


def test_an_accumulator_written_after_the_fence_is_reported() -> None:
    ptx = compiled("matmul").ptx
    register = re.search(r"wgmma\.mma_async\S+ \{(%r\d+)", ptx)
    assert register
    changed = replaced(r"(wgmma\.fence\S+;)", rf"\1 mov.b32 {register[1]}, 0;")(ptx)
    with pytest.raises(ExecutionError, match=rf"wrote {register[1]}, .* no wgmma.fence lies between"):
        run(changed, compiled("matmul").shared)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("behind", "words"),
    [
        ("mov.b32 {a}, 0x7e007e00;", ""),
        ("mov.b32 {a}, 0x7e007e00; xor.b32 {a}, {a}, {a};", ""),
        ("mov.b32 other, {a};", r"reads %r\d+, which the wgmma in line \d+ reads"),
        ("@even mov.b32 {a}, 0; mov.b32 other, {a};", r"reads %r\d+, which the wgmma in line \d+ reads"),
    ],
    ids=["written", "written and read", "read", "read where half of the threads wrote"],
)
def test_elements_of_a_may_be_overwritten_but_not_read(behind: str, words: str) -> None:
    """Triton 3.6 writes the next round's elements while products run; ptxas uses another register for them."""
    found = compiled("matmul_of_twice")
    register = re.search(r"wgmma\.mma_async\S+ \{[^}]*\}, \{(%r\d+)", found.ptx)
    assert register
    names = (
        ".reg .b32 other; .reg .pred even; mov.u32 other, %laneid; and.b32 other, other, 1; setp.eq.b32 even, other, 0;"
    )
    inside = "{" + names + behind.format(a=register[1]) + "}"
    changed = replaced(rf"(wgmma\.mma_async[^;]*\{{{register[1]},[^;]*;)", rf"\1 {inside}")(found.ptx)
    if words:
        with pytest.raises(ExecutionError, match=words):
            run(changed, found.shared)
        return
    got, _ = run(changed, found.shared)
    wanted, _ = run(found.ptx, found.shared)
    np.testing.assert_array_equal(got, wanted)


def test_a_copy_of_an_accumulator_belongs_to_the_product_too() -> None:
    """The compiler moves registers before a wait, and ptxas waits first; another use of the copy is an error."""
    found = compiled("matmul")
    register = re.search(r"wgmma\.mma_async\S+ \{(%r\d+)", found.ptx)
    assert register
    copy = f"{{ .reg .b32 copy, other; mov.b32 copy, {register[1]};"
    got, wanted = run(replaced(r"(wgmma\.commit_group\S+;)", rf"\1 {copy} }}")(found.ptx), found.shared)
    np.testing.assert_array_equal(got, wanted)
    used = replaced(r"(wgmma\.commit_group\S+;)", rf"\1 {copy} xor.b32 other, copy, copy; }}")(found.ptx)
    with pytest.raises(ExecutionError, match=r"reads copy, which the wgmma in line \d+ is still to write"):
        run(used, found.shared)


def test_a_store_to_a_matrix_that_is_still_read_is_reported() -> None:
    found = compiled("matmul")
    store = "st.shared.b32 [global_smem+16], 0;"
    changed = replaced(r"(wgmma\.commit_group\S+;)", rf"\1 {store}")(found.ptx)
    with pytest.raises(MemoryFault, match=r"which the wgmma in line .* still reads: wgmma.wait_group 0"):
        run(changed, found.shared)


def test_a_stride_that_leads_out_of_shared_memory_is_reported() -> None:
    """Groups of 8 rows are 8192 bytes apart instead of 1024."""
    changed = replaced(r"4611686293305294848", str(1 << 62 | (8192 >> 4) << 32))(compiled("matmul").ptx)
    with pytest.raises(MemoryFault, match=r"descriptor of \w reaches offset \d+, outside the \d+ bytes.*stride 8192"):
        run(changed, compiled("matmul").shared)
