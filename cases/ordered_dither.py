"""The entry of Bayer's 8 x 8 dither matrix for a pixel: bits taken in turn, by brev and shifts, by fields, Triton."""

import triton

from ptxdiff import Case, asm, plain
from ptxdiff.references import words
from ptxdiff.references.formats import U32


@triton.jit
def in_triton(x, y):
    """From the lowest bits of x ^ y and y, which are the highest two of the entry."""
    d = x ^ y
    first = ((d & 1) << 5) | ((y & 1) << 4)
    second = ((d & 2) << 2) | ((y & 2) << 1)
    return first | second | ((d & 4) >> 1) | ((y & 4) >> 2)


FIELDS = "\n".join(
    f"bfe.u32 t, {source}, {k}, 1; bfi.b32 $0, t, $0, {place - 2 * k}, 1;"
    for k in range(3)
    for source, place in (("d", 5), ("$2", 4))
)

case = Case(
    inputs={"x": U32, "y": U32},
    outputs={"entry": U32},
    reference=words.bayer8,
    variants={
        "bfe-bfi": asm(f"{{ .reg .b32 d, t; xor.b32 d, $1, $2; mov.b32 $0, 0;\n{FIELDS}\n}}"),
        # Three bits, reversed to places 0 to 2 by brev, move to the even places.
        "brev": asm(
            """{
                .reg .b32 d, e, t;
                xor.b32 d, $1, $2;
                brev.b32 d, d;  shr.u32 d, d, 29;
                brev.b32 e, $2; shr.u32 e, e, 29;
                shl.b32 t, d, 2; lop3.b32 d, d, t, 0x13, 0xA8;
                shl.b32 t, d, 1; lop3.b32 d, d, t, 0x15, 0xA8;
                shl.b32 t, e, 2; lop3.b32 e, e, t, 0x13, 0xA8;
                shl.b32 t, e, 1; lop3.b32 e, e, t, 0x15, 0xA8;
                mad.lo.u32 $0, d, 2, e;
            }"""
        ),
        "triton": plain(in_triton),
    },
    source="B. E. Bayer, An optimum method for two-level rendition of continuous-tone pictures, 1973",
    family="bits and integers",
)
