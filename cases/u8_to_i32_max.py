"""The example of Triton's documentation: uint8 to int32, and the maximum of that and a float32, four at a time.

As documented, it writes outputs before it has read all inputs, without early clobbers. It works if each operand has its
own register. But LLVM may put an output into the register of an input that is not needed later, and in a loop with a
running maximum it does so with d and b: b is then lost before max reads it.
"""

import triton
import triton.language as tl

from ptxdiff import Case, ExpectedFailure, asm, plain
from ptxdiff.references import integer_max
from ptxdiff.references.formats import F32, I32, U8


@triton.jit
def in_triton(a, b):
    """The same in plain Triton."""
    return a.to(tl.int32), tl.maximum(a.to(tl.float32), b)


DOCUMENTED = """
{
    // Unpack `a` into `ai`.
    .reg .b8 tmp<4>;
    mov.b32 {tmp0, tmp1, tmp2, tmp3}, $8;
    cvt.u32.u8 $0, tmp0;
    cvt.u32.u8 $1, tmp1;
    cvt.u32.u8 $2, tmp2;
    cvt.u32.u8 $3, tmp3;
}
// Convert `ai` to float.
cvt.rn.f32.s32 $4, $0;
cvt.rn.f32.s32 $5, $1;
cvt.rn.f32.s32 $6, $2;
cvt.rn.f32.s32 $7, $3;
// Take max of `ai` and `b`.
max.f32 $4, $4, $9;
max.f32 $5, $5, $10;
max.f32 $6, $6, $11;
max.f32 $7, $7, $12;
"""


case = Case(
    inputs={"a": U8, "b": F32},
    outputs={"c": I32, "d": F32},
    reference=integer_max.convert_and_max,
    carry={"d": "b"},
    variants={
        "documented": asm(  # ptxdiff: ignore[missing-early-clobber]
            DOCUMENTED,
            constraints="=r,=r,=r,=r,=r,=r,=r,=r,r,r,r,r,r",
            pack=4,
            expected_failure=ExpectedFailure(
                "missing early clobber",
                context=("shared", "loop"),
                reason="cvt writes d's register, which may be b's, before max reads b; =&r cures it",
            ),
        ),
        "early-clobber": asm(DOCUMENTED, constraints="=&r,=&r,=&r,=&r,=&r,=&r,=&r,=&r,r,r,r,r,r", pack=4),
        "triton": plain(in_triton),
    },
    source="Triton, tl.inline_asm_elementwise; PTX ISA, cvt and max",
    family="compiler hazards",
)
