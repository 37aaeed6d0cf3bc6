"""Triton's tutorials, unchanged, in the emulator, for everyone who has Triton's source.

    PTXDIFF_TUTORIALS=~/triton/python/tutorials pytest tests/scripts/test_tutorials.py -m slow

A tutorial belongs to its release of Triton: use the files of the installed version. Each is imported, and its own host
functions launch its own kernels, on small sizes. Products of plain formats are compared bit by bit with the reference
of tensor cores, and block-scaled ones on sm_100a too; attention is compared with float64 within the tutorial's bounds.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed; it compiles the tutorials' kernels")

from ptxdiff import emulating
from ptxdiff.launcher import LaunchError
from ptxdiff.references import scaled_matrices, tensor_core
from ptxdiff.references.formats import E2M1, E4M3, E5M2, F16, F32, UE8M0, Format

FOLDER = os.environ.get("PTXDIFF_TUTORIALS", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER, reason="PTXDIFF_TUTORIALS names no folder with Triton's python/tutorials"),
]
GENERATIONS = {
    "sm_80": tensor_core.AMPERE, "sm_90a": tensor_core.HOPPER_WGMMA, "sm_100a": tensor_core.BLACKWELL,
}  # fmt: skip
FORMATS: dict[torch.dtype, Format] = {
    torch.float16: F16, torch.float8_e5m2: E5M2, torch.float8_e4m3fn: E4M3,
}  # fmt: skip


@pytest.fixture(params=list(GENERATIONS))
def target(request: pytest.FixtureRequest) -> Iterator[str]:
    with emulating(request.param, limit=None):
        yield request.param


def tutorial(name: str) -> ModuleType:
    """The file, imported anew, because what it reads of the GPU when imported differs between targets."""
    path = Path(FOLDER) / f"{name}.py"
    if not path.is_file():
        pytest.skip(f"{path} does not exist; PTXDIFF_TUTORIALS is the folder python/tutorials of Triton's source")
    found = importlib.util.spec_from_file_location(f"tutorial_{name[:2]}", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    try:
        found.loader.exec_module(module)
    finally:
        del sys.modules[found.name]
    return module


def cancels(module: ModuleType) -> bool:
    """Whether the tutorial has products that cancel launches (clusterlaunchcontrol), on this target."""
    return getattr(module, "HAS_TMA_CLC", False)


def codes(tensor: torch.Tensor) -> torch.Tensor:
    size = tensor.element_size()
    view = {1: torch.int8, 2: torch.int16, 4: torch.int32}[size]
    return tensor.contiguous().view(view).to(torch.int64) & ((1 << 8 * size) - 1)


def product(
    a: torch.Tensor, b: torch.Tensor, target: str, to: torch.dtype, then: Callable[[Any], Any] = lambda x: x
) -> torch.Tensor:
    """Codes of `then(a @ b)`, summed in float32 as tensor cores do, and rounded to `to`."""
    fmt = FORMATS[a.dtype]
    if target == "sm_80" and fmt is not F16:  # without 8-bit floats Triton converts them to float16, exactly
        a, b, fmt = a.to(torch.float16), b.to(torch.float16), F16
    zero = torch.zeros((len(a), b.shape[1]), dtype=torch.int64)
    known = {"a_format": fmt, "b_format": fmt, "c_format": F32, "d_format": F32}
    summed = tensor_core.dot(codes(a), codes(b), zero, **known, generation=GENERATIONS[target])
    return codes(then(summed.to(torch.int32).view(torch.float32)).to(to))


def operands(m: int, n: int, k: int, kind: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Magnitudes spread over some binades, so that truncation is visible."""
    torch.manual_seed(3)
    a, b = (torch.randn(s) * torch.exp2(torch.randint(-4, 4, s).float()) for s in ((m, k), (k, n)))
    return a.to(kind), b.to(kind)


def test_matrix_multiplication(target: str) -> None:
    module = tutorial("03-matrix-multiplication")  # importing it multiplies matrices of 512 x 512
    for kind in (torch.float16, torch.float8_e5m2):
        a, b = operands(96, 160, 112, kind)
        assert torch.equal(codes(module.matmul(a, b)), product(a, b, target, torch.float16))
        expected = product(a, b, target, torch.float16, lambda x: torch.where(x >= 0, x, torch.tensor(0.01) * x))
        assert torch.equal(codes(module.matmul(a, b, activation="leaky_relu")), expected)


@pytest.mark.parametrize("kind", [torch.float16, torch.float8_e4m3fn], ids=["f16", "e4m3"])
def test_persistent_products(target: str, kind: torch.dtype) -> None:
    if target == "sm_80" and kind is not torch.float16:
        pytest.skip("Triton has no e4m3 on sm_80")
    torch.cuda.get_device_properties().multi_processor_count = 2  # several tiles for each block
    module = tutorial("09-persistent-matmul")
    a, b = operands(256, 384, 192, kind)
    transposed = b.T.contiguous()
    found = {"plain": module.matmul(a, transposed.T), "persistent": module.matmul_persistent(a, transposed.T)}
    for specialised in (False, True) if module.HAS_WARP_SPECIALIZE else (False,):
        # Like the tutorial: descriptors from sm_90 on; on Hopper specialised warps only with those of the device.
        if module.HAS_TENSOR_DESC:
            found[f"device {specialised}"] = module.matmul_descriptor_persistent(a, transposed, specialised)
        if module.HAS_HOST_TENSOR_DESC and not (specialised and module.is_hopper()):
            found[f"tma {specialised}"] = module.matmul_tma(a, transposed, specialised)
            found[f"tma persistent {specialised}"] = module.matmul_tma_persistent(a, transposed, specialised)
        if cancels(module):
            found[f"tma clc {specialised}"] = module.matmul_tma_clc(a, transposed, specialised)
    expected = product(a, b, target, kind)
    assert len(found) == {"sm_80": 2, "sm_90a": 6, "sm_100a": 10 if cancels(module) else 8}[target]
    assert [name for name, got in found.items() if not torch.equal(codes(got), expected)] == []


