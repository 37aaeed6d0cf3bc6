"""Products in tensor memory (UTCHMMA, UTCQMMA, UTCIMMA, UTCOMMA) and copies to it from shared memory (UTCCP).

An instruction is translated to the operation of tcgen05 that it stands for, which the emulator computes: descriptors,
layouts and arithmetic are its own (`ptxdiff.emulator.kernel.tcgen05`). With .2CTA, a pair of blocks works together.
Whether a is sparse, the instruction descriptor says.

A warp issues an operation, as one thread does in PTX. It is complete when it is issued.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from ptxdiff.emulator.errors import ExecutionError
from ptxdiff.emulator.kernel.memory.space import SHARED_BASE
from ptxdiff.emulator.kernel.tcgen05 import copies, products
from ptxdiff.emulator.kernel.tcgen05.in_flight import NONE
from ptxdiff.emulator.kernel.tcgen05.instruction_descriptors import LONGER
from ptxdiff.emulator.kernel.tcgen05.memory import CELLS, COLUMNS
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.emulator.targets import Target, requirement
from ptxdiff.sass.clusters import ClusterBlocks
from ptxdiff.sass.control import refuse
from ptxdiff.sass.cubin import MachineCode
from ptxdiff.sass.machine import _WARP, Lanes, Machine, MachineStep
from ptxdiff.sass.matrices import Act
from ptxdiff.sass.shared import SharedBlocks
from ptxdiff.sass.tensor_memory import BlocksTensorMemory
from ptxdiff.sass.text import MachineFault, MachineInstruction, Unsupported, plain

_TARGETS = ("sm_100", "sm_103", "sm_107", "sm_110")

_LATER = requirement("107f")
"""The targets on which products differ as `TensorProduct.later` says."""


class _Issue:
    """An operation that a lane issues, as the emulator's operations see a frame: only what they use of it.

    Offsets of shared memory count from the first byte that belongs to the kernel, as the emulator's do.
    """

    def __init__(self, machine: Machine, instruction: MachineInstruction, lane: int) -> None:
        self.machine, self.instruction, self.lane = machine, instruction, lane
        self.blocks, self.tensor_memory = SharedBlocks.of(machine), BlocksTensorMemory.of(machine)
        self.lanes = machine.lanes
        self.block = machine._all // machine.threads
        self.every = machine._all
        self.grid = SimpleNamespace(threads=machine.threads, cluster_size=self.blocks.cluster)
        held = self.blocks.memory
        octets = held.bytes[SHARED_BASE:]
        none = np.zeros(len(octets), np.uint8)  # bits that were never written are random ones here
        machine.launch.guessed |= bool(self.blocks.unwritten[SHARED_BASE:].any())  # which of them it reads is not asked
        self.shared = SimpleNamespace(bytes=octets, undefined=none, size=held.size, limit=held.limit - SHARED_BASE)
        self.promises = SimpleNamespace(note_layout=lambda *given: None)
        self.memory = self.tensor_memory.memory
        self.collectors, self.accumulators = self.tensor_memory.collectors, self.tensor_memory.accumulators
        self.written: Array = np.zeros(0, np.int64)

    @property
    def tensor(self) -> _Issue:
        """What the emulator's operations ask the tensor cores."""
        return self

    def who(self, lane: int) -> str:
        """A thread in words."""
        return f"thread {lane % self.machine.threads}"

    def place(self, number: int) -> str:
        """A cell in words."""
        return f"lane {number % CELLS // COLUMNS}, column {number % COLUMNS} of tensor memory"

    def line(self, step: Any) -> str:
        """Where an instruction is: machine code has no lines."""
        return f"at 0x{self.instruction.address:x}"

    def fault(self, kind: type[Exception], step: Any, text: str) -> Exception:
        """An error of the operation; what the emulator does not run is Unsupported."""
        made = Unsupported if not issubclass(kind, ExecutionError) else MachineFault
        return made(f"{self.instruction.text}: {text}")

    def read(self, given: int) -> tuple[Array, None]:
        """An operand."""
        return np.asarray(np.uint64(given)), None

    def issue(self, step: Any, lane: int, written: Array, read: Array = NONE, **given: Any) -> None:
        """Begin an operation. Raises MachineFault for cells that are not allocated, or to which a warp still stores."""
        for cells in (written, read):
            if len(cells):
                self.tensor_memory.refuse_free(self.instruction, cells)
                self.tensor_memory.refuse_unfinished(self.instruction, cells)
        self.written = written

    def reach(self, step: Any, lanes: Array, ranks: Array, waits: bool) -> None:
        """Raise MachineFault for blocks of the cluster that may not have begun, or that have ended."""
        assert isinstance(self.blocks, ClusterBlocks)
        self.blocks.reach(self.instruction, lanes, ranks)

    def read_shared(self, work: None, offsets: Array) -> None:
        """Read chunks of shared memory. Raises MachineFault for a race."""
        lanes = np.full(len(offsets), self.lane)
        self.blocks.load(self.instruction, offsets + SHARED_BASE, 16, lanes, False)

    def settle(self) -> None:
        """After the operation: undefined bits of its results become random ones."""
        self.tensor_memory.settle(self.written)


