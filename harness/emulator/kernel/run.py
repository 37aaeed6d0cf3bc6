"""Run a compiled kernel: the PTX of a whole module, on buffers, over a grid.

All threads of as many blocks as fit run in lockstep; blocks run in order. Bounds, alignment, undefined bits and races
are checked during the run.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ptxdiff.emulator.errors import ExecutionError, PtxError, TimeLimit, TooLarge, UndefinedBits, only_own
from ptxdiff.emulator.independence import refuse_to_judge
from ptxdiff.emulator.kernel.async_copy.tensor_maps import HostMap
from ptxdiff.emulator.kernel.block_orders import (
    APART,
    ONE_FRAME,
    RESIDENT,
    TOGETHER,
    BlockOrder,
    orders,
    settled_by_order,
    take_turns,
    waits,
)
from ptxdiff.emulator.kernel.cluster.blocks import frame_of
from ptxdiff.emulator.kernel.compiled import launch
from ptxdiff.emulator.kernel.grid import KernelGrid
from ptxdiff.emulator.kernel.kernel import Kernel
from ptxdiff.emulator.kernel.load import load_kernel
from ptxdiff.emulator.kernel.memory.consistency import BlocksConflict
from ptxdiff.emulator.kernel.memory.grid_order import TooManyVectorClocks
from ptxdiff.emulator.kernel.memory.space import Buffer, BufferPointer, pointers
from ptxdiff.emulator.kernel.schedule import KernelScheduler, ThreadsEndEarly, ends_early
from ptxdiff.emulator.kernel.trace.undefined_bits import at_the_asm
from ptxdiff.emulator.limits import (
    BLOCK,
    BLOCK_THREADS,
    CLUSTER_BLOCKS,
    GRID,
    KERNEL_SECONDS,
    Deadline,
    lanes_together,
    shared_memory,
)
from ptxdiff.emulator.machine import forks
from ptxdiff.emulator.machine.parallel import cores, for_each
from ptxdiff.emulator.targets import Target

__all__ = [
    "Buffer", "BufferPointer", "Executed", "HostMap", "Kernel", "load_kernel", "pointers", "run_kernel", "scratch",
]  # fmt: skip

ORDERED = 1 << 13
"""Threads of a grid whose accesses are ordered across blocks."""
NOT_JUDGED = (
    "blocks communicate in this grid of {threads:,} threads, and races between blocks are judged only up to "
    f"{ORDERED:,}: a smaller size shows them"
)
FORKED = 1 << 12
"""The fewest threads of a grid with products of matrices for which forks pay: starting one takes some milliseconds."""
LANES = 1 << 14
"""Threads of one frame: few enough that their registers stay in a core's cache."""
LOCAL_BUDGET = 64 << 20
"""Bytes of local memory of one frame. If a block needs more, one block runs at a time."""
SHARED_BUDGET = 4 << 20
"""Bytes of shared memory of one frame. If each block has much, fewer run together."""


Kept = tuple[Buffer, Any, Any]
"""A buffer, and its bytes and undefined bits after a run."""


@dataclass(frozen=True)
class Executed:
    """The counts of a run: instructions executed, once for each thread; blocks, without those that were cancelled.

    variables: the module's, after it, as bytes. notes: what was not judged.
    """

    thread_instructions: int
    blocks: int
    threads: int
    variables: bytes = field(default=b"", repr=False)
    notes: tuple[str, ...] = ()


def _sizes(grid: Sequence[int]) -> tuple[int, int, int]:
    """A grid's sizes along x, y and z. Raises PtxError for sizes that CUDA does not launch."""
    try:
        sizes = tuple(operator.index(g) for g in grid)
    except TypeError:
        raise PtxError(f"grid {grid!r} must have one to three sizes, each an integer") from None
    if not 1 <= len(sizes) <= 3 or any(g < 0 for g in sizes):
        raise PtxError(f"grid {grid!r} must have one to three sizes")
    for axis, size, most in zip("xyz", sizes, GRID, strict=False):
        if size > most:
            raise TooLarge(f"grid {grid!r}: CUDA launches at most {most:,} blocks along {axis} (invalid argument)")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _block(kernel: Kernel, given: int | Sequence[int] | None) -> tuple[int, int, int]:
    """A block's sizes along x, y and z. Raises PtxError if they are not stated, or if the kernel states others."""
    if not given:
        if not kernel.threads:
            raise PtxError(f"kernel {kernel.name} does not state its threads; give num_threads")
        return kernel.block
    if isinstance(given, int):
        # A number of threads is compatible with any shape of that many threads that the kernel states.
        if kernel.threads and given != kernel.threads:
            raise PtxError(f"kernel {kernel.name} demands {kernel.threads} threads a block, not {given}")
        return kernel.block if kernel.threads else (given, 1, 1)
    x, y, z = block = (*given, 1, 1)[:3]
    if not 1 <= len(given) <= 3 or any(not 1 <= size <= most for size, most in zip(block, BLOCK, strict=True)):
        raise PtxError(f"a block has one to three sizes, at most {BLOCK} along x, y and z, not {tuple(given)}")
    if kernel.threads and block != kernel.block:
        raise PtxError(f"kernel {kernel.name} demands blocks of {kernel.block} threads, not {block}")
    return x, y, z


