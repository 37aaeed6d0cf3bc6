"""Constant expressions: the 64-bit types of their integers, compared with the values that ptxas puts into a binary."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ptxdiff.emulator import emulate
from ptxdiff.emulator.text.nodes import Immediate, Instruction
from ptxdiff.emulator.text.parser import parse_asm
from tests.support.emulator.legality import assembler, check, ptx_version
from tests.support.sampling import only

ONES = (1 << 64) - 1
VALUES = {
    # An expression is unsigned after ~, with U, and with a literal of more than 63 bits.
    "~0 >> 60": 15,
    "-1 >> 60": ONES,
    "-1U >> 60": 15,
    "~(.s64)0 >> 60": 15,
    "(.s64)~0 >> 60": ONES,
    "-(.u64)1 >> 60": 15,
    "0xFFFFFFFFFFFFFFFF / 10": ONES // 10,
    "-8 / 3": ONES - 1,
    "-8 / 3U": (ONES - 7) // 3,
    "-1 > 0U": 1,
    "-1 < 0xFFFFFFFFFFFFFFFF": 0,
    "-1 == 0xFFFFFFFFFFFFFFFF": 1,
    "~5 > 0": 1,
    "(2U - 3) >> 1": ONES >> 1,
    "(2 - 3) >> 1": ONES,
    "(~0 & -1) >> 60": 15,
    "(-1 & -1) / 2": 0,
    # A remainder is computed of unsigned numbers; comparisons and logical operators give signed ones.
    "-7 % 4": 1,
    "7 % -4": 7,
    "(-2 % -1) >> 60": 15,
    "(1U < 2U) - 2 >> 60": ONES,
    "!0U - 2 >> 60": ONES,
    "(1U && 1U) - 2 >> 60": ONES,
    # Signed sums wrap and stay signed.
    "0x7FFFFFFFFFFFFFFF + 1 > 0": 0,
    "(1 << 63) / 2": 0xC000000000000000,
    "(0x7fffffffffffffff * 2) / 2": ONES,
    # Shifts count modulo 64, and the first operand's type decides.
    "1 << 65": 2,
    "-1 >> 70": ONES,
    "(-1U << 1) >> 60": 15,
    # The result of ?: has the type of the chosen operand.
    "(0 ? 1U : -1) >> 60": ONES,
    "(1 ? -1 : 1U) > 0": 0,
    "WARP_SZ * 2": 64,
    "-WARP_SZ / 3": ONES - 9,
    "WARP_SZ|1": 33,
    "!WARP_SZ": 0,
    "1.5 > 1.0": 1,
    "-1.5 < 0.0": 1,
    "0d3FF0000000000000 == 1.0": 1,
    "18446744073709551616": 0,
    "18446744073709551616 - 1 > 0": 0,
    "0x17FFFFFFFFFFFFFFF": 0x7FFFFFFFFFFFFFFF,
    "- -5": 5,
    "1 | 2 ^ 3 & 4": 3,
    "1 + 2 << 3": 24,
}
LINES = [
    f"{head} {text};"
    for head in ("mov.u64 %u64_0,", "mov.f32 %f32_0,", "mov.f64 %f64_0,", "mov.b32 %b32_0,", "add.u32 %u32_0, %u32_1,")
    for text in (
        *("1 + 0.5", "0.5 + 1", "0.5 + 0.5", "1.5 > 1", "!1.5", "~1.5", "1.5 && 1", "1.5 ? 1 : 2", "1 ? 1.5 : 2.5"),
        *("(.s64)1.5", "(.u32)1", "1.5 << 1", "1.5 % 0.5", "1 / 0", "1 / 0.0", "1.0 / 0.0", "1e308 * 10.0"),
        *("0f3F800000", "(0f7FC12345)", "-0f3F800000", "-(0f3F800000)", "0f3F800000 + 1.0", "1.0 + 0f3F800000"),
        *(
            "0d3FF0000000000000",
            "-0d3FF0000000000000",
            "0d3FF0000000000000 + 1.0",
            "1e400",
            "1e-400",
            "1e-310",
            "0e-999",
        ),
        *("0xFFFFFFFFFFFFFFFFF", "0x10000000000000001", "99999999999999999999", "30000000000000000000", "08", "5 5"),
        *("WARP_SZ", "WARP_SZ + 1", "(WARP_SZ)", "WARP_SZ.x", "1 ? WARP_SZ : 2", "-WARP_SZ", "WARP_SZ + 1.0"),
        *("(-9223372036854775807 - 1) / -1", "(-9223372036854775807 - 1) % -1", "010000000000000000000000"),
    )
]
LINES += ["{ .reg .b32 WARP_SZ; }", "{ .reg .b32 a<WARP_SZ>; mov.b32 a31, 1; }", "mov.b32 %b32_0, {WARP_SZ*2, 3};"]


def folded(text: str) -> int | float:
    block, _ = parse_asm(f"mov.u64 %a, {text};", 0)
    (node,) = block.statements
    assert isinstance(node, Instruction)
    assert isinstance(node.operands[1], Immediate)
    return node.operands[1].value


@pytest.mark.parametrize("text", VALUES)
def test_values(text: str) -> None:
    assert int(folded(text)) & ONES == VALUES[text]


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_ptxas_computes_the_same_values(target: str, tmp_path: Path) -> None:
    program = assembler(target)
    if program is None:
        pytest.skip(f"no ptxas for {target}: pip install triton")
    source, binary = tmp_path / "values.ptx", tmp_path / "values.cubin"
    head = f".version {ptx_version(program)}\n.target {target}\n.address_size 64\n"
    listed = f".visible .global .align 8 .u64 values[{len(VALUES)}] = {{{', '.join(VALUES)}}};\n"
    source.write_text(head + listed + ".visible .entry k() { ret; }\n")
    subprocess.run([program, f"-arch={target}", str(source), "-o", str(binary)], check=True)
    found = struct.unpack(f"<{len(VALUES)}Q", section(binary.read_bytes(), b".nv.global.init"))
    assert dict(zip(VALUES, found, strict=True)) == VALUES


def section(elf: bytes, name: bytes) -> bytes:
    """The contents of a section of a 64-bit ELF file."""
    (start,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, start + i * size) for i in range(count)]
    return next(elf[h[4] : h[4] + h[5]] for h in headers if elf[headers[names][4] + h[0] :].startswith(name + b"\0"))


@pytest.mark.parametrize("target", only(["sm_80", "sm_90a"], ["sm_90a"]))
def test_what_ptxas_refuses_is_refused(target: str) -> None:
    check(LINES, target)


def test_a_literal_in_parentheses_keeps_its_bits() -> None:
    zeros = np.zeros(1, np.uint32)
    assert emulate("mov.b32 $0, ((0f7FA12345));", "=r,r", [zeros], "uint32")[0] == 0x7FA12345
    assert emulate("add.u32 $0, $1, ~0 / 3;", "=r,r", [zeros], "uint32")[0] == 0x55555555
