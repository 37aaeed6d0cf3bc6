"""Snippets: each form has one that the emulator runs, and inputs that are equal in Python and in compiled code."""

import numpy as np
import pytest

from ptxdiff.conformance import forms
from ptxdiff.conformance.inputs import Inputs, draw, shape_of
from ptxdiff.emulator import emulate
from ptxdiff.emulator.text.types import TYPES

WITHOUT_RESULT = {"exit", "nanosleep.u32", "pmevent", "pmevent.mask", "ret", "ret.uni"}


def plain(form):
    return forms.snippets(form)[0]


def of_each_opcode(step):
    """Every `step`-th form, and the last one of each opcode."""
    found = list(forms.bounds_of())
    last = {forms.bounds_of()[form].form.opcode: form for form in found}
    return list(dict.fromkeys([*found[::step], *last.values(), *WITHOUT_RESULT]))


@pytest.mark.parametrize("step", [pytest.param(6, id="few"), pytest.param(1, id="all", marks=pytest.mark.slow)])
def test_every_form_has_snippets_that_the_emulator_runs(step):
    """Slow: several thousand forms."""
    for form in of_each_opcode(step):
        found = forms.snippets(form)
        assert bool(found) == (form not in WITHOUT_RESULT), form
        assert len({s.variant for s in found}) == len(found), f"{form}: two snippets with the same name"
        for snippet in found:
            step = snippet.step
            if step is not None:
                assert step.bound.name == form
                assert len(step.functions) == len(snippet.outputs), snippet.text


@pytest.mark.parametrize(
    ("form", "text", "constraints"),
    [
        ("add.rn.f32", "add.rn.f32 $0, $1, $2;", "=&r,r,r"),
        ("mul.wide.s32", "mul.wide.s32 $0, $1, $2;", "=&l,r,r"),
        ("cvt.rni.s8.f16", "cvt.rni.s8.f16 $0, $1;", "=&h,h"),
        (
            "setp.lt.u32",
            "{ .reg .pred p_p; .reg .pred p_q; setp.lt.u32 p_p|p_q, $2, $3; "
            "selp.b16 $0, 1, 0, p_p; selp.b16 $1, 1, 0, p_q; }",
            "=&h,=&h,r,r",
        ),
        (
            "cvt.rn.satfinite.e2m1x2.f32",
            "{ .reg .b8 b_d; cvt.rn.satfinite.e2m1x2.f32 b_d, $1, $2; mov.b16 $0, {b_d, b_d}; }",
            "=&h,r,r",
        ),
    ],
)
def test_text(form, text, constraints):
    assert (plain(form).text, plain(form).constraints) == (text, constraints)


def test_the_carry_flag_is_set_and_read_both_ways():
    found = {s.variant: s for s in forms.snippets("addc.cc.u32")}
    assert len(found) == 4
    a, b, flag = (np.array(c, np.uint32) for c in ([5, 5, 2**32 - 1], [6, 6, 0], [0, 1, 1]))
    for variant, snippet in found.items():
        inverted_in, inverted_out = "from sub" in variant, "to subc" in variant
        given = 1 - flag if inverted_in else flag
        total, out = emulate(snippet.text, snippet.constraints, [a, b, given], ["uint32", "uint32"])
        np.testing.assert_array_equal(total, [11, 12, 0])
        # subc borrows nothing if the flag is set.
        np.testing.assert_array_equal(out, [2**32 - 1, 2**32 - 1, 0] if inverted_out else [0, 0, 1])
        assert snippet.inputs[2].inverted == inverted_in
        assert snippet.outputs[1].inverted == inverted_out


def test_selectors_signs_and_tables_are_varied():
    assert len(forms.snippets("lop3.b32")) == 256
    assert len([s for s in forms.snippets("lop3.b32") if s.bulk]) < 20
    video = forms.snippets("vadd.u32.u32.u32")
    assert any(".b" in s.text or ".h" in s.text for s in video)
    assert any("-$" in s.text for f in forms.bounds_of() if f.startswith("vmad") for s in forms.snippets(f))


def test_what_a_target_lacks():
    assert forms.lacking("add.rn.f32", "sm_75") == ""
    assert "sm_100f" in forms.lacking("cvt.rn.satfinite.e2m1x2.f32", "sm_90a")


@pytest.mark.parametrize("form", ["fma.rn.f32", "add.rn.f64", "fma.rn.bf16x2", "bfe.u32", "addc.cc.u64", "fma.rn.f16"])
def test_inputs_are_the_same_in_python_and_compiled(form):
    inputs = Inputs(plain(form))
    many, few = inputs.drawn(7, 4096), inputs.drawn(7, 64)
    for a, b in zip(many, few, strict=True):
        np.testing.assert_array_equal(a[:64], b)
    for a, b in zip(inputs.drawn(1000, 65), many, strict=True):
        np.testing.assert_array_equal(a, b[993:1058])


def test_strata_contain_the_operands_that_they_are_made_for():
    with np.errstate(all="ignore"):
        a, b, c = (x.view(np.float32).astype(np.float64) for x in Inputs(plain("fma.rn.f32")).drawn(0, 1 << 16))
        finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & (a * b != 0)
        cancelled = finite & (np.abs(a * b + c) < 1e-5 * np.abs(a * b))
        tiny, huge = finite & (np.abs(a * b) < 1e-38), finite & (np.abs(a * b) > 3e38)
    assert cancelled.mean() > 0.01
    assert tiny.mean() > 0.01
    assert huge.mean() > 0.01
    assert np.isnan(a).mean() > 0.001
    assert (np.abs(a) < 1e-38).mean() > 0.05


def test_all_inputs_of_a_small_form_occur_once():
    inputs = Inputs(plain("cvt.rn.f16x2.e4m3x2"))
    assert inputs.exhaustive
    (column,) = inputs.drawn(0, inputs.count)
    assert len(np.unique(column)) == 1 << 16
    (early,) = inputs.drawn(0, 256)
    assert early.max() - early.min() > 1 << 15, "the first inputs are spread over the whole range"


def test_edges_are_products_of_the_types_edges():
    a, b = Inputs(plain("add.rn.f32")).edges(5000)
    for column in (a, b):
        assert {0, 0x80000000, 0x7F800000, 0x00800000, 1} <= set(column.tolist())
    assert len(a) <= 12_000


def test_shapes():
    assert shape_of(TYPES["f16x2"], 32) == (2, 16, 5, 10)
    assert shape_of(TYPES["u8"], 16) == (1, 16, 0, 0)
    assert shape_of(TYPES["pred"], 16) == (1, 1, 0, 0)
    assert draw(3, 5, 0, 1, 1, 0, 0, 0, 0) in (0, 1)


def test_rows_with_the_same_name_are_separate_forms():
    assert [len(plain(f).inputs) for f in ("min.ftz.f32", "min.ftz.f32 d, a, b, c")] == [2, 3]
    assert "sm_100" in forms.lacking("min.ftz.f32 d, a, b, c", "sm_90a")
    assert not forms.lacking("min.ftz.f32", "sm_90a")
    assert "vadd.u32.u32.u32 d, a, b, c" in forms.bounds_of()
