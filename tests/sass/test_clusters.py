"""Blocks of a cluster in machine code give the bits of the PTX."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ptxdiff import run_ptx
from ptxdiff.emulator import Buffer
from ptxdiff.emulator.errors import MemoryFault
from ptxdiff.sass import clusters
from ptxdiff.sass.cubin import MachineCode, Parameter
from ptxdiff.sass.run import run_machine_code
from ptxdiff.sass.text import MachineFault, Unsupported
from ptxdiff.sass.trace import followed
from ptxdiff.triton.targets import probe
from tests.support.sass.assembly import written
from tests.support.sass.modules import run_one, together

SIZE, BLOCKS, THREADS = 4, 8, 64
TEXT = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in) .reqnctapercluster {size} {{
.reg .b16 m; .reg .b32 t, rank, own, far, b, bar, farbar, v, w, x, y, n; .reg .b64 p, q; .reg .pred first, done;
.shared .align 16 .b8 data[1024]; .shared .align 8 .b64 barrier;
mov.u32 t, %tid.x; mov.u32 rank, %cluster_ctarank; mov.u32 own, data; shl.b32 v, t, 2; add.u32 own, own, v;
mad.lo.u32 w, rank, 1000, t; st.shared.u32 [own], w; st.shared.u32 [own+512], 0;
mov.u32 bar, barrier; setp.eq.u32 first, t, 0;
add.u32 n, rank, 1; and.b32 n, n, 3; mapa.shared::cluster.u32 far, own, n; mapa.shared::cluster.u32 farbar, bar, n;
mov.u32 x, 0; mov.u32 y, 0; mov.b16 m, 15;
{body}
mov.u32 v, %ctaid.x; mad.lo.u32 v, v, 64, t; mul.wide.u32 q, v, 8; ld.param.u64 p, [out]; add.u64 p, p, q;
st.global.v2.u32 [p], {{x, y}};
ret;
}}
"""
SYNC = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
RELAXED = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;"
INIT = "@first mbarrier.init.shared.b64 [bar], {count}; @first fence.mbarrier_init.release.cluster;"
WAIT = """
L: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [bar], 0; @!done bra L;
"""
BODIES = {
    "loads": f"{SYNC} ld.shared::cluster.u32 x, [far]; getctarank.shared::cluster.u32 y, far; {SYNC}",
    "stores": f"{SYNC} st.shared::cluster.u32 [far+256], w; {SYNC} ld.shared.u32 x, [own+256];",
    "wide": f"{SYNC} shl.b32 v, t, 2; add.u32 far, far, v; st.shared::cluster.v2.u32 [far], {{w, t}}; {SYNC}"
    "add.u32 v, own, v; ld.shared.v2.u32 {x, y}, [v];",
    "atomics": f"{SYNC} atom.shared::cluster.add.u32 x, [far+512], w; red.shared::cluster.add.u32 [far+512], 5; {SYNC}"
    " ld.shared.u32 y, [own+512];",
    "generic": f"{SYNC} cvt.u64.u32 p, far; cvta.shared::cluster.u64 p, p; ld.u32 x, [p]; {SYNC}",
    "arrivals": INIT.format(count=1) + f"{SYNC} st.shared::cluster.u32 [far+512], w; barrier.sync 0;"
    "@first mbarrier.arrive.release.cluster.shared::cluster.b64 _, [farbar];" + WAIT
    + f"ld.shared.u32 x, [own+512]; {SYNC}",
    "arriving stores": INIT.format(count=1) + "@first mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;"
    f"{SYNC} st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [far+512], w, [farbar];" + WAIT
    + f"ld.shared.u32 x, [own+512]; {SYNC}",
    "barriers": f"{SYNC} ld.shared::cluster.u32 x, [far]; {SYNC} st.shared.u32 [own], x; setp.lt.u32 done, t, 32;"
    f"@done bar.sync 1, 64; @!done bar.arrive 1, 64; xor.b32 v, t, 63; shl.b32 v, v, 2; mov.u32 own, data;"
    f"add.u32 own, own, v; @done ld.shared.u32 x, [own]; {SYNC}",
    "bulk": INIT.format(count=1) + "@first mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256; fence.proxy.async;"
    f"{SYNC} @first cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [far+512], [own], 256,"
    "[farbar];" + WAIT + f"ld.shared.u32 x, [own+512]; {SYNC}",
    "bulk from global": INIT.format(count=1) + "@first mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;"
    "fence.proxy.async; ld.param.u64 p, [in]; shl.b32 v, rank, 8; cvt.u64.u32 q, v; add.u64 p, p, q;"
    f"{SYNC} @first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [far], [p], 256, [farbar];" + WAIT
    + f"ld.shared.u32 x, [own]; {SYNC}",
    "several": INIT.format(count=1) + "@first mbarrier.arrive.expect_tx.shared.b64 _, [bar], 512; fence.proxy.async;"
    "ld.param.u64 p, [in]; shl.b32 v, rank, 8; cvt.u64.u32 q, v; add.u64 p, p, q; shr.u32 v, rank, 1; setp.eq.u32 done,"
    "v, 0; and.pred first, first, done; mov.u32 v, data; add.u32 v, v, rank; mad.lo.u32 v, rank, 255, v;"
    f"{SYNC} @first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [v], [p],"
    "256, [bar], m;" + WAIT + f"ld.shared.u32 x, [own]; ld.shared.u32 y, [own+256]; {SYNC}",
    "strong": f"{SYNC} st.release.cluster.shared::cluster.u32 [far+512], 7;"
    "POLL: ld.acquire.cluster.shared::cluster.u32 y, [own+512]; setp.ne.u32 done, y, 7; @done bra POLL;"
    f"ld.volatile.shared::cluster.u32 x, [far]; {SYNC}",
    "relaxed": f"{RELAXED} {SYNC} ld.shared::cluster.u32 x, [far]; {SYNC}",
}  # fmt: skip


