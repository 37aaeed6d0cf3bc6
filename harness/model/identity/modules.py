"""Execute files as modules, always from their source text.

Python accepts a `.pyc` if the source has the same size and the same time in whole seconds, so it can miss an edit.

The folder of such a file becomes a package with a name derived from its path. So the file can import its neighbours
with `from ._helpers import f`, wherever the folder is and whatever `sys.path` contains.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from importlib.machinery import SOURCE_SUFFIXES, ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from ptxdiff.model.identity.opened import watch
from ptxdiff.model.identity.source import executed

_FOLDER = "ptxdiff_folder_"


def execute_file(path: Path, name: str) -> ModuleType:
    """Execute a Python file and register it in `sys.modules` as `module_name(path, name)`.

    Raises what the file raises.
    """
    if path.suffix not in SOURCE_SUFFIXES:
        raise ImportError(f"{path} is no Python file")
    watch()
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
    return f"{_FOLDER}{hashlib.sha256(str(path.parent.resolve()).encode()).hexdigest()[:8]}.{name}"


def _know_folder(path: Path) -> None:
    """Register the folder of a file as a package, without executing its `__init__.py`."""
    package = module_name(path, "").rstrip(".")
    if package not in sys.modules:
        found = ModuleType(package, f"The files of {path.parent}.")
        found.__path__ = [str(path.parent.resolve())]
        sys.modules[package] = found
    if not any(isinstance(f, _BesideCases) for f in sys.meta_path):
        sys.meta_path.insert(0, _BesideCases())


class _FromText(SourceFileLoader):
    """Compiles the text of a file, and records this text as executed."""

    def get_code(self, fullname: str) -> CodeType:
        """The code of the file in its current state."""
        data = self.get_data(self.path)
        executed(self.path, importlib.util.decode_source(data))
        return compile(data, self.path, "exec", dont_inherit=True)


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
