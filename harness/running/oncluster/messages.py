"""The messages between the driver and the nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NodeRun:
    """The options of a node's pytest session.

    ident: differs between runs. options: pytest's options of the driver. invoked: the folder in which the driver was
    started, relative to the project. targets: the GPU generations that the nodes have.
    """

    ident: str
    run_id: str
    options: Mapping[str, Any]
    invoked: str
    targets: tuple[str, ...]


@dataclass(frozen=True)
class ItemReport:
    """The outcome of one item: pytest's reports, serialised; or words, which say why there are none."""

    nodeid: str
    reports: tuple[Mapping[str, Any], ...] = ()
    seconds: float = 0.0
    words: str = ""
