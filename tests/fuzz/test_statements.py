"""Tests of the words of random programs, statement by statement: they are the emulator's, or there are none."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ptxdiff.fuzz.assemblers import assembler
from ptxdiff.fuzz.execution import emulated, expected, inputs_of
from ptxdiff.fuzz.generate import FAMILIES, program
from ptxdiff.fuzz.judge import BatchJudge, FuzzPlan, prepared
from ptxdiff.fuzz.program import RandomProgram, Statement, Variable
from ptxdiff.fuzz.statements import NotPlain, StatementEmulator, statement_emulator

pytest.importorskip("llvmlite")
TARGET = "sm_90a"
COPYING = str(Path(__file__).with_name("flipping_ptxas.sh"))
"""At -O0 its machine code is the PTX."""
INPUT, WRITTEN, OTHER, TRUE = Variable("r", 0), Variable("r", 10), Variable("r", 11), Variable("p", 12)
ADD = Statement("add.u32 {w0}, {r0}, 1;", (WRITTEN,), (INPUT,))
SKIPPED = Statement(
    "@{r0} bra {l0};\n{body}\n{l0}:\nmov.b32 {w0}, 1;", (WRITTEN,), (Variable("p", 12),),
    (replace(ADD, writes=(OTHER,)),), "0",
)  # fmt: skip
CHANGED = Statement(
    "@{r0} mov.b32 {w0}, 1;\nsetp.lt.u32 {w1}, {r1}, 9;\n@!{r0} mov.b32 {w0}, 2;", (WRITTEN, Variable("p", 13)),
    (Variable("p", 12), INPUT),
)  # fmt: skip
TEST = Statement("setp.lt.u32 {w0}, {r0}, 100;", (TRUE,), (INPUT,))
WITH_BODY = Statement(
    "@{r0} mov.b32 {w0}, 1;\n{body}\n@!{r0} mov.b32 {w0}, 2;", (WRITTEN,), (TRUE,),
    (replace(TEST, text="setp.lt.u32 {w0}, {r0}, 9;"),), "0",
)  # fmt: skip


def _both(made, seed="s", target=TARGET):
    inputs = inputs_of(seed)
    return statement_emulator(target).outputs(made, inputs), expected(made, inputs, target)


def _program(*statements, output=WRITTEN):
    return RandomProgram(statements, (output, "0", "0", "0"))


@pytest.mark.sample(3)
@pytest.mark.parametrize("family", FAMILIES)
def test_words_are_those_of_the_emulator(family):
    for number in range(2):
        made = program(f"{family}/{number}", 90, {family: 1.0, "predicates": 0.3})
        given, right = _both(made, f"{family}/{number}")
        np.testing.assert_array_equal(given, right)


def test_lanes_of_loops_and_branches_come_together_again():
    several = [program(f"b/{k}", 90, {"bits": 1.0}) for k in range(30)]
    with_bodies = [p for p in several if any(s.body for s in p.statements)]
    assert len(with_bodies) > 5
    for made in with_bodies:
        given, right = _both(made)
        np.testing.assert_array_equal(given, right)


@pytest.mark.parametrize(
    "statement",
    [
        "add.u32 {w0}, {r0}, 4294967295;",
        "min.s32 {w0}, {r0}, -1;",
        "@{r1} add.u32 {w0}, {r0}, 5;\n@!{r1} sub.u32 {w0}, {r0}, 5;",
        "st.shared.u32 [%own], {r0};\nld.shared.s8 {w0}, [%own+3];",
        "selp.b32 {w0}, {r0}, 7, {r1};",
    ],
)
def test_constants_guards_and_shared_memory(statement):
    given, right = _both(_program(TEST, Statement(statement, (WRITTEN,), (INPUT, TRUE))))
    np.testing.assert_array_equal(given, right)
    assert right[:, 0].any()


@pytest.mark.parametrize(
    "statements",
    [
        [replace(ADD, reads=(OTHER,))],
        [TEST, Statement("@{r1} add.u32 {w0}, {r0}, 5;", (WRITTEN,), (INPUT, TRUE))],
        [Statement("@!{r1} bra {l0};\nadd.u32 {w0}, {r0}, 5;\n{l0}:", (WRITTEN,), (INPUT, TRUE))],
        [Statement("addc.u32 {w0}, {r0}, 5;", (WRITTEN,), (INPUT,))],
        [Statement("ld.shared.u32 {w0}, [%own];", (WRITTEN,))],
        [TEST, SKIPPED, replace(ADD, reads=(OTHER,), writes=(Variable("r", 13),))],
        [TEST, replace(CHANGED, writes=(WRITTEN, TRUE))],
        [TEST, replace(CHANGED, writes=(WRITTEN, WRITTEN), text=CHANGED.text.replace("setp.lt.u32", "add.u32"))],
        [TEST, WITH_BODY],
        [TEST, replace(SKIPPED, text="@{r0} bra {l0};\n{body}\n{l0}:\nmov.b32 {w0}, {result};", result=OTHER)],
        [Statement("bogus.u32 {w0}, {r0};", (WRITTEN,), (INPUT,))],
    ],
    ids=["never written", "half written", "skipped", "carry", "shared memory", "in a branch", "guard changed",
         "written twice", "guard changed in the body", "result of a skipped body", "no PTX"],
)  # fmt: skip
def test_what_may_be_undefined_is_for_the_emulator(statements):
    with pytest.raises(NotPlain):
        statement_emulator(TARGET).outputs(_program(*statements), inputs_of("s"))


def test_shared_memory_of_another_program_is_not_read():
    store = Statement("st.shared.u32 [%own], {r0};", (), (INPUT,))
    load = Statement("ld.shared.u32 {w0}, [%own];", (WRITTEN,))
    statement_emulator(TARGET).outputs(_program(store, load), inputs_of("s"))
    with pytest.raises(NotPlain):
        statement_emulator(TARGET).outputs(_program(load), inputs_of("s"))


def test_an_output_that_nothing_writes_is_for_the_emulator():
    with pytest.raises(NotPlain):
        statement_emulator(TARGET).outputs(_program(ADD, output=OTHER), inputs_of("s"))


def test_other_words_than_those_of_the_emulator_are_an_error(monkeypatch):
    plan = FuzzPlan("a", TARGET, 90, (), {"bits": 1.0}, batch=1)
    assert len(prepared(plan, 0).expected) == 1
    honest = StatementEmulator.outputs

    def wrong(self, made, inputs):
        words = honest(self, made, inputs)
        words[5, 1] ^= 1
        return words

    monkeypatch.setattr(StatementEmulator, "outputs", wrong)
    with pytest.raises(RuntimeError, match="mistake of ptxdiff"):
        prepared(plan, 0)


def test_right_machine_code_is_not_accused_by_other_words_than_those_of_the_emulator(monkeypatch):
    """Only the second program has wrong words, which no sample of `prepared` compares."""

    class Right:
        def run(self, cubin, inputs):
            return [emulated(cubin.decode(), f"p{k}", x) for k, x in enumerate(inputs)]

    plan = FuzzPlan("a", TARGET, 90, (assembler(COPYING, 0),), {"bits": 1.0}, batch=2)
    honest, calls = StatementEmulator.outputs, []

    def wrong(self, made, inputs):
        words = honest(self, made, inputs)
        calls.append(made)
        words[5, 1] ^= len(calls) == 2
        return words

    monkeypatch.setattr(StatementEmulator, "outputs", wrong)
    batch = prepared(plan, 0)
    assert len(calls) == len(batch.expected) == 2
    with pytest.raises(RuntimeError, match="mistake of ptxdiff"):
        BatchJudge(plan, Right()).judge(batch)
