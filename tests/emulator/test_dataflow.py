"""Which results of an asm block, and which tensors of a kernel, depend on an approximate instruction."""

import pytest

from ptxdiff.emulator.dataflow import approximate_results, approximate_tensors
from ptxdiff.emulator.kernel.load import load_kernel

RCP, EX2 = "rcp.approx.f32", "ex2.approx.f32"

BLOCKS = {
    "one result": ("rcp.approx.f32 $0, $1;", "=r,r", [(RCP,), ()]),
    "the other result": ("rcp.approx.f32 $0, $2; mov.b32 $1, $2;", "=&r,=r,r", [(RCP,), (), ()]),
    "through others": (
        "{ .reg .b32 t; rcp.approx.f32 t, $2; mul.rn.f32 t, t, t; mov.b32 $0, t; add.rn.f32 $1, $2, $2; }",
        "=&r,=r,r", [(RCP,), (), ()],
    ),
    "both": ("rcp.approx.f32 $0, $2; ex2.approx.f32 $1, $0;", "=&r,=r,r", [(RCP,), (EX2, RCP), ()]),
    "a predicate": (
        "{ .reg .pred p; .reg .b32 t; rcp.approx.f32 t, $1; setp.gt.f32 p, t, 0f3F800000; mov.b32 $0, 0; "
        "@p mov.b32 $0, 1; }",
        "=&r,r", [(RCP,), ()],
    ),
    "a carry": (
        "{ .reg .b32 t; rcp.approx.f32 t, $1; add.cc.u32 t, t, t; addc.u32 $0, $1, $1; }", "=&r,r", [(RCP,), ()],
    ),
    "a branch": (
        "{ .reg .pred p; .reg .b32 t; rcp.approx.f32 t, $1; setp.gt.f32 p, t, 0f3F800000; mov.b32 $0, 0; "
        "@p bra done; mov.b32 $0, 1; done: }",
        "=&r,r", [(RCP,), (RCP,)],
    ),
    "two halves": (
        "{ .reg .b32 t; .reg .b16 a, b; rcp.approx.f32 t, $1; mov.b32 {a, b}, t; mov.b32 $0, {b, a}; }",
        "=r,r", [(RCP,), ()],
    ),
    "not used": ("{ .reg .b32 t; rcp.approx.f32 t, $1; mov.b32 $0, $1; }", "=r,r", [(), ()]),
    "none": ("rcp.rn.f32 $0, $1;", "=r,r", [(), ()]),
}  # fmt: skip


@pytest.mark.parametrize("name", BLOCKS)
def test_results_that_depend_on_an_approximation_name_it(name):
    text, constraints, expected = BLOCKS[name]
    assert approximate_results(text, constraints) == tuple(expected)


HEAD = """
.version 8.6
.target sm_90
.address_size 64
.global .align 4 .b32 variable[32];
.visible .entry k(.param .u64 pp, .param .u64 qq, .param .u64 tt, .param .u32 n)
{
  .reg .pred c; .reg .b32 v, w, r, s, i; .reg .b64 p, q, t, a, b, o; .shared .align 16 .b8 room[256];
  .local .align 4 .b8 own[16];
  ld.param.u64 p, [pp]; ld.param.u64 q, [qq]; ld.param.u64 t, [tt]; ld.param.u32 i, [n];
  ld.global.f32 v, [p]; rcp.approx.f32 r, v;
"""

