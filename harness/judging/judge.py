"""The judge: computes the facts for a verdict from output bits.

It flushes the inputs as the policy says, applies the reference, flushes the results, compares classes, and only then
applies the bound. Each difference gets a kind: a flush if the opposite flush policy explains it, positional if another
place of the same pack explains it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ptxdiff.judging.answers import answers
from ptxdiff.judging.differences import Difference, bits, classify_differences, kinds_of, signed_steps, step_histogram
from ptxdiff.judging.evaluate import accepted, flipped, flush
from ptxdiff.judging.failing_map import axes_of, counted
from ptxdiff.judging.judged_share import CASES_REFERENCE, holds, pooled, shares
from ptxdiff.judging.likeness import likely_cause, only_where
from ptxdiff.judging.offenders import Compared, farthest, offender_at, padding_note, with_padding
from ptxdiff.model.arguments import codes_of, format_of
from ptxdiff.model.case import Case
from ptxdiff.model.match import Match
from ptxdiff.model.policies import Policies, exact_readings
from ptxdiff.model.reference import ReferenceFault, in_words
from ptxdiff.model.variants import Reference, alternatives
from ptxdiff.records import Offender, Share
from ptxdiff.references.formats import is_finite, is_zero, magnitude

Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]
Units = Mapping[str, NDArray[np.generic]]

KEPT_OFFENDERS = 8
_LEAST_LEFT = 16
"""Fewer wrong codes than this may equal the input's by chance."""


@dataclass
class Judgement:
    """The facts of one comparison; see the fields of the same names in `ptxdiff.records.Result`.

    judged: how many codes the policies judge, by output; see `ptxdiff.judging.judged_share`.
    worst: the largest distance of all judged codes, passing or not. worst_failing: the largest distance of failing
    codes. kinds: how many codes differ in which way, as messages say it: `classes` with the side that is a NaN, an
    infinity or zero. moved: how many wrong codes of whole kernels are those expected in other places.
    compared: by output, the compared codes; empty for a set that was judged in pieces. needed: by tensor updated
    in place, its number of codes and how many of them are wrong if a kernel writes nothing. failing: failing inputs by
    cell of `ptxdiff.judging.failing_map`; None if none fails or the case has no map. cause: the mistake whose bits the
    wrong codes are exactly (`ptxdiff.judging.likeness`); "" if none is known. where: what an input is wherever a code
    is wrong; "" if it is nothing special.
    """

    total: int = 0
    different: int = 0
    unchecked: int = 0
    judged: dict[str, Share] = field(default_factory=dict)
    classes: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    moved: int = 0
    ulps: dict[str, int] = field(default_factory=dict)
    ulps_failing: dict[str, int] = field(default_factory=dict)
    ulps_unchecked: dict[str, int] = field(default_factory=dict)
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    offenders: list[Offender] = field(default_factory=list)
    worst: Offender | None = None
    worst_failing: Offender | None = None
    failing: NDArray[np.int64] | None = None
    notes: list[str] = field(default_factory=list)
    compared: dict[str, Compared] = field(default_factory=dict, repr=False)
    needed: dict[str, tuple[int, int]] = field(default_factory=dict)
    cause: str = ""
    where: str = ""

    @property
    def passed(self) -> bool:
        """Whether nothing differs beyond its policy. (If nothing was compared, it is not a pass.)"""
        return self.total > 0 and self.different == 0

    def renumbered(self, moved: Callable[[Offender], Offender]) -> Judgement:
        """This comparison with other element numbers: for a piece of a set, the numbers in the whole set."""
        worst, failing = (moved(o) if o else None for o in (self.worst, self.worst_failing))
        return replace(self, offenders=[moved(o) for o in self.offenders], worst=worst, worst_failing=failing)

    def merged(self, other: Judgement) -> Judgement:
        """Both comparisons combined, for a set that is judged in pieces (`needed` exists only for whole kernels)."""
        both = Judgement(
            self.total + other.total, self.different + other.different, self.unchecked + other.unchecked,
            pooled((self.judged, other.judged)),
            dict(self.classes), dict(self.kinds), self.moved + other.moved,
            dict(self.ulps), dict(self.ulps_failing), dict(self.ulps_unchecked), dict(self.ranges),
            (self.offenders + other.offenders)[:KEPT_OFFENDERS],
            _farther(self.worst, other.worst), _farther(self.worst_failing, other.worst_failing),
            _sum(self.failing, other.failing),
            list(dict.fromkeys(self.notes + other.notes)),
        )  # fmt: skip
        causes = {j.cause for j in (self, other) if j.different}
        both.cause = causes.pop() if len(causes) == 1 else ""
        wheres = {j.where for j in (self, other) if j.different}
        both.where = wheres.pop() if len(wheres) == 1 else ""
        add_counts(both.classes, other.classes)
        add_counts(both.kinds, other.kinds)
        add_counts(both.ulps, other.ulps)
        add_counts(both.ulps_failing, other.ulps_failing)
        add_counts(both.ulps_unchecked, other.ulps_unchecked)
        _merge_ranges(both.ranges, other.ranges)
        return both


