"""A change of one word that makes wrong asm right is named as the cause, and only if it makes all of it right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from ptxdiff import Case, Domain, asm, kernel, plain, ptx
from ptxdiff.backends import create
from ptxdiff.jobs import Job, Setup
from ptxdiff.judging.judge import judge
from ptxdiff.judging.likeness import EXCHANGED
from ptxdiff.model.load import LoadedCase
from ptxdiff.model.policies import policies
from ptxdiff.references import arithmetic as correct
from ptxdiff.references.formats import F32, U16, U32
from ptxdiff.running import repairs
from ptxdiff.running.item import Item
from ptxdiff.running.run import run_item


def add(a, b):
    return correct.add(a, b, fmt=F32)


def add_toward_zero(a, b):
    return correct.add(a, b, fmt=F32, rounding="rz")


def flushing_mul(a, b):
    return correct.mul(a, b, fmt=F32, ftz=True)


def masked(x):
    return x & 0xFF


@triton.jit
def low_bytes(x_ptr, d_ptr):
    lane = tl.arange(0, 256)
    d = tl.inline_asm_elementwise(
        "{ .reg .b32 t; prmt.b32 t, $1, $1, 0x4410; and.b32 $0, t, 0xff; }", "=r,r", [tl.load(x_ptr + lane)],
        dtype=tl.uint32, is_pure=True, pack=1,
    )  # fmt: skip
    tl.store(d_ptr + lane, d)


@triton.jit
def high_bytes(x_ptr, d_ptr):
    lane = tl.arange(0, 256)
    d = tl.inline_asm_elementwise(
        "{ .reg .b32 t; prmt.b32 t, $1, $1, 0x4401; and.b32 $0, t, 0xff; }", "=r,r", [tl.load(x_ptr + lane)],
        dtype=tl.uint32, is_pure=True, pack=1,
    )  # fmt: skip
    tl.store(d_ptr + lane, d)


def results(reference, text, *, fmt=F32, stop=False, **options):
    inputs = {"x": fmt} if reference is masked else {"a": fmt, "b": fmt}
    case = Case(inputs=inputs, outputs={"d": fmt}, reference=reference, variants={"v": asm(text, **options)})
    item = Item(LoadedCase(case, "c", "case", Path("c.py"), ""), "v", "sm_90a", "emulator")
    return run_item(item, create("emulator"), "quick", stop=stop)


def causes(found):
    return {r.words.partition("]: ")[2].partition("; ")[0] for r in found.results if r.verdict == "fail"}


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("reference", "text", "fmt", "says"),
    [
        (add, "add.rz.f32 $0, $1, $2;", F32, "add.rn.f32 instead of add.rz.f32 on line 1"),
        (add_toward_zero, "add.f32 $0, $1, $2;", F32, "add.rz.f32 instead of add.f32 on line 1"),
        (flushing_mul, "\nmul.f32 $0, $1, $2;", F32, "mul.ftz.f32 instead of mul.f32 on line 2"),
        (masked, "and.b32 $0, $1, 0x7F;", U32, "0xff instead of 0x7F in and.b32 on line 1"),
        (
            masked,
            "{ .reg .b32 t; shl.b32 t, $1, 24; shr.u32 $0, 24, t; }",
            U32,
            "t and 24 exchanged in shr.u32 on line 1",
        ),
    ],
)
def test_a_wrong_word_is_named_with_the_right_one(reference, text, fmt, says):
    found = results(reference, text, fmt=fmt)
    assert found.verdict == "fail"
    named = causes(found)
    assert {words for words in named if words.startswith("all results")} <= {
        f"all results are right with {words}" for words in (says, says.replace("t and 24", "24 and t"))
    }
    assert any(words.startswith("all results") for words in named)


WRONG_WORDS = {
    "min.u32 instead of max.u32 on line 1": (lambda a, b: torch.minimum(a, b), "max.u32 $0, $1, $2;"),
    "mul.hi.u32 instead of mul.lo.u32 on line 2": (lambda a, b: high_product(a, b), "\nmul.lo.u32 $0, $1, $2;"),
    "setp.ge.u32 instead of setp.gt.u32 on line 1": (
        lambda a, b: (a >= (b & 15)).long(),
        "{ .reg .pred p; .reg .b32 t; and.b32 t, $2, 15; setp.gt.u32 p, $1, t; selp.u32 $0, 1, 0, p; }",
    ),
    "@!p instead of @p on line 1": (
        lambda a, b: torch.where(a < 77, a + 5, a ^ b),
        "{ .reg .pred p; setp.lt.u32 p, $1, 77; mov.b32 $0, $1; @p add.u32 $0, $0, 5; @p xor.b32 $0, $0, $2; }",
    ),
    "addc.u32 instead of add.u32 on line 1": (
        lambda a, b: ((a + b) >> 32) + a & U32.code_mask,
        "{ .reg .b32 t; add.cc.u32 t, $1, $2; add.u32 $0, $1, 0; }",
    ),
    "addc.cc.u32 instead of addc.u32 on line 1": (
        lambda a, b: (((a ^ b) * 2 + ((a + b) >> 32)) >> 32) + (a ^ b) & U32.code_mask,
        "{ .reg .b32 t, u; xor.b32 u, $1, $2; add.cc.u32 t, $1, $2; addc.u32 t, u, u; addc.u32 $0, u, 0; }",
    ),
    "shr.u32 instead of shl.b32 on line 1": (
        lambda a, b: (a >> 5) ^ b,
        "{ .reg .b32 t; shl.b32 t, $1, 5; xor.b32 $0, t, $2; }",
    ),
    "u instead of t in xor.b32 on line 1": (
        lambda a, b: (a >> 7) ^ (b >> 7),
        "{ .reg .b32 t, u; shr.u32 t, $1, 7; shr.u32 u, $2, 7; xor.b32 $0, t, t; }",
    ),
}
"""By what is said of it: the reference, and asm with one wrong word. The first result that is right is named."""


def high_product(a, b):
    """The upper 32 bits of a product of 32-bit numbers, in parts that int64 holds."""
    low, high = a & 0xFFFF, a >> 16
    return high * b + (low * b >> 16) >> 16


@pytest.mark.sample(2)
@pytest.mark.parametrize("says", WRONG_WORDS)
def test_opcodes_parts_carries_predicates_and_registers_are_named(says):
    reference, text = WRONG_WORDS[says]
    found = results(reference, text, fmt=U32)
    assert found.verdict == "fail"
    assert f"all results are right with {says}" in causes(found)


@pytest.mark.parametrize(
    "text",
    [
        "add.rz.ftz.f32 $0, $1, $2;",  # two mistakes
        "{ .reg .f32 t; add.rz.f32 t, $1, $2; mul.f32 $0, t, 0f40000000; }",
    ],
)
def test_no_change_is_named_if_none_makes_all_results_right(text):
    found = results(add, text)
    assert found.verdict == "fail"
    assert not any("all results are right" in words for words in causes(found))


def test_a_change_that_is_right_on_some_inputs_alone_is_not_named(monkeypatch):
    """The trial on a few inputs decides nothing: here it sees none on which the rounding matters."""
    monkeypatch.setattr(repairs, "_failing_first", lambda wrong: [0, 1])
    found = results(add, "add.rz.f32 $0, $1, $2;")
    assert {words for words in causes(found) if "all results" in words} == {
        "all results are right with add.rn.f32 instead of add.rz.f32 on line 1"
    }
    two = results(add, "add.rz.ftz.f32 $0, $1, $2;")
    assert not any("all results are right" in words for words in causes(two))


def test_no_change_is_searched_where_a_run_stops_at_the_first_failure(monkeypatch):
    monkeypatch.setattr(repairs.Repairs, "cause", lambda *_: pytest.fail("searched"))
    assert results(add, "add.rz.f32 $0, $1, $2;", stop=True).verdict == "fail"


def test_one_wrong_input_many_times_names_nothing():
    """A replay has one input; many changes give what is expected of it."""
    case = Case(inputs={"x": U32}, outputs={"d": U32}, reference=masked, variants={"v": asm("and.b32 $0, $1, 0x7F;")})
    for different, says in ((1, ""), (40, "all results are right with 0xff instead of 0x7F in and.b32 on line 1")):
        x = 0x80 + np.arange(64, dtype=np.uint32) % different
        job = Job(case, "c", Path("c.py"), "v", case.variants["v"], "sm_90a", Setup(pack=1, shape=(64,)), {"x": x})
        policy = policies(case, case.variants["v"])
        found = judge(case, policy, job.inputs, {"d": x & np.uint32(0x7F)})
        assert found.different == 64
        assert repairs.Repairs(policy).cause(job, found) == says


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("sub.u32 $0, $2, $1;", True),
        ("{ .reg .b32 t; sub.u32 t, $1, $2; neg.s32 $0, t; }", True),  # exchanging the inputs makes it right, too
        ("{ .reg .b32 t, u; sub.u32 t, $1, $2; sub.u32 u, $2, $1; max.s32 $0, t, u; }", False),
    ],
)
def test_operands_are_swapped_only_where_that_makes_all_results_right(text, named):
    """With b not below a, the third gives b - a as the exchange does, and as itself."""
    case = Case(
        inputs={"a": U32, "b": U32}, outputs={"d": U32}, reference=lambda a, b: (a - b) & 0xFFFFFFFF,
        where=Domain("a is not above b, both small", lambda v: (v["a"] <= v["b"]) & (v["b"] < 1 << 30)),
        variants={"v": asm(text, "=r,r,r")},
    )  # fmt: skip
    item = Item(LoadedCase(case, "c", "case", Path("c.py"), ""), "v", "sm_90a", "emulator")
    found = causes(run_item(item, create("emulator"), "quick"))
    assert ("the bits are those of a and b exchanged: swap the operands" in found) == named


@pytest.mark.parametrize(("context", "kept"), [("straight", True), ("loop", False)])
def test_no_run_shows_that_swapped_operands_help_within_a_context(context, kept):
    case = Case(
        inputs={"a": U32, "b": U32}, outputs={"d": U32}, reference=lambda a, b: (a - b) & 0xFFFFFFFF,
        variants={"v": asm("sub.u32 $0, $2, $1;", "=r,r,r")},
    )  # fmt: skip
    inputs = {"a": np.arange(64, dtype=np.uint32), "b": np.arange(64, dtype=np.uint32)[::-1].copy()}
    setup = Setup(pack=1, shape=(64,), context=context)
    job = Job(case, "c", Path("c.py"), "v", case.variants["v"], "sm_90a", setup, inputs)
    cause = EXCHANGED.format("a", "b")
    found = repairs.Repairs(policies(case, case.variants["v"])).confirmed(job, cause)
    assert found == (cause if kept else "")


def test_a_cuda_statement_is_repaired_in_its_own_spelling():
    case = Case(
        inputs={"x": U32}, outputs={"d": U32}, reference=masked,
        variants={"v": asm("and.b32 %0, %1, 0x7f;", '"=r"(d) : "r"(x)', convention="cuda")},
    )  # fmt: skip
    item = Item(LoadedCase(case, "c", "case", Path("c.py"), ""), "v", "sm_90a", "emulator")
    named = causes(run_item(item, create("emulator"), "quick"))
    assert "all results are right with 0xff instead of 0x7f in and.b32 on line 1" in named


def test_a_result_that_depends_on_another_place_of_its_pack_is_named():
    """Both halves get the low half of the second operand, whose halves belong to different elements."""
    text = "{ .reg .b16 l, h; .reg .b32 t; mov.b32 {l, h}, $2; mov.b32 t, {l, l}; xor.b32 $0, $1, t; }"
    case = Case(
        inputs={"a": U16, "b": U16}, outputs={"d": U16}, reference=lambda a, b: a ^ b,
        variants={"v": asm(text, "=r,r,r", pack=2), "right": asm("xor.b32 $0, $1, $2;", "=r,r,r", pack=2)},
    )  # fmt: skip
    item = Item(LoadedCase(case, "c", "case", Path("c.py"), ""), "v", "sm_90a", "emulator")
    assert "d of place 1 in a pack depends on b of place 0" in causes(run_item(item, create("emulator"), "quick"))
    assert run_item(replace(item, variant_name="right"), create("emulator"), "quick").verdict == "pass"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{ .reg .b32 t; add.u32 t, $1, $2; xor.b32 $0, t, 0x43214321; }", False),
        ("{ .reg .b32 t; shr.u32 t, $2, 15; and.b32 t, t, 1; shl.b32 t, t, 18; xor.b32 $0, $1, t; }", True),
    ],
)
def test_another_place_is_named_only_for_inputs_of_the_domain_and_for_each_bit_of_them(text, named):
    """The first adds both halves at once: within the domain there is no carry. The second moves the highest bit."""
    case = Case(
        inputs={"a": U16, "b": U16}, outputs={"d": U16}, reference=lambda a, b: a + b ^ 0x1234,
        where=Domain("the sum has 16 bits", lambda v: v["a"] + v["b"] < 1 << 16),
        variants={"v": asm(text, "=r,r,r", pack=2)},
    )  # fmt: skip
    item = Item(LoadedCase(case, "c", "case", Path("c.py"), ""), "v", "sm_90a", "emulator")
    named_causes = causes(run_item(item, create("emulator"), "quick"))
    assert any("depends on" in words for words in named_causes) == named


def results_of_kernel(function, reference=masked, name="c"):
    case = Case(
        inputs={"x_ptr": U32["N"]}, outputs={"d_ptr": U32["N"]}, reference=reference, sizes=[{"N": 256}],
        variants={"v": kernel(function, grid=(1,))},
    )  # fmt: skip
    item = Item(LoadedCase(case, name, "case", Path("c.py"), ""), "v", "sm_90a", "emulator")
    return run_item(item, create("emulator"), "quick")


def test_a_wrong_word_of_asm_in_a_kernel_is_named_with_its_line():
    assert results_of_kernel(low_bytes).verdict == "pass"
    (cause,) = causes(results_of_kernel(high_bytes))
    assert cause.startswith("all results are right with 0x4400 instead of 0x4401 in prmt.b32 on line 1 of the asm at ")
    assert "test_repairs.py:" in cause


def test_a_kernel_that_no_change_repairs_in_one_case_is_searched_again_in_another():
    none = results_of_kernel(high_bytes, reference=lambda x: x ^ 0x12345678, name="no change makes these")
    assert not any("all results are right" in words for words in causes(none))
    (cause,) = causes(results_of_kernel(high_bytes, name="one does"))
    assert cause.startswith("all results are right with 0x4400 instead of 0x4401")


@triton.jit
def differences(x_ptr, y_ptr, d_ptr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + lane), tl.load(y_ptr + lane)
    d = tl.inline_asm_elementwise(
        "{ .reg .b32 t; shl.b32 t, $2, 3; sub.u32 t, t, $1; xor.b32 $0, t, $2; }", "=r,r,r", [y, x], dtype=tl.uint32,
        is_pure=True, pack=1,
    )  # fmt: skip
    tl.store(d_ptr + lane, d)


@pytest.mark.parametrize("right", [False, True])
def test_operands_of_asm_in_a_kernel_are_swapped_if_that_makes_all_results_right(right):
    """The arguments are given in the other order. No swap is named where a reference expects something else."""
    reference = (lambda x, y: (y * 8 - x ^ y) & U32.code_mask) if right else (lambda x, y: x ^ y ^ 0x12345678)
    case = Case(
        inputs={"x_ptr": U32["BLOCK"], "y_ptr": U32["BLOCK"]}, outputs={"d_ptr": U32["BLOCK"]}, reference=reference,
        sizes=[{"BLOCK": 256}], variants={"v": kernel(differences, grid=(1,))},
    )  # fmt: skip
    item = Item(LoadedCase(case, f"swap {right}", "case", Path("c.py"), ""), "v", "sm_90a", "emulator")
    (cause,) = causes(run_item(item, create("emulator"), "quick"))
    assert cause.startswith("all results are right with operands $1 and $2 exchanged of the asm at ") == right
    assert ("all results are right" in cause) == right


@triton.jit
def subtracted(a, b):
    return tl.inline_asm_elementwise("sub.u32 $0, $1, $2;", "=r,r,r", [b, a], dtype=tl.uint32, is_pure=True, pack=1)


@triton.jit
def distance(a, b):
    """With b not below a, as the first with its operands exchanged; and as itself with them exchanged."""
    return tl.where(a > b, a - b, b - a)


@pytest.mark.parametrize(("function", "named"), [(subtracted, True), (distance, False)])
def test_operands_of_triton_functions_are_swapped_only_where_that_makes_all_results_right(function, named):
    case = Case(
        inputs={"a": U32, "b": U32}, outputs={"d": U32}, reference=lambda a, b: (a - b) & U32.code_mask,
        where=Domain("a is not above b, both small", lambda v: (v["a"] <= v["b"]) & (v["b"] < 1 << 30)),
        variants={"v": plain(function)},
    )  # fmt: skip
    item = Item(LoadedCase(case, "c", "case", Path("c.py"), ""), "v", "sm_90a", "emulator")
    found = causes(run_item(item, create("emulator"), "quick"))
    assert ("the bits are those of a and b exchanged: swap the operands" in found) == named


MODULE = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry scaled(.param .u64 x, .param .u64 d)
{
.reg .b64 %a<4>; .reg .b32 %r<4>;
mov.u32 %r0, %tid.x;
ld.param.u64 %a0, [x];
ld.param.u64 %a1, [d];
mad.wide.u32 %a2, %r0, 4, %a0;
ld.global.u32 %r1, [%a2];
mad.lo.u32 %r1, %r1, 11, 7;
mad.wide.u32 %a3, %r0, 4, %a1;
st.global.u32 [%a3], %r1;
ret;
}
"""


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        (lambda x: (x * 11 + 5) & U32.code_mask, "5 instead of 7 in mad.lo.u32 on line 12 of the PTX"),
        (lambda x: (x * 11 >> 32) + 7 & U32.code_mask, "mad.hi.u32 instead of mad.lo.u32 on line 12 of the PTX"),
        (lambda x: (x ^ x >> 3 ^ 0x1234567) & U32.code_mask, ""),
    ],
)
def test_a_wrong_word_of_a_module_is_named(reference, says):
    variant = ptx(MODULE, grid=(1,), block=256, parameters=["x", "d"])
    case = Case(
        inputs={"x": U32["N"]},
        outputs={"d": U32["N"]},
        reference=reference,
        sizes=[{"N": 256}],
        variants={"v": variant},
    )
    item = Item(LoadedCase(case, f"module {says}", "case", Path("c.py"), ""), "v", "sm_90a", "emulator")
    named = {words for words in causes(run_item(item, create("emulator"), "quick")) if words.startswith("all results")}
    assert named == ({f"all results are right with {says}"} if says else set())


