"""Cached answers of references: they are found for the same reference and inputs, and for nothing else."""

import numpy as np
import pytest

from ptxdiff import Case, asm
from ptxdiff.judging import answers as keeping
from ptxdiff.judging.answers import Answers, references_digested_once
from ptxdiff.judging.judge import judge
from ptxdiff.model.policies import policies
from ptxdiff.model.reference import ReferenceFault
from ptxdiff.references.formats import E2M1X4, U8

STEP = 1


def moved(x):
    return x


def stepped(x):
    return (moved(x) + STEP) & 255


def reference(x):
    return stepped(x)


def another(x):
    return (x + 2) & 255


def case_of(function=reference):
    """A new case, for which no answers are kept."""
    return Case(
        inputs={"x": U8},
        outputs={"y": U8},
        reference=function,
        variants={n: asm("add.u32 $0, $1, 1;", constraints="=r,r") for n in ("one", "two")},
    )


X = np.arange(8, dtype=np.int64)


@pytest.fixture
def made(monkeypatch):
    """Counts the evaluations of a reference."""
    apply, found = keeping.apply_reference, []

    def counted(*given):
        found.append(given)
        return apply(*given)

    monkeypatch.setattr(keeping, "apply_reference", counted)
    return found


def judged(case, outputs, variant="one"):
    units = {"x": X.astype(np.uint8)}
    return judge(case, policies(case, case.variants[variant]), units, {"y": np.array(outputs, np.uint8)})


def test_a_reference_is_evaluated_once_for_all_variants_and_outputs(made):
    case = case_of()
    assert judged(case, X + 1).passed
    assert judged(case, X + 1, "two").passed
    wrong = judged(case, X + 2, "two")
    assert (wrong.passed, wrong.different) == (False, 8)
    assert len(made) == 1


@pytest.mark.parametrize("function", [reference, stepped, moved])
def test_a_reference_changed_in_place_is_evaluated_again(function, monkeypatch):
    """Mistakes are planted in this way: with the old answers, a wrong variant would pass."""
    case = case_of()
    assert judged(case, X + 1).passed
    monkeypatch.setattr(function, "__code__", another.__code__)
    assert not judged(case, X + 1).passed


def test_code_on_the_lines_of_another_is_distinguished(monkeypatch):
    """A planted mistake has the file and lines of the code that it replaces, so that their text does not distinguish
    it."""
    case, code = case_of(), stepped.__code__
    assert judged(case, X + 1).passed
    constants = tuple(3 if c == 255 else c for c in code.co_consts)
    monkeypatch.setattr(stepped, "__code__", code.replace(co_consts=constants))
    assert not judged(case, X + 1).passed


def test_a_reference_changed_in_place_between_items_is_evaluated_again(monkeypatch):
    """Within one item a reference is digested once."""
    real, digested = keeping.digest_with_code, []

    def noted(value, **more):
        digested.append(value)
        return real(value, **more)

    monkeypatch.setattr(keeping, "digest_with_code", noted)
    case = case_of()
    with references_digested_once():
        assert judged(case, X + 1).passed
        assert judged(case, X + 1, "two").passed
        assert digested == [reference]
    monkeypatch.setattr(reference, "__code__", another.__code__)
    with references_digested_once():
        assert not judged(case, X + 1).passed
        assert judged(case, X + 2).passed
    assert digested == [reference] * 2


def test_two_references_in_one_item_are_distinguished():
    kept, case = Answers(), case_of()
    with references_digested_once():
        assert np.array_equal(kept(case, reference, {"x": X})["y"], X + 1)
        assert np.array_equal(kept(case, another, {"x": X})["y"], X + 2)
        for step in (3, 4):  # a lambda may get the id of a deleted one
            assert np.array_equal(kept(case, lambda x, step=step: x + step, {"x": X})["y"], X + step)


def test_a_value_that_a_reference_uses_is_part_of_the_key(monkeypatch):
    case = case_of()
    assert judged(case, X + 1).passed
    monkeypatch.setitem(globals(), "STEP", 3)
    assert not judged(case, X + 1).passed
    assert judged(case, X + 3).passed


