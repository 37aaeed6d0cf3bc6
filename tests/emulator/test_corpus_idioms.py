"""Inline PTX as public Triton kernels write it: idioms compared with numpy, spellings, mistakes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ptxdiff.emulator import PtxError, emulate
from ptxdiff.emulator.errors import (
    InputWritten,
    NotElementwise,
    OperandError,
    ParseError,
    UndefinedBits,
    UnsupportedOnTarget,
)

RNG = np.random.default_rng(11)
WORDS = RNG.integers(0, 1 << 32, 600, np.uint32)
FLOATS = (RNG.standard_normal(600) * 8).astype(np.float32)
F32, U32 = np.float32, np.uint32


def bf16(x: Any) -> Any:
    """bfloat16 patterns of float32 values, nearest even."""
    bits = np.asarray(x, F32).view(U32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def halves(words: Any) -> tuple[Any, Any]:
    """The lower and upper float16 of words."""
    pairs = np.ascontiguousarray(words).view(np.float16).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def e2m1(codes: Any) -> Any:
    """Values of e2m1 codes."""
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], F32)
    return np.where(codes & 8, -table[codes & 7], table[codes & 7])


IDIOMS: dict[str, tuple[str, str, list[Any], str, str, Callable[..., Any]]] = {
    "product protected from contraction": (
        "{ .reg .f32 t; mul.rn.f32 t, $1, $2; add.rn.f32 $0, t, $3; }",
        "=f,f,f,f",
        [FLOATS, FLOATS[::-1], FLOATS],
        "float32",
        "sm_80",
        lambda a, b, c: a * b + c,
    ),
    "division towards zero": (
        "div.rz.f32 $0, $1, $2;",
        "=f,f,f",
        [np.full(600, 1, F32), np.arange(1, 601, dtype=F32)],
        "float32",
        "sm_80",
        lambda a, b: np.where(np.float64(f := (a / b)) * b > a, np.nextafter(f, F32(0)), f),
    ),
    "exponential by a power of two": (
        "{ .reg .f32 t; mul.f32 t, $1, 0f3FB8AA3B; ex2.approx.ftz.f32 $0, t; }",
        "=f,f",
        [FLOATS],
        "float32",
        "sm_80",
        lambda x: np.exp2((x * F32(1.44269502)).astype(np.float64)).astype(F32),
    ),
    "bfloat16 from float32 by hand": (
        "{ .reg .b32 t, odd; shr.u32 odd, $1, 16; and.b32 odd, odd, 1; add.u32 t, $1, odd; add.u32 t, t, 0x7FFF; "
        "shr.u32 $0, t, 16; }",
        "=r,r",
        [FLOATS.view(U32)],
        "uint32",
        "sm_75",
        lambda x: bf16(x.view(F32)).astype(U32),
    ),
    "pair of bfloat16": (
        "cvt.rn.bf16x2.f32 $0, $2, $1;",
        "=r,f,f",
        [FLOATS, FLOATS[::-1]],
        "uint32",
        "sm_80",
        lambda a, b: bf16(a).astype(U32) | bf16(b).astype(U32) << U32(16),
    ),
    "tf32 by rounding away": (
        "cvt.rna.tf32.f32 $0, $1;",
        "=r,f",
        [FLOATS],
        "uint32",
        "sm_80",
        lambda x: (x.view(U32) + U32(0x1000)) & U32(0xFFFFE000),
    ),
    "int4 to float16 by lop3 and a magic number": (
        "{ .reg .b32 t; lop3.b32 t, $1, 0x000F000F, 0x64006400, 0xEA; sub.f16x2 $0, t, $2; }",
        "=r,r,r",
        [WORDS, np.full(600, 0x64086408, U32)],
        "uint32",
        "sm_80",
        lambda w, _: (
            np.stack([(w & 15).astype(np.float16) - 8, (w >> 16 & 15).astype(np.float16) - 8], 1)
            .astype(np.float16)
            .view(U32)
            .ravel()
        ),
    ),
    "bytes reversed by prmt": (
        "prmt.b32 $0, $1, $1, 0x0123;",
        "=r,r",
        [WORDS],
        "uint32",
        "sm_75",
        lambda w: w.byteswap(),
    ),
    "bytes of two words interleaved": (
        "prmt.b32 $0, $1, $2, 0x5140;",
        "=r,r,r",
        [WORDS, WORDS[::-1].copy()],
        "uint32",
        "sm_75",
        lambda a, b: a & 255 | (b & 255) << 8 | (a >> 8 & 255) << 16 | (b >> 8 & 255) << 24,
    ),
    "e2m1 pair to float16, upper": (
        "{ .reg .b8 t; .reg .b16 lo, hi; cvt.u8.u32 t, $1; .reg .b32 p; cvt.rn.f16x2.e2m1x2 p, t; "
        "mov.b32 {lo, hi}, p; mov.b16 $0, hi; }",
        "=h,r",
        [WORDS],
        "float16",
        "sm_100a",
        lambda w: e2m1(w >> 4 & 15).astype(np.float16),
    ),
    "float32 pair to e2m1": (
        "{ .reg .b8 t; cvt.rn.satfinite.e2m1x2.f32 t, $2, $1; cvt.u16.u8 $0, t; }",
        "=h,f,f",
        [e2m1(WORDS & 15), e2m1(WORDS >> 4 & 15)],
        "uint8",
        "sm_120a",
        lambda a, b: e2m1_code(a) | e2m1_code(b) << 4,
    ),
    "scale to ue8m0, upwards": (
        "{ .reg .b16 t; cvt.rp.satfinite.ue8m0x2.f32 t, 0.0, $1; cvt.u32.u16 $0, t; and.b32 $0, $0, 255; }",
        "=&r,f",
        [np.abs(FLOATS) + F32(0.01)],
        "uint32",
        "sm_100a",
        lambda x: (np.ceil(np.log2(x.astype(np.float64))) + 127).astype(U32),
    ),
    "four products of bytes": (
        "dp4a.s32.s32 $0, $1, $2, $3;",
        "=r,r,r,r",
        [WORDS, WORDS[::-1].copy(), WORDS],
        "int32",
        "sm_75",
        lambda a, b, c: (
            np.einsum("ij,ij->i", *(v.view(np.int8).reshape(-1, 4).astype(np.int64) for v in (a, b))) + c.view(np.int32)
        ).astype(np.int32),
    ),
    "sum of 64 bits by carry": (
        "add.cc.u32 $0, $2, $3; addc.u32 $1, $2, 0;",
        "=&r,=r,r,r",
        [WORDS, WORDS[::-1].copy()],
        "uint32 uint32",
        "sm_75",
        lambda a, b: (a + b, a + (a.astype(np.uint64) + b >> np.uint64(32)).astype(U32)),
    ),
    "largest of pairs": (
        "max.f16x2 $0, $1, $2;",
        "=r,r,r",
        [
            RNG.standard_normal(1200).astype(np.float16).view(U32),
            RNG.standard_normal(1200).astype(np.float16).view(U32),
        ],
        "uint32",
        "sm_80",
        lambda a, b: np.maximum(a.view(np.float16), b.view(np.float16)).view(U32),
    ),
    "two float32 in one register": (
        "{ .reg .b64 x, y, z; mov.b64 x, {$2, $3}; mov.b64 y, {$3, $2}; fma.rn.f32x2 z, x, y, x; "
        "mov.b64 {$0, $1}, z; }",
        "=&r,=r,r,r",
        [np.arange(600, dtype=F32).view(U32), np.arange(600, dtype=F32)[::-1].copy().view(U32)],
        "float32 float32",
        "sm_100a",
        lambda a, b: (a.view(F32) * b.view(F32) + a.view(F32), a.view(F32) * b.view(F32) + b.view(F32)),
    ),
    "absolute maximum that keeps the product of signs": (
        "max.NaN.xorsign.abs.f32 $0, $1, $2;",
        "=f,f,f",
        [FLOATS, FLOATS[::-1]],
        "float32",
        "sm_90",
        lambda a, b: np.copysign(np.maximum(abs(a), abs(b)), np.sign(a) * np.sign(b)).astype(F32),
    ),
    "rounding to int8": (
        "{ .reg .b16 t; cvt.rni.sat.s8.f32 t, $1; cvt.s32.s8 $0, t; }",
        "=r,f",
        [FLOATS * 30],
        "int32",
        "sm_75",
        lambda x: np.clip(np.rint(x), -128, 127).astype(np.int32),
    ),
    "high half of a product": (
        "mul.hi.u64 $0, $1, $2;",
        "=l,l,l",
        [np.arange(600, dtype=np.uint64) << np.uint64(50), np.full(600, 12345, np.uint64)],
        "uint64",
        "sm_75",
        lambda a, b: np.array([int(x) * int(y) >> 64 for x, y in zip(a, b, strict=True)], np.uint64),
    ),
    "opaque to the optimiser": ("mov.b32 $0, $1;", "=r,0", [WORDS], "uint32", "sm_75", lambda w: w),
    "select by a predicate and its negation": (
        "{ .reg .pred p; setp.gt.f32 p, $1, 0f00000000; @p mov.b32 $0, $1; @!p mov.b32 $0, 0f00000000; }",
        "=&f,f",
        [FLOATS],
        "float32",
        "sm_75",
        lambda x: np.maximum(x, F32(0)),
    ),
    "a loop of shifts": (
        "{ .reg .u32 n, w; .reg .pred p; mov.u32 n, 0; mov.u32 w, $1;\nLOOP: and.b32 $0, w, 1; add.u32 n, n, $0; "
        "shr.u32 w, w, 1; setp.ne.u32 p, w, 0; @p bra LOOP; mov.u32 $0, n; }",
        "=&r,r",
        [WORDS],
        "uint32",
        "sm_75",
        lambda w: np.array([int(x).bit_count() for x in w], U32),
    ),
    "funnel shift": (
        "shf.l.wrap.b32 $0, $1, $1, 7;",
        "=r,r",
        [WORDS],
        "uint32",
        "sm_75",
        lambda w: w << U32(7) | w >> U32(25),
    ),
    "field of bits": ("bfe.u32 $0, $1, 8, 5;", "=r,r", [WORDS], "uint32", "sm_75", lambda w: w >> U32(8) & U32(31)),
}


def e2m1_code(values: Any) -> Any:
    """Codes of values that e2m1 has."""
    sizes = np.searchsorted(e2m1(np.arange(8)), np.abs(values))
    return (sizes | np.where(np.signbit(values), 8, 0)).astype(np.uint8)


@pytest.mark.parametrize("name", IDIOMS)
def test_idiom(name: str) -> None:
    asm, constraints, arguments, dtypes, target, function = IDIOMS[name]
    several = dtypes.split()
    wanted = function(*arguments)
    wanted_types = several if len(several) > 1 else dtypes
    got = emulate(asm, constraints, arguments, wanted_types, target=target, approximate="rounded")
    pairs = zip(got, wanted, strict=True) if len(several) > 1 else [(got, wanted)]
    for found, expected in pairs:
        assert np.array_equal(found.view(np.uint8), expected.astype(found.dtype).view(np.uint8))


def test_sine_is_no_cosine() -> None:
    """One repository has a function named for sine that emits cosine; its values show that."""
    x = np.linspace(-3, 3, 50, dtype=F32)
    got = emulate("cos.approx.f32 $0, $1;", "=f,f", [x], "float32")
    assert np.abs(got - np.cos(x)).max() < 1e-6 < np.abs(got - np.sin(x)).max()


SPELLINGS = {
    "mov.b32 $0, 0b101;": 5,
    "mov.b32 $0, 0f2F800000;": 0x2F800000,
    "{ .reg .f32 t; mov.f32 t, 20.; mov.b32 $0, t; }": 0x41A00000,
    "{ .reg .b16 b; mov.b16 b, 7; mov.b32 $0, {b, 0}; }": 7,
    "{ .reg .b16 sc; mov.b32 {sc, _}, 0x12345678; cvt.u32.u16 $0, sc; }": 0x5678,
    "{ .reg .b8 t; cvt.u8.u32 t, 0x1FF; cvt.u32.u8 $0, t; }": 255,
    "{ .reg .f16x2 h; mov.b32 h, 0x3C003C00; add.f16x2 h, h, h; mov.b32 $0, h; }": 0x40004000,
    "{ .reg .v4 .b32 %acc; mov.b32 %acc.x, 3; mov.b32 $0, %acc.x; }": 3,
    "{ .reg .b32 name<4>; mov.b32 name3, 9; mov.b32 $0, name3; }": 9,
    "{ .reg .b32 %tmp32_<1>; mov.b32 %tmp32_0, 1; mov.b32 $0, %tmp32_0; }": 1,
    "mov.b32 $0, 1;\n.reg .b32 late;\nmov.b32 late, 2; add.u32 $0, $0, late;": 3,
    "{.reg .b32 a,b;mov.b32 a,1;mov.b32 b,2;add.u32 $0,a,b;}": 3,
    "// $0, $$ and \u00e4\u00f6\nmov.b32 $0, 4; /* \u2264 ${0} */": 4,
}


@pytest.mark.parametrize("asm", SPELLINGS)
def test_spelling(asm: str) -> None:
    """The blocks also have no inputs."""
    assert emulate(asm, "=r", [], "uint32") == SPELLINGS[asm]


def test_integer_registers_may_hold_floats() -> None:
    assert emulate("add.f32 $0, $1, 1.0;", "=r,r", [np.array([1.5], F32)], "float32").tolist() == [2.5]


def test_the_low_byte_is_kept() -> None:
    """An 8-bit result comes from a 32-bit register with pack 1."""
    assert emulate("mov.b32 $0, $1;", "=r,r", [np.array([0x12345678], U32)], "uint8").tolist() == [0x78]


ONE = [np.array([1, 2], U32)]
MISTAKES = {
    # a register that only another asm block declares
    "add.u32 $0, $1, other;": (OperandError, "no register other is declared here"),
    # an output read before it is written
    "add.u32 $0, $0, 1;": (UndefinedBits, "undefined bits"),
    # memory, other lanes, and no semicolon
    "ld.global.b32 $0, [$1+4];": (NotElementwise, "memory access"),
    "shfl.sync.bfly.b32 $0, $1, 1, 31, -1;": (NotElementwise, "an elementwise snippet cannot use it"),
    "redux.sync.max.u32 $0, $1, -1;": (NotElementwise, "an elementwise snippet cannot use it"),
    "mov.b32 $0, $1": (ParseError, "expected ',' or ';'"),
    # an input written, an output never written, and one written under a predicate that is off
    "add.u32 $1, $1, 1;": (InputWritten, r"writes the input \$1, .* copy it into a register of your own"),
    "{ .reg .b32 t; add.u32 t, $1, 1; }": (UndefinedBits, r"output operand \$0 .* is never written"),
    "{ .reg .pred p; setp.eq.u32 p, $1, 1; @p mov.b32 $0, 5; }": (UndefinedBits, "element 1 .* undefined bits"),
    # an instruction of a newer target
    "{ .reg .b8 t; cvt.rn.satfinite.e2m1x2.f32 t, $1, $1; cvt.u32.u8 $0, t; }": (UnsupportedOnTarget, "sm_100f"),
    # an address of two registers, and a name declared twice in one scope
    "ld.global.b32 $0, [$1+$1];": (ParseError, "adds a constant to a register"),
    ".reg .b32 t; mov.b32 t, $1; .reg .b32 t; mov.b32 $0, t;": (OperandError, "register t is declared twice"),
}


@pytest.mark.parametrize("asm", MISTAKES)
def test_mistake(asm: str) -> None:
    kind, said = MISTAKES[asm]
    with pytest.raises(PtxError, match=said) as caught:
        emulate(asm, "=r,r", ONE, "uint32", target="sm_90a")
    assert isinstance(caught.value, kind)


def test_an_output_written_before_an_input_is_read() -> None:
    """The result is right in separate registers, and wrong if output and later input share one; `&` forbids sharing."""
    asm = "add.u32 $0, $1, 1; add.u32 $0, $0, $2;"
    a, b = np.array([1], U32), np.array([10], U32)
    assert emulate(asm, "=r,r,r", [a, b], "uint32").tolist() == [12]
    assert emulate(asm, "=r,r,r", [a, b], "uint32", share={0: 2}).tolist() == [4]
    with pytest.raises(PtxError, match="is an early clobber"):
        emulate(asm, "=&r,r,r", [a, b], "uint32", share={0: 2})


@pytest.mark.parametrize(("constraints", "said"), [("=r,n", "compile-time constant"), ("+r", "no read-write operands")])
def test_constraints_that_take_no_tensor(constraints: str, said: str) -> None:
    with pytest.raises(PtxError, match=re.escape(said)):
        emulate("mov.b32 $0, 1;", constraints, ONE, "uint32")
