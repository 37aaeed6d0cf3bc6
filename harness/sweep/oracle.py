"""The reference and the judge's rules as one function of the inputs' numbers and the outputs, for fusing on a GPU.

For each row of `ROW` inputs the function gives a few tallies, which are copied to the host. It consists of torch
operations without data-dependent control flow, so that `ptxdiff.sweep.fusion` can make one kernel of it that reads the
outputs and writes the tallies. If no kernel can be made, torch runs the operations one by one, in smaller pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ptxdiff.inputs.generated import Generator
from ptxdiff.judging.differences import Pairs, agreeing, classes, step_bin
from ptxdiff.judging.evaluate import accepted
from ptxdiff.model.arguments import format_of
from ptxdiff.model.case import Case
from ptxdiff.model.match import Domain, FtzPolicy, Match, NanPolicy
from ptxdiff.model.policies import Policies
from ptxdiff.model.variants import Reference, alternatives
from ptxdiff.references.formats import Format, as_codes, is_finite, magnitude, ordinal, sign, to_float64, unpack
from ptxdiff.references.rounding import bit_length
from ptxdiff.sweep.result import ROW, hashed

# ---- Domains, evaluated on the device that holds the inputs ----------------------------------------------------------
#
# A domain's predicate is written for numpy. Here it gets torch tensors that implement numpy's operators and functions
# (`__array_ufunc__`, `__array_function__`), so that it runs on a device.

# numpy's names of functions with another name in torch.
_NAMES = {"invert": "bitwise_not", "conjugate": "conj", "absolute": "abs", "rint": "round", "power": "pow",
          "fabs": "abs", "equal": "eq", "not_equal": "ne", "mod": "remainder"}  # fmt: skip


class OnDevice(np.lib.mixins.NDArrayOperatorsMixin):
    """A tensor that numpy's functions and Python's operators accept as an array."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __bool__(self) -> bool:
        raise TypeError("an array has no truth value; combine conditions with & and |")

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Any:
        name = _NAMES.get(ufunc.__name__, ufunc.__name__)
        function = getattr(torch, name, None)
        if method != "__call__" or options or function is None:
            return NotImplemented
        like = self.tensor
        tensors = [o.tensor if isinstance(o, OnDevice) else _number(o, like) for o in operands]
        return type(self)(function(*tensors))


class InKernel(OnDevice):
    """An `OnDevice` whose functions give numpy's bits wherever they run, a kernel included; others raise TypeError."""

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Any:
        if ufunc.__name__ not in _SAME_BITS:
            raise TypeError(f"{ufunc.__name__} may give other bits on a device than in numpy")
        numbers = [_written(o, self.tensor, first=k == 0) for k, o in enumerate(operands)]
        return InKernel(getattr(torch, _NAMES.get(ufunc.__name__, ufunc.__name__))(*numbers))


# IEEE 754 arithmetic, rounded once, and what does not round.
_SAME_BITS = {
    "add", "subtract", "multiply", "divide", "negative", "absolute", "fabs", "less", "less_equal", "greater",
    "greater_equal", "equal", "not_equal", "bitwise_and", "bitwise_or", "bitwise_xor", "invert", "logical_not",
    "isnan", "isinf", "isfinite", "signbit",
}  # fmt: skip


def _written(value: Any, like: Tensor, *, first: bool) -> Any:
    """An operand for torch: a tensor, or a number, of which torch accepts no first one."""
    if isinstance(value, OnDevice):
        return value.tensor
    number = np.asarray(value).item()
    number = float(number) if isinstance(number, int) and not isinstance(number, bool) else number
    if not isinstance(number, (bool, float)):
        raise TypeError(f"{value!r} is no number")
    kind = torch.bool if isinstance(number, bool) else torch.float64
    return torch.full_like(like, number, dtype=kind) if first or kind == torch.bool else number


