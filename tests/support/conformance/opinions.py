"""Compare conversions that no available hardware has with definitions independent of the emulator's.

    python tests/support/conformance/opinions.py --write

runs every such form on the inputs of `narrow_inputs`. It writes into the ledger on how many inputs each definition
agreed with the emulator, counted in values, not in pairs or fours. A definition is computed once for all forms with the
same source, format, rounding, scale and saturation; only running a form and comparing is done for each. It takes two
minutes of one core.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np

from ptxdiff.conformance import forms, ledger
from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.numeric.vectorise import UNSIGNED
from tests.support.conformance import definitions as d
from tests.support.conformance.narrow_inputs import STRATA, Inputs, plain, scaled, shown, stochastic, to_halves

EXACT, GFLOAT, ML_DTYPES = "exact rational", "gfloat", "ml_dtypes"
_BLOCK = 1 << 17
"""The number of lanes that are run and compared at a time, so that they fit into the processor's cache."""
_NARROW = (*d.FORMATS, "s2f6")
HALVES = ("f16", "bf16", "tf32")
"""Formats that have an infinity. tf32 is in the upper 19 bits of a register, and the other bits are 0, also for NaN, as
an H200 confirms for cvt.rn.tf32.f32 on all inputs."""


@dataclass(frozen=True)
class Conversion:
    """What the name of a form says. `to` and `source` are formats, without x2 or x4."""

    form: str
    mode: str
    words: frozenset[str]
    to: str
    source: str
    values: int
    scaled: bool

    @property
    def widens(self) -> bool:
        """Whether the form converts from a narrow format to float16 or bfloat16."""
        return self.to in ("f16", "bf16") and self.source != "f32"


def conversion(form: str) -> Conversion | None:
    """What a form converts; None if this module has no definition of it."""
    opcode, *parts = form.split(".")
    if opcode != "cvt" or len(parts) < 3:
        return None
    mode, *words = parts[:-2]
    to, many, count = parts[-2].rpartition("x")
    source = parts[-1].removesuffix("x2")
    if not many and source == "f32" and parts[-2] in HALVES:
        to, count = parts[-2], "1"
    if count not in ("1", "2", "4") or to not in _NARROW or (source != "f32" and source not in _NARROW):
        return None
    return Conversion(form, mode, frozenset(words), to, source, int(count), any("scaled" in w for w in words))


def conversions() -> dict[str, Conversion]:
    """The forms of the ledger that hardware has not confirmed and that this module defines."""
    known = {form: conversion(form) for form, e in ledger.current().items() if e.status == ledger.SPECIFICATION}
    return {form: c for form, c in known.items() if c is not None}


def run(form: str, *columns: Any) -> Any:
    """The emulator's results for columns of patterns, as int64."""
    bound = _bound(form)
    arrays = [c.astype(UNSIGNED[w]) for c, (w, _) in zip(columns, bound.source_types, strict=True)]
    return bound.array_function()(len(arrays[0]), *arrays).astype(np.int64)


@cache
def _bound(form: str) -> Bound:
    return forms.bounds_of()[form]


# opinions ------------------------------------------------------------------------------------------------------------


@dataclass
class Verdict:
    """The number of values on which each definition agreed with the emulator, and the first values on which one did
    not."""

    agreed: Counter[str] = field(default_factory=Counter)
    against: list[str] = field(default_factory=list)

    def add(self, form: str, got: Any, opinions: Mapping[str, Any], shown: Callable[[int], str] = str) -> None:
        """Compare the emulator's codes with each definition's. `shown`: returns the operands of the i-th code, in
        words."""
        wrong = {id(e): np.flatnonzero(got != e) for e in opinions.values()}
        for name, expected in opinions.items():
            found = wrong[id(expected)]
            self.agreed[name] += got.size - found.size
            known = sum(f", {name} says " in text for text in self.against)
            first = found[: max(3 - known, 0)].tolist()
            self.against += [f"{form}: {shown(i)} gives {got[i]:#x}, {name} says {expected[i]:#x}" for i in first]


def judge(c: Conversion, verdict: Verdict, strata: int = STRATA) -> None:
    """Compare one form that converts to a narrow format, on the inputs of its source format."""
    if c.mode == "rs":
        inputs, random = stochastic(c.to, c.values, strata)
        opinions, overflow = _stochastic(c, inputs, random), d.FORMATS[c.to].largest + 1
    else:
        scaling = next((w for w in c.words if w.startswith("scaled")), "")
        inputs = scaled(c.source, "n1" in scaling, strata) if scaling else _unscaled(c, strata)
        opinions, overflow = _opinions(c, inputs, scaling), None
        if c.to in HALVES or (c.to != "s2f6" and d.FORMATS[c.to].unsigned):
            overflow = d.FORMATS[c.to].largest + 1
    kept = np.int64 if c.to == "tf32" else np.int32
    answers = [(names, _codes(c, m, inputs.x, overflow).astype(kept)) for names, m in _alike(opinions)]
    width = {"e2m1": 4, "f16": 16, "bf16": 16, "tf32": 32}.get(c.to, 8)
    for start in range(0, inputs.lanes, _BLOCK):
        block = slice(start, start + _BLOCK)
        got = run(c.form, *(column[block] for column in inputs.columns[: 1 if c.values == 1 else None]))
        for place, which in enumerate(inputs.which.reshape(-1, inputs.lanes)[: c.values]):
            codes = got >> width * (c.values - 1 - place) & (1 << width) - 1
            for names, codes_of in answers:
                expected = codes_of[which[block]]
                verdict.add(c.form, codes, dict.fromkeys(names, expected), partial(shown, inputs.columns, place, start))


