"""The map of failing inputs: cells, areas and size; and the map of a planted mistake in a whole run."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import pytest

from ptxdiff import Case, asm, exact
from ptxdiff.judging.failing_map import PACKED, axes_of, packed
from ptxdiff.judging.judge import judge
from ptxdiff.model.policies import policies
from ptxdiff.records import Grid, from_json, to_json
from ptxdiff.references.formats import BF16, F16, F32, I8, U8, U16, Format


def pair(first: Format, second: Format, output: Format = U8) -> Case:
    return Case(
        inputs={"a": first, "b": second},
        outputs={"y": output},
        reference=lambda a, b: (a ^ b) & 0xFF,
        variants={"v": asm("xor.b32 $0, $1, $2;", constraints="=r,r,r", match=exact())},
    )


def cells(grid: Grid) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(grid.counts)), "<u4").reshape(grid.shape)


def mapped(case: Case, wrong: Any) -> Grid | None:
    """The map of a run over all pairs of bytes, in which the results for the pairs of `wrong` have one wrong bit."""
    a, b = (m.reshape(-1).astype(np.uint8) for m in np.meshgrid(np.arange(256), np.arange(256), indexing="ij"))
    right = a ^ b
    outputs = {"y": np.where(wrong(a.astype(int), b.astype(int)), right ^ 1, right).astype(np.uint8)}
    formats = {n: f for n, f in case.inputs.items() if isinstance(f, Format)}
    inputs = {n: u.view(formats[n].numpy_dtype()) for n, u in {"a": a, "b": b}.items()}
    failing = judge(case, policies(case, case.variants["v"]), inputs, outputs).failing
    axes = axes_of(case)
    return None if failing is None or axes is None else packed(axes, failing)


def test_bytes_have_a_cell_each_and_areas_name_the_rectangle() -> None:
    grid = mapped(pair(U8, U8), lambda a, b: (a >= 0x80) & (b < 0x10) | (a == 3) & (b == 200))
    assert grid is not None
    assert (grid.row, grid.column, grid.shape, len(grid.counts) < 800) == ("a", "b", (256, 256), True)
    a, b = np.meshgrid(np.arange(256), np.arange(256), indexing="ij")
    assert np.array_equal(cells(grid) > 0, (a >= 0x80) & (b < 0x10) | (a == 3) & (b == 200))
    whole, single = grid.areas
    assert ([x.bits for x in whole.row], [x.bits for x in whole.column]) == (["0x80", "0xff"], ["0x00", "0x0f"])
    assert whole.failing == 2048
    assert ([x.bits for x in single.row], [x.value for x in single.column]) == (["0x03", "0x03"], ["200", "200"])
    assert [t.bits for t in grid.row_ticks] == [*(f"0x{k:02x}" for k in range(0, 256, 32)), "0xff"]
    assert from_json(to_json_of(grid)) is not None


def to_json_of(grid: Grid) -> dict[str, Any]:
    from ptxdiff.records import Key, Result

    result = Result(Key("c", "v", "sm_90a", "gpu"), "fail", grid=grid)
    again = from_json(to_json(result))
    assert again == result
    return to_json(result)


def test_a_diagonal_is_one_area() -> None:
    grid = mapped(pair(U8, U8), lambda a, b: a == b)
    assert grid is not None
    assert [(w.row[1].bits, w.column[1].bits, w.failing) for w in grid.areas] == [("0xff", "0xff", 256)]


def test_signed_bytes_are_placed_by_their_bits() -> None:
    grid = mapped(pair(I8, U8), lambda a, b: a == 0xFF)
    assert grid is not None
    assert np.flatnonzero(cells(grid).any(1)).tolist() == [255]
    assert grid.areas[0].row[0].value == "-1"


def test_nothing_wrong_no_map() -> None:
    assert mapped(pair(U8, U8), lambda a, b: a < 0) is None


def test_halves_share_cells_by_their_high_bytes() -> None:
    case = pair(F16, BF16)
    a = np.array([0x3C00, 0x3CFF, 0x3D00, 0xBC00], np.uint16).view(np.float16)
    b = np.array([0x0001, 0x0002, 0x0001, 0xFFFF], np.uint16).view(BF16.numpy_dtype())
    got = {"y": np.full(4, 0x77, np.uint8)}
    expected = (a.view(np.uint16) ^ b.view(np.uint16)) & 0xFF
    failing = judge(case, policies(case, case.variants["v"]), {"a": a, "b": b}, got).failing
    assert failing is not None
    assert int((expected != 0x77).sum()) == 4 == failing.sum()
    assert failing[0x3C, 0] == 2
    assert failing[0x3D, 0] == failing[0xBC, 0xFF] == 1


def test_scattered_failures_are_joined_until_they_fit() -> None:
    axes = axes_of(pair(U16, U16))
    assert axes is not None
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 60000, (256, 256)) * (rng.random((256, 256)) < 0.3)
    grid = packed(axes, counts)
    assert len(grid.counts) <= PACKED
    assert max(grid.shape) < 256
    assert cells(grid).sum() == counts.sum()


@pytest.mark.parametrize("formats", [(U8, F32), (F32, F32)])
def test_wider_inputs_have_no_map(formats: tuple[Format, Format]) -> None:
    assert axes_of(pair(*formats)) is None


def test_a_planted_mistake_leaves_its_map_in_the_records(tmp_path: Any) -> None:
    """Bytes compared as signed: wrong exactly where the top bits differ."""
    from ptxdiff.backends.emulator import EmulatorBackend
    from ptxdiff.model.load import load
    from ptxdiff.running.item import Item
    from ptxdiff.running.run import run_item

    (tmp_path / "greater.py").write_text(
        """
from ptxdiff import Case, asm
from ptxdiff.references.formats import U8


def greater(a, b):
    return a * (a >= b) + b * (b > a)


case = Case(
    inputs={"a": U8, "b": U8},
    outputs={"y": U8},
    reference=greater,
    variants={"v": asm(
        "{ .reg .s32 x, y; cvt.s32.s8 x, $1; cvt.s32.s8 y, $2; max.s32 x, x, y; and.b32 $0, x, 255; }",
        constraints="=r,r,r",
    )},
)
"""
    )
    (loaded,) = load(tmp_path / "greater.py")
    found = run_item(Item(loaded, "v", "sm_90a", "emulator"), EmulatorBackend(), "full")
    swept = max(found.results, key=lambda r: r.total)
    assert (swept.verdict, swept.total, swept.different) == ("fail", 65536, 32768)
    assert swept.grid is not None
    a, b = np.meshgrid(np.arange(256), np.arange(256), indexing="ij")
    assert np.array_equal(cells(swept.grid) > 0, (a >= 128) != (b >= 128))
    corners = [(w.row[0].bits, w.column[0].bits, w.failing) for w in swept.grid.areas]
    assert corners == [("0x00", "0x80", 16384), ("0x80", "0x00", 16384)]
