"""The policies of a variant: its own, or its case's if it states none."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ptxdiff.model.arguments import flushes
from ptxdiff.model.match import FTZ_POLICIES, NAN_POLICIES, Approximate, FtzPolicy, Match, NanPolicy, exact
from ptxdiff.model.targets import ALL, TargetSet, normal, target_set
from ptxdiff.model.variants import CaseError, Differs, FtzPolicies, Meets, Reference, Variant, alternatives
from ptxdiff.references.formats import Format, is_infinity, is_nan, is_subnormal, magnitude, to_float64

if TYPE_CHECKING:
    from ptxdiff.model.case import CaseDeclaration


@dataclass(frozen=True)
class Policies:
    """The effective policies of one variant, including its case's.

    reference: for outputs that are exact through an approximate step, with an alternative for each intermediate value.
    """

    reference: Reference
    match: Mapping[str, Match]
    ftz: Mapping[str, FtzPolicy]
    nan: NanPolicy
    targets: TargetSet
    refused: TargetSet
    carry: Mapping[str, str]
    meets: Meets | None

    def describe_match(self) -> str:
        """The match policies in one phrase."""
        texts = {name: m.describe() for name, m in self.match.items()}
        same = set(texts.values())
        return same.pop() if len(same) == 1 else "; ".join(f"{n}: {t}" for n, t in texts.items())


def differs_on(variant: Variant, target: str) -> str:
    """The declared reason why a variant gives other bits on a target; "" if none is declared."""
    declared = _declared(variant, target)
    return declared if isinstance(declared, str) else ""


def variant_on(variant: Variant, target: str) -> Variant:
    """The variant for judging on a target: with the reference from `differs=`, if any. Equal arguments give the same
    object.

    A variant with another reference is another variant, so no cache of a variant's results needs the target in its key.
    """
    declared = _declared(variant, target)
    if isinstance(declared, str):
        return variant
    key = (id(variant), target)
    if key not in _on_target:
        _on_target[key] = (variant, replace(variant, reference=declared.reference, meets=None, differs=None))
    return _on_target[key][1]


_on_target: dict[tuple[int, str], tuple[Variant, Variant]] = {}
"""By the id of the variant, which is kept alive, so that no other object gets it."""


def _declared(variant: Variant, target: str) -> str | Differs:
    return next((why for name, why in (variant.differs or {}).items() if normal(name) == target), "")


def policies(case: CaseDeclaration, variant: Variant) -> Policies:
    """The variant's policies, completed with the case's."""
    match = case.match if variant.match is None else variant.match
    ftz = case.ftz if variant.ftz is None else variant.ftz
    arguments = {**case.inputs, **case.outputs}
    targets, refused = _target_sets(case, variant)
    by_output = (
        dict.fromkeys(case.outputs, match)
        if isinstance(match, Match)
        else {name: match.get(name, exact()) for name in case.outputs}
    )
    return Policies(
        reference=specification(variant.reference or case.reference, by_output, tuple(case.outputs)),
        match=by_output,
        ftz={n: "never" if isinstance(ftz, str) and not flushes(a) else ftz_of(ftz, n) for n, a in arguments.items()},
        nan=variant.nan or case.nan,
        targets=targets,
        refused=refused,
        carry=dict((case.carry if variant.carry is None else variant.carry) or {}),
        meets=variant.meets,
    )


def ftz_of(ftz: FtzPolicies, name: str) -> FtzPolicy:
    """The ftz policy of one name; names missing in a mapping are "never"."""
    return ftz.get(name, "never") if isinstance(ftz, Mapping) else ftz


def _target_sets(case: CaseDeclaration, variant: Variant) -> tuple[TargetSet, TargetSet]:
    """The targets where a variant must work and must not assemble. A variant overrides its case."""
    targets = target_set(case.targets if variant.targets is None else variant.targets)
    refused = target_set(case.refused if variant.refused is None else variant.refused)
    if variant.targets is not None and variant.refused is None and set(targets) & set(refused):
        return targets, refused - targets
    if variant.targets is None and set(targets) & set(refused) and (variant.refused is not None or targets == ALL):
        return targets - refused, refused
    return targets, refused


def valid_policy_names() -> dict[str, tuple[str, ...]]:
    """The words that ftz= and nan= accept."""
    return {"ftz": FTZ_POLICIES, "nan": NAN_POLICIES}


# Results that are exact given an approximate intermediate value: `exact(through=approximate(...))` -----------------
#
# Code that divides approximately and then converts gives one of a few codes: those that the exact last step makes of
# each intermediate value within the bound of the approximate one. They are enumerated. Each intermediate becomes one
# more specification of the result, as if the case had named it in `either`, so every judge, sweep, cache and digest
# treats it like one, and all outputs of one intermediate value must come from the same one.
#
# An intermediate value is accepted by the rules that hold for results of `ulp` and `relative` (`ptxdiff.model.match`):
# NaN, infinities, zeros and their signs are kept, and cross only where the bound says `overflow=` or `underflow=`.

MOST = 64
"""The most intermediate values that are tried for one result."""
_ROUNDING = 1 + 2.0**-50
"""float64 computes a relative bound with at most this error; no two numbers of a narrower format lie so close."""


def offsets(step: Approximate) -> int:
    """The most ulps between an intermediate value and the exact one, in any binade. Raises CaseError above MOST."""
    bound = step.bound
    most = int(bound.bound if bound.kind == "ulp" else bound.bound * 2**step.fmt.precision)
    if 2 * most + 1 > MOST:
        raise CaseError(
            f"through=: {bound.describe()} leaves up to {2 * most + 1} values of {step.fmt.name}, and each is tried, "
            f"at most {MOST}; give the smallest bound that the specification has, or a narrower format"
        )
    return most


def specification(reference: Reference, match: Mapping[str, Match], outputs: tuple[str, ...]) -> Reference:
    """A reference with one alternative for every intermediate value that the policies accept; itself if none do.

    match: by output. outputs: all outputs of the case, in order. Equal arguments give the same object.
    """
    steps = {n: m.through for n, m in match.items() if m.through is not None}
    if not steps:
        return reference
    key = id(reference), tuple((n, id(s)) for n, s in steps.items()), outputs
    if key not in _made:
        _made[key] = reference, steps, _Specification(reference, steps, outputs).either()
    return _made[key][2]


_made: dict[tuple[Any, ...], tuple[Reference, Mapping[str, Approximate], Reference]] = {}
"""By ids of objects, which are kept alive, so that no others get them."""


class _Specification:
    """The alternatives of one reference. steps: by output, outputs of one step having the same object."""

    def __init__(self, reference: Reference, steps: Mapping[str, Approximate], outputs: tuple[str, ...]) -> None:
        self.reference, self.outputs = reference, outputs
        distinct = list({id(s): s for s in steps.values()}.values())
        self.steps = [(s, tuple(n for n in outputs if steps.get(n) is s)) for s in distinct]

    def either(self) -> Reference:
        """The reference itself and every other reading as its alternatives. Raises CaseError for too many."""
        own = alternatives(self.reference)
        readings = list(itertools.product(*(_readings(s) for s, _ in self.steps)))
        if len(readings) > MOST:
            raise CaseError(f"through=: {len(readings)} combinations of intermediate values; at most {MOST} are tried")
        # Outputs of no step come from the reference, so each of its alternatives goes with each intermediate value.
        rest = own if set(self.outputs) - {n for _, outputs in self.steps for n in outputs} else own[:1]
        made = [self._at(r, reading) for r in rest for reading in readings]

        def exactly(*codes: Any) -> Any:
            return own[0](*codes)

        exactly.alternatives = (*own, *made)  # type: ignore[attr-defined]
        exactly.runs_on = getattr(own[0], "runs_on", "torch")  # type: ignore[attr-defined]
        exactly.__qualname__ = getattr(self.reference, "__qualname__", "reference")
        return exactly

    def _at(self, reference: Reference, readings: tuple[tuple[int, Flush], ...]) -> Reference:
        """The reference with the outputs of each step as the last step makes them of one intermediate value."""
        steps, names = self.steps, self.outputs

        def through(*codes: Any, **options: Any) -> Any:
            by_output: dict[str, Any] = {}
            for (step, outputs), (offset, flush) in zip(steps, readings, strict=True):
                results = at_offset(step, codes, offset, flush, flushing=bool(options))
                if len(results) != len(outputs):
                    raise ValueError(
                        f"then= of through= gave {len(results)} results for {len(outputs)} outputs; return one tensor "
                        f"of codes for each of {', '.join(outputs)}, in this order"
                    )
                by_output |= dict(zip(outputs, results, strict=True))
            if len(by_output) < len(names):
                answer = reference(*codes, **options)
                by_output = dict(zip(names, answer, strict=True)) | by_output
            return tuple(by_output[n] for n in names)

        through.__signature__ = inspect.signature(reference)  # type: ignore[attr-defined]
        through.runs_on = getattr(reference, "runs_on", "torch")  # type: ignore[attr-defined]
        through.made_of = tuple(f for s, _ in steps for f in (s.step, s.then))  # type: ignore[attr-defined]
        through.exact = all(offset == 0 for offset, _ in readings)  # type: ignore[attr-defined]
        through.offsets = tuple(offset for offset, _ in readings)  # type: ignore[attr-defined]
        through.__qualname__ = f"{getattr(reference, '__qualname__', 'reference')}, its through="
        return through


def exact_readings(reference: Reference) -> Iterator[Reference]:
    """The alternatives of a `specification` that compute the results of the exact intermediate value by its step."""
    return (r for r in alternatives(reference) if getattr(r, "exact", False))


Flush = Literal["", "codes", "step"]
"""How an intermediate value is flushed: not at all, if its code is subnormal, or as the approximate step decides."""


def _readings(step: Approximate) -> list[tuple[int, Flush]]:
    """The distances in ulp of the intermediate values to try, each with how it is flushed; exact ones first."""
    most = offsets(step)
    ordered = sorted(range(-most, most + 1), key=abs)
    readings: list[tuple[int, Flush]] = []
    if step.ftz != "never":
        readings = [(offset, "codes") for offset in ordered]
        if _takes_ftz(step.step):
            readings.insert(0, (0, "step"))
    if step.ftz != "required":
        readings += [(offset, "") for offset in ordered]
    return readings


def at_offset(
    step: Approximate, codes: tuple[Any, ...], offset: int, flush: Flush = "", *, flushing: bool = False
) -> tuple[Any, ...]:
    """What the last step makes of the intermediate value `offset` ulps from the exact one; where the bound refuses
    that one, of the exact one.

    flushing: the results of the last step are flushed.
    """
    fmt = step.fmt
    need = parameters_of(step.step)
    if need > len(codes):
        raise TypeError(
            f"the step of approximate(...) needs {need} arguments and is given the case's inputs, of which there are "
            f"{len(codes)}; write a function of them that gives the exact result of the step"
        )
    value = step.step(*map(_copied, codes), **({"ftz": "results"} if flush == "step" else {}))
    if offset:
        value = _moved(fmt, step.bound, value, offset)
    if flush:
        value = value ^ ((value & fmt.magnitude_mask) * is_subnormal(fmt, value))
    arguments = (value,) if parameters_of(step.then) == 1 else (value, *codes)
    options = {"ftz": "results"} if flushing and _takes_ftz(step.then) else {}
    results = step.then(*arguments, **options)
    return tuple(results) if isinstance(results, tuple | list) else (results,)


def _copied(codes: Any) -> Any:
    """A copy of a torch tensor, which a reference may change; a numpy array, which it cannot."""
    return codes.clone() if hasattr(codes, "clone") else codes


def _moved(fmt: Format, bound: Match, codes: Any, offset: int) -> Any:
    """The codes `offset` ulps farther from zero, where the bound accepts them; elsewhere the codes themselves.

    numpy arrays or torch tensors of int64, without control flow that depends on them.
    """
    size = magnitude(fmt, codes)
    largest = fmt.max_finite >> fmt.ignored_bits
    moved = size + offset
    fits = (moved >= 0) & (moved <= largest) & ~is_nan(fmt, codes)
    if not bound.overflow:
        fits = fits & (size <= largest)
    elif fmt.infinity_code is not None:
        fits = fits | ((moved == largest + 1) & (size <= largest))
    if not bound.underflow:
        fits = fits & (moved != 0) & (size != 0)
    difference = (size ^ moved) << fmt.ignored_bits
    if bound.kind == "relative":
        fits = fits & _within(fmt, bound, codes, codes ^ (difference * fits))
    return codes ^ (difference * fits)


def _within(fmt: Format, bound: Match, exactly: Any, other: Any) -> Any:
    """Whether numbers of one sign lie within a relative bound."""
    one, two = _size(fmt, exactly), _size(fmt, other)
    return abs(two - one) <= one * (float(bound.bound) * _ROUNDING)


def _size(fmt: Format, codes: Any) -> Any:
    """Magnitudes in float64; that of infinity is the number that would follow the largest finite one."""
    infinite = is_infinity(fmt, codes)
    largest = codes ^ (((magnitude(fmt, codes) << fmt.ignored_bits) ^ fmt.max_finite) * infinite)
    return abs(to_float64(fmt, largest)) + infinite * 2.0 ** (fmt.bias - fmt.mantissa_bits)


def parameters_of(function: Callable[..., Any]) -> int:
    """How many positional arguments a function needs; -1 for any number, or where that is not known."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return -1
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return -1
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty for p in parameters)


def _takes_ftz(then: Callable[..., Any]) -> bool:
    try:
        return "ftz" in inspect.signature(then).parameters
    except (TypeError, ValueError):
        return False
