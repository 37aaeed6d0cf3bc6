"""Spellings that ptxas accepts and the ISA does not describe: the emulator does what ptxas's code does."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator import PtxError, emulate

A = np.array([0x3F803F80, 0xBF80C000, 0x7FC0FF80], np.uint32)
B = np.array([0x40004000, 0x12345678, 0x00000000], np.uint32)


def test_of_a_vector_the_first_element_is_read_and_all_are_written() -> None:
    asm = "{ .reg .b32 u, v; mov.b32 v, 7; abs.bf16x2 {u, v}, {$1, $2}; add.u32 $0, u, v; }"
    expected = (emulate("abs.bf16x2 $0, $1;", "=r,r", [A], "uint32", target="sm_80") * np.uint32(2)).tolist()
    assert expected == emulate(asm, "=&r,r,r", [A, B], "uint32", target="sm_80").tolist()
    with pytest.raises(PtxError, match="must be a register"):
        emulate(asm, "=&r,r,r", [A, B], "uint32", target="sm_90")


def test_a_vector_register_is_read_as_its_first_component() -> None:
    asm = "{ .reg .v2 .b32 v; mov.b32 v.x, $1; mov.b32 v.y, $2; neg.bf16x2 $0, v; }"
    expected = emulate("neg.bf16x2 $0, $1;", "=r,r", [A], "uint32", target="sm_80").tolist()
    assert expected == emulate(asm, "=r,r,r", [A, B], "uint32", target="sm_80").tolist()


@pytest.mark.parametrize(
    ("vector", "words"),
    [
        ("{_, $0}", "a vector here begins with a register, names none twice"),
        ("{$0, $0}", "a vector here begins with a register, names none twice"),
        ("{$0, 1}", "an element between braces must be a register here"),
        ("{$0, $0, $0}", "a vector has 1, 2 or 4 elements, not 3"),
    ],
)
def test_destinations_without_a_meaning_are_refused(vector: str, words: str) -> None:
    with pytest.raises(PtxError, match=words):
        emulate(f"abs.bf16x2 {vector}, $1;", "=r,r", [A], "uint32", target="sm_80")


def test_four_narrow_values_between_braces() -> None:
    plain, odd = ("add.rn.e4m3x4.e4m3x4 $0, " + text for text in ("$1, $2;", "{$1, $2}, {$2};"))
    expected = emulate(plain, "=r,r,r", [A, B], "uint32", target="sm_100a").tolist()
    assert expected == emulate(odd, "=r,r,r", [A, B], "uint32", target="sm_100a").tolist()


@pytest.mark.parametrize(
    ("operand", "same"),
    [("{$1, $2}", "$1"), ("f", "$1"), ("{u, zero}", "$1"), ("{f, f}", "$1"), ("0f3F803F80", "zero")],
)
def test_the_source_of_a_scaled_conversion_is_read_as_bits(operand: str, same: str) -> None:
    asm = "{{ .reg .f32 f; .reg .u32 u; .reg .b32 zero; .reg .b16 h; .reg .b8 s; mov.b32 f, $1; mov.b32 u, $1; " \
        "mov.b32 zero, 0; cvt.u8.u32 s, 127; cvt.rn.satfinite.scaled::n1::ue8m0.e4m3x2.bf16x2 h, {}, s; " \
        "mov.b32 $0, {{h, h}}; }}"  # fmt: skip
    one, other = (emulate(asm.format(o), "=r,r,r", [A, B], "uint32", target="sm_107a") for o in (operand, same))
    assert other.tolist() == one.tolist()


def test_a_special_register_between_braces_is_read_as_bits() -> None:
    asm = "{{ .reg .b16 h; .reg .b32 t; mov.b32 t, %laneid; " \
        "cvt.rs.satfinite.e2m1x4.f32 h, {{{}, $1, $2, $1}}, $2; mov.b32 $0, {{h, h}}; }}"  # fmt: skip
    lanes = {"%laneid": np.arange(len(A)) % 32}
    one, other = (
        emulate(asm.format(o), "=r,r,r", [A, B], "uint32", target="sm_100a", special=lanes) for o in ("%laneid", "t")
    )
    assert other.tolist() == one.tolist()


@pytest.mark.parametrize("offset", ["0f00000002", "f"])
def test_a_float_as_the_offset_of_fns_is_read_as_bits(offset: str) -> None:
    asm = f"{{ .reg .f32 f; mov.b32 f, 2; fns.b32 $0, $1, 0, {offset}; }}"
    expected = emulate("fns.b32 $0, $1, 0, 2;", "=r,r", [A], "uint32").tolist()
    assert expected == emulate(asm, "=r,r", [A], "uint32").tolist() == [8, 15, 8]


def test_testp_without_a_class_keeps_the_predicate() -> None:
    asm = "{ .reg .pred p; setp.lt.s32 p, $1, 0; testp.f32 p, $1; selp.b32 $0, 1, 0, p; }"
    assert emulate(asm, "=r,r", [A], "uint32").tolist() == [0, 1, 0]
    with pytest.raises(PtxError, match="does not fit"):
        emulate(asm.replace("testp.f32", "testp.f64"), "=r,r", [A], "uint32")


@pytest.mark.parametrize("spelling", ["add.finite.f32", "add.f32.pred", "add.rn.texref.notanumber.f32"])
def test_words_that_ptxas_ignores_change_nothing(spelling: str) -> None:
    expected = emulate("add.f32 $0, $1, $2;", "=r,r,r", [A, B], "uint32").tolist()
    assert expected == emulate(f"{spelling} $0, $1, $2;", "=r,r,r", [A, B], "uint32").tolist()


@pytest.mark.parametrize("spelling", ["add.finite.normal.f32", "mul.lo.pred.u32", "shl.pred.b32"])
def test_words_that_ptxas_refuses(spelling: str) -> None:
    with pytest.raises(PtxError, match=r"no form with these modifiers|no modifier"):
        emulate(f"{spelling} $0, $1, $2;", "=r,r,r", [A, B], "uint32")
