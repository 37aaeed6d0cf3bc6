"""Conversions that no hardware at hand has, held to definitions that know nothing of the emulator's.

    python tests/conformance/opinions.py --write

tries every such form on all float16 and bfloat16 values, on all ties with the numbers beside them, and on 2**28 float32
patterns (half of them spread over all patterns, half over the exponents at which the formats have codes; as many with
random bits or scales where the form takes them), and puts into the ledger how many inputs each definition agreed on.
The inputs of a form are counted in values, not in pairs or fours.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import definitions as d
import ml_dtypes
import numpy as np

from harness.conformance import forms, ledger
from harness.ptx.isa.forms import Bound
from harness.ptx.numeric.vectorise import UNSIGNED

EXACT, GFLOAT, ML_DTYPES = "exact rational", "gfloat", "ml_dtypes"
CHUNK = 1 << 20
_NARROW = (*d.FORMATS, "s2f6")


@dataclass(frozen=True)
class Conversion:
    """What the spelling of a form says: `to` and `source` are formats without their x2 or x4."""

    form: str
    mode: str
    words: frozenset[str]
    to: str
    source: str
    values: int
    scaled: bool

    @property
    def widens(self) -> bool:
        """From a narrow format to float16 or bfloat16."""
        return self.to in ("f16", "bf16") and self.source != "f32"


def conversion(form: str) -> Conversion | None:
    """What a form converts; None if it is no conversion that this module knows."""
    opcode, *parts = form.split(".")
    if opcode != "cvt" or len(parts) < 3:
        return None
    mode, *words = parts[:-2]
    to, many, count = parts[-2].rpartition("x")
    source = parts[-1].removesuffix("x2")
    if not many or count not in ("2", "4") or to not in _NARROW or (source != "f32" and source not in _NARROW):
        return None
    found = Conversion(form, mode, frozenset(words), to, source, int(count), any("scaled" in w for w in words))
    plain_half = to in ("f16", "bf16") and source == "f32" and mode != "rs"
    return None if plain_half else found


def conversions() -> dict[str, Conversion]:
    """The forms of the ledger that this module has opinions on: those that hardware has not confirmed."""
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


# inputs ------------------------------------------------------------------------------------------------------------


@dataclass
class Inputs:
    """Patterns of a source format, an even number of them, with a scale code and 32 random bits for each.

    What one definition made of them is kept, as forms that differ in their modifiers share it.
    """

    source: str
    patterns: Any
    seed: int
    kept: dict[Any, Any] = field(default_factory=dict)

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """The value under a key, made when first asked for."""
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]

    @property
    def values(self) -> Any:
        """The patterns as float64."""
        return self.once("values", lambda: _values(self.source, self.patterns))

    @property
    def scales(self) -> Any:
        """Scale codes, most of them near one."""

        def make() -> Any:
            rng = np.random.default_rng([self.seed, 1])
            codes = rng.integers(0, 256, len(self.patterns))
            return np.where(rng.random(codes.size) < 0.75, rng.integers(107, 148, codes.size), codes)

        return self.once("scales", make)

    @property
    def random(self) -> Any:
        """Random words."""
        rng = np.random.default_rng([self.seed, 2])
        return self.once("random", lambda: rng.integers(0, 1 << 32, len(self.patterns)))

    def divided(self, scales: Any, name: str) -> Any:
        """The values divided by scales, exact in float64; where one scale serves two, subnormals are flushed first."""

        def make() -> Any:
            least = {"f32": 2.0**-126, "bf16": 2.0**-126, "f16": 2.0**-14}[self.source] if "n1" in name else 0.0
            x = np.where(np.abs(self.values) < least, np.copysign(0.0, self.values), self.values)
            with np.errstate(invalid="ignore"):
                return np.where(scales == 255, np.nan, np.ldexp(x, 127 - scales))

        return self.once(("divided", name), make)


def _values(source: str, patterns: Any) -> Any:
    kinds = {"f32": (np.uint32, np.float32), "f16": (np.uint16, np.float16), "bf16": (np.uint16, ml_dtypes.bfloat16)}
    bits, kind = kinds[source]
    with np.errstate(invalid="ignore"):
        return patterns.astype(bits).view(kind).astype(np.float64)


def special(source: str) -> Inputs:
    """All 16-bit values; for float32 those of float16 and bfloat16, and every format's ties with their neighbours."""
    every = np.arange(1 << 16)
    if source != "f32":
        return Inputs(source, np.random.default_rng(3).permutation(every), 0)
    with np.errstate(invalid="ignore"):
        halves = every.astype(np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    found = [halves.astype(np.int64), every << 16]
    for name in ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "ue8m0", "ue5m3"):
        fmt = d.FORMATS[name]
        codes = [fmt.value(c) for c in range(fmt.largest + 2)]
        points = [*codes, *((a + b) / 2 for a, b in pairwise(codes))]
        found.append(_around([float(p) for p in points]))
    found.append(_around([n / 128 for n in range(300)]))
    both = np.unique(np.concatenate(found))
    both = np.unique(np.concatenate([both, both ^ 0x80000000]))
    return Inputs("f32", np.random.default_rng(3).permutation(both[: both.size & ~3]), 0)


