"""Columns of pixels, rows and reductions by tensor maps in machine code give what the specification says."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from ptxdiff.emulator import Buffer, Pixels, PtxError
from ptxdiff.emulator.kernel.async_copy.tensor_maps import TensorMap, decoded
from ptxdiff.sass import async_copy, tensor_maps
from ptxdiff.sass.text import MachineFault, Unsupported
from ptxdiff.triton.targets import probe
from tests.support.emulator.tensor_copies import Case, cases, float32_codes, loaded, numbers, stored
from tests.support.emulator.tensor_runs import as_machine_code, host_map, run_load, run_store

LOADS = [("im2col", "sm_90a"), ("im2col", "sm_120a"), ("im2col::w", "sm_100a"), ("im2col::w::128", "sm_100a"),
         ("tile::gather4", "sm_100a")]  # fmt: skip


def needs(target: str) -> None:
    if not probe()[target].available:
        pytest.skip(f"no ptxas for {target}")


@pytest.mark.sample(16)
@pytest.mark.parametrize("opt", [0, 3])
@pytest.mark.parametrize(("mode", "target"), LOADS)
def test_loads(mode: str, target: str, opt: int) -> None:
    needs(target)
    for case in cases(3, 10 + opt, (mode,)):
        run = partial(as_machine_code, opt=opt)
        np.testing.assert_array_equal(run_load(case, target, run), loaded(case), str(case))


def test_tf32_is_rounded() -> None:
    needs("sm_90a")
    case = Case("tile", 11, 0, 1, float32_codes()[-1].view("f4"), 256, (8, 256), (8, 1))
    found = run_load(case, "sm_90a", as_machine_code)
    np.testing.assert_array_equal(found, loaded(case))
    assert (found != loaded(replace(case, element=7))).any()


def _stored(case: Case, target: str, opt: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(case.bytes)
    data = numbers(rng, case.element, (case.bytes // case.tensor.itemsize,)).view(np.uint8)
    got = run_store(case, data, target, partial(as_machine_code, opt=opt))
    return got.view(np.uint8), stored(case, data).view(np.uint8)


@pytest.mark.sample(16)
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


# A map that the driver made on an H200 (cuTensorMapEncodeIm2col): columns of 8 pixels with 8 channels of a tensor of
# (4, 9, 9, 9, 16) elements of 4 bytes at 0x7f0000000000; corners are 0, steps 1.
OF_THE_DRIVER = bytes.fromhex(
    "00000000007f00004101000004000000240000004401000064" "0b0000000000000f00000008000000080000000800000003000000"
    "00000007000000000700000000010000" "0000000010000000" + "00" * 52
)  # fmt: skip


def _changed(*bits: int) -> bytes:
    number = int.from_bytes(OF_THE_DRIVER, "little")
    for bit in bits:
        number ^= 1 << bit
    return number.to_bytes(128, "little")


def test_a_map_of_the_driver_is_read() -> None:
    found = tensor_maps.read_map(OF_THE_DRIVER)
    assert isinstance(found, TensorMap)
    assert (found.address, found.sizes, found.strides) == (0x7F0000000000, (16, 9, 9, 9, 4), (64, 576, 5184, 46656))
    assert (found.box, found.element, found.pixels) == ((8, 8), 2, Pixels((0, 0, 0), (0, 0, 0), (1, 1, 1)))


@pytest.mark.parametrize(
    ("bits", "box", "pixels"),
    [((480, *range(484, 490), *range(517, 527)), (8, 1015), {}), ((*range(443, 448), 520, 525), (256, 8), {}),
     (range(448, 453), (8, 8), {"lower": (-1, 0, 0)}), (range(464, 469), (8, 8), {"upper": (-1, 0, 0)}),
     (range(453, 458), (8, 8), {"lower": (0, -1, 0)}), (range(469, 474), (8, 8), {"upper": (0, -1, 0)}),
     (range(458, 463), (8, 8), {"lower": (0, 0, -1)}), (range(474, 479), (8, 8), {"upper": (0, 0, -1)}),
     ((419, 420, 421), (8, 8), {"steps": (8, 1, 1)}), ((422, 423, 424), (8, 8), {"steps": (1, 8, 1)}),
     ((425, 426, 427), (8, 8), {"steps": (1, 1, 8)})],
)  # fmt: skip
def test_numbers_of_a_column_lie_where_the_driver_has_them(
    bits: tuple[int, ...], box: tuple[int, int], pixels: dict[str, tuple[int, ...]]
) -> None:
    """The bits that changed with one number of the map above, on an H200."""
    found = tensor_maps.read_map(_changed(*bits))
    assert isinstance(found, TensorMap)
    assert found.box == box
    assert found.pixels == replace(Pixels((0, 0, 0), (0, 0, 0), (1, 1, 1)), **pixels)


def test_without_its_bit_the_map_is_one_of_tiles() -> None:
    found = tensor_maps.read_map(_changed(64, 480, 481, 482, 517, 520))
    assert isinstance(found, TensorMap)
    assert (found.box, found.pixels) == ((8, 1, 1, 1, 1), None)


@pytest.mark.parametrize("bit", [65, 463, 479, 490, 511, 576, 581, 960, 1023])
def test_a_column_with_a_bit_of_no_field_is_refused(bit: int) -> None:
    assert f"bit {bit} is of no field" in str(tensor_maps.read_map(_changed(bit)))


def test_pixels_in_a_map_for_tiles_are_refused() -> None:
    assert "bit 480 is of no field" in str(tensor_maps.read_map(_changed(64)))


def test_replaced_channels_are_read() -> None:
    """`tensormap.replace` of the first size of a box writes there. The PTX emulator refuses such a map."""
    found = tensor_maps.read_map(_changed(442))
    assert isinstance(found, TensorMap)
    assert found.box == (4, 8)


def test_a_column_that_the_device_cannot_hold_is_refused() -> None:
    data = bytearray(host_map(COLUMN, Buffer(COLUMN.tensor, "tensor")).bytes)
    data[68:72] = (1 << 16 | 1025).to_bytes(4, "little")
    with pytest.raises(PtxError, match="1025 pixels in a column"):
        tensor_maps.of_the_device(bytes(data))


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


@pytest.mark.slow
def test_a_column_for_several_blocks() -> None:
    """The offsets and the mask share a register."""
    needs("sm_90a")
    from ptxdiff.emulator import run_kernel
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
