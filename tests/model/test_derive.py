"""Derived packed forms: the code around one instruction moves every element to its place and back."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff import Case, asm, emulate
from ptxdiff.emulator.text.types import NARROW
from ptxdiff.model.derive import DerivationError, asm_form, operand_bits, packs_of
from ptxdiff.model.variants import DERIVED_PACKS, single_instruction
from ptxdiff.references.formats import (
    BF16,
    BF16X2,
    E2M1,
    E2M1X2,
    E4M3,
    E4M3X2,
    E5M2,
    E5M2X2,
    F16,
    F16X2,
    F32,
    F32X2,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    UE8M0X2,
    Format,
    value,
)


@pytest.mark.parametrize(("name", "bits"), [(n, b) for f in NARROW for n, b in f.types.items()])
def test_the_width_of_a_narrow_operand_is_that_of_its_type(name: str, bits: int) -> None:
    instruction = single_instruction(f"cvt.rn.satfinite.{name}.f32 $0, $2, $1;")
    assert instruction is not None
    assert operand_bits(instruction) == (bits, 32)


def case_of(text: str, inputs: tuple[Format, ...], output: Format, packs: tuple[int, ...] = DERIVED_PACKS) -> Case:
    return Case(
        inputs={f"x{k}": fmt for k, fmt in enumerate(inputs)},
        outputs={"y": output},
        reference=lambda *codes: codes[0],
        variants={"v": asm(text, packs=packs)},
    )


def run(case: Case, pack: int, *arrays: np.ndarray) -> np.ndarray:
    form = asm_form(case, case.variants["v"], pack)
    (result,) = emulate(
        form.text, form.constraints, list(arrays), [case.outputs["y"].storage], pack=pack, target="sm_100a", padding=3
    )
    return result


WIDTHS = {8: "cvt.u8.u8", 16: "mov.b16", 32: "mov.b32", 64: "mov.b64"}
FORMATS = (U8, I8, E2M1X2, U16, I16, F16, BF16, E4M3X2, E5M2X2, UE8M0X2, U32, I32, F32, F16X2, BF16X2, U64, I64, F64)


@pytest.mark.parametrize("pack", [1, 2, 4, 8])
@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_a_copy_puts_every_element_in_its_own_place(fmt, pack):
    """With 37 elements the last pack is partial, and its padding is poisoned."""
    rng = np.random.default_rng(pack)
    units = rng.integers(0, 1 << min(fmt.unit_bits, 63), 37, dtype=np.int64).astype(fmt.numpy_dtype())
    case = case_of(f"{WIDTHS[fmt.unit_bits]} $0, $1;", (fmt,), fmt, (pack,))
    np.testing.assert_array_equal(run(case, pack, units), units)


@pytest.mark.parametrize("pack", [1, 2, 4, 8])
@pytest.mark.parametrize(
    ("text", "inputs", "output", "expected"),
    [
        ("cvt.u32.u8 $0, $1;", (U8,), U32, lambda x: x),
        ("cvt.u64.u16 $0, $1;", (U16,), U64, lambda x: x),
        ("cvt.u8.u32 $0, $1;", (U32,), U8, lambda x: x & 255),
        ("cvt.s32.s8 $0, $1;", (I8,), I32, lambda x: x),
        ("mul.wide.u16 $0, $1, $2;", (U16, U16), U32, lambda x, y: x.astype(np.uint32) * y),
        ("popc.b64 $0, $1;", (U64,), U32, lambda x: np.array([int(v).bit_count() for v in x])),
        ("sub.s16 $0, $2, $1;", (I16, I16), I16, lambda x, y: y - x),
    ],
)
def test_operands_of_different_widths(text, inputs, output, expected, pack):
    rng = np.random.default_rng(pack)
    top = {8: 100, 16: 150, 32: 1 << 20, 64: 1 << 40}
    arrays = [rng.integers(0, top[f.unit_bits], 21).astype(f.numpy_dtype()) for f in inputs]
    wanted = expected(*arrays).astype(output.numpy_dtype())
    np.testing.assert_array_equal(run(case_of(text, inputs, output, (pack,)), pack, *arrays), wanted)


@pytest.mark.parametrize("pack", [1, 2, 4])
def test_an_instruction_on_two_halves(pack):
    """f16x2 works on two elements at a time. A single element has an undefined neighbour, and its result is still
    right."""
    x = np.arange(1, 22, dtype=np.float16)
    case = case_of("add.rn.f16x2 $0, $1, $1;", (F16,), F16)
    np.testing.assert_array_equal(run(case, pack, x.view(np.uint16)).view(np.float16), x + x)


def test_an_instruction_on_four_narrow_values():
    """mul.e4m3x4 of e2m1, each in a byte, and e4m3: three types of the same width."""
    case = case_of("mul.satfinite.e4m3x4.e2m1p4x4.e4m3x4 $0, $1, $2;", (E2M1, E4M3), E4M3)
    small, scale = np.arange(22, dtype=np.uint8) % 16, np.full(22, 0x40, np.uint8)
    twice = [0x00, 0x38, 0x40, 0x44, 0x48, 0x4C, 0x50, 0x54]
    expected = [twice[c & 7] | (c & 8) << 4 for c in small.tolist()]
    for pack in (4, 8):
        np.testing.assert_array_equal(run(case, pack, small, scale), expected)


def test_floats_paired_in_a_wide_register():
    x = np.arange(1, 22, dtype=np.float32)
    case = case_of("add.rn.f32x2 $0, $1, $1;", (F32,), F32)
    assert packs_of(case, case.variants["v"]) == (2, 4)
    for pack in (2, 4):
        np.testing.assert_array_equal(run(case, pack, x.view(np.uint32)).view(np.float32), x + x)


def test_outputs_are_early_clobbers_and_a_plain_instruction_stays_plain():
    case = case_of("add.rn.f32 $0, $1, $2;", (F32, F32), F32)
    form = asm_form(case, case.variants["v"], 1)
    assert (form.text, form.constraints) == ("add.rn.f32 $0, $1, $2;", "=&r,r,r")
    form = asm_form(case, case.variants["v"], 2)
    assert form.constraints == "=&r,=&r,r,r,r,r"
    assert "add.rn.f32 $1, $3, $5;" in form.text


@pytest.mark.parametrize(
    ("text", "inputs", "words"),
    [
        ("add.f32 $0, $1, $7;", (F32, F32), r"\$7 names no argument; the case has 3 .outputs first.: \$0 to \$2"),
        ("add.f32 $0, $1, $1;", (F32, F32), r"argument \$2 is never used"),
        ("add.f32 $0, $1, 1.0; mul.f32 $0, $0, $2;", (F32, F32), "from exactly one plain instruction"),
        ("@p add.f32 $0, $1, $2;", (F32, F32), "from exactly one plain instruction"),
        ("add.f16x2 $0, $1, $2;", (F32, F16), "its operands cover different numbers of elements"),
        ("lg.approx $0, $1, $2;", (F32, F32), "do not follow from its type suffixes"),
        ("mul.e4m3x4.e2m1x4.e4m3x4 $0, $1, $2;", (E2M1, E4M3), "do not follow from its type suffixes"),
        ("selp.b32 $0, $1, $2, p;", (F32, F32), "has a predicate among its operands"),
        ("shl.b16 $0, $1, $2;", (U16, U32), "takes operands of different widths"),
    ],
)
def test_what_cannot_be_derived_is_refused_with_the_reason(text, inputs, words):
    case = case_of(text, inputs, F32 if inputs[0] is F32 else U16)
    with pytest.raises(DerivationError, match=words):
        asm_form(case, case.variants["v"], 1)


@pytest.mark.parametrize(
    ("text", "opcode"),
    [
        ("rcp.rn.f32 $0, $1", "rcp.rn.f32"),
        (" // why\n  rcp.rn.f32 $0, /* so */ $1; ", "rcp.rn.f32"),
        ("mov.b32 $0, {$1, $2};", "mov.b32"),
        ("{ rcp.rn.f32 $0, $1; }", None),
        ("a; b;", None),
        ("", None),
    ],
)
def test_what_counts_as_one_instruction(text, opcode):
    found = single_instruction(text)
    assert (found.opcode if found else None) == opcode


@pytest.mark.parametrize("pack", [2, 4, 8])
@pytest.mark.parametrize(
    ("text", "source", "target"),
    [
        ("cvt.rn.satfinite.e4m3x2.f32 $0, $2, $1;", F32, E4M3),
        ("cvt.rn.satfinite.e5m2x2.f32 $0, $2, $1;", F32, E5M2),
        ("cvt.rn.f16x2.f32 $0, $2, $1;", F32, F16),
        ("cvt.rn.bf16x2.f32 $0, $2, $1;", F32, BF16),
        ("cvt.pack.sat.s16.s32 $0, $2, $1;", I32, I16),
    ],
)
def test_a_conversion_of_two_elements_at_a_time(text, source, target, pack):
    """$1 and $2 are the first and the second element of a pair, numbered as for pack 2."""
    case = case_of(text, (source,), target, (pack,))
    values = np.arange(-20, 17).astype(source.numpy_dtype() if source is I32 else np.float32)
    result = run(case, pack, values)
    if target is I16:
        np.testing.assert_array_equal(result.view(np.int16), values)
    else:
        assert [float(value(target, int(code))) for code in result] == [float(rounded(target, x)) for x in values]


def rounded(target: Format, x: float) -> float:
    from ml_dtypes import bfloat16, float8_e4m3fn, float8_e5m2

    kinds = {"e4m3": float8_e4m3fn, "e5m2": float8_e5m2, "float16": np.float16, "bfloat16": bfloat16}
    return kinds[target.name](x)


def test_a_conversion_of_two_elements_leaves_out_odd_packs():
    case = case_of("cvt.rn.satfinite.e4m3x2.f32 $0, $2, $1;", (F32,), E4M3)
    assert packs_of(case, case.variants["v"]) == (2, 4)
    with pytest.raises(DerivationError, match="2 elements at a time; pack 3 is no multiple"):
        asm_form(case_of("cvt.rn.satfinite.e4m3x2.f32 $0, $2, $1;", (F32,), E4M3, (3,)), case.variants["v"], 3)


def test_sources_in_the_other_order_exchange_neighbours():
    """The author chooses the order of operands: the first source goes to the upper half."""
    case = case_of("cvt.rn.satfinite.e4m3x2.f32 $0, $1, $2;", (F32,), E4M3, (4,))
    result = run(case, 4, np.array([1, 2, 3, 4], np.float32))
    assert [float(value(E4M3, int(code))) for code in result] == [2, 1, 4, 3]


def test_a_pair_of_codes_too_wide_for_a_byte_is_refused():
    case = case_of("cvt.rn.satfinite.e2m1x2.f32 $0, $2, $1;", (F32,), E2M1, (2,))
    with pytest.raises(DerivationError, match="makes 8 bits of two sources of 32 bits"):
        asm_form(case, case.variants["v"], 2)


@pytest.mark.parametrize("pack", [1, 2, 4])
def test_two_floats_in_one_register(pack):
    case = case_of("add.rn.f32x2 $0, $1, $2;", (F32X2, F32X2), F32X2, (pack,))
    x = np.arange(14, dtype=np.float32)
    np.testing.assert_array_equal(run(case, pack, x.view(np.uint64), x.view(np.uint64)).view(np.float32), 2 * x)
