"""Survivors: which of them machine code settles, and which need a search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ptxdiff.backends.emulator import EmulatorBackend
from ptxdiff.jobs import Outcome
from ptxdiff.model.load import load
from ptxdiff.model.variants import AsmText
from ptxdiff.mutation import source, trial
from ptxdiff.mutation.campaign import Budget, mutate
from ptxdiff.mutation.settle import Candidate, Search, settle_asm, settle_reference, settled
from ptxdiff.mutation.trial import Subject

FEW = Search(16, 1 << 16, 60.0)
CASE = '''
"""A sum of a product, and a maximum with flushes."""

import torch

from ptxdiff import Case, asm
from ptxdiff.references.formats import F32, U8, U32


def largest(x, y, *, ftz=""):
    """The larger one; a negative subnormal becomes -0 where results are flushed."""
    found = torch.maximum(x, y)
    return torch.where((found & 0x7F800000) == 0, found & 0x80000000, found) if ftz else found


case = Case(
    inputs={"x": U32, "y": U32}, outputs={"z": U32}, reference=largest,
    variants={"asm": asm("max.u32 $0, $1, $2;")},
    source="made for this test",
)
flushed = Case(
    inputs={"x": F32, "y": F32}, outputs={"z": F32}, reference=largest, ftz="required",
    variants={"asm": asm("max.ftz.f32 $0, $1, $2;")}, source="made for this test",
)
fused = Case(
    inputs={"x": F32, "y": F32}, outputs={"z": F32}, reference=largest,
    variants={"asm": asm("{ .reg .f32 t; mul.f32 t, $1, $1; add.rn.f32 $0, t, $2; }", "=f,f,f", pack=1)},
    source="made for this test",
)
bytes_ = Case(
    inputs={"x": U8}, outputs={"z": U8}, reference=lambda x: x,
    variants={
        "two": asm("mov.b32 $0, $1;", "=&r,r", pack=2), "four": asm("mov.b32 $0, $1;", "=&r,r", pack=4),
    },
    source="made for this test",
)
'''


@pytest.fixture(autouse=True)
def without_solvers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only machine code and the search settle survivors, as where the extra `prove` is not installed."""
    monkeypatch.setattr("ptxdiff.proving.solving.available", lambda: False)


@pytest.fixture
def subjects(tmp_path: Path) -> dict[str, Subject]:
    path = tmp_path / "cases" / "settled.py"
    path.parent.mkdir()
    path.write_text(CASE)
    found = {loaded.name.rpartition(".")[2]: Subject(loaded, "sm_90a", 60.0) for loaded in load(path)}
    return {"plain" if name == "settled" else name: subject for name, subject in found.items()}


def settled_asm(subject: Subject, *texts: str, search: Search = FEW):
    given = subject.case.variants["asm"]
    mutants = [replace(given, texts={1: AsmText(text)}) for text in texts]
    return settle_asm(subject, "asm", given, mutants, search)


def test_each_of_several_survivors_gets_its_own_settlement(subjects):
    texts = ("min.u32 $0, $1, $2;", "max.u32 $0, $2, $1;", "max.s32 $0, $1, $2;")
    wrong, same, signed = settled_asm(subjects["plain"], *texts)
    assert same.fate == "equivalent"
    assert "same machine code" in same.words
    assert [wrong.fate, signed.fate] == ["missed", "missed"]
    assert int(dict(signed.edge)["x"], 16) >> 31 != int(dict(signed.edge)["y"], 16) >> 31


def test_other_machine_code_settles_nothing(subjects):
    (found,) = settled_asm(subjects["plain"], "mul.lo.u32 $0, $1, $2;")
    assert found.fate == "missed"


def test_code_that_does_not_assemble_is_not_equal_machine_code(subjects, monkeypatch):
    monkeypatch.setattr(trial, "assemble", lambda compilation: (_ for _ in ()).throw(ValueError("planted")))
    (found,) = settled_asm(subjects["plain"], "max.u32 $0, $2, $1;")
    assert found.fate == "sampled"
    (found,) = settled_asm(subjects["plain"], "min.u32 $0, $1, $2;")
    assert found.fate == "missed"


def test_fusible_code_is_not_equal_to_code_that_may_not_be_fused(subjects):
    (found,) = settled_asm(subjects["fused"], "{ .reg .f32 t; mul.f32 t, $1, $1; add.f32 $0, t, $2; }")
    assert found.fate not in ("equivalent", "sampled")


