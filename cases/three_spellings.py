"""One block of asm from one constant: in Triton, in a Gluon kernel, and in the form for PyTorch and Helion."""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ptxdiff import Case, asm, kernel, plain
from ptxdiff.references.formats import U32

# The bytes of a word in the opposite order. All spellings take the same three arguments.
TEXT, CONSTRAINTS, PACK = "prmt.b32 $0, $1, 0, 0x0123;", "=r,r", 1
SAME = {"TEXT": TEXT, "CONSTRAINTS": CONSTRAINTS, "PACK": PACK}
# Imported under another name, because functions for Triton call a function of the same name.
try:
    from torch._higher_order_ops.inline_asm_elementwise import inline_asm_elementwise as torch_asm
except ImportError:  # before torch 2.13
    torch_asm = None


@triton.jit
def in_triton(x, TEXT: tl.constexpr, CONSTRAINTS: tl.constexpr, PACK: tl.constexpr):
    """Triton's function."""
    return tl.inline_asm_elementwise(TEXT, CONSTRAINTS, [x], dtype=tl.uint32, is_pure=True, pack=PACK)


@gluon.jit
def in_gluon(x, y, n, BLOCK: gl.constexpr, TEXT: gl.constexpr, CONSTRAINTS: gl.constexpr, PACK: gl.constexpr):
    """Gluon's function, on a layout that the kernel states."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    swapped = gl.inline_asm_elementwise(
        TEXT, CONSTRAINTS, [gl.load(x + i, mask=i < n)], dtype=gl.uint32, is_pure=True, pack=PACK
    )
    gl.store(y + i, swapped, mask=i < n)


def in_pytorch(x):
    """PyTorch's function, timed after torch.compile beside the variants; Helion's function has the same arguments."""
    return torch_asm(x, asm_str=TEXT, constraints=CONSTRAINTS, dtype=x.dtype, is_pure=True, pack=PACK)


def reversed_bytes(x):
    """The lowest byte becomes the highest."""
    return sum(((x >> (8 * k)) & 0xFF) << (24 - 8 * k) for k in range(4))


case = Case(
    inputs={"x": U32},
    outputs={"y": U32},
    reference=reversed_bytes,
    pytorch=in_pytorch if torch_asm is not None else None,
    variants={
        "asm": asm(TEXT, constraints=CONSTRAINTS, pack=PACK),
        "triton": plain(in_triton, constants=SAME),
        "gluon": kernel(in_gluon, grid=lambda sizes: (-(-sizes["n"] // 256),), meta={"BLOCK": 256, **SAME}),
    },
    family="bits and integers",
    source="PTX ISA, prmt",
)
