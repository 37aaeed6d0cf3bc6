"""`ptxdiff gate`: whether a run is accepted against a baseline kept in git; and accepting a new baseline."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli import UsageError

BACKENDS = ("gpu", "emulator", "assembler")

_EPILOG = """\
exit codes: 0 accepted, 1 correctness, 2 usage or missing baseline, 3 speed or resources
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("run", help="a records file, or a folder whose newest run counts")
    parser.add_argument("--baseline", required=True, metavar="DIR", help="the folder of the accepted records")
    parser.add_argument("--speed", action="store_true", help="gate on speed too, beyond the A/A noise")
    parser.add_argument("--registers", type=float, default=0.10, metavar="R", help="growth let pass (default: 0.10)")
    parser.add_argument("--allow-model", action="store_true", help="let a pass on a model alone satisfy the gate")
    parser.add_argument("--require", action="append", default=[], choices=BACKENDS, help="must have run (repeatable)")
    parser.add_argument("--target", action="append", default=[], metavar="sm_90a", help="must be there (repeatable)")
    parser.add_argument("--accept", action="store_true", help="show the difference, then make this run the baseline")
    parser.add_argument(
        "--replace", action="store_true", help="with --accept, forget what this run lacks (default: other runs' keep)"
    )


def main(args: argparse.Namespace) -> int:
    """Print every decision and return the exit code; with --accept, write the baseline after showing what changes."""
    from harness.baseline import BaselineError, load, write
    from harness.compare import CompareError, compare
    from harness.gate import Policy, gate, unacceptable
    from harness.records import RecordError, read
    from harness.targetset import normal

    folder = Path(args.baseline)
    try:
        run = read(Path(args.run))
        if args.accept:
            old = load(folder) if any(folder.glob("*.jsonl")) else None
            if words := unacceptable(run):
                print(f"not made the baseline: {words}")
                return 1
            for difference in compare(old, run).differences if old else ():
                print(difference)
            failing = sum(r.verdict in ("fail", "error") and not r.expected_failure for r in run.results)
            if failing:
                print(f"{failing} results are failures or errors: the gate will refuse them all the same")
            files = write(run, folder, keep=None if args.replace else old)
            print(f"{len(files)} files written to {folder}; review them with git diff before you commit")
            return 0
        policy = Policy(
            speed=args.speed,
            registers=args.registers,
            allow_model=args.allow_model,
            require=tuple(args.require),
            targets=tuple(normal(t) for t in args.target),
        )
        decision = gate(run, load(folder), policy)
    except (RecordError, BaselineError, CompareError, ValueError) as e:
        raise UsageError(str(e)) from None
    for finding in decision.findings:
        print(f"{'✗' if finding.code else '·'} {finding.subject}: {finding.text}")
    print(decision.sentence)
    return decision.code
