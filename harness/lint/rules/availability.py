"""Instructions against targets: what a stated target lacks, and forms that the ISA has given up."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from harness.lint.block import LintedBlock
from harness.lint.rules import rule
from harness.lint.snippet import Found
from harness.ptx import isa
from harness.ptx.binding.special import NEEDS
from harness.ptx.errors import PtxError, UnsupportedOnTarget
from harness.ptx.isa.lookup import lookup
from harness.ptx.targets import Requirement, Target, requirement
from harness.ptx.text.nodes import Instruction, Source

_AVAILABLE = (
    *(60, 61, 70, 72, 75, 80, 86, 87, 88, 89, 90, "90a"),
    *(f"{number}{suffix}" for number in (100, 103, 107, 110, 120, 121) for suffix in ("", "f", "a")),
)
TARGETS = tuple(f"sm_{name}" for name in _AVAILABLE)
"""In the order in which the first that has an instruction is looked for."""

NOT_EMULATED = {"wgmma": requirement("90a"), "tcgen05": requirement("100f 101f 110f")}
"""Instructions that the table of forms does not have (PTX ISA 9.7.15 and 9.7.16, Target ISA Notes)."""

WITHOUT_SYNC = {"shfl": "shfl.sync", "vote": "vote.sync"}
"""Deprecated since PTX 6.0, and no longer there from sm_70 on (PTX ISA, shfl and vote)."""


@rule(
    "target-lacks",
    "A stated target does not have an instruction or a modifier.",
    why="ptxas refuses it there, when the kernel is first launched on such a GPU.",
)
def target_lacks(block: LintedBlock) -> Iterator[Found]:
    """Each instruction looked up for each target in the table that is held to ptxas."""
    if block.source is None:
        return
    isa.load()
    for stated in block.snippet.targets:
        try:
            target = Target.parse(_compiled_for(stated, block.snippet.convention))
        except PtxError:
            continue
        for node in block.instructions:
            if lacking := _lacks(node, block.source, target):
                words = f"`{block.statement(node.offset)}`: {lacking}; the target is {target}"
                yield Found(block.place(node.offset), words, _first(node, block.source))
                break


@rule(
    "removed-form",
    "A form of an instruction that newer GPUs no longer have.",
    why="ptxas refuses it for every target from sm_70 on.",
)
def removed_form(block: LintedBlock) -> Iterator[Found]:
    """Exchanges within a warp without `.sync`."""
    for node in block.instructions:
        if node.opcode in WITHOUT_SYNC and "sync" not in node.modifiers:
            new = WITHOUT_SYNC[node.opcode]
            words = f"`{block.statement(node.offset)}`: {node.opcode} without .sync is there up to sm_62 only"
            yield Found(block.place(node.offset), words, f"use {new}, with a mask of the threads that take part")


def _compiled_for(name: str, convention: str) -> str:
    """The target that the code is compiled for: Triton takes `sm_90a` where sm_90 is asked for."""
    from harness.model.targets import normal

    if convention != "triton":
        return name
    try:
        return normal(name)
    except ValueError:
        return name


def _lacks(node: Instruction, source: Source, target: Target) -> str:
    """What a target lacks of an instruction, in words; "" where it has it or nobody knows."""
    if node.opcode in NOT_EMULATED and not target.has(NOT_EMULATED[node.opcode]):
        return f"{node.spelling} needs {NOT_EMULATED[node.opcode]}"
    for name, needed in _registers(node, source):
        if not target.has(needed):
            return f"{name} needs {needed}"
    try:
        lookup(node, source, target, elementwise=False)
    except UnsupportedOnTarget as error:
        return error.message.partition(";")[0]
    except PtxError:
        return ""
    return ""


def _registers(node: Instruction, source: Source) -> list[tuple[str, Requirement]]:
    statement = source.statement(node.offset)
    return [(name, needed) for name, needed in NEEDS.items() if name in statement]


def _first(node: Instruction, source: Source) -> str:
    found = next((t for t in _parsed_targets() if not _lacks(node, source, t)), None)
    return f"the first target that has it is {found}: guard it, or write another instruction" if found else ""


@lru_cache(maxsize=1)
def _parsed_targets() -> tuple[Target, ...]:
    return tuple(map(Target.parse, TARGETS))
