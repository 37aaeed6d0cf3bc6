"""Undefined bits through conversions that pack two results: each result depends on its own source alone.

Triton converts one e4m3 value with an instruction for two, and leaves the other source undefined.
"""

import numpy as np
import pytest

from ptxdiff.emulator import emulate
from ptxdiff.emulator.errors import UndefinedBits

X = np.float32([0.25, 3.0, -7.0])


@pytest.mark.parametrize(
    ("register", "sources", "mask", "target"),
    [
        ("b32", "cvt.rn.f16x2.f32 d, u, $1;", "0xffff", "sm_90a"),
        ("b32", "cvt.rn.f16x2.f32 d, $1, u;", "0xffff0000", "sm_90a"),
        ("b16", "cvt.rn.satfinite.e4m3x2.f32 d, u, $1;", "0xff", "sm_90a"),
        ("b16", "cvt.rn.satfinite.e4m3x2.f32 d, $1, u;", "0xff00", "sm_90a"),
        ("b8", "cvt.rn.satfinite.e2m1x2.f32 d, u, $1;", "0xf", "sm_100a"),
    ],
)
def test_the_result_of_a_defined_source_is_defined(register, sources, mask, target):
    widen = {"b32": "mov.b32 w, d;", "b16": "mov.b32 w, {d, z};", "b8": "cvt.u32.u8 w, d;"}[register]
    head = f".reg .{register} d; .reg .f32 u; .reg .b16 z; .reg .b32 w; mov.b16 z, 0; {sources} {widen}"
    emulate(f"{{ {head} and.b32 $0, w, {mask}; }}", "=r,r", [X], "uint32", target=target)
    with pytest.raises(UndefinedBits, match="depends on undefined bits"):
        emulate(f"{{ {head} mov.b32 $0, w; }}", "=r,r", [X], "uint32", target=target)


@pytest.mark.parametrize(
    ("form", "count", "width"),
    [("f16x2", 2, 16), ("bf16x2", 2, 16), ("satfinite.e4m3x4", 4, 8), ("satfinite.e3m2x4", 4, 8),
     ("satfinite.e2m1x4", 4, 4)],
)  # fmt: skip
def test_stochastic_rounding_gives_each_source_its_part_of_the_result(form, count, width):
    """The first source goes to the top. An undefined source makes only its part undefined, undefined `r` all parts."""
    register = "b16" if count * width == 16 else "b32"
    widen = "mov.b32 w, {d, z};" if register == "b16" else "mov.b32 w, d;"
    head = f".reg .{register} d; .reg .f32 u; .reg .b16 z; .reg .b32 w, v, r; mov.b16 z, 0; mov.b32 r, 77;"
    part = (1 << width) - 1
    for place in range(count):
        names = ["$1"] * count
        names[count - 1 - place] = "u"
        joined = ", ".join(names) if count == 2 else f"{{{', '.join(names)}}}"
        text = f"{{ {head} cvt.rs.{form}.f32 d, {joined}, %s; {widen} and.b32 $0, w, %#x; }}"
        others = ((1 << count * width) - 1) & ~(part << width * place)
        emulate(text % ("r", others), "=r,r", [X], "uint32", target="sm_100a")
        for register, mask in (("r", part << width * place), ("v", others)):
            with pytest.raises(UndefinedBits, match="depends on undefined bits"):
                emulate(text % (register, mask), "=r,r", [X], "uint32", target="sm_100a")


def test_a_packed_source_passes_each_half_to_its_own_part():
    text = (
        "{ .reg .f32 u; .reg .b16 p; .reg .b32 w; cvt.rn.satfinite.e4m3x2.f32 p, u, $1; cvt.rn.f16x2.e4m3x2 w, p; %s }"
    )
    emulate(text % "and.b32 $0, w, 0xffff;", "=r,r", [X], "uint32")
    with pytest.raises(UndefinedBits, match="depends on undefined bits"):
        emulate(text % "shr.u32 $0, w, 16;", "=r,r", [X], "uint32")


@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
@pytest.mark.parametrize(("predicate", "known"), [("p", True), ("q", False)])
def test_each_predicate_of_a_pair_depends_on_its_own_half(kind, predicate, known):
    """The upper half of one source is undefined, so the second predicate is undefined, and the first is defined."""
    setp = f"setp.lt.and.{kind} p|q, w, v, c;"
    head = ".reg .b16 l, u; .reg .b32 w, v; .reg .pred p, q, c; setp.eq.u32 c, 0, 0; mov.b32 v, 0x40004000;"
    text = f"{{ {head} cvt.u16.u32 l, $1; mov.b32 w, {{l, u}}; {setp} selp.u32 $0, 1, 0, {predicate}; }}"
    words = np.array([0x3C00, 0x4400], np.uint32)
    if known:
        assert emulate(text, "=r,r", [words], "uint32").tolist() == [1, 0]
    else:
        with pytest.raises(UndefinedBits, match="depends on undefined bits"):
            emulate(text, "=r,r", [words], "uint32")
