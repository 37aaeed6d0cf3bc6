"""`ptxdiff fuzz`: random PTX through every assembler and level, judged by the emulator."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli import UsageError, say

if TYPE_CHECKING:
    from harness.fuzz.assemblers import Ptxas
    from harness.fuzz.campaign import FuzzPlan, PtxasFault, Tried
    from harness.fuzz.execution import MachineCodeRunner

LEVELS = (0, 3)


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument(
        "--output", default="build/fuzz", metavar="DIR", help="journal and findings (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=600.0, metavar="S", help="how long (default: %(default)s)")
    parser.add_argument("--programs", type=int, metavar="N", help="stop after so many programs in all")
    parser.add_argument(
        "--seed", default="1", metavar="WORD", help="another word, other programs (default: %(default)s)"
    )
    parser.add_argument("--target", metavar="sm_90a", help="default: the first GPU's, or sm_90a")
    parser.add_argument(
        "--assembler", action="append", metavar="bundled|PATH", help="a ptxas to try; repeatable (default: bundled)"
    )
    parser.add_argument(
        "--opt", action="append", type=int, choices=range(4), help="a level; repeatable (default: 0 and 3)"
    )
    parser.add_argument(
        "--family", action="append", metavar="NAME[=WEIGHT]", help="only these kinds of instructions; repeatable"
    )
    parser.add_argument(
        "--avoid",
        action="append",
        default=[],
        metavar="FILE",
        help="a finding.json, or a text with a known skeleton, or refusal (refusals.txt), a line",
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes that make programs"
    )
    parser.add_argument(
        "--batch", type=int, default=32, metavar="N", help="programs in a module (default: %(default)s)"
    )
    parser.add_argument("--resume", action="store_true", help="go on with the campaign in the folder")
    parser.add_argument("--no-gpu", action="store_true", help="look for crashes, hangs and refusals alone")
    parser.add_argument(
        "--refusals", action="store_true",
        help="programs with one illegal change alone: which assembler takes what the emulator refuses, or the reverse; "
        "without a GPU they get half of the time in any case",
    )  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """Run a campaign; 1 where it has found anything, 0 otherwise."""
    from harness.fuzz.campaign import FuzzCampaign
    from harness.fuzz.files import JOURNAL, write

    folder = Path(args.output)
    if args.refusals:
        return _refusals(args, folder, args.seconds)
    journal = folder / JOURNAL
    if journal.exists() and not args.resume:
        raise UsageError(f"{journal} is there already: go on with --resume, or name another --output")
    runner, target = _runner(args)
    plan = _plan(args, target)
    try:
        campaign = FuzzCampaign(plan, runner, journal, jobs=max(1, args.jobs))
    except (ValueError, KeyError) as error:
        raise UsageError(str(error)) from None
    where = "on the GPU" if runner else "without a GPU: crashes, hangs and refusals alone"
    say(f"{target}, {', '.join(a.label for a in plan.assemblers)}, {where}")
    state = campaign.run(args.seconds if runner else args.seconds / 2, args.programs, _progress)
    places = write(folder, state.findings.values(), plan.assemblers, target)
    _summary(state, places)
    found = 1 if state.findings else 0
    _page(folder)
    return found if runner else _refusals(args, folder, args.seconds / 2) or found


def _refusals(args: argparse.Namespace, folder: Path, seconds: float) -> int:
    """Programs with one illegal change: 1 where judges differ, 0 otherwise."""
    from harness.fuzz.refusals import EMULATOR, RefusalCampaign, RefusalPlan, RefusalsTried, write_groups

    journal = folder / "refusals.jsonl"
    if journal.exists() and not args.resume:
        raise UsageError(f"{journal} is there already: go on with --resume, or name another --output")
    legal = _plan(args, _runner(args)[1])
    # A program is refused at any level of optimisation: one of each assembler is asked.
    assemblers = tuple({a.path: a for a in legal.assemblers}.values())
    plan = RefusalPlan(legal.seed, legal.target, legal.capability, assemblers, legal.weights, legal.avoid)
    try:
        campaign = RefusalCampaign(plan, journal, jobs=max(1, args.jobs))
    except (ValueError, KeyError) as error:
        raise UsageError(str(error)) from None
    say(f"\n{plan.target}, one illegal change each: {EMULATOR} and {', '.join(a.label for a in assemblers)}")

    def tell(state: RefusalsTried) -> None:
        say(f"{state.programs} programs, {state.refused} refused by all, {len(state.groups)} groups of disagreements")

    state = campaign.run(seconds, args.programs, tell)
    places = write_groups(folder, list(state.groups.values()))
    for place, group in zip(places, sorted(state.groups.values(), key=lambda g: (-g.seen, g.signature)), strict=True):
        say(f"\n{place}: {group.seen} x {group.signature}\n  {group.change}\n  {group.words[0]}")
    _page(folder)
    known = f", {state.known} more in known groups" if state.known else ""
    say(f"\n{state.programs} programs, {len(state.groups)} groups of disagreements{known}")
    return 1 if state.groups else 0


def _runner(args: argparse.Namespace) -> tuple[MachineCodeRunner | None, str]:
    """The GPU for the target, if there is one, and the target."""
    from harness.fuzz.execution import GpuRunner
    from harness.model.targets import normal
    from harness.processes.child import of_target
    from harness.processes.gpus import gpus

    try:
        asked = normal(args.target) if args.target else None
    except ValueError as error:
        raise UsageError(f"--target: {error}") from None
    target = asked or next((g.target for g in gpus()), "sm_90a")
    device = None if args.no_gpu else of_target(target)
    return (GpuRunner(device) if device else None), target


def _plan(args: argparse.Namespace, target: str) -> FuzzPlan:
    from harness.fuzz.campaign import FuzzPlan
    from harness.fuzz.families import FAMILIES
    from harness.model.targets import capability

    if capability(target) < 80:
        raise UsageError(f"--target={target}: programs are for sm_80 and later")
    weights = dict.fromkeys(FAMILIES, 1.0)
    if args.family:
        chosen = dict(f.partition("=")[::2] for f in args.family)
        unknown = [n for n in chosen if n not in FAMILIES]
        if unknown:
            raise UsageError(f"--family={unknown[0]}: one of {', '.join(FAMILIES)}")
        try:
            weights = {n: float(w or 1) for n, w in chosen.items()}
        except ValueError as error:
            raise UsageError(f"--family: a weight is a number: {error}") from None
    return FuzzPlan(
        args.seed,
        target,
        capability(target),
        _assemblers(args, target),
        weights,
        _avoided(args.avoid),
        max(1, args.batch),
    )


def _assemblers(args: argparse.Namespace, target: str) -> tuple[Ptxas, ...]:
    from harness.fuzz.assemblers import assembler
    from harness.triton.installation import NoTriton
    from harness.triton.ptxas import NoAssembler
    from harness.triton.targets import assembler as bundled

    found = []
    try:
        for path in args.assembler or ["bundled"]:
            named = bundled(target).path if path == "bundled" else path
            found += [assembler(named, level) for level in args.opt or LEVELS]
    except (NoAssembler, NoTriton) as error:
        raise UsageError(f"--assembler: {error}") from None
    return tuple(dict.fromkeys(found))


def _avoided(files: Sequence[str]) -> frozenset[str]:
    found: set[str] = set()
    for name in files:
        try:
            text = Path(name).read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--avoid: {error}") from None
        if name.endswith(".json"):
            found.add(json.loads(text)["skeleton"])
        else:
            found |= {line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")}
    return frozenset(found)


def _page(folder: Path) -> None:
    """The page on all that lies in the folder."""
    from harness.fuzz.page import facts
    from harness.ours import first

    first("reports")
    from reports.findings import write as write_page

    say(f"report: {write_page(facts(folder), folder / 'findings.html').resolve()}")


def _progress(state: Tried) -> None:
    found = f"{len(state.findings)} findings, {state.known} more programs with these"
    say(f"{state.programs} programs, {state.runs} runs, {found}")


def _summary(state: Tried, places: Sequence[Path]) -> None:
    from harness.fuzz.files import story

    ordered: list[PtxasFault] = sorted(state.findings.values(), key=lambda f: (f.kind, -f.seen, f.size))
    for place, finding in zip(places, ordered, strict=True):
        say(f"\n{place}: {finding.kind}, {finding.size} instructions: {finding.skeleton}\n{story(finding)}")
    refused = f"; {state.refused_here} programs the emulator refused" if state.refused_here else ""
    say(f"\n{state.programs} programs, {len(places)} findings, {state.known} more programs show known ones{refused}")
