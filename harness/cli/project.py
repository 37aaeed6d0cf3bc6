"""A user's project, as `python -m pytest` finds it: its root, the setting `pythonpath`, and its conftest.py files.

So a case file that imports the user's own kernels (`from src.kern.k import double`) loads under every verb.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

LOADING = ("compare", "list", "mutate", "prove", "show", "speed", "sweep")
"""Verbs that load case files in their own process. `ptxdiff run` starts pytest, which does this itself."""

_SETTINGS = ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "pyproject.toml", "tox.ini", "setup.cfg")


def import_as_pytest(words: Iterable[str]) -> None:
    """Make imports work as in `python -m pytest WORDS`: the working directory, `pythonpath`, and conftest.py files.

    Raises ImportError, with the file's name, if a conftest.py cannot be executed, and for settings that pytest refuses.
    """
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    named = (word.partition("::")[0] for word in words)
    paths = [p for p in named if p.endswith(".py") or os.sep in p or Path(p).is_dir()]
    paths = [p for p in paths if Path(p).exists()] or [p for p in ("cases",) if Path(p).is_dir()]
    if not _has_settings([Path(here), *map(Path, paths)]):
        return
    import pytest
    from _pytest.config import ConftestImportFailure, _prepareconfig

    from ptxdiff.cli.run import plugin_words

    words = ["--capture=no", "--assert=plain", *plugin_words(), *paths]
    try:
        _prepareconfig(words)  # as pytest.main does first; nothing is collected or configured
    except pytest.UsageError as e:
        raise ImportError(f"pytest's settings: {e}") from e
    except ConftestImportFailure as e:
        raise ImportError(f"{e.path}: {type(e.cause).__name__}: {e.cause}") from e


def _has_settings(places: Iterable[Path]) -> bool:
    """Whether pytest would find settings or a conftest.py in these folders or above them."""
    folders = {f for p in places for f in (p.resolve(), *p.resolve().parents)}
    return any((folder / name).is_file() for folder in folders for name in (*_SETTINGS, "conftest.py"))
