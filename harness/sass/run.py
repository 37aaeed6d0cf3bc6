"""Runs a kernel's machine code on buffers over a grid, in each schedule and filling on which its bits can depend."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from ptxdiff.emulator import KERNEL_SECONDS, Buffer, BufferPointer, HostMap, PtxError, UndefinedBits
from ptxdiff.emulator.kernel.memory.space import GlobalMemory
from ptxdiff.emulator.kernel.schedule import ThreadsEndEarly
from ptxdiff.emulator.limits import BLOCK_THREADS
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.sass.clusters import ClusterBlocks, checked, in_clusters
from ptxdiff.sass.cubin import MachineCode, Parameter
from ptxdiff.sass.machine import (
    SCHEDULES,
    SEED,
    Computed,
    Machine,
    MachineLaunch,
    MachineStep,
    StepCode,
    gaps_between,
    prepared,
)
from ptxdiff.sass.prologue import prologue
from ptxdiff.sass.shared import reserved
from ptxdiff.sass.tensor_maps import of_the_device
from ptxdiff.sass.text import ScheduleDependence, Unsupported
from ptxdiff.sass.threaded import LanesMeet, ThreadedCode, ThreadedMachine

LANES = 1 << 14
"""Threads that run together."""
SHARED = 1 << 26
"""Bytes of shared memory of blocks that run together."""
SEEDS = (SEED, SEED ^ 1, 0)
"""One filling of undefined bits for each run. The first two are opposite: see `Filling`."""


AnyMachine = TypeVar("AnyMachine", bound=Machine)
Image = list[tuple[Array, Array | None]]
"""The bytes of each buffer, and which of them were never written."""


@dataclass(frozen=True)
class Ran:
    """What ran: how often each form of the table, in lanes, and which approximate rows. runs: of the whole grid.

    moves: the forms of the instructions without a row that a lane came to, each with what its step does; without those
    of a `prologue`, which decide no bit.
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
    steps: Mapping[int, MachineStep] | None = None,
) -> Ran:
    """Run a kernel; the buffers' arrays are changed in place, after all runs have succeeded.

    parameters: a Buffer, BufferPointer, int, float or bytes for each parameter; missing ones at the end are zero.
    cluster: the blocks of a cluster along x, y and z; None: what the kernel states, if it does. steps: those that
    `prepared` makes of the code, if they are known.
    Raises Unsupported for machine code that the table does not have, UndefinedBits if a stored byte depends on bits
    that were never written, ScheduleDependence if it depends on the order in which the sides of a branch run,
    MachineFault for what the code does wrong, and TimeLimit.
    """
    due = deadline(limit)
    kernel = placed(code, parameters, grid, block, shared_bytes, due, cluster, steps)
    launch, runs = _agreed(kernel)
    for buffer in kernel.buffers:
        buffer.save()
    return _ran(launch, _moves(launch, kernel.steps), runs)


