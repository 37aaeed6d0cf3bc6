"""The gpu backend's checks of memory, tested without a device: a Python function replaces the kernel."""

from pathlib import Path

import numpy as np
import pytest

from ptxdiff.backends import gpu
from ptxdiff.backends.gpu import GpuBackend
from ptxdiff.jobs import Job, Setup
from ptxdiff.triton.launch import launch_of
from tests.backends import backend_cases

torch = pytest.importorskip("torch")
PATH = Path(backend_cases.__file__)


@pytest.fixture
def host(monkeypatch):
    """The backend on host memory, its kernel replaced by a Python function of the tensors by name."""
    monkeypatch.setattr(gpu, "DEVICE", "cpu")
    monkeypatch.setattr(gpu, "_synchronize", lambda: None)

    def run(kernel, shape=(33,), **setup):
        inputs = {"x": np.arange(np.prod(shape), dtype=np.uint32).reshape(shape)}
        inputs["y"] = inputs["x"][::-1].copy()
        case = backend_cases.addition
        job = Job(case, "addition", PATH, "asm", case.variants["asm"], "sm_90a", Setup(shape=shape, **setup), inputs)
        monkeypatch.setattr(gpu, "start", lambda job, launch, pointers: kernel(**pointers))
        outcome = gpu.launched(job)
        return inputs, outcome.outputs["z"], outcome.findings

    return run


def copies(x, y, z):
    z.copy_(x)


@pytest.mark.parametrize("shape", [(1,), (33,), (7, 16), (7, 33), (1, 1)])
@pytest.mark.parametrize("alignment", [16, 4])
def test_outputs_are_read_back_bit_for_bit(host, shape, alignment):
    inputs, got, findings = host(copies, shape, alignment=alignment)
    assert got.shape == shape
    assert got.dtype == np.uint32
    np.testing.assert_array_equal(got, inputs["x"])
    assert findings == ()


def test_tensors_have_the_requested_alignment(host):
    addresses = []
    host(lambda x, y, z: (z.copy_(x), addresses.append(x.data_ptr())), alignment=16)
    host(lambda x, y, z: (z.copy_(x), addresses.append(x.data_ptr())), alignment=4)
    assert [a % 16 for a in addresses] == [0, 0, 4, 4]


def test_bytes_that_are_never_written_are_found_even_where_the_poison_is_right(host):
    def all_but_the_last(x, y, z):
        z[:-1] = x[:-1]

    _, _, findings = host(all_but_the_last)
    assert findings == ("4 bytes of z were never written, first byte 128",)


def test_a_store_that_equals_one_poison_is_no_fault(host):
    def stores_the_first_pattern(x, y, z):
        z.view(torch.uint8)[:] = gpu.PATTERNS[0]

    _, got, findings = host(stores_the_first_pattern)
    assert findings == ()
    assert (got == 0xA5A5A5A5).all()


def beyond(tensor, units, offset):
    """The tensor with `units` more elements at its end, or with its start moved back by `offset`."""
    return torch.as_strided(tensor, (tensor.numel() + units,), (1,), tensor.storage_offset() - offset)


def test_a_store_past_the_end_is_found(host):
    def one_too_many(x, y, z):
        z.copy_(x)
        beyond(z, 1, 0)[-1] = 1.0

    _, _, findings = host(one_too_many)
    assert findings == ("4 bytes outside z were overwritten, first 0 past its end",)


def test_a_store_before_the_start_is_found(host):
    def one_before(x, y, z):
        z.copy_(x)
        beyond(z, 0, 2)[0] = 1.0

    _, _, findings = host(one_before)
    assert findings == ("4 bytes outside z were overwritten, first 8 before its start",)


def test_a_store_into_the_gap_between_rows_is_found(host):
    def through_the_gap(x, y, z):
        z.copy_(x)
        z[20] = 1.0  # rows of 16 units begin every 32 units

    _, _, findings = host(through_the_gap, (4, 16))
    assert findings == ("4 bytes outside z were overwritten, first 80 from its start",)


def test_an_overwritten_input_is_found(host):
    def spoils(x, y, z):
        z.copy_(x)
        x[5] = 99.0

    _, _, findings = host(spoils)
    assert findings == ("x is an input and 3 of its bytes were overwritten, first byte 20 from its start",)


