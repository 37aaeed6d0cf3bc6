"""Rules about rounding, flushing and range."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ptxdiff.emulator.text import Address, Immediate, Instruction
from ptxdiff.lint.block import LintedBlock, names
from ptxdiff.lint.flow import read_names, written_names
from ptxdiff.lint.rules import rule
from ptxdiff.lint.snippet import Found

_ARITHMETIC = frozenset(("add", "sub", "mul", "fma", "mad", "div"))
_FUNCTIONS = frozenset(("cos", "ex2", "lg2", "rcp", "rsqrt", "sin", "sqrt"))
"""Functions that exist with and without `.ftz`; `tanh` has no choice."""


def _ftz(block: LintedBlock, functions: bool = False) -> dict[bool, Instruction]:
    """The first f32 arithmetic with `.ftz` and the first without. functions: also approximate ones."""
    arithmetic: dict[bool, Instruction] = {}
    for instruction in block.instructions:
        plain = instruction.opcode in _ARITHMETIC and "approx" not in instruction.modifiers
        chosen = instruction.opcode in _ARITHMETIC | _FUNCTIONS if functions else plain
        if instruction.opcode == "ex2" and "ftz" in instruction.modifiers:
            continue  # a subnormal exponent gives 1 in any case, so `mul.f32` before `ex2.approx.ftz.f32` is an idiom
        if chosen and "f32" in instruction.modifiers:
            arithmetic.setdefault("ftz" in instruction.modifiers, instruction)
    return arithmetic


def _approximate(instruction: Instruction) -> bool:
    return not {"approx", "full"}.isdisjoint(instruction.modifiers)


def _named(block: LintedBlock, found: dict[bool, Instruction]) -> bool:
    """Whether a variant states how it treats subnormals: by `ftz=`, or by its name, such as `mul.ftz` and `mul`."""
    return bool(block.snippet.ftz) or ("ftz" in block.snippet.function.lower()) in found


@rule(
    "mixed-ftz",
    "Some f32 arithmetic flushes subnormals to zero (.ftz) and some does not.",
    why="A subnormal is then kept by one step and flushed by the next, and variants of a case differ on subnormals.",
    severity="warning",
)
def mixed_ftz(block: LintedBlock) -> Iterator[Found]:
    """Within a block, and between the variants of a case.

    Only a note for `rcp.approx.ftz.f32` and the like beside plain arithmetic, as in 1 / (1 + x): it is often meant.
    """
    here = _ftz(block, functions=True)
    if len(here) == 2:
        later = max(here.values(), key=lambda i: i.offset)
        other = min(here.values(), key=lambda i: i.offset)
        yield Found(
            block.place(later.offset),
            f"`{block.statement(later.offset)}` and `{block.statement(other.offset)}` treat subnormals differently",
            "write .ftz at both or at neither",
            severity="note" if _approximate(here[True]) and not _approximate(here[False]) else None,
        )
        return
    here = _ftz(block)
    if not here or not block.snippet.group:
        return
    for other_block in block.siblings:
        if other_block is block:
            return  # report two variants once, at the second
        if other_block.snippet.group != block.snippet.group:
            continue
        there = _ftz(other_block)
        if len(there) == 1 and set(there) != set(here) and not (_named(block, here) and _named(other_block, there)):
            at = next(iter(here.values()))
            yield Found(
                block.place(at.offset),
                f"`{block.statement(at.offset)}` and the variant {other_block.snippet.function} of the same case treat "
                "subnormals differently",
                "write .ftz in both or in neither, or state it with ftz= or in the variant's name (`mul.ftz`)",
            )
            return


@rule(
    "approximate-exact",
    "An approximate instruction where the case asks for exact bits.",
    why="Its last bits are the hardware's own, and no reference gives them.",
)
def approximate_exact(block: LintedBlock) -> Iterator[Found]:
    """Outputs of an exact case that depend on an approximate instruction."""
    if not block.snippet.exact or block.program is None:
        return
    from ptxdiff.emulator import PtxError, approximate_results

    try:
        results = approximate_results(block.text, block.constraints)
    except PtxError:
        return
    named = {name for n in block.outputs for name in results[n]}
    for step in block.program.program.steps:
        if step.bound.name in named:
            yield Found(
                block.place(step.node.offset),
                f"`{block.statement(step.node.offset)}` is approximate, and the case's policy is exact",
                "give the case or the variant a bound (match=ulp(...)), or use the .rn form",
            )
            return


_FUSED = {"f32", "f64", "f16", "f16x2", "bf16", "bf16x2", "f32x2"}
_ROUNDING = frozenset(("rn", "rz", "rm", "rp"))


@rule(
    "contraction",
    "A multiplication and an addition that ptxas may fuse into one fma.",
    why="Without a rounding modifier ptxas may contract them: the result then depends on its version and options.",
    severity="note",
)
def contraction(block: LintedBlock) -> Iterator[Found]:
    """A product without rounding modifier that an addition without one uses."""
    if block.program is None:
        return
    from ptxdiff.emulator import contraction_open

    if not contraction_open(block.program.program):
        return
    products: dict[str, Instruction] = {}
    for instruction in block.instructions:
        free = bool(_FUSED & set(instruction.modifiers)) and not _ROUNDING & set(instruction.modifiers)
        if instruction.opcode in ("add", "sub") and free:
            for name in read_names(instruction):
                if name.text in products:
                    product = products[name.text]
                    yield Found(
                        block.place(instruction.offset),
                        f"ptxas may fuse `{block.statement(product.offset)}` with "
                        f"`{block.statement(instruction.offset)}`",
                        "write .rn at both to keep two roundings, or fma.rn to have one",
                    )
                    return
        for name in written_names(instruction):
            products.pop(name.text, None)
            if instruction.opcode == "mul" and free:
                products[name.text] = instruction


_NARROW = frozenset(("s8", "u8", "s16", "u16"))
_WIDE = frozenset(("s32", "u32", "s64", "u64"))


@rule(
    "conversion-overflow",
    "A rounded float is truncated to fewer bits without saturation.",
    why="The conversion from float clamps to 32 bits; the next conversion keeps only the low bits, so 256 becomes 0.",
    severity="warning",
)
def overflow(block: LintedBlock) -> Iterator[Found]:
    """`cvt.rni.s32.f32` followed by `cvt.s8.s32` of its result, without a clamp between or before."""
    rounded: dict[str, Instruction] = {}
    clamped: set[str] = set()
    for instruction in block.instructions:
        types = [m for m in instruction.modifiers if m in _NARROW | _WIDE or m.startswith(("f", "bf"))]
        written = [n.text for n in written_names(instruction)]
        read = [n.text for n in read_names(instruction)]
        if (
            instruction.opcode == "cvt"
            and "sat" not in instruction.modifiers
            and len(types) == 2
            and types[0] in _NARROW
        ):
            for name in read:
                if name in rounded and types[1] in _WIDE:
                    yield Found(
                        block.place(instruction.offset),
                        f"`{block.statement(instruction.offset)}` keeps the low bits of "
                        f"`{block.statement(rounded[name].offset)}`, whatever its size",
                        f"write cvt.sat.{types[0]}.{types[1]}, or clamp before",
                    )
        for name in written:
            rounded.pop(name, None)
            clamped.discard(name)
            if (
                instruction.opcode in ("min", "max")
                or "sat" in instruction.modifiers
                or any(r in clamped for r in read)
            ):
                clamped.add(name)
            floats = len(types) == 2 and types[0] in _WIDE and types[1] in ("f16", "bf16", "f32", "f64")
            if instruction.opcode == "cvt" and floats and not any(r in clamped for r in read):
                rounded[name] = instruction


_HALVES = frozenset(("f16", "f16x2"))
_WIDER = frozenset(("f32", "f64", "bf16"))


@rule(
    "conversion-infinity",
    "A conversion to f16 without saturation, of a value that may be too large for it.",
    why="From 65520 on the result is infinity, and later results become infinity or NaN.",
    severity="note",
    default=False,
)
def infinity(block: LintedBlock) -> Iterator[Found]:
    """`cvt.rn.f16.f32` and similar forms without `.satfinite`, if no clamp bounds the source on both sides."""
    bounded: dict[str, frozenset[str]] = {}
    for instruction in block.instructions:
        read = [n.text for n in read_names(instruction)]
        kind = next((m for m in instruction.modifiers if m in _HALVES), "")
        narrows = instruction.opcode == "cvt" and kind and _WIDER & set(instruction.modifiers[-1:])
        saturates = {"satfinite", "sat"} & set(instruction.modifiers)
        if narrows and not saturates and not all(len(bounded.get(name, ())) == 2 for name in read):
            yield Found(
                block.place(instruction.offset),
                f"`{block.statement(instruction.offset)}` gives an infinity from 65520 on",
                "write .satfinite (from sm_80 on), or clamp to 65504 before",
            )
        constants = [_float(o) for o in instruction.operands if isinstance(o, Immediate)]
        bounds = {instruction.opcode} if instruction.opcode in ("min", "max") and constants else set()
        if any(abs(c) > 65504 for c in constants):
            bounds = set()
        for name in written_names(instruction):
            before = [bounded.get(r, frozenset()) for r in read]
            bounded[name.text] = frozenset(bounds).union(*before) if bounds else frozenset()


def _float(value: Immediate) -> float:
    """The value of a constant; for a `0f` literal, from its bits."""
    if value.single is None:
        return float(value.value)
    return float(struct.unpack("<f", struct.pack("<I", value.single))[0])


_CARRIED = frozenset(("add", "sub", "mul", "fma", "mad", "mov", "neg", "abs", "min", "max", "cvt", "shl", "cvta"))


@rule(
    "approximate-compared",
    "An approximate result is compared for equality, or used as an index.",
    why="Its last bits differ between GPUs and versions of a library, and so do decisions that depend on them.",
    severity="warning",
)
def compared(block: LintedBlock) -> Iterator[Found]:
    """Results of `.approx` that reach setp.eq or setp.ne between registers, or an address."""
    inexact: dict[str, Instruction] = {}
    for instruction in block.instructions:
        reads = [n.text for n in read_names(instruction)]
        source = next((inexact[r] for r in reads if r in inexact), None)
        equal = instruction.opcode in ("setp", "set") and {"eq", "ne"} & set(instruction.modifiers)
        operands = instruction.operands[1:3]
        constant = any(isinstance(o, Immediate) for o in operands)
        same = len(operands) == 2 and len({n.text for o in operands for n in names(o)}) == 1
        address = any(n.text in inexact for o in instruction.operands if isinstance(o, Address) for n in names(o.base))
        if source is not None and ((equal and not constant and not same) or address):
            use = "compares for equality" if equal else "uses as an address"
            yield Found(
                block.place(instruction.offset),
                f"`{block.statement(instruction.offset)}` {use} what depends on `{block.statement(source.offset)}`",
                "compare with a bound, or use an instruction that rounds (.rn)",
            )
        for name in written_names(instruction):
            inexact.pop(name.text, None)
            if "approx" in instruction.modifiers:
                inexact[name.text] = instruction
            elif source is not None and instruction.opcode in _CARRIED:
                inexact[name.text] = source
