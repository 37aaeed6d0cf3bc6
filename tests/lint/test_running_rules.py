"""Rules that run the block: they demonstrate findings, report nothing if no result changes, and end in time."""

from __future__ import annotations

import re
import time

import pytest

from ptxdiff.lint import trial
from ptxdiff.lint.block import LintedBlock
from ptxdiff.lint.engine import lint
from ptxdiff.lint.files import lint_text
from ptxdiff.lint.fixes import repaired
from ptxdiff.lint.snippet import Snippet


def found(asm, constraints, **options):
    return {f.rule: f for f in lint(Snippet(asm, constraints, **options))}


def clobber(asm, constraints, **options):
    return found(asm, constraints, **options).get("missing-early-clobber")


# early clobbers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asm", "constraints"),
    [
        ("neg.f32 $0, $1; add.f32 $0, $0, $2;", "=f,f,f"),
        ("add.f32 $0, $1, $2; mul.f32 $0, $0, $3;", "=f,0,f,f"),  # a tied output holds another input's value
        ("shl.b32 $0, $1, $3; add.u32 $0, $0, $2;", "=r,r,r,n"),  # for some constants
        # Only infinity takes the branch that reads the other input.
        ("{ .reg .pred p; setp.eq.f32 p, $1, 0f7f800000; mov.f32 $0, $1; @p mov.f32 $0, $2; }", "=f,f,f"),
        ("{ .reg .u32 t; mov.u32 t, %laneid; add.u32 $0, t, $1; add.u32 $0, $0, $2; }", "=r,r,r"),
        ("{ .reg .pred p; setp.ne.u32 p, $1, 0; mov.u32 $0, 0; @p bra L; add.u32 $0, $2, 1; L: }", "=r,r,r"),
        ("mov.u64 $0, $1; add.u64 $0, $0, $2;", "=l,l,l"),
        # The upper half of the output's register is never written.
        (
            "{ .reg .b16 a, u; mov.b32 {a, _}, $1; mov.b32 $0, {a, u}; mov.b32 {a, _}, $2; mov.b32 $0, {a, u}; }",
            "=r,r,r",
        ),
    ],
)
def test_an_output_that_loses_an_input_is_found(asm, constraints):
    finding = clobber(asm, constraints)
    assert finding is not None
    assert "in one register" in finding.message
    assert "instead of" in finding.message
    repair = finding.fix.edits
    fixed = constraints
    for edit in sorted(repair, key=lambda e: -e.start):
        fixed = fixed[: edit.start] + edit.new + fixed[edit.end :]
    assert "=&" in fixed
    assert clobber(asm, fixed) is None


def test_a_run_is_cut_to_the_bits_that_are_defined():
    block = LintedBlock(Snippet("{ .reg .b16 a, u; mov.b32 {a, _}, $1; mov.b32 $0, {a, u}; }", "=r,r"))
    given, outputs = trial.defined(block, trial.ordinary(block), trial.Clock())
    assert trial.bits_of(outputs) == 16
    again = trial.run(block, given, trial.Clock(), None, 16)
    assert (outputs[0] == given[1] & 0xFFFF).all()
    assert again[0].dtype == outputs[0].dtype


@pytest.mark.parametrize(
    ("asm", "constraints"),
    [
        ("add.f32 $0, $1, $2;", "=f,f,f"),
        ("neg.f32 $0, $1; add.f32 $0, $0, $2;", "=&f,f,f"),
        # Written early, but the input that is read later adds nothing.
        ("{ .reg .u32 t; mov.b32 $0, $1; sub.u32 t, $2, $2; add.u32 $0, $0, t; }", "=r,r,r"),
        ("mov.b32 $0, $1; add.u64 $0, $0, $2;", "=l,r,l"),  # it does not even bind
        ("ld.global.b32 $0, [$1]; ld.global.b32 $0, [$1];", "=r,l"),  # it cannot be run
    ],
)
def test_no_finding_where_no_input_changes_the_result(asm, constraints):
    assert clobber(asm, constraints) is None


def test_a_cuda_statement_is_repaired_in_place():
    text = 'asm("neg.f32 %0, %1; add.f32 %0, %0, %2;"\n    : "=f"(y) : "f"(a), "f"(b));\n'
    result = repaired("x.cu", text)
    assert result.after == text.replace('"=f"', '"=&f"')
    assert lint_text("x.cu", result.after.encode()).findings == []
    assert "%0 and %2 in one register" in result.applied[0].message


