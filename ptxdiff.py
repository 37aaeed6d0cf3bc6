"""The command `ptxdiff`, also `python -m ptxdiff`, and the plugin that pytest loads: find our own packages first.

Python would find a user's package called `harness` before ours wherever the working directory comes first in its path.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any


def main() -> int:
    """Run the command line."""
    _find_ours()
    from harness.cli import main as run

    return run()


def __getattr__(name: str) -> Any:
    """`plugin`, the entry point of pytest."""
    if name != "plugin":
        raise AttributeError(f"module 'ptxdiff' has no attribute {name!r}")
    _find_ours()
    import harness.plugin

    return harness.plugin


def _find_ours() -> None:
    """From now on `import harness` finds ours; the process ends with one sentence where another is imported already."""
    place = Path(__file__).resolve().parent / "harness" / "ours.py"
    spec = importlib.util.spec_from_file_location("harness.ours", place)
    if spec is None or spec.loader is None or not place.exists():
        raise SystemExit(f"ptxdiff: {place} is missing; install ptxdiff again")
    ours = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(ours)
    try:
        ours.first("harness")
    except ours.Hidden as e:
        raise SystemExit(f"ptxdiff: {e}") from None


if __name__ == "__main__":
    sys.exit(main())
