"""The cache of judgements in a process: it never returns those of another variant, input or output."""

from __future__ import annotations

import numpy as np

from ptxdiff import Case, asm
from ptxdiff.model.policies import policies
from ptxdiff.references.formats import U8
from ptxdiff.running.judgements import Judged


def flipped(x):
    return x ^ 6


def case_of():
    variants = {
        "exact": asm("xor.b32 $0, $1, 6;", constraints="=r,r"),
        "again": asm("xor.b32 $0, $1, 6;", constraints="=r,r"),
        "other reference": asm("xor.b32 $0, $1, 6;", constraints="=r,r", reference=same),
    }
    return Case(inputs={"x": U8}, outputs={"y": U8}, reference=flipped, variants=variants)


def same(x):
    return x


def test_a_judgement_is_cached_and_returned_as_a_copy():
    case, judged = case_of(), Judged()
    variant = case.variants["exact"]
    policy = policies(case, variant)
    x = np.arange(64, dtype=np.uint8)
    first = judged(case, variant, policy, {"x": x}, {"y": x ^ 6}, 4)
    first.notes.append("mine")
    first.classes["mine"] = 1
    second = judged(case, variant, policy, {"x": x}, {"y": x ^ 6}, 4)
    assert second.passed
    assert not second.notes
    assert not second.classes
    assert len(judged) == 1


def test_everything_that_decides_the_verdict_is_in_the_key():
    """After a pass of right outputs: one bit of an output, another input, variant, pack or case is judged anew."""
    case, judged = case_of(), Judged()
    x = np.arange(64, dtype=np.uint8)

    def verdict(case, name, x, y, pack=4):
        variant = case.variants[name]
        return judged(case, variant, policies(case, variant), {"x": x}, {"y": y}, pack).passed

    assert verdict(case, "exact", x, x ^ 6)
    wrong = x ^ 6
    wrong[63] ^= 1
    assert not verdict(case, "exact", x, wrong)
    assert not verdict(case, "exact", x[::-1].copy(), x ^ 6)
    assert not verdict(case, "other reference", x, x ^ 6)
    assert verdict(case, "other reference", x, x)
    assert verdict(case, "again", x, x ^ 6)
    assert not verdict(case, "exact", x.reshape(8, 8).T.copy(), (x ^ 6).reshape(8, 8))
    other = Case(inputs={"x": U8}, outputs={"y": U8}, reference=same, variants=dict(case.variants))
    assert not verdict(other, "exact", x, x ^ 6)


def test_the_number_of_cached_judgements_is_limited():
    case, judged = case_of(), Judged(2)
    variant = case.variants["exact"]
    for first in range(4):
        x = np.arange(first, first + 8, dtype=np.uint8)
        assert judged(case, variant, policies(case, variant), {"x": x}, {"y": x ^ 6}, 1).passed
    assert len(judged) == 2


def test_kept_judgements_hold_few_of_the_codes_that_were_compared():
    """A sweep of all inputs is judged in hundreds of pieces of a million codes."""
    case, judged = case_of(), Judged(most_bytes=1 << 20)
    variant = case.variants["exact"]
    policy = policies(case, variant)
    for number in range(40):
        x = np.full(1 << 13, number, dtype=np.uint8)
        assert judged(case, variant, policy, {"x": x}, {"y": x ^ 6}, 4).passed
    assert judged.bytes == 0
    for number in range(40):
        x = np.full(1 << 13, number, dtype=np.uint8)
        found = judged(case, variant, policy, {"x": x}, {"y": x}, 4)
        assert found.compared["y"].failing.all()
        assert judged.bytes <= 1 << 20
    again = judged(case, variant, policy, {"x": np.zeros(1 << 13, np.uint8)}, {"y": np.full(1 << 13, 6, np.uint8)}, 4)
    assert again.passed