def test_a_block_that_never_ends_costs_its_time_and_no_more(monkeypatch):
    monkeypatch.setattr(trial, "SECONDS", 0.25)
    asm = "{ .reg .pred p; mov.u32 $0, $1; L: setp.ne.u32 p, $2, 0; @p bra L; add.u32 $0, $0, $2; }"
    clobber("add.u32 $0, $1, $2;", "=r,r,r")  # modules loaded here are not counted
    started = time.monotonic()
    found = clobber(asm, "=r,r,r", pure=True)
    assert found is None or (found.severity == "note" and "were not tried" in found.message)
    assert time.monotonic() - started < 10 * trial.SECONDS  # a busy machine may take longer than an idle one


def test_outputs_without_remaining_time_are_noted(monkeypatch):
    monkeypatch.setattr(trial, "SECONDS", 0.0)
    (finding,) = lint(Snippet("neg.f32 $0, $1; mul.f32 $0, $0, $2;", "=f,f,f", pure=True))
    assert (finding.rule, finding.severity) == ("missing-early-clobber", "note")
    assert "were not tried ($0)" in finding.message


# elements of a pack ------------------------------------------------------------------------------------------

HALVES = "{ .reg .b16 a, b; mov.b32 {a, b}, $1; %s mov.b32 $0, {a, b}; }"


def packed(asm, constraints="=r,r", pack=2, outputs=("float16",), inputs=("float16",)):
    rules = found(asm, constraints, pack=pack, outputs=outputs, inputs=inputs)
    return {n: f for n, f in rules.items() if n.startswith(("pack", "cross"))}


def test_the_path_goes_through_the_instruction_that_mixes_elements():
    (finding,) = packed(HALVES % "add.f16 a, a, b;").values()
    assert finding.rule == "cross-element"
    assert "element 0 of result 0 depends on element 1 of argument 0" in finding.message
    assert "$1 -> `mov.b32 {a, b}, $1;`, `add.f16 a, a, b;`, `mov.b32 $0, {a, b};` -> $0" in finding.message


def test_a_path_leaves_out_what_the_change_did_not_reach():
    (finding,) = packed(HALVES % ".reg .b16 c; neg.f16 c, b; add.f16 a, a, b; neg.f16 c, a;").values()
    assert "add.f16 a, a, b" in finding.message
    assert "neg.f16 c" not in finding.message


@pytest.mark.parametrize(
    ("asm", "constraints", "pack", "outputs", "inputs", "rule"),
    [
        ("cvt.rn.f16x2.f32 $0, $1, $2;", "=r,r,r", 2, ("float16",), ("float32",), "pack-order"),
        ("cvt.rn.f16x2.f32 $0, $1, $2;", "=r,r,r", 2, ("float16",), (None,), "pack-order"),
        ("prmt.b32 $0, $1, 0, 0x0123;", "=r,r", 4, ("int8",), ("int8",), "pack-order"),
        ("mov.b32 $0, $3; mov.b32 $1, $2;", "=&r,=r,r,r", 2, ("float32",), ("float32",), "pack-order"),
        ("mov.b32 $0, $2; mov.b32 $1, $2;// $3", "=&r,=r,r,r", 2, ("float32",), ("float32",), "pack-one-source"),
        (HALVES % "mov.b16 b, a;", "=r,r", 2, ("float16",), ("float16",), "pack-one-source"),
        ("shl.b32 $0, $1, 1;", "=r,r", 4, ("uint8",), ("uint8",), "cross-element"),
        ("add.u32 $0, $1, $2;", "=r,r,r", 4, ("uint8",), ("uint8", "uint8"), "cross-element"),
    ],
)
def test_elements_that_leave_their_places(asm, constraints, pack, outputs, inputs, rule):
    assert set(packed(asm, constraints, pack, outputs, inputs)) == {rule}


@pytest.mark.parametrize(
    ("asm", "constraints", "pack", "outputs", "inputs"),
    [
        ("cvt.rn.f16x2.f32 $0, $2, $1;", "=r,r,r", 2, ("float16",), ("float32",)),
        ("prmt.b32 $0, $1, 0, 0x3210;", "=r,r", 4, ("int8",), (None,)),
        ("and.b32 $0, $1, 0x0f0f0f0f; shr.u32 $1, $1, 4;", "=&r,=r,r", 4, ("uint8", "uint8"), ("uint8",)),
        ("mov.b32 $0, 0; mov.b32 $1, 0;", "=r,=r,r,r", 2, ("float32",), ("float32",)),
        # It is unknown whether the register holds two halves or two bytes, and it cannot hold two bytes.
        ("add.f16x2 $0, $1, $1;", "=r,r", 2, ("float16",), (None,)),
        # Intended use of the instruction: one word of random bits for all elements.
        ("cvt.rs.satfinite.e4m3x4.f32 $0, {$4, $3, $2, $1}, $5;", "=r,r,r,r,r,r,r,r,r", 4, ("float8_e4m3fn",),
         ("float32", "uint32")),
    ],
)  # fmt: skip
def test_elements_that_stay_in_their_places(asm, constraints, pack, outputs, inputs):
    assert packed(asm, constraints, pack, outputs, inputs) == {}


