"""Block-scaled tcgen05.mma on pairs of blocks: the places of scales with 256 and 128 rows, and planted mistakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ptxdiff.emulator.errors import ExecutionError, MemoryFault
from ptxdiff.emulator.kernel.tcgen05 import operands
from ptxdiff.references import tensor_memory_pairs as pairs
from tests.support.emulator.pair_products import COMMIT, accumulator, ran
from tests.support.emulator.tensor_products import SCALE_A, SCALE_B, Product, drawn, put, scaled_reference, scales

SCALED = [
    Product("mxf8f6f4", "e4m3", "e5m2", scale="ue8m0", m=256, n=16, parts=(1, 2)),
    Product("mxf4nvf4", "e2m1", "e2m1", scale="ue4m3", size="block16", m=256, n=16),
    Product("mxf8f6f4", "e4m3", "e5m2", scale="ue8m0", m=128, n=16, parts=(2, 1)),
    Product("mxf8f6f4", "e2m1", "e3m2", scale="ue8m0", m=128, n=32, negate=(True, False), swizzle=(2, 6)),
    Product("mxf4", "e2m1", "e2m1", scale="ue8m0", m=128, n=32, parts=(2, 0)),
    Product("mxf4nvf4", "e2m1", "e2m1", scale="ue4m3", size="block16", m=128, n=32),
]


def with_scales(product: Product, cells: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Put the scales into the tensor memory of both blocks."""
    places = [
        (SCALE_A, x, product.parts[0], lambda row: pairs.places_of_scale_a(product.m, row)),
        (SCALE_B, y, product.parts[1], lambda column: pairs.places_of_scale_b(product.m, product.n, column)),
    ]
    for first, codes, part, places_of in places:
        for number, scales_of in enumerate(codes):
            for block, lane, column in places_of(number):
                octets = cells[block, lane, first + column : first + column + 1].view(np.uint8)
                octets[part : part + len(scales_of)] = scales_of
    return cells


@pytest.mark.sample(2)
@pytest.mark.parametrize("product", SCALED, ids=lambda p: f"{p.kind}-{p.a}-{p.m}-{p.n}")
def test_scaled_products(product: Product) -> None:
    """Each block has the scales of its own rows of a, and of all columns of b."""
    a, b = drawn(product, 11)
    x, y = scales(product, 12)
    c, cells = accumulator(product, 13, 32)
    got = ran(product, a, b, with_scales(product, cells, x, y))
    np.testing.assert_array_equal(got, scaled_reference(product, a, b, x, y, c))


@pytest.mark.parametrize("n", [64, 128, 256])
def test_the_places_of_scales_follow_the_strides_of_cutlass(n: int) -> None:
    """tmem_sf_frg, "SFB, 2x2 datapath": ((32, n/64), 2, 2) has the strides ((1, 512), 64, 32), in lanes, then bytes."""
    near, far, half, copy = np.meshgrid(*map(np.arange, (32, n // 64, 2, 2)), indexing="ij")
    column = near + 32 * far + n // 2 * half
    at = near + 512 * far + 64 * half + 32 * copy
    lanes, columns = operands.scale_cells(n, True)
    np.testing.assert_array_equal(lanes[copy, column], at % 128)
    np.testing.assert_array_equal(columns[copy, column], at // 128 // 4)
    reference = {place[1:] for place in pairs.places_of_scale_b(128, n, n - 1) if place[0] == 0}
    assert reference == set(zip(lanes[:, -1].tolist(), columns[:, -1].tolist(), strict=True))


@pytest.mark.parametrize(
    ("lane", "words"),
    [
        (1, "scale of b of row 1 differs between .*lane 33: both quarters of a half of the lanes have the same"),
        (65, "scale of b of row 17 differs between .*lane 97: both quarters of a half"),
        (96, "scale of b of row 16 differs between .* both quarters of a half"),
    ],
)
def test_scales_of_b_that_differ_within_a_half_are_reported(lane: int, words: str) -> None:
    product = SCALED[3]
    a, b = drawn(product, 11)
    x, y = scales(product, 12)
    cells = with_scales(product, accumulator(product, 13, 32)[1], x, y)
    cells[0, lane, SCALE_B] ^= 1
    with pytest.raises(ExecutionError, match=words):
        ran(product, a, b, cells)


def test_scales_of_all_columns_in_each_quarter_give_other_bits() -> None:
    """These places are right with 256 rows; layout B of 128 rows needs the later columns' scales in lanes 64 to 127."""
    product = SCALED[3]
    a, b = drawn(product, 11)
    x, y = scales(product, 12)
    c, cells = accumulator(product, 13, 32)
    cells = with_scales(product, cells, x, y)
    for block in range(2):
        put(cells[block], SCALE_B, y, product.parts[1])
    right = scaled_reference(product, a, b, x, y, c)
    got = ran(product, a, b, cells)
    assert (got[:, :16] == right[:, :16]).all()
    assert (got[:, 16:] != right[:, 16:]).any()


# planted mistakes -------------------------------------------------------------------------------------------------


def of_128_rows(change: Callable[[str], str] = lambda text: text) -> tuple[np.ndarray, np.ndarray]:
    product = SCALED[3]
    a, b = drawn(product, 11)
    x, y = scales(product, 12)
    c, cells = accumulator(product, 13, 32)
    cells = with_scales(product, cells, x, y)
    return ran(product, a, b, cells, change=change), scaled_reference(product, a, b, x, y, c)


def replaced(old: str, new: str) -> Callable[[str], str]:
    def changed(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return changed


def descriptors(change: Callable[[int], int]) -> Callable[[str], str]:
    """A function that changes the descriptor of b in a kernel's text."""

    def changed(text: str) -> str:
        code = next(line for line in text.splitlines() if "mov.b64 %b, " in line).split()[-1].rstrip(";")
        return text.replace(f"mov.b64 %b, {code};", f"mov.b64 %b, {change(int(code))};")

    return changed


LOOP = "  @!%done bra wait;\n"
PHASE = "mbarrier.try_wait.parity.shared::cta.b64 %done, [smem+16], {};"
STILL = r"of tensor memory.*, which the tcgen05\.mma.* still writes: a wait for the mbarrier"


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (replaced(LOOP, ""), MemoryFault, STILL),
        (replaced(PHASE.format(0), PHASE.format(1)), MemoryFault, STILL),
        (replaced(COMMIT, ""), ExecutionError, "deadlock"),
        (replaced("tcgen05.wait::st.sync.aligned;", ""), MemoryFault, r"tcgen05\.wait::st must come first"),
        (descriptors(lambda code: code + (0x3000 << 32)), MemoryFault, "descriptor of b .* reaches offset .* outside"),
        (descriptors(lambda code: code ^ 1 << 46), ExecutionError, r"descriptor of b .*"),
        (descriptors(lambda code: code ^ 1 << 61), ExecutionError, r"descriptor of b .*"),
    ],
    ids=["wait", "phase", "commit", "wait of stores", "stride", "version", "swizzle"],
)
def test_mistakes_are_reported(change: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        of_128_rows(change)
    np.testing.assert_array_equal(*of_128_rows())


@pytest.mark.parametrize("change", [lambda code: code + (1 << 32), lambda code: code ^ 2 << 61, lambda code: code + 1])
def test_wrong_descriptors_within_memory_give_other_bits(change: Callable[[int], int]) -> None:
    """A stride or a start that is 16 bytes greater and another swizzle are legal; no tensor map contradicts them."""
    got, wanted = of_128_rows(descriptors(change))
    assert (got != wanted).any()
