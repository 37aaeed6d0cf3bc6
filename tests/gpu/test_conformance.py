"""Conformance on a device: right definitions agree with the instruction, a planted wrong one is detected."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from ptxdiff.conformance import campaign, forms, ledger, measure
from ptxdiff.conformance.fetch import Hardware
from ptxdiff.conformance.inputs import Inputs
from ptxdiff.processes.gpus import gpu_visible

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_visible(), reason="needs an NVIDIA GPU: none is visible"),
]

FORMS = ["add.rn.f32", "fma.rn.f64", "min.f16", "cvt.rn.f16.f32", "addc.cc.u32", "setp.lt.and.f32", "mov.b64"]


@pytest.mark.parametrize("form", FORMS)
def test_instruction_and_definition_agree(device, form):
    snippets = forms.snippets(form)
    assert device.compiled(snippets, True) == {}
    for snippet in snippets:
        tally = measure.Tally(snippet.form, snippet.variant)
        measure.on_edges(device, snippet, tally, 2000)
        measure.on_host(device, snippet, tally, 1 << 16)
        if device.checks(snippet):
            measure.on_device(device, snippet, tally, 1 << 22)
        assert (tally.mismatches, tally.failure) == (0, ""), tally.offenders


def test_both_comparisons_detect_a_wrong_definition(device):
    snippet = forms.snippets("add.rn.f32")[0]
    wrong = replace(snippet, text=snippet.text.replace("add.rn", "add.rz"), variant="planted")
    wrong.__dict__["step"] = snippet.step
    device.compiled([snippet, wrong], True)
    assert device.check(snippet, 0, 1 << 20).mismatches == 0
    report = device.check(wrong, 0, 1 << 20)
    assert report.mismatches > 1000
    columns = Inputs(wrong).at(np.array(report.indices, np.int64))
    right, other = device.run(snippet, columns), device.run(wrong, columns)
    assert (right[0] != other[0]).all()


def test_a_campaign_confirms_its_forms(device):
    plan = campaign.Plan(seconds=5.0, inputs=1 << 22, everything=1 << 16, emulated=1 << 12)
    outcome = campaign.run(FORMS, plan, device=partial(Hardware), workers=2)
    for form in FORMS:
        entry = ledger.entry_of(form, outcome.tallies[form], "1")
        assert entry.status == ledger.CONFIRMED, entry
    assert outcome.identity == device.identity


def test_recorded_machine_code_gives_the_interpreters_words_and_a_planted_difference_is_found(device):
    """What `tests/gpu/machine_code.py` records of some forms and runs, on this GPU."""
    from types import SimpleNamespace

    import machine_code

    from ptxdiff.backends.recorded import LaunchRecorder, on_device
    from ptxdiff.conformance import forms
    from ptxdiff.processes.child import of_target

    recorder, target = LaunchRecorder(), device.identity.target
    every = len(forms.bounds_of())
    args = SimpleNamespace(what="forms", target=target, part=(7, every // 12), ptxas=[], levels=(0, 3))
    machine_code.record_forms(recorder, args)
    launches = recorder.launches
    assert len(launches) > 8
    blobs = {d: recorder.blob(d) for r in launches for b in r.buffers for d in (b.before, b.after, b.unwritten) if d}
    blobs |= {r.cubin: recorder.blob(r.cubin) for r in launches}
    gpu = of_target(target)
    assert [f"{r.name}: {words}" for r, words, _ in on_device(gpu, launches, blobs) if words] == []
    planted = launches[0].buffers[0].after
    blobs[planted] = bytes([blobs[planted][0] ^ 1]) + blobs[planted][1:]
    found = {r.name: words for r, words, _ in on_device(gpu, launches, blobs)}
    assert found[launches[0].name].startswith("buffer 0, word 0: ")
