"""Block-scaled mma compared with its reference, in every kind and with every selector, and mistakes in kernels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from ptxdiff.emulator import isa
from ptxdiff.emulator.errors import ExecutionError, OperandError, UndefinedBits, UnsupportedOnTarget
from ptxdiff.emulator.isa.forms import FORMS, Bound
from ptxdiff.references import scaled_tensor_core as scaled
from tests.support.emulator.scaled_tiles import FORMATS, drawn, scales
from tests.support.emulator.warp_products import launched, of_a, of_b, of_c, run_undefined, words

isa.load()


def forms() -> dict[str, Bound]:
    found = [b for form in FORMS["mma"] if form.operation == "mma_scaled" for b in form.spellings()]
    return {b.spelling.removeprefix("mma.sync.aligned."): b for b in found}


def blocks_of(bound: Bound) -> int:
    return next((n for n in (1, 2, 4) if f"scale_vec::{n}X" in bound.spelling), 1 if "f8" in bound.spelling else 2)


def operands(
    bound: Bound, seed: int, a_place: tuple[int, int], b_place: tuple[int, int]
) -> tuple[list[np.ndarray], np.ndarray]:
    """Registers of a, b, c and both scales, and the codes of d. a_place, b_place: byte and thread of the scales."""
    m = bound.modifiers
    a, b, kind = (m[x] or "" for x in ("atype", "btype", "stype"))
    k, rng = int((m["shape"] or "").rpartition("k")[2]), np.random.default_rng(seed)
    specials = seed % 4 == 0
    left, right = drawn(a, (16, k), rng, specials), drawn(b, (k, 8), rng, specials)
    exponent, low = rng.integers(112, 142, (16, 8)), rng.integers(0, 1 << 23, (16, 8))
    more = torch.from_numpy(rng.integers(0, 2, (16, 8)) << 31 | exponent << 23 | low)
    blocks = blocks_of(bound)
    of_rows, of_columns = (scales(kind, (n, blocks), rng, 9) for n in (16, 8))
    bits = 4 if k == 64 else 8
    registers = [
        words(left, a if bits == 8 else "u4", of_a(bits), 4, bits),
        words(right, b if bits == 8 else "u4", of_b(bits), 2, bits),
    ]
    registers.append(words(more, "f32", of_c(32), 4))
    registers.append(scaled.scale_words(of_rows, *a_place, 16).numpy().astype(np.uint32)[None])
    registers.append(scaled.scale_words(of_columns, *b_place, 8).numpy().astype(np.uint32)[None])
    formats = {"a_format": FORMATS[a], "b_format": FORMATS[b], "scale": kind, "grouped": k == 64}
    return registers, scaled.dot(left, right, more, of_rows, of_columns, **formats).numpy()


def run(bound: Bound, registers: list[np.ndarray], a: tuple[object, object], b: tuple[object, object]) -> np.ndarray:
    behind = f"{{3}}, {{{{{a[0]}, {a[1]}}}}}, {{4}}, {{{{{b[0]}, {b[1]}}}}}"
    return launched(bound, registers, behind, "sm_120a")


def names() -> list[str]:
    """All forms that name the size of the scales' vector, and one form of each kind that may omit it."""
    found = [name for name in forms() if "scale_vec" in name]
    return [*found, *(next(n for n in forms() if f"{kind}.block_scale.f32" in n) for kind in ("mxf8f6f4", "mxf4"))]


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", names())
def test_the_emulator_and_the_reference_agree(name: str) -> None:
    bound, seed = forms()[name], sum(map(ord, name))
    a, b = ((4 - blocks_of(bound), 1), (4 - blocks_of(bound), 3)) if seed % 2 else ((0, 0), (0, 0))
    registers, expected = operands(bound, seed, a, b)
    np.testing.assert_array_equal(run(bound, registers, a, b), expected)


MX8 = "m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e5m2.f32.ue8m0"
MX4 = "m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0"
NV4 = "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"


@pytest.mark.sample(3)
@pytest.mark.parametrize(("name", "bytes_"), [(MX8, (0, 1, 2, 3)), (MX4, (0, 2)), (NV4, (0,))])
def test_every_selector_picks_its_scales(name: str, bytes_: tuple[int, ...]) -> None:
    """All bytes of all threads hold scales; the reference reads those of one selector, others give other bits."""
    bound = forms()[name]
    places = list(itertools.product(bytes_, range(2))), list(itertools.product(bytes_, range(4)))
    filled = [sum(operands(bound, 5 + i, p, (0, 0))[0][3] for i, p in enumerate(places[0]))]
    for number, place in enumerate(places[1][:: 3 if len(places[1]) > 4 else 1]):
        of_a = 3 * number % len(places[0])  # each byte and each thread occurs on both sides
        a = places[0][of_a]
        registers, expected = operands(bound, 5 + of_a, a, place)
        registers[3] = np.asarray(filled[0], np.uint32)
        found = run(bound, registers, a, place)
        np.testing.assert_array_equal(found, expected)
        for wrong in places[0]:
            if wrong != a:
                assert (run(bound, registers, wrong, place) != expected).any(), wrong
        for wrong in places[1]:
            if wrong != place:
                assert (run(bound, registers, a, wrong) != expected).any(), wrong


def test_selectors_may_be_registers() -> None:
    bound = forms()[MX8]
    registers, expected = operands(bound, 5, (2, 1), (1, 2))
    np.testing.assert_array_equal(run(bound, registers, ("%h2", "%h1"), ("%h1", "%h2")), expected)
    with pytest.raises(ExecutionError, match="all threads name the same"):
        run(bound, registers, ("%h3", "%h1"), ("%h1", "%h2"))
    with pytest.raises(ExecutionError, match="byte 1 and thread 2, which are none"):
        run(bound, registers, ("%h1", "%h2"), (0, 0))


def test_wrong_selectors_are_refused() -> None:
    registers, _ = operands(forms()[MX4], 5, (0, 0), (0, 0))
    for a, b, words_ in (
        ((1, 0), (0, 0), "one of 0, 2, not 1"),
        ((0, 2), (0, 0), "one of 0, 1, not 2"),
        ((0, 0), (0, 4), "0, 1, 2, 3"),
    ):
        with pytest.raises(OperandError, match=words_):
            run(forms()[MX4], registers, a, b)
    registers, _ = operands(forms()[NV4], 5, (0, 0), (0, 0))
    with pytest.raises(OperandError, match="one of 0, not 2"):
        run(forms()[NV4], registers, (0, 0), (2, 0))


def test_targets_without_block_scales_refuse_them() -> None:
    registers, _ = operands(forms()[MX8], 5, (0, 0), (0, 0))
    with pytest.raises(UnsupportedOnTarget):
        launched(forms()[MX8], registers, "{3}, {{0, 0}}, {4}, {{0, 0}}", "sm_100a")


def test_undefined_scales_are_reported() -> None:
    four = "{%r1, %r1, %r1, %r1}"
    text = f"mma.sync.aligned.{MX8} {{%r4, %r5, %r6, %r7}}, {four}, {{%r1, %r1}}, {four}, %r1, {{0, 0}}, %r2, {{0, 0}};"
    with pytest.raises(UndefinedBits, match="the scales of a matrix"):
        run_undefined(text, "sm_120a")
