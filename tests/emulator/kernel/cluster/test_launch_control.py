"""clusterlaunchcontrol: a persistent kernel does each tile exactly once; mistakes are named, or give other bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ptxdiff.emulator import isa
from ptxdiff.emulator.errors import ExecutionError, MemoryFault, OperandError, PtxError, UnsupportedOnTarget
from ptxdiff.emulator.isa.forms import find
from ptxdiff.emulator.kernel.grid import Launches
from ptxdiff.emulator.kernel.run import Buffer, load_kernel, run_kernel
from ptxdiff.emulator.kernel.trace.thread import Launched, followed, storing_thread
from ptxdiff.emulator.targets import Target
from tests.support.emulator.launch_kernels import (  # fmt: skip
    AGAIN,
    ASK,
    FIRST,
    IN_CLUSTERS,
    LEAVE,
    LOOP,
    MEET,
    MULTICAST,
    READ,
    REQUEST,
    THREADS,
    WAIT,
    WORK,
    run,
    text,
)
from tests.support.emulator.legality import errors_of_ptxas, needs


@pytest.mark.sample(3)
@pytest.mark.parametrize("grid", [(1,), (2,), (5,), (64,), (1000,), (3, 4), (3, 2, 5)])
def test_every_tile_is_done_once(grid: tuple[int, ...]) -> None:
    """Without clusters, in one, two and three dimensions."""
    counts, who = run(text(LOOP), grid)
    assert (counts == 1).all()
    total = len(counts)
    own = np.arange(total)[:, None]
    if total > 1:
        assert (who != own).any(), "blocks did the work of others"
    assert len(np.unique(who)) <= -(-total // 4) + 1, "and none of these was launched"


def test_a_block_goes_on_several_times() -> None:
    """Two blocks of eight begin, and do three more each: both phases of the mbarrier are met."""
    _, who = run(text(LOOP), (8,))
    np.testing.assert_array_equal(np.bincount(who[:, 0]), [4, 4])


@pytest.mark.parametrize(("grid", "cluster"), [((8,), "2"), ((24,), "4"), ((2,), "2"), ((4, 3), "2"), ((40,), "8")])
def test_clusters_do_the_work_of_clusters(grid: tuple[int, ...], cluster: str) -> None:
    """The first block of a cluster requests for all of them, and each gets the response."""
    counts, _ = run(text(IN_CLUSTERS, cluster), grid)
    assert (counts == 1).all()


def test_a_block_that_cancels_one_other() -> None:
    """Blocks that nobody cancels are launched later: each block requests once, and stores whether it was launched."""
    loop = [REQUEST, WORK, WAIT, READ, ASK, LEAVE, FIRST, WORK, "bra done;"]
    counts, who = run(text(loop), (8,))
    assert (counts == 1).all()
    assert len(np.unique(who)) == 4


def test_blocks_that_were_cancelled_do_not_run() -> None:
    out = np.zeros((16, THREADS, 2), np.uint32)
    ran = run_kernel(text(LOOP), [Buffer(out, "out")], (16,))
    assert ran.blocks == 4 == len(np.unique(out[..., 1]))


def test_single_coordinates_and_generic_addresses() -> None:
    parts = "".join(
        f"clusterlaunchcontrol.query_cancel.get_first_ctaid::{axis}.b32.b128 %{axis}, %q;\n" for axis in "xyz"
    )
    generic = """cvta.shared.u64 %rd5, response; cvta.shared.u64 %rd6, bar;
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
    @%first clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes.b128 [%rd5], [%rd6];"""
    read = "ld.shared.v2.b64 {%rd7, %rd8}, [response]; mov.b128 %q, {%rd7, %rd8};"
    counts, _ = run(text([generic, WORK, WAIT, read, ASK, LEAVE, parts, AGAIN, MEET]), (3, 2, 4))
    assert (counts == 1).all()


def test_requests_take_the_last_and_the_first() -> None:
    """No order is promised; blocks that communicate through atomics get the first, for which others may wait."""
    left = Launches(8, False)
    waves = left.waves(100)
    assert next(waves) == (0, 2)
    assert [left.cancel() for _ in range(4)] == [7, 2, 6, 3]
    assert next(waves) == (4, 2)
    assert left.cancel() is None
    assert next(waves, None) is None
    ordered = Launches(8, True)
    assert next(ordered.waves(1)) == (0, 1)
    assert [ordered.cancel() for _ in range(8)] == [1, 2, 3, 4, 5, 6, 7, None]


def test_two_requests_at_a_time() -> None:
    """The second is issued before the first has been seen: both may fail, and no request follows a failure."""
    second = """mov.b32 %r11, response; add.u32 %r11, %r11, 16; mov.b32 %r12, bar; add.u32 %r12, %r12, 8;"""
    request = REQUEST.replace("[bar]", "[%r12]").replace("[response]", "[%r11]")
    make = "@%first mbarrier.init.shared::cta.b64 [bar+8], 1; bar.sync 0;"
    wait = WAIT.replace("W", "V").replace("[bar]", "[bar+8]")
    read = READ.replace("response", "response+16")
    once = [make, second, REQUEST, request, WORK, WAIT, READ, ASK, "@!%p3 bra other;", FIRST, WORK, "other:"]
    once += [wait, read, ASK, LEAVE, FIRST, WORK, "bra done;"]
    kernel = text(once).replace(".b64 bar;", ".b64 bar[2];").replace("response[16]", "response[32]")
    counts, _ = run(kernel, (9,))
    assert (counts == 1).all()


# planted mistakes in kernels --------------------------------------------------------------------------------------


def changed(old: str, new: str, grid: tuple[int, ...] = (8,), loop: list[str] | None = None) -> np.ndarray:
    whole = text(loop or LOOP)
    assert old in whole
    return run(whole.replace(old, new), grid)[0]


@pytest.mark.parametrize(
    ("old", "new", "kind", "words"),
    [
        (WAIT, "", MemoryFault, "reads shared memory .* to which the bulk copy .* is under way .* a wait for the mbar"),
        (MEET, "", MemoryFault, "race: .* copies to shared memory at offset 16, which another thread read or wrote"),
        (AGAIN, "", MemoryFault, "to which the bulk copy .* is under way"),
        ("_, [bar], 16", "_, [bar], 32", ExecutionError, "deadlock: .* lacks 16 bytes"),
        (".expect_tx.shared::cta.b64 _, [bar], 16", ".shared::cta.b64 _, [bar]", MemoryFault, "is under way"),
        (LEAVE, "", ExecutionError, "its block has seen a request fail"),
        ("@%first clusterlaunch", "clusterlaunch", MemoryFault, "to which the bulk copy .* is under way"),
        (LEAVE, "@%p3 bra on; mov.u32 %x, 0; on:", ExecutionError, "its block has seen a request fail"),
        (READ, "mov.b128 %q, {%rd1, %rd1};", ExecutionError, "16 bytes that no clusterlaunchcontrol.try_cancel"),
        (FIRST, "ld.shared.b32 %x, [response];", MemoryFault, "out of bounds"),
        ("@%first clusterlaunch", "@%first st.shared.b32 [response], %t; @%first clusterlaunch", MemoryFault,
         "copies to shared memory .* which a thread wrote, and no fence.proxy.async"),
    ],
    ids=["wait", "barrier", "phase", "bytes", "expect", "test", "one thread", "after failure", "other bits", "raw",
         "proxy"],
)  # fmt: skip
def test_mistakes_are_reported(old: str, new: str, kind: type[PtxError], words: str) -> None:
    with pytest.raises(kind, match=words):
        changed(old, new)
    assert (changed(WORK, WORK) == 1).all()


@pytest.mark.parametrize("loop", [[REQUEST, WORK, WAIT, "bra done;"], [REQUEST, WORK, "bra done;"]])
def test_a_response_that_nobody_queries_is_reported(loop: list[str]) -> None:
    """Each block does its own tile alone, and the tiles that it has cancelled are done by nobody."""
    words = r"thread 0 of block \(0, 0, 0\) has cancelled the launch of the cluster of block \(7, 0, 0\), and no thread"
    with pytest.raises(ExecutionError, match=words):
        run(text(loop), (8,))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (FIRST, "add.u32 %x, %x, 1;"),
        (FIRST, "add.u32 %x, %x, 2;"),
        (FIRST, FIRST.replace("{%x, %y, %z, _}", "{%x, %y, _, _}")),
        (FIRST, FIRST.replace("{%x, %y, %z, _}", "{%y, %x, %z, _}")),
        (LEAVE, LEAVE + WORK),
        (FIRST, "bra done;"),
    ],
    ids=["the next", "a static stride", "z is missing", "x and y exchanged", "twice", "never"],
)
def test_tiles_that_are_done_twice_or_never_give_other_bits(old: str, new: str) -> None:
    try:
        counts = changed(old, new, (2, 3, 4))
    except MemoryFault as error:
        assert "out of bounds" in str(error) or "race" in str(error)  # noqa: PT017  both find the mistake
        return
    assert (counts != 1).any()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("fence.mbarrier_init.release.cluster; barrier.cluster.arrive.relaxed; barrier.cluster.wait;", "", "begun"),
        ("@%leader clusterlaunch", "@%first clusterlaunch", "under way"),
        ("add.u32 %x, %x, %r2;", "", "race|out of bounds|differs"),
        ("multicast::cluster::all.", "", "deadlock"),
    ],
    ids=["barrier of the cluster", "every block requests", "the own place", "one block's response"],
)
def test_mistakes_in_clusters(old: str, new: str, words: str) -> None:
    whole = text(IN_CLUSTERS, "2")
    assert old in whole
    try:
        counts, _ = run(whole.replace(old, new), (16,))
    except PtxError as error:
        assert any(word in str(error) for word in words.split("|")), error  # noqa: PT017  both find the mistake
        return
    assert (counts != 1).any()


# planted mistakes in the emulator ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cancel",
    [
        lambda self: None if self.next == self.end else self.end - 1,
        lambda self: None if self.next == self.end else self.next,
        lambda self: None if self.next == self.end else setattr(self, "end", self.end - 1),
    ],
    ids=["the last runs again", "the first runs again", "a cluster is lost"],
)
def test_blocks_that_run_twice_or_never_are_seen(
    cancel: Callable[[Launches], int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Launches, "cancel", cancel)
    loop = [REQUEST, WORK, WAIT, READ, ASK, LEAVE, FIRST, WORK, "bra done;"]
    try:
        counts, _ = run(text(loop), (8,))
    except MemoryFault as error:
        assert "race" in str(error)  # noqa: PT017  two blocks do one tile
        return
    assert (counts != 1).any()


# legality ---------------------------------------------------------------------------------------------------------

_CANCEL = "clusterlaunchcontrol.try_cancel.async{}.mbarrier::complete_tx::bytes{}.b128"
_QUERY = ".reg .b128 q; clusterlaunchcontrol.query_cancel."


def asked() -> list[str]:
    found = []
    for space, address in (("", "%b64_0"), (".shared::cta", "%b32_0"), (".shared::cluster", "%b32_0")):
        for several in ("", ".multicast::cluster::all", ".multicast::cluster"):
            found.append(f"{_CANCEL.format(space, several)} [{address}], [{address}];")
    found += [f"{_QUERY}get_first_ctaid::{axis}.b32.b128 %b32_0, q;" for axis in "xyzw"]
    found += [f"{_QUERY}is_canceled.pred.b128 %pred_0, q;", f"{_QUERY}is_canceled.b32.b128 %b32_0, q;"]
    found.append(f"{_QUERY}get_first_ctaid.v4.b32.b128 {{%b32_0, %b32_1, %b32_2, _}}, q;")
    found += [".reg .b128 q; ld.shared.b128 q, [%b32_0];", ".reg .b128 q; st.global.b128 [%b64_0], q;"]
    return found


@pytest.mark.parametrize(
    "target",
    [
        "sm_90a",
        "sm_100",
        "sm_100a",
        *(pytest.param(f"sm_{t}", marks=pytest.mark.slow) for t in ("110f", "120", "121a")),
    ],
)
def test_the_table_has_what_ptxas_takes(target: str) -> None:
    """Slow: what the quick ones say, of more targets."""
    needs(target)
    isa.load()
    device, different = Target.parse(target), []
    for line, words in zip(asked(), errors_of_ptxas(asked(), target), strict=True):
        name = line.removeprefix(".reg .b128 q; ").split(" ")[0]
        opcode, *modifiers = name.split(".")
        ours = any(f.requirement_unmet(device) is None for f in find(opcode, tuple(modifiers)))
        if ours == bool(words):
            different.append(f"{name}: ptxas {words or 'takes it'}")
    assert different == []


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (".target sm_100a", ".target sm_90a", UnsupportedOnTarget),
        ("[response], [bar];", "[response];", OperandError),
        ("%p3, %q", "%p3, %rd1", OperandError),
        ("{%x, %y, %z, _}", "{%x, %y, %z}", OperandError),
        ("{%x, %y, %z, _}", "%x", OperandError),
    ],
)
def test_what_is_illegal_is_refused(old: str, new: str, kind: type[PtxError]) -> None:
    assert old in text(LOOP)
    with pytest.raises(kind):
        load_kernel(text(LOOP).replace(old, new))


def test_multicast_needs_a_family_target() -> None:
    with pytest.raises(UnsupportedOnTarget):
        load_kernel(text([MULTICAST, *LOOP[1:]], "2").replace(".target sm_100a", ".target sm_100"))


# following --------------------------------------------------------------------------------------------------------


def test_a_thread_of_a_block_that_does_others_work_is_followed() -> None:
    kernel = load_kernel(text(LOOP))
    out = Buffer(np.zeros((8, THREADS, 2), np.uint32), "out")
    launch = Launched(kernel, [out], (8, 1, 1), (THREADS, 1, 1))
    tile, thread = 5, 3
    stored = storing_thread(launch, out, (tile * THREADS + thread) * 8, 4)
    assert stored is not None
    block, lane = divmod(stored.thread, THREADS)
    assert (block < tile, lane) == (True, thread)
    fresh = Launched(kernel, [Buffer(np.zeros((8, THREADS, 2), np.uint32), "out")], (8, 1, 1), (THREADS, 1, 1))
    trace = followed(fresh, stored.thread)
    assert trace.fault is None
    assert sum("try_cancel" in step.text for step in trace.steps) > 1
