"""A kernel of one warp around a few instructions."""

from __future__ import annotations

import numpy as np

from ptxdiff.emulator.kernel.run import Buffer, run_kernel

HEAD = """
.version 9.0
.target {target}
.address_size 64
.extern .shared .align 16 .b8 smem[];
.visible .entry k(.param .u64 p0, .param .u64 p1)
.reqntid 32
{{
.reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .pred %p<9>;
ld.param.u64 %rd1, [p0];
ld.param.u64 %rd2, [p1];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd3, %r1, 4;
add.s64 %rd4, %rd1, %rd3;
add.s64 %rd5, %rd2, %rd3;
ld.global.b32 %r2, [%rd4];
{body}
ret;
}}
"""


def one_warp(body: str, x: np.ndarray, target: str = "sm_100a", size: int = 32) -> np.ndarray:
    """The second buffer after a run of 32 threads; %r2 is a thread's word of x, %rd5 the address of its result."""
    y = np.zeros(size, np.uint32)
    text = HEAD.format(target=target, body=body)
    run_kernel(text, [Buffer(x, "x"), Buffer(y, "y", defined=False)], (1,), shared_bytes=1024)
    return y


STORE = "st.global.b32 [%rd5], %r3;"


LANES = np.arange(32, dtype=np.uint32)
