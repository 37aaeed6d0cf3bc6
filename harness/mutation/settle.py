"""Settle survivors: search for an input on which a mutant that passed is wrong, or gives other bits.

The search covers all inputs if they are few, else a number of inputs spread over every binade, within a time limit. Of
asm that takes several elements at once, an input is what one invocation reads: all tuples if they are few, else those
of `ptxdiff.inputs.words`, all elements, and random tuples. The mutant and the original both run. If their bits differ,
the judge decides whether the mutant is wrong.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ptxdiff.backends.snippet import may_share
from ptxdiff.inputs import InputSet, stratified, word_sets
from ptxdiff.inputs.fill import kernel_inputs
from ptxdiff.inputs.sets import all_words, exhaustive, tuple_bits, within
from ptxdiff.jobs import Job, Outcome, Setup, block_of
from ptxdiff.judging.judge import Judgement
from ptxdiff.model.arguments import codes_of, format_of
from ptxdiff.model.derive import packs_of
from ptxdiff.model.policies import policies
from ptxdiff.model.reference import ReferenceFault, apply_reference, flushes_itself
from ptxdiff.model.variants import AsmVariant, PlainVariant, Reference, Variant
from ptxdiff.mutation.source import SourceMutant, swapped
from ptxdiff.mutation.trial import Code, Subject, machine_code
from ptxdiff.records import Offender
from ptxdiff.running.run import judge_job
from ptxdiff.triton.spec import digests_from

Settled = Literal["equivalent", "sampled", "allowed", "missed", "undecided"]
CHUNK = 1 << 18
LARGEST_PACK = 16
WORDS_OF = 8
"""Survivors whose numbers make further tuples."""
OUTSIDE = 16
"""Inputs made for one that is wanted, where a domain leaves some out."""
KERNEL_SETS = 8
"""The number of additional random input sets on which a survivor in a whole kernel runs."""


@dataclass(frozen=True)
class Search:
    """The extent of the search: all inputs if there are at most 2^bits, else `count`; at most `seconds` a survivor."""

    bits: int = 24
    count: int = 1 << 24
    seconds: float = 30.0


@dataclass(frozen=True)
class Settlement:
    """The fate of a survivor. words: the reason. edge: for a missed one, the codes of the input, by name."""

    fate: Settled
    words: str
    edge: tuple[tuple[str, str], ...] = ()


Inputs = Mapping[str, Any]


@dataclass(frozen=True)
class Words:
    """What one invocation reads. pack: its elements. variants: the code whose numbers lead to further tuples."""

    pack: int = 1
    variants: tuple[Variant, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """A survivor, or the original.

    ran: runs it on some inputs. judged: the judge's result on some inputs, or the reason as a text if it does not run.
    code: gives its machine code; None if equal machine code does not prove a mutant equivalent.
    """

    ran: Callable[[Inputs], Outcome]
    judged: Callable[[Inputs], Judgement | str] = lambda inputs: "not judged"
    code: Callable[[], Code | None] | None = None


def settle_asm(
    subject: Subject, name: str, given: AsmVariant, survivors: Sequence[AsmVariant], search: Search
) -> list[Settlement]:
    """Settle the surviving mutants of one text of a variant. The subject's variant `name` is replaced by each."""
    pack = max(packs_of(subject.case, given))

    input_words = Words(pack, (given, *survivors[:WORDS_OF]))

    def candidate(variant: AsmVariant) -> Candidate:
        def code() -> Code | None:
            subject.put(name, variant)
            return machine_code(subject, name)

        def ran(inputs: Inputs) -> Outcome:
            subject.put(name, variant)
            return ran_as(subject, name, pack, inputs)

        def judged(inputs: Inputs) -> Judgement | str:
            subject.put(name, variant)
            return judged_of(subject, name, pack, inputs)

        return Candidate(ran, judged, code)

    settlements: dict[int, Settlement] = {}
    for number, mutant in enumerate(survivors):
        if given.convention == mutant.convention and _same_texts(subject, given, mutant):
            subject.put(name, mutant)
            settlements[number] = _settle_sharing(subject, name, mutant, max(packs_of(subject.case, mutant)), search)
    others = [m for number, m in enumerate(survivors) if number not in settlements]
    rest = iter(settled(subject, search, candidate(given), [candidate(m) for m in others], words=input_words))
    for number, mutant in enumerate(survivors):
        if number not in settlements:
            settlement = next(rest)
            if settlement.fate == "sampled":
                settlement = _proved(subject, name, given, mutant, candidate, search) or settlement
            if settlement.fate == "allowed":
                settlement = _proved_by_rules(subject, mutant, candidate(mutant), search) or settlement
            settlements[number] = settlement
    return [settlements[number] for number in range(len(survivors))]


