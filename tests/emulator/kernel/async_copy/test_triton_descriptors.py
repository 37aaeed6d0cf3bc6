"""Tensor descriptors as Triton compiles them to bulk copies and mbarriers: right bits, and clear errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed; it compiles the kernels of these tests")

import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from ptxdiff import emulated
from ptxdiff.emulator.errors import ExecutionError, MemoryFault, PtxError
from ptxdiff.emulator.kernel.run import Buffer, load_kernel, run_kernel, scratch
from ptxdiff.references import tensor_core
from ptxdiff.references.formats import F16, F32
from ptxdiff.triton.compile import compile_kernel
from ptxdiff.triton.spec import Compilation, FunctionRef, Parameters, PointerType, specialise
from tests.support import descriptor_kernels
from tests.support.sampling import only
from tests.support.tritons import since

M, N, K = 136, 72, 144
META: dict[str, Any] = {"BM": 128, "BN": 64, "BK": 64, "ACC": tl.float32}


def operands(k: int = K) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(M, k, generator=generator).half(), torch.randn(k, N, generator=generator).half()


def expected(a: torch.Tensor, b: torch.Tensor) -> np.ndarray:
    codes = [x.view(torch.int16).long() & 0xFFFF for x in (a, b)]
    zero = torch.zeros(len(a), b.shape[1], dtype=torch.int64)
    known = {"a_format": F16, "b_format": F16, "c_format": F32, "d_format": F32}
    found = tensor_core.dot(*codes, zero, **known, generation=tensor_core.HOPPER_WGMMA)
    return found.numpy().astype(np.uint32).view(np.float32).astype(np.float16)


@pytest.mark.slow
@pytest.mark.parametrize("tasks", only([False, True], [True]), ids=["one task", "warps of several tasks"])
def test_descriptors_made_on_the_device(tasks: bool) -> None:
    """The sizes are no multiples of the boxes': elements beyond the tensor are read as zero, and not written."""
    a, b = operands()
    out = torch.zeros(M, N).half()
    run = emulated(descriptor_kernels.with_made_descriptors, "sm_90a")
    run[(2, 2)](a, b, out, M, N, K, **META, TASKS=tasks, num_stages=3)
    np.testing.assert_array_equal(out.numpy(), expected(a, b))


@pytest.mark.sample(2)
@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_descriptors_of_the_host(padding: str) -> None:
    a, b = operands()
    out = torch.zeros(M, N).half()
    x = TensorDescriptor.from_tensor(a, [128, 64], padding=padding)
    y, z = TensorDescriptor.from_tensor(b, [64, 64]), TensorDescriptor.from_tensor(out, [128, 64])
    run = emulated(descriptor_kernels.with_given_descriptors, "sm_90a")
    run[(2, 2)](x, y, z, K, **META, TO=tl.float16, num_stages=3)
    if padding == "zero":
        np.testing.assert_array_equal(out.numpy(), expected(a, b))
    else:  # K is no multiple of 64, so every sum has terms with NaN
        assert out.isnan().all()


@pytest.mark.slow
def test_attention() -> None:
    """Scores stay in registers, as the elements of a for the second product."""
    generator = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(1, 64, 64, generator=generator).half() for _ in range(3))
    out = torch.zeros(1, 64, 64)
    emulated(descriptor_kernels.attention, "sm_90a")[(1, 1)](q, k, v, out, 64, 0.18, BM=64, BN=64, D=64)
    scores = (q.double() @ k.double().transpose(1, 2)) * 0.18 * np.log(2)
    wanted = torch.softmax(scores, -1) @ v.double()
    assert (out.double() - wanted).abs().max() < 2e-3  # p is rounded to float16: 2^-11 of sums of |v| < 4


# mistakes planted in PTX of Triton -----------------------------------------------------------------------------


@cache
def compiled(tasks: bool) -> Compilation:
    function = descriptor_kernels.with_made_descriptors
    types = {name: PointerType("fp16") for name in ("x", "y", "out")} | {"M": M, "N": N, "K": K}
    spec = specialise(
        FunctionRef.of(function), types | META | {"TASKS": tasks}, Parameters.of(function), target="sm_90a",
        enable_fp_fusion=True, num_warps=4, options=(("num_stages", 3),),
    )  # fmt: skip
    found = compile_kernel(spec)
    assert isinstance(found, Compilation), found
    return found


def run(tasks: bool, change: Callable[[str], str] = lambda text: text) -> tuple[np.ndarray, np.ndarray]:
    k = 2 * K if tasks else K  # more steps than buffers, so that the loading warps wait for empty buffers
    a, b = operands(k)
    out = np.zeros((M, N), np.float16)
    known = compiled(tasks)
    buffers = [Buffer(x, n) for x, n in ((a.numpy(), "x"), (b.numpy(), "y"), (out, "out"))]
    text = change(known.ptx)
    run_kernel(
        load_kernel(text), [*buffers, M, N, k, *scratch(known.scratch, 4)], (2, 2),
        num_threads=32 * known.num_warps, shared_bytes=known.shared,
    )  # fmt: skip
    return out, expected(a, b)


