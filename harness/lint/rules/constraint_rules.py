"""Rules about constraints: their number, their letters, the sizes of their registers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ptxdiff.emulator import REGISTER_WIDTH
from ptxdiff.lint.block import LintedBlock
from ptxdiff.lint.rules import rule
from ptxdiff.lint.snippet import Found

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
