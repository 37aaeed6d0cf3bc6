"""The grid of a whole kernel: sizes, expressions with sizes and meta values, or a function of both."""

import re

import numpy as np
import pytest

from ptxdiff.model.variants import CaseError, KernelVariant
from ptxdiff.triton.launch import grid_of


class Kernel:
    """A stand-in for a @triton.jit function, of which only the name is used."""

    fn = len


def variant(grid):
    return KernelVariant(function=Kernel, grid=grid, meta={"BLOCK": 64, "scale": 0.5})


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        ((3, 2), (3, 2)),
        (3, (3,)),
        ("M", (5,)),
        (("M", "ceil(N/BLOCK)"), (5, 3)),
        (lambda v: (v["M"], np.int64(v["N"])), (5, 130)),
        (lambda v: [v["BLOCK"]], (64,)),
    ],
)
def test_a_grid_of_sizes_expressions_or_a_function(grid, expected):
    assert grid_of(variant(grid), {"M": 5, "N": 130}) == expected


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        (("K",), "grid=('K',) of len: no size given for K (given: BLOCK, M, N)"),
        (("N/BLOCK",), "is 65/32, not a whole number with BLOCK = 64, N = 130"),
        (lambda v: (v["N"] / 64,), "'float' object cannot be interpreted as an integer"),
        (("M-6",), "is negative (-1)"),
    ],
)
def test_a_grid_that_is_no_whole_number_is_an_error(grid, words):
    with pytest.raises(CaseError, match=re.escape(words)):
        grid_of(variant(grid), {"M": 5, "N": 130})
