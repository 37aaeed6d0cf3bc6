"""Run one thread of a PTX kernel on terms.

The thread's place in the grid, the kernel's parameters and all that it loads from global memory are inputs. Two loads
of one address and size give one value; of any others nothing is assumed, not even that memory holds it in one place.
That can refuse a proof, never give one. A load after a store is not modelled, because the store may have changed what
it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ptxdiff.emulator import Kernel
from ptxdiff.emulator.binding.program import Step
from ptxdiff.emulator.kernel.kernel import places_of, size_of
from ptxdiff.proving import programs
from ptxdiff.proving import terms as t
from ptxdiff.proving.programs import Lane, MaskedTerm
from ptxdiff.proving.terms import FALSE, TRUE, NotModelled, Term

_AXES = "xyz"
_MOST_BLOCKS = (31, 16, 16)  # bits of a block's number along x, y and z


@dataclass(frozen=True)
class Load:
    """A load from global memory: when it happens, its address (64 bits), and the bits that it gives."""

    condition: Term
    address: Term
    value: Term

    @property
    def size(self) -> int:
        """Bytes."""
        return self.value.width // 8


@dataclass(frozen=True)
class Store:
    """A store to global memory: when it happens, its address (64 bits), its bits, and which of these are undefined."""

    condition: Term
    address: Term
    value: Term
    undefined: Term

    @property
    def size(self) -> int:
        """Bytes."""
        return self.value.width // 8


@dataclass(frozen=True)
class Thread:
    """What any thread of a launch is given.

    block: threads along x, y and z. thread, number, grid: its place in the block, its block's place, and the blocks of
    the grid, 32 bits along each axis. parameters: offset in bytes and bits of each. assumptions: what holds for them.
    """

    block: tuple[int, int, int]
    thread: tuple[Term, ...]
    number: tuple[Term, ...]
    grid: tuple[Term, ...]
    parameters: tuple[tuple[int, Term], ...]
    assumptions: tuple[Term, ...]

    @classmethod
    def any_of(cls, kernel: Kernel, block: Sequence[int]) -> Thread:
        """Any thread of any launch with this block. Raises NotModelled for parameters that are structures."""
        x, y, z = (*block, 1, 1)[:3]
        sizes = x, y, z
        thread, number, grid, known = [], [], [], []
        for axis, size, most in zip(_AXES, sizes, _MOST_BLOCKS, strict=True):
            bits = (size - 1).bit_length()
            own = t.zext(t.variable(f"tid.{axis}", bits), 32) if bits else t.const(0, 32)
            if size & (size - 1):
                known.append(t.ult(own, t.const(size, 32)))
            index, count = (t.zext(t.variable(f"{n}.{axis}", most), 32) for n in ("ctaid", "nctaid"))
            known.append(t.ult(index, count))
            thread.append(own)
            number.append(index)
            grid.append(count)
        places = places_of(kernel.parameters)
        parameters = []
        for declared in kernel.parameters:
            size = size_of(declared)
            if size not in (1, 2, 4, 8):
                raise NotModelled(f"the parameter {declared.name} of {size} bytes")
            parameters.append((places[declared.name], t.variable(f"p{places[declared.name]}", 8 * size)))
        return cls(sizes, tuple(thread), tuple(number), tuple(grid), tuple(parameters), tuple(known))

    def parameter(self, offset: int, size: int) -> Term:
        """Bytes of the parameter area; those between parameters are any."""
        joined = t.const(0, 8 * size)
        for k in range(size):
            byte = self._byte(offset + k)
            joined = t.or_(joined, t.shl(t.zext(byte, 8 * size), t.const(8 * k, 8 * size)))
        for start, value in self.parameters:
            if start == offset and value.width == 8 * size:
                return value
        return joined

    def _byte(self, offset: int) -> Term:
        for start, value in self.parameters:
            if start <= offset < start + value.width // 8:
                low = 8 * (offset - start)
                return t.extract(value, low + 7, low)
        return t.variable(f"between{offset}", 8)

    def special(self, name: str, component: str) -> Term | None:
        """A special register of PTX; None if it has no term."""
        whole = {"%tid": self.thread, "%ctaid": self.number, "%nctaid": self.grid}.get(name)
        if whole is not None and component in _AXES:
            return whole[_AXES.index(component)]
        if name == "%ntid" and component in _AXES:
            return t.const(self.block[_AXES.index(component)], 32)
        return self.lane if name == "%laneid" else None

    @property
    def lane(self) -> Term | None:
        """The thread's number in its warp; None where a block has more axes than one."""
        return t.and_(self.thread[0], t.const(31, 32)) if self.block[1:] == (1, 1) else None


def of_all_lanes(term: Term) -> bool:
    """Whether a term has one value in all threads of a block."""
    return not any(x.op == "var" and x.detail.startswith(("tid.", "loaded", "unset")) for x in t.ordered([term]))


@dataclass
class Accesses:
    """What a thread does to global memory, in order."""

    loads: list[Load] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)