def _around(points: list[float]) -> Any:
    with np.errstate(over="ignore"):
        middle = np.array(points).astype(np.float32).view(np.uint32).astype(np.int64)
    return np.clip(np.concatenate([middle - 1, middle, middle + 1]), 0, 0x7F800000)


def drawn(seed: int, count: int) -> Inputs:
    """Random float32 patterns."""
    rng = np.random.default_rng([seed, 0])
    patterns = rng.integers(0, 1 << 32, count)
    near = rng.integers(127 - 20, 127 + 18, count) << 23
    patterns[::2] = (patterns & 0x807FFFFF | near)[::2]
    return Inputs("f32", patterns, seed)


# opinions ------------------------------------------------------------------------------------------------------------


@dataclass
class Verdict:
    """Values on which each definition agreed with the emulator, and the first ones on which one did not."""

    agreed: Counter[str] = field(default_factory=Counter)
    against: list[str] = field(default_factory=list)

    def add(self, form: str, got: Any, opinions: Mapping[str, Any]) -> None:
        """Compare the emulator's codes with each definition's."""
        for name, expected in opinions.items():
            wrong = np.flatnonzero(got != expected)
            self.agreed[name] += got.size - wrong.size
            self.against += [f"{form}: value {i} gives {got[i]:#x}, {name} says {expected[i]:#x}" for i in wrong[:3]]


def judge(c: Conversion, inputs: Inputs, verdict: Verdict) -> None:
    """One form on some inputs of its source format."""
    if c.mode == "rs":
        _judge_stochastic(c, inputs, verdict)
        return
    half = len(inputs.patterns) // 2
    a, b = inputs.patterns[:half], inputs.patterns[half:]
    columns = [a, b] if c.source == "f32" else [a << 16 | b]
    x, scaling = inputs.values, ""
    if c.scaled:
        scaling = next(w for w in c.words if w.startswith("scaled"))
        high = inputs.scales[:half]
        low = high if "n1" in scaling else inputs.scales[half:]
        columns.append(high if "n1" in scaling else high << 8 | low)
        x = inputs.divided(np.concatenate([high, low]), scaling)
    places = 4 if c.to == "e2m1" else 8
    got = run(c.form, *columns)
    verdict.add(c.form, np.concatenate([got >> places, got & (1 << places) - 1]), _opinions(c, inputs, x, scaling))


