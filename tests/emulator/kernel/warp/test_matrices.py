"""ldmatrix, stmatrix and movmatrix in all forms, with each thread's elements as in the ISA (9.7.14.5.15 to 17)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from ptxdiff.emulator.errors import ExecutionError, MemoryFault, UndefinedBits
from ptxdiff.emulator.kernel.run import Buffer, run_kernel

WARPS, NUMBERS = 2, (1, 2, 4)
FORMS = list(itertools.product(NUMBERS, ("", ".trans"), (".shared", ".shared::cta", "")))


def kernel(body: str, target: str = "sm_90a") -> str:
    """Two warps, each with 1 KiB of shared memory. %r1: thread; %r2: lane; %r3: address of the warp's memory; %rd3 and
    %rd4: addresses of the thread's words in x and y."""
    return f"""
.version 8.8
.target {target}
.address_size 64
.extern .shared .align 16 .b8 smem[];
.visible .entry k(.param .u64 x, .param .u64 y)
.reqntid {32 * WARPS}
{{
.reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .pred %p<4>;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31; shr.u32 %r4, %r1, 5; shl.b32 %r4, %r4, 10;
mov.u32 %r3, smem; add.u32 %r3, %r3, %r4;
mul.wide.u32 %rd5, %r1, 16; add.s64 %rd3, %rd1, %rd5; add.s64 %rd4, %rd2, %rd5;
{body}
ret;
}}
"""


def run(body: str, x: np.ndarray, y: np.ndarray, target: str = "sm_90a") -> None:
    run_kernel(kernel(body, target), [Buffer(x, "x"), Buffer(y, "y")], (1,), shared_bytes=1024 * WARPS)


def rows(seed: int) -> np.ndarray:
    """The places of the rows of a warp's four matrices in its 1 KiB, in units of 16 bytes, in random order."""
    return np.random.default_rng(seed).permutation(64)[:32]


def elements(number: int, trans: str) -> Iterator[tuple[int, int, int, int, int]]:
    """Thread, register, half of the register, and the row and column of matrix `register` of the element in it."""
    for thread, matrix, half in itertools.product(range(32), range(number), range(2)):
        row, column = thread // 4, thread % 4 * 2 + half
        yield thread, matrix, half, *((column, row) if trans else (row, column))


ADDRESS = "mul.wide.u32 %rd6, %r2, 4; add.s64 %rd7, %rd2, %rd6; ld.global.b32 %r5, [%rd7]; add.u32 %r6, %r3, %r5;"
GENERIC = "cvt.u64.u32 %rd8, %r6; cvta.shared.u64 %rd8, %rd8;"


@pytest.mark.parametrize(("number", "trans", "space"), FORMS)
def test_ldmatrix(number: int, trans: str, space: str) -> None:
    """Lane 8 m + i gives the address of row i of matrix m; the addresses of other lanes are not read."""
    places = rows(number)
    x = np.random.default_rng(1).integers(0, 1 << 16, (WARPS, 512), dtype=np.uint16)
    addresses = (16 * places).astype(np.uint32)
    addresses[8 * number :] = 0x7FFFFFF1  # outside shared memory
    y = np.zeros((WARPS, 32, 4), np.uint32)
    y.reshape(-1)[:32] = addresses
    registers = ", ".join(f"%r{10 + m}" for m in range(number))
    base = "%rd8" if not space else "%r6"
    body = f"""
    {ADDRESS} {GENERIC}
    shl.b32 %r7, %r2, 4; add.u32 %r7, %r3, %r7;
    mul.wide.u32 %rd9, %r4, 1; mul.wide.u32 %rd10, %r2, 16; add.s64 %rd9, %rd9, %rd10; add.s64 %rd9, %rd1, %rd9;
    ld.global.v4.b32 {{%r20, %r21, %r22, %r23}}, [%rd9]; st.shared.v4.b32 [%r7], {{%r20, %r21, %r22, %r23}};
    ld.global.v4.b32 {{%r20, %r21, %r22, %r23}}, [%rd9+512];
    st.shared.v4.b32 [%r7+512], {{%r20, %r21, %r22, %r23}};
    mov.b32 %r10, 0; mov.b32 %r11, 0; mov.b32 %r12, 0; mov.b32 %r13, 0;
    bar.sync 0;
    ldmatrix.sync.aligned.m8n8.x{number}{trans}{space}.b16 {{{registers}}}, [{base}];
    st.global.v4.b32 [%rd4], {{%r10, %r11, %r12, %r13}};"""
    run(body, x, y, "sm_75")
    wanted = np.zeros((WARPS, 32, 4, 2), np.uint16)
    for thread, matrix, half, row, column in elements(number, trans):
        wanted[:, thread, matrix, half] = x[:, places[8 * matrix + row] * 8 + column]
    np.testing.assert_array_equal(y, wanted.view(np.uint32)[..., 0])


