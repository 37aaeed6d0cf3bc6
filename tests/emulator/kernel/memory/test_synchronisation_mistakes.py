"""Kernels whose threads do not synchronise as they must, each beside its right twin, which differs in as little.

128 threads, four warps. Unless a row says otherwise, each thread stores its number, and reads that of the thread 64
after it. The wrong one is an error, whichever values the emulator's order of threads gives; the right one gives these.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from ptxdiff.emulator.errors import ExecutionError, MemoryFault
from ptxdiff.emulator.kernel import run as kernels

THREADS = 128
HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 memory)
{
    .reg .pred p, q, first, low, done, r1, r2, even, high, second;
    .reg .b32 t, lane, warp, half, at, other, u, v, old, i, s, n, a, id, rank, remote, peer;
    .reg .b64 y, x, gat, gother, gword, g, token;
    .shared .align 128 .b8 data[1024];
    .shared .align 16 .b8 count[16];
    .shared .align 8 .b8 bar[8];
    .shared .align 8 .b8 two[8];
    ld.param.u64 y, [out]; ld.param.u64 x, [memory];
    mov.u32 t, %tid.x; and.b32 lane, t, 31; shr.u32 warp, t, 5; shr.u32 half, t, 6;
    setp.eq.u32 first, t, 0; setp.lt.u32 low, t, 64;
    mov.u32 a, data; mad.lo.u32 at, t, 4, a; add.u32 u, t, 64; and.b32 u, u, 127; mad.lo.u32 other, u, 4, a;
    mad.wide.u32 gat, t, 4, x; mad.wide.u32 gother, u, 4, x; add.u64 gword, x, 512;
    setp.eq.u32 r1, t, 32; setp.eq.u32 r2, t, 64; and.b32 n, warp, 1; setp.eq.u32 even, n, 0;
    setp.eq.u32 q, t, 96; and.b32 n, lane, 16; setp.ne.u32 p, n, 0; setp.lt.and.u32 high, t, 32, p;
    selp.b32 n, 0xffff0000, 0x0000ffff, p; setp.eq.u32 second, t, 1;
    mov.u32 v, 0; mov.u32 rank, %cluster_ctarank; xor.b32 peer, rank, 1;
    @first st.shared.u32 [count], 0; bar.sync 0;
"""
TAIL = """
    mov.u32 a, %ctaid.x; mad.lo.u32 a, a, 128, t; mad.wide.u32 g, a, 4, y; st.global.u32 [g], v;
    ret;
}
"""
PARTNER = (np.arange(THREADS) + 64) % THREADS
STORE, LOAD = "st.shared.u32 [at], t;", "ld.shared.u32 v, [other];"
GSTORE, GLOAD = "st.global.u32 [gat], t;", "ld.global.u32 v, [gother];"
SPLIT = "@!low bra HIGH; {} bra END; HIGH: {} END:"


def split(low: str, high: str) -> str:
    """Code of threads 0 to 63, and of threads 64 to 127."""
    return SPLIT.format(low, high)


def wait(parity: int | str = 0, name: str = "bar", label: str = "W", how: str = "") -> str:
    return f"{label}: mbarrier.try_wait.parity{how}.shared::cta.b64 p, [{name}], {parity}; @!p bra {label};"


def made(count: int = THREADS, name: str = "bar", barrier: str = "bar.sync 0;") -> str:
    return f"@first mbarrier.init.shared.b64 [{name}], {count}; {barrier}"


ARRIVE = "mbarrier.arrive.shared.b64 token, [bar];"
ORDER = ".{}.cta"
BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{to}], [{source}], {size}, [{bar}];"
EXPECT = "@first mbarrier.arrive.expect_tx.shared.b64 token, [{bar}], {size};"
COPY = f"{EXPECT} @first {BULK}"
COPIED = COPY.format(to="data", source="x", size=512, bar="bar")
OUT = "@first cp.async.bulk.global.shared::cta.bulk_group [x], [data], 512; @first cp.async.bulk.commit_group;"
OUT_DONE = "@first cp.async.bulk.wait_group 0; bar.sync 0; ld.global.u32 v, [gother];"
BULK_OUT = f"{STORE} fence.proxy.async; bar.sync 0; {OUT}"
ADDED = OUT.replace("cp.async.bulk.global", "cp.reduce.async.bulk.global").replace(
    "bulk_group [", "bulk_group.add.u32 ["
)
REFILLED = """@first cp.async.bulk.wait_group.read 0; bar.sync 0; add.u32 u, t, 7; st.shared.u32 [at], u;
    fence.proxy.async; bar.sync 0;"""
BULK_ADD = f"{STORE} fence.proxy.async; bar.sync 0; {ADDED}"
HALVES_MEET = f"""xor.b32 u, t, 16; mad.lo.u32 other, u, 4, a; setp.lt.u32 q, lane, 16; {STORE}
    @q bra LOW; bar.warp.sync {{high}}; bra END; LOW: bar.warp.sync {{low}}; END: {LOAD}"""
APART = f"setp.lt.u32 q, lane, 16; {STORE} @q bra LOW; {{barrier}} bra END; LOW: {{barrier}} END: {LOAD}"
VOLATILE_FLAG = """@!low bra READ; st.shared.u32 [at], t; bar.sync 1, 64; mov.u32 v, t;
    {before} @first {store} [count], 1; {late} bra END;
    READ: {load} n, [count]; setp.eq.u32 p, n, 0; {again} {behind} ld.shared.u32 v, [other]; END:"""
RIGHT_FLAG = {
    "before": "membar.cta;", "store": "st.volatile.shared.u32", "late": "", "load": "ld.volatile.shared.u32",
    "again": "@p bra READ;", "behind": "membar.cta;",
}  # fmt: skip
VOLATILE_SUM = """st.volatile.shared.u32 [at], t; mov.u32 i, 0; xor.b32 u, t, 1; mad.lo.u32 other, u, 4, a;
    NEXT: {} ld.volatile.shared.u32 v, [other]; add.u32 v, v, t; add.u32 i, i, 1; setp.lt.u32 p, i, 2; @p bra NEXT;"""
FILLS = """mad.lo.u32 at, warp, 256, a; mad.lo.u32 at, lane, 4, at; mov.u32 i, 0;
FILL: setp.eq.u32 p, i, 0; @p bra EMPTY; add.u32 id, warp, 3; bar.sync id, 96;
EMPTY: st.shared.u32 [at], i; {full} bar.arrive id, 96; add.u32 i, i, 1; setp.lt.u32 q, i, 2; @q bra FILL;"""
TAKES = """mov.u32 i, 0;
TAKE: and.b32 s, i, 1; mad.lo.u32 at, s, 256, a; mad.lo.u32 at, lane, 4, at; add.u32 id, s, 1; bar.sync id, 96;
{reads} {empty} bar.arrive id, 96; {late} add.u32 i, i, 1; setp.lt.u32 q, i, 4; @q bra TAKE;"""
READ = "ld.shared.u32 u, [at]; add.u32 v, v, u;"


def buffers(
    full: str = "add.u32 id, warp, 1;", reads: str = READ, empty: str = "add.u32 id, s, 3;", late: str = ""
) -> str:
    """Two buffers, which the warps 0 and 1 fill twice each, and the warps 2 and 3 read in turn."""
    return split(FILLS.format(full=full), TAKES.format(reads=reads, empty=empty, late=late))


