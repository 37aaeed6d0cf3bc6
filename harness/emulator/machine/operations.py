"""Operations that the machine itself executes: vector moves and special registers. `binding.operations` binds their
operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ptxdiff.emulator.binding.program import Step
from ptxdiff.emulator.machine.frame import Frame
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array

Runner = Callable[[Any, Step, "Array | None"], None]
"""Executes a step on a frame, in the active lanes (None: all). Runners for kernels take a `KernelFrame`."""

RUNNERS: dict[str, Runner] = {}
"""For each kind of step, the function that executes it."""


def runs(name: str) -> Callable[[Runner], Runner]:
    """Register a runner."""

    def register(runner: Runner) -> Runner:
        RUNNERS[name] = runner
        return runner

    return register


@runs("split")
def _run_split(frame: Frame, step: Step, active: Array | None) -> None:
    value, undefined = frame.read(step.sources[0])
    kind = value.dtype.type
    ones = kind((1 << step.detail) - 1)
    for number, writer in enumerate(step.destinations):
        at = number * step.detail
        if at >= writer.width:
            frame.write(writer, np.zeros_like(value), None, active)
            continue
        doubt = None if undefined is None else (undefined >> kind(at)) & ones
        frame.write(writer, (value >> kind(at)) & ones, doubt, active)


@runs("mov")
def _run_mov(frame: Frame, step: Step, active: Array | None) -> None:
    values = [frame.read(r) for r in step.sources]
    for writer, (value, undefined) in zip(step.destinations, values, strict=True):
        frame.write(writer, value, undefined, active)


@runs("unpack")
def _run_unpack(frame: Frame, step: Step, active: Array | None) -> None:
    sources = [frame.read(r) for r in step.sources]
    each = len(step.destinations) // len(sources)
    for number, writer in enumerate(step.destinations):
        if writer.slot >= 0:
            value, undefined = sources[number // each]
            part = number % each
            frame.write(writer, _part(value, part, writer.width), _part(undefined, part, writer.width), active)


def _part(value: Any, number: int, width: int) -> Any:
    if value is None:
        return None
    if value.dtype == UNSIGNED[width]:
        return value
    return (value >> value.dtype.type(number * width)).astype(UNSIGNED[width])


@runs("pack")
def _run_pack(frame: Frame, step: Step, active: Array | None) -> None:
    sources = [frame.read(r) for r in step.sources]
    width = step.sources[0].width
    each = len(sources) // len(step.destinations)
    for number, writer in enumerate(step.destinations):
        parts = sources[number * each : (number + 1) * each]
        value = _joined([p[0] for p in parts], width, writer.width)
        undefined = None
        if any(u is not None for _, u in parts):
            undefined = _joined([np.zeros_like(v) if u is None else u for v, u in parts], width, writer.width)
        frame.write(writer, value, undefined, active)


def _joined(parts: list[Array], width: int, total: int) -> Array:
    kind = UNSIGNED[total]
    result = parts[0].astype(kind)
    for number, part in enumerate(parts[1:], 1):
        # Not in place: a part that is equal in every lane may be 0-dimensional.
        result = result | part.astype(kind) << kind(number * width)
    return result


@runs("special")
def _run_special(frame: Frame, step: Step, active: Array | None) -> None:
    for writer, (name, component) in zip(step.destinations, step.detail, strict=True):
        value = frame.special(name, component).astype(UNSIGNED[writer.width])
        ones = 1 if writer.width == 1 else (1 << writer.width) - 1
        frame.write(writer, value, None if frame.knows(name, component) else np.full_like(value, ones), active)


@runs("nothing")
def _run_nothing(frame: Frame, step: Step, active: Array | None) -> None:
    """Timing hints change no value."""
