"""Copies of columns of pixels (im2col) and of rows (gather4, scatter4) between tensors and shared memory.

Results are compared with loops from the specification (`tests.support.emulator.tensor_copies`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxdiff.emulator import Buffer, HostMap, Pixels, PtxError
from ptxdiff.emulator.errors import ExecutionError, MemoryFault
from ptxdiff.emulator.kernel.async_copy import bulk, tensor_maps
from ptxdiff.emulator.kernel.async_copy.tensor_maps import decoded, encoded, place
from tests.support.emulator.tensor_copies import Case, cases, float32_codes, loaded, read_as, stored
from tests.support.emulator.tensor_runs import run_load, run_store

TARGETS = {"im2col": "sm_90", "im2col_no_offs": "sm_90"}
LOADS = ("im2col", "im2col::w", "im2col::w::128", "tile::gather4")
STORES = ("im2col_no_offs", "tile::scatter4")


def target_of(case: Case) -> str:
    return TARGETS.get(case.mode, "sm_100a")


def data_of(case: Case, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, case.bytes).astype(np.uint8)


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", LOADS)
def test_loads(mode: str) -> None:
    """Tensors of 3 to 5 dimensions, of all types, swizzles, corners, offsets and traversal strides."""
    for case in cases(10, 3, (mode,)):
        np.testing.assert_array_equal(run_load(case, target_of(case)), loaded(case), str(case))


@pytest.mark.slow
@pytest.mark.parametrize("mode", LOADS)
def test_more_loads(mode: str) -> None:
    """Slow: a launch for each of hundreds of copies."""
    for case in cases(200, 4, (mode,)):
        np.testing.assert_array_equal(run_load(case, target_of(case)), loaded(case), str(case))


@pytest.mark.parametrize("mode", STORES)
def test_stores(mode: str) -> None:
    for case in cases(10, 3, (mode,)):
        data = data_of(case)
        got, wanted = run_store(case, data, target_of(case)), stored(case, data)
        np.testing.assert_array_equal(got.view(np.uint8), wanted.view(np.uint8), str(case))


@pytest.mark.parametrize("element", [7, 8, 11, 12])
def test_float32_and_tf32(element: int) -> None:
    """A load rounds tf32; nothing flushes; a store changes no bit. Undefined bits of a rounded element spread in it."""
    codes = float32_codes()
    tensor = decoded(encoded(0, (256,), (), (256,), element, 0, 1))
    assert not isinstance(tensor, str)
    found = tensor.rounded(codes.reshape(-1).view(np.uint8)).view(np.uint32)
    assert found.tolist() == [read_as(element, int(c)) for c in codes.reshape(-1)]
    doubt = np.array([0, 1, 0, 0, 0, 0, 0, 0], np.uint8)
    assert tensor.rounded_doubt(doubt).tolist() == ([255] * 4 + [0] * 4 if element > 10 else doubt.tolist())
    case = Case("tile", element, 0, 1, codes[0].view("f4"), 256, (8, 256), (8, 1))
    np.testing.assert_array_equal(run_load(case, "sm_90"), loaded(case))
    case = replace(case, fill=0, tensor=np.zeros((8, 256), "f4"), out=True)
    data = codes[1].reshape(-1).view(np.uint8)
    np.testing.assert_array_equal(run_store(case, data, "sm_90").view(np.uint8), stored(case, data).view(np.uint8))


Change = Callable[[pytest.MonkeyPatch], None]


def _patched(name: str, make: Callable[[Any], Any], module: Any = tensor_maps) -> Change:
    return lambda patch: patch.setattr(module, name, make(getattr(module, name)))


def _only_the_start_moves(right: Any) -> Any:
    def columns(found: Any, pixels: Any, *rest: Any) -> Any:
        map_, corner = right(found, pixels, *rest)
        return replace(map_, pixels=pixels), corner

    return columns


def _of(change: Callable[[Any, list[int]], tuple[Any, list[int]]]) -> Callable[[Any], Any]:
    """The pixels of a column with a change of the map or of the corner before."""
    return lambda right: lambda found, pixels, corner: right(found, *change(pixels, corner))


def _steps(pixels: Any, corner: list[int]) -> tuple[Any, list[int]]:
    return replace(pixels, steps=(1,) * len(pixels.steps)), corner


def _exchanged(pixels: Any, corner: list[int]) -> tuple[Any, list[int]]:
    return replace(pixels, lower=pixels.lower[::-1], upper=pixels.upper[::-1]), corner


def _begins_below(pixels: Any, corner: list[int]) -> tuple[Any, list[int]]:
    return pixels, [corner[0], pixels.lower[0], *corner[2:]]


def _in_one_image(right: Any) -> Any:
    def column(*given: Any) -> np.ndarray:
        places: np.ndarray = right(*given)
        places[:, -1] = places[0, -1]
        return places

    return column


MISTAKES: dict[str, Change] = {
    "the upper corner is one too far": _patched("_bounds", lambda right: lambda *a: [(x, y + 1) for x, y in right(*a)]),
    "the lower corner is one too far": _patched("_bounds", lambda right: lambda *a: [(x - 1, y) for x, y in right(*a)]),
    "offsets move the start, not the box": _patched("_columns", _only_the_start_moves),
    "no traversal strides": _patched("_column", _of(_steps)),
    "W and H exchanged": _patched("_column", _of(_exchanged)),
    "the first row begins at the corner": _patched("_column", _of(_begins_below)),
    "images do not follow each other": _patched("_column", _in_one_image),
    "outside is zero": _patched("_FLOATS", lambda right: dict.fromkeys(right, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_planted_mistakes_are_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MISTAKES[name](monkeypatch)
    for case in cases(40, 5, ("im2col",)):
        try:
            if (run_load(case, "sm_90") != loaded(case)).any():
                return
        except PtxError:
            return
    raise AssertionError


@pytest.mark.parametrize("name", ["images do not follow each other", "no traversal strides"])
def test_planted_mistakes_along_w_are_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MISTAKES[name](monkeypatch)
    assert any((run_load(c, "sm_100a") != loaded(c)).any() for c in cases(20, 5, ("im2col::w", "im2col::w::128")))


def test_exchanged_rows_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = tensor_maps._rows

    def rows(found: Any, mode: str, c: list[int]) -> Any:
        return right(found, mode, [c[0], c[2], c[1], *c[3:]])

    monkeypatch.setattr(tensor_maps, "_rows", rows)
    assert any((run_load(c, "sm_100a") != loaded(c)).any() for c in cases(5, 5, ("tile::gather4",)))


IMAGES = np.arange(2 * 4 * 5 * 16, dtype=np.uint32).reshape(2, 4, 5, 16)
COLUMN = Case("im2col", 2, 0, 0, IMAGES, 16, (12, 8), (0, -1, -1, 0), (0, 0), (-1, -1), (-1, -1), (1, 1))
"""Twelve pixels of eight channels, from one pixel before the first image on."""
WIDE = replace(COLUMN, mode="im2col::w", swizzle=1, lower=(-1,), upper=(-1,), steps=(1,))
ROWS = Case("tile::gather4", 2, 0, 0, np.arange(160, dtype=np.uint32).reshape(10, 16), 16, (1, 8), (4, 1, 9, 0, 20))


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (replace(COLUMN, coordinates=(0, -2, 0, 0)), r"begins at \[-2, 0\] .*: from \[-1, -1\]"),
        (replace(COLUMN, coordinates=(0, 0, 3, 0)), "outside of its pixels"),
        (replace(COLUMN, offsets=(0, 256)), r"the im2col offsets \[0, 256\] of 4 dimensions are to be 0 to 255"),
        (replace(COLUMN, swizzle=2), "no box whose rows .32 bytes. are shorter than its swizzle"),
        (replace(COLUMN, box=(12, 6)), "a row of a box has 24 bytes, no multiple of 16"),
        (replace(COLUMN, box=(12, 260)), r"sizes .* 1 to 256 channels of a pixel, 1024 pixels"),
        (replace(COLUMN, upper=(-7, -1)), "the pixels between the corners .* are none"),
        (replace(COLUMN, steps=(9, 1)), r"traversal strides"),
        (replace(COLUMN, mode="im2col::w", offsets=(0, 0)), r"in mode .im2col::w by a tensor map .* for .im2col\n"),
        (replace(WIDE, offsets=(2, 0)), "runs no .im2col::w with a halo .wHalo 2."),
        (replace(WIDE, offsets=(0, 32)), "wHalo 0 and wOffset 32 of .im2col::w are to be below 512 and 32"),
        (replace(WIDE, coordinates=(0, 4, 0, 0)), "begins at W = 4, beyond its pixels, which end at 3"),
        (replace(WIDE, swizzle=0), "without a swizzle"),
        (replace(ROWS, box=(2, 8)), "a copy in mode .tile::gather4 by a tensor map of other than rows"),
        (replace(ROWS, mode="tile::scatter4", coordinates=(0, 1, 2, 1, 3)), "of which two are the same"),
        (replace(COLUMN, mode="im2col_no_offs", offsets=()), "none may lie outside of the tensor"),
    ],
)  # fmt: skip
def test_wrong_uses_are_named(case: Case, words: str) -> None:
    mapped, text = case, case.text("sm_100a")
    if case.mode == "im2col::w" and len(case.lower) == 2:
        mapped = replace(case, mode="im2col")
    data = [data_of(case)] if case.mode in STORES else []
    run: Any = run_store if data else run_load
    with pytest.raises(ExecutionError, match=f"(?s)thread 0.*{words}"):
        run(mapped, *data, "", text=text)


def test_a_map_of_tiles_is_not_for_columns() -> None:
    tile = replace(COLUMN, mode="tile", box=(1, 1, 1, 8), lower=(), offsets=())
    for mapped, used in ((tile, COLUMN), (COLUMN, tile)):
        text = used.text("sm_90")
        with pytest.raises(
            ExecutionError, match=r"a copy in mode .(tile|im2col) by a tensor map .* for .(tile|im2col)"
        ):
            run_load(replace(mapped, coordinates=(0, 0, 0, 0)), "", text=text)


def test_pixels_outside_count_as_bytes() -> None:
    """Each of the twelve pixels has 32 bytes, wherever it lies."""
    text = COLUMN.text("sm_90")
    expected = f"_, [a], {12 * 32}"
    assert expected in text
    np.testing.assert_array_equal(run_load(COLUMN, "sm_90"), loaded(COLUMN))
    with pytest.raises(ExecutionError, match=r"deadlock: .* lacks 32 bytes"):
        run_load(COLUMN, "", text=text.replace(expected, f"_, [a], {13 * 32}"))


def test_a_column_under_way_is_not_read() -> None:
    wait = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 d, [a], 0; @!d bra WAIT;"
    with pytest.raises(MemoryFault, match=r"bulk copy .* is under way"):
        run_load(COLUMN, "", text=COLUMN.text("sm_90").replace(wait, ""))


def test_a_tensor_smaller_than_its_map_says() -> None:
    longer = replace(COLUMN, coordinates=(0, 0, 0, 1), lower=(0, 0), upper=(0, 0), box=(20, 8))
    run_load(longer, "sm_90")
    y = np.zeros(longer.bytes, np.uint8)
    made = HostMap(Buffer(IMAGES[:1].copy(), "image"), 0, (2, 4, 5, 16), longer.strides, longer.box, 2, 0, 0,
                   Pixels((0, 0), (0, 0), (1, 1)))  # fmt: skip
    from tests.support.emulator.tensor_runs import on_emulator

    with pytest.raises(MemoryFault, match="out of bounds: the tensor map of thread 0"):
        on_emulator(longer.text("sm_90"), [made, Buffer(y, "y"), *longer.numbers])


def test_undefined_pixels_reach_shared_memory() -> None:
    """The bits are loaded, and named where they are stored."""
    from tests.support.emulator.tensor_runs import host_map, on_emulator

    source, y = Buffer(IMAGES.copy(), "images", defined=False), np.zeros(COLUMN.bytes, np.uint8)
    with pytest.raises(PtxError, match="undefined"):
        on_emulator(COLUMN.text("sm_90"), [host_map(COLUMN, source), Buffer(y, "y"), *COLUMN.numbers])


class _LowByteUndefined(Buffer):
    """A buffer of which nothing is undefined but the first byte: the lowest bits of its first element."""

    def reset(self) -> None:
        super().reset()
        self.undefined = np.zeros(len(self.bytes), np.uint8)
        self.undefined[0] = 0xFF


@pytest.mark.parametrize("element", [7, 8, 11, 12])
def test_a_byte_that_decides_how_an_element_is_rounded_makes_it_undefined(element: int) -> None:
    """The upper byte of the element alone is stored. No byte of an element that is not rounded depends on another."""
    from tests.support.emulator.tensor_runs import host_map, on_emulator

    case = Case("tile", element, 0, 0, np.ones((8, 4), "f4"), 4, (8, 4), (0, 0))
    text = case.text("sm_90").replace("@d st.global.v4", "shr.u32 q0, q0, 24; @d st.global.v4")
    y = np.zeros(case.bytes, np.uint8)
    given = [host_map(case, _LowByteUndefined(case.tensor.copy(), "tensor")), Buffer(y, "y"), *case.numbers]
    if element > 10:
        with pytest.raises(PtxError, match="undefined"):
            on_emulator(text, given)
    else:
        on_emulator(text, given)
        assert y.view(np.uint32)[0] == 0x3F


@pytest.mark.parametrize("corner", [(0, 128), (-129, 0), (0,), (0, 0, 0)])
def test_corners_that_no_map_holds_are_refused(corner: tuple[int, ...]) -> None:
    with pytest.raises(PtxError, match=r"has 3 to 5, and 2 coordinates of 8 bits in each corner of its pixels"):
        run_load(replace(COLUMN, lower=corner, steps=(1, 1)), "sm_90", text=COLUMN.text("sm_90"))


@pytest.mark.parametrize(("rank", "least", "greatest"), [(3, -(1 << 15), (1 << 15) - 1), (4, -128, 127), (5, -16, 15)])
def test_corners_are_kept(rank: int, least: int, greatest: int) -> None:
    size = 1 << 17
    rng = np.random.default_rng(rank)
    for _ in range(20):
        lower, upper = (tuple(map(int, rng.choice([least, -1, 0, 1, greatest], rank - 2))) for _ in range(2))
        pixels = Pixels(lower, upper, tuple(map(int, rng.integers(1, 9, rank - 2))))
        data = encoded(4096, [16, *[size] * (rank - 1)], [64] * (rank - 1), [8, 1024], 2, 0, 0, pixels)
        found = decoded(data)
        assert not isinstance(found, str)
        assert found.pixels == pixels
        assert found.box == (8, 1024)


def test_a_replaced_box_is_refused() -> None:
    """`tensormap.replace` knows boxes of tiles alone."""
    data = bytearray(encoded(4096, [16, 5, 4, 2], [64, 320, 1280], [8, 12], 2, 0, 0, Pixels((0, 0), (0, 0), (1, 1))))
    assert not isinstance(decoded(bytes(data)), str)
    start, size = place("box_dim", 1)
    data[start : start + size] = (4).to_bytes(size, "little")
    assert "a kernel has replaced the box" in str(decoded(bytes(data)))


def test_prefetches_change_nothing() -> None:
    text = COLUMN.text("sm_90").replace(
        "  @p mbarrier.init", "  cp.async.bulk.prefetch.tensor.4d.L2.global.im2col [g, {e0, e1, e2, e3}], {i0, i1};\n"
        "  @p mbarrier.init", 1,
    )  # fmt: skip
    np.testing.assert_array_equal(run_load(COLUMN, "", text=text), loaded(COLUMN))


def test_the_mode_of_the_step_is_that_of_the_map() -> None:
    """What an instruction says reaches the machine: rows have five coordinates, tiles one for each dimension."""
    assert bulk._OF_ROWS == ("tile::gather4", "tile::scatter4")
    np.testing.assert_array_equal(run_load(ROWS, "sm_100"), loaded(ROWS))


@pytest.mark.parametrize(
    ("corner", "start", "offset", "wanted"),
    [
        (0, (0, 0, 0), 0, range(1, 17)),
        (-1, (-1, -1, 0), 0, [0, 0, 0, 0, 0, 1, 2, 3, 0, 5, 6, 7, 0, 9, 10, 11]),
        (-1, (-1, -1, 0), 1, range(1, 17)),
        (0, (3, 1, 0), 0, range(8, 24)),
    ],
)
def test_published_results(corner: int, start: tuple[int, int, int], offset: int, wanted: list[int]) -> None:
    """What GPUs load according to Triton's tutorial on im2col: sixteen of the pixels, which are numbered from 1 on."""
    images = np.repeat(np.arange(1, 33, dtype=np.float32), 32).reshape(2, 4, 4, 32)
    case = Case("im2col", 7, 3, 0, images, 32, (16, 32), (0, *start), (offset, offset), (corner, corner),
                (corner, corner), (1, 1))  # fmt: skip
    rows = run_load(case, "sm_90").view(np.float32).reshape(16, 32)
    np.testing.assert_array_equal(rows, np.repeat(np.array(wanted, np.float32), 32).reshape(16, 32))
