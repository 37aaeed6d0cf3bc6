"""A Ray cluster of three nodes on this machine; the third has a stand-in for two GPUs of sm_90a."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STORE = 100 << 20
STAND_IN = ROOT / "tests" / "cluster" / "stand_in"


def path_of(*folders):
    return os.pathsep.join(map(str, folders))


@pytest.fixture(scope="session")
def three_nodes(tmp_path_factory):
    pytest.importorskip("ray", reason="the extra ptxdiff[cluster] is not installed")
    from harness.cluster.connect import imported

    imported()
    from ray.cluster_utils import Cluster

    alone = {"PYTEST_XDIST_WORKER_COUNT": "1"}  # a node does not share its cores with other processes of the tests
    ours = {"PYTHONPATH": path_of(ROOT), **alone}
    path = path_of(STAND_IN, ROOT / "tests" / "backends", ROOT)
    log = tmp_path_factory.mktemp("stand_in") / "log"
    gpus = {
        "STAND_IN_GPUS": "sm_90a,sm_90a",
        "STAND_IN_HOST": "third",
        "STAND_IN_LOG": str(log),
        "PYTHONPATH": path,
        **alone,
    }
    small = {"object_store_memory": STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={**small, "num_cpus": 1, "env_vars": ours})
    cluster.add_node(num_cpus=1, env_vars=ours, **small)
    cluster.add_node(num_cpus=2, num_gpus=2, env_vars=gpus, **small)
    cluster.stand_in_log = log
    yield cluster
    cluster.shutdown()
