"""What the wrong codes of an output are like: of which mistake they are exactly the bits.

Nothing is guessed from the text of a kernel. A cause is named only if it gives all wrong codes, and many enough that
another mistake would hardly give the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.judging.differences import Difference, classify_differences, signed_steps
from ptxdiff.judging.evaluate import accepted
from ptxdiff.judging.offenders import Compared
from ptxdiff.model.arguments import format_of
from ptxdiff.model.case import Case
from ptxdiff.model.policies import Policies
from ptxdiff.model.reference import ReferenceFault
from ptxdiff.references.formats import is_infinity, is_nan, is_subnormal, is_zero

Codes = NDArray[np.int64]

EXCHANGED = "the bits are those of {} and {} exchanged: swap the operands"
_LEAST = 16
"""Fewer wrong codes than this fit too many mistakes."""
_MOST_PAIRS = 6
"""Pairs of inputs that are tried: those of four inputs."""
_MOST_PLACES = 64
"""Places of one invocation's outputs that are compared with each other."""
_LEAST_IN_A_PLACE = 8
"""Fewer different right codes than this in one place do not tell it from another."""
_WARP = 32


def likely_cause(
    case: Case,
    policy: Policies,
    codes: Mapping[str, Codes],
    outputs: Sequence[Compared],
    apply: Callable[..., dict[str, Any]],
    pack: int = 1,
) -> str:
    """The cause and the repair if the wrong codes are exactly those of a known mistake; "" otherwise.

    codes: the inputs'. apply: evaluates a reference, as `apply_reference` does. pack: elements per invocation.
    """
    outputs = [o for o in outputs if o.name in case.outputs]  # without what `meets=` compares
    wrong = [o for o in outputs if o.failing.any()]
    if not wrong or sum(int(o.failing.sum()) for o in wrong) < _LEAST:
        return ""
    return (
        _flushed(policy, wrong)
        or _exchanged_inputs(case, policy, codes, outputs, apply)
        or _exchanged_outputs(outputs)
        or _exchanged_between_outputs(case, outputs, pack)
        or _reordered(codes, wrong)
        or _reordered_bytes(outputs)
        or _missing_step(case, wrong)
    )


def _flushed(policy: Policies, wrong: Sequence[Compared]) -> str:
    """Every wrong code is a zero for a subnormal number that may not be flushed, or the other way round.

    Code that gives some subnormal numbers flushes none: there a zero has another cause.
    """
    if any((o.difference[o.failing] != Difference.FLUSH).any() for o in wrong):
        return ""
    words = {policy.ftz.get(o.name, "never") for o in wrong}
    zeros = {flag for o in wrong for flag in is_zero(o.fmt, o.got[o.failing]).tolist()}
    kept = any(is_subnormal(o.fmt, o.got).any() for o in wrong)
    if words == {"never"} and zeros == {True} and not kept:
        return (
            "subnormal numbers count as zero: write it without .ftz (without one, an intermediate value underflows), "
            "or state ftz='allowed'"
        )
    if zeros == {True} and all(_next_to_zero(policy, o) for o in wrong):
        bounds = list(dict.fromkeys(f"{float(policy.match[o.name].bound):g}" for o in wrong))
        stated = " and ".join(f"ulp({bound}, underflow=True)" for bound in bounds)
        return (
            f"results next to zero are zero, within {' and '.join(bounds)} ulp: if they may underflow, state {stated}"
        )
    if words == {"required"} and zeros == {False}:
        return "subnormal numbers are not flushed to zero: write .ftz, or state ftz='allowed'"
    return ""


def _next_to_zero(policy: Policies, output: Compared) -> bool:
    """Whether every wrong code is a zero, and the right one no farther from it than the bound allows."""
    match = policy.match[output.name]
    if match.kind != "ulp" or match.underflow:
        return False
    expected, got = output.expected[output.failing], output.got[output.failing]
    return bool((abs(signed_steps(output.fmt, expected, got)) <= float(match.bound)).all())


