"""`ptxdiff gate`: accept or refuse a run against a baseline in git, or make a run the new baseline."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ptxdiff import options
from ptxdiff.backends import BACKENDS
from ptxdiff.cli import UsageError, say

if TYPE_CHECKING:
    from ptxdiff.records import RunRecords


_EPILOG = """\
exit codes: 0 accepted, 1 correctness, 2 usage or missing baseline, 3 speed or resources
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("run", help="a records file, or a folder (its newest run is used)")
    options.add(parser, "baseline", "the folder of the accepted records", required=True, metavar="DIR")
    parser.add_argument("--speed", action="store_true", help="also refuse slowdowns beyond the A/A noise")
    parser.add_argument(
        "--registers", type=float, default=0.10, metavar="R", help="accepted growth of registers (default: 0.10)"
    )
    parser.add_argument("--allow-model", action="store_true", help="let a pass on a model alone satisfy the gate")
    parser.add_argument(
        "--require",
        action="append",
        default=[],
        choices=tuple(BACKENDS),
        help="a backend that must have run (repeatable)",
    )
    options.add(parser, "target", "a target that must have results (repeatable)", default=[])
    options.add(
        parser,
        "assembler",
        default=[],
        metavar="VERSION[ -OLEVEL]",
        help="accept only results of this ptxas, such as 13.4 or '13.4.59 -O3'; 'baseline' stands for the assemblers "
        "of the baseline (repeatable; default: all)",
    )
    options.add(parser, "fresh", "refuse results that were reused from earlier runs")
    parser.add_argument("--accept", action="store_true", help="show the difference, then make this run the baseline")
    parser.add_argument(
        "--accept-failures",
        action="store_true",
        help="with --accept, also accept failures, errors and newly unsupported results; the baseline lists them",
    )
    parser.add_argument(
        "--digests", action="store_true", help="with --accept, store only digests, which are small enough for git"
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="with --accept, drop baseline results that this run lacks (default: keep them)",
    )


def main(args: argparse.Namespace) -> int:
    """Print every decision and return the exit code. With --accept, print the changes and write the baseline."""
    from ptxdiff.cli.compare import run_file
    from ptxdiff.gating import digests
    from ptxdiff.gating.baseline import BaselineError, load
    from ptxdiff.gating.gate import Policy, gate
    from ptxdiff.model.targets import normal
    from ptxdiff.records import RecordError, read
    from ptxdiff.records.compare import CompareError

    if (args.accept_failures or args.replace or args.digests) and not args.accept:
        raise UsageError(
            "--accept-failures, --digests and --replace are options of --accept; add --accept, or leave them out"
        )
    folder = Path(args.baseline)
    try:
        run = read(run_file(Path(args.run)))
        if args.accept:
            return _accept(run, folder, args)
        policy = Policy(
            speed=args.speed,
            registers=args.registers,
            allow_model=args.allow_model,
            require=tuple(args.require),
            targets=tuple(normal(t) for t in args.target),
            fresh=args.fresh,
            assemblers=tuple(args.assembler),
        )
        if digests.is_digests(folder):
            if args.speed:
                raise UsageError(f"--speed: {folder} holds digests without timings; leave out --speed")
            decision = digests.decided(run, digests.load(folder), policy)
        else:
            decision = gate(run, load(folder), policy)
    except (RecordError, BaselineError, CompareError, ValueError, OSError) as e:
        raise UsageError(str(e)) from None
    for finding in decision.findings:
        say(f"{'✗' if finding.code else '·'} {finding.subject}: {finding.text}")
    say(decision.sentence)
    return decision.code


def _accept(run: RunRecords, folder: Path, args: argparse.Namespace) -> int:
    """Make a run the baseline. Returns 1 for an incomplete run, or for failures without `--accept-failures`."""
    from ptxdiff.gating import baseline, digests
    from ptxdiff.gating.baseline import BaselineError
    from ptxdiff.gating.gate import no_passes, other_run, skipped, unacceptable
    from ptxdiff.records import EXPECTED, evidence_of_passes, passes
    from ptxdiff.records.compare import compare

    old = None
    held, there = digests.is_digests(folder), any(folder.glob("*.jsonl"))
    short = args.digests or held
    if there and short != held and not args.replace:
        raise UsageError(f"--digests: {folder} holds full records; add --replace to keep digests of this run instead")
    form = digests if short else baseline
    try:
        old = form.load(folder) if there and short == held else None
    except BaselineError as e:
        if not args.replace:
            raise
        say(f"the baseline that is replaced cannot be read, so nothing is compared with it: {e}")
    if refusal := unacceptable(run):
        say(f"the baseline is unchanged: {refusal}")
        return 1
    wrong = no_passes(run, old)
    if wrong and not args.accept_failures:
        say(f"the baseline is unchanged: the run has {len(wrong)} kinds of results that are no passes")
        for finding in wrong:
            say(f"✗ {finding.subject}: {finding.text}")
        say("repair them; or accept the run with --accept-failures, and the baseline lists them")
        return 1
    made = digests.condensed(run) if short else run
    for remark in (*skipped(run), *(other_run(made, old) if old else ())):
        say(f"· {remark.subject}: {remark.text}")
    for difference in compare(old, made).differences if old else ():
        say(str(difference))
    for finding in wrong:
        say(f"✗ accepted, and listed in the baseline: {finding.subject}: {finding.text}")
    if wrong:
        say("the gate still refuses these")
    expected = sorted({f"{r.key.case}::{r.key.variant}" for r in run.results if r.outcome == EXPECTED})
    if expected:
        say(f"{len(expected)} variants fail as their cases declare: {', '.join(expected)}")
    models = evidence_of_passes(run.results).get("model", 0)
    say(passes(run.results) + (": a model alone satisfies no gate without --allow-model" if models else ""))
    files = form.write(made, folder, keep=None if args.replace else old)
    say(f"{len(files)} files written to {folder}; review them with git diff before you commit")
    return 0
