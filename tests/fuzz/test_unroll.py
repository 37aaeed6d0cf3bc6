"""A fault that needs one iteration of a loop is reduced to PTX without the loop; copies of a body compute the same."""

import re

import numpy as np
import pytest

from ptxdiff.emulator import Buffer, PtxError, run_kernel
from ptxdiff.emulator.machine import lockstep
from ptxdiff.fuzz.execution import emulated, inputs_of, text_of
from ptxdiff.fuzz.generate import FAMILIES, program
from ptxdiff.fuzz.pieces import pieces_of
from ptxdiff.fuzz.program import RandomProgram, Statement, Variable
from ptxdiff.fuzz.reduce import ROUNDS, candidates, reduced, reduced_by_rounds, smaller, unrolled, unrolled_random

HEAD = """.version 8.1
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a)
{
.reg .b64 %rd<3>; .reg .b32 %r<40>; .reg .pred %p<4>;
ld.param.u64 %rd1, [a];
mov.u32 %r1, 77;
mov.u32 %r2, BEGIN;
"""
OTHERS = "\n".join(f"xor.b32 %r{k}, %r{k - 1}, {k};\nadd.u32 %r1, %r1, %r{k};" for k in range(4, 11))
"""14 instructions that the fault does not need."""
BODY = f"""mul.lo.u32 %r3, %r1, 3;
{OTHERS}
mad.lo.u32 %r20, %r1, %r2, %r3;
add.u32 %r1, %r1, %r20;
add.u32 %r2, %r2, STEP;"""
AT_ITS_END = f"AGAIN:\n{BODY}\nsetp.ne.u32 %p1, %r2, END;\n@%p1 bra AGAIN;\n"
AT_ITS_BEGIN = f"AGAIN:\nsetp.eq.u32 %p1, %r2, END;\n@%p1 bra OUT;\n{BODY}\nbra AGAIN;\nOUT:\n"
TAIL = "st.global.u32 [%rd1], %r1;\nret;\n}\n"
LOST = 1000
"""Steps after which a loop counts as infinite; no program that ends takes as many."""
COUNTED = {"begin": 0, "step": 1, "end": 9}, {"begin": 40, "step": -4, "end": 8}


def kernel(loop, begin, step, end):
    return (HEAD + loop + TAIL).replace("BEGIN", str(begin)).replace("STEP", str(step)).replace("END", str(end))


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """Endless loops end after as many steps on every machine."""
    monkeypatch.setattr(lockstep, "STEP_LIMIT", LOST)


def run(text):
    made = np.zeros(1, np.uint32)
    run_kernel(text, [Buffer(made, "a", defined=False)], (1,), num_threads=32)
    return int(made[0])


def wrong_at(count):
    """A planted ptxas that compiles a multiply-add wrongly if its second factor is `count`."""

    def edit(text):
        return re.sub(
            r"mad\.lo\.u32 (\S+), (\S+), (\S+), (\S+);",
            rf"{{ .reg .pred q; mad.lo.u32 \1, \2, \3, \4; setp.eq.u32 q, \3, {count}; @q add.u32 \1, \1, 1; }}",
            text,
        )

    return edit


def shows(text, edit):
    try:
        return run(text) != run(edit(text))
    except PtxError:
        return False


def instructions(text):
    lines = [line for line in text[text.index("{") :].splitlines() if line.endswith(";")]
    return [line for line in lines if not line.startswith((".reg", "ret"))]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("loop", "counted"),
    list(zip([AT_ITS_END, AT_ITS_BEGIN], COUNTED, strict=True)),
    ids=["tested at its end", "at its beginning"],
)
def test_a_fault_in_the_seventh_iteration_of_eighteen_instructions(loop, counted):
    edit = wrong_at(counted["begin"] + 6 * counted["step"])
    text = kernel(loop, **counted)
    apart = pieces_of(text)
    assert run(text) != run(edit(text))

    def each(programs):
        return [shows(apart.text(p), edit) for p in programs]

    whole = reduced(apart.program, each, smaller, at_once=1, onwards=True)
    assert "bra" in apart.text(whole), "without the loop nothing shows the fault"
    small = reduced_by_rounds(apart.program, each, smaller, unrolled, lambda p: p.size, at_once=1, onwards=True)
    said = apart.text(small)
    assert "bra" not in said, said
    assert len(instructions(said)) < 10, said
    assert shows(said, edit)