def _exchanged_inputs(
    case: Case,
    policy: Policies,
    codes: Mapping[str, Codes],
    outputs: Sequence[Compared],
    apply: Callable[..., dict[str, Any]],
) -> str:
    """All codes, right and wrong, are what the reference gives for two inputs exchanged."""
    if not case.elementwise:
        return ""
    formats = {name: format_of(argument) for name, argument in case.inputs.items()}
    pairs = [(a, b) for a, b in itertools.combinations(case.inputs, 2) if formats[a] == formats[b]]
    for a, b in pairs[:_MOST_PAIRS]:
        try:
            for answer in accepted(case, policy, {**codes, a: codes[b], b: codes[a]}, apply):
                if all(_equal(policy, output, answer[output.name]) for output in outputs):
                    return EXCHANGED.format(a, b)
        except ReferenceFault:  # the reference does not take such inputs
            continue
    return ""


def only_where(case: Case, codes: Mapping[str, Codes], outputs: Sequence[Compared]) -> str:
    """What an input is wherever a code is wrong, such as "wrong only where x is NaN"; "" if it is nothing special."""
    wrong = [o for o in outputs if o.name in case.outputs and o.failing.any()]
    if not case.elementwise or not wrong or sum(int(o.failing.sum()) for o in wrong) < _LEAST:
        return ""
    for name, argument in case.inputs.items():
        fmt, given = format_of(argument), codes[name].reshape(-1)
        if not fmt.is_float or any(o.failing.size != given.size for o in wrong):
            continue
        failing = np.logical_or.reduce([o.failing for o in wrong])
        for word, test in _KINDS_OF_INPUT.items():
            if test(fmt, given[failing]).all() and not test(fmt, given).all():
                return f"wrong only where {name} is {word}"
    return ""


_KINDS_OF_INPUT = {"NaN": is_nan, "infinite": is_infinity, "zero": is_zero, "subnormal": is_subnormal}


def _equal(policy: Policies, output: Compared, answer: Codes) -> bool:
    expected = answer.reshape(-1)
    if expected.shape != output.got.shape:
        return False
    match = policy.match.get(output.name)
    if match is None or match.on is not None or match.outside is not None:
        return bool((expected == output.got).all())
    found = classify_differences(output.fmt, match, policy.nan, expected, output.got)
    return bool((found <= Difference.UNCHECKED).all())


def _exchanged_outputs(outputs: Sequence[Compared]) -> str:
    """Each output has the codes that the reference gives for one of them, but some have another's."""
    holds: dict[str, str] = {}
    if not all(_tells(o) for o in outputs):
        return ""
    for one in outputs:
        same = [o.name for o in outputs if np.array_equal(one.got, o.expected)]
        if len(same) != 1:
            return ""
        holds[one.name] = same[0]
    moved = {name: other for name, other in holds.items() if name != other}
    if len(set(holds.values())) < len(holds) or not moved:
        return ""
    words = ", ".join(f"{name} has those of {other}" for name, other in moved.items())
    return f"the outputs are in another order: {words}; write them in the reference's order"


def _exchanged_between_outputs(case: Case, outputs: Sequence[Compared], pack: int) -> str:
    """One invocation gives all its right codes, but some in places of another output.

    Only outputs of one format with as many codes are compared, and each place must have the code of exactly one.
    """
    window = pack * outputs[0].fmt.codes_per_unit
    alike = all(o.fmt == outputs[0].fmt and o.got.size == outputs[0].got.size for o in outputs)
    if not case.elementwise or len(outputs) < 2 or window < 2 or not alike:
        return ""
    whole = outputs[0].got.size // window * window
    places = [(o.name, place) for o in outputs for place in range(window)]
    got_rows, right_rows = (
        np.concatenate([codes.reshape(-1)[:whole].reshape(-1, window).T for codes in side])
        for side in ([o.got for o in outputs], [o.expected for o in outputs])
    )
    if len(places) > _MOST_PLACES or any(len(np.unique(row)) < _LEAST_IN_A_PLACE for row in right_rows):
        return ""
    source = [np.flatnonzero((row == right_rows).all(axis=1)) for row in got_rows]
    if any(len(rows) != 1 for rows in source) or len({int(rows[0]) for rows in source}) < len(places):
        return ""
    moved = [(here, places[int(rows[0])]) for here, rows in zip(places, source, strict=True)]
    shown = [f"{h[0]}[{h[1]}] has that of {t[0]}[{t[1]}]" for h, t in moved if h != t]
    words = ", ".join(shown[:4]) + (", ..." if len(shown) > 4 else "")
    return f"the results of a pack are in other places, {words}: write each where the reference has it"