# Code that stores to p and to q, and which of the two may depend on the reciprocal.
KERNELS = {
    "one of two": ("st.global.f32 [p], v; st.global.f32 [q], r;", "q"),
    "neither": ("st.global.f32 [p], v; st.global.f32 [q+4], v;", ""),
    "an index from memory": ("ld.global.u64 o, [t]; add.s64 a, q, o; st.global.f32 [a], r;", "q"),
    "through registers": ("add.f32 w, r, r; selp.b32 s, w, v, c; st.global.f32 [q], s;", "q"),
    "through a shuffle": ("shfl.sync.bfly.b32 w, r, 1, 31, -1; st.global.f32 [q], w;", "q"),
    "through shared memory": (
        "st.shared.f32 [room], r; bar.sync 0; ld.shared.f32 w, [room+8]; st.global.f32 [q], w;", "q",
    ),
    "not through shared memory": ("st.shared.f32 [room], v; ld.shared.f32 w, [room]; st.global.f32 [q], w;", ""),
    "through local memory": ("st.local.f32 [own], r; ld.local.f32 w, [own]; st.global.f32 [q], w;", "q"),
    "through a tensor": ("st.global.f32 [p], r; ld.global.f32 w, [p]; st.global.f32 [q], w;", "pq"),
    "through a tensor, in the other order": ("ld.global.f32 w, [p]; st.global.f32 [q], w; st.global.f32 [p], r;", "pq"),
    "through a tensor, in a loop": (
        "again: ld.global.f32 w, [p]; st.global.f32 [q], w; st.global.f32 [p], r; setp.lt.s32 c, i, 9; "
        "add.s32 i, i, 1; @c bra again;", "pq",
    ),
    "through a third tensor": ("st.global.f32 [t], r; ld.global.f32 w, [t]; st.global.f32 [q], w;", "q"),
    "through a variable": ("st.global.f32 [variable], r; ld.global.f32 w, [variable]; st.global.f32 [q], w;", "pq"),
    "by a pointer from memory": ("ld.global.u64 a, [t]; st.global.f32 [a], r;", "pq"),
    "by a parameter's address": ("mov.u64 o, qq; ld.param.u64 a, [o]; st.global.f32 [a], r;", "pq"),
    "no value of a parameter": ("mov.u64 o, n; ld.param.u32 w, [o]; st.global.f32 [q], w;", ""),
    "from a pointer from memory": (
        "st.global.f32 [t], r; ld.global.u64 a, [t+8]; ld.global.f32 w, [a]; st.global.f32 [q], w;", "q",
    ),
    "by a difference of pointers": ("sub.s64 o, q, p; add.s64 a, p, o; st.global.f32 [a], r;", "pq"),
    "by a generic address": ("st.f32 [p], v; st.f32 [q], r;", "pq"),
    "an address": ("and.b32 s, r, 4; cvt.u64.u32 o, s; add.s64 a, q, o; st.global.f32 [a], v;", "q"),
    "the address of a load": (
        "and.b32 s, r, 4; cvt.u64.u32 o, s; add.s64 a, p, o; ld.global.f32 w, [a]; st.global.f32 [q], w;", "q",
    ),
    "a guard": ("setp.gt.f32 c, r, v; @c st.global.f32 [q], v;", "q"),
    "a guarded load": ("setp.gt.f32 c, r, v; mov.b32 w, v; @c ld.global.f32 w, [p]; st.global.f32 [q], w;", "q"),
    "a branch": ("setp.gt.f32 c, r, v; @c bra done; st.global.f32 [q], v; done:", "pq"),
    "an exit": ("setp.gt.f32 c, r, v; @c exit; st.global.f32 [q], v;", "pq"),
    "an atomic": ("atom.global.add.f32 w, [p], r; st.global.f32 [q], v;", "pq"),
    "a reduction": ("red.global.add.f32 [p], r;", "pq"),
    "an asynchronous copy": (
        "st.global.f32 [p], r; cp.async.ca.shared.global [room], [p], 4; cp.async.wait_all; ld.shared.f32 w, [room]; "
        "st.global.f32 [q], w;", "pq",
    ),
    "a vector": ("mov.b32 w, v; st.global.v2.f32 [q], {v, r}; st.global.f32 [p], w;", "q"),
}  # fmt: skip


IN_ORDER = {"through a tensor, in the other order": "p"}
"""Kernels in which fewer tensors depend on the reciprocal if the order of instructions counts, with these tensors."""


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_tensors_that_depend_on_an_approximation_name_it(name, ordered):
    code, expected = KERNELS[name]
    expected = IN_ORDER.get(name, expected) if ordered else expected
    kernel = load_kernel(f"{HEAD}  {code}\n  ret;\n}}\n")
    found = approximate_tensors(kernel.program, {"pp": "p", "qq": "q", "tt": "t"}, ordered=ordered)
    assert {n for n in "pq" if found[n]} == set(expected)
    assert {names for names in found.values() if names} <= {(RCP,)}
