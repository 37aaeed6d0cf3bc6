"""Rules about operands: numbers that do not exist, inputs never read, outputs never written or read too early."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ptxdiff.emulator import REGISTER_WIDTH, PtxError, UndefinedBits
from ptxdiff.emulator.text import OPERAND, Instruction
from ptxdiff.lint.block import ASSUMED, LintedBlock, names
from ptxdiff.lint.flow import flow, read_names, written_names
from ptxdiff.lint.rules import rule
from ptxdiff.lint.rules.spelling import sigil
from ptxdiff.lint.snippet import Found
from ptxdiff.lint.trial import trial_target

_NUMBER = re.compile(r"\$\$|\$(?:(\d+)|\{(\d+)(?::\w*)?\})")


@rule(
    "operand-out-of-range",
    "The text names an operand that the constraints do not declare.",
    why="LLVM ends the process. This includes comments, because LLVM replaces operands before it removes comments.",
)
def out_of_range(block: LintedBlock) -> Iterator[Found]:
    """Numbers beyond the last operand, anywhere in the text."""
    if block.parsed is None:
        return
    count = len(block.parsed)
    for match in _NUMBER.finditer(block.text):
        number = match[1] or match[2]
        if number and int(number[:9]) >= count:
            spelled = block.spelled(int(number))
            have = f"{count} operands, {block.spelled(0)} to {block.spelled(count - 1)}" if count else "no operands"
            yield Found(
                block.form.original(match.start()),
                f"operand {spelled} does not exist: the constraints {block.snippet.constraints!r} declare {have}",
                "number the outputs first, from 0, then the inputs; or add the constraint that is missing",
            )


def _misread(block: LintedBlock) -> bool:
    """Whether operands have the wrong sign, so that operands which seem missing are no separate findings."""
    return any(True for each in (out_of_range, sigil) for _ in each(block))


def _uses(block: LintedBlock) -> set[int]:
    """The operands that the instructions name."""
    used: set[int] = set()
    for instruction in block.instructions:
        guard = [instruction.guard.register] if instruction.guard else []
        for name in [*guard, *(n for operand in instruction.operands for n in names(operand))]:
            if name.text.startswith(OPERAND):
                used.add(int(name.text[1:].partition(".")[0]))
    return used


def _untied_outputs(block: LintedBlock) -> list[int]:
    parsed = block.parsed or ()
    tied = {c.tied for c in parsed if c.tied is not None}
    return [n for n in block.outputs if n not in tied]


@rule(
    "operand-unused",
    "An input operand is never read.",
    why="The cause is usually a wrong number elsewhere, so that half of a pack, or an argument, is lost.",
    severity="warning",
)
def unused(block: LintedBlock) -> Iterator[Found]:
    """Inputs that the text does not name, if it names others. (Reading no input is an idiom for a shape or an
    order.)"""
    if block.tree is None or block.parsed is None or _misread(block):
        return
    used = _uses(block)
    inputs = [n for n in block.inputs if block.parsed[n].tied is None and not block.parsed[n].immediate]
    missing = [n for n in inputs if n not in used]
    early = [n for n, _ in _early_reads(block)]
    if not missing or (len(missing) == len(inputs) and not early) or block.snippet.pure is False:
        return
    if any("rs" in i.modifiers for i in block.instructions):
        return  # stochastic rounding: one word of random bits serves several elements
    if early:
        return  # `output-read-before-written` names the input that was meant
    for number in missing:
        yield Found(
            None,
            f"the input {block.spelled(number)} ({block.parsed[number].text!r}) is never read",
            "read it, or remove it from the arguments and the constraints",
        )


def _named(block: LintedBlock, number: int) -> str:
    assert block.parsed is not None
    return f"the output {block.spelled(number)} ({block.parsed[number].text!r})"


@rule(
    "output-unwritten",
    "An output operand is never written.",
    why="Its register then has an undefined value.",
)
def unwritten(block: LintedBlock) -> Iterator[Found]:
    """Outputs that no instruction writes. A block with a side effect may have one unused output."""
    if block.tree is None or block.parsed is None:
        return
    if any(i.opcode == "call" for i in block.instructions) or _misread(block):
        return
    written = {n.text for i in block.instructions for n in written_names(i)}
    outputs = _untied_outputs(block)
    missing = [n for n in outputs if f"{OPERAND}{n}" not in {w.partition(".")[0] for w in written}]
    if len(missing) == len(outputs) and block.snippet.pure is not True:
        return
    for number in missing:
        yield Found(
            None,
            f"{_named(block, number)} is never written",
            f"write it, as in `mov.b{REGISTER_WIDTH[block.parsed[number].letter]} {block.spelled(number)}, ...;`, or "
            "remove it from the constraints",
        )


@rule(
    "output-conditional",
    "An output operand is written only under a predicate or a branch.",
    why="If it is not written, its register has an undefined value.",
    severity="warning",
)
def conditional(block: LintedBlock) -> Iterator[Found]:
    """Outputs that some path through the block does not write; the emulator decides if it can run the block."""
    if block.tree is None or block.parsed is None:
        return
    paths = flow(block.tree)
    if paths is None or paths.end is None:
        return
    for number in _untied_outputs(block):
        name = f"{OPERAND}{number}"
        writes = [i for i in paths.instructions if name in {n.text for n in written_names(i)}]
        if not writes or name in paths.end.surely or all(map(_has_a_value_only_then, writes)):
            continue
        example = _undefined(block, number)
        if example is None and not _one_guard(writes):
            continue
        if example == "":
            continue
        first = writes[0]
        shown = f" With {example} nothing writes it." if example else ""
        yield Found(
            block.place(first.offset),
            f"{_named(block, number)} is not written on every way through the block: `{block.statement(first.offset)}`"
            f" is skipped where its condition does not hold.{shown}",
            f"write {block.spelled(number)} before the condition, or in both cases",
        )


def _has_a_value_only_then(instruction: Instruction) -> bool:
    """Whether the result has a meaning only under the guard: the block's index of a cancelled request.

    PTX ISA, clusterlaunchcontrol.query_cancel: get_first_ctaid is undefined for a request that failed.
    """
    return instruction.guard is not None and any("get_first_ctaid" in m for m in instruction.modifiers)


def _one_guard(writes: list[Instruction]) -> bool:
    """Whether one predicate guards all writes; several predicates may exclude each other."""
    guards = {(i.guard.register.text, i.guard.negated) if i.guard else None for i in writes}
    return len(guards) == 1 and None not in guards


_SAMPLES = (0, 1, 2, 3, 4, 7, 8, 31, 32, 255, 0x3F800000, 0xBF800000, 0x7FC00000, 0x7F800000, 0x80000000, 0xFFFFFFFF)


def _undefined(block: LintedBlock, number: int) -> str | None:
    """Inputs for which the emulator finds the output undefined; empty if a sample has none, None if the block cannot
    run."""
    if block.program is None or block.parsed is None or block.has_constants:
        return None
    import numpy as np

    from ptxdiff.emulator import emulate

    letters = [c.letter for c in block.parsed]
    if any(REGISTER_WIDTH[c] < 16 for c in letters):
        return None
    widths = [REGISTER_WIDTH[c] for c in letters]
    inputs = [n for n in block.inputs if block.parsed[n].tied is None]
    if len(inputs) != len(block.inputs):
        return None
    target = trial_target(block)
    if target is None:
        return None
    rng = np.random.default_rng(ASSUMED)
    size = len(_SAMPLES) ** min(len(inputs), 3)
    args = []
    for k, n in enumerate(inputs):
        grid = np.resize(np.repeat(np.array(_SAMPLES, np.uint64), len(_SAMPLES) ** min(k, 2)), size)
        if k >= 3:
            grid = rng.permutation(grid)
        args.append((grid & np.uint64((1 << widths[n]) - 1)).astype(f"uint{widths[n]}"))
    try:
        emulate(block.text, block.constraints, args, [f"uint{widths[n]}" for n in block.outputs], target=target)
    except UndefinedBits as error:
        if error.output != number or error.element is None:
            return None
        at = error.element
        return ", ".join(f"{block.spelled(n)} = {int(a.reshape(-1)[at]):#x}" for n, a in zip(inputs, args, strict=True))
    except PtxError:
        return None
    return ""


def _early_reads(block: LintedBlock) -> Iterator[tuple[int, Instruction]]:
    """Outputs that are read at a place where no path has written them."""
    if block.tree is None or block.parsed is None:
        return
    paths = flow(block.tree)
    if paths is None:
        return
    outputs = {f"{OPERAND}{n}": n for n in _untied_outputs(block)}
    seen: set[int] = set()
    for instruction, state in zip(paths.instructions, paths.before, strict=True):
        if state is None:
            continue
        for name in read_names(instruction):
            number = outputs.get(name.text.partition(".")[0])
            if number is not None and name.text not in state.maybe and number not in seen:
                seen.add(number)
                yield number, instruction


@rule(
    "output-read-before-written",
    "An output operand is read before the block has written it.",
    why="Its register then has an undefined value, because an output is no input.",
)
def read_before_written(block: LintedBlock) -> Iterator[Found]:
    """Outputs that are read at a place where no path has written them."""
    used = _uses(block)
    spare = [n for n in block.inputs if n not in used]
    for number, instruction in _early_reads(block):
        hint = f"the input {block.spelled(spare[0])} is never read: is it meant here?" if spare else ""
        yield Found(
            block.place(instruction.offset),
            f"`{block.statement(instruction.offset)}` reads {_named(block, number)}, which nothing has written yet",
            hint or f"declare it as read and written: tie an input to it, with '{number}' as its constraint",
        )
