"""Single elements that stand out, so that a reduction that leaves out one of them shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
import triton
import triton.language as tl

from ptxdiff import Case, kernel
from ptxdiff.inputs.fill import kernel_inputs
from ptxdiff.inputs.kernel_sets import EXTREMES, LANES, extreme_sets
from ptxdiff.model.match import Domain
from ptxdiff.references.formats import BF16, F32, I32, I64, Format, Scalar, to_float64


@triton.jit
def unused(a, b):
    """A kernel that is never run."""
    tl.store(b, tl.load(a))


def case_of(reference: Callable[..., Any], fmt: Format = F32, n: int = 128, **fields: Any) -> Case:
    return Case(
        inputs={"x": fmt["n"]}, outputs={"y": fmt["n"]}, reference=reference, sizes=[{"n": n}],
        variants={"v": kernel(unused, grid="1")}, **fields,
    )  # fmt: skip


def numbers(fmt: Format, codes: Any) -> np.ndarray:
    codes = np.asarray(codes).astype(np.int64)
    if fmt.is_float:
        return to_float64(fmt, codes)
    return codes.astype({I32: np.int32, I64: np.int64}[fmt]).astype(np.int64)


def of_rows(fmt: Format, choose: Callable[[np.ndarray], np.ndarray], without: int | None = None) -> Callable[..., Any]:
    """The code of the element that `choose` finds in each row of 32, for all of the row. without: a lane left out."""

    def reference(x: np.ndarray) -> np.ndarray:
        rows = np.asarray(x).reshape(-1, LANES)
        seen = rows if without is None else np.delete(rows, without, axis=1)
        chosen = np.take_along_axis(seen, choose(numbers(fmt, seen))[:, None], axis=1)
        return np.repeat(chosen, LANES, axis=1).reshape(np.asarray(x).shape)

    return reference


CHOICES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "largest": lambda v: np.argmax(v, axis=1),
    "least": lambda v: np.argmin(v, axis=1),
    "largest magnitude": lambda v: np.argmax(np.abs(v), axis=1),
    "smallest magnitude": lambda v: np.argmin(np.abs(v), axis=1),
}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("fmt", [F32, BF16, I32, I64], ids=str)
@pytest.mark.parametrize("n", [128, 1024 // 2])
def test_a_reduction_that_leaves_out_one_lane_shows_whichever_it_is(choice: str, fmt: Format, n: int) -> None:
    right = of_rows(fmt, CHOICES[choice])
    case = case_of(right, fmt, n)
    sets = extreme_sets(case, {"n": n})
    assert len(sets) == LANES * LANES // n
    rows = [kernel_inputs(case, name, {"n": n})["x"] for name in sets]
    for lane in range(LANES):
        wrong = of_rows(fmt, CHOICES[choice], without=lane)
        assert any((right(x) != wrong(x)).any() for x in rows), lane


def test_kernels_that_work_element_by_element_have_no_such_sets() -> None:
    assert extreme_sets(case_of(lambda x: x ^ 1), {"n": 128}) == ()
    assert extreme_sets(case_of(of_rows(F32, CHOICES["least"]), n=2048), {"n": 2048}) == ()


def test_a_neighbour_that_decides_is_enough() -> None:
    assert extreme_sets(case_of(lambda x: x.roll(1)), {"n": 128}) == EXTREMES


def test_scalars_and_bounded_inputs_decide_nothing_here() -> None:
    of_scalar = Case(
        inputs={"x": F32["n"], "k": Scalar(F32)}, outputs={"y": F32["n"]}, reference=lambda x, k: x * 0 + k,
        sizes=[{"n": 128}], variants={"v": kernel(unused, grid="1")},
    )  # fmt: skip
    assert extreme_sets(of_scalar, {"n": 128}) == ()
    small = Domain("small", lambda v: abs(v["x"]) < 2)
    bounded = case_of(of_rows(F32, CHOICES["least"]), where={"x": small})
    assert extreme_sets(bounded, {"n": 128}) == ()


def test_a_reference_that_fails_leaves_that_to_the_runs() -> None:
    def failing(x: Any) -> Any:
        raise ValueError("no")

    assert extreme_sets(case_of(failing), {"n": 128}) == ()
