"""Copies to shared memory and products of a warp in machine code give the bits of the PTX."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ptxdiff import run_ptx
from ptxdiff.emulator.kernel.warp import fragments
from ptxdiff.sass import matrices
from ptxdiff.sass.text import Unsupported
from ptxdiff.triton.targets import probe
from tests.support.sampling import paired
from tests.support.sass.ahead import read_together
from tests.support.sass.assembly import run as one_instruction

THREADS = 64
KERNEL = """
.version 8.7
.target {target}
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y) {{
  .reg .b32 t, v, w, a, c<4>, d<4>, s; .reg .b64 gx, gy, o; .reg .pred p;
  .shared .align 16 .b8 data[2048];
  ld.param.u64 gx, [x]; ld.param.u64 gy, [y];
  mov.u32 t, %tid.x; mul.wide.u32 o, t, 16; add.u64 gx, gx, o; add.u64 gy, gy, o;
  mov.u32 a, data; mad.lo.u32 a, t, 16, a; mov.u32 s, data; and.b32 w, t, 31; mad.lo.u32 s, w, 16, s;
  and.b32 w, t, 1; shl.b32 w, w, 4;
  cp.async.ca.shared.global [a], [gx], 16, w; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
  {body}
  st.global.v4.u32 [gy], {{d0, d1, d2, d3}};
  ret;
}}
"""
LOADED = "ldmatrix.sync.aligned.m8n8.x4.{}shared.b16 {{{{c0, c1, c2, c3}}}}, [s];"
FACTORS = "{{d0, d1, d2, d3}}, {{c0, c1, c2, c3}}, {{c1, c2}}, {{c3, c0, c2, c1}};"
BODIES = {
    "copies": "ld.shared.v4.u32 {{d0, d1, d2, d3}}, [s];",
    "ldmatrix": LOADED.format("") + "mov.u32 d0, c0; mov.u32 d1, c1; mov.u32 d2, c2; mov.u32 d3, c3;",
    "transposed": LOADED.format("trans.") + "mov.u32 d0, c0; mov.u32 d1, c1; mov.u32 d2, c2; mov.u32 d3, c3;",
    "f16": LOADED.format("") + f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {FACTORS}",
    "bf16": LOADED.format("") + f"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {FACTORS}",
    "tf32": LOADED.format("") + f"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {FACTORS}",
    "s8": LOADED.format("") + f"mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 {FACTORS}",
    "half": LOADED.format("") + "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {{d0, d1}}, {{c0, c1, c2, c3}}, "
    "{{c1, c2}}, {{c3, c0}}; mov.u32 d2, d1; mov.u32 d3, d0;",
}  # fmt: skip


PAIRS = paired(BODIES, ["sm_80", "sm_90a", "sm_100a"], 3)


def written(name: str, target: str) -> str:
    """The kernel with a body."""
    return KERNEL.replace("{body}", BODIES[name]).format(target=target)


@pytest.fixture(scope="module", autouse=True)
def _read_together() -> Iterator[None]:
    kernels = [(written(*pair.values), None) for pair in PAIRS if not pair.marks]
    with pytest.MonkeyPatch.context() as patch:
        for name, product in SMALL.items():
            patch.setitem(BODIES, name, LOADED.format("") + product)
            kernels.append((written(name, "sm_120a"), None))
    for target in ("sm_80", "sm_100a"):
        kernels += [(COPY.replace("sm_80", target), level) for level in (0, 3)]
        kernels += [(sized(target, size), level) for size, level in SIZES]
    with read_together(kernels):
        yield


def run(name: str, target: str, level: str) -> np.ndarray:
    """What the threads store."""
    if not probe()[target].available:
        pytest.skip(f"no ptxas for {target}")
    x = np.random.default_rng(3).standard_normal(8 * THREADS).astype(np.float16)
    y = np.zeros(4 * THREADS, np.uint32)
    run_ptx(written(name, target), 1, THREADS, x, y, level=level)
    return y


@pytest.mark.sample(3)
@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_machine_code_gives_the_bits_of_the_ptx(name: str, target: str) -> None:
    wanted = run(name, target, "ptx")
    assert len(np.unique(wanted)) > 8
    assert (run(name, target, "sass") == wanted).all()


def _scaled(shape: str, kind: str, vector: str, types: str, of_a: str, of_b: str) -> str:
    form = f"mma.sync.aligned.{shape}.row.col.kind::{kind}.block_scale.scale_vec::{vector}.f32.{types}"
    return f"{form} {FACTORS[:-1]}, c0, {{{{{of_a}}}}}, c1, {{{{{of_b}}}}};"


SMALL = {
    "narrow": f"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {FACTORS}",
    "mixed": f"mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e2m1.e3m2.f32 {FACTORS}",
    "scaled": _scaled("m16n8k32", "mxf8f6f4", "1X", "e4m3.e2m1.f32.ue8m0", "2, 1", "1, 3"),
    "four bits": _scaled("m16n8k64", "mxf4", "2X", "e2m1.e2m1.f32.ue8m0", "2, 1", "0, 2"),
    "sixteen": _scaled("m16n8k64", "mxf4nvf4", "4X", "e2m1.e2m1.f32.ue4m3", "0, 1", "0, 3"),
}


@pytest.mark.parametrize("name", SMALL)
def test_products_of_small_floats_give_the_bits_of_the_ptx(name: str, monkeypatch) -> None:
    monkeypatch.setitem(BODIES, name, LOADED.format("") + SMALL[name])
    wanted = run(name, "sm_120a", "ptx")
    assert len(np.unique(wanted)) > 8
    assert (run(name, "sm_120a", "sass") == wanted).all()


def test_products_of_bytes_on_ada_give_the_bits_of_the_ptx(monkeypatch) -> None:
    """There nvdisasm names the order of a and b; an order that is not row and column is refused."""
    monkeypatch.setitem(BODIES, "narrow", LOADED.format("") + SMALL["narrow"])
    wanted = run("narrow", "sm_89", "ptx")
    assert len(np.unique(wanted)) > 8
    assert (run("narrow", "sm_89", "sass") == wanted).all()
    with pytest.raises(Unsupported, match="not known in this form"):
        one_instruction("QMMA.16832.F32.E4M3.E5M2 R0, R4.COL, R8.ROW, R0\nEXIT", [])


def test_scales_of_another_thread_give_other_bits(monkeypatch) -> None:
    monkeypatch.setitem(BODIES, "scaled", LOADED.format("") + SMALL["scaled"])
    wanted = run("scaled", "sm_120a", "ptx")
    monkeypatch.setitem(BODIES, "scaled", LOADED.format("") + SMALL["scaled"].replace("1, 3", "1, 2"))
    assert (run("scaled", "sm_120a", "sass") != wanted).any()


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "opcode"), [("copies", "LDGSTS"), ("ldmatrix", "LDSM"), ("f16", "HMMA"), ("s8", "IMMA")]
)
def test_an_opcode_that_is_not_known_is_refused(name: str, opcode: str, monkeypatch) -> None:
    monkeypatch.delitem(matrices.MATRICES, opcode)
    with pytest.raises(Unsupported, match=opcode):
        run(name, "sm_90a", "sass")


def test_fragments_in_another_order_give_other_bits(monkeypatch) -> None:
    right, wanted = fragments.of_b, run("f16", "sm_90a", "ptx")  # which reads the same tables
    monkeypatch.setattr(matrices.fragments, "of_b", lambda k, n, bits: right(k, n, bits)[:, ::-1])
    assert (run("f16", "sm_90a", "sass") != wanted).any()


COPY = """
.version 8.7
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 o) {
.reg .b32 %r<9>; .reg .b64 %d<4>; .reg .pred %p0; .shared .align 16 .b8 s[512];
ld.param.u64 %d0, [a]; ld.param.u64 %d1, [o]; mov.u32 %r0, %tid.x; mul.wide.u32 %d2, %r0, 16;
add.u64 %d0, %d0, %d2; add.u64 %d1, %d1, %d2; mov.u32 %r1, s; shl.b32 %r2, %r0, 4; add.u32 %r1, %r1, %r2;
mov.b32 %r3, -1; st.shared.v4.b32 [%r1], {%r3, %r3, %r3, %r3};
and.b32 %r4, %r0, 1; setp.eq.u32 %p0, %r4, 0; selp.b32 %r5, 16, 0, %p0; bar.sync 0;
cp.async.cg.shared.global [%r1], [%d0], 16, %r5; cp.async.wait_all; bar.sync 0;
ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r1]; st.global.v4.b32 [%d1], {%r4, %r5, %r6, %r7}; ret; }
"""


@pytest.mark.parametrize("target", ["sm_80", "sm_100a"])
@pytest.mark.parametrize("level", [0, 3])
def test_a_copy_fills_with_zeros_where_its_size_is_0(target: str, level: int) -> None:
    if not probe()[target].available:
        pytest.skip(f"no ptxas for {target}")
    values, found = np.arange(1, 129, dtype=np.uint32), np.zeros(128, np.uint32)
    run_ptx(COPY.replace("sm_80", target), 1, 32, values, found, level="sass", opt=level)
    rows = values.reshape(32, 4).copy()
    rows[1::2] = 0
    np.testing.assert_array_equal(found.reshape(32, 4), rows)


SIZES = [(4, 3), (8, 0), (16, 0), (16, 3)]
"""Bytes that a copy writes, and ptxas's level."""


