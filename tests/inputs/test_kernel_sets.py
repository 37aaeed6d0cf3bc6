"""The table of input sets of whole kernels: a row is all that a new kind needs."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed; the case is a kernel of it")
import triton

from ptxdiff import Case, kernel
from ptxdiff.inputs import kernel_sets
from ptxdiff.inputs.fill import kernel_inputs
from ptxdiff.inputs.kernel_sets import KERNEL_SETS, KernelSets, sets_for
from ptxdiff.references.formats import F32, U32
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
