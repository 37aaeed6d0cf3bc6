"""The GPUs on which a sweep of all inputs runs: those of the target, with the names that the user gave."""

import pytest

from ptxdiff.cli import UsageError
from ptxdiff.cli.sweep import default_target, places_of
from ptxdiff.processes.gpus import Gpu

HOST = tuple(Gpu(visible, "", visible, target, 0) for visible, target in
             (("GPU-a", "sm_90a"), ("GPU-b", "sm_80"), ("GPU-c", "sm_90a")))  # fmt: skip


def test_a_sweep_uses_every_gpu_of_its_target(monkeypatch):
    monkeypatch.setattr("ptxdiff.processes.gpus.gpus", lambda: HOST)
    assert default_target("gpu", None) == "sm_90a"
    assert places_of("sm_90a") == [HOST[0], HOST[2]]
    assert places_of("sm_80") == [HOST[1]]
    with pytest.raises(UsageError, match="--target sm_100a: no GPU here has this target; present: sm_90a, sm_80"):
        places_of("sm_100a")


def test_without_a_gpu_the_emulator_is_named(no_gpu):
    assert default_target("emulator", None) == "sm_90a"
    with pytest.raises(UsageError, match="--backend emulator"):
        default_target("gpu", None)
