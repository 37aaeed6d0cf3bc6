"""Undefined bits through lop3: a result is defined if the known bits decide it by the table, as with `and` and `or`."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ptxdiff.emulator import emulate
from ptxdiff.emulator.errors import UndefinedBits

UNKNOWN = 2


def depends(table: int, bits: tuple[int, int, int]) -> bool:
    """Whether the result varies with the unknown bits: the table is read for every way to fill them in."""
    ways = itertools.product(*((0, 1) if bit == UNKNOWN else (bit,) for bit in bits))
    return len({table >> (4 * a + 2 * b + c) & 1 for a, b, c in ways}) == 2


@pytest.mark.sample(3)
@pytest.mark.parametrize("table", [0xEA, 0x6A, 0xCA, 0xD8, 0xA8, 0x96, 0xE8, 0x80, 0xFE, 0x18, 0x00, 0xFF, 0xF0, 0x01])
def test_a_result_is_defined_if_unknown_bits_do_not_change_it(table):
    """Bit k of the sources is the k-th of 27 combinations; `u` is a register that was never written."""
    combinations = list(itertools.product((0, 1, UNKNOWN), repeat=3))
    lines = []
    for place, name in enumerate("abc"):
        ones = sum(1 << k for k, c in enumerate(combinations) if c[place] == 1)
        unknown = sum(1 << k for k, c in enumerate(combinations) if c[place] == UNKNOWN)
        lines.append(f"and.b32 {name}, u, {unknown}; or.b32 {name}, {name}, {ones};")
    varying = sum(1 << k for k, c in enumerate(combinations) if depends(table, c))
    text = f"{{ .reg .b32 u, a, b, c, d; {' '.join(lines)} lop3.b32 d, a, b, c, {table}; and.b32 $0, d, {{}}; }}"
    text = text.replace("{{", "{").replace("}}", "}")
    x = np.zeros(2, np.uint32)
    for k in range(27):
        one = text.replace("{}", str(1 << k))
        if varying >> k & 1:
            with pytest.raises(UndefinedBits):
                emulate(one, "=r,r", [x], "uint32")
        else:
            expected = next(
                table >> (4 * a + 2 * b + c) & 1
                for a, b, c in [tuple(0 if bit == UNKNOWN else bit for bit in combinations[k])]
            )
            assert emulate(one, "=r,r", [x], "uint32").tolist() == [expected << k] * 2


def test_a_masked_byte_of_a_partial_pack_is_defined():
    """The idiom of 4-bit dequantisation, (q & mask) | magic; padding that the mask does not remove is an error."""
    q = np.array([0x35], np.uint8)
    text = "lop3.b32 $0, $4, {}, 0x6400, 0xEA; mov.b32 $1, 0; mov.b32 $2, 0; mov.b32 $3, 0;"
    found = emulate(text.format("0x000F"), "=r,=r,=r,=r,r", [q], "uint32", pack=4)
    assert found.tolist() == [0x6405]
    with pytest.raises(UndefinedBits):
        emulate(text.format("0x0F0F"), "=r,=r,=r,=r,r", [q], "uint32", pack=4)
