"""The table of narrow formats, and the definitions that compute with its rows."""

import pytest

from harness.conformance.inputs import _SHAPES
from harness.ptx.isa import convert_formats as definitions
from harness.ptx.isa.modifiers import CODES
from harness.ptx.text.narrow import NARROW, NarrowFormat
from harness.ptx.text.types import TYPES

CONVERTED = [f for f in NARROW if f.code is not None and f.code <= definitions.UE5M3]


@pytest.mark.parametrize("row", NARROW, ids=lambda row: row.name)
def test_a_row_gives_types_codes_and_inputs(row: NarrowFormat) -> None:
    for name, width in row.types.items():
        assert TYPES[name].width == width
        assert TYPES[name].kind == "x"
        assert CODES.get(name) == row.code
        assert (name in _SHAPES) == name.endswith("x4")


@pytest.mark.parametrize("row", CONVERTED, ids=lambda row: row.name)
def test_definitions_compute_with_the_format_of_the_row(row: NarrowFormat) -> None:
    code = row.code
    assert code is not None
    bits = row.exponent_bits + row.mantissa_bits
    assert definitions.narrow_mantissa(code) == row.mantissa_bits
    assert definitions.narrow_field(code) == row.types[f"{row.name}x2"] // 2
    assert definitions.narrow_sign(code) == (0 if row.name.startswith("u") else 1 << bits)
    # The largest finite code has the largest exponent but in e5m2, whose largest is for infinities and NaN.
    assert definitions.narrow_max(code) >> row.mantissa_bits == (1 << row.exponent_bits) - 1 - (row.name == "e5m2")
    assert definitions.narrow_value(definitions.narrow_bias(code) << row.mantissa_bits, code) == 1.0


def test_codes_differ_and_are_those_of_the_definitions() -> None:
    named = {name.lower(): getattr(definitions, name) for name in ("E4M3", "E5M2", "E2M3", "E3M2", "E2M1", "UE5M3")}
    assert named == {f.name: f.code for f in CONVERTED}
    codes = [f.code for f in NARROW if f.code is not None]
    assert len(set(codes)) == len(codes)
