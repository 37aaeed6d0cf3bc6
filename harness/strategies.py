"""hypothesis strategies over bit patterns, for your own tests. Failures shrink.

    from hypothesis import given
    from ptxdiff.strategies import assert_matches, codes, inputs
    from ptxdiff.references.formats import F32

    @given(codes(F32))
    def test_my_reference(code): ...          # one bit pattern, a Python integer

    @given(inputs(case, count=8))
    def test_my_kernel(units):                # storage arrays by input name, as a backend takes them
        assert_matches(case, "rcp.rn", units, {"y": my_kernel(units["x"])})

Edges of the format (zeros, subnormals, ends of binades, infinities, NaNs) come as often as uniform bits, and a failure
shrinks to the simplest code that still fails: zero first, then one and other edges, then ever smaller bit patterns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.extras import require
from ptxdiff.inputs.edges import edge_codes
from ptxdiff.judging.judge import Judgement, judge
from ptxdiff.model.arguments import format_of, values_of
from ptxdiff.model.case import Case
from ptxdiff.model.policies import policies
from ptxdiff.references.formats import Format, encode, ordinal, pack

require("hypothesis", purpose="ptxdiff.strategies")

from hypothesis import strategies as st  # noqa: E402 - behind the check that says how to install it

Units = dict[str, NDArray[np.generic]]


def codes(fmt: Format, *, edges: bool = True) -> st.SearchStrategy[int]:
    """One code of a format as a non-negative integer; for packed formats one of the codes that share a unit.

    edges: whether the format's edge codes come up as often as uniform bits.
    """
    bits = st.integers(0, fmt.single.code_mask)
    if not edges:
        return bits
    return st.one_of(st.sampled_from(_simplest_first(fmt.single)), bits)


def _simplest_first(fmt: Format) -> list[int]:
    """The edge codes in the order in which a failure should shrink: zero, one, then by size, positive first."""
    first = [encode(fmt, v) for v in ((0.0, 1.0) if fmt.is_float else (0, 1)) if v or fmt.has_zero]
    rest = sorted(edge_codes(fmt), key=lambda code: (abs(ordinal(fmt, code)), code))
    return list(dict.fromkeys([*first, *rest]))


def units(fmt: Format, count: int | st.SearchStrategy[int] = 1) -> st.SearchStrategy[NDArray[np.generic]]:
    """A one-dimensional storage array of `count` units, each holding `codes_per_unit` drawn codes."""
    counts = st.just(count) if isinstance(count, int) else count
    return counts.flatmap(lambda n: _array(fmt, n))


def _array(fmt: Format, count: int) -> st.SearchStrategy[NDArray[np.generic]]:
    size = count * fmt.codes_per_unit

    def stored(drawn: list[int]) -> NDArray[np.generic]:
        found: NDArray[np.generic] = pack(fmt, np.array(drawn, dtype=np.uint64).view(np.int64))
        return found

    return st.lists(codes(fmt), min_size=size, max_size=size).map(stored)


def inputs(case: Case, count: int = 1) -> st.SearchStrategy[Units]:
    """`count` inputs of an elementwise case: storage arrays by input name, within the case's `where`."""
    formats = {name: format_of(argument) for name, argument in case.inputs.items()}
    drawn = st.fixed_dictionaries({name: units(fmt, count) for name, fmt in formats.items()})
    where = case.domain
    if where is None:
        return drawn
    return drawn.filter(lambda found: bool(where.holds({n: values_of(f, found[n]) for n, f in formats.items()}).all()))


def judged(case: Case, variant: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Judgement:
    """The judgement on outputs, wherever they were computed, by the policies of one of the case's variants."""
    return judge(case, policies(case, case.variants[variant]), inputs, outputs)


def assert_matches(case: Case, variant: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    """Raise AssertionError if outputs differ from the reference by more than a variant's policies allow.

    inputs, outputs: storage arrays by name, in the formats' storage dtypes.
    """
    judgement = judged(case, variant, inputs, outputs)
    if judgement.passed:
        return
    lines = [
        f"{judgement.different} of {judgement.total} codes differ: "
        + ", ".join(f"{k} {n}" for k, n in judgement.classes.items())
    ]
    for offender in judgement.offenders[:1]:
        lines += [f"  {name}  {b.bits}  {b.value}" for name, b in offender.inputs.items()]
        lines += [f"  expected  {offender.expected.bits}  {offender.expected.value}"]
        lines += [f"  got  {offender.got.bits}  {offender.got.value}  ({offender.output}: {offender.difference})"]
    raise AssertionError("\n".join(lines))
