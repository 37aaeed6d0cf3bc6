"""Whether ptxas compiled a kernel right: its machine code stores what its PTX stores, for all inputs.

What is proved: for every thread of every launch with this block, whatever the parameters and memory hold, the machine
code loads from no other addresses than the PTX and stores the same bytes to the same addresses. It rests on the
definitions of both sides, so every form of machine instruction must be taught (`ptxdiff.conformance.taught`). Timing,
and what threads do together, is no part of it.

A counterexample is believed only when a launch shows it: the PTX emulator and the machine code on the CPU run on the
same buffers and store different bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptxdiff.conformance.taught import unsettled
from ptxdiff.emulator import (
    Buffer,
    BufferPointer,
    Kernel,
    PtxError,
    contraction_open,
    fusable,
    load_kernel,
    run_kernel,
)
from ptxdiff.emulator.kernel.memory.space import GlobalMemory
from ptxdiff.proving import kernels, machine_code, queries
from ptxdiff.proving import terms as t
from ptxdiff.proving.kernels import KernelResults, Load, Store, Thread
from ptxdiff.proving.machine_code import MachineResults
from ptxdiff.proving.queries import Query
from ptxdiff.proving.solving import ProofSearch, SolverFault, TermFault, Verdict, ever, needed
from ptxdiff.proving.terms import FALSE, NotEvaluable, NotModelled, Term
from ptxdiff.sass.cubin import MachineCode
from ptxdiff.sass.run import parameter_area, run_machine_code

SECONDS = 20.0
"""Of each run of a launch that is to show a counterexample."""


@dataclass(frozen=True)
class AssembledKernel:
    """A kernel's PTX, and the machine code that ptxas made of it.

    text, entry: a module and the kernel in it. target: as the table of machine instructions calls it ("sm_90a").
    block: threads along x, y and z. make: fresh parameters for `run_kernel` of a launch that is to show
    counterexamples, whose buffers are filled before it runs. grid: of that launch.
    """

    text: str
    entry: str | None
    code: MachineCode
    target: str
    block: tuple[int, ...]
    grid: tuple[int, ...]
    make: Callable[[], Sequence[Any]]


def prove_translation(one: AssembledKernel, search: ProofSearch) -> Verdict:
    """The verdict on machine code. Where ptxas may contract, it may have the bits of any reading."""
    try:
        plain = load_kernel(one.text, one.entry)
        readings = [plain]
        if contraction_open(plain.program):
            readings.append(load_kernel(one.text, one.entry, True))
        verdict = Verdict("not settled", "nothing was tried")
        for reading in readings:  # a launch may show that ptxas has chosen another one, which is appended
            verdict = _by_reading(one, reading, readings, search)
            if verdict.verdict == "proved":
                break
        return verdict
    except NotModelled as reason:
        return Verdict("not settled", f"not modelled: {reason}")
    except PtxError as error:
        return Verdict("not settled", f"does not run: {_line(error)}")


def _line(error: PtxError) -> str:
    return " ".join(str(error).split())[:200]


@dataclass(frozen=True)
class _Sides:
    one: AssembledKernel
    readings: list[Kernel]
    kernel: Kernel  # the reading whose results are wanted
    thread: Thread
    wanted: KernelResults
    made: MachineResults


def _by_reading(one: AssembledKernel, kernel: Kernel, readings: list[Kernel], search: ProofSearch) -> Verdict:
    thread = Thread.any_of(kernel, one.block)
    if not possible(thread.assumptions):
        raise AssertionError("no thread meets the assumptions about threads")
    wanted = kernels.run(kernel, thread)
    program = _digest(wanted.stores)
    undefined = search.refute(
        wanted.undefined, thread.assumptions, lambda model, exact: None, lambda asked: _last(asked, wanted.undefined)
    )
    if undefined is not None:
        reason = undefined.reason if undefined.reason.startswith("time") else "undefined bits: the PTX may use some"
        return Verdict("not settled", reason, program=program)
    finder = _Finder(wanted, thread)
    made = machine_code.run(one.code, thread, finder.find)
    if not _closed(finder.unfounded, thread.assumptions, search):
        return Verdict(
            "not settled", "loads: that the machine code loads what the PTX loads is not shown", program=program
        )
    sides = _Sides(one, readings, kernel, thread, wanted, made)
    if left := unsettled(made.forms, one.target):
        return Verdict("not settled", f"not taught: {left[0]}, of {len(left)} such forms on {one.target}")
    verdict = _stored_alike(sides, search)
    return replace(verdict, program=program, rules=_digest(made.stores))


def possible(assumptions: Sequence[Term]) -> bool:
    """Whether the first thread of a grid of one block meets them, so that nothing is proved of no thread."""
    names = {x.detail for x in t.ordered(assumptions) if x.op == "var"}
    first = {n: int(n.startswith("nctaid")) for n in names}
    return all(t.evaluate(assumptions, first))


def _digest(stores: Sequence[Store]) -> str:
    return t.digest(x for s in stores for x in (s.condition, s.address, s.value))


def _last(asked: Query, goal: Term) -> str | None:
    return "no counterexample was shown" if asked.way == queries.ways([goal])[-1] else None


# Loads ------------------------------------------------------------------------------------------------------------


class _Finder:
    """Finds the PTX's load that happens whenever the machine code's does, at the same address.

    unfounded: that some load was not the one that was found; it must hold for no input.
    """

    def __init__(self, wanted: KernelResults, thread: Thread) -> None:
        self.wanted, self.thread = wanted, thread
        self.unfounded = FALSE

    def find(self, condition: Term, address: Term, size: int) -> Load | None:
        """The PTX's load; None if there is none."""
        fitting = [x for x in self.wanted.loads if x.size == size]
        for one in sorted(fitting, key=lambda x: x.address is not address):
            same = t.band(one.condition, t.eq(one.address, address))
            other = t.band(condition, t.bnot(same))
            if not ever([other, *needed(self.thread.assumptions, other)]):
                self.unfounded = t.bor(self.unfounded, other)
                return one
        return None


