"""Join a Ray cluster, or start one here. Only this module imports Ray."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxdiff.cluster.nodes import Needs, Nodes
from ptxdiff.cluster.shipping import Shipment, shipment
from ptxdiff.cluster.tasks import Tasks
from ptxdiff.model.targets import capability, normal

LOCAL, AUTO = "local", "auto"

REACH = 10.0
"""Seconds within which the head of a cluster has to answer."""

SILENCE = 20.0
"""Seconds of joining after which a hint on the possible cause is printed."""


class ClusterError(RuntimeError):
    """A cluster cannot be used. The message says why, and what to do."""


def imported() -> Any:
    """The module `ray`. Raises ClusterError if it cannot be imported."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # silences a warning about this default
    try:
        import ray
    except ImportError as error:
        raise ClusterError(
            f"--cluster needs Ray, which cannot be imported ({error}): pip install 'ptxdiff[cluster]'"
        ) from None
    return ray


def check_address(address: str) -> None:
    """Raise ClusterError for a text that is no address."""
    if address in (LOCAL, AUTO):
        return
    if address.startswith("ray://"):
        raise ClusterError(
            f"--cluster {address}: Ray's client cannot stream results; start ptxdiff on a machine of the cluster with "
            "--cluster auto, or with `ray job submit`"
        )
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isdigit()):
        raise ClusterError(f"--cluster {address!r}: write HOST:PORT (as `ray start --head` prints it), auto, or local")


def _reach(address: str) -> None:
    """Raise ClusterError if nothing listens at HOST:PORT, because Ray would try for minutes and ignore Ctrl-C."""
    if address in (LOCAL, AUTO):
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(cannot_join(address, ConnectionError(str(error)))) from None


@contextlib.contextmanager
def connected(address: str, shipment: Shipment, **local: Any) -> Iterator[Any]:
    """The module `ray`, connected until the end of the block. A cluster that was started elsewhere keeps running.

    local: arguments of `ray.init` for a cluster that is started here. Raises ClusterError.
    """
    check_address(address)
    _reach(address)
    ray = imported()
    if ray.is_initialized():
        raise ClusterError("this process is already connected to a Ray cluster; ptxdiff needs its own connection")
    own = local if address == LOCAL else {}
    try:
        with hint_if_slow(address):
            ray.init(
                address=address, runtime_env=shipment.runtime_env(), log_to_driver=False, logging_level="ERROR", **own
            )
    except Exception as error:  # Ray raises many types here: for no answer, another version, too large files
        ray.shutdown()
        raise ClusterError(cannot_join(address, error, listens=address not in (LOCAL, AUTO))) from error
    try:
        yield ray
    finally:
        ray.shutdown()


