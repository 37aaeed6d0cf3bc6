"""A launch: a kernel with its parameters and memory on a grid of blocks."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from ptxdiff.emulator.binding.program import Step
from ptxdiff.emulator.binding.special_registers import OF_A_GRID
from ptxdiff.emulator.errors import PtxError, UndefinedBits
from ptxdiff.emulator.kernel.async_copy.tensor_maps import HostMap
from ptxdiff.emulator.kernel.block_orders import TOGETHER, awaited_loads, data_loads, waiting_loops
from ptxdiff.emulator.kernel.kernel import Kernel, places_of, size_of
from ptxdiff.emulator.kernel.memory.happens_before import acquiring, orders_parts
from ptxdiff.emulator.kernel.memory.space import Buffer, BufferPointer, GlobalMemory
from ptxdiff.emulator.kernel.printing import Printer
from ptxdiff.emulator.limits import Deadline
from ptxdiff.emulator.machine.frame import Constants
from ptxdiff.emulator.machine.special_registers import unknown_registers
from ptxdiff.emulator.numeric.bits import f32_round, f64_bits
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.emulator.text.nodes import Declaration

# ---- Clusters that have been launched, and those cancelled before (clusterlaunchcontrol.try_cancel) ------------------
#
# A kernel with such requests runs in waves of at most a quarter of its clusters, so that clusters are left to cancel,
# and a block that goes on with the work of others does so several times. A request cancels the last and the first of
# those left by turns: the ISA promises no order. If blocks may wait for each other (the program has atomics, fences,
# or volatile or acquiring accesses), it is always the first, because a block may wait for blocks before it. A request
# fails only if no cluster is left.

_PARTS = 4
_HIDDEN = np.array([0x9D2C5680, 0x7F4A7C15, 0x5BD1E995, 0x434C4331], np.uint32)
"""Responses are opaque: a kernel that takes their bits for a number gets a wrong one."""
Cluster = tuple[int, int, int]
"""The coordinates of a cluster's first block."""


