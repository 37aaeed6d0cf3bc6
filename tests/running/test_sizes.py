"""Kernels that are wrong at one size, for one program or at one alignment: which runs see it at quick effort."""

import numpy as np
import pytest

from ptxdiff import Case, kernel, ptx
from ptxdiff.backends import create
from ptxdiff.comparing.files import compare_files
from ptxdiff.jobs import Setup
from ptxdiff.model.load import LoadedCase
from ptxdiff.references import bits
from ptxdiff.references.formats import U32
from ptxdiff.running.item import Item
from ptxdiff.running.plan import LARGEST, MANY, plan, sizes_beside
from ptxdiff.running.replay import parse, token
from ptxdiff.running.run import run_item

pytest.importorskip("torch")

COUNTED = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n)
{
  .reg .pred p, q; .reg .b32 %r<9>; .reg .b64 %d<9>;
  mov.u32 %r1, %ctaid.x; mov.u32 %r0, %tid.x; mad.lo.u32 %r0, %r1, THREADS, %r0;
  ld.param.u32 %r3, [n]; ld.param.u64 %d0, [x]; ld.param.u64 %d1, [y];
  setp.ge.u32 q, %r0, %r3; @q bra E;
  mov.u32 %r6, %r0; setp.ne.u32 p, %r3, %r3; WRONG
  mul.wide.u32 %d2, %r6, 4; add.s64 %d3, %d0, %d2; mul.wide.u32 %d2, %r0, 4; add.s64 %d4, %d1, %d2;
  ld.global.u32 %r4, [%d3]; popc.b32 %r5, %r4; @p add.u32 %r5, %r5, 1; st.global.u32 [%d4], %r5;
E: ret;
}"""


def case_of(wrong: str, threads: int = 64) -> Case:
    text = COUNTED.replace("THREADS", str(threads)).replace("WRONG", wrong)
    variant = ptx(text, grid=f"ceil(n/{threads})", block=threads, parameters=["x", "y", "n"])
    return Case(inputs={"x": U32}, outputs={"y": U32}, reference=bits.popc, variants={"v": variant}, source="a test")


def failing(case: Case, path, *, first: bool = False) -> set[tuple[str, int]]:
    """The shape and the alignment of each result that shows a fault. first: of the first one alone."""
    item = Item(LoadedCase(case, "sized", "case", path, ""), "v", "sm_90a", "emulator")
    results = run_item(item, create("emulator"), "quick", stop=first).results
    assert {r.verdict for r in results} <= {"pass", "fail"}
    return {(r.key.shape, r.key.alignment) for r in results if r.verdict == "fail"}


def test_a_right_kernel_passes_at_every_size(tmp_path):
    assert failing(case_of(""), tmp_path / "c.py") == set()


def test_a_grid_that_raises_costs_its_sizes_alone(tmp_path):
    def grid(sizes):
        assert sizes["n"] <= 65536, "too many"
        return (-(-sizes["n"] // 64),)

    text = COUNTED.replace("THREADS", "64").replace("WRONG", "")
    variant = ptx(text, grid=grid, block=64, parameters=["x", "y", "n"])
    case = Case(inputs={"x": U32}, outputs={"y": U32}, reference=bits.popc, variants={"v": variant}, source="a test")
    item = Item(LoadedCase(case, "sized", "case", tmp_path / "c.py", ""), "v", "sm_90a", "emulator")
    results = run_item(item, create("emulator"), "quick").results
    assert "pass" in {r.verdict for r in results}
    assert {r.verdict for r in results if r.key.shape == str(MANY)} == {"error"}


WRONG = {
    "one size": ("setp.eq.u32 p, %r3, 12345;", 64, {("12345", 16)}),
    "a small size": ("setp.eq.u32 p, %r3, 77;", 64, {("77", 16)}),
    "from a size on": ("setp.gt.u32 p, %r3, 400000;", 64, {("400001", 16)}),
    "one program": ("setp.eq.u32 p, %r1, 256;", 1024, {(str(258 * 1024 - 1023), 16)}),
    "an index of 16 bits": ("and.b32 %r6, %r0, 65535;", 64, {(str(MANY), 16)}),
    "an index of 17 bits, without the number": ("shl.b32 %r6, %r0, 15; shr.u32 %r6, %r6, 15;", 64, {(str(MANY), 16)}),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_at_one_size_or_program_fails_there(name, tmp_path):
    wrong, threads, where = WRONG[name]
    assert failing(case_of(wrong, threads), tmp_path / "c.py", first=True) == where


def test_what_is_wrong_at_one_alignment_fails_there(tmp_path):
    """Sixteen and four bytes are right, and eight are not."""
    wrong = "and.b64 %d5, %d0, 15; setp.eq.u64 p, %d5, 8;"
    assert {alignment for _, alignment in failing(case_of(wrong), tmp_path / "c.py")} == {8}


@pytest.mark.parametrize(
    ("wrong", "alignments"),
    [
        ("and.b64 %d5, %d0, 15; and.b64 %d6, %d1, 15; setp.lt.u64 p, %d5, %d6;", {4, 8}),
        ("sub.s64 %d5, %d0, %d1; and.b64 %d5, %d5, 15; setp.eq.u64 p, %d5, 8;", {8}),
    ],
    ids=["the output", "eight bytes apart"],
)
def test_what_is_wrong_where_one_pointer_is_misaligned_alone_fails_there(wrong, alignments, tmp_path):
    assert {found for _, found in failing(case_of(wrong), tmp_path / "c.py")} == alignments


def test_a_replay_has_the_tensor_that_is_misaligned():
    setup = Setup(shape=(5,), alignment=4, misaligned="y")
    units = {"x": np.arange(5, dtype=np.uint32)}
    case = case_of("")
    assert parse(token(setup, units, 3), case).setup.misaligned == "y"


def test_a_whole_kernel_in_ptx_runs_at_each_alignment_at_full_effort():
    variant = case_of("").variants["v"]
    case = Case(
        inputs={"x": U32["n"]},
        outputs={"y": U32["n"]},
        reference=bits.popc,
        variants={"v": variant},
        sizes=[{"n": 100}],
        source="a test",
    )
    items = plan(case, variant, "emulator", "full", "sm_90a")
    assert {i.setup.alignment for i in items} == {16, 8, 4}


def test_the_reference_of_a_whole_kernel_gets_its_sizes_alone(tmp_path):
    """Sets of inputs of elementwise cases, of any length, can take a product of matrices gigabytes."""
    lengths = set()

    def reference(x):
        lengths.add(len(x))
        return bits.popc(x)

    case = Case(
        inputs={"x": U32["n"]}, outputs={"y": U32["n"]}, reference=reference, sizes=[{"n": 100}],
        variants=case_of("").variants, source="a test",
    )  # fmt: skip
    assert failing(case, tmp_path / "c.py") == set()
    assert lengths == {100}


def test_a_size_that_is_larger_than_the_largest_is_not_run():
    sizes = sizes_beside(case_of(f"setp.eq.u32 p, %r3, {LARGEST + 2};").variants["v"])
    assert max(sizes) <= LARGEST
    assert MANY in sizes


def test_programs_that_no_launch_here_has_add_nothing():
    """With one program for all elements, a number of programs leads to no size."""

    def one(x, y, n):
        pass

    variant = kernel(one, grid=(1,), meta={"BLOCK": 300})
    assert sizes_beside(variant) == (299, 300, 301, MANY)


@pytest.mark.slow
def test_two_files_that_are_compared_run_at_the_same_sizes(tmp_path):
    """A number of programs leads to a larger size where a program has more elements."""
    one, two = (case_of("setp.eq.u32 p, %r3, 4000;", threads).variants["v"] for threads in (64, 128))
    assert max(sizes_beside(one)) == MANY < max(sizes_beside(two))
    case = case_of("")
    loaded = LoadedCase(case, "sized", "case", tmp_path / "c.py", "")
    found = compare_files(loaded, {"a.ptx": one, "b.ptx": two}, "sm_90a")
    assert found.verdict == "equal"
    assert any(str(max(sizes_beside(two))) in where for where in found.runs)
    assert {f.wrong > 0 for f in found.files} == {True}


@pytest.mark.parametrize("backend", ["emulator", "gpu"])
def test_plans_of_backends_that_run_code_have_the_sizes(backend):
    case = case_of("setp.eq.u32 p, %r3, 12345;")
    shapes = {i.setup.shape for i in plan(case, case.variants["v"], backend, "quick", "sm_90a")}
    assert {(12344,), (12345,), (12346,)} <= shapes
    assert max(n for n, *_ in filter(None, shapes)) == 12346 * 64 + 1  # the programs up to that number, and one more
    assert not {(12345,)} & {i.setup.shape for i in plan(case, case.variants["v"], "assembler", "quick", "sm_90a")}
