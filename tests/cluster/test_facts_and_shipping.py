"""Which facts decide whether a node gets work, and which files are sent to it; without Ray."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from ptxdiff.cluster import connect, shipping
from ptxdiff.cluster import nodes as nodes_module
from ptxdiff.cluster.connect import ClusterError
from ptxdiff.cluster.nodes import (
    BUILDS_VARIABLE,
    CPU,
    FILES_VARIABLE,
    NodeFacts,
    Nodes,
    difference,
    environment,
    gpu,
    here,
    node_of,
)
from ptxdiff.processes.gpus import Gpu
from ptxdiff.triton import builds
from tests.cluster.conftest import ROOT

MINE = here().environment


def listed(**resources):
    return {"NodeID": "5a" * 28, "NodeManagerHostname": "host", "Resources": {"CPU": 4.0, **resources}}


def device(target, number=0):
    return Gpu(str(number), "a GPU", f"GPU-{number}", target, 1 << 30)


def test_each_fact_that_differs_is_reported():
    assert difference(MINE, here().environment) == ""
    for name in ("python", "machine", "ptxdiff", "ledger", "triton's files", "triton", "torch", "numpy"):
        assert name in MINE
        assert difference(MINE, {**MINE, name: "other"})
        assert difference(MINE, {n: v for n, v in MINE.items() if n != name}) or not MINE[name]
    assert difference(MINE, {**MINE, "torch": "1.0"}) == f"torch is 1.0, here {MINE['torch']}"
    assert "missing" in difference(MINE, {**MINE, "ptxdiff": ""})


def test_a_setting_that_one_side_lacks_is_a_difference(monkeypatch):
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    assert "setting TRITON_DISABLE_LINE_INFO is 1, here missing" in difference(MINE, here().environment)
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


@pytest.fixture
def build(tmp_path, monkeypatch):
    """A Python with a stand-in for Triton, named `old` on the driver's command line; and the variable for nodes."""
    folder = tmp_path / "env" / "bin" / "triton"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text('__version__ = "3.1.0"\n')
    python = folder.parent / "python"
    answer = f'["3.11.0", "{folder}", "3.1.0", []]'
    python.write_text(f"#!/bin/sh\necho '{answer}'\n")
    python.chmod(0o755)
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(tmp_path / "cache"))
    builds.give([("old", str(python))])
    yield folder
    builds.give([])
    builds.only(builds.MANAGED)


def as_a_node(variables, monkeypatch):
    """The facts of a node that gets these variables, computed in this process."""
    builds.give([])
    monkeypatch.setenv(BUILDS_VARIABLE, variables[BUILDS_VARIABLE])
    return environment()


def test_another_triton_build_under_the_same_name_and_version_is_a_difference(build, monkeypatch):
    mine, sent = environment(), shipping.shipment(ROOT, []).runtime_env()["env_vars"]
    assert mine["build old"]
    assert difference(mine, as_a_node(sent, monkeypatch)) == ""
    assert builds.build_called("old").version == "3.1.0"  # and the node compiles with it
    (build / "compiler.py").write_text("a patch without a version")
    assert "build old is" in difference(mine, as_a_node(sent, monkeypatch))
    (build.parent / "python").unlink()
    assert "build old is missing" in difference(mine, as_a_node(sent, monkeypatch))


def test_a_node_uses_no_build_that_the_driver_lacks(build, tmp_path, monkeypatch):
    sent = shipping.shipment(ROOT, []).runtime_env()["env_vars"]
    python = tmp_path / builds.MANAGED["tlx"][0] / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(build.parent / "python")
    monkeypatch.setattr(builds, "ROOT", tmp_path)
    assert builds.known() == ("old", "tlx")
    as_a_node(sent, monkeypatch)
    assert builds.known() == ("old",)


def test_a_long_wait_for_a_head_prints_possible_reasons(capsys, monkeypatch):
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with connect.hint_if_slow("head:6379", silence=0.01):
        time.sleep(0.3)
    assert "set RAY_AUTH_MODE=token" in capsys.readouterr().err
    with connect.hint_if_slow("head:6379"):
        pass
    assert capsys.readouterr().err == ""


class SlowRay:
    """A stand-in for Ray with two nodes, of which the second answers only when `awake` is set."""

    class exceptions:
        class GetTimeoutError(Exception):
            pass

    def __init__(self):
        self.awake, self.waited, self.cancelled = False, 0.0, []

    def nodes(self):
        return [{**listed(), "NodeID": ident, "Alive": True} for ident in ("quick", "slow")]

    def remote(self, **options):
        return lambda function: self

    def options(self, *, label_selector, **others):
        (places,) = label_selector.values()
        return SimpleNamespace(remote=lambda: places)

    def get(self, answer, timeout):
        if "slow" in answer and not self.awake:
            self.waited += timeout
            raise self.exceptions.GetTimeoutError
        return NodeFacts("host", MINE)

    def cancel(self, answer, force):
        self.cancelled.append(answer)