def test_persistent_products_by_the_tutorials_own_check(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Products of 32, the first of the tutorial's own check: the boxes are larger than the matrices."""
    module = tutorial("09-persistent-matmul")
    module.validate(32, 32, 32, torch.float16)
    said = capsys.readouterr().out
    assert "❌" not in said
    assert said.count("✅") == {"sm_80": 2, "sm_90a": 6, "sm_100a": 10 if cancels(module) else 8}[target]


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_attention(target: str, causal: bool) -> None:
    """Forward and backward in float16, forward in e5m2: by the tutorial's own test, and compared with float64."""
    module = tutorial("06-fused-attention")
    # Triton does not compile the causal kernel with specialised warps for Hopper, and the tutorial omits it, too.
    specialised = {"sm_80": [False], "sm_90a": [False] if causal else [False, True], "sm_100a": [False, True]}[target]
    for warps in specialised:
        module.test_op(1, 2, 128, 64, causal, warps, "bwd", "triton-fp16")
        module.test_op(1, 2, 128, 64, causal, warps, "fwd", "triton-fp8")
        q, k, v = (torch.randn((1, 2, 256, 64), dtype=torch.float16) for _ in range(3))
        got = module.attention(q, k, v, causal, 0.3, warps)
        scores = q.double() @ k.double().transpose(2, 3) * 0.3
        if causal:
            scores = scores.masked_fill(torch.ones(256, 256).tril() == 0, -torch.inf)
        assert (got - scores.softmax(-1) @ v.double()).abs().max() < 4e-3, "probabilities and outputs have 11 bits"


def test_grouped_products(target: str) -> None:
    """Importing the file checks products of 1024, 512, 256 and 128; this test checks others, bit by bit."""
    module = tutorial("08-grouped-gemm")
    groups = [operands(m, n, k, torch.float16) for m, n, k in ((256, 128, 64), (128, 384, 192), (128, 128, 128))]
    expected = [product(a, b, target, torch.float16) for a, b in groups]
    plain = module.group_gemm_fn([a for a, _ in groups], [b for _, b in groups])
    assert all(torch.equal(codes(got), wanted) for got, wanted in zip(plain, expected, strict=True))
    if module.supports_tma():
        by_boxes = module.group_gemm_tma_fn([a for a, _ in groups], [b.T.contiguous() for _, b in groups])
        assert all(torch.equal(codes(got), wanted) for got, wanted in zip(by_boxes, expected, strict=True))


@pytest.mark.parametrize("kind", ["mxfp8", "nvfp4"])
def test_block_scaled_products(target: str, kind: str) -> None:
    module = tutorial("10-block-scaled-matmul")
    torch.manual_seed(5)
    m, n, k = 256, 512, 512
    made = module.initialize_block_scaled(m, n, k, kind, compute_reference=True)
    described, blocks, options, reference, a, b = made[:4], made[4:7], made[7], made[8], made[9], made[10]
    options["num_stages"] = 4 if target == "sm_100a" else 2  # four stages need more shared memory than Hopper has

    def multiplied() -> torch.Tensor:
        return module.block_scaled_matmul(*described, torch.float32, m, n, k, *blocks, options)

    if target == "sm_80":
        with pytest.raises(LaunchError, match="fp8e4nv not supported in this architecture"):
            multiplied()
        return
    if target == "sm_100a" and hasattr(module, "validate_block_scaled"):
        module.validate_block_scaled(m, n, k, kind)
    got = multiplied()
    torch.testing.assert_close(got, reference, atol=1e-3, rtol=1e-3)
    if target == "sm_100a":
        four = kind == "nvfp4"
        scales = [scale_codes(described[at].base, rows) for at, rows in ((1, m), (3, n))]
        x, y = (four_bits(v) if four else codes(v) for v in (a, b))
        expected = scaled_matrices.dot(
            x, y.T, *scales, torch.zeros((m, n), dtype=torch.int64), a_format=E2M1 if four else E4M3,
            b_format=E2M1 if four else E4M3, scale_format=E4M3 if four else UE8M0, block=16 if four else 32,
            kind=scaled_matrices.FOUR if four else scaled_matrices.MX8,
        )  # fmt: skip
        assert torch.equal(codes(got), expected)


def scale_codes(packed: torch.Tensor, rows: int) -> torch.Tensor:
    """Codes of scales, rows x blocks along k, from the tutorial's storage order."""
    stored = codes(packed).reshape(rows // 128, -1, 32, 4, 4)
    return stored.permute(0, 3, 2, 1, 4).reshape(rows, -1)


def four_bits(packed: torch.Tensor) -> torch.Tensor:
    """Codes of e2m1, two to a byte, the first in the low half."""
    found = codes(packed)
    return torch.stack([found & 15, found >> 4], dim=-1).reshape(len(found), -1)
