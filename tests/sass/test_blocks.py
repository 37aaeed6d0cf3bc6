"""Whole blocks of machine code: exchanges of warps, shared memory, barriers, atomic operations. Their bits are the
PTX emulator's for kernels that ptxas assembles."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff import run_ptx
from ptxdiff.sass import control, shared
from ptxdiff.sass.text import MachineFault, Unsupported
from ptxdiff.triton.targets import tool
from tests.support.sampling import paired
from tests.support.sass.assembly import LOAD, STORE, run
from tests.support.sass.modules import run_one

TARGETS = ("sm_75", "sm_80", "sm_90a", "sm_100a", "sm_121a")
THREADS, BLOCKS = 96, 3

if not tool("nvdisasm").exists():
    pytest.skip("nvdisasm, which Triton carries, is missing", allow_module_level=True)

EXCHANGE = """
shfl.sync.bfly.b32 %r4|%p1, %r2, 16, 0x1f, -1;
shfl.sync.idx.b32 %r5, %r2, %r3, 0x1f, -1;
shfl.sync.up.b32 %r6|%p2, %r2, %r3, 0, -1;
shfl.sync.down.b32 %r7|%p3, %r2, 3, 0x1807, -1;
@%p2 add.u32 %r6, %r6, 5; @%p3 add.u32 %r7, %r7, 9;
setp.lt.u32 %p4, %r2, 0x60000000;
vote.sync.ballot.b32 %r8, %p4, -1;
vote.sync.all.pred %p5, %p4, -1; vote.sync.any.pred %p6, %p4, -1; vote.sync.uni.pred %p7, !%p4, -1;
selp.u32 %r9, 1, %r8, %p5; @%p6 add.u32 %r9, %r9, %r6; @%p7 add.u32 %r9, %r9, 77;
and.b32 %r10, %r2, 3;
match.any.sync.b32 %r11, %r10, -1; match.all.sync.b32 %r12|%p8, %r10, -1;
mov.b64 %d5, {%r10, %r3}; match.any.sync.b64 %r13, %d5, -1;
mov.u32 %r14, %lanemask_lt; mov.u32 %r15, %lanemask_ge;
mad.lo.u32 %r20, %r4, 3, %r5; mad.lo.u32 %r20, %r20, 5, %r6; mad.lo.u32 %r20, %r20, 7, %r7;
mad.lo.u32 %r20, %r20, 9, %r9; mad.lo.u32 %r20, %r20, 11, %r11; mad.lo.u32 %r20, %r20, 13, %r12;
mad.lo.u32 %r20, %r20, 15, %r13; mad.lo.u32 %r20, %r20, 17, %r14; mad.lo.u32 %r20, %r20, 19, %r15;
"""
REDUCE = """
redux.sync.add.s32 %r4, %r2, -1; redux.sync.min.u32 %r5, %r2, -1; redux.sync.max.s32 %r6, %r2, -1;
redux.sync.xor.b32 %r7, %r2, -1; redux.sync.and.b32 %r8, %r2, -1; redux.sync.or.b32 %r9, %r2, -1;
redux.sync.min.s32 %r10, %r2, -1; redux.sync.max.u32 %r11, %r2, -1;
mad.lo.u32 %r20, %r4, 3, %r5; mad.lo.u32 %r20, %r20, 5, %r6; mad.lo.u32 %r20, %r20, 7, %r7;
mad.lo.u32 %r20, %r20, 9, %r8; mad.lo.u32 %r20, %r20, 11, %r9; mad.lo.u32 %r20, %r20, 13, %r10;
mad.lo.u32 %r20, %r20, 15, %r11;
"""
DIVERGED = """
setp.lt.u32 %p1, %r3, 40; mov.u32 %r20, %r2;
@%p1 bra LOW;
LOOP: activemask.b32 %r4; shr.u32 %r20, %r20, 1; setp.gt.u32 %p2, %r20, 0x1000; @%p2 bra LOOP;
bra JOIN;
LOW: mul.lo.u32 %r20, %r20, 7;
JOIN: bar.warp.sync -1; shfl.sync.bfly.b32 %r20, %r20, 1, 0x1f, -1;
"""
MEMORY = """
st.shared.u32 [%r16], %r2; bar.sync 0;
xor.b32 %r17, %r3, 31; shl.b32 %r17, %r17, 2; add.u32 %r17, %r17, %r19; ld.shared.u32 %r20, [%r17];
ld.shared.u8 %r4, [%r17+3]; ld.shared.s16 %r5, [%r17+2]; ld.shared.s8 %r6, [%r17+1];
bar.sync 1, 96; shl.b32 %r18, %r3, 4; add.u32 %r18, %r18, %r19;
st.shared.v4.u32 [%r18], {%r20, %r4, %r5, %r6}; bar.sync 0; ld.shared.v2.u32 {%r7, %r8}, [%r18+8];
sub.u32 %r17, 1520, %r18; add.u32 %r17, %r17, %r19; add.u32 %r17, %r17, %r19; ld.shared.u64 %d5, [%r17];
mov.b64 {%r9, %r10}, %d5; bar.sync 0; st.shared.u8 [%r16], %r9; st.shared.u16 [%r16+2], %r10; bar.sync 0;
ld.shared.u16 %r11, [%r16+2]; mad.lo.u32 %r20, %r20, 5, %r4; mad.lo.u32 %r20, %r20, 7, %r5;
mad.lo.u32 %r20, %r20, 9, %r6; mad.lo.u32 %r20, %r20, 11, %r7; mad.lo.u32 %r20, %r20, 13, %r8;
mad.lo.u32 %r20, %r20, 15, %r9; mad.lo.u32 %r20, %r20, 17, %r11;
"""
VOTES = """
setp.lt.u32 %p1, %r2, 0x70000000; setp.lt.u32 %p2, %r3, 200; setp.gt.u32 %p3, %r3, 90;
bar.red.popc.u32 %r4, 0, %p1; bar.red.and.pred %p4, 0, %p2; bar.red.or.pred %p5, 0, !%p3; bar.red.and.pred %p6, 0, %p3;
mov.u32 %r20, %r4; @%p4 add.u32 %r20, %r20, 1000; @%p5 add.u32 %r20, %r20, 10000; @%p6 add.u32 %r20, %r20, 100000;
"""
PRODUCER = """
setp.lt.u32 %p1, %r3, 32; @%p1 bra FIRST;
bar.sync 2, 96; ld.shared.u32 %r20, [%r19]; bra DONE;
FIRST: setp.eq.u32 %p2, %r3, 0; @%p2 st.shared.u32 [%r19], %r2; bar.arrive 2, 96; mov.u32 %r20, 3;
DONE:
"""
COUNTED = """
ld.global.u32 %r4, [%d2+12]; shl.b32 %r5, %r4, 5;
st.shared.u32 [%r16], %r2; barrier.sync %r4, %r5;
sub.u32 %r6, 95, %r3; shl.b32 %r6, %r6, 2; add.u32 %r6, %r6, %r19; ld.shared.u32 %r20, [%r6];
barrier.sync 2, %r5; st.shared.u32 [%r16], %r20; barrier.sync %r4;
ld.shared.u32 %r7, [%r6]; setp.lt.u32 %p1, %r7, 0x40000000; barrier.red.popc.u32 %r8, %r4, %r5, %p1;
mad.lo.u32 %r20, %r20, 3, %r7; mad.lo.u32 %r20, %r20, 5, %r8; barrier.sync 5, %r5;
setp.lt.u32 %p2, %r3, 32; @%p2 bra FIRST;
barrier.sync %r4, %r5; ld.shared.u32 %r9, [%r19]; add.u32 %r20, %r20, %r9; bra DONE;
FIRST: setp.eq.u32 %p3, %r3, 0; @%p3 st.shared.u32 [%r19], %r2; barrier.arrive %r4, %r5;
DONE:
"""
"""Barriers whose number, 3, and number of threads, 96, are in registers."""
ATOMICS = """
setp.eq.u32 %p1, %r3, 0; @%p1 st.shared.u32 [%r19], %r2; @%p1 st.shared.u32 [%r19+4], 9;
@%p1 st.shared.u64 [%r19+8], %d3; @%p1 st.shared.u64 [%r19+16], 0;
@%p1 st.shared.u64 [%r19+24], 0; bar.sync 0;
red.shared.add.u32 [%r19], %r2; atom.shared.max.s32 %r5, [%r19+20], %r2; atom.shared.inc.u32 %r6, [%r19+4], 40;
atom.shared.cas.b32 %r7, [%r19+24], 0, 77; red.shared.xor.b32 [%r19+28], %r2; atom.shared.add.u64 %d5, [%r19+8], %d3;
red.shared.and.b32 [%r19+16], %r2; bar.sync 0; ld.shared.u32 %r20, [%r19+4]; ld.shared.u64 %d6, [%r19+8];
mov.b64 {%r9, %r10}, %d6; add.u32 %r20, %r20, %r9; xor.b32 %r20, %r20, %r10;
ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r19+16];
mad.lo.u32 %r20, %r20, 3, %r5; mad.lo.u32 %r20, %r20, 5, %r6; mad.lo.u32 %r20, %r20, 7, %r7;
mad.lo.u32 %r20, %r20, 9, %r8; ld.shared.u32 %r5, [%r19]; mad.lo.u32 %r20, %r20, 11, %r5;
"""
HISTOGRAM = """
.reg .b32 w; and.b32 w, %r2, 7; shl.b32 w, w, 2; add.u32 w, w, %r19; setp.lt.u32 %p1, %r3, 41;
setp.lt.u32 %p2, %r3, 18; @%p2 st.shared.u32 [%r16], %r3; bar.sync 0;
red.shared.add.u32 [w], 1; @%p1 red.shared.add.u32 [w+32], 1; red.shared.add.u32 [memory+64], 1;
red.shared.add.s32 [memory+68], %r2; @%p1 atom.shared.add.u32 %r4, [memory+60], 1; bar.sync 0;
and.b32 %r5, %r3, 15; shl.b32 %r5, %r5, 2; add.u32 %r5, %r5, %r19; ld.shared.u32 %r20, [%r5];
ld.shared.u32 %r6, [memory+64]; mad.lo.u32 %r20, %r20, 3, %r6; ld.shared.u32 %r6, [memory+68];
mad.lo.u32 %r20, %r20, 5, %r6;
"""
"""Counts of one for each thread, which ptxas writes in one word from level 1 and sm_80 on."""
GLOBAL = """
atom.global.add.u32 %r4, [%d2], 1; red.global.max.u32 [%d2+4], %r2; red.global.add.u64 [%d2+8], %d3;
atom.global.min.s32 %r5, [%d2+16], %r2; atom.global.xor.b32 %r6, [%d2+20], %r2; membar.gl;
atom.global.and.b32 %r7, [%d2+24], %r2; mov.u32 %r20, 1;
"""
LOCAL = """
.local .align 16 .b8 stack[16];
and.b32 %r4, %r2, 12; cvt.u64.u32 %d5, %r4; mov.u64 %d7, stack; add.u64 %d7, %d7, %d5;
st.local.v4.u32 [stack], {%r2, %r3, 7, 9}; st.local.u32 [%d7], %r31; ld.local.u32 %r20, [stack+4];
ld.local.u32 %r5, [%d7]; ld.local.u8 %r6, [%d7+1]; mad.lo.u32 %r20, %r20, 3, %r5; mad.lo.u32 %r20, %r20, 5, %r6;
"""


LOOPED = """
shr.u32 %r4, %r3, 5; mul.wide.u32 %d5, %r4, 4; add.u64 %d5, %d5, %d2; ld.global.u32 %r4, [%d5];
mad.lo.u32 %r4, %r4, 10, 90; mov.u32 %r20, %r4; setp.lt.u32 %p1, %r4, 100; @!%p1 bra LAST;
LOOP: add.u32 %r20, %r20, %r4; shfl.sync.idx.b32 %r20, %r20, %r3, 0x1f, -1; setp.lt.u32 %p2, %r20, 1000; @%p2 bra LOOP;
LAST: add.u32 %r20, %r20, %r2; shfl.sync.bfly.b32 %r20, %r20, 1, 0x1f, -1; shfl.sync.bfly.b32 %r20, %r20, 2, 0x1f, -1;
"""
"""The lanes of a warp stay together, which ptxas does not know: before the exchanges behind the loop it has them jump
(BRA.DIV) to what brings them together if one is missing."""


def _module(body: str, target: str) -> str:
    return f"""
