"""Whole modules that `random_campaign` mutates: calls, branches by a table, memory of every space, warps, matrices."""

from __future__ import annotations

_HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
_ENTRY = (
    ".visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c) .reqntid 64 {\n"
    ".reg .b32 %r<30>; .reg .b64 %rd<30>; .reg .pred %p<9>; .reg .b16 %h<9>; .reg .f32 %f<9>;\n"
    "ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; cvta.to.global.u64 %rd1, %rd1; mov.u32 %r1, %tid.x;\n"
    "mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd1, %rd3;\n"
)


def _module(body: str, before: str = "") -> str:
    return f"{_HEAD}{before}{_ENTRY}{body}\nret;\n}}\n"


MODULES = [
    _module(
        ".reg .b32 i; and.b32 i, %r1, 1; { T: .branchtargets X, Y; brx.idx i, T; X: mov.u32 %r3, 1; bra Z;\n"
        "Y: mov.u32 %r3, 2; Z: } st.global.b32 [%rd4], %r3; @!%p1 exit;"
    ),
    _module(
        "{ .param .b32 q; .param .b32 o; st.param.b32 [q], %r1; call.uni (o), f, (q); ld.param.b32 %r2, [o]; }\n"
        "st.global.b32 [%rd4], %r2;",
        ".func (.param .b32 o) g(.param .b32 q) {\n"
        ".reg .b32 z; ld.param.b32 z, [q]; add.u32 z, z, 1; st.param.b32 [o], z; ret; }\n"
        ".func (.param .b32 o) f(.param .b32 q) { .reg .b32 z; .param .b32 i; .param .b32 j;\n"
        "ld.param.b32 z, [q]; st.param.b32 [i], z; call (j), g, (i); ld.param.b32 z, [j]; call (j), g, (i);\n"
        "st.param.b32 [o], z; ret; }\n",
    ),
    _module(
        "ld.global.b32 %r2, [%rd4]; add.u32 %r2, %r2, 1; st.global.b32 [%rd4], %r2; @%p1 st.global.b32 [%rd4+4], %r2;"
    ),
    _module(
        ".local .align 8 .b8 l[32]; mov.u64 %rd5, l; cvta.local.u64 %rd6, %rd5; st.local.v2.b32 [%rd5], {%r1, %r1};\n"
        "ld.b32 %r2, [%rd6+4]; st.u8 [%rd6+1], %h1; ld.local.u8 %h2, [l]; mov.v4.b32 {%r3, %r4, %r5, %r6}, %tid;"
    ),
    _module(
        "mov.u32 %r2, 0; L: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 5; @%p1 bra L;\n"
        "shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1; vote.sync.any.pred %p2, %p1, -1; vote.sync.ballot.b32 %r4, %p2, -1;\n"
        "match.any.sync.b32 %r5, %r3, -1; redux.sync.add.s32 %r6, %r2, -1; activemask.b32 %r7;\n"
        "st.global.b32 [%rd4], %r3;"
    ),
    _module(
        "mov.u32 %r2, s; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3, %r4, %r5, %r6}, [%r2];\n"
        "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r3, %r4}, [%r2];\n"
        "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r2], {%r3}; movmatrix.sync.aligned.m8n8.trans.b16 %r5, %r3;\n"
        "elect.sync _|%p1, -1; prefetch.global.L2 [%rd1]; griddepcontrol.wait; fence.acq_rel.gpu;",
        ".shared .align 16 .b8 s[1024];\n",
    ),
    _module(
        "mov.u64 %rd5, g; ld.global.b32 %r2, [g+4]; ld.const.f32 %f1, [c0]; cvta.global.u64 %rd6, %rd5;\n"
        "ld.b32 %r3, [%rd6]; st.global.v4.b32 [%rd1], {%r2, %r3, 0, 1}; red.global.add.noftz.bf16x2 [%rd1+16], %r2;\n"
        "bar.warp.sync -1; barrier.sync 1, 64; trap;",
        '.global .align 4 .b8 g[16] = {1, 2, 3, 4, 5};\n.const .f32 c0 = 0f3F800000;\n.file 1 "a.py"\n',
    ),
    _module(
        "ld.global.v2.b32 {%r2, %r3}, [%rd1]; mov.b64 %rd7, {%r2, %r3}; st.shared.b64 [s+8], %rd7; bar.sync 0;\n"
        "ld.shared.v2.b32 {%r4, %r5}, [s+8]; red.global.add.u32 [%rd1], %r4;\n"
        "atom.global.cas.b32 %r6, [%rd1+4], 0, %r5; atom.shared.add.u32 %r6, [s], 1;",
        ".shared .align 16 .b8 s[64];\n",
    ),
    _module(
        "mov.u32 %r2, d; add.u32 %r2, %r2, 16; cp.async.ca.shared.global [%r2], [%rd1], 16; cp.async.commit_group;\n"
        "cp.async.wait_group 0; bar.sync 0; ld.shared.b32 %r3, [%r2+4];",
        ".extern .shared .align 16 .b8 d[];\n",
    ),
    _module(
        "{ .param .b64 f; .param .b64 v; .param .b32 r; .local .align 8 .b8 l[8]; st.local.b32 [l], %r1;\n"
        "mov.u64 %rd5, text; cvta.global.u64 %rd6, %rd5; st.param.b64 [f], %rd6; mov.u64 %rd7, l;\n"
        "cvta.local.u64 %rd8, %rd7; st.param.b64 [v], %rd8; call.uni (r), vprintf, (f, v); }",
        ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 v);\n"
        ".global .align 1 .b8 text[4] = {37, 117, 10};\n",
    ),
]
"""Kernels of 64 threads with three pointers."""
