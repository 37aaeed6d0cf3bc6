"""The smaller plan of machine code in `auto`: what it runs, that it says so, and that nothing is lost by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import triton

from ptxdiff import Case, asm, kernel
from ptxdiff.backends import BACKENDS, compiled, create
from ptxdiff.backends import sass as machine_code
from ptxdiff.backends.emulator import EmulatorBackend
from ptxdiff.backends.kept import KeptOutcomes
from ptxdiff.emulator import TimeLimit
from ptxdiff.jobs import DisassemblingBackend, Job, Outcome
from ptxdiff.model.load import LoadedCase, load
from ptxdiff.model.targets import KNOWN
from ptxdiff.model.variants import REVERSED, AsmVariant, ExpectedFailure
from ptxdiff.records import PTXAS, Result, brief_counts, brief_words, read
from ptxdiff.references.formats import F16, F32, U32
from ptxdiff.running import ptxas_fault
from ptxdiff.running.assemblers import tritons_options
from ptxdiff.running.item import Item
from ptxdiff.running.item_plan import ItemPlan
from ptxdiff.running.plan import WorkItem
from ptxdiff.running.run import jobs, run_item
from ptxdiff.sass.text import MachineFault, ScheduleDependence
from ptxdiff.triton.launch import launch_of
from ptxdiff.triton.ptxas import assembler_at
from ptxdiff.triton.targets import tool
from tests.support.planting import CASES
from tests.support.sampling import spread

TARGET = "sm_90a"
FLIP = """
from ptxdiff import Case, asm
from ptxdiff.references.formats import I32

def flip(x):
    return x ^ 1

case = Case(inputs={"x": I32}, outputs={"y": I32}, reference=flip, variants={"asm": asm("xor.b32 $0, $1, 1;")})
"""


def _flipped(x):
    return x ^ 1


FLIPPED = Case(inputs={"x": U32}, outputs={"y": U32}, reference=_flipped, variants={"asm": asm("xor.b32 $0, $1, 1;")})


def _item(case: Case, name: str = "asm", target: str = TARGET) -> Item:
    return Item(LoadedCase(case, "c", "case", Path(__file__), ""), name, target, "sass")


@pytest.fixture
def brief():
    """A backend of its own for each test, as one keeps its runs of machine code."""
    made = create("sass", brief=True)
    if words := made.unavailable(TARGET):
        pytest.skip(words)
    return made


def _whole_results(item: Item) -> list[Result]:
    """The results of the whole plan, whose kernels nvdisasm reads together: each of its starts takes as long."""
    backend = create("sass")
    assert isinstance(backend, DisassemblingBackend)
    backend.disassemble_ahead([job for _, job in jobs(item, backend, "quick") if job])
    return run_item(item, backend, "quick").results


def _catalogue() -> list[Item]:
    names = ("add_half", "f32x2", "byte_permute", "matmul", "rotary_in_place", "cuda_fma", "sigmoid")
    loaded = [case for name in names for case in load(CASES / f"{name}.py")]
    return [Item(c, name, TARGET, "sass") for c in loaded for name in list(c.case.variants)[:2]]


def _case_and_variant(item: Item) -> str:
    return f"{item.loaded.name}::{item.variant_name}"


@pytest.mark.sample(4)
@pytest.mark.parametrize("item", spread(_catalogue(), 3, lambda i: [i.loaded.path], _case_and_variant))
def test_it_is_a_part_of_the_whole_plan(item):
    """Records of a run with the whole plan then have every key of one with the smaller plan, so that gates compare."""
    whole = {k for k, _ in ItemPlan(item, create("sass"), "quick").jobs()}
    part = {k for k, _ in ItemPlan(item, create("sass", brief=True), "quick").jobs()}
    assert part
    assert part < whole


@pytest.mark.sample(3)
@pytest.mark.parametrize("item", _catalogue(), ids=lambda i: f"{i.loaded.name}::{i.variant_name}")
def test_it_compiles_nothing_that_the_assembler_does_not(item):
    """Else each item would wait for Triton and ptxas, which takes most of a run."""
    assembler = replace(item, backend="assembler")
    compiled_too = [job for _, job in jobs(assembler, create("assembler"), "quick")]
    made = {launch_of(job).spec(TARGET) for job in compiled_too}
    more = {launch_of(job).spec(TARGET) for _, job in jobs(item, create("sass", brief=True), "quick")} - made
    short = all(len(job.setup.shape) == 2 or job.setup.shape == (1,) for job in compiled_too)
    assert len(more) == (item.loaded.case.elementwise and short)


@pytest.mark.sample(3)
@pytest.mark.parametrize("item", _catalogue(), ids=lambda i: f"{i.loaded.name}::{i.variant_name}")
def test_the_kernels_that_are_made_ahead_are_those_that_run(item, monkeypatch):
    plan = ItemPlan(item, create("sass", brief=True), "quick")
    run = {launch_of(job).spec(TARGET) for _, job in plan.jobs()}
    plan = ItemPlan(item, create("sass", brief=True), "quick")
    if item.loaded.case.elementwise and isinstance(item.variant, AsmVariant):
        monkeypatch.setattr("ptxdiff.running.plan.sets_of", None)
        monkeypatch.setattr("ptxdiff.running.plan._element_sets", None)  # no inputs have to be made for it
    assert {launch_of(plan.job(WorkItem(setup, ""), {})).spec(TARGET) for setup in plan.kernels()} == run


PAIRS = Case(
    inputs={"x": F16}, outputs={"y": F16}, reference=_flipped,
    variants={
        "asm": asm("xor.b16 $0, $1, 1;", constraints="=h,h"),
        "pair": asm("xor.b32 $0, $1, 0x10001;", constraints="=r,r", pack=2),
    },
)  # fmt: skip


@pytest.mark.parametrize("name", PAIRS.variants)
@pytest.mark.parametrize("target", sorted(KNOWN))
def test_every_target_runs_some_machine_code_on_all_edges(target, name):
    """One whose share of the assembler's rows has one element each would pass on that element."""
    plan = ItemPlan(_item(PAIRS, name, target), create("sass", brief=True), "quick")
    (count,) = (s.count for s in plan.sets() if s.name == "exhaustive/1")
    assert any(k.input_set == "exhaustive/1" and k.shape.isdigit() and int(k.shape) >= count for k, _ in plan.jobs())


