"""Mixed precision on two values in a register: roundings, flushes and conversions, by hand.

`tests/support/conformance/arithmetic_opinions.py` compares random and special values with rational arithmetic.
"""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator import emulate
from ptxdiff.emulator.asm_block import analyse
from ptxdiff.emulator.errors import UndefinedBits, UnknownInstruction, UnsupportedOnTarget
from tests.support.emulator.isa.forms import run

ONE = 0x3F800000


def pair(spelling: str, *patterns: int) -> int:
    """The result in one place, for patterns that are in both places of their registers."""
    opcode, *words = spelling.split(".")
    kinds = [w for w in words if w.endswith("x2")]
    sources = kinds[1:]
    columns = [[p * (0x100000001 if k == "f32x2" else 0x10001)] for p, k in zip(patterns, sources, strict=True)]
    found = int(run(spelling, *columns)[0])
    width = 32 if kinds[0] == "f32x2" else 16
    assert found >> width == found & (1 << width) - 1, f"the places of {opcode} differ"
    return found >> width


@pytest.mark.parametrize(("mode", "expected"), [("rn", ONE), ("rz", ONE), ("rm", ONE), ("rp", ONE + 1)])
@pytest.mark.parametrize(("kind", "one"), [("f16x2", 0x3C00), ("bf16x2", 0x3F80)])
def test_to_float32(kind: str, one: int, mode: str, expected: int) -> None:
    """The sum and the difference of 1 and 2**-126 in every mode; the least float32 is not flushed."""
    assert pair(f"add.{mode}.f32x2.{kind}.f32x2", one, 0x00800000) == expected
    below = {"rn": ONE, "rz": ONE - 1, "rm": ONE - 1, "rp": ONE}[mode]
    assert pair(f"sub.{mode}.f32x2.{kind}.f32x2", one, 0x00800000) == below
    assert pair(f"fma.{mode}.f32x2.{kind}.f32x2.f32x2", one, ONE, 0x80000001) == below
    assert pair(f"sub.{mode}.f32x2.{kind}.f32x2", one, ONE) == (0x80000000 if mode == "rm" else 0)
    assert pair(f"add.{mode}.f32x2.{kind}.f32x2", 0, 1) == 1
    assert pair(f"add.{mode}.f32x2.{kind}.f32x2", 0x7FFF, 1) == 0x7FFFFFFF


@pytest.mark.parametrize(
    ("spelling", "patterns", "expected"),
    [
        # Results are rounded towards zero, also above the largest number; infinity stays.
        ("add.rz.ftz.f16x2.f32x2.f32x2", (ONE, 0x3A7FFFFF), 0x3C00),
        ("add.rz.ftz.f16x2.f32x2.f32x2", (0x477FE000, 0x42000000), 0x7BFF),
        ("add.rz.ftz.f16x2.f32x2.f32x2", (0xFF800000, ONE), 0xFC00),
        ("mul.rz.ftz.f16x2.f32x2.f32x2", (0x7149F2CA, 0xF149F2CA), 0xFBFF),
        ("mul.rz.bf16x2.f32x2.f32x2", (0x7F7FFFFF, 0x7F7FFFFF), 0x7F7F),
        # The exact sum of 1 and minus the least number is below 1; with .ftz the least number counts as zero.
        ("add.rz.bf16x2.f32x2.f32x2", (ONE, 0x80000001), 0x3F7F),
        ("sub.rz.bf16x2.f32x2.f32x2", (ONE, 0x00000001), 0x3F7F),
        ("add.rz.ftz.f16x2.f32x2.f32x2", (ONE, 0x80000001), 0x3C00),
        ("add.rz.ftz.f16x2.f32x2.f32x2", (ONE, 0x80800000), 0x3BFF),
        # float16's least normal number, just below it, and a subnormal of bfloat16.
        ("sub.rz.ftz.f16x2.f32x2.f32x2", (0x38800000, 0), 0x0400),
        ("sub.rz.ftz.f16x2.f32x2.f32x2", (0x387FFFFF, 0), 0x0000),
        ("mul.rz.ftz.f16x2.f32x2.f32x2", (0xB87FFFFF, ONE), 0x8000),
        ("mul.rz.bf16x2.f32x2.f32x2", (0x00010000, 0xBF800000), 0x8001),
        # NaN, and zeros.
        ("sub.rz.ftz.f16x2.f32x2.f32x2", (0x7F800000, 0x7F800000), 0x7FFF),
        ("mul.rz.bf16x2.f32x2.f32x2", (0xFFC00000, ONE), 0x7FFF),
        ("sub.rz.bf16x2.f32x2.f32x2", (ONE, ONE), 0x0000),
        ("add.rz.bf16x2.f32x2.f32x2", (0x80000000, 0x80000000), 0x8000),
    ],
)
def test_from_float32(spelling: str, patterns: tuple[int, int], expected: int) -> None:
    assert pair(spelling, *patterns) == expected


