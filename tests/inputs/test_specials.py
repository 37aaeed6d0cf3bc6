"""The set `specials/1`: pairs of zeros, infinities and NaN that a sample of the edges may lack."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from ptxdiff import Case, Domain, asm
from ptxdiff.backends.emulator import EmulatorBackend
from ptxdiff.inputs import input_sets, named_set
from ptxdiff.inputs.patterns import combinations, special_units
from ptxdiff.model.load import LoadedCase
from ptxdiff.references import comparison
from ptxdiff.references.formats import F16, F32, FORMATS, I32, Format, is_infinity, is_nan, is_zero
from ptxdiff.running.item import Item
from ptxdiff.running.run import run_item

CLAMP = (
    "{{ .reg .pred p, q; setp.{lt}.f32 p, $1, $2; setp.gt.f32 q, $1, $3; "
    "selp.f32 $0, $3, $1, q; selp.f32 $0, $2, $0, p; }}"
)
ARGMAX = "{{ .reg .pred p, q; setp.gt.f32 p, $4, $2; {wrong} selp.f32 $0, $4, $2, p; selp.b32 $1, $5, $3, p; }}"


ZEROS = "setp.eq.u32 q, $4, 0; setp.eq.and.u32 q, $2, 0x80000000, q; or.pred p, p, q;"
INFINITIES = "setp.neu.f32 q, $2, 0fFF800000; setp.neu.or.f32 q, $4, 0f7F800000, q; and.pred p, p, q;"


def clamped(x, lo, hi):
    below, above = comparison.compare(x, lo, "lt"), comparison.compare(x, hi, "gt")
    return torch.where(below, lo, torch.where(above, hi, x))


def later_if_larger(best, place, x, here):
    larger = comparison.compare(x, best, "gt")
    return torch.where(larger, x, best), torch.where(larger, here, place)


def clamp(text: str) -> Case:
    ordered = Domain("lo <= hi", lambda v: v["lo"] <= v["hi"])
    inputs = {"x": F32, "lo": F32, "hi": F32}
    return Case(inputs=inputs, outputs={"y": F32}, reference=clamped, where=ordered, variants={"v": asm(text)})


def argmax(text: str) -> Case:
    inputs = {"best": F32, "place": I32, "x": F32, "here": I32}
    variants = {"v": asm(text, constraints="=&r,=&r,r,r,r,r")}
    return Case(
        inputs=inputs, outputs={"m": F32, "i": I32}, reference=later_if_larger, nan="payload", variants=variants
    )


def verdict_of(case: Case, name: str) -> str:
    item = Item(LoadedCase(case, name, "case", Path("c.py"), ""), "v", "sm_90a", "emulator")
    return run_item(item, EmulatorBackend(), "quick").verdict


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(clamp("{ max.NaN.f32 $0, $1, $2; min.NaN.f32 $0, $0, $3; }"), id="-0 below a bound of +0"),
        pytest.param(clamp(CLAMP.format(lt="le")), id="the bound, where it is equal"),
        pytest.param(argmax(ARGMAX.format(wrong=ZEROS)), id="+0 above -0"),
        pytest.param(argmax(ARGMAX.format(wrong=INFINITIES)), id="+inf after -inf"),
    ],
)
def test_asm_that_is_wrong_for_one_pair_of_special_values_fails(case: Case) -> None:
    """Each passed with the other sets: the case's name decides which pairs are in the sample of the edges."""
    assert verdict_of(case, "three.clamp" if "lo" in case.inputs else "three.argmax") == "fail"


def test_right_asm_passes() -> None:
    assert verdict_of(clamp(CLAMP.format(lt="lt")), "three.clamp") == "pass"
    assert verdict_of(argmax(ARGMAX.format(wrong="")), "three.argmax") == "pass"


@pytest.mark.parametrize("fmt", list(FORMATS.values()), ids=str)
def test_every_format_has_few_specials(fmt: Format) -> None:
    units = special_units(fmt)
    assert 0 < len(units) == len(set(units.tolist())) <= 18
    assert (units.astype(fmt.numpy_dtype()).astype(np.int64) & 0xFF == units & 0xFF).all()


@pytest.mark.parametrize("fmt", [F16, F32], ids=str)
def test_specials_are_values_with_their_own_rules_in_both_signs(fmt: Format) -> None:
    codes = torch.from_numpy(special_units(fmt)) & fmt.code_mask
    assert [int(kind(fmt, codes).sum()) for kind in (is_zero, is_infinity, is_nan)] == [2, 2, 2]


@pytest.mark.parametrize("lengths", [(16, 16), (16, 16, 16), (16, 17, 16, 17), (3, 18, 5, 18, 16, 2, 9), (2,) * 12])
def test_every_two_columns_have_every_pair(lengths: tuple[int, ...]) -> None:
    columns = [np.arange(n) + 100 * k for k, n in enumerate(lengths)]
    rows = combinations(columns, np.random.default_rng(0))
    for i, j in itertools.combinations(range(len(lengths)), 2):
        pairs = set(zip(rows[i].tolist(), rows[j].tolist(), strict=True))
        assert len(pairs) == lengths[i] * lengths[j]
    assert len(rows[0]) <= 16_000


def test_three_inputs_have_all_combinations() -> None:
    rows = combinations([np.arange(16)] * 3, np.random.default_rng(0))
    assert len(set(zip(*(r.tolist() for r in rows), strict=True))) == len(rows[0]) == 16**3


def test_there_are_no_specials_if_the_edges_have_every_pair() -> None:
    one = Case(inputs={"x": F32}, outputs={"y": F32}, reference=lambda x: x, variants={"v": asm("mov.b32 $0, $1;")})
    assert "specials/1" not in [s.name for s in input_sets(one, "quick")]
    case = argmax(ARGMAX.format(wrong=""))
    assert named_set(case, "quick", "specials/1").count == 8 * 17**2
