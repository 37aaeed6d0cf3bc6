"""`ptxdiff sweep`: run all inputs of one variant, in shards, on every GPU. A journal lets a sweep continue."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptxdiff import options
from ptxdiff.cli import NAMES, UsageError, say

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from ptxdiff.cluster.tasks import Tasks
    from ptxdiff.model.naming import Named
    from ptxdiff.processes.gpus import Gpu
    from ptxdiff.sweep.shards import Journal, ShardResult, Task


MOST = 1 << 22
"""The most shards of one call: each has a line in the journal, and its result stays in memory."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("variant", nargs="+", metavar="NAME", help=f"one variant, {NAMES.removeprefix('cases and ')}")
    options.add(parser, "journal", "the file that stores finished shards", required=True)
    options.add(parser, "resume", "continue the sweep in the journal")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="every N-th shard, for the K-th of N machines")
    parser.add_argument("--shards", type=int, metavar="N", help="stop after so many shards")
    parser.add_argument("--shard-bits", type=int, metavar="BITS", help="a shard has 2^BITS inputs (16 to 36)")
    options.add(parser, "backend", "default: the backend in the name, or gpu", action=None, choices=("gpu", "emulator"))
    options.add(parser, "target", "default: the device's target, or sm_90a", action=None)
    options.add(parser, "pack", "elements per asm invocation (default: the largest)")
    options.add(parser, "cluster", "run the shards on a Ray cluster: auto, HOST:PORT of its head, or local")
    limit = options.add(parser, "limit", "time limit of a shard in seconds (default: 900)", default=900.0)
    options.formerly(parser, "--timeout", limit)


def main(args: argparse.Namespace) -> int:
    """Run the sweep. Returns 0 if every shard passed and enough inputs were judged, else 1."""
    from ptxdiff.cluster.connect import ClusterError
    from ptxdiff.model.naming import one_variant
    from ptxdiff.model.variants import CaseError
    from ptxdiff.sweep.shards import JournalError

    if args.shards is None and args.limit < 60:  # for one release: --limit was the number of shards
        say("ptxdiff sweep: --limit is the seconds of a shard; --shards stops after a number of them", file=sys.stderr)
    try:
        chosen = one_variant(args.variant)
        if not args.cluster:
            return _sweep(args, chosen)
        from ptxdiff.cluster.connect import joined, project_of

        root = project_of(chosen.loaded.path)
        with joined(args.cluster, root) as tasks:
            return _sweep(args, chosen, tasks, root)
    except (CaseError, ClusterError, JournalError, ValueError) as error:
        raise UsageError(str(error)) from None


def _sweep(args: argparse.Namespace, chosen: Named, tasks: Tasks | None = None, root: Path | None = None) -> int:
    """Run the sweep in processes of this machine, or as tasks of a cluster."""
    from rich.console import Console

    from ptxdiff.sweep.shards import Journal, part_of, sweep

    task = _task(args, chosen, tasks.nodes.targets if tasks else None)
    places = places_of(task.target) if task.backend == "gpu" and not tasks else [None]
    part = part_of(task.shards, args.part)
    journal = Journal(Path(args.journal), task, resume=args.resume)
    console = Console()
    with contextlib.closing(journal), _progress(console) as progress:
        wanted = _missing_shards(part, journal, args.shards)
        bar = progress.add_task(f"{task.variant}, 2^{task.bits} inputs", total=len(wanted), different=0)

        def on_result(result: object) -> None:
            different = sum(r.different for r in journal.done.values())
            progress.update(bar, advance=1, different=different)

        if tasks and root:
            from ptxdiff.running.shard_worker import shard_digests
            from ptxdiff.sweep.shards import ClusterSweep

            facts: dict[str, Any] = {
                "root": root,
                "given": shard_digests(task),
                "timeout": args.limit,
            }
            ClusterSweep(tasks, task, journal, wanted, on_result=on_result, **facts).run()
        else:
            sweep(task, journal, wanted, places=places, on_result=on_result, timeout=args.limit)
    return _summary(console, task, journal, wanted)


def _missing_shards(part: Iterator[int], journal: Journal, limit: int | None) -> list[int]:
    """The shards to run now. Raises UsageError for more than MOST."""
    missing = (s for s in part if s not in journal.done)
    shards = list(itertools.islice(missing, MOST + 1 if limit is None else limit))
    if limit is None and len(shards) > MOST:
        raise UsageError(f"there are more than {MOST} shards to run; give greater --shard-bits, or --part, or --shards")
    return shards


