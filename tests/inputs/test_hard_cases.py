"""Hard cases of packed formats: a code for every place, a whole word, or a code for each place."""

from __future__ import annotations

import pytest

from ptxdiff import Case, Domain, asm
from ptxdiff.inputs.sets import _hard
from ptxdiff.model.arguments import unit_of_hard_case
from ptxdiff.model.variants import CaseError
from ptxdiff.references.formats import BF16X2, BF16X4, E2M3X2, F16X2, F32, F32X2


def case(fmt, *hard, **options):
    return Case(
        inputs={"x": fmt}, outputs={"y": fmt}, reference=lambda x: x, variants={"v": asm("mov.b32 $0, $1;")},
        hard_cases=[(h,) for h in hard], **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fmt", "given", "unit"),
    [
        (F16X2, 0x3C00, 0x3C003C00),
        (F16X2, 0x40003C00, 0x40003C00),
        (F16X2, (0xBC11, 0), 0x0000BC11),
        (BF16X4, 0x3F80, 0x3F803F803F803F80),
        (BF16X4, (1, 2, 3, 4), 0x0004000300020001),
        (F32X2, 0x3F800000_00000000, 0x3F800000_00000000),
        (F32, 0x3F800000, 0x3F800000),
        (E2M3X2, 0x3F3F, 0x3F3F),
    ],
)
def test_each_way_to_name_a_word(fmt, given, unit):
    assert unit_of_hard_case(fmt, given) == unit
    made = case(fmt, given)
    (column,) = _hard(made, {"x": fmt})
    assert [int(u) % (1 << 64) for u in column] == [unit]


@pytest.mark.parametrize(
    ("fmt", "given"),
    [(F32, 1 << 32), (F16X2, 1 << 32), (F16X2, -1), (F16X2, (1,)), (F16X2, (1 << 16, 0)), (E2M3X2, 0x403F), (F32, "x")],
)
def test_what_is_no_code_is_refused(fmt, given):
    with pytest.raises(CaseError, match=r"hard case .* is no code of x"):
        case(fmt, given)


def test_a_word_outside_the_domain_is_named_by_its_codes():
    positive = Domain("x > 0", lambda v: v["x"] > 0)
    case(BF16X2, (0x3F80, 0x4000), where=positive)
    with pytest.raises(CaseError, match=r"\(\(0x3f80, 0xc000\)\): where= excludes it"):
        case(BF16X2, (0x3F80, 0xC000), where=positive)
