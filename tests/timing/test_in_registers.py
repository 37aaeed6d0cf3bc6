"""Variants repeated in registers: the loop's machine code, and the statistics. The device's part is in tests/gpu."""

import random
from pathlib import Path

import pytest

from ptxdiff.jobs import Setup
from ptxdiff.model.load import load
from ptxdiff.records import ALONE, from_json, to_json
from ptxdiff.timing import CannotTime
from ptxdiff.timing.in_registers import (
    Arm,
    Assembled,
    Lacks,
    LoopSamples,
    Measurements,
    NotALoop,
    Repeated,
    Untimed,
    arms,
    assembled,
    carries,
    held_in,
    loop_body,
    not_timed,
    per_application,
    records_of,
    sampled,
)
from ptxdiff.triton.launch import computation_of
from ptxdiff.triton.targets import tool

CASES = Path(__file__).parents[2] / "cases"
CLOCK = "        /*0010*/                   CS2R R2, SR_CLOCKLO ;\n"
LOOP = """.L_x_1:
        /*0020*/                   MUFU.RCP R0, R0 ;
        /*0030*/                   LOP3.LUT R0, R0, R1, R5, 0xf8, !PT ;
{more}        /*0050*/              @P0 BRA `(.L_x_1) ;
"""


def sass(body=LOOP, more="", before=CLOCK, after=CLOCK):
    return before + body.format(more=more) + after + "        /*0070*/                   EXIT ;\n"


def test_the_body_is_between_a_label_and_the_branch_back_to_it():
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
def test_machine_code_that_is_not_the_expected_loop_is_refused(text, said):
    with pytest.raises(NotALoop, match=said):
        loop_body(text)


def body(**counts):
    return Assembled(None, None, counts, 7)


def test_the_opcodes_of_one_application_come_from_the_difference_of_two_loops():
    one, two = body(MUFU=8, LOP3=8, BRA=1), body(MUFU=16, LOP3=16, BRA=1)
    assert per_application(one, two, 8) == {"LOP3": 1.0, "MUFU": 1.0}


@pytest.mark.parametrize(
    ("two", "said"),
    [
        ({"MUFU": 8, "LOP3": 8, "BRA": 1}, "add 0 instructions"),
        ({"MUFU": 8, "LOP3": 12, "BRA": 1}, "add 4 instructions"),
        ({"MUFU": 64, "LOP3": 20, "BRA": 1}, "instructions of its own"),
    ],
    ids=["dropped", "merged", "of another size"],
)
def test_applications_that_the_compiler_merged_moved_or_dropped_are_detected(two, said):
    with pytest.raises(NotALoop, match=said):
        per_application(body(MUFU=8, LOP3=8, BRA=1), body(**two), 8)


def compiled(case, variant, unroll, **more):
    loaded = next(c for c in load(CASES / f"{case}.py") if c.attribute == "case")
    computation = computation_of(loaded.case, loaded.case.variants[variant], Setup())
    return assembled(
        Repeated(computation, ("fp32",), ("fp32",), 32, 1, unroll, **more), "sm_90a", str(tool("nvdisasm"))
    )


def test_an_approximate_reciprocal_is_one_instruction_in_the_compiled_loop():
    loops = [compiled("rcp", "rcp.approx.ftz", times) for times in (8, 16)]
    assert per_application(*loops, 8) == {"LOP3.LUT": 1.0, "MUFU.RCP": 1.0}


def test_a_loop_that_ptxas_drops_is_refused():
    """ptxas replaces the reciprocal of a reciprocal by the number: no code is left between the readings."""
    with pytest.raises(NotALoop, match="there are 0 loops"):
        compiled("rcp", "rcp.approx.ftz", 4, held=False)


def test_a_case_without_inputs_or_of_64_bits_cannot_be_repeated():
    matmul = load(CASES / "matmul.py")[0]
    with pytest.raises(CannotTime, match="only elementwise variants"):
        arms(matmul, "sm_90a", "")


