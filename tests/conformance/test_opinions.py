"""Conversions that no available hardware has agree with definitions independent of the emulator's."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from ptxdiff.cli import main
from ptxdiff.conformance import ledger
from ptxdiff.emulator.isa import convert_narrow, convert_scale
from tests.support.conformance import definitions as d
from tests.support.conformance import narrow_inputs, opinions
from tests.support.conformance.narrow_inputs import random_fields
from tests.support.conformance.opinions import EXACT, GFLOAT, ML_DTYPES, Verdict, added, conversions
from tests.support.sampling import spread

known = cache(conversions)
"""The digests of all definitions take seconds, which the worker that runs this file spends once."""

INPUTS = (narrow_inputs.plain, narrow_inputs.to_halves, narrow_inputs.scaled, narrow_inputs.stochastic)
FEW = 2
"""The number of lower halves of float32 patterns in quick tests: only zeros and ones, beside all boundaries."""


def judged(form: str) -> Verdict:
    """The verdict on one form, on few strata."""
    return added(opinions.opinions([known()[form]], FEW))[form]


@pytest.mark.slow
def test_all_forms_of_small_sources() -> None:
    """All forms of 16-bit sources on all values, and all codes with all scales, as in `opinions.py`."""
    chosen = [c for c in known().values() if not (c.source == "f32" or c.scaled) or c.widens]
    found = added(opinions.opinions(chosen))
    assert not [text for v in found.values() for text in v.against]
    assert len(found) == len(chosen) == 156
    assert all({EXACT, GFLOAT} <= set(v.agreed) for v in found.values())


@pytest.mark.sample(4)
@pytest.mark.parametrize("source", ["f32", "f16 scaled", "f32 scaled", "f32 stochastic"])
def test_some_forms_of_large_sources(source: str) -> None:
    """Every eighth form of each group that shares inputs, on all boundaries."""
    source, *kind = source.split()
    group = [c for c in known().values() if c.source == source and not c.widens]
    group = [c for c in group if (["scaled"] * c.scaled or ["stochastic"] * (c.mode == "rs")) == kind]
    found = added(opinions.opinions(group[:: 8 if source == "f32" else 24], FEW))
    assert found
    assert not [text for v in found.values() for text in v.against]


@pytest.mark.slow
def test_all_forms() -> None:
    """All forms, as `opinions.py --write` runs them; takes minutes."""
    found = added(opinions.opinions(known().values()))
    assert not [text for v in found.values() for text in v.against]
    assert set(found) == set(known())


# inputs ---------------------------------------------------------------------------------------------------------


def test_every_tie_is_among_the_inputs() -> None:
    """The midpoints of e2m1's numbers and two float32 on either side, with both signs, at both places of a pair."""
    inputs = narrow_inputs.plain("f32", FEW)
    for place in inputs.columns:
        patterns = set(place.tolist())
        for tie in np.float32([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]).view(np.uint32).tolist():
            assert {tie + step | sign for step in range(-2, 3) for sign in (0, 0x80000000)} <= patterns


@pytest.mark.parametrize("source", ["f16", "bf16"])
def test_16_bit_sources_are_exhausted(source: str) -> None:
    pairs = narrow_inputs.plain(source).columns[0]
    assert set((pairs >> 16).tolist()) == set((pairs & 0xFFFF).tolist()) == set(range(1 << 16))


@pytest.mark.slow  # 2^24 pairs of a pattern and a scale, with their quotients
@pytest.mark.parametrize(("source", "together"), [("f16", True), ("bf16", False)])
def test_16_bit_sources_are_exhausted_with_all_scales(source: str, together: bool) -> None:
    pairs, scales = narrow_inputs.scaled(source, together).columns
    high, low = (scales, scales) if together else (scales >> 8, scales & 0xFF)
    seen = np.zeros(1 << 24, bool)
    for values, codes in ((pairs >> 16, high), (pairs & 0xFFFF, low)):
        seen[values << 8 | codes] = True
    assert seen.all()
    assert 2 * len(pairs) == seen.size


