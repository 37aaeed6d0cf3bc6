"""Probes of policies: under each policy, planted wrong results fail and right ones pass."""

from __future__ import annotations

import itertools
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxdiff import absolute, between, exact, magnitude, relative, ulp
from ptxdiff.model.case import Case
from ptxdiff.model.load import LoadedCase
from ptxdiff.model.variants import asm
from ptxdiff.references.formats import (
    BF16,
    E4M3,
    F16,
    F32,
    F64,
    Format,
    is_finite,
    is_nan,
    is_subnormal,
    is_zero,
    unpack,
)
from ptxdiff.running.item import Item
from ptxdiff.running.run import run_item
from tests.support.running.computing_backend import Scripted
from tests.support.sampling import only

FORMATS = (F32, F16, BF16, F64, E4M3)
MATCHES = {
    "exact": exact(),
    "ulp": ulp(1),
    "absolute": absolute(2.0**-140),
    "relative": relative(2.0**-60),
    "exact on a range": exact(on=magnitude("x", 0.5, 8)),
    "ulp on a range": ulp(1, on=between("x", 0.5, 8), outside=ulp(2)),
}
FTZ = ("never", "allowed", "required")
NAN = ("any", "canonical", "payload")


def signed(code: int) -> int:
    return code - (1 << 64) if code >> 63 else code


class Probe:
    """A right variant of the identity, and wrong variants of it, on codes as int64."""

    def __init__(self, fmt: Format, ftz: str) -> None:
        self.fmt, self.ftz = fmt, ftz
        self.sign = np.int64(signed(1 << fmt.sign_shift))
        self.canonical = np.int64(signed(fmt.canonical_nan or 0))

    def right(self, x: Any) -> Any:
        x = np.where(is_nan(self.fmt, x), self.canonical, x)
        flushed = self.ftz == "required" and self.fmt in (F32, F16, BF16)
        return np.where(is_subnormal(self.fmt, x), x & self.sign, x) if flushed else x

    def ordinary(self, x: Any) -> Any:
        return is_finite(self.fmt, x) & ~is_zero(self.fmt, x) & ~is_subnormal(self.fmt, x)

    def far(self, x: Any) -> Any:
        """Results four steps off, for numbers from a half to eight."""
        one = np.int64(self.fmt.bias << (self.fmt.mantissa_bits + self.fmt.ignored_bits))
        return np.where(x == one, self.right(x) ^ 4, self.right(x))

    def other_sign(self, x: Any) -> Any:
        return np.where(self.ordinary(x), self.right(x) ^ self.sign, self.right(x))

    def zero_sign(self, x: Any) -> Any:
        return np.where(is_zero(self.fmt, x), x ^ self.sign, self.right(x))

    def nan_lost(self, x: Any) -> Any:
        return np.where(is_nan(self.fmt, x), 0, self.right(x))

    def made_nan(self, x: Any) -> Any:
        return np.where(self.ordinary(x), self.canonical, self.right(x))

    def kept_subnormal(self, x: Any) -> Any:
        """Results that keep subnormals: a policy that requires flushes refuses them, and others require or allow
        them."""
        return np.where(is_nan(self.fmt, x), self.canonical, x)

    def flushed(self, x: Any) -> Any:
        return np.where(is_subnormal(self.fmt, x), x & self.sign, self.right(x))

    def payload(self, x: Any) -> Any:
        return np.where(is_nan(self.fmt, x), self.canonical ^ (self.sign if self.fmt is E4M3 else 1), self.right(x))


MISTAKES = ("far", "other_sign", "zero_sign", "nan_lost", "made_nan")


@lru_cache(maxsize=1)  # making a case's inputs takes longer than judging a variant on them
def loaded(fmt: Format, match: Any, ftz: Any, nan: Any) -> LoadedCase:
    canonical = int(Probe(fmt, ftz).canonical)

    def reference(x):
        import torch

        return torch.where(is_nan(fmt, x), canonical, x)

    case = Case(
        inputs={"x": fmt},
        outputs={"y": fmt},
        reference=reference,
        variants={"v": asm("mov.b32 $0, $1;", constraints="=r,r", pack=1)},
        match=match,
        ftz=ftz,
        nan=nan,
    )
    return LoadedCase(case, "c", "case", Path("c.py"), "")


