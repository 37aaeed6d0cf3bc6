"""Bits above a code in its byte: a right code with such a bit set is wrong, in every context."""

import numpy as np
import pytest

from ptxdiff import Case, Domain, asm, exact, ulp
from ptxdiff.judging.judge import judge, judge_same
from ptxdiff.model.policies import policies
from ptxdiff.references.formats import E2M1, E2M3, E2M3X2, U8, U16

SIX = [0x00, 0x1F, 0x3F, 0x2A]


def judged(out, inputs, got, given=U8, **policy):
    case = Case(
        inputs={"x": given},
        outputs={"y": out},
        reference=lambda x: x & 0x3F if out is E2M3 else x & 0xF,
        variants={"v": asm("mov.b32 $0, $1;", **policy)},
    )
    x, y = (np.array(units, np.uint8) for units in (inputs, got))
    return judge(case, policies(case, case.variants["v"]), {"x": x}, {"y": y})


@pytest.mark.parametrize("match", [exact(), ulp(1)])
@pytest.mark.parametrize("bit", [6, 7])
def test_a_bit_above_a_code_fails_although_the_code_is_right(match, bit):
    assert judged(E2M3, SIX, SIX, match=match).passed
    found = judged(E2M3, SIX, [*SIX[:3], SIX[3] | 1 << bit], match=match)
    assert (found.different, found.classes) == (1, {"padding bits": 1})
    assert found.offenders[0].index == 3
    assert "1 codes are right, but the bits above them" in found.notes[0]


def test_four_bits_in_a_byte_have_four_above():
    assert judged(E2M1, [7], [7]).passed
    for bit in range(4, 8):
        assert judged(E2M1, [7], [7 | 1 << bit]).classes == {"padding bits": 1}


def test_each_code_of_a_unit_has_its_own_bits():
    case = Case(
        inputs={"x": U16},
        outputs={"y": E2M3X2},
        reference=lambda x: x[:, None].expand(-1, 2).reshape(-1) & 0x3F,
        variants={"v": asm("mov.b32 $0, $1;")},
    )
    x = np.array([5, 5, 5, 5], np.uint16)
    policy = policies(case, case.variants["v"])
    got = np.array([0x0505, 0x0545, 0x8505, 0xC5C5], np.uint16)
    found = judge(case, policy, {"x": x}, {"y": got})
    assert [o.index for o in found.offenders] == [2, 5, 6, 7]
    same = judge_same(case, {"x": x}, {"y": got}, {"y": got})
    assert same.passed
    other = judge_same(case, {"x": x}, {"y": got}, {"y": got ^ np.uint16(0x4000)})
    assert other.classes == {"padding bits": 4}


def test_a_wrong_code_keeps_its_class_and_a_domain_its_limits():
    assert judged(E2M3, SIX, [0x40, 0x5F, 0x7F, 0x2B]).classes == {"padding bits": 3, "1 ulp": 1}
    small = exact(on=Domain("x <= 31", lambda v: v["x"] <= 31))
    assert judged(E2M3, SIX, [0x00, 0x1F, 0x7F, 0x6A], match=small).passed
    assert judged(E2M3, SIX, [0x00, 0x5F, 0x7F, 0x6A], match=small).different == 1


def test_code_that_moves_codes_may_move_the_bits_above_inputs():
    assert judged(E2M3, [0x41], [0x41], given=E2M3).passed
