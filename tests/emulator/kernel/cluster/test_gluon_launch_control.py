"""Gluon's persistent kernels by cluster launch control (blackwell.clc), from their PTX."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("triton.experimental.gluon.language.nvidia.blackwell.clc", reason="this Triton has no such module")

import triton
from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.language.nvidia.blackwell import clc
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from ptxdiff.emulator.errors import ExecutionError, MemoryFault
from ptxdiff.emulator.kernel.run import Buffer, load_kernel, run_kernel
from tests.support.tritons import since

pytestmark = since(3, 9, "try_cancel without the argument multicast")

SIZE = 128


@gluon.jit
def doubled(
    x, y, SIZE: gl.constexpr, WAITS: gl.constexpr, ASKS: gl.constexpr, MEETS: gl.constexpr, LAYOUT: gl.constexpr
):
    """Each block adds x to tiles of y: its own, and those of blocks that it cancels."""
    spread: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0], cga_layout=[[1]] if gl.num_ctas() == 2 else [])
    response = gl.allocate_shared_memory(gl.int64, [2], LAYOUT)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    tile = gl.program_id(0)
    phase = 0
    going = True
    while going:
        clc.try_cancel(response, done)
        mbarrier.expect(done, 16)
        places = tile * SIZE + gl.arange(0, SIZE, spread)
        gl.store(y + places, gl.load(y + places) + gl.load(x + places))
        if WAITS:
            mbarrier.wait(done, phase)
        found = clc.load_result(response)
        phase ^= 1
        going = False
        if ASKS:
            going = found.is_canceled()
            if going:
                tile = found.program_id(0)
        if MEETS:
            gl.barrier(cluster=True)
    mbarrier.invalidate(done)


def ran(blocks: int, ctas: int = 1, *, waits: bool = True, asks: bool = True, meets: bool = True) -> np.ndarray:
    constants = ("SIZE", "WAITS", "ASKS", "MEETS", "LAYOUT")
    names = {"x": "*i32", "y": "*i32"} | dict.fromkeys(constants, "constexpr")
    layout = gl.SwizzledSharedLayout(1, 1, 1, order=[0], cga_layout=[[0]] if ctas == 2 else [])
    given = {(2,): SIZE, (3,): waits, (4,): asks, (5,): meets, (6,): layout}
    source = GluonASTSource(doubled, names, given, {(i,): [["tt.divisibility", 16]] for i in range(2)})
    options = {"num_warps": 4, "num_ctas": ctas, "enable_fp_fusion": True}
    made = triton.compile(source, target=GPUTarget("cuda", 100, 32), options=options)
    x = np.arange(blocks * SIZE, dtype=np.int32)
    y = np.ones_like(x)
    buffers = [Buffer(x, "x"), Buffer(y, "y")]
    run_kernel(load_kernel(made.asm["ptx"]), buffers, (blocks * ctas,), shared_bytes=made.metadata.shared)
    return y - x


@pytest.mark.sample(3)
@pytest.mark.parametrize(("blocks", "ctas"), [(1, 1), (7, 1), (32, 1), (1, 2), (12, 2)])
def test_every_tile_is_added_once(blocks: int, ctas: int) -> None:
    """With two blocks a program, the response goes to both."""
    np.testing.assert_array_equal(ran(blocks, ctas), 1)


def test_a_missing_wait_is_reported() -> None:
    with pytest.raises(MemoryFault, match=r"to which the bulk copy .* is under way .*launch_control\.py:\d+"):
        ran(8, waits=False)


def test_a_response_that_nobody_queries_is_reported() -> None:
    with pytest.raises(ExecutionError, match=r"has cancelled the launch of the cluster of block .*_control\.py:\d+"):
        ran(8, asks=False)


def test_a_response_that_the_other_block_may_still_read_is_a_race() -> None:
    """A request writes to both blocks: the other one has to have read the response before."""
    np.testing.assert_array_equal(ran(12, meets=False), 1)
    with pytest.raises(
        MemoryFault, match=r"race: .* copies to shared memory .* another thread read .*_control\.py:\d+"
    ):
        ran(12, 2, meets=False)
