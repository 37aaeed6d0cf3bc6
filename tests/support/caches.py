"""A cache folder of a test's own, with what is the same for every test."""

from __future__ import annotations

from pathlib import Path

from ptxdiff.diskcache import cache_folder

SHARED = ("compiled", "targets")
"""Machine code of numba and of definitions, and what Triton serves: they take seconds to make, and hold no result."""


def share_caches(folder: Path, *more: str) -> None:
    """Make an empty cache folder, but for links to the shared parts of the one in use. more: further shared parts."""
    folder.mkdir()
    here = cache_folder()
    if here is None:
        return
    for kind in (*SHARED, *more):
        (here / kind).mkdir(parents=True, exist_ok=True)
        (folder / kind).symlink_to((here / kind).resolve())