def test_an_input_overwritten_at_its_start_is_found(host):
    def spoils(x, y, z):
        z.copy_(x)
        x.view(torch.uint8)[0] = 7

    _, _, findings = host(spoils)
    assert findings == ("x is an input and 1 of its bytes were overwritten, first byte 0 from its start",)


def test_runs_that_differ_are_found(host):
    calls = []

    def counts(x, y, z):
        calls.append(1)
        z.copy_(x)
        z[9] = float(len(calls))

    _, _, findings = host(counts)
    assert findings == ("1 elements of z differ between two runs, first 9",)


def test_an_empty_shape_runs_nothing(host):
    _, got, findings = host(lambda **_: pytest.fail("launched"), (0,))
    assert got.shape == (0,)
    assert findings == ()


def test_without_a_device_nothing_runs_and_a_reason_is_given(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    backend = GpuBackend()
    assert backend.unavailable("sm_90a") == "torch finds no CUDA device"
    case = backend_cases.addition
    outcome = backend.run(Job(case, "addition", PATH, "asm", case.variants["asm"], "sm_90a", Setup(shape=(8,))))
    assert (outcome.status, outcome.words) == ("not run", "torch finds no CUDA device")


def test_tritons_interpreter_is_no_device(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "TRITON_INTERPRET" in GpuBackend().unavailable("sm_90a")


def test_another_devices_target_is_not_run(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    backend = GpuBackend()
    assert backend.unavailable("sm_90a") is None
    assert backend.unavailable("sm_100a") == "the device is sm_90a"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (6, 1))
    assert backend.unavailable("sm_100a") == "the device is sm_61"


def test_after_a_fault_of_the_device_nothing_runs(monkeypatch):
    def lost():
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")

    monkeypatch.setattr(gpu, "_synchronize", lost)
    backend = GpuBackend()
    words = backend._device_fault(RuntimeError("CUDA error: an illegal memory access was encountered\nmore"))
    assert words.startswith("RuntimeError: CUDA error: an illegal memory access was encountered (the kernel accessed")
    assert "context was lost: CUDA error" in backend.unavailable("sm_90a")


@pytest.fixture
def in_place(monkeypatch):
    """Like `host`, for a kernel that updates x_ptr in place."""
    monkeypatch.setattr(gpu, "DEVICE", "cpu")
    monkeypatch.setattr(gpu, "_synchronize", lambda: None)

    def run(kernel, **setup):
        case = backend_cases.in_place
        inputs = {"x_ptr": np.arange(200, dtype=np.uint32), "d_ptr": np.arange(200, dtype=np.uint32)[::-1].copy()}
        setup = Setup(sizes={"N": 200}, **setup)
        job = Job(case, "in_place", PATH, "right", case.variants["right"], "sm_90a", setup, inputs)
        launch = launch_of(job)
        assert [t.name for t in launch.tensors] == ["x_ptr", "d_ptr"]
        monkeypatch.setattr(gpu, "start", lambda job, launch, pointers: kernel(**pointers))
        outcome = gpu.launched(job)
        np.testing.assert_array_equal(inputs["x_ptr"], np.arange(200))
        return outcome.outputs["x_ptr"].view(np.uint32), outcome.findings

    return run


@pytest.mark.parametrize("alignment", [16, 4])
def test_every_launch_in_place_starts_from_the_input(in_place, alignment):
    """Two launches on one copy would add the other input twice."""
    got, findings = in_place(lambda x_ptr, d_ptr: x_ptr.add_(d_ptr), alignment=alignment)
    assert (got == 199).all()
    assert findings == ()


def test_unwritten_elements_of_a_tensor_in_place_hold_the_input(in_place):
    got, findings = in_place(lambda x_ptr, d_ptr: x_ptr[:50].zero_())
    np.testing.assert_array_equal(got[50:], np.arange(50, 200))
    assert findings == ()


def test_stores_beside_a_tensor_in_place_and_runs_that_differ_are_found(in_place):
    calls = []

    def strays(x_ptr, d_ptr):
        calls.append(1)
        x_ptr[7] = len(calls)
        beyond(x_ptr, 1, 0)[-1] = 5
        d_ptr[0] = -1

    _, findings = in_place(strays)
    assert findings == (
        "4 bytes outside x_ptr were overwritten, first 0 past its end",
        "d_ptr is an input and 4 of its bytes were overwritten, first byte 0 from its start",
        "1 elements of x_ptr differ between two runs, first 7",
    )
