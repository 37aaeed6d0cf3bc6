"""Rules about what is no PTX: text that cannot be parsed, instructions that do not exist, or not on a target."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from ptxdiff.emulator import NEEDS, OperandError, PtxError, Requirement, Target, UnsupportedOnTarget, isa, requirement
from ptxdiff.emulator.isa.forms import FORMS, Bound, find
from ptxdiff.emulator.isa.lookup import lookup
from ptxdiff.emulator.isa.registry import REFUSED
from ptxdiff.emulator.text import OPERAND, TYPES, Instruction, Source, parse_asm
from ptxdiff.lint import ptxas_modifiers
from ptxdiff.lint.block import LintedBlock
from ptxdiff.lint.rules import rule
from ptxdiff.lint.rules.declarations import undeclared_names
from ptxdiff.lint.rules.operands import missing_in_a_name
from ptxdiff.lint.rules.spelling import EXPLAIN, alone
from ptxdiff.lint.snippet import Found

# ---- Targets: forms that a stated one does not have, and forms removed from the ISA ----------------------------------

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


# ---- Text that cannot be parsed, and instructions that do not exist or do not take their operands --------------------


@rule(
    "syntax",
    "The text is not PTX.",
    why="ptxas refuses it, in Triton only when the kernel is first compiled for a GPU.",
)
def syntax(block: LintedBlock) -> Iterator[Found]:
    """The parser's error, if no other rule has a better message."""
    error = block.parse_error
    if error and (text := alone(block)) != block.text:
        try:
            parse_asm(text, None, dict(block.constants))
        except PtxError as other:
            error = other
        else:
            return
    if not error or missing_in_a_name(block):
        return
    if not any(True for each in EXPLAIN for finding in each(block) if finding.severity != "note"):
        yield Found(block.place_of(error), _shown(block, error.message))


def _shown(block: LintedBlock, message: str) -> str:
    """The parser's message with operands in the author's spelling."""
    if block.snippet.convention != "cuda":
        return message
    return re.sub(r"\$(\d+)", r"%\1", message)


@rule(
    "constraints",
    "The constraint string is invalid.",
    why="A wrong constraint ends the whole process inside LLVM, or LLVM silently drops the block.",
)
def constraints(block: LintedBlock) -> Iterator[Found]:
    """The constraint parser's error; 128-bit registers (`q`) and symbols (`C`, `s`) are not supported here."""
    letters = [w.strip().lstrip("=+&") for w in block.snippet.constraints.split(",")]
    if block.constraint_error and not {"q", "C", "s"} & set(letters):
        message = block.constraint_error.message
        if block.snippet.convention == "llvm":
            message = message.replace("Triton", "LLVM")
        yield Found(0, message, part="constraints")


COMPLETE = frozenset(
    ("activemask", "elect", "fence", "griddepcontrol", "match", "mbarrier", "membar", "redux", "shfl", "vote")
)
"""Opcodes outside arithmetic of which the table has every modifier that ptxas takes; of others it may lack some."""
_IGNORED = """
acc::f16 acc::f32 all any box_dim col element_stride elemtype fill_mode finite global_address global_dim global_stride
infinite interleave_layout normal notanumber number pred rank row samplerref subnormal surfref swizzle_atomicity
swizzle_mode texref b4x16_p64 b6x16_p32 b8x16
"""
IGNORED = frozenset(_IGNORED.split())
"""Modifiers that ptxas accepts and ignores at many instructions: with one, the table of forms does not decide."""
_MATRICES = frozenset(("x8", "x16", "x32", "x64", "x128", "m16n16", "m8n16", "m16n8"))
UNMODELLED = {
    "atom": frozenset(("b128", "v2", "v4", "v8")),
    "cp": frozenset(("reduce",)),
    "cvta": frozenset(("u32",)),
    "fence": frozenset(
        (
            "alias",
            "async::generic",
            "sync_restrict::shared::cluster",
            "sync_restrict::shared::cta",
            "tensormap::generic",
        )
    ),
    "ld": frozenset(("b128",)),
    "ldmatrix": _MATRICES,
    "ldu": frozenset(("b128",)),
    "mbarrier": frozenset(("noComplete",)),
    "movmatrix": frozenset(("b1", "bf16", "bf16x2", "s2", "s4", "tf32", "u2", "u4")),
    "prefetch": frozenset(("L2::evict_last", "L2::evict_normal")),
    "red": frozenset(("async", "v2", "v4", "v8")),
    "setmaxnreg": frozenset(("s32",)),
    "st": frozenset(("async", "b128")),
    "stmatrix": _MATRICES,
}
"""By opcode the modifiers beside which ptxas takes forms that the table lacks, such as
`mbarrier.arrive.b64.noComplete`. `tests/lint/test_unknown_instructions.py` asks ptxas."""


