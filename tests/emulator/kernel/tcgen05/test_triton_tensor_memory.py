"""tl.dot and tl.dot_scaled as Triton compiles them to tcgen05 on sm_100a: the references' bits, and clear errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
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
from ptxdiff.model.load import load_module
from ptxdiff.references import scaled_matrices, tensor_core
from ptxdiff.references.formats import BF16, E2M1, E4M3, E5M2, F16, F32, I8, I32, TF32, UE8M0, Format, to_float64
from ptxdiff.triton.compile import compile_kernel
from ptxdiff.triton.spec import Compilation, FunctionRef, Parameters, PointerType, specialise
from tests.support import descriptor_kernels
from tests.support.emulator import tensor_memory_kernels as kernels
from tests.support.sampling import only, spread
from tests.support.tritons import since

TARGET = "sm_100a"
CASES = load_module(Path(__file__).parents[4] / "cases" / "block_scaled_matmul.py")
M, N, K = 128, 32, 64
FLOATS: dict[str, tuple[Format, Any]] = {
    "float16": (F16, np.float16),
    "bfloat16": (BF16, ml_dtypes.bfloat16),
    "float32": (TF32, np.float32),
    "e4m3": (E4M3, ml_dtypes.float8_e4m3fn),
    "e5m2": (E5M2, ml_dtypes.float8_e5m2),
}


def codes(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array).view(f"u{array.itemsize}").astype(np.int64))


def operands(kind: Any, m: int = M, n: int = N, k: int = K, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Magnitudes spread over some binades, with zeros."""
    rng = np.random.default_rng(seed)
    x, y = (rng.standard_normal(s) * np.exp2(rng.integers(-4, 4, s)) * (rng.random(s) < 0.9) for s in ((m, k), (k, n)))
    return x.astype(kind), y.astype(kind)


def reference(x: np.ndarray, y: np.ndarray, fmt: Format, to: Format = F32, of_y: Format | None = None) -> np.ndarray:
    zero = torch.zeros(len(x), y.shape[1], dtype=torch.int64)
    known = {"a_format": fmt, "b_format": of_y or fmt, "c_format": to, "d_format": to}
    return tensor_core.dot(codes(x), codes(y), zero, **known, generation=tensor_core.BLACKWELL).numpy()


def product(
    x: np.ndarray, y: np.ndarray, to: Any, acc: Any = tl.float32, twice: bool = False, **options: Any
) -> np.ndarray:
    (m, k), n = x.shape, y.shape[1]
    out = np.zeros((m, n), to)
    meta = {"BM": m, "BN": n, "STEP": 32, "ACC": acc, "TWICE": twice}
    emulated(kernels.matmul, TARGET)[(1, 1)](x, y, out, m, n, k, **meta, **options)
    return codes(out).numpy()


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", only(FLOATS, ["bfloat16", "float32", "e5m2"]))
def test_float_products(name: str) -> None:
    fmt, kind = FLOATS[name]
    x, y = operands(kind)
    np.testing.assert_array_equal(product(x, y, np.float32), reference(x, y, fmt))


@pytest.mark.slow
def test_two_formats() -> None:
    x, _ = operands(ml_dtypes.float8_e4m3fn)
    _, y = operands(ml_dtypes.float8_e5m2)
    np.testing.assert_array_equal(product(x, y, np.float32), reference(x, y, E4M3, of_y=E5M2))


@pytest.mark.slow
@pytest.mark.parametrize("m", only([64, 128], [64]))
def test_accumulating_in_float16(m: int) -> None:
    x, y = operands(np.float16, m)
    np.testing.assert_array_equal(product(x, y, np.float16, tl.float16), reference(x, y, F16, F16))


def test_integer_products() -> None:
    rng = np.random.default_rng(3)
    x, y = (rng.integers(-128, 128, s).astype(np.int8) for s in ((M, K), (K, N)))
    zero = torch.zeros(M, N, dtype=torch.int64)
    expected = tensor_core.dot_integer(codes(x), codes(y), zero, a_format=I8, b_format=I8, to=I32)
    np.testing.assert_array_equal(product(x, y, np.int32, tl.int32), expected.numpy())


