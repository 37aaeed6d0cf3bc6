"""Inline asm read from the text of Triton's dialect."""

import pytest

from ptxdiff.model.dialect import asm_calls, has_packs

TEXT = r'''#blocked = #ttg.blocked<{sizePerThread = [4], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
#other = #ttg.blocked<{sizePerThread = [1, 2], threadsPerWarp = [4, 8], warpsPerCTA = [4, 1], order = [1, 0]}>
#linear = #ttg.linear<{register = [[0, 1], [8, 0]], lane = [[0, 2], [1, 0]], warp = [[0, 0]], block = []}>
#pair = #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0], CGALayout = [[1]]}>
#loc5 = loc("/a \22b\22/kernel.py":13:12)
#loc7 = loc("/lib/helper.py":8:12)
#loc8 = loc("/a/kernel.py":16:21)
#loc15 = loc(callsite(#loc7 at #loc8))
#loc16 = loc("made"(#loc15))
  %1:2 = tt.elementwise_inline_asm "\0A {mov.b32 $0, \22\\$1;}" {constraints = "=&r,=r,r,~{memory}", packed_element = 4 : i32, pure = false} %x, %0 : tensor<64xi32, TYPE>, tensor<64x!tt.ptr<f8E5M2>, TYPE> -> tensor<SHAPExi8, TYPE>, tensor<64xbf16, TYPE> loc(#loc5)
  %4 = tt.elementwise_inline_asm "mov.b32 $0, $1;" {constraints = "=r,r", packed_element = 1 : i32, pure = true} %x_1 : tensor<64xi32, TYPE> -> tensor<64xi32, TYPE> loc(#loc16)
  %5 = tt.elementwise_inline_asm "mov.b32 $0, $1;" {constraints = "=r,r", packed_element = 1 : i32, pure = true} %x_1 : tensor<64xi32, TYPE> -> tensor<64xi32, TYPE>
'''  # fmt: skip # noqa: E501


def shown(layout, shape="64"):
    return TEXT.replace("TYPE", layout).replace("SHAPE", shape)


def test_a_call_has_its_text_constraints_pack_types_and_place():
    first, second = asm_calls(shown("#blocked"))
    assert first.text == '\n {mov.b32 $0, "\\$1;}'
    assert (first.constraints, first.pack, first.pure) == ("=&r,=r,r,~{memory}", 4, False)
    assert (first.inputs, first.outputs) == (("i32", "ptr"), ("i8", "bf16"))
    assert first.place == '/a "b"/kernel.py:13'
    assert (second.text, second.pack, second.pure) == ("mov.b32 $0, $1;", 1, True)
    assert second.place == "/lib/helper.py:8", "an inlined function has the asm, not its caller"


@pytest.mark.parametrize(
    ("layout", "shape", "filled"),
    [
        ("#blocked", "64", 4),
        ("#blocked", "2", 2),
        ("#ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>", "64", 1),
        ("#ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [1], order = [0]}>", "64", 2),
        ("#other", "16x16", 2),
        ("#other", "32x16", 4),
        ("#ttg.slice<{dim = 1, parent = #other}>", "16", 1),
        ("#ttg.slice<{dim = 0, parent = #other}>", "32", 4),
        ("#linear", "16x4", 4),
        ("#pair", "64", 4),
        ("#mma", "64", 4),
    ],
)
def test_filled_places_are_the_different_elements_of_a_thread(layout, shape, filled):
    first, second = asm_calls(shown("#blocked"), shown(layout, shape))
    assert (first.filled, second.filled) == (filled, 1)


def test_one_call_with_full_packs_suffices():
    narrow = "#ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>"
    assert asm_calls(shown(narrow), shown(narrow) + shown("#blocked"))[0].filled == 4
    assert asm_calls(shown(narrow))[0].filled == 4, "nothing is known without layouts"


def test_scalars_fill_one_place():
    text = (
        '%1 = tt.elementwise_inline_asm "x" {constraints = "=r,r", packed_element = 4 : i32, pure = true} %a : i8 -> i8'
    )
    assert asm_calls(text, text)[0].filled == 1
    assert (has_packs(text), has_packs(text.replace("4 :", "1 :")), has_packs("")) == (True, False, False)
