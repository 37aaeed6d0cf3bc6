"""Machine code that keeps functions of its PTX as functions gives the PTX's bits."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff import run_ptx
from ptxdiff.triton.targets import probe

REGISTERS = """.func (.reg .u32 r) f(.reg .u32 x, .reg .u32 y)
{ .reg .b32 t; mul.lo.u32 t, x, 7; add.u32 t, t, y; xor.b32 r, t, x; add.u32 x, x, r; ret; }
"""
MANY = 20
"""More words than there are registers for parameters."""
STACK = f""".func (.param .u64 r) f({", ".join(f".param .u64 x{k}" for k in range(MANY))})
{{ .reg .b64 t, a; mov.b64 t, 1;
{" ".join(f"ld.param.u64 a, [x{k}]; mad.lo.u64 t, t, 31, a;" for k in range(MANY))} st.param.u64 [r], t; ret; }}
"""
PASSED = f"""cvt.u64.u32 %l, %x;
{{ .param .u64 q; {" ".join(f".param .u64 p{k};" for k in range(MANY))}
{" ".join(f"mul.lo.u64 %l, %l, 77; st.param.u64 [p{k}], %l;" for k in range(MANY))}
call (q), f, ({", ".join(f"p{k}" for k in range(MANY))}); ld.param.u64 %l, [q]; }} cvt.u32.u64 %y, %l;"""
STRUCTURE = """.func (.param .align 8 .b8 r[16]) f(.param .align 8 .b8 x[24])
{ .reg .b64 t<3>; ld.param.u64 t0, [x]; ld.param.u64 t1, [x+8]; ld.param.u64 t2, [x+16];
xor.b64 t0, t0, t1; mul.lo.u64 t1, t2, t0; st.param.u64 [r], t0; st.param.u64 [r+8], t1; ret; }
"""
STRUCTURED = """cvt.u64.u32 %l, %x; { .param .align 8 .b8 p[24]; .param .align 8 .b8 q[16];
st.param.u64 [p], %l; add.u64 %m, %l, 77; st.param.u64 [p+8], %m; mul.lo.u64 %l, %l, %m; st.param.u64 [p+16], %l;
call (q), f, (p); ld.param.u64 %l, [q]; ld.param.u64 %m, [q+8]; xor.b64 %l, %l, %m; } cvt.u32.u64 %y, %l;"""
KERNELS = {
    "registers": (REGISTERS, "call (%y), f, (%x, %i);"),
    "registers, some lanes": (
        REGISTERS, "mov.u32 %y, 3; setp.lt.s32 %p, %x, 0; @!%p bra L; call (%y), f, (%x, %i); L: add.u32 %y, %y, %x;"
    ),
    "registers, in a loop": (
        REGISTERS, "mov.u32 %z, 0; L: call (%y), f, (%x, 5); add.u32 %x, %x, %y; add.u32 %z, %z, 1; "
        "setp.lt.u32 %p, %z, %i; @%p bra L;"
    ),
    "many": (STACK, PASSED),
    "structures": (STRUCTURE, STRUCTURED),
}  # fmt: skip
"""Functions, and what a kernel does with its word %x and its number %i."""


@pytest.mark.sample(8)
@pytest.mark.parametrize("opt", [0, 3])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_120a"])
@pytest.mark.parametrize("name", KERNELS)
def test_calls_give_the_bits_of_the_ptx(name: str, target: str, opt: int) -> None:
    if not probe()[target].available:
        pytest.skip(f"no ptxas for {target}")
    functions, body = KERNELS[name]
    text = f""".version {probe()[target].ptx_version}
.target {target}
.address_size 64
{functions}
.visible .entry k(.param .u64 a, .param .u64 b)
{{ .reg .b32 %i, %x, %y, %z; .reg .b64 %p0, %q0, %o, %l, %m; .reg .pred %p;
mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 4; ld.param.u64 %p0, [a]; add.u64 %p0, %p0, %o; ld.global.b32 %x, [%p0];
ld.param.u64 %q0, [b]; add.u64 %q0, %q0, %o; {body} st.global.b32 [%q0], %y; ret; }}
"""
    words = np.random.default_rng(1).integers(-(1 << 31), 1 << 31, 64, np.int32)
    right, found = np.zeros(64, np.int32), np.zeros(64, np.int32)
    run_ptx(text, 1, 64, words.copy(), right)
    report = run_ptx(text, 1, 64, words.copy(), found, level="sass", opt=opt)
    np.testing.assert_array_equal(found, right)
    assert len(np.unique(right)) > 40
    assert report.forms
