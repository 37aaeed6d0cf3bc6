"""Nearest names for words and keywords that do not exist."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle

import pytest
import torch

from ptxdiff import Case, asm, emulate, kernel, plain, ptx
from ptxdiff.references import bits, block_scaling, conversion  # noqa: F401 (in texts of tests)
from ptxdiff.references.formats import F32, U8  # noqa: F401
from ptxdiff.suggestions import did_you_mean, explained, known_keywords, nearest


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


CODES = torch.arange(64)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("from ptxdiff.references.formats import E4M4", "; did you mean E4M3"),
        ("from ptxdiff.references.formats import INT4", "; ptxdiff list --formats prints all formats"),
        ("from ptxdiff.references import conversions", "; did you mean conversion?"),
        ("from ptxdiff.references.conversion import to_e2m2", "; did you mean to_e2m1?"),
        (
            "conversion.from_integer",
            "; did you mean float_to_integer or integer_to_integer?; ptxdiff list --references ",
        ),
        ("from ptxdiff import Cases", "; did you mean Case"),
        ("import ptxdiff.refrences", "; did you mean references"),
        ("bits.xyzzy(CODES, CODES, 3)", "; ptxdiff list --references prints every function of references"),
        ("F32.decode(CODES)", "; functions of ptxdiff.references.formats take the format first"),
        ("conversion.convert(CODES, source=F32, taget=U8)", "; did you mean target?"),
        ("conversion.convert(CODES, F32, U8)", "; it is convert(codes, *, source, target, rounding='rn', "),
        ("conversion.float_to_integer(CODES)", "; it is float_to_integer(codes, *, source, target, "),
        ("block_scaling.mx_quantize(CODES, target='e2m1')", "; a format is a constant of ptxdiff.references.formats"),
        ("bits.shl(CODES, 4)", "; a reference takes tensors of codes, for numbers too: torch.full_like(a, 4)"),
    ],
)
def test_an_error_about_a_name_of_ours_says_what_there_is(text, words):
    with pytest.raises((ImportError, AttributeError, TypeError)) as raised:
        exec(text, globals())
    assert words in explained(raised.value)


@pytest.mark.parametrize("text", ["[].foo", "import json.nothing", "len(1)", "CODES.nothing", "sorted([], kye=3)"])
def test_other_errors_are_left_alone(text):
    with pytest.raises((ImportError, AttributeError, TypeError)) as raised:
        exec(text, globals())
    assert explained(raised.value) == f"{type(raised.value).__name__}: {raised.value}"


def test_the_nearest_names_come_first():
    assert nearest("rcpp", ["rcp", "rsqrt", "rcp.rn"])[0] == "rcp"
