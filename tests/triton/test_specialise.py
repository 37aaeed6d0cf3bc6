"""The harness specialises arguments as Triton does."""

import importlib.util
from pathlib import Path

import pytest

from ptxdiff.triton.spec import Constant, FunctionRef, Parameters, PointerType, integer_type, specialise

triton = pytest.importorskip("triton")
torch = pytest.importorskip("torch")

_file = Path(__file__).with_name("sample_kernels.py")
_spec = importlib.util.spec_from_file_location("sample_kernels_for_specialise", _file)
samples = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(samples)


def triton_says(function, values):
    """Signature, constants and divisible places as Triton's launcher derives them, without a device."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    backend = make_backend(GPUTarget("cuda", 90, 32))
    binder = triton.runtime.jit.create_function_from_signature(function.signature, function.params, backend)
    bound, specialization, options = binder(**values, debug=False)
    _, signature, constants, attributes = function._pack_args(
        backend, {"enable_fp_fusion": False}, bound, specialization, options
    )
    divisible = {place for place, found in attributes.items() if ["tt.divisibility", 16] in found}
    return signature, constants, divisible


def we_say(function, values):
    spec = specialise(
        FunctionRef("m", "p", "q"), values, Parameters.of(function), target="sm_90a", enable_fp_fusion=False
    )
    return dict(spec.signature), dict(spec.constants), set(spec.divisible)


def plain(value):
    """Triton's constants, unwrapped."""
    return getattr(value, "value", value)


@pytest.mark.parametrize("number", [0, 1, 2, 15, 16, 17, -16, 2**31 - 1, 2**31, 2**40, -(2**31), -(2**31) - 1, 2**63])
@pytest.mark.parametrize("offset", [0, 1])
def test_a_kernel_s_arguments(number, offset):
    x = torch.zeros(64, dtype=torch.float32)[offset:]
    y = torch.zeros(64, dtype=torch.bfloat16)[8 * offset :]
    numbers = {"M": number, "N": 7, "stride": number, "factor": 1.5}
    theirs = triton_says(samples.scale_rows, {"x_ptr": x, "y_ptr": y, **numbers, "BLOCK": 64})
    pointers = {"x_ptr": PointerType("fp32", offset == 0), "y_ptr": PointerType("bf16")}
    ours = we_say(samples.scale_rows, {**pointers, **numbers, "BLOCK": 64})
    assert ours[0] == theirs[0]
    assert ours[1] == {place: plain(value) for place, value in theirs[1].items()}
    assert ours[2] == theirs[2]


@pytest.mark.parametrize("number", [1, 16, 3])
def test_an_annotated_size_keeps_its_type(number):
    values = {"M": 5, "N": number, "stride": 5, "factor": 1.0, "BLOCK": 64}
    x = torch.zeros(64, dtype=torch.float32)
    theirs = triton_says(samples.scale_rows, {"x_ptr": x, "y_ptr": x, **values})
    ours = we_say(samples.scale_rows, {"x_ptr": PointerType("fp32"), "y_ptr": PointerType("fp32"), **values})
    assert ours[0]["N"] == theirs[0]["N"] == "i64"
    assert ours[2] == theirs[2]


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("size", [1, 16, 33])
def test_the_templates_arguments(rank, size):
    from ptxdiff.triton import templates
    from ptxdiff.triton.elementwise import Elementwise, InlineAsm

    asm = InlineAsm("mov.b32 $0, $1;", "=r,r")
    kernel = Elementwise(asm, ("fp32", "u8"), ("fp16",), (size,) * rank, carry=(-1, 0), steps=16)
    tensors = {t: torch.zeros(64, dtype=t) for t in (torch.float32, torch.uint8, torch.float16)}
    ins, outs = (tensors[torch.float32], tensors[torch.uint8]), (tensors[torch.float16],)
    function = getattr(templates, kernel.template)
    arguments = kernel.arguments(ins, outs, triton.language.constexpr)
    signature, constants, divisible = triton_says(function, arguments)
    spec = kernel.spec("sm_90a", enable_fp_fusion=False)
    assert dict(spec.signature) == signature
    assert dict(spec.constants) == {place: plain(value) for place, value in constants.items()}
    assert set(spec.divisible) == divisible


def test_values_that_triton_cannot_pass_are_refused():
    with pytest.raises(TypeError, match="64 bits"):
        integer_type(2**64)
    with pytest.raises(TypeError, match=r"^x: Triton accepts no list"):
        specialise(FunctionRef("m", "p", "q"), {"x": [1]}, Parameters(), target="sm_90a", enable_fp_fusion=False)
    with pytest.raises(TypeError, match=r"^x: Triton accepts no str .*'N' is one.* is in sizes="):
        specialise(FunctionRef("m", "p", "q"), {"x": "N"}, Parameters(), target="sm_90a", enable_fp_fusion=False)


def test_tuples_may_hold_compile_time_values():
    spec = specialise(
        FunctionRef("m", "p", "q"), {"t": (PointerType("fp32"), Constant("c"), 3)}, Parameters(), target="sm_90a",
        enable_fp_fusion=False,
    )  # fmt: skip
    assert spec.signature == (("t", ("*fp32", "constexpr", "i32")),)
    assert spec.constants == (((0, 1), "c"),)
    assert spec.divisible == ((0, 0),)