def test_a_slow_node_does_not_delay_the_others(monkeypatch):
    ray = SlowRay()
    nodes = Nodes(ray, MINE)
    assert [n.id for n in nodes.look(patience=0)] == ["quick"]
    assert ray.waited < 1
    assert [n.id for n in nodes.serving(CPU)] == ["quick"]
    assert nodes.look(patience=0) == []
    ray.awake = True
    assert [n.id for n in nodes.look(patience=0)] == ["slow"]
    assert len(nodes.serving(CPU)) == 2
    assert nodes.look(patience=0) == []


def test_a_node_that_never_answers_is_refused_with_the_time(monkeypatch):
    monkeypatch.setattr(nodes_module, "ANSWER", 0.0)
    ray = SlowRay()
    nodes = Nodes(ray, MINE)
    nodes.look(patience=0)
    assert "did not report its facts within 0 s" in nodes.known["slow"].refused
    assert ray.cancelled


def test_a_head_that_listens_and_refuses_may_need_a_token():
    refused = ConnectionError("Failed to connect to Ray cluster at 1.2.3.4:6379")
    assert "set RAY_AUTH_MODE=token" in connect.cannot_join("head:6379", refused, listens=True)
    assert "no Ray cluster answers at head:6379" in connect.cannot_join("head:6379", refused)


def test_a_node_has_the_targets_of_its_devices():
    node = node_of(listed(GPU=2.0, sm_90a=2.0), NodeFacts("host", MINE, (device("sm_90a"), device("sm_90a", 1))), MINE)
    assert (node.refused, node.targets) == ("", ("sm_90a",))
    assert node.serves(gpu("sm_90a", alone=True))
    assert not node.serves(gpu("sm_80"))
    assert node.serves(CPU)


@pytest.mark.parametrize(
    ("resources", "answer", "refused", "remark"),
    [
        ({}, NodeFacts("host", {**MINE, "torch": "1.0"}), "torch is 1.0", ""),
        ({}, "ptxdiff does not work there: ModuleNotFoundError", "ModuleNotFoundError", ""),
        ({"GPU": 1.0, "sm_100a": 1.0}, NodeFacts("host", MINE, (device("sm_80"),)), "its GPUs are sm_80", ""),
        ({"GPU": 1.0, "sm_100a": 1.0}, NodeFacts("host", MINE), "its GPUs are none", ""),
        ({"GPU": 2.0}, NodeFacts("host", MINE, (device("sm_80"), device("sm_89", 1))), "", "several targets"),
    ],
)
def test_a_node_with_other_facts_or_gpus_gets_no_such_work(resources, answer, refused, remark):
    node = node_of(listed(**resources), answer, MINE)
    assert refused in node.refused
    assert bool(refused) == bool(node.refused)
    assert remark in node.remark
    assert not any(node.serves(gpu(t)) for t in ("sm_80", "sm_89", "sm_100a"))


def test_gpus_that_ray_does_not_list_are_not_used():
    node = node_of(listed(), NodeFacts("host", MINE, (device("sm_80"),)), MINE)
    assert not node.serves(gpu("sm_80"))


@pytest.mark.parametrize(
    ("address", "words"),
    [("ray://head:10001", "Ray's client cannot stream"), ("head", "write HOST:PORT"), ("head:x", "write HOST:PORT")],
)
def test_an_invalid_address_is_refused(address, words):
    with pytest.raises(ClusterError, match=words):
        connect.check_address(address)


def test_without_ray_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterError, match=r"pip install 'ptxdiff\[cluster\]'"):
        connect.imported()


def test_a_run_without_the_option_imports_no_ray():
    code = "import sys, ptxdiff.plugin, ptxdiff.cli.run, ptxdiff.running.recorder; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_the_shipment_has_the_project_packages_and_settings(tmp_path, monkeypatch):
    root, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for folder in (root / "src" / "inside", elsewhere / "theirs"):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
    for name in ("single", "usercustomize"):
        (elsewhere / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(root / "src")
    monkeypatch.syspath_prepend(elsewhere)
    loaded = ["theirs.part", "single", "usercustomize", "inside", "json", "numpy", "ptxdiff", "nothing"]
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
    from ptxdiff.cluster.nodes import Nodes
    from ptxdiff.cluster.tasks import REASONS, OtherEnvironment, Tasks

    kinds = {name: type(name, (Exception,), {}) for name in REASONS}
    fake = SimpleNamespace(
        exceptions=SimpleNamespace(**kinds), remote=lambda **_: lambda f: f, put=lambda value: value, nodes=list
    )
    nodes = Nodes(fake, MINE)
    nodes.known["n"] = node_of(listed(), NodeFacts("host", MINE), MINE)
    tasks = Tasks(fake, nodes)
    for name, (words, blamed) in REASONS.items():
        lost = tasks.given_up(None, kinds[name]())
        assert (lost.words, lost.blamed, lost.raised) == (words, blamed, False)
    raised = tasks.given_up(None, ValueError("no such thing"))
    assert (raised.words, raised.raised) == ("ValueError: no such thing", True)
    other = tasks.given_up(None, OtherEnvironment("n", "torch is 1.0"))
    assert (other.words, other.raised) == ("torch is 1.0", False)
    assert nodes.known["n"].refused == "torch is 1.0"
