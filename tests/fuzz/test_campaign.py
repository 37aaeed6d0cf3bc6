"""A planted wrong assembler is detected, its programs are reduced, and nothing else is reported as a fault."""

import dataclasses
import json
import os
import random
import sys
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import pytest

from ptxdiff.cli import fuzz as fuzz_command
from ptxdiff.cli import main
from ptxdiff.conformance import taught
from ptxdiff.fuzz import campaign, execution, files
from ptxdiff.fuzz import judge as judging
from ptxdiff.fuzz.assemblers import assembler
from ptxdiff.fuzz.campaign import FuzzCampaign
from ptxdiff.fuzz.execution import MachineCodeInterpreter, NotRead, emulated, expected, inputs_of, text_of
from ptxdiff.fuzz.generate import program, shaped
from ptxdiff.fuzz.judge import (
    TOO_EARLY,
    Batch,
    BatchJudge,
    FuzzPlan,
    JudgedBatch,
    PtxasFault,
    Suspect,
    assembled_parts,
    has_fault_of,
    interpreted_proof,
    prepared,
)
from ptxdiff.fuzz.program import RandomProgram, Statement, Variable
from ptxdiff.model.load import load
from ptxdiff.sass.rows import ROWS
from ptxdiff.triton.ptxas import NoAssembler
from ptxdiff.triton.targets import assembler as bundled
from tests.support.sass.assembly import plant
from tests.support.sass.ptxas_releases import release

FLIPPING = str(Path(__file__).with_name("flipping_ptxas.sh"))
TARGET = "sm_90a"


class StandIn:
    """A stand-in for a device, whose machine code is PTX."""

    def run(self, cubin, inputs):
        return [emulated(cubin.decode(), f"p{k}", x) for k, x in enumerate(inputs)]


def plan(levels=(0, 3), seed="a", **weights):
    made = tuple(assembler(FLIPPING, level) for level in levels)
    return FuzzPlan(seed, TARGET, 90, made, weights or {"bits": 1.0}, batch=2)


def judged(tmp_path, wanted, levels=(0, 3), runner=None, **weights):
    """A campaign that has judged one batch of programs, each with the instruction `wanted`."""
    made = plan(levels, **weights)
    run = FuzzCampaign(made, runner or StandIn(), tmp_path / "journal.jsonl")
    found = []
    for number in range(1000):
        one = program(f"a/{number}", 90, made.weights)
        if wanted in one.skeleton and not {"brev.b32", "cnot.b32"} & set(one.skeleton.split()) - {wanted}:
            found.append((f"a/{number}", one))
        if len(found) == 2:
            break
    seeds, programs = zip(*found, strict=True)
    parts = tuple(tuple(assembled_parts(a, programs, range(2), TARGET)) for a in made.assemblers)
    right = tuple(expected(p, inputs_of(s), TARGET) for s, p in found)
    batch = Batch(0, programs, seeds, right, parts, 0)
    run.take(BatchJudge(made, run.runner).judge(batch))
    return run


def test_a_flipped_instruction_is_found_and_reduced(tmp_path):
    run = judged(tmp_path, "xor.b32")
    (found,) = [f for f in run.state.findings.values() if f.kind == "wrong"]
    assert "xor.b32" in found.skeleton.split()
    assert found.size <= 3
    assert (found.assemblers, found.right) == ((assembler(FLIPPING, 3).label,), (assembler(FLIPPING, 0).label,))
    lane = next(k for k, row in enumerate(inputs_of(found.seed).tolist()) if tuple(row) == found.inputs)
    assert tuple(emulated(found.text, "p0", inputs_of(found.seed))[lane]) == found.expected != found.given
    flipped = found.text.replace("xor.b32", "or.b32")
    assert tuple(emulated(flipped, "p0", inputs_of(found.seed))[lane]) == found.given


def test_a_right_assembler_gives_no_finding(tmp_path):
    assert not judged(tmp_path, "xor.b32", levels=(0,)).state.findings


