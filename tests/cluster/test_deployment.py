"""The KubeRay manifest has only fields that KubeRay defines, and the Slurm script returns ptxdiff's exit status."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema
import pytest

from ptxdiff.cli import main
from ptxdiff.cluster.connect import SLURM, NodeGroup, kuberay

yaml = pytest.importorskip("yaml", reason="PyYAML comes with Ray, the extra `cluster`")

ROOT = Path(__file__).parents[2]
GENERATIONS = ["sm_80=1x8", "sm_89=2x4", "sm_90a=2x8", "sm_100a=1x8", "sm_120a=1x1"]


def exactly(required, **optional):
    """A check that an object has exactly these fields."""
    fields = {**required, **optional}
    return {"type": "object", "properties": fields, "required": [*required], "additionalProperties": False}


# Names and types of the fields: docs.ray.io, "RayCluster Configuration"; of pods: the Kubernetes API, v1.
TEXT, COUNT = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
LABEL = {"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
AMOUNT = {"anyOf": [COUNT, {"type": "string", "pattern": r"^\d+([KMGT]i)?$"}]}
AMOUNTS = {"type": "object", "additionalProperties": AMOUNT, "required": ["cpu", "memory"]}
PORT = exactly({"containerPort": COUNT, "name": LABEL})
CONTAINER = exactly(
    {"name": LABEL, "image": TEXT, "resources": exactly({"limits": AMOUNTS, "requests": AMOUNTS})},
    ports={"type": "array", "items": PORT},
)
TOLERATION = exactly({"key": TEXT, "operator": {"enum": ["Exists", "Equal"]}, "effect": {"enum": ["NoSchedule"]}})
POD = exactly(
    {"spec": exactly({"containers": {"type": "array", "items": CONTAINER, "minItems": 1, "maxItems": 1}},
                     nodeSelector=TEXTS, tolerations={"type": "array", "items": TOLERATION})}
)  # fmt: skip
GROUP = exactly(
    {"groupName": LABEL, "replicas": COUNT, "minReplicas": COUNT, "maxReplicas": COUNT, "rayStartParams": TEXTS,
     "template": POD}
)  # fmt: skip
SPEC = exactly(
    {"rayVersion": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
     "headGroupSpec": exactly({"rayStartParams": TEXTS, "template": POD}),
     "workerGroupSpecs": {"type": "array", "items": GROUP, "minItems": 1}}
)  # fmt: skip
CLUSTER = exactly(
    {"apiVersion": {"const": "ray.io/v1"}, "kind": {"const": "RayCluster"}, "metadata": exactly({"name": LABEL}),
     "spec": SPEC}
)  # fmt: skip


def mistakes(text):
    """The mistakes in a manifest, in words."""
    made = yaml.safe_load(text)
    found = [e.message for e in jsonschema.Draft202012Validator(CLUSTER).iter_errors(made)]
    if found:
        return found
    groups = made["spec"]["workerGroupSpecs"]
    names = [g["groupName"] for g in groups]
    found += [f"two groups {n}" for n in {*names} if names.count(n) > 1]
    for group in groups:
        (container,) = group["template"]["spec"]["containers"]
        limits, requests = container["resources"]["limits"], container["resources"]["requests"]
        if limits != requests:
            found.append(f"{group['groupName']}: Kubernetes wants as many GPUs requested as there may be")
        if not group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]:
            found.append(f"{group['groupName']}: replicas out of bounds")
        declared = by_the_shell(group["rayStartParams"].get("resources", '"{}"'))
        if sum(declared.values()) != limits.get("nvidia.com/gpu", 0):
            found.append(f"{group['groupName']}: declares {declared}, and has {limits.get('nvidia.com/gpu', 0)} GPUs")
    return found


def by_the_shell(value):
    """The JSON that `ray start --resources=VALUE` gets after a shell has read VALUE, as KubeRay writes it into a
    command."""
    done = subprocess.run(["bash", "-c", f"printf %s {value}"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def manifest(*groups, **options):
    return kuberay(
        [NodeGroup.read(g) for g in groups], **{"image": "example/ptxdiff:1", "version": "2.60.0", **options}
    )


@pytest.mark.parametrize(
    "text",
    [manifest(*GENERATIONS), manifest(), manifest("sm_90a=1x1", cpu_nodes=0), manifest("sm_80=1x1", image='a"\n: b')],
    ids=["five generations", "Nodes without a GPU", "GPUs alone", "an odd name of an image"],
)
def test_the_manifest_has_the_fields_of_a_raycluster(text):
    assert mistakes(text) == []


def test_each_generation_has_nodes_of_its_own():
    groups = {g["groupName"]: g for g in yaml.safe_load(manifest(*GENERATIONS))["spec"]["workerGroupSpecs"]}
    assert [*groups] == ["cpu", "sm-80", "sm-89", "sm-90a", "sm-100a", "sm-120a"]
    hopper, blackwell = groups["sm-90a"], groups["sm-100a"]
    assert by_the_shell(hopper["rayStartParams"]["resources"]) == {"sm_90a": 8}
    assert hopper["replicas"] == 2
    places = [g["template"]["spec"]["nodeSelector"] for g in (groups["sm-89"], hopper, blackwell)]
    assert [tuple(p.values()) for p in places] == [("8", "9"), ("9", "0"), ("10", "0")]
    assert [*places[0]] == ["nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor"]


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("groupName: sm-90a", "groupName: sm_90a", "does not match"),
        ("minReplicas: 2", "minreplicas: 2", "'minReplicas' is a required property"),
        ("rayStartParams:", "rayStartParameters:", "'rayStartParams' is a required property"),
        ('{\\"sm_90a\\": 8}', '{\\"sm_90a\\": 4}', "declares {'sm_90a': 4}, and has 8 GPUs"),
        ("maxReplicas: 2", "maxReplicas: 1", "replicas out of bounds"),
        ("num-cpus: \"0\"", "num-cpus: 0", "is not of type 'string'"),
        ("ray.io/v1\n", "ray.io/v1alpha1\n", "'ray.io/v1' was expected"),
        ("requests: { cpu: \"32\", memory: 128Gi, nvidia.com/gpu: 8 }", "requests: { cpu: \"32\", memory: 128Gi }",
         "as many GPUs requested"),
    ],
)  # fmt: skip
def test_a_planted_mistake_in_the_manifest_is_detected(right, wrong, words):
    text = manifest("sm_90a=2x8")
    assert right in text
    assert any(words in m for m in mistakes(text.replace(right, wrong))), mistakes(text.replace(right, wrong))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpus", "sm_90a=8"], "expected TARGET=NODESxGPUS"),
        (["--gpus", "sm_90a=0x8"], "expected TARGET=NODESxGPUS"),
        (["--gpus", "z100=1x8"], "no target that ptxdiff knows"),
        (["--gpus", "sm_90=1x8", "--gpus", "sm_90a=2x4"], "sm_90a is given twice"),
        (["--cpu-nodes", "0"], "runs nothing"),
        (["--name", "My_Cluster"], "lower-case letters"),
    ],
)
def test_options_without_a_valid_cluster_are_refused(words, message, capsys):
    assert main(["cluster", "kuberay", "--image", "i", "--ray", "2.60.0", *words]) == 2
    assert message in capsys.readouterr().err


def test_the_command_prints_the_manifest_and_the_script(capsys):
    words = ["cluster", "kuberay", "--image", "example/ptxdiff:1", "--ray", "2.60.0", "--gpus", "sm_90=2x8"]
    assert main(words) == 0
    assert capsys.readouterr().out == manifest("sm_90a=2x8")
    assert main(["cluster", "slurm"]) == 0
    assert capsys.readouterr().out == SLURM.read_text()


def test_the_script_is_installed_with_the_package():
    packed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["ptxdiff"]
    assert str(SLURM.relative_to(ROOT / "harness")) in packed


STAND_INS = {
    # Runs the command after its options, as Slurm does on a node, and writes it to a log.
    "srun": 'echo "srun $*" >> "$LOG"; while [[ $1 == --* ]]; do shift; done; exec "$@"',
    "ray": 'echo "ray $* ${RAY_AUTH_MODE:-} ${RAY_AUTH_TOKEN:-}" >> "$LOG"; '
    '[[ $1 == get-auth-token ]] && { echo "${TOKEN-}"; exit; }; exec sleep 60',
    "ptxdiff": 'echo "ptxdiff $*" >> "$LOG"; [[ $1 == cluster ]] && { sleep 0.3; exit "${NODES_STATUS:-0}"; }; '
    'exit "${STATUS:-0}"',
}


def slurm_job(tmp_path, nodes, **variables):
    """Run the script with stand-ins for Slurm, Ray and ptxdiff. Returns its exit status and the commands that were
    called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in STAND_INS.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    log = tmp_path / "log"
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "LOG": str(log), "SLURM_JOB_NUM_NODES": str(nodes)}
    done = subprocess.run(
        ["bash", str(SLURM), "run", "cases", "--effort", "full"], env={**environment, **variables}, timeout=30,
        capture_output=True, text=True,
    )  # fmt: skip
    return done.returncode, log.read_text().splitlines()


