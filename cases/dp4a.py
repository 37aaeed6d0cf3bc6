"""The dot product of four bytes, added to a word: dp4a, signed and mixed, extracted bytes, dp2a twice, and Triton."""

from functools import partial

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import integers
from ptxdiff.references.formats import U32


@triton.jit
def signed_byte(x, k: tl.constexpr):
    """Byte k of a word, with its sign."""
    return (x << (24 - 8 * k)).to(tl.int32, bitcast=True) >> 24


@triton.jit
def in_triton(a, b, c):
    """Four products; the sum wraps."""
    y = c.to(tl.int32, bitcast=True)
    for k in tl.static_range(4):
        y += signed_byte(a, k) * signed_byte(b, k)
    return y.to(tl.uint32, bitcast=True)


@triton.jit
def mixed_in_triton(a, b, c):
    """The bytes of a without a sign."""
    y = c.to(tl.int32, bitcast=True)
    for k in tl.static_range(4):
        y += ((a >> (8 * k)) & 255).to(tl.int32) * signed_byte(b, k)
    return y.to(tl.uint32, bitcast=True)


def extracted(a_type):
    """One byte of each at a time."""
    steps = "\n".join(
        f"bfe.{a_type} x, $1, {8 * k}, 8; bfe.s32 y, $2, {8 * k}, 8; mad.lo.s32 $0, x, y, $0;" for k in range(4)
    )
    return f"{{ .reg .b32 x, y; mov.b32 $0, $3;\n{steps}\n}}"


# dp2a takes 16-bit words of a, and the lower or upper two bytes of b.
TWICE = """{{
    .reg .b32 even, odd;
    prmt.b32 even, $1, 0, {0};
    prmt.b32 odd, $1, 0, {1};
    dp2a.lo.{2}.s32 $0, even, $2, $3;
    dp2a.hi.{2}.s32 $0, odd, $2, $0;
}}"""

shared = {
    "inputs": {"a": U32, "b": U32, "c": U32},
    "outputs": {"y": U32},
    "source": "PTX ISA, dp4a and dp2a",
    "family": "bits and integers",
    "carry": {"y": "c"},
}

case = Case(
    **shared,
    reference=integers.dp4a,
    variants={
        "dp4a": asm("dp4a.s32.s32 $0, $1, $2, $3;"),
        "dp2a": asm(TWICE.format("0x9180", "0xB3A2", "s32")),  # 8 added to a selector replicates the byte's sign
        "bfe-mad": asm(extracted("s32")),
        "triton": plain(in_triton),
    },
)

mixed = Case(
    **shared,
    reference=partial(integers.dp4a, a_signed=False),
    variants={
        "dp4a": asm("dp4a.u32.s32 $0, $1, $2, $3;"),
        "dp2a": asm(TWICE.format("0x4140", "0x4342", "u32")),
        "bfe-mad": asm(extracted("u32")),
        "triton": plain(mixed_in_triton),
    },
)
