"""Numbers in a variant's code, and the inputs made of them."""

import numpy as np
import pytest

from ptxdiff import asm, plain, ptx
from ptxdiff.inputs.constants import constant_inputs, units_beside
from ptxdiff.model.constants import constants_of
from ptxdiff.references.formats import BF16, E2M1X2, F16X2, F32, U8, U32, U64

TEXTS = {
    "add.u32 $0, $1, 0x1F;": (31,),
    "{ .reg .b32 %r<9>; mov.b32 %r8, 0b101U; add.u32 $0, $12, 77; }": (5, 77),
    "mul.f32 $0, $1, 0f3FC00000;": (0x3FC00000, 1.5),
    "fma.rn.f32 $0, $1, 2.5, -1e3;": (2.5, 1000.0),
    "mul.f64 $0, $1, 0d4000000000000000;": (1 << 62, 2.0),
    "mov.b32 $0, 0; and.b32 $0, $1, 0xFFFF0000FFFF0000FFFF;": (),
}


@pytest.mark.parametrize("text", TEXTS)
def test_numbers_of_a_text(text):
    assert constants_of(asm(text, constraints="=r,r")) == TEXTS[text]
    assert constants_of(asm({1: (text, "=r,r"), 2: (text, "=r,r")})) == TEXTS[text]


def test_numbers_of_functions_and_given_ptx():
    pytest.importorskip("triton")
    from tests.support.running.rare_kernels import counted_but_for_one, counted_but_for_one_of_its_own

    assert 0x37C5E21B in constants_of(plain(counted_but_for_one))
    assert 0x2B5C71D3 in constants_of(plain(counted_but_for_one_of_its_own))
    assert 40961 in constants_of(plain(counted_but_for_one, constants={"LEAST": 40961}))
    module = ptx(".version 8.0 .entry k() { mov.b32 %r1, 0xABCD; }", grid="1", block=32, parameters=[])
    assert 0xABCD in constants_of(module)


def test_inputs_beside_a_number():
    units = {int(u) & 0xFFFFFFFF for u in units_beside(U32, [0x12345678, 0x9ABCDEF, 7])}
    n, m = 0x12345678, 0x9ABCDEF
    for value in (
        n,
        n + 1,
        n - 1,
        -n,
        ~n,
        n << 7,
        n >> 7,
        n + m,
        m - n,
        n * m,
        n ^ m,
        0x56785678,
        0x7B7B7B7B,
        0x7B0000,
    ):
        assert value & 0xFFFFFFFF in units, hex(value)


def test_numbers_as_values_of_floats():
    units = {int(u) & 0xFFFFFFFF for u in units_beside(F32, [1.5, -0.1, 127])}
    for value in (1.5, np.float32(1) / np.float32(1.5), 127.0):
        assert int(np.float32(value).view(np.uint32)) in units
    tenth = int(np.float32(-0.1).view(np.uint32))
    assert {tenth, tenth - 1} & units
    assert 127 in units
    assert 127 << 23 in units
    assert 0x3FC0 in {int(u) for u in units_beside(BF16, [1.5])}
    assert 0x3E003E00 in {int(u) for u in units_beside(F16X2, [1.5])}


def test_formats_of_a_byte_need_no_such_inputs():
    assert not units_beside(U8, [3]).size
    assert not units_beside(E2M1X2, [3]).size


def test_inputs_beside_each_other():
    a, b = constant_inputs({"a": U32, "b": U64}, [40961, 777], np.random.default_rng(1))
    assert len(a) == len(b)
    assert {(40961, 777), (777, 40961), (777, 777)} <= set(zip(a.tolist(), b.tolist(), strict=True))


def test_no_numbers_at_all():
    (x,) = constant_inputs({"x": U32}, [], np.random.default_rng(1))
    assert 0x01010101 in x.tolist()