def _closed(goal: Term, assumptions: Sequence[Term], search: ProofSearch) -> bool:
    """Whether a goal is shown to hold for no input."""
    return search.refute(goal, assumptions, lambda model, exact: None, lambda asked: _last(asked, goal)) is None


# Stores -----------------------------------------------------------------------------------------------------------


def _stored_alike(sides: _Sides, search: ProofSearch) -> Verdict:
    theirs, ours = sides.wanted.stores, sides.made.stores
    if not theirs:
        return Verdict("not settled", "nothing to prove: the PTX stores nothing")

    def refuted(goal: Term) -> Verdict | None:
        def left_open(asked: Query) -> str | None:
            if asked.way != queries.ways([goal])[-1]:
                return None
            if sides.made.approximate:
                return "approximate: operands of approximate instructions, or what follows them, differ"
            if not asked.exact:
                return f"{asked.way}: equal operands alone do not prove it"
            return "no launch showed the difference that the solver found"

        return search.refute(goal, sides.thread.assumptions, lambda model, exact: None, left_open)

    everywhere = _anywhere(theirs, ours)
    if len(theirs) != len(ours) or any(a.size != b.size for a, b in zip(theirs, ours, strict=True)):
        verdict = refuted(everywhere)
        return Verdict("proved") if verdict is None else _shown(sides, everywhere, search) or verdict
    goals = list(_pairwise(theirs, ours))
    together = FALSE
    for goal in goals:
        together = t.bor(together, goal)
    if len(goals) > 2 and refuted(together) is None:  # one query instead of many
        return Verdict("proved")
    for goal in goals:
        verdict = refuted(goal)
        if verdict is not None:  # the stores may be the same in another order
            if len(theirs) > 1 and refuted(everywhere) is None:
                return Verdict("proved")
            return _shown(sides, goal, search) or verdict
    return Verdict("proved")


def _pairwise(theirs: Sequence[Store], ours: Sequence[Store]) -> Iterator[Term]:
    """That a store and the one in its place differ. If none does, all memory is the same."""
    for a, b in zip(theirs, ours, strict=True):
        yield t.bnot(t.eq(a.condition, b.condition))
        apart = t.bor(t.bnot(t.eq(a.address, b.address)), t.bnot(t.eq(a.value, b.value)))
        yield t.band(a.condition, apart)


def _anywhere(theirs: Sequence[Store], ours: Sequence[Store]) -> Term:
    """That some byte of memory differs after all stores, or is written by one side alone."""
    address = t.variable("place", 64)
    (written, byte), (also, other) = (_at(stores, address) for stores in (theirs, ours))
    return t.bor(t.bnot(t.eq(written, also)), t.band(written, t.bnot(t.eq(byte, other))))


