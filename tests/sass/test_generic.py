"""Generic addresses in machine code give the bits of the PTX."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff import run_ptx
from ptxdiff.emulator import Buffer
from ptxdiff.emulator.errors import MemoryFault
from ptxdiff.sass import generic
from ptxdiff.sass.cubin import MachineCode, Parameter
from ptxdiff.sass.run import run_machine_code
from ptxdiff.sass.text import MachineFault, Unsupported
from ptxdiff.triton.targets import probe
from tests.support.sass.assembly import written
from tests.support.sass.modules import run_one

THREADS = 64
KERNEL = """
.version 8.7
.target {target}
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out) {{
  .reg .b32 t, v, w, x, y; .reg .b64 p, q, g, h, o; .reg .pred c, d;
  .shared .align 16 .b8 data[1024]; .local .align 8 .b8 own[64];
  mov.u32 t, %tid.x; mul.wide.u32 o, t, 4; ld.param.u64 p, [in]; ld.param.u64 q, [out]; add.u64 p, p, o;
  add.u64 q, q, o; add.u64 q, q, o; mov.u64 g, data; cvta.shared.u64 g, g; add.u64 g, g, o;
  and.b32 v, t, 7; mul.wide.u32 o, v, 4; mov.u64 h, own; cvta.local.u64 h, h; add.u64 h, h, o;
  ld.global.u32 v, [p]; and.b32 w, t, 3; setp.eq.u32 c, w, 1; setp.eq.u32 d, w, 2; mov.u32 x, 0; mov.u32 y, 0;
{body}
  st.global.v2.u32 [q], {{x, y}}; ret; }}
