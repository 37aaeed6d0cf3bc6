"""The share of codes that a policy judges, and the least share with which an item may pass.

A domain without ordinary inputs would let every variant pass, because zeros, infinities and NaN lie in every domain of
`magnitude` and `between`, and are few. So ordinary codes (all inputs finite and not zero) are counted separately, for
each output and for `meets=`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ptxdiff.model.arguments import format_of, values_of
from ptxdiff.model.case import Case
from ptxdiff.model.match import Domain, DomainError
from ptxdiff.model.policies import Policies
from ptxdiff.records import UNPROVED, Share
from ptxdiff.references.formats import Format, is_finite, is_zero, unpack

Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]
Units = Mapping[str, NDArray[np.generic]]

LEAST = Fraction(1, 1000)
"""The least share of the ordinary codes of an item's input sets that a policy must judge; every input counts once.

A domain of one binade has a larger share: 1 code in 508 of positive bfloat16, and at least as much of float32 and
float64, because a third of the random inputs lie within 12 binades of one. A domain of one number, or of ten, has a
smaller share: the quickest run has 16,384 random inputs."""

FEW_INPUTS = 1000
"""Different inputs below which a result says how many where= left; of formats of few bits, one of 256."""

CASES_REFERENCE = " (the case's reference)"
"""The suffix of an output's name for the comparison with the case's reference by `meets=`."""


def shares(case: Case, policy: Policies, inputs: Units, sizes: Mapping[str, int]) -> dict[str, Share]:
    """The shares that the policies judge on some inputs: by output, and for `meets=` by output with `CASES_REFERENCE`.

    inputs: storage arrays by name. sizes: each output's number of codes. Raises DomainError.
    """
    domains = {name: policy.match[name].on if policy.match[name].outside is None else None for name in sizes}
    if policy.meets is not None:
        domains |= {name + CASES_REFERENCE: policy.meets.on for name in sizes}
    formats = {n: format_of(a) for n, a in case.inputs.items()}
    codes = {n: unpack(fmt, inputs[n]).reshape(-1) for n, fmt in formats.items()}
    ordinary = _ordinary(formats, codes, once=any(domains.values()))
    found = {}
    for name, domain in domains.items():
        found[name] = _share(domain, case, inputs, sizes[name.removesuffix(CASES_REFERENCE)], ordinary)
    return found


def _share(domain: Domain | None, case: Case, inputs: Units, size: int, ordinary: Mask | None) -> Share:
    if ordinary is None or ordinary.size == 0 or size % ordinary.size:
        ordinary = np.ones(size, dtype=bool)  # inputs and outputs do not correspond, so all codes count as ordinary
    ordinary = np.repeat(ordinary, size // max(1, ordinary.size))
    common = int(ordinary.sum())
    if domain is None:
        return Share(size, size, common, common)
    inside = holds(domain, case, inputs, size)
    return Share(size, int(inside.sum()), common, int((inside & ordinary).sum()))


def _ordinary(formats: Mapping[str, Format], codes: Mapping[str, Codes], *, once: bool) -> Mask | None:
    """For each place, whether all inputs are finite and not zero; with `once`, only at the first place of each such
    input.

    None if the inputs have different numbers of codes, or there are none.
    """
    if len({c.size for c in codes.values()}) != 1:
        return None
    ordinary = np.ones(next(iter(codes.values())).size, dtype=bool)
    mixed = np.zeros(ordinary.size, dtype=np.uint64)
    for name, fmt in formats.items():
        ordinary &= is_finite(fmt, codes[name]) & ~is_zero(fmt, codes[name]) if fmt.is_float else codes[name] != 0
        mixed = (mixed ^ (mixed >> np.uint64(32)) ^ codes[name].view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    if once:
        first = np.zeros(ordinary.size, dtype=bool)
        first[np.unique(mixed, return_index=True)[1]] = True
        ordinary &= first
    return ordinary


def holds(domain: Domain, case: Case, inputs: Units, size: int) -> Mask:
    """Whether a domain holds, for each of `size` codes of an output.

    inputs: storage arrays by name. Raises DomainError.
    """
    values = {n: values_of(format_of(a), inputs[n]).reshape(-1) for n, a in case.inputs.items()}
    mask: Mask = domain.holds(values)
    if mask.size == 0 or size % mask.size:
        raise DomainError(
            f"domain {domain.text!r}: {mask.size} inputs do not correspond to {size} results; "
            "on= is for elementwise cases"
        )
    return np.repeat(mask, size // mask.size)


def left_by_domain(case: Case, made: Iterable[Units]) -> str:
    """A remark on a case whose where= leaves few different inputs; empty if there is no where=, or there are enough.

    made: the input sets of an item, as storage arrays by name.
    """
    if case.domain is None:
        return ""
    bits = sum(format_of(a).unit_bits for a in case.inputs.values())
    enough = min(FEW_INPUTS, (1 << bits) // 256)
    rows: set[tuple[int, ...]] = set()
    for units in made:
        columns = [np.asarray(u).reshape(-1) for u in units.values()]
        rows.update(zip(*(c.view(f"u{c.itemsize}").tolist() for c in columns), strict=True))
        if len(rows) >= enough:
            return ""
    return f"{UNPROVED}where= leaves {len(rows):,} different inputs in all sets, and code was judged on these alone"


def pooled(found: Iterable[Mapping[str, Share]]) -> dict[str, Share]:
    """The shares of several comparisons combined."""
    total: dict[str, Share] = {}
    for one in found:
        for name, share in one.items():
            total[name] = total[name] + share if name in total else share
    return total


def unwritten_error(needed: Mapping[str, Iterable[Mapping[str, tuple[int, int]]]]) -> str:
    """The error for a tensor updated in place that a kernel may leave alone and pass; empty where there is none.

    needed: by shape, `Judgement.needed` of each input set. Each shape of 1 / LEAST codes and more counts by itself.
    """
    everywhere: dict[str, tuple[int, int]] = {}
    found: list[tuple[str, str, int, int]] = []
    for shape, sets in needed.items():
        here: dict[str, tuple[int, int]] = {}
        for one in sets:
            _add(here, one)
        _add(everywhere, here)
        found += [(name, f" at {shape}", *counts) for name, counts in here.items() if LEAST * counts[0] >= 1]
    for name, where, codes, wrong in [*found, *((n, "", *counts) for n, counts in everywhere.items())]:
        if codes and wrong < LEAST * codes:
            return (
                f"{name} is updated in place, and {wrong:,} of {codes:,} codes{where} would be wrong if nothing wrote "
                f"it, fewer than 1 in {1 / LEAST}: mistakes would pass. Give inputs that the reference changes "
                "(generate=, where=), or sizes of which it changes a larger part"
            )
    return ""


def _add(into: dict[str, tuple[int, int]], more: Mapping[str, tuple[int, int]]) -> None:
    for name, (codes, wrong) in more.items():
        before = into.get(name, (0, 0))
        into[name] = before[0] + codes, before[1] + wrong


def too_little(policy: Policies, total: Mapping[str, Share]) -> str:
    """The error for a share below `LEAST`, with the necessary change of the case; empty if every share suffices."""
    for name, share in total.items():
        judged, of = (share.ordinary_judged, share.ordinary) if share.ordinary else (share.judged, share.codes)
        if judged >= LEAST * of:
            continue
        output, meets, _ = name.partition(CASES_REFERENCE)
        domain = policy.meets.on if meets and policy.meets else policy.match[output].on
        ordinary = "with finite inputs that are not zero " if share.ordinary else ""
        return (
            f"{'meets=' if meets else 'match='} of {output} promises next to nothing: {judged:,} of {of:,} codes "
            f"{ordinary}lie in its domain {domain.text if domain else ''!r}, fewer than 1 in {1 / LEAST}; widen it, "
            + ("" if meets else "say with outside= what holds beyond it, ")
            + "or exclude with where= the inputs on which the operation is not defined"
        )
    return ""
