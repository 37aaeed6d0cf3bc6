"""Instruction descriptors of tcgen05.mma: every value of every field, and shapes that do not exist."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tensor_memory_text as tm
from test_tensor_memory_products import PRODUCTS, SCALED, Product

from harness.ptx.errors import ExecutionError, NotElementwise
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


def issue(kind: str, target: str, bits: int) -> None:
    """Run one scaled product with these bits in its descriptor, too."""
    product = KINDS[kind]
    given = f"  mov.b64 %a, 0;\n  mov.b64 %b, 0;\n  mov.b32 %x, {product.idesc | bits};\n  setp.eq.u32 %p0, %x, 0;\n"
    operands = "[%base], %a, %b, %x, [%base+16], [%base+24], %p0"
    block = "block16" if kind == "mxf4nvf4" else "block32"
    given += f"  @%first tcgen05.mma.cta_group::1.kind::{kind}.block_scale.{block} {operands};\n"
    kernel = tm.text(given).replace(".version 8.7", ".version 9.4").replace("sm_100a", target)
    tm.run(kernel, np.zeros(1, np.uint32), np.zeros(1, np.uint32), 4096)


@pytest.mark.parametrize(
    ("kind", "bit", "known"),
    [
        ("mxf8f6f4", 31, {"sm_107a"}), ("mxf4", 31, {"sm_103a", "sm_107a"}), ("mxf4nvf4", 31, {"sm_103a", "sm_107a"}),
        ("mxf4", 3, {"sm_107a"}), ("mxf4nvf4", 3, {"sm_107a"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("target", ["sm_100a", "sm_103a", "sm_107a", "sm_110a"])
def test_a_longer_k_is_no_fault_of_a_kernel_for_a_target_that_has_it(
    kind: str, bit: int, known: set[str], target: str
) -> None:
    """It is refused there, too, because no model of its sums is published; elsewhere the bit is a mistake."""
    error, words = (NotElementwise, "no published model") if target in known else (ExecutionError, "no field of")
    with pytest.raises(error, match=words):
        issue(kind, target, 1 << bit)


def test_other_reserved_bits_stay_mistakes_where_k_may_be_longer() -> None:
    with pytest.raises(ExecutionError, match="no field of"):
        issue("mxf8f6f4", "sm_107a", 1 << 24)
    with pytest.raises(ExecutionError, match="no field of"):
        issue("mxf8f6f4", "sm_107a", 1 << 3)