@dataclass(frozen=True)
class KernelResults:
    """What a thread of a kernel does. undefined: whether an address, a branch or a stored bit is undefined."""

    loads: tuple[Load, ...]
    stores: tuple[Store, ...]
    undefined: Term
    computed: tuple[programs.ComputedTerms, ...]


def run(kernel: Kernel, thread: Thread, known: Sequence[Load] = ()) -> KernelResults:
    """What a thread does. known: loads of another kernel from the same memory. Raises NotModelled."""
    lane = _KernelLane(kernel, thread, known)
    lane.run()
    undefined = lane.undefined
    for store in lane.accesses.stores:
        undefined = t.bor(undefined, t.band(store.condition, t.nonzero(store.undefined)))
    return KernelResults(tuple(lane.accesses.loads), tuple(lane.accesses.stores), undefined, tuple(lane.computed))


class _KernelLane(Lane):
    def __init__(self, kernel: Kernel, thread: Thread, known: Sequence[Load]) -> None:
        super().__init__(kernel.program)
        self.known = known
        self.units = True
        self.thread = thread
        self.accesses = Accesses()
        self.places = places_of(kernel.parameters)

    def runner(self, step: Step) -> Callable[..., list[MaskedTerm]] | None:
        """See `Lane.runner`."""
        return _RUNNERS.get(step.kind) or super().runner(step)

    def address(self, step: Step, condition: Term) -> Term:
        """The address of an access to global memory."""
        access = step.detail
        if access.space not in ("", "global"):
            raise NotModelled(f"{step.bound.spelling}, an access to {access.space} memory")
        orders = {"volatile", "relaxed", "acquire", "release", "mmio"} & set(step.node.modifiers)
        if orders:
            raise NotModelled(f"{step.bound.spelling}, which orders accesses of threads")
        base = self.read(step.sources[0])
        self.undefined = t.bor(self.undefined, t.band(condition, base.doubtful))
        return t.add(t.zext(base.value, 64), t.const(access.displacement, 64))


def _ld(lane: _KernelLane, step: Step, condition: Term) -> list[MaskedTerm]:
    access = step.detail
    address = lane.address(step, condition)
    if lane.accesses.stores:
        raise NotModelled(f"{step.bound.spelling} after a store, which may have changed what it reads")
    width = 8 * access.size
    loads = (*lane.known, *lane.accesses.loads)
    held = next((x for x in loads if x.address is address and x.value.width == width), None)
    value = held.value if held else t.variable(f"loaded{len(loads)}", width)
    lane.accesses.loads.append(Load(condition, address, value))
    parts = (t.extract(value, (k + 1) * access.width - 1, k * access.width) for k in range(access.count))
    return [programs.defined(p) for p in parts]


def _st(lane: _KernelLane, step: Step, condition: Term) -> list[MaskedTerm]:
    access = step.detail
    address, width = lane.address(step, condition), 8 * access.size
    value, undefined = t.const(0, width), t.const(0, width)
    for k, reader in enumerate(step.sources[1:]):
        part, by = lane.read(reader), t.const(k * access.width, width)
        value = t.or_(value, t.shl(t.zext(part.value, width), by))
        undefined = t.or_(undefined, t.shl(t.zext(part.undefined, width), by))
    lane.accesses.stores.append(Store(condition, address, value, undefined))
    return []


def _ld_param(lane: _KernelLane, step: Step, condition: Term) -> list[MaskedTerm]:
    name, offset = step.detail
    whole = step.destinations
    from ptxdiff.emulator.text.types import TYPES

    size = TYPES[step.bound.modifiers["type"] or ""].width // 8
    first = lane.places[name] + offset
    return [programs.defined(lane.thread.parameter(first + k * size, size)) for k in range(len(whole))]


def _special(lane: _KernelLane, step: Step, condition: Term) -> list[MaskedTerm]:
    patterns = []
    for writer, (name, component) in zip(step.destinations, step.detail, strict=True):
        value = lane.thread.special(name, component)
        if value is None:
            raise NotModelled(f"the special register {name}")
        patterns.append(programs.defined(t.extract(value, min(writer.width, 32) - 1, 0)))
    return patterns


def _cvta(lane: _KernelLane, step: Step, condition: Term) -> list[MaskedTerm]:
    if (step.bound.modifiers.get("space") or "").partition("::")[0] not in ("global", "const"):
        raise NotModelled(f"{step.bound.spelling}, an address outside of global memory")
    return [lane.read(step.sources[0])]


def _policy(lane: _KernelLane, step: Step, condition: Term) -> list[MaskedTerm]:
    return [programs.defined(t.const(0, 64))]


_RUNNERS: Mapping[str, Callable[[_KernelLane, Step, Term], list[MaskedTerm]]] = {
    "ld": _ld, "st": _st, "ld_param": _ld_param, "special": _special, "cvta": _cvta, "policy": _policy,
}  # fmt: skip

__all__ = ["FALSE", "TRUE", "Accesses", "KernelResults", "Load", "Store", "Thread", "of_all_lanes", "run"]
