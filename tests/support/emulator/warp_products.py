"""One product of matrices by a warp: registers from matrices of codes, a kernel with the product, and its result."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.kernel.run import Buffer, run_kernel

_BITS = {"tf32": 32, "f32": 32, "s32": 32, "f16": 16, "bf16": 16, "s4": 4, "u4": 4}
Place = Callable[[int, int, int], tuple[int, int]]
"""Maps lane, register and element within the register to row and column (figures of the ISA's 9.7.14.5)."""


def bits_of(kind: str) -> int:
    """Bits that an element takes in a register."""
    return _BITS.get(kind, 8)


def of_a(bits: int) -> Place:
    each = 32 // bits
    return lambda lane, r, e: (lane // 4 + 8 * (r % 2), lane % 4 * each + e + r // 2 * 4 * each)


def of_b(bits: int) -> Place:
    each = 32 // bits
    return lambda lane, r, e: (lane % 4 * each + e + r * 4 * each, lane // 4)


def of_c(bits: int) -> Place:
    each = 32 // bits
    return lambda lane, r, e: (lane // 4 + 8 * ((r * each + e) // 2), lane % 4 * 2 + (r * each + e) % 2)


def words(codes: torch.Tensor, kind: str, place: Place, count: int, bits: int = 0) -> np.ndarray:
    """The registers of 32 lanes that hold a matrix of codes, count x 32. bits: of an element; 0: those of its type."""
    bits = bits or bits_of(kind)
    found = np.zeros((count, 32), np.uint32)
    shift = 2 if kind == "e2m1" else 0  # in the middle of a byte
    for register, lane, element in np.ndindex(count, 32, 32 // bits):
        code = int(codes[place(lane, register, element)]) << shift
        found[register, lane] |= np.uint32(code << (bits * element) & 0xFFFFFFFF)
    return found


def launched(bound: Bound, registers: list[np.ndarray], behind: str, target: str) -> np.ndarray:
    """The codes of d, 16 x 8, that the emulator computes.

    registers: of a, b, c and further operands, count x 32. behind: the text after c, in which `{3}` stands for the
    fourth operand's first register.
    """
    d = bound.modifiers.get("dtype") or "f32"
    counts = [len(r) for r in registers]
    names = [[f"%r{sum(counts[:i]) + j}" for j in range(n)] for i, n in enumerate(counts)]
    to = [f"%r{sum(counts) + j}" for j in range(counts[2])]
    lines = [f"ld.global.b32 {name}, [%rd1+{128 * i}];" for i, name in enumerate(x for group in names for x in group)]
    matrices = ", ".join("{" + ", ".join(group) + "}" for group in (to, *names[:3]))
    lines.append(f"{bound.spelling} {matrices}, {behind.format(*(group[0] for group in names))};")
    lines += [f"st.global.b32 [%rd2+{128 * i}], {name};" for i, name in enumerate(to)]
    text = f"""
.version 8.8
.target {target}
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y)
.reqntid 32
{{
.reg .b32 %r<40>; .reg .b64 %rd<4>; .reg .b16 %h<4>;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; mov.u32 %r39, %laneid; mul.wide.u32 %rd3, %r39, 4;
add.s64 %rd1, %rd1, %rd3; add.s64 %rd2, %rd2, %rd3; mov.b16 %h1, 1; mov.b16 %h2, 2; cvt.u16.u32 %h3, %r39;
{chr(10).join(lines)}
ret;
}}
"""
    result = np.zeros((counts[2], 32), np.uint32)
    run_kernel(text, [Buffer(np.concatenate(registers), "x"), Buffer(result, "y")], (1,))
    wide = 32 // bits_of(d)
    codes = np.zeros((16, 8), np.int64)
    for register, lane, element in np.ndindex(counts[2], 32, wide):
        code = int(result[register, lane]) >> (bits_of(d) * element) & ((1 << bits_of(d)) - 1)
        codes[of_c(bits_of(d))(lane, register, element)] = code
    return codes


def run_undefined(instruction: str, target: str = "sm_90a") -> None:
    """Run an instruction with %r1 zero and %r2 never written."""
    head = f".version 8.8\n.target {target}\n.address_size 64\n.visible .entry k() .reqntid 32"
    run_kernel(f"{head} {{ .reg .b32 %r<9>; mov.b32 %r1, 0; {instruction} ret; }}", [], (1,))
