"""Text as nvdisasm prints it, for tests: instructions without an assembler."""

from __future__ import annotations

import dataclasses
import re
import struct
from collections.abc import Callable

import numpy as np
import pytest

from ptxdiff.conformance import taught
from ptxdiff.emulator import Buffer
from ptxdiff.sass.cubin import MachineCode, Parameter
from ptxdiff.sass.rows import ROWS, InstructionRow
from ptxdiff.sass.run import Ran, run_machine_code
from ptxdiff.sass.text import MachineFunction, functions


def plant(monkeypatch: pytest.MonkeyPatch, opcode: str, planted: list[InstructionRow]) -> None:
    """Put other rows into the table for a test. The digests of what is taught, which are kept, stay those of the right
    rows."""
    taught.digest(planted[0].name)
    monkeypatch.setitem(ROWS, opcode, planted)


def plant_definition(
    monkeypatch: pytest.MonkeyPatch, opcode: str, name: str, definition: Callable[..., int]
) -> None:  # fmt: skip
    """Give the row of a name another definition, for a test."""
    assert any(r.name == name for r in ROWS[opcode])
    planted = [dataclasses.replace(r, definition=definition) if r.name == name else r for r in ROWS[opcode]]
    plant(monkeypatch, opcode, planted)


def written(body: str) -> MachineFunction:
    """The function of some instructions, one a line, with labels; an immediate is put into the encoding."""
    lines = ['\t.section\t.text.kernel,"ax",@progbits', "kernel:"]
    address = 0
    for line in filter(None, map(str.strip, body.splitlines())):
        if line.endswith(":"):
            lines.append(line)
            continue
        low = _immediate(line) << 32
        lines.append(f"        /*{address:04x}*/   {line} ;   /* 0x{low:016x} */")
        lines.append(f"                  /* 0x{0:016x} */")
        address += 16
    return functions("\n".join(lines))["kernel"]


def _immediate(line: str) -> int:
    found = re.search(r"(?<![\[\w])(-?)0x([0-9a-f]+)(?![\w\]])", line)
    if found and "[" not in line:
        return (-int(found[2], 16) if found[1] else int(found[2], 16)) & 0xFFFFFFFF
    real = re.search(r"(?<![\w.])(-?\d+(?:\.\d+)?)\b(?!\])", line.partition(" ")[2])
    return int.from_bytes(struct.pack("<f", float(real[1])), "little") if real and "." in real[1] else 0


def run(
    body: str, inputs: list[np.ndarray], *, threads: int = 32, local: int = 0, shared: int = 0
) -> tuple[np.ndarray, Ran]:
    """Run instructions on sm_80: c[0x0][0x160] is the output of a word a thread, the next parameters are the inputs."""
    output = np.zeros(threads, np.uint32)
    buffers = [Buffer(output, "out", defined=False), *(Buffer(a, f"in{i}") for i, a in enumerate(inputs))]
    places = tuple(Parameter(8 * k, 8) for k in range(len(buffers)))
    code = MachineCode("kernel", "sm_80", written(body), places, 0x160, {}, local, shared)
    return output, run_machine_code(code, buffers, (1,), threads)


LOAD = """
S2R R0, SR_TID.X
MOV R1, 0x4
IMAD.WIDE R2, R0, R1, c[0x0][0x168]
LDG.E R4, [R2.64]
IMAD.WIDE R2, R0, R1, c[0x0][0x160]
"""
"""R4: this thread's word of the first input; R2: the address of its word of the output; R0: its number."""

STORE = """
STG.E [R2.64], R5
EXIT
"""
