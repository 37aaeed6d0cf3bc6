"""A cluster joined for one piece of work: connected, its nodes asked, tasks ready to be submitted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from harness.cluster.connect import ClusterError, connected
from harness.cluster.nodes import Needs, Nodes
from harness.cluster.shipping import shipment
from harness.cluster.tasks import Tasks

_MARKS = ("pyproject.toml", "setup.cfg", "pytest.ini", "tox.ini", ".git")


@contextlib.contextmanager
def joined(address: str, root: Path) -> Iterator[Tasks]:
    """The tasks of this process on a cluster. At the end those that still run are ended; the cluster goes on.

    root: the project's folder, which travels. Raises ClusterError.
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
    """The project of a file: the folder above it that looks like one; else the folder that it lies in."""
    folder = file.resolve().parent
    return next((f for f in (folder, *folder.parents) if any((f / m).exists() for m in _MARKS)), folder)


def served(nodes: Nodes, needs: Needs) -> None:
    """Raises ClusterError where no node can ever run a task with these needs; it says what there is."""
    if nodes.serving(needs):
        return
    there = ", ".join(nodes.targets) or "none"
    refused = "".join(f"; {n.host} is refused: {n.refused}" for n in nodes.refused)
    remarks = "".join(f"; {n.host}: {n.remark}" for n in nodes.known.values() if n.remark)
    what = f"a whole GPU {needs.target}" if needs.gpus else f"{needs.cpus:g} CPUs"
    raise ClusterError(f"no node of the cluster has {what}; GPUs of nodes that can be used: {there}{refused}{remarks}")
