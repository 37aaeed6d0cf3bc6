"""Three derivations of the places of sparse metadata, and the emulator's, agree for every shape and selector."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from ptxdiff.emulator.kernel.warp import sparse_mma as emulated
from ptxdiff.references import sparse_metadata
from ptxdiff.references import sparse_tensor_core as sparse

SHAPES = [(16, 16), (16, 32), (32, 8), (32, 16), (8, 32), (8, 64), (4, 64), (4, 128)]
_KINDS = {32: "tf32", 16: "f16", 8: "s8", 4: "s4"}

# CUTLASS's strides. First: what bit 0 and bit 1 of the thread in its group add to row + 16 * column (0: nothing,
# because the selector chooses the thread). Then the places of a word's bits: dense columns; and eight rows below, if
# there are two runs. From mma_traits_sm90_gmma_sparse.hpp (ELayout_64x64, 64x32, 64x16; these have 64 rows, so that a
# column adds 64) and sm120_sparse.hpp.
STRIDES = {
    (8, 64): ((8, 16 * 32), 32, 1),
    (16, 32): ((16 * 16, 0), 16, 2),
    (32, 16): ((16 * 8, 0), 8, 2),
    (4, 128): ((8, 16 * 64), 64, 1),
}


def codes_of(rows: int, bits: int, k: int, seed: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 16, (rows, k // sparse.CHUNK[bits])))


@pytest.mark.parametrize(("bits", "k"), SHAPES)
def test_all_derivations_agree(bits: int, k: int) -> None:
    for selector in range(sparse.selectors(bits, k)):
        codes = codes_of(16, bits, k, 3 + selector)
        by_figures = sparse.metadata(codes, bits, k, selector)
        by_registers = sparse_metadata.words(codes, bits, k, selector)
        assert torch.equal(by_figures, by_registers)
        place = emulated.storage(_KINDS[bits], k, selector)
        found = emulated.chunks_of(by_registers.numpy().astype(np.uint32)[None], place)
        np.testing.assert_array_equal(found[0], codes.numpy())


@pytest.mark.parametrize(("bits", "k"), STRIDES)
def test_strides_of_cutlass(bits: int, k: int) -> None:
    """The place of each four bits of each thread, from the strides."""
    (first, second), columns, runs = STRIDES[bits, k]
    codes = codes_of(16, bits, k, 9)
    words = sparse_metadata.words(codes, bits, k, 0)
    for group, low, high in itertools.product(range(8), range(2), range(2)):
        if high and not second:
            continue  # a thread of the other selector
        base = group + low * first + high * second
        for run in range(runs):
            for chunk in range(columns // sparse.CHUNK[bits]):
                row, column = base % 16 + 8 * run, base // 16 // sparse.CHUNK[bits] + chunk
                got = int(words[4 * group + low + 2 * high]) >> (16 * run + 4 * chunk) & 15
                assert got == int(codes[row, column])


def test_the_order_of_the_elements() -> None:
    """m16n8k64: the word of thread t is register t of T0 to T3. m16n8k32: registers 0 and 1, or 2 and 3."""
    assert sparse_metadata.group_bits(8, 64)[:9] == [(0, c) for c in range(8)] + [(8, 0)]
    assert sparse_metadata.group_bits(8, 64)[16] == (0, 8)
    assert sparse_metadata.group_bits(16, 32)[:9] == [(0, 0), (0, 1), (0, 2), (0, 3)] + [(8, c) for c in range(4)] + [
        (0, 4)
    ]


def test_warps_of_a_warpgroup_have_sixteen_rows_each() -> None:
    codes = torch.zeros(64, 8, dtype=torch.int64)
    codes[16 * 2 + 11, 5] = 0xE
    found = sparse_metadata.of_warpgroup(codes, 16, 32, 1)
    assert {lane: int(w) for lane, w in enumerate(found) if w} == {64 + 3 * 4 + 3: 0xE << 20}


@pytest.mark.parametrize(("bits", "k"), SHAPES)
def test_an_exchange_of_two_places_is_detected(bits: int, k: int) -> None:
    """A derivation with columns before rows, or the reverse, does not agree."""
    order = sparse_metadata.group_bits(bits, k)
    other = sorted(order, key=lambda place: place[::-1])
    assert other != order
    assert sorted(order) == sorted(itertools.product((0, 8), range(k // sparse.CHUNK[bits])))
