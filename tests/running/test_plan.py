"""The plan: each setup occurs once, and some settings are distributed over targets."""

from __future__ import annotations

import itertools

import pytest
import triton

from ptxdiff import Case, asm, kernel, only, plain
from ptxdiff.jobs import block_of
from ptxdiff.model.targets import KNOWN
from ptxdiff.references.formats import F32, U8
from ptxdiff.running.plan import MANY, key_of, plan, sized


@triton.jit
def same(x):
    return x


SUM = "{ .reg .f32 p; mul.f32 p, $1, $1; add.f32 $0, p, $1; }"


def case_of(fmt=F32, **fields) -> Case:
    variant = asm("abs.f32 $0, $1;") if fmt is F32 else asm("mov.b32 $0, $1;", constraints="=r,r", pack=4)
    return Case(**{
        "inputs": {"x": fmt}, "outputs": {"y": fmt}, "reference": lambda x: x, "variants": {"v": variant}, **fields
    })  # fmt: skip


def planned(case: Case, backend: str, effort: str = "quick", target: str = "sm_90a"):
    return plan(case, case.variants["v"], backend, effort, target)


@pytest.mark.parametrize("backend", ["gpu", "emulator"])
def test_every_input_set_goes_through_the_plain_setup_of_every_pack(backend):
    items = planned(case_of(), backend)
    plain = {(i.setup.pack, i.input_set) for i in items if not i.setup.shape}
    sets = ("edges/1", "outputs/1", "random/1", "neighbours/1", "constants/3")
    of_tuples = {(p, f"{name}-{p}/1") for p in (2, 4) for name in ("words",)}  # the asm has no number
    assert plain == set(itertools.product((1, 2, 4), sets)) | of_tuples


SHAPES = {(1,), (255,), (257,), (1009,), (1024,), (7, 129)}


def test_the_targets_of_a_case_together_have_every_pair():
    items = [i for t in KNOWN for i in planned(case_of(carry={"y": "x"}), "emulator", target=t) if i.setup.shape]
    assert {i.input_set for i in items} == {"edges/1"}
    assert {i.shuffled is None for i in items} == {True, False}
    assert all(i.setup.steps == (3 if i.setup.context == "loop" else 1) for i in items)
    compiled = [i.setup for i in items if not i.setup.alone]
    assert {(s.pack, s.num_warps, s.alignment) for s in compiled} > {(4, 8, 16), (1, 1, 4)}
    assert {(s.pack, s.num_warps) for s in compiled} == set(itertools.product((1, 2, 4), (1, 4, 8)))
    assert {(s.pack, s.fusion) for s in compiled} == set(itertools.product((1, 2, 4), (False, True)))
    assert {s.shape for s in compiled if s.pack == 1} >= {(1,), (1024,), (7, 129)}
    assert {(255,), (257,), (1009,)} & {s.shape for s in compiled if s.pack == 1}
    alone = [i.setup for i in items if i.setup.alone]
    assert {(s.pack, s.context) for s in alone} == set(itertools.product((1, 2, 4), ("straight", "loop")))
    assert {s.shape for s in alone if s.pack == 1} == {(1,), (255,), (257,), (1009,), (1024,), (7, 129)}
    assert all(s.padding is not None or s.context == "loop" for s in alone)


@pytest.mark.sample(4)
@pytest.mark.parametrize("backend", ["emulator", "gpu"])
@pytest.mark.parametrize("target", KNOWN)
def test_every_target_shuffles_and_loops_at_every_pack(target, backend):
    """Asm that mixes elements is wrong on each target, and a run on that target must find it without the others."""
    items = planned(case_of(carry={"y": "x"}), backend, target=target)
    assert {i.setup.pack for i in items if i.shuffled is not None} == {1, 2, 4}
    assert {i.setup.pack for i in items if i.setup.context == "loop"} == {1, 2, 4}
    if backend == "emulator":
        padded = [i for i in items if i.setup.padding is not None and i.shuffled is not None]
        assert {i.setup.pack for i in padded if i.setup.shape == (1009,)} == {1, 2, 4}  # with a partial pack


def test_plain_triton_is_shuffled_and_looped_on_every_target_too():
    case = Case(
        inputs={"x": F32}, outputs={"y": F32}, reference=lambda x: x, variants={"v": plain(same)}, carry={"y": "x"}
    )
    for target in KNOWN:
        items = planned(case, "emulator", target=target)
        assert any(i.shuffled is not None for i in items)
        assert any(i.setup.context == "loop" for i in items)


