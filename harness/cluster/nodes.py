"""The nodes of a cluster: the resources of each, and whether its environment equals the driver's.

A node reports its GPUs and its facts when it is first seen. If a fact differs from the driver's, the node is refused
with the difference in words, and no task is placed there.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import platform
import socket
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ptxdiff.diskcache import DiskCache
from ptxdiff.locations import PACKAGE, files_below
from ptxdiff.model.identity.definition import harness
from ptxdiff.processes.gpus import Gpu, gpus
from ptxdiff.triton import builds
from ptxdiff.triton.builds import NoTriton, installation, triton_folder

ANSWER = 180.0
"""Seconds within which a node must report its facts; it unpacks the job's files first."""

GPU_SHARES = 4
"""The number of tasks that share one GPU. Most of an item's time is compiling and judging, on the CPU."""


@dataclass(frozen=True)
class Needs:
    """The resources that a task needs. gpus: a number, or a share of one. target: of these GPUs."""

    cpus: float = 1.0
    gpus: float = 0.0
    target: str = ""

    @property
    def words(self) -> str:
        """The resource that tasks wait for: the GPUs' target, such as `sm_90a`, or `CPU`."""
        return self.target if self.gpus else "CPU"


CPU = Needs()


def gpu(target: str, *, alone: bool = False) -> Needs:
    """The needs of a task on a GPU of a target. alone: whether it needs a whole GPU, not shared with other tasks."""
    return Needs(1.0, 1.0 if alone else 1.0 / GPU_SHARES, target)


@dataclass(frozen=True)
class Node:
    """One node. targets: of its GPUs. refused: the reason why it gets no work; "" if it does."""

    id: str
    host: str
    cpus: float
    gpus: float
    targets: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    refused: str = ""
    remark: str = ""

    def serves(self, needs: Needs) -> bool:
        """Whether a task with these needs can ever run here."""
        if self.refused or self.cpus < needs.cpus or self.gpus < needs.gpus:
            return False
        return not needs.gpus or needs.target in self.targets

    def as_record(self) -> dict[str, Any]:
        """The node as JSON, for the head of a records file."""
        fields: dict[str, Any] = {"node": self.id[:12], "host": self.host, "cpus": self.cpus, "gpus": [*self.devices]}
        fields |= {"targets": [*self.targets]} if self.targets else {}
        return fields | ({"refused": self.refused} if self.refused else {})


class Nodes:
    """The nodes of the cluster that `ray` is connected to.

    mine: the facts that nodes must have; None for the facts of this machine.
    """

    def __init__(self, ray: Any, mine: Mapping[str, str] | None = None) -> None:
        self._ray = ray
        self.mine = dict(here().environment if mine is None else mine)
        self.known: dict[str, Node] = {}
        self.alive: frozenset[str] = frozenset()
        self._asked: dict[str, _Question] = {}

    def look(self, patience: float = ANSWER) -> list[Node]:
        """List living nodes, query new ones, and return those that have newly answered.

        patience: seconds to wait for answers; later calls return answers that come later. A node that has not answered
        after `ANSWER` seconds is refused.
        """
        listed = {n["NodeID"]: n for n in self._ray.nodes() if n["Alive"]}
        self.alive = frozenset(listed)
        self._asked = {i: question for i, question in self._asked.items() if i in listed}
        self._ask([i for i in listed if i not in self.known and i not in self._asked])
        until = time.monotonic() + patience
        made = []
        for ident in [*self._asked]:
            if (answer := self._answer(ident, until)) is not None:
                del self._asked[ident]
                made.append(node_of(listed[ident], answer, self.mine))
        self.known |= {n.id: n for n in made}
        return made

    def refuse(self, ident: str, words: str) -> None:
        """Place no more tasks on a node. words: the reason."""
        self.known[ident] = replace(self.known[ident], refused=words)

    @property
    def refused(self) -> list[Node]:
        """The nodes that get no work."""
        return [n for n in self.known.values() if n.refused]

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets of living, usable nodes' GPUs."""
        return tuple(
            sorted({t for n in self.known.values() if n.id in self.alive and not n.refused for t in n.targets})
        )

    def serving(self, needs: Needs) -> list[Node]:
        """The living nodes that can run a task with these needs."""
        return [n for n in self.known.values() if n.id in self.alive and n.serves(needs)]

    def slots(self, needs: Needs) -> int:
        """How many tasks with these needs the cluster can run at once."""
        nodes_serving = self.serving(needs)
        counts = [min(n.cpus / needs.cpus, n.gpus / needs.gpus if needs.gpus else float("inf")) for n in nodes_serving]
        return sum(int(count) for count in counts)

    def _ask(self, ids: Collection[str]) -> None:
        """Start a task on each of these nodes that reports its facts."""

        # A nested function, so that Ray sends its code: a node with another ptxdiff still answers.
        def probe() -> Any:
            try:
                return here()
            except Exception as error:
                return f"ptxdiff does not work there: {type(error).__name__}: {error}"

        remote = self._ray.remote(num_cpus=0, max_retries=1)(probe)
        for i in ids:
            answer = remote.options(name="ptxdiff: facts of a node", label_selector=selector([i])).remote()
            self._asked[i] = _Question(answer, time.monotonic() + ANSWER)

    def _answer(self, ident: str, until: float) -> NodeFacts | str | None:
        """A node's facts, or the reason why it has none; None if it may still answer after the time `until`."""
        question = self._asked[ident]
        wait = min(until, question.deadline) - time.monotonic()
        try:
            facts: NodeFacts | str = self._ray.get(question.answer, timeout=max(0.01, wait))
        except self._ray.exceptions.GetTimeoutError:
            if time.monotonic() < question.deadline:
                return None
            self._ray.cancel(question.answer, force=True)
            return f"it did not report its facts within {ANSWER:g} s"
        except Exception as error:  # for example: it died, could not unpack the files, has another version of Ray
            return f"it could not report its facts: {' '.join(str(error).split())[:300]}"
        return facts


