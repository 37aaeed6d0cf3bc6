"""Rules about instructions and targets: forms that a stated target does not have, and forms removed from the ISA."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from ptxdiff.emulator import NEEDS, PtxError, Requirement, Target, UnsupportedOnTarget, isa, requirement
from ptxdiff.emulator.isa.lookup import lookup
from ptxdiff.emulator.text import Instruction, Source
from ptxdiff.lint.block import LintedBlock
from ptxdiff.lint.rules import rule
from ptxdiff.lint.snippet import Found

_AVAILABLE = (
    *(60, 61, 70, 72, 75, 80, 86, 87, 88, 89, 90, "90a"),
    *(f"{number}{suffix}" for number in (100, 103, 107, 110, 120, 121) for suffix in ("", "f", "a")),
)
TARGETS = tuple(f"sm_{name}" for name in _AVAILABLE)
"""Targets in the order in which the first that has an instruction is searched."""

NOT_EMULATED = {"tcgen05": requirement("100f 101f 110f")}
"""Instructions that are not in the table of forms (PTX ISA 9.7.16, Target ISA Notes)."""


@dataclass(frozen=True)
class _Removed:
    """A form of older versions of the ISA, with the source, and what to write instead."""

    matches: Callable[[Instruction], bool]
    words: str
    instead: str


_WMMA = frozenset(("load", "mma", "store"))
_INTEGERS = frozenset(("s8", "u8", "s4", "u4", "b1"))
REMOVED = (
    _Removed(
        lambda i: i.opcode in ("shfl", "vote") and "sync" not in i.modifiers,
        "without .sync it is there up to sm_62 only (PTX ISA 6.4, shfl and vote, Removal Note)",
        "write .sync, with a mask of the threads that take part",
    ),
    _Removed(
        lambda i: i.opcode == "wmma" and bool(_WMMA & {*i.modifiers[:1]}) and "aligned" not in i.modifiers,
        "without .aligned it is there up to PTX 6.2 only (PTX ISA, wmma, PTX ISA Notes)",
        "write .sync.aligned",
    ),
    _Removed(
        lambda i: i.spelling.startswith("wmma.mma") and "satfinite" in i.modifiers and not _INTEGERS & {*i.modifiers},
        ".satfinite on floats is removed since PTX 6.5 (PTX ISA, wmma.mma, PTX ISA Notes)",
        "leave out .satfinite, and clamp the result where it has to be finite",
    ),
)
"""Forms that ptxas refuses for every target from sm_70 on (tried: 12.9 and 13.4)."""


@rule(
    "target-lacks",
    "A stated target does not have an instruction or a modifier.",
    why="ptxas refuses it there, when the kernel is first launched on such a GPU.",
)
def target_lacks(block: LintedBlock) -> Iterator[Found]:
    """Look up each instruction for each target in the table of forms, which tests compare with ptxas."""
    if block.source is None:
        return
    isa.load()
    for stated in block.snippet.targets:
        try:
            target = Target.parse(_compiled_for(stated, block.snippet.convention))
        except PtxError:
            continue
        if _guarded(block, target):
            continue
        for node in block.instructions:
            if lacking := _lacks(node, block.source, target):
                guard = f"only `{' && '.join(block.snippet.guards)}`" if block.snippet.guards else "nothing"
                message = f"`{block.statement(node.offset)}`: {lacking}; the target is {target}, and {guard} guards it"
                yield Found(block.place(node.offset), message, _first(node, block.source))
                break


@rule(
    "removed-form",
    "A form of an instruction that newer GPUs no longer have.",
    why="ptxas refuses it for every target from sm_70 on.",
)
def removed_form(block: LintedBlock) -> Iterator[Found]:
    """Forms that the ISA's notes remove, and that ptxas refuses."""
    for node in block.instructions:
        for form in REMOVED:
            if form.matches(node):
                message = f"`{block.statement(node.offset)}`: {form.words}"
                yield Found(block.place(node.offset), message, form.instead)


_SLOWER = {
    "mul24": ("mul", "24-bit multiplication is built of several instructions where there is no hardware for it"),
    "mad24": ("mad", "24-bit multiplication is built of several instructions where there is no hardware for it"),
    "membar": ("fence", "from sm_70 on it is another word for fence.sc, the slowest fence"),
}
"""Older forms, each with a remark of the ISA (PTX ISA, mul24, mad24 and membar)."""


@rule(
    "superseded-form",
    "An older form of an instruction, for which there is a better one.",
    why="It still works, and does more than is needed.",
    severity="note",
    default=False,
)
def superseded_form(block: LintedBlock) -> Iterator[Found]:
    """`mul24`, `mad24`, `membar`, and `mma.m8n8k4` on f16."""
    for node in block.instructions:
        new, reason = _SLOWER.get(node.opcode, ("", ""))
        if node.opcode == "mma" and "m8n8k4" in node.modifiers and "f16" in node.modifiers:
            new, reason = "mma.m16n8k16", "it is made for sm_70, and much slower on every other target (PTX ISA, mma)"
        if reason:
            yield Found(block.place(node.offset), f"`{block.statement(node.offset)}`: {reason}", f"use {new}")


def _compiled_for(name: str, convention: str) -> str:
    """The target for which the code is compiled: for sm_90, Triton takes `sm_90a`."""
    from ptxdiff.model.targets import normal

    if convention != "triton":
        return name
    try:
        return normal(name)
    except ValueError:
        return name


def _guarded(block: LintedBlock, target: Target) -> bool:
    """Whether a condition around the call excludes a target; a condition that cannot be computed counts as
    excluding."""
    from ptxdiff.lint.extract.guards import excludes

    if block.snippet.convention != "cuda":
        return bool(block.snippet.guards)
    return excludes(block.snippet.guards, target.number)


def _lacks(node: Instruction, source: Source, target: Target) -> str:
    """The requirement of an instruction that a target does not meet, in words; "" if it meets it or this is unknown."""
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
    first = next((t for t in _parsed_targets() if not _lacks(node, source, t)), None)
    return f"the first target that has it is {first}: guard it, or write another instruction" if first else ""


@lru_cache(maxsize=1)
def _parsed_targets() -> tuple[Target, ...]:
    return tuple(map(Target.parse, TARGETS))
