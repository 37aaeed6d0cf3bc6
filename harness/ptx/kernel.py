"""Run a compiled kernel: the PTX of a whole module, on buffers, over a grid.

All threads of as many blocks as fit run in lockstep; blocks are taken in order. Bounds, alignment, definedness
and races are checked as the kernel runs.
"""

from __future__ import annotations

import hashlib
import math
import operator
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from . import operations_call, operations_memory, operations_warp
from .analysis import Analysis, describe
from .bits import f32_round, f64_bits
from .contraction import fused
from .errors import ExecutionError, OperandError, PtxError, TooLarge, UndefinedBits, only_own
from .header import without_header
from .kernelbuilder import KernelBuilder, size_of
from .kernelframe import KernelFrame
from .limits import (
    BLOCK,
    BLOCK_THREADS,
    GRID,
    KERNEL_SECONDS,
    PARAMETERS,
    lanes_together,
    shared_memory,
)
from .machine import Constants, Scheduler, guarded
from .memory import Buffer, GlobalMemory, Pointer, pointers
from .nodes import Declaration, Function, Module
from .parallel import for_each
from .parser import parse_module
from .printing import Printer
from .program import Program, Step
from .special import OF_A_GRID
from .standins import unknown_registers
from .targets import AnyTarget, ByAnswers, Target
from .vectorise import Array

__all__ = ["Buffer", "Kernel", "Pointer", "Report", "load_kernel", "pointers", "run_kernel"]

LANES = 1 << 14
"""Threads of one frame: registers of that many lanes stay in a core's cache."""
LOCAL_BUDGET = 64 << 20
"""Bytes of local memory of one frame; where a block needs more, one block runs at a time."""
SHARED_BUDGET = 4 << 20
"""Bytes of shared memory of one frame; fewer blocks run together when each has much."""

E = TypeVar("E", bound=PtxError)

_LOADED = (operations_call, operations_memory, operations_warp)


@dataclass(frozen=True)
class Kernel:
    """A checked kernel: its program, parameters, and the memory that it declares.

    `threads` is what `.reqntid` demands (0: not stated), `block` the same along x, y and z. `units` has the smallest
    access to shared and to global memory; `synchronises`: it has atomics, fences or acquiring loads, by which blocks
    can order themselves. `bound`: a digest of what its program was made from, the text but for its header and what was
    asked of the target; kernels with equal ones have equal programs.
    """

    name: str
    module: Module
    program: Program
    parameters: tuple[Declaration, ...]
    threads: int
    block: tuple[int, int, int]
    static_shared: int
    dynamic_shared: bool
    local: int
    variables: bytes
    units: dict[str, int]
    synchronises: bool
    target: str = ""
    bound: str = ""

    @property
    def analysis(self) -> Analysis:
        """Its instruction forms, models among them, and whether ptxas may contract it."""
        return describe(self.program)


@dataclass(frozen=True)
class Report:
    """What a run did: instructions executed, counted once for each thread that the step was run for."""

    thread_instructions: int
    blocks: int
    threads: int


@lru_cache(maxsize=128)
@only_own("a module")
def load_kernel(text: str, name: str | None = None, fuse: bool = False) -> Kernel:
    """Parse and check a PTX module and pick the kernel `name` (None: the only one).

    `fuse`: evaluate open multiplications and additions as ptxas may, contracted. Raises PtxError.

    Modules that differ in their header alone are parsed once, and checked once for all targets that answer alike what
    checking asks of a target.
    """
    common = without_header(text)
    module = _parsed(common.text)
    module.kernel(name)  # which kernel is asked before which target
    target = common.target or module.target
    shared, answers = _checked.get(
        (common.text, name, fuse), Target.parse(target), lambda asked: _kernel(module, name, fuse, asked)
    )
    if common.target:
        module = replace(module, version=common.version, target=target)
    bound = hashlib.sha256(repr((common.text, shared.name, fuse, answers)).encode()).hexdigest()
    return replace(shared, module=module, target=target, bound=bound)


_checked: ByAnswers[Kernel] = ByAnswers(128)


@lru_cache(maxsize=64)
def _parsed(text: str) -> Module:
    """See `parse_module`. Nothing changes the tree, so that all targets share it."""
    return parse_module(text)


