"""A real Ray cluster: nodes report their facts, and task results arrive complete and once."""

import shutil
import time

import pytest

from ptxdiff.cluster import nodes as nodes_module
from ptxdiff.cluster.nodes import CPU, Needs, Nodes, gpu
from ptxdiff.cluster.tasks import Ended, Lost, Misreported, Tasks, Yielded
from tests.cluster.conftest import ROOT, STORE, node

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def all_of(tasks, seconds=60):
    deadline = time.monotonic() + seconds
    found = []
    while tasks.running and time.monotonic() < deadline:
        found += tasks.events(1.0)
    assert not tasks.running, "tasks did not end"
    return found


def test_nodes_report_their_targets(nodes):
    assert [n.refused for n in nodes.known.values()] == ["", ""]
    assert nodes.targets == ("sm_90a",)
    assert len(nodes.serving(CPU)) == 2
    assert len(nodes.serving(gpu("sm_90a"))) == 1
    assert nodes.serving(gpu("sm_80")) == []
    assert nodes.slots(gpu("sm_90a", alone=True)) == 2


def test_values_arrive_once_and_in_order(ray, nodes):
    tasks = Tasks(ray, nodes)
    made = [tasks.submit(k, "node_tasks:counts", 5, needs=CPU, name=f"counts {k}") for k in range(4)]
    found = all_of(tasks)
    for task in made:
        assert [e.value[0] for e in found if isinstance(e, Yielded) and e.task is task] == [0, 1, 2, 3, 4]
    assert sum(isinstance(e, Ended) for e in found) == 4


def test_a_gpu_task_runs_on_a_node_with_the_target_and_sees_one_device(ray, nodes):
    tasks = Tasks(ray, nodes)
    for k in range(2):
        tasks.submit(k, "node_tasks:sees", needs=gpu("sm_90a", alone=True), name="sees")
    found = [e for e in all_of(tasks) if isinstance(e, Yielded)]
    assert {e.node for e in found} == {nodes.serving(gpu("sm_90a"))[0].id}
    assert all(e.value in ("0", "1") for e in found)
    assert tasks.submit(0, "node_tasks:sees", needs=gpu("sm_80"), name="sees") is None


def test_a_task_starts_as_many_compilers_as_it_has_cpus(ray, nodes):
    """Otherwise each task of a node with 64 cores would start four."""
    tasks = Tasks(ray, nodes)
    for cpus in (1, 2):
        tasks.submit(cpus, "node_tasks:compiles_with", needs=Needs(cpus), name="compiles")
    assert {e.task.label: e.value for e in all_of(tasks) if isinstance(e, Yielded)} == {1: 1, 2: 2}


def test_a_task_whose_process_died_is_repeated_and_counted_once(ray, nodes, tmp_path):
    tasks = Tasks(ray, nodes)
    tasks.submit("x", "node_tasks:dies_once", str(tmp_path / "died"), 6, 4, needs=CPU, name="dies once")
    found = all_of(tasks)
    assert (tmp_path / "died").exists()
    assert [e.value for e in found if isinstance(e, Yielded)] == [0, 1, 2, 3, 4, 5]


def test_a_task_that_raises_is_lost_with_a_reason(tasks):
    raises = tasks.submit("raises", "node_tasks:raises", needs=CPU, name="raises")
    [lost] = [e for e in all_of(tasks) if isinstance(e, Lost)]
    assert "ValueError: what a case may raise" in lost.words
    assert (lost.raised, lost.blamed, raises.received) == (True, False, 1)