@pytest.mark.parametrize(("instruction", "kind"), [("brev.b32", "crashed"), ("cnot.b32", "refused")])
def test_a_crash_and_a_refusal_are_found_without_a_device(tmp_path, instruction, kind):
    run = judged(tmp_path, instruction)
    found = [f for f in run.state.findings.values() if f.kind == kind]
    assert found
    assert found[0].skeleton == instruction


def test_a_program_that_is_refused_takes_no_other_with_it():
    """Of ten programs the assembler refuses those with `cnot`; the others of their module are run, and judged."""
    made = dataclasses.replace(plan(levels=(3,)), batch=10)
    batch = prepared(made, 0)
    refused = {k for k, one in enumerate(batch.programs) if "cnot.b32" in one.skeleton.split()}
    ((*parts,),) = batch.parts
    assert refused
    assert {p for part in parts if part.ended != "assembled" for p in part.places} >= refused
    assert all(len(part.places) == 1 for part in parts if part.ended != "assembled")
    judged = BatchJudge(made, StandIn()).judge(batch)
    assert judged.runs == sum(len(part.places) for part in parts if part.ended == "assembled") > 0
    flipped = {k for part in parts if part.ended == "assembled" for k in part.places}
    assert any("xor.b32" in batch.programs[k].skeleton.split() for k in flipped)
    assert "wrong" in {f.kind for f in judged.findings}
    assert len(judged.findings) + judged.known >= len(refused)


def test_bits_of_a_module_that_a_program_alone_does_not_give_are_told(tmp_path):
    class Joined(StandIn):
        """Gives other bits where there are several programs."""

        def run(self, cubin, inputs):
            right = super().run(cubin, inputs)
            return [r ^ np.uint32(1) for r in right] if len(right) > 1 else right

    made = plan(levels=(0,))
    one = program("a/0", 90, made.weights)
    judge = BatchJudge(made, Joined())
    judge.differs(one, "a/0", made.assemblers[0], "the digest of other machine code")
    (found,) = judge.findings
    assert found.kind == "unsettled"
    # This assembler's machine code is text, which has no sections to compare.
    assert (
        found.words == "ptxas makes other machine code of this program alone than among others, and only that is wrong"
    )


def test_bits_that_cannot_be_reproduced_are_not_reported(tmp_path):
    class Once(StandIn):
        runs = 0

        def run(self, cubin, inputs):
            self.runs += 1
            right = super().run(cubin, inputs)
            return [r ^ np.uint32(1) for r in right] if self.runs == 1 else right

    run = judged(tmp_path, "xor.b32", levels=(0,), runner=Once())
    assert {f.kind for f in run.state.findings.values()} == {"unsettled"}


def test_a_device_that_stops_is_a_finding(tmp_path):
    class Stopped(StandIn):
        def run(self, cubin, inputs):
            return "the process on the GPU was killed"

    run = judged(tmp_path, "xor.b32", levels=(0,), runner=Stopped())
    assert {f.kind for f in run.state.findings.values()} == {"stopped the device"}


def test_a_journal_is_resumed_and_refuses_another_campaign(tmp_path):
    run = judged(tmp_path, "xor.b32")
    again = FuzzCampaign(run.plan, StandIn(), tmp_path / "journal.jsonl")
    assert again.state.findings == run.state.findings
    assert (again.state.batches, again.state.programs) == ({0}, 2)
    assert next(again.numbers(None)) == 1
    with pytest.raises(ValueError, match=r"another campaign \(seed: \w+ there, b here\); choose"):
        FuzzCampaign(dataclasses.replace(run.plan, seed="b"), StandIn(), tmp_path / "journal.jsonl")


def test_a_journal_of_other_inputs_for_the_same_seeds_is_refused(tmp_path, monkeypatch):
    run = judged(tmp_path, "xor.b32")
    monkeypatch.setattr("ptxdiff.fuzz.judge.ALIKE", 1)
    with pytest.raises(ValueError, match="programs with the same inputs: 16 there, 1 here"):
        FuzzCampaign(run.plan, StandIn(), tmp_path / "journal.jsonl")


