"""Survivors: is there an input at all on which a mutant is wrong, or gives other bits?

The search covers all inputs where they are few, or else as many as asked for, spread over every binade, until time
is up. Both sides run, the mutant and what it was made from; where their bits differ, the judge decides on the mutant.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from harness.backends.sharing import may_share
from harness.inputs import InputSet, stratified
from harness.inputs.fill import kernel_inputs
from harness.inputs.sets import exhaustive, within
from harness.jobs import Job, Outcome, Setup, block_of
from harness.judging.judge import Judgement
from harness.model.arguments import format_of
from harness.model.codes import codes_of
from harness.model.derive import packs_of
from harness.model.reference import apply_reference
from harness.model.variants import AsmVariant, Reference
from harness.mutation.source import SourceMutant, swapped
from harness.mutation.trial import Subject
from harness.records import Offender
from harness.running.run import judge_job

Settled = Literal["equivalent", "sampled", "allowed", "missed", "undecided"]
CHUNK = 1 << 18
LARGEST_PACK = 16
KERNEL_SETS = 8
"""Further sets of random inputs on which a survivor in a whole kernel is tried."""


@dataclass(frozen=True)
class Search:
    """How far survivors are searched: all inputs up to 2^bits of them, else `count`, for `seconds` each at most."""

    bits: int = 24
    count: int = 1 << 24
    seconds: float = 30.0


@dataclass(frozen=True)
class Settlement:
    """What a survivor turned out to be; words: what that rests on. edge: codes of the telling input, by name."""

    fate: Settled
    words: str
    edge: tuple[tuple[str, str], ...] = ()


def settle_asm(subject: Subject, name: str, given: AsmVariant, mutant: AsmVariant, search: Search) -> Settlement:
    """Settle a surviving mutant of asm; the subject has it under `name`."""
    pack = max(packs_of(subject.case, mutant))
    if given.convention == mutant.convention and _same_texts(subject, given, mutant, pack):
        return _settle_sharing(subject, name, mutant, pack)

    def differs(inputs: Mapping[str, Any]) -> Any:
        subject.put(name, given)
        before = ran_as(subject, name, pack, inputs)
        subject.put(name, mutant)
        after = ran_as(subject, name, pack, inputs)
        if before.status != "ran" or not before.outputs or after.status != "ran" or not after.outputs:
            return after if before.outputs else before
        return unlike(subject, inputs, before.outputs, after.outputs)

    return searched(subject, search, differs, lambda inputs: judged_of(subject, name, pack, inputs))


def settle_reference(
    subject: Subject, names: Sequence[str], reference: Reference, mutant: SourceMutant, search: Search
) -> Settlement:
    """Settle a surviving mutant of a reference; names: the variants that are held to it."""

    def differs(inputs: Mapping[str, Any]) -> Any:
        codes = codes_of(subject.case.inputs, inputs)
        before = apply_reference(subject.case, reference, codes)
        with swapped(mutant):
            after = apply_reference(subject.case, reference, codes)
        return unlike(subject, inputs, before, after)

    def judged(inputs: Mapping[str, Any]) -> Judgement | str:
        other = subject.fresh()
        with swapped(mutant):
            for name in names:
                variant = other.case.variants[name]
                pack = max(packs_of(other.case, variant)) if isinstance(variant, AsmVariant) else 1
                found = judged_of(other, name, pack, inputs)
                if isinstance(found, str) or not found.passed:
                    return found
        return found

    return searched(subject, search, differs, judged)


def searched(
    subject: Subject,
    search: Search,
    differs: Callable[[Mapping[str, Any]], Any],
    judged: Callable[[Mapping[str, Any]], Judgement | str],
) -> Settlement:
    """Search inputs for one on which the judge fails a mutant. differs: a mask of inputs, or a faulty outcome."""
    tried = unlike = 0
    until = time.monotonic() + search.seconds
    whole, pieces = _pieces(subject, search)
    for inputs in pieces:
        mask = differs(inputs)
        if isinstance(mask, Outcome):
            words = "; ".join(mask.findings) or f"{mask.status}: {mask.words}"
            return Settlement("missed" if mask.findings else "undecided", words)
        tried += mask.size if subject.case.elementwise else 1
        if mask.any():
            unlike += int(mask.sum())
            found = judged({n: u[mask] for n, u in inputs.items()} if subject.case.elementwise else inputs)
            if isinstance(found, str):
                return Settlement("undecided", found)
            if not found.passed:
                return _missed(found, tried)
        if time.monotonic() > until and whole:
            whole = ""
            break
    kind = "inputs" if subject.case.elementwise else "sets of inputs"
    told = f"all {tried} {kind}" if whole == "all" else f"{tried} {kind} that were tried"
    if unlike:
        return Settlement("allowed", f"other bits on {unlike} of {told}, all within the policies")
    return Settlement("equivalent" if whole == "all" else "sampled", f"the same bits on {told}")


def _missed(found: Judgement, tried: int) -> Settlement:
    if not found.offenders:
        return Settlement("missed", f"fails, among {tried} inputs")
    first: Offender = found.offenders[0]
    words = f"{first.output}: expected {first.expected.bits}, got {first.got.bits} ({first.difference})"
    return Settlement("missed", words, tuple((n, b.bits) for n, b in first.inputs.items()))


def _pieces(subject: Subject, search: Search) -> tuple[str, Iterator[dict[str, Any]]]:
    """ "all" where every input is among the pieces, "some" elsewhere; and the pieces."""
    case, name = subject.case, subject.loaded.name
    if not case.elementwise:
        sizes = case.sizes
        names = [f"random/{k}" for k in range(2, 2 + KERNEL_SETS)]
        names += [f"generated/{k}" for k in range(2, 2 + KERNEL_SETS)] * (case.generate is not None)
        return "some", (kernel_inputs(case, name, set_name, size) for set_name in names for size in sizes)
    formats = {n: format_of(a) for n, a in case.inputs.items()}
    bits = sum(f.unit_bits for f in formats.values())
    made: InputSet = exhaustive(formats, bits) if bits <= search.bits else stratified(case, name, search.count)
    whole = "all" if bits <= search.bits else "some"
    return whole, _inside(subject, made)


def _inside(subject: Subject, made: InputSet) -> Iterator[dict[str, Any]]:
    formats = {n: format_of(a) for n, a in subject.case.inputs.items()}
    for piece in made.chunks(CHUNK):
        if subject.case.domain is None:
            yield piece
            continue
        kept = np.flatnonzero(within(subject.case.domain, formats, piece))
        kept = kept[: len(kept) - len(kept) % LARGEST_PACK]
        if len(kept):
            yield {n: u[kept] for n, u in piece.items()}


def unlike(subject: Subject, inputs: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> Any:
    """A mask of the inputs whose outputs differ in any bit; of a whole kernel, whether any does."""
    count = len(next(iter(inputs.values()))) if subject.case.elementwise else 1
    mask = np.zeros(count, dtype=bool)
    for name, bits in before.items():
        one, two = (np.ascontiguousarray(b) for b in (bits, after[name]))
        word = f"u{one.itemsize}"
        mask |= (one.view(word) != two.view(word)).reshape(count, -1).any(axis=1)
    return mask


def ran_as(subject: Subject, name: str, pack: int, inputs: Mapping[str, Any], context: Any = "straight") -> Outcome:
    """A variant run at some inputs."""
    return subject.backend.run(_job(subject, name, pack, inputs, context))


def _job(subject: Subject, name: str, pack: int, inputs: Mapping[str, Any], context: Any) -> Job:
    item = subject.item(name)
    variant = item.variant
    size = len(next(iter(inputs.values()))) if inputs else 1
    alone = isinstance(variant, AsmVariant)
    setup = Setup(pack=pack, block=block_of(pack), shape=(size,), fusion=bool(variant.fusion), alone=alone)
    if not subject.case.elementwise:
        sizes = next(s for s in subject.case.sizes if _fits(subject, s, inputs))
        setup = Setup(sizes=dict(sizes), num_warps=getattr(variant, "num_warps", 4), fusion=bool(variant.fusion))
    return Job(
        subject.case, subject.loaded.name, subject.loaded.path, name, variant, subject.target,
        replace(setup, context=context), inputs,
    )  # fmt: skip


def _fits(subject: Subject, sizes: Mapping[str, int], inputs: Mapping[str, Any]) -> bool:
    """Whether inputs of a whole kernel have the shapes of these sizes."""
    return all(
        not hasattr(a, "shape") or tuple(a.shape(sizes)) == np.shape(inputs[n]) for n, a in subject.case.inputs.items()
    )


def judged_of(subject: Subject, name: str, pack: int, inputs: Mapping[str, Any]) -> Judgement | str:
    """The judge on a variant at some inputs, padded to whole packs; words where it does not run."""
    if subject.case.elementwise:
        size = len(next(iter(inputs.values())))
        inputs = {n: np.resize(u, -(-size // pack) * pack) for n, u in inputs.items()}
    job = _job(subject, name, pack, inputs, "straight")
    outcome = subject.backend.run(job)
    if outcome.status != "ran" or not outcome.outputs:
        return "; ".join(outcome.findings) or f"{outcome.status}: {outcome.words}"
    return judge_job(subject.item(name), subject.backend, job, outcome)


def _same_texts(subject: Subject, given: AsmVariant, mutant: AsmVariant, pack: int) -> bool:
    """Whether two variants differ in their constraints alone."""
    from harness.model.derive import asm_form

    return asm_form(subject.case, given, pack).text == asm_form(subject.case, mutant, pack).text


def _settle_sharing(subject: Subject, name: str, mutant: AsmVariant, pack: int) -> Settlement:
    """A dropped early clobber: the operands may share registers now."""
    if not may_share(subject.case, mutant, pack):
        return Settlement("equivalent", "no register that an output may share with an input changes a bit")
    inputs = stratified(subject.case, subject.loaded.name, 1 << 20).take(0, 1 << 20)
    outcome = ran_as(subject, name, pack, inputs, "shared")
    if outcome.findings:
        return Settlement("missed", "; ".join(outcome.findings))
    return Settlement("sampled", f"the same bits on {1 << 20} inputs that were tried, in every assignment of registers")
