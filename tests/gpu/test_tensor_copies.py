"""Bulk tensor copies in all modes that the GPU here has, and reductions, have the bits of the specification."""

import pytest

from ptxdiff.conformance.fetch import CudaContext, NoDevice
from tests.gpu import tensor_copies

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def context():
    """The GPU at hand."""
    try:
        found = CudaContext()
    except NoDevice as e:
        pytest.skip(str(e))
    if found.capability < 90:
        pytest.skip(f"{found.name} has no tensor maps")
    return found


def test_copies_and_reductions(context):
    total, first = tensor_copies.measured(context, 12, 2)
    assert not any(what == "differ" for _, what in total), first
    assert all(total[name, "ran"] for name, _ in total)