def traceable(domain: Domain, names: Iterable[str]) -> bool:
    """Whether `in_kernel` can evaluate a domain of these inputs."""
    try:
        held = in_kernel(domain, {n: torch.zeros(3, dtype=torch.float64) for n in names})
    except Exception:
        return False
    return bool(held.dtype == torch.bool) and held.shape == (3,)


def in_kernel(domain: Domain, values: Mapping[str, Tensor]) -> Tensor:
    """Whether a domain holds, by operations that give numpy's bits in a kernel, too.

    values: float64 tensors of the inputs' values. Raises what the predicate raises; TypeError for other operations.
    """
    result = domain.predicate(MappingProxyType({n: InKernel(v) for n, v in values.items()}))
    if not isinstance(result, InKernel):
        raise TypeError(f"domain {domain.text!r} gave {type(result).__name__}, not an array of booleans")
    return result.tensor


def _number(value: Any, like: Tensor) -> Tensor:
    """A number as a tensor: numpy computes with float64 where torch would with float32."""
    array = np.asarray(value)
    return torch.as_tensor(array.astype(np.float64) if array.dtype.kind == "f" else array, device=like.device)


def float_values(fmt: Format, codes: Tensor) -> Tensor:
    """The values of int64 codes as float64, rounded for integers beyond 2^53."""
    if not fmt.is_float and fmt.code_bits == 64:
        unsigned = codes.double() + (codes < 0) * 2.0**64
        return codes.double() if fmt.has_sign else unsigned
    values: Tensor = to_float64(fmt, codes)
    return values


def holds_on_tensors(domain: Domain, values: Mapping[str, Tensor]) -> Tensor:
    """Whether a domain holds, for float64 tensors of the inputs' values; on the host if its predicate needs numpy."""
    like = next(iter(values.values()))
    try:
        result = domain.predicate(MappingProxyType({n: OnDevice(v) for n, v in values.items()}))
        held = result.tensor if isinstance(result, OnDevice) else None
    except Exception:
        held = None  # the host gives the same result, or raises the predicate's own error
    if held is not None and held.dtype == torch.bool and held.shape == like.shape:
        return held
    host = domain.holds({n: v.cpu().numpy() for n, v in values.items()})
    return torch.from_numpy(np.array(host)).to(like.device)


# ---- Histograms of the signed distances between results and reference ------------------------------------------------
#
# They have the bins of `ptxdiff.judging.differences.step_bin`. A bin is a place in a table of `PLACES` counts, so that
# a kernel can count.


_NEAR = 16  # distances up to here have a bin each
_FAR = 2 * _NEAR + 1  # the place of the first bin of a power of two
_SIGNS = 64  # places from a bin of a positive distance to that of the negative one

PLACES = 256
"""The counts in a table: a power of two."""

DROPPED = PLACES - 1
"""The place of what has no distance; it is not counted."""


def apart_of(a: Tensor, b: Tensor, *, small: bool = False) -> Tensor:
    """a - b for int64 ordinals, saturating; small: there can be no overflow."""
    difference = a - b
    if small:
        return difference
    overflow = ((a ^ b) & (a ^ difference)) < 0
    return torch.where(overflow, torch.where(a < 0, -(2**63) + 1, 2**63 - 1), difference)


def place_of(steps: Tensor) -> Tensor:
    """The place of each int64 distance."""
    size = torch.where(steps < 0, -steps, steps)
    bits = bit_length(torch.where(size > _NEAR, size - 1, 0))
    return torch.where(size > _NEAR, bits + _FAR + (steps < 0).to(torch.int64) * _SIGNS, steps + _NEAR)


def binned(steps: Tensor) -> dict[str, int]:
    """Counts of int64 distances by bin; empty bins are omitted."""
    return by_bin(torch.bincount(place_of(steps), minlength=PLACES).tolist())


def by_bin(counts: Sequence[int]) -> dict[str, int]:
    """A table of counts as a histogram."""
    return {_name(bin_index): count for bin_index, count in enumerate(counts[:DROPPED]) if count}


