"""Compare arithmetic that no available hardware has with definitions independent of the emulator's.

    python tests/support/conformance/arithmetic_opinions.py --write

runs the narrow forms (`add.e4m3x4.e2m1x4`, ...) on all combinations of codes, with random bits as padding, and the
mixed packed forms (`add.f32x2.f16x2.f32x2`, ...) on special and random values. It writes into the ledger how many
results of each definition agreed with the emulator. Forms that the ledger lacks get their line first.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ptxdiff.conformance import ledger
from tests.support.conformance import arithmetic as a
from tests.support.conformance import definitions as d
from tests.support.conformance.opinions import EXACT, GFLOAT, Verdict, added, run

_PLACES = {"e2m1x4": 4}
MODES = ("rn", "rz", "rm", "rp")


@dataclass(frozen=True)
class Arithmetic:
    """What the name of a form says: the types of the result and of the sources."""

    form: str
    opcode: str
    words: frozenset[str]
    types: tuple[str, ...]

    @property
    def narrow(self) -> bool:
        """Whether a register holds four values of a narrow format; else it holds two values of mixed formats."""
        return self.types[0].endswith("x4")


def arithmetic(form: str) -> Arithmetic | None:
    """The arithmetic of a form; None if this module has no definition of it."""
    opcode, *parts = form.split(".")
    types = tuple(p for p in parts if p.endswith(("x2", "x4")))
    if opcode not in ("add", "sub", "mul", "fma") or len(set(types)) < 1 or "8x4" in "".join(types):
        return None
    if not types[0].endswith("x4") and len(types) < 3:
        return None
    return Arithmetic(form, opcode, frozenset(parts) - set(types), types)


def known() -> dict[str, Arithmetic]:
    """The forms of the ledger that hardware has not confirmed and that this module defines."""
    found = {form: arithmetic(form) for form, e in ledger.current().items() if e.status != ledger.CONFIRMED}
    return {form: c for form, c in found.items() if c is not None}


# four values a register ----------------------------------------------------------------------------------------


def format_of(kind: str) -> str:
    """The format of a packed type."""
    return kind.removesuffix("x4").removesuffix("p4")


def packed(codes: Any, kind: str, rng: Any) -> Any:
    """Registers from rows of four codes. The bits above a code that is narrower than its place are random."""
    place, bits = _PLACES.get(kind, 8), d.FORMATS[format_of(kind)].bits
    padding = rng.integers(0, 1 << place, codes.shape) >> bits << bits
    return ((codes | padding) << np.arange(4) * place).sum(axis=1)


@cache
def _products(first: str, second: str | None) -> tuple[Any, Any, Any]:
    """The codes of all pairs of factors, and their exact products; without `second`, the codes and values of
    `first`."""
    x = a.values(first)
    y = np.ones(1) if second is None else a.values(second)
    i, j = (g.ravel() for g in np.meshgrid(np.arange(x.size), np.arange(y.size), indexing="ij"))
    with np.errstate(invalid="ignore"):
        return i, j, x[i] * y[j]


def judge_narrow(c: Arithmetic, verdict: Verdict, addends: Iterable[int] | None = None) -> None:
    """Compare one form on all pairs of factors, with the given addends (default: all)."""
    to = format_of(c.types[0])
    factors = [format_of(t) for t in c.types[1:]]
    i, j, product = _products(factors[0], factors[1] if len(factors) > 1 else None)
    rng = np.random.default_rng(len(c.form))
    clamp = "satfinite" in c.words
    if c.opcode == "mul":
        _compare(
            c, verdict, rng, [i, j], a.exact_codes(product, None, to, clamp), a.by_gfloat(product, None, to, clamp)
        )
        return
    terms = a.values(to)
    for k in range(terms.size) if addends is None else addends:
        addend = -float(terms[k]) if c.opcode == "sub" else float(terms[k])
        codes = [i, j] if c.opcode == "fma" else [i]
        codes.append(np.full(i.size, k))
        exact = a.exact_codes(product, addend, to, clamp)
        _compare(c, verdict, rng, codes, exact, a.by_gfloat(product, addend, to, clamp))


def _compare(c: Arithmetic, verdict: Verdict, rng: Any, codes: list[Any], exact: Any, gfloat: tuple[Any, Any]) -> None:
    """Compare the form's results for columns of codes, in random order of places, with those of the two definitions."""
    order = rng.permutation(exact.size)
    kinds = c.types[1:] if len(codes) == len(c.types) - 1 else (*c.types[1:], c.types[0])
    columns = [packed(x[order].reshape(-1, 4), kind, rng) for x, kind in zip(codes, kinds, strict=True)]
    got = (run(c.form, *columns)[:, None] >> np.arange(4) * 8 & 0xFF).ravel()
    verdict.add(c.form, got, {EXACT: exact[order]})
    covered = gfloat[1][order]
    verdict.add(c.form, got[covered], {GFLOAT: gfloat[0][order][covered]})


