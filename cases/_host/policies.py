"""Policies of reciprocals and quotients whose derivation needs room."""

from harness import Meets, magnitude, ulp
from references import arithmetic, reciprocal


def times_rounded_reciprocal(a, b):
    """a times the rounded reciprocal of b, rounded again."""
    return arithmetic.mul(a, reciprocal.correctly_rounded(b))


# PTX ISA, div.full.f32: 2 ulp for |b| in [2^-126, 2^126]; 0 or NaN for larger ones, whose reciprocal is subnormal.
def full_range(divisor: str):
    """The match policy of div.full.f32; within 2 ulp of the range's ends a result may cross them."""
    return ulp(
        2, on=magnitude(divisor, 2.0**-126, 2.0**126), overflow=True, underflow=True, source="PTX ISA, div: .full.f32"
    )


# Against a / b, the product with an approximate reciprocal has no bound for all b: beyond 2^126 the reciprocal is
# subnormal and flushed, and the product 0 whatever a is. It has a specification of its own, the product with the
# correctly rounded, flushed reciprocal, from which an approximation within 1 ulp strays by at most 2.
PRODUCT = {
    "reference": reciprocal.times_reciprocal,
    "match": ulp(2, overflow=True, underflow=True, source="derived in references/reciprocal.py"),
    "ftz": {"b": "required"},
    "meets": Meets(
        magnitude("b", 2.0**-126, 2.0**125) & magnitude("a", 2.0**-100, 2.0**100),
        ulp(3, overflow=True, underflow=True, source="derived in references/reciprocal.py"),
    ),
}
