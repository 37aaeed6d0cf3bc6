"""Kernels of one block that work in tensor memory, put together from lines of PTX."""

from __future__ import annotations

import numpy as np

from ptxdiff.emulator.kernel.run import Buffer, load_kernel, run_kernel

DATA = 1024
"""Offset of the kernel's input in shared memory: after the kernel's own words, at a multiple of a swizzle's period."""
BASE = 1024
"""The address of shared memory's first byte, which descriptors count from."""

BLOCKS = 1
"""How many blocks run, all with the same input and output."""

_HEAD = """.version 8.7
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k(.param .u64 input, .param .u64 out) .reqntid 128
{
  .reg .pred %p<8>, %first, %warp0, %done;
  .reg .b32 %r<300>, %t, %warp, %base, %own, %x, %mask;
  .reg .b64 %rd<20>, %in, %to, %a, %b;
  ld.param.u64 %in, [input];
  ld.param.u64 %to, [out];
  mov.u32 %t, %tid.x;
  shr.u32 %warp, %t, 5;
  setp.eq.u32 %first, %t, 0;
  setp.eq.u32 %warp0, %warp, 0;
  mov.u32 %x, %t;
"""
_COPY = """fill:
  setp.ge.u32 %done, %x, {words};
  @%done bra filled;
  mul.wide.u32 %rd0, %x, 4;
  add.s64 %rd0, %in, %rd0;
  ld.global.b32 %r0, [%rd0];
  shl.b32 %r1, %x, 2;
  st.shared.b32 [%r1+{at}], %r0;
  add.s32 %x, %x, 128;
  bra fill;
filled:
  fence.proxy.async.shared::cta;
  @%first mbarrier.init.shared::cta.b64 [smem+16], 1;
  bar.sync 0;
"""
ALLOCATE = """  @%warp0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [smem], {columns};
  bar.sync 0;
  ld.shared.b32 %base, [smem];
  @%warp0 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
  shl.b32 %own, %warp, 21;
  add.s32 %own, %own, %base;
"""
FREE = """  bar.sync 0;
  @%warp0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %base, {columns};
"""
COMMIT = "@%first tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r0];"
WAIT = """  mov.u32 %r0, smem;
  add.s32 %r0, %r0, 16;
  {commit}
wait:
  mbarrier.try_wait.parity.shared::cta.b64 %done, [smem+16], 0;
  @!%done bra wait;
"""


def registers(first: int, count: int) -> str:
    return "{" + ", ".join(f"%r{i}" for i in range(first, first + count)) + "}"


def stored(count: int, first: int = 10) -> str:
    """PTX that stores registers of all threads to global memory, thread after thread."""
    lines = [f"  mul.wide.u32 %rd0, %t, {4 * count};", "  add.s64 %rd0, %to, %rd0;"]
    return "\n".join([*lines, *(f"  st.global.b32 [%rd0+{4 * i}], %r{first + i};" for i in range(count))]) + "\n"


def loaded(count: int, first: int = 10, ahead: str = "%in") -> str:
    """PTX that loads registers of all threads from global memory, thread after thread."""
    lines = [f"  mul.wide.u32 %rd0, %t, {4 * count};", f"  add.s64 %rd0, {ahead}, %rd0;"]
    return "\n".join([*lines, *(f"  ld.global.b32 %r{first + i}, [%rd0+{4 * i}];" for i in range(count))]) + "\n"


def waited(commit: str = COMMIT) -> str:
    return WAIT.format(commit=commit)


def text(body: str, words: int = 0, columns: int = 128, allocate: str = ALLOCATE, free: str = FREE) -> str:
    """A kernel that copies its input to shared memory from DATA on, allocates columns, and runs the body."""
    parts = [_HEAD, _COPY.format(words=words, at=DATA + BASE), allocate, body, free, "  ret;\n}\n"]
    return "".join(p.replace("{columns}", str(columns)) for p in parts)


def run(kernel: str, data: np.ndarray, out: np.ndarray, shared: int = 65536) -> np.ndarray:
    run_kernel(load_kernel(kernel), [Buffer(data, "input"), Buffer(out, "out")], (BLOCKS,), shared_bytes=shared)
    return out


def product(head: str, operands: str, d: int, width: int, before: str, behind: str) -> str:
    """A kernel's body: tensor memory is filled from the input, one product is issued, and d's columns are read.

    head: the product's modifiers; operands: those after d, among them %a, %b and %x, which `before` sets. d: number of
    columns of d. width: number of columns that are filled from the input at %in, which holds them thread by thread.
    behind: PTX to run when d's columns are in registers.
    """
    fill = f"{loaded(width)}  tcgen05.st.sync.aligned.32x32b.x{width}.b32 [%own], {registers(10, width)};\n"
    issue = f"  @%first tcgen05.mma.{head} [%base], {operands};\n"
    read = f"  tcgen05.ld.sync.aligned.32x32b.x{d}.b32 {registers(10, d)}, [%own];\n  tcgen05.wait::ld.sync.aligned;\n"
    return f"{fill}  tcgen05.wait::st.sync.aligned;\n  bar.sync 0;\n{before}{issue}{waited()}{read}{behind}{stored(d)}"
