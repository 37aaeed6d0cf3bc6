"""The table of input sets of whole kernels: a row is all that a new kind needs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed; the case is a kernel of it")
import triton

from ptxdiff import Case, kernel
from ptxdiff.inputs import kernel_sets
from ptxdiff.inputs.fill import kernel_inputs
from ptxdiff.inputs.kernel_sets import ENDS, KERNEL_SETS, ROWS_NAMES, KernelSets, sets_for
from ptxdiff.references.formats import BF16, F16, F32, F64, I8, I32, I64, TF32, U8, U32, U64, Format, Shaped, to_float64
from ptxdiff.running.plan import plan


@triton.jit
def same(x: object, k: object, y: object, n: object) -> None:
    pass


SIZES = {"n": 8}
CASE = Case(
    inputs={"x": F32["n"], "k": U32["n"]}, outputs={"y": F32["n"]}, reference=lambda x, k: x, sizes=[SIZES],
    variants={"v": kernel(same, grid=(1,))},
)  # fmt: skip


def planned(backend: str) -> list[str]:
    return [item.input_set for item in plan(CASE, CASE.variants["v"], backend, "quick", "sm_90a")]


def test_every_set_has_one_row() -> None:
    names = [name for kind in KERNEL_SETS for name in kind.names]
    assert len(names) == len(set(names))
    assert set(sets_for(CASE, SIZES)) <= set(names)


def test_a_row_is_all_that_a_new_kind_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is planned on backends that execute, and its units reach the kernel; an input it does not want is random."""
    before = planned("emulator")
    ones = KernelSets(
        ("ones/1",), lambda case, sizes: ["ones/1"],
        lambda case, own, name, set_name, sizes: np.full(8, 0x3F800000, np.uint32) if name == "x" else None,
    )  # fmt: skip
    monkeypatch.setattr(kernel_sets, "KERNEL_SETS", (*KERNEL_SETS, ones))
    assert [name for name in planned("emulator") if name != "ones/1"] == before
    assert "ones/1" in planned("emulator")
    assert "ones/1" not in planned("assembler")
    made = kernel_inputs(CASE, "ones/1", SIZES)
    assert made["x"].view(np.float32).tolist() == [1.0] * 8
    assert len(set(made["k"].tolist())) > 1


# Rows of integers ---------------------------------------------------------------------------------------------------


def _of_integers(fmt: Format, sizes: dict[str, int] | None = None, **more: Shaped) -> Case:
    return Case(
        inputs={"x": fmt["M", "N"], **more}, outputs={"y": fmt["M"]}, reference=lambda *x: x[0],
        variants={"v": kernel(same, grid="1")}, source="none", sizes=[sizes or {"M": 3, "N": 40}],
    )  # fmt: skip


@pytest.mark.parametrize("fmt", [I8, I32, I64, U8, U32, U64], ids=lambda f: f.name)
def test_rows_are_of_one_sign_and_sorted(fmt: Format) -> None:
    """A maximum that begins with zero, and one without the last or the first column, differ on them."""
    case = _of_integers(fmt)
    negative, positive, _ = (
        kernel_inputs(case, name, case.sizes[0])["x"].view(f"i{fmt.code_bits // 8}") for name in ROWS_NAMES
    )
    assert (negative < 0).all()
    assert (np.diff(negative.astype(object), axis=1) >= 0).all()
    assert (positive > 0).all()
    assert (np.diff(positive.astype(object), axis=1) <= 0).all()


def test_runs_of_equal_integers_stand_beside_random_ones() -> None:
    case = _of_integers(U8, {"M": 4, "N": 64}, b=U8["M", "N"])
    found = kernel_inputs(case, ROWS_NAMES[2], case.sizes[0])
    runs = found["x"].reshape(-1, 16)
    assert (runs == runs[:, :1]).all()
    assert {0, 255} <= {*runs[:, 0].tolist()}
    assert len(np.unique(found["b"].reshape(-1, 16)[runs[:, 0] == 0])) > 4


def test_large_kernels_and_those_of_single_floats_have_no_rows() -> None:
    large = _of_integers(I32, {"M": 100, "N": 100})
    assert not {*ROWS_NAMES} & {*sets_for(large, large.sizes[0])}
    single = dataclasses.replace(_of_integers(F32), outputs={"y": F32["M", "N"]})
    assert not {*ROWS_NAMES} & {*sets_for(single, single.sizes[0])}
    assert {*ROWS_NAMES} <= {*sets_for(_of_integers(I32), {"M": 3, "N": 40})}


@pytest.mark.parametrize("fmt", [F32, F16, BF16], ids=lambda f: f.name)
def test_rows_of_floats_that_are_reduced_are_of_one_sign_and_sorted(fmt: Format) -> None:
    """A maximum that begins with zero, or reads zero behind the last column, differs on the first."""
    of_rows = dataclasses.replace(_of_integers(fmt), reference=lambda x: x.max(axis=1).values)
    sizes = of_rows.sizes[0]
    assert [s for s in sets_for(of_rows, sizes) if s in ROWS_NAMES] == list(ROWS_NAMES[:2])
    negative, positive = (
        to_float64(fmt, kernel_inputs(of_rows, name, sizes)["x"].astype(np.int64)) for name in ROWS_NAMES[:2]
    )
    assert (negative < 0).all()
    assert (np.diff(negative, axis=1) >= 0).all()
    assert (positive > 0).all()
    assert (np.diff(positive, axis=1) <= 0).all()