def test_results_become_inputs_if_their_formats_are_the_same():
    found = {name: carries(load(CASES / f"{name}.py")[0]) for name in ("rcp", "f16x2_fma_clamp", "cvt_e4m3")}
    assert found == {"rcp": True, "f16x2_fma_clamp": True, "cvt_e4m3": False}


def arm(name, mode="throughput"):
    return Arm(name, mode, b"", "k", 0, 16, 4096, 2, 9, 4096, {"MUFU.RCP": 1.0}, ptxas="ptxas 13.4")


def clocked_as(costs, noise=0.002, seed=1):
    """A device on which one application takes `costs` clocks, and the code around the loop takes 5000."""
    rng = random.Random(seed)
    return lambda a, steps: 5000 + costs[a.name] * a.unroll * steps * (1 + rng.uniform(-noise, noise))


def timed(made, clocked):
    """The records of arms, by variant and mode, as for the case rcp."""
    rcp = load(CASES / "rcp.py")[0]
    found = Measurements("GPU-1", 16.0, 1755.0, tuple(sampled(made, clocked, rounds=31)))
    return {(t.key.variant, t.mode): t for t in records_of(rcp, "sm_90a", made, found)}


def test_code_around_the_loop_cancels_and_a_real_difference_is_reported():
    made = [arm("div"), arm("rcp"), arm("div", "latency"), arm("rcp", "latency")]
    found = timed(made, clocked_as({"div": 1024.0, "rcp": 256.0}))
    assert list(found) == [(a.name, a.mode) for a in made]
    assert [t.value for t in found.values()] == pytest.approx([4, 16, 1024, 256], rel=0.01)
    low, high = found["div", "throughput"].interval
    assert low < 4 < high
    compared = found["rcp", "throughput"].beside(found["div", "throughput"])
    assert (compared.verdict, round(compared.ratio, 2)) == ("faster", 0.25)


def test_a_record_states_how_it_was_timed_and_reads_back():
    found = timed([arm("rcp.rn")], clocked_as({"rcp.rn": 256.0}))["rcp.rn", "throughput"]
    assert (found.key.case, found.key.target, found.key.backend) == ("rcp", "sm_90a", "gpu")
    assert (found.key.num_warps, found.key.context, found.results, found.bytes) == (16, "held", 4096, 8.0)
    assert (len(found.samples), found.ptxas) == (31, "ptxas 13.4")
    assert from_json(to_json(found)) == found


def test_a_loop_that_could_not_be_made_has_a_record_with_the_reason():
    rcp = load(CASES / "rcp.py")[0]
    (found,) = not_timed(rcp, "sm_90a", [Untimed("rcp.rn", "latency", "the loop holds LDG.E")])
    assert (found.key.variant, found.mode, found.words) == ("rcp.rn", "latency", "the loop holds LDG.E")
    assert from_json(to_json(found)) == found


def test_a_difference_within_the_noise_of_the_twin_is_not_reported():
    found = timed([arm("one"), arm("other")], clocked_as({"one": 100.0, "other": 100.2}, noise=0.01))
    one, other = found.values()
    assert one.noise > 0.0005
    assert other.beside(one).verdict in ("same", "too noisy to say")


def test_a_loop_whose_steps_take_no_clocks_is_refused():
    with pytest.raises(CannotTime, match="took no more clocks"):
        sampled([arm("hoisted")], lambda a, steps: 5000.0)


def test_a_round_in_which_twice_the_steps_took_no_longer_is_refused():
    calls = iter(range(1000))
    with pytest.raises(CannotTime, match="rcp: twice as many steps of the loop took no longer"):
        sampled([arm("rcp")], lambda a, steps: 5000.0 if next(calls) > 100 else 5000.0 + 100 * steps, rounds=61)


ASM = "{ .reg .f32 t; mul.rn.f32 t, $1, 0f3FB8AA3B; ex2.approx.ftz.f32 $0, t; }"


