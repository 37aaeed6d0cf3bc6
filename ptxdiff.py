"""The command `ptxdiff`, also `python -m ptxdiff`: finds our own packages first, then runs `harness.cli`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def main() -> int:
    """Run the command line."""
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
    from harness.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
