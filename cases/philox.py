"""Philox4x32-10, the generator of tl.rand: halves of products, wide products, Triton's function, and plain Triton."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import hashes
from ptxdiff.references.formats import U32

M0, M1 = hashes.PHILOX_MULTIPLIERS
K0, K1 = hashes.PHILOX_KEY_STEPS


@triton.jit
def in_triton(c0, c1, c2, c3, k0, k1):
    """The function that tl.randint4x calls."""
    return tl.philox_impl(c0, c1, c2, c3, k0, k1)


def rounds(product):
    """Ten rounds on c0 to c3; `product` puts the halves of {a} * {m} into {hi} and {lo}."""
    one = f"""
        {product.format(a="c0", m=M0, hi="h0", lo="l0")}
        {product.format(a="c2", m=M1, hi="h1", lo="l1")}
        lop3.b32 c0, h1, c1, k0, 0x96;
        lop3.b32 c2, h0, c3, k1, 0x96;
        mov.b32 c1, l1;
        mov.b32 c3, l0;
        add.u32 k0, k0, {K0};
        add.u32 k1, k1, {K1};"""
    load = " ".join(f"mov.b32 {name}, ${4 + k};" for k, name in enumerate(("c0", "c1", "c2", "c3", "k0", "k1")))
    save = " ".join(f"mov.b32 ${k}, c{k};" for k in range(4))
    return f"{{ .reg .b32 c<4>, k<2>, h<2>, l<2>; .reg .b64 p; {load}{one * 10}\n{save} }}"


WORDS = ("c0", "c1", "c2", "c3", "k0", "k1")

case = Case(
    inputs=dict.fromkeys(WORDS, U32),
    outputs={"r0": U32, "r1": U32, "r2": U32, "r3": U32},
    reference=hashes.philox4x32_10,
    variants={
        "mul.hi": asm(rounds("mul.hi.u32 {hi}, {a}, {m}; mul.lo.u32 {lo}, {a}, {m};")),
        "mul.wide": asm(rounds("mul.wide.u32 p, {a}, {m}; mov.b64 {{{lo}, {hi}}}, p;")),
        "triton": plain(in_triton),
    },
    source="Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011",
    family="bits and integers",
)
