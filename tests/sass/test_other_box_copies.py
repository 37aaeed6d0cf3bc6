"""Columns of pixels, rows and reductions by tensor maps in machine code give what the specification says."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from ptxdiff.emulator import Buffer
from ptxdiff.emulator.kernel.async_copy.tensor_maps import decoded
from ptxdiff.sass import async_copy, tensor_maps
from ptxdiff.sass.text import MachineFault, Unsupported
from ptxdiff.triton.targets import probe
from tests.support.emulator.tensor_copies import Case, cases, loaded, numbers, stored
from tests.support.emulator.tensor_runs import as_machine_code, host_map, run_load, run_store

LOADS = [("im2col", "sm_90a"), ("im2col", "sm_120a"), ("im2col::w", "sm_100a"), ("im2col::w::128", "sm_100a"),
         ("tile::gather4", "sm_100a")]  # fmt: skip


def needs(target: str) -> None:
    if not probe()[target].available:
        pytest.skip(f"no ptxas for {target}")


@pytest.mark.parametrize("opt", [0, 3])
@pytest.mark.parametrize(("mode", "target"), LOADS)
def test_loads(mode: str, target: str, opt: int) -> None:
    needs(target)
    for case in cases(3, 10 + opt, (mode,)):
        run = partial(as_machine_code, opt=opt)
        np.testing.assert_array_equal(run_load(case, target, run), loaded(case), str(case))


def _stored(case: Case, target: str, opt: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(case.bytes)
    data = numbers(rng, case.element, (case.bytes // case.tensor.itemsize,)).view(np.uint8)
    got = run_store(case, data, target, partial(as_machine_code, opt=opt))
    return got.view(np.uint8), stored(case, data).view(np.uint8)


@pytest.mark.parametrize(
    ("mode", "op", "target", "opt"),
    [("im2col_no_offs", "", "sm_90a", 3), ("im2col_no_offs", "", "sm_100a", 0), ("tile::scatter4", "", "sm_100a", 3),
     ("tile", "add", "sm_90a", 0), ("tile", "min", "sm_100a", 3), ("tile", "max", "sm_120a", 3),
     ("tile", "inc", "sm_90a", 3), ("tile", "dec", "sm_90a", 3), ("tile", "and", "sm_100a", 0),
     ("im2col_no_offs", "add", "sm_90a", 3), ("im2col_no_offs", "xor", "sm_100a", 3),
     ("im2col_no_offs", "or", "sm_90a", 3)],
)  # fmt: skip
def test_stores_and_reductions(mode: str, op: str, target: str, opt: int) -> None:
    needs(target)
    for case in cases(3, 20, (mode,), op):
        np.testing.assert_array_equal(*_stored(case, target, opt), str(case))


def test_planted_mistakes_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    needs("sm_90a")
    images = np.arange(2 * 4 * 5 * 16, dtype=np.uint32).reshape(2, 4, 5, 16)
    column = Case("im2col", 2, 0, 0, images, 16, (12, 8), (0, -1, 0, 0), (2, 1), (-1, -1), (-1, -1), (1, 1))
    np.testing.assert_array_equal(run_load(column, "sm_90a", as_machine_code), loaded(column))
    sums = cases(4, 30, ("tile",), "dec")
    with monkeypatch.context() as patch:  # the offsets in the other order
        right = async_copy._offsets
        patch.setattr(async_copy, "_offsets", lambda *a: right(*a)[::-1])
        assert (run_load(column, "sm_90a", as_machine_code) != loaded(column)).any()
    with monkeypatch.context() as patch:  # what is there in the place of what comes
        exact = async_copy.reduction
        patch.setattr(async_copy, "reduction", lambda op, e: lambda a, b: exact(op, e)(b, a))
        assert any((a != b).any() for a, b in (_stored(case, "sm_90a") for case in sums))


COLUMN = replace(cases(1, 3, ("im2col",))[0], swizzle=0)


def test_faults_are_named() -> None:
    needs("sm_90a")
    case = replace(COLUMN, coordinates=(0, *(n + 9 for n in COLUMN.coordinates[1:-1]), 0))
    with pytest.raises(MachineFault, match=r"UTMALDG.*outside of its pixels"):
        run_load(case, "sm_90a", as_machine_code)
    double = Case("tile", 9, 0, 0, np.ones((4, 4)), 4, (4, 4), (0, 0), op="add")
    with pytest.raises(MachineFault, match=r"UTMAREDG.*a reduction .add of a tensor whose elements are"):
        run_store(double, np.zeros(128, np.uint8), "sm_90a", as_machine_code)


def test_a_halo_is_not_run() -> None:
    needs("sm_100a")
    (wide,) = cases(1, 3, ("im2col::w",))
    with pytest.raises((MachineFault, Unsupported), match="with a halo"):
        run_load(replace(wide, offsets=(1, 0)), "sm_100a", as_machine_code)


def test_maps_of_columns_are_read_as_they_are_made() -> None:
    for case in cases(12, 40, ("im2col", "im2col::w", "im2col::w::128", "im2col_no_offs")):
        data = host_map(case, Buffer(case.tensor, "tensor")).bytes
        assert not isinstance(decoded(data), str), case
        assert tensor_maps.read_map(tensor_maps.of_the_device(data)) == decoded(data)


def test_a_replaced_box_of_a_column_is_refused() -> None:
    data = bytearray(tensor_maps.of_the_device(host_map(COLUMN, Buffer(COLUMN.tensor, "tensor")).bytes))
    data[13 * 4 + 3] = 7  # where `tensormap.replace` puts the first size of a box
    assert "was replaced" in str(tensor_maps.read_map(bytes(data)))


def _for_two_blocks(case: Case, mask: int) -> str:
    """The load by the first of two blocks of a cluster, for those of a mask; each block stores what it got."""
    both = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
    text = case.text("sm_90a", to="shared::cluster").replace(".param .s32 o2)", ".param .s32 o2) .reqnctapercluster 2")
    text = text.replace("bar.sync 0;", f"{both} mov.u32 e5, %ctaid.x; mov.b16 i3, {mask};")
    text = text.replace("@p cp.async", "setp.eq.and.u32 p, e5, 0, p; @p cp.async")
    text = text.replace("::complete_tx::bytes\n", "::complete_tx::bytes.multicast::cluster\n")
    text = text.replace("i1};\nWAIT", "i1}, i3;\nWAIT")
    assert "i3;\nWAIT" in text
    return text.replace("add.u32 w, w, v;", f"add.u32 w, w, v; mul.wide.u32 h, e5, {case.bytes}; add.u64 gy, gy, h;", 1)


def test_a_column_for_several_blocks() -> None:
    """The offsets and the mask share a register."""
    needs("sm_90a")
    from ptxdiff.emulator import PtxError, run_kernel
    from ptxdiff.launcher import _machine_code
    from ptxdiff.sass.run import run_machine_code

    images = np.arange(2 * 4 * 5 * 16, dtype=np.uint32).reshape(2, 4, 5, 16)
    case = Case("im2col", 2, 0, 0, images, 16, (12, 8), (0, -1, 0, 0), (2, 1), (-1, -1), (-1, -1), (1, 1))
    wanted = np.tile(loaded(case), 2)

    def ran(level: str, mask: int) -> np.ndarray:
        y, tensor, text = (
            np.zeros(2 * case.bytes, np.uint8),
            Buffer(images.copy(), "images"),
            _for_two_blocks(case, mask),
        )
        given = [host_map(case, tensor), Buffer(y, "y"), *case.numbers]
        if level == "ptx":
            run_kernel(text, given, (2,), num_threads=128)
        else:
            run_machine_code(_machine_code(text, "k", None, 3, False), given, (2,), 128)
        return y

    for level in ("ptx", "sass"):
        np.testing.assert_array_equal(ran(level, 3), wanted)
        with pytest.raises(PtxError, match="deadlock"):  # the second block gets nothing
            ran(level, 1)