COMPILED = """
\t// begin inline asm
\tadd.u32 %r1, %r2, 3; mul.lo.u32 %r1, %r1, %r2;
\t// end inline asm
\tadd.u32 %r1, %r2, 3;
\t// begin inline asm
\tadd.u32 %r7, 5, 3; mul.lo.u32 %r7, %r7, 5;
\t// end inline asm
\t// begin inline asm
\tadd.u32 %r7, 5, 3; mul.lo.u32 %r7, %r7, 6;
\t// end inline asm
"""


def test_every_block_of_a_text_is_replaced_and_nothing_else():
    old = "add.u32 $0, $1, 3; mul.lo.u32 $0, $0, $1;"
    new = "add.u32 $0, $1, 4; mul.lo.u32 $0, $1, $0;"
    assert repairs.replaced(COMPILED, old, new) == (
        COMPILED.replace("add.u32 %r1, %r2, 3; mul.lo.u32 %r1, %r1", "add.u32 %r1, %r2, 4; mul.lo.u32 %r1, %r1")
        .replace("mul.lo.u32 %r1, %r1, %r2", "mul.lo.u32 %r1, %r2, %r1")
        .replace("add.u32 %r7, 5, 3; mul.lo.u32 %r7, %r7, 5", "add.u32 %r7, 5, 4; mul.lo.u32 %r7, 5, %r7")
    )  # fmt: skip
    assert repairs.replaced(COMPILED, old.replace("3", "9"), new) == COMPILED


def test_digits_side_by_side_are_exchanged_and_no_change_comes_twice():
    words = [repair.words for repair in repairs.repairs("prmt.b32 $0, $1, $2, 0x7326;")]
    assert "0x7362 instead of 0x7326 in prmt.b32 on line 1" in words
    assert len(words) == len(set(words))
