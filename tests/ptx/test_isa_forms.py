"""What every instruction form must satisfy, whatever it computes."""

from __future__ import annotations

import numpy as np
import pytest

from harness.ptx import isa
from harness.ptx.isa.forms import FORMS, Bound, Form, find
from harness.ptx.numeric.vectorise import UNSIGNED

isa.load()
SCALAR_FORMS = [f for forms in FORMS.values() for f in forms if f.function is not None]
EDGES = {
    1: [0, 1],
    8: [0, 1, 0x7F, 0x80, 0xFF],
    16: [0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x7C00, 0x7C01, 0x3C00, 0x0400, 0x03FF],
    32: [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7F800000, 0x7F800001, 0x3F800000, 0x00800000, 0x007FFFFF],
    64: [0, 1, 2**63 - 1, 2**63, 2**64 - 1, 0x7FF0000000000000, 0x7FF0000000000001, 0x3FF0000000000000],
}


def ends(form: Form) -> list[Bound]:
    """The plainest spelling of a form and the fullest; the others differ in constants only."""
    spellings = list(form.spellings())
    return [spellings[0]] if len(spellings) == 1 else [spellings[0], spellings[-1]]


@pytest.mark.parametrize("form", SCALAR_FORMS, ids=lambda f: f.pattern)
def test_compiled_and_interpreted_definition_agree(form: Form) -> None:
    rng = np.random.default_rng(len(form.pattern))
    for bound in ends(form):
        columns = []
        for width, _ in bound.source_types:
            noise = (
                rng.integers(0, 1 << width, 48, UNSIGNED[width])
                if width < 64
                else rng.integers(0, 2**64, 48, np.uint64)
            )
            edges = np.array(EDGES[width], UNSIGNED[width])
            columns.append(np.concatenate([rng.permutation(np.resize(edges, 48)), noise]))
        lanes = len(columns[0]) if columns else 1
        for result in range(len(form.destinations) + len(form.writes)):
            function = bound.array_function(result)
            fast = function.compiled(lanes, *columns)
            slow = [function.one(*(int(c[i]) for c in columns)) for i in range(lanes)]
            wrong = [i for i in range(lanes) if int(fast[i]) != slow[i]]
            shown = [[hex(int(c[i])) for c in columns] for i in wrong[:3]]
            assert not wrong, f"{bound.spelling} result {result}: numba and Python differ on {shown}"


@pytest.mark.parametrize("form", SCALAR_FORMS, ids=lambda f: f.pattern)
def test_form_is_described_and_found(form: Form) -> None:
    assert form.documentation, "a definition's docstring gives its rule"
    assert form.section[:1].isdigit()
    for bound in form.spellings():
        modifiers = tuple(c for c in bound.chosen if c)
        assert any(b.form is form for b in find(form.opcode, modifiers)), bound.spelling