MPIPELINE = """@first mbarrier.init.shared.b64 [bar], 64; @first mbarrier.init.shared.b64 [two], 64; bar.sync 0;
@!low bra HIGH; mov.u32 i, 0;
P: {empty} st.shared.u32 [at], i; mbarrier.arrive.shared.b64 token, [bar];
add.u32 i, i, 1; setp.lt.u32 q, i, 4; @q bra P; bra END;
HIGH: mov.u32 i, 0; C: and.b32 s, i, 1;
F: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], s; @!p bra F;
{release} END:"""
EMPTIED = "and.b32 s, i, 1; xor.b32 s, s, 1; E: mbarrier.try_wait.parity.shared::cta.b64 p, [two], s; @!p bra E;"
RELEASED = "ld.shared.u32 u, [other]; add.u32 v, v, u; mbarrier.arrive.shared.b64 token, [two];"
AGAIN = "add.u32 i, i, 1; setp.lt.u32 q, i, 4; @q bra C;"
TAKEN = np.where(np.arange(THREADS) < 64, 0, 2)
SUMS = np.where(np.arange(THREADS) < 64, 0, 6)
FLAG = "{late} st{store}.shared.u32 [count], 1;"
SPIN = "S: ld{load}.shared.u32 u, [count]; setp.ne.u32 q, u, 1; @q bra S;"


def flagged(store: str, load: str, before: str = "", behind: str = "", late: str = "") -> str:
    """Thread 0 stores a value and then a flag, for which the threads of the last warp wait."""
    waits = f"setp.ne.u32 p, warp, 3; @p bra END; {SPIN.format(load=load)} {behind} ld.shared.u32 v, [data]; END:"
    return f"@!first bra REST; st.shared.u32 [data], 7; {before} {FLAG.format(store=store, late=late)} REST: {waits}"


FLAGGED = np.where(np.arange(THREADS) >= 96, 7, 0)
TICKET = """{} atom{}.shared.add.u32 old, [count], 1; setp.ne.u32 p, old, {}; @p bra END; {} END:"""
LAST = np.zeros(THREADS)
WORD, STRONG_WORD = "ld.{0}.u32 v, [{1}];", "ld.relaxed.gpu.{0}.u32 v, [{1}];"
ADD, SET = "red.{0}.add.u32 [{1}], 1;", "st.{0}.u32 [{1}], 5;"
UPDATES = f"@r2 {ADD} @r1 {ADD}"
EVEN_WARPS = "@even bar.sync 1, 64;"
ASYNC = "cp.async.ca.shared.global [at], [gat], 4; cp.async.commit_group;"
ONE_COPY = "cp.async.ca.shared.global [at], [gat], 4;"
SWAP = "shfl.sync.bfly.b32 v, t, 1, 0x1f, -1;"
CLUSTER = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
REMOTE = "mapa.shared::cluster.u32 remote, at, peer; ld.shared::cluster.u32 v, [remote]; mov.u32 u, v;"
OWN = np.tile(np.arange(THREADS), 2)
REMOTE_FLAG = """barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
mapa.shared::cluster.u32 remote, count, peer; setp.eq.u32 q, rank, 0; @!q bra WAITS;
@!first bra END; mapa.shared::cluster.u32 a, data, peer; st.shared::cluster.u32 [a], 7;
st.release.{}.shared::cluster.u32 [remote], 1; bra END;
WAITS: S: ld.acquire.{}.shared::cta.u32 u, [count]; setp.ne.u32 q, u, 1; @q bra S; ld.shared.u32 v, [data]; END:"""
REMOTE_FLAGGED = np.repeat([0, 7], THREADS)
RACE = "race: "


@dataclass(frozen=True)
class Pair:
    """A wrong and a right body, the right one's values, and words of the error of the wrong one."""

    name: str
    wrong: str
    right: str
    expected: np.ndarray | int = 0
    error: str = RACE
    blocks: int = 1


def exchanges(name: str, wrong: str, right: str, error: str = RACE) -> Pair:
    return Pair(name, wrong, right, PARTNER, error)


def between(name: str, wrong: str, right: str, error: str = RACE, memory: str = "shared") -> Pair:
    """What lies between a store and a load of another thread's value."""
    store, load = (STORE, LOAD) if memory == "shared" else (GSTORE, GLOAD)
    return exchanges(name, f"{store} {wrong} {load}", f"{store} {right} {load}", error)


