"""The largest errors of approximate forms: how they are computed, stored in the ledger, printed and plotted."""

from __future__ import annotations

from dataclasses import replace

import mpmath
import numpy as np
import pytest

from ptxdiff.cli import UsageError, conformance
from ptxdiff.conformance import bounds, errors, forms, ledger
from ptxdiff.emulator import emulate
from ptxdiff.emulator.numeric.vectorise import ArrayFunction


@pytest.mark.slow
def test_all_results_of_a_16_bit_form():
    """The error of tanh.approx.f16, compared with a plain computation, stays within the bound of the ISA."""
    found = errors.errors_of("tanh.approx.f16").json()
    inputs = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        x = inputs.view(np.float16).astype(np.float64)
        got = emulate("tanh.approx.f16 $0, $1;", "=h,h", [inputs], "uint16").view(np.float16).astype(np.float64)
        apart = np.abs(got - np.tanh(x))
    (largest,) = found["largest"]
    assert largest["error"] == float(f"{np.nanmax(apart):.7g}") < 2.0**-10.987
    assert apart[int(largest["at"][0], 16)] == np.nanmax(apart)
    assert found["inputs"] == 1 << 16
    assert len(found["profile"]) == 64


def test_a_worse_definition_has_a_larger_error(monkeypatch):
    right = errors.errors_of("tanh.approx.f16").largest[0].error
    compiled = ArrayFunction.compiled
    monkeypatch.setattr(
        ArrayFunction, "compiled", lambda self, n, a: compiled(self, n, a) ^ np.uint16(8) * (a == 0x3C01)
    )
    wrong = errors.errors_of("tanh.approx.f16").largest[0]
    assert wrong.error > right
    assert wrong.at == ("0x3c01",)


# Forms for which the ISA promises 2 ulp, and a Hopper GPU, which has the emulator's bits, exceeds that.
BEYOND = [("ex2.approx.ftz.f32", 0xBDA01000, 2.055), ("ex2.approx.f32", 0xC2FC500A, 2.383)]


@pytest.mark.parametrize(("form", "argument", "ulps"), BEYOND)
def test_the_ledgers_largest_error_is_one(form, argument, ulps):
    """The error at the ledger's input, computed with mpmath, is the ledger's; no result has a larger error."""
    (largest,) = ledger.read().entries[form].errors["largest"]
    assert largest["at"] == [f"{argument:#010x}"]
    got = emulate(f"{form} $0, $1;", "=r,r", [np.array([argument], np.uint32)], "uint32").view(np.float32)[0]
    with mpmath.workprec(100):
        true = mpmath.power(2, float(np.array([argument], np.uint32).view(np.float32)[0]))
        exponent = max(int(mpmath.floor(mpmath.log(true, 2))), -126)
        apart = float(abs(mpmath.mpf(float(got)) - true) / mpmath.mpf(2) ** (exponent - 23))
    assert round(apart, 3) == ulps == round(largest["error"], 3)


def test_errors_of_the_ledger_belong_to_measured_definitions():
    for form, entry in ledger.read().entries.items():
        if entry.errors:
            assert entry.status == ledger.CONFIRMED, form
            assert errors.measurable(form), form
            assert [m["measure"] for m in entry.errors["largest"]] == [
                errors.words_of(m) for m in errors.measures_of(form)
            ]


def test_a_ledger_takes_errors_of_the_definition_it_measured():
    entry = ledger.Entry("tanh.approx.f16", ledger.CONFIRMED, inputs=5, definition=ledger.digest("tanh.approx.f16"))
    stale = replace(entry, form="ex2.approx.f16", definition="00000000")
    book = ledger.Ledger({}, {e.form: e for e in (entry, stale)})
    figures = {"inputs": 4, "largest": [], "profile": []}
    after = ledger.with_errors(book, dict.fromkeys(book.entries, figures))
    assert after.entries["tanh.approx.f16"].errors == figures
    assert not after.entries["ex2.approx.f16"].errors