def test_the_slurm_script_starts_a_head_the_other_nodes_and_ptxdiff(tmp_path):
    status, called = slurm_job(tmp_path, 3)
    assert status == 0
    heads = [c for c in called if c.startswith("ray start --head --block")]
    others = [c for c in called if c.startswith("ray start --address=")]
    assert (len(heads), len(others)) == (1, 1)
    address = re.search(r"--address=(\S+)", others[0])[1]
    assert f"--port={address.rpartition(':')[2]}" in heads[0]
    assert sum("--nodes=2 --ntasks=2 --exclude=" in c for c in called if c.startswith("srun")) == 1
    assert [c for c in called if c.startswith("ptxdiff")] == [
        f"ptxdiff cluster nodes {address} --expect 1 --wait 300",
        f"ptxdiff cluster nodes {address} --expect 3 --wait 300",
        f"ptxdiff run --cluster {address} cases --effort full",
    ]


def test_all_nodes_of_a_slurm_job_have_one_token(tmp_path):
    _, called = slurm_job(tmp_path, 2, TOKEN="secret")
    started = [c for c in called if c.startswith("ray start")]
    assert len(started) == 2
    assert all(c.endswith(" token secret") for c in started)


def test_a_ray_without_tokens_runs_without(tmp_path):
    _, called = slurm_job(tmp_path, 2)
    assert not any("token" in c for c in called if c.startswith("ray start"))


