"""`blocks/1`: typical values for kernels with block maxima and scales, made only from formats and shapes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import triton
import triton.language as tl

from ptxdiff import Case, kernel
from ptxdiff.inputs import kernel_sets
from ptxdiff.inputs.fill import kernel_inputs
from ptxdiff.inputs.kernel_sets import KINDS, kinds_of
from ptxdiff.model.arguments import codes_of
from ptxdiff.model.load import load
from ptxdiff.model.reference import apply_reference
from ptxdiff.references.formats import (
    BF16,
    E2M1X2,
    E4M3,
    E4M3X4,
    E5M2,
    F16,
    F32,
    F64,
    FORMATS,
    I32,
    TF32,
    U8,
    UE8M0,
    is_infinity,
    is_nan,
    is_zero,
    magnitude,
    sign,
    to_float64,
    unpack,
)
from ptxdiff.running.plan import plan

QUANTIZE = Path(__file__).parents[2] / "cases" / "nvfp4_quantize.py"
Codes = np.ndarray
Wrong = Callable[[Codes, Codes, Codes], tuple[Codes, Codes]]


@triton.jit
def copied(x, s):
    """A kernel that is never run."""
    tl.store(s, tl.load(x))


def of_shape(*dims, sizes, fmt=BF16, **more) -> Case:
    return Case(
        inputs={"x": fmt[dims], **more},
        outputs={"s": E4M3[dims]},
        reference=lambda *x: x[0],
        sizes=sizes,
        variants={"v": kernel(copied, grid=lambda s: (1,))},
    )


# ---- Wrong references of the shipped NVFP4 case ------------------------------------------------------------


@functools.cache
def quantize() -> Case:
    return load(QUANTIZE)[0].case


@functools.cache
def answered(set_name: str) -> list[tuple[Codes, Codes, Codes]]:
    """For each size: values in blocks, e2m1 codes in blocks, scales."""
    case, found = quantize(), []
    for sizes in case.sizes:
        codes = codes_of(case.inputs, kernel_inputs(case, set_name, sizes))
        right = apply_reference(case, case.reference, codes)
        blocks = to_float64(BF16, codes["x"]).reshape(-1, 16)
        found.append((blocks, right["q"].reshape(-1, 16), right["s"].reshape(-1)))
    return found


def largest(x: Codes) -> Codes:
    return np.max(np.where(np.isnan(x), 0, np.abs(x)), axis=1)


def zero_scale_is_one(x, q, s):
    return q, np.where(np.all(x == 0, axis=1), 0x38, s)


def nan_saturates_the_scale(x, q, s):
    return q, np.where(np.isnan(x).any(axis=1), 0x7E, s)


def tiny_scales_are_flushed(x, q, s):
    return q, np.where(s < 8, 0, s)


def smallest_scale_is_lost(x, q, s):
    return q, np.where(s == 1, 0, s)


def scales_are_truncated(x, q, s):
    exact = np.minimum(largest(x) * 4, 448)
    return q, np.where(to_float64(E4M3, s) > exact, s - 1, s)


def negative_zeros_lose_their_sign(x, q, s):
    return np.where(np.all((x == 0) & np.signbit(x), axis=1)[:, None], 0, q), s


def ties_go_to_odd_unless_the_scale_saturates(x, q, s):
    """If the scale is saturated, some products with its rounded inverse reach a midpoint."""
    wide = to_float64(E4M3, s).astype(np.float32)
    with np.errstate(all="ignore"):
        scaled = np.abs(x.astype(np.float32) * np.where(wide == 0, np.float32(0), np.float32(24) / wide)[:, None])
    for below, middle in enumerate((0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)):
        odd = below if below % 2 else below + 1
        q = np.where((scaled == middle) & (s < 0x7E)[:, None], odd | (q & 8), q)
    return q, s


WRONG_QUANTISATIONS = [
    zero_scale_is_one,
    nan_saturates_the_scale,
    tiny_scales_are_flushed,
    smallest_scale_is_lost,
    scales_are_truncated,
    negative_zeros_lose_their_sign,
    ties_go_to_odd_unless_the_scale_saturates,
]


def detects(wrong: Wrong, set_name: str) -> bool:
    """Whether, for any size, the set's inputs give the wrong reference another output."""
    return any(
        not (np.array_equal(q, other[0]) and np.array_equal(s, other[1]))
        for x, q, s in answered(set_name)
        for other in [wrong(x, q, s)]
    )


