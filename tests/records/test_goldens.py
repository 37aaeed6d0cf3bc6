"""Bit goldens name the block that changed, and the input where a single one did."""

import numpy as np
import pytest

from harness.records import Block
from harness.records.goldens import changed, locate, sums
from harness.records.provenance import DIGEST_BLOCK, block_digests


def block(outputs, first=0):
    count = max(len(o) for o in outputs.values())
    return Block(first, count, "digest", sums(outputs))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16", "float32", "int64", "float64"])
@pytest.mark.parametrize("place", [0, 1, 777, 4095])
def test_a_single_changed_output_is_found(dtype, place):
    rng = np.random.default_rng(place)
    before = rng.integers(0, 255, 4096 * np.dtype(dtype).itemsize, dtype=np.uint8).view(dtype)
    after = before.copy()
    after.view(np.uint8).reshape(4096, -1)[place, 0] ^= 1
    assert locate(block({"y": before}, 1000), block({"y": after}, 1000)) == 1000 + place


def test_one_input_that_changed_in_two_outputs_is_one():
    before = {"c": np.arange(512, dtype=np.uint16), "d": np.arange(512, dtype=np.uint16)}
    after = {name: o.copy() for name, o in before.items()}
    after["c"][33] += 1
    after["d"][33] += 1
    assert locate(block(before), block(after)) == 33


def test_several_changed_inputs_are_not_mistaken_for_one():
    rng = np.random.default_rng(1)
    before = rng.integers(0, 1 << 32, 4096, dtype=np.uint32)
    wrong = 0
    for _ in range(300):
        after = before.copy()
        places = rng.choice(4096, rng.integers(2, 9), replace=False)
        after[places] ^= rng.integers(1, 1 << 20, len(places), dtype=np.uint32)
        wrong += locate(block({"y": before}), block({"y": after})) is not None
    assert wrong == 0


def test_equal_blocks_have_no_place():
    same = block({"y": np.arange(10, dtype=np.uint32)})
    assert locate(same, same) is None
    assert changed([same], [same]) == []
    assert sums({}) == ()


def test_a_change_names_its_block_and_its_input():
    before = np.arange(3 * DIGEST_BLOCK, dtype=np.uint32)
    after = before.copy()
    after[2 * DIGEST_BLOCK + 5] = 7
    ((found, place),) = changed(block_digests({"y": before}), block_digests({"y": after}))
    assert found.first == 2 * DIGEST_BLOCK
    assert place == 2 * DIGEST_BLOCK + 5


def test_blocks_without_sums_still_name_the_block():
    a, b = Block(0, 5, "x"), Block(0, 5, "y")
    assert changed([a], [b]) == [(b, None)]
    assert changed([a], []) == [(a, None)]
