"""tcgen05.mma.sp in every kind compared with the references, which also give the places of metadata; refusals."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from ptxdiff.emulator.errors import ExecutionError, MemoryFault, NotElementwise, OperandError, PtxError
from ptxdiff.emulator.kernel.tcgen05 import instruction_descriptors, products
from ptxdiff.references import scaled_matrices, tensor_core
from ptxdiff.references import sparse_tensor_core as sparse
from ptxdiff.references import tensor_memory_sparse as places
from ptxdiff.references.formats import E4M3, I32, UE8M0
from tests.emulator.kernel.tcgen05 import test_pairs as test_tensor_pairs
from tests.emulator.kernel.tcgen05 import test_products as dense
from tests.support.emulator import tensor_memory_text as tm
from tests.support.emulator.tensor_products import FORMATS, SCALE_A, SCALE_B, Product, put, tensor

META = 28
"""The column at which metadata begins."""
WIDE = 66
"""The same for products with .ws, whose d has more columns."""


@dataclass(frozen=True)
class Sparse(Product):
    """A product with a sparse a; `k` counts the stored elements of a row."""

    selector: int = 0

    @property
    def bits(self) -> int:
        return places.BITS[self.kind]

    @property
    def idesc(self) -> int:
        return super().idesc | 4 | self.selector


def drawn(product: Sparse, seed: int) -> tuple[np.ndarray, np.ndarray, torch.Tensor]:
    """Stored elements of a, b with twice as many elements along k, and the mask of a's stored elements."""
    first, b = dense.drawn(product, seed)
    _, more = dense.drawn(product, seed + 100)
    rng = np.random.default_rng(seed)
    size, run = sparse.CHUNK[product.bits], 2 if product.bits == 4 else 1
    order = rng.random((product.m, 2 * product.k // size, size // run)).argsort(-1)
    mask = np.repeat(order < (1 if product.bits == 32 else 2), run, -1).reshape(product.m, 2 * product.k)
    return first, np.concatenate([b, more], 1), torch.from_numpy(mask)


def put_metadata(cells: np.ndarray, product: Sparse, mask: torch.Tensor, first: int = META) -> None:
    """Put metadata into tensor memory at the reference's places (ISA 9.7.16.10.8.4)."""
    size = sparse.CHUNK[product.bits]
    for (row, chunk), code in np.ndenumerate(sparse.indices(mask, product.bits).numpy()):
        lane, column, bit = places.place(product.kind, product.m, row, int(chunk) * size, product.ws)
        for copy in places.copies(product.m) if product.ws else (0,):
            at = (lane + copy, first + column + product.selector)
            cells[at] = cells[at] & ~np.uint32(15 << bit) | np.uint32(int(code) << bit)


def ran(
    product: Sparse, a: np.ndarray, b: np.ndarray, cells: np.ndarray, *, enable: int = 1, meta: str = f"[%base+{META}]",
    change: Any = lambda text: text,
) -> np.ndarray:  # fmt: skip
    left = "%a" if product.swizzle[0] is not None else "[%base+16]"
    scales = f"[%base+{SCALE_A}], [%base+{SCALE_B}], " if product.scale else ""
    whole, text_of = tm.product, tm.text

    def changed(*parts: Any) -> str:
        text = whole(*parts).replace("tcgen05.mma.", "tcgen05.mma.sp.").replace("mma.sp.ws.", "mma.ws.sp.")
        return change(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tm, "product", changed)
        patch.setattr(tm, "text", lambda body, words, columns: text_of(body, words, 128 if product.ws else columns))
        return dense.ran(product, a, b, cells, enable=enable, operands=f"{left}, %b, {meta}, %x, {scales}%p0")


def expected(
    product: Sparse, a: np.ndarray, b: np.ndarray, mask: torch.Tensor, c: np.ndarray, scales: Any = None
) -> np.ndarray:
    """The reference's codes of d, row by row: each row of a selects other elements of b."""
    whole = torch.zeros(mask.shape, dtype=torch.int64)
    whole[mask] = tensor(a).reshape(-1)
    found = []
    for row in range(product.m):
        left, right, total = whole[row : row + 1, mask[row]], tensor(b).T[mask[row]], tensor(c)[row : row + 1]
        formats = {"a_format": FORMATS[product.a], "b_format": FORMATS[product.b]}
        if product.kind == "i8":
            found.append(tensor_core.dot_integer(left, right, total, **formats, to=I32, saturate=product.saturate))
            continue
        left = left ^ (product.negate[0] << FORMATS[product.a].code_bits - 1)
        right = right ^ (product.negate[1] << FORMATS[product.b].code_bits - 1)
        if scales is not None:
            kind = scaled_matrices.MX8 if product.kind == "mxf8f6f4" else scaled_matrices.FOUR
            known = {"scale_format": UE8M0 if product.scale == "ue8m0" else E4M3, "block": product.block, "kind": kind}
            x, y = tensor(scales[0][row : row + 1]), tensor(scales[1])
            found.append(scaled_matrices.dot(left, right, x, y, total, **formats, **known))
            continue
        to = {"c_format": FORMATS[product.d], "d_format": FORMATS[product.d]}
        found.append(tensor_core.dot(left, right, total, **formats, **to, generation=tensor_core.BLACKWELL))
    return torch.cat(found).numpy() & 0xFFFFFFFF


PRODUCTS = [
    Sparse("f16", "f16", "f16", swizzle=(0, 2)), Sparse("f16", "bf16", "bf16", m=64, swizzle=(4, 4), selector=1),
    Sparse("f16", "f16", "f16", d="f16", swizzle=(6, 2), selector=1, negate=(True, False)),
    Sparse("f16", "f16", "f16", across=(True, True), swizzle=(2, 4)),
    Sparse("tf32", "tf32", "tf32", swizzle=(0, 4), negate=(False, True)),
    Sparse("tf32", "tf32", "tf32", m=64, swizzle=(2, 2), selector=1), Sparse("f8f6f4", "e4m3", "e5m2", swizzle=(0, 2)),
    Sparse("f8f6f4", "e2m1", "e3m2", m=64, swizzle=(4, 2)), Sparse("i8", "s8", "u8", d="s32", swizzle=(0, 4)),
    Sparse("i8", "u8", "s8", d="s32", m=64, n=8, saturate=True, swizzle=(6, 2)),
]  # fmt: skip
_IDS = {"ids": lambda p: f"{p.kind}-{p.a}-{p.d}-{p.m}-{p.swizzle}-{p.selector}"}


def prepared(product: Sparse, seed: int = 1) -> tuple[np.ndarray, np.ndarray, torch.Tensor, np.ndarray, np.ndarray]:
    a, b, mask = drawn(product, seed)
    c, cells = dense.accumulator(product, seed + 1, 128 if product.ws else 32)
    first = WIDE if product.ws else META
    cells[:, first : first + 3] = 0x44444444
    put_metadata(cells, product, mask, first)
    return a, b, mask, c, cells


@pytest.mark.sample(2)
@pytest.mark.parametrize("product", PRODUCTS, **_IDS)
def test_products(product: Sparse) -> None:
    a, b, mask, c, cells = prepared(product)
    np.testing.assert_array_equal(ran(product, a, b, cells), expected(product, a, b, mask, c))


SCALED = [
    Sparse("mxf8f6f4", "e4m3", "e5m2", scale="ue8m0", parts=(1, 3), swizzle=(0, 2)),
    Sparse("mxf8f6f4", "e2m1", "e3m2", scale="ue8m0", size="block32", swizzle=(4, 4)),
    Sparse("mxf4", "e2m1", "e2m1", scale="ue8m0", parts=(2, 0), swizzle=(2, 4)),
    Sparse("mxf4nvf4", "e2m1", "e2m1", scale="ue4m3", size="block16", negate=(False, True), swizzle=(0, 2)),
]


STATIONARY = [
    *(Sparse("f16", "f16", "f16", m=m, n=64, ws=True, swizzle=(0, 2), selector=m // 64) for m in (32, 64)),
    Sparse("f16", "bf16", "bf16", n=64, ws=True, swizzle=(4, 2)),
    Sparse("tf32", "tf32", "tf32", m=32, n=64, ws=True, swizzle=(0, 4)),
    Sparse("f8f6f4", "e4m3", "e5m2", m=64, n=64, ws=True, swizzle=(2, 2)),
    Sparse("i8", "s8", "u8", d="s32", m=32, n=64, ws=True, swizzle=(0, 4)),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("product", STATIONARY, **_IDS)
def test_weight_stationary_products(product: Sparse) -> None:
    a, b, mask, c, cells = prepared(product)
    got = ran(product, a, b, cells, meta=f"[%base+{WIDE}]")
    np.testing.assert_array_equal(got, expected(product, a, b, mask, c))


def test_copies_of_metadata_that_differ_are_reported() -> None:
    product = STATIONARY[0]
    a, b, _, _, cells = prepared(product)
    cells[64:96, WIDE] = 0xEEEEEEEE
    with pytest.raises(ExecutionError, match=r"metadata of row 0 differs .* and lane 64: with .ws each 32 lanes"):
        ran(product, a, b, cells, meta=f"[%base+{WIDE}]")


@pytest.mark.sample(2)
@pytest.mark.parametrize("product", SCALED, ids=lambda p: f"{p.kind}-{p.a}-{p.size}")
def test_scaled_products(product: Sparse) -> None:
    """A scale covers as many stored elements as in a dense product: table 54 has as many scales for twice the k."""
    a, b, mask, c, cells = prepared(product, 11)
    scales = dense.scales(product, 12)
    put(cells, SCALE_A, scales[0], product.parts[0])
    put(cells, SCALE_B, scales[1], product.parts[1])
    np.testing.assert_array_equal(ran(product, a, b, cells), expected(product, a, b, mask, c, scales))


def test_a_in_tensor_memory() -> None:
    product = Sparse("f16", "f16", "f16", swizzle=(None, 2))
    a, b, mask, c, cells = prepared(product)
    cells[:, 16:24] = (a[:, ::2] | a[:, 1::2] << 16).astype(np.uint32)
    np.testing.assert_array_equal(ran(product, a, b, cells), expected(product, a, b, mask, c))


@pytest.mark.slow
@pytest.mark.parametrize(
    "product",
    [
        Sparse("f16", "f16", "f16", m=256, n=32, swizzle=(0, 2)),
        Sparse("f16", "f16", "f16", m=128, n=32, swizzle=(0, 4), selector=1),
        Sparse("f8f6f4", "e4m3", "e4m3", m=128, n=32, swizzle=(4, 2)),
    ],
    **_IDS,
)
def test_pairs_of_blocks(product: Sparse) -> None:
    """Layouts A and C: each block holds the metadata of its own rows, in the lanes of its rows of d."""
    a, b, mask = drawn(product, 3)
    half = replace(product, m=product.m // 2)
    c = np.zeros((product.m, product.n), np.uint32)
    cells = np.full((2, 128, 64), 0x44444444, np.uint32)
    for block, rows in enumerate(mask.chunk(2)):
        put_metadata(cells[block], half, rows, 40)

    def change(text: str) -> str:
        return text.replace("tcgen05.mma.", "tcgen05.mma.sp.").replace("%b, %x", "%b, [%base+40], %x")

    got = test_tensor_pairs.ran(product, a, b, cells, enable=0, change=change, sparse=True)
    np.testing.assert_array_equal(got, expected(product, a, b, mask, c))


@pytest.mark.parametrize("kind", places.BITS)
@pytest.mark.parametrize(("rows", "ws"), [(64, False), (128, False), (32, True), (64, True)])
def test_both_derivations_of_places_agree(kind: str, rows: int, ws: bool) -> None:
    """The emulator derives places by chunks, the reference by elements, from CUTLASS's strides."""
    k, size = instruction_descriptors.K[kind] * 2, sparse.CHUNK[places.BITS[kind]]
    lanes, columns, bits = products.places(products.Shape(kind, rows, k, ws))
    found = [
        [places.place(kind, rows, row, chunk * size, ws) for chunk in range(k // size)] for row in range(rows)
    ]  # fmt: skip
    np.testing.assert_array_equal(np.stack([lanes, columns, bits], -1), np.array(found))
    assert len({place for row in found for place in row}) == rows * k // size


def test_places_are_those_of_a_warps_registers() -> None:
    """f16: eight lanes hold the first words of eight groups of mma.sp.m16n8k32, the next eight the second words."""
    codes = torch.from_numpy(np.random.default_rng(2).integers(0, 16, (16, 8)))
    words = sparse.metadata(codes, 16, 32, 0)
    for row, chunk in np.ndindex(16, 8):
        lane, _, bit = places.place("f16", 128, row, 4 * chunk)
        assert int(words[4 * (lane % 8) + lane // 8]) >> bit & 15 == int(codes[row, chunk])


# planted mistakes -------------------------------------------------------------------------------------------------


def test_other_places_of_metadata_give_other_bits() -> None:
    """Rows exchanged with rows 8 below, lanes exchanged with lanes 8 below, lanes moved by 16, the other selector."""
    product = PRODUCTS[0]
    a, b, mask, c, cells = prepared(product)
    wanted = expected(product, a, b, mask, c)
    column = cells[:, META].copy()
    turned = column >> np.uint32(16) | column << np.uint32(16)
    for wrong in (turned, column.reshape(-1, 2, 8)[:, ::-1].reshape(-1), np.roll(column, 16)):
        cells[:, META] = wrong
        assert (ran(product, a, b, cells) != wanted).any()
    cells[:, META] = column
    assert (ran(replace(product, selector=1), a, b, cells) != wanted).any()
    np.testing.assert_array_equal(ran(product, a, b, cells), wanted)


def test_indices_of_metadata_may_descend() -> None:
    """0b0110 has the second element before the first (ISA 9.7.16.10.8.2)."""
    product = PRODUCTS[6]
    a, b, mask, c, cells = prepared(product)
    mask[:] = torch.tensor([False, True, True, False]).repeat(mask.shape[1] // 4)
    cells[:, META : META + 2] = 0x66666666
    turned = a.reshape(len(a), -1, 2)[:, :, ::-1].reshape(a.shape)
    np.testing.assert_array_equal(ran(product, turned, b, cells), expected(product, a, b, mask, c))


# refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "word", "text"),
    [
        (0, 0x44444444 & ~0xF0, "0b0000 for columns from 4 of row 3"), (0, 0x44444424, "0b0010 for columns from 4"),
        (4, 0x44444484, "0b1000 for columns from 2 of row 3.* only 0b0100, 0b1110 do"), (8, 0x444444F4, "0b1111"),
    ],
)  # fmt: skip
def test_invalid_metadata_is_reported(number: int, word: int, text: str) -> None:
    product = PRODUCTS[number]
    a, b, _, _, cells = prepared(product)
    cells[:, META : META + 2] = 0x44444444
    cells[3, META] = word
    with pytest.raises(ExecutionError, match=rf"lane 3, column \d+ of tensor memory has metadata {text}"):
        ran(product, a, b, cells)


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        ("f16", 0, "bit 2 .sparsity. is 0"), ("f16", 4 | 2, "selector .* is 2; .kind::f16 takes 0 or 1"),
        ("f8f6f4", 4 | 1, "takes 0 alone"), ("mxf4", 4 | 3, "takes 0 alone"),
    ],
)  # fmt: skip
def test_fields_of_a_sparse_product_in_descriptors(kind: str, code: int, words: str) -> None:
    product = next(p for p in (*PRODUCTS, *SCALED) if p.kind == kind)
    bits = product.idesc & ~7 | code
    assert instruction_descriptors.decoded(bits & ~7 | 4, kind, False, product.block, False, True).k == 2 * product.k  # type: ignore[union-attr]
    assert re.search(words, str(instruction_descriptors.decoded(bits, kind, False, product.block, False, True)))
    assert isinstance(instruction_descriptors.decoded(bits | 4, kind, False, product.block), str), (
        "a dense one has no bit 2"
    )


def test_metadata_at_a_wrong_place_is_reported() -> None:
    product = PRODUCTS[0]
    a, b, _, _, cells = prepared(product)
    with pytest.raises(ExecutionError, match="begins at column 477 of tensor memory, an odd one"):
        ran(product, a, b, cells, meta=f"[%base+{META + 1}]")
    with pytest.raises(MemoryFault, match=r"takes metadata from lane 0, column .* was never written"):
        ran(product, a, b, cells[:, :16])
    with pytest.raises(ExecutionError, match=r"metadata begins at lane 16 .* d at lane 0; they must be equal"):
        ran(PRODUCTS[1], *prepared(PRODUCTS[1])[:2], prepared(PRODUCTS[1])[4], meta=f"[%base+{META + (16 << 16)}]")


def test_a_swizzle_shorter_than_a_row_of_b_is_refused() -> None:
    product = replace(PRODUCTS[0], swizzle=(0, 6))
    a, b, _, _, cells = prepared(product)
    with pytest.raises(ExecutionError, match="swizzle of 32 bytes, and 64 bytes lie along k"):
        ran(product, a, b, cells)


def test_metadata_must_not_change_before_a_wait_for_the_commit() -> None:
    product = PRODUCTS[0]
    a, b, _, _, cells = prepared(product)

    def change(text: str) -> str:
        behind = text.index("\n", text.index("tcgen05.mma.sp"))
        store = f"\n  add.s32 %r290, %own, {META};\n  tcgen05.st.sync.aligned.32x32b.x1.b32 [%r290], {{%r10}};\n"
        return text[:behind] + store + text[behind:]

    with pytest.raises(
        MemoryFault, match=r"stores .* column 476 of tensor memory, which the tcgen05\.mma\.sp.* still reads"
    ):
        ran(product, a, b, cells, change=change)


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        (f"[%base+{META}], ", "", OperandError), ("%p0;", "%p0, %b;", OperandError),
        (".kind::f16 ", ".kind::f16.ashift ", NotElementwise),
    ],
)  # fmt: skip
def test_wrong_operands_and_unsupported_forms_are_refused(old: str, new: str, error: type[PtxError]) -> None:
    product = PRODUCTS[0]
    a, b, _, _, cells = prepared(product)
    with pytest.raises(error):
        ran(product, a, b, cells, change=lambda text: text.replace(old, new))


def test_a_in_tensor_memory_must_begin_at_the_lane_of_d() -> None:
    """ISA 9.7.16.10.5, for products whose rows lie in half of the lanes."""
    product = Sparse("f16", "f16", "f16", m=64, swizzle=(None, 2))
    a, b, mask, c, cells = prepared(product)
    for row in range(64):
        cells[row // 16 * 32 + row % 16, 16:24] = (a[row, ::2] | a[row, 1::2] << 16).astype(np.uint32)
    np.testing.assert_array_equal(ran(product, a, b, cells), expected(product, a, b, mask, c))
    with pytest.raises(ExecutionError, match="a begins at lane 16 of tensor memory, and d at lane 0"):
        ran(product, a, b, cells, change=lambda text: text.replace("[%base+16]", f"[%base+{16 + (16 << 16)}]"))
