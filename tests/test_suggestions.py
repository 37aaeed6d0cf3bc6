"""Nearest names for words and keywords that do not exist."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle

import pytest

from ptxdiff import Case, asm, emulate, kernel, plain, ptx
from ptxdiff.references.formats import U8
from ptxdiff.suggestions import did_you_mean, known_keywords


def right(**changed):
    variants = {"v": asm("mov.b32 $0, $1;")}
    return Case(**({"inputs": {"x": U8}, "outputs": {"y": U8}, "reference": abs, "variants": variants} | changed))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: right(hardcases=[(1,)]), "Case() has no keyword 'hardcases'; did you mean hard_cases?"),
        (lambda: right(refrence=abs), "Case() has no keyword 'refrence'; did you mean reference?"),
        (lambda: asm("ret;", constraint="=r"), "asm() has no keyword 'constraint'; did you mean constraints?"),
        (lambda: asm("mov.b32 $0, $1;", tragets="sm_90"), "asm() has no keyword 'tragets'; did you mean targets"),
        (lambda: kernel(abs, grids=(1,)), "kernel() has no keyword 'grids'; did you mean grid?"),
        (lambda: plain(abs, constant={}), "plain() has no keyword 'constant'; did you mean constants?"),
        (lambda: ptx("", blocks=1), "ptx() has no keyword 'blocks'; did you mean block?"),
        (lambda: emulate("mov.b32 $0, $1;", "=r,r", [], "int32", targets="sm_90"),
         "emulate() has no keyword 'targets'; did you mean target"),
        (lambda: plain(abs, zzzz=1), "plain() has no keyword 'zzzz'; it has"),
    ],
)  # fmt: skip
def test_a_wrong_keyword_gets_the_nearest(call, words):
    with pytest.raises(TypeError) as raised:
        call()
    assert words in str(raised.value)


def test_what_is_right_still_works():
    case = right(hard_cases=[(1,)])
    assert dataclasses.replace(case, family="f").family == "f"
    assert copy.copy(case).hard_cases == [(1,)]
    assert "constraints" in inspect.signature(asm).parameters
    assert "reference" in inspect.signature(Case).parameters
    assert pickle.loads(pickle.dumps(dataclasses.replace(case, reference=abs))).reference is abs


def test_a_missing_argument_is_pythons_own_error():
    @known_keywords()
    def two(a, b):
        return a + b

    assert two(1, b=2) == 3
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'b'"):
        two(1)


def test_names_are_near_in_any_case():
    assert did_you_mean("FLOAT31", ["float32", "int8"]) == "; did you mean float32?"
    assert did_you_mean("zzz", ["float32"]) == ""