def _proved(
    subject: Subject,
    name: str,
    given: AsmVariant,
    mutant: AsmVariant,
    candidate: Callable[[AsmVariant], Candidate],
    search: Search,
) -> Settlement | None:
    """The settlement by a proof that a survivor has the original's bits, or by an input on which it has others.

    None where the extra `prove` is not installed, or a solver settles nothing.
    """
    from ptxdiff.proving import solving

    if not subject.case.elementwise or not solving.available():
        return None
    from ptxdiff.proving.on_device import arrays_of
    from ptxdiff.proving.verdicts import prove

    pack, other = max(packs_of(subject.case, mutant)), f"{name}, mutated"
    case = replace(subject.case, variants={name: given, other: mutant})
    proof = prove(case, other, subject.target, against=name, seconds=search.seconds, packs=(pack,))
    if proof.verdict == "proved":
        by = f" by {proof.solver}" if proof.solver else ""
        return Settlement("equivalent", f"the same bits for all inputs, proved{by}")
    if proof.verdict != "counterexample":
        return None
    inputs = arrays_of(case.inputs, proof.inputs)
    searched = _Searched(subject, candidate(mutant), pack)
    return searched.settlement(inputs, candidate(given).ran(inputs)) or searched.end(False)


def _proved_by_rules(subject: Subject, mutant: AsmVariant, candidate: Candidate, search: Search) -> Settlement | None:
    """The settlement by a proof that the judge accepts a survivor with other bits for all inputs, or by an input for
    which it does not.

    None where the extra `prove` is not installed, or a solver settles nothing.
    """
    from ptxdiff.proving import solving

    if not subject.case.elementwise or not solving.available():
        return None
    from ptxdiff.proving.on_device import arrays_of
    from ptxdiff.proving.verdicts import prove

    pack, name = max(packs_of(subject.case, mutant)), "mutated"
    case = replace(subject.case, variants={name: mutant})
    proof = prove(case, name, subject.target, seconds=search.seconds, packs=(pack,))
    if proof.verdict == "proved":
        by = f" by {proof.solver}" if proof.solver else ""
        return Settlement("allowed", f"other bits, within the policies for all inputs, proved{by}")
    if proof.verdict != "counterexample":
        return None
    judgement = candidate.judged(arrays_of(case.inputs, proof.inputs))
    return None if isinstance(judgement, str) or judgement.passed else missed(judgement, pack)


def settle_reference(
    subject: Subject, names: Sequence[str], reference: Reference, survivors: Sequence[SourceMutant], search: Search
) -> list[Settlement]:
    """Settle the surviving mutants of a reference. names: the variants that are judged by it."""

    flushes = flushes_itself(reference) and any(
        {*policies(subject.case, subject.case.variants[n]).ftz.values()} - {"never"} for n in names
    )

    def outputs(inputs: Inputs) -> Outcome:
        codes = codes_of(subject.case.inputs, inputs)
        try:
            results = dict(apply_reference(subject.case, reference, codes))
            if flushes:
                also = apply_reference(subject.case, reference, codes, flushing=True)
                results |= {f"{n}, flushed": v for n, v in also.items()}
        except ReferenceFault as e:
            return Outcome("error", str(e))
        return Outcome("ran", outputs=results)

    def candidate(mutant: SourceMutant) -> Candidate:
        def ran(inputs: Inputs) -> Outcome:
            with swapped(mutant):
                return outputs(inputs)

        def judged(inputs: Inputs) -> Judgement | str:
            other = subject.fresh()
            with swapped(mutant), digests_from(subject.digests):
                for name in names:
                    variant = other.case.variants[name]
                    pack = max(packs_of(other.case, variant)) if isinstance(variant, AsmVariant) else 1
                    judgement = judged_of(other, name, pack, inputs)
                    if isinstance(judgement, str) or not judgement.passed:
                        return judgement
            return judgement

        return Candidate(ran, judged)

    right, candidates = Candidate(outputs), [candidate(m) for m in survivors]
    settlements = settled(subject, search, right, candidates)
    for number, (mutant, settlement) in enumerate(zip(survivors, settlements, strict=True)):
        if settlement.fate == "sampled":
            asked = _proved_reference(subject, reference, mutant, flushes, right, candidates[number], search)
            settlements[number] = settlement = asked or settlement
        if settlement.fate == "allowed":
            asked = _accepted_by_mutant(subject, names, mutant, candidates[number], search)
            settlements[number] = asked or settlement
    return settlements


