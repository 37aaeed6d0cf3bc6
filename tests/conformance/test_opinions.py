"""Conversions that no hardware at hand has agree with definitions made without the emulator's."""

from dataclasses import replace
from typing import Any

import numpy as np
import opinions
import pytest
from opinions import EXACT, GFLOAT, ML_DTYPES, Verdict, added, conversions, judge, random_fields, special

from harness.cli import main
from harness.conformance import ledger

CONVERSIONS = conversions()
SOME = sorted(CONVERSIONS)[::6]


@pytest.mark.parametrize("form", SOME)
def test_special_inputs_of_some_forms(form: str) -> None:
    """Every sixth form on all 16-bit values, all ties and a few thousand random patterns."""
    found = added(opinions.opinions([CONVERSIONS[form]], 1 << 13))
    assert not found[form].against
    assert {EXACT, GFLOAT} <= set(found[form].agreed)


@pytest.mark.slow
def test_all_forms() -> None:
    """All forms on as much, and 2**20 random patterns; `opinions.py` tries 2**28."""
    found = added(opinions.opinions(CONVERSIONS.values(), 1 << 20))
    assert not [text for v in found.values() for text in v.against]
    assert set(found) == set(CONVERSIONS)


@pytest.mark.slow
@pytest.mark.parametrize("to", sorted({c.to for c in CONVERSIONS.values() if c.source == "f32"}))
def test_many_float32(to: str) -> None:
    """2**28 random patterns for every form that converts float32 to a format: minutes each."""
    chosen = [c for c in CONVERSIONS.values() if c.source == "f32" and c.to == to]
    found = added(opinions.opinions(chosen, 1 << 28, workers=2))
    assert not [text for v in found.values() for text in v.against]
    assert all(v.agreed[EXACT] > 1 << 28 for v in found.values())


def test_every_tie_is_among_the_special_inputs() -> None:
    """The middles of e2m1's numbers, one float32 to either side, and both signs."""
    patterns = set(special("f32").patterns.tolist())
    for tie in np.float32([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]).view(np.uint32).tolist():
        assert {tie + step | sign for step in (-1, 0, 1) for sign in (0, 0x80000000)} <= patterns


@pytest.mark.parametrize(
    ("form", "place"),
    [
        ("cvt.rn.satfinite.e2m1x2.f32", 0),
        ("cvt.rn.satfinite.e3m2x2.bf16x2", 77),
        ("cvt.rs.satfinite.e4m3x4.f32", 1000),
        ("cvt.rp.ue8m0x2.f32", 12),
        ("cvt.rn.f16x2.e2m3x2", 3),
    ],
)
def test_one_wrong_code_is_found(form: str, place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run = opinions.run

    def wrong(*arguments: Any) -> Any:
        got = run(*arguments).copy()
        got[place] ^= 1
        return got

    monkeypatch.setattr(opinions, "run", wrong)
    found = added(opinions.opinions([CONVERSIONS[form]], 0))
    assert len(found[form].against) >= 2, "every definition says so"


def test_the_other_rounding_is_found() -> None:
    """The definitions, asked for another mode, contradict the emulator."""
    verdict = Verdict()
    judge(replace(CONVERSIONS["cvt.rn.satfinite.e2m1x2.f32"], mode="rz"), special("f32"), verdict)
    assert verdict.against


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


def test_opinions_on_another_definition_do_not_count() -> None:
    form = "cvt.rn.satfinite.e2m1x2.f32"
    book = ledger.with_opinions(ledger.read(), {form: {EXACT: 5}})
    assert ledger.current(book)[form].opinions == {EXACT: 5}
    changed = {form: replace(book.entries[form], definition="00000000")}
    found = ledger.current(ledger.Ledger(book.runs, changed))[form]
    assert found.status == ledger.SPECIFICATION
    assert not found.opinions


def test_the_table_says_who_agrees(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    book = ledger.with_opinions(ledger.read(), {"cvt.rn.satfinite.e2m1x2.f32": {EXACT: 268435456}})
    monkeypatch.setattr(ledger, "read", lambda *_: book)
    assert main(["conformance", "cvt.rn.satfinite.e2m1x2.f32"]) == 0
    assert "exact rational on 268,435,456" in capsys.readouterr().out