@triton.jit
def _unused(x, y):
    """A kernel that is never run."""


@pytest.mark.parametrize("sizes", [[{"n": 0}, {"n": 64}], [{"n": 8, "m": 0}, {"n": 4, "m": 64}]])
def test_a_size_without_elements_is_not_the_smallest(sizes):
    dims = tuple(sizes[0])
    case = Case(
        inputs={"x": F32[dims]}, outputs={"y": F32[dims]}, reference=_flipped, sizes=sizes,
        variants={"v": kernel(_unused, grid=(1,))},
    )  # fmt: skip
    (work,) = ItemPlan(_item(case, "v"), create("sass", brief=True), "quick").work()
    assert work.setup.sizes == sizes[1]


def test_it_runs_all_edges_and_the_words_of_a_pack():
    case = Case(
        inputs={"x": F16}, outputs={"y": F16}, reference=_flipped,
        variants={"asm": asm("add.rn.f16x2 $0, $1, $1;", constraints="=r,r", pack=2)},
    )  # fmt: skip
    plan = ItemPlan(_item(case), create("sass", brief=True), "quick")
    count = {s.name: s.count for s in plan.sets()}
    runs = {k.input_set: int(k.shape) for k, _ in plan.jobs()}
    assert runs.keys() == {"exhaustive/1", "words-2/1"}
    assert all(count[name] <= elements <= count[name] + 16 for name, elements in runs.items())


def test_full_effort_has_everything():
    whole = [k for k, _ in ItemPlan(_item(FLIPPED), create("sass"), "full").jobs()]
    assert [k for k, _ in ItemPlan(_item(FLIPPED), create("sass", brief=True), "full").jobs()] == whole


