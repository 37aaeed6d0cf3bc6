"""Instruction descriptors of tcgen05.mma: every value of every field, and shapes that do not exist."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_tensor_memory_products import PRODUCTS, SCALED, Product

from harness.ptx.kernel import tensorinstructions

KINDS = {
    "f16": PRODUCTS[0], "tf32": PRODUCTS[4], "f8f6f4": PRODUCTS[5], "i8": PRODUCTS[9], "mxf8f6f4": SCALED[0],
    "mxf4": SCALED[6], "mxf4nvf4": SCALED[8],
}  # fmt: skip
_BIT, _NEVER, _TYPES = {0, 1}, {0}, {0, 1, 3, 4, 5}
_PLAIN = {0: (2, _NEVER), 2: (1, _NEVER), 3: (1, _NEVER), 6: (1, _NEVER), 15: (1, _BIT), 16: (1, _BIT), 23: (1, _NEVER)}
_PLAIN |= {29: (1, _NEVER), 30: (2, _NEVER), 13: (1, _BIT), 14: (1, _BIT)}
_SCALED = {0: (2, _NEVER), 2: (1, _NEVER), 3: (1, _NEVER), 6: (1, _NEVER), 13: (1, _BIT), 14: (1, _BIT)}
_SCALED |= {24: (3, _NEVER), 31: (1, _NEVER), 27: (2, {1})}
_FOUR = {4: (2, {0, 2}), 7: (3, {1}), 10: (2, {1}), 12: (1, _NEVER), 15: (1, _NEVER), 16: (1, _NEVER), 29: (2, {0, 2})}
FIELDS = {
    "f16": _PLAIN | {4: (2, {0, 1}), 7: (3, {0}), 10: (3, {0})},  # a and b have one type, here that of the product
    "tf32": _PLAIN | {4: (2, {1}), 7: (3, {2}), 10: (3, {2})},
    "f8f6f4": _PLAIN | {4: (2, {0, 1}), 7: (3, _TYPES), 10: (3, _TYPES)},
    "i8": _PLAIN | {3: (1, _BIT), 4: (2, {2}), 7: (3, {0, 1}), 10: (3, {0, 1}), 13: (1, _NEVER), 14: (1, _NEVER)},
    "mxf8f6f4": _SCALED | {4: (2, {0, 1, 2, 3}), 7: (3, _TYPES), 10: (3, _TYPES), 15: (1, _BIT), 16: (1, _BIT)}
    | {23: (1, {1}), 29: (2, {0, 1, 2, 3})},
    "mxf4": _SCALED | _FOUR | {23: (1, {1})},
    "mxf4nvf4": _SCALED | _FOUR | {23: (1, {0, 1})},
}  # fmt: skip
"""Tables 42 to 44 written again, for dense products: a field's lowest bit to its width and values, without m and n."""


@pytest.mark.parametrize("kind", KINDS)
def test_every_value_of_every_field(kind: str) -> None:
    """Values in the tables are accepted, all others are refused, and each bit lies in one field."""
    product = KINDS[kind]
    covered = sorted(at + i for at, (bits, _) in FIELDS[kind].items() for i in range(bits))
    m = range(24, 29) if not product.block else range(0)
    assert sorted([*covered, *range(17, 23), *m]) == list(range(32))
    for at, (bits, values) in FIELDS[kind].items():
        for value in range(1 << bits):
            code = product.idesc & ~((1 << bits) - 1 << at) | value << at
            found = tensorinstructions.decoded(code, kind, False, product.block)
            assert isinstance(found, str) == (value not in values), (at, value, found)


@pytest.mark.parametrize(
    ("product", "words"),
    [
        (replace(PRODUCTS[0], n=24), "it has 24 columns; .kind::f16 with 128 rows takes multiples of 16"),
        (replace(PRODUCTS[0], m=32), "32 rows, which tcgen05.mma.ws alone takes"),
        (replace(PRODUCTS[0], b="bf16"), "multiplies numbers of one type"),
        (replace(PRODUCTS[2], a="bf16", b="bf16"), "products of bf16 go to f32"),
        (replace(PRODUCTS[10], n=40), "takes 8, 16, 24 and multiples of 16"),
        (replace(SCALED[9], parts=(2, 0)), "4 scales a row begin at byte 2 of a column's 4"),
        (replace(PRODUCTS[7], across=(True, False)), "6 or 4 bits an element is K-major"),
        (replace(PRODUCTS[-1], n=16), "it has 16 columns; .kind::f16 with 128 rows takes"),
    ],
)
def test_shapes_that_do_not_exist_are_refused(product: Product, words: str) -> None:
    found = tensorinstructions.decoded(product.idesc, product.kind, product.ws, product.block)
    assert isinstance(found, str)
    assert words in found
