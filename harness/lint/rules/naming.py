"""Rules that compare a function's name with its instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ptxdiff.emulator.text import Instruction
from ptxdiff.lint.block import LintedBlock
from ptxdiff.lint.rules import rule
from ptxdiff.lint.snippet import Found

_Table = dict[str, tuple[str, ...]]

_OPERATIONS: tuple[_Table, ...] = (
    {"sin": ("sin", "sine", "sinf"), "cos": ("cos", "cosine", "cosf")},
    {"ex2": ("ex2", "exp2", "exp", "exp2f", "expf"), "lg2": ("lg2", "log2", "log", "log2f", "logf")},
    {"tanh": ("tanh",), "sin": ("sin", "sine", "sinf"), "cos": ("cos", "cosine", "cosf")},
)
"""Instructions that exclude each other, with the words for them in names."""

_SINGLE: tuple[_Table, ...] = (
    {"add": ("add",), "sub": ("sub",)},
    {"min": ("min", "fmin"), "max": ("max", "fmax")},
    {"clz": ("clz",), "popc": ("popc", "popcount"), "brev": ("brev", "bitreverse")},
    {"shl": ("shl",), "shr": ("shr",)},
)
"""The same for blocks of one instruction: longer ones use one operation to build another."""

_ROUNDING: _Table = {"rn": ("rn",), "rz": ("rz",), "rm": ("rm",), "rp": ("rp",)}
_FORMATS = {"bf16": r"bf16|bfloat16", "f16": r"(?<!b)(?:f16|fp16|float16)|(?:^|_)half"}
_NARROW = re.compile(r"(?<!u)e[2-5]m[0-3]")
"""Formats of elements; `ue4m3` and `ue8m0` are formats of scales."""
_CLAMPS = frozenset(("clamp", "clip", "limit", "relu", "bound", "sat", "saturate", "kernel"))


def _tokens(name: str) -> set[str]:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return set(re.split(r"[^a-z0-9]+", spaced)) - {""}


def _parts(block: LintedBlock) -> set[str]:
    """Opcodes and modifiers of all instructions."""
    return {p for i in block.instructions for p in (i.opcode, *i.modifiers)}


@rule(
    "name-mismatch",
    "The function's name says one operation or format, the instruction another.",
    why="One of the two is wrong, and callers go by the name.",
    severity="warning",
)
def mismatch(block: LintedBlock) -> Iterator[Found]:
    """A name that means one operation of a set, for a block that has another operation of the set instead."""
    name_parts = _tokens(block.snippet.function)
    if not name_parts or not block.instructions:
        return
    parts = _parts(block)
    opcodes = {i.opcode for i in block.instructions}
    tables: list[_Table] = [*_OPERATIONS]
    if len(block.instructions) == 1 and not name_parts & _CLAMPS:
        tables += _SINGLE
        if len(opcodes & {"add", "sub", "mul", "fma", "div", "rcp", "sqrt", "cvt"}) == 1:
            tables.append(_ROUNDING)
    for table in tables:
        meant = {word for word, spellings in table.items() if name_parts & set(spellings)}
        written = (parts if table is _ROUNDING else opcodes) & set(table)
        if len(meant) == 1 and written and not meant & (parts | _elsewhere(block)):
            yield _found(block, next(iter(meant)), sorted(written)[0])
            return
    yield from _formats(block, name_parts, parts)


def _elsewhere(block: LintedBlock) -> set[str]:
    """Opcodes and modifiers of the other blocks of the same function, which may have a block for each step or
    format."""
    others = (b for b in block.siblings if b is not block and b.snippet.function == block.snippet.function)
    return {part for other in others for part in _parts(other)}


_AGREES = {"bf16": "bfloat16", "f16": "float16"}


def _used(parts: set[str]) -> set[str]:
    """The 16-bit float formats of the instructions."""
    return {f for f in _FORMATS if any(re.fullmatch(rf"{f}(?:x2)?", p) for p in parts)}


def _chosen_elsewhere(block: LintedBlock, at: int) -> bool:
    """Whether the instruction's text comes from outside the call, such as from a constant of the module."""
    origin = block.snippet.origin
    lines = [origin.position(n)[0] if offset >= 0 else 0 for n, offset in enumerate(origin.offsets)]
    own = [origin.line <= line <= origin.last for line in lines]
    return any(own) and at < len(own) and not own[at]


def _formats(block: LintedBlock, words: set[str], parts: set[str]) -> Iterator[Found]:
    name = block.snippet.function.lower()
    narrow = {m[0] for p in parts if (m := re.match(r"e[2-5]m[0-3]|ue8m0", p))}
    # A function may convert through the other format, and return its result in it.
    found = _used(parts)
    handed_on = any(_AGREES[f] in (block.snippet.outputs or ()) for f in found)
    if "kernel" not in words and not narrow and not handed_on:
        meant = {f for f, pattern in _FORMATS.items() if re.search(pattern, name)}
        if len(meant) == 1 and len(found) == 1 and meant != found and not meant & _used(_elsewhere(block)):
            finding = _found(block, next(iter(meant)), next(iter(found)))
            if not _chosen_elsewhere(block, finding.at or 0):
                yield finding
    if (reversed_ := _reversed(block, name)) is not None:
        yield reversed_
        return
    said = set(_NARROW.findall(name))
    used = narrow - {"ue8m0"}
    if said and used and not said & used and not words & {"scale", "scales", "sf"}:
        yield _found(block, " and ".join(sorted(said)), sorted(used)[0])


_FORMAT = r"(?<!u)(?:e[2-5]m[0-3]|bf16|bfloat16|(?<!b)(?:fp16|f16|float16)|half|(?:fp|f)32|float32|float)"
_DIRECTION = re.compile(rf"({_FORMAT})(?:x[248])?_?(?:to|2)_?(?:packed_)?({_FORMAT})(?:x[248])?")
_SPELLINGS = {"bfloat16": "bf16", "fp16": "f16", "float16": "f16", "half": "f16"}


def _plain(name: str) -> str:
    name = re.sub(r"x[248]\Z", "", name)
    return _SPELLINGS.get(name, "f32" if name in ("fp32", "float32", "float") else name)


def _reversed(block: LintedBlock, name: str) -> Found | None:
    """A conversion to the format that the name has first: `f16_to_bf16` with `cvt.rn.f16.f32`, and none to the
    other."""
    directions = _DIRECTION.findall(name)
    if len(directions) != 1 or "cvt" in _elsewhere(block):
        return None
    source, target = map(_plain, directions[0])
    last: tuple[Instruction, str] | None = None
    for instruction in block.instructions:
        formats = [p for m in instruction.modifiers if re.fullmatch(_FORMAT, p := _plain(m))]
        if target in formats[:1]:
            return None
        if instruction.opcode == "cvt" and formats:
            last = instruction, formats[0]
    if last is None or source == target or last[1] != source:
        return None
    message = f"the name {block.snippet.function} says {source} to {target}, and `{block.statement(last[0].offset)}` "
    return Found(block.place(last[0].offset), f"{message}gives {source}", "correct the instruction or the name")


def _found(block: LintedBlock, meant: str, found: str) -> Found:
    at = next(
        i.offset
        for i in block.instructions
        if any(p.removesuffix("x2") == found or p.startswith(found) for p in (i.opcode, *i.modifiers))
    )
    return Found(
        block.place(at),
        f"the name {block.snippet.function} says {meant}, and `{block.statement(at)}` is {found}",
        "correct the instruction or the name",
    )
