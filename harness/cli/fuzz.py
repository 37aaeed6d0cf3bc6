"""`ptxdiff fuzz`: assemble random PTX with every assembler and level, run it, and check it against the emulator.

It runs on a GPU of the target; without one, the machine code runs on the CPU (`ptxdiff.sass`).
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ptxdiff import options
from ptxdiff.cli import UsageError, say
from ptxdiff.extras import advice, installed

if TYPE_CHECKING:
    from ptxdiff.fuzz.assemblers import Ptxas
    from ptxdiff.fuzz.campaign import FuzzCampaign, Tried
    from ptxdiff.fuzz.execution import MachineCodeRunner
    from ptxdiff.fuzz.judge import FuzzPlan, PtxasFault

LEVELS, CPU_LEVELS = (0, 3), (3,)
"""Levels that are tried. On the CPU a second one takes most of the time of another program, and no finding yet was of
level 0 alone; a finding is tried at every level anyway."""
BATCH, CPU_BATCH = 32, 256
"""Programs per module. nvdisasm takes a quarter of a second to start."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    options.add(
        parser,
        "output",
        "the folder of journal and findings (default: %(default)s)",
        default="build/fuzz",
        metavar="DIR",
    )
    options.add(parser, "seconds", "stop after so many seconds (default: %(default)s)", default=600.0)
    parser.add_argument("--programs", type=int, metavar="N", help="stop after so many programs in all")
    options.add(
        parser, "seed", "any word; each gives other programs (default: %(default)s)", default="1", metavar="WORD"
    )
    options.add(parser, "target", "default: the first GPU's, or sm_90a", action=None)
    options.add(parser, "assembler", "a ptxas to try; repeatable (default: bundled)")
    options.add(parser, "opt", "a level; repeatable (default: 0 and 3; 3 where machine code runs on the CPU)")
    parser.add_argument(
        "--family", action="append", metavar="NAME[=WEIGHT]", help="only these kinds of instructions; repeatable"
    )
    parser.add_argument(
        "--avoid",
        action="append",
        default=[],
        metavar="FILE",
        help="ignore known findings: a finding.json, or a text file with one skeleton or refusal per line (such as "
        "refusals.txt); repeatable",
    )
    options.add(parser, "jobs", "processes that make programs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--batch", type=int, metavar="N",
        help=f"programs per module (default: {BATCH}; {CPU_BATCH} where machine code runs on the CPU)",
    )  # fmt: skip
    options.add(parser, "resume", "continue the campaign in the output folder")
    options.add(parser, "cluster", "run the batches on a Ray cluster: auto, HOST:PORT of its head, or local")
    parser.add_argument("--no-gpu", action="store_true", help="run the machine code on the CPU, also where a GPU is")
    parser.add_argument(
        "--no-run", action="store_true", help="run no machine code: look only for crashes, hangs and refusals"
    )
    parser.add_argument(
        "--refusals", action="store_true",
        help="only programs with one illegal change, to find assemblers that accept what the emulator refuses, or the "
        "reverse; with --no-run such programs get half of the time",
    )  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """Run a campaign. Returns 1 if it has findings, else 0."""
    from ptxdiff.fuzz.execution import MachineCodeInterpreter
    from ptxdiff.fuzz.files import JOURNAL

    folder = Path(args.output)
    if args.refusals and args.cluster:
        raise UsageError("--refusals runs on this machine alone: leave out --cluster")
    if missing := _missing_for_page():
        say(f"{advice(missing, 'the page on the findings')}; without it, they are written as text alone")
    if args.refusals:
        return _refusals(args, folder, args.seconds)
    journal = folder / JOURNAL
    if journal.exists() and not args.resume:
        raise UsageError(f"{journal} exists already: continue it with --resume, or choose another --output")
    if args.cluster:
        return _on_cluster(args, folder)
    runner, target = _runner(args)
    plan = _plan(args, target, interpreted=isinstance(runner, MachineCodeInterpreter))
    campaign = _campaign(plan, runner, journal, max(1, args.jobs))
    where = "only crashes, hangs and refusals"
    if runner:
        where = "machine code on the CPU" if plan.interpreted else "on the GPU"
    say(f"{target}, {', '.join(a.label for a in plan.assemblers)}, {where}")
    seconds = args.seconds if runner else args.seconds / 2
    status = _ran(campaign.run, campaign, folder, seconds, args.programs, compares=runner is not None)
    status = _said_lost(campaign.lost) or status
    return status if runner else _refusals(args, folder, args.seconds / 2) or status