# two values of mixed formats -----------------------------------------------------------------------------------

_EDGES = {
    "f16": (0, 1, 0x3FF, 0x400, 0x3C00, 0x3C01, 0x7BFF, 0x7C00, 0x7E00),
    "bf16": (0, 1, 0x7F, 0x80, 0x3F80, 0x3F81, 0x477F, 0x4780, 0x7F7F, 0x7F80, 0x7FC0),
    "f32": (
        *(0, 1, 0x7FFFFF, 0x800000, 0x337FFFFF, 0x33800000, 0x387FDFFF, 0x38800000, 0x3F800000, 0x3F800001),
        *(0x477FEFFF, 0x477FF000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000),
    ),
}


def drawn(name: str, rng: random.Random, like: int | None) -> int:
    """A pattern of either sign: an edge, a random pattern, a neighbour of the float32 pattern `like`, or a number of
    ordinary magnitude."""
    mantissa, bias, width = a.FORMATS[name]
    sign = rng.getrandbits(1) << (width - 1)
    kind = rng.randrange(6)
    if kind == 0:
        return sign | rng.choice(_EDGES[name])
    if kind == 1:
        return rng.getrandbits(width)
    if kind == 2 and like is not None:
        return sign | max(0, ((like & 0x7FFFFFFF) >> (32 - width if name == "bf16" else 0)) + rng.randrange(-2, 3))
    field = min(max(bias + rng.randrange(-24, 18), 0), 2 * bias)
    ones = (1 << mantissa) - 1
    fraction = rng.getrandbits(mantissa) & rng.choice((ones, ones ^ 0xF, ones << mantissa // 2 & ones))
    return sign | field << mantissa | fraction


def expected(c: Arithmetic, patterns: tuple[int, ...]) -> int:
    """The result for one value of each source."""
    to, *names = (t.removesuffix("x2") for t in c.types)
    mode = next((m for m in MODES if m in c.words), "rn")
    if "ftz" in c.words:
        patterns = tuple(a.flushed(p, n) for p, n in zip(patterns, names, strict=True))
    parts = [a.split(p, n) for p, n in zip(patterns, names, strict=True)]
    if set(names) == {"f16", "bf16"}:
        other = a.result(parts[1], None, to, "rn")
        parts[1] = a.split(other, to)
    if c.opcode == "sub":
        parts[1] = 1 - parts[1][0], parts[1][1]
    if c.opcode in ("add", "sub"):
        found = a.result(parts[0], parts[1], to, mode)
    else:
        found = a.result(a.times(parts[0], parts[1]), parts[2] if len(parts) > 2 else None, to, mode)
    return a.flushed(found, to) if "ftz" in c.words else found


def judge_mixed(c: Arithmetic, verdict: Verdict, count: int) -> None:
    """Compare one form on `count` values, random and special ones."""
    names = [t.removesuffix("x2") for t in c.types[1:]]
    rng = random.Random(c.form)
    rows = []
    for _ in range(count // 2 * 2):
        row: list[int] = []
        for name in names:
            like = next((_as_f32(p, n) for p, n in zip(row, names, strict=False)), None)
            row.append(drawn(name, rng, like if name != "f16" else None) & (1 << a.FORMATS[name][2]) - 1)
        rows.append(tuple(row))
    columns = []
    for at, name in enumerate(names):
        width = a.FORMATS[name][2]
        joined = [rows[i][at] | rows[i + 1][at] << width for i in range(0, len(rows), 2)]
        columns.append(np.array(joined, np.uint64))
    width = a.FORMATS[c.types[0].removesuffix("x2")][2]
    pairs = run(c.form, *columns)
    got = np.stack([pairs & (1 << width) - 1, pairs >> width & (1 << width) - 1], axis=1).ravel()
    verdict.add(c.form, got, {EXACT: np.array([expected(c, row) for row in rows])})


def _as_f32(pattern: int, name: str) -> int:
    """The float32 pattern of the same magnitude as a pattern; the largest finite one where float32 has no such
    magnitude."""
    size = a.split(pattern, name)[1]
    return 0x7F7FFFFF if isinstance(size, str) else a.rounded(0, size, "f32", "rn")


# all of it -----------------------------------------------------------------------------------------------------


def verdict_on(c: Arithmetic, count: int, addends: Iterable[int] | None = None) -> dict[str, Verdict]:
    """The verdict on one form. `count`: the number of values for a mixed form. `addends`: see `judge_narrow`."""
    found = Verdict()
    if c.narrow:
        judge_narrow(c, found, addends)
    else:
        judge_mixed(c, found, count)
    return {c.form: found}


def verdicts(chosen: Iterable[Arithmetic], count: int, workers: int) -> Iterator[dict[str, Verdict]]:
    """Yield the verdicts as they are ready. Of forms with different names and the same meaning only one is run."""
    alike: dict[str, list[Arithmetic]] = {}
    for c in chosen:
        alike.setdefault(ledger.digest(c.form), []).append(c)
    work: Callable[[Arithmetic], dict[str, Verdict]] = _Judge(count)
    with ProcessPoolExecutor(workers, initializer=os.nice, initargs=(5,)) as pool:
        for done, group in zip(pool.map(work, [g[0] for g in alike.values()]), alike.values(), strict=True):
            verdict = done[group[0].form]
            yield {c.form: verdict for c in group}


@dataclass(frozen=True)
class _Judge:
    count: int

    def __call__(self, c: Arithmetic) -> dict[str, Verdict]:
        return verdict_on(c, self.count)


def with_new_forms(book: ledger.Ledger) -> ledger.Ledger:
    """The ledger with a line for each form of this module that it lacks. The line says what the available hardware
    lacks."""
    from ptxdiff.conformance import forms

    targets = {r.target for r in book.runs.values()}
    entries = dict(book.entries)
    for form in known():
        if form not in entries:
            why = next(words for t in sorted(targets) if (words := forms.lacking(form, t)))
            entries[form] = ledger.Entry(form, ledger.SPECIFICATION, why=why)
    return ledger.Ledger(book.runs, entries)


def main() -> int:
    """Run all forms, print the differences, and with --write write the ledger if there are none."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=1 << 17, help="values of a mixed form (default: 2**17)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="forms that begin so")
    parser.add_argument("--write", action="store_true", help="put the result into the ledger")
    args = parser.parse_args()
    chosen = [c for form, c in known().items() if form.startswith(args.only)]
    found = added(verdicts(chosen, args.count, args.workers))
    against = [text for v in found.values() for text in v.against]
    print(f"{len(found)} forms, {len(against)} disagreements shown", *against[:40], sep="\n")
    if args.write and not against:
        book = with_new_forms(ledger.read())
        agreed = {form: dict(v.agreed) for form, v in found.items()}
        ledger.PATH.write_text(ledger.with_opinions(book, agreed).text(), encoding="utf-8")
        print(f"{ledger.PATH} written")
    return 1 if against else 0


if __name__ == "__main__":
    raise SystemExit(main())
