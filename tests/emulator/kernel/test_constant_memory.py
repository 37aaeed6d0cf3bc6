"""Variables in constant memory: what reads them, and accesses that PTX does not define."""

import numpy as np
import pytest

from ptxdiff import run_ptx
from ptxdiff.emulator import PtxError

KERNEL = """.version 8.3
.target sm_80
.address_size 64
.const .align 4 .b32 table[4] = {{10, 20, 30, 40}};
.global .align 4 .b32 word = 7;
.const .align 8 .b64 last = 50;
.visible .entry k(.param .u64 out)
{{
 .reg .b64 %out, %at, %generic, %i; .reg .b32 %x, %y, %lane; .reg .pred %p;
 ld.param.u64 %out, [out];
 mov.u32 %lane, %tid.x;
 and.b32 %lane, %lane, 3;
 mul.wide.u32 %i, %lane, 4;
 add.u64 %out, %out, %i;
 mov.u64 %at, table;
 cvta.const.u64 %generic, %at;
 mov.b32 %x, 0;
 {code}
 st.global.u32 [%out], %x;
 ret;
}}
"""


def ran(code):
    out = np.zeros(4, np.uint32)
    run_ptx(KERNEL.format(code=code), 1, 32, out)
    return out.tolist()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("ld.const.u32 %x, [table+4];", [20] * 4),
        ("add.u64 %at, %at, %i; ld.const.u32 %x, [%at];", [10, 20, 30, 40]),
        ("add.u64 %generic, %generic, %i; ld.u32 %x, [%generic];", [10, 20, 30, 40]),
        ("cvta.to.const.u64 %at, %generic; ld.const.u32 %x, [%at+8];", [30] * 4),
        ("ld.const.u32 %x, [last];", [50] * 4),
        ("mov.u64 %at, word; ld.global.u32 %x, [%at];", [7] * 4),
        ("cvta.global.u64 %generic, word; ld.u32 %x, [%generic];", [7] * 4),
        ("setp.eq.u32 %p, %lane, 9; @%p st.u32 [%generic], 1; ld.const.u32 %x, [table];", [10] * 4),
        ("setp.eq.u32 %p, %lane, 0; @%p atom.global.add.u32 %x, [word], 1; mov.b32 %x, 3;", [3] * 4),
    ],
)
def test_constant_and_global_variables_are_read(code, expected):
    assert ran(code) == expected


WRITES = "writes to a variable in .const memory, which a kernel can only read"
AS_GLOBAL = "accesses a variable in .const memory as .global memory"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("st.u32 [%generic], 1;", WRITES),
        ("setp.eq.u32 %p, %lane, 2; add.u64 %generic, %generic, %i; @%p st.u32 [%generic], 1;", "thread 2 of block"),
        ("st.v2.u32 [%generic+8], {1, 2};", WRITES),
        ("cvta.const.u64 %generic, last; st.u32 [%generic+4], 1;", WRITES),
        ("atom.add.u32 %x, [%generic], 1;", WRITES),
        ("red.add.u32 [%generic], 1;", WRITES),
        ("atom.cas.b32 %x, [%generic], 1, 2;", WRITES),
        ("st.global.u32 [%at], 1;", WRITES),
        ("atom.global.add.u32 %x, [%at], 1;", WRITES),
        ("ld.global.u32 %x, [%at];", AS_GLOBAL),
        ("ld.global.nc.u32 %x, [%at];", AS_GLOBAL),
        ("mov.u64 %at, word; ld.const.u32 %x, [%at];", "accesses a variable in .global memory as .const memory"),
        ("mov.u64 %at, last; ld.const.u32 %x, [%at+-4];", "accesses a variable in .global memory as .const memory"),
    ],
)
def test_a_write_to_constant_memory_and_another_space_are_refused(code, words):
    """PTX does not define them; a GPU faults, or reads another memory."""
    with pytest.raises(PtxError, match=r"\.const memory") as refused:
        ran(code)
    assert words in str(refused.value)
