"""What decides whether a node gets work, and what travels; without Ray."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from harness.cluster import connect, shipping
from harness.cluster.connect import ClusterError
from harness.cluster.facts import FILES_VARIABLE, NodeFacts, difference, environment, here
from harness.cluster.nodes import CPU, _node, gpu
from harness.processes.gpus import Gpu
from tests.cluster.conftest import ROOT

MINE = here().environment


def listed(**resources):
    return {"NodeID": "5a" * 28, "NodeManagerHostname": "host", "Resources": {"CPU": 4.0, **resources}}


def device(target, number=0):
    return Gpu(str(number), "a GPU", f"GPU-{number}", target, 1 << 30)


def test_equal_facts_are_equal_and_each_other_one_is_told():
    assert difference(MINE, here().environment) == ""
    for name in ("python", "machine", "ptxdiff", "ledger", "triton's files", "triton", "torch", "numpy"):
        assert name in MINE
        assert difference(MINE, {**MINE, name: "other"})
        assert difference(MINE, {n: v for n, v in MINE.items() if n != name}) or not MINE[name]
    assert difference(MINE, {**MINE, "torch": "1.0"}) == f"torch is 1.0, here {MINE['torch']}"
    assert "missing" in difference(MINE, {**MINE, "ptxdiff": ""})


def test_a_setting_that_one_side_lacks_is_a_difference(monkeypatch):
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    assert "setting TRITON_DISABLE_LINE_INFO is 1, here not there" in difference(MINE, here().environment)
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", "/elsewhere")
    monkeypatch.delenv("TRITON_DISABLE_LINE_INFO")
    assert difference(MINE, here().environment) == ""


def test_another_ptxas_under_the_same_path_is_a_difference(tmp_path, monkeypatch):
    program = tmp_path / "ptxas"
    program.write_text("one")
    monkeypatch.setenv(FILES_VARIABLE, str(program))
    mine = environment()
    assert shipping.shipment(ROOT, []).runtime_env()["env_vars"][FILES_VARIABLE] == str(program)
    program.write_text("other")
    assert f"file {program} is" in difference(mine, environment())
    program.unlink()
    assert "missing" in difference(mine, environment())


def test_a_node_offers_the_generation_of_its_devices():
    node = _node(listed(GPU=2.0, sm_90a=2.0), NodeFacts("host", MINE, (device("sm_90a"), device("sm_90a", 1))), MINE)
    assert (node.refused, node.targets) == ("", ("sm_90a",))
    assert node.serves(gpu("sm_90a", alone=True))
    assert not node.serves(gpu("sm_80"))
    assert node.serves(CPU)


@pytest.mark.parametrize(
    ("resources", "answer", "refused", "remark"),
    [
        ({}, NodeFacts("host", {**MINE, "torch": "1.0"}), "torch is 1.0", ""),
        ({}, "ptxdiff cannot be used there: ModuleNotFoundError", "ModuleNotFoundError", ""),
        ({"GPU": 1.0, "sm_100a": 1.0}, NodeFacts("host", MINE, (device("sm_80"),)), "its GPUs are sm_80", ""),
        ({"GPU": 1.0, "sm_100a": 1.0}, NodeFacts("host", MINE), "its GPUs are none", ""),
        ({"GPU": 2.0}, NodeFacts("host", MINE, (device("sm_80"), device("sm_89", 1))), "", "several generations"),
    ],
)
def test_a_node_that_is_not_what_is_needed_gets_no_work_of_that_kind(resources, answer, refused, remark):
    node = _node(listed(**resources), answer, MINE)
    assert refused in node.refused
    assert bool(refused) == bool(node.refused)
    assert remark in node.remark
    assert not any(node.serves(gpu(t)) for t in ("sm_80", "sm_89", "sm_100a"))


def test_gpus_that_ray_does_not_hand_out_are_no_offer():
    node = _node(listed(), NodeFacts("host", MINE, (device("sm_80"),)), MINE)
    assert not node.serves(gpu("sm_80"))


@pytest.mark.parametrize(
    ("address", "words"),
    [("ray://head:10001", "Ray's client cannot stream"), ("head", "write HOST:PORT"), ("head:x", "write HOST:PORT")],
)
def test_an_address_that_is_none_is_refused(address, words):
    with pytest.raises(ClusterError, match=words):
        connect.check_address(address)


def test_without_ray_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterError, match=r"pip install 'ptxdiff\[cluster\]'"):
        connect.imported()


def test_a_run_without_the_option_imports_no_ray():
    code = "import sys, harness.plugin, harness.cli.run, harness.running.recorder; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_what_travels(tmp_path, monkeypatch):
    root, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for folder in (root / "src" / "inside", elsewhere / "theirs"):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
    for name in ("single", "usercustomize"):
        (elsewhere / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(root / "src")
    monkeypatch.syspath_prepend(elsewhere)
    loaded = ["theirs.part", "single", "usercustomize", "inside", "json", "numpy", "harness", "nothing"]
    made = shipping.shipment(root, loaded)
    assert set(made.modules) == {str(elsewhere / "theirs"), str(elsewhere / "single.py")}
    assert made.path == ("src",)
    sent = made.runtime_env()
    assert sent["working_dir"] == str(root)
    assert "/harness/" not in sent["excludes"]
    assert "/harness/" in shipping.shipment(ROOT, []).runtime_env()["excludes"]


def test_the_drivers_folder_is_used_where_it_holds_the_same_files(tmp_path, monkeypatch):
    unpacked, theirs = tmp_path / "unpacked", tmp_path / "theirs"
    for folder in (unpacked, theirs):
        (folder / "cases").mkdir(parents=True)
        (folder / "cases" / "one.py").write_text("case = 1\n")
    monkeypatch.setattr(shipping.os, "environ", {**os.environ, shipping.ROOT_VARIABLE: str(theirs)})
    monkeypatch.chdir(unpacked)
    project = shipping.project.__wrapped__
    assert project() == theirs
    (theirs / "cases" / "one.py").write_text("case = 2\n")
    assert project() == unpacked
    (theirs / "cases" / "one.py").unlink()
    assert project() == unpacked


def test_reasons_of_ray_become_words():
    from harness.cluster.nodes import Nodes
    from harness.cluster.tasks import _REASONS, OtherEnvironment, Tasks

    kinds = {name: type(name, (Exception,), {}) for name in _REASONS}
    fake = SimpleNamespace(
        exceptions=SimpleNamespace(**kinds), remote=lambda **_: lambda f: f, put=lambda value: value, nodes=list
    )
    nodes = Nodes(fake, MINE)
    nodes.known["n"] = _node(listed(), NodeFacts("host", MINE), MINE)
    tasks = Tasks(fake, nodes)
    for name, (words, blamed) in _REASONS.items():
        lost = tasks._why(None, kinds[name]())
        assert (lost.words, lost.blamed, lost.raised) == (words, blamed, False)
    raised = tasks._why(None, ValueError("no such thing"))
    assert (raised.words, raised.raised) == ("ValueError: no such thing", True)
    other = tasks._why(None, OtherEnvironment("n", "torch is 1.0"))
    assert (other.words, other.raised) == ("torch is 1.0", False)
    assert nodes.known["n"].refused == "torch is 1.0"
