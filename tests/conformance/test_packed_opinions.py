"""Packed and mixed arithmetic that no available hardware has agrees with definitions independent of the emulator's."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.support.conformance import float32 as f
from tests.support.conformance import lanes
from tests.support.conformance import packed_opinions as p
from tests.support.conformance.opinions import EXACT, added

known = cache(p.known)
"""The digests of all definitions take seconds, which the worker that runs this file spends once."""

FEW = 1 << 16


def judged(*forms: str) -> list[str]:
    """The disagreements of definitions with some forms."""
    return [text for v in added(p.verdicts([known()[form] for form in forms], FEW)).values() for text in v.against]


def test_all_integers() -> None:
    """Every pair of 8-bit integers at each place, and edges of 16-bit ones."""
    chosen = [c for c in known().values() if c.kind in ("s", "u")]
    found = added(p.verdicts(chosen, FEW))
    assert not [text for v in found.values() for text in v.against]
    assert len(found) == 50
    assert all(v.agreed[p.INTEGERS] > 1 << 16 for v in found.values())


def test_all_of_three_sources() -> None:
    chosen = [c for c in known().values() if c.kind == "three"]
    found = added(p.verdicts(chosen, FEW))
    assert not [text for v in found.values() for text in v.against]
    assert len(found) == 16


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_some_float32_forms(kind: str) -> None:
    """Every fourth form, on fewer values than `packed_opinions.py` tries."""
    chosen = [c for c in known().values() if c.kind == kind][::4]
    found = added(p.verdicts(chosen, FEW))
    assert not [text for v in found.values() for text in v.against]
    assert all(set(v.agreed) == {p.TWO_SUM, EXACT} for v in found.values())


@pytest.mark.slow
def test_all_forms() -> None:
    """All forms, as `packed_opinions.py --write` runs them; takes 15 seconds."""
    found = added(p.verdicts(known().values()))
    assert not [text for v in found.values() for text in v.against]
    assert set(found) == set(known())


# the definitions by hand, and held together ---------------------------------------------------------------------------

ONE, TINY = 0x3F800000, 0x00800000


@pytest.mark.parametrize(
    ("form", "operands", "expected"),
    [
        # 1 + 2^-24 is a tie and rounds to the even 1; a number half a unit greater rounds up.
        ("add.rn.f32.f16", (0x3C00, 0x33800000), ONE),
        ("add.rn.f32.f16", (0x3C00, 0x33800001), ONE + 1),
        ("add.rp.f32.bf16", (0x3F80, 0x00000001), ONE + 1),
        ("sub.rz.f32.bf16", (0x3F80, 0x00000001), ONE - 1),
        ("sub.rm.f32.f16", (0x3C00, ONE), 0x80000000),
        ("sub.rn.f32.f16", (0x3C00, ONE), 0),
        ("add.sat.f32.f16", (0x8000, 0x80000000), 0),
        ("add.sat.f32.bf16", (0x7FC0, 0), 0),
        ("add.rz.f32.bf16", (0x7F7F, 0x7F7FFFFF), 0x7F7FFFFF),
        ("fma.rn.f32.bf16", (0x7F80, 0, 0), f.NAN),
        ("fma.rn.sat.f32.f16", (0x4000, 0x4000, 0), ONE),
    ],
)
def test_float32_by_hand(form: str, operands: tuple[int, ...], expected: int) -> None:
    c = known()[form]
    names = [c.kind] * (len(operands) - 1) + ["f32"]
    x = [f.values(np.array([o]), n) for o, n in zip(operands, names, strict=True)]
    total, cancelled = p.exact_sums(c.opcode, x)
    assert f.patterns(total, c.mode, cancelled=cancelled, sat="sat" in c.words).tolist() == [expected]
    assert p.rational(c, names, list(operands)) == expected


def test_tininess_is_decided_as_if_exponents_had_no_lower_end() -> None:
    """(1 - 2^-24) 2^-126 fits into 24 bits, so that .ftz flushes it, although float32 rounds it to the least normal."""
    form = "mul.rn.ftz.f32x2"
    c, x = known()[form], [0x3F7FFFFF, TINY]
    product = f.values(np.array(x[:1]), "f32") * f.values(np.array(x[1:]), "f32")
    assert f.patterns(product, "rn").tolist() == [TINY]
    assert f.patterns(product, "rn", ftz=True).tolist() == [0]
    assert p.rational(c, ["f32", "f32"], x) == 0


def test_least_by_hand() -> None:
    """-0 is less than +0; NaNs are ignored, or give NaN; magnitudes have no sign."""
    rows = [np.array(x) for x in zip((0, 1 << 31, 0), (0x7FC00001, ONE, ONE | 1 << 31), (TINY - 1,) * 3, strict=True)]
    named: dict[str, Any] = {"largest": False, "nan": False, "magnitudes": False, "ftz": False}
    assert f.least(rows, **named).tolist() == [1 << 31, ONE | 1 << 31, TINY - 1]
    assert f.least(rows, **{**named, "nan": True}).tolist() == [1 << 31, f.NAN, TINY - 1]
    assert f.least(rows, **{**named, "magnitudes": True, "ftz": True}).tolist() == [0, ONE, 0]
    assert f.least(rows, **{**named, "largest": True}).tolist() == [0, ONE, TINY - 1]


def test_lanes_by_hand() -> None:
    def one(opcode: str, word: str, signed: bool, *codes: int) -> int:
        return int(lanes.result(opcode, (word,), 8, signed, *(np.array([c]) for c in codes))[0])

    assert one("neg", "", True, 0x80) == 0x80
    assert one("add", "sat", True, 0x80, 0xFF) == 0x80
    assert one("add", "", True, 0x80, 0xFF) == 0x7F
    assert one("sub", "sat", False, 1, 2) == 0
    assert one("max", "relu", True, 0xFE, 0xFF) == 0
    assert one("set", "lt", True, 0x80, 0) == 0xFF
    assert one("set", "lo", False, 0x80, 0) == 0


# planted mistakes -----------------------------------------------------------------------------------------------------


def instead(old: str, new: str) -> Callable[..., Any]:
    """The definition of the form whose name has `new` in place of `old`."""
    run = p.run
    return lambda form, *given: run(form.replace(old, new), *given)


def after(change: Callable[[Any], Any]) -> Callable[..., Any]:
    """The emulator's results, changed."""
    run = p.run
    return lambda form, *given: change(run(form, *given))


