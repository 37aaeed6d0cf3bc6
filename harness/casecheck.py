"""What a case must satisfy to be run at all, checked where it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from harness.case import AsmVariant, Case, CaseError, Variant, format_of, policies, valid_policy_names
from harness.match import Match


def check_case(case: Case) -> None:
    """Raise `CaseError` for the first contradiction found, naming the part and the remedy."""
    _check_names(case)
    _check_policy_words("the case", case)
    for name, variant in case.variants.items():
        where = f"variant {name!r}"
        if not isinstance(variant, Variant):
            raise CaseError(f"{where} is a {type(variant).__name__}; write asm(...), plain(...) or kernel(...)")
        _check_policy_words(where, variant)
        _check_variant(case, where, variant)


def _check_names(case: Case) -> None:
    if not case.outputs:
        raise CaseError("a case has at least one output: outputs={'y': F32}")
    if not case.variants:
        raise CaseError("a case has at least one variant: variants={'name': asm(...)}")
    both = set(case.inputs) & set(case.outputs)
    if both:
        raise CaseError(f"{_listed(both)} named both as input and as output; give each a name of its own")
    for name in (*case.inputs, *case.outputs):
        if not name.isidentifier():
            raise CaseError(f"{name!r} is no argument name; use letters, digits and underscores")
    for name in case.variants:
        if not name or set(name) & set("[]/\\:\n\t") or name != name.strip():
            raise CaseError(f"variant name {name!r}: leave out brackets, slashes, colons and outer spaces")
    for codes in case.hard_cases:
        if len(codes) != len(case.inputs):
            raise CaseError(f"hard case {codes} has {len(codes)} codes for {len(case.inputs)} inputs")
        for (name, argument), code in zip(case.inputs.items(), codes, strict=True):
            if not 0 <= code <= format_of(argument).code_mask:
                raise CaseError(f"hard case {codes}: {code:#x} is no code of {name} ({format_of(argument).name})")


def _check_policy_words(where: str, owner: Case | Variant) -> None:
    words = valid_policy_names()
    if owner.nan is not None and owner.nan not in words["nan"]:
        raise CaseError(f"{where}: nan={owner.nan!r}; one of {', '.join(words['nan'])}")
    ftz = [] if owner.ftz is None else owner.ftz.values() if isinstance(owner.ftz, Mapping) else [owner.ftz]
    for word in ftz:
        if word not in words["ftz"]:
            raise CaseError(f"{where}: ftz={word!r}; one of {', '.join(words['ftz'])}")


def _check_variant(case: Case, where: str, variant: Variant) -> None:
    for owner in (case, variant):
        if isinstance(owner.match, Mapping):
            _known(where, "match", owner.match, case.outputs, "outputs")
            _typed(where, owner.match.values(), lambda m: isinstance(m, Match))
        elif owner.match is not None:
            _typed(where, [owner.match], lambda m: isinstance(m, Match))
        if isinstance(owner.ftz, Mapping):
            _known(where, "ftz", owner.ftz, {**case.inputs, **case.outputs}, "inputs and outputs")
    if variant.meets is not None and variant.reference is None:
        raise CaseError(f"{where}: meets= relates an own reference= to the case's; without one it says nothing")
    resolved = policies(case, variant)
    both = set(resolved.targets) & set(resolved.refused)
    if both and variant.refused is not None:
        raise CaseError(f"{where}: {_listed(both)} both in targets= and in refused=")
    _check_carry(case, where, resolved.carry)
    if isinstance(variant, AsmVariant):
        bad = [p for p in (*variant.texts, *variant.derived_packs) if not isinstance(p, int) or p < 1]
        if bad:
            raise CaseError(f"{where}: a pack is a number of elements, at least 1, got {bad[0]!r}")
        if not case.elementwise:
            raise CaseError(f"{where}: asm() computes elementwise; arguments with dimensions need kernel(...)")
    if variant.expected_failure and variant.expected_failure.context == "loop" and not resolved.carry:
        raise CaseError(f"{where}: a failure expected in the loop context needs carry={{output: input}}")


def _check_carry(case: Case, where: str, carry: Mapping[str, str]) -> None:
    _known(where, "carry", carry, case.outputs, "outputs")
    _known(where, "carry", carry.values(), case.inputs, "inputs")
    for output, source in carry.items():
        if format_of(case.outputs[output]) != format_of(case.inputs[source]):
            raise CaseError(
                f"{where}: carry={{{output!r}: {source!r}}} feeds {format_of(case.outputs[output]).name} into "
                f"{format_of(case.inputs[source]).name}; a carried result keeps its format"
            )


def _known(where: str, field: str, names: Iterable[str], known: Mapping[str, object], what: str) -> None:
    unknown = [n for n in names if n not in known]
    if unknown:
        raise CaseError(f"{where}: {field} names {_listed(unknown)}; the {what} are {', '.join(known)}")


def _typed(where: str, values: Iterable[object], accepts: Callable[[object], bool]) -> None:
    for value in values:
        if not accepts(value):
            raise CaseError(f"{where}: match={value!r}; write exact(), ulp(n), absolute(b) or relative(b)")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(n) for n in sorted(names))
