"""The worker of a sweep: runs and judges one shard of one variant."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ptxdiff.backends import create
from ptxdiff.backends.gpu import GpuBackend
from ptxdiff.cluster.tasks import given_gpu
from ptxdiff.inputs import InputSet
from ptxdiff.inputs.generated import Counted
from ptxdiff.jobs import Backend, Job, Outcome, Setup, block_of
from ptxdiff.judging.judge import Judgement, held_exactly, judge
from ptxdiff.model import load as loader
from ptxdiff.model.arguments import format_of
from ptxdiff.model.identity.dependencies import opened, portable
from ptxdiff.model.policies import Policies, policies
from ptxdiff.model.reference import ReferenceFault
from ptxdiff.model.variants import CaseError
from ptxdiff.processes.child import Process
from ptxdiff.running.item import Item, fingerprint_of
from ptxdiff.running.judgements import judging_results_of
from ptxdiff.running.replay import Origin, token
from ptxdiff.sweep import OracleFault, Swept
from ptxdiff.sweep.dispatch import sweep
from ptxdiff.sweep.shards import ShardResult, Task, one_shard, process_for

ENDS = 64
"""Inputs at either end of a shard that its digest includes."""


def item_of(path: Path, names: list[str], backend: str, target: str) -> Item:
    """The item that `[CASE, VARIANT]` or `[VARIANT]` names in a case file. Raises CaseError, listing what there is."""
    items = [
        Item(loaded, variant, target, backend)
        for loaded in loader.load(path)
        for variant in loaded.case.variants
        if variant == names[-1] and (len(names) == 1 or loaded.attribute == names[0])
    ]
    if len(items) != 1:
        there = ", ".join(f"{c.attribute}::{v}" for c in loader.load(path) for v in c.case.variants)
        raise CaseError(f"{path}: {'::'.join(names)} names {len(items)} variants; there are {there}")
    return items[0]


def bits_of(item: Item) -> int:
    """The bits of all inputs together. Raises CaseError if the inputs cannot be enumerated."""
    case = item.loaded.case
    bits = sum(format_of(a).unit_bits for a in case.inputs.values())
    if not case.elementwise or not case.inputs or case.where is not None or bits > 62:
        raise CaseError("only elementwise cases without where=, of at most 62 bits of inputs, can be swept whole")
    return bits


def shard_of(item: Item, task: Task, shard: int) -> InputSet:
    """The inputs of one shard."""
    formats = {n: format_of(a) for n, a in item.loaded.case.inputs.items()}
    generator = Counted(formats)
    offset, count = shard << task.shard_bits, 1 << task.shard_bits

    def cut(first: int, last: int) -> dict[str, Any]:
        number = np.arange(offset + first, offset + last, dtype=np.int64)
        return {n: generator.units(n, number).astype(f.numpy_dtype()) for n, f in formats.items()}

    return InputSet(f"exhaustive/1 shard {shard}", count, 0, cut, generator, first=offset)


def run_shard(item: Item, backend: Backend, task: Task, shard: int) -> ShardResult:
    """Sweep one shard. An exception becomes its verdict."""
    started = time.monotonic()
    case, variant = item.loaded.case, item.variant
    policy = policies(case, variant)
    inputs = shard_of(item, task, shard)
    setup = Setup(pack=task.pack, block=block_of(task.pack), fusion=bool(variant.fusion))
    job = Job(case, item.loaded.name, item.loaded.path, item.variant_name, variant, task.target, setup)
    try:
        swept = _swept(backend, job, policy, inputs)
    except (OracleFault, CaseError, ReferenceFault) as error:
        return ShardResult(shard, "error", str(error), seconds=round(time.monotonic() - started, 3))
    judgement, outcome = swept.judgement, swept.outcome
    outcome = replace(outcome, findings=outcome.findings + held_exactly(policy, outcome.approximate))
    read = opened(item.loaded.path)
    failed = outcome.status == "ran" and (not judgement.passed or outcome.findings)
    shape = (16 * block_of(task.pack),)
    repeated = Setup(pack=task.pack, shape=shape, fusion=setup.fusion)
    replay = token(repeated, swept.inputs or {}, swept.place, origin=Origin.of(fingerprint_of(item)))
    return ShardResult(
        shard,
        "error" if outcome.status != "ran" else "fail" if failed else "pass",
        outcome.words or "; ".join(outcome.findings),
        judgement.total,
        judgement.different,
        judgement.classes,
        " ".join(b.digest for b in swept.blocks[:1]) if len(swept.blocks) == 1 else _joined(swept),
        round(time.monotonic() - started, 3),
        [asdict(o) for o in judgement.offenders],
        replay if failed else "",
        {n: asdict(share) for n, share in judgement.judged.items()},
        shard_digest(item, task, inputs),
        opened=portable(item.loaded.path, read.files),
        unknown=next(iter(read.unknown), ""),
    )


def shard_digest(item: Item, task: Task, inputs: InputSet) -> str:
    """A digest of a shard: the variant's definition, its setup, its range of inputs, and the first and last of them."""
    parts = [fingerprint_of(item), item.loaded.attribute, item.variant_name, item.target, item.backend, task.pack]
    digest = hashlib.sha256(json.dumps([*parts, inputs.first, inputs.count], sort_keys=True).encode())
    for first in (0, max(0, inputs.count - ENDS)):
        for name, units in inputs.take(first, ENDS).items():
            digest.update(f"{name} {units.dtype}\0".encode() + units.tobytes())
    return digest.hexdigest()[:32]


