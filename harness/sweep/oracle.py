"""The reference and the judge's rules as one function of the inputs' numbers and the outputs: what is fused on a GPU.

For each row of `ROW` inputs the function gives tallies, few enough to send home. It is built from torch operations
without data-dependent control flow, so that `torch.compile` makes one kernel of it that reads the outputs and writes
the tallies; without a compiler it runs as it stands, in smaller pieces.
"""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness.case import Case, Policies, Reference, format_of
from harness.inputs.generated import Generator
from harness.match import Match
from harness.sweep.agree import agrees
from harness.sweep.result import ROW, hashed
from references.formats import Format, as_codes, is_finite, is_subnormal, ordinal, unpack

NEAR = (-2, -1, 1, 2)
"""Signed distances that are counted one by one in the fused function; rows with others are looked at again."""

Codes = Mapping[str, Tensor]


@dataclass(frozen=True)
class Comparison:
    """One reference that results are held to. match: by output, without domains. own: the variant's own reference."""

    reference: Reference
    match: Mapping[str, Match]
    own: bool


class Oracle:
    """A case's references and policies on tensors of one device."""

    def __init__(self, case: Case, policy: Policies, generator: Generator) -> None:
        self.case, self.policy, self.generator = case, policy, generator
        self.inputs = {n: format_of(a) for n, a in case.inputs.items()}
        self.outputs = {n: format_of(a) for n, a in case.outputs.items()}
        self.comparisons = [Comparison(policy.reference, policy.match, own=True)]
        if policy.meets is not None:
            promised = dict.fromkeys(case.outputs, policy.meets.match)
            self.comparisons.append(Comparison(case.reference, promised, own=False))

    @property
    def names(self) -> list[str]:
        """What the columns of `tally` are: flagged, hash, and for each float output its finite pairs and distances."""
        distances = ("finite", "low", "high", *map(str, NEAR))
        return ["flagged", "hash", *(f"{o}:{d}" for o, f in self.outputs.items() if f.is_float for d in distances)]

    def codes(self, number: Tensor) -> dict[str, Tensor]:
        """The input codes behind inputs' numbers."""
        return {n: unpack(f, self.generator.units(n, number)) for n, f in self.inputs.items()}

    def codes_of_outputs(self, units: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Output codes from storage units."""
        return {n: unpack(f, as_codes(units[n])) for n, f in self.outputs.items()}

    def answers(self, comparison: Comparison, codes: Codes) -> Iterator[dict[str, Tensor]]:
        """Every accepted answer, as `harness.evaluate.accepted` orders them."""
        if not comparison.own:
            yield self._apply(comparison.reference, codes)
            return
        ftz = self.policy.ftz
        required = {n for n, word in ftz.items() if word == "required"}
        open_inputs = {n for n in self.inputs if ftz[n] == "allowed"}
        open_outputs = {n for n in self.outputs if ftz[n] == "allowed"}
        for more in (set(), open_inputs)[: 1 + bool(open_inputs)]:
            flushed = {n: flush(self.inputs[n], c) if n in required | more else c for n, c in codes.items()}
            answer = self._apply(comparison.reference, flushed)
            answer = {n: flush(self.outputs[n], c) if n in required else c for n, c in answer.items()}
            yield answer
            if open_outputs:
                yield {n: flush(self.outputs[n], c) if n in open_outputs else c for n, c in answer.items()}

    def _apply(self, reference: Reference, codes: Codes) -> dict[str, Tensor]:
        answer = reference(*codes.values())
        answers = answer if isinstance(answer, tuple | list) else (answer,)
        return dict(zip(self.outputs, answers, strict=True))

    def flags(self, codes: Codes, got: Codes) -> tuple[Tensor, dict[str, Tensor]]:
        """Which units do not agree with every policy whatever the domains say; and the first own answer."""
        flagged: Tensor | None = None
        first: dict[str, Tensor] = {}
        for comparison in self.comparisons:
            for name, codes_ok in self._agreeing(comparison, codes, got, first).items():
                bad = ~codes_ok
                per = self.outputs[name].codes_per_unit
                bad = bad.reshape(-1, per).any(-1) if per > 1 else bad
                flagged = bad if flagged is None else flagged | bad
        assert flagged is not None
        return flagged, first

    def _agreeing(
        self, comparison: Comparison, codes: Codes, got: Codes, first: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """By output, where some accepted answer agrees under the policy, and under the one outside its domain."""
        inside: dict[str, Tensor] = {}
        outside: dict[str, Tensor] = {}
        for answer in self.answers(comparison, codes):
            for name, fmt in self.outputs.items():
                match = comparison.match[name]
                if comparison.own:
                    first.setdefault(name, answer[name])
                _either(inside, name, agrees(fmt, match, self.policy.nan, answer[name], got[name]))
                if match.outside is not None:
                    _either(outside, name, agrees(fmt, match.outside, self.policy.nan, answer[name], got[name]))
        return {n: ok & outside[n] if n in outside else ok for n, ok in inside.items()}

    def tally(self, first: Tensor, ramp: Tensor, *units: Tensor) -> Tensor:
        """Tallies of consecutive inputs from number `first` on: int64 [len(names), rows].

        ramp: arange over the inputs, whose number is a multiple of `ROW`. units: the outputs' storage units.
        """
        number = first + ramp
        codes = self.codes(number)
        raw = {n: as_codes(u) for n, u in zip(self.outputs, units, strict=True)}
        got = {n: unpack(f, raw[n]) for n, f in self.outputs.items()}
        flagged, expected = self.flags(codes, got)
        columns = [_rows(flagged).sum(1, dtype=torch.int32)]
        digests = [hashed(raw[n], number, bits=f.unit_bits, output=k) for k, (n, f) in enumerate(self.outputs.items())]
        columns.append(_rows(functools.reduce(torch.add, [d.to(torch.int64) for d in digests])).sum(1))
        for name, fmt in self.outputs.items():
            if fmt.is_float:
                columns += self._distances(fmt, expected[name], got[name], flagged)
        return torch.stack([c.to(torch.int64) for c in columns])

    def _distances(self, fmt: Format, expected: Tensor, got: Tensor, flagged: Tensor) -> Iterator[Tensor]:
        """Of the codes not flagged: finite pairs, the extremes of their signed distance, and how many are near."""
        per = fmt.codes_per_unit
        keep = ~(flagged.repeat_interleave(per) if per > 1 else flagged)
        keep = keep & is_finite(fmt, expected) & is_finite(fmt, got)
        yield _rows(keep, per).sum(1, dtype=torch.int32)
        if _always_equal(self.policy.match.values()):
            # What is not flagged is equal, or a zero of the other sign: at distance 0.
            yield from itertools.repeat(_rows(keep, per)[:, 0] * 0, 2 + len(NEAR))
            return
        # Agreeing finite codes are less than 2^31 apart, but where an absolute bound spans many binades.
        steps = (ordinal(fmt, got) - ordinal(fmt, expected)).clamp(-_FAR, _FAR).to(torch.int32)
        steps = _rows(torch.where(keep, steps, 0), per)
        yield steps.amin(1)
        yield steps.amax(1)
        for distance in NEAR:
            yield (steps == distance).sum(1, dtype=torch.int32)

    def mask(self, first: Tensor, ramp: Tensor, *units: Tensor) -> Tensor:
        """Which of consecutive inputs are flagged: bool, one for each."""
        got = {n: unpack(f, as_codes(u)) for (n, f), u in zip(self.outputs.items(), units, strict=True)}
        return self.flags(self.codes(first + ramp), got)[0]


_FAR = (1 << 31) - 1


def _always_equal(matches: Any) -> bool:
    return all(m.kind == "exact" and (m.outside is None or m.outside.kind == "exact") for m in matches)


def _rows(values: Tensor, per: int = 1) -> Tensor:
    return values.reshape(-1, ROW * per)


def _either(found: dict[str, Tensor], name: str, ok: Tensor) -> None:
    found[name] = found[name] | ok if name in found else ok


def flush(fmt: Format, codes: Tensor) -> Tensor:
    """Subnormals replaced by the zero of their sign; formats without subnormals unchanged."""
    if not fmt.is_float or not fmt.has_zero:
        return codes
    top = -(1 << 63) if fmt.sign_shift == 63 else 1 << fmt.sign_shift
    return torch.where(is_subnormal(fmt, codes), codes & top if fmt.has_sign else codes * 0, codes)


def fused(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`function` through torch.compile, as one graph.

    Under a code object of its own: torch keeps what it compiled by code object, and only a few forms of each.
    """
    plain = function.__func__ if isinstance(function, types.MethodType) else function
    assert isinstance(plain, types.FunctionType)
    code = plain.__code__.replace(co_name=f"{plain.__name__}_{next(_numbers)}")
    copy = types.FunctionType(code, plain.__globals__, code.co_name, plain.__defaults__, plain.__closure__)
    bound = types.MethodType(copy, function.__self__) if isinstance(function, types.MethodType) else copy
    compiled: Callable[..., Tensor] = torch.compile(bound, fullgraph=True, dynamic=False)
    return compiled


_numbers = itertools.count()