def _unscaled(c: Conversion, strata: int) -> Inputs:
    return to_halves(strata) if c.to in HALVES else plain(c.source, strata)


def _alike(made: Mapping[str, Any]) -> list[tuple[list[str], Any]]:
    """The definitions grouped by equal results for the same magnitudes, so that equal results are compared once."""
    groups: list[tuple[list[str], Any]] = []
    for name, found in made.items():
        group = next((names for names, other in groups if np.array_equal(found, other)), None)
        if group is None:
            groups.append(([name], found))
        else:
            group.append(name)
    return groups


def _codes(c: Conversion, magnitudes: Any, x: Any, overflow: int | None) -> Any:
    """Codes of values from the codes of their magnitudes, by the form's modifiers."""
    if c.to == "s2f6":
        # Two's complement has no separate sign: each value has its own code, and .relu makes the code of a negative
        # value 0.
        return np.where(np.isnan(x), 0x7F, np.where(np.signbit(x) & ("relu" in c.words), 0, magnitudes))
    codes = d.finished(np.resize(magnitudes, len(x)), x, c.to, c.words, overflow)
    return codes << 13 if c.to == "tf32" else codes


def _opinions(c: Conversion, inputs: Inputs, scaling: str) -> dict[str, Any]:
    """The definitions' codes of magnitudes; for s2f6, of all values."""
    key, x = (c.to, c.mode), inputs.sizes
    clamp = "satfinite" in c.words
    if c.to in HALVES:
        return _of_halves(c, inputs)
    if c.to == "s2f6":
        return {
            EXACT: inputs.once((EXACT, *key), lambda: d.s2f6_exact(inputs.x, c.mode)),
            GFLOAT: inputs.once((GFLOAT, *key), lambda: d.s2f6_gfloat(inputs.x, c.mode)),
        }
    makers: dict[str, Callable[[], Any]] = {
        EXACT: lambda: d.exact(x, c.to, c.mode),
        GFLOAT: lambda: d.by_gfloat(x, c.to, c.mode, clamp),
    }
    if c.mode == "rn" and c.to in d.CASTS:
        makers[ML_DTYPES] = lambda: d.by_ml_dtypes(x, c.to)
    if c.to == "ue8m0":
        bits = inputs.patterns[: len(x)] << (16 if c.source == "bf16" else 0)
        makers["exponent fields"] = lambda: d.by_fields(bits, c.mode)
    # Definitions differ for NaN and for numbers that are clamped later. `finished` decides these, once for all
    # definitions.
    most = d.FORMATS[c.to].largest + (not clamp)
    return {
        name: inputs.once((name, *key, clamp), lambda make=make: np.where(np.isnan(x), 0, np.minimum(make(), most)))
        for name, make in makers.items()
    }


def _of_halves(c: Conversion, inputs: Inputs) -> dict[str, Any]:
    """The definitions' codes of magnitudes; codes for each sign where the rounding mode depends on the sign."""
    x, key = inputs.sizes, ("halves", c.to, c.mode, "ftz" in c.words)
    x = np.where(np.isnan(x) | (("ftz" in c.words) & (x < 2.0**-126)), 0.0, x)
    signed = {"rp": ("rp", "rz"), "rm": ("rz", "rp")}.get(c.mode, (c.mode,))
    makers: dict[str, Callable[[str], Any]] = {
        EXACT: lambda mode: d.exact(x, c.to, mode),
        GFLOAT: lambda mode: d.by_gfloat(x, c.to, mode, clamp=False),
    }
    if c.mode == "rn" and c.to != "tf32":
        makers["numpy" if c.to == "f16" else ML_DTYPES] = lambda _: d.by_half_cast(x, c.to)
    return {
        name: inputs.once((name, *key), lambda make=make: np.concatenate([make(mode) for mode in signed]))
        for name, make in makers.items()
    }


def _stochastic(c: Conversion, inputs: Inputs, r: Any) -> dict[str, Any]:
    """The definitions' codes of magnitudes with random bits: in pairs 13 (float16) or 16 bits, in fours 16."""
    bits, clamp, x = 13 if c.to == "f16" else 16, "satfinite" in c.words, inputs.x
    with np.errstate(invalid="ignore"):
        return {
            "exact integers": inputs.once("i", lambda: d.stochastic_integers(inputs.patterns, r, c.to, bits)),
            GFLOAT: inputs.once(("g", clamp), lambda: d.stochastic_gfloat(x, r, c.to, bits, clamp)),
            EXACT: inputs.once("s", lambda: d.stochastic_sum(x, r, c.to, bits)),
        }


