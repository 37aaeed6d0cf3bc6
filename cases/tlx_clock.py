"""TLX's clock64 around a load, and asm that is not pure: both readings stay and change no result."""

import triton
import triton.language as tl

from ptxdiff import Case, kernel, module_of_build, since
from ptxdiff.references.formats import I32

from ._host.expected import next_number


@triton.jit
def clock(after):
    """%clock64, for each element; the operand orders it after the computation of `after`."""
    return tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l,r", [after], dtype=tl.int64, is_pure=False, pack=1)


@triton.jit
def by_asm(x, y, n: tl.constexpr):
    """x + 1, between two readings whose difference is not used."""
    i = tl.arange(0, n)
    before = clock(i)
    value = tl.load(x + i)
    elapsed = clock(value) - before
    tl.store(y + i, value + 1 + (elapsed * 0).to(tl.int32))


tlx = module_of_build("triton.language.extra.tlx")


@triton.jit
def by_tlx(x, y, n: tl.constexpr):
    """x + 1, between two readings whose difference is not used."""
    i = tl.arange(0, n)
    before = tlx.clock64()
    value = tl.load(x + i)
    elapsed = tlx.clock64() - before
    tl.store(y + i, value + 1 + (elapsed * 0).to(tl.int32))


case = Case(
    inputs={"x": I32["n"]},
    outputs={"y": I32["n"]},
    reference=next_number,
    sizes=[{"n": 128}],
    variants={
        "tlx": kernel(by_tlx, grid=(1,), compiler="tlx", targets=since("sm_80")),
        "asm": kernel(by_asm, grid=(1,)),
    },
    family="effects",
    source="PTX ISA, %clock64; fbtriton 3.7.4, tlx.utility",
)