def shard_digests(task: Task) -> Callable[[int], str]:
    """A function that gives `shard_digest`'s digest of a shard, by its number. Raises CaseError."""
    item = item_of(Path(task.path), [task.case, task.variant], task.backend, task.target)
    return lambda shard: shard_digest(item, task, shard_of(item, task, shard))


def _swept(backend: Backend, job: Job, policy: Policies, inputs: InputSet) -> Swept:
    def judge_one(part: Job, outcome: Outcome) -> Judgement:
        with judging_results_of(backend.name):
            judgement = judge(job.case, policy, part.inputs, outcome.outputs, job.setup.pack)
            for outputs in (outcome.alternative, *outcome.orders.values()):
                if judgement.passed and outputs:
                    judgement = judge(job.case, policy, part.inputs, outputs, job.setup.pack)
            return judgement

    return sweep(backend, job, policy, inputs, judge_one)


def _joined(swept: Swept) -> str:
    return f"{sum(int(b.digest, 16) for b in swept.blocks) & ((1 << 64) - 1):016x}" if swept.blocks else ""


@dataclass(frozen=True)
class _Loaded:
    task: Task
    item: Item
    backend: Backend


_loaded: _Loaded | None = None


def run_here(task: Task, shard: int) -> ShardResult:
    """Sweep a shard in this process, which keeps the case and the backend for the next one. Raises CaseError."""
    global _loaded
    if _loaded is None or _loaded.task != task:
        item = item_of(Path(task.path), [task.case, task.variant], task.backend, task.target)
        if dict(task.fingerprint) != fingerprint_of(item):
            raise CaseError(f"{task.path} was changed while it was being swept")
        # This process is the one that owns the GPU.
        _loaded = _Loaded(task, item, GpuBackend() if task.backend == "gpu" else create(task.backend))
    return run_shard(_loaded.item, _loaded.backend, task, shard)


# ---- on a node of a cluster, in the process that Ray started there ------------------------------------------------


_process: tuple[str, Process] | None = None


def on_node(task: Task, shards: Sequence[int], timeout: float) -> Iterator[ShardResult]:
    """Sweep shards on this node, in a watched process. task.path: relative to the project, which is the working folder.

    Raises RuntimeError if Ray gave this task no GPU of the target.
    """
    here = replace(task, path=str(Path.cwd() / task.path))
    process = _process_for(task)
    for shard in shards:
        yield one_shard(process, f"{__name__}:run_here", here, shard, timeout)


def _process_for(task: Task) -> Process:
    """The process for the GPU that Ray gave to this task. It is kept for the next task with the same GPU."""
    global _process
    gpu = given_gpu(task.target) if task.backend == "gpu" else None
    name = gpu.visible if gpu else ""
    if _process is None or _process[0] != name:
        if _process is not None:
            _process[1].close()
        _process = (name, process_for(gpu))
    return _process[1]
