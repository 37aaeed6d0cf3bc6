"""A checked kernel and its properties that are known before it runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ptxdiff.emulator.binding.contents import Analysis, describe
from ptxdiff.emulator.binding.program import Program
from ptxdiff.emulator.text.nodes import Declaration, Module
from ptxdiff.emulator.text.types import TYPES


def size_of(parameter: Declaration) -> int:
    """The size of a parameter in bytes."""
    return TYPES[parameter.type].width // 8 * parameter.vector * (1 if parameter.size is None else parameter.size)


def places_of(parameters: Iterable[Declaration]) -> dict[str, int]:
    """The offset of each parameter in bytes, counted from the first."""
    offsets, at = {}, 0
    for parameter in parameters:
        align = max(parameter.align, TYPES[parameter.type].width // 8)
        at = -(-at // align) * align
        offsets[parameter.name] = at
        at += size_of(parameter)
    return offsets


@dataclass(frozen=True)
class Kernel:
    """A checked kernel: its program, parameters, and the memory that it declares.

    `threads`: the threads that `.reqntid` demands (0: not stated). `block`: the same along x, y and z. `units`: the
    smallest access to shared and to global memory. `synchronises`: it has atomics, fences or acquiring loads, with
    which blocks can order themselves. `bound`: a digest of the text without its header and of the answers about the
    target; kernels with equal digests have equal programs. `cluster`: the blocks that `.reqnctapercluster` demands.
    `const_spans`: the parts of `variables` that lie in constant memory, as first byte and end.
    `explicit_cluster`: it has `.explicitcluster`. `max_rank`: the most blocks of a cluster, from `.maxclusterrank` (0:
    any).
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
    cluster: tuple[int, int, int] | None = None
    explicit_cluster: bool = False
    max_rank: int = 0
    const_spans: tuple[tuple[int, int], ...] = ()

    @property
    def analysis(self) -> Analysis:
        """Its instruction forms, which of them are models, and whether ptxas may contract it."""
        return describe(self.program)