def cluster_run(name: str, level: str, body: str = "", **options: object) -> np.ndarray:
    """Two words of each thread of two clusters of four blocks."""
    target = str(options.pop("target", "sm_90a"))
    if not probe()[target].available:
        pytest.skip(f"no ptxas for {target}")
    out = np.zeros(2 * BLOCKS * THREADS, np.uint32)
    texts = {
        n: TEXT.format(body=b, size=SIZE).replace(".target sm_90a", f".target {target}") for n, b in BODIES.items()
    }
    text = TEXT.format(body=body, size=SIZE).replace(".target sm_90a", f".target {target}") if body else texts[name]
    given = np.arange(1000, 1000 + SIZE * THREADS, dtype=np.uint32)
    if level == "sass":
        bodies = [b for b, _ in WRONG] if body in [b for b, _ in WRONG] else [] if body else BODIES.values()
        others = [TEXT.format(body=b, size=SIZE).replace(".target sm_90a", f".target {target}") for b in bodies]
        run_one(text, others, int(str(options.get("opt", 3))), BLOCKS, THREADS, out, given)
        return out
    run_ptx(text, BLOCKS, THREADS, out, given, level=level, target=target, **options)  # type: ignore[arg-type]
    return out


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("name", "target", "opt"),
    [*((n, "sm_90a", 3) for n in BODIES), ("arrivals", "sm_90a", 0), ("arriving stores", "sm_100a", 3)],
)
def test_machine_code_gives_the_bits_of_the_ptx(name: str, target: str, opt: int) -> None:
    wanted = cluster_run(name, "ptx")
    assert len(np.unique(wanted)) >= SIZE * THREADS // 2
    assert (cluster_run(name, "sass", target=target, opt=opt) == wanted).all()