@pytest.mark.parametrize("wrong", WRONG_QUANTISATIONS, ids=lambda f: f.__name__)
def test_blocks_detect_wrong_quantisations_that_edges_miss(wrong):
    assert [detects(wrong, name) for name in ("edges/1", "blocks/1")] == [False, True]


# ---- The set -------------------------------------------------------------------------------------------------


@functools.cache
def uncut_rows(fmt, width: int) -> Codes:
    """Every third row of a tensor with many rows: one run each."""
    case = of_shape("M", "N", sizes=[{"M": 600, "N": width}], fmt=fmt)
    return unpack(fmt, kernel_inputs(case, "blocks/1", case.sizes[0])["x"])[2::3]


def whole_rows(fmt, kind: str, width: int = 40) -> Codes:
    order = kinds_of(fmt.single, "input 0")
    return uncut_rows(fmt, width)[order.index(kind) :: len(order)]


@pytest.mark.sample(3)
@pytest.mark.parametrize("fmt", [f for f in FORMATS.values() if f.is_float], ids=lambda f: f.name)
def test_the_kinds_have_the_values_of_their_names(fmt):
    single = fmt.single
    kinds = kinds_of(single, "input 0")
    expected = set(KINDS)
    expected -= set() if single.has_zero else {"zeros"}
    expected -= set() if single.has_zero and single.has_sign else {"negative zeros"}
    expected -= {"NaN"} if single.nan == "none" else set()
    expected -= set() if single.infinity else {"infinity"}
    assert set(kinds) == expected
    for kind in kinds:
        rows = whole_rows(fmt, kind)
        assert len(rows) >= 10
        nans, infinities = is_nan(single, rows).sum(axis=1), is_infinity(single, rows).sum(axis=1)
        assert (nans == (kind == "NaN")).all()
        assert (infinities == (kind == "infinity")).all()
        sizes = magnitude(single, rows)
        finite = np.where(is_nan(single, rows) | is_infinity(single, rows), 0, sizes)
        if kind in ("zeros", "negative zeros"):
            assert is_zero(single, rows).all()
            signs = sign(single, rows)
            assert signs.all() if kind == "negative zeros" else not single.has_sign or 0 < signs.mean() < 1
        if kind == "equal":
            assert (rows == rows[:, :1]).all()
        if kind in ("NaN", "infinity"):
            assert (finite > 0).any(axis=1).all()
    binade = 1 << single.mantissa_bits
    smallest = single.min_normal >> single.ignored_bits
    tiny, large = (magnitude(single, whole_rows(fmt, k)).max(axis=1) for k in ("tiny", "large"))
    assert (tiny <= smallest + binade).any()
    if single.has_zero:
        assert (tiny < smallest).any()
    assert (large == single.max_finite >> single.ignored_bits).any()
    powers = magnitude(single, whole_rows(fmt, "powers of two"))
    assert (np.isin(powers % binade, [0, 1, binade - 1])).all()
    huge = np.sort(magnitude(single, whole_rows(fmt, "huge among tiny")), axis=1)
    assert (huge[:, -1] > huge[:, -2]).any()


@pytest.mark.parametrize("fmt", [BF16, F16, F32, F64, TF32], ids=lambda f: f.name)
@pytest.mark.parametrize(("top", "halves"), [(6.0, (0.25, 1.75, 2.5, 5.0)), (7.0, (3.5, 6.5)), (127.0, (63.5, 126.5))])
def test_ties_are_midpoints_of_a_grid_that_ends_at_the_largest(fmt, top, halves):
    rows = np.abs(to_float64(fmt, whole_rows(fmt, "ties", 400)))
    relative = rows / rows.max(axis=1, keepdims=True)
    held = [any(half / top in row for row in relative) for half in halves]
    assert all(held)


