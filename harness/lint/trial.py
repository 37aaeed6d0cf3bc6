"""Run a block alone by operand: with patterns in the registers of its inputs, and patterns from its outputs.

This needs no knowledge of the tensors. The inputs include ordinary values for every possible content of a register
(floats, small integers, halves, any bits) in some lanes. Runs are few and small, so that a block takes some
milliseconds, and at most a second.
"""

from __future__ import annotations

import itertools
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from ptxdiff.emulator import (
    REGISTER_WIDTH,
    AsmOperand,
    PtxError,
    TraceLine,
    UndefinedBits,
    assemble,
    bind,
    check_pack,
    dtype_of,
    emulate,
    trace,
    uncompiled,
    unknown_registers,
    width_of,
)
from ptxdiff.lint.block import LintedBlock

Units = dict[int, Any]
"""Patterns by operand number, one for each lane."""

TRIAL_TARGETS = (
    "sm_90a",
    "sm_100a",
    "sm_103a",
    "sm_120a",
    "sm_110a",
    "sm_107a",
    "sm_89",
    "sm_80",
    "sm_75",
    "sm_60",
    "sm_52",
)
LANES = 16
SPECIAL_LANES = 48
SECONDS = 1.0
"""Seconds of CPU time that all runs of one block may take; usually they take milliseconds."""
_WALL = 3
"""Wall-clock seconds allowed for each second of CPU time, for machines with other work."""
_UNSIGNED: dict[int, Any] = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
_FLOATS: dict[int, Any] = {16: np.float16, 32: np.float32, 64: np.float64}
_KINDS = 4


@dataclass
class Clock:
    """The time of a block's runs, in CPU time, so that findings do not depend on other work of the machine."""

    until: float = field(default_factory=lambda: time.process_time() + SECONDS)

    @property
    def limit(self) -> float:
        """Wall-clock seconds that one run may take."""
        return max(_WALL * self.left, 0.01)

    @property
    def left(self) -> float:
        """The remaining seconds of CPU time, or 0."""
        return max(0.0, self.until - time.process_time())


def clock_of(block: LintedBlock) -> Clock:
    """The clock of a block, which starts with its first run; all rules share it."""
    clock: Clock = block.kept.setdefault("clock", Clock())
    return clock


def width(block: LintedBlock, number: int) -> int:
    """The bits of an operand's register."""
    assert block.parsed is not None
    return REGISTER_WIDTH[block.parsed[number].letter]


def ordinary(block: LintedBlock) -> Units:
    """Inputs of a block: ordinary floats in the first lanes, then small integers, halves, random bits."""
    return {n: _ordinary(width(block, n), _generator(block, n)) for n in _registers(block)}


def special(block: LintedBlock) -> Units:
    """Inputs of a block with values that branches and predicates often test: zeros, infinities, powers of two."""
    return {n: _special(width(block, n), _generator(block, n)) for n in _registers(block)}


def _registers(block: LintedBlock) -> list[int]:
    return [n for n in block.inputs if not block.parsed[n].immediate] if block.parsed else []


def _generator(block: LintedBlock, number: int) -> np.random.Generator:
    return np.random.default_rng((zlib.crc32(block.text.encode()), number))


