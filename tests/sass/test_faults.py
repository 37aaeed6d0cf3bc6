"""Faults of ptxas that were published, in machine code on the CPU.

Each kernel is written after a public report. A ptxas that has the fault is needed: the one that Triton carries, or one
of those that `PTXDIFF_FAULTY_PTXAS` names.
"""

from __future__ import annotations

import numpy as np

from ptxdiff import emulated, run_ptx
from ptxdiff.conformance.taught import unsettled
from tests.support.sass.fault_kernels import ABSOLUTE, LEAST_MAGNITUDE, two_packed_sums
from tests.support.sass.ptxas_releases import release


def _maximum(ptxas: str, opt: int) -> tuple[np.ndarray, np.ndarray]:
    a, b, found = np.arange(-16, 16, dtype=np.int32), np.full(32, 5, np.int32), np.zeros(32, np.int32)
    run_ptx(ABSOLUTE, 1, 32, a, b, found, level="sass", ptxas=ptxas, opt=opt)
    return found, np.maximum(np.abs(a), b)


def test_a_negation_that_a_fusion_of_maxima_drops() -> None:
    """pytorch/pytorch issue 190973: max(max(x, -x), y) becomes max(max(x, x), y)."""
    ptxas = release("12.8", "12.9", "13.0", "13.1", "13.2", "13.3")
    right, expected = _maximum(ptxas, 0)
    assert (right == expected).all()
    wrong, expected = _maximum(ptxas, 3)
    assert (wrong == np.maximum(np.arange(-16, 16), 5)).all()
    assert (wrong != expected).sum() == 11


def test_an_immediate_that_a_second_packed_sum_loses() -> None:
    """triton-lang/triton issue 11581. The wrong words are those that an H100 gave."""
    ptxas = release("12.9", "13.0")
    found = {}
    for name, settings in (("ptx", {}), ("-O0", {"level": "sass", "ptxas": ptxas, "opt": 0}),
                           ("-O3", {"level": "sass", "ptxas": ptxas, "opt": 3})):  # fmt: skip
        found[name] = np.zeros(256, np.int32)
        emulated(two_packed_sums, "sm_90a", **settings)[(1,)](found[name], D1=32, D2=8, num_warps=1)
    assert (found["-O0"] == found["ptx"]).all()
    wrong = np.flatnonzero(found["-O3"] != found["ptx"])
    assert len(wrong) == 16
    assert [(int(i), int(found["-O3"][i]), int(found["ptx"][i])) for i in wrong[:4]] == [
        (136, 224, 225), (140, 260, 261), (152, 368, 369), (156, 404, 405)
    ]  # fmt: skip


def test_a_tie_of_magnitudes_of_which_one_is_extended_with_the_sign() -> None:
    """NVIDIA/cccl issue 10958: the magnitude of -32768 is 0x8000 on one side and 0xffff8000 on the other."""
    ptxas = release("13.3")
    values = np.full(32, -32768, np.int16)
    values[5] = 3
    found = {opt: np.zeros(32, np.int32) for opt in (0, 3)}
    for opt, words in found.items():
        run_ptx(LEAST_MAGNITUDE, 1, 32, values, words, level="sass", ptxas=ptxas, opt=opt)
    lanes = np.arange(32)
    assert (found[0] == np.where(lanes == 4, 5, lanes)).all()
    assert (found[3] == np.where((lanes == 5) | (lanes == 31), lanes, lanes + 1)).all(), "ties give the later index"


def test_the_form_of_the_wrong_code_is_taught() -> None:
    ptxas = release("12.9", "13.0")
    values = np.zeros(256, np.int32)
    report = emulated(two_packed_sums, "sm_90a", level="sass", ptxas=ptxas, opt=3)[(1,)](
        values, D1=32, D2=8, num_warps=1
    )
    assert "VIADD.16x2" in report.forms
    assert "VIADD.16x2" not in unsettled(report.forms, "sm_90a")