@pytest.mark.sample(2)
@pytest.mark.parametrize(("m", "n", "warps"), spread([(64, 64, 4), (128, 64, 8), (256, 32, 8)], 2))
def test_tiles(m: int, n: int, warps: int) -> None:
    x, y = operands(np.float16, m, n)
    np.testing.assert_array_equal(product(x, y, np.float32, num_warps=warps), reference(x, y, F16))


@pytest.mark.slow
@pytest.mark.parametrize("m", only([64, 128], [128]))
def test_a_in_tensor_memory(m: int) -> None:
    x, y = operands(np.float16, m)
    np.testing.assert_array_equal(product(x, y, np.float32, twice=True), reference(x + x, y, F16))


@pytest.mark.slow
@pytest.mark.parametrize("tasks", only([False, True], [True]), ids=["one task", "warps of several tasks"])
def test_persistent_with_descriptors(tasks: bool) -> None:
    x, y = operands(np.float16, 256, 128, 128)
    out = np.zeros((256, 128), np.float16)
    meta = {"BM": 128, "BN": 64, "BK": 64, "TASKS": tasks, "num_stages": 3}
    emulated(kernels.persistent, TARGET)[(2,)](x, y, out, 256, 128, 128, **meta)
    wanted = reference(x, y, F16).astype(np.uint32).view(np.float32).astype(np.float16)
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.slow
def test_attention() -> None:
    """Scores go to registers, and back to tensor memory as a of the second product."""
    generator = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(1, 128, 64, generator=generator).half() for _ in range(3))
    out = torch.zeros(1, 128, 64)
    emulated(descriptor_kernels.attention, TARGET)[(1, 1)](q, k, v, out, 128, 0.18, BM=128, BN=64, D=64)
    wanted = torch.softmax((q.double() @ k.double().transpose(1, 2)) * 0.18 * np.log(2), -1) @ v.double()
    assert (out.double() - wanted).abs().max() < 2e-3  # p is rounded to float16: 2^-11 of sums of |v| < 4


@pytest.mark.slow
def test_grouped() -> None:
    starts = np.array([0, 40, 200], np.int32)
    x, y = operands(np.float16, 200, 32)
    y = np.concatenate([y, operands(np.float16, 200, 32, seed=2)[1]])
    out = np.zeros((200, 32), np.float32)
    emulated(kernels.grouped, TARGET)[(2, 1)](x, y, out, starts, 32, K, BM=128, BN=32, BK=32)
    wanted = np.concatenate([reference(x[:40], y[:K], F16), reference(x[40:], y[K:], F16)])
    np.testing.assert_array_equal(codes(out).numpy(), wanted)


# block scales -----------------------------------------------------------------------------------------------------

SCALED = [("e5m2", "e4m3", 32), ("e4m3", "e4m3", 32), ("e4m3", "e2m1", 32), ("e2m1", "e2m1", 32), ("e2m1", "e2m1", 16)]
NARROW = {"e4m3": E4M3, "e5m2": E5M2, "e2m1": E2M1}