def test_tiny_and_large_runs_straddle_the_limits_of_the_declared_formats():
    """s is e4m3: a scale of x's maximum underflows and overflows at e4m3's limits, far from x's own."""
    tiny, large = (np.abs(to_float64(F32, whole_rows(F32, k))).max(axis=1) for k in ("tiny", "large"))
    for limit, found in ((2.0**-9, tiny), (2.0**-6, tiny), (448.0, large)):
        assert ((found >= limit / 16) & (found < limit)).any()
        assert ((found > limit) & (found <= limit * 16)).any()


def test_runs_are_16_32_and_whole_rows():
    case = of_shape("M", "N", sizes=[{"M": 3, "N": 96}], fmt=F32)
    order = kinds_of(F32, "input 0")
    x = unpack(F32, kernel_inputs(case, "blocks/1", case.sizes[0])["x"])
    zeros = [
        (x[row, k * length : (k + 1) * length] & 0x7FFFFFFF == 0).all()
        for row, length in ((0, 16), (1, 32), (2, 96))
        for k in range(96 // length)
    ]
    wanted = [order[k % len(order)] in ("zeros", "negative zeros") for runs in (6, 3, 1) for k in range(runs)]
    assert zeros == wanted


def test_each_size_continues_where_the_previous_one_stopped():
    """One row of 16 holds one run. Twelve such sizes hold every kind of bfloat16, though each holds only one."""
    sizes = [{"M": 1, "N": 16, "K": k} for k in range(3 * len(KINDS))]
    case = of_shape("M", "N", sizes=sizes)
    runs = [unpack(BF16, kernel_inputs(case, "blocks/1", s)["x"]).reshape(16) for s in case.sizes]
    order = kinds_of(BF16, "input 0")
    for k, kind in enumerate(order):
        for run in runs[3 * k : 3 * k + 3]:  # runs of 16, of 32 and of a whole row: here each is the row
            assert is_nan(BF16, run).any() == (kind == "NaN")
            assert is_zero(BF16, run).all() == (kind in ("zeros", "negative zeros"))


@pytest.mark.parametrize("fmt", [BF16, F32, E4M3, E2M1X2, E4M3X4, E5M2, UE8M0, U8, I32], ids=lambda f: f.name)
@pytest.mark.parametrize("dims", [("N",), ("M", "N"), ("M", 3, "N")], ids=str)
def test_the_set_is_deterministic_and_in_storage_units(fmt, dims):
    case = of_shape(*dims, sizes=[{"M": 2, "N": 50}, {"M": 0, "N": 7}, {"M": 5, "N": 1}], fmt=fmt)
    for sizes in case.sizes:
        one, two = (kernel_inputs(case, "blocks/1", sizes)["x"] for _ in range(2))
        assert one.dtype == fmt.numpy_dtype()
        assert one.shape == case.inputs["x"].shape(sizes)
        assert np.array_equal(one, two)


@pytest.mark.parametrize("backend", ["emulator", "gpu"])
def test_every_size_of_a_whole_kernel_is_planned(backend):
    case = quantize()
    items = plan(case, case.variants["integers"], backend, "quick", "sm_90a")
    sizes = [dict(i.setup.sizes) for i in items if i.input_set == "blocks/1" and i.setup.fusion]
    assert sizes == [dict(s) for s in case.sizes]


def test_no_blocks_are_planned_without_a_tensor_of_floats():
    """Without floats, blocks would only be random bits."""
    case = of_shape("N", sizes=[{"N": 4}], fmt=I32, eps=F32.scalar)
    sets = {i.input_set for i in plan(case, case.variants["v"], "emulator", "quick", "sm_90a")}
    assert sets - {*kernel_sets.NAMES, *kernel_sets.ROWS_NAMES} == {"edges/1", "random/1"}