@dataclass(frozen=True)
class _Question:
    """A node's pending answer, and its deadline."""

    answer: Any
    deadline: float


def node_of(listed: Mapping[str, Any], answer: NodeFacts | str, mine: Mapping[str, str]) -> Node:
    """A node that Ray lists, with its answer: its facts, or why it gave none. mine: the environment of the driver."""
    resources = listed["Resources"]
    amounts = (float(resources.get("CPU", 0)), float(resources.get("GPU", 0)))
    ident, host = listed["NodeID"], listed["NodeManagerHostname"]
    if isinstance(answer, str):
        return Node(ident, host, *amounts, refused=answer)
    refused = difference(mine, answer.environment)
    present = tuple(sorted({g.target for g in answer.devices}))
    declared = {name for name in resources if name.startswith("sm_")}
    if not refused and declared - set(present):
        refused = f"it declares {', '.join(sorted(declared))}, but its GPUs are {', '.join(present) or 'none'}"
    targets, remark = present, ""
    if amounts[1] and len(present) > 1:
        targets = ()
        remark = (
            f"its GPUs have several targets ({', '.join(present)}), and Ray does not distinguish them: start one Ray "
            "node for each target, with CUDA_VISIBLE_DEVICES"
        )
    names = tuple(f"{g.name} {g.target} {g.uuid}" for g in answer.devices)
    offered = targets if amounts[1] else ()
    return Node(ident, host, *amounts, offered, answer.environment, names, refused, remark)


def selector(ids: Collection[str]) -> dict[str, str]:
    """Ray's label selector for any one of these nodes."""
    return {"ray.io/node-id": f"in({','.join(sorted(ids))})"}


# The facts of a machine that decide bits ---------------------------------------------------------------------------
#
# Ptxdiff's code, the compilers, the packages that compute, settings.
#
# A node whose facts differ from the driver's gets no work, because it might give other bits.

PACKAGES = ("triton", "torch", "numpy", "numba", "llvmlite", "ml_dtypes", "mpmath", "scipy")

SETTINGS = ("TRITON_", "TORCH_", "NUMBA_", "PTXDIFF_")
"""Prefixes of environment variables that may decide bits or verdicts."""

# Variables with paths or numbers of threads, which decide no bits.
_NO_SETTING = (
    "PTXDIFF_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "NUMBA_CACHE_DIR",
    "NUMBA_NUM_THREADS",
    "TORCHINDUCTOR_CACHE_DIR",
)

FILES_VARIABLE = "PTX_CLUSTER_FILES"
"""The environment variable with paths of other programs, such as another ptxas, that nodes must have too."""

