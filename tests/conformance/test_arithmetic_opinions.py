"""Arithmetic that no available hardware has agrees with definitions independent of the emulator's."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from ptxdiff.conformance import ledger
from tests.support.conformance import arithmetic as a
from tests.support.conformance import arithmetic_opinions as o
from tests.support.conformance.opinions import EXACT, GFLOAT, Verdict
from tests.support.sampling import only

known = cache(o.known)
"""The digests of all definitions take seconds, which the worker that runs this file spends once."""


@cache
def narrow() -> list[str]:
    return sorted(form for form, c in known().items() if c.narrow)


@cache
def mixed() -> list[str]:
    return sorted(form for form, c in known().items() if not c.narrow)


@pytest.mark.sample(4)
@pytest.mark.parametrize("place", only(range(0, 896, 60), range(60, 896, 240)))
def test_some_narrow_forms(place: int) -> None:
    """Every sixtieth form on all its factors, with some addends."""
    form = narrow()[place]
    found = o.verdict_on(known()[form], 0, (0x00, 0x01, 0x38, 0x7E, 0x7F, 0x80, 0xC3))[form]
    assert not found.against
    assert {EXACT, GFLOAT} == set(found.agreed)


@pytest.mark.sample(3)
@pytest.mark.parametrize("place", only(range(0, 36, 4), range(4, 36, 8)))
def test_some_mixed_forms(place: int) -> None:
    form = mixed()[place]
    found = o.verdict_on(known()[form], 2000)[form]
    assert not found.against
    assert found.agreed == {EXACT: 2000}


@pytest.mark.slow
def test_all_narrow_forms_with_some_addends() -> None:
    """All narrow forms, with every sixteenth addend; takes minutes. The ledger has all addends."""
    assert [text for form in narrow() for text in o.verdict_on(known()[form], 0, range(0, 256, 16))[form].against] == []


def test_they_are_all_known() -> None:
    """7 operands and 2 results for sums, 49 and 2 for products; each with .rn, with .satfinite, with both."""
    assert len(narrow()) == 4 * (2 * 14 + 2 * 98)
    assert len(mixed()) == 36


@pytest.mark.parametrize("form", ["mul.rn.satfinite.e4m3x4.e2m1x4.e4m3x4", "fma.e5m2x4.e2m1p4x4.e3m2x4"])
def test_one_wrong_code_is_detected(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = o.run

    def wrong(*arguments: Any) -> Any:
        got = run(*arguments).copy()
        got[7] ^= 0x100
        return got

    monkeypatch.setattr(o, "run", wrong)
    found = o.verdict_on(known()[form], 0, (0x30,))[form]
    assert {text.split(", ")[-1].split(" says")[0] for text in found.against} == {EXACT, GFLOAT}


@pytest.mark.parametrize(
    ("form", "other"),
    [
        ("mul.e4m3x4.e4m3x4.e4m3x4", {"words": frozenset({"satfinite"})}),
        ("add.e5m2x4.e3m2x4", {"opcode": "sub"}),
        ("mul.e5m2x4.e2m3x4.e2m3x4", {"types": ("e5m2x4", "e2m3x4", "e3m2x4")}),
    ],
)
def test_another_meaning_is_detected(form: str, other: dict[str, Any]) -> None:
    verdict = Verdict()
    o.judge_narrow(replace(known()[form], **other), verdict, range(0, 256, 8))
    assert verdict.against


@pytest.mark.parametrize(
    ("form", "other"),
    [
        ("add.rz.ftz.f16x2.f32x2.f32x2", {"words": frozenset({"rz"})}),
        ("add.rz.bf16x2.f32x2.f32x2", {"words": frozenset({"rn"})}),
        ("fma.rm.f32x2.f16x2.f32x2.f32x2", {"words": frozenset({"rz"})}),
        ("sub.f32x2.bf16x2.f32x2", {"opcode": "add"}),
        ("mul.bf16x2.bf16x2.f16x2", {"types": ("bf16x2", "bf16x2", "bf16x2")}),
    ],
)
def test_another_meaning_of_a_mixed_form_is_detected(form: str, other: dict[str, Any]) -> None:
    verdict = Verdict()
    o.judge_mixed(replace(known()[form], **other), verdict, 1000)
    assert verdict.against


def test_exact_codes_by_hand() -> None:
    """The ties 1.5625 and 464 of e4m3, and zeros of both signs."""
    x = np.array([1.5625, 464.0, 465.0, -465.0, np.nextafter(1.5625, 2), -(2.0**-10), 3 * 2.0**-10])
    assert a.exact_codes(x, None, "e4m3", False).tolist() == [0x3C, 0x7E, 0x7F, 0x7F, 0x3D, 0x80, 0x02]
    assert a.exact_codes(x[:4], None, "e4m3", True).tolist() == [0x3C, 0x7E, 0x7E, 0xFE]
    assert a.exact_codes(np.array([1.0, -0.0, 0.0]), -1.0, "e5m2", False).tolist() == [0x00, 0xBC, 0xBC]
    assert a.exact_codes(np.array([-0.0, 0.0]), -0.0, "e5m2", False).tolist() == [0x80, 0x00]


def test_new_forms_say_what_the_hardware_lacks() -> None:
    book = ledger.Ledger(ledger.read().runs, {})
    entries = o.with_new_forms(book).entries
    assert entries["add.e4m3x4.e4m3x4"].status == ledger.SPECIFICATION
    assert entries["add.e4m3x4.e4m3x4"].why == "needs sm_100a, sm_103a"
    assert entries["mul.bf16x2.bf16x2.f16x2"].why == "needs sm_107f"