.version {"8.8" if target == "sm_121a" else "8.7"}
.target {target}
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c) {{
.reg .b32 %r<40>; .reg .b64 %d<10>; .reg .pred %p<10>;
.shared .align 16 .b8 memory[2048];
ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; ld.param.u64 %d4, [c]; mov.u32 %r3, %tid.x; mov.u32 %r30, %ctaid.x;
mad.lo.u32 %r31, %r30, {THREADS}, %r3; mul.wide.u32 %d3, %r31, 4; add.u64 %d4, %d4, %d3; ld.global.u32 %r2, [%d4];
mov.u32 %r19, memory; shl.b32 %r16, %r3, 2; add.u32 %r16, %r16, %r19;
{body}
add.u64 %d1, %d1, %d3; st.global.u32 [%d1], %r20; ret; }}"""


def _bits(body: str, target: str, level: str, **options: int) -> tuple[np.ndarray, np.ndarray]:
    values = np.random.default_rng(7).integers(0, 1 << 31, BLOCKS * THREADS, np.uint32)
    values[::5] = 12
    out, counts = np.zeros_like(values), np.arange(16, dtype=np.uint32)
    text = _module(body, target)
    if level == "ptx":
        run_ptx(text, BLOCKS, THREADS, out, counts, values)
        return out, counts
    alike = next((some for some in (BODIES, RACES, COUNTS) if body in some.values()), {})
    others = [_module(b, target) for n, b in alike.items() if (n, target) != ("reduce", "sm_75")]
    run_one(text, others, options.get("opt", 3), BLOCKS, THREADS, out, counts, values)
    return out, counts


BODIES = {
    "exchange": EXCHANGE, "reduce": REDUCE, "diverged": DIVERGED, "memory": MEMORY, "votes": VOTES,
    "producer": PRODUCER, "atomics": ATOMICS, "histogram": HISTOGRAM, "global": GLOBAL, "local": LOCAL,
}  # fmt: skip


COUNTS = {
    "right": COUNTED,
    "too many": COUNTED.replace("barrier.sync 5, %r5", "add.u32 %r5, %r5, 32; barrier.sync %r4, %r5"),
}
_OTHER = "add.u32 %r4, %r3, 32; rem.u32 %r4, %r4, 96; shl.b32 %r4, %r4, 2; add.u32 %r17, %r4, %r19;"
RACES = {
    "race": f"st.shared.u32 [%r16], %r2; {_OTHER} ld.shared.u32 %r20, [%r17];",
    "none": f"st.shared.u32 [%r16], %r2; bar.sync 0; {_OTHER} ld.shared.u32 %r20, [%r17];",
}


@pytest.mark.sample(6)
@pytest.mark.parametrize(("name", "target"), paired(BODIES, TARGETS, 3))
def test_machine_code_gives_the_bits_of_the_ptx(name: str, target: str) -> None:
    body = BODIES[name]
    if name == "reduce" and target == "sm_75":
        pytest.skip("redux needs sm_80")
    expected = _bits(body, target, "ptx")
    found = _bits(body, target, "sass")
    assert (found[0] == expected[0]).all()
    assert (found[1] == expected[1]).all()


@pytest.mark.sample(3)
@pytest.mark.parametrize("opt", [1, 3])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_counts_of_one_give_the_bits_of_the_ptx(target: str, opt: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _bits(HISTOGRAM, target, "ptx")[0]
    counted: list[str] = []
    once = shared._count
    monkeypatch.setattr(shared, "_count", lambda i: counted.append(i.text) or once(i))
    assert (_bits(HISTOGRAM, target, "sass", opt=opt)[0] == expected).all()
    assert len(counted) == 4
    # A planted mistake: two for each lane.
    monkeypatch.setattr(shared, "_count", lambda i: _twice(once(i)))
    assert (_bits(HISTOGRAM, target, "sass", opt=opt)[0] != expected).any()


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a", "sm_120a"])
def test_lanes_that_may_be_apart_exchange_as_in_ptx(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    once = control.ConvergedBranch.__init__
    monkeypatch.setattr(
        control.ConvergedBranch, "__init__", lambda self, i, target: made.append(i.text) or once(self, i, target)
    )
    assert (_bits(LOOPED, target, "sass")[0] == _bits(LOOPED, target, "ptx")[0]).all()
    assert any(text.startswith("BRA.DIV") for text in made)


def _twice(step: shared._Atomic) -> shared._Atomic:
    one = step.update
    step.update = lambda before: one(one(before))
    return step


@pytest.mark.sample(2)
@pytest.mark.parametrize(("target", "opt"), [("sm_80", 3), ("sm_90a", 0), ("sm_90a", 3), ("sm_100a", 0)])
def test_barriers_may_be_counted_in_registers(target: str, opt: int) -> None:
    """At level 0 ptxas has the lanes of a warp come together first, by WARPSYNC.COLLECTIVE.ALL."""
    assert (_bits(COUNTED, target, "sass", opt=opt)[0] == _bits(COUNTED, target, "ptx")[0]).all()
    with pytest.raises(MachineFault):  # 128 threads do not come
        _bits(COUNTS["too many"], target, "sass", opt=opt)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_a_missing_barrier_is_a_race(target: str) -> None:
    with pytest.raises(MachineFault, match="race"):
        _bits(RACES["race"], target, "sass")
    _bits(RACES["none"], target, "sass")


def test_what_the_table_lacks_is_refused() -> None:
    for text in ("SHFL.SIDE PT, R5, R4, 0x1, 0x1f", "VOTE.ANY.X R5, PT, P0", "LDS.U R5.H0, [R4]", "BAR.SYNC.NEW 0x0",
                 "ATOMS.ADD.F32 R5, [R4], R4", "ATOMS.POPC.INC.32 R5, [R4+URZ]", "ATOMS.POPC.INC RZ, [R4+URZ]",
                 "ATOMS.POPC.INC.64 RZ, [R4+URZ]", "ATOMS.POPC.INC.32 RZ, [R4+URZ], R5", "ATOMS.ADD.S64 R4, [R4], R4",
                 "ATOMS.POPC.DEC.32 RZ, [R4]", "REDG.E.POPC.INC.32.STRONG.GPU [R4]",
                 "REDUX.MAX.F32 UR4, R4", "RED.E.ADD.WEAK.GPU [R2.64], R4",
                 "LDG.E R5, [R2.X4]", "MEMBAR.NEW.GPU", "BAR.SYNC 0x10", "BAR.SYNC R4, R5",
                 "MOV R4, 0x100\nBAR.SYNC R4, R4", "WARPSYNC.COLLECTIVE.ALL R4, `(.L_x_1)\nENDCOLLECTIVE\n.L_x_1:",
                 "@P0 WARPSYNC.COLLECTIVE.ALL `(.L_x_1)\nENDCOLLECTIVE\n.L_x_1:"):  # fmt: skip
        with pytest.raises(Unsupported):
            run(f"{LOAD} {text} {STORE}", [np.zeros(32, np.uint32)])


def test_shared_memory_has_an_end_and_undefined_bytes() -> None:
    with pytest.raises(MachineFault, match="outside"):
        run(f"{LOAD} LDS R5, [R0.X4] {STORE}", [np.zeros(32, np.uint32)])


def test_threads_that_never_come_to_a_barrier_are_a_deadlock() -> None:
    body = f"{LOAD} MOV R5, R4\nISETP.GE.AND P0, PT, R0, 0x20, PT\n@P0 BAR.SYNC 0x1\n@!P0 BAR.SYNC 0x2 {STORE}"
    with pytest.raises(MachineFault, match="deadlock"):
        run(body, [np.arange(64, dtype=np.uint32)], threads=64)
