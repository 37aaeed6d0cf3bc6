"""Wrong versions of references: do the inputs of quick effort distinguish each of them from the right one?

A mutant changes the right answer: one binade of results or of inputs, one class of results, one code at a threshold, or
the rounding of an operation. It is *killed* if the judge, with the case's own policies, fails it on these inputs. It is
*equivalent* if no witness is known, among many more inputs than a run has and inputs searched for this mutant alone.
Otherwise it survives. Nothing is compiled and no backend runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ptxdiff import Case
from ptxdiff.inputs import input_sets
from ptxdiff.inputs.edges import edge_codes
from ptxdiff.inputs.sets import within
from ptxdiff.judging.differences import Difference, classify_differences
from ptxdiff.judging.evaluate import accepted
from ptxdiff.judging.judge import judge
from ptxdiff.model.arguments import codes_of, format_of, values_of
from ptxdiff.model.policies import Policies
from ptxdiff.model.reference import apply_reference
from ptxdiff.references.formats import (
    Format,
    from_ordinal,
    is_finite,
    ordinal,
    pack,
)
from tests.support.rounding_mutants import rounded

Codes = np.ndarray
Answer = dict[str, Codes]
Rows = dict[str, Codes]  # storage units by input

POOL = 1 << 18


@dataclass(frozen=True)
class Mutant:
    """A function from the inputs' codes and the right answer to a wrong answer.

    targets: codes of an output, whose inputs are searched as witnesses. output: the name of that output; "" for the
    first. witness: codes of inputs to try.
    """

    name: str
    wrong: Callable[[Answer, Answer], Answer]
    targets: tuple[int, ...] = ()
    output: str = ""
    witness: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Known:
    """Inputs with the right answer, and all answers that the policies accept."""

    rows: Rows
    codes: Answer
    right: Answer
    accepted: list[Answer]


@dataclass(frozen=True)
class Subject:
    """A case with the policies of one of its variants. operation: the name for `wrong_roundings`, or ""."""

    name: str
    case: Case
    policy: Policies
    operation: str = ""

    @functools.cached_property
    def formats(self) -> Mapping[str, Format]:
        return {n: format_of(a) for n, a in self.case.inputs.items()}

    def known(self, rows: Rows) -> Known:
        """Rows with the right answer and all answers that the policies accept."""
        codes = codes_of(self.case.inputs, rows)
        answers = list(accepted(self.case, self.policy, codes))
        return Known(rows, codes, apply_reference(self.case, self.policy.reference, codes), answers)

    def answer(self, rows: Rows) -> Answer:
        """The right answer alone."""
        return apply_reference(self.case, self.policy.reference, codes_of(self.case.inputs, rows))

    def inside(self, rows: Rows) -> Rows:
        """The rows that lie within `where=`. For other rows a kernel may return anything, so that none of them is a
        witness."""
        if not len(next(iter(rows.values()))):
            return rows
        keep = within(self.case.domain, self.formats, rows)
        return {n: u[keep] for n, u in rows.items()}

    @functools.cached_property
    def quick(self) -> Known:
        """The inputs of quick effort, all sets in one."""
        found = [s.all() for s in input_sets(self.case, "quick")]
        return self.known({n: np.concatenate([f[n] for f in found]) for n in self.formats})

    @functools.cached_property
    def pool(self) -> Known:
        """Many inputs that come from no input set of the harness."""
        return self.known(self.inside(drawn(self)))


def verdict(subject: Subject, mutant: Mutant) -> str:
    """ "killed", "survives" or "equivalent"."""
    if detects(subject, mutant, subject.quick):
        return "killed"
    if detects(subject, mutant, subject.pool):
        return "survives"
    rows = [searched(subject, target, mutant.output) for target in mutant.targets]
    rows += [units_of(subject, [np.array([c]) for c in codes]) for codes in mutant.witness]
    rows = [r for r in map(subject.inside, rows) if len(next(iter(r.values())))]
    return "survives" if any(detects(subject, mutant, subject.known(r)) for r in rows) else "equivalent"


def detects(subject: Subject, mutant: Mutant, known: Known) -> bool:
    """Whether the policies fail the mutant on some of the rows: the judge's rule, applied to known answers."""
    wrong = changed_answer(mutant, known)
    for name, argument in subject.case.outputs.items():
        fmt, got = format_of(argument), wrong[name].reshape(-1)
        where = np.flatnonzero(got != known.right[name].reshape(-1))
        failing = np.ones(len(where), dtype=bool)
        for answer in known.accepted if len(where) else ():
            expected = answer[name].reshape(-1)[where]
            inside = functools.partial(_inside, subject, name, known.rows, got.size, where)
            found = classify_differences(
                fmt, subject.policy.match[name], subject.policy.nan, expected, got[where], inside
            )
            failing &= found > Difference.UNCHECKED
        if failing.any():
            return True
    return False


def judged(subject: Subject, mutant: Mutant, known: Known) -> bool:
    """Like `detects`, by the judge itself. It takes longer, because the judge explains each failure."""
    wrong = changed_answer(mutant, known)
    outputs = {n: pack(format_of(a), wrong[n]) for n, a in subject.case.outputs.items()}
    return not judge(subject.case, subject.policy, known.rows, outputs).passed


def changed_answer(mutant: Mutant, known: Known) -> Answer:
    with np.errstate(all="ignore"):
        return mutant.wrong(known.codes, known.right)


