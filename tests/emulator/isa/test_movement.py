"""mov in all its forms: packing, unpacking, vectors, .b128, special registers."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator import emulate
from ptxdiff.emulator.errors import PtxError, UndefinedBits

WORDS = np.array([0x03020100, 0x80FF7F01], np.uint32)
LONGS = np.array([0x0706050403020100, 0xFEDCBA9876543210], np.uint64)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{.reg .b16 a, b; mov.b32 {a, b}, $1; mov.b32 $0, {b, a};}", [0x01000302, 0x7F0180FF]),
        ("{.reg .b8 a, b, c, d; mov.b32 {a, b, c, d}, $1; mov.b32 $0, {d, c, b, a};}", [0x00010203, 0x017FFF80]),
        ("{.reg .b16 a; mov.b32 {_, a}, $1; mov.b32 $0, {a, 0x1234};}", [0x12340302, 0x123480FF]),
        ("{.reg .b32 a, b; mov.v2.b32 {a, b}, {$1, 7}; mov.v2.b32 {b, a}, {a, b}; mov.b32 $0, b;}", WORDS),
        ("{.reg .v4 .b32 v; mov.v4.u32 v, {1, 2, $1, 4}; mov.u32 $0, v.z;}", WORDS),
        (
            "{.reg .b16 h, g; mov.b32 {h, g}, $1; mov.v2.b16 {h, g}, {g, h}; mov.b32 $0, {h, g};}",
            [0x01000302, 0x7F0180FF],
        ),
        ("{.reg .pred p, q; setp.eq.u32 p, $1, 0x03020100; mov.pred q, !p; selp.u32 $0, 5, 6, q;}", [6, 5]),
        ("{.reg .pred p; mov.pred p, 2; selp.u32 $0, $1, 0, p;}", WORDS),
        ("mov.f32 $0, $1;", WORDS),
        ("mov.b32 $0, {$1};", WORDS),
        (
            "{.reg .b8 a, b; mov.b32 {a, _, _, b}, $1; mov.b32 $0, {a, _, b, a}; and.b32 $0, $0, 0xffff00ff;}",
            [0x00030000, 0x01800001],
        ),
        ("mov.b32 $0, 0f3F800000;", [0x3F800000] * 2),
    ],
)
def test_words(text: str, expected: object) -> None:
    assert emulate(text, "=r,r", [WORDS], "uint32").tolist() == list(expected)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{.reg .b32 a, b; mov.b64 {a, b}, $1; mov.b64 $0, {b, a};}", [0x0302010007060504, 0x76543210FEDCBA98]),
        (
            "{.reg .b16 a<4>; mov.b64 {a0, a1, a2, a3}, $1; mov.b64 $0, {a3, a2, a1, a0};}",
            [0x0100030205040706, 0x32107654BA98FEDC],
        ),
        ("{.reg .f32 a, b; .reg .f64 d; mov.b64 {a, b}, $1; mov.b64 d, {a, b}; mov.b64 $0, d;}", LONGS),
        (
            "{.reg .b128 q, p; mov.b128 q, {$1, 5}; mov.b128 p, q; mov.b128 {$0, _}, p;}",
            LONGS,
        ),
        ("{.reg .b128 q; .reg .b64 x; mov.b128 q, {$1, 5}; mov.b128 {x, $0}, q;}", [5, 5]),
        (
            "{.reg .b128 q; .reg .b32 a<4>; mov.b128 q, {1, $1}; mov.b128 {a0, a1, a2, a3}, q; mov.b64 $0, {a2, a3};}",
            LONGS,
        ),
        ("{.reg .b128 q; .reg .b64 x; mov.b128 q, {1, 2, 3, 4}; mov.b128 {x, $0}, q;}", [0x400000003] * 2),
        ("{.reg .b128 q; .reg .b64 x; mov.b128 q, 9; mov.b128 {$0, x}, q;}", [9, 9]),
        ("{.reg .b128 q; .reg .b64 x; mov.b128 q, 9; mov.b128 {x, $0}, q;}", [0, 0]),
        ("{.reg .b64 a, b; mov.v2.u64 {a, b}, {$1, 3}; mov.u64 $0, a;}", LONGS),
    ],
)
def test_long_words(text: str, expected: object) -> None:
    assert emulate(text, "=l,l", [LONGS], "uint64").tolist() == list(expected)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mov.b32 _, $1;", "cannot discard its result"),
        ("mov.b32 {_}, $1;", "a vector of '_' alone has no element type"),
        ("mov.u32 $0, {$1};", "cannot be split into 1 elements"),
        ("{.reg .b64 a; mov.b64 a, {$1, _};}", "'_' may stand for a part of a 32-bit word only"),
        ("{.reg .b16 a, b; mov.b32 {a, b}, {a, b};}", "takes a vector on one side, not on both"),
        ("mov.u32 $0, {1, 2};", "cannot be split into 2 elements"),
        ("{.reg .f32 f; mov.u32 f, $1;}", r"destination of mov.u32: f \(.f32\) does not fit"),
        ("mov.f32 $0, 1;", "an integer constant is no .f32"),
        ("mov.b32 $0, 1.0;", "a floating-point constant is no .b32"),
        ("mov.u32 $0, %tid;", "%tid has the components"),
        ("add.u32 $0, %tid.x, 1;", "can be read by mov only"),
        ("mov.u64 $0, %laneid;", "%laneid has 32 bits; mov.u64 moves 64"),
        ("{.reg .b8 a; mov.u8 a, a;}", "mov has no modifier .u8"),
        ("{.reg .b64 a, b; mov.v4.b64 {a, a, a, a}, {b, b, b, b};}", "mov has no form with these modifiers"),
        ("{.reg .b32 a, b; mov.v2.u32 {a, b}, %tid;}", "%tid is read whole by mov.v4"),
    ],
)
def test_moves_that_ptxas_refuses(text: str, words: str) -> None:
    with pytest.raises(PtxError, match=words):
        emulate(text, "=r,r", [WORDS], "uint32")


def test_an_element_without_a_source_is_undefined() -> None:
    text = "{.reg .b32 a; mov.v2.b32 {a, $0}, {$1, _};}"
    with pytest.raises(UndefinedBits, match="depends on undefined bits"):
        emulate(text, "=r,r", [WORDS], "uint32")


def test_special_registers_have_the_callers_values() -> None:
    zeros, lanes = np.zeros(70, np.uint32), np.arange(70)
    tid = {"%tid.x": lanes, "%tid.y": 1}
    assert emulate("mov.u32 $0, %tid.x;", "=r,r", [zeros], "uint32", special=tid).tolist() == list(range(70))
    assert emulate("mov.u32 $0, %tid.y;", "=r,r", [zeros], "uint32", special=tid).tolist() == [1] * 70
    shuffled = emulate("mov.u32 $0, %tid.x;", "=r,r", [zeros], "uint32", special=tid, order=3)
    assert shuffled.tolist() == list(range(70)), "each element has its own value, wherever it is computed"
    assert emulate("mov.u32 $0, WARP_SZ;", "=r,r", [zeros], "uint32").tolist() == [32] * 70
    clock = emulate("mov.u32 $0, %clock;", "=r,r", [zeros], "uint32", special={"%clock": 7})
    assert clock.tolist() == [7] * 70
    text = "{.reg .b32 a, b, c; mov.v4.u32 {$0, a, b, c}, %tid;}"
    assert emulate(text, "=r,r", [zeros], "uint32", special=tid).tolist() == list(range(70))
