"""A Ray cluster of two nodes on this machine, and one connection to it that most tests share.

A worker process of Ray takes a second of processor time before its first task, and each connection starts its own. So
a test makes a connection of its own (`own_connection`) only if joining is a part of what it shows.

Cluster and connection end with this folder's tests: Ray's threads disturb processes that fork, and its own processes
take processor time while they wait.
"""

import contextlib
import filecmp
import itertools
import os
import shutil
from pathlib import Path

import pytest

from tests.cluster.sources import LIES, NEGATION, SUMS
from tests.support.case_sources import RIGHT

ROOT = Path(__file__).parents[2]
STORE = 100 << 20
STAND_IN = ROOT / "tests" / "cluster" / "stand_in"

LEAN = {
    "RAY_enable_metrics_collection": "0",
    "RAY_enable_worker_prestart": "0",  # such a worker lacks the job's files, so that no task of ours can use it
    "RAY_prestart_worker_first_driver": "0",
    "RAY_worker_maximum_startup_concurrency": "1",  # else a task starts a second worker while it waits for the first
    "RAY_num_workers_soft_limit": "4",  # an idle worker stays for the next test
}
"""Variables of a node's raylet: it starts only workers that run a task, and keeps them."""


def path_of(*folders):
    return os.pathsep.join(map(str, folders))


_numbers = itertools.count()


def node(*folders, cpus=1, gpus=0, **environment):
    """The arguments of `Cluster.add_node` for a node whose Python searches these folders."""
    alone = {"PYTEST_XDIST_WORKER_COUNT": "1"}  # a node does not share its cores with other processes of the tests
    # Nodes of one machine would unpack the job's files into one folder, and one that ends would delete it.
    place = {"runtime_env_dir_name": f"files_of_{next(_numbers)}"}
    return {
        "num_cpus": cpus, "num_gpus": gpus, "object_store_memory": STORE, **place,
        "include_dashboard": False, "include_log_monitor": False,
        "env_vars": {"PYTHONPATH": path_of(*folders), **alone, **LEAN, **environment},
    }  # fmt: skip


@pytest.fixture(scope="package")
def two_nodes(tmp_path_factory):
    """The second node has a stand-in for two GPUs of sm_90a."""
    pytest.importorskip("ray", reason="the extra ptxdiff[cluster] is not installed")
    from ptxdiff.cluster.connect import imported

    imported()
    from ray.cluster_utils import Cluster

    log = tmp_path_factory.mktemp("stand_in") / "log"
    stand_in = {"STAND_IN_GPUS": "sm_90a,sm_90a", "STAND_IN_HOST": "second", "STAND_IN_LOG": str(log)}
    head = {**node(ROOT), "no_monitor": True, "runtime_env_dir_name": None}  # drivers write into the default one
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(**node(STAND_IN, ROOT / "tests" / "backends", ROOT, cpus=2, gpus=2, **stand_in))
    cluster.stand_in_log = log
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="package")
def shipped(tmp_path_factory):
    """The project of the shared connection: case files, and the functions that tests run as tasks."""
    folder = tmp_path_factory.mktemp("shipped")
    (folder / "cases").mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, source in {"negation": NEGATION, "sums": SUMS, "flip": RIGHT}.items():
        (folder / "cases" / f"{name}.py").write_text(source)
    (folder / "lies.py").write_text(LIES)
    for name in ("node_tasks.py", "sweep_tasks.py", "fuzz_tasks.py"):
        shutil.copy(Path(__file__).parent / name, folder)
    return folder


class Shared:
    """The connection that tests share: made when a test first needs it, and again after a test made its own."""

    def __init__(self, address, root):
        self.address, self.root = address, root
        self._open = contextlib.ExitStack()
        self.shipment = self.ray = self.nodes = None

    def begin(self):
        if self.ray is not None:
            return
        from ptxdiff.cluster.connect import connected
        from ptxdiff.cluster.nodes import Nodes
        from ptxdiff.cluster.shipping import shipment

        self.shipment = shipment(self.root)
        self.ray = self._open.enter_context(connected(self.address, self.shipment))
        self.nodes = Nodes(self.ray)
        self.nodes.look()

    def end(self):
        self._open.close()
        self.ray = self.nodes = None

    @contextlib.contextmanager
    def connected(self, address, asked):
        """Stands in for `ptxdiff.cluster.connect.connected`, for a command that asks for no more than is shared."""
        assert address == self.address
        assert asked.variables == self.shipment.variables
        assert set(asked.modules) <= set(self.shipment.modules)
        for file in (p for p in asked.root.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
            assert filecmp.cmp(file, self.root / file.relative_to(asked.root), shallow=False)
        yield self.ray


@pytest.fixture(scope="package")
def _shared(two_nodes, shipped):
    made = Shared(two_nodes.address, shipped)
    yield made
    made.end()


@pytest.fixture
def shared(_shared):
    """The shared connection."""
    _shared.begin()
    return _shared


@pytest.fixture
def own_connection(_shared):
    """The cluster's address, for a test that joins it in this process: Ray allows one connection of a process."""
    _shared.end()
    return _shared.address


@pytest.fixture
def passing_nodes(_shared, two_nodes):
    """The cluster, for a test that adds nodes and removes them; later tests then list the nodes anew."""
    yield two_nodes
    _shared.end()


@pytest.fixture
def address(shared, monkeypatch):
    """The cluster's address, for commands that then use the shared connection."""
    from ptxdiff.cluster import connect
    from ptxdiff.running.cluster import driver

    for module in (connect, driver):
        monkeypatch.setattr(module, "connected", shared.connected)
    return shared.address


@pytest.fixture
def ray(shared):
    return shared.ray


@pytest.fixture
def nodes(shared):
    return shared.nodes


@pytest.fixture
def tasks(shared):
    from ptxdiff.cluster.tasks import Tasks

    made = Tasks(shared.ray, shared.nodes)
    yield made
    made.close()
