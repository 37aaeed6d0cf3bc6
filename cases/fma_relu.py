"""max(a * b + c, 0) on two halves: fma.relu, a maximum that ignores or keeps NaN, and Triton; float16 and bfloat16."""

from functools import partial

import triton
import triton.language as tl

from ptxdiff import Case, Differs, asm, plain, since
from ptxdiff.references import arithmetic, conversion, rounding
from ptxdiff.references.formats import BF16, F16, F32


@triton.jit
def in_triton(a, b, c):
    """A comparison keeps NaN; tl.fma is used because a product and a sum may or may not be fused."""
    y = tl.fma(a, b, c)
    return tl.where(y <= 0, 0.0, y).to(y.dtype)


def clamped(a, b, c, *, fmt):
    """.relu: negative results and -0 become +0; NaN stays."""
    return rounding.relu(fmt, arithmetic.fma(a, b, c, fmt=fmt))


def dropped(a, b, c, *, fmt):
    """max without .NaN: NaN becomes 0 as well."""
    return arithmetic.maximum(arithmetic.fma(a, b, c, fmt=fmt), a * 0, fmt=fmt)


def rounded_twice(a, b, c):
    """bfloat16 by way of float32, whose fma is rounded before its result is."""
    a, b, c = (conversion.convert(x, source=BF16, target=F32) for x in (a, b, c))
    return rounding.relu(BF16, conversion.convert(arithmetic.fma(a, b, c), source=F32, target=BF16))


def products(fmt, suffix, differs=None):
    """The case of one format."""

    def two(text, **policies):
        return asm(text.format(suffix), constraints="=r,r,r,r", pack=2, targets=since("sm_80"), **policies)

    zero = "{{ .reg .b32 zero; mov.b32 zero, 0; fma.rn.{0} $0, $1, $2, $3; "
    return Case(
        inputs={"a": fmt, "b": fmt, "c": fmt},
        outputs={"y": fmt},
        reference=partial(clamped, fmt=fmt),
        carry={"y": "c"},
        variants={
            "fma.relu": two("fma.rn.relu.{0} $0, $1, $2, $3;"),
            "fma-max.NaN": two(zero + "max.NaN.{0} $0, $0, zero; }}"),
            "fma-max": two(zero + "max.{0} $0, $0, zero; }}", reference=partial(dropped, fmt=fmt)),
            "triton": plain(in_triton, differs=differs),
        },
        source="PTX ISA, half precision fma: .relu",
        family="packed arithmetic",
    )


f16 = products(F16, "f16x2")
bf16 = products(BF16, "bf16x2", {"sm_75": Differs("no fma of bfloat16: Triton rounds float32's", rounded_twice)})
