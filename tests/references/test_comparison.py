"""Comparisons against Python's own on values."""

import math
import operator
from collections.abc import Callable

import pytest
import torch

from ptxdiff.references import comparison, formats
from ptxdiff.references.formats import BF16, F16, F32, F64, I16, I32, I64, U16, U32, U64, Format
from tests.support.references.plain_definitions import edges, pairs

PLAIN: dict[str, Callable[[float, float], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def operands(fmt: Format) -> list[torch.Tensor]:
    codes = edges(fmt) if fmt.is_float else [0, 1, 2, fmt.max_finite, fmt.code_mask, fmt.code_mask - 1]
    return pairs([code - (1 << 64) if code >= 1 << 63 else code for code in codes])


@pytest.mark.parametrize("fmt", [F16, BF16, F32, F64], ids=str)
def test_floats(fmt: Format) -> None:
    a, b = operands(fmt)
    rows = [[formats.value(fmt, code) for code in row] for row in zip(a.tolist(), b.tolist(), strict=True)]
    unordered = [math.isnan(x) or math.isnan(y) for x, y in rows]
    for name, function in PLAIN.items():
        ordered = [function(x, y) and not nan for (x, y), nan in zip(rows, unordered, strict=True)]
        assert comparison.compare(a, b, name, fmt=fmt).tolist() == ordered
        either = [x or y for x, y in zip(ordered, unordered, strict=True)]
        assert comparison.compare(a, b, f"{name}u", fmt=fmt).tolist() == either
    assert comparison.compare(a, b, "nan", fmt=fmt).tolist() == unordered
    assert comparison.compare(a, b, "num", fmt=fmt).tolist() == [not nan for nan in unordered]


@pytest.mark.parametrize("fmt", [I16, I32, I64, U16, U32, U64], ids=str)
def test_integers(fmt: Format) -> None:
    a, b = operands(fmt)
    rows = [[formats.value(fmt, code) for code in row] for row in zip(a.tolist(), b.tolist(), strict=True)]
    for name, function in PLAIN.items():
        assert comparison.compare(a, b, name, fmt=fmt).tolist() == [function(x, y) for x, y in rows]
    for name, same in UNSIGNED.items():
        assert torch.equal(comparison.compare(a, b, name, fmt=fmt), comparison.compare(a, b, same, fmt=fmt))


@pytest.mark.parametrize(("fmt", "name"), [(F32, "lo"), (I32, "equ"), (U32, "nan"), (F32, "less")])
def test_unknown_comparisons(fmt: Format, name: str) -> None:
    with pytest.raises(ValueError, match="setp has no comparison"):
        comparison.compare(torch.tensor([0]), torch.tensor([0]), name, fmt=fmt)


def test_properties() -> None:
    codes = torch.tensor([0, 1 << 31, 1, 0x3F800000, 0x7F800000, 0xFFC00000])
    table = {
        "finite": [1, 1, 1, 1, 0, 0], "infinite": [0, 0, 0, 0, 1, 0], "number": [1, 1, 1, 1, 1, 0],
        "notanumber": [0, 0, 0, 0, 0, 1], "normal": [1, 1, 0, 1, 0, 0], "subnormal": [0, 0, 1, 0, 0, 0],
    }  # fmt: skip
    for name, expected in table.items():
        assert comparison.has_property(codes, name).tolist() == [bool(x) for x in expected]
    with pytest.raises(ValueError, match="testp has no property"):
        comparison.has_property(codes, "odd")


def test_selection_by_sign() -> None:
    a, b = torch.full((4,), 7), torch.full((4,), 9)
    assert comparison.select_by_sign(a, b, torch.tensor([0, 5, 1 << 31, 0xFFFFFFFF])).tolist() == [7, 7, 9, 9]
    floats = torch.tensor([1 << 31, 0x3F800000, 0xBF800000, 0x7FC00000])
    assert comparison.select_by_sign(a, b, floats, fmt=F32).tolist() == [7, 7, 9, 9]


@pytest.mark.parametrize("fmt", [F16, F32, I32, U32], ids=str)
def test_several_comparisons_in_one_code(fmt: Format) -> None:
    a, b = operands(fmt)
    names = ("ge", "lt", "eq")
    codes = comparison.compare_all(a, b, operators=names, fmt=fmt).tolist()
    rows = [[formats.value(fmt, code) for code in row] for row in zip(a.tolist(), b.tolist(), strict=True)]
    assert codes == [(x >= y) + 2 * (x < y) + 4 * (x == y) for x, y in rows]
