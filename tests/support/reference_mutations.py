"""The mutants of a subject. Each changes one thing: the result, an operand, or the rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ptxdiff.model.arguments import format_of
from ptxdiff.references.formats import (
    Format,
    encode,
    from_ordinal,
    is_finite,
    is_nan,
    is_subnormal,
    is_zero,
    magnitude,
    ordinal,
    sign,
)
from tests.support.reference_mutants import Answer, Codes, Mutant, Subject, units_of
from tests.support.rounding_mutants import wrong_roundings


def mutants(subject: Subject, thin: int = 1) -> Iterator[Mutant]:
    """All mutants of a subject. `thin`: every how many binades has one."""
    for name, argument in subject.case.outputs.items():
        fmt = format_of(argument).single
        if fmt.is_float:
            yield from _results(subject, name, fmt, thin)
        else:
            yield from _integers(name, fmt)
        yield from _operands(subject, name, fmt, thin)
    if len(subject.case.inputs) == 1:
        yield from _intervals(subject, thin)
        yield from _thresholds(subject, thin)
    yield from _roundings(subject)


def wrong_by(subject: Subject, name: str) -> int:
    """The smallest distance, in steps between neighbouring values, that the policy of an output cannot allow."""
    match = subject.policy.match[name]
    fmt = format_of(subject.case.outputs[name]).single
    return {"exact": 1, "ulp": int(match.bound) + 1}.get(match.kind, 1 << fmt.mantissa_bits)


def moved(fmt: Format, codes: Codes, steps: int) -> Codes:
    """Finite codes moved by some steps toward zero, or away from zero where the sign would change."""
    place = ordinal(fmt, codes)
    away = np.where(np.abs(place) > steps, -steps, steps)
    new = from_ordinal(fmt, place + np.where(place < 0, -away, away))
    return np.where(is_finite(fmt, codes), new if fmt.code_bits == 64 else new & fmt.code_mask, codes)


def changed(name: str, mask: Callable[[Answer, Codes], Codes], new: Callable[[Codes], Codes]) -> Callable:
    """A mutant of one output: `new` of the right codes where the mask of (inputs, output) holds."""

    def wrong(codes: Answer, right: Answer) -> Answer:
        held = per_result(mask(codes, right[name]), right[name])
        return right | {name: np.where(held, new(right[name]), right[name])}

    return wrong


def per_result(held: Codes, y: Codes) -> Codes:
    """The mask of an input's codes, converted to a mask of the output's codes.

    A unit of one may hold several codes of the other: a byte with two nibbles has two results.
    """
    flat = held.reshape(-1)
    if flat.size > y.size:
        return flat.reshape(y.size, -1).any(axis=1).reshape(y.shape)
    return np.repeat(flat, y.size // flat.size).reshape(y.shape) if y.size else flat.reshape(y.shape)


def _results(subject: Subject, name: str, fmt: Format, thin: int) -> Iterator[Mutant]:
    """Mutants by result: each binade, and each code at an end of a class."""
    steps = wrong_by(subject, name)
    for binade in range(0, 1 << fmt.exponent_bits, thin):
        for negative in (0, 1)[: 1 + fmt.has_sign]:
            yield Mutant(
                f"{name}: {'-' * negative}results of exponent field {binade} wrong by {steps}",
                changed(name, lambda _, y, b=binade, s=negative: is_finite(fmt, y) & ~is_zero(fmt, y)
                        & ((magnitude(fmt, y) >> fmt.mantissa_bits) == b) & (sign(fmt, y) == s),
                        lambda y: moved(fmt, y, steps)),
            )  # fmt: skip
    top = 1 << fmt.sign_shift if fmt.has_sign else 0
    top = top - (1 << 64) if top >> 63 else top
    infinity = fmt.infinity_code
    beyond = infinity if infinity is not None else fmt.max_finite - max(1, steps) * fmt.min_positive
    swaps = {
        "the largest finite number lost": (fmt.max_finite, beyond),
        "the smallest normal number flushed": (fmt.min_normal, 0),
        "the smallest normal number one step too small": (fmt.min_normal, fmt.min_normal - steps * fmt.min_positive),
        "the largest subnormal flushed": (fmt.min_normal - fmt.min_positive, 0),
        "the smallest subnormal flushed": (fmt.min_positive, 0),
        "the sign of zero": (0, top),
    }
    if infinity is not None:
        swaps["infinity saturated"] = (infinity, fmt.max_finite)
        swaps["infinity as NaN"] = (infinity, fmt.canonical_nan)
    if fmt.has_zero:
        for what, (old, new) in swaps.items():
            for s in {0, top}:
                yield Mutant(
                    f"{name}: {what}, {'negative' if s else 'positive'}",
                    changed(name, lambda _, y, o=old ^ s: y == o, lambda y, n=new ^ s: np.full_like(y, n)),
                    targets=(old ^ s,),
                    output=name,
                )
        yield Mutant(
            f"{name}: subnormal results flushed",
            changed(name, lambda _, y: is_subnormal(fmt, y), lambda y: y & ~fmt.magnitude_mask),
        )
    if fmt.nan != "none":
        canonical = fmt.canonical_nan - (1 << 64) if fmt.canonical_nan >> 63 else fmt.canonical_nan
        for what, new in (("zero", 0), ("the largest", fmt.max_finite), ("infinity", infinity)):
            if new is not None:
                yield Mutant(f"{name}: NaN as {what}",
                             changed(name, lambda _, y: is_nan(fmt, y), lambda y, n=new: np.full_like(y, n)),
                             targets=(canonical,), output=name)  # fmt: skip


def _integers(name: str, fmt: Format) -> Iterator[Mutant]:
    top = 1 << (fmt.code_bits - 1)
    ends = {0, 1, top, top - 1, top + 1, fmt.code_mask, fmt.code_mask - 1}
    for end in sorted(ends):
        code = end - (1 << 64) if end >> 63 else end
        wrong = changed(name, lambda _, y, c=code: y == c, lambda y: y ^ 1)
        yield Mutant(f"{name}: {end:#x} off by one", wrong, targets=(code,), output=name)
    for bits in range(fmt.code_bits):
        yield Mutant(f"{name}: results of {bits + 1} bits off by one",
                     changed(name, lambda _, y, b=bits: (y >> b) == 1, lambda y: y ^ 1))  # fmt: skip


def _operands(subject: Subject, name: str, out: Format, thin: int) -> Iterator[Mutant]:
    """Mutants by operand: the result is wrong for each binade, and for each class, of the operand."""
    steps = wrong_by(subject, name) if out.is_float else 1

    def broken(y: Codes) -> Codes:
        if not out.is_float:
            return y ^ 1
        other = out.max_finite if out.has_zero else 0
        return np.where(is_finite(out, y) & ~is_zero(out, y), moved(out, y, steps), np.where(y == other, 0, other))

    for operand, packed in subject.formats.items():
        fmt = packed.single

        def on(test: Callable[[Codes], Codes], n: str = operand) -> Callable:
            return lambda codes, _: test(codes[n])

        if fmt.is_float:
            for binade in range(0, 1 << fmt.exponent_bits, thin):
                yield Mutant(
                    f"{name}: {operand} of exponent field {binade}",
                    changed(name, on(lambda x, b=binade, f=fmt: is_finite(f, x)
                                     & ((magnitude(f, x) >> f.mantissa_bits) == b)), broken),
                )  # fmt: skip
            singles = [0, fmt.max_finite, fmt.min_normal, fmt.min_positive, fmt.min_normal - fmt.min_positive]
            if fmt.infinity_code is not None:
                singles.append(fmt.infinity_code)
            singles += [c | 1 << fmt.sign_shift for c in singles] if fmt.has_sign else []
            for code in singles:
                c = code - (1 << 64) if code >> 63 else code
                yield Mutant(f"{name}: {operand} = {code:#x}", changed(name, on(lambda x, c=c: x == c), broken))
            for what, test in nans(fmt):
                yield Mutant(f"{name}: {operand} a {what}", changed(name, on(test), broken))


def nans(fmt: Format) -> Iterator[tuple[str, Callable[[Codes], Codes]]]:
    """The kinds of NaN of a format: a format without a fraction has one."""
    if fmt.nan == "ieee" and fmt.mantissa_bits:
        quiet = 1 << (fmt.mantissa_bits + fmt.ignored_bits - 1)
        yield "quiet NaN", lambda x: is_nan(fmt, x) & ((x & quiet) != 0)
        yield "signalling NaN", lambda x: is_nan(fmt, x) & ((x & quiet) == 0)
    elif fmt.nan != "none":
        yield "NaN", lambda x: is_nan(fmt, x)


def _intervals(subject: Subject, thin: int) -> Iterator[Mutant]:
    """Mutants that are wrong between two neighbouring integers, as a table-driven range reduction can be."""
    (operand, fmt), (name, argument) = *subject.formats.items(), next(iter(subject.case.outputs.items()))
    out = format_of(argument).single
    if not (fmt.is_float and out.is_float) or fmt.code_bits <= 8 or fmt.exponent_bits < 8 or fmt.codes_per_unit > 1:
        return
    steps = wrong_by(subject, name)
    for k in range(-152, 130, max(1, thin // 2)):
        low, high = (int(ordinal(fmt, encode(fmt, float(v)))) for v in (k, k + 1))
        yield Mutant(
            f"{name}: {operand} in [{k}, {k + 1})",
            changed(name, lambda c, y, a=low, b=high: (ordinal(fmt, c[operand]) >= a) & (ordinal(fmt, c[operand]) < b)
                    & ~is_zero(out, y), lambda y: moved(out, y, steps)),
        )  # fmt: skip


def _thresholds(subject: Subject, thin: int) -> Iterator[Mutant]:
    """Mutants of a threshold, where the result enters another class, binade or (of a narrow format) code: it moves by
    one input."""
    ((operand, packed),) = subject.formats.items()
    fmt, (name, argument) = packed.single, next(iter(subject.case.outputs.items()))
    out = format_of(argument).single
    pairs = thresholds(subject, fmt, out)[:: max(1, thin // 2)]
    swaps = [(old, new) for below, above in pairs for old, new in ((below, above), (above, below))]
    if not swaps:
        return
    others = units_of(subject, [np.array([new for _, new in swaps])])
    values = subject.answer(others)[name].reshape(len(swaps), -1)
    each = values.shape[1] // packed.codes_per_unit  # results of one code; several if it holds fields
    for (old, new), value in zip(swaps, values[:, : max(1, each)], strict=True):
        yield Mutant(
            f"{name}: {operand} = {old:#x} as {new:#x}",
            changed(name, lambda c, y, o=old: c[operand] == o, lambda y, v=value: np.resize(v, y.shape)),
            witness=((old,),),
        )


def thresholds(subject: Subject, fmt: Format, out: Format) -> list[tuple[int, int]]:
    """Neighbouring inputs whose results differ in class, binade or sign (of a narrow format: in code), for a monotone
    answer."""
    if fmt.code_bits == 64:  # the grid is made in float64, which cannot distinguish these codes
        return []
    top = int(ordinal(fmt, fmt.max_finite)) + (fmt.infinity_code is not None)
    grid = np.unique(np.round(np.linspace(0, top, 3001)).astype(np.int64))
    grid = np.concatenate([-grid[:0:-1], grid]) if fmt.has_sign else grid
    name = next(iter(subject.case.outputs))

    def label(places: Codes) -> Codes:
        codes = from_ordinal(fmt, places) & fmt.code_mask
        y = subject.answer(units_of(subject, [codes]))[name].reshape(len(places), -1)[:, 0]
        if out.code_bits <= 8:
            return y
        return y >> (out.mantissa_bits + out.ignored_bits) if out.is_float else np.frexp(y.astype(np.float64))[1]

    low, high = grid[:-1], grid[1:]
    a, b = label(low), label(high)
    while len(low) and (high - low > 1).any():
        keep = a != b
        low, high, a, b = low[keep][:4000], high[keep][:4000], a[keep][:4000], b[keep][:4000]
        middle = low + (high - low) // 2
        m = label(middle)
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
        a, b = np.concatenate([a, m]), np.concatenate([m, b])
        fresh = high > low
        low, high, a, b = low[fresh], high[fresh], a[fresh], b[fresh]
    if len(low) > 1500:  # not monotone: one of thousands of periods is one code of 2^32, and not what is asked for
        near = np.abs(low) < int(ordinal(fmt, encode(fmt, 4.0)))
        low, high, a, b = low[near], high[near], a[near], b[near]
    order = np.argsort(low[a != b])
    pairs = np.stack([low[a != b], high[a != b]], axis=1)[order]
    codes = np.stack([from_ordinal(fmt, p) for p in pairs.T], axis=1)
    return [(int(x) & fmt.code_mask, int(y) & fmt.code_mask) for x, y in codes]


def _roundings(subject: Subject) -> Iterator[Mutant]:
    if not subject.operation:
        return
    fmt = next(iter(subject.formats.values()))
    (name,) = subject.case.outputs
    for what, function in wrong_roundings(fmt, subject.operation):

        def wrong(codes: Answer, right: Answer, f: Callable = function) -> Answer:
            return right | {name: f(list(codes.values()))}

        yield Mutant(f"{name}: {what}", wrong)
