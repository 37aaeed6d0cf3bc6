"""Join a cluster: connect, query its nodes, and get a `Tasks` to submit work to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ptxdiff.cluster.connect import ClusterError, connected
from ptxdiff.cluster.nodes import Needs, Nodes
from ptxdiff.cluster.shipping import shipment
from ptxdiff.cluster.tasks import Tasks

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
