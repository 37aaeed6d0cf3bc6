"""Run a compiled kernel: the PTX of a whole module, on buffers, over a grid.

All threads of as many blocks as fit run in lockstep; blocks are taken in order. Bounds, alignment, definedness
and races are checked as the kernel runs.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from . import operations_call, operations_memory, operations_warp
from .analysis import Analysis, describe
from .bits import f32_round, f64_bits
from .contraction import fused
from .errors import ExecutionError, OperandError, PtxError, UndefinedBits
from .kernelframe import KernelFrame
from .machine import Constants, Scheduler, guarded
from .memory import SHARED_BASE, VARIABLES_BASE, Buffer, GlobalMemory, Pointer, pointers
from .nodes import Address, Declaration, Function, Instruction, Module, Name, Operand, Statement
from .parallel import for_each
from .parser import parse_module
from .program import Builder, Program, Reader, Register, Step
from .special import OF_A_GRID
from .standins import unknown_registers
from .targets import Target
from .types import TYPES
from .vectorise import Array

__all__ = ["Buffer", "Kernel", "Pointer", "Report", "load_kernel", "pointers", "run_kernel"]

LANES = 1 << 14
"""Threads of one frame: registers of that many lanes stay in a core's cache."""
SHARED_BUDGET = 4 << 20
"""Bytes of shared memory of one frame; fewer blocks run together when each has much."""

_LOADED = (operations_call, operations_memory, operations_warp)


@dataclass(frozen=True)
class Kernel:
    """A checked kernel: its program, parameters, and the memory that it declares.

    `threads` is what `.reqntid` demands (0: not stated). `units` has the smallest access to shared and to global
    memory; `synchronises`: it has atomics, fences or acquiring loads, by which blocks can order themselves.
    """

    name: str
    module: Module
    program: Program
    parameters: tuple[Declaration, ...]
    threads: int
    static_shared: int
    dynamic_shared: bool
    local: int
    variables: bytes
    units: dict[str, int]
    synchronises: bool
    target: str

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


