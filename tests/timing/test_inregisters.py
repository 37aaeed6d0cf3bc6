"""Variants repeated in registers: the loop's machine code, and the statistics. The device's part is in tests/gpu."""

import random
from pathlib import Path

import pytest

from harness.jobs import Setup
from harness.model.load import load
from harness.records.statistics import Beside
from harness.timing import CannotTime
from harness.timing.inregisters import ALONE, Arm, RegisterTiming, arms, carries, pays_from, sampled
from harness.triton.launch import _computation
from harness.triton.registers import Assembled, NotALoop, Repeated, assembled, loop_body, per_application
from harness.triton.targets import tool

CASES = Path(__file__).parents[2] / "cases"
CLOCK = "        /*0010*/                   CS2R R2, SR_CLOCKLO ;\n"
LOOP = """.L_x_1:
        /*0020*/                   MUFU.RCP R0, R0 ;
        /*0030*/                   LOP3.LUT R0, R0, R1, R5, 0xf8, !PT ;
{more}        /*0050*/              @P0 BRA `(.L_x_1) ;
"""


def sass(body=LOOP, more="", before=CLOCK, after=CLOCK):
    return before + body.format(more=more) + after + "        /*0070*/                   EXIT ;\n"


def test_the_body_is_what_stands_between_a_label_and_the_branch_back_to_it():
    assert loop_body(sass()) == {"BRA": 1, "LOP3.LUT": 1, "MUFU.RCP": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (sass(more="        /*0040*/                   LDG.E R7, [R2] ;\n"), "the loop holds LDG.E"),
        (sass(more="        /*0040*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;\n"), "the loop holds BAR.SYNC"),
        (sass(more=CLOCK), "the clock is read 3 times"),
        (sass(body=LOOP.replace("@P0 BRA `(.L_x_1)", "MOV R3, R4")), "there are 0 loops"),
        (sass(body=LOOP + LOOP.replace("L_x_1", "L_x_2")), "there are 2 loops"),
        (sass(before="", after=CLOCK + CLOCK), "there are 0 loops"),
        (sass(before=CLOCK + CLOCK, after=""), "there are 0 loops"),
    ],
)
def test_a_loop_that_would_measure_something_else_is_refused(text, said):
    with pytest.raises(NotALoop, match=said):
        loop_body(text)


def body(**counts):
    return Assembled(None, None, counts, 7)


def test_one_application_is_what_twice_as_many_add():
    one, two = body(MUFU=8, LOP3=8, BRA=1), body(MUFU=16, LOP3=16, BRA=1)
    assert per_application(one, two, 8) == {"LOP3": 1.0, "MUFU": 1.0}


@pytest.mark.parametrize(
    ("two", "said"),
    [
        ({"MUFU": 8, "LOP3": 8, "BRA": 1}, "add 0 instructions"),
        ({"MUFU": 8, "LOP3": 12, "BRA": 1}, "add 4 instructions"),
        ({"MUFU": 64, "LOP3": 20, "BRA": 1}, "instructions that belong to no application"),
    ],
    ids=["dropped", "merged", "of another size"],
)
def test_applications_that_the_compiler_merged_moved_or_dropped_are_noticed(two, said):
    with pytest.raises(NotALoop, match=said):
        per_application(body(MUFU=8, LOP3=8, BRA=1), body(**two), 8)


def compiled(case, variant, unroll, **more):
    loaded = next(c for c in load(CASES / f"{case}.py") if c.attribute == "case")
    computation = _computation(loaded.case, loaded.case.variants[variant], Setup())
    return assembled(
        Repeated(computation, ("fp32",), ("fp32",), 32, 1, unroll, **more), "sm_90a", str(tool("nvdisasm"))
    )


def test_an_approximate_reciprocal_is_one_instruction_in_the_compiled_loop():
    loops = [compiled("rcp", "rcp.approx.ftz", times) for times in (8, 16)]
    assert per_application(*loops, 8) == {"LOP3.LUT": 1.0, "MUFU.RCP": 1.0}


def test_a_loop_that_ptxas_drops_is_refused():
    """The reciprocal of a reciprocal is the number itself, ptxas finds: nothing is left between the clocks."""
    with pytest.raises(NotALoop, match="there are 0 loops"):
        compiled("rcp", "rcp.approx.ftz", 4, held=False)


def test_a_case_without_inputs_or_of_64_bits_cannot_be_repeated():
    matmul = load(CASES / "matmul.py")[0]
    with pytest.raises(CannotTime, match="only elementwise variants"):
        arms(matmul, "sm_90a", "")


def test_results_become_inputs_where_their_formats_are_the_same():
    found = {name: carries(load(CASES / f"{name}.py")[0]) for name in ("rcp", "f16x2_fma_clamp", "cvt_e4m3")}
    assert found == {"rcp": True, "f16x2_fma_clamp": True, "cvt_e4m3": False}


def arm(name, mode="throughput"):
    return Arm(name, mode, b"", "k", 0, 16, 4096, 2, 9, 4096, {"MUFU.RCP": 1.0})


def clocked_as(costs, noise=0.002, seed=1):
    """A device on which an application costs so many clocks, beside 5000 for what surrounds the loop."""
    rng = random.Random(seed)
    return lambda a, steps: 5000 + costs[a.name] * a.unroll * steps * (1 + rng.uniform(-noise, noise))


def test_what_surrounds_the_loop_cancels_and_a_difference_is_one():
    made = [arm("div"), arm("rcp"), arm("div", "latency"), arm("rcp", "latency")]
    found = sampled(made, clocked_as({"div": 1024.0, "rcp": 256.0}), rounds=31)
    assert [(m.name, m.mode) for m in found] == [(a.name, a.mode) for a in made]
    assert [m.value for m in found] == pytest.approx([4, 16, 1024, 256], rel=0.01)
    assert found[0].low < 4 < found[0].high
    compared = found[1].beside(found[0])
    assert (compared.verdict, round(compared.ratio, 2)) == ("faster", 0.25)


def test_a_difference_within_the_noise_of_the_first_arm_beside_itself_is_none():
    found = sampled([arm("one"), arm("other")], clocked_as({"one": 100.0, "other": 100.2}, noise=0.01), rounds=31)
    assert found[0].noise > 0.0005
    assert found[1].beside(found[0]).verdict in ("same", "too noisy to say")


def test_a_loop_whose_steps_cost_nothing_is_no_measurement():
    with pytest.raises(CannotTime, match="cost no clocks"):
        sampled([arm("hoisted")], lambda a, steps: 5000.0)


def test_a_faster_instruction_pays_where_the_slower_one_holds_up_the_memory():
    assert pays_from(slower=8.0, bytes_per_clock=16.0) == 0.5


def test_verdicts_are_those_of_other_timings():
    one = RegisterTiming("a", "latency", 1.0, 1.0, 1.0, 0.0, (10.0, 10.0, 10.0), {})
    other = RegisterTiming("b", "latency", 1.0, 1.0, 1.0, 0.0, (20.0, 20.0, 20.0), {})
    assert isinstance(other.beside(one), Beside)
    assert other.beside(one).verdict == "slower"
    assert ALONE not in (one.name, other.name)
