"""Disassembles the variants of a case file together.

nvdisasm takes a quarter of a second to start, and hardly more for several kernels. So the first item that needs SASS
also has its file's other variants compiled and assembled for the target, and all of them are disassembled at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from ptxdiff.jobs import Backend, DisassemblingBackend, Job
from ptxdiff.running.item import Item
from ptxdiff.running.run import jobs


class Together:
    """The files and targets whose kernels were disassembled together in this process."""

    def __init__(self) -> None:
        self._made: set[tuple[Path, str]] = set()

    def __call__(self, item: Item, backend: Backend, effort: str, items: Iterable[Item]) -> None:
        """Prepare `item`, and the items of its file among `items`, at once. A fault here fails none of them."""
        place = item.loaded.path, item.target
        if not isinstance(backend, DisassemblingBackend) or place in self._made:
            return
        self._made.add(place)
        beside = [i for i in items if (i.loaded.path, i.target, i.backend) == (*place, item.backend) and not i.compiler]
        backend.disassemble_ahead([job for i in beside if (job := _first(i, backend, effort))])


def _first(item: Item, backend: Backend, effort: str) -> Job | None:
    """The first job of an item's plan; None if there is none. The item itself reports why."""
    with contextlib.suppress(Exception):
        return next((job for _, job in jobs(item, backend, effort)), None)
    return None
