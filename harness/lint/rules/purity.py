"""Rules that compare a block's side effects with its declaration."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ptxdiff.emulator.isa.facts import Facts, true_of
from ptxdiff.emulator.isa.lookup import facts_of
from ptxdiff.emulator.text import Instruction
from ptxdiff.lint.block import LintedBlock
from ptxdiff.lint.rules import rule
from ptxdiff.lint.snippet import Found
from ptxdiff.lint.trial import leaves_carry, takes_carry

_DECLARED = {
    "triton": ("is_pure=True", "is_pure=False"),
    "llvm": ("has_side_effects=False", "has_side_effects=True"),
    "cuda": ("no volatile", "volatile"),
}

CLOCKS = re.compile(r"%(?:clock(?:64|_hi)?|globaltimer(?:_lo|_hi)?|pm\d+(?:_64)?)\b")
"""Registers that can differ at each read (PTX ISA 10)."""

_CONSTANT = frozenset(("const", "nc", "param"))
"""Modifiers of loads from memory that is not written while a kernel runs."""


def _declared(block: LintedBlock, pure: bool) -> str:
    return _DECLARED[block.snippet.convention][not pure]


def _clobbers_memory(block: LintedBlock) -> bool:
    """Whether a clobber keeps a statement of CUDA C++ in place. Triton and MLIR use only the declaration."""
    return block.snippet.convention == "cuda" and "~{memory}" in block.snippet.constraints.replace(" ", "")


def _facts(node: Instruction) -> Facts:
    return facts_of(node.opcode, node.modifiers)


def _is_load(node: Instruction) -> bool:
    return _facts(node).memory == "reads" and _CONSTANT.isdisjoint(_parts(node))


def _parts(node: Instruction) -> set[str]:
    return {part for m in node.modifiers for part in m.split("::")}


def _has_effect(node: Instruction) -> bool:
    """Whether it has an effect of its own. Of those that need other threads this is said, and calls may have none."""
    facts = _facts(node)
    return true_of(facts.effects, node.modifiers) and not facts.exchanges and facts.control != "call"


@rule(
    "pure-side-effect",
    "A block declared free of side effects stores, synchronises or waits.",
    why="The compiler may remove a pure block, run it twice, or move it past other accesses to memory.",
)
def pure_side_effect(block: LintedBlock) -> Iterator[Found]:
    """The first instruction with an effect."""
    if block.snippet.pure is not True or _clobbers_memory(block):
        return
    node = next((n for n in block.instructions if _has_effect(n)), None)
    if node:
        message = f"`{block.statement(node.offset)}` has an effect besides its result, in a block declared with "
        message += _declared(block, True)
        yield Found(block.place(node.offset), message, f"declare the block with {_declared(block, False)}")


@rule(
    "pure-warp-level",
    "A block declared free of side effects needs other threads.",
    why="The compiler may move a pure block into a branch that not all of them take, run it twice or remove it.",
)
def pure_warp_level(block: LintedBlock) -> Iterator[Found]:
    """The first instruction that needs other threads.

    In CUDA C++ only a note for one that computes its result from its operands: compilers of device code treat every asm
    statement as convergent, and move none into a branch. There `pure-load` reports those that load.
    """
    if block.snippet.pure is not True:
        return
    cuda = block.snippet.convention == "cuda"
    nodes = [n for n in block.instructions if _facts(n).exchanges and not (cuda and _is_load(n))]
    computes = [n for n in nodes if cuda and _facts(n).exchanges == "operands"]
    node = next((n for n in nodes if n not in computes), nodes[0] if nodes else None)
    if node:
        message = (
            f"`{block.statement(node.offset)}` needs other threads, in a block declared with {_declared(block, True)}"
        )
        instead = f"declare the block with {_declared(block, False)}"
        if node in computes:
            yield Found(block.place(node.offset), message, instead, _CONVERGENT_WHY, severity="note")
        else:
            yield Found(block.place(node.offset), message, instead)


_CONVERGENT_WHY = (
    "A compiler of CUDA C++ moves no asm statement into a branch, but it may remove one without volatile, or run it "
    "twice."
)


@rule(
    "pure-load",
    "A block declared free of side effects reads memory.",
    why="The compiler may move a pure block past a store to the same address, and use one result for two reads.",
    severity="warning",
)
def pure_load(block: LintedBlock) -> Iterator[Found]:
    """The first load from memory that may be written while the kernel runs."""
    if block.snippet.pure is not True or _clobbers_memory(block) or any(map(_has_effect, block.instructions)):
        return
    node = next((n for n in block.instructions if _is_load(n)), None)
    if node:
        message = f"`{block.statement(node.offset)}` reads memory, in a block declared with {_declared(block, True)}"
        instead = f"declare the block with {_declared(block, False)}"
        if block.snippet.convention != "triton":
            instead += " and the clobber " + ('"memory"' if block.snippet.convention == "cuda" else "~{memory}")
        yield Found(block.place(node.offset), message, f"{instead}, or load with .nc if the memory is not written")


@rule(
    "pure-clock",
    "A block declared free of side effects reads a clock.",
    why="The compiler may use one read for two, and move it away from the measured code.",
)
def pure_clock(block: LintedBlock) -> Iterator[Found]:
    """The first read of a clock register."""
    if block.snippet.pure is not True:
        return
    for node in block.instructions:
        clock = CLOCKS.search(block.statement(node.offset))
        if clock:
            message = (
                f"`{block.statement(node.offset)}` reads {clock[0]}, in a block declared with {_declared(block, True)}"
            )
            yield Found(block.place(node.offset), message, f"declare the block with {_declared(block, False)}")
            return


@rule(
    "impure-arithmetic",
    "A block that only computes is declared to have side effects.",
    why="The compiler then keeps every copy in place, and removes none with an unused result.",
    severity="note",
)
def impure_arithmetic(block: LintedBlock) -> Iterator[Found]:
    """The first block of a file with only arithmetic instructions that depend only on its inputs."""
    blocks = _of_the_file(block, "only computes", _only_computes)
    if blocks[:1] != [block]:
        return
    message = f"every instruction only computes its result, and the block is declared with {_declared(block, False)}"
    yield Found(None, f"{message}{_and_more(blocks)}", f"declare the block with {_declared(block, True)}")


def _only_computes(block: LintedBlock) -> bool:
    if block.snippet.pure is not False or block.program is None or not block.outputs or _clobbers_memory(block):
        return False
    if takes_carry(block) or leaves_carry(block):
        return False
    steps = block.program.program.steps
    # Blocks of moves alone serve to hide values from the compiler's optimisations.
    computes = all(s.facts.registers_only and s.kind != "special" for s in steps)
    return computes and any(s.kind not in _MOVES for s in steps)


def _of_the_file(block: LintedBlock, name: str, holds: Callable[[LintedBlock], object]) -> list[LintedBlock]:
    """The blocks of the file for which `holds` is true, computed once for each file."""
    kept = block.siblings[0].kept
    if name not in kept:
        kept[name] = [b for b in block.siblings if holds(b)]
    holding: list[LintedBlock] = kept[name]
    return holding


def _and_more(found: list[LintedBlock]) -> str:
    return f" (the same holds of {len(found) - 1} more in this file)" if len(found) > 1 else ""


_MOVES = ("mov", "pack", "unpack", "nothing")


@rule(
    "memory-clobber",
    'An asm statement accesses memory without the clobber "memory".',
    why="The compiler may keep memory values in registers across the statement, and move other accesses past it.",
    severity="note",
)
def memory_clobber(block: LintedBlock) -> Iterator[Found]:
    """The first volatile statement of a CUDA C++ file that stores or loads; `pure-load` reports the others."""
    blocks = _of_the_file(block, "unclobbered", _unclobbered)
    node = _unclobbered(block) if blocks[:1] == [block] else None
    if node is None:
        return
    does = "waits for copies" if _WAITS.match(node.spelling) else "accesses memory"
    message = f'`{block.statement(node.offset)}` {does}, and the statement has no clobber "memory"'
    instead = 'add the clobber: asm volatile("..." : ... : ... : "memory")'
    yield Found(block.place(node.offset), f"{message}{_and_more(blocks)}", instead)


_WAITS = re.compile(r"cp\.async\.(bulk\.)?(wait|commit)_")


def _unclobbered(block: LintedBlock) -> Instruction | None:
    if block.snippet.convention != "cuda" or block.snippet.pure is not False or _clobbers_memory(block):
        return None
    return next((n for n in block.instructions if _touches_memory(n)), None)


def _touches_memory(node: Instruction) -> bool:
    return _facts(node).memory not in ("", "reads") or _is_load(node)