@pytest.mark.parametrize(("source", "together"), [("f16", True), ("bf16", True), ("bf16", False), ("f32", True)])
def test_quotients_are_those_of_the_operands(source: str, together: bool) -> None:
    """The values that definitions compute equal the quotients of the registers' contents, computed in Python."""
    inputs = narrow_inputs.scaled(source, together, FEW)
    *values, scales = inputs.columns
    halves = values if source == "f32" else [values[0] >> 16, values[0] & 0xFFFF]
    for place in range(2):
        for lane in np.random.default_rng(place).integers(0, inputs.lanes, 2000).tolist():
            x = float(narrow_inputs.values(source, halves[place][lane : lane + 1])[0])
            scale = int(scales[lane]) if together else int(scales[lane]) >> (8 - 8 * place) & 0xFF
            if together and abs(x) < (2.0**-14 if source == "f16" else 2.0**-126):
                x = math.copysign(0.0, x)
            expected = math.nan if scale == 255 else x / 2.0 ** (scale - 127)
            given = float(inputs.x[inputs.which[place * inputs.lanes + lane]])
            assert repr(given).lstrip("-") == "nan" if math.isnan(expected) else repr(given) == repr(expected)


def test_every_stratum_of_float32_is_among_the_inputs() -> None:
    patterns = narrow_inputs.stratified(24)
    upper, lower = patterns >> 16, patterns & 0xFFFF
    assert np.array_equal(np.bincount(upper), np.full(1 << 15, 24))
    assert {0, 0xFFFF, *(1 << n for n in range(16))} <= set(lower.tolist())
    assert np.unique(lower).size > 1 << 14


def test_random_bits_reach_the_next_code_and_miss_it_by_one() -> None:
    """With the random bits of a lane that are chosen for it, one bit less or more changes the code."""
    inputs, random = narrow_inputs.stochastic("e4m3", 4, FEW)
    codes = [d.stochastic_integers(inputs.patterns, random + step, "e4m3", 16) for step in (-1, 0, 1)]
    finite = np.abs(inputs.x) < 448
    crossing = ((codes[0] != codes[1]) | (codes[1] != codes[2])) & finite
    assert np.count_nonzero(crossing) > np.count_nonzero(finite) / 6


# planted mistakes -----------------------------------------------------------------------------------------------


