"""The gpu backend on a device: bits, faults, and that the kernel compiled ahead is the kernel that runs."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU: torch finds no CUDA device"),
]

PATH = Path(__file__).resolve().parents[1] / "backends" / "backend_cases.py"


def load_cases():
    spec = importlib.util.spec_from_file_location("backend_cases", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("backend_cases", module)
    spec.loader.exec_module(module)
    return module


cases = load_cases()


@pytest.fixture(scope="module")
def backend():
    from ptxdiff.backends import create

    return create("gpu")


def job(case, variant, inputs, target=None, **setup):
    from ptxdiff.backends.gpu import device_target
    from ptxdiff.jobs import Job, Setup

    found = getattr(cases, case)
    return Job(found, case, PATH, variant, found.variants[variant], target or device_target(), Setup(**setup), inputs)


def floats(shape, seed):
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * 100
    return values.view(np.uint32).reshape(shape)


def bytes_and_floats(shape, seed=5):
    return {"a": np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8), "b": floats(shape, seed + 1)}


SHAPES = [(1,), (255,), (256,), (257,), (1031,), (4096,), (7, 129), (16, 64)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pack", [1, 2, 4])
@pytest.mark.parametrize("alignment", [16, 4])
def test_a_sum_equals_the_host_s(backend, shape, pack, alignment):
    inputs = {"x": floats(shape, 1), "y": floats(shape, 2)}
    expected = (inputs["x"].view(np.float32) + inputs["y"].view(np.float32)).view(np.uint32)
    for variant in ("asm", "plain"):
        setup = {"shape": shape, "alignment": alignment, "pack": pack if variant == "asm" else 1}
        outcome = backend.run(job("addition", variant, inputs, **setup))
        assert (outcome.status, outcome.words, outcome.findings) == ("ran", "", ())
        assert outcome.evidence == "hardware"
        np.testing.assert_array_equal(outcome.outputs["z"], expected)


def running_maximum(inputs):
    converted = inputs["a"].astype(np.int32)
    return converted, np.maximum(converted.astype(np.float32), inputs["b"].view(np.float32)).view(np.uint32)


@pytest.mark.parametrize("num_warps", [1, 4])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("context", "steps"), [("straight", 1), ("loop", 1), ("loop", 5)])
def test_a_maximum_with_early_clobbers_and_in_triton_equals_the_host_s(backend, shape, context, steps, num_warps):
    inputs = bytes_and_floats(shape)
    converted, maximum = running_maximum(inputs)
    for variant, pack in (("clobbers", 4), ("plain", 1)):
        setup = {"shape": shape, "pack": pack, "context": context, "steps": steps, "num_warps": num_warps}
        outcome = backend.run(job("maximum", variant, inputs, **setup))
        assert (outcome.status, outcome.words, outcome.findings) == ("ran", "", ())
        np.testing.assert_array_equal(outcome.outputs["c"].view(np.int32), converted)
        np.testing.assert_array_equal(outcome.outputs["d"], maximum)


def test_the_documented_maximum_is_right_in_straight_code_and_wrong_in_a_loop(backend):
    """Without early clobbers the loop shares a register between an output and an input not yet read."""
    inputs = bytes_and_floats((512,))
    _, maximum = running_maximum(inputs)
    straight = backend.run(job("maximum", "documented", inputs, shape=(512,), block=512, pack=4))
    np.testing.assert_array_equal(straight.outputs["d"], maximum)
    loop = backend.run(job("maximum", "documented", inputs, shape=(512,), block=512, pack=4, context="loop", steps=4))
    assert loop.status == "ran"
    assert (loop.outputs["d"] != maximum).sum() > 0


@pytest.mark.parametrize("shape", [(1000,), (16,), (5, 33)])
@pytest.mark.parametrize("context", ["straight", "loop"])
def test_the_kernel_compiled_ahead_is_the_kernel_that_runs(shape, context):
    from ptxdiff.backends import gpu
    from ptxdiff.backends.gpu import device_target
    from ptxdiff.triton.launch import launch_of
    from ptxdiff.triton.ptx_text import body

    inputs = bytes_and_floats(shape)
    asked = job("maximum", "clobbers", inputs, shape=shape, pack=4, context=context, steps=3)
    launch = launch_of(asked)
    buffers = {
        t.name: gpu._DeviceTensor(t, 16, 0xA5, inputs.get(t.name), written=t in launch.outputs) for t in launch.tensors
    }
    kernel = gpu.start(asked, launch, {name: b.device for name, b in buffers.items()})
    assert body(kernel.asm["ptx"]) == body(launch.build(device_target()).compilation.ptx)


SIZES = {"M": 5, "N": 40}


def test_whole_kernels_run_and_their_faults_are_found(backend):
    units = np.random.default_rng(3).integers(0, 2**16, (5, 40)).astype(np.uint16)
    run = {v: backend.run(job("rows", v, {"x_ptr": units}, sizes=SIZES)) for v in ("copy", "shifted", "half", "input")}
    assert {o.status for o in run.values()} == {"ran"}
    np.testing.assert_array_equal(run["copy"].outputs["y_ptr"], units)
    assert run["copy"].findings == ()
    assert run["shifted"].findings == (
        "16 bytes outside y_ptr were overwritten, first 0 past its end",
        "16 bytes of y_ptr were never written, first byte 0",
    )
    assert run["half"].findings == ("200 bytes of y_ptr were never written, first byte 200",)
    assert run["input"].findings[0].startswith("x_ptr is an input and ")


def test_refusals_leave_the_device_usable(backend):
    inputs = {"x": floats((64,), 1), "y": floats((64,), 2)}
    assert backend.run(job("addition", "misspelt", inputs, shape=(64,))).status == "error"
    assert "list 1 and 1" in backend.run(job("addition", "one too few", inputs, shape=(64,))).words
    assert backend.run(job("addition", "asm", inputs, target="sm_80", shape=(64,))).status == "not run"
    assert backend.run(job("addition", "asm", inputs, shape=(64,))).status == "ran"


def test_an_illegal_address_is_an_error_and_the_next_kernel_runs(backend):
    """The fault destroys the CUDA context, so another process takes over."""
    from ptxdiff.backends.gpu import device_target
    from ptxdiff.jobs import Job, Setup

    units = np.random.default_rng(4).integers(0, 2**16, (5, 40)).astype(np.uint16)

    def run(variant):
        setup, target = Setup(sizes=SIZES), device_target()
        return backend.run(
            Job(cases.rows, "rows", PATH, variant, cases.rows.variants[variant], target, setup, {"x_ptr": units})
        )

    wild = run("far")
    assert wild.status == "error"
    assert "illegal memory access" in wild.words
    after = run("copy")
    assert after.status == "ran"
    np.testing.assert_array_equal(after.outputs["y_ptr"], units)


def test_a_tensor_is_updated_in_place(backend):
    """Each launch starts from the original input, unwritten elements keep its bits, and guard zones are checked."""
    rng = np.random.default_rng(6)
    inputs = {n: rng.integers(0, 1 << 32, 200, dtype=np.uint32) for n in ("x_ptr", "d_ptr")}
    before = {n: units.copy() for n, units in inputs.items()}
    run = {v: backend.run(job("in_place", v, inputs, sizes={"N": 200})) for v in cases.in_place.variants}
    assert {o.status for o in run.values()} == {"ran"}
    for name, units in inputs.items():
        np.testing.assert_array_equal(units, before[name])
    total = inputs["x_ptr"] + inputs["d_ptr"]
    np.testing.assert_array_equal(run["right"].outputs["x_ptr"].view(np.uint32), total)
    assert run["right"].findings == run["not all"].findings == ()
    np.testing.assert_array_equal(run["not all"].outputs["x_ptr"].view(np.uint32)[:3], inputs["x_ptr"][:3])
    np.testing.assert_array_equal(run["not all"].outputs["x_ptr"].view(np.uint32)[3:], total[3:])
    # Each of two elements past the end becomes its pattern plus 1: one byte of each differs.
    assert run["beyond"].findings[0].startswith("2 bytes outside x_ptr were overwritten, first 0 past its end")
    assert run["input"].findings[0].startswith("d_ptr is an input and ")
