"""A sweep on a Ray cluster gives the journal of a local one; a wrong answer of a node is an error, never a result."""

import contextlib
from dataclasses import replace

import pytest

from ptxdiff.cli import main
from ptxdiff.cluster.connect import ClusterError, project_of
from ptxdiff.cluster.tasks import Tasks
from ptxdiff.running import shard_worker
from ptxdiff.sweep import shards as shards_module
from ptxdiff.sweep.shards import ClusterSweep, Journal, JournalError, ShardResult, Task
from tests.cluster.conftest import ROOT, node
from tests.cluster.sources import NEGATION
from tests.support.running.cluster_sweep_case import written

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
HERE = ROOT / "tests" / "cluster"
TASK = Task(str(HERE / "case.py"), "case", "v", "emulator", "sm_90a", 1, 20, 16)


@pytest.fixture
def in_fours(monkeypatch):
    """Puts four shards into each task, so that a task with a faulty shard also has others."""
    monkeypatch.setattr(ClusterSweep, "_next", next_four)


def next_four(self, places):
    if self._again:
        return self._again.popleft()
    size = min(4, len(self._waiting))
    return shards_module._Piece(shards_module.deque(self._waiting.popleft() for _ in range(size))) if size else None


def swept(tasks, path, work, wanted=range(16), task=TASK, on_result=lambda _: None):
    with contextlib.closing(Journal(path, task, resume=path.exists())) as journal:
        sweep = ClusterSweep(tasks, task, journal, wanted, root=HERE, given=lambda s: f"given {s}",
                             on_result=on_result, work=f"sweep_tasks:{work}")  # fmt: skip
        sweep.run()
    return journal.done


@pytest.mark.slow
def test_every_shard_arrives_once(tasks, tmp_path):
    done = swept(tasks, tmp_path / "j", "right")
    assert sorted(done) == list(range(16))
    assert {r.verdict for r in done.values()} == {"pass"}
    assert all(done[s].given == f"given {s}" and done[s].node for s in done)


@pytest.mark.parametrize(
    ("work", "words"),
    [
        ("another_shard", "sent shard 3 where shard 2 was due"),
        ("another_definition", "ran other inputs than those of the shard, or another definition"),
        ("fewer_inputs", "judged 65535 codes of 2^16 inputs"),
        ("no_result", "sent 'pass' where shard 2 was due"),
    ],
)
def test_a_result_that_was_not_requested_is_an_error(tasks, tmp_path, in_fours, work, words):
    done = swept(tasks, tmp_path / "j", work)
    assert sorted(done) == list(range(16))
    assert {s for s in done if done[s].verdict != "pass"} == {2}
    assert done[2].verdict == "error"
    assert words in done[2].words


def test_a_shard_that_is_lost_is_no_pass(tasks, tmp_path, in_fours):
    """The result of the next shard arrives instead, and the task's last shard has no result."""
    done = swept(tasks, tmp_path / "j", "loses_one")
    assert {s: r.words for s, r in done.items() if r.verdict == "error"} == {
        2: f"{done[2].node.split()[0]}: sent shard 3 where shard 2 was due",
        3: "its task ended without a result of it",
    }


def test_a_shard_that_arrives_twice_ends_the_sweep(tasks, tmp_path, in_fours):
    with pytest.raises(ClusterError, match="a result more than its task has shards"):
        swept(tasks, tmp_path / "j", "twice", range(4))
    assert sorted(written(tmp_path / "j")) == [0, 1, 2, 3]


def test_a_journal_counts_no_shard_twice_and_no_unknown_one(tmp_path):
    path = tmp_path / "j"
    with contextlib.closing(Journal(path, TASK, resume=False)) as journal:
        journal.write(ShardResult(1, "pass"))
        with pytest.raises(JournalError, match="shard 1 has two results"):
            journal.write(ShardResult(1, "pass"))
        with pytest.raises(JournalError, match="no shard 16"):
            journal.write(ShardResult(16, "pass"))
        assert journal.missing(range(3)) == [0, 2]
    lines = path.read_bytes().splitlines(keepends=True)
    with contextlib.closing(Journal(tmp_path / "k", TASK, resume=False)) as other:
        other._check = lambda result: None  # a driver that does not query the nodes
        for _ in range(2):
            other.write(ShardResult(1, "pass", total=1 << TASK.shard_bits))
    assert len(lines) == 2
    with pytest.raises(JournalError, match="shard 1 has two results"):
        Journal(tmp_path / "k", TASK, resume=True)


@pytest.mark.slow  # test_nodes_and_tasks has it for any task: it is repeated, and each value counts once
def test_a_shard_whose_process_died_is_repeated(tasks, tmp_path, in_fours):
    task = replace(TASK, variant=str(tmp_path / "died"))
    done = swept(tasks, tmp_path / "j", "dies_once", task=task)
    assert (tmp_path / "died").exists()
    assert sorted(written(tmp_path / "j")) == list(range(16))
    assert {r.verdict for r in done.values()} == {"pass"}


