"""The first line of a failure: it says on which side a special value is, and when values are only in other places."""

from __future__ import annotations

import numpy as np
import pytest
import triton
import triton.language as tl

from ptxdiff import Case, asm, kernel
from ptxdiff.judging.judge import Judgement, judge
from ptxdiff.judging.message import headline
from ptxdiff.model.policies import policies
from ptxdiff.records import Key
from ptxdiff.references.formats import F16X2, F32
from tests.support.running.float_codes import INF, NAN, ONE, TINY, units


@triton.jit
def copied(x, y, N):
    tl.store(y, tl.load(x))


KEY = Key("case", "v", "sm_90a", "emulator")


def judged(expected: list[int], got: list[int], *, whole: bool = False) -> Judgement:
    """The comparison of these codes by an exact policy, as an elementwise case or as a whole kernel."""
    if whole:
        case = Case(
            inputs={"x": F32["N"]},
            outputs={"y": F32["N"]},
            reference=lambda x: x,
            variants={"v": kernel(copied, grid=("N",))},
            sizes=[{"N": len(expected)}],
        )
    else:
        case = Case(
            inputs={"x": F32}, outputs={"y": F32}, reference=lambda x: x, variants={"v": asm("mov.b32 $0, $1;")}
        )
    return judge(case, policies(case, case.variants["v"]), {"x": units(F32, *expected)}, {"y": units(F32, *got)})


def said(found: Judgement) -> str:
    return headline(KEY, found, ()).partition("]: ")[2]


@pytest.mark.parametrize(
    ("expected", "got", "words"),
    [
        (NAN, ONE, "a number for NaN 1"),
        (ONE, NAN, "NaN for a number 1"),
        (INF, ONE, "a finite number for infinity 1"),
        (ONE, INF, "infinity for a finite number 1"),
        (INF, INF | 1 << 31, "infinity 1"),
        (TINY, 0, "flush to zero 1"),
        (0, TINY, "a number for zero 1"),
        (ONE, ONE + 1, "1 ulp 1"),
    ],
)
def test_the_side_of_a_special_value_is_said(expected, got, words):
    found = judged([expected], [got])
    assert said(found) == f"1 of 1 codes differ ({words})"
    assert sum(found.kinds.values()) == sum(found.classes.values()) == 1


HELD = "y: place {} of a pack holds the result of place {}"


@pytest.mark.parametrize(
    ("moves", "cause"),
    [
        (
            [(0, 1), (1, 0)],
            "results in other places, place 0 of a pack has the result of place 1, place 1 of a pack has ",
        ),
        ([(0, 1)], ""),  # as abs for neg, where each number stands beside its negation
        ([], ""),
    ],
)
def test_places_that_hold_each_others_results_are_the_cause(moves, cause):
    found = Judgement(total=8, different=4, classes={"positional": 4}, notes=[HELD.format(*move) for move in moves])
    line = said(found)
    assert line.startswith(cause or "4 of 8 codes differ")
    assert line.endswith("4 of 8 codes differ (positional 4)")


def test_the_expected_values_in_other_places_are_called_that():
    order = [*range(TINY, TINY + 6), ONE, 0]
    found = judged(order, [*order[4:], *order[:4]], whole=True)
    assert said(found) == "8 of 8 codes differ (they are those expected in other places)"
    assert found.moved == found.different == 8


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ([1, 2, 3, 4], [2, 3, 4, 5]),  # one value is not expected anywhere
        ([1, 2, 3, 4], [2, 3, 4, 4]),  # one value is missing
        ([1, 2, 1, 2], [2, 1, 2, 1]),  # by chance: two values
    ],
)
def test_other_values_are_not_called_moved(expected, got):
    found = judged(expected, got, whole=True)
    assert found.moved == 0
    assert "other places" not in said(found)


def test_an_elementwise_case_that_permutes_all_its_inputs_is_not_called_moved():
    every = list(range(256))
    assert judged(every, [code ^ 1 for code in every]).moved == 0


def test_counts_of_pieces_add_up_and_a_piece_without_sides_leaves_them_out():
    piece = judged([NAN, 1, 2, 3, 4], [ONE, 2, 3, 4, 1], whole=True)
    both = piece.merged(piece)
    assert both.kinds == {name: 2 * count for name, count in piece.kinds.items()}
    whole = both.merged(Judgement(total=2, different=2, classes={"NaN": 2}))
    assert said(whole).endswith(f"({', '.join(f'{n} {c}' for n, c in whole.classes.items())})")
    assert np.sum(list(whole.classes.values())) == whole.different


def test_exchanged_places_are_the_cause_and_have_a_repair():
    case = Case(
        inputs={"x": F16X2}, outputs={"y": F16X2}, reference=lambda x: x, variants={"v": asm("mov.b32 $0, $1;")}
    )
    words = np.arange(64, dtype=np.uint32) * 77 + (np.arange(64, dtype=np.uint32) * 91 << 16)
    swapped = (words >> 16 | words << 16).astype(np.uint32)
    found = judge(case, policies(case, case.variants["v"]), {"x": words}, {"y": swapped})
    assert said(found).startswith(
        "results in other places, place 0 of a pack has the result of place 1, place 1 of a pack has the result of "
        "place 0: swap the operands that fill them; "
    )
    swapped[5] ^= 1
    found = judge(case, policies(case, case.variants["v"]), {"x": words}, {"y": swapped})
    assert "swap the operands" not in said(found)
