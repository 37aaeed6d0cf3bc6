"""`ptxdiff compare`: what changed between two runs, two targets of them, or two versions of anything."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli import UsageError, say


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("before", help="a records file, or a folder whose newest run counts")
    parser.add_argument("after", nargs="?", help="the same; by default, with --targets, the first itself")
    parser.add_argument(
        "--targets", nargs=2, metavar=("X", "Y"), help="compare target X of the one with Y of the other"
    )
    parser.add_argument("--kind", action="append", help="show differences of this kind only (repeatable)")


def main(args: argparse.Namespace) -> int:
    """Print the differences; exit 0 where there are none, 1 where there are."""
    from harness.model.targets import normal
    from harness.records import RecordError, read
    from harness.records.compare import KINDS, CompareError, compare

    unknown = [k for k in args.kind or [] if k not in KINDS]
    if unknown:
        raise UsageError(f"no kind of difference is called {unknown[0]!r}; there are {', '.join(KINDS)}")
    if args.after is None and not args.targets:
        raise UsageError("name a second run, or two targets of the one: ptxdiff compare A --targets sm_90a sm_100a")
    try:
        targets = (normal(args.targets[0]), normal(args.targets[1])) if args.targets else None
        found = compare(read(Path(args.before)), read(Path(args.after or args.before)), targets=targets)
    except (RecordError, CompareError, ValueError) as e:
        raise UsageError(str(e)) from None
    for name, (old, new) in found.environment.items():
        say(f"  {name}: {old} → {new}")
    shown = found.of(*args.kind) if args.kind else list(found.differences)
    for difference in shown:
        say(str(difference))
    say(f"{found.matched} results in both, {found.equal} of them equal; {len(shown)} differences")
    return 0 if found.quiet or not shown else 1