def _at(stores: Sequence[Store], place: Term) -> tuple[Term, Term]:
    """Whether a byte is written, and what it holds then."""
    written, byte = FALSE, t.const(0, 8)
    for store in stores:
        for k in range(store.size):
            here = t.band(store.condition, t.eq(t.add(store.address, t.const(k, 64)), place))
            written = t.bor(written, here)
            byte = t.ite(here, t.extract(store.value, 8 * k + 7, 8 * k), byte)
    return written, byte


# Counterexamples --------------------------------------------------------------------------------------------------


def _shown(sides: _Sides, goal: Term, search: ProofSearch) -> Verdict | None:
    """A counterexample that a launch shows; None if none does.

    Raises TermFault where a run stores other bytes than its terms.
    """
    one = sides.one
    fixed = [*sides.thread.assumptions, *_Launch(one).constraints(sides.thread)]
    for way in queries.ways([goal]):
        try:
            answer = search.ask(queries.query(goal, fixed, way), max(search.left / 2, 2.0))
        except SolverFault:
            continue
        if answer.answer == "unsat":
            return None
        if answer.answer == "sat":
            verdict = _launched(sides, _numbers(sides, goal, fixed, answer.model))
            if verdict is not None:
                return verdict
    return None


def _launched(sides: _Sides, numbers: Mapping[str, int]) -> Verdict | None:
    """The counterexample that a launch on some numbers shows; None if both sides store the same."""
    one, made = sides.one, sides.made
    given = {}
    for load in sides.wanted.loads:
        happens, address, value = t.evaluate([load.condition, load.address, load.value], numbers)
        if happens:
            given[address] = value.to_bytes(load.size, "little")
    try:
        ours = _Launch(one, given)
        ours.machine()
        readings = []
        for kernel in sides.readings:
            readings.append(_Launch(one, given))
            readings[-1].emulate(kernel)
    except PtxError as error:
        return Verdict("not settled", f"the launch of a counterexample does not run: {_line(error)}")
    _compare_with_terms(made.stores, numbers, ours, "machine code")
    _compare_with_terms(sides.wanted.stores, numbers, readings[[*sides.readings].index(sides.kernel)], "PTX")
    apart = [ours.difference(other) for other in readings]
    if not all(apart):
        return None
    if (other_reading := _fused_in_part(sides, given, ours)) is not None:
        return other_reading
    if made.approximate or any(s.bound.form.approximate for s in sides.readings[0].program.steps):
        return Verdict("not settled", f"approximate: {apart[0]}, and approximate instructions are a model here")
    inputs = {f"0x{a:x}": tuple(data) for a, data in sorted(given.items())}
    return Verdict("counterexample", apart[0], inputs=inputs)


MOST_PAIRS = 6
"""Of products and sums that ptxas may fuse, of which every choice is tried in a launch."""


def _fused_in_part(sides: _Sides, given: Mapping[int, bytes], ours: _Launch) -> Verdict | None:
    """That machine code has the bytes of PTX in which some products and sums are fused and others are not, or may have
    them, so that it is no counterexample; None if it is one.

    The reading that the launch shows is appended to the readings.
    """
    one = sides.one
    pairs = [f.pair for f in fusable(sides.readings[0].program)]
    if len(pairs) < 2:
        return None
    reason = "contraction: ptxas fused some products and sums and not others"
    if len(pairs) > MOST_PAIRS:
        return Verdict("not settled", f"{reason}, or the machine code is wrong")
    for count in range(1, len(pairs) + 1):
        for chosen in itertools.combinations(pairs, count):
            kernel = load_kernel(one.text, one.entry, chosen)
            launch = _Launch(one, given)
            launch.emulate(kernel)
            if not ours.difference(launch):
                if len(sides.readings) < 2 + len(pairs):
                    sides.readings.append(kernel)
                return Verdict("not settled", reason)
    return None


