"""Check the rules of asynchronous products (wgmma): what threads must not do before the wait, and what must precede
them.

From its issue until `wgmma.wait_group`, a product owns its accumulators, the registers with a's elements, and the bytes
of its matrices. A thread that accesses these registers, or writes to these bytes, gets an error, although the emulator
has already computed the product. Before the issue, `wgmma.fence` must follow other writes to its registers, and
`fence.proxy.async` must follow writes to its matrices, except by asynchronous copies of the same proxy (ISA 9.7.15.7,
8.6). If `mov` copies an owned register, the product owns the copy too: the compiler moves registers, and ptxas then
inserts a wait.

A write to a register with a's elements is undefined by the ISA, but Triton 3.6 does it: the next iteration of a loop
computes new elements of a while products that read the old ones run. ptxas 12.8 and 12.9 give the new value a different
register, so the emulator allows it, and the product no longer owns the register.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ptxdiff.emulator.binding.program import Program, Step
from ptxdiff.emulator.errors import ExecutionError, MemoryFault
from ptxdiff.emulator.kernel.in_flight import Groups, MemoryFrame, line_of
from ptxdiff.emulator.numeric.vectorise import Array


@dataclass
class Promise:
    """Products of one step before their wait: their warpgroups, the wgmma group of each, and what they own.

    accumulators: how many registers of the step belong to d. `offsets`: of each matrix in shared memory, the offsets of
    its 16-byte chunks, a row for each warpgroup.
    """

    step: Step
    groups: Array
    number: Array
    accumulators: int
    offsets: list[Array] = field(default_factory=list)
    copies: set[int] = field(default_factory=set)
    renamed: dict[int, set[int]] = field(default_factory=dict)

    @cached_property
    def results(self) -> tuple[int, ...]:
        """The register slots of d."""
        return tuple(w.slot for w in self.step.destinations)

    @cached_property
    def inputs(self) -> frozenset[int]:
        """The register slots of a's elements."""
        return elements_of_a(self.step, self.accumulators)

    @property
    def slots(self) -> Set[int]:
        """The slots of all registers that the products own."""
        return self._registers | self.copies if self.copies else self._registers

    @cached_property
    def _registers(self) -> frozenset[int]:
        return self.inputs.union(self.results)

    def owners(self, slot: int) -> Array:
        """The warpgroups that still own the register: they have not written a new value to it (allowed for a's
        elements)."""
        gone = self.renamed.get(slot)
        return self.groups if gone is None else self.groups[[g not in gone for g in self.groups.tolist()]]

    def rename(self, slot: int, active: Array) -> None:
        """End the ownership of a register for warpgroups whose threads have all written to it."""
        whole = active.reshape(-1, 128)[self.groups].all(axis=1)
        self.renamed.setdefault(slot, set()).update(self.groups[whole].tolist())


def elements_of_a(step: Step, accumulators: int) -> frozenset[int]:
    """The registers with elements of a and with metadata.

    A descriptor is read at the issue, so it is not among them.
    """
    between = step.sources[accumulators:-2]
    return frozenset(r.slot for r in between if r.slot >= 0 and r.width == 32)


def watched(program: Program) -> frozenset[int]:
    """The registers of all products of a program."""
    found: set[int] = set()
    for step in program.steps:
        if step.kind == "wgmma":
            found |= {w.slot for w in step.destinations} | elements_of_a(step, step.detail.count)
    return frozenset(found)