def _task(args: argparse.Namespace, chosen: Named, available: Sequence[str] | None) -> Task:
    """The sweep to run. available: the targets of a cluster's GPUs; None for those of this machine."""
    from ptxdiff.model.derive import packs_of
    from ptxdiff.model.identity.dependencies import dependencies
    from ptxdiff.model.naming import agreed
    from ptxdiff.model.targets import normal
    from ptxdiff.model.variants import AsmVariant
    from ptxdiff.running.item import Item, fingerprint_of
    from ptxdiff.running.shard_worker import bits_of
    from ptxdiff.sweep.shards import SHARD_BITS, Task

    backend = agreed("--backend", args.backend, chosen.backend) or "gpu"
    if backend == "assembler":
        raise UsageError("the assembler backend runs nothing; sweep with --backend gpu or emulator")
    named = agreed("--target", normal(args.target) if args.target else None, chosen.target)
    target = named or default_target(backend, available)
    loaded = replace(chosen.loaded, path=chosen.loaded.path.resolve())
    item = Item(loaded, chosen.variants[0], target, backend)
    packs = packs_of(item.loaded.case, item.variant) if isinstance(item.variant, AsmVariant) else (1,)
    if args.pack is not None and args.pack not in packs:
        raise UsageError(f"--pack {args.pack}: {item.variant_name} has {', '.join(map(str, packs))}")
    bits = bits_of(item)
    shard_bits = min(bits, args.shard_bits or SHARD_BITS)
    if not 16 <= shard_bits <= SHARD_BITS:
        raise UsageError(f"--shard-bits {shard_bits}: a shard has 2^16 to 2^{SHARD_BITS} inputs")
    return Task(
        str(item.loaded.path), item.loaded.attribute, item.variant_name, backend, item.target,
        args.pack or max(packs), bits, shard_bits, fingerprint_of(item), dependencies(item.loaded.path),
    )  # fmt: skip


def default_target(backend: str, available: Sequence[str] | None) -> str:
    """The default target. Raises UsageError if there is no GPU, or a choice between several."""
    from ptxdiff.processes.gpus import gpus

    if backend != "gpu":
        return "sm_90a"
    if available is None:
        if not gpus():
            raise UsageError("there is no NVIDIA GPU here; --backend emulator sweeps on the CPU")
        return gpus()[0].target
    if not available:
        raise UsageError("the cluster has no GPU: try --backend emulator")
    if len(available) > 1:
        raise UsageError(f"the cluster has GPUs of {', '.join(available)}: choose one with --target")
    return available[0]


def places_of(target: str) -> list[Gpu | None]:
    """The GPUs of a target here. Raises UsageError if there is none."""
    from ptxdiff.processes.gpus import gpus

    gpus_of_target: list[Gpu | None] = [g for g in gpus() if g.target == target]
    if not gpus_of_target:
        present = ", ".join(dict.fromkeys(g.target for g in gpus())) or "none"
        raise UsageError(f"--target {target}: no GPU here has this target; present: {present}")
    return gpus_of_target


def _progress(console: Console) -> Progress:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("shards"), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[different]} different"), console=console,
    )  # fmt: skip


def _summary(console: Console, task: Task, journal: Journal, wanted: Sequence[int]) -> int:
    """Print the journal's results in a few lines. Returns the exit code."""
    done = list(journal.done.values())
    counts = Counter(r.verdict for r in done)
    seconds = [r.seconds for r in done if r.verdict != "error"]
    message = ", ".join(f"{n} {v}" for v, n in counts.items()) or "nothing ran"
    console.print(f"{len(done)} of {task.shards} shards of 2^{task.shard_bits} inputs: {message}", highlight=False)
    if seconds:
        each = statistics.median(seconds)  # not the mean: a worker's first shard includes compiling
        whole = each * task.shards
        terms = f"{each:.2f} s a shard, {each * 2.0 ** (40 - task.shard_bits):.1f} s for 2^40 inputs"
        console.print(f"{terms}, {whole / 60:.1f} minutes for all on one device", highlight=False)
    if task.pack > 1:
        console.print(
            f"all elements, not all words: an invocation at pack {task.pack} reads {task.pack * task.bits} bits, and "
            "--ptx-effort=exhaustive runs all words of up to 32 bits",
            highlight=False,
        )
    for result in sorted((r for r in done if r.verdict != "pass"), key=lambda r: r.shard)[:8]:
        message = result.words or f"{result.different} of {result.total} codes differ: {dict(result.classes)}"
        again = f"; --ptx-replay={result.replay}" if result.replay else ""
        console.print(f"shard {result.shard}: {result.verdict}: {message}{again}", highlight=False, markup=False)
    if message := _judged_too_little(task, done):
        console.print(message, highlight=False, markup=False)
    if missing := journal.missing(wanted):
        console.print(f"{len(missing)} shards have no result, of which {missing[0]} is the first; --resume runs them")
    return 0 if done and set(counts) == {"pass"} and not message and not missing else 1


def _judged_too_little(task: Task, done: Sequence[ShardResult]) -> str:
    """The error of a sweep whose policies judge almost none of the inputs swept so far; "" for other sweeps."""
    from ptxdiff.judging.judged_share import pooled, too_little
    from ptxdiff.model.policies import policies
    from ptxdiff.records import Share
    from ptxdiff.running.shard_worker import item_of

    item = item_of(Path(task.path), [task.case, task.variant], task.backend, task.target)
    judged = pooled({n: Share(**s) for n, s in r.judged.items()} for r in done)
    return too_little(policies(item.loaded.case, item.variant), judged)
