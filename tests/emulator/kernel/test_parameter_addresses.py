"""Loads of a kernel's parameters through a register that holds their address, which ptxas accepts."""

import numpy as np
import pytest

from ptxdiff import run_ptx
from ptxdiff.emulator import PtxError

KERNEL = """.version 8.3
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 a, .param .align 8 .b8 s[24])
{{
 .reg .b64 %out, %at, %generic, %i; .reg .b32 %x, %y, %short, %lane; .reg .b16 %h;
 ld.param.u64 %out, [out];
 mov.u32 %lane, %tid.x;
 and.b32 %lane, %lane, 3;
 mul.wide.u32 %i, %lane, 4;
 add.u64 %out, %out, %i;
 {load}
 st.global.u32 [%out], %x;
 ret;
}}
"""
STRUCTURE = np.arange(100, 106, dtype=np.uint32)


def loaded(load):
    out = np.zeros(4, np.uint32)
    run_ptx(KERNEL.format(load=load), 1, 32, out, 7, STRUCTURE.tobytes())
    return out.tolist()


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        ("mov.u64 %at, a; ld.param.u32 %x, [%at];", [7] * 4),
        ("mov.u64 %at, s; ld.param.u32 %x, [%at+8];", [102] * 4),
        ("mov.b64 %at, s; add.u64 %at, %at, 16; ld.param::entry.u32 %x, [%at+-4];", [103] * 4),
        ("mov.u32 %short, s; ld.param.v2.u32 {%y, %x}, [%short+8];", [103] * 4),
        ("mov.u64 %at, s; add.u64 %at, %at, %i; ld.param.u32 %x, [%at+4];", [101, 102, 103, 104]),
        ("mov.u64 %at, s; ld.param.u8 %h, [%at+4]; cvt.u32.u16 %x, %h;", [101] * 4),
        ("mov.u64 %at, s; cvta.param.u64 %generic, %at; ld.u32 %x, [%generic+4];", [101] * 4),
        ("cvta.param.u64 %generic, s; add.u64 %generic, %generic, %i; ld.u32 %x, [%generic];", [100, 101, 102, 103]),
        ("cvta.param.u64 %generic, s; cvta.to.param.u64 %at, %generic; ld.param.u32 %x, [%at+20];", [105] * 4),
    ],
)
def test_a_register_with_a_parameters_address(load, expected):
    assert loaded(load) == expected


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (
            "mov.u64 %at, s; ld.param.u32 %x, [%at+24];",
            "4 bytes at offset 40 of the kernel's parameters lie in none of",
        ),
        ("mov.u64 %at, out; ld.param.u64 %at, [%at+-8];", "8 bytes at offset -8 of the kernel's parameters"),
        (
            "mov.u64 %at, s; ld.param.u32 %x, [%at+2];",
            "misaligned access of 4 bytes at offset 18 of the kernel's param",
        ),
        ("mov.u64 %at, s; ld.u32 %x, [%at];", "null pointer"),
        ("cvta.param.u64 %at, s; ld.global.u32 %x, [%at];", "lies in no buffer"),
        ("cvta.param.u64 %at, s; st.u32 [%at], 1;", "writes to the kernel's parameters, which a kernel can only read"),
        ("mov.u64 %at, s; st.param.u32 [%at], 1;", "a kernel's parameters cannot be written"),
        ("ld.param.u32 %x, [%at];", "undefined"),
        ("ld.param.u32 %x, [nowhere];", "no parameter of this kernel has this name"),
    ],
)
def test_what_is_wrong_stays_wrong(load, words):
    with pytest.raises(PtxError, match=words):
        loaded(load)
