"""Compiled definitions are kept on disk, so that the second process need not compile them again.

The place is `$PTXDIFF_CACHE_DIR`, else `ptxdiff` in the user's cache folder; an empty variable turns it off.
numba's own machinery reads and writes the files. A file is out of date when any module has changed that the
definition takes helpers from, for they are compiled together; numba by itself would look at one file only.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from functools import cache
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Any


def directory() -> Path | None:
    """Where compiled definitions are kept; None if nowhere."""
    chosen = os.environ.get("PTXDIFF_CACHE_DIR")
    if chosen == "":
        return None
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "ptxdiff"


_IMPORT = re.compile(r"^from (harness\.ptx[\w.]*|\.+[\w.]*) import", re.MULTILINE)
_ALWAYS = ("harness.ptx.bits", "harness.ptx.bits_compiled", "harness.ptx.vectorise")


@cache
def _imports(module: str) -> tuple[str, ...]:
    """The modules of this package that a module takes names from; the registry adds nothing to compiled code."""
    package = module.rpartition(".")[0]
    names = (resolve_name(n, package) for n in _IMPORT.findall(_text(module)))
    return tuple(n for n in names if n != "harness.ptx.isa.registry")


@cache
def _text(module: str) -> str:
    spec = find_spec(module)
    return Path(spec.origin).read_text() if spec and spec.origin else ""


@cache
def stamp(module: str) -> str:
    """A digest of the text of a module and of all that it takes names from, within this package."""
    seen: set[str] = set()
    queue = [module, *_ALWAYS]
    while queue:
        name = queue.pop()
        if name not in seen:
            seen.add(name)
            queue.extend(_imports(name))
    digest = hashlib.sha256()
    for name in sorted(seen):
        digest.update(f"{name}\0{_text(name)}\0".encode())
    return digest.hexdigest()


def attach(dispatcher: Any, key: str, module: str) -> None:
    """Let a numba dispatcher load and save its machine code under `key`; without a place to do so, do nothing.

    `module`: where the definition stands.
    """
    folder = directory()
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            dispatcher._cache = _cache(dispatcher.py_func, folder, key, module)
    except (OSError, ImportError, AttributeError):
        # A read-only home or another numba inside: compile every time.
        return


def _cache(function: Any, folder: Path, key: str, module: str) -> Any:
    from numba.core.caching import Cache, CompileResultCacheImpl

    class Locator:
        """What numba asks about the place of a file."""

        def get_cache_path(self) -> str:
            return str(folder)

        def get_source_stamp(self) -> str:
            return stamp(module)

        def get_disambiguator(self) -> str:
            return hashlib.sha256(key.encode()).hexdigest()[:16]

        def ensure_cache_path(self) -> None:
            return None

    class Implementation(CompileResultCacheImpl):  # type: ignore[misc]
        """numba's way of saving compiled functions, with this place and name."""

        def __init__(self, function: Any) -> None:
            self._lineno = 0
            self._locator = Locator()
            self._filename_base = self.get_filename_base(re.sub(r"\W", "_", key.split("(")[0]), "")

    class OnDisk(Cache):  # type: ignore[misc]
        """The cache of one function."""

        _impl_class = Implementation

        def load_overload(self, signature: Any, context: Any) -> Any:
            """The compiled function, or None; a file that cannot be read is as good as none."""
            try:
                return super().load_overload(signature, context)
            except Exception:
                return None

        def save_overload(self, signature: Any, result: Any) -> None:
            """Save it, over an index that cannot be read too; a disk that is full is no reason to fail."""
            for _ in range(2):
                try:
                    super().save_overload(signature, result)
                    return
                except Exception:
                    with suppress(OSError):
                        self.flush()

    return OnDisk(function)
