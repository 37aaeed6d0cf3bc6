"""A kernel around a few lines of PTX, launched on arrays."""

from __future__ import annotations

import numpy as np

from ptxdiff.emulator.kernel.run import Buffer, run_kernel

REGISTERS = ".reg .b32 %r<40>; .reg .b64 %rd<40>; .reg .pred %p<9>; .reg .b16 %rs<9>; .reg .f32 %f<9>;"


INDEX = """
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mul.lo.u32 %r4, %r2, %r3;
    add.u32 %r4, %r4, %r1;
    mul.wide.u32 %rd4, %r4, 4;
    ld.param.u64 %rd1, [p0];
    ld.param.u64 %rd2, [p1];
    add.s64 %rd11, %rd1, %rd4;
    add.s64 %rd12, %rd2, %rd4;
    mul.wide.u32 %rd5, %r1, 4;
"""


SHARED = ".extern .shared .align 16 .b8 smem[];"


def module(body: str, threads: int = 64, *, variables: str = "", target: str = "sm_90a", index: str = INDEX) -> str:
    return f"""
.version 8.7
.target {target}
.address_size 64
{variables}
.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u32 p2)
.reqntid {threads}
{{
{REGISTERS}
.loc 1 10 3
{index}
.loc 1 11 5
{body}
ret;
}}
.file 1 "kernel.py"
"""


def launch(
    body: str, x: np.ndarray, blocks: int = 2, *, threads: int = 64, shared: int = 0, n: int = 0, **more: str
) -> np.ndarray:
    """Run with x as the first buffer and an undefined buffer of its shape as the second; returns the second."""
    y = np.zeros_like(x)
    run_kernel(
        module(body, threads, **more),
        [Buffer(x, "x"), Buffer(y, "y", defined=False), n],
        (blocks,),
        shared_bytes=shared,
    )
    return y


X = np.arange(128, dtype=np.int32)


SHARED_ADDRESS = "mov.u32 %r20, smem; shl.b32 %r21, %r1, 2; add.u32 %r22, %r20, %r21;"
