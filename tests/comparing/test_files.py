"""`ptxdiff compare a.ptx b.ptx --like CASE`: equal results, the first difference of traces, and differences that must
be reported."""

import pytest

from ptxdiff.cli import main
from tests.support.comparing.kernels import BODY, CASE, HEADER, changed, kernel


@pytest.fixture
def compare(tmp_path, capsys):
    """A function that compares the base kernel with another one and returns the exit code and the output."""

    def run(other, *words, base=None, case=CASE, fusion="False", like="case.py"):
        (tmp_path / "base.ptx").write_text(base or kernel())
        (tmp_path / "other.ptx").write_text(other)
        (tmp_path / "case.py").write_text(case.replace("FUSION", fusion))
        files = [str(tmp_path / name) for name in ("base.ptx", "other.ptx")]
        code = main(["compare", *files, "--like", str(tmp_path / like), *words])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


SEPARATE = "mul.rn.f32 %f2, %f1, 0f40466666;\nadd.rn.f32 %f3, %f2, %f1;"


def line_of(text, module):
    return next(n for n, line in enumerate(module.split("\n"), 1) if text in line)


def test_registers_renamed_and_instructions_reordered_are_equal(compare):
    other = kernel("""ld.param.u64 %d9, [py];
ld.param.u64 %d8, [px];
mov.u32 %r7, %tid.x;
shl.b32 %r6, %r7, 2;
cvt.u64.u32 %d7, %r6;
add.u64 %d6, %d8, %d7;
add.u64 %d10, %d9, %d7;
ld.global.f32 %f9, [%d6];
setp.ge.f32 %p3, %f9, 0f00000000;
@!%p3 bra LESS;
mul.rn.f32 %f8, %f9, 0f40466666;
add.rn.f32 %f7, %f9, %f8;
st.global.f32 [%d10], %f7;
ret;
LESS:
mul.rn.f32 %f7, 0fBF000000, %f9;
st.global.f32 [%d10], %f7;
ret;""")
    code, said = compare(other)
    assert code == 0, said
    assert "equal: all 384 codes" in said
    assert "traces" not in said


def test_a_changed_rounding(compare, tmp_path):
    other = changed("mul.rn.f32 %f2", "mul.rz.f32 %f2")
    page = tmp_path / "page.html"
    code, said = compare(other, "--report", str(page))
    assert code == 1
    assert "different: " in said
    assert "base.ptx: by the case's reference and policy: right" in said
    for name, module, text in (("base.ptx", kernel(), "mul.rn.f32 %f2"), ("other.ptx", other, "mul.rz.f32 %f2")):
        assert f"{name}:{line_of(text, module)}  {text}, %f1, 0f40466666;" in said
        assert "mul.rz" in page.read_text()
    assert "before %f1 = 0x" in said
    assert "after  %f2 = 0x" in said
    for words in ("The first instructions that differ", "Alignment.", "%f2 = 0x"):
        assert words in page.read_text()


def test_a_fused_multiply_add_instead_of_two_instructions(compare):
    other = changed(SEPARATE, "fma.rn.f32 %f3, %f1, 0f40466666, %f1;")
    code, said = compare(other)
    assert code == 1
    parts = said[said.index("traces") :]
    assert "mul.rn.f32 %f2, %f1" in parts
    assert "fma.rn.f32 %f3" in parts
    assert "aligned by values" in parts


def test_an_address_that_is_off_by_one(compare):
    code, said = compare(changed("ld.global.f32 %f1, [%d4];", "ld.global.f32 %f1, [%d4+4];"))
    assert code == 1
    assert "different addresses: 4 bytes at offset 0 of x and 4 bytes at offset 4 of x" in said
    code, said = compare(changed("ld.global.f32 %f1, [%d4];", "add.u64 %d4, %d4, 4;\nld.global.f32 %f1, [%d4];"))
    assert "add.u64 %d4, %d4, 4;" in said[said.index("traces") :]


def test_an_address_outside_of_every_buffer_names_the_access(compare):
    code, said = compare(changed("ld.global.f32 %f1, [%d4];", "ld.global.f32 %f1, [%d4+-4];"))
    assert code == 1
    assert "faults, so equal bits prove nothing" in said
    parts = said[said.index("traces") :]
    assert "other.ptx makes an illegal access: out of bounds: 4 bytes before the start of x" in parts
    assert "[%d4+-4]" in parts


