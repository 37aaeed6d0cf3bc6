"""What the answer should be: a reference applied to inputs, with the flushes that the ftz policy demands.

The order is the policy's: flush the inputs, apply the reference, flush the results. A policy of "allowed" leaves open
whether a conforming implementation flushes; every combination is then an accepted answer.

Which results are flushed depends on the exact result, which a reference alone knows: hardware flushes what is tiny
after rounding as if the exponent had no lower end, and so also what rounds up to the smallest normal value in the
format alone. A reference with a keyword-only parameter `ftz` (those of `references` have one) is called with
`ftz="results"` where results are flushed, and decides. The finished result of any other is flushed where it is
subnormal. The two differ where the exact result lies less than an ulp below the smallest normal value: only the first
is hardware's.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.model.case import Argument, Case, Policies, Reference, alternatives, format_of
from harness.model.match import read_only
from references.formats import Format, is_subnormal, unpack

Codes = NDArray[np.int64]


class ReferenceFault(RuntimeError):
    """A reference that raised, or returned something other than codes; the message names what was expected."""


def codes_of(arguments: Mapping[str, Argument], units: Mapping[str, NDArray[np.generic]]) -> dict[str, Codes]:
    """Storage arrays as int64 codes, by name."""
    return {name: unpack(format_of(a), units[name]) for name, a in arguments.items()}


def flush(fmt: Format, codes: Codes) -> Codes:
    """Subnormals replaced by the zero of their sign; formats without subnormals unchanged."""
    if not fmt.is_float or not fmt.has_zero:
        return codes
    sign = np.int64(-(1 << 63)) if fmt.sign_shift == 63 else np.int64(1 << fmt.sign_shift)
    zero = codes & sign if fmt.has_sign else np.zeros_like(codes)
    return np.where(is_subnormal(fmt, codes), zero, codes)


def runs_on_host(reference: Reference) -> bool:
    """Whether a reference takes numpy arrays, and so cannot follow its inputs to a device."""
    return any(getattr(r, "runs_on", "torch") != "torch" for r in alternatives(reference))


def flushes_itself(reference: Reference) -> bool:
    """Whether a reference decides which results `.ftz` flushes: it has a keyword-only parameter `ftz`."""
    try:
        parameter = inspect.signature(reference).parameters.get("ftz")
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False
    return parameter is not None and parameter.kind is parameter.KEYWORD_ONLY


def apply_reference(
    case: Case, reference: Reference, codes: Mapping[str, Codes], flushing: bool = False
) -> dict[str, Codes]:
    """One evaluation of a reference: codes by input name to codes by output name.

    flushing: the reference flushes its results (`flushes_itself`).
    The reference gets arrays of its own: a torch tensor is a copy, which it may change; a numpy array is read-only.
    What it returns is copied too, so that it may return one buffer again and again. Raises ReferenceFault where it
    raises, or returns another number, shape or range of codes than the case declares.
    """
    name = getattr(reference, "__qualname__", repr(reference))
    arguments: Sequence[Any]
    if runs_on_host(reference):
        arguments = [read_only(a) for a in codes.values()]
    else:
        import torch

        arguments = [torch.from_numpy(np.array(a, order="C")) for a in codes.values()]
    try:
        answer = reference(*arguments, **({"ftz": "results"} if flushing else {}))
    except Exception as e:
        advice = "; a numpy reference's inputs are read-only, so change a copy" if "read-only" in str(e) else ""
        raise ReferenceFault(f"reference {name} raised {type(e).__name__}: {e}{advice}") from e
    answers = answer if isinstance(answer, tuple | list) else (answer,)
    if len(answers) != len(case.outputs):
        raise ReferenceFault(
            f"reference {name} returned {len(answers)} results for {len(case.outputs)} outputs; "
            f"return one tensor of codes for each of {', '.join(case.outputs)}, in this order"
        )
    return {
        output: _checked(name, output, format_of(argument), result)
        for (output, argument), result in zip(case.outputs.items(), answers, strict=True)
    }


def _checked(reference: str, output: str, fmt: Format, result: Any) -> Codes:
    array = np.asarray(result).copy()
    if array.dtype != np.int64:
        what = type(result).__name__ if array.dtype == object else array.dtype
        raise ReferenceFault(
            f"reference {reference} returned {what} for {output}; return codes ({fmt.name} bit patterns) as int64"
        )
    if fmt.code_bits < 64 and array.size and not (array.min() >= 0 and array.max() <= fmt.code_mask):
        raise ReferenceFault(
            f"reference {reference} returned {int(array.min()):#x} to {int(array.max()):#x} for {output}; "
            f"codes of {fmt.name} are 0 to {fmt.code_mask:#x}"
        )
    return array


def accepted(case: Case, policy: Policies, codes: Mapping[str, Codes]) -> Iterator[dict[str, Codes]]:
    """Every answer that the reference and the ftz policy accept; the first has no flush beyond the required ones."""
    required = {n for n, word in policy.ftz.items() if word == "required"}
    allowed = {n for n, word in policy.ftz.items() if word == "allowed"}
    inputs = [required, required | allowed] if allowed & set(case.inputs) else [required]
    outputs = [required, required | allowed] if allowed & set(case.outputs) else [required]
    for reference, flushed in itertools.product(alternatives(policy.reference), inputs):
        yield from _flushed_answers(case, reference, codes, flushed, outputs)


def _flushed_answers(
    case: Case, reference: Reference, codes: Mapping[str, Codes], inputs: Set[str], outputs: Sequence[Set[str]]
) -> Iterator[dict[str, Codes]]:
    """An answer for each choice of the outputs to flush, with the named inputs flushed."""
    given = {n: flush(format_of(case.inputs[n]), c) if n in inputs else c for n, c in codes.items()}
    wanted = {name in choice for choice in outputs for name in case.outputs}
    itself = True in wanted and flushes_itself(reference)
    tiny = apply_reference(case, reference, given, flushing=True) if itself else None
    kept = tiny if tiny and False not in wanted else apply_reference(case, reference, given)
    for choice in outputs:
        yield {n: flush(format_of(a), (tiny or kept)[n]) if n in choice else kept[n] for n, a in case.outputs.items()}


def flipped(case: Case, policy: Policies, codes: Mapping[str, Codes]) -> Iterator[dict[str, Codes]]:
    """The answers of the opposite flushes: what a dropped or an added `.ftz` would give, on inputs, results or both."""
    required = {n for n, word in policy.ftz.items() if word == "required"}
    for reference in alternatives(policy.reference):
        for inputs, outputs in itertools.product((False, True), repeat=2):
            flushed = {n for n in case.inputs if inputs} | {n for n in case.outputs if outputs}
            if flushed != required:
                yield from _flushed_answers(case, reference, codes, flushed, [flushed])
