"""The forms that have a definition, and inputs for each."""

from __future__ import annotations

import numpy as np

from ptxdiff.emulator.isa.forms import FORMS, Bound, Form
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array, ArrayFunction

SCALAR_FORMS = [f for forms in FORMS.values() for f in forms if f.function is not None]


EDGES = {
    1: [0, 1],
    8: [0, 1, 0x7F, 0x80, 0xFF],
    16: [0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x7C00, 0x7C01, 0x3C00, 0x0400, 0x03FF],
    32: [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7F800000, 0x7F800001, 0x3F800000, 0x00800000, 0x007FFFFF],
    64: [0, 1, 2**63 - 1, 2**63, 2**64 - 1, 0x7FF0000000000000, 0x7FF0000000000001, 0x3FF0000000000000],
}


def ends(form: Form) -> list[Bound]:
    """A form's spellings with the fewest and with the most modifiers; the others differ only in constants."""
    spellings = list(form.spellings())
    return [spellings[0]] if len(spellings) == 1 else [spellings[0], spellings[-1]]


def functions(bound: Bound) -> list[ArrayFunction]:
    """A spelling's definition for each of its results, including implicit ones."""
    return [bound.array_function(r) for r in range(len(bound.form.destinations) + len(bound.form.writes))]


def inputs(bound: Bound, edges: int, noise: int) -> list[Array]:
    """Operands, each with the given numbers of edge values and of random values; the same in every run."""
    rng = np.random.default_rng(len(bound.form.pattern))
    columns = []
    for width, _ in bound.source_types:
        random = (
            rng.integers(0, 1 << width, noise, UNSIGNED[width])
            if width < 64
            else rng.integers(0, 2**64, noise, np.uint64)
        )
        columns.append(
            np.concatenate([rng.permutation(np.resize(np.array(EDGES[width], UNSIGNED[width]), edges)), random])
        )
    return columns


def operands_of(form: Form) -> set[tuple[object, ...]]:
    """Properties that the quick sample covers at least once: each opcode, each module with each number of operands."""
    return {("opcode", form.opcode), (form.module, len(ends(form)[-1].source_types))}
