"""Quantisation after an approximate division, to int8 and to e4m3: the code is exact given the approximate quotient."""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from ptxdiff import Case, Domain, approximate, asm, exact, plain, since, ulp
from ptxdiff.references import arithmetic, conversion, reciprocal
from ptxdiff.references.formats import E4M3, F32, I8


@triton.jit
def to_int8(x, scale):
    """A slash, which is div.full.f32; to nearest even; saturated; NaN becomes zero."""
    q = libdevice.rint(x / scale)
    return tl.where(q == q, tl.clamp(q, -128.0, 127.0), 0.0).to(tl.int8)


@triton.jit
def to_e4m3(x, scale):
    """A slash, and a cast, which saturates; codes are bytes."""
    return (x / scale).to(tl.float8e4nv).to(tl.uint8, bitcast=True)


# The bounds hold for all of these scales. Within them, a quotient near an end of the range may cross it.
NORMAL = Domain("scale is normal and at most 2^126", lambda v: (v["scale"] >= 2**-126) & (v["scale"] <= 2**126))
QUOTIENT = ulp(2, overflow=True, underflow=True, source="PTX ISA, div: .approx.f32, .full.f32")
RECIPROCAL = ulp(1, underflow=True, source="PTX ISA, rcp: .approx.ftz.f32")


def case_of(target, convert, in_triton, **targets):
    """convert: the asm that makes the code in `$0` of the float32 in `q`."""

    def rounded(q):
        return conversion.convert(q, source=F32, target=target, satfinite=True)

    def quantized(x, scale):
        return rounded(arithmetic.div(x, scale))

    def inverse(x, scale, *, ftz=True):
        return reciprocal.correctly_rounded(scale, ftz=ftz)

    def multiplied(r, x, scale):
        return rounded(arithmetic.mul(x, r))

    def quantized_by_product(x, scale):
        return multiplied(inverse(x, scale), x, scale)

    def steps(divide, **policies):
        return asm(f"{{ .reg .f32 q; .reg .b16 t; {divide} {convert} }}", constraints="=&r,r,r", **policies)

    divided = exact(through=approximate(arithmetic.div, F32, QUOTIENT, then=rounded))
    by_product = exact(through=approximate(inverse, F32, RECIPROCAL, then=multiplied, ftz="required"))
    return Case(
        inputs={"x": F32, "scale": F32},
        outputs={"q": target},
        reference=quantized,
        variants={
            "div.rn": steps("div.rn.f32 q, $1, $2;"),
            "div.full": steps("div.full.f32 q, $1, $2;", match=divided),
            "div.approx": steps("div.approx.f32 q, $1, $2;", match=divided),
            "rcp.approx": steps(
                "rcp.approx.ftz.f32 q, $2; mul.f32 q, q, $1;", match=by_product, reference=quantized_by_product
            ),
            "triton": plain(in_triton, match=divided),
        },
        where=NORMAL,
        family="conversions",
        source="PTX ISA, cvt; OCP 8-bit Floating Point 1.0, 5.2",
        **targets,
    )


int8 = case_of(I8, "cvt.rni.sat.s8.f32 $0, q;", to_int8)
e4m3 = case_of(
    E4M3, "cvt.rn.satfinite.e4m3x2.f32 t, 0f00000000, q; mov.b32 $0, {t, t};", to_e4m3, targets=since("sm_89")
)
