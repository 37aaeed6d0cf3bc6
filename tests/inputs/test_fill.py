"""Inputs of whole kernels that satisfy `where=`."""

import numpy as np
import pytest

from ptxdiff import Case, Domain, asm, finite, generated, ptx
from ptxdiff.inputs.fill import kernel_inputs
from ptxdiff.model.arguments import values_of
from ptxdiff.model.identity.definition import definition
from ptxdiff.model.match import DomainError
from ptxdiff.model.variants import CaseError
from ptxdiff.references.formats import E2M1X2, F32, I32, I64, U8, U32, Scalar

PARAMETERS = ["x", "other", "y"]
TEXT = ".version 8.0\n.target sm_80\n.address_size 64\n"
TEXT += f".visible .entry k({', '.join(f'.param .u64 {name}' for name in PARAMETERS)}) {{ ret; }}"
SIZES = {"M": 8, "N": 100}
POSITIVE = Domain("x > 0", lambda v: v["x"] > 0)


def case(where=None, generate=None, x=F32["M", "N"], other=I32["M"]):
    return Case(
        inputs={"x": x, "other": other}, outputs={"y": F32["M"]}, reference=lambda x, other: other, sizes=[SIZES],
        variants={"v": ptx(TEXT, grid=1, block=32, parameters=PARAMETERS)}, where=where, generate=generate,
        source="a test",
    )  # fmt: skip


def values(made, name="x", fmt=F32):
    return values_of(fmt, made[name])


@pytest.mark.parametrize("name", ["edges/1", "random/1", "blocks/1"])
def test_elements_outside_are_replaced_and_those_inside_are_kept(name):
    free = kernel_inputs(case(), name, SIZES)
    bound = kernel_inputs(case({"x": finite("x")}), name, SIZES)
    before, after = values(free), values(bound)
    inside = np.isfinite(before)
    assert not inside.all(), "there is something to replace"
    assert np.isfinite(after).all()
    assert (bound["x"][inside] == free["x"][inside]).all()
    assert (bound["other"] == free["other"]).all(), "another input is unchanged"
    assert len(np.unique(bound["x"][~inside])) > 1, "more than one value replaces them"
    assert (kernel_inputs(case({"x": finite("x")}), name, SIZES)["x"] == bound["x"]).all()


def test_a_narrow_domain_is_filled_from_random_values():
    made = kernel_inputs(case({"x": Domain("in 1..2", lambda v: (v["x"] > 1) & (v["x"] < 2))}), "edges/1", SIZES)
    assert ((values(made) > 1) & (values(made) < 2)).all()
    assert len(np.unique(made["x"])) > 100


@pytest.mark.parametrize("fmt", [I32, I64, U8, U32], ids=str)
@pytest.mark.parametrize("name", ["edges/1", "random/1", "blocks/1"])
def test_the_range_of_an_index_is_filled_though_random_bits_miss_it(fmt, name):
    made = kernel_inputs(
        case({"other": Domain("3..9", lambda v: (v["other"] >= 3) & (v["other"] <= 9))}, other=fmt["M", "N"]),
        name,
        SIZES,
    )
    assert set(np.unique(values(made, "other", fmt))) == set(range(3, 10))


def test_negative_integers_are_tried():
    below = Domain("-5 or -4", lambda v: (v["other"] == -5) | (v["other"] == -4))
    made = kernel_inputs(case({"other": below}), "random/1", SIZES)
    assert set(np.unique(values(made, "other", I32))) == {-5, -4}


def permutation(sizes, rng):
    """x is all ones, and the other input is a permutation."""
    return {"x": np.ones((8, 100), np.float32), "other": rng.permutation(8).astype(np.int32)}


def test_a_generated_input_is_generated_in_every_set():
    free = case(generate=permutation)
    bound = case({"other": generated}, generate=permutation)
    orders = set()
    for name in ("edges/1", "random/1", "blocks/1", "generated/1"):
        made = kernel_inputs(bound, name, SIZES)
        assert list(made) == ["x", "other"]
        assert sorted(made["other"].view(np.int32)) == list(range(8))
        assert (made["x"] == kernel_inputs(free, name, SIZES)["x"]).all(), "another input is unchanged"
        assert (kernel_inputs(bound, name, SIZES)["other"] == made["other"]).all()
        orders.add(tuple(made["other"]))
    assert len(orders) == 4, "each set has its own permutation"
    assert sorted(kernel_inputs(free, "random/1", SIZES)["other"].view(np.int32)) != list(range(8))


def test_generated_excludes_other_domains_and_needs_generate():
    with pytest.raises(ValueError, match="stands alone in where="):
        finite("x") & generated
    with pytest.raises(CaseError, match="'other' is generated; give generate="):
        case({"other": generated})
    with pytest.raises(CaseError, match="for an input of a whole kernel"):
        Case(
            inputs={"x": F32},
            outputs={"y": F32},
            reference=abs,
            where=generated,
            variants={"v": asm("neg.f32 $0, $1;")},
        )
    free, bound = case(generate=permutation), case({"other": generated}, generate=permutation)
    assert definition(free, free.variants["v"]) != definition(bound, bound.variants["v"])


def test_a_domain_of_integers_that_holds_nothing_is_an_error():
    words = r"holds none of 262144 random values and 32769 small integers; widen it"
    with pytest.raises(CaseError, match=words):
        kernel_inputs(case({"other": Domain("none", lambda v: v["other"] * 0 == 1)}), "random/1", SIZES)


def test_a_domain_that_holds_nothing_is_an_error():
    with pytest.raises(CaseError, match=r"where= of x \(none\) holds none of 262144 random values; widen it"):
        kernel_inputs(case({"x": Domain("none", lambda v: v["x"] * 0 == 1)}), "random/1", SIZES)


def test_a_domain_gets_one_input():
    with pytest.raises(DomainError, match="no input is called 'other'; there are x"):
        kernel_inputs(case({"x": Domain("both", lambda v: v["x"] > v["other"])}), "random/1", SIZES)


def test_inputs_from_generate_must_lie_in_the_domain():
    def generate(sizes, rng):
        return {"x": np.full((8, 100), -1, np.float32).view(np.uint32), "other": np.zeros(8, np.int32)}

    assert (values(kernel_inputs(case(None, generate), "generated/1", SIZES)) == -1).all()
    with pytest.raises(CaseError, match=r"generate= gave x\[0, 0\] = 0xbf800000, which lies outside where= \(x > 0\)"):
        kernel_inputs(case({"x": POSITIVE}, generate), "generated/1", SIZES)


def test_packed_units_and_scalars():
    made = kernel_inputs(case({"x": POSITIVE}, x=E2M1X2["M"]), "random/1", SIZES)
    assert (values(made, fmt=E2M1X2) > 0).all()
    small = Domain("other < 9", lambda v: v["other"] < 9)
    made = kernel_inputs(case({"other": small}, other=Scalar(U8)), "random/1", SIZES)
    assert made["other"].shape == ()
    assert made["other"] < 9


def test_the_domain_is_part_of_a_cases_definition():
    found = {
        str(definition(made, made.variants["v"])) for made in (case(), case({"x": finite("x")}), case({"x": POSITIVE}))
    }
    assert len(found) == 3