def test_only_a_shard_that_always_kills_its_process_is_lost(ray, nodes, tmp_path, in_fours):
    """Without Ray's repeats, because each takes a new process."""
    done = swept(Tasks(ray, nodes, retries=0), tmp_path / "j", "dies_at_two", range(4))
    assert {s: r.verdict for s, r in done.items()} == {0: "pass", 1: "pass", 2: "error", 3: "pass"}
    assert "died" in done[2].words


@pytest.mark.slow  # nodes and drivers die, which takes seconds each, with Ray's clean-up
def test_a_node_that_dies_changes_nothing_in_the_journal(tasks, passing_nodes, tmp_path, in_fours):
    swept(tasks, tmp_path / "undisturbed", "right")
    added = passing_nodes.add_node(**node(ROOT, cpus=2))
    (new,) = tasks.nodes.look()
    killed = []

    def kill(result):
        if result.node.endswith(new.id[:12]) and not killed:  # it still has shards to run
            killed.append(result.shard)
            passing_nodes.remove_node(added, allow_graceful=False)

    swept(tasks, tmp_path / "disturbed", "slow", on_result=kill)
    assert killed
    assert written(tmp_path / "disturbed") == written(tmp_path / "undisturbed")


class Stopped(Exception):
    pass


@pytest.mark.slow  # nodes and drivers die, which takes seconds each, with Ray's clean-up
def test_a_second_driver_continues_where_the_first_was_stopped(tasks, tmp_path):
    passed = []

    def stop(result):
        passed.extend([result.shard] if result.verdict == "pass" else [])
        if len(passed) == 5:
            raise Stopped

    with pytest.raises(Stopped):
        swept(tasks, tmp_path / "j", "slow", on_result=stop)
    assert not tasks.running
    again = []
    swept(tasks, tmp_path / "j", "right", on_result=lambda r: again.extend([r.shard] if r.verdict == "pass" else []))
    assert sorted(passed + again) == list(range(16))
    swept(tasks, tmp_path / "whole", "right")
    assert written(tmp_path / "j") == written(tmp_path / "whole")


def test_a_generation_that_no_node_has_is_refused_before_anything_runs(tasks, tmp_path):
    task = replace(TASK, backend="gpu", target="sm_80")
    with pytest.raises(ClusterError, match=r"no node of the cluster has a whole GPU sm_80; GPUs of .*: sm_90a"):
        swept(tasks, tmp_path / "j", "right", task=task)
    assert written(tmp_path / "j") == {}


def test_a_node_runs_shards_of_its_target_alone(no_gpu):
    """A task that gets a GPU of another target from Ray raises an error."""
    with pytest.raises(RuntimeError, match=r"expected one GPU sm_80; Ray gave CUDA_VISIBLE_DEVICES=.*: no GPU"):
        list(shard_worker.on_node(replace(TASK, backend="gpu", target="sm_80"), (1,), 1.0))


def test_a_shards_task_depends_on_shard_definition_and_place(tmp_path):
    file = tmp_path / "negation.py"
    file.write_text(NEGATION)
    task = Task(str(file), "case", "right", "emulator", "sm_90a", 2, 16, 12)
    digests = shard_worker.shard_digests(task)
    other = tmp_path / "other.py"
    other.write_text(NEGATION.replace("a ^ 0x8000", "a ^ 0x8001"))
    changes = [{"target": "sm_80"}, {"path": str(other)}, {"shard_bits": 13}, {"variant": "wrong"}]
    found = {digests(0), digests(1), *(shard_worker.shard_digests(replace(task, **c))(0) for c in changes)}
    assert len(found) == 6
    assert digests(0) == shard_worker.shard_digests(task)(0)


def test_how_the_folder_of_a_project_is_found(tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "pyproject.toml").touch()
    assert project_of(tmp_path / "project" / "cases" / "sums.py") == tmp_path.resolve() / "project"
    assert project_of(tmp_path / "alone.py") == tmp_path.resolve()


def test_a_sweep_without_one_shard_does_not_pass(tmp_path, monkeypatch, capsys):
    """If the driver silently loses a shard, the command still reports it as missing."""
    from ptxdiff.sweep import shards

    def loses(task, journal, wanted, **_):
        for shard in wanted[:-1]:
            journal.write(ShardResult(shard, "pass", total=1))

    monkeypatch.setattr(shards, "sweep", loses)
    file = tmp_path / "two.py"
    file.write_text(NEGATION.replace("reference(a)", "reference(a, b)").replace('{"a": F16}', '{"a": F16, "b": F16}')
                    .replace('"=r,r"', '"=r,r,r"'))  # fmt: skip
    words = ["sweep", f"{file}::right", "--backend", "emulator", "--journal", str(tmp_path / "j"), "--shards", "3"]
    assert main([*words, "--shard-bits", "16"]) == 1
    assert "1 shards have no result, of which 2 is the first" in capsys.readouterr().out