def _inside(subject: Subject, name: str, rows: Rows, size: int, where: Codes) -> Codes:
    domain = subject.policy.match[name].on
    holds = domain.holds({n: values_of(f, rows[n]) for n, f in subject.formats.items()})
    return np.repeat(holds, size // holds.size)[where]


# ---- Witnesses -----------------------------------------------------------------------------------------------


def units_of(subject: Subject, columns: list[Codes]) -> Rows:
    """Storage units that hold the given codes, in all their slots."""
    return {
        n: np.bitwise_or.reduce([c << (k * f.slot_bits) for k in range(f.codes_per_unit)]).astype(f.numpy_dtype())
        for (n, f), c in zip(subject.formats.items(), columns, strict=True)
    }


def drawn(subject: Subject) -> Rows:
    """Random bits, operands of few significant bits, and operands that cancel each other."""
    rng = np.random.default_rng(12345)
    columns = [_drawn(f.single, rng) for f in subject.formats.values()]
    formats = [f.single for f in subject.formats.values()]
    some = rng.random(POOL) < 0.4
    near = rng.integers(-2, 3, POOL)
    if len(columns) == 2 and formats[0] == formats[1] and formats[0].is_float:
        fmt = formats[0]
        opposite = from_ordinal(fmt, -ordinal(fmt, columns[0]) + near)
        columns[1] = np.where(some & is_finite(fmt, columns[0]), opposite & fmt.code_mask, columns[1])
    if len(columns) == 3 and len(set(formats)) == 1 and formats[0].is_float and formats[0].code_bits <= 32:
        fmt = formats[2]
        product = rounded(fmt, "mul", "rn", columns[:2])
        opposite = from_ordinal(fmt, -ordinal(fmt, product) + near)
        columns[2] = np.where(some & is_finite(fmt, product), opposite & fmt.code_mask, columns[2])
    return units_of(subject, columns)


def _drawn(fmt: Format, rng: np.random.Generator) -> Codes:
    bits = rng.integers(0, 1 << min(fmt.code_bits, 63), POOL, dtype=np.int64)
    if fmt.code_bits == 64:
        bits |= rng.integers(0, 2, POOL, dtype=np.int64) << 63
    if fmt.code_bits <= 8:
        return bits
    if not fmt.is_float:
        return np.where(rng.random(POOL) < 0.4, _few_bits(fmt, rng), bits)
    width = fmt.mantissa_bits + fmt.ignored_bits
    few = (bits >> rng.integers(0, width + 1, POOL)) << rng.integers(0, width + 1, POOL)
    fraction = np.where(rng.random(POOL) < 0.6, few, bits) & ((1 << width) - 1)
    exponent = rng.integers(0, (1 << fmt.exponent_bits) - 1, POOL, dtype=np.int64)
    middle = rng.integers(max(0, fmt.bias - 16), fmt.bias + 17, POOL, dtype=np.int64)
    exponent = np.where(rng.random(POOL) < 0.5, middle, exponent)
    made = fraction | exponent << width | (bits & -(1 << fmt.sign_shift))
    edges = np.array([c - (1 << 64) if c >> 63 else c for c in edge_codes(fmt)])
    made = np.where(rng.random(POOL) < 0.1, rng.choice(edges, POOL), made)
    return made if fmt.code_bits == 64 else made & fmt.code_mask


def _few_bits(fmt: Format, rng: np.random.Generator) -> Codes:
    """Codes that differ in up to three bits from a run of ones or zeros at the upper end."""
    codes = np.where(rng.random(POOL) < 0.5, 0, -1 << rng.integers(0, fmt.code_bits, POOL))
    for _ in range(3):
        codes ^= rng.integers(0, 2, POOL) << rng.integers(0, fmt.code_bits, POOL)
    codes = np.where(rng.random(POOL) < 0.5, codes, ~codes)
    return codes if fmt.code_bits == 64 else codes & fmt.code_mask


ANCHORS = 256


def searched(subject: Subject, target: int, output: str = "") -> Rows:
    """Inputs for which an output has the target code, by bisection of each input where the answer is monotone."""
    output = output or next(iter(subject.case.outputs))
    fmt = format_of(subject.case.outputs[output]).single
    goal = int(ordinal(fmt, target))
    rng = np.random.default_rng(target & 0xFFFFFFFF)
    count = 4 * (ANCHORS if len(subject.formats) > 1 else 1)
    side = np.where(np.arange(count) & 1, 1, -1)
    rising = (np.arange(count) & 2) > 0
    found = []
    for name, own in subject.formats.items():
        single = own.single
        start = {n: u[rng.integers(0, len(u), count)] for n, u in subject.pool.rows.items()}
        low, high = np.zeros(count, np.int64), np.full(count, int(ordinal(single, single.max_finite)))
        for _ in range(single.code_bits):
            middle = low + (high - low) // 2
            column = from_ordinal(single, side * middle) & (single.code_mask if single.code_bits < 64 else -1)
            rows = start | {name: _repeated(own, column)}
            answer = subject.answer(rows)[output].reshape(count, -1)[:, 0]
            hit = np.flatnonzero(answer == target)
            found.append({n: u[hit] for n, u in rows.items()})
            up = (ordinal(fmt, answer) < goal) == rising
            low, high = np.where(up, middle + 1, low), np.where(up, high, middle)
    return {n: np.concatenate([f[n] for f in found]) for n in subject.formats}


def _repeated(fmt: Format, codes: Codes) -> Codes:
    units = np.bitwise_or.reduce([codes << (k * fmt.slot_bits) for k in range(fmt.codes_per_unit)])
    return units.astype(fmt.numpy_dtype())