class Promises:
    """The products of a frame's warpgroups, with groups of each."""

    def __init__(self, frame: MemoryFrame) -> None:
        self.frame = frame
        self.given: list[Promise] = []
        self.slots = watched(frame.program)
        self.groups = Groups(-(-frame.lanes // 128))
        self._fenced = np.zeros(len(self.groups.closed), np.bool_)
        self._touched: dict[int, Array] = {}
        self._owned: set[int] = set()
        """The slots of all registers that products own."""

    # registers -------------------------------------------------------------------------------------------

    def watch(self, step: Step, active: Array) -> None:
        """Called before every other step. Raises ExecutionError if it accesses a register that a product owns."""
        if step.kind == "wgmma":
            return
        if self._owned:
            read = [r.slot for r in step.sources]
            if step.guard >= 0:
                read.append(step.guard)
            moves = step.node.opcode == "mov"
            groups: Array = np.asarray(active.reshape(-1, 128).any(axis=1))
            copied = False
            for slot in read:
                for promise in self._of(slot, groups):
                    if not moves or slot in promise.inputs:
                        raise self._refusal(step, promise, slot, active, "reads")
                    promise.copies |= {w.slot for w in step.destinations if w.slot >= 0}
                    copied = True
            for writer in step.destinations:
                for promise in self._of(writer.slot, groups):
                    if writer.slot in promise.inputs and "sp" not in promise.step.node.modifiers:
                        if step.guard < 0:  # the guard may be false for some of the active threads
                            promise.rename(writer.slot, active)
                    elif writer.slot not in promise.copies:
                        raise self._refusal(step, promise, writer.slot, active, "writes")
            if copied:
                self._list()
        for writer in step.destinations:
            if writer.slot in self.slots:
                old = self._touched.get(writer.slot)
                self._touched[writer.slot] = active if old is None else old | active

    def _of(self, slot: int, groups: Array) -> list[Promise]:
        """The products that own a register of some of the warpgroups (a mask)."""
        if slot not in self._owned:
            return []
        return [p for p in self.given if slot in p.slots and groups[p.owners(slot)].any()]

    def _refusal(self, step: Step, promise: Promise, slot: int, active: Array, verb: str) -> ExecutionError:
        group = next(int(g) for g in promise.owners(slot) if active.reshape(-1, 128)[g].any())
        lane = group * 128 + int(np.flatnonzero(active.reshape(-1, 128)[group])[0])
        name = self.frame.program.registers[slot].name
        text = f"{self.frame.who(lane)} {verb} {name}, which the wgmma in line {line_of(self.frame, promise.step)} "
        text += "reads" if slot in promise.inputs else "is still to write"
        return self.frame.fault(ExecutionError, step, text + self._missing(promise, group))

    def _missing(self, promise: Promise, group: int) -> str:
        """The missing instructions, in words."""
        return self.groups.missing(group, int(promise.number[list(promise.groups).index(group)]), "wgmma")

    # order -----------------------------------------------------------------------------------------------

    def before(self, step: Step, groups: Array, count: int) -> None:
        """Refuse a product if another product owns its registers, or if they were written since the last
        wgmma.fence."""
        frame = self.frame
        if not self._fenced[groups].all():
            lane = int(groups[np.flatnonzero(~self._fenced[groups])[0]]) * 128
            text = f"{frame.who(lane)} issues its first wgmma without a wgmma.fence before it"
            raise frame.fault(ExecutionError, step, text)
        results, inputs = tuple(w.slot for w in step.destinations), elements_of_a(step, count)
        issuing = np.zeros(len(self.groups.closed), np.bool_)
        issuing[groups] = True
        active = np.repeat(issuing, 128)[: frame.lanes]
        slots = {*results, *inputs}
        for slot in sorted(slots & self._touched.keys()):
            touched = self._touched[slot] & active
            if touched.any():
                lane = int(np.flatnonzero(touched)[0])
                text = f"{frame.who(lane)} wrote {frame.program.registers[slot].name}, which this wgmma takes, and no "
                raise frame.fault(ExecutionError, step, text + "wgmma.fence lies between")
        for promise in self.given:
            for slot in sorted((slots & promise.slots) - self._keeps(promise, step, results, inputs)):
                if issuing[promise.owners(slot)].any():
                    raise self._refusal(step, promise, slot, active, "gives wgmma")

    def _keeps(
        self, promise: Promise, step: Step, results: tuple[int, ...], inputs: frozenset[int]
    ) -> frozenset[int] | set[int]:
        """The registers of a product that another may take, too: accumulators of the same shape, and elements of a."""
        shapes = promise.step.bound.modifiers["shape"], step.bound.modifiers["shape"]
        shared = promise.inputs & inputs
        return shared.union(results) if promise.results == results and shapes[0] == shapes[1] else shared

    def fence(self, active: Array | None) -> None:
        """wgmma.fence: products may use registers written before it."""
        if active is None:
            self._fenced[:] = True
            self._touched.clear()
            return
        self._fenced |= active.reshape(-1, 128).any(axis=1)
        left = {slot: mask & ~active for slot, mask in self._touched.items()}
        self._touched = {slot: mask for slot, mask in left.items() if mask.any()}

    # shared memory ---------------------------------------------------------------------------------------

    def read(self, step: Step, promise: Promise, offsets: Array) -> None:
        """Record that a product reads chunks of shared memory, a row of offsets for each of its warpgroups."""
        frame, shared = self.frame, self.frame.shared
        flat = offsets.reshape(-1)
        lanes = np.repeat(promise.groups * 128, offsets.shape[1])
        frame.owned.refuse_access(step, lanes, flat, 16, "gives wgmma")
        if frame.grid.races:
            if shared.awaits_fences(flat, 16):
                self._refuse_unfenced(step, promise, offsets)
            # If all four warps have the same vector clocks, the second finds what the first wrote, and one check does.
            order, of_warps = frame.order, promise.groups[:, None] * 128 + 32 * np.arange(4)
            vectors = order.vector[of_warps], order.block_time[of_warps]
            alike = all((one == one[:, :1]).all() for one in vectors)
            suspect = not alike or shared.written_by_anybody(flat, 16, lanes).any()
            for warp in range(2 if alike else 4) if suspect else ():
                some = lanes + 32 * warp
                bad = shared.written_by_others(flat, 16, some)
                if bad.any():
                    at = int(np.flatnonzero(bad)[0])
                    text = f"race: the wgmma of {frame.who(int(some[at]))} reads shared memory at offset "
                    text += f"{int(flat[at]) % shared.size}, which another thread wrote, and no barrier lies between"
                    raise frame.fault(MemoryFault, step, text)
        frame.owned.sources.add(offsets, 16, 1)
        promise.offsets.append(offsets)

    def _refuse_unfenced(self, step: Step, promise: Promise, offsets: Array) -> None:
        shared = self.frame.shared
        for first, mine in zip((promise.groups * 128).tolist(), offsets, strict=True):
            bad = shared.unfenced(range(first, first + 128, 32), shared.units(mine, 16), of_warp=True)
            if bad.any():
                text = f"the wgmma of {self.frame.who(first)} reads shared memory at offset "
                text += f"{int(mine[np.flatnonzero(bad)[0]]) % shared.size}, which a thread wrote, and no "
                raise self.frame.fault(MemoryFault, step, text + "fence.proxy.async lies between")

    def note_layout(self, step: Step, offsets: Array, swizzle: int, lane: int, name: str) -> None:
        """Refuse a matrix that an asynchronous copy wrote with a different swizzle than its descriptor states."""
        shared = self.frame.shared
        if shared.swizzles is None:
            return
        first = int(self.frame.block[lane]) * shared.size
        found = shared.swizzles[(offsets.reshape(-1) + first) // 16]
        bad = (found != 0) & (found != swizzle)
        if bad.any():
            at = int(np.flatnonzero(bad)[0])
            words = {16: "without a swizzle"}
            wrote, reads = (words.get(int(x), f"with a swizzle of {int(x)} bytes") for x in (found[at], swizzle))
            text = f"the descriptor of {name} reads shared memory at offset {int(offsets.reshape(-1)[at])} {reads}; "
            raise self.frame.fault(MemoryFault, step, text + f"a tensor map wrote it {wrote}")

    def writer(self, units: Array) -> str:
        """See `Owner`: products write registers."""
        return ""

    def reader(self, units: Array) -> str:
        """See `Owner`."""
        for promise in self.given:
            for number, group in enumerate(promise.groups.tolist()):
                if any(np.isin(self.frame.shared.units(o[number], 16), units).any() for o in promise.offsets):
                    text = f"the wgmma in line {line_of(self.frame, promise.step)} still reads"
                    return text + self._missing(promise, group)
        return ""

    # groups ----------------------------------------------------------------------------------------------

    def give(self, promise: Promise) -> None:
        """Record that a product has been issued."""
        self.given.append(promise)
        self._owned |= promise.slots

    def _list(self) -> None:
        self._owned = set().union(*(promise.slots for promise in self.given))

    def commit(self, groups: Array) -> None:
        """Close the group of each warpgroup's products since its last one."""
        self.groups.commit(groups)

    def wait(self, left: int, groups: Array) -> None:
        """Complete all groups of each warpgroup except its last `left`."""
        mine = np.zeros(len(self.groups.closed), np.bool_)
        mine[groups] = True
        staying = []
        for promise in self.given:
            ready = mine[promise.groups] & self.groups.over(promise.groups, promise.number, left)
            if ready.any():
                self._complete(promise, ready)
            if not ready.all():
                promise.groups, promise.number = promise.groups[~ready], promise.number[~ready]
                promise.offsets = [o[~ready] for o in promise.offsets]
                staying.append(promise)
        self.given = staying
        self._list()

    def _complete(self, promise: Promise, ready: Array) -> None:
        shared, order = self.frame.shared, self.frame.order
        for offsets in promise.offsets:
            self.frame.owned.sources.add(offsets[ready], 16, -1)
        if not self.frame.grid.races or not promise.offsets:
            return
        # Any thread of the warpgroup hands on that the products have read: CUTLASS lets one thread release a buffer.
        lanes = promise.groups[ready] * 128
        agents = np.array([order.agent(("warpgroup", lane)) for lane in (lanes % order.team).tolist()])
        for agent in np.unique(agents).tolist():
            some, first = ready.copy(), lanes[agents == agent]
            some[ready] = agents == agent
            for offsets in promise.offsets:
                read = offsets[some]
                shared.note_finished_read(read.reshape(-1), 16, np.repeat(first, read.shape[1]), agent)
        order.acquire_agents(lanes, agents, 128)