def test_a_journal_whose_last_line_has_no_end_is_resumed_without_it(tmp_path):
    path = tmp_path / "journal.jsonl"
    run = FuzzCampaign(plan(), StandIn(), path)
    for number in range(2):
        run.take(JudgedBatch(number, 2, 0, 4, 0, ()))
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    again = FuzzCampaign(plan(), StandIn(), path)
    assert again.state.batches == {0}
    again.take(JudgedBatch(1, 2, 0, 4, 0, ()))
    assert path.read_bytes() == whole
    path.write_bytes(whole[:9])
    FuzzCampaign(plan(), StandIn(), path)
    assert whole.startswith(path.read_bytes())
    assert len(path.read_bytes()) > 9


def _suspected(wanted="xor.b32", labels=None):
    """A program that shows wrong bits, and a batch in which it was tried."""
    made = plan(levels=(0, 2, 3))
    seed = next(s for k in range(99) if wanted in program(s := f"a/{k}", 90, made.weights).skeleton.split())
    suspect = Suspect("wrong", seed, labels or tuple(a.label for a in made.assemblers[1:]))
    return made, JudgedBatch(0, 2, 0, 6, 0, (), suspects=(suspect,))


def test_what_a_program_shows_is_in_the_journal_before_it_is_examined(tmp_path, monkeypatch):
    """A campaign that ends while it reduces a program goes on with that when it is resumed."""
    made, tried = _suspected()
    path = tmp_path / "journal.jsonl"
    run = FuzzCampaign(made, StandIn(), path)
    run.take(tried)

    def end(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(campaign, "examined", end)
        with pytest.raises(KeyboardInterrupt):
            run.run(0)
    again = FuzzCampaign(made, StandIn(), path)
    assert (again.state.batches, list(again.state.suspects.values())) == ({0}, list(tried.suspects))
    again.run(0)
    (found,) = again.state.findings.values()
    assert found.kind == "wrong"
    assert found.size <= 3
    after = FuzzCampaign(made, StandIn(), path).state
    assert (after.findings, after.suspects, after.batches) == (again.state.findings, {}, {0})


def test_a_program_that_is_wrong_at_several_levels_counts_once(tmp_path):
    """As one finding that names the levels; and once if the finding is known."""
    made, tried = _suspected()
    run = FuzzCampaign(made, StandIn(), tmp_path / "journal.jsonl")
    run.take(tried)
    run.run(0)
    (found,) = run.state.findings.values()
    assert found.assemblers == tuple(a.label for a in made.assemblers[1:])
    assert (run.state.known, found.seen) == (0, 1)
    judge = BatchJudge(made, StandIn(), (found,))
    judge.examine(tried.suspects[0])
    assert (judge.known, judge.findings) == (1, [])


def test_a_batch_notes_each_program_once_with_its_levels():
    made = dataclasses.replace(plan(levels=(2, 3)), batch=10)
    tried = BatchJudge(made, StandIn()).tried(prepared(made, 0))
    assert not tried.findings
    assert len({(s.kind, s.seed) for s in tried.suspects}) == len(tried.suspects) > 0
    assert {s.assemblers for s in tried.suspects} == {tuple(a.label for a in made.assemblers)}


def test_a_campaign_in_which_nothing_is_compared_ends_after_a_batch(tmp_path, capsys):
    """It would go on to its end and have no findings, as one in which all bits agree."""
    refusing = tmp_path / "ptxas"
    release = 'case "$*" in *--version*) echo "Cuda compilation tools, release 99.9, V99.9.1"; exit;; esac'
    refusing.write_text(f'#!/bin/sh\n{release}\necho "ptxas fatal   : no licence"; exit 255\n')
    refusing.chmod(0o755)
    options = ["--no-gpu", "--programs=99999", "--jobs=1", "--family=integer", f"--target={TARGET}"]
    assert main(["fuzz", f"--output={tmp_path / 'found'}", f"--assembler={refusing}", *options]) == 2
    assert (
        "none of 256 programs was compared, most often because of: ptxas fatal : no licence" in capsys.readouterr().err
    )


@pytest.mark.parametrize(("runs", "unread", "reason"), [(0, 0, "refused all"), (9, 9, "no row"), (9, 8, "")])
def test_why_nothing_was_compared(runs, unread, reason):
    tried = campaign.Tried(programs=0 if not runs else 3, refused_here=256, runs=runs, unread=unread)
    tried.why.update({"VISET has no row": unread})
    assert reason in tried.nothing_compared(256)
    assert bool(tried.nothing_compared()) is bool(reason)
    assert tried.nothing_compared(300) == ""


def test_programs_that_were_not_examined_are_no_success(tmp_path, monkeypatch, capsys):
    made = FuzzCampaign(plan(), StandIn(), tmp_path / "journal.jsonl")
    made.state.suspects["wrong", "a/0"] = Suspect("wrong", "a/0", ())
    assert fuzz_command._finish(tmp_path, made) == 1
    assert "1 programs that show something were not examined" in capsys.readouterr().out


@pytest.mark.slow
def test_a_crash_at_several_levels_is_one_finding():
    made = plan(levels=(0, 2, 3))
    seed = next(s for k in range(99) if "brev.b32" in program(s := f"a/{k}", 90, made.weights).skeleton.split())
    judge = BatchJudge(made, None)
    judge.examine(Suspect("crashed", seed, tuple(a.label for a in made.assemblers[1:]), "ended by signal 11"))
    (found,) = judge.findings
    assert (found.kind, found.assemblers) == ("crashed", tuple(a.label for a in made.assemblers[1:]))


def _die(plan, number):
    os._exit(9)


def test_a_worker_that_dies_ends_a_campaign_with_its_findings(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "prepared", _die)
    run = FuzzCampaign(plan(), StandIn(), tmp_path / "journal.jsonl")
    run.take(JudgedBatch(0, 2, 0, 4, 0, ()))
    assert run.run(60, 8).batches == {0}
    assert set(run.lost) == {1, 2}
    assert "died" in run.lost[1]


def test_a_worker_that_died_before_a_batch_was_sent_ends_a_campaign(tmp_path, monkeypatch):
    def submit(*given):
        raise BrokenProcessPool

    monkeypatch.setattr(campaign.ProcessPoolExecutor, "submit", submit)
    run = FuzzCampaign(plan(), StandIn(), tmp_path / "journal.jsonl")
    assert run.run(60, 8).batches == set()
    assert set(run.lost) == {0}


def test_a_batch_that_is_sent_twice_is_refused(tmp_path):
    run = FuzzCampaign(plan(), StandIn(), tmp_path / "journal.jsonl")
    run.take(JudgedBatch(0, 2, 0, 4, 0, ()))
    with pytest.raises(ValueError, match="batch 0 was counted before"):
        run.take(JudgedBatch(0, 2, 0, 4, 0, ()))
    assert (run.state.programs, run.state.runs) == (2, 4)


def test_a_resumed_campaign_counts_its_runs_and_what_it_could_not_read(tmp_path):
    run = FuzzCampaign(plan(), StandIn(), tmp_path / "journal.jsonl")
    run.take(JudgedBatch(0, 2, 0, 4, 1, (), unread=2, why={"FOO has no row": 2}))
    again = FuzzCampaign(plan(), StandIn(), tmp_path / "journal.jsonl").state
    assert (again.runs, again.known, again.unread, dict(again.why)) == (4, 1, 2, {"FOO has no row": 2})


def test_a_fault_that_two_processes_reduce_is_one_finding(tmp_path):
    """Each began its batch before the other had its finding; another fault stays a finding."""
    first = written(*MERGING, "mov.b32 <r=>, {<h>, <h>};")
    more = written(*MERGING, "mov.b32 <r=>, {<h>, <h>};", "popc.b32 <r=>, <r>;")
    other = written("popc.b32 <r=>, <r>;")
    found = [
        PtxasFault("wrong", f"a/{k}", ("ptxas",), (), text, 3, text) for k, text in enumerate((first, more, other))
    ]
    run = FuzzCampaign(dataclasses.replace(plan(), interpreted=True), None, tmp_path / "journal.jsonl")
    for number, finding in enumerate(found):
        run.take(JudgedBatch(number, 2, 0, 4, 0, (finding,)))
    assert [f.text for f in run.state.findings.values()] == [first, other]
    assert run.state.known == 1


@pytest.mark.parametrize(
    ("kind", "skeletons", "assemblers"),
    [
        ("wrong", ("a", "a"), (("O2", "O3"), ("O3",))),
        (TOO_EARLY, ("a", "a b"), (("O3",), ("O3",))),
        ("crashed", ("a", "a b"), (("O2", "O3"), ("O3",))),
    ],
)
def test_a_finding_that_an_earlier_one_covers_is_counted_as_known(tmp_path, kind, skeletons, assemblers):
    """Also one of the same opcodes that fewer assemblers show, and one of another kind than wrong bits."""
    text = written("popc.b32 <r=>, <r>;")
    pairs = zip(skeletons, assemblers, strict=True)
    first, second = (PtxasFault(kind, "a/0", by, (), skeleton, 3, text) for skeleton, by in pairs)
    run = FuzzCampaign(plan(), None, tmp_path / "journal.jsonl")
    run.take(JudgedBatch(0, 2, 0, 4, 0, (first,)))
    run.take(JudgedBatch(1, 2, 0, 4, 0, (second, first)))
    assert [(f.assemblers, f.seen) for f in run.state.findings.values()] == [(assemblers[0], 2)]
    assert run.state.known == 1


@pytest.mark.parametrize("kind", [TOO_EARLY, "crashed", "unsettled"])
def test_a_finding_hides_no_fault_of_another_kind_or_of_others_joined(kind):
    """What is not settled hides only the same instructions joined alike, as wrong bits do."""
    made = plan()
    one = next(p for k in range(99) if "xor.b32" in (p := program(f"a/{k}", 90, made.weights)).skeleton)
    label, text = made.assemblers[1].label, written("popc.b32 <r=>, <r>;", "popc.b32 <r=>, <r>;")
    earlier = PtxasFault(kind, "a/0", (label,), (), "xor.b32", 1, text, interpreted=True)
    judge = BatchJudge(made, StandIn(), (earlier,))
    judge.differs(one, "a/0", made.assemblers[1])
    assert (judge.known, len(judge.findings)) == (0, 1)


def test_equal_machine_code_at_two_levels_runs_once(monkeypatch):
    """It has one result; other code of the same program has its own."""
    ran = []
    original = MachineCodeInterpreter.interpreted

    def noted(read, names, inputs):
        ran.extend(names)
        return original(read, names, inputs)

    monkeypatch.setattr(MachineCodeInterpreter, "interpreted", staticmethod(noted))
    by = tuple(assembler(bundled(TARGET).path, level) for level in (0, 3, 3))
    made = prepared(FuzzPlan("a", TARGET, 90, by, {"bits": 1.0}, batch=2, interpreted=True), 0)
    assert sorted(ran) == ["p0", "p0", "p1", "p1"]
    for parts in made.parts:
        (part,) = parts
        assert [np.array_equal(g, e) for g, e in zip(part.given, made.expected, strict=True)] == [True, True]


def test_known_skeletons_are_counted_and_not_reduced_again():
    made = dataclasses.replace(plan(), avoid=frozenset(["xor.b32"]))
    judge = BatchJudge(made, StandIn())
    one = next(p for k in range(99) if "xor.b32" in (p := program(f"a/{k}", 90, made.weights)).skeleton)
    judge.differs(one, "a/0", made.assemblers[1])
    assert (judge.known, judge.findings) == (1, [])


def written(*shapes):
    """The text of a program of shapes, each of which reads the newest registers."""
    held, draw = {"r": [Variable("r", k) for k in range(4)]}, random.Random(1)
    made = tuple(shaped(draw, shape, held, newest=True) for shape in shapes)
    return text_of([RandomProgram(made, (held["r"][-1], "0", "0", "0"))], TARGET)


MERGING = ("cvt.u16.u32 <h=>, <r>;", "mov.b32 <f=>, <r>;", "cvt.rn.satfinite.e4m3x2.f32 <h=>, <f>, <f>;")


@pytest.mark.parametrize(
    ("shapes", "known"),
    [
        ((*MERGING, "mov.b32 <r=>, {<h>, <h>};"), True),
        ((*MERGING[:2], "cvt.rn.satfinite.relu.e5m2x2.f32 <h=>, <f>, <f>;", "mov.b32 <r=>, {<h>, <h>};"), True),
        (("add.rn.f32 <f=>, <f>, <f>;", "add.u16 <h=>, <h>, <h>;", *MERGING[2:], "mov.b32 <r=>, {<h>, <h>};"), True),
        ((*MERGING, "mov.b32 <r=>, {<h>, <h>};", "popc.b32 <r=>, <r>;"), True),
        ((*MERGING, "cvt.u16.u32 <h=>, <r>;", "mov.b32 <r=>, {<h>, <h>};"), False),  # of another register
        ((*MERGING[:2], "cvt.rn.f16x2.f32 <s=>, <f>, <f>;", "mov.b32 <r=>, {<h>, <h>};"), False),
        (MERGING, False),
    ],
)
def test_a_known_fault_is_its_instructions_joined_alike(shapes, known):
    first = written(*MERGING, "mov.b32 <r=>, {<h>, <h>};")
    needs = MERGING[:2] if shapes[0].startswith("add") else ()
    assert has_fault_of(first, written(*needs, *shapes)) == known


def test_a_finding_becomes_a_case_that_fails_with_the_assembler_at_fault(tmp_path):
    run = judged(tmp_path, "xor.b32")
    (place, *_) = files.write(tmp_path / "cases", run.state.findings.values(), (), TARGET)
    (case,) = load(place / "case.py")
    words = json.loads((place / "words.json").read_text())
    assert case.case.variants["program"].text == (place / "program.ptx").read_text()
    given = np.array(words["inputs"], np.uint32)
    right = emulated(case.case.variants["program"].text, "p0", given)
    assert right.tolist() == words["expected"]
    right = assembler(FLIPPING, 0).label
    story = files.story(next(iter(run.state.findings.values())))
    for part in ("ptxas 99.9.1 -O3", f"{right} gives", "developer.nvidia.com/bugs", f"assemble with {right}"):
        assert part in story


def test_the_command_finds_a_crash_and_resumes_its_journal(tmp_path, capsys):
    words = [
        "fuzz",
        "--output",
        str(tmp_path),
        "--assembler",
        FLIPPING,
        "--opt",
        "3",
        "--family",
        "bits",
        "--no-gpu",
        "--batch",
        "4",
    ]
    assert main([*words, "--programs", "4", "--jobs", "1"]) == 1
    said = capsys.readouterr().out
    assert "4 programs" in said
    assert "crashed" in said
    assert main([*words, "--programs", "4"]) == 2  # the folder has a campaign already
    assert main([*words, "--programs", "4", "--resume"]) == 1


@pytest.mark.slow
def test_without_the_report_extra_the_command_says_so_first_and_writes_text(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    words = ["fuzz", "--output", str(tmp_path), "--assembler", FLIPPING, "--opt", "3", "--family", "bits", "--no-gpu"]
    assert main([*words, "--batch", "4", "--programs", "4", "--jobs", "1"]) == 1
    said = capsys.readouterr().out
    assert said.startswith(
        "the page on the findings needs altair: pip install 'ptxdiff[report]'; without it, they are "
    )
    assert said.splitlines()[-1].startswith("findings: ")
    assert list(tmp_path.rglob("finding.json"))
    assert not list(tmp_path.rglob("*.html"))


@pytest.mark.parametrize(
    "words",
    [["--assembler", "/no/such"], ["--family", "bitz"], ["--family", "bits=x"], ["--avoid", "/no/such"],
     ["--target", "sm_75"], ["--target", "sm_1"]],
)  # fmt: skip
def test_invalid_options_are_usage_errors(words, tmp_path, capsys):
    assert main(["fuzz", "--output", str(tmp_path), *words]) == 2
    assert words[0] in capsys.readouterr().err


def test_a_path_that_is_no_ptxas():
    with pytest.raises(NoAssembler, match="release"):
        assembler("/bin/true", 3)


# without a GPU -------------------------------------------------------------------------------------------------------


def _on_the_cpu(fault, monkeypatch, by=None):
    """The judgement on one program of a campaign whose machine code runs on the CPU."""
    made = by or tuple(assembler(bundled(TARGET).path, level) for level in (0, 3))
    plan_ = FuzzPlan("a", TARGET, 90, made, {"bits": 1.0}, batch=1, interpreted=True)
    judge = BatchJudge(plan_, MachineCodeInterpreter(TARGET))
    judge.differs(fault, "a/0", made[-1])
    return judge.findings


def _program():
    inputs, result = (Variable("r", 0), Variable("r", 1)), Variable("r", 9)
    return RandomProgram((Statement("xor.b32 {w0}, {r0}, {r1};", (result,), inputs),), (result, "0", "0", "0"))


def _planted(monkeypatch, opcode, definition):
    rows = [dataclasses.replace(r, definition=definition) for r in ROWS[opcode]]
    plant(monkeypatch, opcode, rows)


def _conjunction(a: int, b: int, c: int, lut: int) -> int:
    return a & b


def test_a_wrong_row_accuses_nobody(monkeypatch):
    """With a wrong definition of LOP3 the machine code of every level gives other bits than the PTX."""
    _planted(monkeypatch, "LOP3", _conjunction)
    (found,) = _on_the_cpu(_program(), monkeypatch)
    assert found.kind == "unsettled"
    assert found.interpreted
    assert found.expected != found.given
    assert "LOP3" in found.first_difference


def test_a_form_that_is_not_taught_accuses_nobody(monkeypatch, tmp_path):
    """A fault that is real, while nothing is believed."""
    fault = json.loads(Path(__file__).with_name("ptxas_faults.json").read_text())[3]
    path = release("12.8", "12.9")
    inputs = np.tile(np.array(fault["inputs"], np.uint32), (128, 1))
    assert interpreted_proof(fault["text"], TARGET, assembler(path, 3), inputs, 0)[0] == ""
    monkeypatch.setattr(taught, "PATH", tmp_path / "none")
    assert "is not taught" in interpreted_proof(fault["text"], TARGET, assembler(path, 3), inputs, 0)[0]


def test_words_that_threaded_code_alone_gives_accuse_nobody(monkeypatch):
    """A mistake in it must not become a fault of an assembler: before it accuses one, Python runs the steps again."""
    original = execution._interpreted

    def mistaken(code, inputs):
        outputs, ran = original(code, inputs)
        optimised = len(code.function.instructions) < 40
        return outputs ^ 1 if optimised else outputs, ran

    monkeypatch.setattr(execution, "_interpreted", mistaken)
    (finding,) = _on_the_cpu(_program(), monkeypatch)
    assert finding.kind == "unsettled"
    assert "in Python" in finding.words


@pytest.mark.slow
@pytest.mark.parametrize(("levels", "runs"), [([], 8), (["--opt=0", "--opt=3"], 16)])
def test_without_a_gpu_machine_code_runs_on_the_cpu(tmp_path, capsys, levels, runs):
    """At level 3 alone, unless others are asked for."""
    options = ["--no-gpu", "--programs=8", "--batch=8", "--jobs=1", "--family=integer", f"--target={TARGET}", *levels]
    assert main(["fuzz", f"--output={tmp_path / 'found'}", *options]) == 0
    said = capsys.readouterr().out
    assert "machine code on the CPU" in said
    assert f"8 programs, {runs} runs" in said
    assert "-O3" in said
    assert ("-O0" in said) is bool(levels)


@pytest.mark.slow
def test_a_finding_of_one_level_is_that_of_two(monkeypatch):
    """A finding is tried at every level of its ptxas, so a campaign at level 3 alone accuses as one at two does."""
    original = execution._interpreted

    def mistaken(code, inputs):
        outputs, ran = original(code, inputs)
        return outputs ^ (len(code.function.instructions) < 40), ran

    monkeypatch.setattr(execution, "_interpreted", mistaken)
    monkeypatch.setattr(judging, "plainly_interpreted", lambda code, inputs: mistaken(code, inputs)[0])
    levels = [assembler(bundled(TARGET).path, level) for level in (0, 3)]
    one, both = (_on_the_cpu(_program(), monkeypatch, by) for by in (levels[1:], levels))
    assert one == both
    assert any("-O0" in label for label in one[0].right)
    assert any("-O3" in label for label in one[0].assemblers)


@pytest.mark.parametrize("what", ["the schedule", "undefined bits"])
def test_machine_code_that_depends_on_what_the_program_does_not_decide(monkeypatch, what):
    """ptxas is not accused of words: a GPU may give the right ones."""
    original = execution._interpreted

    def dependent(code, inputs):
        optimised = len(code.function.instructions) < 40
        return execution.NotRead(f"byte 0 depends on {what}", what) if optimised else original(code, inputs)

    monkeypatch.setattr(execution, "_interpreted", dependent)
    (finding,) = _on_the_cpu(_program(), monkeypatch)
    assert finding.kind == f"depends on {what}"
    assert finding.words == f"byte 0 depends on {what}"
    assert not finding.given


def _run_alone(text, writes):
    """What the CPU gives for the machine code of one statement at level 0."""
    made = tuple(Variable(kind, 9 + k) for k, kind in enumerate(writes))
    one = RandomProgram((Statement(text, made, (Variable("r", 0),)),), (made[0], "0", "0", "0"))
    done = assembler(bundled(TARGET).path, 0).assemble(text_of([one], TARGET), TARGET)
    assert done.ended == "assembled", done.words
    (found,) = MachineCodeInterpreter(TARGET).run(done.cubin, [inputs_of("a/0")])
    return found


def test_words_that_depend_on_the_schedule_are_seen_where_all_schedules_run_at_once():
    """Each pair of threads stores to one word, on two sides of a branch, and reads what came last."""
    text = """and.b32 {w0}, %thread, 1; mul.wide.u32 {w1}, {w0}, 16; sub.u64 {w1}, %out, {w1};
setp.eq.u32 {w2}, {w0}, 0; @{w2} bra {l0}; st.global.u32 [{w1}], 1; bra {l1};
{l0}: st.global.u32 [{w1}], 2;
{l1}: ld.global.u32 {w0}, [{w1}];"""
    found = _run_alone(text, "rdp")
    assert isinstance(found, NotRead)
    assert found.depends == "the schedule"
    assert "order in which the sides of a branch run" in found.words


def test_words_that_depend_on_undefined_bits_are_seen_where_all_schedules_run_at_once():
    found = _run_alone("xor.b32 {w0}, {w1}, {r0};", "rr")
    assert isinstance(found, NotRead)
    assert found.depends == "undefined bits"
    assert "undefined bits" in found.words