def judge(case: Case, policy: Policies, inputs: Units, outputs: Units, pack: int = 1) -> Judgement:
    """Compare the outputs of a job with the reference.

    inputs, outputs: storage arrays by name. pack: elements per invocation, to find exchanged places. Raises
    ReferenceFault or DomainError if the case's reference or domain cannot be evaluated.
    """
    input_codes = codes_of(case.inputs, inputs)
    got = codes_of(case.outputs, outputs)
    judgement = Judgement(judged=shares(case, policy, inputs, {n: c.size for n, c in got.items()}))
    differing = _compare_reference(case, policy, inputs, input_codes, got, judgement)
    if any(o.failing.any() for o in differing):
        differing = [_explained(case, policy, input_codes, o, pack, judgement) for o in differing]
    differing = [with_padding(case, o, outputs, inside=_judged_at(case, policy, inputs, o)) for o in differing]
    judgement.notes += filter(None, map(padding_note, differing))
    judgement.notes += [_legal_codes(case, policy, input_codes, o) for o in differing if _is_through(policy, o)]
    if policy.meets is not None:
        differing += _compare_meets(case, policy, inputs, input_codes, got, judgement)
    for output in differing:
        _tally(case, output, input_codes, pack, judgement)
        _count_distances(output, judgement)
    judgement.cause = likely_cause(case, policy, input_codes, differing, answers, pack)
    judgement.where = only_where(case, input_codes, differing)
    judgement.failing = _failing_cells(case, differing, input_codes)
    if case.in_place:
        judgement.needed = _needed(case, policy, inputs, input_codes, got)
        judgement.notes += _unwritten_notes(case, input_codes, differing)
        judgement.cause = judgement.cause or _left_as_they_were(case, input_codes, differing)
    return judgement


def passes(case: Case, policy: Policies, inputs: Units, outputs: Units, pack: int = 1) -> bool:
    """Whether `judge` finds a pass. Raises ReferenceFault or DomainError as `judge` does.

    A search for what makes wrong results right asks this of hundreds of changes. Nearly all of them leave a wrong code,
    of which neither a class nor a cause need be found.
    """
    codes, got = codes_of(case.inputs, inputs), codes_of(case.outputs, outputs)
    if any(output.failing.any() for output in _compared(case, policy, inputs, codes, got)):
        return False
    return judge(case, policy, inputs, outputs, pack).passed


def judge_same(case: Case, inputs: Units, expected: Units, outputs: Units, pack: int = 1) -> Judgement:
    """Require equal bits from two runs of the same variant (the loop and the straight runs)."""
    want, got = codes_of(case.outputs, expected), codes_of(case.outputs, outputs)
    input_codes = codes_of(case.inputs, inputs)
    judgement = Judgement()
    outputs_compared = []
    for name, argument in case.outputs.items():
        fmt, e, g = format_of(argument), want[name].reshape(-1), got[name].reshape(-1)
        difference = classify_differences(fmt, Match(), "payload", e, g)
        output = with_padding(case, Compared(name, fmt, e, g, difference, got[name].shape), outputs, like=expected)
        outputs_compared.append(output)
        _tally(case, output, input_codes, pack, judgement)
    judgement.failing = _failing_cells(case, outputs_compared, input_codes)
    return judgement


