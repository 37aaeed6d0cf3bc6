"""Patterns: codes of few bits, every edge code in every slot, and operands that share a binade."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff import Case, Domain, asm
from ptxdiff.inputs import input_sets, named_set
from ptxdiff.inputs.edges import edge_codes
from ptxdiff.inputs.outputs import label
from ptxdiff.inputs.patterns import pattern_units
from ptxdiff.inputs.ties import tie_codes
from ptxdiff.references.formats import (
    BF16,
    BF16X2,
    E4M3X2,
    F16X2,
    F32,
    I64,
    U8,
    U16,
    U32,
    U64,
    UE8M0,
    Format,
    magnitude,
    sign,
    unpack,
)


def case_of(*inputs: Format, **fields) -> Case:
    return Case(
        inputs={f"x{k}": fmt for k, fmt in enumerate(inputs)},
        outputs={"y": inputs[0]},
        reference=lambda *codes: codes[0],
        variants={"v": asm("mov.b32 $0, $1;", constraints="=r,r", pack=1)},
        **fields,
    )


def codes_of_set(case: Case) -> dict[str, np.ndarray]:
    units = named_set(case, "quick", "patterns/1").all()
    return {n: unpack(case.inputs[n], u) for n, u in units.items()}


@pytest.mark.parametrize("fmt", [U16, U32, U64, I64], ids=str)
def test_an_integer_has_every_length_from_either_end(fmt):
    found = {c & fmt.code_mask for c in pattern_units(fmt).tolist()}
    for k in range(fmt.code_bits):
        assert {1 << k, fmt.code_mask ^ (1 << k), (1 << k) - 1, fmt.code_mask & -(1 << k)} <= found
        assert all(1 << k | 1 << j in found for j in range(fmt.code_bits))


@pytest.mark.parametrize("fmt", [F16X2, BF16X2], ids=str)
def test_every_edge_code_is_in_every_slot(fmt):
    """The edges of a packed format are a selection of the single format's; bfloat16's lack -0."""
    slots = unpack(fmt, pattern_units(fmt).astype(fmt.numpy_dtype())).reshape(-1, fmt.codes_per_unit)
    for slot in slots.T:
        assert set(slot.tolist()) == set(edge_codes(fmt.single))


@pytest.mark.parametrize("fmts", [(F32,), (F32, F32), (U8, U8, U8), (E4M3X2, E4M3X2)], ids=str)
def test_no_patterns_if_edges_or_random_bits_contain_them(fmts):
    assert "patterns/1" not in {s.name for s in input_sets(case_of(*fmts), "quick")}


@pytest.mark.parametrize("fmt", [F32, BF16, F16X2], ids=str)
def test_three_floats_share_each_binade_of_each_sign(fmt):
    single = fmt.single
    columns = codes_of_set(case_of(fmt, fmt, fmt))
    fields = [magnitude(single, c) >> single.mantissa_bits for c in columns.values()]
    signs = [sign(single, c) for c in columns.values()]
    same = (fields[0] == fields[1]) & (fields[1] == fields[2]) & (signs[0] == signs[1]) & (signs[1] == signs[2])
    shared = set(zip(fields[0][same].tolist(), signs[0][same].tolist(), strict=True))
    assert shared >= {(b, s) for b in range((1 << single.exponent_bits) - 1) for s in (0, 1)}


def test_each_input_has_the_patterns():
    wanted = {c & U32.code_mask for c in pattern_units(U32).tolist()}
    for column in codes_of_set(case_of(U32, U32)).values():
        assert wanted <= set(column.tolist())


def test_patterns_stay_within_where_and_few():
    small = Domain("x0 < 1000", lambda v: v["x0"] < 1000)
    assert (codes_of_set(case_of(U32, where=small))["x0"] < 1000).all()
    assert len(codes_of_set(case_of(U64, U64, U64))["x0"]) < 8_000
    assert len(codes_of_set(case_of(F32, F32, F32))["x0"]) < 2_000


def test_results_of_64_bits_are_distinguished_by_length():
    """As float64, 2^63 - 1 is 2^63: the largest results of 63 bits once had the label of 64 bits."""
    for bits in range(2, 63):
        below, above = label(I64, np.array([(1 << bits) - 1, 1 << bits])).tolist()
        assert below != above
    below, above = label(U64, np.array([(1 << 63) - 1, -(1 << 63)])).tolist()
    assert below != above


def test_the_smallest_value_of_a_format_without_zero_is_among_its_ties():
    smallest = 0x00400000  # 2^-127
    for code in (smallest - 1, smallest, smallest + 1):
        assert {code, code | 1 << 31} <= {c & F32.code_mask for c in tie_codes(F32, UE8M0, 6000).tolist()}