def _issued(
    instruction: MachineInstruction, operation: Callable[[_Issue, int], None]
) -> Callable[[Machine, Lanes, int], None]:
    """An action of each warp."""

    def act(machine: Machine, lanes: Lanes, count: int) -> None:
        every = machine._all if lanes is None else lanes
        _, first = np.unique(every // _WARP, return_index=True)
        for lane in every[first].tolist():
            issue = _Issue(machine, instruction, lane)
            operation(issue, lane)
            issue.settle()

    return act


def _uniform(machine: Machine, number: int, lane: int) -> int:
    return int(machine.uniform_register(number)[lane // _WARP])


def _pair(machine: Machine, number: int, lane: int) -> int:
    return _uniform(machine, number, lane) | _uniform(machine, number + 1, lane) << 32


# Products ---------------------------------------------------------------------------------------------------------

_COLLECTORS = {"": "discard", "A_KEEP": "fill", "A_REUSE.A_KEEP": "use", "A_REUSE": "lastuse"}
"""What a product does with the buffer of a, by words behind the operand (ISA 9.7.16.10.9.1, .collector::a)."""
_USES = {"": "discard", "B_KEEP": "fill", "B_REUSE.B_KEEP": "use", "B_REUSE": "lastuse"}
_BUFFER = re.compile(r"(?:^|\.)BUFFER([1-3])$")
"""The same of b, with .WS; and which buffer of b, if it is not the first."""
_SPARSE = 1 << 2
"""The bit of an instruction descriptor that says whether a is sparse (ISA 9.7.16.4.2)."""
_UNSCALED = {"UTCHMMA": "f16", "UTCQMMA": "f8f6f4", "UTCIMMA": "i8"}
_SCALED = {
    ("UTCQMMA",): ("mxf8f6f4", 32), ("UTCOMMA",): ("mxf4", 32), ("UTCOMMA", "4X"): ("mxf4nvf4", 16),
    ("UTCOMMA", "BLOCK16"): ("mxf4nvf4", 16),
}  # fmt: skip
"""By opcode and words: the kind, and the elements that share a scale. With scales of 32 elements, kinds mxf4 and
mxf4nvf4 are one instruction, and one arithmetic. For sm_103a, ptxas writes BLOCK16 for 4X."""


def _kind(name: str, descriptor: int) -> str:
    """The kind of a product: of tf32, UTCHMMA knows by the type of a in the descriptor."""
    return "tf32" if name == "f16" and descriptor >> 7 & 7 == 2 else name


def _collector(a: str, b: str, ws: bool) -> str | None:
    """What a product does with the buffer of a, or with .WS of b, by the words behind them; None if not known."""
    if not ws:
        return f"collector::a::{_COLLECTORS[a]}" if a in _COLLECTORS and not b else None
    number = _BUFFER.search(b)
    use = _USES.get(_BUFFER.sub("", b))
    return None if a or use is None else f"collector::b{number[1] if number else 0}::{use}"


def _product(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """`a, b, d, metadata, descriptor[, scales][, masks], adds[, shift]`: matrices by descriptor or in tensor memory.

    With .WS, b is kept instead of a, and the masks are those of columns of b that are zero.
    """
    operands, guard = list(instruction.operands), instruction.guard
    if not code.target.startswith(_TARGETS) or (guard is not None and guard.kind != "UP") or len(operands) < 6:
        raise refuse(instruction)
    a, b, d, metadata, descriptor, *others = operands
    shift = others.pop().value or 0 if plain(others[-1], "int") else 0
    scales = others.pop(0) if others[0].kind == "tmem" else None
    masks = others.pop(0) if others and plain(others[0], "UR") else None
    if len(others) != 1 or others[0].kind != "UP" or others[0].negated or not 0 <= shift <= 15:
        raise refuse(instruction)
    adds, ws, pair = others[0], instruction.modifiers[:1] == ("WS",), instruction.modifiers[:1] == ("2CTA",)
    words, collector = instruction.modifiers[ws or pair :], _collector(a.suffix, b.suffix, ws)
    known = (
        a.kind in ("gdesc", "tmem") and collector is not None and b.kind == "gdesc" and not (ws and shift)
        and all(o.kind == "tmem" and not o.suffix and not o.offset for o in (d, metadata, scales or d))
        and descriptor.kind == "idesc" and not descriptor.suffix and descriptor.number == metadata.number + 1
        and not a.offset and (masks is None or (masks.number >= 0 and scales is None))
    )  # fmt: skip
    if not known:
        raise refuse(instruction)
    if scales is None:
        name, each = _UNSCALED.get(instruction.opcode, ""), 0
        if not name or words:
            raise refuse(instruction)
    else:
        name, each = _SCALED.get((instruction.opcode, *words), ("", 0))
        if not name or shift or ws:
            raise refuse(instruction)
    bound = SimpleNamespace(modifiers={"collector": collector}, spelling=f"tcgen05.mma of {instruction.opcode}")
    target = Target.parse(code.target)
    dense = tuple(x for x in LONGER.get(name, ()) if target.has(x.targets))
    later = target.has(_LATER)

    def multiply(issue: _Issue, lane: int) -> None:
        machine = issue.machine
        what, of_sparse = (_uniform(machine, o.number, lane) for o in (descriptor, metadata))
        sparse = bool(what & _SPARSE)
        if of_sparse and not sparse:
            raise Unsupported(f"{instruction.text}: metadata of a matrix that is not sparse")
        kind = _kind(name, what)
        if shift and kind not in ("f16", "tf32"):
            raise Unsupported(f"{instruction.text}: a shift of the accumulator of kind {kind}")
        in_cells = a.kind == "tmem"
        given = [
            _uniform(machine, d.number, lane),
            _uniform(machine, a.number, lane) if in_cells else _pair(machine, a.number, lane),
            _pair(machine, b.number, lane), what,
        ]  # fmt: skip
        places = [0, 0 if in_cells else None, None, None]
        if scales is not None:
            given += [_uniform(machine, scales.number + k, lane) for k in (0, 1)]
            places += [0, 0]
        if sparse:
            given.append(of_sparse)
            places.append(0)
        held = int(machine.uniform_predicate(adds.number)[lane // _WARP])
        given.append(held ^ adds.inverted)
        if masks is not None and ws:
            given.append(_pair(machine, masks.number, lane))
        elif masks is not None:
            given += [_uniform(machine, masks.number + k, lane) for k in range(8 if pair else 4)]
        longer = () if sparse else dense
        detail = products.TensorProduct(kind, ws, each, shift, tuple(places), pair, sparse, longer, later)
        step = SimpleNamespace(detail=detail, bound=bound, kind="tcgen05_mma")
        products.run_product(issue, step, lane, given)  # type: ignore[arg-type]  # the parts of a frame that it uses

    return Act(instruction, _issued(instruction, multiply))


# Copies -----------------------------------------------------------------------------------------------------------

_COPIES = {
    "": (128, 256, None), "4dp256bit": (4, 256, None), "128dp128bit": (128, 128, None),
    "2x64dp128bit_lw02_lw13": (64, 128, "warpx2::02_13"), "2x64dp128bit_lw01_lw23": (64, 128, "warpx2::01_23"),
    "4x32dp128bit": (32, 128, "warpx4"),
}  # fmt: skip
"""By words: rows, bits of each, and to which lanes a row goes."""
_PACKED = {"U4x16P64": "b4x16_p64", "U6x16P32": "b6x16_p32"}


def _copy(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """UTCCP.T.S: rows of a matrix in shared memory go to lanes of tensor memory; with .2CTA in each block of a pair."""
    words, operands, guard = list(instruction.modifiers), instruction.operands, instruction.guard
    if words[:2] != ["T", "S"] or len(operands) != 2 or (guard is not None and guard.kind != "UP"):
        raise refuse(instruction)
    pair = words[2:3] == ["2CTA"]
    words = words[2 + pair :]
    packed = _PACKED[words.pop()] if words and words[-1] in _PACKED else None
    to, source = operands
    shape = _COPIES.get(words[0] if words else "") if len(words) < 2 else None
    if shape is None or to.kind != "tmem" or to.suffix or source.kind != "gdesc" or source.suffix:
        raise refuse(instruction)
    if not code.target.startswith(_TARGETS):
        raise refuse(instruction)
    rows, bits, several = shape
    detail = copies.TensorCopy(copies.lanes_of(rows, several), bits // 32, packed, to.offset, pair)
    bound = SimpleNamespace(modifiers={}, spelling=f"tcgen05.cp of {instruction.opcode}")

    def copy(issue: _Issue, lane: int) -> None:
        machine = issue.machine
        given = _uniform(machine, to.number, lane), _pair(machine, source.number, lane)
        step = SimpleNamespace(detail=detail, bound=bound, kind="tcgen05_cp", sources=given)
        alone = np.zeros(machine.lanes, np.bool_)
        alone[lane] = True
        copies.run_cp(issue, step, alone)  # type: ignore[arg-type]  # the parts of a frame that it uses

    return Act(instruction, _issued(instruction, copy))


def _shift(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """UTCSHIFT.DOWN: 32 bytes of each of 31 lanes go to the next lane; with .2CTA in both blocks of a pair."""
    words, operands, guard = instruction.modifiers, instruction.operands, instruction.guard
    known = words in (("DOWN",), ("2CTA", "DOWN")) and len(operands) == 1 and operands[0].kind == "tmem"
    if not known or operands[0].suffix or (guard is not None and guard.kind != "UP"):
        raise refuse(instruction)
    (where,) = operands
    bound = SimpleNamespace(modifiers={}, spelling=f"tcgen05.shift of {instruction.opcode}")

    def shift(issue: _Issue, lane: int) -> None:
        given = _uniform(issue.machine, where.number, lane)
        detail = where.offset, "2CTA" in words
        step = SimpleNamespace(detail=detail, bound=bound, kind="tcgen05_shift", sources=(given,))
        alone = np.zeros(issue.machine.lanes, np.bool_)
        alone[lane] = True
        copies._run_shift(issue, step, alone)  # type: ignore[arg-type]  # the parts of a frame that it uses

    return Act(instruction, _issued(instruction, shift))


TENSOR_PRODUCTS: dict[str, Callable[[MachineInstruction, MachineCode], MachineStep]] = {
    **dict.fromkeys(("UTCHMMA", "UTCQMMA", "UTCIMMA", "UTCOMMA"), _product),
    "UTCCP": _copy,
    "UTCSHIFT": _shift,
}
