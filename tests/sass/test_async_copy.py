"""Barriers in shared memory and bulk copies in machine code give the bits of the PTX."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff import run_ptx
from ptxdiff.emulator import Buffer
from ptxdiff.sass import async_copy
from ptxdiff.sass.cubin import MachineCode, Parameter
from ptxdiff.sass.run import run_machine_code
from ptxdiff.sass.text import MachineFault, Unsupported
from ptxdiff.triton.targets import probe
from tests.support.sampling import mixed
from tests.support.sass.assembly import run, written
from tests.support.sass.modules import run_one

BLOCKS, THREADS = 2, 128
KERNEL = """
.version 8.7
.target {target}
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y) {{
  .reg .b32 t, a, v, w, n, b, i; .reg .b64 gx, gy, st, o, h; .reg .pred p, q, r;
  .shared .align 128 .b8 data[2048]; .shared .align 8 .b64 bar[4];
  ld.param.u64 gx, [x]; ld.param.u64 gy, [y]; mov.u32 t, %tid.x; mov.u32 a, bar; mov.u32 v, data;
  mov.u32 b, %ctaid.x; mul.wide.u32 o, b, 1024; add.u64 gx, gx, o; add.u64 gy, gy, o;
  setp.eq.u32 p, t, 0; mov.u32 i, 0;
  @p mbarrier.init.shared::cta.b64 [a], {arrivals};
  @p mbarrier.init.shared::cta.b64 [a+8], 1;
  fence.mbarrier_init.release.cluster; fence.proxy.async; bar.sync 0;
{body}
  ret; }}
"""
LOADED = """
LOOP:
  @p mbarrier.arrive.expect_tx.shared::cta.b64 _, [a+8], 512;
  @p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [v], [gx], 512, [a+8];
WAIT: mbarrier.try_wait.parity.shared::cta.b64 q, [a+8], i; @!q bra WAIT;
  mad.lo.u32 w, t, 4, v; ld.shared.u32 n, [w]; mad.lo.u32 n, n, 3, t; st.shared.u32 [w+1024], n;
  fence.proxy.async; bar.sync 0;
  @p cp.async.bulk.global.shared::cta.bulk_group [gy], [v+1024], 512;
  @p cp.async.bulk.commit_group; @p cp.async.bulk.wait_group 0;
  add.u64 gx, gx, 512; add.u64 gy, gy, 512; add.u32 i, i, 1; bar.sync 0;
  setp.lt.u32 r, i, 2; @r bra LOOP;
"""
HANDED = """
  setp.lt.u32 r, t, 32; mad.lo.u32 w, t, 4, v; mul.wide.u32 o, t, 4; add.u64 gy, gy, o; add.u64 h, gx, o;
  @r bra PRODUCE;
WAIT: mbarrier.try_wait.parity.shared::cta.b64 q, [a], 0; @!q bra WAIT;
  and.b32 n, t, 31; mad.lo.u32 w, n, 4, v; ld.shared.u32 n, [w]; st.global.u32 [gy], n; bra DONE;
PRODUCE:
  ld.global.u32 n, [h]; mul.lo.u32 n, n, 5; st.shared.u32 [w], n;
  mbarrier.arrive.shared::cta.b64 st, [a]; mov.u32 n, 7;
TEST: mbarrier.test_wait.shared::cta.b64 q, [a], st; @!q bra TEST;
  st.global.u32 [gy], n;
DONE:
"""
REDUCED = """
  mad.lo.u32 w, t, 4, v; mul.wide.u32 o, t, 4; add.u64 h, gx, o; ld.global.u32 n, [h]; st.shared.u32 [w], n;
  add.u64 h, gy, o; st.global.u32 [h], n; mad.lo.u32 n, n, 0x80010101, t; st.shared.u32 [w+512], n;
  fence.proxy.async; bar.sync 0; @!p bra DONE;
  cp.reduce.async.bulk.global.shared::cta.bulk_group.{kind} [gy], [v+512], 512;
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
DONE:
"""
NEAR = """
  mad.lo.u32 w, t, 4, v; mul.wide.u32 o, t, 4; add.u64 h, gx, o; ld.global.u32 n, [h]; st.shared.u32 [w], n;
  mad.lo.u32 n, n, 0x80010101, t; st.shared.u32 [w+512], n; fence.proxy.async; bar.sync 0;
  @p mbarrier.arrive.expect_tx.shared::cta.b64 _, [a+8], 512;
  @p cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{kind} [v], [v+512], 512, [a+8];
