"""Vectors that `mov` packs, unpacks and copies, and declarations of registers: ptxas accepts the same ones."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from ptxdiff.emulator import emulate
from tests.support.emulator.legality import check

WORDS = ("b32", "u32", "s32", "f32", "f16x2")
HALVES = ("b16", "u16", "f16")
FLOATS = ("0f3F800000", "1.0")


def pairs() -> list[str]:
    """Every pair of register types between braces, as a source and as a destination."""
    lines = []
    for a, b in product(WORDS, repeat=2):
        lines += [f"mov.b64 %b64_0, {{%{a}_1, %{b}_2}};", f"mov.b64 {{%{a}_1, %{b}_2}}, %b64_0;"]
        lines += [f"mov.v2.{t} {{%b32_3, %b32_4}}, {{%{a}_1, %{b}_2}};" for t in ("b32", "u32", "f32")]
        lines += [f"mov.v2.{t} {{%{a}_1, %{b}_2}}, {{%b32_3, %b32_4}};" for t in ("b32", "u32", "f32")]
    for a, b in product(HALVES, repeat=2):
        lines += [f"mov.b32 %b32_0, {{%{a}_1, %{b}_2}};", f"mov.b64 {{%{a}_1, _, %{b}_2, %b16_3}}, %b64_0;"]
        lines += [f"mov.b64 %b64_0, {{%{a}_1, {x}, %{b}_2, %b16_3}};" for x in ("%b16_0", "5")]
    for a in WORDS:
        lines += [f"mov.b64 %b64_0, {{%{a}_1, {x}}};" for x in ("5", "1.0", "0f3F800000", "%laneid", "%tid.x")]
        lines += [f"mov.v2.{t} {{%b32_3, %b32_4}}, {{%{a}_1, 1.5}};" for t in ("b32", "f32")]
    return lines


def constants() -> list[str]:
    """Pairs of constants, and of a constant and a register, between braces."""
    lines = []
    for a, b in product((*FLOATS, "5", "%b32_1", "%f32_1"), repeat=2):
        lines += [f"mov.b64 %b64_0, {{{a}, {b}}};", f"mov.v2.u32 {{%b32_3, %b32_4}}, {{{a}, {b}}};"]
        lines += [f"mov.v4.b32 {{%b32_3, %b32_4, %b32_5, %b32_6}}, {{{a}, {b}, {x}, %b32_2}};" for x in FLOATS]
    for a, b in product((*FLOATS, "5", "%b16_1", "%u16_1", "%f16_1"), repeat=2):
        lines += [f"mov.b32 %b32_0, {{{a}, {b}}};", f"mov.b64 %b64_0, {{{a}, {b}, %b16_1, %b16_2}};"]
    for a, b in product((*FLOATS, "%f64_1", "%b64_1"), repeat=2):
        lines += [f"mov.v2.{t} {{%b64_3, %b64_4}}, {{{a}, {b}}};" for t in ("f64", "b64", "u64")]
    for a, b in product((*FLOATS, "5", "%b8_1"), repeat=2):
        lines += [f"mov.b32 %b32_0, {{{a}, {b}, %b8_1, %b8_2}};", f"mov.b16 %b16_0, {{{a}, {b}}};"]
    return lines


ODD = [
    "mov.b32 {%b32_0}, {%b32_1};",
    "mov.b32 {%b32_0}, %b32_1;",
    "mov.b64 %b64_0, {1.0, 1.0};",
    "mov.b64 %b64_0, {5, 0f3F800000};",
    "mov.b64 %b64_0, {%clock64, %b32_1};",
    "mov.b32 %b32_0, {%laneid, %b16_0};",
    "mov.v2.f64 {%f64_0, %f64_1}, {0f3F800000, %f64_1};",
    "mov.v2.u32 {_, _}, {%b32_0, %b32_1};",
    "mov.v2.f32 {%b32_0, %f32_1}, {%b32_2, 1};",
    "setp.eq.u32 _|_, %u32_0, %u32_1;",
    "setp.eq.u32 _|%pred_0, %u32_0, %u32_1;",
    "{ .reg .v2 .b32 a; mov.b64 %b64_0, a; }",
    "{ .reg .v2 .b32 a; mov.b64 a, %b64_0; }",
    "{ .reg .v2 .b32 a; mov.b64 a, 5; }",
    "{ .reg .v2 .b32 a, b; mov.b64 a, b; }",
    "{ .reg .v2 .b32 a; mov.u64 %b64_0, a; }",
    "{ .reg .v2 .b32 a; mov.b64 {%b32_0, %b32_1}, a; }",
    "{ .reg .v2 .b32 a<2>; mov.b64 a1, %b64_0; }",
    "{ .reg .v4 .b8 a; mov.b32 a, %b32_0; }",
    "{ .reg .v2 .b32 a; add.u32 a, a, a; }",
    "{ .reg .v3 .b32 a; }",
    "{ .reg .v8 .b32 a; }",
    "{ .reg .b32 .v2 a; }",
    "{ .reg .b32 .u32 a; }",
    "{ .reg .b32 a = 1; }",
    "{ .reg .b32 a[4]; }",
    "{ .reg .b32 a<0>; }",
    "{ .reg .b32; }",
    "{ .reg .b32 a<2>; mov.b32 a2, 1; }",
    '.pragma "nounroll", "nounroll";',
    ".pragma nounroll;",
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_the_emulator_accepts_what_ptxas_accepts(target: str) -> None:
    check(pairs() + constants() + ODD, target)


def test_a_vector_register_is_its_components() -> None:
    asm = "{ .reg .v4 .b8 a; mov.b32 a, $1; mov.b32 $0, {a.w, a.z, a.y, a.x}; mov.b32 a, $0; mov.b32 $0, a; }"
    assert emulate(asm, "=&r,r", [np.uint32([0x11223344])], "uint32")[0] == 0x44332211


@pytest.mark.parametrize(
    ("asm", "expected"),
    [
        ("mov.b64 $0, {w, 1.1};", 0x9999999A00000007),
        ("mov.b64 $0, {w, 0f3F8CCCCD};", 0x3F8CCCCD00000007),
        ("{ .reg .f32 g, h; mov.v2.f32 {g, h}, {w, 1.1}; mov.b64 $0, {g, h}; }", 0x3F8CCCCD00000007),
        ("{ .reg .b64 h; mov.v2.b64 {$0, h}, {1.1, $1}; }", 0x3FF199999999999A),
        ("{ .reg .f64 g, h; mov.v2.f64 {g, h}, {0f3F8CCCCD, h}; mov.b64 $0, g; }", 0x3F8CCCCD),
        ("mov.b64 $0, {%laneid, w};", 0x700000000),
        ("{ .reg .b16 h; mov.b16 h, 7; mov.b64 $0, {h, 1.0, 0f3F800000, h}; }", 0x7000000000007),
    ],
)
def test_constants_between_braces_have_the_bits_of_ptxas_s_code(asm: str, expected: int) -> None:
    """In machine code of ptxas 12.9 and 13.4 an untyped word is the lower half of a double, and a half is zero."""
    text = f"{{ .reg .b32 w; mov.b32 w, 7; {asm} }}"
    assert emulate(text, "=&l,l", [np.uint64([0])], "uint64", special={"%laneid": 0})[0] == expected
