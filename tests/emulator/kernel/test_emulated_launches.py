"""Launches of Triton kernels print, stop and refuse arguments as Triton and CUDA do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed; it compiles the kernels of these tests")

from ptxdiff import emulated
from ptxdiff.emulator import PtxError
from ptxdiff.emulator.errors import ExecutionError, MemoryFault, UndefinedBits
from ptxdiff.launcher import LaunchError
from tests.support.emulator import triton_kernels as k

X, TARGET = np.arange(32, dtype=np.int32), "sm_90a"


def launch(kernel: Any, *args: Any, grid: Any = (1,), **more: Any) -> Any:
    return emulated(kernel, TARGET)[grid](*args, **more)


def test_device_print_prints(capsys: pytest.CaptureFixture[str]) -> None:
    y = np.zeros_like(X)
    launch(k.asserts_and_prints, X, y, B=32, num_warps=1)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"pid (0, 0, 0) idx ({n:2}) a: {n}" for n in range(32)]
    np.testing.assert_array_equal(y, X)


@pytest.mark.parametrize("how", ["debug=True", "TRITON_DEBUG"])
def test_device_assert_stops_with_its_message_and_place(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"debug": True} if how == "debug=True" else {}
    if not more:
        monkeypatch.setenv("TRITON_DEBUG", "1")
    y = np.zeros_like(X)
    launch(k.asserts_and_prints, X, y, B=32, num_warps=1, **more)
    words = r"device assertion failed in thread 7 of block .*: too large \(.*triton_kernels\.py:163"
    with pytest.raises(ExecutionError, match=words):
        launch(k.asserts_and_prints, np.where(X == 7, 100, X).astype(np.int32), y, B=32, num_warps=1, **more)


def test_assertions_are_left_out_without_debug() -> None:
    launch(k.asserts_and_prints, X + 1000, np.zeros_like(X), B=32, num_warps=1)


@pytest.mark.parametrize("n", [5, -7])
def test_a_constexpr_under_constraint_n(n: int) -> None:
    y = np.zeros_like(X)
    launch(k.adds_constant, X, y, N=n, B=32, num_warps=1)
    np.testing.assert_array_equal(y, X + n)


def test_a_store_to_a_read_only_array_is_refused() -> None:
    y = np.zeros_like(X)
    y.flags.writeable = False
    with pytest.raises(MemoryFault, match=r"stores to y, whose array is read-only"):
        launch(k.adds_constant, X, y, N=5, B=32, num_warps=1)
    frozen = X.copy()
    frozen.flags.writeable = False
    launch(k.adds_constant, frozen, np.zeros_like(X), N=5, B=32, num_warps=1)


def test_an_undefined_part_of_a_join_is_reported() -> None:
    x = np.arange(32, dtype=np.int16)
    with pytest.raises(UndefinedBits, match="a store to y"):
        launch(k.joins_unwritten, x, np.zeros(64, np.int16), B=32, num_warps=1)


@pytest.mark.parametrize("warps", [0, 3, 64, "4"])
def test_impossible_numbers_of_warps_are_refused(warps: Any) -> None:
    with pytest.raises(LaunchError, match="num_warps="):
        launch(k.adds_constant, X, np.zeros_like(X), N=5, B=32, num_warps=warps)


@pytest.mark.parametrize("grid", [(2**31,), (1, 65536), (1, 1, 65536), (-1,), (1.5,)])
def test_grids_that_cuda_refuses_are_refused(grid: Any) -> None:
    with pytest.raises(PtxError, match="grid"):
        launch(k.adds_constant, X, np.zeros_like(X), N=5, B=32, num_warps=1, grid=grid)
