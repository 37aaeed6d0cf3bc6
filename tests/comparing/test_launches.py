"""Two files with different launches: nvcc's kernel and Triton's, on one case."""

from pathlib import Path

import pytest

from ptxdiff.cli import main
from ptxdiff.comparing.files import require_same_inputs
from ptxdiff.model.variants import CaseError
from ptxdiff.records import Key
from tests.support.comparing.kernels import BODY, CASE, HEADER, kernel

PAIRS = """mov.u32 %r1, %tid.x;
shl.b32 %r2, %r1, 3;
cvt.u64.u32 %d3, %r2;
ld.param.u64 %d1, [px];
add.u64 %d4, %d1, %d3;
setp.lt.s32 %p4, %r1, 32;
@%p4 ld.global.v2.f32 {%f1, %f4}, [%d4];
mul.rn.f32 %f2, %f1, 0f40466666;
add.rn.f32 %f3, %f2, %f1;
mul.rn.f32 %f9, %f1, 0fBF000000;
setp.lt.f32 %p1, %f1, 0f00000000;
selp.f32 %f7, %f9, %f3, %p1;
mul.rn.f32 %f5, %f4, 0f40466666;
add.rn.f32 %f6, %f5, %f4;
mul.rn.f32 %f10, %f4, 0fBF000000;
setp.lt.f32 %p2, %f4, 0f00000000;
selp.f32 %f8, %f10, %f6, %p2;
ld.param.u64 %d2, [py];
add.u64 %d5, %d2, %d3;
st.global.v2.f32 [%d5], {%f7, %f8};
ret;"""
"""The computation of `BODY` by 32 threads, each on two elements."""
LAUNCH = ["--parameters", "x,y", "--parameters", "x,y,0,0"]


def pairs(body=PAIRS):
    """A kernel in Triton's form: with a required block size, and addresses of scratch memory as its last parameters."""
    made = kernel(body, "triton_kernel").replace(".param .u64 py)", ".param .u64 py, .param .u64 s, .param .u64 t)")
    return made.replace("\n{\n.reg", "\n.reqntid 32\n{\n.reg", 1)


@pytest.fixture
def compare(tmp_path, capsys):
    def run(other, *words, base=None, case=CASE):
        (tmp_path / "base.ptx").write_text(base or kernel())
        (tmp_path / "other.ptx").write_text(other)
        (tmp_path / "case.py").write_text(case.replace("FUSION", "False"))
        files = [str(tmp_path / name) for name in ("base.ptx", "other.ptx")]
        code = main(["compare", *files, "--like", str(tmp_path / "case.py"), *(words or LAUNCH)])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def traces(said):
    return said[said.index("traces") :]


def test_each_file_has_its_own_launch(compare):
    code, said = compare(pairs())
    assert code == 0, said
    assert "equal: all 384 codes" in said
    assert "base.ptx in 1x1x1 blocks of 64x1x1 threads; other.ptx in 1x1x1 blocks of 32x1x1 threads" in said


def test_a_launch_that_does_not_fit_is_not_equal(compare):
    code, said = compare(pairs(), "--block", "64", "--block", "64", *LAUNCH)
    assert (code, "demands .reqntid 32" in said) == (1, True)
    code, said = compare(pairs(), "--block", "32", *LAUNCH)
    assert (code, "were never written" in said) == (1, True)
    code, said = compare(pairs(), "--parameters", "x,y")
    assert (code, "4 parameters, but parameters= gives 2" in said) == (1, True)


@pytest.mark.parametrize("place", ["%f2, %f1", "%f5, %f4"])
def test_the_computation_of_the_stored_element_is_followed(compare, place):
    """The computation of the other element, which the same instruction stores, is not followed."""
    code, said = compare(pairs(PAIRS.replace(f"mul.rn.f32 {place}", f"mul.rz.f32 {place}")))
    assert code == 1
    part = traces(said)
    assert f"mul.rz.f32 {place}" in part
    assert "mul.rn.f32 %f2, %f1" in part
    assert "paired by the element that both store" in part
    assert "%tid" not in part


def test_the_first_value_that_differs_between_different_computations(compare):
    fused = PAIRS.replace("mul.rn.f32 %f5, %f4, 0f40466666;\nadd.rn.f32 %f6, %f5, %f4;",
                          "fma.rn.f32 %f6, %f4, 0f40466666, %f4;")  # fmt: skip
    code, said = compare(pairs(fused))
    assert code == 1
    part = traces(said)
    assert "fma.rn.f32 %f6" in part
    assert "mul.rn.f32 %f2, %f1" in part
    assert "aligned by values" in part


def test_a_load_of_another_element(compare):
    turned = PAIRS.replace("shl.b32 %r2, %r1, 3;", "xor.b32 %r3, %r1, 1;\nshl.b32 %r2, %r3, 3;", 1)
    turned = turned.replace("add.u64 %d5", "shl.b32 %r4, %r1, 3;\ncvt.u64.u32 %d3, %r4;\nadd.u64 %d5")
    code, said = compare(pairs(turned))
    assert code == 1
    part = traces(said)
    assert "different addresses: 4 bytes at offset 0 of x and 8 bytes at offset 8 of x" in part
    assert "ld.global.v2.f32" in part


