"""Strategies for codes: they can draw every code of every format, and failures shrink to simple codes."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, find, given, settings

from ptxdiff import Case, Domain, asm, ulp
from ptxdiff.references.formats import E2M1X2, F16, F32, FORMATS, I32, UE8M0, fraction, is_finite, is_nan, is_subnormal
from ptxdiff.strategies import assert_matches, codes, inputs, units

QUIET = settings(max_examples=50, database=None, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.sample(4)
@pytest.mark.parametrize("fmt", FORMATS.values(), ids=str)
def test_drawn_codes_are_codes_of_the_format(fmt):
    seen = set()

    @QUIET
    @given(codes(fmt))
    def draw(code):
        assert 0 <= code <= fmt.code_mask
        seen.add(code)

    draw()
    assert len(seen) > min(8, fmt.code_mask)


@pytest.mark.parametrize(
    ("fmt", "condition", "code"),
    [
        (F32, lambda c: True, 0),
        (F32, lambda c: c != 0, 0x3F800000),
        (F32, lambda c: is_nan(F32, c), 0x7F800001),
        (F32, lambda c: is_subnormal(F32, c), 1),
        (F32, lambda c: is_finite(F32, c) and fraction(F32, c) < 0, 0x80000001),
        (F16, lambda c: is_finite(F16, c) and fraction(F16, c) > 3, 0x4300),
        (I32, lambda c: c not in (0, 1), 0xFFFFFFFF),
        (UE8M0, lambda c: True, 127),
    ],
)
def test_a_failure_shrinks_to_the_simplest_code(fmt, condition, code):
    # Shrinking is a search that sometimes ends one step too early, so the search is the same each time.
    found = find(codes(fmt), condition, settings=settings(database=None, max_examples=2000), random=Random(0))
    assert hex(found) == hex(code)


@QUIET
@given(units(E2M1X2, 5))
def test_units_are_storage(drawn):
    assert (drawn.dtype, drawn.shape) == (np.uint8, (5,))


DOUBLED = Case(
    inputs={"x": F16},
    outputs={"y": F16},
    reference=lambda x: x,
    where=Domain("x > 0", lambda v: v["x"] > 0),
    variants={"exact": asm("mov.b32 $0, $1;"), "near": asm("mov.b32 $0, $1;", match=ulp(1))},
)


@QUIET
@given(inputs(DOUBLED, count=3))
def test_inputs_lie_within_the_cases_domain(drawn):
    assert (drawn["x"].view(np.float16) > 0).all()


def test_a_users_own_test_names_the_failing_input():
    """A test as a user writes it: outputs from any source, compared under a variant's policies."""
    x = np.array([0x3C00, 0x4000], dtype=np.uint16)
    assert_matches(DOUBLED, "exact", {"x": x}, {"y": x})
    assert_matches(DOUBLED, "near", {"x": x}, {"y": x + 1})
    with pytest.raises(AssertionError, match=r"2 of 2 codes differ: 1 ulp 2\n  x  0x3c00  1.0\n  expected  0x3c00"):
        assert_matches(DOUBLED, "exact", {"x": x}, {"y": x + 1})