@pytest.mark.slow  # two processes start; that one death without repeats is blamed, test_cluster_sweep shows with shards
def test_a_task_that_always_dies_is_lost_with_a_reason(ray, nodes, tmp_path):
    """Its repeat yields the first value again, which does not count twice."""
    tasks = Tasks(ray, nodes, retries=1)
    dies = tasks.submit("dies", "node_tasks:dies_always", str(tmp_path / "received"), needs=CPU, name="dies")
    while tasks.running and not dies.received:
        list(tasks.events(1.0))
    (tmp_path / "received").touch()
    [lost] = all_of(tasks)
    assert isinstance(lost, Lost)
    assert "died" in lost.words
    assert (lost.raised, lost.blamed, dies.received) == (False, True, 1)


@pytest.mark.slow
def test_a_full_object_store_loses_no_value(ray, nodes):
    """Four tasks yield twice the capacity of the nodes' stores before a value is fetched, so that Ray spills to disk.

    Slow: moves 600 MB.
    """
    tasks = Tasks(ray, nodes)
    size = STORE // 8
    made = [tasks.submit(k, "node_tasks:large", 12, size, needs=CPU, name="large") for k in range(4)]
    time.sleep(3)
    taken = {task: [] for task in made}
    while tasks.running:
        for event in tasks.events(1.0):
            assert not isinstance(event, Lost), event.words
            if isinstance(event, Yielded):
                assert event.value == event.value[:1] * size
                taken[event.task].append(event.value[0])
    assert all(numbers == list(range(12)) for numbers in taken.values())


def test_a_value_out_of_order_is_an_error(ray, nodes):
    tasks = Tasks(ray, nodes)
    task = tasks.submit("x", "node_tasks:counts", 3, needs=CPU, name="counts")
    task.received = 1  # as if the first value had been counted
    with pytest.raises(Misreported, match="number 0, but number 1 was expected"):
        all_of(tasks)


def test_close_ends_what_was_started_and_leaves_the_cluster(ray, nodes, tmp_path):
    tasks = Tasks(ray, nodes)
    tasks.submit("x", "node_tasks:waits", str(tmp_path / "ended"), needs=CPU, name="waits")
    while not list(tasks.events(1.0)):
        pass
    tasks.close()
    assert not tasks.running
    assert len([n for n in ray.nodes() if n["Alive"]]) == 2
    again = Tasks(ray, nodes)
    again.submit("y", "node_tasks:counts", 1, needs=CPU, name="counts")
    assert any(isinstance(e, Yielded) for e in all_of(again))


def refused_and_lost(ray, nodes, found):
    """A node of other facts gets no task; and if one is sent there, as if the node had changed, the task is lost."""
    assert "ptxdiff's own code is" in found.refused
    assert found.id not in {n.id for n in nodes.serving(CPU)}
    alone = Nodes(ray, nodes.mine)
    alone.known = {found.id: nodes_module.Node(found.id, found.host, 1.0, 0.0)}
    alone.alive = frozenset(alone.known)
    tasks = Tasks(ray, alone)
    tasks.submit("x", "node_tasks:counts", 3, needs=CPU, name="counts")
    [lost] = all_of(tasks)
    assert "the node has changed since it reported its facts: ptxdiff's own code" in lost.words
    assert alone.serving(CPU) == []


def test_a_driver_with_another_ptxdiff_than_the_nodes_gets_nothing_from_them(ray, nodes):
    other = Nodes(ray, {**nodes.mine, "ptxdiff": "0" * 32})
    [found, _] = other.look()
    assert len(other.refused) == 2
    refused_and_lost(ray, other, found)


@pytest.mark.slow  # a third node starts; the quick tests compare a node's own facts with other facts of the driver
def test_a_node_with_another_ptxdiff_is_refused(ray, nodes, passing_nodes, tmp_path):
    shutil.copytree(ROOT / "harness", tmp_path / "ptxdiff", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "ptxdiff" / "judging" / "judge.py").open("a") as file:
        file.write("\n# Another version.\n")
    other = passing_nodes.add_node(**node(tmp_path))
    try:
        [found] = nodes.look()
        assert nodes.refused == [found]
        refused_and_lost(ray, nodes, found)
    finally:
        passing_nodes.remove_node(other)
