"""Kernels of blocks that cancel the launch of others and do their work (clusterlaunchcontrol), written by hand."""

from __future__ import annotations

import numpy as np

from ptxdiff.emulator.kernel.run import Buffer, run_kernel

THREADS = 32
REQUEST = """@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
@%first clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [response], [bar];"""
MULTICAST = REQUEST.replace("bytes.b128", "bytes.multicast::cluster::all.b128").replace(
    "@%first clusterlaunch", "@%leader clusterlaunch"
)
WORK = """// one more in every thread's word of the tile, and who does it
mad.lo.u32 %r8, %z, %ny, %y; mad.lo.u32 %r8, %r8, %nx, %x; mul.lo.u32 %r8, %r8, 32; add.u32 %r8, %r8, %t;
mul.wide.u32 %rd2, %r8, 8; add.s64 %rd2, %rd1, %rd2; ld.global.b32 %r9, [%rd2]; add.u32 %r9, %r9, 1;
st.global.v2.b32 [%rd2], {%r9, %own};"""
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], %phase; @!%p2 bra W;"
READ = "ld.shared.b128 %q, [response];"
ASK = "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, %q;"
LEAVE = "@!%p3 bra done;"
FIRST = "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%x, %y, %z, _}, %q;"
AGAIN = "xor.b32 %phase, %phase, 1;"
MEET = "bar.sync 0; fence.proxy.async.shared::cta;"
SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def text(loop: list[str], cluster: str = "") -> str:
    """A kernel of one warp that repeats a loop. Each tile has a count and the number of its last block for each thread.

    %x, %y, %z: the tile; in clusters its first block's, to which each block adds its own place along x.
    """
    demanded = f".reqnctapercluster {cluster}" if cluster else ""
    made = "fence.mbarrier_init.release.cluster; barrier.cluster.arrive.relaxed; barrier.cluster.wait;"
    return f"""
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out)
.reqntid {THREADS} {demanded}
{{
.shared .align 8 .b64 bar; .shared .align 16 .b8 response[16];
.reg .b32 %r<20>, %x, %y, %z, %nx, %ny, %t, %own, %phase; .reg .b64 %rd<9>; .reg .pred %p<9>, %first, %leader;
.reg .b128 %q;
ld.param.u64 %rd1, [out]; mov.u32 %t, %tid.x; setp.eq.u32 %first, %t, 0; mov.u32 %r1, %cluster_ctarank;
setp.eq.and.u32 %leader, %r1, 0, %first;
mov.u32 %x, %ctaid.x; mov.u32 %y, %ctaid.y; mov.u32 %z, %ctaid.z; mov.u32 %nx, %nctaid.x; mov.u32 %ny, %nctaid.y;
mad.lo.u32 %own, %z, %ny, %y; mad.lo.u32 %own, %own, %nx, %x; mov.b32 %phase, 0;
@%first mbarrier.init.shared::cta.b64 [bar], 1;
bar.sync 0; {made if cluster else ""}
again:
{chr(10).join(loop)}
bra again;
done:
{SYNC if cluster else ""}
ret;
}}
"""


LOOP = [REQUEST, WORK, WAIT, READ, ASK, LEAVE, FIRST, AGAIN, MEET]
MINE = "mov.u32 %r2, %cluster_ctaid.x; add.u32 %x, %x, %r2;"
IN_CLUSTERS = [MULTICAST, WORK, WAIT, READ, ASK, LEAVE, FIRST, MINE, AGAIN, MEET, SYNC]


def run(kernel: str, grid: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """How often each tile was done, and by which block, for each thread."""
    out = np.zeros((int(np.prod(grid)), THREADS, 2), np.uint32)
    run_kernel(kernel, [Buffer(out, "out")], grid)
    return out[..., 0], out[..., 1]