def clusters_of(kernel: Kernel, given: Sequence[int] | None, grid: tuple[int, int, int]) -> tuple[int, int, int] | None:
    """The blocks of a cluster along x, y and z; None: no clusters. Raises PtxError for clusters that CUDA refuses."""
    name, required = kernel.name, kernel.cluster
    if given is None:
        if required is None and kernel.explicit_cluster:
            raise PtxError(f"kernel {name} has to be launched in clusters (.explicitcluster); give cluster")
        cluster = required
    else:
        if not 1 <= len(given) <= 3 or any(operator.index(size) < 1 for size in given):
            raise PtxError(f"cluster {tuple(given)} must have one to three sizes, each at least 1")
        x, y, z = (*map(operator.index, given), 1, 1)[:3]
        cluster = (x, y, z)
        if required is not None and required != cluster:
            raise PtxError(f"kernel {name} demands clusters of {required} blocks, not {cluster}")
    if cluster is None:
        return None
    most, blocks = kernel.max_rank or CLUSTER_BLOCKS, math.prod(cluster)
    if blocks > min(most, CLUSTER_BLOCKS):
        raise TooLarge(f"clusters of {blocks} blocks: {'the kernel' if kernel.max_rank else 'a GPU'} allows {most}")
    if Target.parse(kernel.target).older_than(90):
        raise PtxError(f"clusters need sm_90 and later; kernel {name} is for {kernel.target}")
    if any(size % of for size, of in zip(grid, cluster, strict=True)):
        raise PtxError(f"a grid of {grid} blocks is not made of clusters of {cluster}")
    return cluster


def scratch(bytes_of_block: int, blocks: int) -> list[Buffer]:
    """The global scratch memory of a launch, the parameter after those of Triton's kernel; empty if it needs none."""
    if not bytes_of_block:
        return []
    room = np.zeros(bytes_of_block * max(blocks, 1), np.uint8)
    return [Buffer(room, "the kernel's scratch memory", defined=False)]


@only_own("a kernel")
def run_kernel(
    kernel: Kernel | str,
    parameters: Sequence[Any],
    grid: Sequence[int],
    *,
    num_threads: int | Sequence[int] | None = None,
    shared_bytes: int = 0,
    name: str | None = None,
    races: bool = True,
    limit: float | None = KERNEL_SECONDS,
    cluster: Sequence[int] | None = None,
    pointed: Sequence[Buffer] = (),
    order: BlockOrder | None = None,
) -> Executed:
    """Run a kernel over a grid of blocks; the buffers' arrays are changed in place.

    `parameters`: a Buffer, BufferPointer or HostMap, an int, a float or bytes for each parameter of the entry; missing
    ones at the end are zero (see `scratch`). `grid` has one to three sizes. `num_threads`: threads of a block, or its
    sizes along x, y and z (None: what `.reqntid` says). `shared_bytes`: dynamic shared memory, from the compiler's
    metadata. `cluster`: blocks of a cluster along x, y and z (None: what `.reqnctapercluster` says). `limit`: seconds
    that the whole grid may run, 60 by default, without compiling definitions of instructions; None: no limit.
    `pointed`: further buffers, whose addresses the kernel reads from memory. The kernel prints to standard output.

    A kernel whose blocks can communicate runs in several orders of blocks (see `blockorders`), each from the same
    memory; the buffers get the bits of the usual order, the first. `order`: only this one.

    Raises PtxError for wrong text, for a launch that CUDA refuses, and for errors of the run: MemoryFault (outside
    every buffer, misaligned, a race, a store to a read-only array), UndefinedBits, ExecutionError (deadlock, trap,
    failed assertion), TimeLimit. After an error the buffers' arrays are unchanged.
    """
    refuse_to_judge()
    if isinstance(kernel, str):
        kernel = load_kernel(kernel, name)
    x, y, z = _sizes(grid)
    block = _block(kernel, num_threads)
    threads = math.prod(block)
    if threads % 32 or not 0 < threads <= BLOCK_THREADS:
        raise PtxError(f"{threads} threads a block: the emulator runs blocks of whole warps, 32 to 1024 threads")
    target = Target.parse(kernel.target)
    shared, most = kernel.static_shared + shared_bytes, shared_memory(target)
    if shared_bytes < 0 or shared > most:
        raise TooLarge(f"kernel {kernel.name} needs {shared:,} bytes of shared memory a block; {target} has {most:,}")
    if limit is not None and not limit > 0:
        raise PtxError(f"limit={limit!r} is no number of seconds; None sets no limit")
    clusters = clusters_of(kernel, cluster, (x, y, z))
    if not x * y * z:
        return Executed(0, 0, threads, kernel.variables)
    first: tuple[Executed, list[Kept]] | None = None
    blocks = x * y * z
    judging = judging_of(kernel, blocks * threads, clusters) if races and blocks > 1 else ""
    notes: tuple[str, ...] = ()
    left = list(orders_of(kernel, (x, y, z), threads) if order is None else (order,))
    begun = False
    by_threads = ends_early(kernel.program) and any(step.kind == "call" for step in kernel.program.steps)
    failed: Exception | None = None
    while left:
        launched = KernelGrid(
            kernel, parameters, (x, y, z), block, shared_bytes, races, Deadline(limit), clusters, pointed
        )
        launched.order, launched.judging = left[0], judging
        if by_threads:
            launched.remember_threads()
        launched.printer.silent = first is not None  # what a kernel prints is printed once
        for buffer in launched.memory.buffers if begun else ():
            buffer.reset()
        begun = True
        try:
            executed = _run_grid(launched, in_forks=failed is None)
        except forks.Failed as failure:
            failed = failure.error
            continue
        except ThreadsEndEarly:
            by_threads, failed = True, None
            continue
        except (BlocksConflict, TooManyVectorClocks) as reason:
            judging = "ordered" if isinstance(reason, BlocksConflict) and blocks * threads <= ORDERED else ""
            if not judging:
                notes = (NOT_JUDGED.format(threads=blocks * threads),)
            continue
        except PtxError as error:
            if left[0].words:
                error.add(f"({left[0].words})")
            raise
        if isinstance(failed, PtxError):
            raise failed  # such as a race, which this process has not met again
        done = left.pop(0)
        if first is None:
            first = executed, [(b, b.bytes, b.undefined) for b in launched.memory.buffers]
        else:
            _refuse_other_bits(kernel, done, first[1], launched.memory.buffers)
    assert first is not None
    for buffer, data, undefined in first[1]:
        buffer.bytes, buffer.undefined = data, undefined
        buffer.save()
    return replace(first[0], notes=notes)


