"""Bounds of fast math: each states its source, equals the ISA's, and holds at the worst known input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ptxdiff.conformance import ledger
from ptxdiff.conformance.bounds import BOUNDS, bound
from ptxdiff.model.load import in_folder
from ptxdiff.model.match import Match
from ptxdiff.model.policies import policies
from ptxdiff.model.variants import AsmVariant
from tests.support.fast_math_bounds import bounded, error, parts, run

CASES = Path(__file__).parent.parent / "cases"

WORST = {
    ("erf", "abramowitz-stegun", "on"): (0xBD2F42B9, 6.51926e-07),  # bound 9.53674e-07
    ("exp", "ex2.approx", "on"): (0xBD851592, 2),  # bound 4
    ("exp", "ex2.approx", "outside"): (0x42B00C13, 64),  # bound 132
    ("exp", "ex2.approx-corrected", "on"): (0x42000416, 2),  # bound 4
    ("exp", "ex2.approx.ftz", "on"): (0xBD851592, 2),  # bound 4
    ("exp", "ex2.approx.ftz", "outside"): (0x42B00C13, 64),  # bound 132
    ("exp2_polynomial", "degree-3", "meets"): (0xC08FFFEC, 9425),  # bound 10830
    ("exp2_polynomial", "degree-5", "meets"): (0xC08FF3D5, 39),  # bound 46
    ("gelu_tanh", "tanh.approx", "on"): (0xBFB3AF16, 5.61029e-06),  # bound 0.00209331
    ("log", "lg2.approx", "on"): (0x3F0166FF, 1.78814e-07),  # bound 2.38419e-07
    ("log", "lg2.approx", "outside"): (0x3EFFEF7D, 2.5788e-07),  # bound 3.61375e-07
    ("sigmoid", "exponential", "on"): (0x41002DF3, 1.19209e-07),  # bound 3.37175e-07
    ("sigmoid", "tanh", "on"): (0xC01BFFF8, 3.99351e-06),  # bound 0.000261663
    ("silu", "quotient", "on"): (0xC000060A, 5.96046e-08),  # bound 4.76837e-07
    ("silu", "quotient", "outside"): (0x3E663CDC, 2.38407e-07),  # bound 4.76837e-07
    ("silu", "tanh", "on"): (0x410B35F0, 1.04904e-05),  # bound 0.00418662
    ("softplus", "ex2-lg2", "on"): (0x41398D4B, 2.86102e-06),  # bound 7.62939e-06
    ("softplus", "ex2-lg2", "outside"): (0x52800000, 0),  # bound 1
    ("rsqrt", "rcp.rn-of-sqrt.rn", "on"): (0x13800001, 1),  # bound 2
    ("tanh", "by-exponential", "on"): (0xC0802E23, 2.38419e-07),  # bound 4.76837e-07
}
"""By case, variant and part of its bound: the input with the largest error found, and that error as the bound measures
it.

Made by `python -m tests.support.fast_math_bounds`, whose docstring describes the search.
"""


def matches(match: Match) -> list[Match]:
    """A policy's bounds: its own, and the one outside its domain."""
    return [m for m in (match, match.outside) if m is not None and m.kind != "exact"]


def test_every_bound_of_fast_math_states_its_source():
    silent = []
    for loaded in in_folder(CASES):
        for name, variant in loaded.case.variants.items() if loaded.case.family == "fast math" else ():
            policy = policies(loaded.case, variant)
            promised = [m for match in policy.match.values() for m in matches(match)]
            promised += matches(variant.meets.match) if variant.meets else []
            silent += [f"{loaded.name}::{name}: {m.describe()}" for m in promised if not m.source]
    assert not silent


# A variant's bound as the ISA states it; `ptxdiff.conformance.bounds` has these by form.
SAID = {
    "ulp(1)": "1 ulp",
    "ulp(2)": "2 ulp",
    "relative(2^-23)": "relative 2^-23",
    f"relative({float(2.0**-22.9):.6g})": "relative 2^-22.9",
    "relative(2^-11)": "relative 2^-11",
    f"absolute({float(2.0**-10.987):.6g})": "absolute 2^-10.987",
    "absolute(2^-8)": "absolute 2^-8",
    f"absolute({float(2.0**-20.5):.6g}) on |x| <= 2 pi, else unchecked": BOUNDS["sin.approx*.f32"],
    f"absolute({float(2.0**-20.4):.6g}) on |x| <= 2 pi, else unchecked": BOUNDS["cos.approx*.f32"],
    "absolute(2^-22) on 0.5 < x < 2, else relative(2^-22)": BOUNDS["lg2.approx*.f32"],
}


def test_a_single_instruction_has_the_isas_bound():
    wrong, checked = [], 0
    for loaded in in_folder(CASES):
        for name, variant in loaded.case.variants.items() if loaded.case.family == "fast math" else ():
            if isinstance(variant, AsmVariant) and variant.derived_packs:
                text = variant.texts[1].text
                isa = bound(text.split()[0])
                said = policies(loaded.case, variant).describe_match()
                if isa and said in SAID:
                    checked += 1
                    wrong += [f"{loaded.name}::{name}: {said}, ISA {isa}"] * (SAID[said] != isa)
    assert not wrong
    assert checked >= 14


def test_the_ledger_has_the_worst_of_all_inputs_within_each_bound_in_ulp():
    """A bound of n steps from the rounded value accepts an error of n + 1/2 ulp; the ISA's figures are meant so too."""
    book = ledger.current()
    forms = {form: entry for form, entry in book.items() if entry.errors and bound(form).startswith("2 ulp")}
    assert forms
    for form, entry in forms.items():
        (largest,) = (m for m in entry.errors["largest"] if m["measure"] == "ulp")
        assert largest["error"] <= 2.5, form


def test_the_table_has_every_bound_and_no_other():
    wanted = {(case, name, part) for case, name, of, variant in bounded() for part, *_ in parts(of, variant)}
    assert set(WORST) == wanted


@pytest.fixture(scope="module")
def variants():
    return {(case, name): (of, variant) for case, name, of, variant in bounded()}


@pytest.mark.parametrize("key", WORST, ids="-".join)
def test_the_bound_holds_at_the_worst_input_and_every_run_has_it(key, variants):
    case_name, name, part = key
    case, variant = variants[case_name, name]
    code, size = WORST[key]
    match, inside = next((m, i) for p, m, i in parts(case, variant) if p == part)
    codes = np.full(4, code, np.uint32)
    assert inside(codes.view(np.float32).astype(np.float64)).all()
    found = float(error(case_name, match, codes, run(case, variant, codes))[0])
    assert found == pytest.approx(size, rel=1e-4)
    assert found <= match.bound
    assert (code,) in [tuple(c) for c in case.hard_cases]