def test_a_loop_without_the_instruction_under_test_is_refused():
    held_in(ASM, {"MUFU.EX2": 1.0, "FMUL": 1.0})
    for opcodes in ({"FMUL": 1.0, "LOP3.LUT": 1.0}, {"MUFU.EX2": 0.0, "FMUL": 1.0}):
        with pytest.raises(Lacks, match=r"the asm has ex2\.approx\.ftz\.f32, but the loop has no MUFU"):
            held_in(ASM, opcodes)


@pytest.mark.parametrize(
    ("text", "opcode"),
    [
        ("cvt.rn.satfinite.e4m3x2.f32 $0, $2, $1;", "F2FP"),
        ("fma.rn.f16x2 $0, $1, $2, $3;", "HFMA2"),
        ("popc.b32 $0, $1;", "POPC"),
        ("brev.b32 $0, $1;", "BREV"),
        ("dp4a.s32.s32 $0, $1, $2, $3;", "IDP"),
        ("clz.b32 $0, $1;", "FLO"),
    ],
)
def test_instructions_with_a_single_opcode_must_be_in_the_loop(text, opcode):
    held_in(text, {f"{opcode}.X": 0.5})
    with pytest.raises(Lacks, match=f"the loop has no {opcode}: it holds LOP3.LUT"):
        held_in(text, {"LOP3.LUT": 4.0})


def test_instructions_with_several_opcodes_are_not_required():
    held_in("add.f32 $0, $1, $2; rcp.rn.f32 $0, $0; cvt.rn.f16.f32 $0, $1;", {"LOP3.LUT": 1.0})


def test_a_variant_that_adds_nothing_to_the_loop_alone_is_not_timed(monkeypatch):
    """The loop alone is timed too: otherwise the code that feeds results back would be timed as the variant."""
    import ptxdiff.timing.in_registers as module

    rcp = load(CASES / "rcp.py")[0]
    empty = {"LOP3.LUT": 1.0}

    def loop(job, mode, unroll, each, nvdisasm, held, bare):
        more = {} if bare or job.variant_name == "triton" else {"MUFU.RCP": 1.0, "FFMA": 4.0}
        return Arm("", mode, b"", "k", 0, 1, 32, unroll, 9, 32, {**empty, **more})

    monkeypatch.setattr(module, "_loop", loop)
    monkeypatch.setattr(module, "carries", lambda loaded: False)
    made, untimed = arms(rcp, "sm_90a", "")
    assert {a.name for a in made} == {"rcp.approx.ftz", "rcp.rn", ALONE}
    assert {(u.name, u.mode) for u in untimed} == {("triton", "throughput"), ("triton", "latency")}
    assert "the loop holds only code that feeds results back" in str(untimed[0])


def test_asm_whose_loop_lost_its_instruction_is_not_timed(monkeypatch):
    import ptxdiff.timing.in_registers as module

    rcp = load(CASES / "rcp.py")[0]

    def loop(job, mode, unroll, each, nvdisasm, held, bare):
        more = {} if bare else {"FFMA": 4.0} if job.variant_name == "rcp.approx.ftz" else {"MUFU.RCP": 1.0}
        return Arm("", mode, b"", "k", 0, 1, 32, unroll, 9, 32, {"LOP3.LUT": 1.0, **more})

    monkeypatch.setattr(module, "_loop", loop)
    made, untimed = arms(rcp, "sm_90a", "")
    assert "rcp.approx.ftz" not in {a.name for a in made}
    assert "the asm has rcp.approx.ftz.f32, but the loop has no MUFU" in str(untimed[0])


def test_units_of_64_bits_are_not_timed_and_the_reason_is_given():
    made, untimed = arms(load(CASES / "mul128.py")[0], "sm_90a", "")
    assert not made
    assert {u.words for u in untimed} == {"units of 64 bits are not fed back in registers"}


def test_samples_are_those_of_one_arm():
    (found,) = sampled([arm("rcp")], clocked_as({"rcp": 256.0}), rounds=5)
    assert isinstance(found, LoopSamples)
    assert len(found.samples) == 5