def test_one_node_is_its_own_head(tmp_path):
    status, called = slurm_job(tmp_path, 1)
    assert status == 0
    assert not [c for c in called if "--address=" in c]


@pytest.mark.parametrize("variables", [{"STATUS": "1"}, {"NODES_STATUS": "1"}])
def test_the_slurm_job_fails_if_ptxdiff_does_or_nodes_are_missing(tmp_path, variables):
    status, called = slurm_job(tmp_path, 2, **variables)
    assert status == 1
    assert any("ptxdiff run" in c for c in called) == ("STATUS" in variables)


def workflow():
    return yaml.safe_load((ROOT / ".github" / "workflows" / "cluster-nightly.yml").read_text())


def test_the_commands_of_the_nightly_workflow_are_those_of_ptxdiff():
    """The test looks up verbs and options in the command line itself."""
    (job,) = workflow()["jobs"].values()
    commands = [c for s in job["steps"] for c in re.findall(r"^\s*ptxdiff ([^\n|>]*)", s.get("run", ""), re.M)]
    assert {c.split()[0] for c in commands} == {"cluster", "run", "gate", "report"}
    for command in commands:
        assert unknown_options(command) == [], command
    assert unknown_options("run cases --clusterr auto") == ["--clusterr"]


def unknown_options(command):
    words = command.split()
    verb = words[: 2 if words[0] == "cluster" else 1]
    helped = subprocess.run(
        [sys.executable, "-m", "ptxdiff", *verb, "--help"], capture_output=True, text=True, cwd=ROOT, check=True
    ).stdout
    known = set(re.findall(r"--[a-z][-a-z]*", helped))
    return [w for w in words if w.startswith("--") and w.partition("=")[0] not in known]