def test_one_element_has_no_neighbours():
    assert packed("add.f32 $0, $1, $2;", "=f,f,f", 1, ("float32",), ("float32", "float32")) == {}


@pytest.mark.parametrize(("pack", "words"), [(3, "power of two"), (0, "power of two"), (4096, "discarded|takes")])
def test_wrong_packs(pack, words):
    finding = found("mov.b32 $0, $1;", "=r,r", pack=pack)["pack-size"]
    assert re.search(words, finding.message)


# purity and targets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asm", "constraints", "options", "rule"),
    [
        ("bar.sync 0; mov.u32 $0, 0;", "=r", {"pure": True}, "pure-warp-level"),
        ("elect.sync $0|p, -1;", "=r", {"pure": True}, "pure-warp-level"),
        ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {$0,$1},{$2,$3,$4,$5},{$6,$7},{$8,$9};",
         "=r,=r,r,r,r,r,r,r,r,r", {"pure": True, "convention": "llvm"}, "pure-warp-level"),
        ("atom.global.add.u32 $0, [$1], 1;", "=r,l", {"pure": True}, "pure-side-effect"),
        ("ld.volatile.global.u32 $0, [$1];", "=r,l", {"pure": True}, "pure-side-effect"),
        ("ld.acquire.gpu.global.u32 $0, [$1];", "=r,l,~{memory}", {"pure": True, "convention": "llvm"},
         "pure-side-effect"),
        ("ld.shared.u32 $0, [$1];", "=r,r", {"pure": True, "convention": "llvm"}, "pure-load"),
        ("mov.u64 $0, %globaltimer;", "=l", {"pure": True}, "pure-clock"),
        ("mov.u64 %0, %%globaltimer;", "=l", {"pure": True, "convention": "cuda"}, "pure-clock"),
    ],
)  # fmt: skip
def test_what_a_block_declared_pure_must_not_do(asm, constraints, options, rule):
    declared = {n for n in found(asm, constraints, **options) if n.startswith("pure")}
    assert declared == {rule}
    impure = found(asm, constraints, **(options | {"pure": False}))
    unknown = found(asm, constraints, **(options | {"pure": None}))
    assert not {n for n in (*impure, *unknown) if n.startswith("pure")}


@pytest.mark.parametrize(
    ("asm", "constraints", "convention"),
    [
        ("ld.global.nc.u32 $0, [$1];", "=r,l", "triton"),
        ("ld.const.u32 $0, [$1];", "=r,l", "triton"),
        ("mov.u32 $0, %tid.x;", "=r", "triton"),  # constant within a thread
        ("mov.u32 $0, %smid;", "=r", "triton"),
        ("mbarrier.pending_count.b64 $0, $1;", "=r,l", "llvm"),  # computes only with its operand
        ("createpolicy.fractional.L2::evict_last.b64 $0, 1.0;", "=l", "llvm"),
        ("ld.global.u32 %0, [%1];", "=r,l,~{memory}", "cuda"),  # the clobber orders it
    ],
)
def test_what_a_block_declared_pure_may_do(asm, constraints, convention):
    assert not {n for n in found(asm, constraints, pure=True, convention=convention) if n.startswith("pure")}


def test_a_block_of_moves_may_be_declared_impure():
    assert "impure-arithmetic" not in found("mov.b32 $0, $1;", "=r,r", pure=False)
    assert "impure-arithmetic" in found("add.u32 $0, $1, 1;", "=r,r", pure=False)
    assert "impure-arithmetic" not in found("mov.u32 $0, %clock; add.u32 $0, $0, $1;", "=&r,r", pure=False)


@pytest.mark.parametrize(
    ("asm", "constraints", "targets", "lacking", "first"),
    [
        ("cvt.rn.satfinite.e4m3x2.f32 $0, $2, $1;", "=h,f,f", ("sm_80",), "the target is sm_80", "sm_89"),
        ("add.rn.f32x2 $0, $1, $2;", "=l,l,l", ("sm_100a", "sm_90"), "the target is sm_90a", "sm_100"),
        ("wgmma.fence.sync.aligned;", "", ("sm_100a",), "needs sm_90a", "sm_90a"),
        ("mov.u32 $0, %cluster_ctarank;", "=r", ("sm_80",), "%cluster_ctarank needs sm_90", "sm_90"),
        ("redux.sync.add.u32 $0, $1, -1;", "=r,r", ("sm_75",), "needs sm_80", "sm_80"),
    ],
)
def test_a_target_without_the_instruction(asm, constraints, targets, lacking, first):
    finding = found(asm, constraints, targets=targets, pack=None)["target-lacks"]
    assert lacking in finding.message
    assert f"the first target that has it is {first}:" in finding.instead


