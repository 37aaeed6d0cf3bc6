"""Kernels of clusters written by hand: each thread stores its %r9."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxdiff.emulator.kernel.run import Buffer, run_kernel

THREADS = 64
SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def text(body: str, cluster: str = "2", target: str = "sm_90a", threads: int = THREADS) -> str:
    """A module whose kernel runs the body, with these names:

    %r1: the thread; %r2: its block's rank; %r3: the other rank of two; %r4: the address of `word` in shared memory;
    %r5: the address of the thread's word there; `bar`: two mbarriers; %rd3: the input x; %p1: true in a block's first
    thread.
    """
    demanded = f".reqnctapercluster {cluster}" if cluster else ""
    return f"""
.version 8.8
.target {target}
.address_size 64
.visible .entry k(.param .u64 y, .param .u64 x)
.reqntid {threads} {demanded}
{{
.shared .align 8 .b64 bar[2]; .shared .align 128 .b8 word[1024];
.reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .pred %p<9>; .reg .b16 %h<3>;
ld.param.u64 %rd1, [y]; ld.param.u64 %rd3, [x]; mov.u32 %r1, %tid.x; mov.u32 %r2, %cluster_ctarank; xor.b32 %r3, %r2, 1;
mov.u32 %r4, word; shl.b32 %r6, %r1, 2; add.u32 %r5, %r4, %r6; setp.eq.u32 %p1, %r1, 0;
mov.u32 %r10, %ctaid.x; mov.u32 %r11, %ctaid.y; mov.u32 %r12, %nctaid.x; mad.lo.u32 %r10, %r11, %r12, %r10;
mad.lo.u32 %r10, %r10, {threads}, %r1; mul.wide.u32 %rd2, %r10, 4; add.s64 %rd1, %rd1, %rd2; mov.b32 %r9, 0;
{body}
st.global.b32 [%rd1], %r9;
ret;
}}
"""


def run(body: str, grid: tuple[int, ...] = (2,), x: np.ndarray | None = None, **options: Any) -> np.ndarray:
    """The word that each thread stores, blocks x threads, in the grid's order."""
    launch = {"cluster": options.pop("launched")} if "launched" in options else {}
    written = text(body, **options)
    threads = options.get("threads", THREADS)
    y = np.zeros((int(np.prod(grid)), threads), np.uint32)
    inputs = np.arange(256, dtype=np.uint32) if x is None else x
    run_kernel(written, [Buffer(y, "y"), Buffer(inputs, "x")], grid, **launch)
    return y


STORE = "mad.lo.u32 %r7, %r2, 1000, %r1; st.shared.b32 [%r5], %r7;"
"""Stores 1000 times the rank plus the thread to the thread's word in its own block."""
REMOTE = "mapa.shared::cluster.u32 %r8, %r5, %r3; ld.shared::cluster.b32 %r9, [%r8];"
"""Loads the word of the same thread in the other block."""
MAKE = "@%p1 mbarrier.init.shared.b64 [bar], {count};"
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra W;"
EXCHANGED = np.array([1000 + np.arange(THREADS), np.arange(THREADS)], np.uint32)
