"""Expected results: a reference applied to inputs, with the flushes that the ftz policy demands.

The order is: flush the inputs, apply the reference, flush the results, each as the policy says. A policy of "allowed"
lets an implementation flush or not, so every combination is an accepted answer.

Which results are flushed depends on the exact result, which only the reference has: hardware flushes results that are
tiny after rounding with an unbounded exponent. Some of these would round up to the smallest normal value in the format.
A reference with a keyword-only parameter `ftz` (as in `references`) is called with `ftz="results"` if results are
flushed, and decides itself. For any other reference, subnormal results are flushed. The two differ if the exact result
lies less than an ulp below the smallest normal value; only the first way agrees with hardware.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.model.arguments import format_of
from ptxdiff.model.case import Case
from ptxdiff.model.policies import Policies
from ptxdiff.model.reference import apply_reference, flushes_itself
from ptxdiff.model.variants import Reference, alternatives
from ptxdiff.references.formats import Format, is_subnormal, magnitude

Codes = NDArray[np.int64]


def flush(fmt: Format, codes: Any) -> Any:
    """Subnormals replaced by the zero of their sign, in numpy or torch; formats without subnormals unchanged."""
    if not fmt.is_float or not fmt.has_zero:
        return codes
    below_sign = (1 << fmt.sign_shift) - 1 if fmt.has_sign else fmt.code_mask
    # A zero is its own flush, so it need not be told apart, except for a zero with ignored bits.
    tiny = is_subnormal(fmt, codes) if fmt.ignored_bits else magnitude(fmt, codes) < 1 << fmt.mantissa_bits
    return codes & ~(tiny * below_sign)


def accepted(
    case: Case, policy: Policies, codes: Mapping[str, Any], apply: Callable[..., dict[str, Any]] = apply_reference
) -> Iterator[dict[str, Any]]:
    """Every answer that the reference and the ftz policy accept; the first has only the required flushes.

    apply: evaluates a reference on `codes`, with the parameters of `apply_reference`.
    """
    required = {n for n, word in policy.ftz.items() if word == "required"}
    allowed = {n for n, word in policy.ftz.items() if word == "allowed"}
    inputs = [required, required | allowed] if allowed & set(case.inputs) else [required]
    outputs = [required, required | allowed] if allowed & set(case.outputs) else [required]
    for reference, flushed in itertools.product(alternatives(policy.reference), inputs):
        yield from _flushed_answers(case, apply, reference, codes, flushed, outputs)


def _flushed_answers(
    case: Case,
    apply: Callable[..., dict[str, Any]],
    reference: Reference,
    codes: Mapping[str, Any],
    inputs: Set[str],
    outputs: Sequence[Set[str]],
) -> Iterator[dict[str, Any]]:
    """An answer for each choice of the outputs to flush, with the named inputs flushed."""
    given = {n: flush(format_of(case.inputs[n]), c) if n in inputs else c for n, c in codes.items()}
    wanted = {name in choice for choice in outputs for name in case.outputs}
    itself = True in wanted and flushes_itself(reference)
    tiny = apply(case, reference, given, flushing=True) if itself else None
    kept = tiny if tiny and False not in wanted else apply(case, reference, given)
    for choice in outputs:
        yield {n: flush(format_of(a), (tiny or kept)[n]) if n in choice else kept[n] for n, a in case.outputs.items()}


def flipped(
    case: Case,
    policy: Policies,
    codes: Mapping[str, Codes],
    apply: Callable[..., dict[str, Codes]] = apply_reference,
) -> Iterator[dict[str, Codes]]:
    """The answers with the opposite flushes, as a missing or an added `.ftz` gives, on inputs, results or both."""
    required = {n for n, word in policy.ftz.items() if word == "required"}
    for reference in alternatives(policy.reference):
        for inputs, outputs in itertools.product((False, True), repeat=2):
            flushed = {n for n in case.inputs if inputs} | {n for n in case.outputs if outputs}
            if flushed != required:
                yield from _flushed_answers(case, apply, reference, codes, flushed, [flushed])
