"""Constraints and packs: how Triton and LLVM read them, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator import emulate
from ptxdiff.emulator.binding.constraints import bind, parse_constraints
from ptxdiff.emulator.errors import BindingError


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        ("=r", "0 input operands, but pack=1 needs 1"),
        ("=r,r,r", "2 input operands, but pack=1 needs 1"),
        ("=r,=r,r", "2 output operands, but pack=1 needs 1"),
        ("r,r", "0 output operands"),
        ("=r,r,", "empty"),
        ("+r,r", "no read-write operands"),
        ("=r,n", "compile-time constant"),
        ("=r,i", "compile-time constant"),
        ("=r r", "separated by commas"),
        ("=r,&r", "only an output"),
        ("r,=r", "outputs come before inputs"),
        ("=r,1", "no output 1"),
        ("=r,0,0", "tied to output 0 already"),
        ("=x,r", "no such constraint"),
        ("=m,r", "no such constraint"),
        ("=,r", "no such constraint"),
        ("=h,r", "does not fit in the 16-bit register"),
        ("", "0 output operands"),
    ],
)
def test_wrong_constraints_are_refused_with_a_reason(constraints: str, words: str) -> None:
    with pytest.raises(BindingError, match=words):
        emulate("mov.b32 $0, $1;", constraints, [np.float32([1])], "float32")


def test_a_64_bit_operand_for_two_elements_names_the_convention_that_has_it() -> None:
    x = np.float32([1, 2])
    with pytest.raises(BindingError, match=r"1 output operands, but pack=2 needs 2.*convention='llvm' here"):
        emulate("mul.f32x2 $0, $1, $2;", "=l,l,l", [x, x], "float32", pack=2, target="sm_100a")
    assert (
        emulate("mul.f32x2 $0, $1, $2;", "=l,l,l", [x, x], "float32", pack=2, target="sm_100a", convention="llvm")[1]
        == 4
    )
    with pytest.raises(BindingError) as refusal:
        emulate("mov.b32 $0, $1;", "=r,l", [x, x], "float32", pack=2)
    assert "llvm" not in str(refusal.value)


def test_operands_that_fit_no_tensor_are_refused_with_the_number_of_tensors() -> None:
    x = np.float32([1])
    with pytest.raises(BindingError, match=r"2 input operands .*so that the one tensor needs 1 operand$"):
        emulate("add.f32 $0, $1, $2;", "=f,f,f", [x], "float32", convention="llvm")
    with pytest.raises(BindingError, match=r"3 input operands .*so that each of 2 tensors needs 1 operand$"):
        emulate("add.f32 $0, $1, $2;", "=f,f,f,f", [x, x], "float32", convention="llvm")


@pytest.mark.parametrize("constraints", ["=r,r", "=&r,r", "=r, r", "=r,r,~{memory}", "=r,%r", "=f,f", "=r,f", "=r,0"])
def test_right_constraints_are_accepted(constraints: str) -> None:
    assert emulate("mov.b32 $0, $1;", constraints, [np.float32([1.5])], "float32") == 1.5


@pytest.mark.parametrize("pack", [0, 3, 6, -1])
def test_pack_is_a_power_of_two(pack: int) -> None:
    with pytest.raises(BindingError, match="power of two"):
        emulate("mov.b32 $0, $1;", "=r,r", [np.float32([1])], "float32", pack=pack)


def test_operands_name_their_elements() -> None:
    operands = bind(parse_constraints("=r,=r,=r,=r,=r,r,r,r,r,r"), [8, 32], [32, 8], 4)
    assert [(o.output, o.tensor, o.first, o.count) for o in operands] == [
        (True, 0, 0, 1),
        (True, 0, 1, 1),
        (True, 0, 2, 1),
        (True, 0, 3, 1),
        (True, 1, 0, 4),
        (False, 0, 0, 4),
        (False, 1, 0, 1),
        (False, 1, 1, 1),
        (False, 1, 2, 1),
        (False, 1, 3, 1),
    ]
    assert operands[4].describes == "$4 (output 1, elements 0 to 3 of the pack)"


@pytest.mark.parametrize(
    ("width", "pack", "expected"),
    [(8, 1, [1]), (8, 2, [2]), (8, 4, [4]), (8, 8, [4, 4]), (16, 1, [1]), (16, 2, [2]), (16, 4, [2, 2]),
     (32, 2, [1, 1]), (64, 2, [1, 1]), (1, 2, [2])],
)  # fmt: skip
def test_small_elements_share_32_bits(width: int, pack: int, expected: list[int]) -> None:
    constraints = ",".join(["=l"] * len(expected) + ["l"] * len(expected))
    operands = bind(parse_constraints(constraints), [width], [width], pack)
    assert [o.count for o in operands if not o.output] == expected


def test_elements_are_packed_low_first() -> None:
    x = np.arange(1, 9, dtype=np.uint8)
    got = emulate("mov.b32 $0, $1;", "=r,r", [x.reshape(2, 4)], "uint8", pack=4)
    np.testing.assert_array_equal(got, x.reshape(2, 4))
    word = emulate(
        "mov.b32 $0, $4; mov.b32 $1, $4; mov.b32 $2, $4; mov.b32 $3, $4;", "=r,=r,=r,=r,r", [x[:4]], "int32", pack=4
    )
    assert word.tolist() == [0x04030201] * 4


def test_a_misspelt_dtype_gets_the_nearest() -> None:
    with pytest.raises(BindingError, match="'flot32' is no dtype; did you mean float32"):
        emulate("mov.b32 $0, $1;", "=r,r", [np.float32([1])], "flot32")
