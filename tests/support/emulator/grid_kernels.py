"""Kernels whose blocks wait for each other, as text."""

from __future__ import annotations

GRID_BARRIER = """.version 8.0
.target sm_90
.address_size 64
.visible .entry grid_barrier(.param .u64 data, .param .u64 count, .param .u64 out)
{{
    .reg .pred p, leader;
    .reg .b32 t, b, n, size, i, v, old;
    .reg .b64 d, c, o, at, off;
    ld.param.u64 d, [data];
    ld.param.u64 c, [count];
    ld.param.u64 o, [out];
    mov.u32 t, %tid.x;
    mov.u32 b, %ctaid.x;
    mov.u32 n, %nctaid.x;
    mov.u32 size, %ntid.x;
    setp.eq.u32 leader, t, 0;
    mad.lo.u32 i, b, size, t;
    mul.wide.u32 off, i, 4;
    add.u64 at, d, off;
    st.global.u32 [at], i;
    {before}
    @!leader bra JOIN;
    {arrive}
SPIN:
    {load}
    setp.lt.u32 p, v, {wanted};
    @p bra SPIN;
    {after}
JOIN:
    {behind}
    add.u32 b, b, 1;
    rem.u32 b, b, n;
    add.u32 t, t, 1;
    rem.u32 t, t, size;
    mad.lo.u32 i, b, size, t;
    mul.wide.u32 at, i, 4;
    add.u64 at, at, d;
    ld.global.u32 v, [at];
    add.u64 at, o, off;
    st.global.u32 [at], v;
    ret;
}}
"""
"""Each thread writes its number, all blocks meet, and each thread reads the number of a thread of the next block."""

RELEASED = {
    "before": "bar.sync 0;",
    "arrive": "atom.add.acq_rel.gpu.global.u32 old, [c], 1;",
    "load": "ld.acquire.gpu.global.u32 v, [c];",
    "wanted": "n",
    "after": "",
    "behind": "bar.sync 0;",
}
"""A barrier by an atomic that releases and a load that acquires."""
FENCED = RELEASED | {
    "arrive": "fence.sc.gpu; atom.add.global.u32 old, [c], 1;",
    "load": "ld.volatile.global.u32 v, [c];",
    "after": "membar.gl;",
}
"""A barrier as of cooperative groups before they had memory orders: __threadfence() around volatile accesses."""
RIGHT_BARRIERS = {
    "acq_rel and acquire": RELEASED,
    "fences and volatile": FENCED,
    "release, then acquire": RELEASED | {"arrive": "red.release.gpu.global.add.u32 [c], 1;"},
    "wider scope": RELEASED | {"arrive": "atom.add.acq_rel.sys.global.u32 old, [c], 1;"},
    "an atomic polls": RELEASED | {"load": "atom.or.acquire.gpu.global.b32 v, [c], 0;"},
    "cas polls": RELEASED | {"load": "atom.cas.acq_rel.gpu.global.b32 v, [c], 0, 0;"},
    "relaxed with fences": RELEASED
    | {
        "arrive": "fence.acq_rel.gpu; red.relaxed.gpu.global.add.u32 [c], 1;",
        "load": "ld.relaxed.gpu.global.u32 v, [c];",
        "after": "fence.acq_rel.gpu;",
    },
}
WRONG_BARRIERS = {
    "relaxed for acq_rel": RELEASED | {"arrive": "atom.add.relaxed.gpu.global.u32 old, [c], 1;"},
    "a relaxed load": RELEASED | {"load": "ld.relaxed.gpu.global.u32 v, [c];"},
    "a plain load": RELEASED | {"load": "ld.global.u32 v, [c];"},
    "arrives at .cta scope": RELEASED | {"arrive": "atom.add.acq_rel.cta.global.u32 old, [c], 1;"},
    "polls at .cta scope": RELEASED | {"load": "ld.acquire.cta.global.u32 v, [c];"},
    "one arrival too few": RELEASED | {"wanted": "7"},
    "no bar.sync before": RELEASED | {"before": ""},
    "no bar.sync behind": RELEASED | {"behind": ""},
    "no fence before": FENCED | {"arrive": "atom.add.global.u32 old, [c], 1;"},
    "no fence behind": FENCED | {"after": ""},
    "a fence of .cta scope": FENCED | {"arrive": "fence.sc.cta; atom.add.global.u32 old, [c], 1;"},
}
