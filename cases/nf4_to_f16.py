"""nf4, two in a byte, to float16: a table in registers read by prmt, a tree of selections, and Triton."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import dequantise
from ptxdiff.references.formats import F16X2, U8


@triton.jit
def value(n, TABLE: tl.constexpr):
    """The code of one nibble: one comparison for each entry."""
    y = tl.full(n.shape, TABLE[0], tl.uint32)
    for k in tl.static_range(1, 16):
        y = tl.where(n == k, TABLE[k], y)
    return y


@triton.jit
def in_triton(q, TABLE: tl.constexpr):
    """The low nibble first."""
    return (value(q & 15, TABLE) | (value(q >> 4, TABLE) << 16)).to(tl.uint32)


def four(values, shift):
    """One byte of each of four table entries as a word."""
    return sum((value >> shift & 255) << 8 * k for k, value in enumerate(values))


def looked_up(codes, to, shift):
    """One byte of the value for each of four nibbles in s; the mask m chooses entries 0 to 7 or 8 to 15."""
    low, high = codes[:8], codes[8:]
    return f"""
        mov.b32 t, {four(low[:4], shift):#x};  mov.b32 u, {four(low[4:], shift):#x};   prmt.b32 {to}, t, u, s;
        mov.b32 t, {four(high[:4], shift):#x}; mov.b32 u, {four(high[4:], shift):#x};  prmt.b32 t, t, u, s;
        lop3.b32 {to}, m, t, {to}, 0xCA;"""


def prmt(codes):
    """Asm with two bytes, four elements, a prmt.

    In a selector a nibble's top bit would replicate a sign, so it becomes a separate mask. Then the lower and upper
    bytes of the four values are combined.
    """
    halves = (
        f"""
        shr.u32 q, $4, {16 * half};
        and.b32 s, q, 0x7777;
        shr.u32 m, q, 3;  and.b32 m, m, 0x1111;  prmt.b32 m, 0x0000FF00, 0, m;
        {looked_up(codes, "lower", 0)}{looked_up(codes, "upper", 8)}
        prmt.b32 ${2 * half}, lower, upper, 0x5140;
        prmt.b32 ${2 * half + 1}, lower, upper, 0x7362;"""
        for half in (0, 1)
    )
    return "{ .reg .b32 q, s, m, t, u, lower, upper;" + "".join(halves) + "}"


def tree(codes, nibble):
    """Four rounds of selections, by one bit each; the result is v0."""
    rounds = [f"mov.b32 v{k}, {code:#x};" for k, code in enumerate(codes)]
    for bit in range(4):
        rounds += [f"and.b32 t, $1, {1 << nibble * 4 + bit}; setp.ne.u32 p, t, 0;"]
        rounds += [f"selp.b32 v{k}, v{2 * k + 1}, v{2 * k}, p;" for k in range(8 >> bit)]
    return "\n".join(rounds)


def selected(codes):
    """Asm with a tree of selections for each nibble."""
    return (
        f"{{ .reg .pred p; .reg .b32 t, v<16>, low;\n{tree(codes, 0)}\nmov.b32 low, v0;\n{tree(codes, 1)}\n"
        "shl.b32 t, v0, 16; or.b32 $0, t, low; }"
    )


CODES = dequantise.table()


case = Case(
    inputs={"q": U8},
    outputs={"y": F16X2},
    reference=dequantise.nf4,
    variants={
        "prmt": asm(prmt(CODES), constraints="=&r,=&r,=&r,=&r,r", pack=4),
        "selp": asm(selected(CODES), constraints="=r,r", pack=1),
        "triton": plain(in_triton, constants={"TABLE": tuple(CODES)}),
    },
    source="Dettmers et al., QLoRA, 2023, appendix E; PTX ISA, prmt",
    family="dequantisation",
)
