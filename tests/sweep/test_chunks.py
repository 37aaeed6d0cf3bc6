"""Large sets through any backend: running chunk by chunk gives the same as running all at once."""

import numpy as np
import pytest

from ptxdiff.inputs import input_sets, stratified
from ptxdiff.jobs import Outcome
from ptxdiff.model.case import Case
from ptxdiff.model.load import LoadedCase
from ptxdiff.model.variants import asm
from ptxdiff.references.formats import F16
from ptxdiff.running import item_plan as item_module
from ptxdiff.running.item import Item
from ptxdiff.running.run import run_item
from ptxdiff.sweep import dispatch

torch = pytest.importorskip("torch")


def negation(x):
    return x ^ 0x8000


CASE = Case(
    inputs={"x": F16}, outputs={"y": F16}, reference=negation, nan="payload", variants={"v": asm("x", "=r,r", pack=2)}
)


class Negating:
    """A backend that negates, with a wrong result for one input. It counts the elements of the largest job."""

    name = "emulator"

    def __init__(self, wrong=None):
        self.wrong, self.largest = wrong, 0

    def unavailable(self, target):
        return None

    def run(self, job):
        x = job.inputs["x"]
        self.largest = max(self.largest, x.size)
        return Outcome("ran", outputs={"y": x ^ np.where(x == self.wrong, 0x8001, 0x8000).astype(np.uint16)})


@pytest.fixture
def exhaustively(monkeypatch, tmp_path):
    """The results of the exhaustive set, swept in chunks of 2^12."""
    monkeypatch.setattr(item_module, "LARGE", 1 << 13)
    monkeypatch.setattr(dispatch.sweep_in_chunks, "__defaults__", (1 << 12,))

    def run(backend):
        item = Item(LoadedCase(CASE, "case", "case", tmp_path / "case.py", ""), "v", "sm_90a", "emulator")
        found = run_item(item, backend, "quick").results
        return [r for r in found if r.key.input_set == "exhaustive/1" and r.key.shape == "65536"], found

    return run


def test_a_set_is_run_in_bounded_chunks_and_passes(exhaustively):
    backend = Negating()
    (result,), others = exhaustively(backend)
    assert backend.largest < 1 << 13  # the tuples of a pack are run whole
    assert (result.verdict, result.total, result.ulps) == ("pass", 1 << 16, {"0": (1 << 16) - 2048})
    assert [(b.first, b.count) for b in result.outputs_digest] == [(0, 1 << 16)]
    assert {r.verdict for r in others} == {"pass"}


def test_a_difference_is_named_by_its_number_with_a_token_that_repeats_it(exhaustively):
    (result,), _ = exhaustively(Negating(wrong=0x4321))
    assert (result.verdict, result.different, result.classes) == ("fail", 1, {"1 ulp": 1})
    offender = result.offenders[0]
    assert (offender.index, offender.place, offender.inputs["x"].bits) == (0x4321, 1, "0x4321")
    assert "place=1" in result.replay
    assert "x=4320:4321" in result.replay


def test_digests_show_where_bits_changed(exhaustively):
    (clean,), _ = exhaustively(Negating())
    (changed,), _ = exhaustively(Negating(wrong=7))
    assert clean.outputs_digest != changed.outputs_digest


def test_a_chunk_that_does_not_run_ends_the_sweep_with_its_message(exhaustively):
    class Refusing(Negating):
        def run(self, job):
            return Outcome("error", "no such instruction")

    (result,), _ = exhaustively(Refusing())
    assert (result.verdict, result.words) == ("error", "no such instruction")


def test_a_stratified_set_is_the_same_in_chunks_of_any_size():
    whole = stratified(CASE, 1 << 14)
    assert whole.name == "stratified-14/1"
    parts = [whole.take(first, 1000) for first in range(0, whole.count, 1000)]
    np.testing.assert_array_equal(np.concatenate([p["x"] for p in parts]), whole.all()["x"])
    np.testing.assert_array_equal(whole.pick(np.array([5, 3]))["x"], whole.all()["x"][[5, 3]])
    exponents = (whole.all()["x"] >> 10) & 31
    assert (exponents == 0).mean() > 0.05  # subnormals
    assert (exponents == 31).mean() > 0.03  # infinities and NaN


def test_exhaustive_sets_of_32_bits_are_never_in_memory():
    case = Case(
        inputs={"a": F16, "b": F16}, outputs={"y": F16}, reference=negation, variants={"v": asm("x", "=r,r,r", pack=2)}
    )
    sets = {s.name: s for s in input_sets(case, "exhaustive")}
    assert sets["exhaustive/1"].count == 1 << 32
    assert sets["exhaustive/1"].take((1 << 32) - 1, 5)["b"].tolist() == [0xFFFF]
    assert "edges-full/1" in sets  # for the shapes, alignments and placements that the whole set is too large for
