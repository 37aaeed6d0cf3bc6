"""Gluon's products by pairs of blocks, with its own tensor descriptors: the reference's bits, and reported mistakes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton.experimental.gluon", reason="this Triton has no Gluon")

from ptxdiff import emulated
from ptxdiff.emulator.errors import ExecutionError, MemoryFault, PtxError
from ptxdiff.references import tensor_core
from ptxdiff.references.formats import E5M2, F16, F32, Format
from tests.support.tritons import since

pytestmark = since(3, 9, "Gluon's copies of boxes have other names")


def codes(tensor: torch.Tensor) -> torch.Tensor:
    view = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()]
    return tensor.view(view).to(torch.int64) & ((1 << 8 * tensor.element_size()) - 1)


def ran(
    m: int, blocks: int, kind: torch.dtype, fmt: Format, n: int = 64, commits: bool = True, waits: bool = True,
    ends: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Codes of the product in float32, and those of the reference. With four blocks b's boxes go to both pairs."""
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    from tests.support.emulator import gluon_pair_kernels as kernels

    torch.manual_seed(1)
    steps, k = 2, 64
    a, b = (torch.randn(shape).to(kind) for shape in ((m, steps * k), (steps * k, n)))
    c = torch.zeros((m, n))
    rows = [(1 << i, 0) for i in range(blocks.bit_length() - 1)]
    columns = [(0, 1), *[(0, 0)] * (len(rows) - 1)]
    element = {torch.float16: gl.float16, torch.float8_e5m2: gl.float8e5}[kind]
    made = []
    for tensor, block, of, bases in (
        (a, [m, k], element, rows),
        (b, [k, n], element, columns),
        (c, [m, n], gl.float32, rows),
    ):
        layout = gl.NVMMASharedLayout.get_default_for(block, of, cga_layout=bases)
        made.append(TensorDescriptor.from_tensor(tensor, block, layout))
    options: dict[str, Any] = {"num_warps": 4, "num_ctas": blocks}
    emulated(kernels.tiles, "sm_100a")[(1,)](*made, steps, blocks > 2, commits and blocks > 2, waits, ends, **options)
    known = {"a_format": fmt, "b_format": fmt, "c_format": F32, "d_format": F32}
    zero = torch.zeros((m, n), dtype=torch.int64)
    return codes(c), tensor_core.dot(codes(a), codes(b), zero, **known, generation=tensor_core.BLACKWELL)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("m", "blocks", "kind", "fmt"),
    [
        (256, 2, torch.float16, F16),
        (128, 2, torch.float16, F16),
        pytest.param(256, 2, torch.float8_e5m2, E5M2, marks=pytest.mark.slow),
        (512, 4, torch.float16, F16),
    ],
)
def test_products(m: int, blocks: int, kind: torch.dtype, fmt: Format) -> None:
    """With four blocks each box of b goes to two pairs; the next one is copied when both have ended their products."""
    got, wanted = ran(m, blocks, kind, fmt)
    assert torch.equal(got, wanted)


@pytest.mark.parametrize(
    ("blocks", "without", "kind", "words"),
    [
        (2, {"waits": False}, PtxError, "still (reads|writes)|race: "),
        (4, {"waits": False}, PtxError, "still (reads|writes)|race: "),
        (4, {"commits": False}, MemoryFault, "race: .* copies to shared memory|still reads"),
        (2, {"ends": False}, ExecutionError, r"still reads: cp.async.bulk.wait_group \d \(or less\) must come first"),
    ],
)
def test_missing_waits_and_commits_are_reported(blocks: int, without: Any, kind: type[PtxError], words: str) -> None:
    with pytest.raises(kind, match=rf"(?s)({words}).*gluon_pair_kernels\.py:\d+"):
        ran(128 * blocks, blocks, torch.float16, F16, **without)