@dataclass(frozen=True)
class PlacedMachineCode:
    """A kernel with its arguments in memory, which can run any number of times on the same values.

    area: the bytes of the parameters. shared: bytes of shared memory a block. due: the end of its time on the monotonic
    clock; None: no end. cluster: its blocks along x, y and z, and together; (None, 1) without clusters. visited: the
    addresses of the instructions that a lane came to, in any run.
    """

    code: MachineCode
    steps: Mapping[int, MachineStep]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    buffers: Sequence[Buffer]
    memory: GlobalMemory
    area: bytes
    shared: int
    due: float | None
    cluster: tuple[tuple[int, int, int] | None, int]
    visited: set[int] = field(default_factory=set)

    def run(self, schedule: str, seed: int) -> tuple[MachineLaunch, Image]:
        """Run all blocks from the state before the launch, with undefined bits filled by a seed."""
        try:
            return self._run(self.launch(schedule, seed))
        except ThreadsEndEarly:
            return self._run(self.launch(schedule, seed, exact=True))

    def _run(self, launch: MachineLaunch) -> tuple[MachineLaunch, Image]:
        size = self.cluster[1]
        blocks, threads = math.prod(self.grid), math.prod(self.block)
        together = max(1, min(LANES // threads, SHARED // max(self.shared, 1)) // size) * size
        for first in range(0, blocks, together):
            self.on(Machine(launch, first, min(together, blocks - first))).run(self.steps)
        return launch, [(b.bytes, b.undefined) for b in self.buffers]

    def launch(self, schedule: str, seed: int, exact: bool = False) -> MachineLaunch:
        """A launch from the state before it, with undefined bits filled by a seed."""
        self._restore(seed)
        return MachineLaunch(
            self.code, self.memory, self.grid, self.block, self.area, (schedule,), seed, self.due, shared=self.shared,
            visited=self.visited, cluster=self.cluster[0], exact=exact,
        )  # fmt: skip

    def on(self, machine: AnyMachine) -> AnyMachine:
        """A machine for some blocks of a launch, ready to run whole clusters, if the launch has them."""
        if self.cluster[0] is not None:
            machine.blocks = ClusterBlocks(machine)
        return machine

    def _restore(self, seed: int) -> None:
        for number, buffer in enumerate(self.buffers):
            buffer.reset()
            fill(buffer, seed, number)
        self.memory.buffers[0].reset()


def deadline(limit: float | None) -> float | None:
    """When on the monotonic clock some seconds will be over; None: never."""
    return None if limit is None else time.monotonic() + limit


def _block_sizes(block: Sequence[int] | int) -> tuple[int, int, int]:
    """The threads of a block along x, y and z. Raises Unsupported for a number of them that does not run."""
    x, y, z = ((block, 1, 1) if isinstance(block, int) else (*block, 1, 1))[:3]
    threads = x * y * z
    if threads % 32 or not 0 < threads <= BLOCK_THREADS:
        raise Unsupported(f"{threads} threads a block: only whole warps run here, 32 to 1024 threads")
    return x, y, z


def placed(
    code: MachineCode, parameters: Sequence[Any], grid: Sequence[int], block: Sequence[int] | int, shared_bytes: int,
    due: float | None, cluster: tuple[int, int, int] | None, steps: Mapping[int, MachineStep] | None = None,
) -> PlacedMachineCode:  # fmt: skip
    """The kernel with its arguments in memory. The arguments are those of `run_machine_code`.

    Raises Unsupported and PtxError for what does not fit the kernel.
    """
    x, y, z = (*grid, 1, 1)[:3]
    buffers = buffers_of(parameters)
    steps = prepared(code) if steps is None else steps
    cluster, size = cluster or code.cluster, 1
    if cluster is not None:
        steps, size = in_clusters(steps, code), checked(cluster, (x, y, z))
    memory = GlobalMemory(buffers, code.variables)
    area = parameter_area(code.parameters, parameters)
    shared = _shared_bytes(code) + shared_bytes
    return PlacedMachineCode(
        code, steps, (x, y, z), _block_sizes(block), buffers, memory, area, shared, due, (cluster, size)
    )


def _shared_bytes(code: MachineCode) -> int:
    """The bytes of shared memory that a block has before dynamic ones are added."""
    return max(code.shared, reserved(code.target))


def _agreed(kernel: PlacedMachineCode) -> tuple[MachineLaunch, int]:
    """The last launch of runs that all write the same bytes, and how many they were.

    One run is enough if no step read bits that were never written, and lanes noticed each other only where all were
    together: any other run would do the same (`is_private`). Else two fillings show undefined bits; of two bits that
    are opposite in both, a third shows the xor. Without divergence all schedules are one. Raises ScheduleDependence and
    UndefinedBits if two runs write different bytes.
    """
    launch, first = kernel.run(SCHEDULES[0], SEEDS[0])
    runs = 1
    if not (launch.guessed or launch.met):
        return launch, runs
    for schedule, seed in zip(SCHEDULES[1:], SEEDS[1:], strict=True):
        if runs < 2 or launch.diverged or launch.guessed:
            launch, other = kernel.run(schedule, seed)
            runs += 1
            if difference := _difference(first, other, kernel.buffers):
                raise _dependence(kernel, launch, first, schedule, difference)
    return launch, runs


def _dependence(
    kernel: PlacedMachineCode, launch: MachineLaunch, first: Image, schedule: str, difference: str
) -> ScheduleDependence | UndefinedBits | Unsupported:
    """What made a launch differ from the first one: its schedule, or else its filling of undefined bits. Bits that are
    not known here may have a value on hardware, so they are no fault of the code.

    A run in its schedule with the filling of the first one tells them apart. difference: of the two, in words.
    """
    same_filling = kernel.run(schedule, SEEDS[0])[1] if launch.diverged else first
    if by_schedule := _difference(first, same_filling, kernel.buffers):
        return ScheduleDependence(
            f"{by_schedule} on the order in which the sides of a branch run: {SCHEDULES[0]}, or {schedule}"
        )
    if launch.undecided:
        return Unsupported(f"{launch.undecided}: a part of its result is not known, and {difference} on such bits")
    return UndefinedBits(f"{difference} on undefined bits")


def run_schedules(
    code: MachineCode, parameters: Sequence[Any], copies: int, block: int, *, limit: float | None = KERNEL_SECONDS
) -> Ran:
    """Run a kernel once, on a grid of len(SCHEDULES) times `copies` blocks: each part of it in another schedule.

    Where no lane can notice another one while they are apart, all schedules give the same bits, and all parts run in
    the first one (`LanesMeet`). For a kernel whose parts do the same work, on equal inputs. What they write must be
    equal; the caller looks at it.
    Bits that were never written are others in each part, and opposite in the first two. The buffers'
    arrays are changed in place. Raises what `run_machine_code` raises; UndefinedBits and ScheduleDependence only for a
    kernel whose parameters leave bytes between them or behind them (`gaps_between`): it runs as there.
    """
    buffers = buffers_of(parameters)
    if code.cluster is not None:
        raise Unsupported("a kernel in clusters runs in one schedule after the other")
    grid = (len(SCHEDULES) * copies, 1, 1)
    if gaps_between(code.parameters):  # all parts would read the same bytes there
        return run_machine_code(code, parameters, grid, block, limit=limit)

    def run(schedules: Sequence[str], *, private: bool) -> Ran:
        for number, buffer in enumerate(buffers):
            buffer.reset()
            fill(buffer, SEEDS[0], number, len(SCHEDULES))
        memory = GlobalMemory(buffers, code.variables)  # it gives the buffers their addresses
        launch = MachineLaunch(
            code, memory, grid, (block, 1, 1), parameter_area(code.parameters, parameters), schedules, SEEDS[0],
            deadline(limit), shared=_shared_bytes(code), parts=len(SCHEDULES),
        )  # fmt: skip
        made = ThreadedCode(code, launch)
        ThreadedMachine(launch, 0, grid[0], made, private=private).run_threaded()
        return _ran(launch, made.moves(launch.visited), len(SCHEDULES))

    try:
        ran = run(SCHEDULES[:1], private=True)
    except (LanesMeet, PtxError):  # an error too can be another one in another schedule
        try:
            ran = run([schedule for schedule in SCHEDULES for _ in range(copies)], private=False)
        except ThreadsEndEarly:
            return run_machine_code(code, parameters, grid, block, limit=limit)
    for buffer in buffers:
        buffer.save()
    return ran


def _moves(launch: MachineLaunch, steps: Mapping[int, MachineStep]) -> dict[str, StepCode]:
    visited = launch.visited - prologue(launch.code)
    return {step.move: step.code for at in visited if not isinstance(step := steps[at], Computed)}


def _ran(launch: MachineLaunch, moves: Mapping[str, StepCode], runs: int) -> Ran:
    return Ran(launch.ran, tuple(sorted(launch.approximate)), sum(launch.ran.values()), runs, moves)


def buffers_of(parameters: Sequence[Any]) -> list[Buffer]:
    """The buffers among a kernel's parameters, each once."""
    return list(dict.fromkeys(b for p in parameters if (b := _buffer(p)) is not None))


def _buffer(parameter: Any) -> Buffer | None:
    if isinstance(parameter, BufferPointer | HostMap):
        return parameter.buffer
    return parameter if isinstance(parameter, Buffer) else None


def fill(buffer: Buffer, seed: int, number: int, parts: int = 1) -> None:
    """Give the undefined bytes of a buffer the bits of a seed. Seeds that differ in the lowest bit give opposite bits,
    and so does the second of several parts of the buffer; seed 0 and the third part give zeros: see `Filling`.

    number: of the buffer in the launch. Others have other bits: the difference of two buffers is undefined, too.
    """
    if buffer.undefined is not None:
        noise = np.random.default_rng((seed >> 1, number, len(buffer.bytes))).integers(
            0, 256, len(buffer.bytes), np.uint8
        )
        noise = (~noise if seed & 1 else noise) if seed else np.zeros_like(noise)
        each, rest = divmod(buffer.size, parts)
        if parts > 1 and not rest:
            own = noise[buffer.residue : buffer.residue + buffer.size]
            own[each : 2 * each] = ~own[:each]
            own[2 * each :] = 0
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
        value = of_the_device(value.bytes)
    if isinstance(value, float):
        return np.array(value, {2: np.float16, 4: np.float32, 8: np.float64}[size]).tobytes()
    if isinstance(value, bytes):
        if len(value) != size:
            raise PtxError(f"{len(value)} bytes for a parameter of {size}")
        return value
    if isinstance(value, bool | int | np.integer):
        return (int(value) & (1 << 8 * size) - 1).to_bytes(size, "little")
    raise Unsupported(f"a parameter of type {type(value).__name__} does not run as machine code yet")
