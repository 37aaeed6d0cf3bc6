"""tcgen05.mma in every kind and layout compared with the references; elements have the ISA's layout."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from ptxdiff.emulator.errors import ExecutionError, MemoryFault
from ptxdiff.emulator.kernel.tcgen05.operands import SWIZZLES
from tests.support.emulator import tensor_memory_text as tm
from tests.support.emulator.tensor_products import (
    FORMATS,
    PRODUCTS,
    SCALE_A,
    SCALE_B,
    SCALED,
    N,
    Product,
    accumulator,
    drawn,
    expected,
    lanes,
    put,
    ran,
    scaled_reference,
    scales,
)


@pytest.mark.sample(4)
@pytest.mark.parametrize("product", PRODUCTS, ids=lambda p: f"{p.kind}-{p.a}-{p.m}-{p.across}-{p.swizzle}-{p.ws}")
def test_products(product: Product) -> None:
    a, b = drawn(product, 1)
    c, cells = accumulator(product, 2, 64 if product.n > 16 else 16)
    got = ran(product, a, b, cells, enable=1)
    np.testing.assert_array_equal(got, expected(product, a, b, c))


def test_a_product_without_its_accumulator() -> None:
    product = PRODUCTS[0]
    a, b = drawn(product, 3)
    c, cells = accumulator(product, 4, 16)
    got = ran(product, a, b, cells)
    np.testing.assert_array_equal(got, expected(product, a, b, np.zeros_like(c)))


@pytest.mark.parametrize("kind", ["f16", "tf32", "f8f6f4"])
@pytest.mark.parametrize("m", [64, 128])
def test_a_in_tensor_memory(kind: str, m: int) -> None:
    name = {"f16": "f16", "tf32": "tf32", "f8f6f4": "e4m3"}[kind]
    product = Product(kind, name, name, m=m, swizzle=(None, 0))
    a, b = drawn(product, 5)
    c, cells = accumulator(product, 6, 32)
    each = 32 // FORMATS[name].code_bits
    words = sum(a[:, i::each].astype(np.uint32) << np.uint32(i * 32 // each) for i in range(each))
    for word, (lane, column) in zip(np.asarray(words).reshape(-1), lanes(product, 8), strict=True):
        cells[lane, 16 + column] = word
    np.testing.assert_array_equal(ran(product, a, b, cells, enable=1), expected(product, a, b, c))


def test_disabled_lanes_and_a_divided_accumulator() -> None:
    product = PRODUCTS[0]
    a, b = drawn(product, 7)
    c, cells = accumulator(product, 8, 16)
    masks = "  mov.b32 %r280, 0x0000ff00;\n  mov.b32 %r281, 0;\n  mov.b32 %r282, -1;\n  mov.b32 %r283, 1;\n"
    operands = "%a, %b, %x, {%r280, %r281, %r282, %r283}, %p0, 3"
    whole = tm.product
    try:
        tm.product = lambda *x: whole(*x).replace("  @%first tcgen05.mma", f"{masks}  @%first tcgen05.mma")
        got = ran(product, a, b, cells, enable=1, operands=operands)
    finally:
        tm.product = whole
    eighth = (c.view(np.float32) / 8).astype(np.float32).view(np.uint32)
    off = [*range(8, 16), *range(64, 97)]
    wanted = expected(product, a, b, eighth)
    wanted[off] = c[off]
    np.testing.assert_array_equal(got, wanted)


# block scales -----------------------------------------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize("product", SCALED, ids=lambda p: f"{p.kind}-{p.a}-{p.scale}-{p.size}-{p.parts}-{p.swizzle}")
def test_scaled_products(product: Product) -> None:
    a, b = drawn(product, 11)
    x, y = scales(product, 12)
    c, cells = accumulator(product, 13, 32)
    put(cells, SCALE_A, x, product.parts[0])
    put(cells, SCALE_B, y, product.parts[1])
    got = ran(product, a, b, cells, enable=1)
    np.testing.assert_array_equal(got, scaled_reference(product, a, b, x, y, c))


# mistakes ---------------------------------------------------------------------------------------------------------


def test_a_wrong_scale_factor_id_gives_other_bits() -> None:
    product = SCALED[1]
    a, b = drawn(product, 11)
    x, y = scales(product, 12)
    c, cells = accumulator(product, 13, 32)
    put(cells, SCALE_A, x, 2)
    put(cells, SCALE_B, y, product.parts[1])
    assert (ran(product, a, b, cells, enable=1) != scaled_reference(product, a, b, x, y, c)).any()


def test_scales_that_differ_between_quarters_of_the_lanes_are_reported() -> None:
    product = SCALED[0]
    a, b = drawn(product, 11)
    _, cells = accumulator(product, 13, 32)
    put(cells, SCALE_A, scales(product, 12)[0], 0)
    put(cells, SCALE_B, scales(product, 12)[1], 0)
    cells[32:64, SCALE_A] ^= 1
    with pytest.raises(ExecutionError, match=r"the scale of a of row 0 differs .* all four quarters"):
        ran(product, a, b, cells)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: replace(d, stride=d.stride * 64), "reaches offset .* outside the .* stride 16384"),
        (lambda d: replace(d, start=d.start - 4096), "reaches offset 259072, outside the"),
    ],
    ids=["stride", "start"],
)
def test_descriptors_that_lead_out_of_shared_memory_are_reported(change: Any, words: str) -> None:
    product = PRODUCTS[0]
    a, b = drawn(product, 1)
    with pytest.raises(MemoryFault, match=words):
        ran(product, a, b, np.zeros((128, 16), np.uint32), change=change)


@pytest.mark.parametrize(
    "change", [lambda d: replace(d, stride=d.stride + 16), lambda d: replace(d, swizzle=SWIZZLES[6])],
    ids=["stride", "swizzle"],
)  # fmt: skip
def test_descriptors_of_another_layout_give_other_bits(change: Any) -> None:
    product = replace(PRODUCTS[0], swizzle=(4, 4))
    a, b = drawn(product, 1)
    got = ran(product, a, b, np.zeros((128, 16), np.uint32), change=change)
    assert (got != expected(product, a, b, np.zeros((128, N), np.uint32))).any()


@dataclass(frozen=True)
class Spoiled:
    """The bits of a descriptor that may be invalid."""

    code: int


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (1 << 46, "bits 46 to 48 are 0, which ISA 9.7.16.4.1 fixes at 1"),
        (1 << 14, "it has set bits outside its fields"),
        (1 << 49 | 6 << 61, "its base offset is 1"), (1 << 52, "an absolute address"),
        (3 << 61, "its swizzling mode is 3"),
        (1 << 61, "swizzles in parts of 32 bytes; a K-major matrix of f16"),
    ],
)  # fmt: skip
def test_invalid_descriptors_are_reported(bits: int, words: str) -> None:
    product = PRODUCTS[0]
    a, b = drawn(product, 1)
    with pytest.raises(ExecutionError, match=words):
        ran(product, a, b, np.zeros((128, 16), np.uint32), change=lambda d: Spoiled(d.code ^ bits))


def test_a_base_offset_has_no_effect_without_a_swizzle() -> None:
    """Triton writes a base offset of 4 when it copies scales from the second 512 bytes of a buffer."""
    a, b = drawn(PRODUCTS[0], 1)
    got = ran(PRODUCTS[0], a, b, np.zeros((128, 16), np.uint32), change=lambda d: Spoiled(d.code ^ 4 << 49))
    assert (got == expected(PRODUCTS[0], a, b, np.zeros((128, N), np.uint32))).all()


@pytest.mark.parametrize(("swizzle", "words"), [((None, 0), "takes a from lane"), ((0, 0), "takes d from lane")])
def test_operands_that_were_never_written_are_reported(swizzle: Any, words: str) -> None:
    product = replace(PRODUCTS[0], swizzle=swizzle)
    a, b = drawn(product, 1)
    with pytest.raises(MemoryFault, match=f"{words} .* of tensor memory, which was never written"):
        ran(product, a, b, np.zeros((128, 8), np.uint32), enable=swizzle[0] == 0)
