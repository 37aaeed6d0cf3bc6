"""Distances between codes, counted by bins."""

import numpy as np
import pytest

from ptxdiff.judging.differences import step_histogram
from ptxdiff.references.formats import F16

EVERY = np.arange(1 << 16, dtype=np.int64)
FINITE = int(np.isfinite(EVERY.astype(np.uint16).view(np.float16)).sum())


@pytest.mark.parametrize(("moved", "others"), [(0, {}), (1, {"1": 1}), (16, {"16": 1}), (40, {"33..64": 1})])
def test_distances_of_finite_codes_are_counted(moved, others):
    """Of every float16, which is as expected, but for the code of 1.0."""
    got = EVERY.copy()
    got[0x3C00] += moved
    same = FINITE - len(others)
    assert step_histogram(F16, EVERY, got) == {"0": same, **others}


def test_nans_and_infinities_are_not_counted():
    beyond = EVERY[0x7C00:0x8000]
    assert step_histogram(F16, beyond, beyond.copy()) == {}
    assert step_histogram(F16, beyond, beyond - 0x4000) == {}
    assert step_histogram(F16, beyond[:0], beyond[:0]) == {}
