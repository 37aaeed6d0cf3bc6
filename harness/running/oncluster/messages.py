"""What the driver and the nodes say to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NodeRun:
    """What a node's pytest session is made from.

    ident: differs between runs. options: pytest's, as the driver has them. invoked: the folder that the driver was
    started in, relative to the project. targets: of which generations
    nodes have GPUs.
    """

    ident: str
    run_id: str
    options: Mapping[str, Any]
    invoked: str
    targets: tuple[str, ...]


@dataclass(frozen=True)
class ItemReport:
    """What running one item gave: pytest's reports, serialised. words: why there are none."""

    nodeid: str
    reports: tuple[Mapping[str, Any], ...] = ()
    seconds: float = 0.0
    words: str = ""