def _numbers(sides: _Sides, goal: Term, fixed: Sequence[Term], model: Mapping[str, int]) -> dict[str, int]:
    """Numbers for all inputs of both sides: the model's, and 0."""
    roots = [goal, *fixed]
    for store in (*sides.wanted.stores, *sides.made.stores):
        roots += [store.condition, store.address, store.value]
    for load in sides.wanted.loads:
        roots += [load.condition, load.address, load.value]
    return {x.detail: 0 for x in t.ordered(roots) if x.op == "var"} | dict(model)


class _Launch:
    """A launch on buffers of its own. given: bytes that its memory holds, by address."""

    def __init__(self, one: AssembledKernel, given: Mapping[int, bytes] | None = None) -> None:
        self.one = one
        self.parameters = list(one.make())
        self.buffers = [b for p in self.parameters if (b := _buffer(p)) is not None]
        GlobalMemory(list(dict.fromkeys(self.buffers)))
        for buffer in self.buffers:
            flat = buffer.array.reshape(-1).view(np.uint8)
            for address, data in (given or {}).items():
                at = address - buffer.address
                if 0 <= at <= len(flat) - len(data):
                    flat[at : at + len(data)] = np.frombuffer(data, np.uint8)
            buffer.reset()

    def constraints(self, thread: Thread) -> Iterator[Term]:
        """That the inputs are those of this launch."""
        area = parameter_area(self.one.code.parameters, self.parameters)
        for offset, term in thread.parameters:
            held = area[offset : offset + term.width // 8]
            yield t.eq(term, t.const(int.from_bytes(held, "little"), term.width))
        for term, count in zip(thread.grid, (*self.one.grid, 1, 1), strict=False):
            yield t.eq(term, t.const(count, 32))

    def emulate(self, kernel: Kernel) -> None:
        """Run the PTX."""
        run_kernel(kernel, self.parameters, self.one.grid, num_threads=self.one.block, limit=SECONDS)

    def machine(self) -> None:
        """Run the machine code."""
        run_machine_code(self.one.code, self.parameters, self.one.grid, self.one.block, limit=SECONDS)

    def difference(self, other: _Launch) -> str:
        """Where two launches left different bytes, in words; "" if nowhere."""
        for mine, theirs in zip(self.buffers, other.buffers, strict=True):
            a, b = (x.array.reshape(-1).view(np.uint8) for x in (mine, theirs))
            left, also = (np.zeros(len(a), np.bool_) if x.unwritten is None else x.unwritten for x in (mine, theirs))
            for at in np.flatnonzero((left != also) | ((a != b) & ~left))[:1].tolist():
                word = at // 4 * 4
                got, wanted = (bytes(x[word : word + 4])[::-1].hex() for x in (a, b))
                return f"machine code stores 0x{got} and the PTX 0x{wanted} at byte {word} of {mine.name or 'a buffer'}"
        return ""

    def holds(self, address: int, size: int) -> bytes | None:
        """Bytes after the run; None outside of the buffers."""
        for buffer in self.buffers:
            at = address - buffer.address
            if 0 <= at <= buffer.size - size:
                return buffer.array.reshape(-1).view(np.uint8)[at : at + size].tobytes()
        return None


def memory_of(one: AssembledKernel, inputs: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """The arrays of a launch whose memory holds a counterexample's bytes (`Verdict.inputs`), by the buffer's name."""
    launch = _Launch(one, {int(address, 16): bytes(data) for address, data in inputs.items()})
    return {b.name: b.array for b in launch.buffers}


def _buffer(parameter: Any) -> Buffer | None:
    if isinstance(parameter, BufferPointer):
        return parameter.buffer
    return parameter if isinstance(parameter, Buffer) else None


def _compare_with_terms(stores: Sequence[Store], numbers: Mapping[str, int], ran: _Launch, side: str) -> None:
    """Raise TermFault if a run left other bytes than its terms say. Of several stores to a byte the last one counts."""
    expected: dict[int, int] = {}
    for store in stores:
        try:
            happens, address, value = t.evaluate([store.condition, store.address, store.value], numbers)
        except NotEvaluable:
            return
        if happens:
            for k in range(store.size):
                expected[address + k & (1 << 64) - 1] = value >> 8 * k & 255
    for address, byte in expected.items():
        held = ran.holds(address, 1)
        if held is not None and held[0] != byte:
            raise TermFault(f"{side}: a run stores 0x{held[0]:02x} at 0x{address:x}, terms 0x{byte:02x}")


__all__ = ["AssembledKernel", "memory_of", "prove_translation"]
