"""Replay tokens carry everything of one pack, and say what is wrong with them."""

from __future__ import annotations

import numpy as np
import pytest

from harness import Case, asm, plain
from harness.jobs import Setup
from harness.running.replay import TokenError, parse, token
from references.formats import E2M1X2, F32, F64, I8, Format


def case_of(**inputs: Format) -> Case:
    return Case(
        inputs=inputs, outputs={"out": F32}, reference=lambda *c: c[0], variants={"v": asm("mov.b32 $0, $1;", "=r,r")}
    )


SETUP = Setup(pack=4, shape=(7, 129), alignment=4, num_warps=8, context="loop", steps=3, fusion=True, padding=11)


@pytest.mark.parametrize("fmt", [F32, F64, I8, E2M1X2], ids=str)
def test_a_token_brings_back_setup_place_and_pack(fmt):
    units = np.arange(7 * 129).astype(fmt.numpy_dtype()).reshape(7, 129)
    units.flat[9] = -1 if fmt.has_sign and not fmt.is_float else (1 << fmt.unit_bits) - 1
    found = parse(token(SETUP, {"x": units}, 9), case_of(x=fmt))
    assert found.setup == SETUP
    assert found.place == 1
    np.testing.assert_array_equal(found.inputs["x"], units.flat[8:12])
    filled = found.fill(case_of(x=fmt))["x"]
    assert filled.shape == (7, 129)
    assert (filled.flat[1::4] == units.flat[9]).all(), "the failing input is wherever its place is"


def test_a_pack_cut_off_by_the_end_is_completed():
    units = np.arange(6, dtype=np.uint32)
    found = parse(token(Setup(pack=4, shape=(6,)), {"x": units}, 5), case_of(x=F32))
    assert found.inputs["x"].tolist() == [4, 5, 0, 1]


def test_inputs_may_be_called_like_words_of_the_setup():
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
        ("nonsense", "it consists of name=value, separated by commas"),
        ("place=0,x=00000000", "'pack' is missing"),
        ("pack=two,x=00000000", "invalid literal"),
        ("pack=0,x=00000000", "pack, steps and shape are at least 1"),
        ("pack=1,shape=0,x=00000000", "pack, steps and shape are at least 1"),
        ("pack=1,z=00000000", "the case's inputs are x; the token gives z"),
        ("pack=1", "the token gives none"),
        ("pack=2,x=00000000", "expected 2 values of 32 bits"),
        ("pack=1,x=100000000", "expected 1 values of 32 bits"),
        ("pack=1,x=g", "expected hexadecimal numbers separated by colons"),
    ],
)
def test_what_is_wrong_with_a_token_is_said(text, words):
    with pytest.raises(TokenError) as raised:
        parse(text, case_of(x=F32))
    assert words in str(raised.value)
