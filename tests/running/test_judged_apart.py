"""Cases that judge next to nothing, or by what is to be judged: references that run the emulator, narrow where=."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from ptxdiff import Case, Domain, asm, emulate, emulated, ptx
from ptxdiff.backends import create
from ptxdiff.emulator import judging_emulated, trace
from ptxdiff.emulator.independence import JudgesItself
from ptxdiff.jobs import Outcome
from ptxdiff.model.load import LoadedCase
from ptxdiff.model.reference import ReferenceFault
from ptxdiff.records import UNPROVED
from ptxdiff.references import bits
from ptxdiff.references.formats import U8, U32
from ptxdiff.running import shard_worker
from ptxdiff.running.item import Item
from ptxdiff.running.run import jobs, judge_job, run_item
from ptxdiff.sweep.shards import Task

torch = pytest.importorskip("torch")

NOT = ("not.b32 $0, $1;", "=r,r")


def by_emulator(x):
    """The very asm under test, on the emulator."""
    return torch.from_numpy(emulate(*NOT, [x.numpy().astype(np.uint32)], np.uint32).astype(np.int64))


def item_of(text, path, reference=by_emulator, backend="emulator", **more) -> Item:
    formats = {"inputs": {"x": U32}, "outputs": {"y": U32}} | more
    variants = {"v": asm(text, constraints="=r,r")}
    case = Case(reference=reference, variants=variants, source="a test", **formats)
    return Item(LoadedCase(case, "apart", "case", path, ""), "v", "sm_90a", backend)


def run(item: Item):
    return run_item(item, create("emulator"), "quick").results


def test_the_emulator_is_no_reference_of_its_own_results(tmp_path):
    results = run(item_of(NOT[0], tmp_path / "c.py"))
    assert {r.verdict for r in results} == {"error"}
    assert "must not run the emulator" in results[0].message


def test_results_of_a_gpu_may_be_compared_with_the_emulators(tmp_path):
    item = item_of(NOT[0], tmp_path / "c.py", backend="gpu")
    backend = create("emulator")
    _, job = next(jobs(item, backend, "quick"))
    outcome = Outcome("ran", outputs={"y": ~job.inputs["x"]})

    class Gpu:
        name = "gpu"

    assert judge_job(item, Gpu(), job, outcome).passed


def test_nothing_that_runs_the_emulator_judges_it():
    for run_asm in (emulate, trace):
        run_asm(*NOT, [np.array([1], np.uint32)], np.uint32)
        with judging_emulated(), pytest.raises(JudgesItself):
            run_asm(*NOT, [np.array([1], np.uint32)], np.uint32)
        with judging_emulated(False):
            run_asm(*NOT, [np.array([1], np.uint32)], np.uint32)


def test_whole_kernels_do_not_judge_either():
    pytest.importorskip("triton")
    from tests.support.running.judged_kernels import doubled

    x, y = np.arange(4, dtype=np.uint32), np.zeros(4, dtype=np.uint32)
    emulated(doubled, target="sm_90a")[(1,)](x, y)
    assert y.tolist() == [0, 2, 4, 6]
    with judging_emulated(), pytest.raises(JudgesItself):
        emulated(doubled, target="sm_90a")[(1,)](x, y)


def remarks(results) -> list[str]:
    return [n for r in results for n in r.notes if n.startswith(UNPROVED)]


@pytest.mark.parametrize(("most", "left"), [(1, "1"), (8, "8"), (1 << 31, "")])
def test_a_result_says_on_how_few_inputs_it_rests(most, left, tmp_path):
    domain = Domain("below", lambda v: v["x"] < most)
    results = run(item_of("popc.b32 $0, $1;", tmp_path / "c.py", bits.popc, where=domain))
    assert {r.verdict for r in results} == {"pass"}
    found = remarks(results)
    assert [f"leaves {left} different" in n for n in found] == [True] * bool(left)


def test_of_formats_of_few_bits_a_part_is_enough(tmp_path):
    domain = Domain("a digit", lambda v: v["x"] < 10)
    text = "and.b32 $0, $1, 0x7F7F7F7F;"
    variants = {"v": asm(text, constraints="=r,r", pack=4)}
    case = Case(
        inputs={"x": U8},
        outputs={"y": U8},
        reference=lambda x: x & 127,
        variants=variants,
        where=domain,
        source="a test",
    )
    item = Item(LoadedCase(case, "digits", "case", tmp_path / "c.py", ""), "v", "sm_90a", "emulator")
    results = run(item)
    assert {r.verdict for r in results} == {"pass"}
    assert remarks(results) == []


def test_given_ptx_has_the_remark_too(tmp_path):
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n)
{
  .reg .pred q; .reg .b32 %r<9>; .reg .b64 %d<9>;
  mov.u32 %r1, %ctaid.x; mov.u32 %r0, %tid.x; mad.lo.u32 %r0, %r1, 64, %r0;
  ld.param.u32 %r3, [n]; ld.param.u64 %d0, [x]; ld.param.u64 %d1, [y];
  setp.ge.u32 q, %r0, %r3; @q bra E;
  mul.wide.u32 %d2, %r0, 4; add.s64 %d3, %d0, %d2; add.s64 %d4, %d1, %d2;
  ld.global.u32 %r4, [%d3]; st.global.u32 [%d4], %r4;
E: ret;
}"""
    variants = {"v": ptx(text, grid="ceil(n/64)", block=64, parameters=["x", "y", "n"])}
    case = Case(
        inputs={"x": U32},
        outputs={"y": U32},
        reference=lambda x: x,
        variants=variants,
        where=Domain("four", lambda v: v["x"] < 4),
        source="a test",
    )
    results = run(Item(LoadedCase(case, "four", "case", tmp_path / "c.py", ""), "v", "sm_90a", "emulator"))
    assert len(remarks(results)) == 1


