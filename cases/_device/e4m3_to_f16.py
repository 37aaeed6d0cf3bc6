"""e4m3 to float16: the asm of its shifts, and Triton's cast."""

import triton
import triton.language as tl


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
