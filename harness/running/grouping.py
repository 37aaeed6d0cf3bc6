"""Under pytest-xdist with `--dist loadgroup`: which items go to one worker together, so that they share what is made.

A group is a variant: its kernels are compiled once, and each body runs once. Where a run has many files, a group is a
file. Otherwise two workers would be in one file most of the time: both would compute its references, and one would
wait while the other disassembles for both (`running/together`).

The groups are made here because pytest-xdist 3.8 finds none under pytest 9.2: it adds the name of a group to the name
of an item by a field that pytest does not read any more, so that each item is a group of its own.
"""

from __future__ import annotations

import functools
import re

from xdist.scheduler import LoadGroupScheduling

from ptxdiff.running.collection import item_of

FILES = 8
"""Groups are files where there are this many for each worker. With fewer, one worker may be left with a long file."""

_MARKED = re.compile(r"\]@(.*)")


class Grouping(LoadGroupScheduling):  # type: ignore[misc]
    """Hands out our items in groups, the largest first; other items as pytest-xdist does."""

    def _split_scope(self, nodeid: str) -> str:
        """The group of an item."""
        found, marked = item_of(nodeid), _MARKED.search(nodeid)
        if found is None or (marked and marked[1] != f"{found[0]}::{found[1]}"):  # a user's own mark
            return str(super()._split_scope(nodeid))
        file = nodeid.partition("::")[0]
        return file if self._by_file else f"{file}::{found[0]}::{found[1]}"

    @functools.cached_property
    def _by_file(self) -> bool:
        files = {nodeid.partition("::")[0] for nodeid in self.collection if item_of(nodeid)}
        return len(files) >= FILES * len(self.nodes)