def test_an_answer_for_another_machine_is_no_answer_for_the_emulator(tmp_path):
    item = item_of(NOT[0], tmp_path / "c.py")
    backend = create("emulator")
    _, job = next(jobs(item_of(NOT[0], tmp_path / "c.py", lambda x: x), backend, "quick"))
    job = replace(job, case=item.loaded.case, variant=item.variant)
    outcome = Outcome("ran", outputs={"y": ~job.inputs["x"]})

    class Gpu:
        name = "gpu"

    assert judge_job(item, Gpu(), job, outcome).passed
    with pytest.raises(ReferenceFault, match="must not run the emulator"):
        judge_job(item, backend, job, outcome)


def test_a_thread_of_a_reference_is_refused_too(tmp_path):
    def in_a_thread(x):
        with ThreadPoolExecutor(1) as threads:
            return threads.submit(by_emulator, x).result()

    results = run(item_of(NOT[0], tmp_path / "c.py", in_a_thread))
    assert {r.verdict for r in results} == {"error"}


def test_a_table_made_while_inputs_are_planned_is_refused(tmp_path):
    made = {}

    def from_a_table(x):
        if "table" not in made:
            made["table"] = emulate(*NOT, [np.arange(256, dtype=np.uint32)], np.uint32)
        return torch.from_numpy((made["table"][x.numpy() & 255] | ~x.numpy() & ~255 & 0xFFFFFFFF).astype(np.int64))

    results = run(item_of(NOT[0], tmp_path / "c.py", from_a_table))
    assert {r.verdict for r in results} == {"error"}
    assert not made


def test_sweeps_on_the_emulator_are_refused_too(tmp_path):
    item = item_of(NOT[0], tmp_path / "c.py")
    task = Task(str(item.loaded.path), "apart", "v", "emulator", "sm_90a", pack=1, bits=32, shard_bits=8)
    (tmp_path / "c.py").touch()
    done = shard_worker.run_shard(item, create("emulator"), task, 0)
    assert done.verdict == "error"
    assert "must not run the emulator" in done.words
