"""mma.sp with block scales compared with its reference, in every kind and type, and mistakes in kernels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from ptxdiff.emulator import isa
from ptxdiff.emulator.errors import ExecutionError, OperandError, UndefinedBits, UnsupportedOnTarget
from ptxdiff.emulator.isa.forms import FORMS, Bound
from ptxdiff.references import scaled_tensor_core as scaled
from ptxdiff.references import sparse_metadata, sparse_tensor_core
from tests.support.emulator.scaled_tiles import FORMATS, drawn, scales
from tests.support.emulator.sparse_tiles import pattern
from tests.support.emulator.warp_products import launched, of_a, of_b, of_c, run_undefined, words

isa.load()


def forms() -> dict[str, Bound]:
    found = [b for form in FORMS["mma"] if form.operation == "mma_sp_scaled" for b in form.spellings()]
    return {b.spelling.removeprefix("mma.sp::ordered_metadata.sync.aligned."): b for b in found}


def k_of(bound: Bound) -> int:
    return int((bound.modifiers["shape"] or "").rpartition("k")[2])


def blocks_of(bound: Bound) -> int:
    """A scale covers 64 elements along k, with scale_vec::4X 32 (CUTLASS, mma_sm120_sparse.hpp: VS)."""
    return k_of(bound) // (32 if "scale_vec::4X" in bound.spelling else 64)


def operands(
    bound: Bound, seed: int, a_place: tuple[int, int] = (0, 0), b_place: tuple[int, int] = (0, 0)
) -> tuple[list[np.ndarray], np.ndarray]:
    """Registers of a, b, c, metadata and scales, and the codes of d. a_place, b_place: byte and thread of scales."""
    m = bound.modifiers
    a, b, kind = (m[x] or "" for x in ("atype", "btype", "stype"))
    k, rng = k_of(bound), np.random.default_rng(seed)
    bits = 4 if k == 128 else 8
    left, right = drawn(a, (16, k), rng, seed % 4 == 0), drawn(b, (k, 8), rng, seed % 4 == 0)
    exponent, low = rng.integers(112, 142, (16, 8)), rng.integers(0, 1 << 23, (16, 8))
    more = torch.from_numpy(rng.integers(0, 2, (16, 8)) << 31 | exponent << 23 | low)
    of_rows, of_columns = (scales(kind, (n, blocks_of(bound)), rng, 9) for n in (16, 8))
    kept = pattern(rng, bits, k)
    types = (a, b) if bits == 8 else ("u4", "u4")
    chunks = sparse_tensor_core.indices(kept, bits)
    registers = [
        words(sparse_tensor_core.stored(left, kept), types[0], of_a(bits), 4, bits),
        words(right, types[1], of_b(bits), 4, bits),
        words(more, "f32", of_c(32), 4),
        sparse_metadata.words(chunks, bits, k, 0).numpy().astype(np.uint32)[None],
        scaled.scale_words(of_rows, *a_place, 16).numpy().astype(np.uint32)[None],
        scaled.scale_words(of_columns, *b_place, 8).numpy().astype(np.uint32)[None],
    ]
    formats = {"a_format": FORMATS[a], "b_format": FORMATS[b], "scale": kind, "grouped": bits == 4}
    return registers, scaled.dot_sparse(left, kept, right, more, of_rows, of_columns, **formats).numpy()


def run(
    bound: Bound, registers: list[np.ndarray], a: tuple[object, object] = (0, 0), b: tuple[object, object] = (0, 0),
    selector: object = 0, target: str = "sm_120a",
) -> np.ndarray:  # fmt: skip
    behind = f"{{3}}, {selector}, {{4}}, {{{{{a[0]}, {a[1]}}}}}, {{5}}, {{{{{b[0]}, {b[1]}}}}}"
    return launched(bound, registers, behind, target)


NAMES = [name for name in forms() if "scale_vec" in name]


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", NAMES)
def test_the_emulator_and_the_reference_agree(name: str) -> None:
    bound, seed = forms()[name], sum(map(ord, name))
    a, b = ((4 - blocks_of(bound), 1), (4 - blocks_of(bound), 3)) if seed % 2 else ((0, 0), (0, 0))
    registers, expected = operands(bound, seed, a, b)
    np.testing.assert_array_equal(run(bound, registers, a, b), expected)


MX8 = "m16n8k64.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e5m2.f32.ue8m0"
MX4 = "m16n8k128.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0"
NV4 = "m16n8k128.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"


@pytest.mark.sample(2)
@pytest.mark.parametrize("step", [pytest.param(5, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [MX8, MX4, NV4])
def test_edges(name: str, step: int) -> None:
    """Zeros, subnormals, the largest of each sign, sums that cancel, and scales at both ends of their range.

    Every fifth of the 27 combinations has each edge of each operand at least once.
    """
    bound = forms()[name]
    every = itertools.product((0x00, 0x01, 0x7E), (0, 0x80000001, 0x7F7FFFFF), (0x00, 0x7E, 0xFE))
    for seed, (of_a_code, of_c_code, of_scale) in list(enumerate(every))[::step]:
        found = edge(bound, of_a_code, of_c_code, of_scale, seed)
        np.testing.assert_array_equal(run(bound, found[0]), found[1], err_msg=f"{of_a_code:#x} {of_c_code:#x}")


def edge(bound: Bound, code: int, accumulator: int, of_scale: int, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    m, k, rng = bound.modifiers, k_of(bound), np.random.default_rng(seed)
    a, b, kind = (m[x] or "" for x in ("atype", "btype", "stype"))
    bits = 4 if k == 128 else 8
    mask = (1 << FORMATS[a].code_bits) - 1
    sign = 1 << FORMATS[a].code_bits - 1
    left = torch.full((16, k), code & mask)
    right = torch.full((k, 8), 0x01)
    right[: k // 2] |= 1 << FORMATS[b].code_bits - 1  # so that the two halves cancel
    left[8:] ^= torch.from_numpy(rng.integers(0, 2, (8, k))) * sign
    more = torch.full((16, 8), accumulator)
    of_rows = torch.full((16, blocks_of(bound)), of_scale & (0x7E if kind == "ue4m3" else 0xFE))
    of_columns = torch.full((8, blocks_of(bound)), 0x38 if kind == "ue4m3" else 127)
    kept = pattern(rng, bits, k)
    types = (a, b) if bits == 8 else ("u4", "u4")
    registers = [
        words(sparse_tensor_core.stored(left, kept), types[0], of_a(bits), 4, bits),
        words(right, types[1], of_b(bits), 4, bits), words(more, "f32", of_c(32), 4),
        sparse_metadata.words(sparse_tensor_core.indices(kept, bits), bits, k, 0).numpy().astype(np.uint32)[None],
        scaled.scale_words(of_rows, 0, 0, 16).numpy().astype(np.uint32)[None],
        scaled.scale_words(of_columns, 0, 0, 8).numpy().astype(np.uint32)[None],
    ]  # fmt: skip
    formats = {"a_format": FORMATS[a], "b_format": FORMATS[b], "scale": kind, "grouped": bits == 4}
    return registers, scaled.dot_sparse(left, kept, right, more, of_rows, of_columns, **formats).numpy()


@pytest.mark.parametrize("name", [MX8, MX4, NV4])
def test_each_operand_matters(name: str) -> None:
    """Metadata and scales of other rows or columns give other bits."""
    bound = forms()[name]
    registers, expected = operands(bound, 5)
    for number in (3, 4, 5):
        changed = [np.roll(r, 4, axis=1) if i == number else r for i, r in enumerate(registers)]
        assert (run(bound, changed) != expected).any(), number


def test_exchanged_scales_of_a_row_give_other_bits() -> None:
    """A scale belongs to columns of the full row, not to a range of stored elements."""
    registers, expected = operands(forms()[MX4], 5)
    swapped = registers[4] >> np.uint32(8) & np.uint32(0xFF) | (registers[4] & np.uint32(0xFF)) << np.uint32(8)
    assert (run(forms()[MX4], [*registers[:4], swapped, registers[5]]) != expected).any()


def test_wrong_selectors_are_refused() -> None:
    registers, _ = operands(forms()[MX4], 5)
    for a, b, said in (((1, 0), (0, 0), "one of 0, 2, not 1"), ((0, 2), (0, 0), "one of 0, 1, not 2")):
        with pytest.raises(OperandError, match=said):
            run(forms()[MX4], registers, a, b)
    for selector in (1, "%r1"):
        with pytest.raises(OperandError, match="the sparsity selector is the constant 0"):
            run(forms()[MX4], registers, selector=selector)


def test_invalid_metadata_is_reported() -> None:
    registers, _ = operands(forms()[MX8], 5)
    registers[3][0, 8] = registers[3][0, 8] & ~np.uint32(0xF0)
    with pytest.raises(ExecutionError, match="metadata 0b0000 for columns from 4 of row 2"):
        run(forms()[MX8], registers)


def test_targets_without_the_form_refuse_it() -> None:
    registers, _ = operands(forms()[MX8], 5)
    for target in ("sm_100a", "sm_90a"):
        with pytest.raises(UnsupportedOnTarget):
            run(forms()[MX8], registers, target=target)


def test_undefined_scales_and_metadata_are_reported() -> None:
    four = "{%r1, %r1, %r1, %r1}"
    head = f"mma.sp::ordered_metadata.sync.aligned.{MX8} {{%r4, %r5, %r6, %r7}}, {four}, {four}, {four}, "
    with pytest.raises(UndefinedBits, match="metadata of a sparse matrix"):
        run_undefined(head + "%r2, 0, %r1, {0, 0}, %r1, {0, 0};", "sm_120a")
    with pytest.raises(UndefinedBits, match="the scales of a matrix"):
        run_undefined(f"mov.b32 %r3, 0x44444444; {head} %r3, 0, %r1, {{0, 0}}, %r2, {{0, 0}};", "sm_120a")
