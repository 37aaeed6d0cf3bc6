"""Machine code of warps and blocks gives the bits of the PTX, on each target; what depends on a schedule is found."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff import run_ptx
from ptxdiff.emulator import UndefinedBits
from ptxdiff.sass import blocks, matrices
from ptxdiff.sass.errors import MachineFault, Unsupported
from ptxdiff.triton.targets import probe

THREADS = 128
FULL = "0xffffffff"
KERNEL = """
.version {version}
.target {target}
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y, .param .u64 z) {{
  .reg .b32 %r<8>, t, v, w, a, o; .reg .b64 %rd<8>, gx, gy, gz; .reg .pred p, q;
  .shared .align 16 .b8 data[1024];
  ld.param.u64 gx, [x]; ld.param.u64 gy, [y]; ld.param.u64 gz, [z];
  mov.u32 t, %tid.x; mov.u32 %r0, %ctaid.x; mad.lo.u32 %r1, %r0, 128, t;
  mul.wide.u32 %rd0, %r1, 4; add.u64 gx, gx, %rd0; add.u64 gy, gy, %rd0;
  ld.global.u32 v, [gx]; mov.u32 a, data; mad.lo.u32 a, t, 4, a;
  setp.gt.u32 p, v, 0x7fffffff; xor.b32 %r2, t, 127; mov.u32 o, data; mad.lo.u32 o, %r2, 4, o;
  {body}
  st.global.u32 [gy], v;
  ret;
}}
"""
ADD = "add.u32 v, v, w;"


def ballots(what: str) -> str:
    return f"vote.sync.{what}.pred q, p, {FULL}; selp.u32 w, 1, 0, q; {ADD}"


BODIES = {
    "shfl": "".join(
        f"shfl.sync.{mode}.b32 w|q, v, {by}, {clamp}, {FULL}; {ADD} selp.u32 w, 16, 0, q; {ADD}"
        for mode, by, clamp in (
            ("bfly", 5, 0x1F), ("up", 3, 0), ("down", 9, 0x1F), ("idx", "t", 0x1F), ("idx", "v", 0x181F),
            ("down", 3, 0x181F), ("up", 1, 0x1C00), ("bfly", 31, 0x1C07),
        )
    ),
    "vote": f"vote.sync.ballot.b32 w, p, {FULL}; {ADD}" + ballots("all") + ballots("any") + ballots("uni"),
    "match": f"and.b32 w, v, 3; match.any.sync.b32 %r3, w, {FULL}; match.all.sync.b32 %r4|q, w, {FULL}; "
    "add.u32 v, %r3, %r4; selp.u32 w, 1, 0, q; " + ADD,
    "redux": "".join(
        f"redux.sync.{word} w, v, {FULL}; {ADD}"
        for word in ("and.b32", "or.b32", "xor.b32", "add.u32", "min.s32", "max.s32", "min.u32", "max.u32")
    ),
    "barrier": "st.shared.u32 [a], v; bar.sync 0; ld.shared.u32 w, [o]; sub.u32 v, v, w;",
    "two barriers": "setp.lt.u32 q, t, 64; @q bra LOW; ld.volatile.shared.u32 w, [a]; bar.sync 1, 128; "
    "ld.shared.u32 v, [o]; bra END; LOW: st.shared.u32 [a], v; bar.arrive 1, 128; END: bar.sync 0;",
    "bar.red": f"bar.red.popc.u32 w, 0, p; {ADD} bar.red.and.pred q, 0, p; selp.u32 w, 1, 0, q; {ADD} "
    f"bar.red.or.pred q, 0, p; selp.u32 w, 2, 0, q; {ADD}",
    "widths": "st.shared.u8 [a], v; st.shared.u16 [a+2], v; st.shared.u8 [a+1], t; bar.sync 0; "
    "ld.shared.u16 %r3, [o+2]; "
    "ld.shared.s8 w, [o]; add.u32 v, %r3, w; ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [data+32]; add.u32 v, v, %r5; "
    "ld.shared.v2.u32 {%r3, %r4}, [data+8]; xor.b32 v, v, %r4;",
    "atomics": "st.shared.u32 [a], t; bar.sync 0; atom.shared.add.u32 w, [a], v; atom.shared.cas.b32 %r3, [a], w, v; "
    "atom.shared.min.s32 %r4, [a], v; atom.shared.inc.u32 %r5, [a], v; atom.shared.exch.b32 %r6, [a], 7; "
    "bar.sync 0; ld.shared.u32 v, [o]; xor.b32 %r3, %r3, %r4; xor.b32 %r5, %r5, %r6; xor.b32 v, v, %r3; "
    "xor.b32 v, v, %r5; red.global.add.u32 [gz], 3; red.global.max.s32 [gz+4], v; red.global.or.b32 [gz+8], v; "
    "red.global.add.u64 [gz+16], gx; @p red.global.add.f32 [gz+24], 0f3F800000;",
    "branches": "setp.lt.u32 q, t, 37; @!q bra ELSE; add.u32 v, v, 5; bra JOIN; ELSE: mul.lo.u32 v, v, 3; JOIN: "
    f"bar.warp.sync {FULL}; shfl.sync.bfly.b32 w, v, 1, 0x1f, {FULL}; {ADD}",
    "matrices": "st.shared.u32 [a+512], t; st.shared.u32 [a], v; bar.sync 0; and.b32 %r3, t, 31; "
    "shl.b32 %r3, %r3, 4; mov.u32 %r4, data; add.u32 %r3, %r3, %r4; "
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5, %r6, %r7}, [%r3]; add.u32 v, v, %r4; xor.b32 v, v, %r6; "
    "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r4, %r5}, [%r3]; add.u32 v, v, %r5;",
}  # fmt: skip


def run(body: str, target: str, level: str, grid: int = 2, **more: object) -> list[np.ndarray]:
    """What the kernel stores, and its counters."""
    if not probe()[target].available:
        pytest.skip(f"no ptxas for {target}")
    rng = np.random.default_rng(5)
    x = rng.integers(0, 1 << 32, grid * THREADS, np.uint32)
    x[::7] = x[3]
    y, z = np.zeros_like(x), np.zeros(8, np.uint32)
    version = "8.7" if int(target[3:].rstrip("a")) >= 100 else "8.0"
    text = KERNEL.format(version=version, target=target, body=body)
    run_ptx(text, grid, THREADS, x, y, z, level=level, **more)
    return [y, z]


def counters(found: list[np.ndarray]) -> list[np.ndarray]:
    """Without the sum of addresses, which are other ones in each run."""
    y, z = found
    return [y, np.delete(z, [4, 5])]


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize("name", BODIES)
def test_machine_code_gives_the_bits_of_the_ptx(name: str, target: str) -> None:
    wanted, got = (counters(run(BODIES[name], target, level)) for level in ("ptx", "sass"))
    for one, other in zip(wanted, got, strict=True):
        assert (one == other).all()


def test_a_missing_barrier_is_found_by_another_order_of_warps() -> None:
    with pytest.raises((MachineFault, UndefinedBits), match=r"order|undefined"):
        run_machine("st.shared.u32 [a], v; ld.volatile.shared.u32 w, [o]; sub.u32 v, v, w;")


def run_machine(body: str) -> list[np.ndarray]:
    return run(body, "sm_80", "sass")


def test_a_barrier_that_too_few_threads_reach_is_a_deadlock() -> None:
    with pytest.raises(MachineFault, match="deadlock"):
        run_machine("setp.lt.u32 q, t, 64; @q bar.sync 1, 128;")


def test_a_barrier_for_fewer_threads_than_come_is_a_fault() -> None:
    with pytest.raises(MachineFault, match="threads of block"):
        run_machine("bar.sync 1, 32;")


def test_an_access_outside_of_shared_memory_is_found() -> None:
    with pytest.raises(MachineFault, match="outside"):
        run_machine("ld.shared.u32 v, [a+65536];")


def test_undefined_shared_memory_is_found() -> None:
    with pytest.raises((UndefinedBits, MachineFault), match="undefined"):
        run_machine("ld.shared.u32 v, [a];")


@pytest.mark.parametrize(
    ("table", "opcode", "body"),
    [
        (blocks.BLOCKS, "VOTE", BODIES["vote"]),
        (blocks.BLOCKS, "SHFL", BODIES["shfl"]),
        (blocks.BLOCKS, "BAR", BODIES["barrier"]),
        (matrices.MATRICES, "LDSM", BODIES["matrices"]),
    ],
)
def test_an_instruction_without_a_row_is_refused(table, opcode, body, monkeypatch) -> None:
    monkeypatch.delitem(table, opcode)
    with pytest.raises(Unsupported, match=opcode):
        run_machine(body)


def test_a_planted_mistake_changes_the_bits(monkeypatch) -> None:
    monkeypatch.setitem(blocks._REDUCTIONS, ("MIN", "S32"), blocks._REDUCTIONS["MIN",])
    wanted, got = (counters(run(BODIES["redux"], "sm_80", level)) for level in ("ptx", "sass"))
    assert not (wanted[0] == got[0]).all()
