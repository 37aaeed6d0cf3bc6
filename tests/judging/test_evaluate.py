"""A case's functions get inputs of their own: one that changes its arguments changes no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ptxdiff import Case, Domain, Meets, asm, either, exact
from ptxdiff.inputs import input_sets
from ptxdiff.inputs.generated import Counted
from ptxdiff.judging.judge import Judgement, judge
from ptxdiff.model.match import DomainError
from ptxdiff.model.policies import policies
from ptxdiff.model.reference import ReferenceFault
from ptxdiff.model.variants import numpy_reference
from ptxdiff.references.formats import F32, I64, U8
from ptxdiff.sweep.oracle import Oracle

NUMBERS = np.arange(200, dtype=np.uint8)


def adds_in_place(x):
    """x + 1, which also overwrites the caller's array."""
    x += 1
    return x


def adds(codes):
    codes += 1
    return codes


def judged(got: Any, reference: Any, inputs: Any = NUMBERS, **options: Any) -> Judgement:
    fmt = {np.dtype(np.uint8): U8, np.dtype(np.int64): I64, np.dtype(np.float32): F32}[inputs.dtype]
    case = Case(
        inputs={"x": fmt},
        outputs={"y": fmt},
        reference=reference,
        variants={"v": asm("x", constraints="=r,r", **options)},
    )
    return judge(case, policies(case, case.variants["v"]), {"x": inputs}, {"y": got.astype(inputs.dtype)})


@pytest.mark.parametrize("inputs", [NUMBERS, NUMBERS.astype(np.int64)], ids=["uint8", "int64"])
def test_a_reference_that_adds_in_place_gets_the_same_inputs_twice(inputs):
    several = either(adds_in_place, adds_in_place)
    before = inputs.copy()
    assert judged(inputs + 1, several, inputs).passed
    assert not judged(inputs + 2, several, inputs).passed
    np.testing.assert_array_equal(inputs, before)


def test_allowed_flushes_call_it_four_times():
    ones = np.linspace(1.0, 1.5, 100, dtype=np.float32)
    codes = ones.view(np.int32)
    assert judged((codes + 1).view(np.float32), adds_in_place, ones, ftz="allowed").passed
    for steps in (2, 3, 4):
        assert not judged((codes + steps).view(np.float32), adds_in_place, ones, ftz="allowed").passed


def test_a_variants_own_reference_gets_the_same_inputs():
    meets = Meets(Domain("all", lambda v: v["x"] >= 0), exact())

    def passes(own: Any, of_the_case: Any, steps: int) -> bool:
        case = Case(
            inputs={"x": U8},
            outputs={"y": U8},
            reference=of_the_case,
            variants={"v": asm("x", constraints="=r,r", reference=own, meets=meets)},
        )
        got = {"y": (NUMBERS + steps).astype(np.uint8)}
        return judge(case, policies(case, case.variants["v"]), {"x": NUMBERS}, got).passed

    assert passes(adds_in_place, adds_in_place, 1)
    assert passes(adds_in_place, either(lambda x: x + 2, adds_in_place), 1)
    assert not passes(adds_in_place, lambda x: x + 2, 1)
    assert not passes(adds_in_place, adds_in_place, 2)
    assert not passes(either(adds_in_place, lambda x: x + 2), adds_in_place, 2)


def test_a_numpy_reference_gets_read_only_inputs():
    with pytest.raises(ReferenceFault, match=r"adds raised ValueError: .*read-only.*copy"):
        judged(NUMBERS + 1, numpy_reference(adds))


def test_a_reference_may_return_one_buffer_again_and_again():
    kept = torch.zeros(len(NUMBERS), dtype=torch.int64)

    def one(x):
        return torch.add(x, 1, out=kept)

    def two(x):
        return torch.add(x, 2, out=kept)

    assert judged(NUMBERS + 1, either(one, two)).passed
    assert judged(NUMBERS + 2, either(one, two)).passed
    assert not judged(NUMBERS + 3, either(one, two)).passed


def test_predicates_get_read_only_values():
    def shrinks(values):
        values["x"][...] = 0
        return values["x"] >= 0

    def replaces(values):
        values["x"] = np.zeros(3)
        return values["x"] >= 0

    for predicate in (shrinks, replaces):
        with pytest.raises(DomainError, match=r"read-only|does not support item assignment"):
            judged(NUMBERS + 1, lambda x: x + 1, match=exact(on=Domain("mine", predicate)))


def test_where_cannot_change_the_inputs_that_it_chooses_from():
    def clears(values):
        values["x"] *= 0
        return values["x"] == 0

    case = Case(
        inputs={"x": F32},
        outputs={"y": F32},
        reference=lambda x: x,
        where=Domain("mine", clears),
        variants={"v": asm("x", constraints="=r,r")},
    )
    with pytest.raises(DomainError, match="read-only"):
        input_sets(case, "quick")


def test_the_inputs_of_a_set_are_read_only():
    case = Case(inputs={"x": F32}, outputs={"y": F32}, reference=lambda x: x, variants={"v": asm("mov.b32 $0, $1;")})
    for found in input_sets(case, "quick"):
        with pytest.raises(ValueError, match="read-only"):
            found.take(0, 4)["x"][0] = 1


def test_on_a_device_every_evaluation_has_inputs_of_its_own():
    case = Case(
        inputs={"x": U8},
        outputs={"y": U8},
        reference=either(adds_in_place, adds_in_place),
        variants={"v": asm("x", constraints="=r,r")},
    )
    oracle = Oracle(case, policies(case, case.variants["v"]), Counted({"x": U8}))
    x = torch.arange(200)
    assert not oracle.flags({"x": x}, {"y": x + 1}).flagged.any()
    assert oracle.flags({"x": x}, {"y": x + 2}).flagged.all()


def test_numbers_instead_of_codes_are_an_error_with_what_makes_codes_of_them():
    x = np.array([1.5, -2.0], dtype=np.float32)

    @numpy_reference
    def halves(codes):
        return codes.astype(np.uint32).view(np.float32) * np.float64(0.5)

    with pytest.raises(ReferenceFault) as fault:
        judged(x / 2, halves, x)
    repair = str(fault.value).partition("as int64, such as ")[2].partition(" [")[0]
    codes = eval(repair, {"np": np, "y": np.array([0.75, -1.0])})
    assert codes.tolist() == [0x3F400000, 0xBF800000]
