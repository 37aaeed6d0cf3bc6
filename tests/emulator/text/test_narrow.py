"""The table of narrow formats, and the definitions that compute with its rows."""

import math

import pytest

from ptxdiff.conformance.inputs import SHAPES
from ptxdiff.emulator.isa import convert_formats as definitions
from ptxdiff.emulator.isa.modifiers import CODES
from ptxdiff.emulator.text.types import NARROW, TYPES, NarrowFormat
from ptxdiff.references import formats

FORMATS_BY_CONSTANT = {name: f for name, f in vars(formats).items() if isinstance(f, formats.Format)}


@pytest.mark.parametrize("row", NARROW, ids=lambda row: row.name)
def test_a_row_gives_types_codes_and_inputs(row: NarrowFormat) -> None:
    for name, width in row.types.items():
        assert TYPES[name].width == width
        assert TYPES[name].kind == "x"
        assert CODES.get(name) == row.code
        assert (name in SHAPES) == name.endswith("x4")


@pytest.mark.parametrize("row", [r for r in NARROW if r.name.upper() in FORMATS_BY_CONSTANT], ids=lambda row: row.name)
def test_definitions_and_references_agree_on_every_code(row: NarrowFormat) -> None:
    fmt = FORMATS_BY_CONSTANT[row.name.upper()]
    assert row.code is not None
    for code in range(1 << fmt.code_bits):
        nan = bool(formats.is_nan(fmt, code))
        assert definitions.narrow_is_nan(code, row.code) == nan
        if not nan and row.name != "ue8m0":  # another function computes scales, which have no zero
            value = definitions.narrow_value(code, row.code)
            assert (value, math.copysign(1, value)) == (
                formats.value(fmt, code),
                math.copysign(1, formats.value(fmt, code)),
            )
    assert row.largest == fmt.max_finite
    assert definitions.narrow_sign(row.code) == (1 << fmt.sign_shift if fmt.has_sign else 0)


def test_codes_are_counted_from_0() -> None:
    """The tables of `convert_formats` are indexed by codes."""
    codes = [f.code for f in NARROW if f.code is not None]
    assert codes == list(range(len(codes)))


def test_a_new_row_is_a_new_type() -> None:
    """A row alone gives every figure that definitions read."""
    row = NarrowFormat("e3m4", 8, 3, 4, "nan", {"e3m4x2": 16})
    assert (row.field, row.bias, row.sign, row.largest, row.first_nan, row.infinity) == (8, 3, 0x80, 0x7E, 0x7F, -1)