@pytest.mark.parametrize(
    ("spelling", "patterns", "expected"),
    [
        # 1 + 2**-8 is a tie of bfloat16 and becomes 1, so the product is 1 + 2**-7; with one rounding: 1 + 2**-6.
        ("mul.bf16x2.bf16x2.f16x2", (0x3F81, 0x3C04), 0x3F81),
        ("mul.bf16x2.bf16x2.f16x2", (0x3F81, 0xBC05), 0xBF82),
        ("mul.bf16x2.bf16x2.f16x2", (0x3F80, 0x0001), 0x3380),
        # A bfloat16 greater than any float16 becomes infinity before the multiplication.
        ("mul.f16x2.f16x2.bf16x2", (0x0001, 0x4780), 0x7C00),
        ("mul.f16x2.f16x2.bf16x2", (0x0000, 0x4780), 0x7FFF),
        ("mul.f16x2.f16x2.bf16x2", (0x4000, 0xC040), 0xC600),
        # 2**-25 is a tie of float16 and becomes zero.
        ("mul.f16x2.f16x2.bf16x2", (0x7BFF, 0x3300), 0x0000),
    ],
)
def test_products_of_float16_and_bfloat16(spelling: str, patterns: tuple[int, int], expected: int) -> None:
    assert pair(spelling, *patterns) == expected


def test_fusion_loses_the_conversion() -> None:
    """ptxas fuses a product and a sum without .rn; its code then reads a bfloat16 1 (0x3f80) as float16 1.875."""
    text = "mul.f16x2.f16x2.bf16x2 $0, $1, $2; add.f16x2 $0, $0, $3;"
    one, zero = np.uint32([0x3C003C00]), np.uint32([0])
    arguments = ("=&r,r,r,r", [one, np.uint32([0x3F803F80]), zero], "uint32")
    assert analyse(text, "=&r,r,r,r", target="sm_107a").contraction_open
    assert emulate(text, *arguments, target="sm_107a") == 0x3C003C00
    assert emulate(text, *arguments, target="sm_107a", fuse=True) == 0x3F803F80
    other = text.replace("add.f16x2", "add.bf16x2")
    assert not analyse(other, "=&r,r,r,r", target="sm_107a").contraction_open


def test_places_are_independent() -> None:
    assert int(run("add.f32x2.f16x2.f32x2", [0x40003C00], [ONE])[0]) == 0x40000000_40000000
    assert int(run("sub.rz.bf16x2.f32x2.f32x2", [0x40000000_3F800000], [ONE])[0]) == 0x40000000
    text = "{ .reg .f16 u, h; .reg .b32 p; .reg .b64 w, z; mov.b32 {h, _}, $1; mov.b32 p, {h, u}; mov.b64 z, 0; "
    text += "add.f32x2.f16x2.f32x2 w, p, z; mov.b64 {%s}, w; }"
    assert emulate(text % "$0, _", "=r,r", [0x3C00], "uint32", target="sm_107a") == ONE
    with pytest.raises(UndefinedBits, match="depends on undefined bits"):
        emulate(text % "_, $0", "=r,r", [0x3C00], "uint32", target="sm_107a")


@pytest.mark.parametrize("target", ["sm_107", "sm_100a", "sm_103f", "sm_110a", "sm_120a"])
def test_only_one_family_has_these_forms(target: str) -> None:
    with pytest.raises(UnsupportedOnTarget, match="sm_107f"):
        emulate("mul.bf16x2.bf16x2.f16x2 $0, $1, $2;", "=r,r,r", [1, 2], "int32", target=target)


@pytest.mark.parametrize(
    "text", ["add.bf16x2.f32x2.f32x2", "add.rz.f16x2.f32x2.f32x2", "add.rz.ftz.bf16x2.f32x2.f32x2"]
)
def test_other_combinations_of_modifiers_are_refused(text: str) -> None:
    """ptxas 13.4 accepts the first, and crashes if its result is used."""
    with pytest.raises(UnknownInstruction, match="has no form with these modifiers"):
        emulate(f"{text} $0, $1, $2;", "=r,l,l", [1, 2], "int32", target="sm_107a")
