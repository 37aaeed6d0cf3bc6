"""Operands made for the roundings of products and sums."""

import numpy as np
import pytest

from ptxdiff.inputs.rounding import sticky_inputs
from ptxdiff.references.formats import F32


@pytest.mark.parametrize("larger", [1, 2, 7, 16, 20, 22])
@pytest.mark.parametrize("seed", range(3))
def test_a_product_that_is_rounded_before_a_larger_addend_shows(larger, seed):
    """Rounded first, the product ends half an ulp below the sum's last place, which it does not without."""
    columns = sticky_inputs(dict.fromkeys("abc", F32), [F32], "quick", np.random.default_rng(seed))
    a, b, c = (column.astype(np.uint32).view(np.float32) for column in columns)
    with np.errstate(all="ignore"):
        once = (a.astype(np.float64) * b + c).astype(np.float32)  # float64 has all digits that matter here
        twice = a * b + c
        apart = np.frexp(c)[1] - np.frexp(a * b)[1]
        found = (apart == larger) & np.isfinite(once) & (once != twice)
    assert found.any()
