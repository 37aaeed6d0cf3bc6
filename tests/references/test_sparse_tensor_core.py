"""The storage of sparse matrices, on examples computed by hand, and their products compared with dense ones."""

from __future__ import annotations

import pytest
import torch

from ptxdiff.references import sparse_tensor_core as sparse
from ptxdiff.references import tensor_core
from ptxdiff.references.formats import F16, F32, I8, I32


def test_indices_of_chunks() -> None:
    kept = torch.tensor([[1, 0, 0, 1, 0, 1, 1, 0]]) > 0
    assert sparse.indices(kept, 16).tolist() == [[0b1100, 0b1001]]
    assert sparse.indices(torch.tensor([[0, 1, 1, 0]]) > 0, 32).tolist() == [[0b1110, 0b0100]]
    assert sparse.indices(torch.tensor([[1, 1, 0, 0, 0, 0, 1, 1]]) > 0, 4).tolist() == [[0b1100]]


def test_masks_of_another_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="2 of every 4"):
        sparse.indices(torch.tensor([[1, 1, 1, 0]]) > 0, 16)
    with pytest.raises(ValueError, match="in pairs"):
        sparse.indices(torch.tensor([[1, 0, 1, 0, 1, 1, 0, 0]]) > 0, 4)


def test_places_of_metadata() -> None:
    """Chunks are numbered by row and column: 16-bit elements have two rows in a word, narrower elements one row."""
    codes = torch.zeros(16, 8, dtype=torch.int64)
    codes[2, 5], codes[10, 0] = 0xE, 0x4
    words = sparse.metadata(codes, 16, 32, 1)
    assert {lane: int(w) for lane, w in enumerate(words) if w} == {10: 0x4 << 16, 11: 0xE << 4}
    words = sparse.metadata(codes, 8, 32, 0)
    assert {lane: int(w) for lane, w in enumerate(words) if w} == {8: 0xE << 20, 9: 0x4}


def test_products_of_small_numbers_are_those_of_the_dense_matrix() -> None:
    """For products without rounding, elements that are not stored count as zero."""
    kept = torch.tensor([[1, 0, 0, 1] * 4] * 16) > 0
    numbers = torch.arange(256).reshape(16, 16) % 7 - 3
    a = numbers.to(torch.float16).view(torch.int16).to(torch.int64) & 0xFFFF
    b = (torch.arange(128).reshape(16, 8) % 5 - 2).to(torch.float16)
    codes = b.view(torch.int16).to(torch.int64) & 0xFFFF

    def product(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return tensor_core.dot(x, y, z, a_format=F16, b_format=F16, c_format=F32, generation=tensor_core.AMPERE)

    found = sparse.dot(a, kept, codes, torch.zeros(16, 8, dtype=torch.int64), product)
    expected = (numbers * kept).to(torch.float32) @ b.to(torch.float32)
    assert torch.equal(found, expected.view(torch.int32).to(torch.int64) & 0xFFFFFFFF)
    integers = sparse.dot(
        numbers & 0xFF, kept, b.to(torch.int64) & 0xFF, torch.zeros(16, 8, dtype=torch.int64),
        lambda x, y, z: tensor_core.dot_integer(x, y, z, a_format=I8, b_format=I8, to=I32),
    )  # fmt: skip
    assert torch.equal(integers, expected.to(torch.int64) & 0xFFFFFFFF)