def held_exactly(policy: Policies, approximate: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Findings on emulated outputs that depend on approximate instructions under an exact policy.

    Hardware does not promise the bits of approximate instructions, so equal bits on the emulator prove nothing.
    approximate: as in `ptxdiff.jobs.Outcome`.
    """
    found = []
    for name, instructions in approximate.items():
        matches = (policy.match[name], policy.match[name].outside, policy.meets.match if policy.meets else None)
        if any(m is not None and m.through is None and (m.kind == "exact" or m.bound == 0) for m in matches):
            found.append(
                f"approximate, and the policy is exact: {name} may depend on {', '.join(instructions)}; "
                "give match=ulp(N), exact(through=approximate(...)) where an exact step follows the approximate one, "
                "or use an instruction that rounds"
            )
    return tuple(found)


def _needed(
    case: Case, policy: Policies, inputs: Units, codes: Mapping[str, Codes], got: Mapping[str, Codes]
) -> dict[str, tuple[int, int]]:
    """What a kernel that leaves the tensors updated in place alone gets wrong; see `Judgement.needed`.

    What such a kernel does not write holds the input's bits, not poison: only a reference that changes them shows it.
    """
    left = {**got, **{name: codes[name] for name in case.in_place}}
    compared = _compare_reference(case, policy, inputs, codes, left, Judgement())
    if policy.meets is not None:
        compared += _compare_meets(case, policy, inputs, codes, left, Judgement())
    found: dict[str, tuple[int, int]] = {}
    for output in compared:
        name = output.name.removesuffix(CASES_REFERENCE)
        if name in case.in_place:
            found[name] = output.got.size, max(int(output.failing.sum()), found.get(name, (0, 0))[1])
    return found


def _unwritten_notes(case: Case, codes: Mapping[str, Codes], compared: Sequence[Compared]) -> list[str]:
    """A note on each tensor updated in place of which wrong codes hold the input's bits."""
    notes = []
    for output in compared:
        if output.name in case.in_place and output.failing.any():
            left = int((output.got == codes[output.name].reshape(-1))[output.failing].sum())
            wrong = int(output.failing.sum())
            if left:
                notes.append(f"{left} of {wrong} wrong codes of {output.name} are what the input has: never written?")
    return notes


def _left_as_they_were(case: Case, codes: Mapping[str, Codes], compared: Sequence[Compared]) -> str:
    """The cause if every wrong code is one that the tensor had before the launch, 16 or more of them; "" otherwise."""
    wrong = [o for o in compared if o.failing.any()]
    if sum(int(o.failing.sum()) for o in wrong) < _LEAST_LEFT:
        return ""
    for output in wrong:
        if output.name not in case.in_place or (output.got != codes[output.name].reshape(-1))[output.failing].any():
            return ""
    names = " and ".join(output.name for output in wrong)
    return f"all wrong codes of {names} are what the tensor had before: is a store missing?"


def _judged_at(case: Case, policy: Policies, inputs: Units, output: Compared) -> Mask | None:
    """The codes that the policy judges; None for all."""
    match = policy.match[output.name]
    return None if match.on is None or match.outside is not None else _inside(case, match, inputs, output.got.size)()


def _inside(case: Case, match: Match, inputs: Units, size: int) -> Callable[[], Mask]:
    assert match.on is not None
    return functools.partial(holds, match.on, case, inputs, size)


def _compare_reference(
    case: Case, policy: Policies, inputs: Units, codes: Mapping[str, Codes], got: Mapping[str, Codes], into: Judgement
) -> list[Compared]:
    """Compare each element with every accepted answer.

    An element passes if all its outputs match those of one reference.
    """
    best = _compared(case, policy, inputs, codes, got)
    for output in best:
        if output.fmt.is_float:
            add_counts(into.ulps, step_histogram(output.fmt, output.expected, output.got))
            if case.elementwise and case.inputs:
                _merge_ranges(into.ranges, _ranges(case, codes, output))
    return best


def _compared(
    case: Case, policy: Policies, inputs: Units, codes: Mapping[str, Codes], got: Mapping[str, Codes]
) -> list[Compared]:
    _check_through(case, policy, codes)
    found = [
        _compare_one(case, replace(policy, reference=reference), inputs, codes, got)
        for reference in alternatives(policy.reference)
    ]
    return list(functools.reduce(functools.partial(_better, case), found).values())


def _check_through(case: Case, policy: Policies, codes: Mapping[str, Codes]) -> None:
    """Raise ReferenceFault where the reference is not what `through=` makes of the exact intermediate value."""
    names = [n for n, m in policy.match.items() if m.through is not None]
    if not names:
        return
    required = {n for n, word in policy.ftz.items() if word == "required"}
    given = {n: flush(format_of(case.inputs[n]), c) if n in required else c for n, c in codes.items()}
    reference = alternatives(policy.reference)[0]
    expected = answers(case, reference, given)
    readings = [answers(case, r, given) for r in exact_readings(policy.reference)]
    for name in names:
        fmt, want = format_of(case.outputs[name]), expected[name]
        unlike = np.ones(want.shape, dtype=bool)
        for reading in readings:
            if reading[name].shape != want.shape:
                raise ReferenceFault(
                    f"through= of {name} gave codes of shape {reading[name].shape}, and {in_words(reference)} of shape "
                    f"{want.shape}; then= gives one code for each code of the output"
                )
            unlike &= classify_differences(fmt, Match(), "any", want, reading[name]) != Difference.SAME
        if unlike.any():
            at = int(np.flatnonzero(unlike)[0])
            made, wanted = (int(codes_of_output.reshape(-1)[at]) for codes_of_output in (readings[0][name], want))
            raise ReferenceFault(
                f"reference and through= differ for {name}: then= makes {made:#x} of the exact intermediate value"
                f"{_inputs_at(case, given, at // fmt.codes_per_unit)}, where {in_words(reference)} gives {wanted:#x}; "
                "both define the exact result, so correct the one that is wrong"
            )


def _is_through(policy: Policies, output: Compared) -> bool:
    return policy.match[output.name].through is not None and bool(output.failing.any())


def _legal_codes(case: Case, policy: Policies, codes: Mapping[str, Codes], output: Compared) -> str:
    """A note with the codes that `through=` accepts where the first wrong one is."""
    at = int(np.flatnonzero(output.failing)[0])
    legal = dict.fromkeys(int(a[output.name].reshape(-1)[at]) for a in accepted(case, policy, codes, answers))
    shown = " or ".join(bits(output.fmt, code).bits for code in legal)
    return f"{output.name}, code {at}: an intermediate value within its bound gives {shown}"


def _inputs_at(case: Case, codes: Mapping[str, Codes], element: int) -> str:
    """The input codes of one element, as part of a sentence; empty for a whole kernel."""
    if not case.elementwise:
        return ""
    shown = (
        ", ".join(f"{int(c):#x}" for c in codes[n].reshape(-1, format_of(a).codes_per_unit)[element])
        for n, a in case.inputs.items()
    )
    return " for " + ", ".join(f"{n} = {s}" for n, s in zip(case.inputs, shown, strict=True))


def _compare_one(
    case: Case, policy: Policies, inputs: Units, codes: Mapping[str, Codes], got: Mapping[str, Codes]
) -> dict[str, Compared]:
    """Compare each output with every answer that one reference and the ftz policy accept."""
    best: dict[str, Compared] = {}
    for answer in accepted(case, policy, codes, answers):
        for name, argument in case.outputs.items():
            fmt, match = format_of(argument), policy.match[name]
            e, g = _flat(case, policy.reference, name, answer[name], got[name])
            inside = _inside(case, match, inputs, e.size) if match.on else None
            difference = classify_differences(fmt, match, policy.nan, e, g, inside)
            if name not in best:
                best[name] = Compared(name, fmt, e, g, difference, got[name].shape)
            else:
                first = best[name]
                # An allowed flush is no explanation: report the difference from the flushed answer.
                flushed = (difference == Difference.SAME) | (first.difference == Difference.FLUSH)
                merged = np.where(flushed & (first.difference != Difference.SAME), difference, first.difference)
                best[name] = replace(first, difference=merged)
    return best


def _better(case: Case, one: dict[str, Compared], other: dict[str, Compared]) -> dict[str, Compared]:
    """Combine the differences from two references: the other's for elements that it accepts and the first does not.

    In an elementwise case one reference must accept all outputs of an element: outputs from two references are no
    answer of either. Outputs of whole kernels need not correspond, and are compared separately. Agreement comes before
    a difference that is unchecked.
    """
    before, after = _worst_of_elements(case, one), _worst_of_elements(case, other)
    return {
        n: replace(o, difference=np.where(after[n] < before[n], other[n].difference, o.difference))
        for n, o in one.items()
    }


def _worst_of_elements(case: Case, found: dict[str, Compared]) -> dict[str, NDArray[np.int64]]:
    """For each code, over all outputs of its element: 0 if all agree, 1 if some are unchecked, 2 if one fails."""
    ranks = {n: np.minimum(o.difference, Difference.UNCHECKED + 1) for n, o in found.items()}
    if not case.elementwise:
        return ranks
    units = {n: o.fmt.codes_per_unit for n, o in found.items()}
    several = len(set(units.values())) > 1  # codes do not correspond, storage units do
    rows = {n: r.reshape(-1, units[n] if several else 1).max(axis=1) for n, r in ranks.items()}
    whole = np.max(list(rows.values()), axis=0)
    return {n: np.repeat(whole, units[n] if several else 1) for n in ranks}


def _flat(case: Case, reference: Reference, name: str, expected: Codes, got: Codes) -> tuple[Codes, Codes]:
    """Both sides as one-dimensional arrays. Raises ReferenceFault if the reference returned another number of codes."""
    if not case.inputs and expected.size == 1:
        expected = np.broadcast_to(expected.reshape(()), got.shape)  # without inputs, all elements are equal
    if expected.size != got.size:
        per = format_of(case.outputs[name]).codes_per_unit
        raise ReferenceFault(
            f"{in_words(reference)} returned {expected.size} codes of shape "
            f"{expected.shape} for {name}; there are {got.size}"
            + (f", {per} for each storage unit, the last dimension being that much longer" if per > 1 else "")
        )
    return expected.reshape(-1), got.reshape(-1)


def _ranges(case: Case, codes: Mapping[str, Codes], output: Compared) -> dict[str, tuple[int, int]]:
    """The least and greatest signed distance of all finite pairs, by binary exponent of the first input."""
    name, argument = next(iter(case.inputs.items()))
    fmt, first = format_of(argument), codes[name].reshape(-1)
    if not fmt.is_float or first.size != output.expected.size:
        return {}
    finite = is_finite(output.fmt, output.expected) & is_finite(output.fmt, output.got) & is_finite(fmt, first)
    finite &= ~is_zero(fmt, first)
    if not finite.any():
        return {}
    field_of = magnitude(fmt, first[finite]) >> fmt.mantissa_bits
    steps = signed_steps(output.fmt, output.expected[finite], output.got[finite])
    top = 1 << fmt.exponent_bits
    low, high = np.full(top, np.iinfo(np.int64).max), np.full(top, np.iinfo(np.int64).min)
    np.minimum.at(low, field_of, steps)
    np.maximum.at(high, field_of, steps)
    return {
        "sub" if e == 0 else str(e - fmt.bias): (int(low[e]), int(high[e]))
        for e in np.flatnonzero(low <= high).tolist()
    }


def _merge_ranges(into: dict[str, tuple[int, int]], found: Mapping[str, tuple[int, int]]) -> None:
    for name, (low, high) in found.items():
        old = into.get(name, (low, high))
        into[name] = (min(low, old[0]), max(high, old[1]))


def _compare_meets(
    case: Case, policy: Policies, inputs: Units, codes: Mapping[str, Codes], got: Mapping[str, Codes], into: Judgement
) -> list[Compared]:
    """Compare with the case's own reference, on the domain of the variant's `meets=`."""
    assert policy.meets is not None
    promised = replace(policy.meets.match, on=policy.meets.on, outside=None)
    found: list[dict[str, Compared]] = []
    for reference in alternatives(case.reference):
        answer = answers(case, reference, codes)
        found.append({})
        for name, argument in case.outputs.items():
            fmt = format_of(argument)
            e, g = _flat(case, case.reference, name, answer[name], got[name])
            difference = classify_differences(fmt, promised, policy.nan, e, g, _inside(case, promised, inputs, e.size))
            found[-1][name] = Compared(name + CASES_REFERENCE, fmt, e, g, difference, got[name].shape)
    return list(functools.reduce(functools.partial(_better, case), found).values())


def _explained(
    case: Case, policy: Policies, codes: Mapping[str, Codes], output: Compared, pack: int, into: Judgement
) -> Compared:
    """Reclassify differences that a flush or an exchange of places explains."""
    difference = output.difference.copy()
    failing = difference > Difference.UNCHECKED
    if not failing.any():
        return output
    window = pack * output.fmt.codes_per_unit
    exchanged = [] if _in_steps(case, codes, pack) else _exchanged(output, policy, failing, window)
    for here, there, mask in exchanged:
        difference[mask & failing] = Difference.POSITIONAL
        into.notes.append(f"{output.name}: place {here} of a pack holds the result of place {there}")
    if not exchanged and output.fmt.is_float:
        difference[failing & _flush_explains(case, policy, codes, output, failing)] = Difference.FLUSH
    return replace(output, difference=difference)


def _flush_explains(case: Case, policy: Policies, codes: Mapping[str, Codes], output: Compared, failing: Mask) -> Mask:
    """Whether the opposite flush policy gives exactly this result: a `.ftz` is missing or was added."""
    explained = np.zeros(failing.shape, dtype=bool)
    match = policy.match[output.name]
    for answer in flipped(case, policy, codes, answers):
        e = answer[output.name].reshape(-1)
        changed = failing & (e != output.expected)
        same = classify_differences(output.fmt, match, policy.nan, e[changed], output.got[changed]) == 0
        explained[np.flatnonzero(changed)[same]] = True
    return explained


def _in_steps(case: Case, codes: Mapping[str, Codes], pack: int) -> bool:
    """Whether inputs ascend by one: neighbouring results are then so similar that a wrong bit looks like a wrong
    place."""
    if pack < 2 or not case.inputs:
        return False
    flat = [codes[name].reshape(-1) for name in case.inputs]
    return all(c.size > pack and len(np.unique(np.diff(c)[:4096])) <= 2 for c in flat)


def _exchanged(output: Compared, policy: Policies, failing: Mask, window: int) -> list[tuple[int, int, Mask]]:
    """Pairs of places that exchanged their results in every pack, by the match policy, with the affected codes.

    Only if the values vary, because a constant fits any place.
    """
    match = replace(policy.match[output.name], on=None, outside=None)
    size = output.expected.size
    if window < 2 or size < 2 * window:
        return []
    position = np.arange(size) % window
    whole = size - size % window
    found = []
    for here in range(window):
        mask = (position == here) & (np.arange(size) < whole)
        if not (failing & mask).any() or len(np.unique(output.expected[mask])) < 3:
            continue
        got = output.got[mask]
        for there in range(window):
            wanted = output.expected[(position == there) & (np.arange(size) < whole)]
            agree = classify_differences(output.fmt, match, policy.nan, wanted, got) == Difference.SAME
            if there != here and agree.all():
                found.append((here, there, mask))
                break
    return found


def _tally(case: Case, output: Compared, inputs: Mapping[str, Codes], pack: int, into: Judgement) -> None:
    failing = output.failing
    own = "(" not in output.name
    into.total += output.expected.size if own else 0
    into.different += int(failing.sum())
    # Outside the domain of meets= only the variant's own reference applies, which has been checked.
    into.unchecked += int((output.difference == Difference.UNCHECKED).sum()) if own else 0
    kinds, counts = np.unique(output.difference[failing], return_counts=True)
    add_counts(into.classes, {Difference(k).text: int(c) for k, c in zip(kinds, counts, strict=True)})
    add_counts(
        into.kinds, kinds_of(output.fmt, output.expected[failing], output.got[failing], output.difference[failing])
    )
    if not case.elementwise:
        into.moved += moved_codes(output.expected[failing], output.got[failing])
    where = np.flatnonzero(failing)
    for index in where[: max(0, KEPT_OFFENDERS - len(into.offenders))]:
        into.offenders.append(offender_at(case, output, inputs, int(index), pack))
    if output.fmt.is_float:
        _keep_farthest(case, output, inputs, pack, into)
    if own:
        into.compared[output.name] = output


def moved_codes(expected: Codes, got: Codes) -> int:
    """How many wrong codes there are, if they are the expected ones in another order; else 0.

    Fewer than four different codes are in another order too often by chance.
    """
    if len(np.unique(expected)) < 4 or not np.array_equal(np.sort(expected), np.sort(got)):
        return 0
    return int(expected.size)


def _count_distances(output: Compared, into: Judgement) -> None:
    """Count the distances of failing and of unchecked codes, which a chart shows apart from those that pass."""
    if not output.fmt.is_float or output.name not in into.compared:
        return
    unchecked = np.asarray(output.difference == Difference.UNCHECKED)
    for histogram, mask in ((into.ulps_failing, output.failing), (into.ulps_unchecked, unchecked)):
        if mask.any():
            add_counts(histogram, step_histogram(output.fmt, output.expected[mask], output.got[mask]))


def _failing_cells(case: Case, outputs: Sequence[Compared], codes: Mapping[str, Codes]) -> NDArray[np.int64] | None:
    """Inputs with a failing code in any output, by cell of the case's map."""
    axes = axes_of(case)
    if axes is None or not any(o.failing.any() for o in outputs):
        return None
    failing = np.zeros(codes[axes.names[0]].size, dtype=bool)
    for o in outputs:
        failing |= o.failing.reshape(failing.size, -1).any(1)
    return counted(axes, codes, failing)


def _sum(one: NDArray[np.int64] | None, other: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    if one is None or other is None:
        return other if one is None else one
    return np.asarray(one + other)


def _keep_farthest(case: Case, output: Compared, inputs: Mapping[str, Codes], pack: int, into: Judgement) -> None:
    """Record the largest distance of all judged codes (for an approximate instruction's error bound) and of failing
    codes."""

    def beyond(kept: Offender | None, among: Mask) -> Offender | None:
        index = farthest(output, among)
        found = None if index is None else offender_at(case, output, inputs, index, pack)
        return _farther(kept, found)

    into.worst = beyond(into.worst, output.difference != Difference.UNCHECKED)
    into.worst_failing = beyond(into.worst_failing, output.failing)


def _farther(one: Offender | None, other: Offender | None) -> Offender | None:
    return max((o for o in (one, other) if o), key=lambda o: abs(o.ulp or 0), default=None)


def add_counts(into: dict[str, int], counts: Mapping[str, int]) -> None:
    """Add some counts to others, by name."""
    for name, count in counts.items():
        into[name] = into.get(name, 0) + count
