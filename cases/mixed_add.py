"""float32 plus a bfloat16 or float16: the mixed instructions of Blackwell, conversion first, and Triton."""

from functools import partial

import triton
import triton.language as tl

from ptxdiff import ALL, Case, asm, plain, since
from ptxdiff.references import arithmetic, conversion
from ptxdiff.references.formats import BF16, F16, F32


@triton.jit
def in_triton(a, b):
    """The conversion is exact."""
    return a.to(tl.float32) + b


@triton.jit
def fma_in_triton(a, b, c):
    """Both factors widened."""
    return tl.fma(a.to(tl.float32), b.to(tl.float32), c)


MIXED = since("sm_100a")


def widened(*codes, fmt, operation):
    """The operation on float32, rounded once; the last operand is already float32."""
    *narrow, last = codes
    return operation(*(conversion.convert(x, source=fmt, target=F32) for x in narrow), last)


def sums(fmt, suffix, widen):
    """The sum, for one format."""
    return Case(
        inputs={"a": fmt, "b": F32},
        outputs={"y": F32},
        reference=partial(widened, fmt=fmt, operation=arithmetic.add),
        carry={"y": "b"},
        variants={
            f"add.f32.{suffix}": asm(
                f"{{ .reg .b16 a; mov.b32 {{a, _}}, $1; add.rn.f32.{suffix} $0, a, $2; }}",
                targets=MIXED,
                refused=ALL - MIXED,
            ),
            "widened": asm(f"{{ .reg .b16 h; .reg .f32 a; {widen} add.rn.f32 $0, a, $2; }}"),
            "triton": plain(in_triton),
        },
        source=f"PTX ISA, mixed precision add: .f32.{suffix}",
        family="packed arithmetic",
    )


bf16 = sums(BF16, "bf16", "shl.b32 a, $1, 16;")
f16 = sums(F16, "f16", "mov.b32 {h, _}, $1; cvt.f32.f16 a, h;")

fma = Case(
    inputs={"a": F16, "b": F16, "c": F32},
    outputs={"y": F32},
    reference=partial(widened, fmt=F16, operation=arithmetic.fma),
    carry={"y": "c"},
    variants={
        "fma.f32.f16": asm(
            "{ .reg .b16 a, b; mov.b32 {a, _}, $1; mov.b32 {b, _}, $2; fma.rn.f32.f16 $0, a, b, $3; }",
            targets=MIXED,
            refused=ALL - MIXED,
        ),
        "triton": plain(fma_in_triton),
    },
    source="PTX ISA, mixed precision fma: .f32.f16",
    family="packed arithmetic",
)
