"""The ISA's error bounds of approximate instructions, in the ISA's measures (PTX ISA 9.x, 9.7.3 and 9.7.4, Notes).

If a bound is not in ulps, the envelope gives the largest distance between hardware and model in the bound's measure.
The model itself is within half an ulp of the true value.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

BOUNDS = {
    "rcp.approx*.f32": "1 ulp",
    "div.approx*.f32": "2 ulp for |b| in [2^-126, 2^126]",
    "div.full*.f32": "2 ulp",
    "sqrt.approx*.f32": "relative 2^-23",
    "rsqrt.approx*.f32": "relative 2^-22.9",
    "sin.approx*.f32": "absolute 2^-20.5 in [-2pi, 2pi], 2^-14.7 in [-100pi, 100pi]",
    "cos.approx*.f32": "absolute 2^-20.4 in [-2pi, 2pi], 2^-14.7 in [-100pi, 100pi]",
    "lg2.approx*.f32": "absolute 2^-22 in (0.5, 2), elsewhere relative 2^-22",
    "ex2.approx*.f32": "2 ulp",
    "ex2.approx.f16*": "relative 2^-9.9",
    "ex2.approx.ftz.bf16*": "relative 2^-7",
    "tanh.approx.f32": "relative 2^-11",
    "tanh.approx.f16*": "absolute 2^-10.987",
    "tanh.approx.bf16*": "absolute 2^-8",
}
"""Bounds by pattern of forms. The ISA states no bound for approximate forms that match no pattern.

The bound of cos is that of ISA 9.4; up to 9.3 it was that of sin.
"""


@dataclass(frozen=True)
class Measure:
    """A measure of errors, for arguments with a magnitude between `low` and `high`, or (`outside`) not between them.

    `relative`: relative to results of at least `normal` in magnitude; smaller ones have fewer bits, and are measured
    only in ulps.
    """

    relative: bool
    words: str = ""
    low: float = 0.0
    high: float = math.inf
    outside: bool = False
    normal: float = 2.0**-126


_ANGLES = (Measure(False, "in [-2pi, 2pi]", 0.0, 2 * math.pi), Measure(False, "in [-100pi, 100pi]", 0.0, 100 * math.pi))

MEASURES = {
    "sqrt.approx*.f32": (Measure(True),),
    "rsqrt.approx*.f32": (Measure(True),),
    "sin.approx*.f32": _ANGLES,
    "cos.approx*.f32": _ANGLES,
    "lg2.approx*.f32": (Measure(False, "in (0.5, 2)", 0.5, 2.0), Measure(True, "elsewhere", 0.5, 2.0, outside=True)),
    "ex2.approx.f16*": (Measure(True, "where normal", normal=2.0**-14),),
    "ex2.approx.ftz.bf16*": (Measure(True),),
    "tanh.approx.f32": (Measure(True),),
    "tanh.approx.f16*": (Measure(False),),
    "tanh.approx.bf16*": (Measure(False),),
}
"""By pattern of forms, the measures of their bounds, if those are not ulps."""


def bound(form: str) -> str:
    """The bound that the ISA states for a form; empty if it states none, or if the form is exact."""
    return next((statement for pattern, statement in BOUNDS.items() if fnmatchcase(form, pattern)), "")


def promises(form: str) -> tuple[float, ...]:
    """The numbers of the form's bound, in ulps or in the order of its measures; empty if it has none."""
    statement = bound(form)
    if "ulp" in statement:
        return (float(statement.split(" ")[0]),)
    return tuple(2.0 ** float(power) for power in re.findall(r"2\^(-[\d.]+)", statement))


def measures(form: str) -> tuple[Measure, ...]:
    """The form's measures of errors besides ulps; empty if its bound is in ulps, or if there is none."""
    return next((stated for pattern, stated in MEASURES.items() if fnmatchcase(form, pattern)), ())


def errors(
    form: str, argument: NDArray[np.float64], expected: NDArray[np.float64], got: NDArray[np.float64]
) -> tuple[float, ...]:
    """The greatest error of these results in each of the form's measures; results that are not finite do not count."""
    size, apart = np.abs(argument), np.abs(got - expected)
    largest_errors = []
    for measure in measures(form):
        inside = (size > measure.low) & (size < measure.high) if measure.low else size <= measure.high
        kept = (inside != measure.outside) & np.isfinite(apart)
        if measure.relative:
            kept &= np.abs(expected) >= measure.normal
            largest_errors.append(float(np.max(apart[kept] / np.abs(expected[kept]), initial=0.0)))
        else:
            largest_errors.append(float(np.max(apart[kept], initial=0.0)))
    return tuple(largest_errors)


def envelope(form: str, found: tuple[float, ...]) -> str:
    """The errors found, in the form of a bound: `absolute 2^-22.41 in (0.5, 2), relative 2^-22.80 elsewhere`."""
    bounds_text = []
    for measure, error in zip(measures(form), found, strict=False):
        # Rounded up, because it is a bound.
        size = f"2^{math.ceil(math.log2(error) * 100) / 100:.2f}" if error else "0"
        bounds_text.append(f"{'relative' if measure.relative else 'absolute'} {size} {measure.words}".strip())
    return ", ".join(bounds_text)
