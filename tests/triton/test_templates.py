"""The elementwise kernels: every number of arguments, both ranks, both contexts, and the results of a user's
function."""

import re
from pathlib import Path

import pytest

from ptxdiff.triton.compile import compile_kernel
from ptxdiff.triton.diagnostics import Refusal
from ptxdiff.triton.elementwise import Elementwise, InlineAsm, PlainFunction
from ptxdiff.triton.spec import Compilation, FunctionRef
from tests.support.documented import EIGHT, FIVE, U8_MAX

SAMPLES = str(Path(__file__).with_name("sample_kernels.py"))


def u8_max(outputs=EIGHT, **setup):
    return Elementwise(InlineAsm(U8_MAX, f"{outputs},{FIVE}", 4), ("u8", "fp32"), ("i32", "fp32"), **setup)


def sample(name, inputs=("fp32",), outputs=("fp32",), constants=(), **setup):
    function = PlainFunction(FunctionRef("sample_kernels", SAMPLES, name), constants)
    return Elementwise(function, inputs, outputs, (1000,), **setup)


def ptx(kernel, target="sm_90a", fusion=False):
    compiled = compile_kernel(kernel.spec(target, enable_fp_fusion=fusion))
    assert isinstance(compiled, Compilation), compiled
    return compiled.ptx


def maxima(text):
    """For each `max.f32 a, b, c` in the asm, whether the carried input has the output's register."""
    found = re.findall(r"max\.f32 (%\w+), (%\w+), (%\w+);", text)
    assert found
    return [source == result for result, _, source in found]


@pytest.mark.sample(3)
@pytest.mark.parametrize("shape", [(1,), (16,), (1000,), (7, 129), (64, 64), (1, 1)])
@pytest.mark.parametrize("carry", [None, (-1, 1)])
def test_two_inputs_and_two_outputs_compile_for_every_shape_class(shape, carry):
    text = ptx(u8_max(shape=shape, carry=carry))
    assert text.count("ptxdiff:begin") == text.count("ptxdiff:end") >= 1
    assert ("bra" in text) == (carry is not None)


def test_a_loop_shares_registers_between_a_carried_output_and_its_input():
    """Without early clobber LLVM gives both one register, and the asm reads the value that it has just written."""
    assert any(maxima(ptx(u8_max(shape=(4096,), block=1024, carry=(-1, 1)))))


def test_early_clobbers_keep_the_registers_apart():
    clobbers = EIGHT.replace("=r", "=&r")
    assert not any(maxima(ptx(u8_max(clobbers, shape=(4096,), block=1024, carry=(-1, 1)))))


def test_the_straight_context_shares_no_registers():
    assert not any(maxima(ptx(u8_max(shape=(4096,), block=1024))))


def test_the_loop_stays_a_loop_for_any_number_of_steps():
    one = u8_max(shape=(1000,), carry=(-1, 1), steps=1).spec("sm_90a", enable_fp_fusion=False)
    many = u8_max(shape=(1000,), carry=(-1, 1), steps=16).spec("sm_90a", enable_fp_fusion=False)
    assert one == many


@pytest.mark.parametrize("arity", [1, 3, 6])
def test_any_number_of_inputs_and_outputs(arity):
    asm = "\n".join(f"mov.b32 ${i}, ${i + arity};" for i in range(arity))
    constraints = ",".join(["=&r"] * arity + ["r"] * arity)
    text = ptx(Elementwise(InlineAsm(asm, constraints), ("fp32",) * arity, ("fp32",) * arity, (1000,)))
    assert len(re.findall(r"\.param \.u64", text)) == 2 * arity + 2  # and Triton's two scratch pointers


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "element", ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "fp16", "bf16", "fp32", "fp64"]
)
def test_every_element_type_loads_and_stores_unchanged(element):
    wide = element.endswith("64")
    letter = "l" if wide else "r"
    asm = f"mov.b{64 if wide else 32} $0, $1;"
    pack = max(1, 32 // int(re.sub(r"\D", "", element)))
    kernel = Elementwise(InlineAsm(asm, f"={letter},{letter}", pack), (element,), (element,), (1024,))
    assert not re.search(r"\bcvt\.\w*f", ptx(kernel))


def test_alignment_decides_how_wide_the_loads_are():
    copy = InlineAsm("mov.b32 $0, $1;", "=r,r")
    wide = ptx(Elementwise(copy, ("fp32",), ("fp32",), (1024,), block=512))
    narrow = ptx(Elementwise(copy, ("fp32",), ("fp32",), (1024,), block=512, alignment=4))
    assert "ld.global.v4" in wide
    assert "ld.global.v" not in narrow


def test_a_function_may_return_one_tensor_or_several():
    assert "div.full.f32" in ptx(sample("reciprocal"))
    stores = ptx(sample("reciprocal")).count("st.global")
    assert ptx(sample("both", outputs=("fp32", "fp32"))).count("st.global") == 2 * stores


def test_constants_follow_the_inputs_of_a_function():
    elements = 2  # elements of a thread: 256 of a program, 4 warps
    for n in (1, 3):
        products = re.findall(r"\bmul(?:\.rn)?\.f32", ptx(sample("powers", constants=(n, 3.0))))
        assert len(products) == n * elements


def test_a_function_in_the_loop_context():
    assert "bra" in ptx(sample("reciprocal", carry=(0,)))


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (sample("both"), "does not return one tensor for each output"),
        (sample("to_half"), "a result's type is not its output's"),
        (sample("unknown_name"), "nowhere is not defined"),
        (sample("nothing_there"), "has no function nothing_there"),
        (sample("reciprocal", inputs=("fp32", "fp32")), "positional argument"),
    ],
)
def test_a_fault_in_a_function_is_named(kernel, words):
    refusal = compile_kernel(kernel.spec("sm_90a", enable_fp_fusion=False))
    assert isinstance(refusal, Refusal)
    assert refusal.kind == "error"
    assert words in refusal.words
    assert "\n" not in refusal.words


def test_a_type_that_the_target_lacks_is_unsupported():
    kernel = sample("both", inputs=("fp8e4nv",), outputs=("fp8e4nv", "fp8e4nv"))
    refusal = compile_kernel(kernel.spec("sm_80", enable_fp_fusion=False))
    assert isinstance(refusal, Refusal)
    assert refusal.kind == "unsupported"


def test_fusion_is_passed_on():
    kernel = sample("multiply_add", inputs=("fp32", "fp32"))
    assert "fma.rn.f32" in ptx(kernel, fusion=True)
    assert "fma.rn.f32" not in ptx(kernel, fusion=False)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shape": ()}, "one or two dimensions"),
        ({"shape": (1, 2, 3)}, "one or two dimensions"),
        ({"shape": (2**31,)}, "32 bits"),
        ({"shape": (8,), "block": 100}, "power of two"),
    ],
)
def test_a_setup_that_cannot_be_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        u8_max(**changes)


def test_rows_have_a_gap_that_keeps_their_divisibility():
    assert u8_max(shape=(4, 64)).row_stride == 80
    assert u8_max(shape=(4, 65)).row_stride == 66
    assert u8_max(shape=(4, 65)).extent == 3 * 66 + 65
    assert u8_max(shape=(0, 65)).extent == 0


def test_tiles_cover_the_shape():
    kernel = u8_max(shape=(5, 300), block=256)
    assert kernel.tile == (1, 256)
    assert kernel.grid == (5, 2)
    assert u8_max(shape=(5, 3), block=256).tile == (64, 4)
