"""Boxes whose mbarrier lies in the other block of a pair (cp.async.bulk.tensor with .cta_group)."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator.errors import ExecutionError, MemoryFault, PtxError, UnsupportedOnTarget
from ptxdiff.emulator.kernel.run import Buffer, HostMap, run_kernel
from tests.support.emulator.cluster_kernels import SYNC, THREADS, WAIT, text

BYTES = 4 * THREADS
BODY = f"""@%p1 mbarrier.init.shared.b64 [bar], 1; fence.mbarrier_init.release.cluster; {SYNC}
setp.eq.and.u32 %p3, %r2, {{waits}}, %p1; setp.ne.u32 %p4, %r2, {{waits}};
@%p3 mbarrier.arrive.expect_tx.shared.b64 _, [bar], {{bytes}};
mapa.shared::cluster.u32 %r14, bar, {{owner}}; mov.b32 %r13, 0; mov.b16 %h1, {{mask}}; mov.b64 %rd4, m;
cvta.param.u64 %rd4, %rd4; setp.lt.and.u32 %p5, %r2, {{senders}}, %p1;
@%p5 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{{several}}{{group}}
[%r4], [%rd4, {{{{%r13, %r13}}}}], [%r14]{{more}};
@%p4 bra MET; {WAIT} MET: {SYNC} ld.shared.b32 %r9, [%r5]; {SYNC}"""


def run(
    group: str, *, waits: int = 0, owner: int = 0, mask: int = 0, senders: int = 2, blocks: int = 2, parts: int = 2,
    target: str = "sm_100a",
) -> np.ndarray:  # fmt: skip
    """Each of the first `senders` blocks copies a box to itself, or to those of a mask, and names the mbarrier of block
    `owner`; block `waits` waits.
    """
    several = ".multicast::cluster" if mask else ""
    body = BODY.format(
        waits=waits, owner=owner, mask=mask, senders=senders, several=several, group=group, bytes=parts * BYTES,
        more=", %h1" if mask else "",
    )  # fmt: skip
    written = text(body, str(blocks), target).replace(".param .u64 x)", ".param .u64 x, .param .align 64 .b8 m[128])")
    x, y = np.arange(256, dtype=np.uint32), np.zeros((blocks, THREADS), np.uint32)
    source = Buffer(x, "x")
    run_kernel(written, [Buffer(y, "y"), source, HostMap(source, 0, (32, 8), (8, 1), (8, 8), 2, 0, 0)], (blocks,))
    return y


def refused(kind: type[PtxError], words: str, group: str, **options: int | str) -> None:
    with pytest.raises(kind, match=words):
        run(group, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("rank", [0, 1])
def test_one_mbarrier_counts_the_boxes_of_both_blocks(rank: int) -> None:
    np.testing.assert_array_equal(run(".cta_group::2", waits=rank, owner=rank), [np.arange(THREADS)] * 2)


def test_a_block_that_did_not_wait_may_not_read_its_box(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster's barrier after the wait is missing, so nothing orders the other block after the copy."""
    unheard = BODY.replace(f"MET: {SYNC} ld", "MET: ld")
    monkeypatch.setitem(globals(), "BODY", unheard)
    refused(MemoryFault, "race|under way", ".cta_group::2")


def test_a_wait_for_a_missing_box_is_a_deadlock() -> None:
    refused(ExecutionError, "deadlock: .* lacks 256 bytes", ".cta_group::2", senders=1)


def test_a_group_of_one_needs_an_mbarrier_of_its_own_block() -> None:
    words = r"rank 1 of its cluster of 2, and the mbarrier lies in rank 0: with .cta_group::1 .* use .cta_group::2"
    refused(ExecutionError, words, ".cta_group::1")
    refused(ExecutionError, words, "")


def test_an_mbarrier_of_another_pair_is_refused() -> None:
    words = "rank 2 of its cluster of 4, and the mbarrier lies in rank 0: with .cta_group::2 it lies in either block"
    refused(ExecutionError, words, ".cta_group::2", blocks=4, senders=3, parts=3)


def test_a_copy_to_its_own_block_alone_needs_an_mbarrier_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """ISA 9.7.9.27.1.2: with .shared::cta as destination an mbarrier of another block is undefined."""
    own = BODY.replace("shared::cluster.global", "shared::cta.global")
    monkeypatch.setitem(globals(), "BODY", own)
    refused(ExecutionError, "accesses only its own block's: use .shared::cluster", ".cta_group::2")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_multicast_completes_at_the_even_or_the_odd_block_of_each_pair(rank: int) -> None:
    one = {"mask": 3, "senders": 1, "waits": rank, "owner": rank}
    np.testing.assert_array_equal(run(".cta_group::2", **one), [np.arange(THREADS)] * 2)
    refused(ExecutionError, "deadlock: .* lacks 512 bytes", ".cta_group::2", **(one | {"waits": 1 - rank}))
    refused(ExecutionError, "deadlock: .* lacks 256 bytes", ".cta_group::1", **one)


def test_targets_without_pairs_of_blocks_refuse_it() -> None:
    for target in ("sm_90a", "sm_120a"):
        refused(UnsupportedOnTarget, "cta_group", ".cta_group::2", target=target)