def off_by_one(made: Callable[..., Any]) -> Callable[..., Any]:
    """A definition that is wrong in one result: the middle one of its positive codes."""

    def wrong(*arguments: Any, **named: Any) -> Any:
        found = made(*arguments, **named).copy()
        codes = np.unique(found[(found > 0) & (found < 0x7F80)])
        found[np.argmax(found == codes[len(codes) // 2])] ^= 1
        return found

    return wrong


ONE_WRONG_ANSWER = [
    ("cvt.rn.satfinite.e2m1x2.f16x2", "exact", EXACT),
    ("cvt.rz.satfinite.relu.e5m2x2.bf16x2", "by_gfloat", GFLOAT),
    ("cvt.rn.satfinite.e4m3x2.bf16x2", "by_ml_dtypes", ML_DTYPES),
    ("cvt.rn.satfinite.relu.pzo.scaled::n1::ue8m0.e3m2x2.f32", "exact", EXACT),
    ("cvt.rp.ue8m0x2.bf16x2", "by_fields", "exponent fields"),
    ("cvt.rn.ue5m3x2.f16x2", "by_gfloat", GFLOAT),
    ("cvt.rz.satfinite.s2f6x2.bf16x2", "s2f6_exact", EXACT),
    ("cvt.rs.satfinite.e4m3x4.f32", "stochastic_sum", EXACT),
    ("cvt.rs.f16x2.f32", "stochastic_integers", "exact integers"),
    ("cvt.rn.pzo.tf32.f32", "exact", EXACT),
    ("cvt.rz.relu.satfinite.pzo.bf16x2.f32", "by_gfloat", GFLOAT),
    ("cvt.rn.pzo.f16.f32", "by_half_cast", "numpy"),
    ("cvt.rn.ftz.pzo.bf16.f32", "by_half_cast", ML_DTYPES),
    ("cvt.rn.f16x2.e2m3x2", "wide_exact", EXACT),
    ("cvt.rn.relu.scaled::n2::ue8m0.bf16x2.s2f6x2", "s2f6_wide_gfloat", GFLOAT),
]


@pytest.mark.parametrize(("form", "function", "name"), spread(ONE_WRONG_ANSWER, 15, lambda row: row[1:2]))
def test_one_wrong_answer_of_one_reference_is_named(
    form: str, function: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the form and this reference, and no other reference."""
    monkeypatch.setattr(d, function, off_by_one(getattr(d, function)))
    for cached in INPUTS:
        cached.cache_clear()
    against = judged(form).against
    for cached in INPUTS:
        cached.cache_clear()
    assert against
    assert all(text.startswith(f"{form}: ") and f", {name} says " in text for text in against)


def columns(change: Callable[..., Any]) -> Callable[..., Any]:
    """A definition that gets its operands changed by `change`."""
    run = opinions.run
    return lambda form, *given: run(form, *change(*given))


def instead(old: str, new: str) -> Callable[..., Any]:
    """The definition of the form whose name has `new` in place of `old`."""
    run = opinions.run
    return lambda form, *given: run(form.replace(old, new), *given)


WRONG = [
    ("cvt.rn.satfinite.e2m1x2.f32", instead("cvt.rn", "cvt.rz")),
    ("cvt.rz.satfinite.e2m3x2.f16x2", instead("cvt.rz", "cvt.rn")),
    ("cvt.rn.satfinite.relu.e3m2x2.bf16x2", instead(".relu", "")),
    ("cvt.rn.satfinite.pzo.e5m2x2.f32", instead(".pzo", "")),
    ("cvt.rn.satfinite.e4m3x2.bf16x2", instead("e4m3", "e5m2")),
    ("cvt.rn.satfinite.ue5m3x2.f32", instead(".satfinite", "")),
    ("cvt.rp.ue8m0x2.f32", instead("cvt.rp", "cvt.rp.satfinite")),
    ("cvt.rs.relu.satfinite.e2m1x4.f32", instead(".relu", "")),
    ("cvt.rs.satfinite.bf16x2.f32", instead(".satfinite", "")),
    ("cvt.rn.satfinite.bf16x2.ue5m3x2", columns(lambda a: [a >> 8 | (a & 0xFF) << 8])),
    ("cvt.rn.satfinite.e2m1x2.f32", columns(lambda a, b: [b, a])),
    ("cvt.rn.satfinite.e2m1x2.f32", columns(lambda a, b: [a, b & ~1])),
    ("cvt.rp.satfinite.ue5m3x2.f32", columns(lambda a, b: [a & ~1, b])),
    ("cvt.rn.satfinite.scaled::n1::ue8m0.e4m3x2.f32", columns(lambda a, b, s: [a, b, np.maximum(s, 1)])),
    ("cvt.rz.satfinite.scaled::n1::ue8m0.e2m1x2.f16x2", columns(lambda a, s: [a, np.minimum(s, 254)])),
    ("cvt.rn.satfinite.scaled::n2::ue8m0.s2f6x2.f32", columns(lambda a, b, s: [a, b, s & 0xFF | s << 8 & 0xFF00])),
    ("cvt.rs.satfinite.e5m2x4.f32", columns(lambda a, b, e, f, r: [b, a, e, f, r])),
    ("cvt.rs.satfinite.e5m2x4.f32", columns(lambda a, b, e, f, r: [a, b, e, f, r & ~1])),
    ("cvt.rs.f16x2.f32", columns(lambda a, b, r: [a, b, r & 0xFFFF0FFF])),
    ("cvt.rn.pzo.f16.f32", instead("cvt.rn", "cvt.rz")),
    ("cvt.rm.ftz.pzo.bf16.f32", instead("cvt.rm", "cvt.rp")),
    ("cvt.rz.pzo.tf32.f32", instead("rz.pzo", "rz")),
    ("cvt.rn.satfinite.tf32.f32", instead(".satfinite", "")),
    ("cvt.rn.satfinite.tf32.f32", columns(lambda a: [np.where(a & 0x3FFF == 0x1000, a | 1, a)])),
    ("cvt.rn.pzo.f16.f32", columns(lambda a: [np.where(a & 0x3FFF == 0x3000, a & ~1, a) - (a & 0x3FFF == 0x3000)])),
    ("cvt.rn.relu.satfinite.pzo.bf16x2.f32", instead(".relu", "")),
    ("cvt.rz.satfinite.pzo.f16x2.f32", columns(lambda a, b: [b, a])),
    ("cvt.rp.ftz.pzo.bf16.f32", columns(lambda a: [np.where(a == 0x007FFFFF, a + 1, a)])),
    ("cvt.rn.bf16x2.e2m1x2", columns(lambda a: [np.where(a & 0xF == 8, a ^ 8, a)])),
    ("cvt.rn.scaled::n2::ue8m0.bf16x2.e3m2x2", columns(lambda a, s: [a, np.where(s & 0xFF == 0, s | 1, s)])),
]


@pytest.mark.parametrize(("form", "wrong"), spread(WRONG, 3, lambda row: [row[1].__qualname__, row[0].split(".")[-1]]))
def test_a_wrong_definition_is_named(form: str, wrong: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong rounding, modifiers, exchanged operands or places, ignored bits or scales: every definition reports it."""
    monkeypatch.setattr(opinions, "run", wrong)
    assert_all_disagree(form, judged(form))


def in_python(form: str, *given: Any) -> Any:
    """The result of the emulator's definition in its module, uncompiled."""
    one = opinions._bound(form).array_function().one
    return np.array([one(*row) for row in zip(*(c.tolist() for c in given), strict=True)])


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("form", "module", "helper", "wrong"),
    [
        ("cvt.rn.satfinite.pzo.e2m1x2.bf16x2", convert_narrow, "no_negative_zero", lambda a, sign, pzo: a),
        ("cvt.rn.relu.f16x2.e2m3x2", convert_narrow, "half_relu", lambda a, relu: a),
        ("cvt.rn.bf16x2.e4m3x2", convert_narrow, "narrow_is_nan", lambda code, form: 0),
        ("cvt.rn.bf16x2.ue8m0x2", convert_scale, "_bf16_of_ue8m0", lambda s: 0x7FFF if s == 0xFF else s << 7),
    ],
)
def test_a_mistake_in_the_code_of_a_definition_is_named(
    form: str, module: Any, helper: str, wrong: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opinions, "run", in_python)
    monkeypatch.setattr(module, helper, wrong)
    assert_all_disagree(form, judged(form))


def assert_all_disagree(form: str, verdict: Verdict) -> None:
    """Assert that every definition names the form and the operands on which it disagrees."""
    assert all(text.startswith(f"{form}: value ") for text in verdict.against)
    assert {text.rsplit(", ", 1)[1].split(" says")[0] for text in verdict.against} >= {EXACT, GFLOAT, *verdict.agreed}


def test_random_fields_as_reported_for_a_b200() -> None:
    word = np.array([0x12345678])
    assert [int(f[0]) for f in random_fields(word, "e4m3")] == [0x2C48, 0x1234, 0x1E6A, 0x5678]
    assert [int(f[0]) for f in random_fields(word, "e2m1")] == [0x6A48, 0x1256, 0x1E2C, 0x3478]


def test_only_forms_without_hardware_take_opinions() -> None:
    book = ledger.read()
    agreed = {"cvt.rn.satfinite.e2m1x2.f32": {EXACT: 5, ML_DTYPES: 3}, "add.f32": {EXACT: 5}}
    entries = ledger.with_opinions(book, agreed).entries
    entry = entries["cvt.rn.satfinite.e2m1x2.f32"]
    assert entry.opinions == {EXACT: 5, ML_DTYPES: 3}
    assert entry.status == ledger.SPECIFICATION
    assert entries["add.f32"] == book.entries["add.f32"]


def test_opinions_on_more_inputs_are_kept() -> None:
    """Opinions on fewer inputs are replaced, and opinions on a definition that has changed."""
    forms = {"cvt.rn.satfinite.e2m1x2.f32": 5, "cvt.rn.satfinite.e2m1x2.f16x2": 9, "cvt.rn.satfinite.e2m3x2.f32": 9}
    book = ledger.with_opinions(ledger.read(), {form: {EXACT: count} for form, count in forms.items()})
    changed = "cvt.rn.satfinite.e2m3x2.f32"
    book = ledger.Ledger(book.runs, {**book.entries, changed: replace(book.entries[changed], definition="00000000")})
    found = {form: Verdict() for form in forms}
    for verdict in found.values():
        verdict.agreed[EXACT] = 7
    assert set(opinions.more(found, book)) == {"cvt.rn.satfinite.e2m1x2.f32", changed}


def test_opinions_on_another_definition_do_not_count() -> None:
    form = "cvt.rn.satfinite.e2m1x2.f32"
    book = ledger.with_opinions(ledger.read(), {form: {EXACT: 5}})
    assert ledger.current(book)[form].opinions == {EXACT: 5}
    changed = {form: replace(book.entries[form], definition="00000000")}
    found = ledger.current(ledger.Ledger(book.runs, changed))[form]
    assert found.status == ledger.SPECIFICATION
    assert not found.opinions


def test_the_table_names_agreeing_definitions(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    book = ledger.with_opinions(ledger.read(), {"cvt.rn.satfinite.e2m1x2.f32": {EXACT: 268435456}})
    monkeypatch.setattr(ledger, "read", lambda *_: book)
    assert main(["conformance", "cvt.rn.satfinite.e2m1x2.f32"]) == 0
    assert "exact rational on 268,435,456" in capsys.readouterr().out