WAIT: mbarrier.try_wait.parity.shared::cta.b64 q, [a+8], 0; @!q bra WAIT;
  ld.shared.u32 n, [w]; add.u64 h, gy, o; st.global.u32 [h], n;
"""
AFTER = """
  mad.lo.u32 w, t, 16, v; mul.wide.u32 o, t, 4; and.b32 n, t, 63; mul.wide.u32 h, n, 16; add.u64 h, gx, h;
  cp.async.ca.shared.global [w], [h], 16; {arrive} [a]; {more}
WAIT: mbarrier.try_wait.parity.shared::cta.b64 q, [a], 0; @!q bra WAIT;
  xor.b32 n, t, 127; mad.lo.u32 w, n, 16, v; ld.shared.u32 n, [w+4]; add.u64 h, gy, o; st.global.u32 [h], n;
"""
HINTED = (
    LOADED.replace("bytes [v], [gx], 512, [a+8]", "bytes.L2::cache_hint [v], [gx], 512, [a+8], h")
    .replace("bulk_group [gy], [v+1024], 512", "bulk_group.L2::cache_hint [gy], [v+1024], 512, h")
    .replace("LOOP:\n", "createpolicy.fractional.L2::evict_first.b64 h, 1.0;\nLOOP:\n")
)
OWN = "cp.async.mbarrier.arrive{}.shared::cta.b64"
BODIES = {
    "copies": (LOADED, THREADS), "handed": (HANDED, 32), "hinted": (HINTED, THREADS),
    "arrive": (AFTER.format(arrive=OWN.format(".noinc"), more=""), THREADS),
    "arrive more": (AFTER.format(arrive=OWN.format(""), more="mbarrier.arrive.shared::cta.b64 st, [a];"), THREADS),
}  # fmt: skip
GLOBAL = ["max.u32", "add.u64", "add.f32", "add.noftz.bf16", "min.s32", "max.u64", "min.f16", "inc.u32", "xor.b64"]
SHARED = ["max.u32", "add.u32", "min.s32", "dec.u32"]


def stored(name: str, target: str, level: str, change: tuple[str, str] = ("", ""), **options: int) -> np.ndarray:
    """What the kernel stores. change: a text of it and another one in its place."""
    if not probe()[target].available:
        pytest.skip(f"no ptxas for {target}")
    body, arrivals = BODIES[name]
    assert change[0] in body
    x = np.random.default_rng(3).integers(0, 1 << 32, 256 * BLOCKS, np.uint32)
    y = np.zeros_like(x)
    texts = {n: KERNEL.format(target=target, arrivals=count, body=b) for n, (b, count) in BODIES.items()}
    text = texts[name]
    if change[0]:
        text = KERNEL.format(target=target, arrivals=arrivals, body=body.replace(*change))
    if level == "ptx":
        run_ptx(text, BLOCKS, THREADS, x, y)
    else:
        run_one(text, [] if change[0] else list(texts.values()), options.get("opt", 3), BLOCKS, THREADS, x, y)
    return y


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("name", "target", "opt"), mixed(["copies", "handed", "arrive more"], ["sm_90a", "sm_100a"], [0, 3], of=2)
)
def test_machine_code_gives_the_bits_of_the_ptx(name: str, target: str, opt: int) -> None:
    wanted = stored(name, target, "ptx")
    assert len(np.unique(wanted)) > 8
    assert (stored(name, target, "sass", opt=opt) == wanted).all()


@pytest.mark.parametrize("name", ["hinted", "arrive"])
def test_other_copies_give_the_bits_of_the_ptx(name: str) -> None:
    wanted = stored(name, "sm_90a", "ptx")
    assert len(np.unique(wanted)) > 8
    assert (stored(name, "sm_90a", "sass") == wanted).all()


@pytest.mark.sample(4)
@pytest.mark.parametrize(("body", "kind"), [*((REDUCED, k) for k in GLOBAL), *((NEAR, k) for k in SHARED)])
def test_reductions_give_the_bits_of_the_ptx(body: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.BODIES", _reductions())
    name = f"{REDUCED is body} {kind}"
    wanted = stored(name, "sm_90a", "ptx")
    assert len(np.unique(wanted)) > 8
    assert (stored(name, "sm_90a", "sass") == wanted).all()


def _reductions() -> dict[str, tuple[str, int]]:
    every = [*((REDUCED, k) for k in GLOBAL), *((NEAR, k) for k in SHARED)]
    return {f"{REDUCED is body} {kind}": (body.format(kind=kind), THREADS) for body, kind in every}


@pytest.mark.parametrize("body", [REDUCED, NEAR])
def test_a_planted_reduction_gives_other_bits(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.BODIES", _reductions())
    name = f"{REDUCED is body} max.u32"
    wanted, right = stored(name, "sm_90a", "ptx"), async_copy._TYPES
    monkeypatch.setattr(async_copy, "_TYPES", {**right, (): ("s32",)})
    assert (stored(name, "sm_90a", "sass") != wanted).any()


def test_copies_that_are_not_waited_for_by_their_mbarrier_race() -> None:
    with pytest.raises(MachineFault, match=r"deadlock|race"):
        stored("arrive", "sm_90a", "sass", (OWN.format(".noinc") + " [a];", ""))


@pytest.mark.parametrize(("change", "words"), [
    (("WAIT: mbarrier.try_wait.parity.shared::cta.b64 q, [a], 0; @!q bra WAIT;", ""), "race"),
    (("[a], 0; @!q bra WAIT", "[a], 1; @!q bra WAIT"), "race"),
])  # fmt: skip
def test_a_wrong_barrier_is_a_fault(change: tuple[str, str], words: str) -> None:
    with pytest.raises(MachineFault, match=words):
        stored("handed", "sm_90a", "sass", change)


ALONE = """
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [a+8], 512;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [v], [gx], 512, [a+8];
WAIT: mbarrier.try_wait.parity.shared::cta.b64 q, [a+8], i; @!q bra WAIT;
  ld.shared.u32 n, [v+16]; st.shared.u32 [v+32], n; st.global.u32 [gy], n;
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize("opt", [0, 3])
def test_the_thread_that_copies_must_wait_too(opt: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No race shows it, because a warp issues its instructions in order."""
    monkeypatch.setitem(BODIES, "alone", (f"  @!p bra DONE;{ALONE}DONE:", 1))
    assert (stored("alone", "sm_90a", "sass", opt=opt) == stored("alone", "sm_90a", "ptx")).all()
    wait = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 q, [a+8], i; @!q bra WAIT;"
    for access, verb in (("", "reads"), ("st.shared.u32 [v+16], t;", "overwrites")):
        with pytest.raises(MachineFault, match=f"{verb} offset .* bulk copy is under way"):
            stored("alone", "sm_90a", "sass", (wait, access), opt=opt)


def test_bytes_that_never_come_are_a_deadlock() -> None:
    with pytest.raises(MachineFault, match=r"deadlock.*16 bytes of copies"):
        stored("copies", "sm_90a", "sass", ("_, [a+8], 512", "_, [a+8], 528"))


def test_a_planted_wrong_size_of_chunks_leaves_bytes_missing(monkeypatch) -> None:
    monkeypatch.setattr(async_copy, "_CHUNK", 8)
    with pytest.raises(MachineFault, match="bytes of copies"):
        stored("copies", "sm_90a", "sass")


@pytest.mark.parametrize("text", [
    "SYNCS.ARRIVE.TRANS64.TMASK.ART0 R2, [R4+URZ], R5",
    "SYNCS.ARRIVE.TRANS64.A1T0 R3, [R4+URZ], RZ",  # no even register
    "SYNCS.ARRIVE.TRANS64.A1T0 R2, [R4+URZ], R5",
    "SYNCS.PHASECHK.TRANS64.FOO P0, [R4+URZ], R5",
    "UBLKCP.G.S.MULTICAST [UR8], [UR6], UR4",
    "UBLKCP.S.S.MULTICAST [UR8], [UR6], UR4",
    "UBLKCP.S.G [UR8], [UR6], UR4, UR10",
    "UBLKRED.G.S.ADD.S64 [UR8], [UR6], UR4",
    "UBLKRED.G.S.ADD.F32 [UR8], [UR6], UR4",
    "UBLKRED.S.S.MAX.F16.RN [UR8], [UR6], UR4",
    "UBLKRED.G.G.ADD [UR8], [UR6], UR4",
    "@P0 UBLKRED.G.S.ADD [UR8], [UR6], UR4",
    "ARRIVES.LDGSTSBAR.64 [UR4]",
    "ARRIVES.LDGSTSBAR.ARVCNT [UR4]",
    "UTMACCTL.FOO [UR4]",
    "UTMAPF.2D [UR4], [UR6]",
    "UBLKPF [UR4], UR6",
    "PREEXIT 0x1",
    "DEPBAR {5,4",
    "CCTL.E.RML2 [R2]",
    "CCTL.E.PF1 [R3]",
    "@P0 UBLKCP.S.G [UR8], [UR6], UR4",
    "NANOSLEEP.FOO 0x20",
    "BRA.ANY `(.L)",
])  # fmt: skip
def test_what_is_not_known_is_refused(text: str) -> None:
    with pytest.raises(Unsupported):
        run(f".L:\n{text}\nEXIT", [])


# On sm_107a ptxas 13.5.37 makes these of mbarriers whose address is the same for a warp. 64 threads, of which thread 0
# makes the barrier; R5 is the thread, and UR6 the barrier's address.
OF_WARPS = """
S2R R5, SR_TID.X
ISETP.NE.U32.AND P0, PT, R5, RZ, PT
VOTEU.ALL UP0, P0
UMOV UR6, 0x400
UMOV UR4, 0x1fff80
UMOV UR5, 0x7ffe0000
USHF.L.U32 UR7, URZ, 0x1f, URZ
{init}
BAR.SYNC.DEFER_BLOCKING 0x0
IMAD.SHL.U32 R6, R5, 0x4, RZ
IADD3 R6, R6, 0x500, RZ
STS [R6], R5
{arrive}
.L_wait:
USYNCS.PHASECHK.TRANS64.TRYWAIT UP1, [UR6], UR7
BRA.U !UP1, `(.L_wait)
LOP3.LUT R6, R6, 0x84, RZ, 0x3c, !PT
LDS R7, [R6]
{check}
MOV R8, 0x4
IMAD.WIDE.U32 R2, R5, R8, c[0x0][0x380]
STG.E [R2.64], R7
{after}
EXIT
"""
MADE = "@!UP0 USYNCS.EXCH.64 URZ, [UR6], UR4"
EACH_LANE = "USYNCS.ARRIVE.TRANS64.ACT0 UR8, [UR6], UR9"
COUNTED = "UMOV UR9, 0x20\nUSYNCS.ARRIVE.TRANS64.ART0 URZ, [UR6], UR9"
ONE_AND_BYTES = "UMOV UR9, {}\nUSYNCS.ARRIVE.TRANS64 URZ, [UR6], UR9\n"
OTHERS = COUNTED.replace("0x20", "0x1f")


def as_warps(arrive: str, *, after: str = "", init: str = MADE, check: str = "") -> np.ndarray:
    return stored_by_warps(OF_WARPS.format(arrive=arrive, after=after, init=init, check=check))


def stored_by_warps(body: str) -> np.ndarray:
    output = np.zeros(64, np.uint32)
    code = MachineCode("kernel", "sm_107a", written(body), (Parameter(0, 8),), 0x380, {}, 0, 0x800)
    run_machine_code(code, [Buffer(output, "out", defined=False)], (1,), 64)
    return output


@pytest.mark.parametrize(
    "arrive", [EACH_LANE, COUNTED, ONE_AND_BYTES.format("0x0") + OTHERS], ids=["each lane", "counted", "expecting"]
)
def test_the_lanes_of_a_warp_arrive_together(arrive: str) -> None:
    """A thread reads what one of the other warp stored before it arrived."""
    np.testing.assert_array_equal(as_warps(arrive), np.arange(64) ^ 33)


@pytest.mark.parametrize(("turned", "complete"), [("0x0", True), ("0x80000000", False)])
def test_an_arrival_of_a_warp_gives_the_parity_of_its_phase(turned: str, complete: bool) -> None:
    asked = f"MOV R9, UR9\nLOP3.LUT R9, R9, {turned}, RZ, 0x3c, !PT\nSYNCS.PHASECHK.TRANS64 P2, [UR6], R9"
    found = as_warps(EACH_LANE, check=f"{asked}\nSEL R7, R7, RZ, P2")
    np.testing.assert_array_equal(found, np.arange(64) ^ 33 if complete else np.zeros(64))


def test_each_warp_asks_its_own_barrier() -> None:
    found = stored_by_warps("""
        S2R R5, SR_TID.X
        SHF.R.U32.HI R6, RZ, 0x5, R5
        R2UR UR5, R6
        USHF.L.U32 UR5, UR5, 0x3, URZ
        UIADD3 UR6, UR5, 0x400, URZ
        UMOV UR8, 0x1fffc0
        UMOV UR9, 0x7fff0000
        USYNCS.EXCH.64 URZ, [UR6], UR8
        BAR.SYNC.DEFER_BLOCKING 0x0
        ISETP.LT.U32.AND P0, PT, R5, 0x20, PT
        VOTEU.ALL UP0, P0
        @UP0 USYNCS.ARRIVE.TRANS64.ACT0 URZ, [UR6], UR9
        UMOV UR7, 0x0
        USYNCS.PHASECHK.TRANS64 UP1, [UR6], UR7
        SEL R7, RZ, 0x1, !UP1
        MOV R8, 0x4
        IMAD.WIDE.U32 R2, R5, R8, c[0x0][0x380]
        STG.E [R2.64], R7
        EXIT""")
    np.testing.assert_array_equal(found, np.arange(64) < 32)


def test_only_the_lanes_that_are_here_arrive() -> None:
    some = f"@P1 BRA `(.L_some)\n{EACH_LANE}\nBRA `(.L_join)\n.L_some:\n{EACH_LANE}\n.L_join:\nBSYNC B0"
    twice = f"ISETP.LT.U32.AND P1, PT, R5, 0x10, PT\nBSSY B0, `(.L_join)\n{some}"
    np.testing.assert_array_equal(as_warps(twice), np.arange(64) ^ 33)


@pytest.mark.parametrize(
    ("arrive", "init", "words"),
    [
        (EACH_LANE.replace("ACT0", "ART0").replace("UR9", "UR4"), MADE, "the phase takes"),
        (EACH_LANE, "", "no mbarrier was made"),
        (ONE_AND_BYTES.format("0x10") + OTHERS, MADE, "deadlock"),
    ],
    ids=["too many", "none made", "bytes that never come"],
)  # fmt: skip
def test_a_wrong_arrival_of_a_warp_is_a_fault(arrive: str, init: str, words: str) -> None:
    with pytest.raises(MachineFault, match=words):
        as_warps(arrive, init=init)


def test_what_another_warp_stores_after_it_arrived_is_a_race() -> None:
    late = f"{EACH_LANE}\nSTS [R6], R5"
    with pytest.raises(MachineFault, match="barrier"):
        as_warps(late)


def test_a_barrier_of_warps_is_memory_again() -> None:
    with pytest.raises(MachineFault, match="no mbarrier was made"):
        as_warps(EACH_LANE, after="BAR.SYNC.DEFER_BLOCKING 0x0\n@!UP0 USYNCS.CCTL.IV [UR6]\n"
                 "BAR.SYNC.DEFER_BLOCKING 0x0\nUSYNCS.PHASECHK.TRANS64 UP1, [UR6], UR7")  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["USYNCS.ARRIVE.TRANS64.A1T0 URZ, [UR6], UR9", "USYNCS.ARRIVE.TRANS64.RED.ACT0 URZ, [UR6], UR9",
     "USYNCS.ARRIVE.TRANS64.ACT0 URZ, [R6+UR6], UR9", "@P0 USYNCS.ARRIVE.TRANS64.ACT0 URZ, [UR6], UR9",
     "USYNCS.ARRIVE.TRANS64.ACT0 R8, [UR6], UR9", "USYNCS.ARRIVE.TRANS64.ACT0 UR9, [UR6], UR9",
     "USYNCS.PHASECHK.TRANS64 P1, [UR6], UR7", "USYNCS.PHASECHK.TRANS64 UP1, [UR6], R7", "USYNCS.CCTL [UR6]",
     "USYNCS.EXCH.64 UR8, [UR6], UR4", "USYNCS.ARRIVE.TRANS64.ART0 URZ, [UR6], URZ", "USYNCS.CCTL.IV [R6]"],
)  # fmt: skip
def test_other_forms_of_a_warp_are_refused(text: str) -> None:
    with pytest.raises(Unsupported):
        as_warps(text)
