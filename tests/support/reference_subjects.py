"""The subjects of reference mutants: the shipped cases with every variant's policies, and the shipped references."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ptxdiff import Case, absolute, asm, exact, ulp
from ptxdiff.model import load as loader
from ptxdiff.model.policies import policies
from ptxdiff.references import arithmetic, conversion, exponential, integers, reciprocal, trigonometric
from ptxdiff.references.formats import BF16, E2M1, E4M3, E5M2, F16, F32, I32, U8, Format
from tests.support.reference_mutants import Subject

CASES = Path(__file__).parents[2] / "cases"


def _case(function: Any, inputs: int | tuple[Format, ...], fmt: Format, match: Any = None, **fields: Any) -> Case:
    formats = inputs if isinstance(inputs, tuple) else (fmt,) * inputs
    return Case(
        inputs=dict(zip("abc", formats, strict=False)),
        outputs={"y": fmt},
        reference=function,
        variants={"v": asm("mov.b32 $0, $1;", constraints="=r,r", pack=1)},
        match=match or exact(),
        **fields,
    )


def _of(function: Any, fmt: Format) -> Any:
    return functools.partial(function, fmt=fmt)


def _convert(source: Format, target: Format, **options: Any) -> Any:
    return functools.partial(conversion.convert, source=source.single, target=target.single, **options)


REFERENCES: dict[str, tuple[Case, str]] = {
    **{
        f"{operation} {fmt.name}": (_case(_of(getattr(arithmetic, operation), fmt), count, fmt), operation)
        for fmt in (F32, F16, BF16)
        for operation, count in (("add", 2), ("mul", 2), ("div", 2), ("fma", 3))
    },
    "sqrt": (_case(arithmetic.sqrt, 1, F32), ""),
    "rsqrt": (_case(reciprocal.rsqrt, 1, F32, ulp(2)), ""),
    "lg2": (_case(exponential.lg2, 1, F32, ulp(2)), ""),
    "tanh": (_case(exponential.tanh, 1, F32, ulp(2)), ""),
    "sin": (_case(trigonometric.sin, 1, F32, absolute(2.0**-20)), ""),
    "cos": (_case(trigonometric.cos, 1, F32, absolute(2.0**-20)), ""),
    "f32 to e2m1": (_case(_convert(F32, E2M1, satfinite=True), (F32,), E2M1), ""),
    "f32 to e5m2": (_case(_convert(F32, E5M2), (F32,), E5M2), ""),
    "f32 to e4m3": (_case(_convert(F32, E4M3), (F32,), E4M3), ""),
    "f32 to f16": (_case(_convert(F32, F16), (F32,), F16), ""),
    "f32 to bf16": (_case(_convert(F32, BF16), (F32,), BF16), ""),
    "f32 to bf16 rz": (_case(_convert(F32, BF16, rounding="rz"), (F32,), BF16), ""),
    "f32 to i32": (_case(_convert(F32, I32), (F32,), I32), ""),
    "f32 to i32 rn": (_case(_convert(F32, I32, rounding="rn"), (F32,), I32), ""),
    "f32 to u8": (_case(_convert(F32, U8, rounding="rn"), (F32,), U8), ""),
    "i32 to f32": (_case(_convert(I32, F32), (I32,), F32), ""),
    "i32 to f16": (_case(_convert(I32, F16), (I32,), F16), ""),
    "max f32": (_case(arithmetic.maximum, 2, F32), ""),
    "min.NaN f32": (_case(functools.partial(arithmetic.minimum, nan=True), 2, F32), ""),
    "add.sat i32": (_case(integers.add_saturating, 2, I32), ""),
}


def shipped() -> Iterator[Subject]:
    """Each elementwise case of cases/, once for each different policy of its variants."""
    for path in sorted(CASES.glob("*.py")):
        for loaded in loader.load(path):
            seen = []
            for name, variant in loaded.case.variants.items() if loaded.case.elementwise else ():
                policy = policies(loaded.case, variant)
                judging = (policy.match, policy.ftz, policy.nan, policy.reference)
                if judging not in seen:
                    seen.append(judging)
                    yield Subject(f"{loaded.name}[{name}]", loaded.case, policy)


def of_references() -> Iterator[Subject]:
    """The cases of `REFERENCES`."""
    for name, (case, operation) in REFERENCES.items():
        yield Subject(name, case, policies(case, case.variants["v"]), operation)


def subjects() -> list[Subject]:
    """The subjects of cases and references."""
    return [*shipped(), *of_references()]


__all__ = ["REFERENCES", "of_references", "shipped", "subjects"]