def _kernel(module: Module, name: str | None, fuse: bool, target: AnyTarget) -> Kernel:
    function = module.kernel(name)
    assert function.body is not None
    _check_parameters(module, function)
    builder = KernelBuilder(module, function, target)
    program = builder.built(function.body)
    if fuse:
        program = fused(program)
    required = function.directives.get("reqntid")
    x, y, z = block = (*(required or ()), 1, 1, 1)[:3]
    if not all(1 <= size <= most for size, most in zip(block, BLOCK, strict=True)) or x * y * z > BLOCK_THREADS:
        message = f".reqntid {x}, {y}, {z}: a block has at most {BLOCK_THREADS} threads, {BLOCK} along x, y and z"
        raise module.source.error(TooLarge, message, function.offset)
    return Kernel(
        function.name,
        module,
        program,
        tuple(function.parameters),
        x * y * z if required else 0,
        block,
        builder.sizes["shared"],
        bool(builder.dynamic),
        builder.sizes["local"],
        bytes(builder.variables),
        _units(program),
        any(_orders_blocks(s) for s in program.steps),
    )


def _check_parameters(module: Module, function: Function) -> None:
    """Raise OperandError and TooLarge for parameters that no kernel can have."""
    for parameter in function.parameters:
        if parameter.space != "param":
            message = f"parameter {parameter.name} of a kernel is .param, not .{parameter.space}"
            raise module.source.error(OperandError, message, parameter.offset)
    size = sum(size_of(p) for p in function.parameters)
    if size > PARAMETERS.most:
        raise module.source.error(TooLarge, PARAMETERS.refusal(size), function.offset)


def _units(program: Program) -> dict[str, int]:
    found = {"shared": 16, "global": 16}
    for step in program.steps:
        details = step.detail if isinstance(step.detail, tuple) else (step.detail,)
        for access in details:
            if hasattr(access, "displacement"):
                for space in ("shared", "global") if access.space == "" else (access.space,):
                    if space in found:
                        size = access.width // 8 if step.kind == "cp_async" else access.size
                        found[space] = min(found[space], size)
    return found


def _orders_blocks(step: Step) -> bool:
    words = set(step.node.modifiers)
    return step.kind == "atom" or step.node.opcode in ("fence", "membar") or "acquire" in words or "volatile" in words


