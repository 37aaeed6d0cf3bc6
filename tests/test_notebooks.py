"""What a notebook shows of numbers and cases."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ptxdiff import Case, asm, bits
from ptxdiff.notebooks import NoFormat
from ptxdiff.references.formats import E2M1X2, F16, FORMATS, U8


def test_a_float_is_shown_by_its_fields():
    shown = bits(np.array([1.0, -0.0, np.nan], np.float32))
    lines = repr(shown).splitlines()
    assert lines[0] == "float32, 3 codes"
    assert lines[1].startswith("   0  0 01111111 00000000000000000000000  0x3f800000")
    assert lines[2].startswith("   1  1 00000000 ")
    assert "^" not in repr(shown)


def test_differences_are_marked_at_their_bits():
    shown = bits(np.array([1, 2], np.uint8), expected=np.array([1, 6], np.uint8))
    assert repr(shown).splitlines()[-2:] == ["   1  00000010  0x02 (2)", "           ^    differs"]
    html = shown._repr_html_()
    assert html.count("<b ") == 1
    assert "<td>1</td>" in html


def test_the_fields_have_colours_in_html():
    html = bits(np.array([1.5], np.float16))._repr_html_()
    widths = {m[1]: len(m[2]) for m in re.finditer(r'title="(\w+)"[^>]*>([01]+)<', html)}
    assert widths == {"sign": 1, "exponent": 5, "significand": 10}


def test_every_format_has_all_its_bits_in_fields():
    for fmt in FORMATS.values():
        fields = bits(np.zeros(1, fmt.numpy_dtype()), fmt).fields
        assert sum(width for _, width in fields) == fmt.single.code_bits, fmt


def test_a_packed_format_is_shown_by_codes_and_a_long_array_is_cut():
    assert len(repr(bits(np.array([0x21], np.uint8), E2M1X2)).splitlines()) == 3
    assert repr(bits(np.zeros(100, np.uint16), F16)).splitlines()[-1] == "... 36 more"
    with pytest.raises(ValueError, match="expected has 2 codes, and there are 3"):
        bits(np.zeros(3, np.float32), expected=np.zeros(2, np.float32))


def test_a_case_is_one_line_and_a_table_in_a_notebook():
    made = {"inputs": {"x": U8}, "outputs": {"y": U8}, "reference": abs}
    case = Case(**made, variants={"<b>": asm("mov.b32 $0, $1;"), "other": asm("not.b32 $0, $1;")})
    assert repr(case) == "Case((x: uint8) -> (y: uint8); variants <b>, other)"
    html = case._repr_html_()
    assert "&lt;b&gt;" in html
    assert "mov.b32 $0, $1;" in html


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: bits(np.arange(4, dtype=np.uint8), "e4m4"), "no format is called 'e4m4'; did you mean e4m3"),
        (lambda: bits("x"), "no format is called 'str32'"),
        (
            lambda: bits(np.zeros(2, np.float32), expected=np.zeros(3, np.float32)),
            "expected has 3 codes, and there are 2",
        ),
        (lambda: Case(input={}), r"Case\(\) has no keyword 'input'; did you mean inputs"),
    ],
)
def test_a_mistake_is_one_line_in_a_notebook(made, words):
    with pytest.raises((ValueError, TypeError), match=words) as error:
        made()
    shown = error.value._render_traceback_()
    assert not any("ptxdiff/" in line or "harness/" in line for line in shown[:-1])
    assert re.search(words, shown[-1])


def test_a_format_has_the_name_of_its_constant_too():
    assert repr(bits(np.float32([1.5]), "F32")) == repr(bits(np.float32([1.5]), "float32"))


def test_numbers_of_another_width_are_numbers_and_not_their_low_bits():
    """Python's floats have 64 bits; their low ones would be shown as 0.0."""
    for values in (1.5, [1.5], np.float64(1.5), np.array(1.5, np.float16)):
        assert "0x3fc00000 (1.5)" in repr(bits(values, "float32"))
    assert repr(bits([-0.0, np.inf], "bfloat16")).count("0x8000 (-0.0)") == 1
    assert "0x3fc00000 (1.5)" in repr(bits(np.float32(1.5)))
    assert "0x3fc0 (1.5)" in repr(bits(0x3FC0, "bfloat16"))
    with pytest.raises(NoFormat, match=r"bfloat16 has no code for 0\.1: round it first"):
        bits(0.1, "bfloat16")
