"""Execute files as modules, always from their source text, or from byte code that is stored under this text.

Python accepts a `.pyc` if the source has the same size and the same time in whole seconds, so it can miss an edit.

The folder of such a file becomes a package with a name derived from its path. So the file can import its neighbours
with `from ._helpers import f`, wherever the folder is and whatever `sys.path` contains.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.util
import io
import linecache
import marshal
import os
import sys
import warnings
from collections.abc import Iterator
from importlib.machinery import SOURCE_SUFFIXES, ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from ptxdiff.diskcache import DiskCache
from ptxdiff.model.identity.code import is_users
from ptxdiff.model.identity.opened import is_watching, watch
from ptxdiff.model.identity.source import executed, file_text, real_path

_FOLDER = "ptxdiff_folder_"


def execute_file(path: Path, name: str, *, watched: bool = True) -> ModuleType:
    """Execute a Python file and register it in `sys.modules` as `module_name(path, name)`.

    watched: whether what it opens is noted (`opened`). Not in compilers' processes: their parent executes the same
    file, and notes what it opens. The hook would take a tenth of their start, so it comes later, with the first kernel
    (`opened.noting`). Raises what the file raises.
    """
    if path.suffix not in SOURCE_SUFFIXES:
        raise ImportError(f"{path} is no Python file")
    if watched and not is_watching():
        _import_ahead(path)
    watch(noting=watched)
    full = module_name(path, name)
    _know_folder(path)
    loader = _FromText(full, str(path))
    spec = importlib.util.spec_from_file_location(full, path, loader=loader)
    assert spec is not None  # because it has a loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module  # inspect, and so triton.jit, looks up a function's module there
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[full]
        raise
    return module


def module_name(path: Path, name: str) -> str:
    """The full name of a file's module, in the package of its folder."""
    return f"{_package(os.path.abspath(path.parent))}.{name}"


@functools.cache
def _package(folder: str) -> str:
    """The name of the package of a folder."""
    return f"{_FOLDER}{hashlib.sha256(os.path.realpath(folder).encode()).hexdigest()[:8]}"


_AHEAD = ("torch", "triton")


def _import_ahead(path: Path) -> None:
    """Import torch and Triton now if the file's first statements will do so.

    What installed packages do while they are imported is not noted, and the hook that sees the rest takes a tenth of
    the time until a run's first result if it sees this too. Any other statement, or an import of the user's, may decide
    how they are imported.
    """
    try:
        statements = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return  # executing the file says so
    for number, statement in enumerate(statements):
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and number == 0:
            continue  # the docstring
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            names = [statement.module or ""]
        else:
            return
        for name in names:
            package = name.partition(".")[0]
            if package not in (*_AHEAD, "ptxdiff", "numpy") and package not in sys.stdlib_module_names:
                return
            if package in _AHEAD:
                with contextlib.suppress(Exception):  # the file's own import raises it again
                    importlib.import_module(package)


def _know_folder(path: Path) -> None:
    """Register the folder of a file as a package, without executing its `__init__.py`."""
    package = module_name(path, "").rstrip(".")
    if package not in sys.modules:
        package_module = ModuleType(package, f"The files of {path.parent}.")
        package_module.__path__ = [str(path.parent.resolve())]
        sys.modules[package] = package_module
    if not any(isinstance(f, _BesideCases) for f in sys.meta_path):
        sys.meta_path.insert(0, _BesideCases())


class _FromText(SourceFileLoader):
    """Takes the code of a file's text, and records this text as executed."""

    def get_code(self, fullname: str) -> CodeType:
        """The code of the file in its current state."""
        data = self.get_data(self.path)
        text = importlib.util.decode_source(data)
        executed(self.path, text)
        # For `inspect`, which Triton asks for the text of each function: it would open the file again, as it is then.
        # Without a time the lines stay, whatever becomes of the file.
        linecache.cache[self.path] = (len(data), None, _lines(text), self.path)
        return _code(data, self.path)


def _lines(text: str) -> list[str]:
    """The lines as `linecache` has them: form feeds and other separators of Unicode end none."""
    lines = io.StringIO(text).readlines()
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return lines


_codes = DiskCache("code")


def _code(data: bytes, path: str) -> CodeType:
    """The code of a file's contents, which is stored: compiling all case files takes longer than executing most."""
    key = data, os.fsencode(path), _compiler()
    with contextlib.suppress(ValueError, EOFError, TypeError):  # the contents of another program, or of none
        code = marshal.loads(_codes.get(*key) or b"")
        if isinstance(code, CodeType):
            return code
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        code = compile(data, path, "exec", dont_inherit=True)
    if caught:  # each run should have them, also one in which they are errors
        return compile(data, path, "exec", dont_inherit=True)
    _codes.put(marshal.dumps(code), *key)
    return code


@functools.cache
def _compiler() -> bytes:
    """What decides the code of a text: the version of Python, and options that leave out parts of the code."""
    columns = next(iter(compile("0", "", "eval").co_positions()))[2] is not None
    version = importlib.util.MAGIC_NUMBER, sys.version, sys.implementation.cache_tag
    return repr((version, sys.flags.optimize, columns)).encode()


class _BesideCases:
    """Finds modules that a file imports from its own folder."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec of a module in a registered folder, which is also executed from its text."""
        if not name.startswith(_FOLDER):
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _FromText(name, spec.loader.path)
        return spec


# The user's files that a file imports, directly or through others --------------------------------------------------
#
# What a module does when it is imported can decide results although no name of a case leads to it: it may register an
# operator, or replace a function of a library.


def imported_texts(path: Path, *beside: Path) -> dict[str, str]:
    """The executed texts of the user's loaded modules that a file imports, by path.

    beside: files that need be no loaded modules, such as each conftest.py; what they import counts too.
    """
    first = [m for m in sys.modules.copy().values() if _is_at(path, getattr(m, "__file__", None))]
    met = {id(m) for m in first}
    todo = [(file_text(str(m.__file__)), m.__package__ or "") for m in first]
    todo += [(file_text(str(p)), _package_of(p)) for p in beside]
    texts: dict[str, str] = {}
    while todo:
        text, package = todo.pop()
        for name in _imports(text):
            other = _loaded(name, package)
            if other is None or id(other) in met:
                continue
            met.add(id(other))
            if is_users(other) and other.__file__:
                texts[other.__file__] = file_text(other.__file__)
                todo.append((texts[other.__file__], other.__package__ or ""))
    return texts


def _is_at(path: Path, file: str | None) -> bool:
    """Whether a module's file is the one at `path`; asked for every loaded module, so names are compared first."""
    return bool(file) and str(file).endswith(path.name) and real_path(str(file)) == real_path(str(path))


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