def _opinions(c: Conversion, inputs: Inputs, x: Any, scaling: str) -> dict[str, Any]:
    """The definitions' codes of float64 values."""
    key = (c.to, c.mode, scaling)
    clamp = "satfinite" in c.words
    if c.to == "s2f6":
        made = {
            EXACT: inputs.once((EXACT, *key), lambda: d.s2f6_exact(x, c.mode)),
            GFLOAT: inputs.once((GFLOAT, *key), lambda: d.s2f6_gfloat(x, c.mode)),
        }
        signless = {n: np.where(np.signbit(x) & ("relu" in c.words), 0, v) for n, v in made.items()}
        return {n: np.where(np.isnan(x), 0x7F, v) for n, v in signless.items()}
    made = {
        EXACT: inputs.once((EXACT, *key), lambda: d.exact(x, c.to, c.mode)),
        GFLOAT: inputs.once((GFLOAT, *key, clamp), lambda: d.by_gfloat(x, c.to, c.mode, clamp)),
    }
    if c.mode == "rn" and c.to in d.CASTS:
        made[ML_DTYPES] = inputs.once((ML_DTYPES, *key), lambda: d.by_ml_dtypes(x, c.to))
    if c.to == "ue8m0":
        bits = inputs.patterns << (16 if c.source == "bf16" else 0)
        made["exponent fields"] = inputs.once(("fields", *key), lambda: d.by_fields(bits, c.mode))
    overflow = d.FORMATS[c.to].largest + 1 if d.FORMATS[c.to].unsigned else None
    return {name: d.finished(v, x, c.to, c.words, overflow) for name, v in made.items()}


def _judge_stochastic(c: Conversion, inputs: Inputs, verdict: Verdict) -> None:
    """Pairs take 13 (float16) or 16 bits of each half of the random word, fours the fields of `random_fields`."""
    each = len(inputs.patterns) // c.values
    parts = [inputs.patterns[i * each : (i + 1) * each] for i in range(c.values)]
    random = inputs.random[:each]
    bits = 13 if c.to == "f16" else 16
    r = inputs.once(("r", c.to), lambda: np.concatenate(random_fields(random, c.to)))
    n = each * c.values
    p, x = inputs.patterns[:n], inputs.values[:n]
    clamp = "satfinite" in c.words
    with np.errstate(invalid="ignore"):
        made = {
            "exact integers": inputs.once(("rs i", c.to), lambda: d.stochastic_integers(p, r, c.to, bits)),
            GFLOAT: inputs.once(("rs g", c.to, clamp), lambda: d.stochastic_gfloat(x, r, c.to, bits, clamp)),
            EXACT: inputs.once(("rs s", c.to), lambda: d.stochastic_sum(x, r, c.to, bits)),
        }
    overflow = d.FORMATS[c.to].largest + 1
    opinions = {name: d.finished(v, x, c.to, c.words, overflow) for name, v in made.items()}
    width = {"e2m1": 4, "f16": 16, "bf16": 16}.get(c.to, 8)
    got = run(c.form, *parts, random)
    places = [got >> width * (c.values - 1 - i) & (1 << width) - 1 for i in range(c.values)]
    verdict.add(c.form, np.concatenate(places), opinions)


def random_fields(random: Any, to: str) -> list[Any]:
    """The random bits of each value, the first operand's first, as reported for a B200.

    For fours: of 16-bit halves (for e2m1, of halves made of alternate bytes), the first value takes the upper one with
    its bits in reverse order, the second the same in order; third and fourth the lower one likewise.
    """
    if to in ("f16", "bf16"):
        ones = 0x1FFF if to == "f16" else 0xFFFF
        return [random >> 16 & ones, random & ones]
    high, low = random >> 16, random & 0xFFFF
    if to == "e2m1":
        high, low = high & 0xFF00 | low >> 8, (high & 0xFF) << 8 | low & 0xFF
    return [_reversed(high), high, _reversed(low), low]


def _reversed(half: Any) -> Any:
    found = half * 0
    for bit in range(16):
        found |= (half >> bit & 1) << 15 - bit
    return found


