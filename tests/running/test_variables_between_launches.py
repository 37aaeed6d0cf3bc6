"""A module's variables keep their values from one launch to the next: kernels that depend on them are detected."""

import pytest

from ptxdiff.backends import create
from ptxdiff.model.load import load
from ptxdiff.running.item import Item
from ptxdiff.running.run import run_item

pytest.importorskip("torch")

CASE = """
from ptxdiff import Case, ptx
from ptxdiff.references import bits
from ptxdiff.references.formats import U32

TEXT = '''.version 8.0
.target sm_80
.address_size 64
.global .u32 seen;
.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n)
{{
  .reg .pred p, q, r; .reg .b32 %r<9>; .reg .b64 %d<9>;
  mov.u32 %r0, %tid.x;
  ld.param.u32 %r3, [n]; ld.param.u64 %d0, [x]; ld.param.u64 %d1, [y];
  mul.wide.u32 %d2, %r0, 4; add.s64 %d0, %d0, %d2; add.s64 %d1, %d1, %d2;
  mov.u32 %r6, 0; setp.eq.u32 p, %r0, 0; setp.ge.u32 q, %r0, %r3;
  {body}
  @q bra E;
  ld.global.u32 %r4, [%d0]; popc.b32 %r5, %r4; add.u32 %r5, %r5, %r6; st.global.u32 [%d1], %r5;
E: ret;
}}'''
case = Case(
    inputs={{"x": U32["N"]}}, outputs={{"y": U32["N"]}}, reference=bits.popc, sizes=[{{"N": 33}}],
    variants={{"static": ptx(TEXT, grid="1", block=64, parameters=["x", "y", "N"])}},
)
"""
COUNT = "@p ld.global.u32 %r7, [seen]; @p add.u32 %r8, %r7, 1; @p st.global.u32 [seen], %r8; "
NEVER = "and were never again as before"
BODIES = {
    "read and changed": ("@p ld.global.u32 %r6, [seen]; @p st.global.u32 [seen], 1;", False),
    "wrong from the third launch on": (
        "@p ld.global.u32 %r7, [seen]; @p shr.u32 %r6, %r7, 1; @p add.u32 %r7, %r7, 1; @p st.global.u32 [seen], %r7;",
        False,
    ),
    "wrong from the fifth launch on": (COUNT + "@p setp.ge.u32 r, %r7, 5; @p selp.u32 %r6, 1, 0, r;", False),
    "wrong from launch 4000000 on": (COUNT + "@p setp.ge.u32 r, %r7, 4000000; @p selp.u32 %r6, 1, 0, r;", False),
    "wrong in every other 2^20 launches": (COUNT + "@p bfe.u32 %r6, %r7, 20, 1;", False),
    "changed alone": ("@p st.global.u32 [seen], 1;", True),
    "changed and restored": (
        "@p ld.global.u32 %r6, [seen]; @p st.global.u32 [seen], 1; @p st.global.u32 [seen], 0;",
        True,
    ),
    "read alone": ("ld.global.u32 %r6, [seen];", True),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_later_launch_must_give_the_same_bits(name, tmp_path):
    body, right = BODIES[name]
    path = tmp_path / "static.py"
    path.write_text(CASE.format(body=body))
    (loaded,) = load(path)
    found = run_item(Item(loaded, "static", "sm_80", "emulator"), create("emulator"), "quick").results
    assert {r.verdict for r in found} == {"pass" if right else "fail"}
    assert all(("later launch" in r.message) is not right for r in found)


@pytest.mark.parametrize(
    ("body", "proved"),
    [
        ("@p st.global.u32 [seen], 1;", True),
        ("@p atom.global.inc.u32 %r7, [seen], 6;", True),  # 0 again after seven launches
        (COUNT, False),
        ("@p ld.global.u32 %r7, [seen]; @p mad.lo.u32 %r7, %r7, 5, 3; @p st.global.u32 [seen], %r7;", False),
    ],
)
def test_a_pass_notes_variables_that_never_return_to_their_values(body, proved, tmp_path):
    path = tmp_path / "static.py"
    path.write_text(CASE.format(body=body))
    (loaded,) = load(path)
    found = run_item(Item(loaded, "static", "sm_80", "emulator"), create("emulator"), "quick").results
    assert {r.verdict for r in found} == {"pass"}
    assert all(any(NEVER in note for note in r.notes) is not proved for r in found)
