"""Products in tensor memory, and copies to it, in machine code give the bits of the references."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from ptxdiff import run_ptx
from ptxdiff.sass import tensor_products
from ptxdiff.sass.cubin import MachineCode
from ptxdiff.sass.run import run_machine_code
from ptxdiff.sass.text import MachineFault, Unsupported
from ptxdiff.triton.targets import probe
from tests.emulator.kernel.tcgen05 import test_sparse_products as sparse
from tests.emulator.kernel.tcgen05.test_collectors import several
from tests.support.emulator import tensor_memory_text as tm
from tests.support.emulator.tensor_products import (
    PRODUCTS,
    SCALE_A,
    SCALE_B,
    SCALED,
    Product,
    accumulator,
    drawn,
    expected,
    put,
    ran,
    scaled_reference,
    scales,
)
from tests.support.sass.ahead import read_together
from tests.support.sass.assembly import run, written

TARGET = "sm_100a"
DENSE = [p for p in PRODUCTS if not p.ws]
WITHOUT_OPTIMISATION = [*DENSE[:10:3], *SCALED[1::3]]


def with_blocks(kernel: str) -> str:
    """In the version of PTX that has .block32."""
    return kernel.replace(".version 8.7", ".version 8.8")


@pytest.fixture(scope="module", autouse=True)
def _read_together() -> Iterator[None]:
    kernels: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tm, "run", lambda kernel, data, out, *more: kernels.append(with_blocks(kernel)) or out)
        for product in (*DENSE[::9], *SCALED[::9], *WITHOUT_OPTIMISATION):
            ran(product, *operands(product)[0], enable=1)
    both = [with_blocks(copying(shape)) for shape in COPIES]
    with read_together([
        *((k, 3) for k in [*kernels[: -len(WITHOUT_OPTIMISATION)], *both]),
        *((k, 0) for k in [*kernels[-len(WITHOUT_OPTIMISATION) :], *both]),
    ]):  # fmt: skip
        yield


@pytest.fixture
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Let `tensor_memory_text.run` run machine code of this level of ptxas."""
    if not probe()[TARGET].available:
        pytest.skip(f"no ptxas for {TARGET}")

    def as_machine_code(kernel: str, data: np.ndarray, out: np.ndarray, shared: int = 65536) -> np.ndarray:
        run_ptx(with_blocks(kernel), 1, 128, data, out, level="sass", opt=request.param, shared=shared)
        return out

    monkeypatch.setattr(tm, "run", as_machine_code)
    return int(request.param)


def name(product: Product) -> str:
    return f"{product.kind}-{product.a}-{product.d}-{product.m}-{product.across}-{product.swizzle}-{product.size}"


def sampled(products: Sequence[Product]) -> list[Any]:
    """Every ninth product, and the others for the slow tests."""
    return [p if k % 9 == 0 else pytest.param(p, marks=pytest.mark.slow) for k, p in enumerate(products)]


def multiplied(product: Product, **options: object) -> tuple[np.ndarray, np.ndarray]:
    """What the machine code gives, and what the reference does."""
    (a, b, cells), reference = operands(product)
    return ran(product, a, b, cells, enable=1, **options), reference()


def operands(product: Product) -> tuple[tuple[Any, ...], Callable[[], np.ndarray]]:
    """Two matrices and the cells of tensor memory, and what computes the reference's cells."""
    a, b = drawn(product, 1)
    c, cells = accumulator(product, 2, 64 if product.n > 16 else 32)
    if not product.scale:
        return (a, b, cells), lambda: expected(product, a, b, c)
    x, y = scales(product, 12)
    put(cells, SCALE_A, x, product.parts[0])
    put(cells, SCALE_B, y, product.parts[1])
    return (a, b, cells), lambda: scaled_reference(product, a, b, x, y, c)


@pytest.mark.sample(3)
@pytest.mark.parametrize("level", [3], indirect=True)
@pytest.mark.parametrize("product", [p for ps in (DENSE, SCALED) for p in sampled(ps)], ids=name)
def test_products_give_the_bits_of_the_references(product: Product, level: int) -> None:
    np.testing.assert_array_equal(*multiplied(product))


# In machine code of sm_103a, scales of 16 elements are another word than on sm_100a.
NVF4 = next(p for p in SCALED if p.kind == "mxf4nvf4" and p.size == "block16")


