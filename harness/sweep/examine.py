"""Examine single inputs of a sweep: classify flagged results, and judge some of them with the plain judge.

It runs eagerly, on the device that holds the outputs, on at most `ptxdiff.sweep.device.PIECE` inputs at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ptxdiff.judging.differences import Difference
from ptxdiff.judging.failing_map import axes_of
from ptxdiff.judging.judge import Judgement, add_counts, judge
from ptxdiff.judging.judged_share import shares
from ptxdiff.judging.offenders import judged_padding
from ptxdiff.model.arguments import format_of
from ptxdiff.model.case import Case
from ptxdiff.model.match import Domain
from ptxdiff.model.policies import Policies
from ptxdiff.model.variants import alternatives
from ptxdiff.records import Offender, Share
from ptxdiff.references.formats import Format, as_codes, is_finite, is_nan, ordinal, unpack
from ptxdiff.sweep.oracle import (
    Oracle,
    ReferenceCheck,
    apart_of,
    binned,
    classify,
    doubtful,
    float_values,
    holds_on_tensors,
    identical,
)
from ptxdiff.sweep.result import ROW

_UNCHECKED = int(Difference.UNCHECKED)


@dataclass
class Details:
    """The findings about examined inputs. different, unchecked: codes. failing: numbers of inputs, ascending.

    doubt: inputs on which float64 cannot decide a bound; there only the plain judge decides.
    """

    different: int = 0
    unchecked: int = 0
    classes: dict[str, int] = field(default_factory=dict)
    ulps: dict[str, int] = field(default_factory=dict)
    ulps_failing: dict[str, int] = field(default_factory=dict)
    ulps_unchecked: dict[str, int] = field(default_factory=dict)
    failing: Tensor | None = None
    doubt: Tensor | None = None
    farthest: tuple[int, int] = (0, -1)  # greatest distance of a finite pair, and the input's number

    def take_up(self, other: Details) -> None:
        """Add the findings about other inputs, with their numbers."""
        self.different += other.different
        self.unchecked += other.unchecked
        add_counts(self.classes, other.classes)
        add_counts(self.ulps, other.ulps)
        add_counts(self.ulps_failing, other.ulps_failing)
        add_counts(self.ulps_unchecked, other.ulps_unchecked)
        if other.farthest[0] > self.farthest[0]:
            self.farthest = other.farthest


class Examiner:
    """Examines given inputs and their outputs, with domains and classes, like `ptxdiff.judging.judge`."""

    def __init__(self, oracle: Oracle, first: int, rows: int, device: str) -> None:
        self.oracle = oracle
        self.case, self.policy = oracle.case, oracle.policy
        self._first = first
        self.axes = axes_of(self.case)
        self._failing: Tensor | None = None
        self._low, self._high = (torch.zeros(rows, dtype=torch.int64, device=device) for _ in range(2))

    def extremes(self) -> tuple[Any, Any]:
        """The least and greatest signed distance of all examined results, by row of inputs; numpy."""
        return self._low.cpu().numpy(), self._high.cpu().numpy()

    def map_failing(self, number: Tensor) -> None:
        """Count failing inputs in the cells of the case's map, if it has one; every input once."""
        if self.axes is not None and number.numel():
            rows, columns = self.axes.shape
            counts = torch.bincount(self.axes.cells(self.oracle.codes(number)), minlength=rows * columns)
            self._failing = counts if self._failing is None else self._failing + counts

    def failing_cells(self) -> Any:
        """Failing inputs by cell of `ptxdiff.judging.failing_map`, numpy; None if the case has no map."""
        return (
            None if self._failing is None or self.axes is None else self._failing.cpu().numpy().reshape(self.axes.shape)
        )

    def look(self, number: Tensor, units: Mapping[str, Tensor]) -> Details:
        """Examine inputs. number: their numbers, int64. units: their output storage units, by name."""
        oracle = self.oracle
        codes = oracle.codes(number)
        got = {n: unpack(f, as_codes(units[n])) for n, f in oracle.outputs.items()}
        details = Details()
        bad = torch.zeros_like(number, dtype=torch.bool)
        doubt = torch.zeros_like(bad)
        own: dict[str, Tensor] = {}
        for comparison in oracle.comparisons:
            best, unsure = self._differences(comparison, codes, got)
            own = own or best
            for name, difference in best.items():
                _count(difference, details)
                bad |= _by_unit(difference > _UNCHECKED, oracle.outputs[name])
                doubt |= _by_unit(unsure[name], oracle.outputs[name])
        details.failing, details.doubt = number[bad], number[doubt]
        self._distances(number, codes, got, own, details)
        return details

    def _differences(
        self, comparison: ReferenceCheck, codes: Mapping[str, Tensor], got: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """By output the `Difference` of each code, and where it is in doubt; one reference accepts all of a unit."""
        best: dict[str, Tensor] = {}
        unsure: dict[str, Tensor] = {}
        least: Tensor | None = None
        for reference in alternatives(comparison.policy.reference):
            alone = replace(comparison, policy=replace(comparison.policy, reference=reference))
            alone_differences, doubt = self._of_one_reference(alone, codes, got)
            for name, mask in doubt.items():
                unsure[name] = unsure[name] | mask if name in unsure else mask
            rank = torch.stack([_rank(d, self.oracle.outputs[n]) for n, d in alone_differences.items()]).amax(0)
            if least is None:
                best, least = alone_differences, rank
                continue
            for name, difference in alone_differences.items():
                better = (rank < least).repeat_interleave(self.oracle.outputs[name].codes_per_unit)
                best[name] = torch.where(better, difference, best[name])
            least = torch.minimum(rank, least)
        return best, unsure

    def _of_one_reference(
        self, comparison: ReferenceCheck, codes: Mapping[str, Tensor], got: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        best: dict[str, Tensor] = {}
        unsure: dict[str, Tensor] = {}
        for answer in self.oracle.answers(comparison, codes):
            for name in self.oracle.outputs:
                difference, doubt = self._classes(comparison, name, codes, answer[name], got[name])
                if name in best:
                    difference = torch.where(difference == 0, 0, best[name])
                best[name] = difference
                unsure[name] = unsure[name] | doubt if name in unsure else doubt
        return best, unsure

    def _classes(
        self, comparison: ReferenceCheck, name: str, codes: Mapping[str, Tensor], expected: Tensor, got: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The `Difference` of each code under the policy that applies to its input, and where that is in doubt."""
        fmt, match, nan = self.oracle.outputs[name], comparison.match[name], self.policy.nan
        inside_classes = classify(fmt, match, nan, expected, got), doubtful(fmt, match, expected, got)
        if match.on is None:
            return inside_classes
        inside = self._holds(match.on, codes).repeat_interleave(fmt.codes_per_unit)
        if match.outside is not None:
            beyond = classify(fmt, match.outside, nan, expected, got), doubtful(fmt, match.outside, expected, got)
        else:
            # Outside the domain of `meets` only the variant's own reference applies, which has been checked.
            unchecked = ~identical(fmt, match, nan, expected, got) if comparison.own else torch.zeros_like(inside)
            beyond = unchecked.to(torch.uint8) * _UNCHECKED, torch.zeros_like(inside)
        return torch.where(inside, inside_classes[0], beyond[0]), torch.where(inside, inside_classes[1], beyond[1])

    def _holds(self, domain: Domain, codes: Mapping[str, Tensor]) -> Tensor:
        values = {n: float_values(f, codes[n]) for n, f in self.oracle.inputs.items()}
        return holds_on_tensors(domain, values)

    def _distances(
        self,
        number: Tensor,
        codes: Mapping[str, Tensor],
        got: Mapping[str, Tensor],
        differences: Mapping[str, Tensor],
        details: Details,
    ) -> None:
        """Count distances. differences: by output, the `Difference` of each code from the variant's own reference."""
        expected = self.oracle.answers(self.oracle.comparisons[0], codes)[0]
        for name, fmt in self.oracle.outputs.items():
            if not fmt.is_float:
                continue
            finite = is_finite(fmt, expected[name]) & is_finite(fmt, got[name]) & ~is_nan(fmt, got[name])
            steps = apart_of(ordinal(fmt, got[name]), ordinal(fmt, expected[name]))[finite]
            if not steps.numel():
                continue
            owners = number.repeat_interleave(fmt.codes_per_unit)[finite]
            rows = (owners - self._first) // ROW
            self._low.scatter_reduce_(0, rows, steps, "amin")
            self._high.scatter_reduce_(0, rows, steps, "amax")
            add_counts(details.ulps, binned(steps))
            kinds = differences[name][finite]
            add_counts(details.ulps_failing, binned(steps[kinds > _UNCHECKED]))
            add_counts(details.ulps_unchecked, binned(steps[kinds == _UNCHECKED]))
            size, index = steps.abs().max(0)
            if int(size) > details.farthest[0]:
                details.farthest = (int(size), int(owners[index]))


def _count(difference: Tensor, details: Details) -> None:
    """Add the classes of one output's codes. difference: `Difference` by code."""
    counts = torch.bincount(difference.long(), minlength=len(Difference)).tolist()
    details.unchecked += counts[_UNCHECKED]
    failing = {kind.text: counts[kind] for kind in list(Difference)[_UNCHECKED + 1 :] if counts[kind]}
    details.different += sum(failing.values())
    add_counts(details.classes, failing)


def _rank(difference: Tensor, fmt: Format) -> Tensor:
    """For each storage unit 0 if all its codes agree, 1 if some are unchecked, 2 if one fails."""
    return difference.clamp(max=_UNCHECKED + 1).reshape(-1, fmt.codes_per_unit).amax(1)


def _by_unit(codes: Tensor, fmt: Format) -> Tensor:
    return codes.reshape(-1, fmt.codes_per_unit).any(-1) if fmt.codes_per_unit > 1 else codes


def judged_plainly(
    case: Case, policy: Policies, oracle: Oracle, number: Any, units: Mapping[str, Any], pack: int
) -> Judgement:
    """Judge some inputs with the plain judge, made on the host from their numbers; offenders get these numbers.

    number, units: numpy; whole packs in order, so that exchanged places can be detected. Bits above codes are cleared:
    the sweep judges those of every chunk.
    """
    units = {n: u & ~u.dtype.type(signed(judged_padding(case).get(n, 0), 8 * u.itemsize)) for n, u in units.items()}
    inputs = {n: oracle.generator.units(n, number).astype(f.numpy_dtype()) for n, f in oracle.inputs.items()}
    outputs = {n: units[n].view(format_of(a).numpy_dtype()) for n, a in case.outputs.items()}
    return judge(case, policy, inputs, outputs, pack).renumbered(lambda o: _renumbered(case, o, number))


def signed(mask: int, width: int) -> int:
    """The bits of a mask as a signed integer of that width, the type of units on a device."""
    return mask - (1 << width) if mask >> (width - 1) else mask


def shares_of_sample(case: Case, policy: Policies, oracle: Oracle, number: Any) -> dict[str, Share]:
    """How many codes the policies judge on the inputs with some numbers, whatever their results."""
    inputs = {n: oracle.generator.units(n, number).astype(f.numpy_dtype()) for n, f in oracle.inputs.items()}
    return shares(case, policy, inputs, {n: number.size * f.codes_per_unit for n, f in oracle.outputs.items()})


def _renumbered(case: Case, offender: Offender, number: Any) -> Offender:
    per = format_of(case.outputs[offender.output.partition(" ")[0]]).codes_per_unit
    element, slot = divmod(offender.index, per)
    return replace(offender, index=int(number[element]) * per + slot)


def whole_packs(number: Any, pack: int) -> Any:
    """The numbers of all inputs in the packs of the given ones; numpy."""
    starts = np.unique(number // pack) * pack
    return (starts[:, None] + np.arange(pack)).reshape(-1)