def _proved_reference(
    subject: Subject,
    reference: Reference,
    mutant: SourceMutant,
    flushes: bool,
    right: Candidate,
    candidate: Candidate,
    search: Search,
) -> Settlement | None:
    """The settlement by a proof that a mutant of a reference has the original's codes, or by an input on which it has
    others.

    None where the extra `prove` is not installed, or a solver settles nothing.
    """
    from ptxdiff.proving import solving

    if not subject.case.elementwise or not solving.available():
        return None
    from ptxdiff.proving.equivalence import prove_references
    from ptxdiff.proving.on_device import arrays_of

    def differs(units: Mapping[str, tuple[int, ...]]) -> bool:
        inputs = arrays_of(subject.case.inputs, units)
        if not np.all(within(subject.case.domain, {n: format_of(a) for n, a in subject.case.inputs.items()}, inputs)):
            return False
        before, after = right.ran(inputs), candidate.ran(inputs)
        return before.status == "ran" and (after.status != "ran" or bool(unlike(subject, inputs, before, after).any()))

    proof = prove_references(
        subject.case, reference, lambda: swapped(mutant), differs, own_code=_may_have_summary(mutant),
        flushings=(False, True) if flushes else (False,), seconds=search.seconds,
    )  # fmt: skip
    if proof.verdict == "proved":
        by = f" by {proof.solver}" if proof.solver else ""
        return Settlement("equivalent", f"the same codes for all inputs, proved{by}")
    if proof.verdict != "counterexample":
        return None
    inputs = arrays_of(subject.case.inputs, proof.inputs)
    searched = _Searched(subject, candidate)
    return searched.settlement(inputs, right.ran(inputs)) or searched.end(False)


def _may_have_summary(mutant: SourceMutant) -> bool:
    """Whether a mutant may change a function that proofs replace by a summary: one of `ptxdiff.references`."""
    return (mutant.function.__module__ or "").startswith("ptxdiff.references.")


def _accepted_by_mutant(
    subject: Subject, names: Sequence[str], mutant: SourceMutant, candidate: Candidate, search: Search
) -> Settlement | None:
    """The settlement by proofs that a mutant of a reference accepts its variants for all inputs, or by an input on
    which it refuses one.

    None where the extra `prove` is not installed, or a solver does not settle all variants.
    """
    from ptxdiff.proving import solving

    if not subject.case.elementwise or not solving.available():
        return None
    from ptxdiff.proving.elements import prove_elements
    from ptxdiff.proving.on_device import arrays_of
    from ptxdiff.proving.tracing import without_summaries
    from ptxdiff.proving.verdicts import prove

    other, solvers = subject.fresh(), set()
    for name in names:
        with swapped(mutant), without_summaries(_may_have_summary(mutant)):
            if isinstance(other.case.variants[name], PlainVariant):
                proof = prove_elements(other.loaded, name, subject.target, seconds=search.seconds)
            else:
                proof = prove(other.case, name, subject.target, seconds=search.seconds)
        if proof.verdict == "counterexample":
            judgement = candidate.judged(arrays_of(subject.case.inputs, proof.inputs))
            return None if isinstance(judgement, str) or judgement.passed else missed(judgement, 1)
        if proof.verdict != "proved":
            return None
        solvers.add(proof.solver)
    by = f" by {' and '.join(sorted(s for s in solvers if s))}" if any(solvers) else ""
    return Settlement("allowed", f"other codes, within the policies for all inputs of its variants, proved{by}")