def test_undefined_bits_count_as_missed_though_the_outputs_are_equal(subjects, monkeypatch):
    subject, plain = subjects["plain"], EmulatorBackend.run

    def run(self, job):
        outcome = plain(self, job)
        planted = "$2, $1" in job.variant.texts[1].text
        return replace(outcome, findings=("stores undefined bits",)) if planted else outcome

    monkeypatch.setattr(EmulatorBackend, "run", run)
    monkeypatch.setattr("ptxdiff.mutation.settle.machine_code", lambda subject, name: None)
    (found,) = settled_asm(subject, "max.u32 $0, $2, $1;")
    assert (found.fate, found.words) == ("missed", "stores undefined bits")


def test_a_reference_is_also_compared_with_flushes(subjects):
    subject = subjects["flushed"]
    reference = subject.case.reference
    mutant = next(m for m in source.mutants(reference) if m.operator == "operand dropped" and "2147483648" in m.change)
    (found,) = settle_reference(subject, ["asm"], reference, [mutant], FEW)
    assert found.fate not in ("equivalent", "sampled")
    (found,) = settle_reference(subjects["plain"], ["asm"], subjects["plain"].case.reference, [mutant], FEW)
    assert found.fate == "sampled"  # no variant of this case flushes, so the change never shows


def test_inputs_and_right_outputs_are_computed_once_for_all(subjects):
    subject, calls = subjects["plain"], []

    def right(inputs):
        calls.append(len(inputs["x"]))
        return Outcome("ran", outputs={"z": inputs["x"]})

    same = Candidate(lambda inputs: Outcome("ran", outputs={"z": inputs["x"]}))
    found = settled(subject, FEW, Candidate(right), [same, same, same])
    assert calls == [1 << 16]
    assert [f.fate for f in found] == ["sampled"] * 3


def test_a_search_ended_by_time_claims_only_what_it_tried(subjects):
    search = Search(16, 1 << 20, 0.0)
    same = Candidate(lambda inputs: Outcome("ran", outputs={"z": inputs["x"]}))
    (found,) = settled(subjects["plain"], search, same, [same])
    assert (found.fate, found.words) == ("sampled", f"the same bits on {1 << 18} inputs that were tried")


def test_a_mutant_whose_run_fails_in_the_search_is_undecided(subjects):
    dead = Candidate(lambda inputs: Outcome("error", "planted"))
    same = Candidate(lambda inputs: Outcome("ran", outputs={"z": inputs["x"]}))
    first, second = settled(subjects["plain"], FEW, same, [dead, same])
    assert (first.fate, first.words, second.fate) == ("undecided", "error: planted", "sampled")


def test_machine_code_is_compared_without_debug_information(subjects):
    subject = subjects["plain"]
    codes = []
    for text in ("max.u32 $0, $1, $2;", "\n\nmax.u32 $0, $1, $2; // as it was", "min.u32 $0, $1, $2;"):
        subject.put("asm", replace(subject.case.variants["asm"], texts={1: AsmText(text)}))
        codes.append(trial.machine_code(subject, "asm"))
    assert codes[0] is not None
    assert codes[0] == codes[1] != codes[2]
    assert any(name.startswith(".text") for name in codes[0][0])


def test_a_seed_chooses_which_mutants_are_left_in(subjects):
    def changes(seed: int) -> list[str]:
        budget = Budget(most=4, seed=seed, search=FEW)
        (found,) = mutate(subjects["fused"].loaded, ["asm"], "sm_90a", budget, ["asm"])
        return [*found.killed, *(s.change for s in found.survivors), found.words]

    assert changes(1) == changes(1)


def test_outputs_may_have_another_shape_and_not_another_number_of_codes(subjects):
    """The judge reads a reference's codes in order, in any shape, and reports it if there are too few."""
    shapes = {"other": lambda z: z.reshape(-1, 2), "fewer": lambda z: z[:-1], "more": lambda z: np.repeat(z, 2)}
    right = Candidate(lambda inputs: Outcome("ran", outputs={"z": inputs["x"]}))
    counts = []

    def judged(inputs):
        counts.append(len(inputs["x"]))
        return "the judge was asked"

    survivors = [
        Candidate(lambda inputs, shape=shape: Outcome("ran", outputs={"z": shape(inputs["x"])}), judged)
        for shape in shapes.values()
    ]
    found = settled(subjects["plain"], FEW, right, survivors)
    assert [f.fate for f in found] == ["sampled", "undecided", "undecided"]
    assert counts == [1 << 16] * 2


WORD = (
    "{{ .reg .pred p; .reg .b32 t; and.b32 t, $1, {}; setp.eq.u32 p, t, {}; mov.b32 $0, $1; @p xor.b32 $0, $0, {}; }}"
)
UNREAD = "{ .reg .b32 t; not.b32 t, $1; not.b32 $0, t; }"


def settled_as(subject, name, text, search=FEW):
    given = subject.case.variants[name]
    (pack,) = given.texts
    survivor = replace(given, texts={pack: AsmText(text, "=&r,r")})
    (found,) = settle_asm(subject, name, given, [survivor], search)
    return found


