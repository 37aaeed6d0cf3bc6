"""int8 to bfloat16, four in a register: magic numbers by prmt, and Triton."""

from functools import partial

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import conversion
from ptxdiff.references.formats import BF16, I8


@triton.jit
def to_bf16(q):
    """A cast."""
    return q.to(tl.bfloat16)


def four(text):
    """Asm on four bytes in $2, with results in $0 and $1."""
    return asm(text, constraints="=&r,=&r,r", pack=4)


def floats():
    """8388608 + 128 + q with q in the low byte of 0x4B000000, minus 8388736; a float32's upper half is bfloat16."""
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
    outputs={"y": BF16},
    reference=partial(conversion.convert, source=I8, target=BF16),
    variants={"prmt-float32": four(floats()), "triton": plain(to_bf16)},
    source="PTX ISA, prmt",
    family="dequantisation",
)