def test_the_results_say_that_they_are_a_part(brief):
    results = run_item(_item(FLIPPED), brief, "quick").results
    assert {r.verdict for r in results} == {"pass"}
    whole = _whole_results(_item(FLIPPED))
    assert brief_counts(results) == (len(results), len(whole))
    assert brief_counts(whole) == (0, 0)


def test_the_words_can_be_read_again():
    (result,) = run_item(_item(FLIPPED, target="sm_107a"), create("sass", brief=True), "quick").results[:1]
    assert brief_counts([replace(result, notes=(brief_words(3, 40),)), result]) == (3, 40)


def test_an_expected_failure_that_the_part_does_not_show_is_no_failure(brief):
    """Inputs that were left out may be those that fail; the whole plan objects."""
    right = asm("xor.b32 $0, $1, 1;", expected_failure=ExpectedFailure(REVERSED))
    case = replace(FLIPPED, variants={"asm": right})
    assert {r.verdict for r in run_item(_item(case), brief, "quick").results} == {"pass"}
    assert "fail" in {r.verdict for r in _whole_results(_item(case))}


def test_a_part_that_judges_almost_nothing_gives_way_to_the_whole_plan(brief, monkeypatch):
    monkeypatch.setattr(
        "ptxdiff.running.judgements.ItemJudge.too_little",
        lambda judge: "almost nothing" if len(judge.shares) < 4 else "",
    )
    results = run_item(_item(FLIPPED), brief, "quick").results
    assert {r.verdict for r in results} == {"pass"}
    assert len(results) == len(_whole_results(_item(FLIPPED)))


# ---- One computation of the PTX for two backends ---------------------------------------------------------------------


@pytest.fixture
def launches(monkeypatch):
    """Counts the launches of the PTX of kernels. What asm gives alone is not known."""
    counted = []
    monkeypatch.setattr(EmulatorBackend, "asm_alone", lambda *_: Outcome("not run"))

    def launched(*arguments, **options):
        counted.append(arguments[0])
        return real(*arguments, **options)

    real = compiled._launch_once
    monkeypatch.setattr(compiled, "_launch_once", launched)
    return counted


def _job(brief, **inputs) -> Job:
    (job,) = [job for _, job in list(jobs(_item(FLIPPED), brief, "quick"))[:1]]
    return replace(job, inputs=dict(job.inputs) | inputs)


def test_the_bits_of_ptx_are_those_of_the_very_same_inputs(brief, launches):
    kept = KeptOutcomes()
    emulator, sass = create("emulator", kept=kept), create("sass", kept=kept)
    job = _job(brief)
    assert emulator.run(job).status == "ran"
    launches.clear()
    assert sass.run(job).status == "ran"
    assert not launches

    changed = job.inputs["x"].copy()
    changed.view(np.uint32)[7] ^= 1 << 31
    assert sass.run(replace(job, inputs={"x": changed})).status == "ran"
    assert len(launches) == 1
    assert sass.run(replace(job, setup=replace(job.setup, alignment=4))).status == "ran"
    assert len(launches) == 2


def test_the_bits_of_asm_alone_are_those_of_the_very_same_inputs(brief, monkeypatch):
    """The emulator's run of asm alone on the same inputs serves machine code in any kernel around it."""
    counted, real = [], EmulatorBackend._execute

    def executed(*arguments):
        counted.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(EmulatorBackend, "_execute", executed)
    kept = KeptOutcomes()
    emulator, sass, job = create("emulator", kept=kept), create("sass", kept=kept), _job(brief)
    assert emulator.run(replace(job, setup=replace(job.setup, alone=True))).status == "ran"
    assert len(counted) == 1
    assert sass.run(job).status == "ran"
    assert sass.run(replace(job, setup=replace(job.setup, alignment=4, num_warps=8))).status == "ran"
    assert len(counted) == 1

    changed = job.inputs["x"].copy()
    changed.view(np.uint32)[7] ^= 1 << 31
    assert sass.run(replace(job, inputs={"x": changed})).status == "ran"
    assert len(counted) == 2


def test_backends_of_their_own_share_nothing(brief, launches):
    job = _job(brief)
    assert create("emulator").run(job).status == "ran"
    launches.clear()
    assert create("sass").run(job).status == "ran"
    assert launches


