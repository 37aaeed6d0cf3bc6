"""The policies of a variant: its own, or its case's if it states none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ptxdiff.model.arguments import flushes
from ptxdiff.model.declaration import CaseDeclaration
from ptxdiff.model.intermediates import specification
from ptxdiff.model.match import FTZ_POLICIES, NAN_POLICIES, FtzPolicy, Match, NanPolicy, exact
from ptxdiff.model.targets import ALL, TargetSet, normal, target_set
from ptxdiff.model.variants import Differs, FtzPolicies, Meets, Reference, Variant


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
    found = _declared(variant, target)
    return found if isinstance(found, str) else ""


def variant_on(variant: Variant, target: str) -> Variant:
    """The variant for judging on a target: with the reference from `differs=`, if any. Equal arguments give the same
    object.

    A variant with another reference is another variant, so no cache of a variant's results needs the target in its key.
    """
    found = _declared(variant, target)
    if isinstance(found, str):
        return variant
    key = (id(variant), target)
    if key not in _on_target:
        _on_target[key] = (variant, replace(variant, reference=found.reference, meets=None, differs=None))
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
