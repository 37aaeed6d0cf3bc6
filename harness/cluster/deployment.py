"""Files that start a Ray cluster for ptxdiff: a KubeRay manifest, and a script for Slurm.

The manifest's fields are those of KubeRay's RayCluster, ray.io/v1 (docs.ray.io, "RayCluster Configuration"). Groups
select nodes by the labels of NVIDIA's GPU feature discovery, `nvidia.com/gpu.compute.major` and `.minor`, so that all
GPUs of a group have one target.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ptxdiff.model.targets import capability, normal

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
        found = re.fullmatch(r"([^=]+)=([1-9]\d*)x([1-9]\d*)", words)
        if not found:
            raise ValueError(f"{words!r}: expected TARGET=NODESxGPUS, such as sm_90a=2x8 for two nodes of eight GPUs")
        return cls(normal(found[1]), int(found[2]), int(found[3]))


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