def _flip(monkeypatch, mask: int) -> None:
    """From now on a tensor that was run has an element with other bits, where `mask` has ones."""
    real = machine_code.EmulatedTensor.read

    def flipped(tensor):
        bits = np.array(real(tensor))
        bits.view(np.uint32)[3] ^= mask
        return bits

    monkeypatch.setattr(machine_code.EmulatedTensor, "read", flipped)


def test_other_bits_than_the_kept_ones_are_no_result(brief, monkeypatch):
    """The machine code runs, whatever is kept: its own bits decide."""
    kept = KeptOutcomes()
    job = _job(brief)
    assert create("emulator", kept=kept).run(job).status == "ran"
    _flip(monkeypatch, 1)
    outcome = create("sass", kept=kept).run(job)
    assert outcome.status == "not run"
    assert "unsettled" in outcome.words


@pytest.mark.parametrize("wrong", [False, True])
def test_an_untaught_form_hides_no_other_bits(brief, monkeypatch, wrong):
    kept = KeptOutcomes()
    job = _job(brief)
    assert create("emulator", kept=kept).run(job).status == "ran"
    _flip(monkeypatch, int(wrong))
    monkeypatch.setattr(machine_code, "unsettled", lambda forms, target: ["LOP3"])
    outcome = create("sass", kept=kept).run(job)
    assert (outcome.status, outcome.doubtful, outcome.suspected) == ("not run", wrong, {})
    assert "LOP3 is not taught" in outcome.words
    assert ("1 elements differ" in outcome.words) == wrong


def test_a_finding_of_machine_code_is_not_lost(brief, monkeypatch):
    kept = KeptOutcomes()
    job = _job(brief)
    assert create("emulator", kept=kept).run(job).status == "ran"

    def depends(*_, **__):
        raise ScheduleDependence("byte 0 of y depends on the order")

    monkeypatch.setattr(machine_code, "run_machine_code", depends)
    outcome = create("sass", kept=kept).run(job)
    assert (outcome.status, outcome.outputs) == ("not run", {})
    assert machine_code.SCHEDULE in outcome.words


# ---- A part that does not settle whether machine code is wrong -------------------------------------------------------


WRONG_ABOVE_LEVEL_0 = """#!/bin/bash
level=3
for argument in "$@"; do
  case $argument in -O0 | --opt-level=0) level=0 ;; *.ptx) text=$argument ;; esac
done
if [ -n "$text" ] && [ $level != 0 ]; then
  sed 's/xor[.]b32/or.b32/' "$text" > "$text.wrong.ptx"
  set -- "${@/%$text/$text.wrong.ptx}"
fi
exec PTXAS "$@"
"""


@pytest.fixture
def wrong_ptxas(tmp_path):
    """A ptxas that makes other machine code of xor than level 0 does."""
    path = tmp_path / "ptxas"
    path.write_text(WRONG_ABOVE_LEVEL_0.replace("PTXAS", str(tool("ptxas"))))
    path.chmod(0o755)
    return str(path)


@pytest.mark.sample(2)
@pytest.mark.parametrize("part", [True, False])
def test_a_doubtful_result_ends_no_plan(brief, monkeypatch, wrong_ptxas, part):
    """The first launches differ from their PTX, but have a form that is not taught; others have taught forms alone."""
    untaught = [["P2R"]] * (sum(1 for _ in jobs(_item(FLIPPED), brief, "quick")) if part else 1)
    monkeypatch.setattr(machine_code, "unsettled", lambda *_: untaught.pop() if untaught else [])
    monkeypatch.setattr(ptxas_fault, "REDUCING", 0.0)
    ptxas = assembler_at(wrong_ptxas, 3, options=tritons_options(TARGET))
    backend = brief if part else create("sass")
    results = run_item(_item(FLIPPED), backend, "quick", stop=True, assemblers=(ptxas,)).results
    assert not untaught
    assert (results[-1].verdict, results[-1].diagnosis) == ("fail", PTXAS)
    assert brief_counts(results) == (0, 0)