def verdict(fmt: Format, match: Any, ftz: Any, nan: Any, computes: Any) -> str:
    def output(units):
        found = computes(Probe(fmt, ftz))(unpack(fmt, units))
        return found.astype(f"int{fmt.unit_bits}", casting="unsafe").view(units.dtype)

    item = Item(loaded(fmt, match, ftz, nan), "v", "sm_90a", "gpu")
    return run_item(item, Scripted(y=output), "quick").verdict


@pytest.fixture(autouse=True)
def _few_setups(monkeypatch):
    """Run only the plan's first setup, which has every input; the other setups would repeat it."""
    from ptxdiff.running import plan

    whole = plan.plan
    monkeypatch.setattr(plan, "plan", lambda *a: _first_of_each_set(whole(*a)))


def _first_of_each_set(work: Any) -> Any:
    return list({item.input_set: item for item in reversed(work)}.values())


def probes() -> list[Any]:
    """The quick run has every pair of two of format, match and ftz. A format that is never flushed has two of ftz."""
    found = []
    for (i, fmt), (j, match) in itertools.product(enumerate(FORMATS), enumerate(MATCHES)):
        policies = FTZ if fmt in (F32, F16, BF16) else FTZ[:2]
        for k, ftz in enumerate(policies):
            now = k == (i + j) % len(policies)
            found.append(pytest.param(fmt, match, ftz, marks=() if now else pytest.mark.slow))
    return found


@pytest.mark.sample(8)
@pytest.mark.parametrize(("fmt", "match", "ftz"), probes(), ids=lambda p: getattr(p, "name", p))
def test_a_right_result_passes_and_every_mistake_does_not(fmt, match, ftz):
    policy = MATCHES[match]
    assert verdict(fmt, policy, ftz, "any", lambda p: p.right) == "pass"
    for mistake in MISTAKES:
        found = verdict(fmt, policy, ftz, "any", lambda p, name=mistake: getattr(p, name))
        assert found == "fail", mistake


@pytest.mark.sample(3)
@pytest.mark.parametrize(("fmt", "nan"), list(itertools.product(FORMATS, NAN)), ids=lambda p: getattr(p, "name", p))
def test_payloads_pass_by_the_policy_on_nan_alone(fmt, nan):
    assert verdict(fmt, exact(), "never", nan, lambda p: p.right) == "pass"
    expected = "pass" if nan == "any" else "fail"
    assert verdict(fmt, exact(), "never", nan, lambda p: p.payload) == expected


@pytest.mark.sample(3)
@pytest.mark.parametrize(("fmt", "ftz"), list(itertools.product(FORMATS, FTZ)), ids=lambda p: getattr(p, "name", p))
@pytest.mark.parametrize("match", only([exact(), ulp(1)], [ulp(1)]), ids=lambda m: m.describe())
def test_flushes_pass_by_the_policy_on_flushes_alone(fmt, ftz, match):
    flushes = fmt in (F32, F16, BF16)
    kept = "fail" if ftz == "required" and flushes else "pass"
    lost = "fail" if ftz == "never" or not flushes else "pass"
    assert verdict(fmt, match, ftz, "any", lambda p: p.kept_subnormal) == kept
    assert verdict(fmt, match, ftz, "any", lambda p: p.flushed) == lost


def test_a_policy_for_outside_a_range_has_no_range_of_its_own():
    """It would judge nothing outside its own range, though outside= reads as if all other inputs were judged."""
    with pytest.raises(ValueError, match=r"outside= holds wherever .* does not, so it has no on= of its own"):
        exact(on=between("x", 0.5, 8), outside=ulp(2, on=between("x", 8, 16)))
