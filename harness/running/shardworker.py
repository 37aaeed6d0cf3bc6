"""What the process of a sweep does: one shard of one variant, run and judged."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.backends import create
from harness.backends.gpu import GpuBackend
from harness.inputs import InputSet
from harness.inputs.generated import Counted
from harness.jobs import Backend, Job, Outcome, Setup, block_of
from harness.judging.judge import Judgement, held_exactly, judge
from harness.model import load as loader
from harness.model.arguments import format_of
from harness.model.policies import Policies, policies
from harness.model.variants import CaseError
from harness.running.item import Item, fingerprint_of
from harness.running.replay import Origin, token
from harness.sweep import OracleFault, Swept
from harness.sweep.dispatch import sweep
from harness.sweep.shards import ShardResult, Task


def item_of(path: Path, names: list[str], backend: str, target: str) -> Item:
    """The item called by `[CASE, VARIANT]` or `[VARIANT]` in a case file. Raises CaseError naming what there is."""
    found = [
        Item(loaded, variant, target, backend)
        for loaded in loader.load(path)
        for variant in loaded.case.variants
        if variant == names[-1] and (len(names) == 1 or loaded.attribute == names[0])
    ]
    if len(found) != 1:
        there = ", ".join(f"{c.attribute}::{v}" for c in loader.load(path) for v in c.case.variants)
        raise CaseError(f"{path}: {'::'.join(names)} names {len(found)} variants; there are {there}")
    return found[0]


def bits_of(item: Item) -> int:
    """Bits of all inputs together. Raises CaseError where they cannot be counted up."""
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
    """Sweep one shard; what went wrong is its verdict."""
    started = time.monotonic()
    case, variant = item.loaded.case, item.variant
    policy = policies(case, variant)
    inputs = shard_of(item, task, shard)
    setup = Setup(pack=task.pack, block=block_of(task.pack), fusion=bool(variant.fusion))
    job = Job(case, item.loaded.name, item.loaded.path, item.variant_name, variant, task.target, setup)
    try:
        swept = _swept(backend, job, policy, inputs)
    except (OracleFault, CaseError) as error:
        return ShardResult(shard, "error", str(error), seconds=round(time.monotonic() - started, 3))
    found, outcome = swept.judgement, swept.outcome
    outcome = replace(outcome, findings=outcome.findings + held_exactly(policy, outcome.approximate))
    failed = outcome.status == "ran" and (not found.passed or outcome.findings)
    shape = (16 * block_of(task.pack),)
    repeated = Setup(pack=task.pack, shape=shape, fusion=setup.fusion)
    replay = token(repeated, swept.inputs or {}, swept.place, origin=Origin.of(fingerprint_of(item)))
    return ShardResult(
        shard,
        "error" if outcome.status != "ran" else "fail" if failed else "pass",
        outcome.words or "; ".join(outcome.findings),
        found.total,
        found.different,
        found.classes,
        " ".join(b.digest for b in swept.blocks[:1]) if len(swept.blocks) == 1 else _joined(swept),
        round(time.monotonic() - started, 3),
        [asdict(o) for o in found.offenders],
        replay if failed else "",
        {n: asdict(share) for n, share in found.judged.items()},
    )


def _swept(backend: Backend, job: Job, policy: Policies, inputs: InputSet) -> Swept:
    def judge_one(part: Job, outcome: Outcome) -> Judgement:
        found = judge(job.case, policy, part.inputs, outcome.outputs, job.setup.pack)
        if found.passed and outcome.alternative:
            return judge(job.case, policy, part.inputs, outcome.alternative, job.setup.pack)
        return found

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
    """Sweep a shard in this process, which keeps the case and the backend for the next. Raises CaseError."""
    global _loaded
    if _loaded is None or _loaded.task != task:
        item = item_of(Path(task.path), [task.case, task.variant], task.backend, task.target)
        if dict(task.fingerprint) != fingerprint_of(item):
            raise CaseError(f"{task.path} was changed while it was being swept")
        # This process is the one that owns the GPU.
        _loaded = _Loaded(task, item, GpuBackend() if task.backend == "gpu" else create(task.backend))
    return run_shard(_loaded.item, _loaded.backend, task, shard)
