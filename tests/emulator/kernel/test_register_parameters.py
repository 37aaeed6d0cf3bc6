"""Functions whose parameters are registers: a call copies the values in and out."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator.errors import NotElementwise, OperandError
from ptxdiff.emulator.kernel.run import Buffer, run_kernel

MIX = """.func (.reg .u32 r) mix(.reg .u32 x, .reg .f32 y, .reg .u64 z)
{ .reg .b32 t, u; mov.b32 u, y; add.u32 x, x, u; cvt.u32.u64 t, z; xor.b32 r, x, t; ret; }
"""
TWICE = """.func (.reg .u32 r) twice(.reg .u32 x)
{ call (x), mix, (x, 0f40000000, 7); call (r), mix, (x, 0f3F800000, 9); ret; }
"""


def run(body: str, functions: str = MIX + TWICE) -> np.ndarray:
    text = f""".version 8.0
.target sm_90a
.address_size 64
{functions}
.visible .entry k(.param .u64 out)
{{
  .reg .b32 %x, %y; .reg .f32 %f; .reg .b64 %d, %o; .reg .pred %p;
  mov.u32 %x, %tid.x; ld.param.u64 %d, [out]; mul.wide.u32 %o, %x, 4; add.u64 %d, %d, %o; cvt.rn.f32.u32 %f, %x;
  {body}
  st.global.u32 [%d], %y;
  ret;
}}
"""
    values = np.zeros(32, np.uint32)
    run_kernel(text, [Buffer(values, "out", defined=False)], (1,), num_threads=32)
    return values


X = np.arange(32, dtype=np.uint32)


def mixed(x: np.ndarray, y: np.ndarray | float, z: np.ndarray | int) -> np.ndarray:
    return (x + np.asarray(y, np.float32).view(np.uint32)) ^ np.asarray(z, np.uint32)


def test_registers_and_constants_are_passed_and_the_callers_registers_stay() -> None:
    found = run("call (%y), mix, (%x, %f, %o); add.u32 %y, %y, %x;")
    np.testing.assert_array_equal(found, mixed(X, X.astype(np.float32), 4 * X) + X)
    np.testing.assert_array_equal(run("call (%y), mix, (5, 0f3F800000, %o);"), mixed(X * 0 + 5, 1.0, 4 * X))


def test_a_function_calls_another_and_lanes_may_part() -> None:
    twice = mixed(mixed(X, 2.0, 7), 1.0, 9)
    np.testing.assert_array_equal(run("call (%y), twice, (%x);"), twice)
    found = run("mov.u32 %y, 3; setp.gt.u32 %p, %x, 9; @!%p bra L; call (%y), twice, (%x); L: add.u32 %y, %y, 1;")
    np.testing.assert_array_equal(found, np.where(X > 9, twice, 3) + 1)


def test_a_result_that_nobody_takes_is_dropped() -> None:
    np.testing.assert_array_equal(run("mov.u32 %y, 8; call (_), twice, (%x);"), X * 0 + 8)


def test_what_ptxas_does_not_pass_in_a_register_is_refused() -> None:
    narrow = MIX.replace(".reg .u64 z", ".reg .u16 z").replace("cvt.u32.u64", "cvt.u32.u16")
    with pytest.raises(NotElementwise, match=r"parameter register of type \.u16"):
        run("call (%y), mix, (%x, %f, 1);", narrow)
    with pytest.raises(OperandError, match="takes 3 here, not 2"):
        run("call (%y), mix, (%x, %f);")


def test_a_constant_is_no_param_variable() -> None:
    function = ".func (.reg .u32 r) load(.param .u32 x) { ld.param.u32 r, [x]; ret; }"
    with pytest.raises(OperandError, match=r"a constant is no \.param variable"):
        run("call (%y), load, (5);", function)
