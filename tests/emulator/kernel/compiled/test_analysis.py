"""Which kernels have independent threads, and store defined bits alone."""

from __future__ import annotations

import pytest

from ptxdiff.emulator.kernel.compiled.analysis import independent
from ptxdiff.emulator.kernel.load import load_kernel

TEXT = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n) .reqntid 64
{{
.shared .align 4 .b32 s[64];
.reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
ld.param.u64 %rd4, [x]; ld.param.u64 %rd5, [y]; ld.param.u32 %r1, [n]; mov.u32 %r4, %tid.x;
setp.lt.u32 %p1, %r4, %r1; setp.gt.u32 %p2, %r4, 3;
{body}
END: ret;
}}"""
STORE = "st.global.b32 [%rd5], %r5;"
INDEPENDENT = {
    "a load and a store": f"ld.global.b32 %r5, [%rd4]; {STORE}",
    "one under a predicate": f"@%p1 ld.global.b32 %r5, [%rd4]; @%p1 {STORE}",
    "both ways of a predicate": f"@%p1 mov.b32 %r5, 1; @!%p1 mov.b32 %r5, 2; {STORE}",
    "both ways of a branch": f"@%p1 bra ONE; mov.b32 %r5, 1; bra BOTH; ONE: mov.b32 %r5, 2; BOTH: {STORE}",
    "a value for the others": f"mov.b32 %r5, 0; @%p2 mov.b32 %r5, 1; {STORE}",
    "threads that have left": f"@!%p1 ret; ld.global.b32 %r5, [%rd4]; {STORE}",
    "a value of what is there for those that store": f"@%p1 ld.global.b32 %r5, [%rd4]; not.b32 %r5, %r5; @%p1 {STORE}",
}
NOT = {
    "nothing was written": STORE,
    "written under one predicate": f"@%p1 mov.b32 %r5, 1; {STORE}",
    "stored under its opposite": f"@%p1 mov.b32 %r5, 1; @!%p1 {STORE}",
    "written under two predicates": f"@%p1 mov.b32 %r5, 1; @%p2 mov.b32 %r5, 2; {STORE}",
    "a predicate that has changed": f"@%p1 mov.b32 %r5, 1; setp.gt.u32 %p1, %r4, 9; @%p1 {STORE}",
    "written on one of two ways": f"@%p1 bra ONE; mov.b32 %r5, 1; ONE: {STORE}",
    "written on two of three ways": "@%p1 bra ONE; mov.b32 %r5, 1; bra ALL; ONE: @%p2 bra ALL; mov.b32 %r5, 2;"
    f" ALL: {STORE}",
    "written where two of three ways meet": f"@%p1 bra ONE; @%p2 bra ALL; ONE: mov.b32 %r5, 1; ALL: {STORE}",
    "overwritten with undefined bits": f"mov.b32 %r5, 1; @%p1 mov.b32 %r5, %r6; {STORE}",
    "overwritten with what others have": f"@%p1 mov.b32 %r5, 1; @!%p1 mov.b32 %r6, 2; mov.b32 %r5, %r6; {STORE}",
    "combined with what others have": f"@%p1 mov.b32 %r5, 1; @!%p1 mov.b32 %r6, 2; add.u32 %r5, %r5, %r6; {STORE}",
    "an undefined predicate": f"setp.eq.u32 %p3, %r6, 0; mov.b32 %r5, 1; @%p3 {STORE}",
    "an undefined address": "mov.b32 %r5, 1; st.global.b32 [%rd6], %r5;",
    "a loop": f"AGAIN: add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 99; @%p1 bra AGAIN; mov.b32 %r5, 1; {STORE}",
    "a barrier": f"bar.sync 0; mov.b32 %r5, 1; {STORE}",
    "shared memory": f"mov.b32 %r5, 1; st.shared.b32 [s], %r5; {STORE}",
    "an atomic operation": f"atom.global.add.u32 %r5, [%rd4], 1; {STORE}",
    "a volatile load": f"ld.volatile.global.b32 %r5, [%rd4]; {STORE}",
    "a shuffle": f"shfl.sync.bfly.b32 %r5, %r4, 1, 31, -1; {STORE}",
    "a clock": f"mov.u32 %r5, %clock; {STORE}",
}


@pytest.mark.parametrize("body", INDEPENDENT)
def test_independent_threads(body: str) -> None:
    assert independent(load_kernel(TEXT.format(body=INDEPENDENT[body]))) is not None


@pytest.mark.parametrize("body", NOT)
def test_others(body: str) -> None:
    assert independent(load_kernel(TEXT.format(body=NOT[body]))) is None
