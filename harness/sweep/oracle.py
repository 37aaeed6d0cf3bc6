"""The reference and the judge's rules as one function of the inputs' numbers and the outputs, for fusing on a GPU.

For each row of `ROW` inputs the function gives a few tallies, which are copied to the host. It consists of torch
operations without data-dependent control flow, so that `harness.sweep.fused` can make one kernel of it that reads the
outputs and writes the tallies. If no kernel can be made, torch runs the operations one by one, in smaller pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from harness.inputs.generated import Generator
from harness.judging.evaluate import accepted
from harness.model.arguments import format_of
from harness.model.case import Case
from harness.model.match import FtzPolicy, Match
from harness.model.policies import Policies
from harness.model.variants import Reference, alternatives
from harness.sweep.agree import agrees
from harness.sweep.result import ROW, hashed
from references.formats import Format, as_codes, is_finite, magnitude, ordinal, sign, unpack

NEAR = (-2, -1, 1, 2)
"""Signed distances with their own counts in the fused function; rows with other distances are examined again."""

Codes = Mapping[str, Tensor]


@dataclass(frozen=True)
class ReferenceCheck:
    """One reference that results must meet.

    policy: the policies with this reference and its matches. own: whether it is the variant's own reference.
    """

    policy: Policies
    own: bool

    @property
    def match(self) -> Mapping[str, Match]:
        """The match policy of each output."""
        return self.policy.match


class Oracle:
    """A case's references and policies on tensors of one device."""

    def __init__(self, case: Case, policy: Policies, generator: Generator) -> None:
        self.case, self.policy, self.generator = case, policy, generator
        self.inputs = {n: format_of(a) for n, a in case.inputs.items()}
        self.outputs = {n: format_of(a) for n, a in case.outputs.items()}
        self.always_equal = _always_equal(policy.match.values())
        self.comparisons = [ReferenceCheck(policy, True)]
        if policy.meets is not None:
            promised = dict.fromkeys(case.outputs, policy.meets.match)
            never: dict[str, FtzPolicy] = dict.fromkeys(policy.ftz, "never")
            self.comparisons.append(
                ReferenceCheck(replace(policy, reference=case.reference, match=promised, ftz=never), False)
            )

    @property
    def names(self) -> list[str]:
        """The names of the columns of `tally`: flagged, hash, and for each float output its finite pairs and
        distances."""
        distances = ("finite", "low", "high", *map(str, NEAR))
        return ["flagged", "hash", *(f"{o}:{d}" for o, f in self.outputs.items() if f.is_float for d in distances)]

    def codes(self, number: Tensor) -> dict[str, Tensor]:
        """The input codes for inputs' numbers."""
        return {n: unpack(f, self.generator.units(n, number)) for n, f in self.inputs.items()}

    def codes_of_outputs(self, units: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Output codes from storage units."""
        return {n: unpack(f, as_codes(units[n])) for n, f in self.outputs.items()}

    def answers(self, comparison: ReferenceCheck, codes: Codes) -> list[dict[str, Tensor]]:
        """Every accepted answer, in the order of `harness.judging.evaluate.accepted`."""
        return list(accepted(self.case, comparison.policy, codes, _applied))

    def flags(self, codes: Codes, got: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """Which units are flagged because they do not agree with every policy; and the first answer of the variant's
        own reference."""
        flagged: Tensor | None = None
        first: dict[str, Tensor] = {}
        for comparison in self.comparisons:
            refused = ~self._accepted(comparison, codes, got, first)
            flagged = refused if flagged is None else flagged | refused
        assert flagged is not None
        return flagged, first

    def _accepted(self, comparison: ReferenceCheck, codes: Codes, got: Codes, first: dict[str, Tensor]) -> Tensor:
        """Which units agree in all outputs with the answers of one reference, inside its domain and outside."""
        found: Tensor | None = None
        for reference in alternatives(comparison.policy.reference):
            alone = replace(comparison, policy=replace(comparison.policy, reference=reference))
            whole: Tensor | None = None
            for name, ok in self._agreeing(alone, self.answers(alone, codes), got, first).items():
                per = self.outputs[name].codes_per_unit
                good = ok.reshape(-1, per).all(-1) if per > 1 else ok
                whole = good if whole is None else whole & good
            assert whole is not None
            found = whole if found is None else found | whole
        assert found is not None
        return found

    def _agreeing(
        self, comparison: ReferenceCheck, answers: list[dict[str, Tensor]], got: Codes, first: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """By output, where an answer agrees under the policy, and where one agrees under the policy outside its
        domain."""
        inside: dict[str, Tensor] = {}
        outside: dict[str, Tensor] = {}
        for answer in answers:
            for name, fmt in self.outputs.items():
                match = comparison.match[name]
                if comparison.own:
                    first.setdefault(name, answer[name])
                _either(inside, name, agrees(fmt, match, self.policy.nan, answer[name], got[name]))
                if match.outside is not None:
                    _either(outside, name, agrees(fmt, match.outside, self.policy.nan, answer[name], got[name]))
        return {n: ok & outside[n] if n in outside else ok for n, ok in inside.items()}

    def tally(self, first: Tensor, *units: Tensor) -> Tensor:
        """Tallies of consecutive inputs from number `first` on: int64 [len(names), rows].

        units: the outputs' storage units, a multiple of `ROW` of them.
        """
        flagged, digest, *pairs = self.point(numbers(first, units[0]), *units)
        columns = [_rows(flagged).sum(1, dtype=torch.int32), _rows(digest.to(torch.int64)).sum(1)]
        for fmt, (keep, steps) in zip(self.floats.values(), zip(pairs[::2], pairs[1::2], strict=True), strict=True):
            per = fmt.codes_per_unit
            columns.append(_rows(keep, per).sum(1, dtype=torch.int32))
            rows = _rows(steps, per)
            columns += [rows.amin(1), rows.amax(1), *((rows == d).sum(1, dtype=torch.int32) for d in NEAR)]
        return torch.stack([c.to(torch.int64) for c in columns])

    def point(self, number: Tensor, *units: Tensor) -> list[Tensor]:
        """The tallied values of each input: whether it is flagged, its hash, and two more for each float output.

        These are whether the code is unflagged and both it and the reference are finite, and if so the signed distance
        (int32, else 0). number: int64. units: the outputs' storage units.
        """
        codes = self.codes(number)
        raw = {n: as_codes(units[k]) for k, n in enumerate(self.outputs)}
        got = self.codes_of_outputs(raw)
        flagged, expected = self.flags(codes, got)
        digest: Any = 0
        for k, (name, fmt) in enumerate(self.outputs.items()):
            digest = hashed(raw[name], number, bits=fmt.unit_bits, output=k).to(torch.int64) + digest
        found = [flagged, digest]
        for name, fmt in self.floats.items():
            found += self._distance(fmt, self.policy.match[name], expected[name], got[name], flagged)
        return found

    @property
    def floats(self) -> dict[str, Format]:
        """The outputs that have distances."""
        return {n: f for n, f in self.outputs.items() if f.is_float}

    def _distance(self, fmt: Format, match: Match, expected: Tensor, got: Tensor, flagged: Tensor) -> list[Tensor]:
        per = fmt.codes_per_unit
        if fmt.code_bits <= 32:
            expected, got = expected.to(torch.int32), got.to(torch.int32)
        keep = ~(flagged.repeat_interleave(per) if per > 1 else flagged)
        keep = keep & is_finite(fmt, expected) & is_finite(fmt, got)
        if self.always_equal:
            # Unflagged codes are equal, or zeros of the other sign, so their distance is 0.
            return [keep, keep.to(torch.int32) * 0]
        if fmt.code_bits <= 32 and _one_sign(match):
            apart = magnitude(fmt, got) - magnitude(fmt, expected)
            steps = torch.where(sign(fmt, expected) == 1, -apart, apart)
        else:
            # Agreeing finite codes are less than 2^31 apart, unless an absolute bound spans many binades.
            wide = ordinal(fmt, got).to(torch.int64) - ordinal(fmt, expected).to(torch.int64)
            steps = wide.clamp(-_FAR, _FAR).to(torch.int32)
        return [keep, torch.where(keep, steps, 0)]

    def mask(self, first: Tensor, *units: Tensor) -> Tensor:
        """Which of consecutive inputs are flagged: bool, one for each."""
        got = self.codes_of_outputs({n: units[k] for k, n in enumerate(self.outputs)})
        return self.flags(self.codes(numbers(first, units[0])), got)[0]


def numbers(first: Tensor, like: Tensor) -> Tensor:
    """The numbers of as many inputs as `like` has elements, from `first` on, computed at their use."""
    return first + torch.arange(like.numel(), dtype=torch.int64, device=like.device)


_FAR = (1 << 31) - 1


def _always_equal(matches: Any) -> bool:
    return all(m.kind == "exact" and (m.outside is None or m.outside.kind == "exact") for m in matches)


def _one_sign(match: Match) -> bool:
    """Whether all finite pairs that agree have one sign, or are both zero."""
    policies = [m for m in (match, match.outside) if m is not None]
    return all(m.kind in ("exact", "ulp") and not m.underflow for m in policies)


def _rows(values: Tensor, per: int = 1) -> Tensor:
    return values.reshape(-1, ROW * per)


def _either(found: dict[str, Tensor], name: str, ok: Tensor) -> None:
    found[name] = found[name] | ok if name in found else ok


def _applied(case: Case, reference: Reference, codes: Codes, flushing: bool = False) -> dict[str, Tensor]:
    """`harness.model.reference.apply_reference` on tensors on their device, without its checks."""
    given = [codes[n].clone() for n in case.inputs]  # the reference may change what it is given
    answer = reference(*given, **({"ftz": "results"} if flushing else {}))
    answers = answer if isinstance(answer, (tuple, list)) else (answer,)
    return {name: answers[k] for k, name in enumerate(case.outputs)}