def before(change: Callable[..., Any]) -> Callable[..., Any]:
    """The emulator's results for operands that were changed."""
    run = p.run
    return lambda form, *given: run(form, *change(*given))


def low_half(got: Any, old: int, new: int) -> Any:
    """Pairs in which one pattern of the low half is replaced by another."""
    return np.where(got & 0xFFFFFFFF == old, got & ~0xFFFFFFFF | new, got)


SUBNORMAL_F16 = 0x0200
WRONG = [
    ("add.rz.f32x2", instead(".rz", ".rn")),
    ("add.rm.f32x2", after(lambda got: low_half(got, 0x80000000, 0))),
    ("add.rn.f32x2", after(lambda got: low_half(got, 0x7FFFFFFF, 0x7FC00000))),
    ("mul.rp.f32x2", instead(".rp", ".rz")),
    ("mul.rn.ftz.f32x2", after(lambda got: low_half(got, 0, TINY))),
    ("mul.rn.f32x2", instead(".rn", ".rn.ftz")),
    ("fma.rn.ftz.f32x2", instead(".ftz", "")),
    ("fma.rn.f32x2", before(lambda a, b, c: [a, b, c & ~1])),
    ("sub.f32x2", before(lambda a, b: [b, a])),
    ("add.rn.f32.f16", before(lambda a, c: [np.where(a & 0x7C00, a, a & 0x8000), c])),
    ("add.rp.sat.f32.bf16", instead(".sat", "")),
    ("sub.rm.f32.f16", instead(".rm", ".rz")),
    ("fma.rz.f32.bf16", after(lambda got: np.where(got == 0x7F7FFFFF, 0x7F800000, got))),
    ("fma.rn.sat.f32.f16", after(lambda got: np.where(got == 0, 0x80000000, got))),
    ("max.NaN.f32 d, a, b, c", instead(".NaN", "")),
    ("min.f32 d, a, b, c", before(lambda a, b, c: [b, a, a])),
    ("min.abs.f32", instead("min.abs.f32", "min.f32 d, a, b, c")),
    ("max.ftz.abs.f32", instead(".ftz", "")),
    ("max.f32 d, a, b, c", after(lambda got: np.where(got == 0, 0x80000000, got))),
    ("add.sat.s8x4", instead(".sat", "")),
    ("sub.u8x4", before(lambda a, b: [a, b & 0x7FFFFFFF])),
    ("max.relu.s8x4", instead(".relu", "")),
    ("neg.s8x4", after(lambda got: np.where(got >> 24 == 0x80, got ^ 1 << 24, got))),
    ("set.lt.s8x4", instead("s8x4", "u8x4")),
    ("set.hs.u16x2", instead("hs", "hi")),
    ("set.ne.s16x2", after(lambda got: got & 0x00010001)),
    ("add.sat.s16x2", after(lambda got: np.where(got & 0xFFFF == 0x8000, got ^ 1, got))),
    ("add.sat.u32", after(lambda got: np.where(got == 0xFFFFFFFF, 0xFFFFFFFE, got))),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("form", "wrong"), WRONG)
def test_a_wrong_definition_is_named(form: str, wrong: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Another rounding, NaN, zero, flush, order or range: the form and the operands are named."""
    monkeypatch.setattr(p, "run", wrong)
    against = judged(form)
    assert against
    assert all(text.startswith(f"{form}: ") for text in against)


@pytest.mark.parametrize(("form", "name"), [("fma.rn.f32x2", p.TWO_SUM), ("add.f32.f16", EXACT)])
def test_one_wrong_answer_of_one_definition_is_named(form: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patterns, rational = f.patterns, p.rational
    if name == EXACT:
        monkeypatch.setattr(p, "rational", lambda c, names, given: rational(c, names, given) ^ (given[0] & 0xF == 3))
    else:
        monkeypatch.setattr(
            f, "patterns", lambda x, mode, **named: patterns(x, mode, **named) ^ (np.arange(len(x)) == 9)
        )
    against = judged(form)
    assert against
    assert all(f", {name} says " in text for text in against)