def test_another_branch(compare):
    other = changed("setp.lt.f32", "setp.le.f32")
    code, said = compare(other)
    assert code == 1
    parts = said[said.index("traces") :]
    assert "a branch that one file takes and the other does not" in parts
    assert "setp.lt.f32 %p1, %f1" in parts
    assert "setp.le.f32 %p1, %f1" in parts
    assert "thread 5 of block" in parts
    assert "%f1 = 0x00000000 (0.0)" in parts


def test_a_branch_whose_condition_is_computed_differently(compare):
    other = changed("setp.lt.f32 %p1, %f1,", "add.rn.f32 %f9, %f1, 0fBE800000;\nsetp.lt.f32 %p1, %f9,")
    base = changed("setp.lt.f32 %p1, %f1,", "add.rn.f32 %f9, %f1, 0f00000000;\nsetp.lt.f32 %p1, %f9,")
    code, said = compare(other, base=base)
    assert code == 1
    assert "add.rn.f32 %f9, %f1, 0fBE800000;" in said[said.index("traces") :]


def test_a_guard_instead_of_a_branch(compare):
    guarded = BODY[: BODY.index("@%p1 bra")] + "mul.rn.f32 %f2, %f1, 0f40466666;\nadd.rn.f32 %f3, %f2, %f1;\n"
    guarded += "@%p1 mul.rn.f32 %f3, %f1, 0fBF000000;\n" + BODY[BODY.index("ld.param.u64 %d2") :]
    assert compare(kernel(guarded))[0] == 0
    code, said = compare(kernel(guarded.replace("setp.lt", "setp.le")), base=kernel(guarded))
    assert code == 1
    parts = said[said.index("traces") :]
    assert "setp.lt.f32" in parts
    assert "setp.le.f32" in parts


def test_exchanged_operands(compare):
    code, said = compare(changed("add.rn.f32 %f3, %f2, %f1;", "sub.rn.f32 %f3, %f1, %f2;"),
                         base=changed("add.rn.f32 %f3, %f2, %f1;", "sub.rn.f32 %f3, %f2, %f1;"))  # fmt: skip
    assert code == 1
    assert "the same operands in another order" in said


def test_another_constant(compare):
    code, said = compare(changed("0fBF000000", "0fBF000001"))
    assert code == 1
    assert "different constants" in said


SHARED = """mov.u32 %r1, %tid.x;
mul.wide.u32 %d3, %r1, 4;
ld.param.u64 %d1, [px];
add.u64 %d4, %d1, %d3;
ld.global.f32 %f1, [%d4];
mul.rn.f32 %f2, %f1, 0f40466666;
mov.u32 %r2, part;
shl.b32 %r3, %r1, 2;
add.u32 %r4, %r2, %r3;
st.shared.f32 [%r4], %f2;
bar.sync 0;
xor.b32 %r5, %r3, 252;
add.u32 %r6, %r2, %r5;
ld.shared.f32 %f3, [%r6];
mov.b32 %r7, %f3;
shfl.sync.bfly.b32 %r8, %r7, 1, 31, -1;
ld.param.u64 %d2, [py];
add.u64 %d5, %d2, %d3;
st.global.b32 [%d5], %r8;
ret;"""


def shared(body=SHARED):
    return kernel(body, extra=".shared .align 4 .b8 part[256];\n")


def test_a_value_is_followed_through_threads(compare):
    """From the store through a shuffle and shared memory to the thread that computed it."""
    code, said = compare(shared(SHARED.replace("mul.rn", "mul.rz")), base=shared())
    assert code == 1
    parts = said[said.index("traces") :]
    assert "went through 2 other threads" in parts
    assert "mul.rn.f32 %f2" in parts
    assert "mul.rz.f32 %f2" in parts


def test_another_thread_of_the_warp(compare):
    code, said = compare(shared(SHARED.replace("%r7, 1, 31", "%r7, 2, 31")), base=shared())
    assert code == 1
    assert "%r7, 2, 31" in said[said.index("traces") :]


# differences and gaps that must be reported ----------------------------------------------------------------------


