"""The environment and the plugin of a pytest run in a process of its own."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def environment() -> dict[str, str]:
    """Of a run in another process. It imports this checkout, and the same Triton and plugins as this process.

    The asm runs alone, because compiling takes about a second each time.
    """
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PTXDIFF_ASM_ALONE": "1"}


def plugin() -> list[str]:
    from ptxdiff.cli.run import plugin_words

    return plugin_words()
