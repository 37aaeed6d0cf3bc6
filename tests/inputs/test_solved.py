"""Inputs that arithmetic turns into a number of the code: integers, floats, and pairs of inputs."""

import numpy as np
import pytest

from ptxdiff.inputs.constants import constant_inputs, integers_of_several, integers_solved, relations, units_beside
from ptxdiff.references.formats import BF16, F16X2, F32, F64, U16, U32, U64, UE8M0

N, A, C = 0x1234ABCD, 0x9E3779B1, 0x7654321
STEPS = {
    "bytes reversed": lambda x: int.from_bytes(x.to_bytes(4, "little"), "big") == N,
    "bits reversed": lambda x: int(f"{x:032b}"[::-1], 2) == N,
    "rotated": lambda x: (x << 7 | x >> 25) & 0xFFFFFFFF == N,
    "xor with itself shifted right": lambda x: x ^ x >> 7 == N,
    "xor with itself shifted left": lambda x: (x ^ x << 7) & 0xFFFFFFFF == N,
    "a product": lambda x: x * A & 0xFFFFFFFF == N,
    "the upper half of a product": lambda x: x * A >> 32 == N,
    "a product and a sum": lambda x: x * A + C & 0xFFFFFFFF == N,
    "a product and an xor": lambda x: (x * A ^ C) & 0xFFFFFFFF == N,
    "a quotient": lambda x: x // 7 == 3,
    "a remainder": lambda x: x % A == N and x > A,
    "bytes exchanged": lambda x: (x & 0xFF00FF) << 8 | x >> 8 & 0xFF00FF == N,
    "one below a large multiple": lambda x: x % C == C - 1 and x > 1 << 31,
}


@pytest.mark.parametrize("step", STEPS)
def test_integers_of_which_a_step_makes_a_number(step):
    found = {n & 0xFFFFFFFF for n in integers_solved([A, N, C, 7, 3], [7], 32)}
    assert any(STEPS[step](x) for x in found)
    assert not any(STEPS[step](x) for x in (A, N, C, 7, 3))


SEVERAL = {
    "four bytes, the last first": ([255, 0x12, 8, 0x34, 16, 0x56, 24, 0x78], lambda x: x == 0x78563412),
    "four bytes, the first first": ([24, 0x12, 8, 0x34, 16, 0x56, 255, 0x78], lambda x: x == 0x12345678),
    "four bytes, one of them zero": ([255, 0x12, 8, 0x34, 16, 24, 0x78], lambda x: x == 0x78003412),
    "four bytes, two of them equal": ([255, 0x12, 8, 0x34, 16, 0x56, 24], lambda x: x == 0x34563412),
    "four bytes that are amounts of shifts too": ([8, 16, 24, 255], lambda x: x == 0x08FF1018),
    "eight digits": ([1, 2, 3, 5, 6, 7, 9, 10], lambda x: x == 0xA9765321),
    "a product of twice as many bits": ([A, 0x2222222211111111 * A >> 32 << 31 | 1, A * N], lambda x: x * A == A * N),
    "a negative product": ([A, (-A * N) % (1 << 64)], lambda x: (x - (1 << 32)) * A == -A * N),
    "a product and a sum": ([A, C, A * N + C], lambda x: x * A + C == A * N + C),
    "a square of twice as many bits": ([N * N], lambda x: x == N),
    "lop3 in its first operand": ([A, C, 0x96, N], lambda x: x ^ A ^ C == N),
    "lop3 in its second operand": ([A, C, 0xCA, A & N | C & ~A], lambda x: A & x | ~A & C == A & N | C & ~A),
    "lop3 in its third operand": ([A & C | N & ~A, A, C, 0xCA], lambda x: A & C | ~A & x & MASK == A & C | N & ~A),
    "lop3 and no bit": ([A, C, 0x80], lambda x: x and not x & A & C),
}
MASK = 0xFFFFFFFF


@pytest.mark.parametrize("step", SEVERAL)
def test_integers_that_meet_several_numbers(step):
    numbers, meets = SEVERAL[step]
    found = {n & MASK for n in integers_of_several(numbers, 32)}
    assert any(meets(x) for x in found)
    assert len(found) < 2_000


def test_halves_and_squares():
    found = set(integers_solved([3904 * 3904, 0xABCD, 0x1234], [], 32))
    assert {3904, 0xABCD1234, 0x1234ABCD} <= found


def test_floats_are_whole_values_of_integers():
    assert 123456789 in units_beside(U32, [123456789.0]).tolist()
    assert not {123456789, 1} & set(units_beside(U32, [0.5, 123456789.5], repeated=False).tolist())


def single(value: float) -> np.float32:
    return np.float32(value)


TURNED = {
    "a product": lambda x: x * single(1.442695) == single(88.0),
    "a difference": lambda x: x - single(1.442695) == single(88.0),
    "a product and a sum": lambda x: single(np.float64(x) * single(1.442695) + single(0.3)) == single(88.0),
    "a square": lambda x: x * x == single(10.5625),
    "a root": lambda x: np.sqrt(x) == single(0.3),
    "half as wide": lambda x: np.float16(x).view(np.uint16) == 0x3ABC,
}


@pytest.mark.parametrize("step", TURNED)
def test_floats_of_which_a_step_makes_a_number(step):
    numbers = [float(single(v)) for v in (1.442695, 88.0, 10.5625, 0.3)] + [0x3ABC]
    with np.errstate(all="ignore"):
        assert any(TURNED[step](x) for x in units_beside(F32, numbers).astype(np.uint32).view(np.float32))


@pytest.mark.parametrize("fmt", [BF16, F16X2, F32, F64, U16, U32, U64], ids=lambda f: f.name)
@pytest.mark.parametrize("numbers", [[], [1e300, 5], [1 << 63, 2**64 - 1, 0.5], [-0.25, 3, 1e-320]])
def test_all_units_fit_their_format(fmt, numbers):
    for column in constant_inputs({"a": fmt, "b": fmt}, numbers, np.random.default_rng(1)):
        assert column.dtype == np.int64
        assert fmt.unit_bits == 64 or (column >= 0).all()
        assert fmt.unit_bits == 64 or (column < 1 << fmt.unit_bits).all()


def test_columns_are_of_one_length_also_beside_inputs_of_a_byte():
    columns = constant_inputs({"a": U32, "b": UE8M0, "c": U32}, [77777, 3.5], np.random.default_rng(1))
    assert len({len(c) for c in columns}) == 1


def test_what_two_inputs_make_together():
    a, b = (c.astype(np.uint32) for c in relations(U32, [N], [N], np.random.default_rng(1)))
    for made in (a - b, b - a, a + b, a ^ b):
        assert (made == N).sum() > 10
    x, y = (c.astype(np.uint32).view(np.float32) for c in relations(F32, [N], [1.75], np.random.default_rng(1)))
    with np.errstate(all="ignore"):
        for made in (x - y, y - x, x + y, x * y, y / x):
            assert (made == np.float32(1.75)).sum() > 3