def _ordinary(bits: int, rng: np.random.Generator) -> Any:
    if bits == 1:
        return rng.integers(0, 2, LANES).astype(np.bool_)
    kind = _UNSIGNED[bits]
    each = LANES // _KINDS
    floats = np.ldexp(rng.choice(np.arange(1, 64, 2), each), -3) * rng.choice((-1, 1), each)
    halves = np.ldexp(rng.choice(np.arange(1, 64, 2), each * max(bits // 16, 1)), -2).astype(np.float16)
    parts = [
        floats.astype(_FLOATS[bits]).view(kind),
        rng.integers(1, 100, each).astype(kind),
        np.ascontiguousarray(halves).view(kind)[:each],
        rng.integers(0, np.iinfo(kind).max, each, kind, endpoint=True),
    ]
    return np.concatenate(parts)


def _special(bits: int, rng: np.random.Generator) -> Any:
    if bits == 1:
        return rng.integers(0, 2, SPECIAL_LANES).astype(np.bool_)
    kind = _UNSIGNED[bits]
    floats = np.array([0, -0.0, 1, -1, 0.5, 2, 65504, np.inf, -np.inf, np.nan, 3e-5], _FLOATS[bits]).view(kind)
    powers = np.array([1 << k for k in range(bits)], kind)
    edges = np.array([0, 1, 2, (1 << bits) - 1, (1 << (bits - 1)) - 1, 0xFF, 0x7F, 0x80], kind)
    chosen = np.concatenate([floats, floats, powers, edges, edges])
    return rng.choice(chosen, SPECIAL_LANES)


@lru_cache(maxsize=64)
def trial_target(block: LintedBlock) -> str | None:
    """A target with all instructions of a block: one that its author states, or else a common one; None if there is
    none."""
    for target in (*block.snippet.targets, *TRIAL_TARGETS):
        try:
            assemble(block.text, block.constraints, target, (), False, block.constants)
        except PtxError:
            continue
        return target
    return None


def special_of(block: LintedBlock) -> dict[str, int]:
    """A value for each special register that a block reads."""
    if block.program is None:
        return {}
    return {name: 3 + k for k, name in enumerate(unknown_registers(block.program.program, lambda *_: False))}


_CARRY = "{ .reg .b32 %carry_before; add.cc.u32 %carry_before, -1, 1; } "
_READS_CARRY = frozenset(("addc", "subc", "madc"))


def _carries(block: LintedBlock) -> list[str]:
    """What the block does with the carry, in order: `reads` and `writes`."""
    carries = []
    for node in block.instructions:
        carries += ["reads"] * (node.opcode in _READS_CARRY) + ["writes"] * ("cc" in node.modifiers)
    return carries


def takes_carry(block: LintedBlock) -> bool:
    """Whether a block reads a carry that an earlier asm statement left."""
    return _carries(block)[:1] == ["reads"]


def leaves_carry(block: LintedBlock) -> bool:
    """Whether a block's last carry is for a later asm statement."""
    return _carries(block)[-1:] == ["writes"]


def _text_of(block: LintedBlock) -> str:
    """The text that is run: with a carry before it if the block takes one."""
    return _CARRY + block.text if takes_carry(block) else block.text


def run(
    block: LintedBlock, given: Units, clock: Clock, share: Mapping[int, int] | None = None, most: int = 64
) -> Units | None:
    """The outputs by number for each lane; None if the emulator cannot run the block.

    most: how many low bits of an output are examined. Each special register that the block reads gets a different
    value. Raises UndefinedBits if an output is undefined in some lane.
    """
    parsed, program = block.parsed, block.program
    target = trial_target(block)
    if parsed is None or program is None or target is None or not block.outputs or clock.left <= 0:
        return None
    constants = dict(block.constants)
    args = [constants[n] if parsed[n].immediate else given[n] for n in block.inputs]
    dtypes = [_UNSIGNED[min(width(block, n), most)] for n in block.outputs]
    options: dict[str, Any] = {"target": target, "share": dict(share) if share else None, "special": special_of(block)}
    try:
        with uncompiled():
            results = emulate(_text_of(block), block.constraints, args, dtypes, limit=clock.limit, **options)
    except UndefinedBits:
        raise
    except PtxError:
        return None
    lanes = next((len(u) for u in given.values()), 1)
    return {n: np.broadcast_to(r, (lanes,)) for n, r in zip(block.outputs, results, strict=True)}


def defined(block: LintedBlock, given: Units, clock: Clock) -> tuple[Units, Units] | None:
    """The inputs for which every output is defined, and the outputs; None if there are none.

    If a block leaves the upper part of its registers undefined, because its results are smaller, only the lower part is
    examined.
    """
    return next(filter(None, (_defined(block, given, clock, most) for most in (64, 16, 8))), None)


def bits_of(outputs: Units) -> int:
    """How many bits of the widest output were examined."""
    return 8 * max(int(u.dtype.itemsize) for u in outputs.values())


def _defined(block: LintedBlock, given: Units, clock: Clock, most: int) -> tuple[Units, Units] | None:
    for _ in range(SPECIAL_LANES):
        try:
            results = run(block, given, clock, most=most)
        except UndefinedBits as error:
            if error.element is None or not given:
                return None
            given = {n: np.delete(u, error.element) for n, u in given.items()}
            if not all(len(u) for u in given.values()):
                return None
            continue
        return None if results is None else (given, results)
    return None


def shown(block: LintedBlock, number: int, pattern: Any) -> str:
    """An operand with its bits, and its value if they are those of an ordinary float: `$9 = 0x3fc00000 (1.5)`."""
    if pattern.dtype == np.bool_:
        return f"{block.spelled(number)} = {bool(pattern)}"
    bits = 8 * pattern.dtype.itemsize
    code = int(pattern)
    text = f"{block.spelled(number)} = 0x{code:0{bits // 4}x}"
    if bits in _FLOATS:
        value = float(np.array(code, _UNSIGNED[bits]).view(_FLOATS[bits]))
        if np.isfinite(value) and 1e-3 <= abs(value) < 1e5:
            return f"{text} ({value:g})"
    return text


# Find the elements of a pack that each result depends on -----------------------------------------------------------
#
# Find the elements of a pack that each result depends on, by running the block with one element changed at a time.

PACKS = 12
"""Packs of elements in one run."""
_MOST = 128
"""Blocks with this many elements of arguments or of results, or more, are not examined."""
_WIDTHS = {8: "uint8", 16: "uint16", 32: "uint32", 64: "uint64"}
_READINGS = 4
Element = tuple[int, int]
"""The number of an argument or result, and the position in the pack."""


@dataclass(frozen=True)
class ElementFlow:
    """For each element of a result, the elements of arguments that changed it when they were changed.

    `seen`: by result and argument, one pack of arguments, and the same pack with that element changed.
    """

    operands: tuple[AsmOperand, ...]
    pack: int
    depends: dict[Element, frozenset[Element]]
    seen: dict[tuple[Element, Element], tuple[list[np.ndarray], list[np.ndarray]]] = field(repr=False)

    def register(self, element: Element, output: bool) -> int:
        """The number of the operand that holds an element."""
        return next(
            o.number
            for o in self.operands
            if (o.output, o.tensor) == (output, element[0]) and o.first <= element[1] < o.first + o.count
        )


def flows(block: LintedBlock) -> list[ElementFlow]:
    """The flow of elements through a block, for each possible reading of its operands with which it runs.

    There are several if the dtype of an argument is not known. Empty if pack, dtypes and text do not determine a
    reading, or if the block cannot run.
    """
    if block.program is None or block.has_constants or trial_target(block) is None:
        return []
    clock = clock_of(block)
    element_flows = (_flow(block, *reading, clock) for reading in readings(block))
    return [f for f in element_flows if f is not None]


def _flow(
    block: LintedBlock, operands: tuple[AsmOperand, ...], inputs: list[int], outputs: list[int], pack: int, clock: Clock
) -> ElementFlow | None:
    if pack * max(len(inputs), len(outputs)) > _MOST:
        return None
    seed = zlib.crc32(block.text.encode())
    given = [_patterns(w, pack, (seed, n)) for n, w in enumerate(inputs)]
    base = _results(block, given, outputs, pack, clock)
    if base is None:
        return None
    depends: dict[Element, set[Element]] = {(t, i): set() for t in range(len(outputs)) for i in range(pack)}
    seen: dict[tuple[Element, Element], tuple[list[np.ndarray], list[np.ndarray]]] = {}
    for tensor, position, trial in itertools.product(range(len(inputs)), range(pack), range(2)):
        changed = list(given)
        changed[tensor] = given[tensor].copy()
        changed[tensor].reshape(-1, pack)[:, position] = _patterns(inputs[tensor], 1, (seed, tensor, position, trial))
        results = _results(block, changed, outputs, pack, clock)
        if results is None:
            return None
        for number, (before, after) in enumerate(zip(base, results, strict=True)):
            for lane, at in np.argwhere((before != after).reshape(-1, pack)):
                result = number, int(at)
                if (tensor, position) not in depends[result]:
                    depends[result].add((tensor, position))
                    part = slice(lane * pack, (lane + 1) * pack)
                    seen[result, (tensor, position)] = [g[part] for g in given], [c[part] for c in changed]
    return ElementFlow(operands, pack, {k: frozenset(v) for k, v in depends.items()}, seen)


def _patterns(width: int, pack: int, seed: Sequence[int]) -> np.ndarray:
    """Elements of PACKS packs: ordinary floats and small integers, then random bits."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(_WIDTHS[width])
    count = PACKS * pack
    bits = rng.integers(0, np.iinfo(kind).max, count, kind, endpoint=True)
    if width == 8:
        return bits
    floats = np.ldexp(rng.integers(1, 64, count), -3) * rng.choice((-1, 1), count)
    ordinary = floats.astype(f"float{width}").view(kind)
    small = rng.integers(1, 200, count).astype(kind)
    which = np.repeat(np.arange(PACKS) % 3, pack)
    return np.select([which == 0, which == 1], [ordinary, small], bits)


def _results(
    block: LintedBlock, given: Sequence[np.ndarray], outputs: Sequence[int], pack: int, clock: Clock
) -> list[np.ndarray] | None:
    if clock.left <= 0 or block.program is None:
        return None
    options: dict[str, Any] = {
        "pack": pack,
        "target": trial_target(block) or "",
        "limit": clock.limit,
        "special": special_of(block),
    }
    try:
        with uncompiled():
            computed = emulate(
                _text_of(block), block.constraints, list(given), [_WIDTHS[w] for w in outputs], **options
            )
    except PtxError:
        return None
    return list(computed)


def readings(block: LintedBlock) -> list[tuple[tuple[AsmOperand, ...], list[int], list[int], int]]:
    """The operands with their elements, the widths of arguments and results, and the pack: a few ways at most."""
    snippet = block.snippet
    pack = snippet.pack
    if snippet.convention != "triton" or block.parsed is None or snippet.outputs is None or not snippet.inputs:
        return []
    try:
        check_pack(pack)
    except PtxError:
        return []
    if pack is None or pack == 1:
        return []
    fits = []
    for widths in itertools.islice(itertools.product(*map(_possible, (*snippet.outputs, *snippet.inputs))), 256):
        outputs, inputs = list(widths[: len(snippet.outputs)]), list(widths[len(snippet.outputs) :])
        try:
            fits.append((bind(block.parsed, inputs, outputs, pack), inputs, outputs, pack))
        except PtxError:
            continue
    return fits if len(fits) <= _READINGS else []


def _possible(name: str | None) -> tuple[int, ...]:
    """The possible widths of a dtype: its own, or all if it is not known."""
    if name is None:
        return tuple(_WIDTHS)
    width = width_of(dtype_of(name))
    return (width,) if width in _WIDTHS else ()


# the path ----------------------------------------------------------------------------------------------------


def path(block: LintedBlock, flows: ElementFlow, source: Element, result: Element) -> list[int]:
    """The offsets of the instructions through which a changed argument element reaches a result element.

    Both runs are traced. If they branch differently, the path is unknown and the list is empty.
    """
    before, after = (_traced(block, flows, args) for args in flows.seen[result, source])
    if before is None or after is None or [a.offset for a in before] != [b.offset for b in after]:
        return []
    steps: list[int] = []
    wanted = {f"${flows.register(result, True)}"}
    for one, other in reversed(list(zip(before, after, strict=True))):
        changed = {n for n in wanted & one.writes.keys() if one.writes[n] != other.writes.get(n)}
        if changed:
            steps.append(one.offset)
            wanted = (wanted - changed) | {n for n in one.reads if one.reads[n] != other.reads.get(n)}
    return list(dict.fromkeys(reversed(steps)))


def _traced(block: LintedBlock, flows: ElementFlow, args: Sequence[np.ndarray]) -> tuple[TraceLine, ...] | None:
    outputs = {o.tensor: o.element_width for o in flows.operands if o.output}
    try:
        traced = trace(
            block.text,
            block.constraints,
            list(args),
            [_WIDTHS[outputs[n]] for n in sorted(outputs)],
            pack=flows.pack,
            target=trial_target(block) or "",
            special=special_of(block),
            limit=SECONDS,
        )
    except PtxError:
        return None
    return traced.lines
