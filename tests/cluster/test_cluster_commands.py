"""The commands `ptxdiff cluster nodes`, `ptxdiff sweep --cluster` and `ptxdiff fuzz --cluster`."""

import json

import pytest

from ptxdiff.cli import cluster, main
from ptxdiff.cluster import connect
from tests.cluster.conftest import ROOT
from tests.support.running.cluster_sweep_case import written

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

FLIPPING = str(ROOT / "tests" / "fuzz" / "flipping_ptxas.sh")


@pytest.mark.parametrize("enough", [True, False])
def test_the_nodes_of_a_cluster_are_listed_and_counted(enough, shared, monkeypatch, capsys):
    monkeypatch.setattr(connect, "connected", shared.connected)
    monkeypatch.chdir(shared.root)
    assert main(["cluster", "nodes", shared.address, "--expect", "2" if enough else "3"]) == (0 if enough else 1)
    said = capsys.readouterr().out
    assert said.count("2 GPUs sm_90a") == 1
    assert said.count("no GPU") == 1
    assert ("2 of 2 nodes can be used; 3 were expected" in said) != enough


def test_a_missing_cluster_is_waited_for_and_then_an_error(monkeypatch, capsys):
    monkeypatch.setattr(cluster, "PAUSE", 0.1)
    assert main(["cluster", "nodes", "127.0.0.1:1", "--wait", "0.1"]) == 2
    assert "no Ray cluster answers at 127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.slow
def test_a_cluster_gives_the_same_journal_as_this_machine(address, shipped, tmp_path, capsys):
    words = ["sweep", f"{shipped / 'cases' / 'negation.py'}::wrong", "--backend", "emulator", "--journal"]
    assert main([*words, str(tmp_path / "here")]) == 1
    assert main([*words, str(tmp_path / "there"), "--cluster", address]) == 1
    here, there = written(tmp_path / "here"), written(tmp_path / "there")
    assert here == there
    assert here[0]["verdict"] == "fail"
    assert capsys.readouterr().out.count("codes differ") == 2


@pytest.mark.slow
def test_a_gpu_of_the_cluster_runs_a_sweep_in_a_process_of_its_own(address, shipped, tmp_path, capsys):
    """The stand-in always adds. No target is given, because the cluster has GPUs of one target only.

    Slow: Triton compiles, and the GPU's process imports torch. The test above sends a sweep's shards to such a process
    without a GPU; that a task sees one GPU of its target, test_nodes_and_tasks and test_cluster_sweep show.
    """
    words = ["sweep", f"{shipped / 'cases' / 'sums.py'}::right", "--cluster", address, "--journal"]
    assert main([*words, str(tmp_path / "j"), "--limit", "300"]) == 0
    assert "1 of 1 shards of 2^16 inputs: 1 pass" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("nowhere", "message"),
    [("nonsense", "write HOST:PORT"), ("ray://here:10001", "Ray's client"), ("127.0.0.1:1", "no Ray cluster")],
)
def test_an_address_without_a_cluster(shipped, tmp_path, nowhere, message, capsys):
    if nowhere == "127.0.0.1:1":
        pytest.importorskip("ray")
    words = ["sweep", f"{shipped / 'cases' / 'sums.py'}::right", "--backend", "emulator", "--journal"]
    assert main([*words, str(tmp_path / "j"), "--cluster", nowhere]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "j").exists()


FUZZ = ["fuzz", "--assembler", FLIPPING, "--opt", "3", "--family", "bits", "--batch", "4", "--programs", "4"]


@pytest.mark.slow
def test_a_campaign_on_a_cluster_writes_the_same_as_a_local_one(address, tmp_path, capsys):
    """Without a GPU. The assembler crashes on a node, and the driver writes the finding."""
    words = [*FUZZ, "--no-gpu", "--output", str(tmp_path)]
    assert main([*words, "--cluster", address]) == 1
    said = capsys.readouterr().out
    assert "4 programs" in said
    assert "crashed" in said
    found = [json.loads(p.read_text()) for p in tmp_path.glob("*/finding.json")]
    assert {f["kind"] for f in found} == {"crashed"}
    assert main([*words, "--cluster", address]) == 2  # the folder has a campaign already
    assert main([*words, "--resume"]) == 1  # resumed here, after nodes have done a part
    assert "4 programs, 1 findings" in " ".join(capsys.readouterr().out.split())
