"""The user's files that a file imports, directly or through others.

What a module does when it is imported can decide results although no name of a case leads to it: it may register an
operator, or replace a function of a library.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from ptxdiff.model.identity.code import is_users
from ptxdiff.model.identity.source import file_text


def imported_texts(path: Path, *beside: Path) -> dict[str, str]:
    """The executed texts of the user's loaded modules that a file imports, by path.

    beside: files that need be no loaded modules, such as each conftest.py; what they import counts too.
    """
    first = [m for m in sys.modules.copy().values() if _is_at(path, getattr(m, "__file__", None))]
    met = {id(m) for m in first}
    todo = [(file_text(str(m.__file__)), m.__package__ or "") for m in first]
    todo += [(file_text(str(p)), _package_of(p)) for p in beside]
    found: dict[str, str] = {}
    while todo:
        text, package = todo.pop()
        for name in _imports(text):
            other = _loaded(name, package)
            if other is None or id(other) in met:
                continue
            met.add(id(other))
            if is_users(other) and other.__file__:
                found[other.__file__] = file_text(other.__file__)
                todo.append((found[other.__file__], other.__package__ or ""))
    return found


def _is_at(path: Path, file: str | None) -> bool:
    """Whether a module's file is the one at `path`; asked for every loaded module, so names are compared first."""
    return bool(file) and str(file).endswith(path.name) and Path(str(file)).resolve() == path.resolve()


def _package_of(path: Path) -> str:
    """The package of a file, to which its relative imports lead; "" where it has none, or is no loaded module."""
    if not any(name.startswith(".") for name in _imports(file_text(str(path)))):
        return ""
    files = ((getattr(m, "__file__", None), getattr(m, "__package__", None)) for m in sys.modules.copy().values())
    return next((package for file, package in files if package and _is_at(path, file)), "")


def _loaded(name: str, package: str) -> ModuleType | None:
    """The loaded module to which a name, absolute or relative, leads in a module."""
    try:
        return sys.modules.get(importlib.util.resolve_name(name, package))
    except ImportError:  # a relative name beyond the outermost package
        return None


@functools.lru_cache(maxsize=1024)
def _imports(text: str) -> tuple[str, ...]:
    """The names of modules that a text may import, with the packages around them; relative ones with their dots."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ()
    return tuple(dict.fromkeys(_named(tree)))


def _named(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                yield from (".".join(parts[:k]) for k in range(1, len(parts) + 1))
        elif isinstance(node, ast.ImportFrom):
            dots, parts = "." * node.level, (node.module or "").split(".") if node.module else []
            yield from (dots + ".".join(parts[:k]) for k in range(1, len(parts) + 1))
            base = dots + ".".join((*parts, "")) if parts else dots
            yield from (base + alias.name for alias in node.names)
