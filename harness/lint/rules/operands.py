"""Rules about operands and their constraints: letters, sizes, numbers, inputs never read, outputs never written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ptxdiff.emulator import REGISTER_WIDTH, PtxError, UndefinedBits
from ptxdiff.emulator.text import OPERAND, Instruction
from ptxdiff.lint.block import ASSUMED, LintedBlock, names
from ptxdiff.lint.flow import flow, read_names, written_names
from ptxdiff.lint.rules import rule
from ptxdiff.lint.rules.spelling import sigil
from ptxdiff.lint.snippet import Found
from ptxdiff.lint.trial import trial_target

# ---- Constraints: their number, their letters, the sizes of their registers ------------------------------------------

BITS = {
    **{f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float16": 16, "bfloat16": 16, "float32": 32, "float64": 64,
    **dict.fromkeys(("float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2fnuz"), 8),
}  # fmt: skip
"""Bits of an element. Booleans are omitted, because versions of Triton widen them differently."""


def registers(bits: int, pack: int) -> int:
    """How many registers Triton uses for `pack` elements of one tensor."""
    return -(-pack * min(bits, 32) // 32) if bits < 32 else pack


def _words(dtypes: Sequence[str | None], pack: int) -> str:
    parts = []
    for dtype in dtypes:
        bits = BITS.get(dtype or "")
        if bits is None:
            parts.append("1 or more of a type that is not known here")
        else:
            per = max(32 // bits, 1)
            parts.append(f"{registers(bits, pack)} for {dtype} ({pack} elements, {per} of {bits} bits a register)")
    return " + ".join(parts) or "none"


@rule(
    "constraint-count",
    "The number of constraints is not what the tensors and the pack need.",
    why="Triton passes one register for each 32 bits of a pack, and every one needs a constraint; one constraint too "
    "many ends the process inside LLVM.",
)
def count(block: LintedBlock) -> Iterator[Found]:
    """Compare the declared outputs and inputs with those of the call."""
    snippet = block.snippet
    if block.parsed is None or snippet.pack is None or snippet.convention == "cuda":
        return
    for what, have, dtypes in (
        ("output", len(block.outputs), snippet.outputs),
        ("input", len(block.inputs), snippet.inputs),
    ):
        if dtypes is None:
            continue
        if snippet.convention == "llvm":
            if have != len(dtypes) and (what == "input" or dtypes or have):
                yield Found(
                    0,
                    f"the constraints declare {have} {what} operands, and the call has {len(dtypes)}",
                    f"declare one constraint for each {'result' if what == 'output' else 'argument'}",
                    part="constraints",
                )
            continue
        least = most = 0
        for dtype in dtypes:
            bits = BITS.get(dtype or "")
            least += registers(bits or 8, snippet.pack)
            most += registers(bits or 32, snippet.pack)
        if not least <= have <= most:
            need = str(least) if least == most else f"{least} to {most}"
            yield Found(
                0,
                f"the constraints declare {have} {what} operands, and pack={snippet.pack} needs {need}: "
                f"{_words(dtypes, snippet.pack)}",
                "elements of less than 32 bits share a register; declare a constraint for each register",
                part="constraints",
            )


@rule(
    "constraint-letters",
    "A constraint has more than one letter.",
    why="LLVM silently chooses one of the letters, but the text fits only one kind of register.",
    severity="warning",
)
def letters(block: LintedBlock) -> Iterator[Found]:
    """`=rf`, `r|f`."""
    at = 0
    for word in block.snippet.constraints.split(","):
        body = word.strip().lstrip("=+&%")
        if re.fullmatch(r"[A-Za-z]\|?[A-Za-z][A-Za-z|]*", body) and not body.startswith("^"):
            yield Found(
                at + len(word) - len(word.lstrip()),
                f"the constraint {word.strip()!r} has several letters",
                f"write the letter that the text needs, such as {body[0]!r}",
                part="constraints",
            )
        at += len(word) + 1


@rule(
    "constraint-width",
    "The register of a constraint is smaller than the value that it has to hold.",
    why="LLVM ends the process, or truncates the value.",
)
def width(block: LintedBlock) -> Iterator[Found]:
    """Compare registers with the elements that Triton or MLIR puts into them, if the types are known."""
    snippet = block.snippet
    if block.parsed is None or snippet.pack is None:
        return
    for operands, dtypes in ((block.outputs, snippet.outputs), (block.inputs, snippet.inputs)):
        if dtypes is None or any(d is None for d in dtypes):
            continue
        widths: list[tuple[int, str]] = []
        for dtype in dtypes:
            bits = BITS.get(dtype or "")
            if bits is None:
                return
            if snippet.convention == "llvm":
                widths.append((bits, f"one {dtype}"))
            else:
                per = min(max(32 // bits, 1), snippet.pack)
                widths += [(bits * per, f"{per} elements of {dtype}")] * registers(bits, snippet.pack)
        if len(widths) != len(operands):
            continue
        for number, (bits, held) in zip(operands, widths, strict=True):
            constraint = block.parsed[number]
            have = 64 if constraint.immediate else REGISTER_WIDTH[constraint.letter]
            if have < bits and have > 1:
                yield Found(
                    0,
                    f"{block.spelled(number)} holds {held}, {bits} bits; {constraint.text!r} is a register of {have}",
                    f"use the letter {'l' if bits == 64 else 'r'}",
                    part="constraints",
                )


# ---- Operands --------------------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"\$\$|\$(?:(\d+)|\{(\d+)(?::\w*)?\})")


@rule(
    "operand-out-of-range",
    "The text names an operand that the constraints do not declare.",
    why="LLVM ends the process. This includes comments, because LLVM replaces operands before it removes comments.",
)
def out_of_range(block: LintedBlock) -> Iterator[Found]:
    """Numbers beyond the last operand, anywhere in the text."""
    count = len(block.parsed or ())
    for match in _beyond(block):
        have = f"{count} operands, {block.spelled(0)} to {block.spelled(count - 1)}" if count else "no operands"
        yield Found(
            block.form.original(match.start()),
            f"operand {block.spelled(int(match[1] or match[2]))} does not exist: the constraints "
            f"{block.snippet.constraints!r} declare {have}",
            "number the outputs first, from 0, then the inputs; or add the constraint that is missing",
        )


def _beyond(block: LintedBlock) -> Iterator[re.Match[str]]:
    if block.parsed is None:
        return
    for match in _NUMBER.finditer(block.text):
        number = match[1] or match[2]
        if number and int(number[:9]) >= len(block.parsed):
            yield match


def missing_in_a_name(block: LintedBlock) -> bool:
    """Whether an operand that the constraints do not declare is a part of an instruction's name, as in
    `cta_group::%2`. The parser then fails at what is left of the name."""
    return any(block.text[: match.start()].endswith((".", "::")) for match in _beyond(block))


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