@pytest.fixture
def in_bytes(subjects, monkeypatch):
    monkeypatch.setattr("ptxdiff.mutation.settle.machine_code", lambda *given: None)
    return subjects["bytes_"]


@pytest.mark.parametrize(("name", "mask"), [("two", "0xffff"), ("four", "0xffffffff")])
@pytest.mark.parametrize("word", ["0", "0x37c5"])
def test_a_survivor_that_is_wrong_for_one_word_is_missed(name, mask, word, in_bytes):
    """On all 256 elements it has the right bits, if these stand in other packs."""
    found = settled_as(in_bytes, name, WORD.format(mask, word, "0x100"))
    assert found.fate == "missed"
    assert "in a pack of x = 0x" in found.words
    assert bool(found.edge) == (word == "0")  # a hard case is an element, and may fill a pack


BUILT = "{ .reg .b32 t; mov.b32 t, 0x12340000; or.b32 t, t, 0x9abc; xor.b32 $0, $1, t; xor.b32 $0, $0, t; }"
"""Its numbers, and the one that it builds, change nothing."""


@pytest.mark.parametrize("other", [BUILT, WORD.format("0xffffffff", "0x51", "0"), UNREAD])
def test_words_are_made_of_the_numbers_of_the_original_and_of_each_survivor(other, in_bytes):
    """The original is wrong for one word, so survivors that are not have other bits there, as the policy demands."""
    subject = in_bytes
    texts = {4: AsmText(WORD.format("0xffffffff", "0x37c51234", "0x100"), "=&r,r")}
    given = replace(subject.case.variants["four"], texts=texts)
    survivors = [replace(given, texts={4: AsmText(text, "=&r,r")}) for text in (UNREAD, other)]
    for found in settle_asm(subject, "four", given, survivors, FEW):
        assert found.fate == "allowed"
        assert found.words.startswith("other bits on ")


def test_words_that_a_survivor_builds_are_tried(in_bytes):
    text = "{ .reg .pred p; .reg .b32 t; mov.b32 t, 0x12340000; or.b32 t, t, 0x9abc; setp.eq.u32 p, $1, t; "
    found = settled_as(in_bytes, "four", text + "mov.b32 $0, $1; @p xor.b32 $0, $0, 0x100; }")
    assert found.fate == "missed"
    assert "in a pack of x = 0xbc, 0x9a, 0x34, 0x12" in found.words


def test_a_sharing_is_settled_on_inputs_that_run_alone(subjects, monkeypatch):
    """An early clobber is dropped, and the emulator does not run some inputs: these were not tried."""
    subject, plain = subjects["plain"], EmulatorBackend.run
    text = "{ .reg .b32 t; mov.b32 t, $1; mov.b32 $0, $2; max.u32 $0, $0, t; }"
    monkeypatch.setattr("ptxdiff.proving.solving.available", lambda: False)
    monkeypatch.setattr("ptxdiff.mutation.settle.machine_code", lambda subject, name: None)
    monkeypatch.setattr("ptxdiff.mutation.settle.may_share", lambda case, variant, pack: True)
    given = replace(subject.case.variants["asm"], texts={1: AsmText(text, "=&r,r,r")}, derived_packs=())
    mutant = replace(given, texts={1: AsmText(text, "=r,r,r")})
    calls = []

    def run(self, job):
        calls.append(job.setup.context)
        return Outcome("error", "planted") if fails(len(calls)) else plain(self, job)

    monkeypatch.setattr(EmulatorBackend, "run", run)
    several = Search(16, 1 << 19, 60.0)
    fails = lambda number: number == 1  # noqa: E731
    (found,) = settle_asm(subject, "asm", given, [mutant], several)
    assert (found.fate, set(calls)) == ("sampled", {"shared"})
    assert found.words.startswith(f"the same bits on {1 << 18} inputs that were tried, in every assignment")
    assert found.words.endswith(f"; not on {1 << 18} others (error: planted)")
    fails = lambda number: True  # noqa: E731
    (found,) = settle_asm(subject, "asm", given, [mutant], several)
    assert (found.fate, found.words) == ("undecided", "error: planted")


def test_equivalent_means_the_same_bits_on_all_words(in_bytes):
    found = settled_as(in_bytes, "two", UNREAD)
    assert (found.fate, found.words) == ("equivalent", f"the same bits on all {2 << 16} inputs in packs of 2")
    found = settled_as(in_bytes, "four", UNREAD)
    assert found.fate == "sampled"
    assert "in packs of 4 that were tried" in found.words


