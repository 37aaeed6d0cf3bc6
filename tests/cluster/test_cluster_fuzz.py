"""A campaign on a Ray cluster finds the same as a local one; wrong results of nodes are reported and do not count."""

from pathlib import Path

import pytest

from ptxdiff.cluster.connect import ClusterError
from ptxdiff.cluster.nodes import Needs, gpu
from ptxdiff.fuzz.assemblers import assembler
from ptxdiff.fuzz.campaign import ClusterFuzz, FuzzCampaign, digest_of_file, on_node, unfounded
from ptxdiff.fuzz.judge import FuzzPlan, PtxasFault
from ptxdiff.triton.ptxas import NoAssembler
from tests.cluster.conftest import ROOT
from tests.cluster.fuzz_tasks import judged

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
FLIPPING = str(ROOT / "tests" / "fuzz" / "flipping_ptxas.sh")
SHARED = Needs(1.0, 0.25, "sm_90a")


def plan(seed="a", batch=2):
    return FuzzPlan(seed, "sm_90a", 90, (assembler(FLIPPING, 0), assembler(FLIPPING, 3)), {"bits": 1.0}, batch=batch)


def fuzzed(tasks, folder, work, batches, made=None, needs=SHARED):
    made = made or plan()
    campaign = FuzzCampaign(made, None, folder / "journal.jsonl")
    running = ClusterFuzz(tasks, campaign, needs, f"fuzz_tasks:{work}")
    running.run(300.0, batches * made.batch)
    return running


@pytest.mark.slow
def test_a_cluster_finds_the_same_as_this_machine(tasks, tmp_path):
    """Two batches: in one an instruction is flipped, and the assembler crashes on the other."""
    there = fuzzed(tasks, tmp_path / "there", "right", 2, plan("b"))
    here = FuzzCampaign(plan("b"), None, tmp_path / "here" / "journal.jsonl")
    files = {FLIPPING: digest_of_file(FLIPPING)}
    for number in range(2):
        here.take(judged(here.plan, files, number, ()))
    state = there.campaign.state
    assert there.lost == {}
    assert (state.batches, state.programs, state.runs) == ({0, 1}, 4, here.state.runs)
    found = {(f.kind, f.skeleton) for f in state.findings.values()}
    assert found == {(f.kind, f.skeleton) for f in here.state.findings.values()}
    assert {kind for kind, _ in found} == {"wrong", "crashed"}
    assert FuzzCampaign(plan("b"), None, tmp_path / "there" / "journal.jsonl").state.findings == state.findings


@pytest.mark.parametrize(
    ("work", "words"),
    [
        ("another_batch", "sent batch 0 instead of batch 1"),
        ("another_plan", "tried another plan, or other files"),
        ("other_assemblers", "tried another plan, or other files"),
        ("fewer_programs", "tried 1 programs of 2"),
        ("nothing_ran", "ran 0 programs of 4"),
        ("says_nothing", "its task ended without a result"),
        ("no_finding", "sent an invalid finding"),
        ("raises", "RuntimeError: what a node may raise"),
        ("twice", "sent batch 1 a second time"),
    ],
)
def test_results_that_were_not_requested_do_not_count(tasks, tmp_path, work, words):
    running = fuzzed(tasks, tmp_path, work, 4)
    assert [*running.lost] == [1]
    assert words in running.lost[1]
    state = running.campaign.state
    assert state.batches == ({0, 1, 2, 3} if work == "twice" else {0, 2, 3})
    assert state.programs == 2 * len(state.batches)
    assert state.findings == {}


def test_a_lost_batch_runs_again_at_the_next_start(tasks, tmp_path):
    assert fuzzed(tasks, tmp_path, "raises", 3).lost
    again = fuzzed(tasks, tmp_path, "empty", 3)
    assert again.lost == {}
    assert again.campaign.state.batches == {0, 1, 2}
    assert again.campaign.state.programs == 6


@pytest.mark.slow  # test_nodes_and_tasks has it for any task: it is repeated, and each value counts once
def test_a_batch_whose_process_died_is_repeated(tasks, tmp_path):
    running = fuzzed(tasks, tmp_path, "dies_once", 2, plan(seed=str(tmp_path / "died")))
    assert (tmp_path / "died").exists()
    assert (running.lost, running.campaign.state.batches) == ({}, {0, 1})


def test_a_generation_that_no_node_has_is_refused(tasks, tmp_path):
    with pytest.raises(ClusterError, match="no node of the cluster has a whole GPU sm_80"):
        fuzzed(tasks, tmp_path, "empty", 1, needs=gpu("sm_80", alone=True))


def test_a_node_uses_the_drivers_assembler_or_none(tmp_path):
    copy = tmp_path / "ptxas"
    copy.write_text(Path(FLIPPING).read_text() + "\n# another\n")
    with pytest.raises(NoAssembler, match=r"this node lacks the file that the driver has at"):
        list(on_node(plan(), {FLIPPING: digest_of_file(str(copy))}, 0, (), False))


def test_a_node_without_the_gpu_runs_nothing(no_gpu):
    with pytest.raises(RuntimeError, match="expected one GPU sm_90a"):
        list(on_node(plan(), {FLIPPING: digest_of_file(FLIPPING)}, 0, (), True))


def test_a_finding_is_emulated_again():
    files = {FLIPPING: digest_of_file(FLIPPING)}
    found = next(f for f in judged(plan("b"), files, 0, ()).findings if f.kind == "wrong")
    assert unfounded(found) == ""
    forged = PtxasFault(**{**vars(found), "expected": found.given})
    assert "sent an invalid finding" in unfounded(forged)
    assert "sent an invalid finding" in unfounded(PtxasFault(**{**vars(found), "inputs": (0,) * 8}))
