"""Instruction descriptors of tcgen05.mma: every value of every field, and shapes that do not exist."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxdiff.emulator.errors import ExecutionError, MemoryFault, NotElementwise, PtxError, UnsupportedOnTarget
from ptxdiff.emulator.kernel.run import load_kernel
from ptxdiff.emulator.kernel.tcgen05 import instruction_descriptors
from tests.support.emulator import tensor_memory_text as tm
from tests.support.emulator.tensor_products import PRODUCTS, SCALED, Product

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
            found = instruction_descriptors.decoded(code, kind, False, product.block)
            assert isinstance(found, str) == (value not in values), (at, value, found)


@pytest.mark.parametrize(
    ("product", "words"),
    [
        (replace(PRODUCTS[5], n=24, across=(False, True)), "with 128 rows takes multiples of 16 of an N-major b"),
        (replace(PRODUCTS[6], n=8, across=(False, True)), "with 64 rows takes multiples of 16 of an N-major b"),
        (replace(PRODUCTS[10], n=24, across=(False, True)), "with 64 rows takes multiples of 16 of an N-major b"),
        (replace(SCALED[0], n=8, across=(False, True)), "with 128 rows takes multiples of 16 of an N-major b"),
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
    found = instruction_descriptors.decoded(product.idesc, product.kind, product.ws, product.block)
    assert isinstance(found, str)
    assert words in found


@pytest.mark.parametrize("product", [PRODUCTS[0], PRODUCTS[4], PRODUCTS[5], PRODUCTS[9]])
def test_8_columns_more_with_128_rows_are_refused_as_sources_differ(product: Product) -> None:
    """ISA 9.7.16.2.1, table 39, has 64 and 128 rows with the same numbers of columns; CUTLASS asserts otherwise."""
    for n in (8, 24):
        found = replace(product, n=n)
        words = instruction_descriptors.decoded(found.idesc, found.kind, False, found.block)
        assert "CUTLASS asserts multiples of 16" in str(words)


@pytest.mark.parametrize("product", [SCALED[0], SCALED[6]])
def test_scaled_products_of_128_rows_take_8_columns_more_by_8(product: Product) -> None:
    for n in (8, 24):
        found = replace(product, n=n)
        assert not isinstance(instruction_descriptors.decoded(found.idesc, found.kind, False, found.block), str)


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


@pytest.mark.parametrize("target", ["sm_100a", "sm_103a", "sm_110a", "sm_107a"])
def test_scales_of_ue4m3_for_32_elements_need_a_target_that_has_them(target: str) -> None:
    """ISA 9.7.16.10.7.1, target note: undefined before sm_107f."""
    given = f"  mov.b64 %a, 0;\n  mov.b64 %b, 0;\n  mov.b32 %x, {KINDS['mxf4nvf4'].idesc & ~(1 << 23)};\n"
    operands = "[%base], %a, %b, %x, [%base+16], [%base+24], %p0"
    given += "  setp.eq.u32 %p0, %x, 0;\n"
    given += f"  @%first tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block32 {operands};\n"
    kernel = tm.text(given).replace(".version 8.7", ".version 9.4").replace("sm_100a", target)
    words = "which was never written" if target == "sm_107a" else "scales of ue4m3 for 32 elements each are undefined"
    with pytest.raises(MemoryFault if target == "sm_107a" else ExecutionError, match=words):
        tm.run(kernel, np.zeros(1, np.uint32), np.zeros(1, np.uint32), 4096)


@pytest.mark.parametrize("target", ["sm_100a", "sm_103f", "sm_110a", "sm_110f"])
def test_a_divided_accumulator_needs_the_family_of_sm_100(target: str) -> None:
    """ISA 9.7.16.10.9.1 and ptxas 13.0: sm_110a has no scale-input-d."""
    given = "  mov.b64 %a, 0;\n  mov.b32 %x, 0;\n  setp.eq.u32 %p0, %x, 0;\n"
    given += "  @%first tcgen05.mma.cta_group::1.kind::f16 [%base], %a, %a, %x, %p0, 3;\n"
    kernel = tm.text(given).replace(".version 8.7", ".version 9.0").replace("sm_100a", target)
    if target.startswith("sm_10"):
        load_kernel(kernel)
        return
    with pytest.raises(UnsupportedOnTarget, match=f"scale-input-d requires sm_100f .* not {target}"):
        load_kernel(kernel)


@pytest.mark.parametrize(
    ("target", "bit", "error", "words"),
    [
        ("sm_107a", 0, ExecutionError, "sparsity version. is 0, which is undefined on sm_107"),
        ("sm_107a", 1, NotElementwise, "does not run the sparsity of sm_107"),
        ("sm_100a", 1, ExecutionError, "no field of"),
        ("sm_100a", 0, MemoryFault, "which was never written"),
    ],
)
def test_sparse_products_of_4_bits_have_a_version(target: str, bit: int, error: type[PtxError], words: str) -> None:
    """ISA 9.7.16.4.2, target note: another version than the target's is undefined."""
    code = KINDS["mxf4"].idesc | 1 << 2 | bit << 12
    given = f"  mov.b64 %a, 0;\n  mov.b64 %b, 0;\n  mov.b32 %x, {code};\n  setp.eq.u32 %p0, %x, 0;\n"
    operands = "[%base], %a, %b, [%base+48], %x, [%base+16], [%base+24], %p0"
    given += f"  @%first tcgen05.mma.sp.cta_group::1.kind::mxf4.block_scale.block32 {operands};\n"
    kernel = tm.text(given).replace(".version 8.7", ".version 9.4").replace("sm_100a", target)
    with pytest.raises(error, match=words):
        tm.run(kernel, np.zeros(1, np.uint32), np.zeros(1, np.uint32), 4096)
