"""Runs a kernel's machine code on buffers over a grid, in several schedules and with several fillings."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxdiff.emulator import KERNEL_SECONDS, Buffer, BufferPointer, HostMap, PtxError, UndefinedBits
from ptxdiff.emulator.kernel.memory.space import GlobalMemory
from ptxdiff.emulator.limits import BLOCK_THREADS
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.sass.clusters import ClusterBlocks, checked, in_clusters
from ptxdiff.sass.cubin import MachineCode, Parameter
from ptxdiff.sass.machine import SCHEDULES, Computed, Machine, MachineLaunch, MachineStep, StepCode, prepared
from ptxdiff.sass.shared import reserved
from ptxdiff.sass.text import ScheduleDependence, Unsupported

LANES = 1 << 14
"""Threads that run together."""
SHARED = 1 << 26
"""Bytes of shared memory of blocks that run together."""
SEEDS = (0x5EED, 0x5EEC, 0xB175)
"""One filling of undefined bits for each run. The first two are opposite but for global memory: see `Filling`."""


@dataclass(frozen=True)
class Ran:
    """What ran: how often each form of the table, in lanes, and which approximate rows. runs: of the whole grid.

    moves: the forms of the instructions without a row that a lane came to, each with what its step does.
    """

    forms: Mapping[str, int]
    approximate: tuple[str, ...]
    thread_instructions: int
    runs: int
    moves: Mapping[str, StepCode] = field(default_factory=dict)


def run_machine_code(
    code: MachineCode,
    parameters: Sequence[Any],
    grid: Sequence[int],
    block: Sequence[int] | int,
    *,
    shared_bytes: int = 0,
    limit: float | None = KERNEL_SECONDS,
    cluster: tuple[int, int, int] | None = None,
) -> Ran:
    """Run a kernel; the buffers' arrays are changed in place, after all runs have succeeded.

    parameters: a Buffer, BufferPointer, int, float or bytes for each parameter; missing ones at the end are zero.
    cluster: the blocks of a cluster along x, y and z; None: what the kernel states, if it does.
    Raises Unsupported for machine code that the table does not have, UndefinedBits if a stored byte depends on bits
    that were never written, ScheduleDependence if it depends on the order in which the sides of a branch run,
    MachineFault for what the code does wrong, and TimeLimit.
    """
    x, y, z = (*grid, 1, 1)[:3]
    bx, by, bz = ((block, 1, 1) if isinstance(block, int) else (*block, 1, 1))[:3]
    sizes, threads = (bx, by, bz), bx * by * bz
    if threads % 32 or not 0 < threads <= BLOCK_THREADS:
        raise Unsupported(f"{threads} threads a block: only whole warps run here, 32 to 1024 threads")
    shared = max(code.shared, reserved(code.target)) + shared_bytes
    buffers = buffers_of(parameters)
    due = None if limit is None else time.monotonic() + limit
    steps: Mapping[int, MachineStep] = prepared(code)
    cluster, size = cluster or code.cluster, 1
    if cluster is not None:
        steps, size = in_clusters(steps, code), checked(cluster, (x, y, z))
    memory = GlobalMemory(buffers, code.variables)
    area = parameter_area(code.parameters, parameters)
    visited: set[int] = set()

    def image(schedule: str, seed: int) -> tuple[MachineLaunch, Image]:
        for buffer in buffers:
            buffer.reset()
            fill(buffer, seed)
        memory.buffers[0].reset()
        launch = MachineLaunch(
            code, memory, (x, y, z), sizes, area, (schedule,), seed, due, shared=shared, visited=visited,
            cluster=cluster,
        )  # fmt: skip
        blocks, together = x * y * z, max(1, min(LANES // threads, SHARED // max(shared, 1)) // size) * size
        for first in range(0, blocks, together):
            machine = Machine(launch, first, min(together, blocks - first))
            if cluster is not None:
                machine.blocks = ClusterBlocks(machine)
            machine.run(steps)
        return launch, [(b.bytes, b.undefined) for b in buffers]

    # Without divergence all schedules are one. Two fillings show undefined bits; of two bits that are opposite in both,
    # a third shows the xor.
    launch, first_image = image(SCHEDULES[0], SEEDS[0])
    images = [first_image]
    for schedule, seed in zip(SCHEDULES[1:], SEEDS[1:], strict=True):
        if len(images) < 2 or launch.diverged or launch.guessed:
            launch, other = image(schedule, seed)
            images.append(other)
            if words := _difference(first_image, other, buffers):
                again = image(schedule, SEEDS[0])[1] if launch.diverged else first_image
                if by_schedule := _difference(first_image, again, buffers):
                    raise ScheduleDependence(
                        f"{by_schedule} on the order in which the sides of a branch run: {SCHEDULES[0]}, or {schedule}"
                    )
                raise UndefinedBits(f"{words} on undefined bits")
    for buffer in buffers:
        buffer.save()
    return _ran(launch, steps, len(images))


def run_schedules(
    code: MachineCode, parameters: Sequence[Any], copies: int, block: int, *, limit: float | None = KERNEL_SECONDS
) -> Ran:
    """Run a kernel once, on a grid of len(SCHEDULES) times `copies` blocks: each part of it in another schedule.

    For a kernel whose parts do the same work, on equal inputs. What they write must be equal; the caller looks at it.
    Bits that were never written are others in each part. The buffers' arrays are changed in place. Raises what
    `run_machine_code` raises, but for UndefinedBits and ScheduleDependence.
    """
    buffers = buffers_of(parameters)
    for buffer in buffers:
        buffer.reset()
        fill(buffer, SEEDS[0])
    if code.cluster is not None:
        raise Unsupported("a kernel in clusters runs in one schedule after the other")
    grid, shared = (len(SCHEDULES) * copies, 1, 1), max(code.shared, reserved(code.target))
    schedules = [schedule for schedule in SCHEDULES for _ in range(copies)]
    launch = MachineLaunch(
        code, GlobalMemory(buffers, code.variables), grid, (block, 1, 1),
        parameter_area(code.parameters, parameters), schedules, SEEDS[0],
        None if limit is None else time.monotonic() + limit, shared=shared,
    )  # fmt: skip
    steps = prepared(code)
    Machine(launch, 0, grid[0]).run(steps)
    for buffer in buffers:
        buffer.save()
    return _ran(launch, steps, len(SCHEDULES))


def _ran(launch: MachineLaunch, steps: Mapping[int, MachineStep], runs: int) -> Ran:
    moves = {step.move: step.code for at in launch.visited if not isinstance(step := steps[at], Computed)}
    return Ran(launch.ran, tuple(sorted(launch.approximate)), sum(launch.ran.values()), runs, moves)


Image = list[tuple[Array, Array | None]]
"""The bytes of each buffer, and which of them were never written."""


def buffers_of(parameters: Sequence[Any]) -> list[Buffer]:
    """The buffers among a kernel's parameters, each once."""
    return list(dict.fromkeys(b for p in parameters if (b := _buffer(p)) is not None))


