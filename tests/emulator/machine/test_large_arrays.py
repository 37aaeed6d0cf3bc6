"""Large arrays behave as numpy's, on pages of their own or not."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from ptxdiff.emulator.machine import large_arrays


@pytest.mark.parametrize("count", [0, 1, large_arrays.LEAST // 4 - 1, large_arrays.LEAST // 4 + 1])
def test_arrays_hold_their_value_and_can_be_written(count: int) -> None:
    made, other = large_arrays.zeros(count, np.int32), large_arrays.full(count, -1, np.int32)
    assert np.array_equal(made, np.zeros(count, np.int32))
    assert np.array_equal(other, np.full(count, -1, np.int32))
    made[:] = 7
    other[-1:] = 3
    assert np.array_equal(made, np.full(count, 7, np.int32))
    assert other[-1:].tolist() == [3] * min(count, 1)


def test_an_array_has_its_shape_and_contiguous_rows() -> None:
    made = large_arrays.zeros((large_arrays.LEAST, 3), np.uint8)
    assert made.shape == (large_arrays.LEAST, 3)
    assert made.dtype == np.uint8
    assert made.flags.c_contiguous
    assert made.flags.writeable


def test_an_array_keeps_its_pages_while_a_part_of_it_lives() -> None:
    part = large_arrays.full(large_arrays.LEAST, 5, np.uint8)[10:20]
    others = [large_arrays.full(large_arrays.LEAST, 6, np.uint8) for _ in range(3)]
    assert part.tolist() == [5] * 10
    assert all(other[15] == 6 for other in others)


def test_systems_without_such_pages_get_arrays_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(mmap, "MAP_ANONYMOUS")
    made = large_arrays.zeros(large_arrays.LEAST, np.uint8)
    assert made.base is None
    assert not made.any()
