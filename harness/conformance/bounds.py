"""What the ISA promises of approximate instructions, in its own measure (PTX ISA 9.x, 9.7.3 and 9.7.4, Notes)."""

from __future__ import annotations

from fnmatch import fnmatchcase

_PERIODIC = "absolute 2^-20.5 in [-2pi, 2pi], 2^-14.7 in [-100pi, 100pi]"

BOUNDS = {
    "rcp.approx*.f32": "1 ulp",
    "div.approx*.f32": "2 ulp for |b| in [2^-126, 2^126]",
    "div.full*.f32": "2 ulp",
    "sqrt.approx*.f32": "relative 2^-23",
    "rsqrt.approx*.f32": "relative 2^-22.9",
    "sin.approx*.f32": _PERIODIC,
    "cos.approx*.f32": _PERIODIC,
    "lg2.approx*.f32": "absolute 2^-22 in (0.5, 2), elsewhere relative 2^-22",
    "ex2.approx*.f32": "2 ulp",
    "ex2.approx.f16*": "relative 2^-9.9",
    "ex2.approx.ftz.bf16*": "relative 2^-7",
    "tanh.approx.f32": "relative 2^-11",
    "tanh.approx.f16*": "absolute 2^-10.987",
    "tanh.approx.bf16*": "absolute 2^-8",
}
"""Pattern of forms to the bound; approximate forms that no pattern matches have none in the ISA."""


def bound(form: str) -> str:
    """The bound that the ISA states of a form; empty where it states none, or the form is exact."""
    return next((words for pattern, words in BOUNDS.items() if fnmatchcase(form, pattern)), "")