@pytest.mark.slow
def test_copies_that_threads_may_leave_compute_the_loops_result():
    """For every loop of random programs, with at least as many copies as it has iterations."""
    inputs = inputs_of("1")
    tried = 0
    for seed in map(str, range(40)):
        apart = pieces_of(text_of([program(seed, 90, dict.fromkeys(FAMILIES, 1.0))], "sm_90a"))
        for ways in unrolled(apart.program):
            leaving = ways[1 + 2 * ROUNDS.index(8)]()  # at most eight iterations
            right = emulated(apart.text(apart.program), "p0", inputs)
            np.testing.assert_array_equal(emulated(apart.text(leaving), "p0", inputs), right)
            tried += 1
    assert tried > 5


def looping(rounds):
    """A random program's loop, in which one statement is wrong in one iteration."""
    carried, counter, steps, goes, made = (Variable(k, n) for k, n in zip("rrrpr", range(10, 15), strict=True))
    text = (
        "mov.b32 {w0}, {r0};\nmov.b32 {w1}, 0;\nand.b32 {w2}, {r1}, 7;\n{l0}:\n{body}\nmov.b32 {w0}, {result};\n"
        "add.u32 {w1}, {w1}, 1;\nsetp.lt.u32 {w3}, {w1}, {w2};\n@{w3} bra {l0};"
    )
    other = Statement("xor.b32 {w0}, {r0}, 9;", (Variable("r", 20),), (carried,))
    body = Statement("mad.lo.u32 {w0}, {r0}, {r1}, {r2};", (made,), (other.writes[0], counter, Variable("r", 1)))
    reads = (Variable("r", 0), str(rounds))
    return RandomProgram(
        (Statement(text, (carried, counter, steps, goes), reads, (other, body), made),), (carried, "0", "0", "0")
    )


@pytest.mark.slow
def test_a_random_programs_loop_is_unrolled():
    whole, inputs = looping(7), inputs_of("1")
    right = emulated(text_of([whole], "sm_90a"), "p0", inputs)
    (ways,) = unrolled_random(whole)
    np.testing.assert_array_equal(emulated(text_of([ways[7 - 2]()], "sm_90a"), "p0", inputs), right)
    edit = wrong_at(5)

    def each(programs):
        found = []
        for one in programs:
            text = text_of([one], "sm_90a")
            found.append(not np.array_equal(emulated(text, "p0", inputs), emulated(edit(text), "p0", inputs)))
        return found

    assert "bra" in text_of([reduced(whole, each, candidates)], "sm_90a")
    small = reduced_by_rounds(whole, each, candidates, unrolled_random, lambda p: p.size)
    assert "bra" not in text_of([small], "sm_90a")
    assert small.size <= 2


def test_a_loop_that_is_entered_in_its_middle_is_not_unrolled():
    body = "setp.eq.u32 %p1, %r1, 5;\n@%p1 bra IN;\nAGAIN:\nadd.u32 %r1, %r1, 2;\nIN:\nadd.u32 %r2, %r2, 1;\n"
    body += "setp.ne.u32 %p2, %r2, END;\n@%p2 bra AGAIN;\n"
    assert list(unrolled(pieces_of(kernel(body, 0, 1, 9)).program)) == []


def test_the_inner_loop_is_unrolled_first():
    inner = "mov.u32 %r5, 0;\nINNER:\nadd.u32 %r1, %r1, %r2;\nadd.u32 %r5, %r5, 1;\nsetp.lt.u32 %p2, %r5, 3;\n"
    body = f"AGAIN:\n{inner}@%p2 bra INNER;\nadd.u32 %r2, %r2, 1;\nsetp.ne.u32 %p1, %r2, END;\n@%p1 bra AGAIN;\n"
    text = kernel(body, 0, 1, 9)
    apart = pieces_of(text)
    (ways,) = unrolled(apart.program)
    flat = ways[2 * ROUNDS.index(3)]()
    assert run(apart.text(flat)) == run(text)
    (again,) = unrolled(flat)
    assert run(apart.text(again[2 * ROUNDS.index(9)]())) == run(text)
