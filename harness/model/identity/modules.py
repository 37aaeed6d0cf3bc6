"""Files executed as modules, always from their text.

Python trusts a `.pyc` whose source has the same size and the same time in whole seconds, so an edit may be missed.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from harness.model.identity.source import executed


def execute_file(path: Path, name: str) -> ModuleType:
    """Execute a Python file and enter it in `sys.modules` under `name`. Raises what the file raises."""
    text = importlib.util.decode_source(path.read_bytes())
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # inspect, and so triton.jit, look for a function's module there
    executed(str(path), text)
    try:
        exec(compile(text, str(path), "exec", dont_inherit=True), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    return module