def judging_of(kernel: Kernel, threads: int, clusters: tuple[int, int, int] | None) -> str:
    """How accesses of different blocks are judged at first (see `consistency`). threads: of the grid."""
    steps = kernel.program.steps
    reaches = any(s.facts.reaches for s in steps)
    if not kernel.synchronises or clusters is not None or reaches or threads > ONE_FRAME:
        return ""
    printing = any(s.kind == "call" for s in steps)  # not a second time
    return "ordered" if printing and threads <= ORDERED else "conflicts"


def orders_of(kernel: Kernel, grid: Sequence[int], threads: int) -> tuple[BlockOrder, ...]:
    """The orders in which a kernel runs on a grid of blocks of so many threads, the usual one first."""
    if any(step.kind == "launch_cancel" for step in kernel.program.steps):
        return (TOGETHER,)  # its waves are an order of their own (`grid.Launches`)
    apart = APART if any(step.kind == "activemask" for step in kernel.program.steps) else ()
    return (*orders(kernel.synchronises, waits(kernel.program), math.prod(grid), threads), *apart)


def _refuse_other_bits(kernel: Kernel, order: BlockOrder, first: list[Kept], buffers: Sequence[Buffer]) -> None:
    """Raise ExecutionError if a kernel has other results where threads of a branch come to activemask apart.

    Kernels are not judged whose results the order of threads may decide in any case (`settled_by_order`).
    """
    if not order.apart or settled_by_order(kernel.program):
        return
    for (buffer, data, undefined), now in zip(first, buffers, strict=True):
        differs = np.asarray(data) != np.asarray(now.bytes)
        if undefined is not None and now.undefined is not None:
            differs |= np.asarray(undefined) != np.asarray(now.undefined)
        if differs.any():
            step = next(step for step in kernel.program.steps if step.kind == "activemask")
            at = int(np.flatnonzero(differs)[0]) - buffer.residue
            text = (
                f"{buffer.name or 'a buffer'} differs at offset {at} if threads of a branch come here {order.groups}: "
            )
            text += "activemask gives those that run together, of which no number is promised; "
            text += "vote.sync.ballot, with a mask that is known, gives those that meet a condition"
            raise kernel.program.source.error(ExecutionError, text, step.node.offset)


