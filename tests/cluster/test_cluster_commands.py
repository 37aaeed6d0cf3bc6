"""The commands `ptxdiff sweep --cluster` and `ptxdiff fuzz --cluster`. Each test makes its own connection."""

import json

import pytest

from harness.cli import main
from tests.cluster.conftest import ROOT
from tests.cluster.test_cluster_sweep import NEGATION, written

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

FLIPPING = str(ROOT / "tests" / "fuzz" / "flipping_ptxas.sh")

SUMS = '''
"""Sums of bytes."""
from harness import Case, asm
from references.formats import U8

def total(x, y):
    return (x + y) & 255

case = Case(
    inputs={"x": U8, "y": U8}, outputs={"z": U8}, reference=total,
    variants={"right": asm("add.u32 $0, $1, $2;", "=r,r,r", pack=1)},
)
'''


def test_the_nodes_of_a_cluster_are_listed_and_counted(three_nodes, capsys):
    assert main(["cluster", "nodes", three_nodes.address, "--expect", "3"]) == 0
    said = capsys.readouterr().out
    assert len(said.splitlines()) == 3
    assert said.count("2 GPUs sm_90a") == 1
    assert said.count("no GPU") == 2
    assert main(["cluster", "nodes", three_nodes.address, "--expect", "4"]) == 1
    assert "3 of 3 nodes can be used; 4 were expected" in capsys.readouterr().out


def test_a_missing_cluster_is_waited_for_and_then_an_error(capsys):
    assert main(["cluster", "nodes", "127.0.0.1:1", "--wait", "0.1"]) == 2
    assert "no Ray cluster answers at 127.0.0.1:1" in capsys.readouterr().err


@pytest.fixture
def project(tmp_path):
    """Files of a user's own project."""
    folder = tmp_path / "project"
    (folder / "cases").mkdir(parents=True)
    (folder / "pyproject.toml").touch()
    (folder / "cases" / "negation.py").write_text(NEGATION)
    (folder / "cases" / "sums.py").write_text(SUMS)
    return folder


def test_a_cluster_gives_the_same_journal_as_this_machine(three_nodes, project, tmp_path, capsys):
    words = ["sweep", f"{project / 'cases' / 'negation.py'}::wrong", "--backend", "emulator", "--journal"]
    assert main([*words, str(tmp_path / "here")]) == 1
    assert main([*words, str(tmp_path / "there"), "--cluster", three_nodes.address]) == 1
    here, there = written(tmp_path / "here"), written(tmp_path / "there")
    assert here == there
    assert here[0]["verdict"] == "fail"
    assert capsys.readouterr().out.count("codes differ") == 2


def test_a_gpu_of_the_cluster_runs_a_sweep_in_a_process_of_its_own(three_nodes, project, tmp_path, capsys):
    """The stand-in always adds. No target is given, because the cluster has GPUs of one target only."""
    words = ["sweep", f"{project / 'cases' / 'sums.py'}::right", "--cluster", three_nodes.address, "--journal"]
    assert main([*words, str(tmp_path / "j"), "--timeout", "300"]) == 0
    assert "1 of 1 shards of 2^16 inputs: 1 pass" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("address", "message"),
    [("nonsense", "write HOST:PORT"), ("ray://here:10001", "Ray's client"), ("127.0.0.1:1", "no Ray cluster")],
)
def test_an_address_without_a_cluster(project, tmp_path, address, message, capsys):
    if address == "127.0.0.1:1":
        pytest.importorskip("ray")
    words = ["sweep", f"{project / 'cases' / 'sums.py'}::right", "--backend", "emulator", "--journal"]
    assert main([*words, str(tmp_path / "j"), "--cluster", address]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "j").exists()


FUZZ = ["fuzz", "--assembler", FLIPPING, "--opt", "3", "--family", "bits", "--batch", "4", "--programs", "4"]


def test_a_campaign_on_a_cluster_writes_the_same_as_a_local_one(three_nodes, tmp_path, capsys):
    """Without a GPU. The assembler crashes on a node, and the driver writes the finding."""
    words = [*FUZZ, "--no-gpu", "--output", str(tmp_path)]
    assert main([*words, "--cluster", three_nodes.address]) == 1
    said = capsys.readouterr().out
    assert "4 programs" in said
    assert "crashed" in said
    found = [json.loads(p.read_text()) for p in tmp_path.glob("*/finding.json")]
    assert {f["kind"] for f in found} == {"crashed"}
    assert main([*words, "--cluster", three_nodes.address]) == 2  # the folder has a campaign already
    assert main([*words, "--resume"]) == 1  # resumed here, after nodes have done a part
    assert "4 programs, 1 findings" in " ".join(capsys.readouterr().out.split())