def test_an_untaught_part_with_the_bits_of_its_ptx_stays_a_part(brief, monkeypatch):
    monkeypatch.setattr(machine_code, "unsettled", lambda forms, target: ["LOP3"])
    results = run_item(_item(FLIPPED), brief, "quick").results
    assert [r.verdict for r in results] == ["not run"]


@pytest.mark.parametrize("fault", [ScheduleDependence("byte 0 depends"), MachineFault("a trap")])
def test_a_fault_in_a_part_is_looked_for_in_the_whole_plan(brief, monkeypatch, fault):
    def fails(*_, **__):
        raise fault

    monkeypatch.setattr(machine_code, "run_machine_code", fails)
    results = run_item(_item(FLIPPED), brief, "quick").results
    assert {r.verdict for r in results} == {"not run"}
    assert len(results) == sum(1 for _ in jobs(_item(FLIPPED), create("sass"), "quick")) > 3


def test_a_time_limit_ends_the_plan(brief, monkeypatch):
    """Each other run would wait as long."""

    def fails(*_, **__):
        raise TimeLimit("its time is over")

    monkeypatch.setattr(machine_code, "run_machine_code", fails)
    assert len(run_item(_item(FLIPPED), brief, "quick").results) == 1


# ---- A run of pytest -------------------------------------------------------------------------------------------------


@pytest.fixture
def kernels(monkeypatch, brief):
    monkeypatch.delenv("PTXDIFF_ASM_ALONE")


def test_auto_runs_a_part_and_a_name_the_whole(run_cases, kernels, pytester):
    result = run_cases(f"--ptx-target={TARGET}", "--ptx-backend=auto", "--ptx-records=auto.jsonl", flip=FLIP)
    result.assert_outcomes(passed=3, skipped=1)  # without a GPU
    result.stdout.fnmatch_lines(["sass: * of the * runs of the whole plans; --ptx-backend=sass, or full effort, *"])
    part = [r for r in read(pytester.path / "auto.jsonl").results if r.key.backend == "sass"]
    assert brief_counts(part)[0] == len(part)

    named = run_cases(f"--ptx-target={TARGET}", "--ptx-backend=sass", "--ptx-records=named.jsonl", flip=FLIP)
    named.stdout.no_fnmatch_line("sass: *")
    whole = read(pytester.path / "named.jsonl").results
    assert brief_counts(whole) == (0, 0)
    assert {r.key for r in part} < {r.key for r in whole}
    assert not any(r.reused for r in whole)  # a part is never taken for the whole

    both = run_cases(f"--ptx-target={TARGET}", "--ptx-backend=auto", "--ptx-backend=sass", flip=FLIP)
    both.stdout.no_fnmatch_line("sass: *")


def test_a_part_is_not_resumed_as_the_whole(run_cases, kernels):
    options = (f"--ptx-target={TARGET}", "--ptx-records=run.jsonl")
    run_cases(*options, "--ptx-backend=auto", flip=FLIP)
    result = run_cases(*options, "--ptx-backend=sass", "--ptx-resume", flip=FLIP)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*smaller plan of auto*start a new records file*"])


@pytest.mark.parametrize("missing", ["ptxas", "nvdisasm"])
def test_auto_says_why_it_leaves_machine_code_out(run_cases, kernels, monkeypatch, missing):
    from ptxdiff.triton import targets

    real = targets.tool
    monkeypatch.setattr(targets, "tool", lambda name: Path("/nowhere") if name == missing else real(name))
    assert missing in BACKENDS["sass"].missing()
    result = run_cases(f"--ptx-target={TARGET}", "--ptx-backend=auto", "-k", "emulator or sass", flip=FLIP)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"sass: not part of auto here: {missing} is missing*"])


def test_what_machine_code_does_not_settle_fails_nobody_and_is_shown(run_cases, kernels, monkeypatch, tmp_path):
    from ptxdiff.conformance import taught

    monkeypatch.setattr(taught, "PATH", tmp_path / "none.jsonl")
    result = run_cases(f"--ptx-target={TARGET}", "--ptx-backend=auto", "-m", "sass or emulator", flip=FLIP)
    result.assert_outcomes(passed=1, skipped=1)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["not run: * (sass): unsettled: * is not taught for *"])