def test_targets_that_have_it_or_were_not_stated():
    assert "target-lacks" not in found("cvt.rn.satfinite.e4m3x2.f32 $0, $2, $1;", "=h,f,f", targets=("sm_90",))
    assert "target-lacks" not in found("cvt.rn.satfinite.e4m3x2.f32 $0, $2, $1;", "=h,f,f")
    # For sm_90 Triton compiles for sm_90a, but nvcc does not.
    wgmma = {"targets": ("sm_90",), "pack": 1}
    assert "target-lacks" not in found("wgmma.fence.sync.aligned;", "", **wgmma)
    assert "target-lacks" in found("wgmma.fence.sync.aligned;", "", convention="cuda", **wgmma)


# written inputs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asm", "constraints", "convention", "written"),
    [
        ("add.f32 $1, $1, $2; mov.b32 $0, $1;", "=&f,f,f", "triton", "$1"),
        ("{ mov.b32 {%0, %1}, %2; }", "=h,h,r", "cuda", "%1"),
        ("ld.global.b32 $1, [$2]; mov.b32 $0, $1;", "=&r,r,l", "llvm", "$1"),
    ],
)
def test_a_written_input(asm, constraints, convention, written):
    finding = found(asm, constraints, convention=convention)["input-written"]
    assert f"writes the input {written}" in finding.message


@pytest.mark.parametrize(
    ("asm", "constraints", "convention"),
    [
        ("add.f32 $0, $0, $2;", "=f,0,f", "triton"),
        ("add.f32 %0, %0, %1;", "+f,f", "cuda"),
        ("cp.async.wait_group $0;", "n", "llvm"),
        ("st.global.b32 [$0], $1;", "l,r", "llvm"),
        ("mbarrier.init.shared.b64 [$0], $1;", "r,r", "llvm"),
    ],
)
def test_inputs_that_are_only_read(asm, constraints, convention):
    assert "input-written" not in found(asm, constraints, convention=convention)


# what NVIDIA's guide warns of ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "right", "rule"),
    [
        ('asm("mov.u32 %0, %%clock;" : "=r"(x));', 'asm volatile("mov.u32 %0, %%clock;" : "=r"(x));', "pure-clock"),
        (
            'asm("st.global.u32 [%0], %1;" :: "l"(p), "r"(x));',
            'asm("st.global.u32 [%0], %1;" :: "l"(p), "r"(x) : "memory");',
            "memory-clobber",
        ),
        (
            'asm("ld.global.u32 %0, [%1];" : "=r"(x) : "l"(p));',
            'asm volatile("ld.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");',
            "pure-load",
        ),
    ],
)
def test_a_bug_of_nvidias_guide_and_its_repair(wrong, right, rule):
    assert {f.rule for f in lint_text("x.cu", wrong.encode()).findings} == {rule}
    assert lint_text("x.cu", right.encode()).findings == []


CASE = '''"""Three spellings of one sum that loses an input."""
from ptxdiff import Case, asm
from ptxdiff.references.formats import F16, F32

case = Case(
    inputs={"a": F32, "b": F32},
    outputs={"y": F32},
    reference=len,
    variants={
        "cuda": asm("neg.f32 %0, %1; add.f32 %0, %0, %2;", '"=f"(y) : "f"(a), "f"(b)', convention="cuda"),
        "llvm": asm("neg.f32 $0, $1; add.f32 $0, $0, $2;", "=f,f,f", convention="llvm"),
        "triton": asm("neg.f32 $0, $1; add.f32 $0, $0, $2;", "=f,f,f", pack=1),
    },
)
halves = Case(
    inputs={"a": F16},
    outputs={"y": F16},
    reference=len,
    variants={"llvm": asm("neg.f16 $0, $2; neg.f16 $1, $3;", "=&h,=h,h,h", pack=2, convention="llvm")},
)
'''


def test_variants_of_a_case_are_read_in_their_convention():
    report = lint_text("case.py", CASE.encode())
    assert report.notes == []
    found = [(f.snippet.function, f.rule) for f in report.findings]
    assert sorted(found) == [(n, "missing-early-clobber") for n in ("cuda", "llvm", "triton")]
