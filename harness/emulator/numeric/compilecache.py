"""Cache compiled definitions on disk, so that the next process need not compile them again.

numba compiles and pickles them; `ptxdiff.diskcache` stores the files. Compiled code is out of date when any module has
changed from which the definition imports helpers, because they are compiled together.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import pickle
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Any

from ptxdiff.diskcache import DiskCache, cache_folder

_PACKAGE = "ptxdiff.emulator"
_ALWAYS = (
    "ptxdiff.emulator.numeric.bits",
    "ptxdiff.emulator.numeric.bits_compiled",
    "ptxdiff.emulator.numeric.vectorise",
)

_kept = DiskCache("compiled")


@cache
def _imports(module: str) -> tuple[str, ...]:
    """The modules of this package that a module imports from, without the registry, which is not part of compiled
    code."""
    package = module if _is_package(module) else module.rpartition(".")[0]
    named: list[str] = []
    for node in ast.walk(ast.parse(_text(module))):
        if isinstance(node, ast.Import):
            named += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = resolve_name("." * node.level + (node.module or ""), package)
            named += [source, *(f"{source}.{alias.name}" for alias in node.names)]
    ours = (n for n in named if n == _PACKAGE or n.startswith(f"{_PACKAGE}."))
    return tuple(n for n in ours if n != "ptxdiff.emulator.isa.registry" and _text(n))


def _is_package(module: str) -> bool:
    spec = find_spec(module)
    return spec is not None and spec.submodule_search_locations is not None


@cache
def _text(module: str) -> str:
    """A module's text; "" for a name that is no module."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:  # a name in a module that is no package
        return ""
    return Path(spec.origin).read_text() if spec and spec.origin else ""


@cache
def stamp(module: str) -> str:
    """A digest of the texts of a module and of all modules of this package that it imports from, directly or not."""
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
    """Let a numba dispatcher load and save its machine code under `key`. Does nothing if caches are turned off.

    `module`: the module of the definition.
    """
    if cache_folder() is None:
        return
    try:
        dispatcher._cache = _cache(dispatcher.py_func, key, module)
    except (ImportError, AttributeError):
        return  # another version of numba: compile every time


@contextlib.contextmanager
def compiling(key: str) -> Iterator[None]:
    """Hold a lock while compiling the code of `key`, so that other processes wait and then load it."""
    with _kept.making(key.encode()):
        yield


def _cache(function: Any, key: str, module: str) -> Any:
    import numba
    from numba.core.caching import Cache, CompileResultCacheImpl
    from numba.core.serialize import dumps

    class Locator:
        """numba's interface for the place of a cache file.

        It returns only a name, because `diskcache` stores the files.
        """

        def get_cache_path(self) -> str:
            return ""

        def get_source_stamp(self) -> str:
            return stamp(module)

        def get_disambiguator(self) -> str:
            return ""

        def ensure_cache_path(self) -> None:
            return None

    class Implementation(CompileResultCacheImpl):  # type: ignore[misc]
        """numba's serialisation of a compiled function."""

        def __init__(self, function: Any) -> None:
            self._lineno = 0
            self._locator = Locator()
            self._filename_base = ""

    class OnDisk(Cache):  # type: ignore[misc]
        """The cache of one function."""

        _impl_class = Implementation

        def _parts(self, signature: Any, codegen: Any) -> tuple[bytes, ...]:
            parts = (key, stamp(module), numba.__version__, sys.version, repr(self._index_key(signature, codegen)))
            return tuple(part.encode() for part in parts)

        def load_overload(self, signature: Any, context: Any) -> Any:
            """The compiled function from the cache, or None."""
            data = _kept.get(*self._parts(signature, context.codegen()))
            if data is None:
                return None
            try:
                context.refresh()
                return self._impl.rebuild(context, pickle.loads(data))
            except Exception:  # an intact file that this numba cannot read
                return None

        def save_overload(self, signature: Any, result: Any) -> None:
            """Save a compiled function if it can be serialised."""
            if self._impl.check_cachable(result):
                _kept.put(dumps(self._impl.reduce(result)), *self._parts(signature, result.codegen))

    return OnDisk(function)
