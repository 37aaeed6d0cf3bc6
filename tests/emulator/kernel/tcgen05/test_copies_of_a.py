"""a in tensor memory, in several copies where d lies in parts of the lanes; masks that mask nothing; mistakes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ptxdiff.emulator.errors import ExecutionError, MemoryFault, OperandError
from ptxdiff.emulator.kernel.tcgen05 import operands
from ptxdiff.references import tensor_memory_pairs as pairs
from ptxdiff.references import tensor_memory_rows as rows
from tests.emulator.kernel.tcgen05 import test_products as dense
from tests.support.emulator import tensor_memory_text as tm
from tests.support.emulator.pair_products import accumulator, ran
from tests.support.emulator.tensor_products import Product, drawn, expected

FIRST = 32
"""The column at which a begins."""
PRODUCTS = [
    Product("f16", "f16", "f16", m=256, n=32, swizzle=(None, 0)),
    Product("f16", "f16", "f16", m=128, n=32, swizzle=(None, 0)),
    Product("f16", "bf16", "bf16", m=128, n=16, swizzle=(None, 2), negate=(True, False)),
    Product("tf32", "tf32", "tf32", m=128, n=32, swizzle=(None, 4)),
    Product("f8f6f4", "e4m3", "e5m2", m=128, n=32, swizzle=(None, 2)),
    Product("i8", "s8", "u8", d="s32", m=128, n=64, swizzle=(None, 0)),
]


def in_tensor_memory(product: Product, a: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes of d, and the tensor memory of both blocks with d and each copy of a."""
    c, cells = accumulator(product, seed, 64)
    bits = {"f16": 16, "tf32": 32}.get(product.kind, 8)
    for row, codes in enumerate(a):
        words = codes.astype(f"u{bits // 8}").view(np.uint32)
        for block, lane in pairs.places_of_row_of_a(product.m, product.n, row):
            cells[block, lane, FIRST : FIRST + len(words)] = words
    return c, cells


@pytest.mark.sample(2)
@pytest.mark.parametrize("product", PRODUCTS, ids=lambda p: f"{p.kind}-{p.a}-{p.m}-{p.n}")
def test_a_in_tensor_memory(product: Product) -> None:
    a, b = drawn(product, 5)
    c, cells = in_tensor_memory(product, a, 6)
    np.testing.assert_array_equal(ran(product, a, b, cells), expected(product, a, b, c))


@pytest.mark.parametrize("change", ["first half", "second half"])
def test_each_half_of_the_lanes_needs_its_rows(change: str) -> None:
    """What CUTLASS's M=128 kernels would do if they took 64 lanes for 64 rows."""
    product = PRODUCTS[1]
    a, b = drawn(product, 5)
    _, cells = in_tensor_memory(product, a, 6)
    cells[1, 64 * (change == "second half") + 3, FIRST + 2] ^= 1 << 17
    with pytest.raises(ExecutionError, match=r"row 3 of a of .* differs between lane 3, .* and lane 67: each 64 lanes"):
        ran(product, a, b, cells)


def test_rows_of_the_second_half_that_nobody_wrote() -> None:
    product = PRODUCTS[1]
    a, b = drawn(product, 5)
    _, cells = in_tensor_memory(product, a, 6)

    def change(text: str) -> str:
        """Only warps 0 and 1 store."""
        stored = next(line for line in text.splitlines() if "tcgen05.st.sync" in line)
        return text.replace(stored, f"  setp.lt.u32 %p5, %warp, 2;\n  @%p5 {stored.strip()}")

    with pytest.raises(MemoryFault, match=r"takes a from lane 64, column .* was never written"):
        ran(product, a, b, cells, change=change, enable=0)


def test_both_copies_are_locked_until_the_commit() -> None:
    product = PRODUCTS[1]
    a, b = drawn(product, 5)
    _, cells = in_tensor_memory(product, a, 6)

    def change(text: str) -> str:
        behind = text.index("\n", text.index("tcgen05.mma.cta_group"))
        store = (
            f"\n  add.s32 %r290, %own, {FIRST};\n  setp.ge.u32 %p5, %warp, 2;\n  @%p5 tcgen05.st.sync.aligned.32x32b"
        )
        return f"{text[:behind]}{store}.x1.b32 [%r290], {{%r10}};\n{text[behind:]}"

    with pytest.raises(MemoryFault, match=r"stores to lane 64, .* which the tcgen05\.mma.* still reads"):
        ran(product, a, b, cells, change=change)


def test_the_layout_of_64_rows_without_a_pair_gives_other_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layout F taken for a's, a mistake planted in the emulator: 16 rows in each quarter of the lanes."""
    product = PRODUCTS[1]
    a, b = drawn(product, 5)
    c, cells = in_tensor_memory(product, a, 6)
    right = operands.cells_of_a
    monkeypatch.setattr(operands, "cells_of_a", lambda *x: right(*x[:5], 1, x[6]))
    monkeypatch.setattr(operands, "refuse_torn_rows", lambda *x: None)
    assert (ran(product, a, b, cells) != expected(product, a, b, c)).any()


# weight stationary ------------------------------------------------------------------------------------------------