@contextlib.contextmanager
def hint_if_slow(address: str, silence: float = SILENCE) -> Iterator[None]:
    """Print a hint on standard error if joining takes `silence` seconds: Ray waits for minutes without a message."""
    timer = threading.Timer(silence, lambda: print(_waiting(address, silence), file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _waiting(address: str, silence: float) -> str:
    return f"--cluster {address}: Ray has been joining for {silence:g} s; {_token()}"


def _token() -> str:
    """A hint that a missing or wrong token may be the reason."""
    if os.environ.get("RAY_AUTH_MODE") == "token":
        return "a head that runs without a token, or with another one, does not answer"
    return "a head that requires a token does not answer: copy its ~/.ray/auth_token, and set RAY_AUTH_MODE=token"


def cannot_join(address: str, error: Exception, *, listens: bool = False) -> str:
    """Why this process did not join a cluster, and what to do. listens: a server answers at the address."""
    message = " ".join(str(error).split()) or type(error).__name__
    if not (isinstance(error, ConnectionError | TimeoutError) or "Failed to connect" in message):
        return f"the Ray cluster at {address} cannot be used: {message}"
    if listens:
        return f"the server at {address} does not let this process join; {_token()} ({message})"
    where = "this machine belongs to no Ray cluster" if address == AUTO else f"no Ray cluster answers at {address}"
    return f"{where}; start one with `ray start --head`, and give the address that it prints ({message})"


# Join a cluster: connect, query its nodes, and get a `Tasks` to submit work to -------------------------------------

_MARKS = ("pyproject.toml", "setup.cfg", "pytest.ini", "tox.ini", ".git")


@contextlib.contextmanager
def joined(address: str, root: Path) -> Iterator[Tasks]:
    """The tasks of this process on a cluster. At the end of the block running tasks are ended, but not the cluster.

    root: the project's folder, which is sent to the nodes. Raises ClusterError.
    """
    with connected(address, shipment(root)) as ray:
        nodes = Nodes(ray)
        nodes.look()
        tasks = Tasks(ray, nodes)
        try:
            yield tasks
        finally:
            tasks.close()


def project_of(file: Path) -> Path:
    """The project folder of a file: the nearest folder above with `pyproject.toml` or the like, else its own folder."""
    folder = file.resolve().parent
    return next((f for f in (folder, *folder.parents) if any((f / m).exists() for m in _MARKS)), folder)


def served(nodes: Nodes, needs: Needs) -> None:
    """Raise ClusterError if no node can run a task with these needs. The error lists the usable GPUs."""
    if nodes.serving(needs):
        return
    there = ", ".join(nodes.targets) or "none"
    refused = "".join(f"; {n.host} is refused: {n.refused}" for n in nodes.refused)
    remarks = "".join(f"; {n.host}: {n.remark}" for n in nodes.known.values() if n.remark)
    needed = f"a whole GPU {needs.target}" if needs.gpus else f"{needs.cpus:g} CPUs"
    raise ClusterError(f"no node of the cluster has {needed}; GPUs of usable nodes: {there}{refused}{remarks}")


# Files that start a Ray cluster for ptxdiff: a KubeRay manifest, and a script for Slurm ----------------------------
#
# The manifest's fields are those of KubeRay's RayCluster, ray.io/v1 (docs.ray.io, "RayCluster Configuration"). Groups
# select nodes by the labels of NVIDIA's GPU feature discovery, `nvidia.com/gpu.compute.major` and `.minor`, so that all
# GPUs of a group have one target.

SLURM = Path(__file__).with_name("slurm.sh")

_HEAD = """\
# A Ray cluster for ptxdiff, for the KubeRay operator: kubectl apply -f FILE. Then run ptxdiff on the head:
#   kubectl exec -it $(kubectl get pod -o name -l ray.io/cluster={name},ray.io/node-type=head) -- \\
#     ptxdiff run cases --cluster auto
# All nodes use one image. It needs Python, Ray, Triton, torch, and ptxdiff with the extra `cluster`.
apiVersion: ray.io/v1
kind: RayCluster
metadata:
  name: {name}
spec:
  rayVersion: {version}
  headGroupSpec:
    rayStartParams:
      dashboard-host: "0.0.0.0"
      num-cpus: "0" # the driver runs here, so no tasks should
    template:
      spec:
        containers:
          - name: ray-head
            image: {image}
            ports:
              - {{ containerPort: 6379, name: gcs }}
              - {{ containerPort: 8265, name: dashboard }}
              - {{ containerPort: 10001, name: client }}
            resources:
              limits: {{ cpu: "4", memory: 16Gi }}
              requests: {{ cpu: "4", memory: 16Gi }}
  workerGroupSpecs:
"""

_CPUS = """\
    # Nodes without a GPU, for the emulator and assembler backends.
    - groupName: cpu
      replicas: {nodes}
      minReplicas: {nodes}
      maxReplicas: {nodes}
      rayStartParams: {{}}
      template:
        spec:
          containers:
            - name: ray-worker
              image: {image}
              resources:
                limits: {{ cpu: "16", memory: 64Gi }}
                requests: {{ cpu: "16", memory: 64Gi }}
"""

_GPUS = """\
    # {target}
    - groupName: {group}
      replicas: {nodes}
      minReplicas: {nodes}
      maxReplicas: {nodes}
      rayStartParams:
        # A JSON object in additional quotes, because the shell that runs `ray start` removes them.
        resources: {resources}
      template:
        spec:
          nodeSelector:
            nvidia.com/gpu.compute.major: "{major}"
            nvidia.com/gpu.compute.minor: "{minor}"
          tolerations:
            - {{ key: nvidia.com/gpu, operator: Exists, effect: NoSchedule }}
          containers:
            - name: ray-worker
              image: {image}
              resources:
                limits: {{ cpu: "{cpus}", memory: {memory}Gi, nvidia.com/gpu: {gpus} }}
                requests: {{ cpu: "{cpus}", memory: {memory}Gi, nvidia.com/gpu: {gpus} }}
"""

_CPUS_A_GPU, _MEMORY_A_GPU = 4, 16


@dataclass(frozen=True)
class NodeGroup:
    """A group of nodes with equally many GPUs of one target. gpus: of each node."""

    target: str
    nodes: int
    gpus: int

    @classmethod
    def read(cls, words: str) -> NodeGroup:
        """Parse a group: `sm_90a=2x8` is two nodes with eight GPUs each. Raises ValueError."""
        match = re.fullmatch(r"([^=]+)=([1-9]\d*)x([1-9]\d*)", words)
        if not match:
            raise ValueError(f"{words!r}: expected TARGET=NODESxGPUS, such as sm_90a=2x8 for two nodes of eight GPUs")
        return cls(normal(match[1]), int(match[2]), int(match[3]))


def kuberay(groups: Sequence[NodeGroup], *, image: str, version: str, cpu_nodes: int = 1, name: str = "ptxdiff") -> str:
    """The manifest of a RayCluster. version: of the Ray in the image. cpu_nodes: the number of nodes without a GPU.

    Raises ValueError for two groups of one target, for a cluster without workers, and for an illegal name.
    """
    targets = [g.target for g in groups]
    if twice := [t for t in targets if targets.count(t) > 1]:
        raise ValueError(f"{twice[0]} is given twice; put its nodes into one group")
    if not groups and cpu_nodes < 1:
        raise ValueError("a cluster without workers runs nothing; add a group of GPUs, or nodes without a GPU")
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?", name):
        raise ValueError(f"{name!r}: use at most 50 lower-case letters, digits and hyphens, as Kubernetes requires")
    quoted = json.dumps(image)
    parts = [_HEAD.format(name=name, version=json.dumps(version), image=quoted)]
    parts += [_CPUS.format(nodes=cpu_nodes, image=quoted)] if cpu_nodes > 0 else []
    return "".join([*parts, *(_gpus(g, quoted) for g in groups)])


def _gpus(group: NodeGroup, image: str) -> str:
    major, minor = divmod(capability(group.target), 10)
    return _GPUS.format(
        target=group.target, group=group.target.replace("_", "-"), nodes=group.nodes, gpus=group.gpus, image=image,
        resources=f"'{json.dumps(json.dumps({group.target: group.gpus}))}'", major=major, minor=minor,
        cpus=_CPUS_A_GPU * group.gpus, memory=_MEMORY_A_GPU * group.gpus,
    )  # fmt: skip