def judge_widening(c: Conversion, verdict: Verdict) -> None:
    """Compare every code with every scale, at both places of a pair; without a scale every pair of codes."""
    width = 4 if c.source == "e2m1" else 8
    every = np.arange(1 << (8 if c.source == "s2f6" else d.FORMATS[c.source].bits))
    codes, others = (g.ravel() for g in np.meshgrid(every, np.arange(256) if c.scaled else every))
    scales = others if c.scaled else np.full(codes.size, 127)
    order = np.random.default_rng(4).permutation(codes.size) if c.scaled else codes * every.size + others
    columns = [codes << width | codes[order]]
    if c.scaled:
        columns.append(scales << 8 | scales[order])
    got = run(c.form, *columns)
    made: dict[str, Any] = {}
    if c.source == "s2f6":
        made = {EXACT: d.s2f6_wide_exact(codes, scales), GFLOAT: d.s2f6_wide_gfloat(codes, scales)}
    else:
        scale = scales if c.scaled else None
        made[EXACT] = d.wide_exact(codes, c.source, c.to, scale)
        made[GFLOAT] = d.wide_gfloat(codes, c.source, c.to, scale)
        if c.source in d.CASTS and not c.scaled:
            made[ML_DTYPES] = d.wide_ml_dtypes(codes, c.source, c.to)
    infinity = d.FORMATS[c.to].largest + 1
    for name, found in made.items():
        if "satfinite" in c.words:
            found = np.where(found & 0x7FFF == infinity, found - 1, found)
        if "relu" in c.words:
            found = np.where(found & 0x8000, 0, found)
        made[name] = np.concatenate([found, found[order]])
    for place, half in enumerate((got >> 16, got & 0xFFFF)):
        at = slice(place * codes.size, (place + 1) * codes.size)
        verdict.add(c.form, half, {name: found[at] for name, found in made.items()}, partial(shown, columns, place, 0))


# all of it -----------------------------------------------------------------------------------------------------------


def opinions(chosen: Iterable[Conversion], strata: int = STRATA, workers: int = 1) -> Iterator[dict[str, Verdict]]:
    """Yield the verdicts on forms, for each group of forms with the same inputs."""
    alike: dict[Any, list[Conversion]] = {}
    for c in chosen:
        scaling = next((w for w in c.words if w.startswith("scaled")), "")
        shared = c.to if c.mode == "rs" else (c.widens, c.to in HALVES)
        alike.setdefault((c.source, scaling, shared), []).append(c)
    jobs = [(group, strata) for group in alike.values()]
    if workers == 1:
        yield from map(_judged, jobs)
        return
    with ProcessPoolExecutor(workers, initializer=os.nice, initargs=(5,)) as pool:
        for done in as_completed([pool.submit(_judged, job) for job in jobs]):
            yield done.result()


def _judged(job: tuple[list[Conversion], int]) -> dict[str, Verdict]:
    chosen, strata = job
    found: dict[str, Verdict] = {}
    for c in sorted(chosen, key=lambda c: c.to):
        verdict = found[c.form] = Verdict()
        if c.widens:
            judge_widening(c, verdict)
        else:
            judge(c, verdict, strata)
    return found


def added(parts: Iterable[dict[str, Verdict]]) -> dict[str, Verdict]:
    """The sum of verdicts on the same forms."""
    total: dict[str, Verdict] = {}
    for part in parts:
        for form, verdict in part.items():
            whole = total.setdefault(form, Verdict())
            whole.agreed += verdict.agreed
            whole.against += verdict.against
    return total


def more(found: Mapping[str, Verdict], book: ledger.Ledger | None = None) -> dict[str, dict[str, int]]:
    """The agreed inputs by form and definition, for forms of which the ledger has fewer.

    The ledger's opinions on a definition that has changed since do not count. book: None for the
    committed ledger.
    """
    known = {form: e.opinions for form, e in ledger.current(book).items()}
    agreed = {form: dict(v.agreed) for form, v in found.items()}
    return {form: new for form, new in agreed.items() if any(new[n] > known[form].get(n, 0) for n in new)}


def main() -> int:
    """Run all forms, print the differences, and with --write write the ledger if there are none."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--strata", type=int, default=STRATA, help="lower halves for each upper half of a float32")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", nargs="+", default=[""], help="forms that begin so")
    parser.add_argument("--write", action="store_true", help="put the result into the ledger")
    args = parser.parse_args()
    chosen = [c for form, c in conversions().items() if form.startswith(tuple(args.only))]
    started, found = time.monotonic(), {}
    for part in opinions(chosen, args.strata, args.workers):
        found |= part
        print(f"{len(found)} of {len(chosen)} forms, {time.monotonic() - started:.0f} s", flush=True)
    against = [text for v in found.values() for text in v.against]
    print(f"{len(found)} forms, {len(against)} disagreements shown", *against[:40], sep="\n")
    if args.write and not against:
        ledger.PATH.write_text(ledger.with_opinions(ledger.read(), more(found)).text(), encoding="utf-8")
        print(f"{ledger.PATH} written")
    return 1 if against else 0


if __name__ == "__main__":
    raise SystemExit(main())