BUILDS_VARIABLE = "PTX_CLUSTER_BUILDS"
"""The environment variable with other Triton builds that nodes must have too, one NAME=PYTHON per line."""

_kept = DiskCache("triton-files", 8)


@dataclass(frozen=True)
class NodeFacts:
    """The facts of a machine. environment: what decides bits, by name. devices: its GPUs."""

    host: str
    environment: Mapping[str, str]
    devices: tuple[Gpu, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)


def here() -> NodeFacts:
    """The facts of this machine and process."""
    return NodeFacts(socket.gethostname(), environment(), gpus(), settings())


def builds_setting() -> str:
    """The value of `BUILDS_VARIABLE`: the Triton builds known here. Builds that `make` sets up have no path."""
    named = builds.given()
    return "\n".join(f"{name}={named.get(name, '')}" for name in builds.known())


def environment() -> dict[str, str]:
    """Everything that decides bits here, by the names that messages use."""
    facts = {"python": platform.python_version(), "machine": platform.machine(), "ptxdiff": harness()}
    facts |= {"ledger": _ledger(), "triton's files": _triton_files()}
    facts |= {name: _version(name) for name in PACKAGES}
    facts |= {f"build {name}": _build(name) for name in _builds()}
    facts |= {f"file {path}": _file(path) for path in os.environ.get(FILES_VARIABLE, "").split(os.pathsep) if path}
    return facts | {f"setting {name}": value for name, value in settings().items()}


def settings() -> dict[str, str]:
    """The environment variables that may decide bits; they are sent with a job."""
    variables = {n: v for n, v in os.environ.items() if n.startswith(SETTINGS) and n not in _NO_SETTING}
    return dict(sorted(variables.items()))


def difference(mine: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """The facts in which `theirs` differs from `mine`, in words; "" if none differs."""
    names = [n for n in [*mine, *theirs] if mine.get(n, "") != theirs.get(n, "")]
    return "; ".join(_words(n, mine.get(n, ""), theirs.get(n, "")) for n in dict.fromkeys(names))


def _words(name: str, mine: str, theirs: str) -> str:
    if name in ("ptxdiff", "ledger", "triton's files") or name.startswith(("file ", "build ")):
        subject = {"ptxdiff": "ptxdiff's own code", "ledger": "the conformance ledger"}.get(name, name)
        return f"{subject} is {theirs[:12] or 'missing'}, here {mine[:12] or 'missing'}"
    return f"{name} is {theirs or 'missing'}, here {mine or 'missing'}"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _file(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def _ledger() -> str:
    path = PACKAGE / "conformance" / "ledger.jsonl"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


@functools.cache
def _triton_files() -> str:
    """A digest of the installed Triton's files, because builds of one version may differ; "" without Triton."""
    try:
        return _contents_once(triton_folder(), installation())
    except NoTriton:
        return ""


def _builds() -> tuple[str, ...]:
    """The names of the driver's other Triton builds: of its command line, and those that `make` has set up there."""
    if (given := os.environ.get(BUILDS_VARIABLE)) is None:
        return builds.known()
    named = [build.partition("=") for build in given.splitlines()]
    builds.give((name, python) for name, _, python in named if python)
    builds.only(name for name, _, _ in named)
    return tuple(name for name, _, _ in named)


def _build(name: str) -> str:
    """A digest of another Triton build: its Python's version, its own version and its files; "" if it is missing."""
    try:
        build = builds.build_called(name)
        contents = _contents_once(Path(build.folder), builds.installation_of(name))
    except NoTriton:
        return ""
    return hashlib.sha256(f"{build.python_version} {build.version} {contents}".encode()).hexdigest()


def _contents_once(folder: Path, known: str) -> str:
    """A digest of a folder's contents, cached because reading 1 GB takes 3 s.

    known: the cache's key, a digest of the files' sizes and times, which is valid on this machine only.
    """
    if (cached := _kept.get(known.encode())) is not None:
        return cached.decode()
    made = _contents(folder)
    _kept.put(made.encode(), known.encode())
    return made


def _contents(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in files_below(folder, without=("__pycache__",)):
        with path.open("rb") as file:
            digest.update(f"{path.relative_to(folder)}\0".encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
