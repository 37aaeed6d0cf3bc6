"""Which results of an asm block depend on an approximate instruction."""

import pytest

from harness.ptx.analysis.dataflow import approximate_results

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