REGISTERS = "mov.u32 x, %cluster_nctarank; mov.u32 y, %clusterid.x; shl.b32 y, y, 8; mov.u32 v, %cluster_ctaid.x;"
REGISTERS += "add.u32 y, y, v; shl.b32 x, x, 8; mov.u32 v, %nclusterid.x; add.u32 x, x, v; shl.b32 x, x, 8;"
REGISTERS += "mov.u32 v, %cluster_nctaid.x; add.u32 x, x, v;"


@pytest.mark.slow
def test_special_registers_of_clusters() -> None:
    found = cluster_run("", "sass", REGISTERS).reshape(BLOCKS, THREADS, 2)
    assert (found == cluster_run("", "ptx", REGISTERS).reshape(found.shape)).all()
    assert found[:, 0, 1].tolist() == [b // SIZE << 8 | b % SIZE for b in range(BLOCKS)]


@pytest.mark.slow
def test_a_launch_can_state_the_clusters() -> None:
    out, wanted = np.zeros((2, 2 * BLOCKS * THREADS), np.uint32)
    text = TEXT.format(body=BODIES["loads"], size=SIZE).replace(f".reqnctapercluster {SIZE}", "")
    given = np.zeros(1, np.uint32)
    run_ptx(text, BLOCKS, THREADS, wanted, given, target="sm_90a", cluster=SIZE)
    run_ptx(text, BLOCKS, THREADS, out, given, level="sass", target="sm_90a", cluster=SIZE)
    assert (out == wanted).all()
    assert len(np.unique(out)) > SIZE


def _own_memory(self, instruction, addresses, size, lanes, low=None, *, reaches=False):
    return RIGHT(self, instruction, addresses & clusters._BELOW | self.rank[lanes] << clusters.RANK_BITS, size, lanes)


RIGHT = clusters.ClusterBlocks.places


def test_a_planted_mistake_gives_other_bits(monkeypatch) -> None:
    wanted = cluster_run("loads", "ptx")
    monkeypatch.setattr(clusters.ClusterBlocks, "places", _own_memory)
    assert (cluster_run("loads", "sass") != wanted).any()


def test_a_copy_that_reaches_one_block_only_leaves_the_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters.ClusterBlocks, "near", lambda self, instruction, address, lane, ranks: [address])
    with pytest.raises(MachineFault, match="deadlock"):
        cluster_run("several", "sass")


