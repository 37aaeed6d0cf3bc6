"""The largest errors of approximate forms: computed, kept in the ledger, printed and plotted."""

from __future__ import annotations

from dataclasses import replace

import mpmath
import numpy as np
import pytest

from harness.cli import UsageError, errorplot
from harness.conformance import bounds, errors, forms, ledger
from harness.ptx import emulate
from harness.ptx.numeric.vectorise import ArrayFunction


def test_all_results_of_a_16_bit_form():
    """Against a plain computation of the same: tanh.approx.f16 stays within what the ISA promises."""
    found = errors.errors_of("tanh.approx.f16").json()
    inputs = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        x = inputs.view(np.float16).astype(np.float64)
        got = emulate("tanh.approx.f16 $0, $1;", "=h,h", [inputs], "uint16").view(np.float16).astype(np.float64)
        apart = np.abs(got - np.tanh(x))
    (largest,) = found["largest"]
    assert largest["error"] == float(f"{np.nanmax(apart):.4g}") < 2.0**-10.987
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


# Where the ISA promises 2 ulp and a Hopper GPU, which has these bits, is farther from the true value.
BEYOND = [("ex2.approx.ftz.f32", 0xBDA01000, 2.055), ("ex2.approx.f32", 0xC2FC500A, 2.383)]


@pytest.mark.parametrize(("form", "argument", "ulps"), BEYOND)
def test_the_ledgers_largest_error_is_one(form, argument, ulps):
    """By mpmath, at the input that the ledger names; no result is farther from the true value than this one."""
    (largest,) = ledger.read().entries[form].errors["largest"]
    assert largest["at"] == [f"{argument:#010x}"]
    got = emulate(f"{form} $0, $1;", "=r,r", [np.array([argument], np.uint32)], "uint32").view(np.float32)[0]
    with mpmath.workprec(100):
        true = mpmath.power(2, float(np.array([argument], np.uint32).view(np.float32)[0]))
        exponent = max(int(mpmath.floor(mpmath.log(true, 2))), -126)
        apart = float(abs(mpmath.mpf(float(got)) - true) / mpmath.mpf(2) ** (exponent - 23))
    assert round(apart, 3) == ulps == round(largest["error"], 3)


def test_errors_of_the_ledger_speak_of_measured_definitions():
    for form, entry in ledger.read().entries.items():
        if entry.errors:
            assert entry.status == ledger.CONFIRMED, form
            assert errors.measurable(form), form
            assert [m["measure"] for m in entry.errors["largest"]] == [errors._words(m) for m in errors._measures(form)]


def test_a_ledger_takes_errors_of_the_definition_it_measured():
    entry = ledger.Entry("tanh.approx.f16", ledger.CONFIRMED, inputs=5, definition=ledger.digest("tanh.approx.f16"))
    stale = replace(entry, form="ex2.approx.f16", definition="00000000")
    book = ledger.Ledger({}, {e.form: e for e in (entry, stale)})
    told = {"inputs": 4, "largest": [], "profile": []}
    after = ledger.with_errors(book, dict.fromkeys(book.entries, told))
    assert after.entries["tanh.approx.f16"].errors == told
    assert not after.entries["ex2.approx.f16"].errors


def test_a_profile_is_drawn_and_written(tmp_path):
    found = {"inputs": 8, "largest": [{"measure": "ulp", "error": 2.0, "at": ["0x1"]}], "profile": [0.0, 1.0, 2.0, 0.0]}
    assert list(errorplot.lines(found)) == ["by exponent, +2^1 to 2^0: | ▄|", "by exponent, -2^1 to 2^0: |█ |"]
    errorplot.write(tmp_path / "errors.svg", {"ex2.approx.f32": found})
    assert "ex2.approx.f32" in (tmp_path / "errors.svg").read_text()
    with pytest.raises(UsageError, match="no error profile"):
        errorplot.write(tmp_path / "errors.svg", {})
    with pytest.raises(UsageError, match=r"write a \.svg"):
        errorplot.write(tmp_path / "errors.txt", {"ex2.approx.f32": found})


def test_every_bound_has_a_form():
    approximate = [f for f, b in forms.bounds_of().items() if b.form.approximate]
    assert all(bounds.bound(f) or f.endswith("f64") for f in approximate)
