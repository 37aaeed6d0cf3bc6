"""Code that does not end is stopped after a time limit, with its current line."""

from __future__ import annotations

import time

import numpy as np
import pytest

from ptxdiff.backends import create
from ptxdiff.emulator import emulate
from ptxdiff.emulator.errors import TimeLimit
from tests.support.emulator.module_text import launch, module

X = np.arange(5, dtype=np.uint32)

LOOPS = (
    "L: bra L;",
    "{ .reg .pred p; setp.ge.u32 p, $1, 0;\nL: add.u32 $0, $1, 1; @p bra L; }",
)


@pytest.mark.parametrize("asm", LOOPS)
def test_an_endless_loop_is_stopped_with_its_line(asm: str) -> None:
    started = time.monotonic()
    with pytest.raises(TimeLimit, match=r"still running after 0.2 s: an endless loop.*limit=") as caught:
        emulate(asm, "=&r,r", [X], "uint32", limit=0.2)
    assert caught.value.line == asm.count("\n") + 1
    assert time.monotonic() - started < 60


def test_ten_seconds_are_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 3))
    monkeypatch.setattr("ptxdiff.emulator.limits.time.monotonic", lambda: float(next(clock)))
    with pytest.raises(TimeLimit, match="after 10 s"):
        emulate(LOOPS[0], "=r,r", [X], "uint32")


def test_code_without_a_branch_has_the_limit_too() -> None:
    with pytest.raises(TimeLimit) as caught:
        emulate("mov.b32 $0, $1;\n" * 2000, "=r,r", [X], "uint32", limit=1e-9)
    assert caught.value.line


def test_compiling_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    from ptxdiff.emulator import limits

    deadline = limits.Deadline(1e-9)
    time.sleep(0.001)
    assert deadline.passed
    limits.compiled_for(100)
    assert not deadline.passed
    monkeypatch.setattr(limits._compiling, "seconds", 0.0)


def test_no_limit() -> None:
    assert (emulate("mov.b32 $0, $1;", "=r,r", [X], "uint32", limit=None) == X).all()


def test_a_kernel_that_does_not_end_is_stopped() -> None:
    text = module("mov.u32 %r1, 0;\nL: add.u32 %r1, %r1, 1;\nbra L;")
    with pytest.raises(TimeLimit, match=r"still running after 0.2 s") as caught:
        launch(text, grid=(1000,), threads=1024, limit=0.2)
    assert "%r1, 1" in caught.value.source or "bra L" in caught.value.source


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Replace the clock by one that advances three seconds at each reading; returns the readings.

    Kernels run step by step: as machine code they read it less often.
    """
    readings: list[int] = []
    monkeypatch.setattr("ptxdiff.emulator.kernel.compiled.launch.WORTH", 1 << 62)

    def monotonic() -> float:
        readings.append(3 * len(readings))
        return float(readings[-1])

    monkeypatch.setattr("ptxdiff.emulator.limits.time.monotonic", monotonic)
    return readings


def test_an_endless_loop_in_one_block_of_many_is_stopped() -> None:
    text = module("mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 1000; @%p1 bra E;\nL: bra L;\nE: ret;")
    with pytest.raises(TimeLimit, match=r"after 0.5 s, \d[\d,]* of 2,000 blocks done: an endless loop") as caught:
        launch(text, grid=(2000,), limit=0.5)
    assert caught.value.source == "L: bra L;"


def test_the_limit_is_for_all_blocks_of_a_grid_together(clock: list[int]) -> None:
    """Blocks that run together read the clock once; after 21 readings 60 s have passed."""
    with pytest.raises(TimeLimit, match=r"after 60 s, [\d,]+ of 1,048,576 blocks done.*limit=None") as caught:
        launch(module("mov.u32 %r1, 0;"), grid=(2**20,))
    assert caught.value.line
    assert len(clock) < 100


def test_the_limit_of_a_kernel_that_runs_as_machine_code(clock: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptxdiff.emulator.kernel.compiled.launch.WORTH", 0)
    with pytest.raises(TimeLimit, match=r"after 60 s, [\d,]+ of 1,048,576 blocks done.*limit=None"):
        launch(module("mov.u32 %r1, 1;"), grid=(2**20,))
    assert len(clock) < 100


def test_the_largest_grid_of_a_kernel_without_a_step_is_stopped(clock: list[int]) -> None:
    text = module("").replace("ret;", "")
    with pytest.raises(TimeLimit, match=r"of 9,223,[0-9,]+ blocks done"):
        launch(text, grid=(2**31 - 1, 65535, 65535))
    assert len(clock) < 100


def test_the_limit_is_for_all_elements_together(clock: list[int]) -> None:
    x = np.zeros(60 << 14, np.uint32)
    for asm in ("mov.b32 $0, $1;", "bra L; L: mov.b32 $0, $1;"):
        with pytest.raises(TimeLimit, match=r"after 31 s, [\d,]+ of 983,040 invocations done"):
            emulate(asm, "=r,r", [x], "uint32", limit=31)


def test_longer_work_ends_with_a_larger_limit(clock: list[int]) -> None:
    x = np.arange(20 << 14, dtype=np.uint32)
    assert (emulate("mov.b32 $0, $1;", "=r,r", [x], "uint32", limit=1e4) == x).all()
    body = module("mov.u32 %r1, 0;")
    with pytest.raises(TimeLimit):
        launch(body, grid=(2**14,))
    assert launch(body, grid=(2**14,), limit=1e4).blocks == 2**14
    assert len(clock) > 40, "more than either default allows"


def test_jobs_take_the_limit_of_the_command_line() -> None:
    assert create("emulator", limit=3.0).limit == 3.0  # type: ignore[attr-defined]
    assert create("emulator").limit == 60.0  # type: ignore[attr-defined]
