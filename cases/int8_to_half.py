"""int8 to float16 and bfloat16, four a register: magic numbers by prmt, cvt, and Triton."""

from functools import partial

import triton
import triton.language as tl

from harness import Case, asm, plain
from references import conversion
from references.formats import BF16, F16, I8


@triton.jit
def to_f16(q):
    """A cast."""
    return q.to(tl.float16)


@triton.jit
def to_bf16(q):
    """A cast."""
    return q.to(tl.bfloat16)


def four(text):
    """Asm on four bytes in $2, with results in $0 and $1."""
    return asm(text, constraints="=&r,=&r,r", pack=4)


def floats():
    """8388608 + 128 + q by bytes below 0x4B00, less 8388736; what a float32 holds in its upper half is bfloat16."""
    steps = "\n".join(f"prmt.b32 x{k}, t, 0x4B000000, 0x744{k}; sub.rn.f32 x{k}, x{k}, 0f4B000080;" for k in range(4))
    return f"""{{
        .reg .b32 t;
        .reg .f32 x<4>;
        xor.b32 t, $2, 0x80808080;
        {steps}
        prmt.b32 $0, x0, x1, 0x7632;
        prmt.b32 $1, x2, x3, 0x7632;
    }}"""


case = Case(
    inputs={"q": I8},
    outputs={"y": F16},
    reference=partial(conversion.convert, source=I8, target=F16),
    variants={
        # 1024 + 128 + q: 0x64 above a byte whose top bit is flipped; less 1152, 0x6480.
        "prmt": four(
            """{
                .reg .b32 t, magic, zero;
                mov.b32 magic, 0x64646464;
                mov.b32 zero, 0x64806480;
                xor.b32 t, $2, 0x80808080;
                prmt.b32 $0, t, magic, 0x4140;
                prmt.b32 $1, t, magic, 0x4342;
                sub.f16x2 $0, $0, zero;
                sub.f16x2 $1, $1, zero;
            }"""
        ),
        "cvt": four(
            """{
                .reg .b32 t;
                .reg .b16 x<4>;
                bfe.s32 t, $2, 0, 8;   cvt.rn.f16.s32 x0, t;
                bfe.s32 t, $2, 8, 8;   cvt.rn.f16.s32 x1, t;
                bfe.s32 t, $2, 16, 8;  cvt.rn.f16.s32 x2, t;
                bfe.s32 t, $2, 24, 8;  cvt.rn.f16.s32 x3, t;
                mov.b32 $0, {x0, x1};
                mov.b32 $1, {x2, x3};
            }"""
        ),
        "triton": plain(to_f16),
    },
    source="PTX ISA, prmt and cvt",
    family="dequantisation",
)

bf16 = Case(
    inputs={"q": I8},
    outputs={"y": BF16},
    reference=partial(conversion.convert, source=I8, target=BF16),
    variants={"prmt-float32": four(floats()), "triton": plain(to_bf16)},
    source="PTX ISA, prmt",
    family="dequantisation",
)