WEIGHTS = [Product("f16", "f16", "f16", m=m, n=64, ws=True, swizzle=(None, 2)) for m in (32, 64, 128)] + [
    Product("tf32", "tf32", "tf32", m=64, n=64, ws=True, swizzle=(None, 4)),
    Product("i8", "s8", "u8", d="s32", m=32, n=128, ws=True, swizzle=(None, 0)),
]


def of_weights(product: Product) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """a, b, the codes of d, and tensor memory with d and each copy of a."""
    a, b = drawn(product, 7)
    c, cells = dense.accumulator(product, 8, 64)
    bits = {"f16": 16, "tf32": 32}.get(product.kind, 8)
    cells = np.concatenate([cells, np.zeros((128, 64), np.uint32)], axis=1)
    for row, codes in enumerate(a):
        words = codes.astype(f"u{bits // 8}").view(np.uint32)
        for lane in rows.lanes_of_row_of_a(product.m, product.n, row):
            cells[lane, 64 : 64 + len(words)] = words
    return a, b, c, cells


def stationary(product: Product, a: np.ndarray, b: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Like `dense.ran`, with a from column 64 on."""
    with pytest.MonkeyPatch.context() as patch:
        whole = tm.text
        patch.setattr(tm, "text", lambda body, words, columns: whole(body, words, 128))
        return dense.ran(product, a, b, cells, enable=1, operands="[%base+64], %b, %x, %p0")


@pytest.mark.parametrize("product", WEIGHTS, ids=lambda p: f"{p.kind}-{p.a}-{p.m}-{p.n}")
def test_a_of_weight_stationary_products(product: Product) -> None:
    """Each half or quarter of the lanes has all rows."""
    a, b, c, cells = of_weights(product)
    np.testing.assert_array_equal(stationary(product, a, b, cells), expected(product, a, b, c))


@pytest.mark.parametrize(("number", "lane"), [(0, 32), (0, 96), (1, 64)])
def test_copies_of_weight_stationary_rows_that_differ(number: int, lane: int) -> None:
    """Two products in one, of different a, are no product of the ISA."""
    product = WEIGHTS[number]
    a, b, _, cells = of_weights(product)
    cells[lane, 65] ^= 2
    with pytest.raises(
        ExecutionError, match=rf"row 0 of a .* and lane {lane}: each {product.m} lanes have the same rows"
    ):
        stationary(product, a, b, cells)


# masks ------------------------------------------------------------------------------------------------------------


def with_lanes(masks: list[str]) -> Callable[[str], str]:
    return lambda text: text.replace("%x, %p0;", f"%x, {{{', '.join(masks)}}}, %p0;")


def test_a_mask_that_disables_no_lane_of_a_pair() -> None:
    """As CUTLASS gives it (SM100_MMA_F16BF16_2x1SM_SS): eight registers that are 0."""
    product = Product("f16", "f16", "f16", m=256, n=32)
    a, b = drawn(product, 1)
    c, cells = accumulator(product, 2, 32)
    zeros = with_lanes(["%r298"] * 7 + ["0"])

    def change(text: str) -> str:
        return zeros(text).replace("  ld.param", "  mov.b32 %r298, 0;\n  ld.param", 1)

    got = ran(product, a, b, cells, change=change)
    np.testing.assert_array_equal(got, expected(product, a, b, c))


@pytest.mark.parametrize("number", range(8))
def test_a_mask_of_lanes_of_a_pair_is_refused(number: int) -> None:
    product = Product("f16", "f16", "f16", m=256, n=32)
    a, b = drawn(product, 1)
    _, cells = accumulator(product, 2, 32)
    masks = ["0"] * 8
    masks[number] = "4"
    with pytest.raises(ExecutionError, match="not which bits are those of which block; a mask of 0 runs"):
        ran(product, a, b, cells, change=with_lanes(masks))


def test_a_mask_of_one_block_is_too_short_for_a_pair() -> None:
    product = Product("f16", "f16", "f16", m=256, n=32)
    a, b = drawn(product, 1)
    _, cells = accumulator(product, 2, 32)
    with pytest.raises(OperandError):
        ran(product, a, b, cells, change=with_lanes(["0"] * 4))


WS = Product("f16", "f16", "f16", n=64, ws=True)


def of_columns(mask: str) -> np.ndarray:
    a, b = drawn(WS, 1)
    return dense.ran(WS, a, b, dense.accumulator(WS, 2, 64)[1], operands=f"%a, %b, %x, %p0, {mask}", enable=1)


@pytest.mark.parametrize("mask", ["0", f"{3 << 40 | 2 << 48}", f"{0xF << 32 | 0x01020304}"])
def test_a_mask_of_no_columns(mask: str) -> None:
    """CUTLASS gives 0 (SM100_MMA_F16BF16_WS_SS); the ISA's example 1 has spans, and bit 39 is 0."""
    a, b = drawn(WS, 1)
    c, _ = dense.accumulator(WS, 2, 64)
    np.testing.assert_array_equal(of_columns(mask), expected(WS, a, b, c))


@pytest.mark.parametrize("mask", [1 << 39, 1 << 39 | 2 << 40 | 3 << 48, 1 << 56, 32 << 56, 1 << 36, 1 << 62])
def test_a_mask_of_columns_is_refused(mask: int) -> None:
    with pytest.raises(ExecutionError, match=f"mask 0x{mask:016x} of columns of b that are zero"):
        of_columns(str(mask))