def _run_grid(grid: KernelGrid, *, in_forks: bool) -> Executed:
    """Run all blocks. Raises forks.Failed if a fork fails: the grid runs again, without, for the error of one process.

    in_forks: whether it may run in forks.
    """
    total = math.prod(grid.sizes)
    grid.deadline.begin(total, "blocks")
    if launch.ran(grid):
        return _executed(grid, total)
    lanes = lanes_together(LANES, len(grid.program.registers), len(grid.program.steps))
    together = max(1, lanes // grid.threads)
    if grid.launches is None and any(s.facts.product for s in grid.program.steps):
        together = max(1, min(together, -(-total // min(cores(), forks.MOST))))  # so that each has a part
    if grid.shared_bytes:
        together = max(1, min(together, SHARED_BUDGET // grid.shared_bytes))
    local = grid.local_bytes * grid.threads
    if local:
        together = max(1, min(together, LOCAL_BUDGET // local))
    if grid.synchronises and grid.launches is None and total * grid.threads <= ONE_FRAME:
        together = total
    together = max(grid.cluster_size, together // grid.cluster_size * grid.cluster_size)
    workers = 1 if any(s.kind == "call" for s in grid.program.steps) or local > LOCAL_BUDGET else None
    if grid.launches is not None:
        size = grid.cluster_size
        for cluster, count in grid.launches.waves(together // size):
            _run_blocks(grid, cluster * size, count * size)
        total -= grid.launches.cancelled * size
    elif grid.synchronises:
        pieces = range(0, total, together)
        _run_in_turns(grid, pieces[:: -1 if grid.order.reverse else 1], together, total)
    else:
        each = range(0, total, together)
        if in_forks and workers is None and len(each) > 1 and _forks_pay(grid, total):
            _run_in_forks(grid, each, together, total)
        else:
            for_each(lambda first: _run_blocks(grid, first, min(together, total - first)), each, workers)
    return _executed(grid, total)


def _executed(grid: KernelGrid, blocks: int) -> Executed:
    variables = grid.memory.buffers[0].bytes[: len(grid.kernel.variables)].tobytes()
    return Executed(grid.instructions, blocks, grid.threads, variables)


def _forks_pay(grid: KernelGrid, total: int) -> bool:
    """Whether forks take less time than threads: in products of matrices, pieces are many short calls of Python."""
    products = any(step.facts.product for step in grid.program.steps)
    return products and total * grid.threads >= FORKED and forks.possible()


def _run_in_forks(grid: KernelGrid, each: Sequence[int], together: int, total: int) -> None:
    """Run blocks that do not communicate in forks of this process, which share the grid's memory."""

    def run(first: int) -> int:
        before = grid.instructions
        _run_blocks(grid, first, min(together, total - first))
        return grid.instructions - before

    try:
        for buffer in grid.memory.buffers:
            buffer.share(grid.unit("global"))
        grid.instructions = forks.for_each(run, each)
    except OSError as error:  # such as too many processes, or no room for temporary files
        raise forks.Failed(error) from None
    except forks.Failed as failure:
        if isinstance(failure.error, TimeLimit):
            raise failure.error from None
        raise


def _run_in_turns(grid: KernelGrid, pieces: Sequence[int], together: int, total: int) -> None:
    """Run blocks that communicate: those that wait for others give them turns."""

    def begin(first: int) -> KernelScheduler:
        scheduler = KernelScheduler(grid.program, frame_of(grid, first, min(together, total - first)))
        scheduler.pauses = True
        if grid.order.alone:
            scheduler.one_after_the_other()
        return scheduler

    def end(first: int, scheduler: KernelScheduler) -> None:
        blocks = min(together, total - first)
        grid.deadline.done(blocks)
        grid.instructions += scheduler.lane_steps
        scheduler.forget()

    def run(first: int, scheduler: KernelScheduler) -> bool:
        with _blaming(grid, first, min(together, total - first)):
            scheduler.run()
        return not scheduler.paused

    resident = max(1, RESIDENT // (together * grid.threads))
    take_turns(pieces, begin, run, end, resident, lambda: grid.changes)


@contextmanager
def _blaming(grid: KernelGrid, first: int, blocks: int) -> Iterator[None]:
    """Move an error for undefined bits to the asm that introduced them."""
    try:
        yield
    except UndefinedBits as error:
        raise at_the_asm(error, grid, first, blocks) from None


def _run_blocks(grid: KernelGrid, first: int, blocks: int) -> None:
    if grid.deadline.passed:
        # Earlier blocks may have used up the time, and these may run too few steps to check the clock.
        steps, words = grid.program.steps, grid.deadline.words
        raise grid.error(TimeLimit, steps[0], words) if steps else grid.program.source.error(TimeLimit, words, 0)
    frame = frame_of(grid, first, blocks)
    scheduler = KernelScheduler(grid.program, frame)
    with _blaming(grid, first, blocks):
        scheduler.run()
    grid.deadline.done(blocks)
    with grid.lock:
        grid.instructions += scheduler.lane_steps
    scheduler.forget()