def sized(target: str, size: int) -> str:
    """The kernel whose threads copy another number of bytes each."""
    return COPY.replace("sm_80", target).replace(
        "cp.async.cg.shared.global [%r1], [%d0], 16, %r5;",
        f"rem.u32 %r5, %r0, {size + 1}; cp.async.ca.shared.global [%r1], [%d0], {size}, %r5;",
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize("target", ["sm_80", "sm_100a"])
@pytest.mark.parametrize(("size", "level"), SIZES)
def test_a_copy_fills_with_zeros_from_its_size_on(target: str, size: int, level: int) -> None:
    """The size of each thread is another one. What lies behind the last byte that is copied is not read."""
    if not probe()[target].available:
        pytest.skip(f"no ptxas for {target}")
    sizes = np.arange(32) % (size + 1)
    values, found = np.arange(1, 129, dtype=np.uint32) * 0x01010101, np.zeros(128, np.uint32)
    rows = np.full((32, 16), 0xFF, np.uint8)
    rows[:, :size] = values.view(np.uint8).reshape(32, 16)[:, :size]
    rows[:, :size][np.arange(size) >= sizes[:, None]] = 0
    held = values.view(np.uint8)[: 31 * 16 + sizes[31]].copy()
    run_ptx(sized(target, size), 1, 32, held, found, level="sass", opt=level)
    np.testing.assert_array_equal(found.view(np.uint8).reshape(32, 16), rows)