def test_files_that_store_nothing_are_not_equal(compare):
    nothing = changed("st.global.f32 [%d5], %f3;\n", "")
    code, said = compare(nothing, base=nothing)
    assert code == 1
    assert "256 bytes of y were never written" in said
    assert "equal bits prove nothing" in said


def test_a_file_that_does_not_write_an_output(compare):
    code, said = compare(changed("END:", "END:\nsetp.eq.u32 %p2, %r1, 7;\n@%p2 ret;"))
    assert code == 1
    assert "4 bytes of y were never written, first byte 28" in said
    assert "only base.ptx reaches y[7]" in said


def test_outputs_with_the_same_bits_everywhere_show_nothing(compare):
    constant = changed("st.global.f32 [%d5], %f3;", "mov.f32 %f3, 0f3F800000;\nst.global.f32 [%d5], %f3;")
    code, said = compare(constant, base=constant)
    assert code == 1
    assert "this shows nothing: y has the same bits everywhere" in said


def test_instructions_that_no_thread_executed_are_named(compare):
    never = "setp.gt.u32 %p4, %r1, 63;\n@!%p4 bra PAST;\nmul.rn.f32 %f3, %f3, 0f40000000;\nPAST:\n"
    other = changed("END:", f"END:\n{never}")
    code, said = compare(other)
    assert code == 0
    assert (
        f"other.ptx: never executed on these inputs, so not compared: line {line_of('%f3, 0f40000000', other)}" in said
    )


def test_files_that_are_equal_and_wrong_are_no_success(compare):
    wrong = changed("0f40466666", "0f40800000")
    code, said = compare(wrong, base=wrong)
    assert code == 1
    assert "equal: all 384 codes" in said
    assert "codes are wrong" in said


def test_an_approximate_result_cannot_satisfy_an_exact_policy(compare):
    approximate = changed("mul.rn.f32 %f2, %f1, 0f40466666;", "ex2.approx.f32 %f2, %f1;")
    code, said = compare(approximate, base=approximate)
    assert code == 1
    assert "not judged: approximate, and the policy is exact" in said
    assert "evidence  bits computed by the emulator, those of an approximate instruction not known" in said


def test_both_readings_of_what_may_be_contracted(compare):
    """A fused multiply-add equals `mul.f32` and `add.f32` only if ptxas fuses these."""
    open_ = changed("mul.rn.f32 %f2, %f1, 0f40466666;\nadd.rn", "mul.f32 %f2, %f1, 0f40466666;\nadd")
    fused = changed(SEPARATE, "fma.rn.f32 %f3, %f1, 0f40466666, %f1;")
    code, said = compare(fused, base=open_, fusion="True")
    assert code == 1
    assert "read without fused multiply-adds" in said
    code, said = compare(kernel(), base=open_, fusion="True")
    assert code == 1
    assert "different: " in said
    assert "equal: all" in compare(open_, base=open_, fusion="True")[1]


def test_a_file_that_cannot_be_parsed(compare):
    code, said = compare(changed("mul.rn.f32 %f2", "mul.rm.f33 %f2"))
    assert code == 1
    assert "not compared: other.ptx cannot be run" in said
    assert "mul.rm.f33" in said
    code, said = compare("this is no PTX\n")
    assert code == 1
    assert "not compared: other.ptx cannot be run" in said


TWO = kernel(BODY.replace("0f40466666", "0f40800000"), "wrong") + kernel(name="right", header="")


def test_of_two_kernels_one_is_named(compare):
    code, said = compare(TWO)
    assert code == 2
    assert "2 kernels: choose one with --entry: wrong, right" in said
    assert compare(TWO, "--entry", "k", "--entry", "right")[0] == 0
    assert compare(TWO, "--entry", "k", "--entry", "wrong")[0] == 1
    code, said = compare(TWO, "--entry", "right")
    assert code == 2
    assert "base.ptx has no kernel 'right'; it has k" in said


