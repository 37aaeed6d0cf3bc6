"""Calls of CUDA runtime functions for prints and failed assertions, which the emulator implements itself."""

from __future__ import annotations

import numpy as np

from ptxdiff.emulator.binding.builder import binds
from ptxdiff.emulator.binding.program import ReadSlot, Step, WriteSlot
from ptxdiff.emulator.errors import ExecutionError, NotElementwise, OperandError, TooLarge
from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.kernel import printing
from ptxdiff.emulator.kernel.builder import KernelBuilder, called, passed_names
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.memory.space import Access
from ptxdiff.emulator.machine.operations import runs
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array
from ptxdiff.emulator.text.nodes import Instruction

RUNTIME = {"vprintf": (64, 64), "__assertfail": (64, 64, 32, 64, 64)}
"""Functions of the CUDA runtime that kernels with prints and assertions call, and the widths of their parameters."""


@runs("param_move")
def _run_param_move(frame: KernelFrame, step: Step, active: Array | None) -> None:
    for reader, writer in zip(step.sources, step.destinations, strict=True):
        frame.write(writer, *frame.read(reader), active)


@runs("param_parts")
def _run_param_parts(frame: KernelFrame, step: Step, active: Array | None) -> None:
    """Each destination is put together from bits of what was stored."""
    readers = iter(step.sources)
    for parts, writer in zip(step.detail, step.destinations, strict=True):
        whole, doubt = np.zeros(frame.lanes, np.uint64), np.zeros(frame.lanes, np.uint64)
        for part in parts:
            ones = np.uint64((1 << part.bits) - 1)
            value, mask = frame.read(next(readers))
            for of, into in ((value, whole), (mask, doubt)):
                if of is not None:
                    wide = np.broadcast_to(of, (frame.lanes,)).astype(np.uint64)
                    into |= (wide >> np.uint64(part.shift) & ones) << np.uint64(part.to)
        kind = UNSIGNED[writer.width]
        if writer.slot >= 0:
            frame.write(writer, whole.astype(kind), doubt.astype(kind) if doubt.any() else None, active)


@binds("call")
def _bind_call(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    """Bind a call of a function without a body in the module."""
    name = called(node)
    if name is None or name.text not in RUNTIME:
        text = name.text if name else "an address"
        raise builder.error(
            NotElementwise, f"the emulator has no body for this call, which goes to {text}", node.offset
        )
    results, arguments = passed_names(node)
    widths = RUNTIME[name.text]
    passed = [builder.scope.variable(a.text) for a in arguments]
    if len(passed) != len(widths) or any(p is None or p.space != "param" for p in passed):
        message = f"{name.text} takes {len(widths)} .param variables"
        raise builder.error(OperandError, message, node.offset)
    slots = [builder.slot_of(p, 0, w) for p, w in zip(passed, widths, strict=True) if p is not None]
    readers = tuple(ReadSlot(s.slot, w) for s, w in zip(slots, widths, strict=True))
    given = builder.scope.variable(results[0].text) if results else None
    left = [] if given is None else [builder.slot_of(given, 0, 32)]
    builder.note_stored(node, left)
    writers = tuple(WriteSlot(r.slot, 32) for r in left)
    return Step("call", node, bound, readers, writers, detail=name.text)


@runs("call")
def _run_call(frame: KernelFrame, step: Step, active: Array | None) -> None:
    """Print to standard output, or stop the kernel at a failed assertion."""
    lanes = frame.every if active is None else np.flatnonzero(active)
    if step.detail == "vprintf":
        _print(frame, step, lanes, active)
        return
    lane = int(lanes[0])
    message, file, line, function = (_passed(frame, reader, lane) for reader in step.sources[:4])
    text = f"a device assertion failed in {frame.who(lane)}"
    if message is not None:
        text += f": {frame.grid.memory.text(message)}"
    if file is not None and line is not None:
        text += f" ({frame.grid.memory.text(file)}:{line}"
        text += f", in {frame.grid.memory.text(function)})" if function is not None else ")"
    raise frame.fault(ExecutionError, step, text)


def _passed(frame: KernelFrame, reader: ReadSlot, lane: int) -> int | None:
    """The value that one thread passes; None if it is undefined."""
    value, undefined = frame.read(reader)
    if undefined is not None and np.broadcast_to(undefined, value.shape)[lane]:
        return None
    return int(value[lane])


def _print(frame: KernelFrame, step: Step, lanes: Array, active: Array | None) -> None:
    """Print for each thread in order. Arguments of threads with the same format are loaded together."""
    forms, undefined = frame.read(step.sources[0])
    if undefined is not None:
        frame.refuse_undefined(step, np.broadcast_to(undefined, forms.shape)[lanes], lanes, "the format of a print")
    lines: dict[int, str] = {}
    counts = np.zeros(frame.lanes, np.uint32)
    for address in np.unique(forms[lanes]).tolist():
        form = frame.grid.memory.text(address)
        some = lanes[forms[lanes] == address]
        columns = []
        for offset, size in printing.sizes(form):
            access = Access("", offset, 8 * size, 1)
            _, places = frame.locate_lanes(step, step.sources[1], access, some)
            (values,), (mask,) = frame.load(step, access, some, places)
            doubt = [False] * len(some) if mask is None else (mask != 0).tolist()
            columns.append([None if d else v for v, d in zip(values.tolist(), doubt, strict=True)])
        counts[some] = len(columns)
        for number, lane in enumerate(some.tolist()):
            lines[lane] = printing.formatted(form, [c[number] for c in columns], frame.grid.memory.text)
    if not frame.grid.printer.write("".join(lines[lane] for lane in sorted(lines))):
        raise frame.fault(TooLarge, step, f"the kernel prints more than {printing.PRINTED:,} characters")
    for writer in step.destinations:
        frame.write(writer, counts, None, active)
