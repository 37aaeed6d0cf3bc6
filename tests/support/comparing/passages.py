"""Kernels in which each thread passes its value to another thread by one kind of instruction; that thread stores it.

Every kernel computes %f2 from x, passes it on, receives %f3, and stores %f4. `%p5` is true in one thread: the
instruction BEFORE computes its value, and AFTER computes the stored value.
"""

from __future__ import annotations

from tests.support.comparing.kernels import HEADER

BEFORE = "@%p5 mul.rn.f32 %f2, %f1, 0f40466666;"
AFTER = "add.rn.f32 %f4, %f3, 0f3F8CCCCD;"
WHO = 9
"""The thread whose value BEFORE computes."""

_HEAD = f"""mov.u32 %r1, %tid.x;
and.b32 %r2, %r1, 63;
mul.wide.u32 %d3, %r2, 4;
ld.param.u64 %d1, [px];
ld.param.u64 %d2, [py];
add.u64 %d4, %d1, %d3;
add.u64 %d5, %d2, %d3;
ld.global.f32 %f1, [%d4];
setp.lt.u32 %p3, %r1, 64;
setp.eq.u32 %p4, %r1, 0;
setp.eq.u32 %p5, %r1, {WHO};
mul.rn.f32 %f2, %f1, 0f40490FDB;
{BEFORE}
mov.b32 %r7, %f2;
cvt.rn.f16x2.f32 %r8, %f2, %f2;
mov.u32 %r3, part;
shl.b32 %r4, %r1, 2;
add.u32 %r5, %r3, %r4;
xor.b32 %r6, %r4, 252;
add.u32 %r6, %r3, %r6;
xor.b32 %r9, %r2, 63;
mul.wide.u32 %d6, %r9, 4;
add.u64 %d6, %d2, %d6;
"""
_TAIL = f"""
{AFTER}
bar.sync 0;
@%p3 st.global.f32 [%d5], %f4;
ret;"""

_TO_GLOBAL = "@%p3 st.global.f32 [%d5], %f2;\nbar.sync 0;\n"
_BARRIER = "@%p4 mbarrier.init.shared.b64 [bar], 1;\nbar.sync 0;\n"
_WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra W;\n"
_READ = "bar.sync 0;\nld.shared.f32 %f3, [%r6];"
_LEAVE = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nbar.sync 0;\nld.global.f32 %f3, [%d6];"
_TO_SHARED = "st.shared.f32 [%r5], %f2;\nfence.proxy.async;\nbar.sync 0;\n"
_LOWER = "add.u32 %r10, %r3, 1024; and.b32 %r11, %r1, 32; shl.b32 %r11, %r11, 2; add.u32 %r10, %r10, %r11;\n"
"""%r10: the address of 128 bytes for each warp."""
_OWN_ROW = "and.b32 %r12, %r1, 7; shl.b32 %r12, %r12, 4; add.u32 %r12, %r12, %r10;\n"
_PRODUCT_REGISTERS = "mov.b32 %r20, 0x3C003C00; mov.f32 %f10, 0f00000000;\n"
_HALVES = "st.shared.b32 [%r5], %r8;\nfence.proxy.async;\nbar.sync 0;\n"
_DESCRIPTOR = """cvt.u64.u32 %d10, %r3; shr.u64 %d10, %d10, 4; mov.b64 %d11, {offsets};
or.b64 %d10, %d10, %d11;\n"""
_ALLOCATED = """setp.lt.u32 %p6, %r1, 32;
@%p6 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 64;
bar.sync 0;
ld.shared.b32 %r21, [slot];
@%p6 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
shr.u32 %r22, %r1, 5; shl.b32 %r22, %r22, 21; add.s32 %r22, %r22, %r21;
"""
_FREED = """
bar.sync 0;
@%p6 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r21, 64;"""
_COMMITTED = """mov.u32 %r23, bar;
@%p4 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r23];
"""
_EXCHANGED = "st.shared.f32 [%r5+2048], %f10;\nbar.sync 0;\nld.shared.f32 %f3, [%r6+2048];"

