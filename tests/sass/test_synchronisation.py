"""Kernels whose threads do not synchronise as they must, as machine code that runs by itself.

The kernels are those of the PTX emulator's tests. Machine code shows less: a warp is ordered as a whole, and strong
loads of shared memory are plain ones.
"""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff import run_ptx
from ptxdiff.sass.text import MachineFault, Unsupported
from ptxdiff.triton.targets import tool
from tests.emulator.kernel.memory import test_synchronisation_mistakes as mistakes

if not tool("nvdisasm").exists():
    pytest.skip("nvdisasm, which Triton carries, is missing", allow_module_level=True)

PAIRS = {pair.name: pair for pair in mistakes.PAIRS}
ENDED = {
    "a read of shared memory by a warp that has ended, behind a barrier": "race",
    "a later read of shared memory by a warp that has ended, behind a barrier": "race",
    "a read of another block's memory, stored by a warp that has ended before the cluster's barrier": "race",
    "a read in the own block behind the cluster's barrier, stored by a warp that has ended": "race",
    "a barrier with a number of threads of which some have ended": "deadlock",
    "a barrier for half a warp, whose other half has ended": "128 threads come to barrier 1, which is for 64",
}
"""By the name of a pair, words of the wrong one's fault."""
COLLECTIVE = (
    "bar.warp.sync of the halves of a warp at two places",
    "an aligned barrier under a guard that differs within a warp",
    "an aligned barrier at two places of a warp",
)
"""Pairs whose right one waits at WARPSYNC.COLLECTIVE in two places. An H200 runs them to the end."""


def _run(name: str, body: str) -> np.ndarray:
    blocks = PAIRS[name].blocks
    text = mistakes.module_of(PAIRS[name], body)
    out, memory = np.zeros(blocks * mistakes.THREADS, np.uint32), np.zeros(mistakes.THREADS + 1, np.uint32)
    run_ptx(text, blocks, mistakes.THREADS, out, memory, level="sass", opt=3)
    return out


@pytest.mark.parametrize("name", ENDED)
def test_nothing_orders_what_threads_did_that_have_ended(name: str) -> None:
    pair = PAIRS[name]
    expected = np.broadcast_to(pair.expected, pair.blocks * mistakes.THREADS)
    np.testing.assert_array_equal(_run(name, pair.right), expected)
    with pytest.raises(MachineFault, match=ENDED[name]):
        _run(name, pair.wrong)


@pytest.mark.parametrize("name", COLLECTIVE)
def test_what_lanes_do_in_two_collective_regions_is_not_known(name: str) -> None:
    """It is no deadlock: nobody may be accused of one."""
    with pytest.raises(Unsupported, match=r"WARPSYNC\.COLLECTIVE .* elsewhere"):
        _run(name, PAIRS[name].right)


@pytest.mark.parametrize("what", ["shfl.sync.bfly", "bar.warp.sync"])
def test_lanes_that_wait_for_others_at_a_barrier_never_go_on(what: str) -> None:
    name = f"{what} with a full mask, while others wait at a barrier"
    with pytest.raises(MachineFault, match="deadlock"):
        _run(name, PAIRS[name].wrong)
