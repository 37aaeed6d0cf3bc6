"""wgmma.sp compared with its reference, with metadata and elements in the ISA's layout, and refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch

from ptxdiff.conformance import group_products, product_forms
from ptxdiff.conformance.group_products import GroupKernel, GroupLayout
from ptxdiff.emulator.errors import ExecutionError, MemoryFault, OperandError, PtxError, UndefinedBits
from ptxdiff.emulator.kernel.run import Buffer, run_kernel
from ptxdiff.emulator.numeric.tensorcore import BITS
from ptxdiff.references import sparse_metadata, tensor_core
from ptxdiff.references import sparse_tensor_core as sparse
from ptxdiff.references.formats import I8, I32, U8
from tests.support.emulator.warpgroup_tiles import FORMATS, image
from tests.support.sampling import spread

HEAD = "wgmma.mma_async.sp.sync.aligned."
FORMS = [f for f in product_forms.bounds_of() if f.startswith(HEAD)]
_SMALL = [f for f in FORMS if ".m64n24k" in f or ".m64n8k32.f16" in f]
F16 = f"{HEAD}m64n40k32.f32.f16.f16"
TF32 = f"{HEAD}m64n16k16.f32.tf32.tf32"
F8 = f"{HEAD}m64n16k64.f32.e4m3.e5m2"
S8 = f"{HEAD}m64n32k64.satfinite.s32.u8.s8"


def test_the_table_has_the_forms_that_the_isa_lists() -> None:
    """ISA 9.7.15.6.3: 32 values of n, for integers 18; k is twice that of the dense form."""
    kinds = {f"k32.{d}.f16.f16": 32 for d in ("f16", "f32")} | {"k32.f32.bf16.bf16": 32, "k16.f32.tf32.tf32": 32}
    bytes_, integers = ("e4m3", "e5m2"), ("s8", "u8")
    kinds |= {f"k64.{d}.{a}.{b}": 32 for d in ("f16", "f32") for a in bytes_ for b in bytes_}
    kinds |= {f"k64{s}.s32.{a}.{b}": 18 for s in ("", ".satfinite") for a in integers for b in integers}
    found = Counter(form.removeprefix(f"{HEAD}m64n").lstrip("0123456789") for form in FORMS)
    assert found == kinds


def drawn_mask(rng: np.random.Generator, bits: int, k: int) -> torch.Tensor:
    """Which elements of 64 rows are stored."""
    size = sparse.CHUNK[bits]
    order = rng.random((64, k // size, size)).argsort(-1)
    return torch.from_numpy((order < (1 if bits == 32 else 2)).reshape(64, k))


def product_of(form: str, layout: GroupLayout) -> Callable[..., torch.Tensor]:
    """The reference's function of a dense product."""
    chosen = product_forms.bounds_of()[form].modifiers
    d, a, b = (chosen[x] or "" for x in ("dtype", "atype", "btype"))

    def found(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        if d == "s32":
            formats = {"a_format": I8 if a[0] == "s" else U8, "b_format": I8 if b[0] == "s" else U8}
            return tensor_core.dot_integer(x, y, z, **formats, to=I32, saturate=bool(chosen["satfinite"]))
        x, y = x ^ (layout.negative_a << BITS[a] - 1), y ^ (layout.negative_b << BITS[b] - 1)
        formats = {"a_format": FORMATS[a], "b_format": FORMATS[b], "c_format": FORMATS[d], "d_format": FORMATS[d]}
        return tensor_core.dot(x, y, z, **formats, generation=tensor_core.HOPPER_WGMMA)

    return found


def placed(known: GroupKernel, tiles: int, seed: int, selector: int = 0) -> tuple[list[np.ndarray], list[torch.Tensor]]:
    """Operands with the reference's metadata, and the mask of each tile's stored elements."""
    operands = group_products.drawn(known, f"{seed}", tiles)
    bits, k = BITS[known.product.a.type], known.product.b.k
    masks = [drawn_mask(np.random.default_rng(seed + t), bits, k) for t in range(tiles)]
    words = [sparse_metadata.of_warpgroup(sparse.indices(m, bits), bits, k, selector) for m in masks]
    operands[3] = np.stack([w.numpy().astype(np.uint32) for w in words]).reshape(operands[3].shape)
    return operands, masks


def expected(form: str, known: GroupKernel, operands: list[np.ndarray], masks: list[torch.Tensor]) -> np.ndarray:
    """The reference's registers of d."""
    found = []
    for stored, b, c, tile in zip(*(torch.from_numpy(x.astype(np.int64)) for x in operands[:3]), masks, strict=True):
        a = torch.zeros(tile.shape, dtype=torch.int64)
        a[tile] = stored.reshape(-1)
        found.append(sparse.dot(a, tile, b, c, product_of(form, known.layout)))
    codes = torch.stack(found).numpy().astype(operands[2].dtype)
    return group_products.registers(codes, known.product.table, known.bits)


def ran(known: GroupKernel, operands: list[np.ndarray]) -> np.ndarray:
    """The emulator's registers of d, with an image of shared memory that the test makes."""
    return group_products.emulated(known, group_products.arrays(known, operands, image(known, *operands[:2])))


def agrees(form: str, layout: GroupLayout, tiles: int = 2, seed: int = 5) -> bool:
    known = group_products.program(form, "sm_90a", layout)
    operands, masks = placed(known, tiles, seed)
    return np.array_equal(ran(known, operands), expected(form, known, operands, masks))


@pytest.mark.sample(6)
@pytest.mark.parametrize("form", spread(_SMALL, 4, lambda form: enumerate(reversed(form.split(".")))))
def test_the_emulator_and_the_reference_agree(form: str) -> None:
    """Each form runs in one layout, the next form in the next layout; every fifth layout has a in registers.

    Every fourth form runs on two tiles.
    """
    known, place = group_products.layouts_of(form), _SMALL.index(form)
    assert agrees(form, known[place % len(known)], tiles=2 if place % 4 == 0 else 1)


LAYOUTS = [(f, n) for f in (F16, TF32, F8, S8) for n in range(len(group_products.layouts_of(f)))]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("form", "number"),
    spread(LAYOUTS, 3, lambda row: [("form", row[0]), ("layout", group_products.layouts_of(row[0])[row[1]])]),
)
def test_every_layout(form: str, number: int) -> None:
    """All swizzles and majors of a and b, and a in registers."""
    assert agrees(form, group_products.layouts_of(form)[number], 1)


