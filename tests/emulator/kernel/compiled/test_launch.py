"""Kernels whose threads are independent, as machine code and step by step: bits, counts and errors are the same."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite is not installed; it compiles these kernels")

from ptxdiff.emulator.errors import MemoryFault, TimeLimit, UndefinedBits
from ptxdiff.emulator.kernel.compiled import launch
from ptxdiff.emulator.kernel.run import Buffer, load_kernel, run_kernel
from tests.support.emulator.random_launches import outcome, random_launch
from tests.support.sampling import spread

BODY = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n) .reqntid 64
{{
.reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u32 %r1, [n];
mov.u32 %r2, %ctaid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r2, 64, %r3;
setp.lt.u32 %p1, %r4, %r1; mul.wide.u32 %rd3, %r4, 4;
add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
{body}
END: ret;
}}"""
X = np.arange(256, dtype=np.uint32)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Machine code for every launch, however short; whether its results counted, in each launch."""
    counted: list[bool] = []
    plain = launch.ran

    def ran(grid: Any) -> bool:
        counted.append(plain(grid))
        return counted[-1]

    monkeypatch.setattr(launch, "ran", ran)
    for name in ("WORTH", "ALWAYS"):
        monkeypatch.setattr(launch, name, 0)
    launch._made.clear()
    return counted


def run(body: str, *, x: np.ndarray = X, y: np.ndarray | None = None, n: int = 256, **settings: Any) -> np.ndarray:
    y = np.zeros(256, np.uint32) if y is None else y
    buffers = [Buffer(x.copy(), "x"), Buffer(y, "y", defined=settings.pop("defined", True))]
    run_kernel(load_kernel(BODY.format(body=body)), [*buffers, n], (4,), **settings)
    return y


ADD = "add.u32 %r5, %r5, 3; @%p1 st.global.b32 [%rd5], %r5;"


class TestResultsThatCount:
    def test_an_elementwise_kernel(self, always: list[bool]) -> None:
        y = run("mov.b32 %r5, 0; @%p1 ld.global.b32 %r5, [%rd4];" + ADD, n=250)
        np.testing.assert_array_equal(y, np.where(X < 250, X + 3, 0))
        assert always == [True]

    def test_what_only_storing_threads_load(self, always: list[bool]) -> None:
        """The register is undefined in the other threads, and they do not store it."""
        y = run("@%p1 ld.global.b32 %r5, [%rd4];" + ADD, n=250)
        np.testing.assert_array_equal(y, np.where(X < 250, X + 3, 0))
        assert always == [True]

    @pytest.mark.parametrize("leave", ["@!%p1 ret;", "@!%p1 bra END;"])
    def test_threads_that_leave(self, always: list[bool], leave: str) -> None:
        body = leave + "ld.global.b32 %r5, [%rd4]; add.u32 %r5, %r5, 3; st.global.b32 [%rd5], %r5;"
        np.testing.assert_array_equal(run(body, n=250), np.where(X < 250, X + 3, 0))
        assert always == [True]

    def test_two_ways(self, always: list[bool]) -> None:
        body = """
            ld.global.b32 %r5, [%rd4]; setp.lt.u32 %p2, %r5, 100; @%p2 bra SMALL;
            mul.lo.u32 %r6, %r5, 7; bra BOTH;
            SMALL: mov.b32 %r6, 5;
            BOTH: st.global.b32 [%rd5], %r6;
        """
        np.testing.assert_array_equal(run(body), np.where(X < 100, 5, X * 7))
        assert always == [True]

    def test_a_thread_may_load_what_it_stores(self, always: list[bool]) -> None:
        y = X.copy()
        run("ld.global.b32 %r5, [%rd5]; add.u32 %r5, %r5, 3; st.global.b32 [%rd5], %r5;", y=y)
        np.testing.assert_array_equal(y, X + 3)
        assert always == [True]

    def test_stored_bytes_become_defined(self, always: list[bool]) -> None:
        buffer = Buffer(np.zeros(256, np.uint32), "y", defined=False)
        kernel = load_kernel(BODY.format(body="@%p1 st.global.b32 [%rd5], %r4;"))
        run_kernel(kernel, [Buffer(X.copy()), buffer, 200], (4,))
        assert buffer.unwritten is not None
        np.testing.assert_array_equal(buffer.unwritten.reshape(-1, 4).any(axis=1), X >= 200)
        assert always == [True]


class TestBuffersOfSeveralLaunches:
    def test_what_an_earlier_launch_stored_is_defined(self, always: list[bool]) -> None:
        made = Buffer(np.zeros(256, np.uint32), "made", defined=False)
        y = Buffer(np.zeros(256, np.uint32), "y")
        launches = ("st.global.b32 [%rd5], %r4;", [y, made]), ("ld.global.b32 %r5, [%rd4];" + ADD, [made, y])
        for body, arrays in launches:
            run_kernel(load_kernel(BODY.format(body=body)), [*arrays, 256], (4,))
        np.testing.assert_array_equal(y.array, X + 3)

    def test_a_later_launch_that_runs_step_by_step_is_saved(self, always: list[bool]) -> None:
        a, b = Buffer(X.copy(), "a"), Buffer(np.zeros(256, np.uint32), "b")
        loop = "AGAIN: add.u32 %r4, %r4, 1; and.b32 %r5, %r4, 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra AGAIN;"
        launches = ("ld.global.b32 %r5, [%rd4];" + ADD, [a, b]), (loop + "st.global.b32 [%rd5], 7;", [b, a])
        for body, arrays in launches:
            run_kernel(load_kernel(BODY.format(body=body)), [*arrays, 256], (4,))
        assert always == [True, False]
        np.testing.assert_array_equal(b.array, X + 3)
        assert (a.array == 7).all()


WRONG = {
    "beyond": ("st.global.b32 [%rd5+4], %r4;", MemoryFault, "bytes at offset 1024 of y"),
    "before": ("ld.global.b32 %r5, [%rd4+-4]; st.global.b32 [%rd5], %r5;", MemoryFault, "before the start of x"),
    "misaligned": ("ld.global.b32 %r5, [%rd4+2]; st.global.b32 [%rd5], %r5;", MemoryFault, "misaligned"),
    "two threads store": ("and.b64 %rd5, %rd5, -8; st.global.b32 [%rd5], %r4;", MemoryFault, "race"),
    "two blocks store": ("mul.wide.u32 %rd3, %r3, 4; add.s64 %rd5, %rd2, %rd3; st.global.b32 [%rd5], %r4;",
                         MemoryFault, "race"),
    "another's load": ("setp.ne.u32 %p2, %r4, 255; @%p2 ld.global.b32 %r5, [%rd5+4]; @%p2 st.global.b32 [%rd5], %r4;",
                       MemoryFault, "race"),
    "not coherent": ("st.global.b32 [%rd5], %r4; ld.global.nc.b32 %r5, [%rd5];", MemoryFault, "ld.nc"),
    "undefined value": ("@%p1 ld.global.b32 %r5, [%rd4]; st.global.b32 [%rd5], %r5;", UndefinedBits, "y"),
    "undefined guard": ("setp.eq.u32 %p2, %r7, 0; @%p2 st.global.b32 [%rd5], %r4;", UndefinedBits, "predicate"),
}  # fmt: skip


class TestResultsThatDoNotCount:
    @pytest.mark.parametrize("wrong", WRONG)
    def test_a_mistake_is_reported_as_step_by_step(self, always: list[bool], wrong: str) -> None:
        body, kind, words = WRONG[wrong]
        y = np.full(256, 9, np.uint32)
        with pytest.raises(kind, match=words):
            run(body, y=y, n=250)
        assert always == [False]
        assert (y == 9).all()

    def test_a_store_to_an_array_that_cannot_be_written(self, always: list[bool]) -> None:
        y = np.zeros(256, np.uint32)
        y.flags.writeable = False
        with pytest.raises(MemoryFault, match="read-only"):
            run("st.global.b32 [%rd5], %r4;", y=y)
        assert always == [False]

    def test_undefined_bytes_that_are_loaded(self, always: list[bool]) -> None:
        with pytest.raises(UndefinedBits):
            run("ld.global.b32 %r5, [%rd5]; st.global.b32 [%rd5], %r5;", defined=False)
        assert always == [False]

    def test_a_store_of_the_same_bytes_is_right(self, always: list[bool]) -> None:
        """Two threads store one value to one place, which is no race."""
        y = run("and.b64 %rd5, %rd5, -8; mov.b32 %r5, 7; st.global.b32 [%rd5], %r5;")
        np.testing.assert_array_equal(y, np.where(X % 2 == 0, 7, 0))
        assert always == [False]

    def test_a_time_limit(self, always: list[bool]) -> None:
        with pytest.raises(TimeLimit):
            run("st.global.b32 [%rd5], %r4;", limit=1e-9)
        assert always == [False]

    def test_code_that_runs_in_vain_is_not_tried_again(self, always: list[bool], monkeypatch: Any) -> None:
        tried = []
        plain = launch._run
        monkeypatch.setattr(launch, "_run", lambda *given, **named: tried.append(1) or plain(*given, **named))
        for _ in range(launch.MOST_FAILED + 2):
            with pytest.raises(MemoryFault):
                run("st.global.b32 [%rd5+4], %r4;")
        assert len(tried) == launch.MOST_FAILED


@functools.cache
def as_machine_code(number: int) -> tuple[object, bool]:
    """The outcome of a random kernel, and whether that of its machine code counted."""
    return outcome(random_launch(np.random.default_rng([7, number])), compiled=True)


@pytest.mark.sample(3)
@pytest.mark.parametrize("number", spread(range(40), 2))
def test_random_kernels(number: int) -> None:
    """Right and wrong ones; `python -m tests.support.emulator.random_launches` compares many more."""
    one = random_launch(np.random.default_rng([7, number]))
    assert as_machine_code(number)[0] == outcome(one, compiled=False)[0]


@pytest.mark.slow
def test_most_right_random_kernels_run_as_machine_code() -> None:
    """Else the comparison would compare one way with itself."""
    assert sum(as_machine_code(number)[1] for number in range(0, 40, 2)) >= 4