@pytest.mark.sample(4)
@pytest.mark.parametrize("target", KNOWN)
def test_every_target_runs_a_triton_function_with_whole_packs_and_both_fusions(target):
    case = Case(inputs={"x": F32}, outputs={"y": F32}, reference=lambda x: x, variants={"v": plain(same)})
    whole = [i.setup for i in planned(case, "emulator", target=target) if not i.setup.shape]
    assert {s.fusion for s in whole} == {False, True}
    assert {s.block // (32 * s.num_warps) for s in whole} >= {8}  # elements of a thread


@pytest.mark.sample(4)
@pytest.mark.parametrize("target", KNOWN)
@pytest.mark.parametrize(("text", "fusions"), [("add.f32 $0, $1, $1;", {False}), (SUM, {False, True})])
def test_every_target_runs_both_fusions_of_asm_that_may_be_contracted(text, fusions, target):
    case = case_of(variants={"v": asm(text, constraints="=&f,f", pack=1)})
    items = planned(case, "emulator", target=target)
    assert {i.setup.fusion for i in items if not i.setup.shape and i.input_set == "edges/1"} == fusions


@pytest.mark.sample(4)
@pytest.mark.parametrize("target", KNOWN)
def test_every_target_runs_a_kernel_in_every_shape_at_each_alignment(target):
    case = case_of(variants={"v": kernel(same, grid=(1,))})
    for backend in ("emulator", "assembler"):
        rows = [i.setup for i in planned(case, backend, target=target) if i.setup.shape]
        rows = [s for s in rows if s.shape[0] < MANY]
        assert {s.shape for s in rows} == SHAPES - {(7, 129)}
        assert {(len(s.shape), s.alignment, s.fusion) for s in rows} == set(
            itertools.product((1,), (16, 4), (False, True))
        )


@pytest.mark.sample(4)
@pytest.mark.parametrize("target", KNOWN)
@pytest.mark.parametrize("backend", ["emulator", "assembler"])
def test_every_target_compiles_every_text(backend, target):
    texts = {1: ("abs.f32 $0, $1;", "=f,f"), 2: ("abs.f32 $0, $2; abs.f32 $1, $3;", "=&f,=&f,f,f")}
    case = case_of(variants={"v": asm(texts)})
    assert {i.setup.pack for i in planned(case, backend, target=target) if not i.setup.alone} == {1, 2}


def test_a_case_for_one_target_has_every_pair_there():
    items = [i for i in planned(case_of(targets=only("sm_100a")), "emulator", target="sm_100a") if i.setup.shape]
    compiled = [i.setup for i in items if not i.setup.alone]
    assert {(s.pack, s.num_warps) for s in compiled} == set(itertools.product((1, 2, 4), (1, 4, 8)))


def test_which_targets_are_asked_for_changes_no_plan():
    """A key of one run is in every run: a gate would miss it otherwise."""
    case = case_of()
    assert planned(case, "emulator", target="sm_90a") == planned(case, "emulator", target="sm_90a")
    assert planned(case, "emulator", target="sm_90a") != planned(case, "emulator", target="sm_100a")


def test_asm_runs_by_itself_but_for_the_rows_that_are_assembled_too():
    items = planned(case_of(), "emulator")
    inside = [i.setup for i in items if not i.setup.alone]
    assert inside
    assert all(i.setup.alone for i in items if not i.setup.shape)
    assert inside == [i.setup for i in planned(case_of(), "assembler")]


def test_a_device_is_tried_with_misaligned_pointers_and_other_warps():
    items = planned(case_of(), "gpu")
    assert {i.setup.alignment for i in items} == {16, 4}
    assert {i.setup.num_warps for i in items} == {1, 4, 8}


def test_the_assembler_needs_no_inputs():
    items = planned(case_of(carry={"y": "x"}), "assembler")
    assert {i.input_set for i in items} == {"none"}
    assert {i.setup.context for i in items} == {"straight", "loop"}
    everywhere = [i for t in KNOWN for i in planned(case_of(carry={"y": "x"}), "assembler", target=t)]
    packs = {(i.setup.pack, i.setup.context) for i in everywhere}
    assert packs == set(itertools.product((1, 2, 4), ("straight", "loop")))


@pytest.mark.parametrize("backend", ["gpu", "emulator", "assembler"])
@pytest.mark.parametrize("fmt", [F32, U8], ids=str)
def test_no_two_items_have_one_key(backend, fmt):
    items = planned(case_of(fmt), backend)
    keys = [key_of("c", "v", "sm_90a", backend, sized(i, 300)) for i in items]
    assert len(set(keys)) == len(keys)


def test_full_is_more_than_quick():
    quick, full = (planned(case_of(), "gpu", effort) for effort in ("quick", "full"))
    assert len(full) > 5 * len(quick)


@pytest.mark.parametrize(("pack", "block"), [(1, 256), (2, 256), (4, 512), (8, 1024), (3, 512)])
def test_a_thread_has_at_least_one_whole_pack(pack, block):
    assert block_of(pack) == block
    assert block >= 4 * 32 * pack
