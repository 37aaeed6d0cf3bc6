"""Replay tokens contain everything about one pack, and wrong tokens get clear errors."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pytest

from ptxdiff import Case, asm, plain
from ptxdiff.jobs import Setup, block_of
from ptxdiff.references.formats import E2M1X2, F32, F64, I8, Format
from ptxdiff.running.replay import Origin, Replay, TokenError, parse, remarks, token
from tests.support.case_sources import FLIP, RIGHT


def case_of(**inputs: Format) -> Case:
    return Case(
        inputs=inputs, outputs={"out": F32}, reference=lambda *c: c[0], variants={"v": asm("mov.b32 $0, $1;", "=r,r")}
    )


SETUP = Setup(
    pack=4,
    shape=(7, 129),
    block=block_of(4),
    alignment=4,
    num_warps=8,
    context="loop",
    steps=3,
    fusion=True,
    padding=11,
)


@pytest.mark.parametrize("fmt", [F32, F64, I8, E2M1X2], ids=str)
def test_a_token_restores_setup_place_and_pack(fmt):
    units = np.arange(7 * 129).astype(fmt.numpy_dtype()).reshape(7, 129)
    units.flat[9] = -1 if fmt.has_sign and not fmt.is_float else (1 << fmt.unit_bits) - 1
    found = parse(token(SETUP, {"x": units}, 9), case_of(x=fmt))
    assert found.setup == SETUP
    assert found.place == 1
    np.testing.assert_array_equal(found.inputs["x"], units.flat[8:12])
    filled = found.fill(case_of(x=fmt))["x"]
    assert filled.shape == (7, 129)
    assert (filled.flat[1::4] == units.flat[9]).all(), "the failing input is at its place in every pack"


def test_a_pack_cut_off_by_the_end_is_completed():
    units = np.arange(6, dtype=np.uint32)
    found = parse(token(Setup(pack=4, shape=(6,)), {"x": units}, 5), case_of(x=F32))
    assert found.inputs["x"].tolist() == [4, 5, 0, 1]


def test_inputs_may_have_names_of_the_setup():
    case = case_of(pack=F32, shape=F32, x=F32)
    units = {n: np.array([k], dtype=np.uint32) for k, n in enumerate(case.inputs)}
    found = parse(token(Setup(shape=(1,)), units, 0), case)
    assert {n: u.tolist() for n, u in found.inputs.items()} == {"pack": [0], "shape": [1], "x": [2]}


def test_a_whole_kernel_names_its_input_set():
    function = type("Jit", (), {"fn": staticmethod(lambda x: x)})()
    assert plain(function).kind == "plain"
    text = token(Setup(sizes={"M": 4, "N": 64}, alignment=2), {}, 0, "edges/1")
    found = parse(text, case_of(x=F32))
    assert (found.setup.sizes, found.input_set) == ({"M": 4, "N": 64}, "edges/1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "expected name=value pairs, separated by commas"),
        ("place=0,x=00000000", "'pack' is missing"),
        ("pack=two,x=00000000", "invalid literal"),
        ("pack=0,x=00000000", "pack, steps and shape must be at least 1"),
        ("pack=1,shape=0,x=00000000", "pack, steps and shape must be at least 1"),
        ("pack=1,z=00000000", "the case's inputs are x; the token gives z"),
        ("pack=1", "the token gives none"),
        ("pack=2,x=00000000", "expected 2 values of 32 bits"),
        ("pack=1,x=100000000", "expected 1 values of 32 bits"),
        ("pack=1,x=g", "expected hexadecimal numbers separated by colons"),
        ("pack=1,x=00000000,x=3f800000", "x stands there twice"),
        ("pack=1,pack=2,x=00000000", "pack stands there twice"),
        ("pack=1,place=1,x=00000000", "place=1 is none of a pack of 1"),
        ("pack=1,align=3,x=00000000", "align=3 is no power of two"),
        ("pack=1,warps=0,x=00000000", "warps=0 is no power of two"),
        ("pack=1,fusion=yes,x=00000000", "fusion=yes is neither 0 nor 1"),
        ("pack=1,alone=2,x=00000000", "alone=2 is neither 0 nor 1"),
    ],
)
def test_a_wrong_token_gets_a_clear_error(text, words):
    with pytest.raises(TokenError) as raised:
        parse(text, case_of(x=F32))
    assert words in str(raised.value)


# A token and the case that it was made from --------------------------------------------------------------------------

CHANGED = "the case has changed since this token was made: "
NOW = "; the replay runs the case as it is now"


def repeated(run_cases, before: str, after: str) -> str:
    """The output of pytest when the command of a failure in one version of a case is repeated with another version."""
    found = run_cases(c=before)
    node, word = shlex.split(re.findall(r"^  repeat    pytest (.*)$", found.stdout.str(), flags=re.M)[0])
    return run_cases(node, word, c=after).stdout.str()


def test_a_replay_of_the_same_case_has_no_remark(run_cases):
    commented = FLIP.replace("U8\n\n", "U8  # bytes\n\n")
    for text in (FLIP, commented):
        output = repeated(run_cases, FLIP, text)
        assert "1 failed" in output
        assert "this token" not in output


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("old", "new", "outcome", "what"),
    [
        ("0x01010181", "0x01010101", "1 passed", "asm"),
        ("0x01010181", "0x01010182", "1 failed", "asm"),
        ("return x ^ 1", "return x ^ 0x81", "1 failed", "reference"),
        ("case = Case(", "case = Case(nan='canonical', ", "1 failed", "policy"),
    ],
)
def test_a_replay_names_the_changes_since(run_cases, old, new, outcome, what):
    assert old in FLIP
    output = repeated(run_cases, FLIP, FLIP.replace(old, new))
    assert outcome in output
    assert CHANGED + what + NOW in " ".join(output.split())


def test_inputs_in_another_format_are_other_inputs(run_cases):
    output = repeated(run_cases, FLIP, FLIP.replace("U8", "I8"))
    assert "1 failed" in output
    assert "--ptx-replay: the formats of the case have changed since this token was made" in output


def test_a_token_without_an_identity_runs_with_a_remark(run_cases):
    word = "pack=4,place=0,shape=256,align=16,warps=4,context=straight,steps=1,fusion=0,x=00:01:02:03"
    output = run_cases("cases/c.py::right[sm_100a-emulator]", f"--ptx-replay={word}", c=FLIP).stdout.str()
    assert "1 passed" in output
    assert "this token does not identify the case's definition" in " ".join(output.split())


KERNEL = """
import numpy as np
import triton
import triton.language as tl
from ptxdiff import Case, kernel
from ptxdiff.references.formats import U8


