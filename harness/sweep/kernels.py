"""The kernel under test in a sweep on a device: how many inputs each launch has, and building it ahead.

A sweep runs in the process that owns the device. The process that asks for it has compile workers already.
"""

from __future__ import annotations

from dataclasses import replace

from ptxdiff.inputs import InputSet
from ptxdiff.jobs import FILLING_BLOCK, Job
from ptxdiff.model.arguments import format_of
from ptxdiff.sweep.fused.registers import asm_in_registers
from ptxdiff.sweep.result import ROW
from ptxdiff.triton.build import Built
from ptxdiff.triton.launch import launch_of

CHUNK_BYTES = 1 << 30
SMALL_CHUNK_BYTES = 1 << 26
"""Where most inputs exist only in registers, so that the few chunks in memory can lie anywhere in the set."""

PIECE = 1 << 22
"""Inputs examined at a time: int64 temporaries of 32 MiB each."""


def chunk_size(count: int, unit_bytes: int, *, compiled: bool, most: int = CHUNK_BYTES) -> int:
    """Inputs of a chunk: a power of two, at least one row; fewer if eager operations do all the work. most: bytes."""
    size = ROW
    while size * 2 <= count and size * 2 * unit_bytes <= most and (compiled or size * 2 <= PIECE):
        size *= 2
    return size


def unit_bytes(job: Job) -> int:
    """Bytes of the inputs and outputs of one element."""
    return sum(format_of(a).unit_bits // 8 for a in (*job.case.inputs.values(), *job.case.outputs.values()))


def chunk_job(job: Job, inputs: InputSet, *, compiled: bool) -> Job:
    """The launch of one chunk. compiled: whether the judge is a kernel."""
    most = SMALL_CHUNK_BYTES if compiled and asm_in_registers(job, inputs) else CHUNK_BYTES
    size = chunk_size(inputs.count, unit_bytes(job), compiled=compiled, most=most)
    return replace(job, setup=replace(job.setup, shape=(size,), block=max(FILLING_BLOCK, job.setup.block)))


def built_ahead(job: Job, inputs: InputSet) -> Built | None:
    """What a sweep with a kernel as its judge launches; None if it has to be built where it runs, which says why."""
    from ptxdiff.backends.gpu import launches_ready

    try:
        launch = launch_of(chunk_job(job, inputs, compiled=True))
        built = launch.build(job.target)
    except (ValueError, TypeError):
        return None
    return built if isinstance(built, Built) and launches_ready(launch, built) else None
