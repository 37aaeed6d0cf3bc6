"""`ptxdiff cluster`: list the nodes of a Ray cluster, and print files that start one on Kubernetes or Slurm."""

from __future__ import annotations

import argparse
import importlib.metadata
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ptxdiff.cli import UsageError, say

if TYPE_CHECKING:
    from ptxdiff.cluster.nodes import Node

PAUSE = 2.0
"""Seconds between two queries of the cluster's nodes."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The verbs below this one."""
    kinds = parser.add_subparsers(dest="kind", metavar="WHAT", required=True)
    nodes = kinds.add_parser("nodes", help="the nodes of a cluster, with their GPUs, and which are refused")
    nodes.add_argument("address", metavar="ADDRESS", help="auto, or HOST:PORT of the head")
    nodes.add_argument(
        "--expect", type=int, default=1, metavar="N", help="fail if fewer nodes are usable (default: %(default)s)"
    )
    nodes.add_argument("--wait", type=float, default=0.0, metavar="S", help="seconds to wait for the expected nodes")
    kuberay = kinds.add_parser("kuberay", help="print a RayCluster manifest for Kubernetes with the KubeRay operator")
    kuberay.add_argument(
        "--gpus", action="append", default=[], metavar="TARGET=NODESxGPUS", help="a group: sm_90a=2x8; repeatable"
    )
    kuberay.add_argument(
        "--cpu-nodes", type=int, default=1, metavar="N", help="nodes without a GPU (default: %(default)s)"
    )
    kuberay.add_argument("--image", required=True, help="a container image with ptxdiff[cluster]")
    kuberay.add_argument(
        "--ray", metavar="VERSION", help="Ray's version in the image (default: the one installed here)"
    )
    kuberay.add_argument("--name", default="ptxdiff", help="the cluster's name (default: %(default)s)")
    kinds.add_parser("slurm", help="print a script for sbatch")


def main(args: argparse.Namespace) -> int:
    """Print what the verb asks for. Returns 1 if fewer nodes are usable than expected, else 0."""
    return {"nodes": _nodes, "kuberay": _kuberay, "slurm": _slurm}[args.kind](args)


def _nodes(args: argparse.Namespace) -> int:
    """Query the cluster until the expected number of nodes is usable, or the time is over; then print the nodes."""
    from ptxdiff.cluster.connect import ClusterError, connected
    from ptxdiff.cluster.nodes import Nodes
    from ptxdiff.cluster.shipping import shipment

    deadline = time.monotonic() + args.wait
    while True:
        try:
            with connected(args.address, shipment(Path.cwd())) as ray:
                nodes = Nodes(ray)
                while True:
                    nodes.look()
                    known_nodes = [n for n in nodes.known.values() if n.id in nodes.alive]
                    usable = [n for n in known_nodes if not n.refused]
                    if len(usable) >= args.expect or time.monotonic() > deadline:
                        return _print_nodes(known_nodes, len(usable), args.expect)
                    time.sleep(PAUSE)
        except ClusterError as error:  # the head may be starting
            if time.monotonic() > deadline:
                raise UsageError(str(error)) from None
            time.sleep(PAUSE)


def _print_nodes(found: list[Node], usable: int, expected: int) -> int:
    for node in sorted(found, key=lambda n: (n.host, n.id)):
        gpus = f"{node.gpus:g} GPUs {', '.join(node.targets) or '?'}" if node.gpus else "no GPU"
        why = f": refused: {node.refused}" if node.refused else f": {node.remark}" if node.remark else ""
        say(f"{node.host} {node.id[:12]}: {node.cpus:g} CPUs, {gpus}{why}")
    if usable < expected:
        say(f"{usable} of {len(found)} nodes can be used; {expected} were expected")
        return 1
    return 0


def _kuberay(args: argparse.Namespace) -> int:
    from ptxdiff.cluster.connect import NodeGroup, kuberay

    version = args.ray
    try:
        version = version or importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        raise UsageError("Ray is not installed here; give the version in the image: --ray VERSION") from None
    try:
        groups = [NodeGroup.read(group) for group in args.gpus]
        print(kuberay(groups, image=args.image, version=version, cpu_nodes=args.cpu_nodes, name=args.name), end="")
    except ValueError as error:
        raise UsageError(str(error)) from None
    return 0


def _slurm(args: argparse.Namespace) -> int:
    from ptxdiff.cluster.connect import SLURM

    print(SLURM.read_text(encoding="utf-8"), end="")
    return 0
