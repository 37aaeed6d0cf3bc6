"""Parameters that a call stores in one width and loads in another, as nvcc writes it without optimisation."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator.errors import NotElementwise, UndefinedBits
from ptxdiff.emulator.kernel.run import Buffer, run_kernel

BYTES = """.func (.param .align 4 .b8 result[4]) bytes(.param .b32 first, .param .b32 second)
{
  .reg .b16 %h<3>; .reg .b32 %x;
  ld.param.u8 %h1, [first];
  ld.param.u8 %h2, [second+1];
  st.param.b8 [result+0], %h1;
  st.param.b8 [result+1], %h2;
  st.param.b8 [result+2], %h1;
  LAST
  ret;
}
"""
LAST = "st.param.b8 [result+3], 255;"
LOAD = "ld.param.b32 %r5, [back+0];"


def run(load: str = LOAD, last: str = LAST) -> np.ndarray:
    text = f""".version 8.0
.target sm_90a
.address_size 64
{BYTES.replace("LAST", last)}
.visible .entry k(.param .u64 y)
{{
  .reg .b32 %r<9>; .reg .b64 %d<3>; .reg .b16 %h<5>;
  mov.u32 %r1, %tid.x;
  mad.lo.u32 %r2, %r1, 257, 4660;
  {{
    .param .b32 one; st.param.b32 [one+0], %r2;
    .param .b32 two; st.param.b32 [two+0], %r2;
    .param .align 4 .b8 back[4];
    call.uni (back), bytes, (one, two);
    {load}
  }}
  ld.param.u64 %d1, [y];
  mad.wide.u32 %d2, %r1, 4, %d1;
  st.global.u32 [%d2], %r5;
  ret;
}}
"""
    y = np.zeros(32, np.uint32)
    run_kernel(text, [Buffer(y, "y", defined=False)], (1,), num_threads=32)
    return y


ARGUMENT = np.arange(32, dtype=np.uint32) * 257 + 4660
LOW, HIGH = ARGUMENT & 0xFF, ARGUMENT >> 8 & 0xFF


def test_bytes_are_loaded_from_words_and_a_word_from_bytes() -> None:
    np.testing.assert_array_equal(run(), LOW | HIGH << 8 | LOW << 16 | 255 << 24)


def test_a_vector_of_halves_is_loaded_from_bytes() -> None:
    load = "ld.param.v2.b16 {%h1, %h2}, [back]; mov.b32 %r5, {%h2, %h1};"
    np.testing.assert_array_equal(run(load), (LOW | 255 << 8) | (LOW | HIGH << 8) << 16)


def test_a_byte_that_is_never_stored_is_undefined() -> None:
    with pytest.raises(UndefinedBits):
        run(last="")
    load = "ld.param.b16 %h1, [back]; cvt.u32.u16 %r5, %h1;"
    np.testing.assert_array_equal(run(load, last=""), LOW | HIGH << 8)


def test_stores_of_two_widths_to_one_byte_are_refused() -> None:
    """The emulator does not track which of the two stores came last."""
    with pytest.raises(NotElementwise, match="in two widths"):
        run(last=f"{LAST} st.param.b16 [result+2], %h2;")


def test_the_address_of_a_function_is_refused_with_a_reason() -> None:
    """nvcc takes the address for calls through a pointer."""
    with pytest.raises(
        NotElementwise, match=r"the address of the function bytes: calls through a register are not run"
    ):
        run(load="mov.b64 %d2, bytes; ld.param.b32 %r5, [back+0];")