def test_strong_accesses_that_order_nobody_race(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag orders what was stored before it."""
    body = f"{SYNC} st.shared::cluster.u32 [far+256], w; st.release.cluster.shared::cluster.u32 [far+512], 7; POLL:"
    body += "ld.acquire.cluster.shared::cluster.u32 y, [own+512]; setp.ne.u32 done, y, 7; @done bra POLL;"
    body += f"ld.shared.u32 x, [own+256]; {SYNC}"
    assert (cluster_run("", "sass", body) == cluster_run("", "ptx", body)).all()
    monkeypatch.setattr(clusters.ClusterBlocks, "acquire", lambda self, instruction, places, lanes: None)
    with pytest.raises(MachineFault, match="race"):
        cluster_run("", "sass", body)


FLAG = (
    f"{SYNC} st.shared::cluster.u32 [far+256], w; {{release}} st.relaxed.{{to}}.shared::cluster.u32 [far+512], 7; POLL:"
    "ld.relaxed.{of}.shared::cluster.u32 y, [own+512]; setp.ne.u32 done, y, 7; @done bra POLL; {acquire}"
    f"ld.shared.u32 x, [own+256]; {SYNC}"
)
SCOPES = [
    ("cluster", "cluster", "cluster", "cluster", False),
    ("gpu", "gpu", "cluster", "sys", False),
    ("cta", "cluster", "cluster", "cluster", True),
    ("cluster", "cta", "cluster", "cluster", True),
    ("cluster", "cluster", "cta", "cluster", True),
    ("cluster", "cluster", "cluster", "cta", True),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("release", "to", "of", "acquire", "races"), SCOPES)
def test_scopes_of_one_block_order_no_other_block(release: str, to: str, of: str, acquire: str, races: bool) -> None:
    fences = {"release": f"fence.acq_rel.{release};", "acquire": f"fence.acq_rel.{acquire};"}
    body = FLAG.format(to=to, of=of, **fences)
    if races:
        for level, error in (("ptx", MemoryFault), ("sass", MachineFault)):
            with pytest.raises(error, match="race"):
                cluster_run("", level, body)
        return
    assert (cluster_run("", "sass", body) == cluster_run("", "ptx", body)).all()


WRONG = [
    ("mov.b16 m, 16;" + BODIES["several"], "mask"),
    (BODIES["bulk"].replace("[farbar]", "[bar]"), "another block than their mbarrier"),
    (f"ld.shared::cluster.u32 x, [far]; {SYNC}", "may not have begun"),
    (f"{SYNC} st.shared::cluster.u32 [far], t; ld.shared.u32 x, [own]; {SYNC}", "race"),
    (f"{SYNC} setp.eq.u32 done, rank, 1; @done ret; {SYNC} ld.shared::cluster.u32 x, [far];", "has ended"),
    ("barrier.cluster.arrive.aligned; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;", "twice"),
    ("barrier.cluster.wait.aligned;", "not arrived"),
    (f"{INIT.format(count=2)} {SYNC} {WAIT} {SYNC}", "deadlock"),
]


@pytest.mark.parametrize(("body", "words"), WRONG)
def test_what_is_wrong_is_a_fault(body: str, words: str) -> None:
    with pytest.raises(MachineFault, match=words):
        cluster_run("", "sass", body)


def test_blocks_that_have_ended_are_not_waited_for() -> None:
    body = f"{SYNC} setp.eq.u32 done, rank, 1; @done ret; {SYNC} mov.u32 x, 7;"
    found = cluster_run("", "sass", body)
    assert (found == cluster_run("", "ptx", body)).all()
    assert set(found.tolist()) == {0, 7}


PLACE = "mov.u32 v, %ctaid.z; shl.b32 x, v, 8; mov.u32 v, %ctaid.y; add.u32 x, x, v; shl.b32 x, x, 8;"
PLACE += (
    "mov.u32 v, %ctaid.x; add.u32 x, x, v; mov.u32 v, %nclusterid.y; shl.b32 y, v, 8; mov.u32 v, %cluster_nctaid.z;"
)
PLACE += f"add.u32 y, y, v; {SYNC} ld.shared::cluster.u32 v, [far]; mad.lo.u32 y, v, 65536, y; {SYNC}"


def _placed(level: str, size: str, grid: tuple[int, int, int], target: str = "sm_90a") -> np.ndarray:
    """Two words of each thread, by the rank of its block: its place, and what another block of its cluster holds."""
    out = np.zeros(2 * 8 * THREADS, np.uint32)
    text = TEXT.replace("mov.u32 v, %ctaid.x; mad", "{number} mad")
    number = (
        "mov.u32 v, %ctaid.x; mov.u32 w, %nctaid.x; mov.u32 n, %ctaid.y; mad.lo.u32 v, n, w, v; mov.u32 n, %nctaid.y;"
    )
    number += "mov.u32 n, %nctaid.y; mul.lo.u32 w, w, n; mov.u32 n, %ctaid.z; mad.lo.u32 v, n, w, v;"
    text = text.format(body=PLACE, size=size, number=number)
    run_ptx(text, grid, THREADS, out, np.zeros(1, np.uint32), level=level, target=target)
    return out


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("size", "grid"), [("2, 2, 1", (4, 2, 1)), ("1, 4", (1, 8, 1)), ("1, 2, 2", (1, 4, 2)), ("1, 1, 4", (2, 1, 4))]
)
def test_clusters_along_other_axes(size: str, grid: tuple[int, int, int]) -> None:
    wanted = _placed("ptx", size, grid)
    assert len(np.unique(wanted)) > SIZE * THREADS
    assert (_placed("sass", size, grid) == wanted).all()


def test_planted_axes_give_other_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = _placed("ptx", "1, 4", (1, 8, 1))
    monkeypatch.setattr(clusters, "_AXES", dict.fromkeys(clusters._AXES, 0))
    assert (_placed("sass", "1, 4", (1, 8, 1)) != wanted).any()


NUMBERS = ("nctaid.x", "nctaid.y", "nctaid.z", "ctaid.x", "ctaid.y", "ctaid.z", "ctarank", "nctarank")
"""Special registers of clusters."""
ALL_NUMBERS = """
.version 9.0
.target {target}
.address_size 64
.visible .entry k(.param .u64 out) .explicitcluster {{
.reg .b32 t, b, n, w, v; .reg .b64 o, q;
ld.param.u64 o, [out]; mov.u32 t, %tid.x; mov.u32 b, %ctaid.x; mov.u32 w, %nctaid.x;
mov.u32 n, %ctaid.y; mad.lo.u32 b, n, w, b; mov.u32 v, %nctaid.y; mul.lo.u32 w, w, v; mov.u32 n, %ctaid.z;
mad.lo.u32 b, n, w, b; mad.lo.u32 t, b, 32, t; mul.wide.u32 q, t, 32; add.u64 o, o, q;
{body}
ret; }}
"""


def numbers(level: str, target: str, size: tuple[int, int, int], grid: tuple[int, int, int]) -> np.ndarray:
    """What each thread reads of the special registers."""
    if not probe()[target].available:
        pytest.skip(f"no ptxas for {target}")
    body = "\n".join(f"mov.u32 v, %cluster_{n}; st.global.u32 [o+{4 * k}], v;" for k, n in enumerate(NUMBERS))
    out = np.zeros((int(np.prod(grid)) * 32, 8), np.uint32)
    text = ALL_NUMBERS.format(target=target, body=body)
    run_ptx(text, grid, 32, out, level=level, target=target, cluster=size)
    return out


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_120a"])
@pytest.mark.parametrize(("size", "grid"), [((2, 1, 1), (4, 2, 1)), ((1, 4, 2), (3, 8, 2))])
def test_the_numbers_of_a_cluster(target: str, size: tuple[int, int, int], grid: tuple[int, int, int]) -> None:
    wanted = numbers("ptx", target, size, grid)
    assert wanted[0, :3].tolist() == list(size)
    np.testing.assert_array_equal(numbers("sass", target, size, grid), wanted)


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_how_the_driver_rounds_a_reciprocal_is_not_known(target: str) -> None:
    with pytest.raises(Unsupported, match="not known"):
        numbers("sass", target, (1, 3, 1), (1, 6, 1))


@pytest.mark.parametrize("read", ["S2R R5, SR_CgaSize", "CS2R.32 R5, SR_CgaSize", "S2UR UR4, SR_CgaSize\nMOV R5, UR4"])
def test_the_number_that_tells_where_they_lie_is_opaque(read: str) -> None:
    body = "S2R R0, SR_TID.X\nMOV R1, 0x4\nIMAD.WIDE.U32 R2, R0, R1, c[0x0][0x380]\n{}STG.E [R2.64], R5\nEXIT"
    output = np.zeros(32, np.uint32)
    values = [Buffer(output, "out", defined=False)]

    def stored(more: str) -> np.ndarray:
        code = MachineCode(
            "kernel", "sm_100a", written(body.format(f"{read}\n{more}")), (Parameter(0, 8),), 0x380, {}, 0, 0
        )
        run_machine_code(code, values, (2,), 32, cluster=(2, 1, 1))
        return output

    with pytest.raises(Unsupported, match=r"SR_CgaSize.*not known"):
        stored("")
    assert (stored("IMAD R5, R5, -0xa0, RZ\nLDC R5, c[0x0][R5+0x2cc]\n") == 2).all()
    with pytest.raises(Unsupported, match="driver"):
        stored("IMAD R5, R5, -0xa0, RZ\nLDC R5, c[0x0][R5+0x2d0]\n")


def test_a_place_read_in_another_form_is_refused_in_a_cluster() -> None:
    with pytest.raises(Unsupported, match="in a cluster"):
        _run("CS2R R2, SR_CTAID.X\nEXIT", (1, 1, 1))


@pytest.mark.parametrize(
    "text", ["STAS.FOO [R2.64], R0", "STAS [R2], R0", "STAS [R3.64], R0", "STAS.64 [R2.64], R1",
             "STAS [R2.64+0x10], R0", "UCGABAR_FOO", "UBLKCP.S.S [UR4], [UR4], UR8", "S2R R1, SR_CgaSize",
             "UCGABAR_ARV.FOO"]
)  # fmt: skip
@pytest.mark.parametrize("cluster", [None, (1, 1, 1)])
def test_other_forms_are_refused(text: str, cluster: tuple[int, int, int] | None) -> None:
    with pytest.raises(Unsupported):
        _run(f"{text}\nEXIT", cluster)


@pytest.mark.parametrize("text", ["UCGABAR_ARV", "UCGABAR_WAIT", "STAS [R2.64], R0"])
def test_without_clusters_their_instructions_are_refused(text: str) -> None:
    with pytest.raises(Unsupported):
        _run(f"{text}\nEXIT", None)


def test_a_part_of_a_warp_at_the_barrier_is_refused() -> None:
    body = "S2R R0, SR_TID.X\nISETP.GE.AND P0, PT, R0, 0x10, PT\nBSSY B0, `(.L_x_2)\n@P0 BRA `(.L_x_1)\nUCGABAR_ARV\n"
    body += ".L_x_1:\nUCGABAR_ARV\n.L_x_2:\nBSYNC B0\nEXIT"
    with pytest.raises(Unsupported, match="UCGABAR_ARV"):
        _run(body, (1, 1, 1))


def _run(body: str, cluster: tuple[int, int, int] | None) -> None:
    run_machine_code(_code(body), [], (1,), 32, cluster=cluster)


def _code(body: str) -> MachineCode:
    return MachineCode("kernel", "sm_90", written(body), (), 0x210, {}, 0, 0)


def test_a_kernel_in_clusters_runs_in_one_schedule_after_the_other() -> None:
    from ptxdiff.sass.run import run_schedules

    code = dataclasses.replace(_code("EXIT"), cluster=(2, 1, 1))
    with pytest.raises(Unsupported, match="cluster"):
        run_schedules(code, [], 1, 32)
    with pytest.raises(Unsupported, match="not made of clusters"):
        run_machine_code(code, [], (3,), 32)


@pytest.mark.parametrize("thread", [0, 5 * THREADS + 7])
def test_a_thread_of_a_cluster_is_followed(thread: int) -> None:
    """It loads what the next block of its cluster stored: the number of that block's rank and of the thread."""
    text = TEXT.format(body=BODIES["loads"], size=SIZE)
    out, given = np.zeros(2 * BLOCKS * THREADS, np.uint32), np.zeros(SIZE * THREADS, np.uint32)
    buffers = [Buffer(out, "out"), Buffer(given, "in")]
    code = together((text,), 3)[text]
    trace = followed(code, buffers, (BLOCKS,), THREADS, thread)
    assert not out.any()
    block, number = divmod(thread, THREADS)
    wanted = (block + 1) % SIZE * 1000 + number
    assert any(wanted in step.writes.values() for step in trace if step.instruction.opcode == "LD")
    assert trace[-1].instruction.opcode == "EXIT"
    run_machine_code(code, buffers, (BLOCKS,), THREADS)
    assert out.reshape(-1, 2)[thread, 0] == wanted