@pytest.mark.parametrize("fmt", [F32, BF16, F16, TF32, F64], ids=lambda f: f.name)
def test_a_maximum_that_begins_with_a_finite_number_is_wrong_on_some_row(fmt: Format) -> None:
    """Kernels take -1e30 for minus infinity, or the largest negative number, which is right on all other rows."""
    case = dataclasses.replace(_of_integers(fmt), reference=lambda x: x.max(axis=1).values)
    highest = to_float64(fmt, np.array([fmt.max_finite], np.int64))[0]
    assert set(ENDS) <= {*sets_for(case, case.sizes[0])}
    least, greatest = (to_float64(fmt, kernel_inputs(case, n, case.sizes[0])["x"].astype(np.int64)) for n in ENDS)
    assert not np.isnan([least, greatest]).any()
    for identity in (1e30, highest):
        assert (np.maximum(-identity, least.max(axis=1)) != least.max(axis=1)).any()
        assert (np.minimum(identity, greatest.min(axis=1)) != greatest.min(axis=1)).any()
    assert (np.isfinite(least).any(axis=1) | np.isinf(least).all(axis=1)).all(), "a row is all finite or all infinite"
    assert np.isinf(least[1]).all()
    assert (least[np.isfinite(least)] <= -highest / 4).all()
    assert len(np.unique(least[0])) > 20


def test_ends_of_integers_and_numbers_beside_them() -> None:
    case = dataclasses.replace(_of_integers(I32, b=F32["M", "N"]), reference=lambda x, b: x.max(axis=1).values)
    least, greatest = (kernel_inputs(case, n, case.sizes[0]) for n in ENDS)
    assert (least["x"].view(np.int32)[1] == -(1 << 31)).all()
    assert (greatest["x"].view(np.int32)[1] == (1 << 31) - 1).all()
    assert (least["x"].view(np.int32) < -(1 << 30)).all()
    assert (greatest["x"].view(np.int32) > 1 << 30).all()
    beside = least["b"].view(np.float32)
    assert (abs(beside) < 16).all()
    assert (beside != 0).all()


def test_kernels_of_single_elements_and_large_ones_have_no_ends() -> None:
    assert not {*ENDS} & {*sets_for(_of_integers(F32), {"M": 100, "N": 100})}
    single = dataclasses.replace(_of_integers(F32), outputs={"y": F32["M", "N"]})
    assert not {*ENDS} & {*sets_for(single, single.sizes[0])}


def test_ends_are_run_in_one_size_with_two_rows() -> None:
    sizes = [{"M": 1, "N": 8}, {"M": 4, "N": 8}, {"M": 8, "N": 8}]
    case = dataclasses.replace(_of_integers(F32), reference=lambda x: x.max(axis=1).values, sizes=sizes)
    assert [{*ENDS} <= {*sets_for(case, s)} for s in sizes] == [False, True, False]
    single = dataclasses.replace(case, sizes=sizes[:1])
    assert {*ENDS} <= {*sets_for(single, sizes[0])}


def test_ends_are_not_run_in_a_size_whose_rows_have_one_element() -> None:
    """There a maximum of a row is its element, whatever it begins with."""
    sizes = [{"M": 4, "N": 1}, {"M": 1, "N": 8}, {"M": 4, "N": 8}]
    case = dataclasses.replace(_of_integers(F32), reference=lambda x: x.max(axis=1).values, sizes=sizes)
    assert [{*ENDS} <= {*sets_for(case, s)} for s in sizes] == [False, False, True]
    case = dataclasses.replace(case, sizes=sizes[:2])
    assert [{*ENDS} <= {*sets_for(case, s)} for s in sizes[:2]] == [False, True]


# Units that are kept for the next variant and target -----------------------------------------------------------------


def _declared(fmt: Format = F32, output: Format = F32, sizes: tuple[dict[str, int], ...] = ({"n": 64},)) -> Case:
    return Case(
        inputs={"x": fmt["n"]}, outputs={"y": output["n"]}, reference=lambda x: x, sizes=list(sizes),
        variants={"v": kernel(same, grid=(1,))},
    )  # fmt: skip


def test_a_caller_that_changes_its_units_changes_no_others() -> None:
    for size in (64, kernel_sets.KEPT_ELEMENTS):
        first = kernel_inputs(_declared(), "random/1", {"n": size})["x"]
        before = first.copy()
        first[:] = 0
        assert (kernel_inputs(_declared(), "random/1", {"n": size})["x"] == before).all()


@pytest.mark.parametrize("set_name", ["random/1", "edges/1", "blocks/1", "near/3", "few/1", "rows/1", "extremes/1"])
def test_kept_units_are_those_of_the_same_declaration(set_name: str) -> None:
    """Everything that decides units is changed in turn, between two calls that have the same."""
    sizes = {"n": {"few/1": 8, "blocks/1": 512}.get(set_name, 64)}
    declarations = [
        (_declared(), sizes),
        (_declared(BF16), sizes),
        (_declared(output=F16), sizes),
        (_declared(sizes=({"n": 32}, {"n": 8}, {"n": 64}, {"n": 512})), sizes),
        (_declared(), {"n": sizes["n"] // 2}),
    ]
    declarations = [d for d in declarations if set_name != "near/3" or d[0].outputs["y"] == F16["n"]]
    anew = []
    for case, wanted in declarations:
        kernel_sets._kept.cache_clear()
        anew.append(kernel_inputs(case, set_name, wanted)["x"])
    for _ in range(2):
        for (case, wanted), units in zip(declarations, anew, strict=True):
            found = kernel_inputs(case, set_name, wanted)["x"]
            assert (found.dtype, found.shape) == (units.dtype, units.shape)
            assert (found == units).all()
    if set_name == "blocks/1":
        assert len({units.tobytes() for units in anew}) == len(declarations)