def test_the_launch_may_be_given_by_options(compare):
    plain = CASE.replace('"own": ptx("base.ptx", grid=1, block=64, parameters=["x", "y"], fusion=FUSION)',
                         '"own": ptx("base.ptx", grid=1, block=32, parameters=["x", "y"])')  # fmt: skip
    launch = ["--block", "64", "--grid", "1", "--parameters", "x, y"]
    assert "were never written" in compare(kernel(), case=plain)[1]
    assert compare(kernel(), *launch, case=plain)[0] == 0
    code, said = compare(kernel(), "--parameters", "x,z", case=plain)
    assert code == 2
    assert "'z'" in said
    code, said = compare(kernel(), "--block", "33", case=plain)
    assert code == 2
    assert "whole warps" in said


ASM_CASE = """
from ptxdiff import Case, asm
from ptxdiff.references.formats import F32
from ptxdiff.references import arithmetic
case = Case(inputs={"x": F32, "z": F32}, outputs={"y": F32}, reference=arithmetic.add,
            variants={"asm": asm("add.f32 $0, $1, $2;")})
"""


def test_missing_options_are_errors(compare):
    code, said = compare(kernel(), case=ASM_CASE)
    assert code == 2
    assert "give --grid, --block, --parameters" in said
    code, said = compare(kernel(), case=ASM_CASE, like="case.py::asm")
    assert "the variant is no ptx(...)" in said


def test_an_unknown_target(compare):
    code, said = compare(kernel(), "--target", "sm_1")
    assert (code, "sm_1" in said) == (2, True)
    code, said = compare(kernel(header=HEADER.replace("sm_80", "sm_100a")), "--target", "sm_90a")
    assert (code, "sm_90a does not run" in said) == (1, True)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["a.ptx", "b.jsonl"], "b.jsonl is not"),
        (["a.ptx"], "no second file is given"),
        (["a.ptx", "b.ptx"], "--like cases/x.py"),
        (["a.ptx", "b.ptx", "--like", "x", "--kind", "bits"], "--kind is for records"),
        (["a.jsonl", "b.jsonl", "--entry", "k"], "--entry is for two PTX files"),
        (["/no/a.ptx", "/no/b.ptx", "--like", "x"], "cannot be read"),
        (["cases/x.py::a", "cases/x.py::b"], "cases/x.py::a names a case, and compare takes"),
        (["run.jsonl", "cases/x.py"], "are compared as variants of one case"),
    ],
)
def test_records_and_files_cannot_be_compared_with_each_other(words, why, capsys):
    assert main(["compare", *words]) == 2
    assert why in capsys.readouterr().err


def test_blocks_in_clusters_are_followed(compare):
    """A block reads what the other block of its cluster stored in its shared memory."""
    body = """mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 32, %r1; mul.wide.u32 %d3, %r3, 4;
ld.param.u64 %d1, [px]; add.u64 %d4, %d1, %d3; ld.global.f32 %f1, [%d4];
mul.rn.f32 %f2, %f1, 0f40466666;
mov.u32 %r4, part; shl.b32 %r5, %r1, 2; add.u32 %r6, %r4, %r5; st.shared.f32 [%r6], %f2;
barrier.cluster.arrive; barrier.cluster.wait;
mov.u32 %r7, %cluster_ctarank; xor.b32 %r8, %r7, 1;
mapa.shared::cluster.u32 %r9, %r6, %r8; ld.shared::cluster.f32 %f3, [%r9];
barrier.cluster.arrive; barrier.cluster.wait;
ld.param.u64 %d2, [py]; add.u64 %d5, %d2, %d3; st.global.f32 [%d5], %f3; ret;"""
    header = HEADER.replace("sm_80", "sm_90")

    def clustered(text):
        made = kernel(text, header=header, extra=".shared .align 4 .b8 part[128];\n")
        return made.replace("\n{\n.reg", " .reqnctapercluster 2\n{\n.reg", 1)

    launch = ["--grid", "2", "--block", "32"]
    code, said = compare(clustered(body.replace("mul.rn", "mul.rz")), *launch, base=clustered(body))
    assert code == 1
    parts = said[said.index("traces") :]
    assert "went through 1 other thread" in parts
    assert "mul.rz.f32 %f2" in parts
    wrong = body.replace("ld.global.f32 %f1, [%d4];", "ld.global.f32 %f1, [%d4+200];")
    code, said = compare(clustered(wrong), *launch, base=clustered(body))
    assert "makes an illegal access" in said
    assert "[%d4+200]" in said[said.index("traces") :]
