"""The copies of a followed thread: each byte with its place and the thread that made it."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator.kernel.run import Buffer, HostMap, load_kernel
from ptxdiff.emulator.kernel.trace import observers
from ptxdiff.emulator.kernel.trace.observers import ThreadTrace, TooLong
from ptxdiff.emulator.kernel.trace.origins import SHARED, Stored
from ptxdiff.emulator.kernel.trace.thread import Launched, followed
from tests.support.emulator.bulk_text import ALONE, BYTES, EXPECT, FENCED, FROM, MOVE, TELLS
from tests.support.emulator.cluster_kernels import SYNC, THREADS, WAIT, text

BOX = f"""mov.b32 %r13, 0; mov.b64 %rd4, m; cvta.param.u64 %rd4, %rd4;
@%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.{TELLS} [%r4], [%rd4, {{%r13, %r13}}], [bar];"""
LOAD = f"{ALONE} {EXPECT.format(BYTES)} {BOX} {WAIT} ld.shared.b32 %r9, [%r5];"


def launched(body: str, tensor: bool = False, grid: tuple[int, int, int] = (1, 1, 1), cluster: str = "") -> Launched:
    written = text(body, cluster=cluster)
    x = Buffer(np.arange(256, dtype=np.uint32), "x")
    arguments: list[object] = [Buffer(np.zeros((grid[0], THREADS), np.uint32), "y"), x]
    if tensor:
        written = written.replace(".param .u64 x)", ".param .u64 x, .param .align 64 .b8 m[128])")
        arguments.append(HostMap(x, 0, (32, 6), (8, 1), (8, 8), 2, 0, 0))  # the box has two columns more
    return Launched(load_kernel(written), arguments, grid, (THREADS, 1, 1))


def test_a_box_of_a_tensor_map() -> None:
    """Thread 10 reads element (1, 2) of the box, which thread 0 has copied from element (1, 2) of the tensor."""
    load = next(s for s in followed(launched(LOAD, tensor=True), 10).steps if s.text.startswith("ld.shared"))
    (stored,) = set(load.origins[:1])
    assert stored is not None
    assert stored.thread == 0
    issuing = followed(launched(LOAD, tensor=True), 0)
    step = issuing.at(stored.time)
    assert step is not None
    assert step.text.startswith("@%p1 cp.async.bulk.tensor")
    (source,) = step.made_of(stored.byte)
    assert (source.memory, source.value, source.stored) == (("x", 4 * 10), 10, None)
    assert stored.byte is not None
    (outside,) = step.made_of((SHARED, stored.byte[1] + 16))  # element (1, 6)
    assert (outside.memory, outside.value) == (None, 0)


def test_a_copy_that_adds_to_another_blocks_memory() -> None:
    """The result depends on the old value, which that block stored, and on the value that this block stored."""
    move = MOVE.format(reduce=".reduce", op=".add.u32")
    body = f"{FENCED} st.shared.b32 [%r5+512], 3; {EXPECT.format(BYTES)} {FROM} {move} {WAIT} "
    body += f"ld.shared.b32 %r9, [%r5+512]; {SYNC}"

    def trace(thread: int) -> ThreadTrace:
        return followed(launched(body, grid=(2, 1, 1), cluster="2"), thread)

    load = next(s for s in trace(5).steps if "%r9, [%r5+512]" in s.text)
    stored = load.origins[0]
    assert stored is not None
    assert stored.thread == THREADS  # the first of the other block
    step = trace(THREADS).at(stored.time)
    assert step is not None
    assert step.text.startswith("@%p1 cp.reduce.async.bulk")
    old, added = step.made_of(stored.byte)
    assert isinstance(old.stored, Stored)
    assert isinstance(added.stored, Stored)
    assert (old.value, old.stored.thread) == (3, 5)
    assert (added.value, added.stored.thread) == ((1000 + 5) & 0xFF, THREADS + 5)


def test_copies_are_recorded_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observers, "MOST_TAKEN", 255)
    with pytest.raises(TooLong, match="copies and multiplies more than 255 bytes"):
        followed(launched(LOAD, tensor=True), 0)


def test_a_box_that_adds_to_a_tensor() -> None:
    """An element depends on the old one, and on that of shared memory."""
    from tests.support.emulator.tensor_copies import Case
    from tests.support.emulator.tensor_runs import host_map

    words = np.arange(64, dtype=np.uint32).reshape(8, 8)
    case = Case("tile", 2, 0, 0, words, 8, (4, 8), (0, 2), op="add")
    tensor, data = Buffer(words, "tensor"), Buffer(np.arange(32, dtype=np.uint32) + 100, "data")
    arguments = [host_map(case, tensor), data, *case.numbers]
    trace = followed(Launched(load_kernel(case.text("sm_90")), arguments, (1, 1, 1), (THREADS, 1, 1)), 0)
    step = next(s for s in trace.steps if "cp.reduce" in s.text)
    old, added = step.made_of(("tensor", 4 * 17))  # element 1 of the first row of the box
    assert (old.value, old.memory, added.value) == (17, ("tensor", 4 * 17), 101)
    assert isinstance(added.stored, Stored)


def test_a_thread_whose_neighbours_end_before_a_barrier() -> None:
    """The launch is followed as one in which threads are ordered by themselves."""
    store = "bar.sync 0; st.shared.b32 [%r5], %r1;"
    body = f"setp.lt.u32 %p2, %r1, 16; @%p2 exit; {store} bar.sync 0; ld.shared.b32 %r9, [%r5];"
    trace = followed(launched(body), 20)
    assert trace.fault is None
    assert any(step.text.startswith("ld.shared") for step in trace.steps)