_LAYOUTS = frozenset(("row", "col"))
_SHAPE = re.compile(r"m\d+n\d+k\d+")
_MMA_TYPES = 4
"""How many types `mma` has without scales; ptxas ignores some that are too many."""


@rule(
    "unknown-instruction",
    "An instruction, or one of its modifiers, does not exist.",
    why="ptxas refuses it.",
)
def unknown(block: LintedBlock) -> Iterator[Found]:
    """Spellings that are neither in the emulator's table of forms nor made of what ptxas accepts at that name."""
    isa.load()
    seen: set[str] = set()
    for node in block.instructions:
        if node.spelling not in seen and block.source is not None and not _inserted(block, node):
            seen.add(node.spelling)
            if message := _unknown(node, block.source):
                yield Found(block.place(node.offset), message)


def _inserted(block: LintedBlock, node: Instruction) -> bool:
    """Whether part of an instruction's name is an operand's text: `mma.m16n8k%14` with the constraint `n`."""
    start = block.source.original(node.offset) if block.source else node.offset
    name = re.match(r"[\w.:$]*", block.text[start:])
    return any(int(number) in dict(block.constants) for number in re.findall(r"\$(\d+)", name[0] if name else ""))


def _unknown(node: Instruction, source: Source) -> str:
    """What is wrong with a spelling; "" if nothing is, or if part of it is an operand's text."""
    if OPERAND in node.spelling:
        return ""
    if forms := find(node.opcode, node.modifiers):
        return ptxas_modifiers.misplaced(node.opcode, node.modifiers) or _out_of_order(node, forms)
    if any(form.matches(node) for form in REMOVED):
        return ""  # the rule `removed-form` reports it
    if node.opcode not in FORMS or node.opcode in REFUSED or ptxas_modifiers.asked(node.opcode):
        message = ptxas_modifiers.mistake(node.opcode, node.modifiers, (*FORMS, *REFUSED))
        if message or node.opcode not in FORMS or not _decided(node.opcode, node.modifiers):
            return message or ptxas_modifiers.lack(node.opcode, node.modifiers)
    try:
        lookup(node, source, None, elementwise=False)
    except PtxError as error:
        return error.message
    return ""


def _out_of_order(node: Instruction, forms: Sequence[Bound]) -> str:
    """What is wrong with layouts that a form of the table has in another order; modifiers may be in any order else."""
    layouts = [m for m in node.modifiers if m in _LAYOUTS]
    legal = [[m for m in form.spelling.split(".") if m in _LAYOUTS] for form in forms]
    if node.opcode != "mma" or layouts in legal:
        return ""
    return f"{node.spelling}: the layouts are .{'.'.join(legal[0])}, in this order"


@cache
def _spelled(opcode: str) -> frozenset[str]:
    """The modifiers of an opcode's forms."""
    return frozenset(choice for form in FORMS.get(opcode, ()) for group in form.groups for choice in group.choices)


def _decided(opcode: str, modifiers: tuple[str, ...]) -> bool:
    """Whether a spelling that is not in the table of forms does not exist: the table has all forms like it.

    A modifier that ptxas takes at this opcode, and no form of the table has, is of forms that the table lacks.
    """
    unmodelled = IGNORED | UNMODELLED.get(opcode, frozenset())
    others = [m for m in modifiers if m not in TYPES and m not in _spelled(opcode)]
    if opcode == "mma" and len([m for m in modifiers if m in TYPES]) <= _MMA_TYPES:
        unmodelled -= _LAYOUTS  # they have a meaning there
        others = [m for m in others if not _SHAPE.fullmatch(m)]
    if not unmodelled.isdisjoint(modifiers) or (opcode not in COMPLETE and others):
        return False
    # ptxas takes `wgmma.fence.sync` too.
    return not (opcode == "wgmma" and "aligned" not in modifiers and find(opcode, (*modifiers, "aligned")))


@rule(
    "operand-type",
    "An operand is of the wrong type or size for its instruction, or there are too many or too few.",
    why="ptxas refuses it.",
)
def operand_type(block: LintedBlock) -> Iterator[Found]:
    """Errors of binding about operands, if no other rule reports the register."""
    error = block.bind_error
    if type(error) is not OperandError or any(True for _ in undeclared_names(block)):
        return
    if any(fragment in error.message for fragment in ("declared twice", "there is no label", "is declared here")):
        return  # the rules on declarations report it, or a variable of the module is declared elsewhere
    yield Found(block.place_of(error), _shown(block, error.message))
