"""If no kernel can be made of a reference, it runs as eager operations, and the result says so."""

from types import SimpleNamespace

import pytest

from ptxdiff.jobs import Outcome
from ptxdiff.judging.judge import Judgement
from ptxdiff.sweep import OracleFault, Swept, dispatch
from ptxdiff.sweep.fusion import NotFused


@pytest.fixture
def runs(monkeypatch):
    """Records the ways in which a sweep was run; the first way raises the exception in `fault`."""
    monkeypatch.setattr("ptxdiff.backends.gpu.DEVICE", "cuda")
    noted = SimpleNamespace(compiled=[], fault=None)

    def run(job, policy, inputs, *, compiled, made=None):
        noted.compiled.append(compiled)
        if noted.fault is not None and compiled:
            raise noted.fault
        return Swept(Outcome("ran"), Judgement(), notes=("as before",))

    monkeypatch.setattr(dispatch, "_run", run)
    return noted


def swept():
    return dispatch.run(None, None, None)


def test_without_a_kernel_a_sweep_runs_eagerly_and_says_so(runs):
    runs.fault = NotFused("cumsum has no text\nmore lines")
    words = "no kernel can be made of the reference, which ran as eager operations, slower: cumsum has no text"
    assert swept().notes == (words, "as before")
    assert runs.compiled == [True, False]


@pytest.mark.parametrize("fault", [OracleFault("the judges disagree"), RuntimeError("CUDA error")])
def test_no_other_fault_is_tried_again(runs, fault):
    runs.fault = fault
    with pytest.raises(type(fault)):
        swept()
    assert runs.compiled == [True]


def test_with_a_kernel_there_is_no_such_note(runs):
    assert swept().notes == ("as before",)


def test_a_launch_is_kept_for_the_same_tensors_of_an_elementwise_kernel_alone(monkeypatch):
    launched, made = [], []

    def prepared(job, launch, pointers):
        made.append(dict(pointers))
        return lambda: launched.append(dict(pointers))

    monkeypatch.setattr(dispatch.gpu, "prepared", prepared)
    x, y, z = object(), object(), object()
    start = dispatch.starter("job", SimpleNamespace(elementwise="a template"))
    for pointers in ({"x": x, "z": z}, {"x": x, "z": z}, {"x": y, "z": z}, {"x": x, "z": z}):
        start(pointers)
        assert launched[-1] == pointers
    assert made == [{"x": x, "z": z}, {"x": y, "z": z}, {"x": x, "z": z}]

    made.clear()
    start = dispatch.starter("job", SimpleNamespace(elementwise=None))
    for _ in range(2):
        start({"x": x})
    assert made == [{"x": x}] * 2  # a whole kernel may have scratch memory
