"""The descriptions of a case and its variants in records, so that a report needs no case file."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ptxdiff.model.derive import asm_form, compiled_form, packs_of
from ptxdiff.model.load import LoadedCase
from ptxdiff.model.match import FtzPolicy
from ptxdiff.model.policies import Policies, policies
from ptxdiff.model.targets import normal
from ptxdiff.model.tuning import base_name
from ptxdiff.model.variants import AsmVariant, CaseError, PtxVariant, Variant
from ptxdiff.records import CaseInfo, VariantInfo


def case_info(loaded: LoadedCase, path: str) -> CaseInfo:
    """The record of a case. path: the file's path, relative to the folder in which the run was started."""
    case = loaded.case
    return CaseInfo(
        case=loaded.name,
        path=path,
        title=loaded.title,
        inputs={name: str(argument) for name, argument in case.inputs.items()},
        outputs={name: str(argument) for name, argument in case.outputs.items()},
        reference=reference_name(case.reference),
        source=case.source,
        variants={name: variant_info(loaded, variant) for name, variant in case.variants.items()},
        family=case.family,
    )


def reference_name(reference: object) -> str:
    """`ptxdiff.references.reciprocal.correctly_rounded`; for a function of the case file, its own name."""
    several = [r for r in getattr(reference, "alternatives", ()) if not hasattr(r, "made_of")]  # not those of through=
    if several:
        return " or ".join(reference_name(r) for r in several)
    reference = getattr(reference, "func", reference)
    module = getattr(reference, "__module__", "") or ""
    name = getattr(reference, "__qualname__", repr(reference))
    return f"{module}.{name}" if module.startswith("ptxdiff.references") else name


def variant_info(loaded: LoadedCase, variant: Variant) -> VariantInfo:
    """The record of a variant: its effective policies, and its asm in the form that runs."""
    texts, constraints = {}, {}
    if isinstance(variant, AsmVariant):
        for pack in packs_of(loaded.case, variant):
            try:
                form = compiled_form(loaded.case, asm_form(loaded.case, variant, pack))
                texts[str(pack)], constraints[str(pack)] = form.text, form.constraints
            except CaseError as e:
                texts[str(pack)] = f"// {e}"
    elif isinstance(variant, PtxVariant):
        texts["1"] = variant.text
    else:
        texts["1"] = inspect.getsource(variant.function.fn)  # type: ignore[attr-defined]
    return replace(variant_words(loaded, variant), texts=texts, constraints=constraints, line=_line(loaded, variant))


def variant_words(loaded: LoadedCase, variant: Variant) -> VariantInfo:
    """The record of a variant without its asm and its place, which take most of the time."""
    policy = policies(loaded.case, variant)
    expected = variant.expected_failure
    own = f"own reference {reference_name(variant.reference)}" if variant.reference else ""
    return VariantInfo(
        kind=variant.kind,
        match=policy.describe_match() + _meets(policy),
        ftz=ftz_words(policy.ftz),
        nan=policy.nan,
        targets=policy.targets.text,
        note="; ".join(t for t in (variant.note, own, *_elsewhere(variant)) if t),
        expected_failure=f"{expected.diagnosis} in the context {' and '.join(expected.contexts)}: {expected.reason}"
        if expected
        else "; ".join(_differing(variant)),
        bound=_bound(policy),
    )


def _differing(variant: Variant) -> Iterator[str]:
    for name, reason in (variant.differs or {}).items():
        if isinstance(reason, str):
            yield f"other bits on {normal(name)}: {reason}"


def _elsewhere(variant: Variant) -> Iterator[str]:
    for name, override in (variant.differs or {}).items():
        if not isinstance(override, str):
            yield f"on {normal(name)} held to {reference_name(override.reference)}: {override.why}"


def _bound(policy: Policies) -> float | None:
    """The largest ulp bound of any output; None if a policy is not in ulp, or bounds an intermediate value."""
    if any(m.through for m in policy.match.values()):
        return None
    kinds = {m.kind for m in policy.match.values()}
    return float(max(m.bound for m in policy.match.values())) if kinds <= {"exact", "ulp"} else None


def _line(loaded: LoadedCase, variant: Variant) -> int:
    """The first line with the variant's name inside its case in the case file."""
    name = next(base_name(n, v) for n, v in loaded.case.variants.items() if v is variant)
    try:
        lines = loaded.path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    bound = loaded.attribute.partition(".")[0]
    start = next((k for k, text in enumerate(lines) if text.startswith(f"{bound} =")), 0)
    return next((k for k, text in enumerate(lines[start:], start + 1) if f'"{name}":' in text), 0)


def _meets(policy: Policies) -> str:
    if policy.meets is None:
        return ""
    return f"; against the case's reference {policy.meets.match.describe()} on {policy.meets.on.text}"


def ftz_words(ftz: Mapping[str, FtzPolicy]) -> str:
    """`required`, or by name if they differ: `b required, a never`."""
    stated = set(ftz.values())
    return stated.pop() if len(stated) == 1 else ", ".join(f"{n} {w}" for n, w in ftz.items())
