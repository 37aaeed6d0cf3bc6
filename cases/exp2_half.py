"""2^x on float16 and bfloat16: one and two per instruction, and through float32."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, asm, between, plain, relative, since, ulp
from ptxdiff.references import exponential
from ptxdiff.references.formats import BF16, F16, Format


@triton.jit
def over_float32(x, TYPE: tl.constexpr):
    """Triton's code for tl.exp2 on a half: float32's instruction, and one rounding."""
    return tl.exp2(x.to(tl.float32)).to(TYPE)


def case_of(fmt: Format, name: str, bound: float, first: str, type_: tl.dtype):
    """The relative bound applies to normal results; subnormal results may differ by one ulp."""
    place = ulp(1, underflow=True, source="one place; of a subnormal result the ISA gives no bound")
    match = relative(
        bound,
        on=between("x", fmt.min_exponent, 128),
        outside=place,
        overflow=True,
        source=f"PTX ISA, ex2: .{name}, maximum relative error",
    )
    ftz = "required" if fmt is BF16 else "never"
    return Case(
        inputs={"x": fmt},
        outputs={"y": fmt},
        reference=lambda x, *, ftz=False: exponential.ex2(x, fmt=fmt, ftz=ftz),
        pytorch=torch.exp2,
        variants={
            "one": asm(f"ex2.approx.{name} $0, $1;", match=match, ftz=ftz, targets=since(first)),
            "two": asm(f"ex2.approx.{name}x2 $0, $1;", match=match, ftz=ftz, targets=since(first)),
            "float32": plain(over_float32, constants={"TYPE": type_}, match=place, ftz="allowed"),
        },
        family="fast math",
        source="PTX ISA, ex2: .f16, .f16x2, .ftz.bf16, .ftz.bf16x2",
    )


f16 = case_of(F16, "f16", 2.0**-9.9, "sm_75", tl.float16)
bf16 = case_of(BF16, "ftz.bf16", 2.0**-7, "sm_90", tl.bfloat16)
