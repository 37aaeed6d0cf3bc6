"""e4m3 to float16, four in a register: cvt, shifts with a product, NaN repaired or not, a table, and Triton."""

from functools import partial

import numpy as np
import torch
import triton
import triton.language as tl

from ptxdiff import Case, Domain, Meets, asm, exact, plain, since
from ptxdiff.references import conversion
from ptxdiff.references.formats import E4M3, F16, is_nan


@triton.jit
def in_triton(x):
    """A cast."""
    return x.to(tl.float8e4nv, bitcast=True).to(tl.float16)


# Each byte at the top of a half; sign kept, other bits one place down: too small by 2^8, which 0x5C00 corrects.
SHIFTS = """
    prmt.b32 $0, 0, $2, 0x5040;  prmt.b32 $1, 0, $2, 0x7060;
    shr.u32 t, $0, 1;  and.b32 t, t, 0x3F803F80;  lop3.b32 $0, $0, 0x80008000, t, 0xEA;
    shr.u32 t, $1, 1;  and.b32 t, t, 0x3F803F80;  lop3.b32 $1, $1, 0x80008000, t, 0xEA;
    mul.rn.f16x2 $0, $0, factor;  mul.rn.f16x2 $1, $1, factor;
"""


def repaired(k):
    """480 is no e4m3 number: a half above 464 becomes NaN."""
    return (
        f"mov.b32 {{a, b}}, ${k}; abs.f16 c, a; setp.gt.f16 p, c, limit; selp.b16 a, 0x7FFF, a, p; "
        f"abs.f16 c, b; setp.gt.f16 p, c, limit; selp.b16 b, 0x7FFF, b, p; mov.b32 ${k}, {{a, b}};\n"
    )


def four(body):
    """Asm on four bytes in $2, with results in $0 and $1."""
    head = ".reg .pred p; .reg .b16 a, b, c, limit; .reg .b32 t, factor;"
    return f"{{ {head} mov.b32 factor, 0x5C005C00; mov.b16 limit, 0x5F40; {body} }}"


FROM_E4M3 = partial(conversion.convert, source=E4M3, target=F16)


def nan_as_480(x):
    """Without a special case, the code of NaN becomes the number after 448: 480, with its sign."""
    return torch.where(is_nan(E4M3, x), 0x5F80 | (x & 0x80) << 8, FROM_E4M3(x))


FORM = {"constraints": "=&r,=&r,r", "pack": 4}

case = Case(
    inputs={"x": E4M3},
    outputs={"y": F16},
    reference=FROM_E4M3,
    variants={
        "cvt": asm(
            "{ .reg .b16 a, b; mov.b32 {a, b}, $2; cvt.rn.f16x2.e4m3x2 $0, a; cvt.rn.f16x2.e4m3x2 $1, b; }",
            **FORM,
            targets=since("sm_89"),
        ),
        "shifts": asm(
            four(SHIFTS),
            **FORM,
            reference=nan_as_480,
            meets=Meets(Domain("x is a number", lambda v: ~np.isnan(v["x"])), exact()),
            note="NaN becomes 480: for weights that hold none",
        ),
        "shifts-nan": asm(four(SHIFTS + repaired(0) + repaired(1)), **FORM),
        "triton": plain(in_triton, targets=since("sm_89")),
    },
    source="OCP 8-bit Floating Point 1.0, 5.2; PTX ISA, cvt: .e4m3x2",
    family="dequantisation",
)