EXCHANGE = """mov.u32 %r1, %tid.x;
shl.b32 %r2, %r1, SHIFT;
cvt.u64.u32 %d3, %r2;
ld.param.u64 %d1, [px];
add.u64 %d4, %d1, %d3;
mov.u32 %r3, part;
add.u32 %r4, %r3, %r2;
LOADS
bar.sync 0;
xor.b32 %r5, %r2, 248;
add.u32 %r6, %r3, %r5;
READS
ld.param.u64 %d2, [py];
add.u64 %d5, %d2, %d3;
STORE
ret;"""
ONE = EXCHANGE.replace("SHIFT", "2").replace("LOADS", "ld.global.f32 %f1, [%d4];\nmul.rn.f32 %f2, %f1, 0f40466666;\n"
                       "st.shared.f32 [%r4], %f2;").replace("READS", "ld.shared.f32 %f3, [%r6];")  # fmt: skip
ONE = ONE.replace("STORE", "st.global.f32 [%d5], %f3;")
TWO = EXCHANGE.replace("SHIFT", "3").replace("LOADS", "ld.global.v2.f32 {%f1, %f4}, [%d4];\n"
                       "mul.rn.f32 %f2, %f1, 0f40466666;\nmul.rn.f32 %f5, %f4, 0f40466666;\n"
                       "st.shared.f32 [%r4+16], %f2;\nst.shared.f32 [%r4+20], %f5;")  # fmt: skip
TWO = TWO.replace("READS", "ld.shared.f32 %f7, [%r6+16];\nld.shared.f32 %f8, [%r6+20];")
TWO = TWO.replace("STORE", "st.global.v2.f32 [%d5], {%f7, %f8};")


def test_a_value_is_followed_through_shared_memory_with_different_layouts(compare):
    space = ".shared .align 16 .b8 part[512];\n"
    base, two = (k.replace(HEADER, HEADER + space) for k in (kernel(ONE), pairs(TWO)))
    assert "equal: all" in compare(two, base=base)[1]
    code, said = compare(two.replace("mul.rn.f32 %f5", "mul.rz.f32 %f5"), base=base)
    assert code == 1
    part = traces(said)
    assert "mul.rz.f32 %f5" in part
    assert "mul.rn.f32 %f2" in part
    assert "went through 1 other thread to the store" in part


def test_a_fault_has_no_counterpart_in_the_other_file(compare):
    code, said = compare(pairs(PAIRS.replace("[%d4];", "[%d4+-16];")))
    assert code == 1
    part = traces(said)
    assert "other.ptx makes an illegal access: out of bounds" in part
    assert "no thread of the other file corresponds" in part
    assert "base.ptx:" not in part


def test_a_store_whose_register_cannot_be_determined_is_reported(compare):
    """An atomic operation stores a value that no register holds."""
    adds = PAIRS.replace(
        "st.global.v2.f32 [%d5], {%f7, %f8};",
        """st.global.f32 [%d5], %f7;
mov.f32 %f11, 0f00000000;
st.global.f32 [%d5+4], %f11;
add.rn.f32 %f12, %f8, 0f3F800000;
atom.global.add.f32 %f13, [%d5+4], %f12;
atom.global.add.f32 %f13, [%d5+4], 0f3F800000;""",
    )
    code, said = compare(pairs(adds))
    assert code == 1
    assert "the register of other.ptx that holds it cannot be determined" in traces(said)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ["--grid", "1", "--grid", "1", "--grid", "1"],
            "--grid is given 3 times; give it once for both files, or once for each",
        ),
        (["--shared", "0", "--shared", "0", "--shared", "0"], "--shared is given 3 times"),
        (["--like", "cases/cuda_fma.py"], "--like names two cases"),
    ],
)
def test_wrong_options_for_two_files_are_errors(compare, words, why):
    code, said = compare(pairs(), *words)
    assert (code, why in said) == (2, True), said


def test_files_that_would_run_on_different_inputs_are_refused():
    one, other = Key("c", "a", "sm_90a", "emulator", shape="64"), Key("c", "b", "sm_90a", "emulator", shape="65")
    with pytest.raises(CaseError, match=r"different inputs: .*64.*65"):
        require_same_inputs([(one, None)], [(other, None)])
    with pytest.raises(CaseError, match="different inputs"):
        require_same_inputs([(one, None)], [])


@pytest.mark.slow
def test_the_kernels_of_nvcc_and_triton_for_one_case(tmp_path, capsys):
    """The case's own CUDA kernel, and Triton's kernel of its variant in plain Triton, compiled here."""
    pytest.importorskip("triton")
    from ptxdiff.backends.compiled import compile_job
    from ptxdiff.backends.emulator import EmulatorBackend
    from ptxdiff.model.load import load
    from ptxdiff.running.item import Item
    from ptxdiff.running.run import jobs

    path = Path(__file__).parents[2] / "cases" / "cuda_fma.py"
    (loaded,) = load(path)
    _, job = next(iter(jobs(Item(loaded, "triton", "sm_90a", "emulator"), EmulatorBackend(), "quick")))
    text = compile_job(job).compilation.ptx
    assert text.count("fma.rn.f32")
    launch = ["--grid", "ceil(n/256)", "--parameters", "x,y,z,d,n"]
    launch += ["--parameters", ",".join(["x", "y", "z", "d", "n", *["0"] * (text.count(".param .") - 5)])]
    files = [str(path.with_suffix(".ptx")), str(tmp_path / "triton.ptx")]
    for made, code in ((text, 0), (text.replace("fma.rn.f32", "fma.rz.f32", 1), 1)):
        (tmp_path / "triton.ptx").write_text(made)
        assert main(["compare", *files, "--like", f"{path}::cuda", *launch]) == code
        said = capsys.readouterr().out
        assert ("equal: all" in said) == (code == 0)
    assert "fma.rz.f32" in traces(said)
    assert "cuda_fma.ptx:51  fma.rn.f32 %f4" in traces(said)


def test_both_kernels_of_these_tests_compute_the_same():
    assert BODY.count("0f40466666") == 1
    assert PAIRS.count("0f40466666") == 2
