"""Which failures have one cause: equal but for what differs between targets, and never with contradicting bits."""

import dataclasses

import pytest

from ptxdiff.records import Key, Result
from ptxdiff.records.causes import blocks, cause_in_words, cause_of, contradict, plain, shown_first
from ptxdiff.records.types import Bits, Offender

KEY = Key("case", "variant", "sm_80", "emulator")


def failure(target="sm_80", got="0x1", x="0x5", **facts):
    offender = Offender(0, 0, "y", {"x": Bits(x, "")}, Bits("0x0", ""), Bits(got, ""), "value")
    facts = {"verdict": "fail", "different": 1, "total": 2, "classes": {"value": 1}, "offenders": (offender,), **facts}
    return Result(dataclasses.replace(KEY, target=target), **facts)


def test_the_same_wrong_bits_on_three_targets_are_one_block():
    [block] = blocks([failure("sm_80"), failure("sm_90a"), failure("sm_100a")])
    assert block.first.key.target == "sm_80"
    assert block.elsewhere == "the same on 2 more targets: sm_90a, sm_100a (emulator)"


def test_other_wrong_bits_for_the_same_input_are_another_block():
    found = blocks([failure("sm_80"), failure("sm_90a", got="0x2"), failure("sm_100a")])
    assert [[b.first.key.target, *(r.key.target for r in b.others)] for b in found] == [
        ["sm_80", "sm_100a"],
        ["sm_90a"],
    ]


def test_wrong_bits_for_other_inputs_do_not_contradict():
    assert not contradict(failure(x="0x5", got="0x1"), failure(x="0x6", got="0x2"))
    assert contradict(failure(x="0x5", got="0x1"), failure(x="0x5", got="0x2"))


def test_wrong_bits_without_a_common_input_are_not_called_the_same():
    [block] = blocks([failure("sm_80"), failure("sm_90a"), failure("sm_100a", x="0x6", got="0x3")])
    assert block.elsewhere == (
        "the same on 1 more target: sm_90a (emulator); wrong bits for other inputs on 1 more target: sm_100a (emulator)"
    )
    [block] = blocks([failure("sm_80", diagnosis="d"), failure("sm_90a", diagnosis="d", x="0x6")])
    assert block.elsewhere == "the same on 1 more target: sm_90a (emulator)"


def test_two_variants_are_two_blocks():
    other = dataclasses.replace(failure(), key=dataclasses.replace(KEY, variant="other"))
    assert len(blocks([failure(), other])) == 2


def test_a_diagnosis_separates():
    assert len(blocks([failure(), failure("sm_90a", diagnosis="ptxas")])) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("the register %r12 of line 4", "the register %r7 of line 9"),
        ("sm_80 lacks it", "sm_100a lacks it"),
        (
            "thread 3 reads x at offset 12, which 4 threads wrote",
            "thread 3 reads x at offset 16, which 8 threads wrote",
        ),
    ],
)
def test_words_that_differ_in_registers_lines_and_targets_are_equal(one, other):
    assert plain(one) == plain(other)


@pytest.mark.parametrize(("one", "other"), [("addd", "subb"), ("$0 is read", "$1 is read"), ("=&f", "=f")])
def test_words_about_other_things_stay_different(one, other):
    assert plain(one) != plain(other)


def test_errors_are_told_apart_by_their_words():
    words = "case::variant[sm_80-emulator]: error: `addd`: no such instruction"
    one = Result(KEY, "error", words=words)
    other = dataclasses.replace(one, words=words.replace("addd", "subb"))
    assert cause_of(one) != cause_of(other)
    assert cause_of(one) == cause_of(dataclasses.replace(one, words=words.replace("sm_80", "sm_90a")))


def test_the_result_that_is_shown_has_positional_bits_or_a_diagnosis():
    first, known, swapped = failure(), failure(diagnosis="x"), failure(classes={"positional": 1})
    assert shown_first([first, known, swapped]) is swapped
    assert shown_first([first, known]) is known
    assert shown_first([first]) is first
    caused = failure(words="case::v[sm_80-emulator]: the operands are exchanged; 20 of 40 codes differ (value 20)")
    assert shown_first([first, caused]) is caused
    assert shown_first([first, caused, known]) is known


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"words": "c::v[sm_80-emulator]: results in other places, x: swap them; 4 of 5 codes differ (positional 4)"},
         "results in other places, x: swap them"),
        ({"words": "c::v[sm_80-emulator]: 4 of 5 codes differ (1 ulp 4)"}, ""),
        ({"words": "c::v[sm_80-emulator]: x; 4 of 5 codes differ ()", "diagnosis": "undefined bits stored"},
         "undefined bits stored"),
    ],
)  # fmt: skip
def test_the_cause_is_what_the_first_line_has_before_the_counts(facts, words):
    assert cause_in_words(failure(**facts)) == words