@pytest.mark.parametrize(
    ("product", "target"),
    [(DENSE[0], "sm_110a"), (NVF4, "sm_110a"), (NVF4, "sm_103a")],
    ids=["f16-sm_110a", "nvf4-sm_110a", "nvf4-sm_103a"],
)
def test_products_of_other_targets(product: Product, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not probe()[target].available:
        pytest.skip(f"no ptxas for {target}")

    def as_machine_code(kernel: str, data: np.ndarray, out: np.ndarray, shared: int = 65536) -> np.ndarray:
        there = kernel.replace(".version 8.7", ".version 9.0").replace(TARGET, target)
        run_ptx(there, 1, 128, data, out, level="sass", opt=3, shared=shared)
        return out

    monkeypatch.setattr(tm, "run", as_machine_code)
    np.testing.assert_array_equal(*multiplied(product))


@pytest.mark.slow
@pytest.mark.parametrize("level", [0], indirect=True)
@pytest.mark.parametrize("product", WITHOUT_OPTIMISATION, ids=name)
def test_products_without_optimisation(product: Product, level: int) -> None:
    np.testing.assert_array_equal(*multiplied(product))


@pytest.mark.sample(2)
@pytest.mark.parametrize("level", [0, 3], indirect=True)
def test_a_product_without_its_accumulator(level: int) -> None:
    product = DENSE[0]
    a, b = drawn(product, 3)
    c, cells = accumulator(product, 4, 16)
    np.testing.assert_array_equal(ran(product, a, b, cells), expected(product, a, b, np.zeros_like(c)))


@pytest.mark.sample(2)
@pytest.mark.parametrize("level", [0, 3], indirect=True)
def test_disabled_lanes_and_a_divided_accumulator(level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    product = DENSE[0]
    a, b = drawn(product, 7)
    c, cells = accumulator(product, 8, 16)
    masks = "  mov.b32 %r280, 0x0000ff00;\n  mov.b32 %r281, 0;\n  mov.b32 %r282, -1;\n  mov.b32 %r283, 1;\n"
    whole, issue = tm.product, "  @%first tcgen05.mma"
    monkeypatch.setattr(tm, "product", lambda *given: whole(*given).replace(issue, masks + issue))
    got = ran(product, a, b, cells, enable=1, operands="%a, %b, %x, {%r280, %r281, %r282, %r283}, %p0, 3")
    wanted = expected(product, a, b, (c.view(np.float32) / 8).astype(np.float32).view(np.uint32))
    off = [*range(8, 16), *range(64, 97)]
    wanted[off] = c[off]
    np.testing.assert_array_equal(got, wanted)


WEIGHTS = [p for p in PRODUCTS if p.ws] + [Product("i8", "s8", "u8", d="s32", m=32, n=64, ws=True, swizzle=(0, 2))]


@pytest.mark.sample(6)
@pytest.mark.parametrize("level", [0, 3], indirect=True)
@pytest.mark.parametrize("product", WEIGHTS, ids=name)
def test_weight_stationary_products_give_the_bits_of_the_references(product: Product, level: int) -> None:
    np.testing.assert_array_equal(*multiplied(product))


@pytest.mark.sample(2)
@pytest.mark.parametrize("level", [3], indirect=True)
@pytest.mark.parametrize("mask", [0, 1 << 39])
def test_a_mask_of_columns_that_are_zero(mask: int, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    product, given = WEIGHTS[1], f"  mov.b64 z, {mask};\n"
    whole, issue = tm.product, "  @%first tcgen05.mma"
    monkeypatch.setattr(tm, "product", lambda *parts: whole(*parts).replace(issue, f"  .reg .b64 z; {given}{issue}"))
    options = {"operands": "%a, %b, %x, %p0, z"}
    if mask:
        with pytest.raises(MachineFault, match="mask 0x"):
            multiplied(product, **options)
        return
    np.testing.assert_array_equal(*multiplied(product, **options))


@pytest.mark.slow
@pytest.mark.parametrize("level", [3], indirect=True)
def test_buffers_of_b(level: int) -> None:
    hints = ["b1::fill", "b0::fill", "b3::discard", "b1::use", "b0::lastuse", "b1::lastuse"]
    np.testing.assert_array_equal(*several(WEIGHTS[1], hints))
    with pytest.raises(MachineFault, match="buffer b2"):
        several(WEIGHTS[1], ["b1::fill", "b2::use"])


SPARSE = [*sparse.PRODUCTS[:2], sparse.PRODUCTS[4], sparse.PRODUCTS[6], sparse.PRODUCTS[9]]


@pytest.mark.sample(4)
@pytest.mark.parametrize("level", [0, 3], indirect=True)
@pytest.mark.parametrize("product", SPARSE, ids=name)
def test_products_of_a_sparse_matrix_give_the_bits_of_the_references(product: Any, level: int) -> None:
    a, b, mask, c, cells = sparse.prepared(product)
    np.testing.assert_array_equal(sparse.ran(product, a, b, cells), sparse.expected(product, a, b, mask, c))


@pytest.mark.slow
@pytest.mark.parametrize("level", [3], indirect=True)
@pytest.mark.parametrize("product", sparse.SCALED[::2], ids=name)
def test_scaled_products_of_a_sparse_matrix_give_the_bits_of_the_references(product: Any, level: int) -> None:
    a, b, mask, c, cells = sparse.prepared(product)
    x, y = scales(product, 12)
    put(cells, SCALE_A, x, product.parts[0])
    put(cells, SCALE_B, y, product.parts[1])
    wanted = sparse.expected(product, a, b, mask, c, (x, y))
    np.testing.assert_array_equal(sparse.ran(product, a, b, cells), wanted)


@pytest.mark.parametrize("level", [3], indirect=True)
def test_planted_metadata_give_other_bits(level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    product, right = SPARSE[0], tensor_products.products.places
    a, b, mask, c, cells = sparse.prepared(product)
    monkeypatch.setattr(tensor_products.products, "places", lambda shape: tuple(x[::-1] for x in right(shape)))
    assert (sparse.ran(product, a, b, cells) != sparse.expected(product, a, b, mask, c)).any()


@pytest.mark.parametrize("text", [
    "UTCHMMA.WS gdesc[UR6].A_KEEP, gdesc[UR8], tmem[UR10], tmem[UR4], idesc[UR5], UP0",
    "UTCHMMA.WS gdesc[UR6], gdesc[UR8].B_KEEP.BUFFER4, tmem[UR10], tmem[UR4], idesc[UR5], UP0",
    "UTCHMMA gdesc[UR6], gdesc[UR8].B_KEEP, tmem[UR10], tmem[UR4], idesc[UR5], UP0",
    "UTCOMMA.WS gdesc[UR6], gdesc[UR8], tmem[UR10], tmem[UR12], idesc[UR13], tmem[UR4], UP0",
])  # fmt: skip
def test_what_is_not_known_is_refused(text: str) -> None:
    code = MachineCode("kernel", TARGET, written(f"{text}\nEXIT"), (), 0x380, {}, 0, 0)
    with pytest.raises(Unsupported, match=r"not known"):
        run_machine_code(code, [], (1,), 32)


@pytest.mark.parametrize("level", [3], indirect=True)
@pytest.mark.parametrize("planted", ["kind", "scales", "enabled"])
def test_a_planted_mistake_gives_other_bits(planted: str, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    product = SCALED[0] if planted == "scales" else DENSE[4]
    right = tensor_products.products.run_product

    def wrong(frame, step, lane, given):
        if planted == "scales":
            given[4], given[5] = given[5], given[4]
        elif planted == "enabled":
            given[-1] = 0
        right(frame, step, lane, given)

    if planted == "kind":
        monkeypatch.setattr(tensor_products, "_kind", lambda kind, descriptor: kind)
        with pytest.raises(MachineFault, match="instruction descriptor"):
            multiplied(product)
        return
    monkeypatch.setattr(tensor_products.products, "run_product", wrong)
    got, wanted = multiplied(product)
    assert (got != wanted).any()


COPIES = [
    "128x256b", "4x256b", "128x128b", "64x128b.warpx2::02_13", "64x128b.warpx2::01_23", "32x128b.warpx4",
    "128x256b.b8x16.b4x16_p64", "32x128b.warpx4.b8x16.b6x16_p32",
]  # fmt: skip


def copying(shape: str) -> str:
    """A kernel that copies from shared memory to tensor memory, and stores what is there then."""
    code = tensor_products.copies.operands.MatrixDescriptor(
        tm.BASE + tm.DATA, 128, 256, tensor_products.copies.operands.SWIZZLES[0]
    ).code
    fill = f"{tm.loaded(16)}  tcgen05.st.sync.aligned.32x32b.x16.b32 [%own], {tm.registers(10, 16)};\n"
    copy = f"  mov.b64 %a, {code};\n  @%first tcgen05.cp.cta_group::1.{shape} [%base+4], %a;\n{tm.waited()}"
    read = f"  tcgen05.ld.sync.aligned.32x32b.x16.b32 {tm.registers(10, 16)}, [%own];\n"
    waits = "  tcgen05.wait::{};\n  bar.sync 0;\n"
    body = fill + waits.format("st.sync.aligned") + copy + read + waits.format("ld.sync.aligned") + tm.stored(16)
    return tm.text(body, 2048)


@pytest.mark.sample(4)
@pytest.mark.parametrize("shape", COPIES)
@pytest.mark.parametrize("level", [0, 3], indirect=True)
def test_copies_give_the_bits_of_the_ptx(shape: str, level: int) -> None:
    kernel = copying(shape)
    data = np.random.default_rng(3).integers(0, 1 << 32, 2048, np.uint32)
    wanted, got = (np.zeros(2048, np.uint32) for _ in range(2))
    run_ptx(kernel, 1, 128, data, wanted, shared=16384)
    assert (wanted != data).any()
    np.testing.assert_array_equal(tm.run(kernel, data, got, 16384), wanted)


@pytest.mark.parametrize("text", [
    "UTCHMMA gdesc[UR6], gdesc[UR8], tmem[UR5], tmem[UR10], idesc[UR11], UP2",  # sm_80 has none
    "UTCCP.T.S tmem[UR5+0x4], gdesc[UR6]",
])  # fmt: skip
def test_other_targets_have_none(text: str) -> None:
    with pytest.raises(Unsupported):
        run(f"{text}\nEXIT", [])
