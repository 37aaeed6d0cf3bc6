"""mma.sp compared with its reference in every shape, selector and type, and errors for invalid metadata."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from ptxdiff.emulator import isa
from ptxdiff.emulator.errors import ExecutionError, OperandError, UndefinedBits
from ptxdiff.emulator.isa.forms import FORMS, Bound
from ptxdiff.references import arithmetic, tensor_core
from ptxdiff.references import sparse_tensor_core as sparse
from ptxdiff.references.conversion import convert
from ptxdiff.references.formats import BF16, E2M1, E2M3, E3M2, E4M3, E5M2, F16, F32, I8, I32, TF32, U8
from tests.support.emulator.sparse_tiles import GENERATIONS, pattern, run, target_of
from tests.support.emulator.warp_products import bits_of, of_a, of_b, of_c, run_undefined, words

isa.load()
FORMATS = {
    "f16": F16, "bf16": BF16, "tf32": TF32, "f32": F32, "e4m3": E4M3, "e5m2": E5M2, "e3m2": E3M2, "e2m3": E2M3,
    "e2m1": E2M1, "s8": I8, "u8": U8, "s4": I8, "u4": U8, "s32": I32,
}  # fmt: skip
GENERATIONS |= {"sm_120a": tensor_core.BLACKWELL}


def forms() -> list[Bound]:
    """For each shape and variant one form of each pair of a's type and d's type."""
    found: dict[tuple[str | None, ...], Bound] = {}
    for form in FORMS["mma"]:
        for bound in form.spellings() if form.operation == "mma_sp" else ():
            m = bound.modifiers
            found.setdefault((m["variant"], m["shape"], m["dtype"], m["atype"], m.get("satfinite")), bound)
    return list(found.values())


def drawn(kind: str, shape: tuple[int, int], rng: np.random.Generator) -> torch.Tensor:
    """Codes of all kinds of numbers, with few NaNs and infinities."""
    fmt = FORMATS[kind]
    codes = rng.integers(0, 1 << (4 if kind in ("s4", "u4") else fmt.code_bits), shape)
    if kind in ("f16", "bf16", "tf32", "f32"):
        low = fmt.mantissa_bits + fmt.ignored_bits
        exponent = rng.integers(fmt.bias - 6, fmt.bias + 6, shape)
        codes = rng.integers(0, 2, shape) << (fmt.code_bits - 1) | exponent << low | rng.integers(0, 1 << low, shape)
        codes = np.where(rng.random(shape) < 0.1, 0, codes)
    return torch.from_numpy(codes.astype(np.int64))


def operands(bound: Bound, seed: int, selector: int) -> tuple[list[np.ndarray], torch.Tensor]:
    """Registers of a, b, c and the metadata of one warp, and the codes of d."""
    m = bound.modifiers
    shape, d, a, b = (m[x] or "" for x in ("shape", "dtype", "atype", "btype"))
    k, bits = int(shape.rpartition("k")[2]), bits_of(a)
    rng = np.random.default_rng(seed)
    dense, other, more = drawn(a, (16, k), rng), drawn(b, (k, 8), rng), drawn(d, (16, 8), rng)
    mask = pattern(rng, bits, k)
    registers = [
        words(sparse.stored(dense, mask), a, of_a(bits), k * bits // 128),
        words(other, b, of_b(bits), k * bits // 128),
        words(more, d, of_c(bits_of(d)), 4 * bits_of(d) // 32),
    ]
    registers.append(sparse.metadata(sparse.indices(mask, bits), bits, k, selector).numpy().astype(np.uint32)[None])
    expected = sparse.dot(dense, mask, other, more, dense_product(bound, d, a, b))
    return registers, expected


def dense_product(bound: Bound, d: str, a: str, b: str) -> Callable[..., torch.Tensor]:
    if d == "s32":

        def integers(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
            saturate = bound.modifiers["satfinite"] is not None
            x, y = (v | (0xF0 * (v >> 3)) if t == "s4" else v for v, t in ((x, a), (y, b)))
            return tensor_core.dot_integer(x, y, z, a_format=FORMATS[a], b_format=FORMATS[b], to=I32, saturate=saturate)

        return integers
    formats = {"a_format": FORMATS[a], "b_format": FORMATS[b], "c_format": FORMATS[d], "d_format": FORMATS[d]}
    return lambda x, y, z: tensor_core.dot(x, y, z, **formats, generation=GENERATIONS[target_of(bound)])


def wanted(expected: torch.Tensor, d: str) -> np.ndarray:
    return np.asarray(expected.numpy() & ((1 << bits_of(d)) - 1))


def places_of(bound: Bound) -> tuple[int, int]:
    """Bits of an element of a, and k."""
    return bits_of(bound.modifiers["atype"] or ""), int((bound.modifiers["shape"] or "").rpartition("k")[2])


FIRST = {(places_of(b), b.modifiers["variant"]): b for b in reversed(forms())}
"""The first form of each variant with each size of elements and each k."""


@pytest.mark.sample(8)
@pytest.mark.parametrize("bound", forms(), ids=lambda b: b.spelling.removeprefix("mma."))
def test_the_emulator_and_the_reference_agree(bound: Bound) -> None:
    """Each selector of each size of elements and each k, which decide where metadata is; other forms have one."""
    m = bound.modifiers
    selectors = range(sparse.selectors(*places_of(bound)))
    number = forms().index(bound)
    for selector in selectors if bound in FIRST.values() else [number % len(selectors)]:
        registers, expected = operands(bound, 7 + selector, selector)
        np.testing.assert_array_equal(run(bound, registers, selector), wanted(expected, m["dtype"] or ""))


def form(text: str) -> Bound:
    return next(b for b in forms() if b.spelling == text)


HALF = "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WIDE = "mma.sp::ordered_metadata.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
PLAIN = HALF.replace("::ordered_metadata", "")


def test_the_other_selector_gives_other_bits() -> None:
    """All four threads of a group hold metadata, each of another matrix."""
    bound = form(HALF)
    registers, expected = operands(bound, 3, 2)
    for selector in range(4):
        registers[3] |= operands(bound, 20 + selector, selector)[0][3] if selector != 2 else registers[3]
    found = [run(bound, registers, selector) for selector in range(4)]
    np.testing.assert_array_equal(found[2], wanted(expected, "f32"))
    assert all((found[s] != found[2]).any() for s in (0, 1, 3))


def test_exchanged_metadata_gives_other_bits() -> None:
    bound = form(HALF)
    registers, expected = operands(bound, 3, 0)
    halves = registers[3] >> 16 | registers[3] << np.uint32(16)
    assert (run(bound, [*registers[:3], halves], 0) != wanted(expected, "f32")).any()


def test_invalid_metadata_is_reported() -> None:
    registers, _ = operands(form(HALF), 3, 0)
    for bad in (0b0000, 0b0001, 0b1011):
        registers[3][0, 8] = registers[3][0, 8] & ~np.uint32(0xF0) | np.uint32(bad << 4)
        with pytest.raises(ExecutionError, match=rf"thread 8 .* metadata 0b{bad:04b} for columns from 4 of row 2"):
            run(form(HALF), registers, 0)
    registers, _ = operands(form(WIDE), 3, 0)
    registers[3][0, 0] = registers[3][0, 0] & ~np.uint32(15) | np.uint32(0b1001)
    with pytest.raises(ExecutionError, match="only 0b0100 and 0b1110"):
        run(form(WIDE), registers, 0)


def test_indices_may_descend_only_without_ordered_metadata() -> None:
    """Two stored elements are exchanged together with their indices: only `.sp` allows that."""
    bound = form(PLAIN)
    registers, expected = operands(bound, 3, 0)
    registers[0] = registers[0] >> 16 | registers[0] << np.uint32(16)
    chunk = registers[3]
    registers[3] = (chunk >> np.uint32(2) & np.uint32(0x33333333)) | (chunk & np.uint32(0x33333333)) << np.uint32(2)
    np.testing.assert_array_equal(run(bound, registers, 0), wanted(expected, "f32"))
    with pytest.raises(ExecutionError, match="two indices that rise"):
        run(form(HALF), registers, 0)


def test_selectors_that_a_shape_does_not_have_are_refused() -> None:
    registers, _ = operands(form(HALF.replace("k16", "k32")), 3, 0)
    with pytest.raises(OperandError, match="a constant from 0 to 1"):
        run(form(HALF.replace("k16", "k32")), registers, 2)


@pytest.mark.parametrize(
    ("target", "a", "b", "head"),
    [
        ("sm_90a", "e4m3", "e4m3", "mma.sp"), ("sm_90a", "e5m2", "e4m3", "mma.sp::ordered_metadata"),
        ("sm_100a", "e4m3", "e4m3", "mma.sp::ordered_metadata"),
    ],
)  # fmt: skip
def test_floats_of_8_bits_are_widened_to_float16(target: str, a: str, b: str, head: str) -> None:
    """ptxas makes two products of float16, of the even and of the odd chunks, and an addition at the end."""
    bound = form(f"{head}.sync.aligned.m16n8k64.row.col.f32.{a}.{b}.f32")
    generation = tensor_core.HOPPER if target == "sm_90a" else tensor_core.BLACKWELL

    def product(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        left, right = convert(x, source=FORMATS[a], target=F16), convert(y, source=FORMATS[b], target=F16)
        total = torch.zeros_like(z)
        for odd in (0, 1):  # a chunk has two stored elements
            some = torch.arange(x.shape[1]) // 2 % 2 == odd
            formats = {"a_format": F16, "b_format": F16, "c_format": F32, "d_format": F32}
            total = tensor_core.dot(left[:, some], right[some], total, **formats, generation=generation)
        return arithmetic.add(z, total, fmt=F32)

    rng = np.random.default_rng(8)
    dense, other, more = drawn(a, (16, 64), rng), drawn(b, (64, 8), rng), drawn("f32", (16, 8), rng)
    mask = pattern(rng, 8, 64)
    registers = [
        words(sparse.stored(dense, mask), a, of_a(8), 4), words(other, b, of_b(8), 4), words(more, "f32", of_c(32), 4),
        sparse.metadata(sparse.indices(mask, 8), 8, 64, 0).numpy().astype(np.uint32)[None],
    ]  # fmt: skip
    expected = sparse.dot(dense, mask, other, more, product)
    np.testing.assert_array_equal(run(bound, registers, 0, target), wanted(expected, "f32"))
    in_one = sparse.dot(dense, mask, other, more, dense_product(bound, "f32", a, b))
    assert (expected != in_one).any(), "one block would give other bits"


def test_undefined_metadata_is_reported() -> None:
    with pytest.raises(UndefinedBits, match="metadata of a sparse matrix"):
        run_undefined(f"{HALF} {{%r4, %r5, %r6, %r7}}, {{%r1, %r1}}, {{%r1, %r1}}, {{%r1, %r1, %r1, %r1}}, %r2, 0;")
