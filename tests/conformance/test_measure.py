"""What a measurement reports: planted mistakes with their inputs, distances, and faults of the process."""

from functools import partial

import numpy as np
import pytest

from ptxdiff.conformance import campaign, forms, ledger, measure
from ptxdiff.conformance.inputs import shape_of
from ptxdiff.conformance.kernels import DIFFERENT, distance
from ptxdiff.conformance.measure import Tally
from ptxdiff.emulator.text.types import TYPES
from tests.support.conformance.pretended import Pretended, adds_one_to_nan, one_ulp_off


def measured(device, form, edges=300, host=1000, reach=4096):
    (snippet,) = forms.snippets(form)
    device.compiled([snippet], True)
    tally = Tally(snippet.form, snippet.variant)
    measure.on_edges(device, snippet, tally, edges)
    measure.on_host(device, snippet, tally, host)
    measure.on_device(device, snippet, tally, reach)
    return tally


def test_a_right_definition_has_no_mismatch():
    tally = measured(Pretended(), "add.rn.f32")
    assert (tally.mismatches, tally.offenders, tally.failure) == (0, [], "")
    assert tally.hosted == 1000
    assert tally.reached == 4096
    assert tally.inputs == tally.edges + 4096


def test_a_planted_mistake_is_reported_with_its_input():
    tally = measured(Pretended(wrong={"add.rn.f32": adds_one_to_nan}), "add.rn.f32")
    assert tally.mismatches > 0
    shown = tally.offenders[0]
    assert (shown.expected, shown.got) == (("0x7fffffff",), ("0x7ffffffe",))
    a, b = (np.uint32(int(w, 16)).view(np.float32) for w in shown.inputs)
    assert np.isnan(a + b)
    assert ledger.entry_of("add.rn.f32", [tally], "1").status == ledger.MISMATCH


def test_the_emulator_explains_a_mistake_found_on_the_device_alone():
    device = Pretended(wrong={"add.rn.f32": adds_one_to_nan})
    (snippet,) = forms.snippets("add.rn.f32")
    device.compiled([snippet], True)
    tally = Tally(snippet.form, snippet.variant)
    measure.on_device(device, snippet, tally, 4096)
    assert len(tally.offenders) == measure.OFFENDERS
    assert all(o.expected == ("0x7fffffff",) for o in tally.offenders)


def test_an_approximate_form_has_its_distance_and_worst_input():
    tally = measured(Pretended(wrong={"rcp.approx.f32": one_ulp_off}), "rcp.approx.f32")
    assert (tally.distance, tally.mismatches) == (1, 0)
    assert int(tally.worst.got[0], 16) == int(tally.worst.expected[0], 16) + 1
    entry = ledger.entry_of("rcp.approx.f32", [tally], "1")
    assert (entry.status, entry.ulp) == (ledger.MEASURED, 1)


def test_an_approximate_form_is_measured_as_its_bound_is():
    """One ulp in (0.5, 2) is less than 2**-23; elsewhere it is at most 2**-23 of the result."""
    entry = ledger.entry_of("lg2.approx.f32", [measured(Pretended(), "lg2.approx.f32", reach=0)], "1")
    assert (entry.status, entry.envelope) == (ledger.CONFIRMED, "")

    def next_code(columns, results):
        magnitude = results[0] & 0x7FFFFFFF
        return [results[0] + ((magnitude > 0) & (magnitude < 0x7F7FFFFF)).astype(np.uint32)]

    tally = measured(Pretended(wrong={"lg2.approx.f32": next_code}), "lg2.approx.f32", reach=0)
    near, elsewhere = tally.errors
    assert 0 < near < 2.0**-23
    assert 2.0**-25 < elsewhere <= 2.0**-23
    entry = ledger.entry_of("lg2.approx.f32", [tally], "1")
    assert entry.status == ledger.MEASURED
    assert entry.envelope.endswith(" elsewhere")


def test_packed_numbers_are_read_for_the_measure_of_a_bound():
    (snippet,) = forms.snippets("tanh.approx.bf16x2")
    words = np.array([0xC0003F80, 0x00017F80], np.uint32)
    expected = np.array([1.0, np.nan, -2.0, 2.0**-133])
    np.testing.assert_array_equal(measure.values_of(words, snippet.inputs[0]), expected)