def settled(
    subject: Subject,
    search: Search,
    right: Candidate,
    candidates: Sequence[Candidate],
    sizes: Mapping[str, int] | None = None,
    words: Words | None = None,
) -> list[Settlement]:
    """Settle survivors by their machine code, else by a search over inputs, on which the original runs only once.

    right: the original. sizes: for a whole kernel, the sizes of the inputs; None for all sizes of the case. words: of
    code that takes several elements at once.
    """
    words = words or Words()
    settlements: dict[int, Settlement] = {}
    asked = [c for c in candidates if c.code is not None]
    before = right.code() if right.code is not None and asked else None
    for number, candidate in enumerate(candidates):
        if before is not None and candidate.code is not None and candidate.code() == before:
            settlements[number] = Settlement("equivalent", f"the same machine code for {subject.target}")
    left = [number for number in range(len(candidates)) if number not in settlements]
    rest = {number: _Searched(subject, candidates[number], words.pack) for number in left}
    settlements |= _search(subject, search, right, rest, sizes, words)
    return [settlements[number] for number in range(len(candidates))]


class _Searched:
    """The search's state for one survivor. tried: inputs tried. unlike: inputs with other bits. pack: inputs that stay
    together."""

    def __init__(self, subject: Subject, candidate: Candidate, pack: int = 1) -> None:
        self.subject, self.candidate, self.pack = subject, candidate, pack
        self.tried = self.unlike = 0

    def settlement(self, inputs: Inputs, before: Outcome) -> Settlement | None:
        """The settlement by these inputs; None if they do not settle the survivor. before: the original's outcome."""
        after = self.candidate.ran(inputs)
        if after.findings and not before.findings:
            return Settlement("missed", "; ".join(after.findings))
        for one in (before, after):
            if one.status != "ran" or not one.outputs:
                return Settlement("undecided", "; ".join(one.findings) or f"{one.status}: {one.words}")
        mask = unlike(self.subject, inputs, before, after)
        elementwise = self.subject.case.elementwise
        self.tried += mask.size if elementwise else 1
        if not mask.any():
            return None
        self.unlike += int(mask.sum())
        chosen = {n: u[self._whole(mask)] for n, u in inputs.items()} if elementwise else inputs
        judgement = self.candidate.judged(chosen)
        if isinstance(judgement, str):
            return Settlement("undecided", judgement)
        if judgement.passed:
            return None
        failed = missed(judgement, self.tried)
        in_a_pack = self.pack > 1 and failed.edge
        return self._in_its_pack(failed, judgement.offenders[0].index, chosen) if in_a_pack else failed

    def _whole(self, mask: Any) -> Any:
        """The mask of all inputs that share an invocation with one of the mask."""
        if self.pack == 1:
            return mask
        padded = np.resize(mask, -(-mask.size // self.pack) * self.pack)
        padded[mask.size :] = False
        return np.repeat(padded.reshape(-1, self.pack).any(axis=1), self.pack)[: mask.size]

    def _in_its_pack(self, missed: Settlement, code: int, inputs: Inputs) -> Settlement:
        """The settlement with the inputs of the whole pack; without an element that is wrong only beside others.

        A hard case is one element, in whatever pack it comes to lie.
        """
        output = missed.words.partition(":")[0].partition(" ")[0]
        element = code // format_of(self.subject.case.outputs[output]).codes_per_unit
        first = element - element % self.pack
        beside = {n: u[first : first + self.pack] for n, u in inputs.items()}
        alone = self.candidate.judged({n: np.repeat(u[element], self.pack) for n, u in inputs.items()})
        text = "; ".join(f"{n} = {', '.join(_hexadecimal(u))}" for n, u in beside.items())
        message = f"{missed.words}, in a pack of {text}"
        return replace(missed, words=message, edge=() if not isinstance(alone, str) and alone.passed else missed.edge)

    def end(self, whole: bool) -> Settlement:
        """The settlement if no input was found on which it is wrong. whole: whether all inputs were tried."""
        kind = "inputs" if self.subject.case.elementwise else "sets of inputs"
        kind += f" in packs of {self.pack}" * (self.pack > 1)
        extent = f"all {self.tried} {kind}" if whole else f"{self.tried} {kind} that were tried"
        if self.unlike:
            return Settlement("allowed", f"other bits on {self.unlike} of {extent}, all within the policies")
        return Settlement("equivalent" if whole else "sampled", f"the same bits on {extent}")


def _search(
    subject: Subject,
    search: Search,
    right: Candidate,
    rest: dict[int, _Searched],
    sizes: Mapping[str, int] | None,
    words: Words,
) -> dict[int, Settlement]:
    """Search inputs for ones on which the judge fails a survivor, for all survivors at once."""
    settlements: dict[int, Settlement] = {}
    if not rest:
        return settlements
    until = time.monotonic() + search.seconds * len(rest)
    whole, pieces = _pieces(subject, search, sizes, words)
    for inputs in pieces:
        before = right.ran(inputs)
        for number in list(rest):
            if (settlement := rest[number].settlement(inputs, before)) is not None:
                settlements[number] = settlement
                del rest[number]
        if not rest:
            break
        if time.monotonic() > until:
            whole = "some"
            break
    return settlements | {number: one.end(whole == "all") for number, one in rest.items()}


def _hexadecimal(units: Any) -> list[str]:
    """Storage units as text."""
    array = np.ascontiguousarray(units)
    return [f"0x{u:0{2 * array.itemsize}x}" for u in array.view(f"u{array.itemsize}").tolist()]


def missed(found: Judgement, tried: int) -> Settlement:
    """The settlement by a judgement that fails, on one of some inputs that were tried."""
    if not found.offenders:
        return Settlement("missed", f"fails, among {tried} inputs")
    first: Offender = found.offenders[0]
    message = f"{first.output}: expected {first.expected.bits}, got {first.got.bits} ({first.difference})"
    return Settlement("missed", message, tuple((n, b.bits) for n, b in first.inputs.items()))


def _pieces(
    subject: Subject, search: Search, only: Mapping[str, int] | None, words: Words
) -> tuple[str, Iterator[dict[str, Any]]]:
    """ "all" if the pieces cover every input, else "some"; and the pieces."""
    case = subject.case
    if not case.elementwise:
        sizes = case.sizes if only is None else [only]
        names = [f"random/{k}" for k in range(2, 2 + KERNEL_SETS)]
        names += [f"generated/{k}" for k in range(2, 2 + KERNEL_SETS)] * (case.generate is not None)
        return "some", (kernel_inputs(case, set_name, size) for set_name in names for size in sizes)
    formats = {n: format_of(a) for n, a in case.inputs.items()}
    bits = sum(f.unit_bits for f in formats.values())
    if words.pack > 1:
        return _tuples(subject, search, words)
    if bits <= search.bits:
        return "all", _inside(subject, exhaustive(formats, bits), 1 << bits)
    spare = 1 if case.domain is None else OUTSIDE
    return "some", _inside(subject, stratified(case, spare * search.count), search.count)


def _tuples(subject: Subject, search: Search, words: Words) -> tuple[str, Iterator[dict[str, Any]]]:
    """The pieces for packs of several elements."""
    case, pack = subject.case, words.pack
    if case.domain is None and tuple_bits(case, pack) <= search.bits:
        made = all_words(case, pack)
        return "all", made.chunks(CHUNK - CHUNK % pack)
    sets: dict[str, list[InputSet]] = {}
    for variant in words.variants:
        for made in word_sets(case, "full", variant, pack):
            if made.name.startswith("constants"):  # the numbers of each; other sets are the same for all
                sets.setdefault(made.name, []).append(made)
            else:
                sets.setdefault(made.name, [made])
    formats = {n: format_of(a) for n, a in case.inputs.items()}
    bits = sum(f.unit_bits for f in formats.values())
    elements = [_inside(subject, exhaustive(formats, bits), 1 << bits)] if bits <= search.bits else []
    spare = 1 if case.domain is None else OUTSIDE
    random = _inside(subject, stratified(case, spare * search.count), search.count)
    tuples = (piece for made in sets.values() for one in made for piece in one.chunks(CHUNK - CHUNK % pack))
    return "some", itertools.chain(tuples, *elements, random)


def _inside(subject: Subject, made: InputSet, most: int) -> Iterator[dict[str, Any]]:
    """The inputs within the case's domain in pieces, until there are `most` of them or none are left."""
    formats = {n: format_of(a) for n, a in subject.case.inputs.items()}
    for piece in made.chunks(CHUNK):
        if most <= 0:
            return
        if subject.case.domain is None:
            most -= len(next(iter(piece.values())))
            yield piece
            continue
        kept = np.flatnonzero(within(subject.case.domain, formats, piece))
        kept = kept[: len(kept) - len(kept) % LARGEST_PACK]
        if len(kept):
            most -= len(kept)
            yield {n: u[kept] for n, u in piece.items()}


def unlike(subject: Subject, inputs: Inputs, before: Outcome, after: Outcome) -> Any:
    """A mask of the inputs whose outputs differ in any bit, fused or unfused; one element for a whole kernel.

    If the outputs differ in size, it marks all inputs.
    """
    count = len(next(iter(inputs.values()))) if subject.case.elementwise else 1
    mask = np.zeros(count, dtype=bool)
    for name in before.outputs:
        orders = tuple(dict.fromkeys((*before.orders, *after.orders)))
        for one, two in zip(_readings(before, name, orders), _readings(after, name, orders), strict=True):
            if one.nbytes != two.nbytes:
                return np.ones(count, dtype=bool)
            word = f"u{one.itemsize}"
            # Reshaped to one dimension, because a reference may return its codes in any shape.
            mask |= (one.reshape(-1).view(word) != two.reshape(-1).view(word)).reshape(count, -1).any(axis=1)
    return mask


def _readings(outcome: Outcome, name: str, orders: Sequence[str]) -> list[Any]:
    """The bits of an output, fused and unfused, and in orders of blocks."""
    every = [outcome.outputs, outcome.alternative or outcome.outputs]
    every += [outcome.orders.get(order, outcome.outputs) for order in orders]
    return [np.ascontiguousarray(outputs[name]) for outputs in every]


def ran_as(subject: Subject, name: str, pack: int, inputs: Mapping[str, Any], context: Any = "straight") -> Outcome:
    """The outcome of a variant on some inputs."""
    return subject.backend.run(_job(subject, name, pack, inputs, context))


def job_in(subject: Subject, name: str, setup: Setup, inputs: Mapping[str, Any]) -> Job:
    """A variant's job in a setup, on some inputs."""
    return Job(
        subject.case, subject.loaded.name, subject.loaded.path, name, subject.item(name).variant, subject.target,
        setup, inputs,
    )  # fmt: skip


def _job(subject: Subject, name: str, pack: int, inputs: Mapping[str, Any], context: Any) -> Job:
    variant = subject.item(name).variant
    size = len(next(iter(inputs.values()))) if inputs else 1
    alone = isinstance(variant, AsmVariant)
    fusion = variant.fusion is not False  # with fusion the emulator runs both readings
    # With one warp a thread of a Triton function has whole packs.
    warps = 1 if isinstance(variant, PlainVariant) else 4
    setup = Setup(pack=pack, block=block_of(pack), shape=(size,), num_warps=warps, fusion=fusion, alone=alone)
    if not subject.case.elementwise:
        sizes = next(s for s in subject.case.sizes if _fits(subject, s, inputs))
        setup = Setup(sizes=dict(sizes), num_warps=getattr(variant, "num_warps", 4), fusion=fusion)
    return job_in(subject, name, replace(setup, context=context), inputs)


def _fits(subject: Subject, sizes: Mapping[str, int], inputs: Mapping[str, Any]) -> bool:
    """Whether inputs of a whole kernel have the shapes of these sizes."""
    return all(
        not hasattr(a, "shape") or tuple(a.shape(sizes)) == np.shape(inputs[n]) for n, a in subject.case.inputs.items()
    )


def judged_of(subject: Subject, name: str, pack: int, inputs: Mapping[str, Any]) -> Judgement | str:
    """The judgement of a variant on some inputs, padded to whole packs; the reason as a text if it does not run."""
    if subject.case.elementwise:
        size = len(next(iter(inputs.values())))
        inputs = {n: np.resize(u, -(-size // pack) * pack) for n, u in inputs.items()}
    return judged_in(subject, name, _job(subject, name, pack, inputs, "straight"))


def judged_in(subject: Subject, name: str, job: Job) -> Judgement | str:
    """The judgement of a variant's job; the reason as a text if it does not run."""
    outcome = subject.backend.run(job)
    if outcome.status != "ran" or not outcome.outputs:
        return "; ".join(outcome.findings) or f"{outcome.status}: {outcome.words}"
    return judge_job(subject.item(name), subject.backend, job, outcome)


def _same_texts(subject: Subject, given: AsmVariant, mutant: AsmVariant) -> bool:
    """Whether two variants differ only in their constraints."""
    from ptxdiff.model.derive import asm_form

    pack = max(packs_of(subject.case, mutant))
    return asm_form(subject.case, given, pack).text == asm_form(subject.case, mutant, pack).text


def _settle_sharing(subject: Subject, name: str, mutant: AsmVariant, pack: int, search: Search) -> Settlement:
    """Settle a dropped early clobber by running the asm with operands in shared registers."""
    if not may_share(subject.case, mutant, pack):
        return Settlement("equivalent", "no sharing of registers between an output and an input changes a bit")
    tried, until, failed = 0, time.monotonic() + search.seconds, dict[str, int]()
    _, pieces = _pieces(subject, search, None, Words(pack, (mutant,)))
    for inputs in pieces:
        outcome, count = ran_as(subject, name, pack, inputs, "shared"), len(next(iter(inputs.values())))
        if outcome.findings:
            return Settlement("missed", "; ".join(outcome.findings))
        if outcome.status == "ran":
            tried += count
        else:
            message = f"{outcome.status}: {outcome.words}"
            failed[message] = failed.get(message, 0) + count
        if time.monotonic() > until:
            break
    reason = f"the same bits on {tried} inputs that were tried, in every assignment of registers"
    reason += "".join(f"; not on {count} others ({message})" for message, count in failed.items())
    sampled = Settlement("sampled" if tried else "undecided", reason if tried else "; ".join(failed))
    return _proved_sharing(subject, name, mutant, pack, search) or sampled


def _proved_sharing(subject: Subject, name: str, mutant: AsmVariant, pack: int, search: Search) -> Settlement | None:
    """The settlement by a proof that no assignment of registers changes a bit, or by an input on which one does.

    None where the extra `prove` is not installed, or a solver settles nothing.
    """
    from ptxdiff.proving import solving

    if not solving.available():
        return None
    from ptxdiff.proving.on_device import arrays_of
    from ptxdiff.proving.verdicts import prove_sharing

    def shown(units: Mapping[str, tuple[int, ...]]) -> str:
        inputs = arrays_of(subject.case.inputs, units)
        return "; ".join(ran_as(subject, name, pack, inputs, "shared").findings)

    proof = prove_sharing(
        subject.case,
        mutant,
        subject.target,
        pack,
        shown,
        fusion=mutant.fusion is not False,  # as in `_job`
        seconds=search.seconds,
    )
    if proof.verdict == "proved":
        by = f" by {proof.solver}" if proof.solver else ""
        return Settlement("equivalent", f"no sharing of registers changes a bit for any input, proved{by}")
    if proof.verdict != "counterexample":
        return None
    inputs = "; ".join(f"{n} = {', '.join(map(hex, units))}" for n, units in proof.inputs.items())
    return Settlement("missed", f"{proof.reason}, for {inputs}")