@triton.jit
def flip(x, y, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y + at, tl.load(x + at) ^ 3)


def made(sizes, random):
    return {"x": np.arange(sizes["N"]).astype(np.uint8)}


case = Case(
    inputs={"x": U8["N"]},
    outputs={"y": U8["N"]},
    reference=lambda x: x ^ 1,
    variants={"v": kernel(flip, grid=(1,))},
    sizes=[{"N": 64}],
    generate=made,
)
"""


def test_a_kernel_whose_inputs_changed_cannot_be_repeated(run_cases):
    assert "1 failed" in (output := repeated(run_cases, KERNEL, KERNEL))
    assert "this token" not in output
    output = repeated(run_cases, KERNEL, KERNEL.replace("np.arange(sizes", "1 + np.arange(sizes"))
    assert "1 failed" in output
    assert "--ptx-replay: the inputs called generated/1 are not those that this token was made from" in output
    output = repeated(run_cases, KERNEL, KERNEL.replace("^ 3)", "^ 5)"))
    assert CHANGED + "function" + NOW in " ".join(output.split())


def test_other_compiled_code_of_the_same_case_gets_a_remark():
    origin = Origin.of({"asm": "0" * 16}, body="a" * 64)
    made = Replay(Setup(), 0, {}, origin=origin)
    same = {"asm": "0" * 16}
    assert remarks(made, same) == remarks(made, same, "a" * 64) == remarks(None, same) == ()
    assert "compiles to other code than when this token was made" in remarks(made, same, "b" * 64)[0]


@pytest.mark.parametrize("word", ["", "x", "8670c7d8e074-8652--x", "8670c7d8e074-865--", "8670c7d8e074"])
def test_an_incomplete_identity_is_refused(word):
    with pytest.raises(TokenError, match="copy the whole token"):
        parse(f"identity={word},pack=1,shape=1,x=00000000", case_of(x=F32))


def test_a_wrong_token_with_an_address_is_told_as_such(run_cases):
    """The address is right: the message is of the token, not of an item that the options leave out."""
    result = run_cases("--ptx-replay=pack=1,place=0,shape=1,x=1ff", "cases/flip.py::right", flip=RIGHT)
    result.stderr.fnmatch_lines(["*--ptx-replay: *expected 1 values of 8 bits*"])
    assert "leave this item out" not in result.stderr.str()
