"""Forms of wgmma in every layout of shared memory compared with the reference; elements have the ISA's layout."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from ptxdiff.conformance import group_products, product_forms, products
from ptxdiff.conformance.group_products import GroupLayout
from ptxdiff.emulator.kernel.wgmma.descriptors import Descriptor, decoded
from ptxdiff.emulator.kernel.wgmma.multiply import Matrix
from ptxdiff.emulator.numeric.tensorcore import BITS
from ptxdiff.references import tensor_core
from ptxdiff.references.formats import I8, I32, U8
from tests.support.emulator.warpgroup_tiles import FORMATS, image
from tests.support.sampling import spread

TILES = len(products.KINDS)


def expected(form: str, layout: GroupLayout, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The reference's codes of d."""
    chosen = product_forms.bounds_of()[form].modifiers
    d_type, a_type, b_type = (chosen[x] or "" for x in ("dtype", "atype", "btype"))
    rows = []
    for x, y, z in zip(*(torch.from_numpy(t.astype(np.int64)) for t in (a, b, c)), strict=True):
        if a_type == "b1":
            rows.append(tensor_core.dot_bits(x, y, z, operation="and", to=I32))
        elif d_type == "s32":
            formats = {"a_format": I8 if a_type[0] == "s" else U8, "b_format": I8 if b_type[0] == "s" else U8}
            rows.append(tensor_core.dot_integer(x, y, z, **formats, to=I32, saturate=bool(chosen["satfinite"])))
        else:
            x = x ^ (layout.negative_a << BITS[a_type] - 1)
            y = y ^ (layout.negative_b << BITS[b_type] - 1)
            formats = {"a_format": FORMATS[a_type], "b_format": FORMATS[b_type]}
            to = {"c_format": FORMATS[d_type], "d_format": FORMATS[d_type]}
            rows.append(tensor_core.dot(x, y, z, **formats, **to, generation=tensor_core.HOPPER_WGMMA))
    return torch.stack(rows).numpy()


def differing(form: str, layout: GroupLayout, tiles: int = TILES) -> list[str]:
    """Kinds of tiles in which the emulator's kernel and the reference differ."""
    known = group_products.program(form, "sm_90a", layout)
    operands = group_products.drawn(known, f"{form} test", tiles)
    a, b, c = operands
    got = group_products.emulated(known, group_products.arrays(known, operands, image(known, a, b)))
    codes = expected(form, layout, a, b, c).astype(np.int64).astype(c.dtype)
    wanted = group_products.registers(codes, known.product.table, known.bits)
    return [products.KINDS[i % len(products.KINDS)] for i in np.flatnonzero((wanted != got).any(axis=(1, 2)))]


FORMS = [f for f in product_forms.bounds_of() if f.startswith("wgmma.mma_async.sync")]
_SMALL = [f for f in FORMS if ".m64n24k" in f or ".m64n8k16.f16" in f]


def types(form: str) -> list[tuple[int, str]]:
    """The type of each operand."""
    return list(enumerate(reversed(form.split("."))))


@pytest.mark.sample(2)
@pytest.mark.parametrize("form", spread(_SMALL, 4, types))
def test_the_emulator_and_the_reference_agree(form: str) -> None:
    """Each form runs in one layout, the next form in the next layout."""
    known = group_products.layouts_of(form)
    assert differing(form, known[_SMALL.index(form) % len(known)]) == []


F16_F32 = "wgmma.mma_async.sync.aligned.m64n72k16.f32.f16.f16"
TF32_F32 = "wgmma.mma_async.sync.aligned.m64n16k8.f32.tf32.tf32"
S8 = "wgmma.mma_async.sync.aligned.m64n32k32.satfinite.s32.u8.s8"
BIT = "wgmma.mma_async.sync.aligned.m64n16k256.s32.b1.b1.and.popc"


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("form", "number"),
    [(f, n) for f in (F16_F32, TF32_F32, S8, BIT) for n in range(len(group_products.layouts_of(f)))],
)
def test_every_layout_of_shared_memory(form: str, number: int) -> None:
    assert differing(form, group_products.layouts_of(form)[number], 2) == []


@pytest.mark.slow
@pytest.mark.parametrize("form", [f for f in FORMS if f not in _SMALL])
def test_every_shape(form: str) -> None:
    """Slow: five hundred forms take minutes."""
    known = group_products.layouts_of(form)
    assert differing(form, known[FORMS.index(form) % len(known)], 1) == []


def test_layouts_have_every_swizzle_major_and_source() -> None:
    found = group_products.layouts_of(F16_F32)
    assert {(x.a, x.across_a) for x in found} == {(s, m) for s in (16, 32, 64, 128) for m in (False, True)} | {
        (0, False)
    }
    assert {(x.b, x.across_b) for x in found} == {(s, m) for s in (16, 32, 64, 128) for m in (False, True)}
    assert {x.negative_a for x in found} == {x.negative_b for x in found} == {False, True}


@pytest.mark.parametrize(
    ("layout", "change"),
    [
        (GroupLayout(16, 16), {"leading": 512}),
        (GroupLayout(16, 16, True, True), {"leading": 256}),
        (GroupLayout(16, 16), {"stride": 256}),
        (GroupLayout(16, 64), {"stride": 256}),
        (GroupLayout(16, 32, True, True), {"leading": 256}),
        (GroupLayout(16, 64), {"swizzle": 32}),
        (GroupLayout(16, 128), {"swizzle": 64}),
    ],
)
def test_other_offsets_and_swizzles_give_other_bits(
    layout: GroupLayout, change: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image of b in the layout of another descriptor is detected."""
    known = group_products.program(F16_F32, "sm_90a", layout)
    operands = group_products.drawn(known, "planted", 1)
    right = group_products.placed

    def wrong(matrix: Matrix, swizzle: int, start: int) -> tuple[Descriptor, int]:
        descriptor, room = right(matrix, swizzle, start)
        return (replace(descriptor, **change) if matrix.rows == 72 else descriptor), room

    monkeypatch.setattr(group_products, "placed", wrong)
    memory = image(known, *operands[:2])
    got = group_products.emulated(known, group_products.arrays(known, operands, memory))
    assert (got != group_products.computed(known, operands)).any()


def test_an_invalid_descriptor_is_refused_with_a_reason() -> None:
    assert decoded(Descriptor(1024, 16, 512, 64).code) == Descriptor(1024, 16, 512, 64)
    assert "base offset is 3" in str(decoded(3 << 49))
    assert "no field" in str(decoded(1 << 14))
