"""Arithmetic on four narrow values in a register: ties, ends of the range, special codes and padding, by hand.

`tests/support/conformance/arithmetic_opinions.py` compares all combinations of codes with two other definitions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxdiff.emulator import emulate
from ptxdiff.emulator.asm_block import analyse
from ptxdiff.emulator.errors import OperandError, UndefinedBits, UnknownInstruction, UnsupportedOnTarget
from tests.support.emulator.isa.forms import run

ONE, TWO = 0x38, 0x40
"""Codes of 1 and 2 in e4m3."""


def quarter(spelling: str, *codes: int) -> int:
    """The result in one place, for codes that are in all four places of their registers."""
    columns = [[c * (0x1111 if k == "e2m1x4" else 0x01010101)] for c, k in zip(codes, sources(spelling), strict=True)]
    found = int(run(spelling, *columns)[0])
    assert found == (found & 0xFF) * 0x01010101, "the places differ"
    return found & 0xFF


def sources(spelling: str) -> list[str]:
    """The types of the sources."""
    opcode, *words = spelling.split(".")
    types = [w for w in words if "x4" in w]
    return types[1:] if opcode == "mul" else [*types[1:], types[0]]


@pytest.mark.parametrize(
    ("spelling", "codes", "expected"),
    [
        # 1.25 * 1.25 and 1.125 * 1.5 lie in the middle of two codes; the even code is the lower one, then the upper.
        ("mul.e4m3x4.e4m3x4.e4m3x4", (0x3A, 0x3A), 0x3C),
        ("mul.rn.e4m3x4.e4m3x4.e4m3x4", (0x39, 0x3C), 0x3E),
        # The first product again: the least number is added before the only rounding, so the sum is above the middle.
        ("fma.e4m3x4.e4m3x4.e4m3x4", (0x3A, 0x3A, 0x01), 0x3D),
        ("fma.rn.e4m3x4.e4m3x4.e4m3x4", (0x3A, 0x3A, 0x81), 0x3C),
        # 448 + 16 is the middle of 448 and 480, which has no code; 448 + 18 is greater.
        ("add.e4m3x4.e4m3x4", (0x7E, 0x58), 0x7E),
        ("add.e4m3x4.e4m3x4", (0x7E, 0x59), 0x7F),
        ("add.e4m3x4.e4m3x4", (0xFE, 0xD9), 0x7F),
        ("add.satfinite.e4m3x4.e4m3x4", (0x7E, 0x59), 0x7E),
        ("add.rn.satfinite.e4m3x4.e4m3x4", (0xFE, 0xD9), 0xFE),
        # 57344 + 4096 is the middle of 57344 and 65536, and rounds to the even code, which is infinity.
        ("add.e5m2x4.e5m2x4", (0x7B, 0x6B), 0x7B),
        ("add.e5m2x4.e5m2x4", (0x7B, 0x6C), 0x7C),
        ("add.e5m2x4.e5m2x4", (0xFB, 0xEC), 0xFC),
        ("add.satfinite.e5m2x4.e5m2x4", (0xFB, 0xEC), 0xFB),
        # 2**-9 * 0.5 is the middle of zero and the least number; 0.5 has the code 1 in e2m1.
        ("mul.e4m3x4.e4m3x4.e2m1x4", (0x01, 0x1), 0x00),
        ("mul.e4m3x4.e4m3x4.e2m1x4", (0x81, 0x1), 0x80),
        ("mul.e4m3x4.e4m3x4.e2m1x4", (0x03, 0x9), 0x82),
        # A subnormal times a power of two, exact and rounded.
        ("mul.e4m3x4.e4m3x4.ue8m0x4", (0x05, 130), 0x1A),
        ("mul.e4m3x4.e4m3x4.ue8m0x4", (0x05, 125), 0x01),
    ],
)
def test_one_rounding_to_nearest_even(spelling: str, codes: tuple[int, ...], expected: int) -> None:
    assert quarter(spelling, *codes) == expected


@pytest.mark.parametrize(
    ("spelling", "codes", "expected"),
    [
        # Infinity (0x7c in e5m2) stays, becomes the largest number with .satfinite, and NaN in e4m3 without it.
        ("mul.e5m2x4.e5m2x4.e2m1p4x4", (0x7C, 0x9), 0xFC),
        ("mul.satfinite.e5m2x4.e5m2x4.e2m1p4x4", (0x7C, 0x9), 0xFB),
        ("mul.satfinite.e4m3x4.e5m2x4.e2m1p4x4", (0x7C, 0x9), 0xFE),
        ("mul.e4m3x4.e5m2x4.e2m1p4x4", (0x7C, 0x9), 0x7F),
        # Invalid operations.
        ("mul.satfinite.e5m2x4.e5m2x4.e5m2x4", (0x7C, 0x80), 0x7F),
        ("sub.satfinite.e5m2x4.e5m2x4", (0x7C, 0x7C), 0x7F),
        ("sub.e5m2x4.e5m2x4", (0x7C, 0xFC), 0x7C),
        # NaN of either sign and any payload, and the NaN of ue8m0.
        ("add.satfinite.e4m3x4.e5m2x4", (0xFD, ONE), 0x7F),
        ("add.satfinite.e5m2x4.e4m3x4", (0x7F, 0x3C), 0x7F),
        ("mul.satfinite.e4m3x4.ue8m0x4.e2m1x4", (0xFF, 0x0), 0x7F),
        ("fma.satfinite.e4m3x4.e4m3x4.e4m3x4", (ONE, ONE, 0xFF), 0x7F),
        # Zeros of two signs, of one sign, and from cancellation.
        ("add.e4m3x4.e2m1x4", (0x8, 0x00), 0x00),
        ("add.e4m3x4.e2m1x4", (0x8, 0x80), 0x80),
        ("sub.e4m3x4.e2m1x4", (0x8, 0x00), 0x80),
        ("sub.e4m3x4.e4m3x4", (ONE, ONE), 0x00),
        ("fma.e4m3x4.e4m3x4.e4m3x4", (0x80, ONE, 0x80), 0x80),
        # ue8m0 has no zero: its 0 is 2**-127, 254 is 2**127.
        ("add.e4m3x4.ue8m0x4", (0, 0x00), 0x00),
        ("mul.e5m2x4.ue8m0x4.ue8m0x4", (254, 0), 0x3C),
        ("mul.satfinite.e4m3x4.ue8m0x4.ue8m0x4", (254, 254), 0x7E),
        ("sub.e4m3x4.ue8m0x4", (254, 0x7E), 0x7F),
    ],
)
def test_special_codes(spelling: str, codes: tuple[int, ...], expected: int) -> None:
    assert quarter(spelling, *codes) == expected


@pytest.mark.parametrize(("kind", "bits"), [("e2m1p4x4", 4), ("e2m3x4", 6), ("e3m2x4", 6)])
def test_padding_is_not_read(kind: str, bits: int) -> None:
    codes = np.arange(256) * 0x01010101
    clean = codes & ((1 << bits) - 1) * 0x01010101
    one = np.full(256, 0x38383838)
    assert (run(f"mul.e4m3x4.{kind}.e4m3x4", codes, one) == run(f"mul.e4m3x4.{kind}.e4m3x4", clean, one)).all()


def test_places_are_independent() -> None:
    """0.5, 2, 0.5 and -4 in e2m1, the first in the low bits, times 2, 2, 1 and 448 in e4m3."""
    expected = [0xFE304838]
    scales = [0x7E384040]
    assert run("mul.satfinite.e4m3x4.e2m1x4.e4m3x4", [0xE141], scales).tolist() == expected
    assert run("mul.satfinite.e4m3x4.e2m1p4x4.e4m3x4", [0x0E010401], scales).tolist() == expected


def test_dequantisation_agrees_with_the_conversions() -> None:
    """All e2m1 times all e4m3, compared with the product in float16 that kernels compute for other targets."""
    small, scale = (g.ravel().astype(np.uint32) for g in np.meshgrid(np.arange(16), np.arange(256)))
    over_f16 = """
    {
        .reg .b8 q, none;
        .reg .b16 h, s, r;
        .reg .b32 x, y;
        mov.b32 {h, s}, $1;
        mov.b16 {q, none}, h;
        cvt.rn.f16x2.e2m1x2 x, q;
        mov.b32 {s, h}, $2;
        cvt.rn.f16x2.e4m3x2 y, s;
        mul.rn.f16x2 x, x, y;
        cvt.rn.satfinite.e4m3x2.f16x2 r, x;
        cvt.u32.u16 $0, r;
    }
    """
    direct = "mul.rn.satfinite.e4m3x4.e2m1p4x4.e4m3x4 $0, $1, $2;"
    expected = emulate(over_f16, "=r,r,r", [small, scale], "uint32", target="sm_100a")
    got = emulate(direct, "=r,r,r", [small, scale], "uint32", target="sm_100a")
    assert np.array_equal(got & 0xFF, expected & 0xFF)


def test_modifiers_may_be_written_in_any_order() -> None:
    arguments: Any = ("=r,r,r", [np.uint32([0x7E7E7E7E]), np.uint32([0x59595959])], "uint32")
    for text in ("add.e4m3x4.e4m3x4.satfinite", "add.e4m3x4.rn.satfinite.e4m3x4", "add.satfinite.rn.e4m3x4.e4m3x4"):
        assert emulate(f"{text} $0, $1, $2;", *arguments, target="sm_103a") == 0x7E7E7E7E


@pytest.mark.parametrize("target", ["sm_100f", "sm_100", "sm_107a", "sm_110a", "sm_120a", "sm_90a"])
def test_only_two_targets_have_these_forms(target: str) -> None:
    with pytest.raises(UnsupportedOnTarget, match="sm_100a, sm_103a"):
        emulate("add.e4m3x4.e4m3x4 $0, $1, $2;", "=r,r,r", [1, 2], "int32", target=target)


@pytest.mark.parametrize(
    "text", ["add.rz.e4m3x4.e4m3x4", "add.e2m3x4.e4m3x4", "mul.e4m3x4.e4m3x4", "add.ftz.e4m3x4.e4m3x4"]
)
def test_other_combinations_of_modifiers_are_refused(text: str) -> None:
    with pytest.raises(UnknownInstruction, match="has no form with these modifiers"):
        emulate(f"{text} $0, $1, $2;", "=r,r,r", [1, 2], "int32", target="sm_100a")


def test_registers() -> None:
    """Packed e2m1 codes need a register of 16 bits, and no operand may be a constant."""
    with pytest.raises(OperandError, match=r"\$1 \(.b32\) does not fit; needed: 16 bits"):
        emulate("add.e4m3x4.e2m1x4 $0, $1, $2;", "=r,r,r", [1, 2], "int32", target="sm_100a")
    with pytest.raises(OperandError, match=r"an integer constant is no \.e4m3x4"):
        emulate("add.e4m3x4.e4m3x4 $0, $1, 1;", "=r,r", [1], "int32", target="sm_100a")
    text = "{ .reg .b16 h, z; mov.b32 {h, z}, $1; add.e4m3x4.e2m1x4 $0, h, $2; }"
    assert emulate(text, "=r,r,r", [0x2222, 0], "int32", target="sm_100a") == 0x38383838


def test_undefined_bits_stay_in_their_place() -> None:
    """The upper half of a register of four e2m1 codes was never written, so only two results are defined."""
    text = (
        "{ .reg .b8 q, u; .reg .b16 h; mov.b32 {q, _, _, _}, $1; mov.b16 h, {q, u}; mul.e4m3x4.e2m1x4.e4m3x4 $0, h, $2;"
    )
    text += " %s }"
    arguments: Any = ("=r,r,r", [0x22, 0x38383838], "uint32")
    assert emulate(text % "and.b32 $0, $0, 0xffff;", *arguments, target="sm_100a") == 0x3838
    with pytest.raises(UndefinedBits, match="depends on undefined bits"):
        emulate(text % "", *arguments, target="sm_100a")


def test_products_and_sums_are_not_fused() -> None:
    text = "mul.e4m3x4.e4m3x4.e4m3x4 $0, $1, $2; add.e4m3x4.e4m3x4 $0, $0, $3;"
    assert not analyse(text, "=&r,r,r,r", target="sm_100a").contraction_open