class Launches:
    """The clusters of a grid, from `next` to `end`, that have neither begun nor been cancelled.

    `unqueried`: the cancelled clusters whose response no thread has queried: who cancelled them, and the step.
    """

    def __init__(self, clusters: int, in_order: bool) -> None:
        self.next, self.end = 0, clusters
        self.wave = -(-clusters // _PARTS)
        self.in_order = in_order
        self.cancelled = 0
        self.unqueried: dict[Cluster, tuple[str, Step]] = {}

    def waves(self, most: int) -> Iterator[tuple[int, int]]:
        """The first cluster of each wave, and how many begin with it; at most `most`."""
        while self.next < self.end:
            count = max(1, min(most, self.wave, self.end - self.next))
            first, self.next = self.next, self.next + count
            yield first, count

    def cancel(self) -> int | None:
        """Cancel a cluster and return its number; None if none is left."""
        if self.next == self.end:
            return None
        self.cancelled += 1
        if self.in_order or self.cancelled % 2 == 0:
            self.next += 1
            return self.next - 1
        self.end -= 1
        return self.end


def response(first: Cluster | None) -> Array:
    """The 16 bytes that a request writes: the first block of a cancelled cluster, or None if there is none."""
    x, y, z = first or (0, 0, 0)
    answer = np.array([x, y | z << 16, first is not None, 0], np.uint32)
    return (answer ^ _HIDDEN).view(np.uint8)


def answers(low: Array, high: Array) -> tuple[Array, Array, Array]:
    """What 64-bit halves of responses say: whether they are responses, whether a cluster was cancelled, and x, y, z."""
    words = np.stack([low, low >> np.uint64(32), high, high >> np.uint64(32)]).astype(np.uint32) ^ _HIDDEN[:, None]
    places = np.stack([words[0], words[1] & np.uint32(0xFFFF), words[1] >> np.uint32(16)])
    known = (words[3] == 0) & (words[2] <= 1)
    return known, words[2] == 1, places


# ---- The grid --------------------------------------------------------------------------------------------------------

_BULK_WRITES = ("bulk_store", "bulk_tensor_store")
"""The kinds of steps by which bulk copies write to global memory, or update it."""
E = TypeVar("E", bound=PtxError)


class KernelGrid:
    """A kernel on a grid of `sizes` blocks: its parameters, its memory, and the state that all frames of the run share.

    `cluster`: the blocks of a cluster along x, y and z. Block numbers go cluster by cluster, and by rank within one.
    `pointed`: buffers that are no parameters; the kernel reads their addresses from memory. `launches`: which clusters
    are left, if the kernel can cancel them.
    """

    def __init__(
        self,
        kernel: Kernel,
        parameters: Sequence[Any],
        sizes: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        races: bool,
        deadline: Deadline,
        cluster: tuple[int, int, int] | None = None,
        pointed: Sequence[Buffer] = (),
    ) -> None:
        self.in_clusters = cluster is not None
        self.cluster = cluster or (1, 1, 1)
        self.cluster_size = math.prod(self.cluster)
        self.deadline = deadline
        self.block = block
        self.printer = Printer()
        self.kernel = kernel
        self.program = kernel.program
        self.sizes = sizes
        self.threads = math.prod(block)
        self.races = races
        self.shared_bytes = kernel.static_shared + shared_bytes
        self.local_bytes = kernel.local
        self.synchronises = kernel.synchronises
        self.lock = threading.Lock()
        self.constants: Constants = {}
        used = [p.buffer if isinstance(p, BufferPointer | HostMap) else p for p in parameters]
        buffers = {id(b): b for b in (*used, *pointed) if isinstance(b, Buffer)}
        self.memory = GlobalMemory(list(buffers.values()), kernel.variables, kernel.const_spans)
        self._parameters = self._bytes(parameters)
        self.instructions = 0
        self.orders_parts = self.cluster_size > 1 or any(orders_parts(step) for step in self.program.steps)
        self.acquiring = acquiring(self.program)
        self.beyond_block_barriers = self.orders_parts or any(s.kind == "warp_barrier" for s in self.program.steps)
        """Whether something else than barriers of whole blocks may order threads."""
        self.copies_in_bulk = any(
            step.facts.proxy == "async" and (step.facts.memory == "reads" or step.kind in _BULK_WRITES)
            for step in self.program.steps
        )
        """Whether bulk copies may access what threads wrote to global memory."""
        requests = any(step.kind == "launch_cancel" for step in self.program.steps)
        clusters = math.prod(sizes) // self.cluster_size
        self.loops = waiting_loops(self.program)
        self.awaited = awaited_loads(self.program) if self.loops else frozenset()
        self.data_loads = data_loads(self.program) - self.acquiring
        self.order = TOGETHER
        self.judging = ""
        """How accesses of different blocks are judged: see `consistency.between`."""
        self.changes = 0
        """How many changes of memory there were, in a kernel whose blocks can wait for each other."""
        self.launches = Launches(clusters, self.synchronises) if requests else None

    def remember_threads(self) -> None:
        """Order threads of a block by themselves: some end before the others meet at a barrier."""
        self.orders_parts = self.beyond_block_barriers = True

    def unit(self, space: str) -> int:
        """The program's smallest access to a space, in bytes."""
        return self.kernel.units[space]

    def _bytes(self, values: Sequence[Any]) -> dict[str, bytes]:
        declared = self.kernel.parameters
        if len(values) > len(declared):
            raise PtxError(f"kernel {self.kernel.name} has {len(declared)} parameters, {len(values)} were given")
        encoded = {}
        for number, parameter in enumerate(declared):
            value = values[number] if number < len(values) else 0
            encoded[parameter.name] = parameter_bytes(value, parameter, size_of(parameter))
        return encoded

    def parameter(self, name: str, offset: int, size: int) -> int:
        """The bit pattern of `size` bytes of a parameter."""
        return int.from_bytes(self._parameters[name][offset : offset + size], "little")

    def parameter_bytes(self, offset: int, size: int) -> bytes | None:
        """`size` bytes of the parameters from an offset on, counted from the first; None if they are not inside one
        parameter."""
        for name, start in places_of(self.kernel.parameters).items():
            data = self._parameters[name]
            if start <= offset and offset + size <= start + len(data):
                return data[offset - start : offset - start + size]
        return None

    def within_parameters(self, offsets: Array, size: int) -> Array:
        """Whether `size` bytes from each offset on, counted from the first parameter, lie inside one parameter."""
        places = places_of(self.kernel.parameters)
        starts = np.array(list(places.values()), np.int64)
        ends = starts + [len(self._parameters[name]) for name in places]
        number = np.searchsorted(starts, offsets, "right") - 1
        inside: Array = (number >= 0) & (offsets + size <= ends[np.maximum(number, 0)])
        return inside

    @cached_property
    def parameter_memory(self) -> Buffer:
        """The bytes of all parameters, for accesses through registers; a kernel cannot store to them."""
        places = places_of(self.kernel.parameters)
        image = np.zeros(max((start + len(self._parameters[n]) for n, start in places.items()), default=0), np.uint8)
        for name, start in places.items():
            data = self._parameters[name]
            image[start : start + len(data)] = np.frombuffer(data, np.uint8)
        image.flags.writeable = False
        return Buffer(image, "the kernel's parameters")

    def coordinates(self, block: int) -> str:
        """A block's coordinates in the grid, in words."""
        return "({}, {}, {})".format(*(int(p[0]) for p in self.places(np.array([block]))))

    def places(self, blocks: Array) -> tuple[Array, Array, Array]:
        """The coordinates x, y and z of blocks, from their numbers."""
        x, y, _ = self.sizes
        if self.cluster_size == 1:
            return blocks % x, blocks // x % y, blocks // (x * y)
        cx, cy, cz = self.cluster
        cluster, rank = blocks // self.cluster_size, blocks % self.cluster_size
        nx, ny = x // cx, y // cy
        return (
            cluster % nx * cx + rank % cx,
            cluster // nx % ny * cy + rank // cx % cy,
            cluster // (nx * ny) * cz + rank // (cx * cy),
        )

    def error(self, kind: type[E], step: Step, message: str) -> E:
        """An error at a step that also names the line of the user's program."""
        if kind is UndefinedBits and (unknown := unknown_registers(self.program, lambda name, _: name in OF_A_GRID)):
            message += f" (this kernel reads {' and '.join(unknown)}, which no run here can know; "
            message += "only a GPU runs what stores values that depend on it)"
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


def parameter_bytes(value: Any, declared: Declaration, size: int) -> bytes:
    """The bytes of a parameter from a buffer, a number or bytes. Raises PtxError for a value that does not fit."""
    if isinstance(value, (Buffer, BufferPointer)):
        value = value.address
    if isinstance(value, HostMap):
        value = value.bytes
    if isinstance(value, (bytes, bytearray)):
        if len(value) != size:
            raise PtxError(f"parameter {declared.name} has {size} bytes, {len(value)} were given")
        return bytes(value)
    if isinstance(value, (float, np.floating)):
        # A float becomes a float of the declared width: Triton declares f32 as .u32 or .f32.
        pattern = f64_bits(float(value)) if size == 8 else f32_round(float(value))
        return (pattern & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    if not isinstance(value, (int, np.integer, np.bool_)):
        raise PtxError(f"parameter {declared.name}: {value!r} is no buffer, number or bytes")
    number = int(value)
    if not -(1 << 8 * size - 1) <= number < 1 << 8 * size:
        raise PtxError(f"parameter {declared.name} has {size} bytes; {number:#x} does not fit in them")
    return (number & ((1 << 8 * size) - 1)).to_bytes(size, "little")