def _buffer(parameter: Any) -> Buffer | None:
    if isinstance(parameter, BufferPointer | HostMap):
        return parameter.buffer
    return parameter if isinstance(parameter, Buffer) else None


def fill(buffer: Buffer, seed: int) -> None:
    """Give the undefined bytes of a buffer the bits of a seed.

    They are not opposite in two runs, as those of other memory are. Then a third run would be needed wherever a kernel
    may read them, as most kernels may: no one knows which bytes it reads.
    """
    if buffer.undefined is not None:
        noise = np.random.default_rng((seed, len(buffer.bytes))).integers(0, 256, len(buffer.bytes), np.uint8)
        buffer.bytes = np.where(buffer.undefined != 0, noise, buffer.bytes)


def _difference(one: Image, two: Image, buffers: Sequence[Buffer]) -> str:
    """The first byte that two runs wrote differently, in words; "" if there is none."""
    for (data, undefined), (other, other_undefined), buffer in zip(one, two, buffers, strict=True):
        written = np.ones(len(data), np.bool_) if undefined is None else undefined == 0
        again = np.ones(len(data), np.bool_) if other_undefined is None else other_undefined == 0
        differs = (data != other) & (written | again) | (written != again)
        if differs.any():
            at = int(differs.argmax()) - buffer.residue
            return f"byte {at} of {buffer.name or 'a buffer'} depends"
    return ""


def parameter_area(places: Sequence[Parameter], values: Sequence[Any]) -> bytes:
    """The bytes of the parameters. Raises PtxError for values that do not fit."""
    if len(values) > len(places):
        raise PtxError(f"{len(values)} arguments for a kernel of {len(places)} parameters")
    area = bytearray(max((p.offset + p.size for p in places), default=0))
    for parameter, value in zip(places, values, strict=False):
        area[parameter.offset : parameter.offset + parameter.size] = _encoded(value, parameter.size)
    return bytes(area)


def _encoded(value: Any, size: int) -> bytes:
    if isinstance(value, Buffer | BufferPointer):
        return int(value.address).to_bytes(size, "little")
    if isinstance(value, HostMap):
        value = value.bytes
    if isinstance(value, float):
        return np.array(value, {2: np.float16, 4: np.float32, 8: np.float64}[size]).tobytes()
    if isinstance(value, bytes):
        if len(value) != size:
            raise PtxError(f"{len(value)} bytes for a parameter of {size}")
        return value
    if isinstance(value, bool | int | np.integer):
        return (int(value) & (1 << 8 * size) - 1).to_bytes(size, "little")
    raise Unsupported(f"a parameter of type {type(value).__name__} does not run as machine code yet")