def _on_cluster(args: argparse.Namespace, folder: Path) -> int:
    """Run a campaign on the nodes of a cluster. Returns 1 if it has findings or batches without a result, else 0."""
    from ptxdiff.cluster.connect import ClusterError, joined
    from ptxdiff.cluster.nodes import CPU, gpu
    from ptxdiff.fuzz.campaign import ClusterFuzz
    from ptxdiff.fuzz.files import JOURNAL

    try:
        with tempfile.TemporaryDirectory() as nothing, joined(args.cluster, Path(nothing)) as tasks:
            target = _cluster_target(args, tasks.nodes.targets)
            needs = gpu(target) if target in tasks.nodes.targets and not args.no_gpu and not args.no_run else CPU
            plan = _plan(args, target, interpreted=not needs.gpus and not args.no_run)
            running = ClusterFuzz(tasks, _campaign(plan, None, folder / JOURNAL), needs)
            where = "machine code on the CPU" if plan.interpreted else "only crashes, hangs and refusals"
            where = "on GPUs of the cluster" if needs.gpus else where
            say(f"{target}, {', '.join(a.label for a in plan.assemblers)}, {where}")
            compares = bool(needs.gpus or plan.interpreted)
            status = _ran(running.run, running.campaign, folder, args.seconds, args.programs, compares=compares)
    except ClusterError as error:
        raise UsageError(str(error)) from None
    return _said_lost(running.lost) or status


def _said_lost(lost: Mapping[int, str]) -> int:
    """Say which batches have no result, and why. Returns 1 if there are any, else 0."""
    for number, reason in sorted(lost.items())[:8]:
        say(f"batch {number} has no result: {reason}")
    if lost:
        say(f"{len(lost)} batches have no result; --resume tries them again")
    return int(bool(lost))


def _cluster_target(args: argparse.Namespace, available: Sequence[str]) -> str:
    """The target to fuzz on a cluster. available: the targets of its GPUs. Raises UsageError if there are several."""
    if named := _named_target(args):
        return named
    if len(available) > 1 and not args.no_gpu:
        raise UsageError(f"the cluster has GPUs of {', '.join(available)}: choose one with --target")
    return available[0] if available else "sm_90a"


def _campaign(plan: FuzzPlan, runner: MachineCodeRunner | None, journal: Path, jobs: int = 1) -> FuzzCampaign:
    from ptxdiff.fuzz.campaign import FuzzCampaign

    try:
        return FuzzCampaign(plan, runner, journal, jobs=jobs)
    except (ValueError, KeyError) as error:
        raise UsageError(str(error)) from None


def _ran(
    run: Callable[..., object], campaign: FuzzCampaign, folder: Path, seconds: float, programs: int | None, *,
    compares: bool,
) -> int:  # fmt: skip
    """Run a campaign, and write its findings, also if it breaks off. Returns the status of `_finish`.

    compares: whether it runs machine code; it raises UsageError if then nothing is compared.
    """
    try:
        run(seconds, programs, _comparing if compares else _progress)
    finally:
        status = _finish(folder, campaign)
    if compares and not status:
        _refuse_nothing(campaign.state)
    return status


def _finish(folder: Path, campaign: FuzzCampaign) -> int:
    """Write and print the findings. Returns 1 if there are any, or programs that were not examined, else 0."""
    from ptxdiff.fuzz.files import write

    state, plan = campaign.state, campaign.plan
    places = write(folder, state.findings.values(), plan.assemblers, plan.target)
    _summary(state, places)
    _page(folder)
    return 1 if state.findings or state.suspects else 0


def _refusals(args: argparse.Namespace, folder: Path, seconds: float) -> int:
    """Run programs with one illegal change. Returns 1 if the emulator and an assembler disagree on one, else 0."""
    from ptxdiff.fuzz.refusals import EMULATOR, RefusalCampaign, RefusalPlan, RefusalsTried, write_groups

    journal = folder / "refusals.jsonl"
    if journal.exists() and not args.resume:
        raise UsageError(f"{journal} exists already: continue it with --resume, or choose another --output")
    legal = _plan(args, _runner(args)[1])
    # Refusals do not depend on the optimisation level, so each assembler runs at one level.
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
    for folder_of_group, group in zip(
        places, sorted(state.groups.values(), key=lambda g: (-g.seen, g.signature)), strict=True
    ):
        say(f"\n{folder_of_group}: {group.seen} x {group.signature}\n  {group.change}\n  {group.words[0]}")
    _page(folder)
    known = f", {state.known} more in known groups" if state.known else ""
    say(f"\n{state.programs} programs, {len(state.groups)} groups of disagreements{known}")
    return 1 if state.groups else 0


def _runner(args: argparse.Namespace) -> tuple[MachineCodeRunner | None, str]:
    """The runner on a GPU of the target, else on the CPU (None if no machine code is to run), and the target."""
    from ptxdiff.fuzz.execution import GpuRunner, MachineCodeInterpreter
    from ptxdiff.processes.child import of_target
    from ptxdiff.processes.gpus import gpus
    from ptxdiff.triton.unread import unread

    target = _named_target(args) or next((g.target for g in gpus()), "sm_90a")
    if args.no_run:
        return None, target
    device = None if args.no_gpu else of_target(target)
    if device is None and (reason := unread(target)):
        raise UsageError(f"--target={target}: {reason}")
    return (GpuRunner(device) if device else MachineCodeInterpreter(target)), target


