"""Search the largest error of each bounded asm variant with one float32 input, and print it beside its bound.

    python -m tests.support.fast_math_bounds                # the family "fast math"; prints rows of WORST for the test
    beside python -m tests.support.fast_math_bounds sigmoid silu

The search runs 4096 evenly spread significands for every sign and exponent; then all 2^23 significands of the four
worst binades. It proves nothing about the other inputs. Two kinds of variants are left out: single instructions of
which the ledger has the largest error over all 2^32 inputs (`ptxdiff conformance`), and variants that differ from
another only by .ftz. Bits are the emulator's for sm_90a. Errors are distances from the true value in float64, rounded
to float32, with which the policies compare too; results that are not finite are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ptxdiff import Case, emulate
from ptxdiff.conformance import ledger
from ptxdiff.model.derive import asm_form, packs_of
from ptxdiff.model.load import in_folder
from ptxdiff.model.match import Match
from ptxdiff.model.policies import policies
from ptxdiff.model.variants import AsmVariant
from ptxdiff.references.formats import F32

CASES = Path(__file__).parents[2] / "cases"
TARGET = "sm_90a"
SCANNED, BINADES = 1 << 12, 4


def _torch(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: function(torch.from_numpy(x)).numpy()


def _silu(x: Any) -> Any:
    return x / (1 + np.exp(-x))


TRUE: dict[str, Callable[[Any], Any]] = {
    "rcp": np.reciprocal,
    "exp": np.exp,
    "exp2_polynomial": np.exp2,
    "log": np.log,
    "sqrt": np.sqrt,
    "sin_cos.sin": np.sin,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": _silu,
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "softplus": lambda x: np.logaddexp(0, x),
    "erf": _torch(torch.erf),
}
"""The true functions in float64, by case."""


def parts(case: Case, variant: AsmVariant) -> Iterator[tuple[str, Match, Any]]:
    """Each bound of a variant's first output: "on", "outside" or "meets", the bound, and the mask of its inputs."""
    policy = policies(case, variant)
    match = next(iter(policy.match.values()))
    promised = [("on", match, match.on)]
    if match.outside is not None and match.on is not None:
        promised.append(("outside", match.outside, match.on))
    if variant.meets is not None:
        promised = [("meets", variant.meets.match, variant.meets.on)]
    for name, bound, domain in promised:
        if bound.kind != "exact":

            def inside(x: Any, domain: Any = domain, name: str = name) -> Any:
                held = np.ones(len(x), bool) if domain is None else domain.holds({"x": x})
                return ~held if name == "outside" else held

            yield name, bound, inside


def bounded() -> Iterator[tuple[str, str, Case, AsmVariant]]:
    """The bounded asm variants of fast math with one float32 input and output: case, name, the case and the variant."""
    for loaded in in_folder(CASES):
        case = loaded.case
        one = list(case.inputs.values()) == [F32] and list(case.outputs.values()) == [F32]
        if case.family == "fast math" and one:
            for name, variant in case.variants.items():
                if isinstance(variant, AsmVariant) and not _known(variant) and any(parts(case, variant)):
                    yield loaded.name, name, case, variant


def _known(variant: AsmVariant) -> bool:
    """Whether a variant is a single instruction whose errors the ledger has, or differs from one only by .ftz."""
    form = variant.texts[1].text.split()[0].replace(".ftz", "") if variant.derived_packs else ""
    flushes = bool(form) and ".ftz" in variant.texts[1].text and form in _entries()
    entry = _entries().get(form)
    return bool(form) and (bool(entry and entry.errors) or (flushes and form != "rcp.approx.f32"))


@cache
def _entries() -> dict[str, ledger.Entry]:
    """The ledger's entries. Comparing them with the definitions takes seconds."""
    return ledger.current()


def error(case: str, bound: Match, codes: Any, got: Any) -> Any:
    """The distance of results from the reference, as the bound measures it; -1 where there is no distance."""
    x = values(codes)
    with np.errstate(all="ignore"):
        expected = TRUE[case](x).astype(np.float32)
        apart = np.abs(got.astype(np.float64) - expected.astype(np.float64))
        if bound.kind == "relative":
            apart /= np.abs(expected.astype(np.float64))
        elif bound.kind == "ulp":
            apart = np.abs(_place(got) - _place(expected)).astype(np.float64)
    kept = np.isfinite(expected) & np.isfinite(got) & np.isfinite(apart)
    if bound.kind != "absolute":
        kept &= (np.abs(expected) >= 2.0**-126) & (got != 0)
    return np.where(kept, apart, -1.0)


def values(codes: Any) -> Any:
    """The float64 values of codes; a signalling NaN becomes a quiet NaN."""
    with np.errstate(invalid="ignore"):
        return codes.view(np.float32).astype(np.float64)


def _place(x: Any) -> Any:
    """The position of a float32 among all float32 in ascending order."""
    code = x.view(np.int32).astype(np.int64)
    return np.where(code < 0, -(code & 0x7FFFFFFF), code)


def run(case: Case, variant: AsmVariant, codes: Any) -> Any:
    """The variant's results on the emulator."""
    form = asm_form(case, variant, packs_of(case, variant)[0])
    x = codes.view(np.float32)
    return emulate(form.text, form.constraints, [x], "float32", pack=form.pack, target=TARGET, limit=120)


def worst(name: str, case: Case, variant: AsmVariant) -> dict[str, tuple[str, float, float]]:
    """By part: the input with the largest error, that error, and the bound."""
    starts = np.arange(512, dtype=np.uint32) << 23
    spread = np.linspace(0, (1 << 23) - 1, SCANNED).astype(np.uint32)
    codes = (starts[:, None] | spread[None, :]).reshape(-1)
    got = run(case, variant, codes)
    found = {}
    for part, bound, inside in parts(case, variant):
        held = inside(values(codes))
        scanned = np.where(held, error(name, bound, codes, got), -1.0).reshape(512, -1)
        best = (-1.0, 0)
        for binade in np.argsort(scanned.max(axis=1))[-BINADES:]:
            whole = starts[binade] | np.arange(1 << 23, dtype=np.uint32)
            held = inside(values(whole))
            errors = np.where(held, error(name, bound, whole, run(case, variant, whole)), -1.0)
            at = int(errors.argmax())
            best = max(best, (float(errors[at]), int(whole[at])))
        found[part] = (f"0x{best[1]:08x}", best[0], float(bound.bound))
    return found


def main(wanted: list[str]) -> None:
    """Print the table."""
    for name, variant_name, case, variant in bounded():
        if not wanted or name in wanted or name.partition(".")[0] in wanted:
            for part, (at, size, bound) in worst(name, case, variant).items():
                print(
                    f'    ("{name}", "{variant_name}", "{part}"): ({at}, {size:.6g}),  # bound {bound:.6g}', flush=True
                )


if __name__ == "__main__":
    main(sys.argv[1:])
