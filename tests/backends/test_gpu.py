"""A worker's machine code is launched only if Triton would compile the same kernel."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.runtime.driver import driver as active  # noqa: E402

from ptxdiff.backends import gpu  # noqa: E402
from ptxdiff.backends.gpu import (  # noqa: E402
    launcher,
    request_of,
    torch_dtype,
)
from ptxdiff.jobs import Job, Setup  # noqa: E402
from ptxdiff.triton.launch import launch_of  # noqa: E402
from tests.backends import backend_cases  # noqa: E402

PATH = Path(backend_cases.__file__)


class NoDevice:
    """A driver without a device, which reports a device."""

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)


@pytest.fixture(autouse=True)
def no_device():
    active.set_active(NoDevice())
    yield
    active.set_active(None)  # the default again


def job(case, variant, **setup):
    found = getattr(backend_cases, case)
    return Job(found, case, PATH, variant, found.variants[variant], "sm_90a", Setup(**setup), {})


def triton_launch(job):
    """Triton's function and its launch, on tensors in this machine's memory."""
    launch = launch_of(job)
    pointers = {}
    for tensor in launch.tensors:
        raw = torch.zeros(tensor.extent * 8 + 64, dtype=torch.uint8)
        start = -raw.data_ptr() % 16 + job.setup.alignment % 16
        pointers[tensor.name] = raw[start : start + tensor.extent * tensor.format.unit_bits // 8].view(
            torch_dtype(tensor.format)
        )
    return gpu.triton_launch(job, launch, pointers)


SETUPS = [
    {"shape": (1,)}, {"shape": (257,), "alignment": 4}, {"shape": (1024,), "num_warps": 8}, {"shape": (7, 129)},
    {"shape": (7, 128), "alignment": 4, "fusion": True}, {"shape": (64,), "context": "loop", "steps": 3},
]  # fmt: skip
JOBS = [
    *(job("addition", variant, **setup) for variant in ("asm", "plain", "scaled") for setup in SETUPS[:5]),
    job("rows", "copy", sizes={"M": 5, "N": 40}),
    job("rows", "copy", sizes={"M": 1, "N": 16}, alignment=2, num_warps=2),
]


@pytest.mark.parametrize("asked_for", JOBS, ids=lambda j: f"{j.variant_name} {j.setup.shape or dict(j.setup.sizes)}")
def test_triton_requests_what_the_worker_compiles(asked_for):
    spec = launch_of(asked_for).spec("sm_90a")
    request = request_of(*triton_launch(asked_for))
    assert request.meets(spec)
    (first, kind), *others = spec.signature
    place, _ = spec.constants[0]
    for other in (
        replace(spec, num_warps=spec.num_warps * 2),
        replace(spec, enable_fp_fusion=not spec.enable_fp_fusion),
        replace(spec, signature=((first, "*fp64" if kind != "*fp64" else "i32"), *others)),
        replace(spec, constants=spec.constants[1:]),
        replace(spec, constants=(*spec.constants, ((99,), 1))),
        replace(spec, divisible=(*spec.divisible, (98,))),
        replace(spec, divisible=spec.divisible[1:] if spec.divisible else (place,)),
        replace(spec, options=(("num_stages", 7),)),
    ):
        assert not request.meets(other)


@pytest.mark.parametrize(
    ("other", "expected"), [({}, "ready"), ({"shape": (256,)}, "triton"), ({"alignment": 4}, "triton")]
)
def test_only_code_of_the_same_kernel_is_launched(other, expected):
    """The other code is of a size or an alignment for which Triton would compile another kernel."""
    given = {"shape": (1,)}
    function, by_triton = triton_launch(job("addition", "asm", **given))
    launched = []

    def really():
        if "_do_compile" in vars(function):
            return by_triton()
        return launched.append("triton")

    spec = launch_of(job("addition", "asm", **{**given, **other})).spec("sm_90a")
    launcher(function, really, lambda: launched.append("ready"), spec)()
    assert launched == [expected]
    assert "_do_compile" not in vars(function)


def test_a_kernel_that_triton_has_in_memory_runs_once():
    launched = []
    function, _ = triton_launch(job("addition", "asm", shape=(1,)))
    spec = launch_of(job("addition", "asm", shape=(1,))).spec("sm_90a")
    launcher(function, lambda: launched.append("triton"), lambda: launched.append("ready"), spec)()
    assert launched == ["triton"]


def other_number(number):
    """The scaled variant with another constant."""
    made = job("addition", "scaled", shape=(257,))
    return replace(made, variant=replace(made.variant, constants={"FACTOR": number}))


def built_of(job):
    compilation = SimpleNamespace(spec=launch_of(job).spec("sm_90a"), descriptors=())
    return SimpleNamespace(compilation=compilation)


def test_code_with_other_functions_or_constants_is_not_launched(monkeypatch):
    """Triton's request has the places of constants, not their values, so the whole description is compared."""
    monkeypatch.setattr(gpu.driver, "bindings", lambda: None)
    jobs = [
        job("addition", "asm", shape=(257,)), job("addition", "plain", shape=(257,)), other_number(0.0),
        other_number(-0.0), other_number(0), job("addition", "asm", shape=(257,), fusion=True),
        job("addition", "asm", shape=(257,), num_warps=8), job("addition", "asm", shape=(512,)),
    ]  # fmt: skip
    for one in jobs:
        found = [gpu.is_of(launch_of(one), "sm_90a", built_of(other)) for other in jobs]
        assert found == [other is one for other in jobs]


def test_without_the_drivers_bindings_triton_launches(monkeypatch):
    def missing():
        raise gpu.driver.NoDriver("none")

    monkeypatch.setattr(gpu.driver, "bindings", missing)
    one = job("addition", "asm", shape=(257,))
    assert not gpu.is_of(launch_of(one), "sm_90a", built_of(one))