@pytest.mark.parametrize(("number", "trans", "space"), FORMS)
def test_stmatrix(number: int, trans: str, space: str) -> None:
    places = rows(10 + number)
    x = np.random.default_rng(2).integers(0, 1 << 32, (WARPS, 32, 4), dtype=np.uint32)
    addresses = (16 * places).astype(np.uint32)
    addresses[8 * number :] = 0x7FFFFFF1
    y = np.zeros((WARPS, 512), np.uint16)
    y.view(np.uint32).reshape(-1)[:32] = addresses
    registers = ", ".join(f"%r{10 + m}" for m in range(number))
    base = "%rd8" if not space else "%r6"
    body = f"""
    {ADDRESS} {GENERIC}
    shl.b32 %r7, %r2, 4; add.u32 %r7, %r3, %r7; mov.b32 %r20, 0;
    st.shared.v4.b32 [%r7], {{%r20, %r20, %r20, %r20}}; st.shared.v4.b32 [%r7+512], {{%r20, %r20, %r20, %r20}};
    ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%rd3];
    bar.sync 0;
    stmatrix.sync.aligned.m8n8.x{number}{trans}{space}.b16 [{base}], {{{registers}}};
    bar.sync 0;
    mul.wide.u32 %rd9, %r4, 1; mul.wide.u32 %rd10, %r2, 16; add.s64 %rd9, %rd9, %rd10; add.s64 %rd9, %rd2, %rd9;
    ld.shared.v4.b32 {{%r20, %r21, %r22, %r23}}, [%r7]; st.global.v4.b32 [%rd9], {{%r20, %r21, %r22, %r23}};
    ld.shared.v4.b32 {{%r20, %r21, %r22, %r23}}, [%r7+512]; st.global.v4.b32 [%rd9+512], {{%r20, %r21, %r22, %r23}};"""
    run(body, x, y)
    wanted = np.zeros((WARPS, 512), np.uint16)
    halves = x.view(np.uint16).reshape(WARPS, 32, 4, 2)
    for thread, matrix, half, row, column in elements(number, trans):
        wanted[:, places[8 * matrix + row] * 8 + column] = halves[:, thread, matrix, half]
    np.testing.assert_array_equal(y, wanted)


def test_movmatrix() -> None:
    x = np.random.default_rng(3).integers(0, 1 << 32, (WARPS, 32, 4), dtype=np.uint32)
    y = np.zeros_like(x)
    body = """
    ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%rd3];
    movmatrix.sync.aligned.m8n8.trans.b16 %r20, %r10; movmatrix.sync.aligned.m8n8.trans.b16 %r21, %r11;
    movmatrix.sync.aligned.m8n8.trans.b16 %r11, %r11; movmatrix.sync.aligned.m8n8.trans.b16 %r22, %r11;
    st.global.v4.b32 [%rd4], {%r20, %r21, %r22, %r13};"""
    run(body, x, y, "sm_75")
    halves, got = (a.view(np.uint16).reshape(WARPS, 32, 4, 2) for a in (x, y))
    wanted = halves.copy()
    for number in (0, 1):
        for thread, half in itertools.product(range(32), range(2)):
            row, column = thread // 4, thread % 4 * 2 + half
            # The element at (row, column) of the result is the source's element at (column, row).
            wanted[:, thread, number, half] = halves[:, column * 4 + row // 2, number, row % 2]
    wanted[:, :, 2] = halves[:, :, 1]  # transposed twice
    np.testing.assert_array_equal(got, wanted)


MOVES = {
    "ldmatrix": "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r6];",
    "stmatrix": "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r6], {%r1};",
    "movmatrix": "movmatrix.sync.aligned.m8n8.trans.b16 %r10, %r1;",
}


@pytest.mark.parametrize("name", MOVES)
def test_a_part_of_a_warp_is_refused(name: str) -> None:
    body = f"mov.u32 %r6, %r3; setp.lt.u32 %p1, %r2, 16; @!%p1 bra DONE; {MOVES[name]} DONE:"
    with pytest.raises(ExecutionError, match=f"{name}.* needs all 32 threads of a warp"):
        run(body, np.zeros(512, np.uint32), np.zeros(512, np.uint32))


@pytest.mark.parametrize("name", ["ldmatrix", "stmatrix"])
@pytest.mark.parametrize(("change", "words"), [("8", "misaligned"), ("0x4000", "outside the 2048 bytes")])
def test_wrong_addresses_of_rows_are_refused(name: str, change: str, words: str) -> None:
    body = f"shl.b32 %r5, %r2, 4; add.u32 %r6, %r3, %r5; add.u32 %r6, %r6, {change}; {MOVES[name]}"
    with pytest.raises(MemoryFault, match=words):
        run(body, np.zeros(512, np.uint32), np.zeros(512, np.uint32))


def test_rows_that_were_never_written_give_undefined_bits() -> None:
    body = f"shl.b32 %r5, %r2, 4; add.u32 %r6, %r3, %r5; {MOVES['ldmatrix']} st.global.b32 [%rd4], %r10;"
    with pytest.raises(UndefinedBits, match="a store to y"):
        run(body, np.zeros(512, np.uint32), np.zeros(512, np.uint32))