class KernelBuilder(Builder):
    """A builder that knows variables in memory, kernel parameters, and the functions that a kernel calls.

    `passed`: the registers that stand for .param variables, by declaration, offset and width; `calling`: the functions
    whose bodies are being put in place.
    """

    def __init__(self, module: Module, function: Function) -> None:
        super().__init__(module.source, Target.parse(module.target), elementwise=False)
        self.module = module
        self.functions = {f.name: f for f in module.functions if not f.kernel and f.body is not None}
        self.passed: dict[tuple[int, int, int], Register] = {}
        self.calling: list[str] = []
        self.parameters = {p.name: p for p in function.parameters}
        self.sizes = {"shared": 0, "local": 0, "global": 0}
        self.variables = bytearray()
        self.dynamic: list[str] = []
        self.offsets: dict[int, int] = {}
        for variable in module.variables:
            self.scope.variables[variable.name] = variable
        for variable in module.variables:
            self.place(variable)

    def _add(self, statement: Statement) -> None:
        if isinstance(statement, Instruction) and statement.opcode == "call":
            name = operations_call.called(statement)
            if name is not None and name.text in self.functions:
                operations_call.inlined(self, statement, self.functions[name.text])
                return
        super()._add(statement)

    def _bind(self, node: Instruction) -> Step:
        step = super()._bind(node)
        return operations_call.returning(self, step) if step.kind == "exit" else step

    def place(self, node: Declaration) -> None:
        """Give a variable its offset in its space."""
        space = "global" if node.space == "const" else node.space
        if space not in self.sizes or id(node) in self.offsets:
            return
        width = TYPES[node.type].width // 8
        align = max(node.align, width)
        if node.size is None:
            self.dynamic.append(node.name)
            self.offsets[id(node)] = -align
            return
        start = -(-self.sizes[space] // align) * align
        self.offsets[id(node)] = start
        self.sizes[space] = start + width * node.vector * node.size
        if space == "global":
            self.variables.extend(bytes(self.sizes[space] - len(self.variables)))
            for number, value in enumerate(node.values):
                at = start + number * width
                self.variables[at : at + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")

    def address_of(self, node: Name) -> Reader | None:
        """The address of a shared or local variable."""
        variable = self.scope.variable(node.text)
        if variable is None:
            return None
        self.place(variable)
        offset = self.offsets.get(id(variable))
        if offset is None:
            message = f"{node.text} lies in .{variable.space} memory, whose variables have no address here"
            raise self.error(OperandError, message, node.offset)
        if offset < 0:
            # Dynamic shared memory begins behind the static variables, which Triton has none of.
            offset = -(-self.sizes["shared"] // -offset) * -offset
        base = VARIABLES_BASE if variable.space in ("global", "const") else SHARED_BASE
        return Reader(-1, 64, base + offset)

    def parameter(self, node: Operand, size: int) -> tuple[str, int]:
        """The parameter and the offset in it that `[name+offset]` means."""
        if not isinstance(node, Address) or node.base is None or node.base.text not in self.parameters:
            raise self.error(OperandError, "no parameter of this kernel has this name", node.offset)
        declared = self.parameters[node.base.text]
        whole = TYPES[declared.type].width // 8 * (declared.size or 1)
        if not 0 <= node.displacement <= whole - size:
            raise self.error(OperandError, f"{size} bytes lie outside parameter {declared.name}", node.offset)
        return declared.name, node.displacement


@lru_cache(maxsize=128)
def load_kernel(text: str, name: str | None = None, fuse: bool = False) -> Kernel:
    """Parse and check a PTX module and pick the kernel `name` (None: the only one).

    `fuse`: evaluate open multiplications and additions as ptxas may, contracted. Raises PtxError.
    """
    module = parse_module(text)
    function = module.kernel(name)
    assert function.body is not None
    builder = KernelBuilder(module, function)
    builder.add(function.body)
    program = builder.build()
    if fuse:
        program = fused(program)
    threads = function.directives.get("reqntid") or [0]
    return Kernel(
        function.name,
        module,
        program,
        tuple(function.parameters),
        int(np.prod(threads)),
        builder.sizes["shared"],
        bool(builder.dynamic),
        builder.sizes["local"],
        bytes(builder.variables),
        _units(program),
        any(_orders_blocks(s) for s in program.steps),
        module.target,
    )


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
    ) -> None:
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
            size = TYPES[parameter.type].width // 8 * (parameter.size or 1)
            found[parameter.name] = _parameter_bytes(value, parameter, size)
        return found

    def parameter(self, name: str, offset: int, size: int) -> int:
        """The bit pattern of `size` bytes of a parameter."""
        return int.from_bytes(self._parameters[name][offset : offset + size], "little")

    def coordinates(self, block: int) -> str:
        """A block's place in the grid."""
        x, y, _ = self.grid
        return f"({block % x}, {block // x % y}, {block // (x * y)})"

    def error(self, kind: type[ExecutionError], step: Step, message: str) -> ExecutionError:
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
        total = int(np.prod(self.grid))
        together = max(1, LANES // self.threads)
        if self.shared_bytes:
            together = max(1, min(together, SHARED_BUDGET // self.shared_bytes))
        # Blocks that talk to each other by atomics run in order, so that a run can be repeated.
        workers = 1 if self.synchronises else None
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
    try:
        return (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    except TypeError:
        raise PtxError(f"parameter {declared.name}: {value!r} is no buffer, number or bytes") from None


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


def run_kernel(
    kernel: Kernel | str,
    parameters: Sequence[Any],
    grid: Sequence[int],
    *,
    num_threads: int | None = None,
    shared_bytes: int = 0,
    name: str | None = None,
    races: bool = True,
) -> Report:
    """Run a kernel over a grid of blocks; the buffers' arrays are changed in place.

    `parameters`: a Buffer or Pointer, an int, a float or bytes for each parameter of the entry; those left out at
    the end are zero (Triton adds pointers to scratch memory). `grid` has one to three sizes. `num_threads`: threads
    of a block (None: what `.reqntid` says). `shared_bytes`: dynamic shared memory, from the compiler's metadata.

    Raises PtxError: for text that is wrong, and for what a run finds: MemoryFault (outside every buffer,
    misaligned, a race), UndefinedBits, ExecutionError (deadlock, endless loop, trap). The buffers' arrays are then
    unchanged.
    """
    if isinstance(kernel, str):
        kernel = load_kernel(kernel, name)
    sizes = tuple(int(g) for g in grid)
    if not 1 <= len(sizes) <= 3 or any(g < 0 for g in sizes):
        raise PtxError(f"grid {grid!r} must have one to three sizes")
    x, y, z = (*sizes, 1, 1)[:3]
    threads = num_threads or kernel.threads
    if not threads:
        raise PtxError(f"kernel {kernel.name} does not state its threads; give num_threads")
    if kernel.threads and threads != kernel.threads:
        raise PtxError(f"kernel {kernel.name} demands {kernel.threads} threads a block, not {threads}")
    if threads % 32 or threads > 1024:
        raise PtxError(f"{threads} threads a block; whole warps up to 1024 threads can run")
    launch = Launch(kernel, parameters, (x, y, z), threads, shared_bytes, races)
    return launch.run() if x * y * z else Report(0, 0, threads)
