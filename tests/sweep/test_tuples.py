"""Every word that a pack reads: the sweep judges as the plain judge, in pieces, and says what it leaves out."""

import numpy as np
import pytest

from ptxdiff import Case, asm, either
from ptxdiff.inputs.sets import all_words
from ptxdiff.jobs import Outcome, Setup
from ptxdiff.model.load import LoadedCase
from ptxdiff.records import UNPROVED
from ptxdiff.references.formats import U8, U16
from ptxdiff.running import item_plan as item_module
from ptxdiff.running.item import Item
from ptxdiff.running.item_plan import ItemPlan
from ptxdiff.running.judgements import ItemJudge
from ptxdiff.running.plan import WorkItem
from ptxdiff.running.run import run_item
from ptxdiff.sweep import dispatch

pytest.importorskip("torch")


def same(x):
    return x


def case_of(fmt=U8, pack=2, output=None, reference=same, **policies):
    return Case(
        inputs={"x": fmt}, outputs={"y": output or fmt}, reference=reference, source="a test",
        variants={"v": asm("mov.b32 $0, $1;", constraints="=r,r", pack=pack, **policies)},
    )  # fmt: skip


class Copying:
    """A backend that copies, but for one tuple. It counts the elements of the largest job, and of all jobs."""

    name = "emulator"

    def __init__(self, wrong=None, mask=1):
        self.wrong, self.mask = wrong, np.uint8(mask)
        self.largest = self.all = 0

    def unavailable(self, target):
        return None

    def run(self, job):
        x = job.inputs["x"]
        self.largest, self.all = max(self.largest, x.size), self.all + x.size
        y = x.copy()
        if self.wrong is not None and x.size % len(self.wrong) == 0:
            words = y.reshape(-1, len(self.wrong))
            words[(words == np.array(self.wrong, np.uint8)).all(axis=1), -1] ^= self.mask
        return Outcome("ran", outputs={"y": y})


@pytest.fixture
def swept(monkeypatch, tmp_path):
    """The results for all words of two bytes, in pieces of 2^16 inputs."""
    monkeypatch.setattr(item_module, "LARGE", 1 << 15)
    monkeypatch.setattr(dispatch.sweep_tuples, "__defaults__", (1 << 16,))

    def run(backend, case=None):
        item = Item(LoadedCase(case or case_of(), "case", "case", tmp_path / "case.py", ""), "v", "sm_90a", "emulator")
        found = run_item(item, backend, "exhaustive").results
        return next(r for r in found if r.key.input_set == "all-words-2/1"), found

    return run


def test_all_words_run_in_pieces_and_pass(swept):
    backend = Copying()
    result, _ = swept(backend)
    assert result.verdict == "pass"
    assert (result.total, result.different) == (2 << 16, 0)
    assert backend.largest <= 1 << 16
    assert sum(b.count for b in result.outputs_digest) == 2 << 16


@pytest.mark.parametrize("word", [(0, 0), (0, 17), (200, 3), (255, 255)])
def test_one_wrong_word_fails(word, swept):
    result, _ = swept(Copying(wrong=word))
    assert (result.verdict, result.different, result.total) == ("fail", 1, 2 << 16)
    (offender,) = result.offenders
    number = word[0] | word[1] << 8
    assert (offender.index, offender.place) == (2 * number + 1, 1)
    assert offender.inputs["x"].bits == f"0x{word[1]:02x}"
    assert result.replay


def test_other_bits_within_the_policy_pass(swept):
    """The words with other bits than their elements have elsewhere are judged by the policy, not by equality."""
    result, _ = swept(Copying(wrong=(200, 3), mask=0x80), case_of(reference=either(same, lambda x: x ^ 0x80)))
    assert (result.verdict, result.total) == ("pass", 2 << 16)


def test_the_digests_are_those_of_the_plain_sweep(tmp_path):
    case = case_of()
    item = Item(LoadedCase(case, "case", "case", tmp_path / "case.py", ""), "v", "sm_90a", "emulator")
    plan = ItemPlan(item, Copying(), "exhaustive")
    inputs = all_words(case, 2)
    job = plan.job(WorkItem(Setup(pack=2), inputs.name), {})
    judge = ItemJudge(case, plan.variant, plan.policy, Copying())
    plain = dispatch.sweep_in_chunks(Copying(), job, inputs, judge.judgement)
    fast = dispatch.sweep_tuples(Copying(), job, inputs, judge.judgement)
    assert fast.blocks == plain.blocks
    assert fast.judgement.total == plain.judgement.total


@pytest.mark.parametrize(("fmt", "pack", "said"), [(U16, 4, "pack 4 reads 64 bits"), (U8, 2, "")])
def test_what_was_not_run_is_said(fmt, pack, said, tmp_path):
    item = Item(LoadedCase(case_of(fmt, pack), "case", "case", tmp_path / "case.py", ""), "v", "sm_90a", "emulator")
    notes = [n for r in run_item(item, Copying(), "exhaustive").results for n in r.notes if n.startswith(UNPROVED)]
    assert len(notes) == bool(said)
    assert all(said in n and "all elements" in n for n in notes)