def elements(name: str, rows: int, k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Elements as the kernel reads them, and their codes."""
    if name == "e2m1":
        found = rng.integers(0, 16, (rows, k))
        return (found[:, ::2] | found[:, 1::2] << 4).astype(np.uint8), found
    kind = ml_dtypes.float8_e4m3fn if name == "e4m3" else ml_dtypes.float8_e5m2
    real = (rng.standard_normal((rows, k)) * np.exp2(rng.integers(-4, 4, (rows, k)))).astype(kind)
    return real, real.view(np.uint8)


def scaled_operands(a: str, b: str, block: int) -> tuple[list[np.ndarray], np.ndarray]:
    """The kernel's arguments, and the reference's codes of the product."""
    m, n, k = 128, 64, 256
    rng = np.random.default_rng(5)
    (x, of_x), (y, of_y) = elements(a, m, k, rng), elements(b, n, k, rng)
    low, high = (120, 134) if block == 32 else (0x20, 0x60)
    s, t = (rng.integers(low, high, (rows, k // block)).astype(np.uint8) for rows in (m, n))
    inputs = [torch.from_numpy(v.astype(np.int64)) for v in (of_x, of_y.T, s, t, np.zeros((m, n)))]
    expected = scaled_matrices.dot(
        *inputs, a_format=NARROW[a], b_format=NARROW[b], scale_format=UE8M0 if block == 32 else E4M3, block=block,
        kind=scaled_matrices.FOUR if a == b == "e2m1" else scaled_matrices.MX8,
    )  # fmt: skip
    kinds = ml_dtypes.float8_e4m3fn if block == 16 else np.uint8
    return [x, s.view(kinds), y, t.view(kinds)], expected.numpy()


@pytest.mark.slow
@pytest.mark.parametrize(("a", "b", "block"), spread(SCALED, 2, lambda row: row))
def test_block_scaled_products(a: str, b: str, block: int) -> None:
    inputs, expected = scaled_operands(a, b, block)
    out = np.zeros((128, 64), np.float32)
    meta = {"BM": 128, "BN": 64, "BK": 128, "A": a, "B": b, "BLOCK": block}
    emulated(kernels.scaled, TARGET)[(1, 1)](*inputs, out, 128, 64, 256, **meta)
    np.testing.assert_array_equal(codes(out).numpy(), expected)


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4"])
def test_dequantised_products_lie_within_the_bound_of_the_cases(name: str) -> None:
    case = getattr(CASES, f"{name}_matmul")
    plain = case.variants["dequantised"].reference
    made = case.generate(case.sizes[0], np.random.default_rng(7))
    inputs = [torch.from_numpy(made[n].astype(np.int64)) for n in case.inputs]
    scaled, other = (to_float64(F32, f(*inputs)).numpy() for f in (case.reference, plain))
    assert np.abs(scaled - other).max() < CASES.BOUND < np.abs(scaled).max() / 100


# mistakes planted in PTX of Triton --------------------------------------------------------------------------------


@cache
def compiled(name: str) -> Compilation:
    if name == "matmul":
        inputs: dict[str, Any] = {"x": PointerType("fp16"), "y": PointerType("fp16"), "out": PointerType("fp32")}
        inputs |= {"M": M, "N": N, "K": 128, "BM": M, "BN": N, "STEP": 32, "ACC": tl.float32, "TWICE": False}
    else:
        inputs = {"a": PointerType("fp8e4nv"), "of_a": PointerType("u8"), "b": PointerType("fp8e4nv")}
        inputs |= {"of_b": PointerType("u8"), "out": PointerType("fp32"), "M": 128, "N": 64, "K": 256}
        inputs |= {"BM": 128, "BN": 64, "BK": 128, "A": "e4m3", "B": "e4m3", "BLOCK": 32}
    function = getattr(kernels, name)
    spec = specialise(
        FunctionRef.of(function), inputs, Parameters.of(function), target=TARGET, enable_fp_fusion=True, num_warps=4,
        options=(("num_stages", 3),),
    )  # fmt: skip
    found = compile_kernel(spec)
    assert isinstance(found, Compilation), found
    return found


def run(name: str, change: Callable[[str], str]) -> tuple[np.ndarray, np.ndarray]:
    known = compiled(name)
    if name == "matmul":
        x, y = operands(np.float16, k=128)
        out, expected, sizes = np.zeros((M, N), np.float32), reference(x, y, F16), [M, N, 128]
        inputs = [x, y]
    else:
        inputs, expected = scaled_operands("e4m3", "e4m3", 32)
        out, sizes = np.zeros((128, 64), np.float32), [128, 64, 256]
    buffers = [Buffer(v.view(f"u{v.itemsize}"), f"operand {i}") for i, v in enumerate([*inputs, out])]
    run_kernel(load_kernel(change(known.ptx)), [*buffers, *sizes], (1, 1), num_threads=128, shared_bytes=known.shared)
    return codes(out).numpy(), expected


def replaced(pattern: str, by: str) -> Callable[[str], str]:
    def changed(text: str) -> str:
        found, count = re.subn(pattern, by, text)
        assert count >= 1
        return found

    return changed


WAIT = r"mbarrier\.try_wait\S+ complete, \[%r\d+\], %r\d+;\s+@!complete bra.uni waitLoop;"


def without_barriers(text: str) -> str:
    """Remove the barriers after the copies of the first step."""
    head, middle, tail = text.partition("cp.async.wait_group")
    return head + middle + re.sub(r"bar\.sync\s+0;", "", tail)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["matmul", "scaled"])
def test_the_ptx_of_triton_gives_the_right_bits(name: str) -> None:
    got, wanted = run(name, lambda text: text)
    np.testing.assert_array_equal(got, wanted)


def committed(code: str) -> Callable[[str], str]:
    """Insert code before each commit; the commit then has no state space, and `there` as its address."""
    pattern = r"(@%p\d+ tcgen05\.commit\S+one)\.shared::cluster(\.b64) \[(%r\d+)\];"
    return replaced(pattern, rf"{{{{.reg .b64 there; {code} \1\2 [there];}}}}")


HAS_STATE_SPACES = since(3, 9, "its commits have no state space that could be removed")


@HAS_STATE_SPACES
@pytest.mark.parametrize("code", ["cvt.u64.u32 there, \\3;", "cvt.u64.u32 there, \\3; cvta.shared.u64 there, there;"])
def test_a_commit_without_a_state_space_accepts_an_address_or_an_offset(code: str) -> None:
    """Triton 3.6 writes the offset, the ISA demands the address, and ptxas's code uses the low word of either."""
    got, wanted = run("matmul", committed(code))
    np.testing.assert_array_equal(got, wanted)


@HAS_STATE_SPACES
def test_a_commit_to_global_memory_is_reported() -> None:
    """The low word of its address is an mbarrier's offset."""
    code = "cvt.u64.u32 there, \\3; add.u64 there, there, 0x700000000;"
    with pytest.raises(MemoryFault, match="out of bounds: address 0x7"):
        run("matmul", committed(code))


@pytest.mark.parametrize(
    ("name", "change", "kind", "words"),
    [
        ("matmul", replaced(r"@%p\d+ tcgen05\.commit[^;]*;", ""), ExecutionError, "deadlock: .* lacks 1 of 1 arrivals"),
        ("matmul", replaced(WAIT, ""), MemoryFault, r"tcgen05.mma\S* in line \d+ still reads: a wait for the mbarrier"),
        ("scaled", replaced(WAIT, ""), ExecutionError, "invalidates the mbarrier to which the tcgen05.commit in"),
        (
            "matmul", replaced(r"(try_wait\S+ complete, \[%r\d+\], )%r\d+", r"\g<1>1"), (MemoryFault, ExecutionError),
            "deadlock|still reads|still writes",
        ),
        ("matmul", replaced(r"tcgen05\.wait::ld\S+;", ""), ExecutionError, "reads .*tcgen05.wait::ld must come first"),
        ("matmul", replaced(r"tcgen05\.wait::st\S+;", ""), MemoryFault, ": tcgen05.wait::st must come first"),
        ("matmul", without_barriers, MemoryFault, "race: "),
        ("matmul", replaced(r"@%p\d+ tcgen05\.dealloc[^;]*;", ""), ExecutionError, "no tcgen05.dealloc has freed"),
        ("scaled", replaced(r"@%p\d+ tcgen05\.st\S+b\.x4[^;]*;", ""), MemoryFault, "scale of a .* never written"),
    ],
    ids=["commit", "wait", "wait of scales", "phase", "wait ld", "wait st", "barrier", "dealloc", "scales"],
)  # fmt: skip
def test_mistakes_are_reported(name: str, change: Any, kind: type[PtxError], words: str) -> None:
    """The error has the line of the Triton kernel."""
    with pytest.raises(kind, match=words) as caught:
        run(name, change)
    assert re.search(r"(tensor_memory_kernels|core|semantic)\.py:\d+", str(caught.value))


def with_another_id(text: str) -> str:
    """Change the scale factor id (bits 29 and 30) of the second step along k to that of the first step."""
    numbers = {int(n) for n in re.findall(r"mov\.b32\s+%r\d+, (\d{9,10});", text)}
    second = next(n for n in numbers if n >> 29 & 3 == 1 and n >> 4 & 3 == 1)
    return replaced(rf"(mov\.b32\s+%r\d+, ){second};", rf"\g<1>{second ^ 1 << 29};")(text)


def with_another_swizzle(text: str) -> str:
    """Change the swizzle from 64 to 32 bytes, in the upper halves of the descriptors."""
    words = 0x80004020 - (1 << 32)
    return replaced(rf"(mov\.b32\s+%r\d+, ){words};", rf"\g<1>{words | 0x40000000};")(text)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("scaled", with_another_id),
        pytest.param("matmul", with_another_swizzle, marks=since(3, 9, "its PTX makes the descriptor in another way")),
    ],
)
def test_wrong_operands_give_other_bits(name: str, change: Callable[[str], str]) -> None:
    got, wanted = run(name, change)
    assert (got != wanted).any()
