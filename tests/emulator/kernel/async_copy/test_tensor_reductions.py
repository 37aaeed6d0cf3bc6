"""Reductions of boxes of shared memory with tensors, by the type of the tensor map (cp.reduce.async.bulk.tensor)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxdiff.emulator import Buffer, PtxError, run_kernel
from ptxdiff.emulator.errors import ExecutionError, MemoryFault, UndefinedBits
from ptxdiff.emulator.kernel.async_copy import bulk, bulk_in_flight
from ptxdiff.emulator.kernel.async_copy.tensor_reductions import ILLEGAL_ON_A_DEVICE, in_the_table, reduction
from tests.support.emulator.tensor_copies import OPERATIONS, THREADS, Case, cases, numbers, stored
from tests.support.emulator.tensor_runs import host_map, on_emulator, run_store

MODES = ("tile", "im2col_no_offs")


def data_of(case: Case, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return numbers(rng, case.element, (case.bytes // case.tensor.itemsize,)).view(np.uint8)


def compared(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """What the emulator leaves, and what the specification says."""
    data = data_of(case)
    return run_store(case, data, "sm_100a").view(np.uint8), stored(case, data).view(np.uint8)


@pytest.mark.sample(3)
@pytest.mark.parametrize("op", OPERATIONS)
def test_reductions(op: str) -> None:
    for case in cases(8, 6, MODES, op):
        np.testing.assert_array_equal(*compared(case), str(case))


@pytest.mark.slow
@pytest.mark.parametrize("op", OPERATIONS)
def test_more_reductions(op: str) -> None:
    """Slow: a launch for each of hundreds of reductions."""
    for case in cases(120, 7, MODES, op):
        np.testing.assert_array_equal(*compared(case), str(case))


@pytest.mark.parametrize(
    ("op", "element"),
    [("add", 5), ("add", 9), ("add", 0), ("add", 11), ("min", 7), ("max", 9), ("inc", 3), ("dec", 4), ("and", 7),
     ("xor", 6), ("or", 1)],
)  # fmt: skip
def test_types_without_the_operation_are_refused(op: str, element: int) -> None:
    """The table of ISA 9.7.9.27.1.3."""
    assert f"a reduction .{op} of a tensor whose elements are" in str(reduction(op, element))
    if element in (5, 9):
        box = np.zeros((4, 4), f"u{8}")
        with pytest.raises(ExecutionError, match=rf"thread 0.*reduction .{op} of a tensor whose elements are"):
            run_store(Case("tile", element, 0, 0, box, 4, (4, 4), (0, 0), op=op), np.zeros(128, np.uint8), "sm_90")


def test_what_a_device_refuses_is_refused() -> None:
    assert ILLEGAL_ON_A_DEVICE
    for op, element in ILLEGAL_ON_A_DEVICE:
        assert in_the_table(op, element)
        assert element not in OPERATIONS[op]
        assert "an H200 raises an illegal instruction" in str(reduction(op, element))


def test_scattered_rows_have_no_reduction() -> None:
    """The ISA has none. ptxas takes the form and writes a copy instead."""
    (case,) = cases(1, 9, ("tile::scatter4",), "add")
    with pytest.raises(PtxError, match=r"cp\.reduce\.async"):
        run_store(case, data_of(case), "sm_100a")


def test_bfloat16_has_minima() -> None:
    function = reduction("min", 10)
    assert not isinstance(function, str)
    assert function(0x3F80, 0xBF80) == 0xBF80


WORDS = np.arange(64, dtype=np.uint32).reshape(8, 8)
ADDED = Case("tile", 2, 0, 0, WORDS, 8, (4, 8), (0, 2), op="add")
ONES = np.ones(32, np.uint32).view(np.uint8)
WAIT = "@p cp.async.bulk.commit_group; @p cp.async.bulk.wait_group 0;"


def test_planted_mistakes_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all((a == b).all() for a, b in map(compared, cases(4, 8, MODES, "dec")))
    right = bulk_in_flight.reduced
    with monkeypatch.context() as patch:  # source and destination exchanged
        patch.setattr(bulk_in_flight, "reduced", lambda *a: right(*a[:6], lambda x, y: a[6](y, x), a[7]))
        assert any((a != b).any() for a, b in map(compared, cases(4, 8, MODES, "dec")))
    with monkeypatch.context() as patch:  # a copy instead of a reduction
        patch.setattr(bulk_in_flight, "reduced", lambda *a: a[5])
        assert any((a != b).any() for a, b in map(compared, cases(4, 8, MODES, "add")))
    with monkeypatch.context() as patch:  # the type of the unsigned number of the same size
        patch.setattr(bulk, "reduction", lambda op, e: reduction(op, {3: 2, 5: 4, 6: 2}.get(e, e)))
        assert any((a != b).any() for a, b in map(compared, cases(12, 8, MODES, "min")))


def blocks(count: int, text: str, **options: Any) -> np.ndarray:
    tensor = WORDS.copy()
    given = [host_map(ADDED, Buffer(tensor, "tensor")), Buffer(ONES.copy(), "data"), *ADDED.numbers]
    run_kernel(text, given, (count,), num_threads=THREADS, **options)
    return tensor


def test_blocks_may_add_to_the_same_elements() -> None:
    expected = WORDS.copy()
    expected[2:6] += 3
    np.testing.assert_array_equal(blocks(3, ADDED.text("sm_90")), expected)
    copied = ADDED.text("sm_90").replace("cp.reduce", "cp").replace(".add.tile", ".tile")
    copied = copied.replace("@d st.shared", "mov.u32 f3, %ctaid.x; add.u32 q0, q0, f3; @d st.shared")
    with pytest.raises(MemoryFault, match="race"):
        blocks(3, copied)


def test_a_thread_waits_before_it_reads_what_it_added() -> None:
    text = ADDED.text("sm_90").replace(".param .s32 o2)", ".param .s32 o2, .param .u64 tensor)")
    text = text.replace(WAIT, f"{WAIT}\n@p ld.param.u64 h, [tensor]; @p ld.global.b32 q0, [h+64];")
    for wait, words in ((WAIT, ""), (WAIT.replace("wait_group 0", "wait_group.read 0"), "without .read"), ("", "")):
        tensor = Buffer(WORDS.copy(), "tensor")
        given = [host_map(ADDED, tensor), Buffer(ONES.copy(), "data"), *ADDED.numbers, tensor]
        if wait == WAIT:
            on_emulator(text, given)
            continue
        with pytest.raises(PtxError, match=words or "commit_group"):
            on_emulator(text.replace(WAIT, wait), given)


def test_the_source_is_fenced_and_defined() -> None:
    text = ADDED.text("sm_90")
    with pytest.raises(MemoryFault, match=r"no fence.proxy.async lies between"):
        blocks(1, text.replace("fence.proxy.async;", ""))
    with pytest.raises(UndefinedBits, match="a bulk copy to tensor"):
        blocks(1, text.replace("@d st.shared", "setp.lt.u32 d, t, 4; @d st.shared"))


def test_undefined_elements_are_not_reduced() -> None:
    tensor = Buffer(WORDS.copy(), "tensor", defined=False)
    given = [host_map(ADDED, tensor), Buffer(ONES.copy(), "data"), *ADDED.numbers]
    with pytest.raises(UndefinedBits, match="a reduction in tensor"):
        on_emulator(ADDED.text("sm_90"), given)


def test_elements_outside_of_the_tensor_stay() -> None:
    """A box of which half the rows lie behind the tensor, and columns in its padding, which begins at 32 bytes."""
    wide = np.arange(96, dtype=np.uint32).reshape(8, 12)
    case = replace(ADDED, tensor=wide, size=8, coordinates=(0, 6))
    expected = wide.copy()
    expected[6:, :8] += 1
    np.testing.assert_array_equal(run_store(case, ONES, "sm_90"), expected)


def test_sixteen_bytes_in_which_a_row_ends_are_written_as_a_whole() -> None:
    """As an H200 does, though the ISA says that nothing outside of the tensor is written."""
    wide = np.arange(96, dtype=np.uint32).reshape(8, 12)
    case = replace(ADDED, tensor=wide, size=5, coordinates=(0, 6))
    expected = wide.copy()
    expected[6:, :8] += 1
    np.testing.assert_array_equal(run_store(case, ONES, "sm_90"), expected)


def test_a_copy_over_the_end_from_within_sixteen_bytes_is_refused() -> None:
    wide = np.arange(96, dtype=np.uint32).reshape(8, 12)
    run_store(replace(ADDED, tensor=wide, coordinates=(2, 0), size=12), ONES, "sm_90")
    with pytest.raises(PtxError, match=r"over the end of a tensor's rows from \[2, 0\] on, 8 bytes from"):
        run_store(replace(ADDED, tensor=wide, coordinates=(2, 0), size=8), ONES, "sm_90")