def test_all_inputs_are_tried_where_they_are_few():
    tally = measured(Pretended(), "abs.f16", host=1 << 20, reach=10)
    assert tally.exhausted
    assert tally.inputs == 1 << 16 == tally.emulated


def test_a_device_that_disagrees_with_the_emulator_about_the_definition_confirms_nothing(monkeypatch):
    device = Pretended()
    (snippet,) = forms.snippets("add.rn.f32")
    device.compiled([snippet], True)
    monkeypatch.setattr(device, "check", lambda s, start, count: measure_report(start))
    tally = Tally(snippet.form, snippet.variant)
    measure.on_device(device, snippet, tally, 10)
    assert "on the device" in tally.failure
    assert ledger.entry_of("add.rn.f32", [tally], "1").status == ledger.UNCONFIRMED


def measure_report(start):
    from ptxdiff.conformance.fetch import ComparedOnDevice

    return ComparedOnDevice(1, (start,))


F32 = shape_of(TYPES["f32"], 32)


@pytest.mark.parametrize(
    ("kind", "expected", "got", "apart"),
    [
        ("f32", 0x3F800000, 0x3F800000, 0),
        ("f32", 0x3F800000, 0x3F800003, 3),
        ("f32", 0x3F800000, 0x3F7FFFFF, 1),
        ("f32", 0x80000001, 0x00000001, 2),
        ("f32", 0x7F7FFFFF, 0x7F800000, DIFFERENT),
        ("f32", 0x00000000, 0x00000001, DIFFERENT),
        ("f32", 0x00800000, 0x00000000, DIFFERENT),
        ("f32", 0x00000000, 0x80000000, DIFFERENT),
        ("f32", 0x7FFFFFFF, 0x7FC00000, DIFFERENT),
        ("f32", 0x7FFFFFFF, 0x3F800000, DIFFERENT),
        ("f16x2", 0x3C003C00, 0x3C013C05, 5),
        ("f16x2", 0x3C007FFF, 0x3C017FFE, DIFFERENT),
        ("u32", 5, 5, 0),
        ("u32", 5, 6, DIFFERENT),
    ],
)
def test_distance_of_one_and_of_arrays(kind, expected, got, apart):
    shape = shape_of(TYPES[kind], 32)
    assert distance(expected, got, *shape) == apart
    pair = (np.array([v], np.uint32) for v in (expected, got))
    assert measure.distances(*pair, shape)[0] == apart


def test_distance_of_64_bits():
    pair = (np.array([v], np.uint64) for v in (0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFF))
    apart = measure.distances(*pair, shape_of(TYPES["f64"], 64))[0]
    assert apart == float(2 * 0x7FEFFFFFFFFFFFFF)


@pytest.mark.slow
def test_a_campaign_survives_what_kills_a_worker():
    """With real processes: a mistake is found, a fault of the compiler costs only `check`, and a refusal is
    reported."""
    device = partial(Pretended, wrong={"add.rn.f32": adds_one_to_nan}, deadly=("brev.b32",), refused=("clz.b32",))
    plan = campaign.Plan(seconds=1.0, inputs=1 << 10, everything=1 << 10, emulated=1 << 8)
    names = ["add.rn.f32", "brev.b32", "clz.b32", "popc.b32", "cvt.rn.satfinite.e2m1x2.f32"]
    words = []
    outcome = campaign.run(names, plan, device=device, workers=1, progress=words.append)
    found = outcome.tallies
    assert outcome.identity.device == "Pretended"
    assert found["add.rn.f32"][0].mismatches > 0
    assert found["brev.b32"][0].reached == 0
    assert found["brev.b32"][0].hosted > 0
    assert found["clz.b32"][0].refused == "no such thing"
    assert found["popc.b32"][0].mismatches == 0
    assert "cvt.rn.satfinite.e2m1x2.f32" not in found
    assert "4 snippets" in words[0]


def test_a_campaign_without_a_device_says_so():
    from ptxdiff.conformance.fetch import NoDevice

    with pytest.raises(NoDevice, match="nothing here"):
        campaign.run(["add.rn.f32"], campaign.Plan(seconds=1.0), device=_absent, workers=1)


def _absent():
    from ptxdiff.conformance.fetch import NoDevice

    raise NoDevice("nothing here")
