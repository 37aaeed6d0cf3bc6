"""The share of planted mistakes that a quick run detects."""

from __future__ import annotations

import pytest

from ptxdiff.records import Mutation, Survivor
from ptxdiff.records.kill_rate import allowed_changes, kill_rate, totals


def mutation(killed: int, *fates: str) -> Mutation:
    survivors = tuple(Survivor("opcode", "a -> b", fate) for fate in fates)
    return Mutation("case", "asm", "variant", "sm_90a", {"opcode": killed} if killed else {}, 2, 3, survivors)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], "0 of 0 wrong mutants killed (no rate)"),
        ([mutation(0, "equivalent")], "0 of 0 wrong mutants killed (no rate)"),
        ([mutation(0, "missed")], "0 of 1 wrong mutants killed (0.00%)"),
        ([mutation(4), mutation(2)], "6 of 6 wrong mutants killed (100.00%)"),
        (
            [mutation(2, "allowed", "allowed")],
            "2 of 4 wrong mutants killed (50.00%), 2 of 4 pass within the policy",
        ),
        (
            [mutation(99_999), mutation(0, "allowed")],
            "99999 of 100000 wrong mutants killed (99.99%), 1 of 100000 pass within the policy",
        ),
        ([mutation(99_999), mutation(0, "missed")], "99999 of 100000 wrong mutants killed (99.99%)"),
    ],
)
def test_only_a_rate_without_a_miss_or_a_permitted_mistake_is_100_percent(found, words):
    assert kill_rate(found) == words


def test_each_fate_is_counted():
    found = totals([mutation(4, "missed", "sampled"), mutation(1, "sampled")])
    assert found["killed"] == 5
    assert (found["missed"], found["sampled"], found["equivalent"]) == (1, 2, 0)
    assert (found["refused"], found["left out"]) == (4, 6)


def test_what_the_policy_allows_is_named_as_loudly_as_what_was_killed():
    words = allowed_changes([mutation(2, "allowed", "allowed"), mutation(1, "sampled")])
    assert words == "2 of 5 wrong mutants pass within the policy: a -> b"
    assert allowed_changes([mutation(2, "missed")]) == ""
    many = Mutation(
        "case", "asm", "v", "sm_90a", survivors=tuple(Survivor("o", f"{k} -> b", "allowed") for k in range(10))
    )
    assert allowed_changes([many]).endswith("7 -> b | and 2 more")