@pytest.mark.slow
def test_a_profile_is_drawn_and_written(tmp_path):
    found = {"inputs": 8, "largest": [{"measure": "ulp", "error": 2.0, "at": ["0x1"]}], "profile": [0.0, 1.0, 2.0, 0.0]}
    assert list(conformance.lines(found))[1:] == ["+2^1 to 2^0: | █|", "-2^1 to 2^0: |█ |"]
    far = {**found, "profile": [0.0, 1e-9, 0.1, 0.3, 1.0, 16.0, 2.0, 0.0]}
    assert list(conformance.lines(far))[1:] == ["+2^0 to 2^1: | ▁▆▇|", "-2^0 to 2^1: |▇█▇ |"]
    conformance.write(tmp_path / "errors.svg", {"ex2.approx.f32": found})
    assert "ex2.approx.f32" in (tmp_path / "errors.svg").read_text()
    with pytest.raises(UsageError, match="no error profile"):
        conformance.write(tmp_path / "errors.svg", {})
    with pytest.raises(UsageError, match=r"name a \.svg"):
        conformance.write(tmp_path / "errors.txt", {"ex2.approx.f32": found})


def test_every_bound_has_a_form():
    approximate = [f for f, b in forms.bounds_of().items() if b.form.approximate]
    assert all(bounds.bound(f) or f.endswith("f64") for f in approximate)


def test_every_approximate_form_has_its_errors_in_the_ledger():
    """The ledger has the errors of the current definitions, over all inputs if these are 2**32 or fewer; and the forms
    that exceed the ISA's bound."""
    entries = ledger.current()
    approximate = [f for f, b in forms.bounds_of().items() if b.form.approximate]
    assert len(approximate) == 30
    beyond = set()
    for form in approximate:
        found = entries[form].errors
        drawn = form.startswith("div") or form == "rsqrt.approx.f64"
        assert bool(found["profile"]) != drawn, form
        assert found["inputs"] == (1 << 26 if drawn else 1 << 16 if "16" in form else 1 << 32), form
        if any("more than the ISA promises" in line for line in errors.described(form, found)):
            beyond.add(form)
    assert beyond == {
        "div.approx.f32", "div.approx.ftz.f32", "div.full.f32", "div.full.ftz.f32", "ex2.approx.f32",
        "ex2.approx.ftz.f32", "tanh.approx.bf16", "tanh.approx.bf16x2",
    }  # fmt: skip


def test_errors_in_words():
    at = {"error": 2.0**-21.95, "at": ["0x3ef3ffde"], "measure": "relative elsewhere"}
    found = {"inputs": 1 << 32, "profile": [1.0], "largest": [{**at, "measure": "absolute in (0.5, 2)"}, at]}
    words = "2^-21.950 {} at 0x3ef3ffde of all 4,294,967,296 inputs, more than the ISA promises"
    assert errors.described("lg2.approx.f32", found) == [
        "absolute " + words.format("in (0.5, 2)"), "relative " + words.format("elsewhere")
    ]  # fmt: skip
    found["largest"][0] = {**at, "error": 2.0**-22, "measure": "absolute in (0.5, 2)"}
    assert "promises" not in errors.described("lg2.approx.f32", found)[0]
    assert bounds.promises("lg2.approx.f32") == (2.0**-22, 2.0**-22)
    assert bounds.promises("sin.approx.ftz.f32") == (2.0**-20.5, 2.0**-14.7)
    assert bounds.promises("div.approx.f32") == (2.0,)
    assert bounds.promises("rsqrt.approx.f64") == ()


def test_errors_are_drawn_where_the_isa_promises_nothing():
    """The reduction of a large angle is off by more than a turn, so the sine has an absolute error, which only the plot
    shows."""
    found = ledger.read().entries["sin.approx.f32"].errors
    assert all(m["error"] < 2.0**-14 for m in found["largest"])
    assert all(0.999 < e <= 2.0 for e in found["profile"][127 + 40 : 255])


def test_the_root_of_a_float64_has_its_errors_by_mpmath():
    (largest,) = ledger.read().entries["rsqrt.approx.f64"].errors["largest"]
    x = np.array([int(largest["at"][0], 16)], np.uint64)
    got = emulate("rsqrt.approx.f64 $0, $1;", "=d,d", [x], "uint64").view(np.float64)[0]
    with mpmath.workprec(200):
        true = 1 / mpmath.sqrt(mpmath.mpf(float(x.view(np.float64)[0])))
        exponent = int(mpmath.floor(mpmath.log(true, 2)))
        apart = float(abs(mpmath.mpf(float(got)) - true) / mpmath.mpf(2) ** (exponent - 52))
    # A longdouble holds the true value to 2**-11 ulp of a float64.
    assert apart == pytest.approx(largest["error"], abs=2.0**-10)
    assert apart == pytest.approx(0.507, abs=2.0**-10)