PASSAGES = {
    "shared memory": "st.shared.f32 [%r5], %f2;\n" + _READ,
    "cp.async": _TO_GLOBAL
    + "cp.async.ca.shared.global [%r5], [%d5], 4;\ncp.async.commit_group;\ncp.async.wait_group 0;\n"
    + _READ,
    "cp.async.bulk to shared": _TO_GLOBAL
    + "fence.proxy.async;\n"
    + _BARRIER
    + """@%p4 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
@%p4 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r3], [%d2], 256, [bar];
"""
    + _WAIT
    + "ld.shared.f32 %f3, [%r6];",
    "cp.async.bulk to global": _TO_SHARED
    + "@%p4 cp.async.bulk.global.shared::cta.bulk_group [%d2], [%r3], 256;\n"
    + _LEAVE,
    "cp.reduce.async.bulk": "@%p3 st.global.f32 [%d5], 0f3F800000;\n"
    + _TO_SHARED
    + "@%p4 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%d2], [%r3], 256;\n"
    + _LEAVE,
    "stmatrix": _LOWER
    + _OWN_ROW
    + "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r12], {%r7};\nbar.sync 0;\n"
    + "xor.b32 %r13, %r4, 124; and.b32 %r13, %r13, 127; add.u32 %r13, %r13, %r10;\nld.shared.f32 %f3, [%r13];",
    "ldmatrix": _LOWER
    + _OWN_ROW
    + "and.b32 %r13, %r4, 127; add.u32 %r13, %r13, %r10;\nst.shared.f32 [%r13], %f2;\nbar.sync 0;\n"
    + "xor.b32 %r12, %r12, 112;\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r14}, [%r12];\nmov.b32 %f3, %r14;",
    "red": "st.shared.f32 [%r5], 0f00000000;\nbar.sync 0;\nand.b32 %r10, %r4, 248; add.u32 %r10, %r10, %r3;\n"
    + "red.shared.add.f32 [%r10], %f2;\nbar.sync 0;\nand.b32 %r11, %r6, -8;\nld.shared.f32 %f3, [%r11];",
    "atom": "st.shared.f32 [%r5], %f2;\nbar.sync 0;\natom.shared.exch.b32 %r10, [%r6], 0;\nmov.b32 %f3, %r10;",
    "mma": _PRODUCT_REGISTERS
    + "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f10, %f11, %f12, %f13}, {%r8, %r8, %r8, %r8}, {%r20, %r20}, "
    + "{%f10, %f10, %f10, %f10};\n"
    + _EXCHANGED,
    "wgmma": _PRODUCT_REGISTERS
    + _HALVES
    + _DESCRIPTOR.format(offsets="0x0000001000080000")
    + "mov.f32 %f11, %f10; mov.f32 %f12, %f10; mov.f32 %f13, %f10; setp.ne.u32 %p7, 0, 0;\n"
    + "wgmma.fence.sync.aligned;\n"
    + "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f10, %f11, %f12, %f13}, {%r20, %r20, %r20, %r20}, %d10, "
    + "%p7, 1, 1, 0;\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"
    + _EXCHANGED,
    "tcgen05.st and ld": _ALLOCATED
    + "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r22], {%r7};\ntcgen05.wait::st.sync.aligned;\n"
    + "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r24}, [%r22];\ntcgen05.wait::ld.sync.aligned;\nmov.b32 %f10, %r24;\n"
    + _EXCHANGED
    + _FREED,
    "tcgen05.cp": _BARRIER
    + _ALLOCATED
    + "st.shared.f32 [%r5], %f2;\nst.shared.f32 [%r5+512], %f2;\nst.shared.f32 [%r5+1024], %f2;\n"
    + "st.shared.f32 [%r5+1536], %f2;\nfence.proxy.async;\nbar.sync 0;\n"
    + _DESCRIPTOR.format(offsets="0x0000400800080000")
    + "@%p4 tcgen05.cp.cta_group::1.128x128b [%r21], %d10;\n"
    + _COMMITTED
    + _WAIT
    + "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r24}, [%r22+1];\ntcgen05.wait::ld.sync.aligned;\nmov.b32 %f10, %r24;\n"
    + _EXCHANGED
    + _FREED,
    "tcgen05.mma": _BARRIER
    + _ALLOCATED
    + _PRODUCT_REGISTERS
    + "add.u32 %r25, %r22, 32;\n"
    + "tcgen05.st.sync.aligned.32x32b.x8.b32 [%r25], {%r20, %r20, %r20, %r20, %r20, %r20, %r20, %r20};\n"
    + "tcgen05.wait::st.sync.aligned;\n"
    + _HALVES
    + _DESCRIPTOR.format(offsets="0x0000401000080000")
    + "setp.ne.u32 %p7, 0, 0; mov.b32 %r26, 0x08040010; add.u32 %r27, %r21, 32;\n"
    + "@%p4 tcgen05.mma.cta_group::1.kind::f16 [%r21], [%r27], %d10, %r26, %p7;\n"
    + _COMMITTED
    + _WAIT
    + "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r24}, [%r22+2];\ntcgen05.wait::ld.sync.aligned;\nmov.b32 %f10, %r24;\n"
    + _EXCHANGED
    + _FREED,
}
"""By the name of the instruction that passes the values on."""


def passage(name: str) -> str:
    """A module with the kernel of a passage."""
    tensor = name.startswith("tcgen05")
    header = HEADER.replace("sm_80", "sm_100a" if tensor else "sm_90a").replace("8.0", "8.7" if tensor else "8.0")
    variables = ".shared .align 1024 .b8 part[4096];\n.shared .align 8 .b64 bar;\n.shared .align 4 .b32 slot;\n"
    return f"""{header}{variables}.visible .entry k(.param .u64 px, .param .u64 py)
{{
.reg .b64 %d<16>; .reg .b32 %r<32>; .reg .f32 %f<16>; .reg .pred %p<8>;
{_HEAD}{PASSAGES[name]}{_TAIL}
}}
"""


def threads(name: str) -> int:
    """The number of threads in a block of a passage's kernel."""
    return 128 if name.startswith(("tcgen05", "wgmma")) else 64
