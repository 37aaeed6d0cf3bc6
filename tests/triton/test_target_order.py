"""A kernel compiled for one target does not depend on kernels compiled earlier for other targets."""

import pytest

from ptxdiff.processes.pool import Pool
from ptxdiff.triton import compile as compiling
from ptxdiff.triton.compile import compile_kernel
from ptxdiff.triton.spec import Compilation, FunctionRef, Parameters, PointerType, specialise
from tests.support import small_kernels


def ptx_for(target):
    """The PTX of a float8 conversion, for which Triton has a table by target."""
    given = {"x": PointerType("fp8e5"), "y": PointerType("fp32"), "n": 1000, "B": 256}
    function = small_kernels.convert
    spec = specialise(
        FunctionRef.of(function), given, Parameters.of(function), target=target, num_warps=4, enable_fp_fusion=False
    )
    found = compile_kernel(spec)
    assert isinstance(found, Compilation), found
    return found.ptx


@pytest.fixture
def anew(monkeypatch, tmp_path):
    """Forget earlier compilations, and use one process at most for each pool."""
    pools = {}

    def pool(python="", of=""):
        return pools.setdefault((python, of), Pool(1, python))

    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiling, "shared_pool", pool)
    compiling.forget()
    yield pools
    for made in pools.values():
        made.close()


@pytest.mark.parametrize("order", [("sm_89", "sm_80"), ("sm_80", "sm_89")])
def test_conversions_of_float8_are_the_targets_own(order, anew):
    ptx = {target: ptx_for(target) for target in order}
    assert "e5m2x2" not in ptx["sm_80"]  # the instruction needs sm_89
    assert "e5m2x2" in ptx["sm_89"]


@pytest.mark.parametrize(
    ("version", "apart"), [("3.6.0", True), ("3.8.1", True), ("3.9.0", False), ("3.10.0+git", False), ("?", True)]
)
def test_a_triton_that_remembers_its_first_target_has_a_process_for_each(version, apart, anew, monkeypatch):
    monkeypatch.setattr(compiling, "_triton_version", lambda: version)
    monkeypatch.setattr(Pool, "submit", lambda self, *call, timeout: (_ for _ in ()).throw(KeyError))
    for target in ("sm_80", "sm_89"):
        with pytest.raises(KeyError):
            ptx_for(target)
    assert set(anew) == ({("", "sm_80"), ("", "sm_89")} if apart else {("", "")})
