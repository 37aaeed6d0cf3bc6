"""The plan: which setups are run, each once, every two values of any two axes together."""

from __future__ import annotations

import itertools

import pytest

from harness import Case, asm
from harness.jobs import block_of
from harness.running.plan import key_of, pairwise, plan, sized
from references.formats import F32, U8


def case_of(fmt=F32, **fields) -> Case:
    return Case(
        inputs={"x": fmt},
        outputs={"y": fmt},
        reference=lambda x: x,
        variants={"v": asm("abs.f32 $0, $1;") if fmt is F32 else asm("mov.b32 $0, $1;", constraints="=r,r", pack=4)},
        **fields,
    )


def planned(case: Case, backend: str, effort: str = "quick"):
    return plan(case, "c", case.variants["v"], backend, effort)


@pytest.mark.parametrize("axes", [[range(3)], [range(3), range(4)], [range(3), range(6), range(2), range(2), range(3)]])
def test_every_two_values_of_any_two_axes_meet(axes):
    rows = pairwise([list(a) for a in axes])
    assert rows[0] == tuple(0 for _ in axes)
    for i, j in itertools.combinations(range(len(axes)), 2):
        assert {(r[i], r[j]) for r in rows} == set(itertools.product(axes[i], axes[j]))
    largest = sorted((len(a) for a in axes), reverse=True)
    assert len(rows) <= 2 * largest[0] * (largest[1] if len(largest) > 1 else 1)


@pytest.mark.parametrize("backend", ["gpu", "emulator"])
def test_every_input_set_goes_through_the_plain_setup_of_every_pack(backend):
    items = planned(case_of(), backend)
    plain = {(i.setup.pack, i.input_set) for i in items if not i.setup.shape}
    assert plain == set(itertools.product((1, 2, 4), ("edges/1", "outputs/1", "random/1")))


def test_the_edges_meet_every_shape_context_and_placement():
    items = [i for i in planned(case_of(carry={"y": "x"}), "emulator") if i.setup.shape]
    assert {i.input_set for i in items} == {"edges/1"}
    sizes = {len(i.setup.shape) for i in items}
    assert sizes == {1, 2}
    shapes = {i.setup.shape for i in items if i.setup.pack == 1}
    assert {(1,), (255,), (257,), (1009,), (1024,), (7, 129)} <= shapes
    assert {i.setup.context for i in items} == {"straight", "loop"}
    assert {i.setup.fusion for i in items} == {False, True}
    assert {i.shuffled is None for i in items} == {True, False}
    assert {i.setup.padding is None for i in items} == {True, False}
    assert all(i.setup.steps == (3 if i.setup.context == "loop" else 1) for i in items)


def test_a_device_is_tried_with_misaligned_pointers_and_other_warps():
    items = planned(case_of(), "gpu")
    assert {i.setup.alignment for i in items} == {16, 4}
    assert {i.setup.num_warps for i in items} == {1, 4, 8}


def test_the_assembler_needs_no_inputs():
    items = planned(case_of(carry={"y": "x"}), "assembler")
    assert {i.input_set for i in items} == {"none"}
    assert {(i.setup.pack, i.setup.context) for i in items} == set(itertools.product((1, 2, 4), ("straight", "loop")))


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