class Launch:
    """One run of a kernel over a grid."""

    def __init__(
        self,
        kernel: Kernel,
        parameters: Sequence[Any],
        grid: tuple[int, int, int],
        threads: int,
        shared_bytes: int,
        races: bool,
        limit: float | None,
    ) -> None:
        self.limit = limit
        self.block = kernel.block if kernel.threads else (threads, 1, 1)
        self.printer = Printer()
        self.kernel = kernel
        self.program = kernel.program
        self.grid = grid
        self.threads = threads
        self.races = races
        self.shared_bytes = kernel.static_shared + shared_bytes
        self.local_bytes = kernel.local
        self.synchronises = kernel.synchronises
        self.lock = threading.Lock()
        self.constants: Constants = {}
        used = [p.buffer if isinstance(p, Pointer) else p for p in parameters]
        buffers = {id(b): b for b in used if isinstance(b, Buffer)}
        self.memory = GlobalMemory(list(buffers.values()), kernel.variables)
        self._parameters = self._bytes(parameters)
        self.instructions = 0

    def unit(self, space: str) -> int:
        """The smallest access of the program to a space, in bytes."""
        return self.kernel.units[space]

    def _bytes(self, values: Sequence[Any]) -> dict[str, bytes]:
        declared = self.kernel.parameters
        if len(values) > len(declared):
            raise PtxError(f"kernel {self.kernel.name} has {len(declared)} parameters, {len(values)} were given")
        found = {}
        for number, parameter in enumerate(declared):
            value = values[number] if number < len(values) else 0
            found[parameter.name] = _parameter_bytes(value, parameter, size_of(parameter))
        return found

    def parameter(self, name: str, offset: int, size: int) -> int:
        """The bit pattern of `size` bytes of a parameter."""
        return int.from_bytes(self._parameters[name][offset : offset + size], "little")

    def coordinates(self, block: int) -> str:
        """A block's place in the grid."""
        x, y, _ = self.grid
        return f"({block % x}, {block // x % y}, {block // (x * y)})"

    def error(self, kind: type[E], step: Step, message: str) -> E:
        """An error at a step, naming the line of the user's program too."""
        if kind is UndefinedBits and (unknown := unknown_registers(self.program, lambda name, _: name in OF_A_GRID)):
            message += f" (this kernel reads {' and '.join(unknown)}, which no run here can know)"
        return self.program.source.error(kind, message + self._origin(step), step.node.offset)

    def _origin(self, step: Step) -> str:
        location = step.node.location
        text = ""
        while location is not None:
            file = self.kernel.module.files.get(location.file, "?")
            text += f"{' (from ' if not text else ', inlined at '}{file}:{location.line}"
            location = location.inlined_at
            if location is None:
                text += ")"
        return text

    def run(self) -> Report:
        """Run all blocks."""
        total = math.prod(self.grid)
        lanes = lanes_together(LANES, len(self.program.registers), len(self.program.steps))
        together = max(1, lanes // self.threads)
        if self.shared_bytes:
            together = max(1, min(together, SHARED_BUDGET // self.shared_bytes))
        local = self.local_bytes * self.threads
        if local:
            together = max(1, min(together, LOCAL_BUDGET // local))
        # Blocks that talk to each other by atomics, and those that print, run in order, so that a run can be repeated.
        ordered = self.synchronises or any(s.kind == "call" for s in self.program.steps)
        workers = 1 if ordered or local > LOCAL_BUDGET else None
        for_each(lambda first: self._run(first, min(together, total - first)), range(0, total, together), workers)
        for buffer in self.memory.buffers:
            buffer.save()
        return Report(self.instructions, total, self.threads)

    def _run(self, first: int, blocks: int) -> None:
        frame = KernelFrame(self, first, blocks)
        scheduler = _KernelScheduler(self.program, frame)
        scheduler.run()
        with self.lock:
            self.instructions += scheduler.lane_steps


def _parameter_bytes(value: Any, declared: Declaration, size: int) -> bytes:
    if isinstance(value, (Buffer, Pointer)):
        value = value.address
    if isinstance(value, (bytes, bytearray)):
        if len(value) != size:
            raise PtxError(f"parameter {declared.name} has {size} bytes, {len(value)} were given")
        return bytes(value)
    if isinstance(value, (float, np.floating)):
        # A float goes in as the type of the declared width has it: Triton declares f32 as .u32 or .f32.
        pattern = f64_bits(float(value)) if size == 8 else f32_round(float(value))
        return (pattern & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    if not isinstance(value, (int, np.integer, np.bool_)):
        raise PtxError(f"parameter {declared.name}: {value!r} is no buffer, number or bytes")
    number = int(value)
    if not -(1 << 8 * size - 1) <= number < 1 << 8 * size:
        raise PtxError(f"parameter {declared.name} has {size} bytes; {number:#x} does not fit in them")
    return (number & ((1 << 8 * size) - 1)).to_bytes(size, "little")


class _KernelScheduler(Scheduler):
    """The scheduler with barriers: threads that reach one wait until their block is complete."""

    blocking = frozenset({"barrier"})

    def __init__(self, program: Program, frame: KernelFrame) -> None:
        super().__init__(program, frame)
        self.kernel_frame = frame
        if frame.launch.synchronises:
            # Only a loop that waits for another thread's atomic needs the others to move on.
            self.patience = 4096
        self.alive: Array = np.ones(frame.lanes, np.bool_)
        self.blocked: dict[int, Array] = {}

    def _error(self, kind: type[ExecutionError], step: Step, message: str) -> ExecutionError:
        return self.kernel_frame.fault(kind, step, message)

    def left(self, lanes: Array) -> None:
        """Threads that have ended."""
        self.alive = self.alive & ~lanes

    def block(self, step: Step, at: int, active: Array) -> tuple[int, Array | None]:
        """A barrier: pass it when all living threads of each block stand here, else wait."""
        if step.guard >= 0:
            held, passing = self._split(step, active)
            if passing.any():
                self._park(at + 1, passing)
            active = held
            if not active.any():
                return at + 1, None
        if not self.blocked and np.array_equal(active, self.alive):
            self._meet(active)
            return at + 1, active
        old = self.blocked.get(at)
        self.blocked[at] = active if old is None else old | active
        return at + 1, None

    def _split(self, step: Step, active: Array) -> tuple[Array, Array]:
        held, _ = guarded(self.frame, step, active)
        taken = active if held is None else held
        return taken, active & ~taken

    def _meet(self, lanes: Array) -> None:
        frame = self.kernel_frame
        frame.clock += 1
        frame.block_time = np.where(lanes, frame.clock, frame.block_time).astype(np.int32)

    def release(self) -> bool:
        """When nothing can run: let complete blocks pass their barrier. Raises ExecutionError on a deadlock."""
        if not self.blocked:
            return False
        frame = self.kernel_frame
        threads = frame.launch.threads
        waiting = np.zeros(frame.lanes, np.bool_)
        for lanes in self.blocked.values():
            waiting |= lanes
        barrier = self._barrier_numbers()
        complete = (waiting | ~self.alive).reshape(-1, threads).all(axis=1)
        table = np.where(waiting, barrier, -1).reshape(-1, threads)
        highest = table.max(axis=1)
        agreed = ((table == highest[:, None]) | (table == -1)).all(axis=1)
        free = np.repeat(complete & agreed, threads) & waiting
        if not free.any():
            raise self._deadlock(waiting)
        self._meet(free)
        for at, lanes in list(self.blocked.items()):
            moving = lanes & free
            if moving.any():
                self._park(at + 1, moving)
            staying = lanes & ~free
            if staying.any():
                self.blocked[at] = staying
            else:
                del self.blocked[at]
        return True

    def _barrier_numbers(self) -> Array:
        numbers = np.zeros(self.frame.lanes, np.int64)
        for at, lanes in self.blocked.items():
            value, _ = self.frame.read(self.program.steps[at].sources[0])
            numbers = np.where(lanes, value.astype(np.int64), numbers)
        return numbers

    def _deadlock(self, waiting: Array) -> ExecutionError:
        frame = self.kernel_frame
        at = min(self.blocked)
        lane = int(np.flatnonzero(self.blocked[at])[0])
        missing = "others wait at another barrier" if len(self.blocked) > 1 else "others never come"
        text = f"deadlock: {frame.who(lane)} waits at this barrier, and {missing}"
        return frame.launch.error(ExecutionError, self.program.steps[at], text)


def _sizes(grid: Sequence[int]) -> tuple[int, int, int]:
    """A grid's sizes along x, y and z. Raises PtxError for what CUDA does not launch."""
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


@only_own("a kernel")
def run_kernel(
    kernel: Kernel | str,
    parameters: Sequence[Any],
    grid: Sequence[int],
    *,
    num_threads: int | None = None,
    shared_bytes: int = 0,
    name: str | None = None,
    races: bool = True,
    limit: float | None = KERNEL_SECONDS,
) -> Report:
    """Run a kernel over a grid of blocks; the buffers' arrays are changed in place.

    `parameters`: a Buffer or Pointer, an int, a float or bytes for each parameter of the entry; those left out at
    the end are zero (Triton adds pointers to scratch memory). `grid` has one to three sizes. `num_threads`: threads
    of a block (None: what `.reqntid` says). `shared_bytes`: dynamic shared memory, from the compiler's metadata.
    `limit`: seconds that the blocks which run together (of 16,384 threads, or one) may take, 60 by default; None: no
    limit. What the kernel prints goes to standard output.

    Raises PtxError: for text that is wrong, for a launch that CUDA refuses, and for what a run finds: MemoryFault
    (outside every buffer, misaligned, a race, a store to a read-only array), UndefinedBits, ExecutionError (deadlock,
    trap, failed assertion), TimeLimit. The buffers' arrays are then unchanged.
    """
    if isinstance(kernel, str):
        kernel = load_kernel(kernel, name)
    x, y, z = _sizes(grid)
    threads = num_threads or kernel.threads
    if not threads:
        raise PtxError(f"kernel {kernel.name} does not state its threads; give num_threads")
    if kernel.threads and threads != kernel.threads:
        raise PtxError(f"kernel {kernel.name} demands {kernel.threads} threads a block, not {threads}")
    if threads % 32 or not 0 < threads <= BLOCK_THREADS:
        raise PtxError(f"{threads} threads a block; whole warps up to 1024 threads can run")
    target = Target.parse(kernel.target)
    shared, most = kernel.static_shared + shared_bytes, shared_memory(target)
    if shared_bytes < 0 or shared > most:
        raise TooLarge(f"kernel {kernel.name} needs {shared:,} bytes of shared memory a block; {target} has {most:,}")
    if limit is not None and not limit > 0:
        raise PtxError(f"limit={limit!r} is no number of seconds; None sets no limit")
    launch = Launch(kernel, parameters, (x, y, z), threads, shared_bytes, races, limit)
    return launch.run() if x * y * z else Report(0, 0, threads)
