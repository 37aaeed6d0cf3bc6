"""Run a counterexample on a GPU, where there is one, before it is believed.

The emulator has shown it already. If a GPU gives an accepted result on the same inputs, then nobody is accused: the
emulator or ptxas is at fault, and the verdict is "not settled".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ptxdiff.backends import create
from ptxdiff.jobs import Backend, Job, Outcome, Setup, block_of, same_bits
from ptxdiff.judging.judge import judge
from ptxdiff.model.arguments import format_of
from ptxdiff.model.derive import packs_of
from ptxdiff.model.load import LoadedCase
from ptxdiff.model.policies import policies, variant_on
from ptxdiff.model.reference import ReferenceFault
from ptxdiff.model.variants import AsmVariant
from ptxdiff.proving.solving import Verdict


def gpu_for(target: str) -> Backend | None:
    """This machine's GPU of a target; None if there is none."""
    device = create("gpu")
    return None if device.unavailable(target) else device


def arrays_of(formats: Mapping[str, Any], units: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Storage units as arrays in the formats' dtypes, by name. formats: the arguments of a case."""
    arrays = {}
    for name, argument in formats.items():
        kind = np.dtype(format_of(argument).numpy_dtype())
        arrays[name] = np.array(units[name], f"u{kind.itemsize}").view(kind)
    return arrays


def by_rules(loaded: LoadedCase, name: str, found: Verdict, device: Backend) -> Verdict:
    """A counterexample by the case's rules, after a run of the variant's kernel on a device."""
    case, variant = loaded.case, variant_on(loaded.case.variants[name], found.target)
    arrays = arrays_of(case.inputs, found.inputs)
    pack, wrong = len(next(iter(found.inputs.values()))), False
    for fusion in variant.fusions:
        outcome = device.run(_job(loaded, name, found.target, arrays, fusion))
        if outcome.status != "ran":
            return _not_run(found, outcome)
        try:
            judgement = judge(case, policies(case, variant), arrays, outcome.outputs, pack)
        except ReferenceFault:
            return found  # the reference is at fault, whatever runs
        wrong = wrong or bool(judgement.different or outcome.findings)
    return _compared(found, wrong)


def by_variant(loaded: LoadedCase, names: tuple[str, str], found: Verdict, device: Backend) -> Verdict:
    """A counterexample of one variant against another, after runs of both on a device."""
    arrays = arrays_of(loaded.case.inputs, found.inputs)
    wrong = False
    for fusion in dict.fromkeys(f for name in names for f in loaded.case.variants[name].fusions):
        outcomes = [device.run(_job(loaded, name, found.target, arrays, fusion)) for name in names]
        for outcome in outcomes:
            if outcome.status != "ran":
                return _not_run(found, outcome)
        wrong = wrong or not same_bits(outcomes[0].outputs, outcomes[1].outputs)
    return _compared(found, wrong)


def by_ptx(job: Job, found: Verdict, device: Backend) -> Verdict:
    """A counterexample of machine code against its PTX: the machine code runs on a device, the PTX on the emulator.

    job: with the counterexample's inputs.
    """
    outcome, wanted = device.run(job), create("emulator").run(replace(job, setup=replace(job.setup, assembler=None)))
    for one in (outcome, wanted):
        if one.status != "ran":
            return _not_run(found, one)
    readings = [wanted.outputs, *([wanted.alternative] if wanted.alternative else [])]
    return _compared(found, not any(same_bits(outcome.outputs, reading) for reading in readings))


def _job(loaded: LoadedCase, name: str, target: str, arrays: Mapping[str, Any], fusion: bool) -> Job:
    case, variant = loaded.case, loaded.case.variants[name]
    count = len(next(iter(arrays.values())))
    pack = max(p for p in packs_of(case, variant) if p <= count) if isinstance(variant, AsmVariant) else 1
    setup = Setup(pack=pack, block=block_of(pack), shape=(count,), fusion=fusion)
    return Job(loaded.case, loaded.name, loaded.path, name, variant, target, setup, arrays)


def _compared(found: Verdict, also_wrong: bool) -> Verdict:
    if also_wrong:
        return replace(found, reason=f"{found.reason}; a GPU gives a wrong result too")
    return replace(found, verdict="not settled", reason=f"a GPU gives a right result, and the emulator: {found.reason}")


def _not_run(found: Verdict, outcome: Outcome) -> Verdict:
    return replace(found, reason=f"{found.reason}; it did not run on the GPU: {outcome.status}: {outcome.words}")