@pytest.mark.slow
@pytest.mark.parametrize("form", [f for f in FORMS if f not in _SMALL])
def test_every_shape(form: str) -> None:
    """Slow: hundreds of forms take minutes."""
    known = group_products.layouts_of(form)
    assert agrees(form, known[FORMS.index(form) % len(known)], 1)


@pytest.mark.parametrize("form", [F16, TF32])
def test_the_selector_chooses_the_threads_with_metadata(form: str) -> None:
    """Threads of the two selectors hold metadata of two matrices."""
    known = group_products.program(form, "sm_90a", GroupLayout(64, 64))
    operands, masks = placed(known, 1, 3, selector=1)
    others, _ = placed(known, 1, 30)
    operands[3] = operands[3] | others[3]
    second = group_products.GroupKernel(
        known.text.replace("%m0, 0,", "%m0, 1,"), known.product, known.layout, known.chunks, known.size
    )
    wanted = expected(form, known, operands, masks)
    assert np.array_equal(ran(second, operands), wanted)
    assert not np.array_equal(ran(known, operands), wanted)


def test_planted_mistakes_in_metadata_are_detected() -> None:
    """The mistakes: rows exchanged with rows 8 below, threads of a pair exchanged, warps exchanged."""
    known = group_products.program(F16, "sm_90a", GroupLayout(16, 16))
    operands, masks = placed(known, 1, 3)
    wanted = expected(F16, known, operands, masks)
    words = operands[3]
    mistakes = (
        words >> np.uint32(16) | words << np.uint32(16),
        words.reshape(-1, 2)[:, ::-1].reshape(words.shape),
        words.reshape(4, 32)[::-1].reshape(words.shape),
    )
    for wrong in mistakes:
        legal = wrong.copy()
        legal.reshape(-1, 4)[:, 2:] = 0
        legal.reshape(-1, 4)[:, :2] = np.where(
            legal.reshape(-1, 4)[:, :2] == 0, 0x44444444, legal.reshape(-1, 4)[:, :2]
        )
        assert (ran(known, [*operands[:3], legal]) != wanted).any()


