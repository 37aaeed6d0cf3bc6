"""float32 to 8 and 6 bits: conversions of two at a time, with relu, and integer arithmetic for any GPU."""

import triton
import triton.language as tl

from ptxdiff import ALL, Case, asm, plain, since
from ptxdiff.references import conversion
from ptxdiff.references.formats import E2M3, E3M2, E4M3, E5M2, F32, Format

from ._device.narrow import narrowed
from ._host.formats import fields


@triton.jit
def in_integers(x, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr, LARGEST: tl.constexpr, NAN: tl.constexpr):
    """Codes are bytes."""
    return narrowed(x, EXPONENT, MANTISSA, LARGEST, NAN).to(tl.uint8)


@triton.jit
def cast(x, TYPE: tl.constexpr):
    """Triton's cast, which saturates."""
    return x.to(TYPE).to(tl.uint8, bitcast=True)


def to(target: Format, relu: bool = False):
    """The reference: to nearest, ties to even, saturating; NaN is 0x7f, or the largest number."""

    def rounded(x):
        return conversion.convert(x, source=F32, target=target, satfinite=True, relu=relu)

    return rounded


TO_E5M2 = {"targets": since("sm_90"), "refused": ()}
if triton.__version__.startswith("3.6."):
    TO_E5M2["targets"] = ALL
    TO_E5M2["differs"] = dict.fromkeys(ALL - since("sm_89"), "Triton 3.6 does not saturate there")
    TO_E5M2["differs"]["sm_89"] = "Triton 3.6 rounds twice there"


def case_of(fmt: Format, first: str, **more):
    """Variants of one format, whose instructions exist from the target `first` on."""
    return Case(
        inputs={"x": F32},
        outputs={"y": fmt},
        reference=to(fmt),
        variants={
            # The first source goes to the upper byte.
            "cvt": asm(f"cvt.rn.satfinite.{fmt.name}x2.f32 $0, $2, $1;"),
            "cvt-relu": asm(f"cvt.rn.satfinite.relu.{fmt.name}x2.f32 $0, $2, $1;", reference=to(fmt, relu=True)),
            "integers": plain(in_integers, constants=fields(fmt), targets=ALL, refused=()),
            **more,
        },
        targets=since(first),
        refused=ALL - since(first),
        family="conversions",
        source="PTX ISA, cvt; OCP 8-bit Floating Point 1.0 and Microscaling Formats 1.0, 5.3",
    )


e4m3 = case_of(E4M3, "sm_89")
e5m2 = case_of(E5M2, "sm_89", triton=plain(cast, constants={"TYPE": tl.float8e5}, **TO_E5M2))
e2m3 = case_of(E2M3, "sm_100a")
e3m2 = case_of(E3M2, "sm_100a")