def test_other_bits_that_a_policy_allows_in_some_words_are_no_miss(in_bytes):
    """Only the upper half of the register, which holds no element of a pack of two, differs."""
    found = settled_as(in_bytes, "two", WORD.format("0xffff", "0x37c5", "0x10000"))
    assert found.fate == "equivalent"


def test_a_survivor_is_settled_by_a_proof(subjects: dict[str, Subject], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two words have too many inputs to try; one mutant has all bits of the original, one differs on a single pair."""
    pytest.importorskip("bitwuzla", reason="the extra `prove` is not installed")
    pytest.importorskip("z3", reason="the extra `prove` is not installed")
    monkeypatch.setattr("ptxdiff.proving.solving.available", lambda: True)
    monkeypatch.setattr("ptxdiff.mutation.settle.machine_code", lambda subject, name: None)
    subject = subjects["plain"]
    given = replace(
        subject.case.variants["asm"], texts={1: AsmText("max.u32 $0, $1, $2;", "=&r,r,r")}, derived_packs=()
    )
    same = "{ .reg .pred p; setp.gt.u32 p, $1, $2; selp.b32 $0, $1, $2, p; }"
    other = """{ .reg .pred p; .reg .b32 t; max.u32 t, $1, $2; setp.eq.u32 p, $1, 0x2545F491;
        setp.eq.and.u32 p, $2, 0x1B873593, p; @p xor.b32 t, t, 1; mov.b32 $0, t; }"""
    mutants = [replace(given, texts={1: AsmText(text, "=&r,r,r")}) for text in (same, other)]
    right, wrong = settle_asm(subject, "asm", given, mutants, FEW)
    assert right.fate == "equivalent"
    assert right.words.startswith("the same bits for all inputs, proved by")
    assert wrong.fate == "missed"
    assert dict(wrong.edge) == {"x": "0x2545f491", "y": "0x1b873593"}


def test_a_dropped_early_clobber_is_settled_by_a_proof(
    subjects: dict[str, Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("bitwuzla", reason="the extra `prove` is not installed")
    pytest.importorskip("z3", reason="the extra `prove` is not installed")
    monkeypatch.setattr("ptxdiff.proving.solving.available", lambda: True)
    subject = subjects["plain"]
    harmless = "{ .reg .b32 t; max.u32 $0, $1, $2; and.b32 t, $1, 0; or.b32 $0, $0, t; }"
    rare = """{ .reg .b32 t; .reg .pred p; mul.lo.u32 t, $2, 0x9E3779B1; setp.eq.u32 p, t, 0xABCDEF01;
        max.u32 $0, $1, $2; @p max.u32 $0, $2, 7; @p max.u32 $0, $0, $1;
        @p sub.u32 $0, $0, $1; @p add.u32 $0, $0, $1; }"""
    for text, fate in ((harmless, "equivalent"), (rare, "missed")):
        given = replace(subject.case.variants["asm"], texts={1: AsmText(text, "=&r,r,r")}, derived_packs=())
        dropped = replace(given, texts={1: AsmText(text, "=r,r,r")})
        (found,) = settle_asm(subject, "asm", given, [dropped], Search(4, 1 << 8, 20.0))
        assert found.fate == fate, found
        assert "proved" in found.words or "in the register of $" in found.words


@pytest.mark.slow
def test_other_bits_that_the_policies_allow_are_proved_so(
    subjects: dict[str, Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("bitwuzla", reason="the extra `prove` is not installed")
    pytest.importorskip("z3", reason="the extra `prove` is not installed")
    from ptxdiff.model.match import Domain, exact

    monkeypatch.setattr("ptxdiff.proving.solving.available", lambda: True)
    monkeypatch.setattr("ptxdiff.mutation.settle.machine_code", lambda subject, name: None)
    subject = subjects["plain"]
    unchecked = exact(on=Domain("x is not 7", lambda v: v["x"] != 7))
    given = replace(
        subject.case.variants["asm"], texts={1: AsmText("max.u32 $0, $1, $2;", "=&r,r,r")}, derived_packs=(),
        match=unchecked,
    )  # fmt: skip
    other = """{ .reg .pred p; .reg .b32 t; max.u32 t, $1, $2; setp.eq.u32 p, $1, 7; @p xor.b32 t, t, 1; %s
        mov.b32 $0, t; }"""
    rare = "mul.lo.u32 $0, $2, 0x9E3779B1; setp.eq.u32 p, $0, 0xABCDEF01; @p xor.b32 t, t, 2;"
    mutants = [replace(given, texts={1: AsmText(other % text, "=&r,r,r")}) for text in ("", rare)]
    allowed, wrong = settle_asm(subject, "asm", given, mutants, FEW)
    assert (allowed.fate, wrong.fate) == ("allowed", "missed"), (allowed, wrong)
    assert allowed.words.startswith("other bits, within the policies for all inputs, proved")
