"""`ptxdiff.emulating`: a Triton file runs unchanged, and unsupported actions are refused."""

from __future__ import annotations

import math
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed; it compiles the kernels of these tests")

import triton
import triton.profiler

from ptxdiff import emulating
from ptxdiff.emulator.errors import MemoryFault
from ptxdiff.launcher import LaunchError
from ptxdiff.references import tensor_core
from ptxdiff.references.formats import F16, F32
from tests.support.sampling import only

FILE = Path(__file__).parent / "whole_file.py"
GENERATIONS = {
    "sm_80": tensor_core.AMPERE, "sm_90a": tensor_core.HOPPER_WGMMA, "sm_100a": tensor_core.BLACKWELL,
}  # fmt: skip


def codes(tensor: Any) -> torch.Tensor:
    view = {2: torch.int16, 4: torch.int32}[tensor.element_size()]
    return tensor.contiguous().view(view).to(torch.int64) & ((1 << 8 * tensor.element_size()) - 1)


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", only(GENERATIONS, ["sm_80", "sm_100a"]))  # `session` runs it for the third
def test_a_file_runs_unchanged(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(1)
    with emulating(target):
        found = runpy.run_path(str(FILE))["FOUND"]
    assert found["capability"] == {"sm_80": (8, 0), "sm_90a": (9, 0), "sm_100a": (10, 0)}[target]
    x, y = found["products"]
    zero = torch.zeros((64, 32), dtype=torch.int64)
    expected = tensor_core.dot(
        codes(x), codes(x[:32].T), zero, a_format=F16, b_format=F16, c_format=F32, d_format=F32,
        generation=GENERATIONS[target],
    )  # fmt: skip
    assert torch.equal(codes(y), expected), "reset_to_zero made zeros of the sevens"
    for size, array in zip((3, 40, 64), found["tables"], strict=True):
        assert torch.equal(array, torch.arange(size) * 2.0)
    assert found["config"] == {"BLOCK": 32}, "the first that no static_assert refuses"
    assert all(map(math.isnan, found["time"]))
    assert sorted(line for line in capsys.readouterr().err.splitlines() if "cannot measure times" in line) == [
        "do_bench: called its function once, and gave NaN, because the emulator cannot measure times",
        "measured: not run, because the emulator cannot measure times",
        "the profile decorated: not made, because the emulator cannot measure times",
        "the profile tables: not made, because the emulator cannot measure times",
    ]


@pytest.fixture
def session() -> Any:
    with emulating("sm_90a"):
        yield runpy.run_path(str(FILE))


def test_an_access_beyond_a_tensor_in_a_table_is_named(session: Any) -> None:
    """Addresses that host code gets are as far apart as those of arguments, though the tensors may be closer in
    memory."""
    session["tables"](sizes=(8, 8), said=(8, 8))
    with pytest.raises(MemoryFault, match=r"out of bounds: .* of the tensor at 0x\w+, which has 32 bytes"):
        session["tables"](sizes=(8, 8), said=(9, 8))


def test_a_kernel_is_compiled_first_and_launched_by_position(session: Any) -> None:
    """As in the tutorial of the fused softmax, whose grid follows from the registers that the kernel uses."""
    properties = triton.runtime.driver.active.utils.get_device_properties(0)
    array = torch.arange(40, dtype=torch.float32)
    assert array.is_cuda
    given = torch.tensor([array.data_ptr()]), torch.tensor([40], dtype=torch.int32), 1
    kernel = session["doubled"].warmup(*given, BLOCK=64, num_warps=2, grid=(1,))
    kernel._init_handles()
    assert 0 < kernel.n_regs <= 255
    assert kernel.metadata.num_warps == 2
    assert properties["max_num_regs"] // (kernel.n_regs * properties["warpSize"] * 2) > 1
    assert array.tolist() == [*range(40)], "nothing was launched yet"
    kernel[(1, 1, 1)](*given, 64)
    assert array.tolist() == [2 * x for x in range(40)]
    with pytest.raises(MemoryFault, match="out of bounds"):
        kernel[(1,)](given[0], torch.tensor([41], dtype=torch.int32), 1, 64)


def test_a_deleted_tensor_is_in_no_buffer(session: Any) -> None:
    address = torch.zeros(8).data_ptr()
    with pytest.raises(MemoryFault, match="lies in no buffer"):
        session["doubled"][(1,)](torch.tensor([address]), torch.tensor([8], dtype=torch.int32), 1, BLOCK=8)


def test_addresses_are_those_of_storages(session: Any) -> None:
    """A view's address is as far behind its tensor's as its elements are, and gives the kernel access to the whole
    storage."""
    whole = torch.arange(16, dtype=torch.float32)
    assert whole[4:].data_ptr() - whole.data_ptr() == 16
    assert whole.data_ptr() % 16 == 0
    sizes = torch.tensor([4], dtype=torch.int32)
    session["doubled"][(1,)](torch.tensor([whole[4:8].data_ptr()]), sizes, 1, BLOCK=4)
    assert whole.tolist() == [0, 1, 2, 3, 8, 10, 12, 14, *range(8, 16)]


def test_an_argument_that_is_also_in_a_table_is_one_memory(session: Any) -> None:
    table = torch.zeros(2, dtype=torch.int64)
    table[0] = table[1:].data_ptr()
    session["doubled"][(1,)](table, torch.tensor([2], dtype=torch.int32), 1, BLOCK=2)
    assert table.view(torch.float32)[2:].tolist() == [0.0, 0.0]


def test_an_unwritten_argument_whose_address_is_in_memory_is_refused(session: Any) -> None:
    table = torch.zeros(2, dtype=torch.int64)
    table[0] = table[1:].data_ptr()
    with pytest.raises(LaunchError, match="unwritten= names table, whose address the kernel finds in memory too"):
        session["doubled"][(1,)](table, torch.tensor([2], dtype=torch.int32), 1, BLOCK=2, unwritten=("table",))


def test_the_second_launch_keeps_the_choice_and_resets_nothing(session: Any) -> None:
    x, y = session["products"]()
    assert torch.allclose(y[:32], x[:32].float() @ x[:32].float().T + 7, atol=1e-3)


def test_an_error_of_a_kernel_is_raised_and_skips_no_configuration(session: Any) -> None:
    x = session["TensorDescriptor"].from_tensor(torch.randn((64, 64), dtype=torch.float16), [1, 1])
    with pytest.raises(MemoryFault, match="out of bounds"):
        session["gram"][(2,)](x, torch.zeros((16, 32)), 65)


def test_if_no_configuration_runs_the_error_names_all(session: Any) -> None:
    tuner = session["gram"]
    tuner.configs = [triton.Config({"BLOCK": size}) for size in (128, 256)]
    with pytest.raises(LaunchError, match=r"no configuration of the autotuner runs: .*BLOCK: 128.*BLOCK: 256"):
        session["products"](n=96)


def test_everything_is_restored() -> None:
    def replaced() -> list[Any]:
        proton = triton.profiler, sys.modules["triton.profiler.profile"]
        mark = triton.testing.Mark
        return [
            triton.runtime.JITFunction.run, triton.testing.do_bench, torch.cuda.get_device_capability, mark.run,
            *(getattr(m, name) for m in proton for name in ("start", "activate", "deactivate", "finalize")),
        ]  # fmt: skip

    before = replaced()
    active = triton.runtime.driver._active
    with pytest.raises(ZeroDivisionError), emulating("sm_80"):
        torch.empty(1 // 0, device="cuda")
    assert before == replaced()
    assert triton.runtime.driver._active is active
    tensor = torch.zeros(4)
    assert tensor.numpy().ctypes.data == tensor.data_ptr()


def test_unsupported_actions_are_refused(session: Any) -> None:
    with pytest.raises(LaunchError, match=r"emulating\(\) within emulating\(\)"), emulating("sm_80"):
        pass
    with pytest.raises(LaunchError, match="driver has no 'launcher_cls'"):
        triton.runtime.driver.active.launcher_cls  # noqa: B018
    with pytest.raises(ValueError, match="no target"), emulating("gfx90a"):
        pass


def test_host_code_gets_the_chosen_number_of_multiprocessors() -> None:
    with emulating("sm_90a"):
        assert torch.cuda.get_device_properties("cuda").multi_processor_count == 132
    with emulating("sm_90a", processors=2):
        assert torch.cuda.get_device_properties("cuda").multi_processor_count == 2
