"""Compare packed and mixed arithmetic that no available hardware has with definitions independent of the emulator's.

    python tests/support/conformance/packed_opinions.py --write

runs float32 in pairs (`add.f32x2`), with a float16 or bfloat16 source (`add.f32.bf16`) and with three sources (`max.f32
d, a, b, c`), and integers in parts of a register (`add.s8x4`, `set.lt.u16x2`). It writes into the ledger on how many
values each definition agreed with the emulator. 8-bit integers have all pairs at each of four places, with others
beside them. It takes 15 seconds of one core.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxdiff.conformance import ledger
from tests.support.conformance import arithmetic as a
from tests.support.conformance import float32 as f
from tests.support.conformance import lanes, packed_inputs
from tests.support.conformance.opinions import EXACT, Verdict, more, run

COUNT = 1 << 20
"""The number of values for each form of float32."""
RATIONALS = 1 << 10
"""How many of those are computed with rational numbers too."""
TWO_SUM, INTEGERS, ORDER = "error-free sum", "exact integers", "order of patterns"

_FLOAT = re.compile(r"(add|sub|mul|fma)\.(?:(r[nzmp])\.)?(ftz\.)?(sat\.)?f32(x2|\.f16|\.bf16)")
_LEAST = re.compile(r"(min|max)\.(ftz\.)?(NaN\.)?(abs\.)?f32(?: d, a, b, c)?")
_LANES = re.compile(r"(add|sub|neg|min|max|set)\.((?:\w+\.)*)([su])(8x4|16x2|32)")


@dataclass(frozen=True)
class Packed:
    """What the name of a form says. `kind`: the format or integer type of the sources. `width`: bits of a part."""

    form: str
    opcode: str
    kind: str
    words: frozenset[str]
    width: int = 32

    @property
    def mode(self) -> str:
        """The rounding mode; to nearest if the name has none."""
        return next((m for m in f.MODES if m in self.words), "rn")


def packed(form: str) -> Packed | None:
    """What a form computes; None if this module has no definition of it."""
    if found := _FLOAT.fullmatch(form):
        opcode, *words, kind = found.groups()
        return Packed(form, opcode, kind.lstrip(".").replace("x2", "f32"), _words(words))
    if found := _LEAST.fullmatch(form):
        opcode, *words = found.groups()
        return Packed(form, opcode, "three", _words(words))
    if found := _LANES.fullmatch(form):
        opcode, words, sign, shape = found.groups()
        return Packed(form, opcode, sign, _words(words.split(".")), int(shape.split("x")[0]))
    return None


def _words(found: Iterable[str | None]) -> frozenset[str]:
    return frozenset(w.rstrip(".") for w in found if w)


def known() -> dict[str, Packed]:
    """The forms of the ledger that hardware has not confirmed and that this module defines."""
    found = {form: packed(form) for form, e in ledger.current().items() if e.status == ledger.SPECIFICATION}
    return {form: c for form, c in found.items() if c is not None}


# float32 -------------------------------------------------------------------------------------------------------------


def judged_floats(forms: list[Packed], count: int) -> dict[str, Verdict]:
    """Forms of one opcode and the same sources, on the same inputs."""
    opcode, kind = forms[0].opcode, forms[0].kind
    rows = packed_inputs.rows(opcode, kind, count)
    rows = [r[: len(r) // 2 * 2] for r in rows]
    names = [kind] * len(rows)
    if kind != "f32":
        names[-1] = "f32"
    columns = [r[::2] | r[1::2] << 32 for r in rows] if kind == "f32" else rows
    found, sums = {}, {}
    for c in forms:
        ftz, verdict = "ftz" in c.words, found.setdefault(c.form, Verdict())
        if ftz not in sums:
            sums[ftz] = exact_sums(opcode, [f.values(r, n, ftz) for r, n in zip(rows, names, strict=True)])
        total, cancelled = sums[ftz]
        expected = f.patterns(total, c.mode, cancelled=cancelled, ftz=ftz, sat="sat" in c.words)
        got = _values(run(c.form, *columns), kind)
        verdict.add(c.form, got, {TWO_SUM: expected}, lambda i: ", ".join(f"{int(r[i]):#x}" for r in rows))
        some = np.random.default_rng(3).choice(len(got), min(RATIONALS, len(got)), replace=False)
        verdict.add(c.form, got[some], {EXACT: np.array([rational(c, names, [int(r[i]) for r in rows]) for i in some])})
    return found


def _values(got: Any, kind: str) -> Any:
    """The results one by one; of a pair the low half comes first."""
    if kind != "f32":
        return got
    return np.stack([got & 0xFFFFFFFF, got >> 32 & 0xFFFFFFFF], axis=1).ravel()


def exact_sums(opcode: str, x: list[Any]) -> tuple[Any, Any]:
    """The exact result in float64 (a sum is rounded to odd), and a mask of zeros that come from cancellation."""
    with np.errstate(invalid="ignore"):
        if opcode == "mul":
            return x[0] * x[1], False
        if opcode == "fma":
            return f.added(x[0] * x[1], x[2])
    return f.added(x[0], -x[1] if opcode == "sub" else x[1])


def rational(c: Packed, names: list[str], patterns: list[int]) -> int:
    """One result, computed with rational numbers."""
    if "ftz" in c.words:
        patterns = [a.flushed(p, n) for p, n in zip(patterns, names, strict=True)]
    parts = [a.split(p, n) for p, n in zip(patterns, names, strict=True)]
    if c.opcode == "sub":
        parts[1] = 1 - parts[1][0], parts[1][1]
    product, *rest = parts if c.opcode in ("add", "sub") else [a.times(parts[0], parts[1]), *parts[2:]]
    found = a.result(product, rest[0] if rest else None, "f32", c.mode)
    if "ftz" in c.words and _tiny(found, product, rest, c.mode):
        found &= 1 << 31
    if "sat" not in c.words:
        return found
    return 0 if found > 0x7F800000 else min(found, 0x3F800000)


def _tiny(found: int, product: Any, rest: list[Any], mode: str) -> bool:
    """Whether a result is below the least normal number when it is rounded as if exponents had no lower end."""
    if found & 0x7FFFFFFF != 0x00800000:
        return found & 0x7FFFFFFF < 0x00800000
    scaled = [(s, size * 2**64) for s, size in (product, *rest)]
    return a.result(scaled[0], scaled[1] if rest else None, "f32", mode) & 0x7FFFFFFF < 0x00800000 + (64 << 23)


def judged_least(forms: list[Packed], count: int) -> dict[str, Verdict]:
    """Compare minima and maxima of three."""
    columns, found = packed_inputs.threes(count), {}
    for c in forms:
        verdict = found.setdefault(c.form, Verdict())
        words = {"nan": "NaN" in c.words, "magnitudes": "abs" in c.words, "ftz": "ftz" in c.words}
        expected = f.least(columns, largest=c.opcode == "max", **words)
        verdict.add(
            c.form, run(c.form, *columns), {ORDER: expected}, lambda i: ", ".join(f"{int(x[i]):#x}" for x in columns)
        )
    return found


# integers ------------------------------------------------------------------------------------------------------------


def judged_lanes(forms: list[Packed], count: int) -> dict[str, Verdict]:
    """Compare forms of one width. Each place of a register has the pairs in a different order."""
    width = forms[0].width
    places, rng, found = 32 // width, np.random.default_rng(width), {}
    pairs = lanes.pairs(width, count, rng)
    orders = [rng.permutation(len(pairs[0])) for _ in range(places)]
    columns = [sum(x[order] << width * i for i, order in enumerate(orders)) for x in pairs]
    for c in forms:
        verdict = found.setdefault(c.form, Verdict())
        sources = 1 if c.opcode == "neg" else 2
        codes = lanes.result(c.opcode, tuple(c.words), width, c.kind == "s", *pairs[:sources])
        got = run(c.form, *columns[:sources])
        for i, order in enumerate(orders):
            verdict.add(
                c.form, got >> width * i & (1 << width) - 1, {INTEGERS: codes[order]}, f"place {i}, lane {{}}".format
            )
    return found


# all of it -----------------------------------------------------------------------------------------------------------


def verdicts(chosen: Iterable[Packed], count: int = COUNT) -> Iterator[dict[str, Verdict]]:
    """Yield the verdicts, for each group of forms with the same inputs."""
    alike: dict[Any, list[Packed]] = {}
    for c in chosen:
        integer = c.kind in ("s", "u")
        alike.setdefault((c.width,) if integer else ("three" if c.kind == "three" else c.opcode, c.kind), []).append(c)
    for key, forms in alike.items():
        judge = judged_lanes if len(key) == 1 else judged_least if key[0] == "three" else judged_floats
        yield judge(forms, count)


def main() -> int:
    """Run all forms, print the differences, and with --write write the ledger if there are none."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=COUNT, help="values of a form (default: 2**20)")
    parser.add_argument("--only", default="", help="forms that begin so")
    parser.add_argument("--write", action="store_true", help="put the result into the ledger")
    args = parser.parse_args()
    chosen = [c for form, c in known().items() if form.startswith(args.only)]
    started, found = time.process_time(), {}
    for part in verdicts(chosen, args.count):
        found |= part
        print(f"{len(found)} of {len(chosen)} forms, {time.process_time() - started:.0f} s", flush=True)
    return finished(found, args.write)


def finished(found: Mapping[str, Verdict], write: bool) -> int:
    """Print disagreements, and write the ledger if `write` and there are none. Returns the exit status."""
    against = [text for v in found.values() for text in v.against]
    print(f"{len(found)} forms, {len(against)} disagreements shown", *against[:40], sep="\n")
    if write and not against:
        ledger.PATH.write_text(ledger.with_opinions(ledger.read(), more(found)).text(), encoding="utf-8")
        print(f"{ledger.PATH} written")
    return 1 if against else 0


if __name__ == "__main__":
    raise SystemExit(main())