def test_only_rows_of_b_that_the_metadata_selects_have_an_effect() -> None:
    known = group_products.program(F16, "sm_90a", GroupLayout(0, 64))
    operands, _ = placed(known, 1, 3)
    operands[3][:] = 0x44444444  # the first two of every four
    before = ran(known, operands)
    chosen, other = operands[1].copy(), operands[1].copy()
    other[:, 2::4], other[:, 3::4] = 0x7C00, 0x7E00
    chosen[:, 1::4] = 0x7E00
    assert np.array_equal(ran(known, [operands[0], other, *operands[2:]]), before)
    assert (ran(known, [operands[0], chosen, *operands[2:]]) == 0x7FFFFFFF).all()


# refusals ---------------------------------------------------------------------------------------------------------

D, A = "{%f0, %f1, %f2, %f3}", "{%r0, %r0, %r0, %r0}"
LINE = f"{HEAD}m64n8k32.f32.f16.f16 {D}, {A}, %q0, %m0, 0, %p1, 1, 1, 0;"


def kernel(
    body: str, metadata: str = "mov.b32 %m0, 0x44444444;", visible: str = "fence.proxy.async; bar.sync 0;"
) -> None:
    """Run a block of one warpgroup; b is a kilobyte of zeros."""
    run_kernel(
        f"""
.version 8.8
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) .reqntid 128
{{
.reg .f32 %f<4>; .reg .b32 %r<4>; .reg .b32 %m<3>; .reg .b64 %q<3>; .reg .pred %p<2>;
.shared .align 1024 .b8 space[1024];
mov.u32 %r1, %tid.x; shl.b32 %r1, %r1, 3; mov.u32 %r2, space; add.u32 %r2, %r2, %r1; mov.b64 %q1, 0;
st.shared.b64 [%r2], %q1; mov.u32 %r1, space; shr.u32 %r1, %r1, 4; cvt.u64.u32 %q0, %r1;
mov.b64 %q1, {(128 >> 4) << 16 | (128 >> 4) << 32}; or.b64 %q0, %q0, %q1; mov.b32 %r0, 0x3c003c00;
mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0; setp.eq.u32 %p1, 0, 0;
{metadata}
{visible}
{body}
ld.param.u64 %q2, [out]; st.global.f32 [%q2], %f0;
ret;
}}
""",
        [Buffer(np.zeros(1, np.float32), "out")],
        (1,),
        races=True,
    )


DONE = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
FENCE = "wgmma.fence.sync.aligned;"


def test_a_correct_kernel_runs() -> None:
    kernel(f"{FENCE} {LINE} {DONE}")


@pytest.mark.parametrize("warps", [1, 3], ids=["the first warp", "all but the last warp"])
def test_a_proxy_fence_that_some_warps_do_not_wait_for_is_reported(warps: int) -> None:
    """All four warps execute a product, so each must be ordered behind a fence of what any warp wrote."""
    late = f"mov.u32 %r3, %tid.x; setp.lt.u32 %p0, %r3, {32 * warps}; bar.sync 0; @%p0 fence.proxy.async;"
    with pytest.raises(MemoryFault, match=r"no fence\.proxy\.async lies between"):
        kernel(f"{FENCE} {LINE} {DONE}", visible=late)
    kernel(f"{FENCE} {LINE} {DONE}", visible=f"{late} bar.sync 0;")
    kernel(f"{FENCE} {LINE} {DONE}", visible="bar.sync 0; fence.proxy.async;")


@pytest.mark.parametrize("descending", [0x11111111, 0xBBBBBBBB, 0x66666666])
def test_indices_of_metadata_may_descend(descending: int) -> None:
    """ISA 9.7.15.6.1: only two equal indices are invalid."""
    kernel(f"{FENCE} {LINE} {DONE}", f"mov.b32 %m0, {descending};")


