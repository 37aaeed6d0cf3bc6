"""int4 to float16, a word of eight to four pairs: magic numbers by lop3, cvt one at a time, and Triton."""

from functools import partial

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import dequantise
from ptxdiff.references.formats import F16X2, U32


@triton.jit
def half(q, place: tl.constexpr, SIGNED: tl.constexpr):
    """The float16 bits of one nibble: signed, or minus 8."""
    n = ((q >> (4 * place)) & 15).to(tl.int32)
    n = ((n ^ 8) - 8) if SIGNED else (n - 8)
    return n.to(tl.float16).to(tl.uint16, bitcast=True).to(tl.uint32)


@triton.jit
def in_triton(q, SIGNED: tl.constexpr):
    """Elements k and k + 4 in one word."""
    a = half(q, 0, SIGNED) | (half(q, 4, SIGNED) << 16)
    b = half(q, 1, SIGNED) | (half(q, 5, SIGNED) << 16)
    c = half(q, 2, SIGNED) | (half(q, 6, SIGNED) << 16)
    return a, b, c, half(q, 3, SIGNED) | (half(q, 7, SIGNED) << 16)


# 0x6400 is 1024 in float16; a nibble n in its low bits gives 1024 + n, and four bits higher 1024 + 16n. Table 0xEA is
# (q & mask) | magic; 0x6A is (q & mask) ^ magic, which flips a nibble's sign bit: n + 8, from -8 to 7 on.
MAGIC = """{{
    .reg .b32 t, low, high, sixteenth;
    mov.b32 low, 0x64086408;  mov.b32 high, 0xD480D480;  mov.b32 sixteenth, 0x2C002C00;   // 1032, -72, 1/16
    lop3.b32 $0, $4, 0x000F000F, {1}, {0};
    lop3.b32 $1, $4, 0x00F000F0, {2}, {0};
    shr.u32 t, $4, 8;
    lop3.b32 $2, t, 0x000F000F, {1}, {0};
    lop3.b32 $3, t, 0x00F000F0, {2}, {0};
    sub.f16x2 $0, $0, low;  fma.rn.f16x2 $1, $1, sixteenth, high;
    sub.f16x2 $2, $2, low;  fma.rn.f16x2 $3, $3, sixteenth, high;
}}"""


def converted(extract):
    """One nibble at a time: {extract} puts that at place {at} into t."""
    one = extract + " cvt.rn.f16.s32 {to}, t; "
    steps = "".join(
        one.format(at=4 * k, to="x") + one.format(at=4 * k + 16, to="y") + f"mov.b32 ${k}, {{x, y}};\n"
        for k in range(4)
    )
    return f"{{ .reg .b16 x, y; .reg .b32 t;\n{steps}}}"


def pairs(q, *, signed, zero):
    """Four outputs: the elements k and k + 4 of each word."""
    return dequantise.interleaved(dequantise.integers(q, bits=4, width=32, signed=signed, zero=zero), groups=4)


def words_of_eight(signed, zero, variants):
    """The case of one reading of the nibbles."""
    return Case(
        inputs={"q": U32},
        outputs=dict.fromkeys("abcd", F16X2),
        reference=partial(pairs, signed=signed, zero=zero),
        variants={**variants, "triton": plain(in_triton, constants={"SIGNED": signed})},
        source="Kim et al., Who says elephants can't run, 2022; PTX ISA, lop3",
        family="dequantisation",
    )


less8 = words_of_eight(False, 8, {
    "lop3": asm(MAGIC.format("0xEA", "0x64006400", "0x64006400")),
    "bfe-cvt": asm(converted("bfe.u32 t, $4, {at}, 4; sub.s32 t, t, 8;")),
})  # fmt: skip
signed = words_of_eight(True, 0, {
    "lop3-xor": asm(MAGIC.format("0x6A", "0x64086408", "0x64806480")),
    "bfe-cvt": asm(converted("bfe.s32 t, $4, {at}, 4;")),
})  # fmt: skip