def _named_target(args: argparse.Namespace) -> str | None:
    from ptxdiff.model.targets import normal

    try:
        return normal(args.target) if args.target else None
    except ValueError as error:
        raise UsageError(f"--target: {error}") from None


def _plan(args: argparse.Namespace, target: str, *, interpreted: bool = False) -> FuzzPlan:
    from ptxdiff.fuzz.generate import FAMILIES
    from ptxdiff.fuzz.judge import FuzzPlan
    from ptxdiff.model.targets import capability

    if capability(target) < 80:
        raise UsageError(f"--target={target}: the programs need sm_80 or later")
    weights = dict.fromkeys(FAMILIES, 1.0)
    if args.family:
        chosen = dict(f.partition("=")[::2] for f in args.family)
        unknown = [n for n in chosen if n not in FAMILIES]
        if unknown:
            raise UsageError(f"--family={unknown[0]}: unknown; choose one of {', '.join(FAMILIES)}")
        try:
            weights = {n: float(w or 1) for n, w in chosen.items()}
        except ValueError as error:
            raise UsageError(f"--family: the weight must be a number: {error}") from None
    usual = min(CPU_BATCH, args.programs or CPU_BATCH) if interpreted else BATCH
    return FuzzPlan(
        args.seed,
        target,
        capability(target),
        _assemblers(args, target, CPU_LEVELS if interpreted else LEVELS),
        weights,
        _avoided(args.avoid),
        max(1, args.batch or usual),
        interpreted,
    )


def _assemblers(args: argparse.Namespace, target: str, levels: Sequence[int]) -> tuple[Ptxas, ...]:
    """The assemblers to try. levels: unless others are asked for."""
    from ptxdiff.fuzz.assemblers import assembler
    from ptxdiff.triton.builds import NoTriton
    from ptxdiff.triton.ptxas import NoAssembler
    from ptxdiff.triton.targets import assembler as bundled

    assemblers = []
    try:
        for path in args.assembler or ["bundled"]:
            own = bundled(target)
            named = own.path if path == "bundled" else path
            assemblers += [assembler(named, level, own.options) for level in args.opt or levels]
    except (NoAssembler, NoTriton) as error:
        raise UsageError(f"--assembler: {error}") from None
    return tuple(dict.fromkeys(assemblers))


def _avoided(files: Sequence[str]) -> frozenset[str]:
    skeletons: set[str] = set()
    for name in files:
        try:
            text = Path(name).read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--avoid: {error}") from None
        if name.endswith(".json"):
            skeletons.add(json.loads(text)["skeleton"])
        else:
            skeletons |= {line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")}
    return frozenset(skeletons)


def _missing_for_page() -> list[str]:
    return [package for package in ("jinja2", "altair", "vl_convert", "msgspec") if not installed(package)]


def _page(folder: Path) -> None:
    """Write the HTML page on all findings in the folder, unless what it needs is not installed."""
    if _missing_for_page():
        say(f"findings: {folder.resolve()}")
        return
    from ptxdiff.fuzz.files import facts
    from ptxdiff.reports.findings import write as write_page

    say(f"report: {write_page(facts(folder), folder / 'findings.html').resolve()}")


def _progress(state: Tried) -> None:
    tally = f"{len(state.findings)} findings, {state.known} more programs with known ones"
    say(f"{state.programs} programs, {state.runs} runs, {tally}")


def _comparing(state: Tried) -> None:
    """Print progress. Raises UsageError if nothing is compared: a campaign that goes on would end without findings."""
    _progress(state)
    _refuse_nothing(state, 256)


def _refuse_nothing(state: Tried, least: int = 1) -> None:
    if reason := state.nothing_compared(least):
        count = state.programs + state.refused_here
        raise UsageError(f"none of {count} programs was compared, most often because of: {reason}")


def _summary(state: Tried, places: Sequence[Path]) -> None:
    from ptxdiff.fuzz.campaign import kinds
    from ptxdiff.fuzz.files import story

    ordered: list[PtxasFault] = sorted(state.findings.values(), key=lambda f: (f.kind, -f.seen, f.size))
    for folder_of_finding, finding in zip(places, ordered, strict=True):
        say(f"\n{folder_of_finding}: {finding.kind}, {finding.size} instructions: {finding.skeleton}\n{story(finding)}")
    refused = f"; the emulator refused {state.refused_here} programs" if state.refused_here else ""
    if state.unread:
        refused += f"; of {state.unread} runs the machine code could not be read, most often: "
        refused += "; ".join(f"{reason} ({count})" for reason, count in state.why.most_common(3))
    tally = ", ".join(f"{kind}: {count}" for kind, count in sorted(kinds(ordered).items()))
    tally = f" ({tally})" if tally else ""
    if state.suspects:
        refused += f"; {len(state.suspects)} programs that show something were not examined: --resume does"
    known = f"{state.known} more programs show known ones"
    say(f"\n{state.programs} programs, {len(places)} findings{tally}, {known}; {state.runs} runs{refused}")
