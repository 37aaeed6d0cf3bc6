"""While one setup runs and is judged, the next ones compile, one on each core. Order and inputs stay the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import triton

from ptxdiff import Case, asm, plain
from ptxdiff.backends.emulator import EmulatorBackend
from ptxdiff.jobs import Job, Outcome
from ptxdiff.model.load import LoadedCase
from ptxdiff.model.variants import CaseError
from ptxdiff.references.formats import U8
from ptxdiff.running import run
from ptxdiff.running.item import Item
from ptxdiff.running.item_plan import ItemPlan
from ptxdiff.running.run import run_item


@triton.jit
def flipped_by_triton(x):
    return x ^ 6


def flipped(x):
    return x ^ 6


CASE = Case(
    inputs={"x": U8},
    outputs={"y": U8},
    reference=flipped,
    variants={
        "asm": asm("xor.b32 $0, $1, 0x06060606;", constraints="=r,r", pack=4),
        "triton": plain(flipped_by_triton),
    },
)


def item_of(variant="triton"):
    return Item(LoadedCase(CASE, "c", "case", Path(__file__), ""), variant, "sm_90a", "emulator")


def place_of(job: Job):
    return job.setup, {n: np.asarray(v).tobytes() for n, v in job.inputs.items()}


class Listed:
    """A backend that records its calls, and gives right outputs without compiling anything."""

    name = "emulator"

    def __init__(self, answer=lambda x: x ^ 6):
        self.calls, self.answer = [], answer

    def unavailable(self, target):
        return None

    def prepare(self, job):
        self.calls.append(("prepare", *place_of(job)))

    def run(self, job):
        self.calls.append(("run", *place_of(job)))
        return Outcome("ran", outputs={"y": self.answer(job.inputs["x"])})


@pytest.mark.parametrize("cores", [1, 2])
def test_the_next_ones_compile_while_this_one_runs(cores, monkeypatch):
    monkeypatch.setattr(run, "default_size", lambda: cores)
    backend = Listed()
    assert run_item(item_of(), backend, "quick").verdict == "pass"
    prepared = [a[1:] for a in backend.calls if a[0] == "prepare"]
    ran = [a[1:] for a in backend.calls if a[0] == "run"]
    assert len(ran) >= 3
    assert ran == prepared  # each once, in the plan's order, with the same inputs
    words = [a[0] for a in backend.calls]
    assert words[: cores + 2] == ["prepare"] * (cores + 1) + ["run"]
    for place, word in enumerate(words):
        behind = words[: place + 1].count("prepare") - words[: place + 1].count("run")
        assert word == "prepare" or behind <= cores


def test_a_prepared_job_that_never_runs_gives_no_result():
    backend = Listed(answer=lambda x: x ^ 7)
    found = run_item(item_of(), backend, "quick", stop=True)
    assert found.verdict == "fail"
    assert [a[0] for a in backend.calls] == ["run"]  # if the first failure ends the item, nothing is prepared


def test_a_backend_that_refuses_to_prepare_still_runs():
    class Broken(Listed):
        def prepare(self, job):
            raise RuntimeError("no compiler")

    backend = Broken()
    assert run_item(item_of(), backend, "quick").verdict == "pass"
    assert {a[0] for a in backend.calls} == {"run"}


def test_inputs_that_cannot_be_made_are_an_error_in_their_place(monkeypatch):
    backend = Listed()
    monkeypatch.setattr(run, "default_size", lambda: 1)
    made = ItemPlan.filled

    def filled(self, item):
        if any(a[0] == "run" for a in backend.calls):  # of the third one: once ahead, and once in its turn
            raise CaseError("no inputs today")
        return made(self, item)

    monkeypatch.setattr(ItemPlan, "filled", filled)
    found = run_item(item_of(), backend, "quick")
    assert [r.verdict for r in found.results] == ["pass", "pass", "error"]
    assert "no inputs today" in found.results[-1].words


@pytest.mark.parametrize("variant", ["asm", "triton"])
def test_the_emulators_results_are_those_without(variant, monkeypatch):
    wanted = run_item(item_of(variant=variant), EmulatorBackend(), "quick")
    monkeypatch.delattr(EmulatorBackend, "prepare")
    alone = run_item(item_of(variant=variant), EmulatorBackend(), "quick")
    assert wanted.verdict == "pass"
    assert [(r.key, r.verdict, r.outputs_digest) for r in wanted.results] == [
        (r.key, r.verdict, r.outputs_digest) for r in alone.results
    ]
