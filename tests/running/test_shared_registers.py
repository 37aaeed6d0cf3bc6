"""Shared registers: a pass is proved for all inputs, or is said to be a trial; a rare difference fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("bitwuzla", reason="the extra `prove` is not installed")
pytest.importorskip("z3", reason="the extra `prove` is not installed")

from ptxdiff import Case, asm
from ptxdiff.backends import create
from ptxdiff.backends.sass import SHARED
from ptxdiff.jobs import Job
from ptxdiff.model.load import LoadedCase
from ptxdiff.model.match import Domain
from ptxdiff.records import Result
from ptxdiff.references.formats import U32
from ptxdiff.running import contexts
from ptxdiff.running.item import Item
from ptxdiff.running.plan import plan
from ptxdiff.running.run import run_item

HARMLESS = "{ .reg .b32 t; or.b32 $0, $1, $2; and.b32 t, $1, 0; or.b32 $0, $0, t; }"
"""The second read of $1 keeps none of its bits."""
# No input set has the number whose product is 0xABCDEF01, and no constant of the asm is it.
RARE = """{ .reg .b32 t; .reg .pred p; mul.lo.u32 t, $2, 0x9E3779B1; setp.eq.u32 p, t, 0xABCDEF01;
    or.b32 $0, $1, $2; @p xor.b32 $0, $0, $1; }"""
INPUT = 0xABCDEF01 * pow(0x9E3779B1, -1, 1 << 32) % (1 << 32)


def either(a: Any, b: Any) -> Any:
    return a | b


def shared(text: str, reference: Any = either, **options: Any) -> tuple[str, list[Result]]:
    case = Case(
        inputs={"a": U32, "b": U32}, outputs={"y": U32}, reference=reference,
        variants={"it": asm(text, "=r,r,r", pack=1)}, **options,
    )  # fmt: skip
    found = run_item(
        Item(LoadedCase(case, "case", "case", Path("case.py"), ""), "it", "sm_90a", "emulator"),
        create("emulator"),
        "quick",
    )
    return found.verdict, [r for r in found.results if r.key.context == "shared"]


def notes(results: list[Result]) -> set[str]:
    return {note for r in results for note in r.notes if "register" in note}


WRONG = "{ .reg .b32 t; mov.b32 t, $1; add.u32 $0, t, $2; xor.b32 $0, $0, $1; }"
"""Wrong only where the output has the register of the first input. LLVM chooses another one for its kernels."""


@pytest.mark.parametrize(("constraints", "right"), [("=r,r,r", False), ("=&r,r,r", True)])
def test_machine_code_alone_does_not_pass_a_missing_early_clobber(constraints: str, right: bool) -> None:
    def mixed(a: Any, b: Any) -> Any:
        return (a + b) % (1 << 32) ^ a

    case = Case(
        inputs={"a": U32, "b": U32},
        outputs={"y": U32},
        reference=mixed,
        variants={"it": asm(WRONG, constraints, pack=1)},
    )
    shared = [w for w in plan(case, case.variants["it"], "sass", "quick", "sm_90a") if w.setup.context == "shared"]
    assert right == (not shared), "the backend of machine code plans these runs as the emulator does"
    for work in shared[:1]:
        units = {"a": np.array([5, 0], np.uint32), "b": np.array([9, 1], np.uint32)}
        setup = replace(work.setup, shape=(2,))
        job = Job(case, "case", Path("case.py"), "it", case.variants["it"], "sm_90a", setup, units)
        outcome = create("sass").run(job)
        (finding,) = outcome.findings
        assert "make the constraint of $0 '=&r'" in finding
        assert SHARED in outcome.notes


def test_a_pass_is_proved_for_all_inputs() -> None:
    verdict, results = shared(HARMLESS)
    assert verdict == "pass"
    assert results
    (note,) = notes(results)
    assert note.startswith(contexts.PROVED)


def test_a_difference_on_one_word_of_2_32_fails_with_that_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def rarely(a: Any, b: Any) -> Any:
        import torch

        return torch.where(b == INPUT, (a | b) ^ a, a | b)

    verdict, results = shared(RARE, rarely)
    assert verdict == "fail"
    for result in results:
        assert result.verdict == "fail"
        (finding,) = result.findings
        assert "in the register of $" in finding
        assert " for a = 0x" in finding
    monkeypatch.setattr(contexts, "available", lambda: False)
    verdict, results = shared(RARE, rarely)
    assert verdict == "pass"  # the trial alone does not find it, and says that it is one
    (note,) = notes(results)
    assert note.startswith(contexts.TRIAL + "no solver is installed")


@pytest.mark.slow
def test_an_input_outside_the_domain_fails_nothing() -> None:
    def rarely(a: Any, b: Any) -> Any:
        return a | b

    without = Domain("b is another word", lambda v: v["b"] != INPUT)
    verdict, results = shared(RARE, rarely, where=without)
    assert verdict == "pass"
    assert {r.verdict for r in results} == {"pass"}


def test_what_has_no_term_stays_a_trial() -> None:
    text = HARMLESS.replace("or.b32 $0, $1, $2;", "or.b32 $0, $1, $2; mov.u32 t, %laneid;")
    verdict, results = shared(text)
    assert verdict == "pass"
    (note,) = notes(results)
    assert note.startswith(contexts.TRIAL + "a proof was not found: not modelled")


def test_a_solver_that_gives_no_answer_leaves_a_trial(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ptxdiff.proving import solving

    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(solving, "ask", lambda *_: solving.SolverAnswer("unknown", 0.1, "bitwuzla"))
    text = RARE.replace("@p xor.b32", "@p or.b32")
    verdict, results = shared(text)
    assert verdict == "pass"
    (note,) = notes(results)
    assert note.startswith(contexts.TRIAL + "a proof was not found: time")