@pytest.mark.parametrize("equal", [0b0000, 0b0101, 0b1010, 0b1111])
def test_invalid_metadata_is_reported(equal: int) -> None:
    set_one = f"mov.b32 %m0, 0x44444444; mov.u32 %r3, %tid.x; setp.eq.u32 %p0, %r3, {32 * 2 + 4 * 3 + 1};"
    set_one += f" @%p0 mov.b32 %m0, {0x44444444 & ~(15 << 20) | equal << 20};"
    words = rf"thread 77 .* metadata 0b{equal:04b} for columns from 20 of row 43: .* two different indices"
    with pytest.raises(ExecutionError, match=words):
        kernel(f"{FENCE} {LINE} {DONE}", set_one)


def test_metadata_of_threads_that_the_selector_does_not_choose_is_not_read() -> None:
    odd = "mov.b32 %m0, 0x44444444; mov.u32 %r3, %tid.x; and.b32 %r3, %r3, 2; setp.eq.u32 %p0, %r3, 2;"
    kernel(f"{FENCE} {LINE} {DONE}", f"{odd} @%p0 mov.b32 %m0, 0;")
    with pytest.raises(ExecutionError, match="metadata 0b0000"):
        kernel(f"{FENCE} {LINE.replace('%m0, 0,', '%m0, 1,')} {DONE}", f"{odd} @%p0 mov.b32 %m0, 0;")


def test_undefined_metadata_is_reported() -> None:
    with pytest.raises(UndefinedBits, match="metadata of a sparse matrix"):
        kernel(f"{FENCE} {LINE} {DONE}", "")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (LINE.replace("%m0, 0,", "%m0, 2,"), "a constant from 0 to 1"),
        (LINE.replace("%m0, 0,", "%m0, %r0,"), "a constant from 0 to 1"),
        (f"{HEAD}m64n8k64.s32.s8.s8 {{%r0, %r1, %r2, %r3}}, {A}, %q0, %m0, 1, %p1;", "a constant from 0 to 0"),
        (LINE.replace("1, 1, 0;", "1, 1, 2;"), "the constant 0 or 1"),
        (LINE.replace("1, 1, 0;", "1, 0, 0;"), "the constant -1 or 1"),
        (LINE.replace(", 1, 1, 0;", ", 1, 1, 0, 0;"), "operands"),
        (f"{HEAD}m64n8k32.f32.f16.f16 {D}, {A}, %q0, %p1;", "operands"),
        (LINE.replace(A, "{%r0, %r0}"), "4"),
    ],
)
def test_wrong_operands_are_refused(line: str, words: str) -> None:
    with pytest.raises(OperandError, match=words):
        kernel(line)


@pytest.mark.parametrize("text", ["m64n8k16.f32.f16.f16", "m64n8k32.f16.bf16.bf16", "m64n40k64.s32.s8.s8"])
def test_forms_that_do_not_exist_are_refused(text: str) -> None:
    with pytest.raises(PtxError):
        kernel(LINE.replace("m64n8k32.f32.f16.f16", text))


def test_the_register_of_metadata_must_not_change_before_a_wait() -> None:
    with pytest.raises(ExecutionError, match=r"writes %m0, which the wgmma in line .* reads"):
        kernel(f"{FENCE} {LINE} mov.b32 %m0, 0; {DONE}")
    with pytest.raises(ExecutionError, match=r"wrote %m0, which this wgmma takes, and no wgmma\.fence"):
        kernel(f"{FENCE} mov.b32 %m0, 0x44444444; {LINE} {DONE}")


def test_a_swizzle_shorter_than_a_row_of_b_is_refused() -> None:
    """A row of b along k has 64 bytes."""
    wide = f"or.b64 %q0, %q0, {3 << 62}; {LINE}"
    with pytest.raises(ExecutionError, match="swizzle of 32 bytes, and 64 bytes lie along k"):
        kernel(f"{FENCE} {wide} {DONE}")


def test_a_missing_wait_is_reported() -> None:
    with pytest.raises(ExecutionError, match=r"reads %f0, .* wgmma\.wait_group"):
        kernel(f"{FENCE} {LINE} wgmma.commit_group.sync.aligned;")
