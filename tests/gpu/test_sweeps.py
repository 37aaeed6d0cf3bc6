"""Sweeps on a device: planted mistakes are found among 2^32 inputs, failures replay, memory is bounded."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU: torch finds no CUDA device"),
]

from ptxdiff.backends.gpu import GpuBackend, device_target  # noqa: E402
from ptxdiff.model import load as loader  # noqa: E402
from ptxdiff.running.item import Item  # noqa: E402
from ptxdiff.running.replay import parse  # noqa: E402
from ptxdiff.running.run import run_item  # noqa: E402
from ptxdiff.sweep.device import Examiner  # noqa: E402

PATH = Path(__file__).with_name("swept_cases.py")


@pytest.fixture(scope="module")
def backend():
    return GpuBackend()


def item(case, variant):
    found = next(c for c in loader.load(PATH) if c.attribute == case)
    return Item(found, variant, device_target(), "gpu")


def swept(backend, case, variant):
    """The result of the item's largest input set, and all results."""
    found = run_item(item(case, variant), backend, "exhaustive").results
    return max(found, key=lambda r: r.total), found


@pytest.mark.parametrize(
    ("variant", "classes"),
    [
        ("one ulp at one input", {"1 ulp": 1}),
        ("sign of one zero", {"sign of zero": 1}),
        ("another NaN", {"NaN payload": 1}),
    ],
)
def test_one_mistake_in_four_thousand_million_is_found(backend, variant, classes):
    result, _ = swept(backend, "reciprocals", variant)
    assert (result.verdict, result.total, dict(result.classes)) == ("fail", 1 << 32, classes)
    found = item("reciprocals", variant)
    again = run_item(found, backend, "quick", replay=parse(result.replay, found.loaded.case))
    assert again.results[0].verdict == "fail"


@pytest.mark.parametrize(
    ("case", "variant"),
    [
        ("domains", "wrong at one input"), ("domains", "another sign at one input"), ("domains", "no NaN at one input"),
        ("meeting", "wrong at one input"), ("far", "wrong at one input"), ("far", "infinite at one input"),
        ("words", "sign of one zero"), ("zeros", "sign of one zero"),
    ],
)  # fmt: skip
def test_one_mistake_is_found_among_results_that_are_unchecked_or_far(backend, case, variant):
    result, _ = swept(backend, case, variant)
    assert (result.verdict, result.different) == ("fail", 1)
    assert not any("no kernel can be made" in note for note in result.notes)


@pytest.mark.parametrize("case", ["domains", "meeting", "far", "words"])
def test_unchecked_and_far_results_cost_no_second_pass(backend, case, monkeypatch):
    """If the judge examined these two thousand million results one by one, it would take minutes."""
    examined, look = [], Examiner.look
    monkeypatch.setattr(
        Examiner, "look", lambda self, number, units: examined.append(len(number)) or look(self, number, units)
    )
    result, every = swept(backend, case, "right")
    assert {r.verdict for r in every} == {"pass"}
    assert not any("no kernel can be made" in note for note in result.notes)
    assert sum(result.ulps.values()) > 1 << 30
    assert sum(examined) < 1 << 28


def test_a_dropped_ftz_has_the_class_flush_to_zero(backend):
    result, _ = swept(backend, "reciprocals", "dropped ftz")
    assert result.verdict == "fail"
    assert result.classes["flush to zero"] > 1 << 24


def test_right_variants_pass_on_all_inputs(backend):
    for case, variant in (("reciprocals", "right"), ("reciprocals", "approximate, ftz"), ("products", "right")):
        result, every = swept(backend, case, variant)
        assert {r.verdict for r in every} == {"pass"}
        assert result.total == 1 << 32


def test_a_reference_with_a_negative_zero_flags_no_right_result(backend):
    result, every = swept(backend, "zeros", "right")
    assert {r.verdict for r in every} == {"pass"}
    judged_again = next(n for n in result.notes if "judged again" in n)
    assert int(judged_again.split()[0]) == 1 << 16, "a row with a flagged result gives none of this sample"


def test_a_failure_among_random_inputs_replays(backend):
    result, _ = swept(backend, "sampled", "seldom")
    assert (result.verdict, result.total) == ("fail", 1 << 30)
    assert 256 < result.different < 4096
    found = item("sampled", "seldom")
    again = run_item(found, backend, "quick", replay=parse(result.replay, found.loaded.case)).results[0]
    assert again.verdict == "fail"
    assert again.offenders[0].inputs == result.offenders[0].inputs
    assert swept(backend, "sampled", "right")[0].verdict == "pass"


@pytest.mark.parametrize("case", ["reciprocals", "powers", "products", "sampled"])
def test_eight_gigabytes_are_enough(backend, case):
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.set_per_process_memory_fraction(min(1.0, 8e9 / total))
    try:
        result, _ = swept(backend, case, "right")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert result.verdict == "pass"
    assert torch.cuda.max_memory_allocated() < 8e9
