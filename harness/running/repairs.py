"""A change of one word of asm that makes all its wrong results right, found by running the asm with it.

Nothing is inferred from the difference of the bits: a change is named only if the emulator computes what is expected
with it, on every input of the set. It is a place to look at, and decides no verdict.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.jobs import Job
from ptxdiff.judging.judge import Judgement, judge
from ptxdiff.model.arguments import format_of
from ptxdiff.model.derive import DerivationError, asm_form
from ptxdiff.model.match import DomainError
from ptxdiff.model.policies import Policies
from ptxdiff.model.reference import ReferenceFault
from ptxdiff.model.variants import AsmVariant, CaseError

_LEAST = 16
"""Fewer different inputs with wrong results than this fit too many changes: a replay, for example, has one."""
_SOME = 64
"""Inputs on which every change is tried first, the wrong ones before others; only what passes there runs on all."""
_MOST = 256
"""Changes that are tried for a variant."""


@dataclass(frozen=True)
class Repair:
    """A part of a text, from `start` up to `end`, and what to write instead; `words` shows both."""

    start: int
    end: int
    new: str
    words: str

    def applied(self, text: str) -> str:
        """The text with the change."""
        return text[: self.start] + self.new + text[self.end :]


class Repairs:
    """The changes for one item. They are searched once for each text, and tried again for each further result."""

    def __init__(self, policy: Policies) -> None:
        self.policy = policy
        self._known: dict[int, Repair | None] = {}

    def cause(self, job: Job, judgement: Judgement) -> str:
        """The change in words, if one makes this result right; "" otherwise."""
        variant, setup = job.variant, job.setup
        if not isinstance(variant, AsmVariant) or variant.convention != "triton" or setup.context != "straight":
            return ""
        if not job.case.elementwise or not job.inputs or judgement.different < _LEAST:
            return ""
        wrong = _wrong(job, judgement)
        if _different(job, wrong) < _LEAST:
            return ""
        pack = 1 if variant.derived_packs else setup.pack
        text = variant.texts[pack].text
        searched = pack not in self._known
        if searched:
            some = _failing_first(wrong)
            self._known[pack] = next(
                (
                    repair
                    for repair in itertools.islice(repairs(text), _MOST)
                    if self._right(job, pack, repair, some) and self._right(job, pack, repair, None)
                ),
                None,
            )
        repair = self._known[pack]
        if repair is None or not (searched or self._right(job, pack, repair, None)):
            return ""
        return f"all results are right with {repair.words}"

    def _right(self, job: Job, pack: int, repair: Repair, chosen: Any) -> bool:
        """Whether all results are right with a change. chosen: numbers of the inputs; None for all."""
        from ptxdiff.backends.snippet import run_once
        from ptxdiff.emulator import PtxError

        variant = job.variant
        assert isinstance(variant, AsmVariant)
        given = variant.texts[pack]
        changed = replace(variant, texts={**variant.texts, pack: replace(given, text=repair.applied(given.text))})
        units = {n: np.asarray(u).reshape(-1) for n, u in job.inputs.items()}
        units = units if chosen is None else {n: u[chosen] for n, u in units.items()}
        trial = replace(job, variant=changed, setup=replace(job.setup, padding=None))
        try:
            outputs = run_once(trial, asm_form(job.case, changed, job.setup.pack), units, {})
            return judge(job.case, self.policy, units, outputs, job.setup.pack).passed
        except (PtxError, CaseError, DerivationError, ReferenceFault, DomainError, ValueError):
            return False


def _wrong(job: Job, judgement: Judgement) -> NDArray[np.bool_]:
    """For each input, whether a result is wrong."""
    count = min(np.asarray(u).size for u in job.inputs.values())
    wrong = np.zeros(count, dtype=bool)
    for name, output in judgement.compared.items():
        per = format_of(job.case.outputs[name]).codes_per_unit if name in job.case.outputs else 0
        if per and output.failing.size == count * per:
            wrong |= output.failing.reshape(count, per).any(axis=1)
    return wrong


def _different(job: Job, wrong: NDArray[np.bool_]) -> int:
    """The number of different inputs with wrong results."""
    bits = [np.ascontiguousarray(np.asarray(u).reshape(-1)[: wrong.size][wrong]) for u in job.inputs.values()]
    return len(set(zip(*(b.view(f"u{b.itemsize}").tolist() for b in bits), strict=True)))


def _failing_first(wrong: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Numbers of some inputs: half of them with wrong results, so far as there are so many."""
    parts = np.flatnonzero(wrong), np.flatnonzero(~wrong)
    return np.concatenate([p[np.linspace(0, p.size - 1, min(_SOME // 2, p.size)).astype(int)] for p in parts])


_ROUNDINGS = ("rn", "rz", "rm", "rp")
_ROUNDING = re.compile(r"\.(rn|rz|rm|rp)(?=\.)")
_FTZ = re.compile(r"\.ftz(?=\.)")
_STATEMENT = re.compile(r"(?P<opcode>[a-z]\w*)(?P<modifiers>(?:\.\w+)+)\s+(?P<operands>[^;{}\[\]]+?)\s*(?:;|$)", re.M)
_TAKES_FTZ = frozenset({"add", "sub", "mul", "fma", "mad", "min", "max", "abs", "neg", "setp", "ex2", "rcp", "sqrt"})
_TYPE = re.compile(r"\.(f32|f16x2|f16)\b")
_INTEGER = re.compile(r"0[xX][0-9a-fA-F]+|\d+")
_ROUND_TO_NEAREST = frozenset({"add", "sub", "mul"})
"""Instructions of floats that round to nearest if they do not say how."""


def repairs(text: str) -> Iterator[Repair]:
    """Changes of one word: rounding, `.ftz`, two sources exchanged, one bit of a constant, or one more or less."""
    for match in _STATEMENT.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        opcode, modifiers = match["opcode"], match["modifiers"]
        start = match.start("modifiers")
        for new in _modified(opcode, modifiers):
            change = f"{opcode}{new} instead of {opcode}{modifiers} on line {line}"
            yield Repair(start, match.end("modifiers"), new, change)
        start, operands = match.start("operands"), match["operands"].split(",")
        names = [operand.strip() for operand in operands]
        for i, j in itertools.combinations(range(1, len(names)), 2):
            if names[i] != names[j]:
                other = [*names]
                other[i], other[j] = names[j], names[i]
                change = f"{names[i]} and {names[j]} exchanged in {opcode}{modifiers} on line {line}"
                yield Repair(start, match.end("operands"), ", ".join(other), change)
        for k in range(1, len(names)):
            if _INTEGER.fullmatch(names[k]):
                for constant in _beside(names[k]):
                    change = f"{constant} instead of {names[k]} in {opcode}{modifiers} on line {line}"
                    yield Repair(
                        start, match.end("operands"), ", ".join([*names[:k], constant, *names[k + 1 :]]), change
                    )


def _modified(opcode: str, modifiers: str) -> Iterator[str]:
    if rounding := _ROUNDING.search(modifiers):
        for other in _ROUNDINGS:
            if other != rounding[1]:
                yield modifiers[: rounding.start()] + f".{other}" + modifiers[rounding.end() :]
    elif opcode in _ROUND_TO_NEAREST and _TYPE.search(modifiers):
        yield from (f".{other}{modifiers}" for other in _ROUNDINGS if other != "rn")
    if ftz := _FTZ.search(modifiers):
        yield modifiers[: ftz.start()] + modifiers[ftz.end() :]
    elif opcode in _TAKES_FTZ and (kind := _TYPE.search(modifiers)):
        yield modifiers[: kind.start()] + ".ftz" + modifiers[kind.start() :]


def _beside(constant: str) -> Iterator[str]:
    """The constant with one bit of 32 changed, the lowest first, and those before and after it."""
    digits = len(constant) - 2 if constant.lower().startswith("0x") else 0
    value = int(constant, 16 if digits else 10)
    others = dict.fromkeys([*(value ^ 1 << k for k in range(32)), value + 1, max(value - 1, 0)])
    yield from (f"0x{other:0{digits}x}" if digits else str(other) for other in others if other != value)
