"""Four bytes chosen from eight by a word of selectors: prmt, shifts, and Triton."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import bits
from ptxdiff.references.formats import U32


@triton.jit
def pick(a, b, selector):
    """The byte of {b, a} that three bits choose, in the low eight bits."""
    word = tl.where((selector & 4) != 0, b, a)
    return (word >> ((selector & 3) * 8)) & 255


@triton.jit
def permute_in_triton(a, b, s):
    """Four bytes one after the other."""
    return pick(a, b, s) | (pick(a, b, s >> 4) << 8) | (pick(a, b, s >> 8) << 16) | (pick(a, b, s >> 12) << 24)


def permuted(a, b, s):
    """Byte k of the result is the byte of {b, a} that bits 4k to 4k + 2 of s choose; other bits have no effect."""
    return bits.prmt(a, b, s & 0x7777)


def four_picks():
    """One byte at a time out of a 64-bit register."""
    steps = "\n".join(
        f"bfe.u32 n, $3, {4 * k}, 3; shl.b32 n, n, 3; shr.u64 w, both, n; cvt.u32.u64 t, w; "
        f"bfi.b32 $0, t, $0, {8 * k}, 8;"
        for k in range(4)
    )
    return f"{{ .reg .b64 both, w; .reg .b32 n, t; mov.b64 both, {{$1, $2}}; mov.b32 $0, 0;\n{steps}\n}}"


case = Case(
    inputs={"a": U32, "b": U32, "s": U32},
    outputs={"y": U32},
    reference=permuted,
    variants={
        # A fourth bit would make prmt replicate the byte's sign.
        "prmt": asm("{ .reg .b32 s; and.b32 s, $3, 0x7777; prmt.b32 $0, $1, $2, s; }"),
        "shifts": asm(four_picks()),
        "triton": plain(permute_in_triton),
    },
    source="PTX ISA, prmt",
    family="bits and integers",
)