"""
LAST = (
    "mov.u64 h, data; cvta.shared.u64 h, h; st.shared.u32 [data], 0; bar.sync 0; st.u32 [g+256], v;"
    "atom{space}.acq_rel.cta.add.u32 y, {word}, 1; setp.ne.u32 d, y, 63; @d bra ENDS; ld.u32 x, [h+256]; ENDS: "
)
"""The last thread that counts reads what another has stored."""
SEEN = (
    "mov.u64 h, data; cvta.shared.u64 h, h; st.shared.u32 [data], 0; bar.sync 0; setp.lt.u32 c, t, 32; @!c bra WAITS;"
    "setp.ne.u32 d, t, 0; @d bra ENDS; st.u32 [h+512], v; red.release.cta.add.u32 [h], 7; bra ENDS;"
    "WAITS: atom.acquire.cta.add.u32 y, [h], 8; and.b32 y, y, 7; setp.ne.u32 d, y, 7; @d bra WAITS;"
    "ld.u32 x, [h+512]; ENDS: mov.u32 y, 0;"
)
"""The second warp waits for a number of the first. One lane adds for all, and each reads."""
FENCED = (
    "setp.lt.u32 c, t, 32; @!c bra WAITS; st.u32 [g+256], v; fence.acq_rel.cta; st.relaxed.cta.u32 [g], 7; bra ENDS;"
    "WAITS: mov.u32 x, 0; LOOP: ld.acquire.cta.u32 y, [g+-128]; setp.ne.u32 d, y, 7; @d bra LOOP;"
    "ld.u32 x, [g+128]; ENDS: "
)
"""The second warp waits for flags of the first, each stored behind a fence."""
FENCE = "fence.acq_rel.cta;"
ONE_WAITS = (
    "mov.u64 h, data; cvta.shared.u64 h, h; st.shared.u32 [data], 0; bar.sync 0; setp.lt.u32 c, t, 32; @!c bra WAITS;"
    f"st.u32 [g+256], v; bar.warp.sync -1; setp.ne.u32 d, t, 0; @d bra ENDS; {FENCE} st.relaxed.cta.u32 [h], 7;"
    "bra ENDS; WAITS: setp.ne.u32 d, t, 32; @d bra JOIN; LOOP: ld.acquire.cta.u32 y, [h]; setp.ne.u32 d, y, 7;"
    "@d bra LOOP; JOIN: bar.warp.sync -1; ld.u32 x, [g+128]; ENDS: mov.u32 y, 0;"
)
"""One lane stores a flag for its warp, and one of the second warp waits for it."""
BODIES = {
    "shared": "st.u32 [g], v; ld.u32 x, [g]; ld.u16 y, [g+2];",
    "local": "st.u32 [h], v; st.local.u32 [own+4], t; ld.u32 x, [h]; ld.u8 y, [h+1];",
    "of each": "st.u32 [g], t; st.u32 [h], v; selp.b64 p, g, p, c; selp.b64 p, h, p, d; ld.u32 x, [p];"
    "@!c bra ENDS; st.u32 [p], v; ENDS: ld.u32 y, [g];",
    "atomic": "st.u32 [g], v; atom.add.u32 x, [g], 5; red.max.s32 [g], t; ld.u32 y, [g];",
    "kinds": "isspacep.shared c, g; selp.u32 x, 1, 0, c; isspacep.shared c, p; selp.u32 w, 2, 0, c; add.u32 x, x, w;"
    "isspacep.local c, h; selp.u32 w, 4, 0, c; add.u32 x, x, w; isspacep.local c, g; selp.u32 w, 8, 0, c;"
    "add.u32 x, x, w;",
    "strong": "setp.lt.u32 c, t, 32; @!c bra WAITS; st.u32 [g+256], v; st.release.cta.u32 [g], 7; bra ENDS;"
    "WAITS: mov.u32 x, 0; LOOP: ld.acquire.cta.u32 y, [g+-128]; setp.ne.u32 d, y, 7; @d bra LOOP;"
    "ld.u32 x, [g+128]; ENDS: ",
    "fenced": FENCED,
    "seen": SEEN,
    "last": LAST.format(word="[h]", space=""),
    "last of shared": LAST.format(word="[data]", space=".shared"),
}  # fmt: skip
TARGETS = ("sm_80", "sm_90a", "sm_100a")


def _stored(name: str, level: str, target: str, opt: int = 3) -> np.ndarray:
    if not probe()[target].available:
        pytest.skip(f"no ptxas for {target}")
    given = np.random.default_rng(5).integers(0, 1 << 32, THREADS, np.uint32)
    out = np.zeros(2 * THREADS, np.uint32)
    texts = {n: KERNEL.format(target=target, body=body) for n, body in BODIES.items()}
    if level == "ptx":
        run_ptx(texts[name], 1, THREADS, given, out)
    else:
        run_one(texts[name], list(texts.values()), opt, 1, THREADS, given, out)
    return out


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("name", "target", "opt"),
    [*((n, t, 3) for n in BODIES for t in TARGETS), ("of each", "sm_90a", 0), ("kinds", "sm_80", 0)],
)
def test_machine_code_gives_the_bits_of_the_ptx(name: str, target: str, opt: int) -> None:
    wanted = _stored(name, "ptx", target)
    assert wanted.any()
    assert (_stored(name, "sass", target, opt) == wanted).all()


@pytest.mark.sample(3)
@pytest.mark.parametrize(("target", "opt"), [("sm_80", 3), ("sm_80", 0), ("sm_90a", 0)])
def test_one_lane_waits_for_its_warp(target: str, opt: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BODIES, "one", ONE_WAITS)
    wanted = _stored("one", "ptx", target)
    assert wanted.any()
    assert (_stored("one", "sass", target, opt) == wanted).all()
    monkeypatch.setitem(BODIES, "one", ONE_WAITS.replace(FENCE, ""))
    with pytest.raises(MachineFault, match="race"):
        _stored("one", "sass", target, opt)


@pytest.mark.parametrize("window", ["_shared", "_local"])
def test_a_planted_mistake_gives_other_bits(window: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, right = _stored("of each", "ptx", "sm_90a"), getattr(generic, window)
    planted = {n: a if a is not right else _nothing for n, a in generic._WINDOWS.items()}
    monkeypatch.setattr(generic, "_WINDOWS", planted)
    assert (_stored("of each", "sass", "sm_90a") != wanted).any()


def _nothing(machine, step, addresses, lanes, rows):
    return np.zeros((len(addresses), step.size), np.uint8)


def test_a_weak_flag_is_a_race(monkeypatch: pytest.MonkeyPatch) -> None:
    body = BODIES["strong"].replace("st.release.cta.u32 [g], 7;", "st.u32 [g], 7;")
    monkeypatch.setitem(BODIES, "strong", body)
    with pytest.raises(MachineFault, match="race"):
        _stored("strong", "sass", "sm_90a")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "body",
    [
        FENCED.replace(FENCE, ""),
        FENCED.replace(f"st.u32 [g+256], v; {FENCE}", f"{FENCE} st.u32 [g+256], v;"),  # too early
        FENCED.replace(FENCE, "").replace("[g], 7;", f"[g], 7; {FENCE}"),  # too late
        # What is stored between two flags, of which only the first has a fence.
        FENCED.replace("bra ENDS;WAITS", "st.u32 [g+256], t; st.relaxed.cta.u32 [g], 8; bra ENDS;WAITS").replace(
            "y, 7; @d", "y, 8; @d"
        ),
    ],
    ids=["none", "too early", "too late", "between two"],
)
@pytest.mark.parametrize("level", ["ptx", "sass"])
def test_a_strong_flag_without_a_fence_before_it_is_a_race(body: str, level: str, monkeypatch) -> None:
    monkeypatch.setitem(BODIES, "fenced", body)
    with pytest.raises(MachineFault if level == "sass" else MemoryFault, match="race"):
        _stored("fenced", level, "sm_90a")


READS = {
    "relaxed": "ld.relaxed.gpu.u32 y, [g+-128];",
    "volatile": "ld.volatile.u32 y, [g+-128];",
    "fence before": "fence.acq_rel.gpu; ld.relaxed.gpu.u32 y, [g+-128];",
    "update": "atom.relaxed.gpu.or.b32 y, [g+-128], 0;",
    "acquire": "ld.acquire.gpu.u32 y, [g+-128];",
    "acquire of the system": "ld.acquire.sys.u32 y, [g+-128];",
    "fence": "ld.relaxed.gpu.u32 y, [g+-128]; fence.acq_rel.gpu;",
    "fence of the block": "ld.relaxed.gpu.u32 y, [g+-128]; fence.acq_rel.cta;",
    "volatile and fence": "ld.volatile.u32 y, [g+-128]; fence.sc.cta;",
    "update that acquires": "atom.acquire.gpu.or.b32 y, [g+-128], 0;",
    "update and fence": "atom.relaxed.gpu.or.b32 y, [g+-128], 0; fence.acq_rel.gpu;",
}
"""How the second warp reads the flags of the first: the first four are races."""
LATE = {
    "late fence": "ld.u32 x, [g+128]; fence.acq_rel.gpu;",
    "fence": "fence.acq_rel.gpu; ld.u32 x, [g+128];",
}
"""Behind a loop of relaxed loads: only the fence before the data orders them."""


def _waiting(read: str, data: str = "ld.u32 x, [g+128];") -> str:
    body = FENCED.replace("st.relaxed.cta", "st.relaxed.gpu").replace("ld.u32 x, [g+128];", data)
    return body.replace("ld.acquire.cta.u32 y, [g+-128];", read)


@pytest.mark.sample(8)
@pytest.mark.parametrize("opt", [0, 3])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("name", "body", "races"),
    [
        *((n, _waiting(read), number < 4) for number, (n, read) in enumerate(READS.items())),
        *((n, _waiting(READS["relaxed"], data), n != "fence") for n, data in LATE.items()),
    ],
)
def test_a_strong_load_orders_as_in_ptx(name: str, body: str, races: bool, target: str, opt: int, monkeypatch) -> None:
    bodies = {n: _waiting(read) for n, read in READS.items()} | {f"{n}, late": _waiting(READS["relaxed"], d)
              for n, d in LATE.items()}  # fmt: skip
    monkeypatch.setattr("tests.sass.test_generic.BODIES", {**bodies, "this": body})
    if races:
        for level, error in (("ptx", MemoryFault), ("sass", MachineFault)):
            with pytest.raises(error, match="race"):
                _stored("this", level, target, opt)
        return
    wanted = _stored("this", "ptx", target)
    assert wanted.any()
    assert (_stored("this", "sass", target, opt) == wanted).all()


@pytest.mark.sample(4)
@pytest.mark.parametrize("after", ["", "fence.acq_rel.cta;"])
@pytest.mark.parametrize("name", ["last", "last of shared"])
def test_a_count_without_a_memory_barrier_before_it_is_a_race(name: str, after: str, monkeypatch) -> None:
    monkeypatch.setitem(BODIES, name, BODIES[name].replace("acq_rel", "relaxed") + after)
    with pytest.raises(MachineFault, match="race"):
        _stored(name, "sass", "sm_90a")


@pytest.mark.parametrize("text", [
    "QSPC.E.S P0, R1, [R2]", "QSPC.S P0, RZ, [R2]", "QSPC.E.C P0, RZ, [R2]", "QSPC.E.S P0, RZ, [R3]",
    "QSPC.E.S UP0, RZ, [R2]", "S2R R1, SR_LWINHI", "CS2R R2, SR_SWINHI", "LD.E.FOO R1, [R2]",
    "ATOM.E.ADD.F32.FTZ.RN.WEAK.GPU PT, R1, [R2], R4",
])  # fmt: skip
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(Unsupported):
        _run(f"{text}\nEXIT")


@pytest.mark.parametrize("text", ["ST.E [R2.64], R4", "LD.E R4, [R2.64+0x100]"])
def test_parameters_are_read_alone_and_within_their_bounds(text: str) -> None:
    with pytest.raises(MachineFault, match="parameters"):
        _run(f"MOV R2, 0x10\nMOV R3, 0x800000\n{text}\nEXIT")


def test_an_atomic_update_of_local_memory_is_refused() -> None:
    with pytest.raises(Unsupported, match="memory"):
        _run("MOV R2, 0xfffd80\nMOV R3, 0x2000000\nATOM.E.ADD.STRONG.GPU PT, R1, [R2], R4\nEXIT")


def _run(body: str) -> None:
    buffer = Buffer(np.zeros(4, np.uint32), "out", defined=False)
    run_machine_code(
        MachineCode("kernel", "sm_90", written(body), (Parameter(0, 8),), 0x210, {}, 0, 0), [buffer], (1,), 32
    )
