"""The device's code, tested without a device: the emulator of whole kernels runs its PTX, and ptxas assembles it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ptxdiff.conformance import forms, kernels
from ptxdiff.conformance.inputs import Inputs
from ptxdiff.conformance.measure import apart_of, run_emulated
from ptxdiff.emulator.kernel.run import Buffer, run_kernel
from ptxdiff.emulator.numeric.bits import f32_round, f32_value, scalar
from ptxdiff.emulator.numeric.vectorise import ArrayFunction
from tests.support.sampling import only


def instead(snippet, old, new):
    """The snippet with another instruction in its text and the same definition, which is then wrong."""
    changed = replace(snippet, text=snippet.text.replace(old, new))
    changed.__dict__["step"] = snippet.step
    assert changed.text != snippet.text
    return changed


def replaced(function, other):
    """An array function with another scalar definition."""
    return ArrayFunction(other, function.constants, function.sources, function.width)


def checked(snippet, start=5, count=600):
    """The report of `check`, from the emulator."""
    report = np.zeros(kernels.REPORT_WORDS, np.uint64)
    ptx = kernels.source([snippet], "sm_90", True)
    run_kernel(ptx, [Buffer(report), start, count], (2,), num_threads=128, name="check_0", races=False)
    return report.tolist()


RIGHT = ["min.f16", "cvt.rn.f16.f32", "fma.rn.f32", "addc.cc.u32"]
RIGHT += ["subc.cc.u64", "setp.lt.and.f32", "mad.hi.s64", "max.s16"]


# The next test compiles the other four, too, and fails if a definition is wrong on another input than the instruction.
@pytest.mark.sample(4)
@pytest.mark.parametrize("form", only(RIGHT, RIGHT[4:]))
def test_right_definitions_agree(form):
    for snippet in forms.snippets(form):
        assert checked(snippet, count=200) == [0] * kernels.REPORT_WORDS, snippet.variant


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("form", "other"),
    [("min.f16", "max"), ("cvt.rn.f16.f32", "cvt.rz"), ("fma.rn.f32", "fma.rm"), ("addc.cc.u32", "subc.cc")],
)
def test_a_wrong_definition_is_counted_and_its_inputs_kept(form, other):
    snippet = forms.snippets(form)[0]
    wrong = instead(snippet, ".".join(form.split(".")[: other.count(".") + 1]), other)
    mismatches, peak, *kept = checked(wrong)
    columns = Inputs(snippet).drawn(5, 600)
    apart = apart_of(snippet, run_emulated(snippet, columns, "sm_90a"), run_emulated(wrong, columns, "sm_90a"))
    places = set((5 + np.flatnonzero(apart < 0)).tolist())
    assert mismatches == len(places) > 0
    assert peak == 0
    assert set(kept[: min(mismatches, kernels.KEPT)]) <= places


@pytest.mark.slow
def test_the_distance_of_an_approximate_form_is_measured():
    snippet = forms.snippets("rcp.approx.f32")[0]
    assert checked(snippet)[:2] == [0, 0]
    mismatches, peak, *_ = checked(instead(snippet, "rcp.approx", "rcp.rz"))
    columns = Inputs(snippet).drawn(5, 600)
    truncated = instead(snippet, "rcp.approx", "rcp.rz")
    apart = apart_of(snippet, run_emulated(snippet, columns, "sm_90a"), run_emulated(truncated, columns, "sm_90a"))
    assert mismatches == np.count_nonzero(apart < 0) > 0, "infinity in one result, the largest number in the other"
    assert peak >> 32 == apart.max() == 1
    assert apart[peak & 0xFFFFFFFF] == 1


def test_run_stores_results():
    snippet = forms.snippets("addc.cc.u32")[0]
    columns = Inputs(snippet).drawn(0, 300)
    outputs = [np.zeros(300, np.uint32) for _ in snippet.outputs]
    ptx = kernels.source([snippet], "sm_90", False)
    buffers = [Buffer(a) for a in (*columns, *outputs)]
    run_kernel(ptx, [*buffers, 300], (2,), num_threads=128, name="run_0")
    for got, expected in zip(outputs, run_emulated(snippet, columns, "sm_90a"), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.slow
def test_definitions_are_inlined_and_nothing_is_contracted():
    ptx = kernels.source(forms.snippets("fma.rn.f32"), "sm_90", True)
    assert "call" not in ptx
    assert ".local" not in ptx
    assert "fma.rn.f64" not in ptx, "a product and a sum of the definition were fused"


@scalar
def by_the_hosts_library(a, ftz):
    """A definition that no device can run."""
    return f32_round(math.log2(f32_value(a)))


def test_a_definition_that_needs_a_library_is_not_for_devices():
    snippet = forms.snippets("lg2.approx.f32")[0]
    hosted = replace(snippet)
    (function,) = snippet.step.functions
    hosted.__dict__["step"] = replace(snippet.step, functions=(replaced(function, by_the_hosts_library),))
    with pytest.raises(kernels.NoDefinition, match="calls"):
        kernels.source([hosted], "sm_90", True)
    assert "run_0" in kernels.source([hosted], "sm_90", False)
    assert not kernels.checkable(forms.snippets("mov.b64")[0])


@pytest.fixture(scope="module")
def assembler():
    from ptxdiff.triton.builds import NoTriton

    try:
        return kernels.assemblers()[-1]
    except NoTriton as e:
        pytest.skip(str(e))


@pytest.mark.slow
def test_ptxas_assembles_it(assembler):
    names = ["addc.cc.u32", "cvt.rni.s8.bf16", "set.eq.f16.f16", "mov.b64", "bra"]
    snippets = [forms.snippets(name)[0] for name in names]
    cubin = kernels.assembled(kernels.source(snippets, "sm_90", True), "sm_90a", assembler)
    assert isinstance(cubin, bytes), cubin
    assert cubin.startswith(b"\x7fELF")


def test_a_refusal_of_ptxas_names_the_snippet(assembler):
    snippets = [forms.snippets(name)[0] for name in ("add.u32", "cvt.rn.satfinite.e2m1x2.f32", "sub.u32")]
    refused = kernels.assembled(kernels.source(snippets, "sm_90", True), "sm_90a", assembler)
    assert isinstance(refused, kernels.Refused)
    assert list(refused.blamed) == [1]
    assert "e2m1x2" in refused.blamed[1]


@pytest.mark.parametrize(("major", "minor", "ptx"), [(12, 4, "8.4"), (12, 8, "8.7"), (12, 9, "8.8"), (13, 4, "9.4")])
def test_the_ptx_version_of_an_assembler(major, minor, ptx):
    assert kernels.ptx_version(major, minor) == ptx
