"""Under pytest-xdist with `--dist loadgroup`: items that share what is compiled go to one worker together.

Apart from `running.xdist`, because this module needs pytest-xdist, and runs without it import that one.
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
