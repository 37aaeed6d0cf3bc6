"""Input sets contain the inputs that show mistakes, and are the same on every machine."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from ptxdiff import Case, Domain, asm
from ptxdiff.inputs import input_sets, named_set
from ptxdiff.inputs.edges import edge_codes, edge_units, product
from ptxdiff.inputs.fill import shaped
from ptxdiff.inputs.sets import seed_of
from ptxdiff.inputs.ties import tie_codes
from ptxdiff.references.formats import (
    BF16,
    E2M1,
    E2M1X2,
    E4M3,
    F16,
    F32,
    F64,
    FORMATS,
    I8,
    I32,
    TF32,
    U8,
    Class,
    Format,
    classify,
    encode,
    floor_log2,
    fraction,
    sign,
    to_float64,
)

ALL_FORMATS = list(FORMATS.values())


def case_of(*inputs: Format, output: Format = F32, **fields) -> Case:
    return Case(
        inputs={f"x{k}": fmt for k, fmt in enumerate(inputs)},
        outputs={"y": output},
        reference=lambda *codes: codes[0],
        variants={"v": asm("mov.b32 $0, $1;", constraints="=r,r", pack=1)},
        **fields,
    )


@pytest.mark.parametrize("fmt", [f for f in ALL_FORMATS if f.is_float and f.codes_per_unit == 1], ids=str)
def test_edges_have_every_class_of_number_and_both_signs(fmt):
    codes = np.array([c - (1 << 64) if c >> 63 else c for c in edge_codes(fmt)], dtype=np.int64)
    classes = set(classify(fmt, codes).tolist())
    wanted = {Class.NORMAL}
    wanted |= {Class.ZERO, Class.SUBNORMAL} if fmt.has_zero else set()
    wanted |= {Class.INFINITY} if fmt.infinity else set()
    wanted |= {Class.NAN} if fmt.nan != "none" else set()
    assert classes == wanted
    assert set(sign(fmt, codes).tolist()) == ({0, 1} if fmt.has_sign else {0})


@pytest.mark.parametrize("fmt", ALL_FORMATS, ids=str)
def test_edges_are_codes_without_repeats(fmt):
    codes = edge_codes(fmt.single)
    assert len(set(codes)) == len(codes)
    assert all(0 <= c <= fmt.code_mask for c in codes)
    assert fmt.max_finite in codes
    assert len(edge_units(fmt)) > 0


@pytest.mark.parametrize("fmt", [F16, BF16, TF32, F32, F64], ids=str)
def test_quiet_and_signalling_nans_are_edges(fmt):
    quiet = 1 << (fmt.mantissa_bits + fmt.ignored_bits - 1)
    nans = [c for c in edge_codes(fmt) if (c & fmt.magnitude_mask) > fmt.infinity_code]
    assert {bool(c & quiet) for c in nans} == {True, False}


CONVERSIONS = [(F32, E2M1), (F32, E4M3), (F32, F16), (F32, BF16), (F64, F32), (F16, E4M3)]


@pytest.mark.parametrize(("source", "result"), CONVERSIONS)
def test_ties_are_the_midpoints_and_their_neighbours(source, result):
    """The expected midpoints, beside the ends of binades and of both signs, are computed slowly from exact values."""
    found = {c & source.code_mask for c in tie_codes(source, result, 6000).tolist()}
    step = result.min_positive
    for low in (result.min_normal, encode(result, 1.0), encode(result, 1.0) - step, result.max_finite - step):
        middle = (fraction(result, low) + fraction(result, low + step)) / 2
        code = encode(source, middle)
        for near in (code - 1, code, code + 1):
            assert near in found
            assert near | 1 << source.sign_shift in found


def test_ties_of_e2m1_and_its_overflow():
    values = {fraction(F32, c) for c in tie_codes(F32, E2M1, 6000).tolist() if c < 0x7F800000}
    assert {Fraction(n, 100) for n in (25, 75, 125, 175, 250, 350, 500, 700)} <= values


def test_integers_tie_between_floats():
    assert {(1 << 24) + 1, (1 << 24) + 3} <= set(tie_codes(I32, F32, 6000).tolist())


def test_few_inputs_are_all_run():
    exhaustive, neighbours = input_sets(case_of(U8, I8), "quick")
    assert neighbours.name == "neighbours/1"
    assert (exhaustive.name, exhaustive.count) == ("exhaustive/1", 1 << 16)
    units = exhaustive.all()
    assert len({(int(a), int(b)) for a, b in zip(units["x0"], units["x1"], strict=True)}) == 1 << 16
    np.testing.assert_array_equal(exhaustive.take(300, 5)["x1"], units["x1"][300:305])


def test_many_inputs_are_sampled():
    sets = input_sets(case_of(F32, F32, output=E4M3, hard_cases=[(1, 2)]), "quick")
    assert [s.name for s in sets] == ["hard/1", "edges/1", "ties/1", "outputs/1", "random/1", "neighbours/1"]
    assert {n: u.tolist() for n, u in sets[0].all().items()} == {"x0": [1], "x1": [2]}


def test_a_set_has_the_same_inputs_at_every_effort():
    case = case_of(F32, F32, output=E4M3)
    quick = {s.name: s.count for s in input_sets(case, "quick")}
    full = {s.name: s.count for s in input_sets(case, "full")}
    assert not {n for n in quick.keys() & full.keys() if quick[n] != full[n]}


def test_seeds_come_from_the_names_of_sets():
    one, two = (named_set(case_of(F32), "quick", "random/1").all()["x0"] for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert seed_of("random/1") == seed_of("random/1") != seed_of("edges/1")


def test_random_inputs_have_every_class():
    codes = named_set(case_of(F32), "quick", "random/1").all()["x0"].astype(np.int64)
    assert set(classify(F32, codes).tolist()) == set(Class)
    assert np.count_nonzero((codes & 0x7FFFFFFF) < 0x00800000) > 1000


def test_where_keeps_inputs_within_it():
    positive = Domain("x0 > 0", lambda v: v["x0"] > 0)
    for found in input_sets(case_of(F32, where=positive), "quick"):
        assert (found.all()["x0"].view(np.float32) > 0).all()
    packed = Domain("not 6", lambda v: np.abs(v["x0"]) < 6)
    (edges, *_) = input_sets(case_of(E2M1X2, where=packed), "quick")
    assert edges.count == 14 * 14


def test_unknown_sets_and_efforts_are_refused():
    with pytest.raises(KeyError, match="has no input set 'ties/1' at effort quick; it has exhaustive/1"):
        named_set(case_of(U8), "quick", "ties/1")
    with pytest.raises(ValueError, match="no effort is called 'fast'; one of quick, full, exhaustive"):
        input_sets(case_of(U8), "fast")


def test_a_sample_of_a_large_product_has_every_value_and_as_many_pairs_as_possible():
    columns = [np.arange(100) + 1000 * k for k in range(3)]
    rows = product(columns, 6000, np.random.default_rng(0))
    for column, values in zip(columns, rows, strict=True):
        assert set(values.tolist()) == set(column.tolist())
    assert len(rows[0]) < 8000
    small = product([np.arange(3), np.arange(4)], 20, np.random.default_rng(0))
    assert len(set(zip(*(c.tolist() for c in small), strict=True))) == 12


@pytest.mark.parametrize("shape", [(1,), (255,), (1009,), (7, 129)])
def test_a_shape_is_filled_with_inputs_of_the_set(shape):
    inputs = named_set(case_of(U8), "quick", "exhaustive/1")
    units = shaped(inputs, shape)["x0"]
    assert units.shape == shape
    assert len(np.unique(units)) == min(256, units.size)
    shuffled = shaped(inputs, shape, shuffled=7)["x0"]
    np.testing.assert_array_equal(np.sort(shuffled, axis=None), np.sort(units, axis=None))


def _scaled(exact: Fraction, digits: int, lowest: int) -> tuple[Fraction, Fraction]:
    """A number in units of its last place, for a significand of `digits` bits and units of at least 2^lowest; and the
    unit."""
    unit = Fraction(2) ** max(floor_log2(abs(exact)) - digits + 1, lowest)
    return exact / unit, unit


def _stepped(exact: Fraction, digits: int) -> Fraction:
    """The number that rounds to the odd value next to it, moved to one unit beyond that value; other numbers
    unchanged."""
    scaled, unit = _scaled(exact, digits, -4000)
    near = round(scaled)
    return (near + (1 if scaled > near else -1)) * unit if near % 2 and near != scaled else exact


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "widths", [(F16, 24), (BF16, 24), (BF16, 53), (F32, 53)], ids=lambda value: f"{value[0].name}-{value[1]}"
)
def test_products_and_sums_wrong_in_the_last_place_of_a_wider_format_are_detected(widths):
    """A computation in float32 or float64 loses lower bits, which only results next to a tie show."""
    fmt, wide = widths
    operands = {"a": fmt, "b": fmt, "c": fmt}
    case = replace(case_of(fmt, fmt, fmt, output=fmt), inputs=operands)
    detected = 0
    for made in input_sets(case, "quick"):
        if made.name.partition("/")[0] in ("rounding", "sticky"):  # others need no rational arithmetic of 50,000 rows
            values = [to_float64(fmt, u.astype(np.int64)) for u in made.all().values()]
            finite = np.isfinite(np.sum(values, axis=0))
            for a, b, c in zip(*(v[finite].tolist() for v in values), strict=True):
                if exact := Fraction(a) * Fraction(b) + Fraction(c):
                    right, unit = _scaled(exact, fmt.precision, fmt.min_exponent - fmt.mantissa_bits)
                    detected += round(right) != round(_stepped(exact, wide) / unit)
    assert detected >= 3