def replaced(pattern: str, by: str, count: int = 0) -> Callable[[str], str]:
    def changed(text: str) -> str:
        found, made = re.subn(pattern, by, text, count=count)
        assert made >= 1
        return found

    return changed


ASKED = r"mbarrier\.try_wait\S+ complete, \[%r\d+\], "
TRY_WAIT = rf"waitLoop:\s*(?:\.loc[^\n]*\n\s*)?{ASKED}%r\d+;\s*@!complete bra\.uni waitLoop;"


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (replaced(TRY_WAIT, ""), MemoryFault, r"the bulk copy in line \d+ is under way .* wait for the mbarrier"),
        (
            replaced(rf"({ASKED})(%r\d+);", r"{.reg .b32 other; xor.b32 other, \2, 1; \1other;}"),
            MemoryFault,
            "is under way",
        ),
        (replaced(r"arrive\.expect_tx(\S+ _, \[%r\d+\]), \d+;", r"arrive.expect_tx\1, 32768;"), ExecutionError,
         r"deadlock: thread \d+ .* waits for the phase of parity 0 of the mbarrier .* lacks 8192 bytes of copies"),
        (replaced(r"@%p\d+ mbarrier\.arrive\.expect_tx[^;]*;", ""), ExecutionError, "lacks 1 of 1 arrivals"),
        (replaced(r"@%p\d+ mbarrier\.init[^;]*;", ""), ExecutionError, r"no mbarrier\.init has made an mbarrier"),
        (replaced(r"fence\.proxy\.async\S*;", ""), MemoryFault,
         r"copies (from|to) shared memory .* no fence\.proxy\.async"),
        pytest.param(
            replaced(r"cp\.async\.bulk\.wait_group \s*0;", ""), ExecutionError, r"ends, .*wait_group 0 .or less. must",
            marks=since(3, 9, "it waits only until a store has read"),
        ),
        (
            replaced(r"(tensormap\.replace\.tile\.swizzle_mode\S+ \[ %rd\d+ \+ 0 \], )0x3;", r"\g<1>0x2;", 1),
            ExecutionError,
            "a row of a box has 128 bytes, more than the 64 of its swizzle",
        ),
        (replaced(r"(tensormap\.replace\.tile\.global_dim\S+ \[ %rd\d+ \+ 0 \], 0x1, )%r\d+;", r"\g<1>4096;", 1),
         MemoryFault, "out of bounds: the tensor map of thread"),
    ],
    ids=["wait", "phase", "bytes", "arrival", "init", "proxy fence", "wait of a store", "swizzle of a map", "size"],
)  # fmt: skip
def test_mistakes_are_reported(change: Callable[[str], str], kind: type[PtxError], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        run(False, change)
    assert re.search(r"descriptor_kernels\.py:\d+", str(caught.value))


def test_a_descriptor_of_wgmma_with_another_swizzle_than_the_map_is_reported() -> None:
    """The map has a swizzle of 128 bytes, the descriptor one of 64, in its two highest bits."""

    def changed(text: str) -> str:
        return re.sub(r"\b46116\d{14}\b", lambda m: str(int(m[0]) ^ (3 << 62)), text)

    with pytest.raises(MemoryFault, match=r"with a swizzle of 64 bytes; a tensor map wrote it with a swizzle of 128"):
        run(False, changed)


@pytest.mark.slow
def test_the_ptx_of_triton_gives_the_right_bits() -> None:
    for tasks in (False, True):
        got, wanted = run(tasks)
        np.testing.assert_array_equal(got, wanted)


def test_a_producer_that_does_not_wait_for_empty_buffers_is_reported() -> None:
    """With warps of several tasks, the loading warps' waits before each mbarrier.arrive.expect_tx are removed."""

    def changed(text: str) -> str:
        found, count = re.subn(TRY_WAIT + r"(?=(?:(?!try_wait)[\s\S])*?arrive\.expect_tx)", "", text)
        assert count >= 1
        return found

    with pytest.raises(PtxError, match=r"race|under way|arrives|deadlock"):
        run(True, changed)


def test_a_missing_arrival_is_reported() -> None:
    change = replaced(r"@%p\d+ mbarrier\.arrive\.shared::cta\.b64 _, \[%r\d+\], 128;", "")
    with pytest.raises(ExecutionError, match=r"deadlock: .* lacks 128 of 128 arrivals"):
        run(True, change)
