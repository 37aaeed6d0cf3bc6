"""Fixtures that several GPU tests share."""

import importlib.util
import subprocess

import pytest


@pytest.fixture(scope="package", autouse=True)
def _processes_that_own_a_gpu_are_new():
    """A fork of a process that another GPU test used might share the state of its driver."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ptxdiff.processes.pool.subprocess", subprocess)
        yield


@pytest.fixture(scope="module")
def device():
    """The GPU at hand, for running instruction forms."""
    from ptxdiff.conformance.fetch import Hardware, NoDevice

    try:
        return Hardware()
    except NoDevice as e:
        pytest.skip(str(e))


@pytest.fixture(scope="module")
def products_device():
    """The GPU at hand, for running products of matrices."""
    from ptxdiff.conformance.products import ProductDevice

    return ProductDevice()


@pytest.fixture(scope="module")
def hopper_products(products_device):
    """The GPU at hand, for products of wgmma, which only Hopper GPUs have."""
    if products_device.identity.target != "sm_90a":
        pytest.skip(f"wgmma is Hopper's; this is {products_device.identity.target}")
    return products_device


if importlib.util.find_spec("pytest_benchmark") is None:

    @pytest.fixture
    def benchmark():
        """Stands for pytest-benchmark's fixture where that is not installed."""
        pytest.skip("needs pytest-benchmark, which is not installed")