def judge_widening(c: Conversion, verdict: Verdict) -> None:
    """Every code with every scale, at both places of a pair."""
    width = 4 if c.source == "e2m1" else 8
    bits = 8 if c.source == "s2f6" else d.FORMATS[c.source].bits
    codes, scales = (g.ravel() for g in np.meshgrid(np.arange(1 << bits), np.arange(256) if c.scaled else [127]))
    order = np.random.default_rng(4).permutation(codes.size)
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
    verdict.add(c.form, np.concatenate([got >> 16, got & 0xFFFF]), made)


# all of it -----------------------------------------------------------------------------------------------------------


def opinions(chosen: Iterable[Conversion], count: int, workers: int = 1) -> Iterator[dict[str, Verdict]]:
    """The verdicts on forms, in parts that add up: the special inputs first, then `count` random patterns by chunks."""
    chosen = list(chosen)
    yield _specials(chosen)
    narrowing = [c for c in chosen if c.source == "f32"]
    chunks = [(narrowing, seed, min(CHUNK, count - start)) for seed, start in enumerate(range(0, count, CHUNK))]
    if workers == 1:
        yield from map(_random, chunks)
        return
    with ProcessPoolExecutor(workers, initializer=os.nice, initargs=(5,)) as pool:
        for done in as_completed([pool.submit(_random, c) for c in chunks]):
            yield done.result()


def _specials(chosen: Iterable[Conversion]) -> dict[str, Verdict]:
    found: dict[str, Verdict] = {}
    sources = {name: special(name) for name in ("f32", "f16", "bf16")}
    for c in chosen:
        verdict = found[c.form] = Verdict()
        if c.widens:
            judge_widening(c, verdict)
        else:
            judge(c, sources[c.source], verdict)
    return found


def _random(job: tuple[list[Conversion], int, int]) -> dict[str, Verdict]:
    """The forms on one chunk of random patterns, in pieces that stay in a cache."""
    chosen, seed, count = job
    found = {c.form: Verdict() for c in chosen}
    by_format: dict[str, list[Conversion]] = {}
    for c in chosen:
        by_format.setdefault(c.to, []).append(c)
    for piece in range(0, count, CHUNK // 8):
        inputs = drawn(seed * 8 + piece // (CHUNK // 8), min(CHUNK // 8, count - piece))
        for cs in by_format.values():
            inputs.kept = {k: v for k, v in inputs.kept.items() if isinstance(k, str) or k[0] == "divided"}
            for c in cs:
                judge(c, inputs, found[c.form])
    return found


def added(parts: Iterable[dict[str, Verdict]]) -> dict[str, Verdict]:
    """Verdicts on the same forms, added up."""
    total: dict[str, Verdict] = {}
    for part in parts:
        for form, verdict in part.items():
            whole = total.setdefault(form, Verdict())
            whole.agreed += verdict.agreed
            whole.against += verdict.against
    return total


def main() -> int:
    """Try all forms, print what differs, and write the ledger if asked to and nothing does."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=1 << 28, help="random float32 patterns a form (default: 2**28)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true", help="put the result into the ledger")
    args = parser.parse_args()
    chosen = conversions()
    started, parts = time.monotonic(), []
    for number, part in enumerate(opinions(chosen.values(), args.count, args.workers)):
        parts.append(part)
        if number % 16 == 0:
            print(f"{number} of {-(-args.count // CHUNK)} chunks, {time.monotonic() - started:.0f} s", flush=True)
    found = added(parts)
    against = [text for v in found.values() for text in v.against]
    print(f"{len(found)} forms, {len(against)} disagreements shown", *against[:40], sep="\n")
    if args.write and not against:
        agreed = {form: dict(v.agreed) for form, v in found.items()}
        ledger.PATH.write_text(ledger.with_opinions(ledger.read(), agreed).text(), encoding="utf-8")
        print(f"{ledger.PATH} written")
    return 1 if against else 0


if __name__ == "__main__":
    raise SystemExit(main())
