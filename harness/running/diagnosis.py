"""Diagnoses: explanations of a failure that were tested by reproducing its bits.

A diagnosis is never guessed from the asm's text. "missing early clobber" is given only if the emulator, with an output
and an input in one register, computes exactly the bits that the variant gave. "results reversed within registers" is
given to a kernel whose results are right once those that share a register are reversed. "undefined bits stored" is
given if the emulator found undefined bits on their way to memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.backends.snippet import fed_back
from ptxdiff.jobs import Job, Outcome
from ptxdiff.model.arguments import format_of
from ptxdiff.model.case import Case
from ptxdiff.model.derive import asm_form
from ptxdiff.model.policies import policies
from ptxdiff.model.variants import CLOBBER, REVERSED, UNDEFINED, AsmVariant, CaseError, KernelVariant
from ptxdiff.running.judgements import judged

_LEFT = re.compile(r"out of bounds|out of range|IndexError|lies in no buffer|illegal memory access")


def index_hint(case: Case, input_set: str, words: str) -> str:
    """A hint for a memory fault, or a fault of a reference, in a whole kernel that has integer inputs of any value.

    input_set: the name of the set that caused it. words: the fault's text. Returns "" if nothing suggests an index.
    """
    if case.elementwise or input_set.startswith("generated") or not _LEFT.search(words):
        return ""
    known = {*case.domains, *case.in_place}
    free = [n for n, a in case.inputs.items() if not format_of(a).is_float and n not in known]
    if not free:
        return ""
    name = free[0]
    return (
        f"{input_set} gives {', '.join(free)} any bits; state the range of an index with "
        f'where={{"{name}": Domain("...", lambda v: v["{name}"] < ...)}}, or by where={{"{name}": generated}} and '
        "generate="
    )


def diagnose(job: Job, outcome: Outcome) -> str:
    """The diagnosis that reproduces the outcome's outputs, one of `ptxdiff.model.variants.DIAGNOSES`, or an empty
    string."""
    if outcome.undefined:
        return UNDEFINED
    if not outcome.outputs:
        return ""
    if isinstance(job.variant, KernelVariant) and not outcome.findings:
        return REVERSED if _right_in_reverse(job, outcome.outputs) else ""
    if not isinstance(job.variant, AsmVariant) or job.setup.context == "straight":
        return ""
    if job.setup.context == "shared":
        return CLOBBER  # this context shares registers, and does nothing else
    shared = _with_shared_registers(job)
    if shared is not None and _same_bits(shared, outcome.outputs):
        return CLOBBER
    return ""


# How many results share a register, and the distance between them: neighbours, or a warp's width apart.
_REGISTERS = ((2, 1), (4, 1), (2, 32), (4, 32))


def _right_in_reverse(job: Job, outputs: Mapping[str, Any]) -> bool:
    """Whether a kernel's outputs pass once the results within every register are reversed."""
    policy = policies(job.case, job.variant)
    for many, apart in _REGISTERS:
        if any(np.size(units) % (many * apart) for units in outputs.values()):
            continue
        turned = {n: _reversed(np.asarray(units), many, apart) for n, units in outputs.items()}
        if judged(job.case, job.variant, policy, job.inputs, turned, job.setup.pack).passed:
            return True
    return False


def _reversed(units: NDArray[Any], many: int, apart: int) -> NDArray[Any]:
    """The units, with each group of `many` that lie `apart` from each other in reverse order."""
    return np.ascontiguousarray(units.reshape(-1, many, apart)[:, ::-1]).reshape(units.shape)


def _with_shared_registers(job: Job) -> Mapping[str, Any] | None:
    """The loop's outputs with registers shared wherever the constraints allow it; None if they allow it nowhere."""
    from ptxdiff.backends.snippet import run_once, shareable
    from ptxdiff.emulator import PtxError

    assert isinstance(job.variant, AsmVariant)
    carry = policies(job.case, job.variant).carry
    unpadded = replace(job, setup=replace(job.setup, padding=None))
    try:
        form = asm_form(job.case, job.variant, job.setup.pack)
        share = shareable(job.case, form, carry)
        if not share:
            return None
        units = {n: np.asarray(u).reshape(-1) for n, u in job.inputs.items()}
        outputs: dict[str, Any] = {}
        for _ in range(job.setup.steps):
            outputs = run_once(unpadded, form, units, share)
            units |= fed_back(job.case, carry, outputs)
    except (PtxError, CaseError):
        return None
    return outputs


def _same_bits(one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
    return all(np.array_equal(np.asarray(one[n]).reshape(-1), np.asarray(two[n]).reshape(-1)) for n in one)