HALVES = "add.u32 id, half, 1; bar.sync id, 64;"
OWN_WARP = "add.u32 id, warp, 1; bar.sync id, 32;"
OF_HALF = "xor.b32 u, t, 16; mad.lo.u32 other, u, 4, a; mad.wide.u32 gother, u, 4, x;"
"""Each thread reads what the thread of the other half of its warp stored."""
HALF_LEFT = np.where(np.arange(THREADS) % 32 < 16, np.arange(THREADS), 0)
HALF_READ = np.where(np.arange(THREADS) == HALF_LEFT, np.arange(THREADS) ^ 16, 0)
OWN_LOAD = "ld.shared.u32 v, [at];"
PAIRS = [
    # barriers of a block
    between("two halves on barriers 1 and 2", HALVES, "bar.sync 1, 128;"),
    between("two halves on barriers 1 and 2, in branches", split("bar.sync 1, 64;", "bar.sync 2, 64;"),
            split("bar.sync 1, 128;", "bar.sync 1, 128;")),
    between("two halves on barriers 1 and 2, global memory", HALVES, "bar.sync 1, 128;", memory="global"),
    between("a barrier of each warp", OWN_WARP, "bar.sync 1, 128;"),
    between("a barrier of each warp, global memory", OWN_WARP, "bar.sync 1, 128;", memory="global"),
    between("barrier.sync of each warp", "add.u32 id, warp, 1; barrier.sync id, 32;", "barrier.sync 1, 128;"),
    between("bar.warp.sync for bar.sync", "bar.warp.sync -1;", "bar.sync 0;"),
    between("bar.warp.sync for bar.sync, global memory", "bar.warp.sync -1;", "bar.sync 0;", memory="global"),
    between("half a block waits", "@low bar.sync 1, 64;", "bar.sync 1, 128;"),
    between("no barrier", "", "bar.sync 0;"),
    between("pairs of warps that do not meet", "shr.u32 id, warp, 1; add.u32 id, id, 5; bar.sync id, 64;",
            "and.b32 id, warp, 1; add.u32 id, id, 5; bar.sync id, 64;"),
    Pair("a store to what several warps have read, after the barrier of one",
         f"{STORE} bar.sync 0; ld.shared.u32 v, [data]; bar.warp.sync -1; @first st.shared.u32 [data], 5;",
         f"{STORE} bar.sync 0; ld.shared.u32 v, [data]; bar.sync 0; @first st.shared.u32 [data], 5;"),
    Pair("bar.arrive 1 with bar.sync 2", split(f"{STORE} bar.arrive 1, 128;", f"bar.sync 2, 64; {LOAD}"),
         split(f"{STORE} bar.arrive 1, 128;", f"bar.sync 1, 128; {LOAD}"), np.where(PARTNER < 64, PARTNER, 0)),
    Pair("a store after bar.arrive", split(f"bar.arrive 1, 128; {STORE}", f"bar.sync 1, 128; {LOAD}"),
         split(f"{STORE} bar.arrive 1, 128;", f"bar.sync 1, 128; {LOAD}"), np.where(PARTNER < 64, PARTNER, 0)),
    Pair("a load before bar.sync", split(f"{STORE} bar.arrive 1, 128;", f"{LOAD} bar.sync 1, 128;"),
         split(f"{STORE} bar.arrive 1, 128;", f"bar.sync 1, 128; {LOAD}"), np.where(PARTNER < 64, PARTNER, 0),
         "undefined bits|race"),
    Pair("one that only arrives learns nothing", split(f"bar.arrive 1, 128; {LOAD}", f"{STORE} bar.sync 1, 128;"),
         split(f"bar.sync 1, 128; {LOAD}", f"{STORE} bar.sync 1, 128;"), np.where(PARTNER >= 64, PARTNER, 0)),
    Pair("a second bar.arrive for the same wait", split(f"{STORE} bar.arrive 1, 128; {GSTORE} bar.arrive 2, 128;",
         f"bar.sync 1, 128; {GLOAD} bar.sync 2, 128;"), split(f"{STORE} bar.arrive 1, 128; {GSTORE} bar.arrive 2, 128;",
         f"bar.sync 1, 128; bar.sync 2, 128; {GLOAD}"), np.where(PARTNER < 64, PARTNER, 0)),
    Pair("a double buffer is released on the wrong id", buffers(empty="sub.u32 id, 4, s;"), buffers(), TAKEN,
         "race|reach barrier"),
    Pair("a double buffer is filled on the wrong id", buffers(full="sub.u32 id, 2, warp;"), buffers(), TAKEN,
         "undefined bits|race"),
    Pair("a double buffer is released before the read", buffers(reads="", late=READ), buffers(), TAKEN),
    # mbarriers
    exchanges("no barrier between mbarrier.init and arrivals", f"{made(barrier='')} {STORE} {ARRIVE} {wait()} {LOAD}",
              f"{made()} {STORE} {ARRIVE} {wait()} {LOAD}"),
    Pair("no barrier between mbarrier.init and a wait", f"{made(1, barrier='')} @first {ARRIVE} {wait()}",
         f"{made(1)} @first {ARRIVE} {wait()}"),
    Pair("a warp's barrier after mbarrier.init", f"{made(1, barrier='bar.warp.sync -1;')} @first {ARRIVE} {wait()}",
         f"{made(1)} @first {ARRIVE} {wait()}"),
    Pair("no barrier between mbarrier.init and another thread's bulk copy",
         f"{made(1, barrier='')} {COPIED.replace('@first', '@q').join(['setp.eq.u32 q, t, 32; ', ''])} bar.sync 0; "
         f"{wait()} {LOAD}",
         f"{made(1)} {COPIED.replace('@first', '@q').join(['setp.eq.u32 q, t, 32; ', ''])} bar.sync 0; {wait()} {LOAD}",
         1000 + PARTNER),
    exchanges("a count of 1 with 128 arrivals",
              f"{made(1)} {STORE} {ARRIVE} {wait('token').replace('.parity', '')} {LOAD}",
              f"{made()} {STORE} {ARRIVE} {wait('token').replace('.parity', '')} {LOAD}"),
    exchanges("a count of 1 with 127 arrivals, by parity",
              f"{made(1)} {STORE} setp.lt.u32 q, t, 127; @q {ARRIVE} {wait()} {LOAD}",
              f"{made()} {STORE} {ARRIVE} {wait()} {LOAD}"),
    exchanges("a count of 32 with 128 arrivals, by parity", f"{made(32)} {STORE} {ARRIVE} setp.lt.u32 q, t, 96; "
              f"@q {ARRIVE} {wait()} {LOAD}", f"{made()} {STORE} {ARRIVE} {wait()} {LOAD}"),
    *[
        exchanges(f"mbarrier: {arrive} arrive, {sees} wait",
                  f"{made()} {STORE} {ARRIVE.replace('arrive', 'arrive' + ORDER.format(arrive))} "
                  f"{wait(how=ORDER.format(sees))} {LOAD}",
                  f"{made()} {STORE} {before} {ARRIVE.replace('arrive', 'arrive' + ORDER.format(right[0]))} "
                  f"{wait(how=ORDER.format(right[1]))} {behind} {LOAD}")
        for arrive, sees, before, right, behind in (
            ("relaxed", "relaxed", "", ("release", "acquire"), ""),
            ("relaxed", "acquire", "fence.acq_rel.cta;", ("relaxed", "acquire"), ""),
            ("release", "relaxed", "", ("release", "relaxed"), "fence.acq_rel.cta;"),
        )
    ],
    exchanges("an arrival before the store", f"{made()} {ARRIVE} {STORE} {wait()} {LOAD}",
              f"{made()} {STORE} {ARRIVE} {wait()} {LOAD}"),
    exchanges("a load before the wait", f"{made()} {STORE} {ARRIVE} {LOAD} {wait()}",
              f"{made()} {STORE} {ARRIVE} {wait()} {LOAD}"),
    exchanges("one thread of a warp arrives for all without bar.warp.sync",
              f"{made(4)} {STORE} setp.eq.u32 q, lane, 0; @q {ARRIVE} {wait()} {LOAD}",
              f"{made(4)} {STORE} bar.warp.sync -1; setp.eq.u32 q, lane, 0; @q {ARRIVE} {wait()} {LOAD}"),
    exchanges("one thread waits for all without a barrier",
              f"{made()} {STORE} {ARRIVE} @!first bra ON; {wait()} ON: {LOAD}",
              f"{made()} {STORE} {ARRIVE} @!first bra ON; {wait()} ON: bar.sync 0; {LOAD}"),
    exchanges("the phase before the first", f"{made()} {STORE} {wait(1)} {LOAD} {ARRIVE}",
              f"{made()} {STORE} {ARRIVE} {wait(0)} {LOAD}"),
    exchanges("one test_wait", f"{made()} {STORE} {ARRIVE} mbarrier.test_wait.shared.b64 p, [bar], token; {LOAD}",
              f"{made()} {STORE} {ARRIVE} W: mbarrier.test_wait.shared.b64 p, [bar], token; @!p bra W; {LOAD}"),
    Pair("another mbarrier",
         f"{made(64)} {made(64, 'two')} " + split(f"{STORE} {ARRIVE}", f"mbarrier.arrive.shared.b64 token, [two]; "
         f"{wait(name='two')} {LOAD}"),
         f"{made(64)} {made(64, 'two')} " + split(f"{STORE} {ARRIVE}", f"mbarrier.arrive.shared.b64 token, [two]; "
         f"{wait(name='bar')} {LOAD}"), np.where(PARTNER < 64, PARTNER, 0)),
    Pair("a buffer is filled without a wait", MPIPELINE.format(empty="", release=RELEASED + AGAIN),
         MPIPELINE.format(empty=EMPTIED, release=RELEASED + AGAIN), SUMS, "race|deadlock"),
    Pair("a buffer is released before the read",
         MPIPELINE.format(empty=EMPTIED, release="mbarrier.arrive.shared.b64 token, [two]; ld.shared.u32 u, [other]; "
                          "add.u32 v, v, u;" + AGAIN),
         MPIPELINE.format(empty=EMPTIED, release=RELEASED + AGAIN), SUMS),
    Pair("an arrival without .noComplete is asked for its pending count",
         f"{made()} {ARRIVE} mbarrier.pending_count.b64 v, token; bar.sync 0; mov.u32 v, 0;",
         f"{made(129)} mbarrier.arrive.noComplete.shared.b64 token, [bar], 1; mbarrier.pending_count.b64 v, token; "
         "setp.le.u32 p, v, 129; setp.ge.u32 q, v, 2; and.pred p, p, q; @p mov.u32 v, 0;", error="state"),
    Pair("the last arrival of a phase with .noComplete",
         f"{made()} mbarrier.arrive.noComplete.shared.b64 token, [bar], 1;",
         f"{made(129)} mbarrier.arrive.noComplete.shared.b64 token, [bar], 1;", error="complete with this arrival"),
    exchanges("a thread that has left still counts",
              f"{made()} setp.lt.u32 q, t, 127; {STORE} {ARRIVE} {wait(0, label='V')} @!q bra REST; "
              f"{ARRIVE} {wait(1)} REST: {LOAD}",
              f"{made()} setp.lt.u32 q, t, 127; {STORE} @q {ARRIVE} @!q mbarrier.arrive_drop.shared.b64 token, [bar]; "
              f"{wait(0, label='V')} @!q bra REST; {ARRIVE} {wait(1)} REST: {LOAD}", "deadlock"),
    exchanges("mbarrier.complete_tx orders nobody",
              f"@first mbarrier.init.shared.b64 [bar], 1; bar.sync 0; {EXPECT.format(bar='bar', size=512)} bar.sync 0; "
              f"{STORE} mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 4; {wait()} {LOAD}",
              f"@first mbarrier.init.shared.b64 [bar], 1; bar.sync 0; {EXPECT.format(bar='bar', size=512)} bar.sync 0; "
              f"mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 4; {wait()} {STORE} bar.sync 0; {LOAD}"),
    Pair("too few bytes by mbarrier.complete_tx",
         f"{made(1)} {EXPECT.format(bar='bar', size=512)} @first mbarrier.complete_tx.shared.b64 [bar], 496; {wait()}",
         f"{made(1)} {EXPECT.format(bar='bar', size=512)} @first mbarrier.complete_tx.shared.b64 [bar], 512; {wait()}",
         error="lacks 16 bytes"),
    # reductions at a barrier
    Pair("bar.red and bar.sync at one barrier", split("bar.red.popc.u32 v, 0, p;", "bar.sync 0;"),
         "setp.lt.u32 p, t, 37; bar.red.popc.u32 v, 0, p;", 37, "another kind of barrier|undefined"),
    between("bar.red of each half", "setp.lt.u32 p, t, 37; add.u32 id, half, 1; bar.red.or.pred p, id, 64, p;",
            "setp.lt.u32 p, t, 37; bar.red.or.pred p, 1, 128, p;"),
    # copies
    Pair("cp.async arrives at an mbarrier for which nobody waits",
         f"{made()} {ONE_COPY} cp.async.mbarrier.arrive.noinc.shared.b64 [bar]; bar.sync 0; {LOAD}",
         f"{made()} {ONE_COPY} cp.async.mbarrier.arrive.noinc.shared.b64 [bar]; {wait()} {LOAD}", 1000 + PARTNER,
         "under way"),
    Pair("cp.async arrives before its copy is issued",
         f"{made()} cp.async.mbarrier.arrive.noinc.shared.b64 [bar]; {ONE_COPY} {wait()} {LOAD}",
         f"{made()} {ONE_COPY} cp.async.mbarrier.arrive.noinc.shared.b64 [bar]; {wait()} {LOAD}", 1000 + PARTNER,
         "under way"),
    Pair("an arrival beside that of cp.async, which counts already",
         f"{made()} {ONE_COPY} cp.async.mbarrier.arrive.noinc.shared.b64 [bar]; {ARRIVE} {wait()} {LOAD}",
         f"{made()} {ONE_COPY} cp.async.mbarrier.arrive.shared.b64 [bar]; {ARRIVE} {wait()} {LOAD}", 1000 + PARTNER,
         "under way|race|arriv"),
    exchanges("the arrival of cp.async hands over no stores",
              f"{made()} {STORE} cp.async.mbarrier.arrive.noinc.shared.b64 [bar]; {wait()} {LOAD}",
              f"{made()} {STORE} cp.async.mbarrier.arrive.shared.b64 [bar]; {ARRIVE} {wait()} {LOAD}"),
    Pair("one thread waits for a bulk copy without a barrier",
         f"{made(1)} {COPIED} @!first bra ON; {wait()} ON: {LOAD}",
         f"{made(1)} {COPIED} @!first bra ON; {wait()} ON: bar.sync 0; {LOAD}", 1000 + PARTNER, "race|under way"),
    Pair("another bulk copy's mbarrier",
         f"{made(1)} {made(1, 'two')} {COPIED} {COPY.format(to='data+512', source='x', size=256, bar='two')} "
         f"{wait(name='two')} {LOAD}",
         f"{made(1)} {made(1, 'two')} {COPIED} {COPY.format(to='data+512', source='x', size=256, bar='two')} "
         f"{wait(name='bar')} {LOAD}", 1000 + PARTNER),
    Pair("a bulk copy to bytes that others still read",
         f"{made(1)} {STORE} bar.sync 0; {LOAD} fence.proxy.async; {COPIED} {wait()}",
         f"{made(1)} {STORE} bar.sync 0; {LOAD} bar.sync 0; fence.proxy.async; {COPIED} {wait()}", PARTNER),
    *[
        Pair(f"a bulk copy to bytes that generic {name} wrote, without a proxy fence",
             f"{made(1)} {before} bar.sync 0; {COPIED} {wait()} {LOAD}",
             f"{made(1)} {before} fence.proxy.async; bar.sync 0; {COPIED} {wait()} {LOAD}", 1000 + PARTNER,
             "fence.proxy.async")
        for name, before in (("stores", STORE), ("atomic operations", f"{STORE} atom.shared.add.u32 old, [at], 1;"))
    ],
    Pair("a bulk copy to bytes that generic stores wrote and loads read, the fence before the stores",
         f"{made(1)} fence.proxy.async; {STORE} bar.sync 0; {LOAD} bar.sync 0; {COPIED} {wait()} {LOAD}",
         f"{made(1)} {STORE} fence.proxy.async; bar.sync 0; {LOAD} bar.sync 0; {COPIED} {wait()} {LOAD}",
         1000 + PARTNER, "fence.proxy.async"),
    Pair("a bulk copy of what generic stores just wrote",
         f"{made(1)} {GSTORE} bar.sync 0; {COPIED} {wait()} {LOAD}",
         f"{made(1)} {GSTORE} fence.proxy.async; bar.sync 0; {COPIED} {wait()} {LOAD}", PARTNER, "fence.proxy.async"),
    Pair("a bulk copy of what generic stores just wrote, a fence for shared memory",
         f"{made(1)} {GSTORE} fence.proxy.async.shared::cta; bar.sync 0; {COPIED} {wait()} {LOAD}",
         f"{made(1)} {GSTORE} bar.sync 0; fence.proxy.async.global; {COPIED} {wait()} {LOAD}", PARTNER,
         "fence.proxy.async"),
    Pair("a bulk copy of what others just wrote, without a barrier",
         f"{made(1)} {GSTORE} fence.proxy.async; {COPIED} {wait()} {LOAD}",
         f"{made(1)} {GSTORE} fence.proxy.async; bar.sync 0; {COPIED} {wait()} {LOAD}", PARTNER),
    Pair("a bulk copy from shared memory without a proxy fence", f"{STORE} bar.sync 0; {OUT} {OUT_DONE}",
         f"{STORE} fence.proxy.async; bar.sync 0; {OUT} {OUT_DONE}", PARTNER, "fence.proxy.async"),
    Pair("a bulk copy from shared memory, the fence before the stores",
         f"fence.proxy.async; {STORE} bar.sync 0; {OUT} {OUT_DONE}",
         f"{STORE} fence.proxy.async; bar.sync 0; {OUT} {OUT_DONE}", PARTNER, "fence.proxy.async"),
    Pair("a bulk copy from shared memory without a barrier", f"{STORE} fence.proxy.async; {OUT} {OUT_DONE}",
         f"{STORE} fence.proxy.async; bar.sync 0; {OUT} {OUT_DONE}", PARTNER, "race|fence.proxy.async"),
    *[
        Pair(f"a proxy fence that the copy does not wait for: {name}",
             f"{made(1)} {wrong}", f"{made(1)} {right}", expected, "fence.proxy.async")
        for name, wrong, right, expected in (
            ("to shared memory, by another warp behind the barrier",
             f"{STORE} bar.sync 0; @r2 fence.proxy.async; {COPIED} {wait()} {LOAD}",
             f"{STORE} bar.sync 0; @r2 fence.proxy.async; bar.sync 0; {COPIED} {wait()} {LOAD}", 1000 + PARTNER),
            ("to shared memory, by another thread of the warp",
             f"{STORE} bar.sync 0; @second fence.proxy.async; {COPIED} {wait()} {LOAD}",
             f"{STORE} bar.sync 0; @second fence.proxy.async; bar.warp.sync -1; {COPIED} {wait()} {LOAD}",
             1000 + PARTNER),
            ("to shared memory, by all but the thread that copies",
             f"{STORE} bar.sync 0; @!first fence.proxy.async; {COPIED} {wait()} {LOAD}",
             f"{STORE} bar.sync 0; @first fence.proxy.async; {COPIED} {wait()} {LOAD}", 1000 + PARTNER),
            ("to shared memory, of atomic operations",
             f"{STORE} atom.shared.add.u32 old, [at], 1; bar.sync 0; @r2 fence.proxy.async; {COPIED} {wait()} {LOAD}",
             f"{STORE} atom.shared.add.u32 old, [at], 1; fence.proxy.async; bar.sync 0; {COPIED} {wait()} {LOAD}",
             1000 + PARTNER),
            ("from shared memory, by another warp behind the barrier",
             f"{STORE} bar.sync 0; @r2 fence.proxy.async; {OUT} {OUT_DONE}",
             f"{STORE} bar.sync 0; @r2 fence.proxy.async; bar.sync 1, 128; {OUT} {OUT_DONE}", PARTNER),
            ("from shared memory, by the writers behind the barrier",
             f"{STORE} bar.sync 0; @!first fence.proxy.async; {OUT} {OUT_DONE}",
             f"{STORE} bar.sync 0; fence.proxy.async; {OUT} {OUT_DONE}", PARTNER),
            ("from shared memory, the relaxed arrival of the fence's thread",
             f"{made(1, 'two')} {STORE} bar.sync 0; @r2 fence.proxy.async; "
             f"@r2 mbarrier.arrive.relaxed.cta.shared.b64 token, [two]; @!first bra REST; {wait(0, 'two', 'V')} REST: "
             f"{OUT} {OUT_DONE}",
             f"{made(1, 'two')} {STORE} bar.sync 0; @r2 fence.proxy.async; "
             f"@r2 mbarrier.arrive.shared.b64 token, [two]; @!first bra REST; {wait(0, 'two', 'V')} REST: "
             f"{OUT} {OUT_DONE}", PARTNER),
            ("from global memory, by another warp behind the barrier",
             f"{GSTORE} bar.sync 0; @r2 fence.proxy.async; {COPIED} {wait()} {LOAD}",
             f"{GSTORE} bar.sync 0; @r2 fence.proxy.async; bar.sync 0; {COPIED} {wait()} {LOAD}", PARTNER),
            ("from global memory, by the writers behind the barrier",
             f"{GSTORE} bar.sync 0; @!first fence.proxy.async.global; {COPIED} {wait()} {LOAD}",
             f"{GSTORE} bar.sync 0; @first fence.proxy.async.global; {COPIED} {wait()} {LOAD}", PARTNER),
        )
    ],
    Pair("a source overwritten when one thread has waited, without a barrier",
         f"{STORE} fence.proxy.async; bar.sync 0; {OUT} @first cp.async.bulk.wait_group.read 0; "
         f"st.shared.u32 [at], 5; {OUT_DONE}",
         f"{STORE} fence.proxy.async; bar.sync 0; {OUT} @first cp.async.bulk.wait_group.read 0; bar.sync 0; "
         f"st.shared.u32 [at], 5; {OUT_DONE}", PARTNER),
    Pair("the source of cp.async overwritten before the wait",
         f"{ASYNC} st.global.u32 [gat], 5; cp.async.wait_group 0; bar.sync 0; {LOAD}",
         f"{ASYNC} cp.async.wait_group 0; st.global.u32 [gat], 5; bar.sync 0; {LOAD}", 1000 + PARTNER, "cp.async"),
    Pair("the source of cp.async overwritten by another thread, behind a barrier but before the wait",
         f"{ASYNC} bar.sync 0; st.global.u32 [gother], 5; cp.async.wait_group 0; bar.sync 0; {LOAD}",
         f"{ASYNC} cp.async.wait_group 0; bar.sync 0; st.global.u32 [gother], 5; {LOAD}", 1000 + PARTNER, "cp.async"),
    Pair("the source of cp.async overwritten by another thread, the wait without a barrier",
         f"{ASYNC} bar.sync 0; cp.async.wait_group 0; st.global.u32 [gother], 5; bar.sync 0; {LOAD}",
         f"{ASYNC} cp.async.wait_group 0; bar.sync 0; st.global.u32 [gother], 5; {LOAD}", 1000 + PARTNER),
    Pair("cp.async waited for without a barrier", f"{ASYNC} cp.async.wait_group 0; {LOAD}",
         f"{ASYNC} cp.async.wait_group 0; bar.sync 0; {LOAD}", 1000 + PARTNER),
    Pair("cp.async behind a barrier without a wait", f"{ASYNC} bar.sync 0; {LOAD} cp.async.wait_group 0;",
         f"{ASYNC} cp.async.wait_group 0; bar.sync 0; {LOAD}", 1000 + PARTNER, "under way"),
    Pair("cp.async waited for by halves", f"{ASYNC} cp.async.wait_group 0; {HALVES} {LOAD}",
         f"{ASYNC} cp.async.wait_group 0; bar.sync 1, 128; {LOAD}", 1000 + PARTNER),
    # atomic operations
    Pair("red.global by all, then a load by one", "red.global.add.u32 [gword], 1; @first ld.global.u32 v, [gword];",
         "red.global.add.u32 [gword], 1; bar.sync 0; @first ld.global.u32 v, [gword];",
         np.where(np.arange(THREADS) == 0, THREADS, 0)),
    Pair("red.shared by all, then a load by one", "red.shared.add.u32 [count], 1; @first ld.shared.u32 v, [count];",
         "red.shared.add.u32 [count], 1; bar.sync 0; @first ld.shared.u32 v, [count];",
         np.where(np.arange(THREADS) == 0, THREADS, 0)),
    Pair("red.shared by all, then a load by one after its warp's barrier",
         "red.shared.add.u32 [count], 1; bar.warp.sync -1; @first ld.shared.u32 v, [count];",
         "red.shared.add.u32 [count], 1; bar.sync 0; @first ld.shared.u32 v, [count];",
         np.where(np.arange(THREADS) == 0, THREADS, 0)),
    Pair("red.shared by halves that meet apart, then a load by one",
         f"red.shared.add.u32 [count], 1; {HALVES} @first ld.shared.u32 v, [count];",
         "red.shared.add.u32 [count], 1; bar.sync 1, 128; @first ld.shared.u32 v, [count];",
         np.where(np.arange(THREADS) == 0, THREADS, 0)),
    Pair("red.global by halves that meet apart, then a load by one",
         f"red.global.add.u32 [gword], 1; {HALVES} @first ld.global.u32 v, [gword];",
         "red.global.add.u32 [gword], 1; bar.sync 1, 128; @first ld.global.u32 v, [gword];",
         np.where(np.arange(THREADS) == 0, THREADS, 0)),
    Pair("red.release by all, then a load by one",
         "red.release.gpu.global.add.u32 [gword], 1; @first ld.global.u32 v, [gword];",
         "red.release.gpu.global.add.u32 [gword], 1; bar.sync 0; @first ld.global.u32 v, [gword];",
         np.where(np.arange(THREADS) == 0, THREADS, 0)),
    Pair("a store before red.shared by all", "@first st.shared.u32 [count], 5; red.shared.add.u32 [count], 1;",
         "@first st.shared.u32 [count], 5; bar.sync 0; red.shared.add.u32 [count], 1;"),
    Pair("a load before red.shared by all", "@first ld.shared.u32 v, [count]; red.shared.add.u32 [count], 1;",
         "@first ld.shared.u32 v, [count]; bar.sync 0; red.shared.add.u32 [count], 1;"),
    Pair("the first of all takes what the others stored",
         TICKET.format(STORE, ".acq_rel.cta", 0, LOAD), TICKET.format(STORE, ".acq_rel.cta", 127, LOAD),
         np.where(np.arange(THREADS) == 127, PARTNER, 0)),
    Pair("an acquiring operation whose result nobody looks at",
         f"{STORE} atom.acq_rel.cta.shared.add.u32 old, [count], 1; setp.ne.u32 p, t, 127; @p bra END; {LOAD} END:",
         TICKET.format(STORE, ".acq_rel.cta", 127, LOAD), np.where(np.arange(THREADS) == 127, PARTNER, 0)),
    Pair("a relaxed ticket", TICKET.format(STORE, ".relaxed.cta", 127, LOAD),
         TICKET.format(STORE + "fence.acq_rel.cta;", ".relaxed.cta", 127, "fence.acq_rel.cta;" + LOAD),
         np.where(np.arange(THREADS) == 127, PARTNER, 0)),
    Pair("a ticket that only releases", TICKET.format(STORE, ".release.cta", 127, LOAD),
         TICKET.format(STORE, ".acq_rel.cta", 127, LOAD), np.where(np.arange(THREADS) == 127, PARTNER, 0)),
    # accesses of some threads, of which only some meet: in shared and in global memory
    *[
        Pair(f"{name}, {memory} memory", f"{wrong.format(memory, word)} mov.u32 v, 0;",
             f"{right.format(memory, word)} mov.u32 v, 0;")
        for memory, word in (("shared", "count"), ("global", "gword"))
        for name, wrong, right in (
            ("a load and then an atomic operation of another warp", f"@first {WORD} @q {ADD}",
             f"@first {WORD} bar.sync 0; @q {ADD}"),
            ("a load of what one warp updated before, and another one met", f"{UPDATES} {EVEN_WARPS} @r1 {WORD}",
             f"{UPDATES} bar.sync 1, 128; @r1 {WORD}"),
            ("a store to what one warp has read, and another one met",
             f"@r1 {WORD} @r2 {WORD} {EVEN_WARPS} @first {SET}",
             f"@r1 {WORD} @r2 {WORD} bar.sync 1, 128; @first {SET}"),
            ("a store to what a strong load read", f"@r2 {STRONG_WORD} @first {SET}",
             f"@r2 {STRONG_WORD} bar.sync 0; @first {SET}"),
            ("a store to what strong loads of two warps read, and one met",
             f"@r1 {STRONG_WORD} @r2 {STRONG_WORD} {EVEN_WARPS} @first {SET}",
             f"@r1 {STRONG_WORD} @r2 {STRONG_WORD} bar.sync 1, 128; @first st.relaxed.gpu.{{0}}.u32 [{{1}}], 5;"),
            ("a store to what the other half of a warp has read",
             f"@high {WORD} @second {WORD} bar.warp.sync n; @first {SET}",
             f"@high {WORD} bar.warp.sync -1; @second {WORD} bar.warp.sync -1; @first {SET}"),
        )
    ],
    # strong accesses, which do not race, but have no order either
    *[
        Pair(f"{name}, {memory} memory", wrong.format(memory, at, other, word),
             right.format(memory, at, other, word), expected)
        for memory, at, other, word in (("shared", "at", "other", "count"), ("global", "gat", "gother", "gword"))
        for name, wrong, right, expected in (
            ("a relaxed load of what another thread stored relaxed",
             "st.relaxed.gpu.{0}.u32 [{1}], t; ld.relaxed.gpu.{0}.u32 v, [{2}];",
             "st.relaxed.gpu.{0}.u32 [{1}], t; bar.sync 0; ld.relaxed.gpu.{0}.u32 v, [{2}];", PARTNER),
            ("a relaxed load of what another thread released",
             "st.release.gpu.{0}.u32 [{1}], t; ld.relaxed.gpu.{0}.u32 v, [{2}];",
             "st.release.gpu.{0}.u32 [{1}], t; bar.sync 0; ld.relaxed.gpu.{0}.u32 v, [{2}];", PARTNER),
            ("a relaxed load of what halves that meet apart stored",
             f"st.relaxed.gpu.{{0}}.u32 [{{1}}], t; {HALVES} ld.relaxed.gpu.{{0}}.u32 v, [{{2}}];",
             "st.relaxed.gpu.{0}.u32 [{1}], t; bar.sync 1, 128; ld.relaxed.gpu.{0}.u32 v, [{2}];", PARTNER),
            ("a relaxed store to what another thread has loaded",
             "st.relaxed.gpu.{0}.u32 [{1}], t; bar.sync 0; ld.relaxed.gpu.{0}.u32 v, [{2}]; "
             "st.relaxed.gpu.{0}.u32 [{1}], 5;",
             "st.relaxed.gpu.{0}.u32 [{1}], t; bar.sync 0; ld.relaxed.gpu.{0}.u32 v, [{2}]; bar.sync 0; "
             "st.relaxed.gpu.{0}.u32 [{1}], 5;", PARTNER),
            ("a relaxed load of a counter", "red.{0}.add.u32 [{3}], 1; ld.relaxed.gpu.{0}.u32 v, [{3}];",
             "red.{0}.add.u32 [{3}], 1; bar.sync 0; ld.relaxed.gpu.{0}.u32 v, [{3}];", THREADS),
            ("a volatile load of a counter", "red.{0}.add.u32 [{3}], 1; ld.volatile.{0}.u32 v, [{3}];",
             "red.{0}.add.u32 [{3}], 1; bar.sync 0; ld.volatile.{0}.u32 v, [{3}];", THREADS),
            ("a relaxed load without a loop, where one waits for a counter",
             "red.{0}.add.u32 [{3}], 1; ld.relaxed.gpu.{0}.u32 v, [{3}];",
             "red.{0}.add.u32 [{3}], 1; S: ld.relaxed.gpu.{0}.u32 v, [{3}]; setp.ne.u32 q, v, 128; @q bra S;",
             THREADS),
            ("a relaxed load before an exchange of its value",
             "ld.relaxed.gpu.{0}.u32 v, [{3}]; red.{0}.add.u32 [{3}], 1;",
             "ld.relaxed.gpu.{0}.u32 u, [{3}]; A: mov.u32 s, u; add.u32 i, s, 1; atom.{0}.cas.b32 u, [{3}], s, i; "
             "setp.ne.u32 q, u, s; @q bra A; bar.sync 0; ld.relaxed.gpu.{0}.u32 v, [{3}];", THREADS),
        )
    ],
    # flags
    *[
        Pair(f"a flag: {name}", flagged(*wrong), flagged(*right), FLAGGED)
        for name, wrong, right in (
            ("relaxed store", (".relaxed.cta", ".acquire.cta"), (".release.cta", ".acquire.cta")),
            ("relaxed load", (".release.cta", ".relaxed.cta"), (".release.cta", ".acquire.cta")),
            ("no fence before the store", (".relaxed.cta", ".relaxed.cta", "", "fence.acq_rel.cta;"),
             (".relaxed.cta", ".relaxed.cta", "fence.acq_rel.cta;", "fence.acq_rel.cta;")),
            ("no fence behind the load", (".relaxed.cta", ".relaxed.cta", "membar.cta;"),
             (".relaxed.cta", ".relaxed.cta", "membar.cta;", "membar.cta;")),
            ("a store behind the fence",
             (".relaxed.cta", ".acquire.cta", "fence.sc.cta;", "", "st.shared.u32 [data], 7;"),
             (".relaxed.cta", ".acquire.cta", "st.shared.u32 [data], 7; fence.sc.cta;")),
            ("plain store", ("", ".acquire.cta"), (".release.cta", ".acquire.cta")),
        )
    ],
    Pair("a flag in another block, the store's scope", REMOTE_FLAG.format("cta", "cluster") + CLUSTER,
         REMOTE_FLAG.format("cluster", "cluster") + CLUSTER, REMOTE_FLAGGED, blocks=2),
    Pair("a flag in another block, the load's scope", REMOTE_FLAG.format("cluster", "cta") + CLUSTER,
         REMOTE_FLAG.format("gpu", "cluster") + CLUSTER, REMOTE_FLAGGED, blocks=2),
    # clusters
    Pair("bar.sync for the cluster's barrier", f"{CLUSTER} {STORE} bar.sync 0; {REMOTE} {CLUSTER}",
         f"{CLUSTER} {STORE} {CLUSTER} {REMOTE} {CLUSTER}", OWN, blocks=2),
    Pair("a relaxed barrier of the cluster",
         f"{CLUSTER} {STORE} {CLUSTER.replace('arrive', 'arrive.relaxed')} {REMOTE} {CLUSTER}",
         f"{CLUSTER} {STORE} fence.acq_rel.cluster; {CLUSTER.replace('arrive', 'arrive.relaxed')} {REMOTE} {CLUSTER}",
         OWN, blocks=2),
    Pair("a store between arrive and wait of the cluster",
         f"{CLUSTER} barrier.cluster.arrive.aligned; {STORE} barrier.cluster.wait.aligned; {REMOTE} {CLUSTER}",
         f"{CLUSTER} {STORE} barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; {REMOTE} {CLUSTER}", OWN,
         blocks=2),
    # exchanges in a warp
    *[
        Pair(f"{name} with a full mask, while others wait at a barrier",
             f"setp.lt.u32 q, lane, 16; @!q bra B; {code} B: bar.sync 0;",
             f"setp.lt.u32 q, lane, 16; {code} @!q bra B; B: bar.sync 0;", expected, "membership mask")
        for name, code, expected in (
            ("shfl.sync.bfly", SWAP, np.arange(THREADS) ^ 1),
            ("shfl.sync.down", "shfl.sync.down.b32 v, t, 0, 0x1f, -1;", np.arange(THREADS)),
            ("shfl.sync.idx", "shfl.sync.idx.b32 v, t, 0, 0x1f, -1;", np.arange(THREADS) // 32 * 32),
            ("bar.warp.sync", "bar.warp.sync -1;", 0),
            ("elect.sync", "elect.sync _|p, -1;", 0),
        )
    ],
    Pair("bar.warp.sync of half a warp",
         "mov.u32 other, a; xor.b32 u, t, 16; mad.lo.u32 other, u, 4, a; setp.lt.u32 q, lane, 16; "
         f"selp.b32 n, 0x0000ffff, 0xffff0000, q; {STORE} bar.warp.sync n; {LOAD}",
         "mov.u32 other, a; xor.b32 u, t, 16; mad.lo.u32 other, u, 4, a; mov.b32 n, -1; "
         f"{STORE} bar.warp.sync n; {LOAD}", np.arange(THREADS) ^ 16),
    Pair("bar.warp.sync of the halves of a warp at two places",
         HALVES_MEET.format(low="0x0000ffff", high="0xffff0000"), HALVES_MEET.format(low="-1", high="-1"),
         np.arange(THREADS) ^ 16),
    # barriers of whole warps
    exchanges("an aligned barrier under a guard that differs within a warp",
         f"setp.lt.u32 q, lane, 16; {STORE} @q bar.sync 1, 64; @!q barrier.sync 2, 64; bar.sync 0; {LOAD}",
         f"setp.lt.u32 q, lane, 16; {STORE} @q barrier.sync 1, 128; @!q barrier.sync 1, 128; {LOAD}",
         "must execute the same aligned barrier"),
    exchanges("an aligned barrier at two places of a warp",
         APART.format(barrier="barrier.sync.aligned 0;"), APART.format(barrier="barrier.sync 0;"),
         "must execute the same aligned barrier"),
    exchanges("an arrival under a guard that differs within a warp",
         f"setp.lt.u32 q, lane, 16; {STORE} @q bar.arrive 1, 192; bar.sync 1, 192; {LOAD}",
         f"setp.lt.u32 q, warp, 2; {STORE} @q bar.arrive 1, 192; bar.sync 1, 192; {LOAD}",
         "must execute the same aligned barrier"),
    # threads that end before a barrier
    *[
        Pair(f"{name} of {memory} memory by {who} that has ended, behind a barrier",
             f"{ends} {store} @q exit; {barrier} {load}", f"{ends} {store} {barrier} @q exit; {load}", expected)
        for memory, store, load in (("shared", STORE, LOAD), ("global", GSTORE, GLOAD))
        for name, who, ends, barrier, expected in (
            ("a read", "a warp", "setp.ge.u32 q, t, 64;", "bar.sync 0;", np.where(PARTNER >= 64, PARTNER, 0)),
            ("a later read", "a warp", "setp.ge.u32 q, t, 64; bar.warp.sync -1; bar.sync 0;", "barrier.sync 0;",
             np.where(PARTNER >= 64, PARTNER, 0)),
            ("a read", "half a warp", f"setp.ge.u32 q, lane, 16; {OF_HALF}", "bar.sync 0;", HALF_READ),
            ("a read, with bar.warp.sync,", "half a warp", f"setp.ge.u32 q, lane, 16; {OF_HALF}", "bar.warp.sync -1;",
             HALF_READ),
        )
    ],
    Pair("a read of another block's memory, stored by a warp that has ended before the cluster's barrier",
         f"{CLUSTER} {STORE} @!low exit; {CLUSTER} {REMOTE} mapa.shared::cluster.u32 remote, other, peer; "
         f"ld.shared::cluster.u32 v, [remote]; {CLUSTER}",
         f"{CLUSTER} {STORE} {CLUSTER} @!low exit; {REMOTE} mapa.shared::cluster.u32 remote, other, peer; "
         f"ld.shared::cluster.u32 v, [remote]; {CLUSTER}", np.tile(np.where(PARTNER >= 64, PARTNER, 0), 2), blocks=2),
    Pair("a read in the own block behind the cluster's barrier, stored by a warp that has ended",
         f"{STORE} @!low exit; {CLUSTER} {LOAD} {CLUSTER}", f"{STORE} {CLUSTER} @!low exit; {LOAD} {CLUSTER}",
         np.tile(np.where(PARTNER >= 64, PARTNER, 0), 2), blocks=2),
    Pair("an arrival at the cluster's barrier, after which a warp ends, ahead of its store",
         f"@low bra L; barrier.cluster.arrive.aligned; {STORE} exit; L: {CLUSTER} {LOAD} {CLUSTER}",
         f"@low bra L; {STORE} barrier.cluster.arrive.aligned; exit; L: {CLUSTER} {LOAD} {CLUSTER}",
         np.tile(np.where(PARTNER >= 64, PARTNER, 0), 2), blocks=2),
    Pair("a write to what a warp that has ended has read, behind a barrier",
         f"{STORE} bar.sync 0; setp.ge.u32 q, t, 64; {LOAD} @q exit; bar.sync 0; st.shared.u32 [at], 5;",
         f"{STORE} bar.sync 0; setp.ge.u32 q, t, 64; {LOAD} bar.sync 0; @q exit; st.shared.u32 [at], 5;",
         np.where(PARTNER >= 64, PARTNER, 0)),
    Pair("a barrier with a number of threads of which some have ended",
         f"{STORE} @!low exit; bar.sync 1, 128; ld.shared.u32 v, [at];",
         f"{STORE} @!low exit; bar.sync 1, 64; ld.shared.u32 v, [at];", np.where(PARTNER >= 64, np.arange(THREADS), 0),
         "deadlock"),
    *[
        Pair(f"{name} of halves of warps, which count as warps",
             f"setp.lt.u32 q, lane, 16; {some.format(barrier=barrier)}",
             f"setp.lt.u32 q, warp, 2; {some.format(barrier=barrier)}", np.arange(THREADS), error)
        for some in (f"{STORE} @!q bra L; {{barrier}} L: barrier.sync 0; ld.shared.u32 v, [at];",)
        for name, barrier, error in (
            ("a barrier", "barrier.sync 1, 64;", "deadlock"),
            ("an aligned barrier", "bar.sync 1, 64;", "must execute the same aligned barrier"),
        )
    ],
    Pair("a barrier for half a warp, whose other half has ended",
         f"setp.lt.u32 q, lane, 16; {STORE} @!q exit; barrier.sync 1, 64; ld.shared.u32 v, [at];",
         f"setp.lt.u32 q, lane, 16; {STORE} @!q exit; barrier.sync 1, 128; ld.shared.u32 v, [at];", HALF_LEFT,
         "128 threads reach barrier 1, which is for 64"),
    Pair("arrivals of halves of warps, which count as warps",
         f"setp.lt.u32 q, lane, 16; {STORE} @!q bra L; barrier.arrive 1, 192; L: barrier.sync 1, 192; {OWN_LOAD}",
         f"setp.lt.u32 q, warp, 2; {STORE} @!q bra L; barrier.arrive 1, 192; L: barrier.sync 1, 192; {OWN_LOAD}",
         np.arange(THREADS), "deadlock"),
    Pair("a barrier for a number of threads that are no whole warps",
         f"{STORE} barrier.sync 1, 100; ld.shared.u32 v, [at];", f"{STORE} barrier.sync 1, 128; ld.shared.u32 v, [at];",
         np.arange(THREADS), "is a multiple of 32"),
    Pair("a warp that arrives and ends",
         split(f"bar.arrive 1, 128; {STORE} exit;", f"bar.sync 1, 128; {LOAD}"),
         split(f"{STORE} bar.arrive 1, 128; exit;", f"bar.sync 1, 128; {LOAD}"), np.where(PARTNER < 64, PARTNER, 0)),
    # a volatile flag
    *[
        Pair(f"a volatile flag {name}",
             VOLATILE_FLAG.format(**(RIGHT_FLAG | wrong)), VOLATILE_FLAG.format(**RIGHT_FLAG), np.arange(THREADS) % 64)
        for name, wrong in {
            "without a fence before it": {"before": ""},
            "without a fence behind it": {"behind": ""},
            "with a fence behind its store": {"before": "", "late": "membar.cta;"},
            "that is read once": {"again": ""},
            "that is read plainly": {"load": "ld.shared.u32", "again": ""},
            "that is stored plainly": {"store": "st.shared.u32"},
        }.items()
    ],
    Pair("volatile accesses without a barrier of the warp",
         VOLATILE_SUM.format(""), VOLATILE_SUM.format("bar.warp.sync -1;"), np.arange(THREADS) // 2 * 4 + 1),
    # what bulk copies write to global memory
    Pair("the result of a bulk copy read after a wait for its source",
         f"{BULK_OUT} @first cp.async.bulk.wait_group.read 0; bar.sync 0; {GLOAD}",
         f"{BULK_OUT} @first cp.async.bulk.wait_group 0; bar.sync 0; {GLOAD}", PARTNER, "is under way"),
    Pair("the result of a bulk copy read by its own thread after a wait for its source",
         f"{BULK_OUT} @first cp.async.bulk.wait_group.read 0; @first ld.global.u32 v, [gat];",
         f"{BULK_OUT} @first cp.async.bulk.wait_group 0; @first ld.global.u32 v, [gat];", np.zeros(THREADS),
         "is under way"),
    Pair("the result of a bulk copy read without a barrier behind the wait",
         f"{BULK_OUT} @first cp.async.bulk.wait_group 0; {GLOAD}",
         f"{BULK_OUT} @first cp.async.bulk.wait_group 0; bar.sync 0; {GLOAD}", PARTNER),
    Pair("the result of a bulk copy read behind a barrier that comes before the wait",
         f"{BULK_OUT} bar.sync 0; @first cp.async.bulk.wait_group 0; {GLOAD}",
         f"{BULK_OUT} @first cp.async.bulk.wait_group 0; bar.sync 0; {GLOAD}", PARTNER),
    Pair("the result of a bulk copy overwritten before the wait",
         f"{BULK_OUT} @first cp.async.bulk.wait_group.read 0; bar.sync 0; st.global.u32 [gat], 3; bar.sync 0; {GLOAD}",
         f"{BULK_OUT} @first cp.async.bulk.wait_group 0; bar.sync 0; st.global.u32 [gat], 3; bar.sync 0; {GLOAD}",
         np.full(THREADS, 3), "is under way"),
    Pair("a bulk copy over what another thread reads",
         f"ld.global.u32 v, [gother]; {STORE} fence.proxy.async; bar.sync 1, 128; ld.global.u32 v, [gother]; {OUT} "
         "@first cp.async.bulk.wait_group 0;",
         f"ld.global.u32 v, [gother]; {STORE} fence.proxy.async; ld.global.u32 v, [gother]; bar.sync 1, 128; {OUT} "
         "@first cp.async.bulk.wait_group 0;", 1000 + PARTNER),
    Pair("the result of a bulk copy copied back after a wait for its source",
         f"{made(1)} {BULK_OUT} @first cp.async.bulk.wait_group.read 0; bar.sync 0; {COPIED} {wait()} {LOAD}",
         f"{made(1)} {BULK_OUT} @first cp.async.bulk.wait_group 0; bar.sync 0; {COPIED} {wait()} {LOAD}", PARTNER,
         "is under way"),
    Pair("the sum of a bulk reduction read after a wait for its source",
         f"{BULK_ADD} @first cp.async.bulk.wait_group.read 0; bar.sync 0; {GLOAD}",
         f"{BULK_ADD} @first cp.async.bulk.wait_group 0; bar.sync 0; {GLOAD}", 1000 + 2 * PARTNER, "is under way"),
    Pair("the sum of a bulk reduction read without a barrier behind the wait",
         f"{BULK_ADD} @first cp.async.bulk.wait_group 0; {GLOAD}",
         f"{BULK_ADD} @first cp.async.bulk.wait_group 0; bar.sync 0; {GLOAD}", 1000 + 2 * PARTNER),
    Pair("two bulk copies of different values to the same bytes without a wait between",
         f"{BULK_OUT} {REFILLED} {OUT} @first cp.async.bulk.wait_group 0; bar.sync 0; {GLOAD}",
         f"{BULK_OUT} @first cp.async.bulk.wait_group 0; {REFILLED} {OUT} {OUT_DONE}", 7 + PARTNER, "is under way"),
    Pair("a bulk copy where a reduction is under way",
         f"{BULK_ADD} {OUT} @first cp.async.bulk.wait_group 0; bar.sync 0; {GLOAD}",
         f"{BULK_ADD} {ADDED} @first cp.async.bulk.wait_group 0; bar.sync 0; {GLOAD}", 1000 + 3 * PARTNER,
         "is under way"),
]  # fmt: skip


def module_of(pair: Pair, body: str) -> str:
    """A kernel's PTX for ptxas, which states the cluster that its blocks form."""
    entry = "(.param .u64 out, .param .u64 memory)"
    stated = f"{entry}\n.explicitcluster\n.reqnctapercluster {pair.blocks}" if pair.blocks > 1 else entry
    return (HEAD + body + TAIL).replace(entry, stated)


def run(pair: Pair, body: str) -> np.ndarray:
    out = np.zeros(pair.blocks * THREADS, np.uint32)
    memory = np.zeros(THREADS + 1, np.uint32)
    memory[:THREADS] = 1000 + np.arange(THREADS)
    buffers_ = [kernels.Buffer(out, "out"), kernels.Buffer(memory, "memory")]
    cluster = (pair.blocks,) if pair.blocks > 1 else None
    kernels.run_kernel(HEAD + body + TAIL, buffers_, (pair.blocks,), num_threads=THREADS, cluster=cluster)
    return out


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_the_mistake_is_an_error(pair: Pair) -> None:
    with pytest.raises((MemoryFault, ExecutionError), match=pair.error):
        run(pair, pair.wrong)


@pytest.mark.sample(3)
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_the_right_twin_passes(pair: Pair) -> None:
    np.testing.assert_array_equal(run(pair, pair.right), np.broadcast_to(pair.expected, pair.blocks * THREADS))


def test_there_are_as_many_pairs_as_we_say() -> None:
    assert len({pair.name for pair in PAIRS}) == len(PAIRS) >= 61