def _tells(output: Compared) -> bool:
    """Whether the right codes differ enough from each other for their order to be seen."""
    return len(np.unique(output.expected)) >= _LEAST


def _reordered(codes: Mapping[str, Codes], wrong: Sequence[Compared]) -> str:
    """Every wrong output has all its right codes, in another order of groups of 2, 4, 8, 16 or 32.

    Only where outputs are larger than inputs, as of a generator of random numbers: inputs in such an order, x and -x by
    turns, could give such outputs by another mistake.
    """
    largest = max((c.size for c in codes.values()), default=0)
    if not all(_tells(o) and o.got.size > largest for o in wrong):
        return ""
    found = [_order(output) for output in wrong]
    return "; ".join(found) if all(found) else ""


def _order(output: Compared) -> str:
    got, expected = output.got.reshape(-1), output.expected.reshape(-1)
    for group in (2, 4, 8, 16, 32):
        if got.size % group or got.size == group:
            continue
        if np.array_equal(got.reshape(group, -1).T.reshape(-1), expected):
            return f"{output.name} has its codes in {group} planes, one after the other: interleave them"
        if np.array_equal(got.reshape(-1, group).T.reshape(-1), expected):
            return f"{output.name} has its codes interleaved by {group}: store them in {group} planes"
        columns, right = got.reshape(-1, group).T, expected.reshape(-1, group).T
        order = [[k for k in range(group) if np.array_equal(column, right[k])] for column in columns]
        if all(len(k) == 1 for k in order) and len({k[0] for k in order}) == group:
            shown = ", ".join(str(k[0]) for k in order)
            return f"each {group} consecutive codes of {output.name} are in the wrong order: those of places {shown}"
    return ""


def _reordered_bytes(outputs: Sequence[Compared]) -> str:
    """Every output of 16, 32 or 64 bits has its right bytes, and some have them in another order.

    A byte that other bytes equal everywhere, or nearly so, could come from any of them.
    """
    found = [_byte_order(output) for output in outputs]
    return "; ".join(filter(None, found)) if all(words is not None for words in found) else ""


def _byte_order(output: Compared) -> str | None:
    """The order of the bytes in words; "" if they are where they belong, None if it is no order of bytes."""
    size = output.fmt.unit_bits // 8
    if not output.failing.any():
        return ""
    if output.fmt.codes_per_unit > 1 or size not in (2, 4, 8):
        return None
    got, right = (codes.reshape(-1, 1) >> np.arange(0, 8 * size, 8) & 255 for codes in (output.got, output.expected))
    if any(len(np.unique(byte)) < _LEAST for byte in right.T):
        return None
    order = [[k for k in range(size) if np.array_equal(byte, right[:, k])] for byte in got.T]
    if any(len(k) != 1 for k in order) or len({k[0] for k in order}) < size:
        return None
    moved = ", ".join(f"byte {here} has that of byte {k[0]}" for here, k in enumerate(order) if k[0] != here)
    return f"the bytes of {output.name} are in another order: {moved}"


def _missing_step(case: Case, wrong: Sequence[Compared]) -> str:
    """The reference has one value in each run of 32 elements, and the kernel's differ between elements that are
    1, 2, 4, 8 or 16 apart alone, as without that step of a butterfly."""
    if case.elementwise:
        return ""
    for output in wrong:
        if output.got.size % _WARP:
            continue
        expected, got = output.expected.reshape(-1, _WARP), output.got.reshape(-1, _WARP)
        if (expected != expected[:, :1]).any():
            continue
        lanes = np.arange(_WARP)
        apart = [step for step in (1, 2, 4, 8, 16) if (got != got[:, lanes ^ step]).any()]
        if len(apart) == 1:
            return (
                f"{output.name} should be equal in all {_WARP} elements of a run, and differs between those {apart[0]} "
                f"apart: is the exchange between lanes {apart[0]} apart missing?"
            )
    return ""