def _name(place: int) -> str:
    if place < _FAR:
        return step_bin(place - _NEAR)
    sign, bits = divmod(place - _FAR, _SIGNS)
    least = (1 << (bits - 1)) + 1
    return step_bin(-least if sign else least)


# ---- The oracle ------------------------------------------------------------------------------------------------------


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


@dataclass
class Flags:
    """What a comparison of results found.

    flagged: whether a unit does not agree with every policy. first: by output, the first answer of the variant's own
    reference. unchecked: by output of `Oracle.open_outputs`, whether a code outside the domain differs from all
    answers.
    """

    flagged: Tensor = field(init=False)
    first: dict[str, Tensor] = field(default_factory=dict)
    unchecked: dict[str, Tensor] = field(default_factory=dict)


class Oracle:
    """A case's references and policies on tensors of one device."""

    def __init__(self, case: Case, policy: Policies, generator: Generator) -> None:
        self.case, self.policy, self.generator = case, policy, generator
        self.inputs = {n: format_of(a) for n, a in case.inputs.items()}
        self.outputs = {n: format_of(a) for n, a in case.outputs.items()}
        self.domains = self._evaluable()
        self.always_equal = _always_equal(policy.match.values()) and not self.open_outputs
        self.comparisons = [ReferenceCheck(policy, True)]
        if policy.meets is not None:
            promised = dict.fromkeys(case.outputs, replace(policy.meets.match, on=policy.meets.on, outside=None))
            never: dict[str, FtzPolicy] = dict.fromkeys(policy.ftz, "never")
            self.comparisons.append(
                ReferenceCheck(replace(policy, reference=case.reference, match=promised, ftz=never), False)
            )

    def _evaluable(self) -> set[Domain]:
        """The domains that are evaluated with the reference, so that results outside them are not flagged for the bound
        inside.

        The other domains count as everywhere: what they excuse is flagged, and then examined by itself.
        """
        if any(f.codes_per_unit > 1 for f in self.inputs.values()):
            return set()
        several = len(alternatives(self.policy.reference)) > 1  # they need not agree on what is unchecked
        domains = {m.on for m in self.policy.match.values() if m.on is not None and (m.outside or not several)}
        if self.policy.meets is not None:
            domains.add(self.policy.meets.on)
        return {d for d in domains if traceable(d, self.inputs)}

    @property
    def open_outputs(self) -> list[str]:
        """The outputs that the policy leaves unchecked outside an evaluated domain."""
        return [n for n, m in self.policy.match.items() if m.on in self.domains and m.outside is None]

    @property
    def names(self) -> list[str]:
        """The names of the columns of `tally`: flagged, hash, for each of `open_outputs` its unchecked differences, and
        for each float output its finite pairs and distances."""
        distances = ("finite", "low", "high", *map(str, NEAR))
        return [
            "flagged", "hash", *(f"{o}:unchecked" for o in self.open_outputs),
            *(f"{o}:{d}" for o in self.floats for d in distances),
        ]  # fmt: skip

    def codes(self, number: Tensor) -> dict[str, Tensor]:
        """The input codes for inputs' numbers."""
        return {n: unpack(f, self.generator.units(n, number)) for n, f in self.inputs.items()}

    def codes_of_outputs(self, units: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Output codes from storage units."""
        return {n: unpack(f, as_codes(units[n])) for n, f in self.outputs.items()}

    def answers(self, comparison: ReferenceCheck, codes: Codes) -> list[dict[str, Tensor]]:
        """Every accepted answer, in the order of `ptxdiff.judging.evaluate.accepted`."""
        return list(accepted(self.case, comparison.policy, codes, _applied))

    def flags(self, codes: Codes, got: Codes) -> Flags:
        """Compare results with every policy."""
        inside = self._inside(codes)
        own, *others = self.comparisons
        result = Flags()
        result.flagged = ~self._accepted(own, codes, got, inside, result)
        for comparison in others:
            result.flagged = result.flagged | ~self._accepted(comparison, codes, got, inside, result)
        return result

    def _inside(self, codes: Codes) -> dict[Domain, Tensor]:
        """Where each of `domains` holds, by input."""
        if not self.domains:
            return {}
        values = {n: float_values(f, codes[n]) for n, f in self.inputs.items()}
        return {d: in_kernel(d, values) for d in self.domains}

    def _accepted(
        self, comparison: ReferenceCheck, codes: Codes, got: Codes, inside: Mapping[Domain, Tensor], into: Flags
    ) -> Tensor:
        """Which units agree in all outputs with the answers of one reference, inside its domain and outside."""
        found: Tensor | None = None
        for reference in alternatives(comparison.policy.reference):
            alone = replace(comparison, policy=replace(comparison.policy, reference=reference))
            whole: Tensor | None = None
            for name, ok in self._agreeing(alone, self.answers(alone, codes), got, inside, into).items():
                per = self.outputs[name].codes_per_unit
                good = ok.reshape(-1, per).all(-1) if per > 1 else ok
                whole = good if whole is None else whole & good
            assert whole is not None
            found = whole if found is None else found | whole
        assert found is not None
        return found

    def _agreeing(
        self,
        comparison: ReferenceCheck,
        answers: list[dict[str, Tensor]],
        got: Codes,
        inside: Mapping[Domain, Tensor],
        into: Flags,
    ) -> dict[str, Tensor]:
        """By output, where an answer agrees under the policy that applies to the input.

        Without an evaluated domain, where one agrees under the policy and one under the policy outside the domain.
        """
        within: dict[str, Tensor] = {}
        beyond: dict[str, Tensor] = {}
        same: dict[str, Tensor] = {}
        for answer in answers:
            for name, fmt in self.outputs.items():
                match = comparison.match[name]
                if comparison.own:
                    into.first.setdefault(name, answer[name])
                    if name in self.open_outputs:
                        _either(same, name, identical(fmt, match, self.policy.nan, answer[name], got[name]))
                _either(within, name, agrees(fmt, match, self.policy.nan, answer[name], got[name]))
                if match.outside is not None:
                    _either(beyond, name, agrees(fmt, match.outside, self.policy.nan, answer[name], got[name]))
        for name, ok in within.items():
            domain = comparison.match[name].on
            if domain is None or domain not in inside:
                within[name] = ok & beyond[name] if name in beyond else ok
                continue
            holds = _for_codes(inside[domain], self.outputs[name].codes_per_unit)
            within[name] = torch.where(holds, ok, beyond[name]) if name in beyond else ok | ~holds
            if name in same:
                into.unchecked[name] = ~holds & ~same[name]
        return within

    def tally(self, first: Tensor, *units: Tensor) -> Tensor:
        """Tallies of consecutive inputs from number `first` on: int64 [len(names), rows].

        units: the outputs' storage units, a multiple of `ROW` of them.
        """
        flagged, digest, *rest = self.point(numbers(first, units[0]), *units)
        columns = [_rows(flagged).sum(1, dtype=torch.int32), _rows(digest.to(torch.int64)).sum(1)]
        for name in self.open_outputs:
            columns.append(_rows(rest.pop(0), self.outputs[name].codes_per_unit).sum(1, dtype=torch.int32))
        pairs = rest
        for fmt, (keep, steps) in zip(self.floats.values(), zip(pairs[::2], pairs[1::2], strict=True), strict=True):
            per = fmt.codes_per_unit
            columns.append(_rows(keep, per).sum(1, dtype=torch.int32))
            rows = _rows(steps, per)
            columns += [rows.amin(1), rows.amax(1), *((rows == d).sum(1, dtype=torch.int32) for d in NEAR)]
        return torch.stack([c.to(torch.int64) for c in columns])

    def point(self, number: Tensor, *units: Tensor) -> list[Tensor]:
        """The tallied values of each input: whether it is flagged, its hash, for each of `open_outputs` whether the
        code is unchecked and differs, and two values for each float output.

        These are whether the code is unflagged and both it and the reference are finite, and if so the signed distance
        (else 0). number: int64. units: the outputs' storage units.
        """
        raw, compared, got = self._compared(number, units)
        digest: Any = 0
        for k, (name, fmt) in enumerate(self.outputs.items()):
            digest = hashed(raw[name], number, bits=fmt.unit_bits, output=k).to(torch.int64) + digest
        values = [compared.flagged, digest]
        for name in self.open_outputs:
            values.append(compared.unchecked[name] & ~_for_codes(compared.flagged, self.outputs[name].codes_per_unit))
        for name in self.floats:
            values += self._distance(name, compared, got)
        return values

    def places(self, number: Tensor, *units: Tensor) -> list[Tensor]:
        """For each float output the place of every code's distance in a histogram; `DROPPED` for codes without one.

        number: int64. units: the outputs' storage units.
        """
        _, compared, got = self._compared(number, units)
        kept = (self._distance(name, compared, got) for name in self.floats)
        return [torch.where(keep, place_of(steps.to(torch.int64)), DROPPED) for keep, steps in kept]

    def histogram(self, first: Tensor, rows: Tensor, *units: Tensor) -> Tensor:
        """Counts of the distances in some rows: int64 [floats, PLACES].

        first: the number of the first input of row 0. rows: int64. units: the outputs' storage units.
        """
        counts = torch.zeros((len(self.floats), PLACES), dtype=torch.int64, device=first.device)
        for row in rows.tolist():
            part = [u[row * ROW : (row + 1) * ROW] for u in units]
            for k, places in enumerate(self.places(numbers(first + row * ROW, part[0]), *part)):
                counts[k] += torch.bincount(places, minlength=PLACES)
        return counts

    def _compared(self, number: Tensor, units: Sequence[Tensor]) -> tuple[dict[str, Tensor], Flags, dict[str, Tensor]]:
        codes = self.codes(number)
        raw = {n: as_codes(units[k]) for k, n in enumerate(self.outputs)}
        got = self.codes_of_outputs(raw)
        return raw, self.flags(codes, got), got

    @property
    def floats(self) -> dict[str, Format]:
        """The outputs that have distances."""
        return {n: f for n, f in self.outputs.items() if f.is_float}

    def _distance(self, name: str, found: Flags, got: Codes) -> list[Tensor]:
        fmt, match, per = self.outputs[name], self.policy.match[name], self.outputs[name].codes_per_unit
        expected, result, flagged = found.first[name], got[name], found.flagged
        small = fmt.code_bits <= 32
        if small and (self.always_equal or self._one_sign(name, match)):
            expected, result = expected.to(torch.int32), result.to(torch.int32)
        keep = ~_for_codes(flagged, per)
        keep = keep & is_finite(fmt, expected) & is_finite(fmt, result)
        if self.always_equal:
            # Unflagged codes are equal, or zeros of the other sign, so their distance is 0.
            return [keep, keep.to(torch.int32) * 0]
        if small and self._one_sign(name, match):
            apart = magnitude(fmt, result) - magnitude(fmt, expected)
            steps = torch.where(sign(fmt, expected) == 1, -apart, apart)
        else:
            steps = apart_of(ordinal(fmt, result).to(torch.int64), ordinal(fmt, expected).to(torch.int64), small=small)
        return [keep, torch.where(keep, steps, 0)]

    def _one_sign(self, name: str, match: Match) -> bool:
        """Whether all finite pairs that are not flagged have one sign, or are both zero."""
        policies = [m for m in (match, match.outside) if m is not None]
        checked = name not in self.open_outputs
        return checked and all(m.kind in ("exact", "ulp") and not m.underflow and not m.through for m in policies)

    def always_near(self, name: str) -> bool:
        """Whether every distance of a finite pair that is not flagged is in `NEAR`, or 0.

        So it is where one answer is accepted, and the bound, inside a domain and outside, is at most that of `NEAR`.
        """
        match, policy = self.policy.match[name], self.policy
        bounds = [m.bound for m in (match, match.outside) if m is not None]
        single = "allowed" not in policy.ftz.values() and len(alternatives(policy.reference)) == 1
        return single and self._one_sign(name, match) and max(bounds) <= NEAR[-1]

    def mask(self, first: Tensor, *units: Tensor) -> Tensor:
        """Which of consecutive inputs are flagged: bool, one for each."""
        got = self.codes_of_outputs({n: units[k] for k, n in enumerate(self.outputs)})
        return self.flags(self.codes(numbers(first, units[0])), got).flagged


def numbers(first: Tensor, like: Tensor) -> Tensor:
    """The numbers of as many inputs as `like` has elements, from `first` on, computed at their use."""
    return first + torch.arange(like.numel(), dtype=torch.int64, device=like.device)


def _always_equal(matches: Any) -> bool:
    return all(
        m.kind == "exact" and m.through is None and (m.outside is None or m.outside.kind == "exact") for m in matches
    )


def _for_codes(units: Tensor, per: int) -> Tensor:
    """Values of storage units, for each of their codes."""
    return units.unsqueeze(-1).expand(-1, per).reshape(-1) if per > 1 else units


def _rows(values: Tensor, per: int = 1) -> Tensor:
    return values.reshape(-1, ROW * per)


def _either(found: dict[str, Tensor], name: str, ok: Tensor) -> None:
    found[name] = found[name] | ok if name in found else ok


def _applied(case: Case, reference: Reference, codes: Codes, flushing: bool = False) -> dict[str, Tensor]:
    """`ptxdiff.model.reference.apply_reference` on tensors on their device, without its checks."""
    given = [codes[n].clone() for n in case.inputs]  # the reference may change what it is given
    answer = reference(*given, **({"ftz": "results"} if flushing else {}))
    answers = answer if isinstance(answer, (tuple, list)) else (answer,)
    return {name: answers[k] for k, name in enumerate(case.outputs)}


# ---- The judge's rules on torch tensors ------------------------------------------------------------------------------
#
# Which results agree with the reference, and the classes of the others, by `ptxdiff.judging.differences.RULES`. Nothing
# here computes with rationals: a pair that float64 cannot decide counts as a difference, and `doubtful` marks it for
# the plain judge. The plain judge also judges again the flagged results of a sweep, and a sample of the others.


def agrees(fmt: Format, match: Match, nan: NanPolicy, expected: Tensor, got: Tensor) -> Tensor:
    """Whether int64 codes satisfy a policy, without regard to its domain.

    Never true for a pair that the plain judge fails.
    """
    agreeing_codes: Tensor = agreeing(Pairs(fmt, match, nan, expected, got))
    return agreeing_codes


def identical(fmt: Format, match: Match, nan: NanPolicy, expected: Tensor, got: Tensor) -> Tensor:
    """Whether int64 codes need no policy to agree; the others count as unchecked where the policy does not apply."""
    identical_codes: Tensor = Pairs(fmt, match, nan, expected, got).identical
    return identical_codes


def classify(fmt: Format, match: Match, nan: NanPolicy, expected: Tensor, got: Tensor) -> Tensor:
    """The `Difference` of each pair of int64 codes, as uint8, without regard to the domain."""
    difference_classes: Tensor = classes(Pairs(fmt, match, nan, expected, got), torch.where)
    return difference_classes.to(torch.uint8)


def doubtful(fmt: Format, match: Match, expected: Tensor, got: Tensor) -> Tensor:
    """Whether float64 cannot decide an absolute or relative bound, so that the plain judge must."""
    doubtful_codes: Tensor = Pairs(fmt, match, "payload", expected, got).doubt
    return doubtful_codes
