"""Policies of reciprocals and quotients that need long derivations."""

from ptxdiff import Meets, magnitude, ulp
from ptxdiff.references import arithmetic, reciprocal


def times_rounded_reciprocal(a, b):
    """a times the rounded reciprocal of b, rounded again."""
    return arithmetic.mul(a, reciprocal.correctly_rounded(b))


# PTX ISA, div.full.f32: 2 ulp for |b| in [2^-126, 2^126]; 0 or NaN for larger ones, whose reciprocal is subnormal.
def full_range(divisor: str):
    """The match policy of div.full.f32; a result within 2 ulp of an end of the range may cross it."""
    return ulp(
        2, on=magnitude(divisor, 2.0**-126, 2.0**126), overflow=True, underflow=True, source="PTX ISA, div: .full.f32"
    )


# The product with an approximate reciprocal has no bound relative to a / b for all b: above 2^126 the reciprocal is
# subnormal and flushed, so the product is 0 for every a. Its own specification is the product with the correctly
# rounded, flushed reciprocal, from which an approximation within 1 ulp differs by at most 2 ulp.
PRODUCT = {
    "reference": reciprocal.times_reciprocal,
    "match": ulp(2, overflow=True, underflow=True, source="derived in references/reciprocal.py"),
    "ftz": {"b": "required"},
    "meets": Meets(
        magnitude("b", 2.0**-126, 2.0**125) & magnitude("a", 2.0**-100, 2.0**100),
        ulp(3, overflow=True, underflow=True, source="derived in references/reciprocal.py"),
    ),
}