@pytest.mark.parametrize(
    "changed",
    [X[::-1], X.reshape(2, 4), X[:7], np.append(X[:7], 9)],
    ids=["order", "shape", "fewer", "one other"],
)
def test_other_inputs_are_evaluated(made, changed):
    kept, case = Answers(), case_of()
    kept(case, reference, {"x": X})
    found = kept(case, reference, {"x": changed})["y"]
    assert len(made) == 2
    assert np.array_equal(found, np.asarray(changed) + 1)


def test_other_references_cases_and_flushes_are_evaluated(made):
    kept, case = Answers(), case_of()
    flushes = case_of(lambda x, *, ftz="": (x + bool(ftz)) & 255)
    kept(case, reference, {"x": X})
    assert np.array_equal(kept(case, another, {"x": X})["y"], X + 2)
    kept(case_of(), reference, {"x": X})
    assert np.array_equal(kept(flushes, flushes.reference, {"x": X})["y"], X)
    assert np.array_equal(kept(flushes, flushes.reference, {"x": X}, True)["y"], X + 1)
    assert len(made) == 5


def test_inputs_of_other_names_are_evaluated(made):
    """The order of inputs decides which argument a column is."""
    kept = Answers()
    case = Case(
        inputs={"x": U8, "y": U8}, outputs={"z": U8}, reference=lambda x, y: (x - y) & 255,
        variants={"v": asm("sub.u32 $0, $1, $2;", constraints="=r,r,r")},
    )  # fmt: skip
    one = kept(case, case.reference, {"x": X, "y": X[::-1].copy()})["z"]
    two = kept(case, case.reference, {"y": X[::-1].copy(), "x": X})["z"]
    assert len(made) == 2
    assert np.array_equal(one, (X - X[::-1]) & 255)
    assert np.array_equal(two, (X[::-1] - X) & 255)


def test_cached_answers_cannot_be_changed(made):
    kept, case = Answers(), case_of()
    for _ in range(2):
        found = kept(case, reference, {"x": X})
        with pytest.raises(ValueError, match="read-only"):
            found["y"][0] = 77
        found["y"] = X
    assert len(made) == 1


def test_the_oldest_answers_are_removed(made):
    kept, case = Answers(most=20), case_of()
    for first in (0, 8, 16, 0):
        kept(case, reference, {"x": X + first})
    assert len(made) == 4
    kept(case, reference, {"x": X})
    assert len(made) == 4


def test_answers_for_a_large_set_are_not_cached(made, monkeypatch):
    monkeypatch.setattr(keeping, "ASKED_AGAIN", 7)
    kept, case = Answers(), case_of()
    kept(case, reference, {"x": X})
    kept(case, reference, {"x": X})
    assert len(made) == 2


def test_a_reference_of_many_elements_is_evaluated_in_pieces(made, monkeypatch):
    """Of two inputs with one code and four codes an element; the answers are those of all at once."""
    monkeypatch.setattr(keeping, "ASKED_AGAIN", 7)
    case = Case(
        inputs={"x": U8, "z": E2M1X4}, outputs={"y": E2M1X4, "w": U8},
        variants={"one": asm("mov.b16 $0, $3; mov.b32 $1, $2;", constraints="=h,=r,r,h")},
        reference=lambda x, z: ((z.reshape(-1, 4) ^ (x & 7)[:, None]).reshape(-1), x ^ z[::4]),
    )  # fmt: skip
    codes = {"x": np.arange(8, dtype=np.int64), "z": np.arange(32, dtype=np.int64) % 16}
    whole = Answers()(case, case.reference, codes)
    monkeypatch.setattr(keeping, "PIECE", 3)
    pieces = Answers()(case, case.reference, codes)
    assert len(made) == 1 + 3
    for name in case.outputs:
        np.testing.assert_array_equal(pieces[name], whole[name])


def test_the_error_of_a_reference_is_that_of_all_elements(monkeypatch):
    """The results are no codes at both ends of the inputs, and the message names both."""
    monkeypatch.setattr(keeping, "ASKED_AGAIN", 7)
    monkeypatch.setattr(keeping, "PIECE", 3)
    case = case_of(lambda x: 300 * (x - 2))
    with pytest.raises(ReferenceFault, match="-0x258 to 0x5dc"):
        Answers()(case, case.reference, {"x": X})
