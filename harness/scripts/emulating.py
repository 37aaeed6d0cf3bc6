"""`with emulating("sm_90a"):` runs unchanged Python code of Triton, with its kernels in the emulator.

`kernel[grid](...)` runs on the CPU as on the target, through `ptxdiff.emulated`. Host code finds a GPU of the target:
Triton's driver and `torch.cuda` report its properties, and tensors on "cuda" are made on the CPU.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

from ptxdiff.arguments import LaunchError
from ptxdiff.emulator import HOPPER, KERNEL_SECONDS
from ptxdiff.extras import require
from ptxdiff.launcher import Emulated, emulated
from ptxdiff.model.targets import normal
from ptxdiff.scripts.pointers import Pointers
from ptxdiff.scripts.replacements import Choices, StandInDriver, multiprocessors


@contextlib.contextmanager
def emulating(
    target: str = "sm_100a",
    *,
    races: bool = True,
    limit: float | None = KERNEL_SECONDS,
    approximate: str = HOPPER,
    processors: int | None = None,
) -> Iterator[None]:
    """Run every Triton kernel that is launched within it on the CPU as `target` would: whole, unchanged files.

        with emulating("sm_90a"):
            runpy.run_path("python/tutorials/09-persistent-matmul.py")

    races, limit, approximate: for each launch, as in `emulated`. processors: the number of multiprocessors that host
    code gets, which persistent kernels use as their grid (None: that of the generation's large product).

    A kernel under `@triton.autotune` runs with the first configuration that the target can hold, because nothing can
    be timed: `do_bench` calls its function once and returns NaN, a `perf_report` does not run, and Proton makes no
    profile; each says so on stderr. `data_ptr()` returns addresses that the emulator's kernels may read from memory;
    they are not valid in this process. cuBLAS is not available.

    It must not be used by several threads at once, nor nested. Raises LaunchError and PtxError as launches do, and
    ImportError without torch or triton.
    """
    require("torch", "triton", purpose="emulating()")
    import torch
    import triton
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    from ptxdiff.scripts.replacements import OnTheCpu, answers

    target = normal(target)
    processors = processors or multiprocessors(target)
    emulated(None, target, approximate=approximate)  # raises for a wrong choice, before anything is replaced
    driver = triton.runtime.driver
    if isinstance(driver._active, StandInDriver):
        raise LaunchError("emulating() within emulating(): leave the first before you enter the second")
    pointers, choices = Pointers(), Choices()

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        launch = Emulated(kernel, target, races, limit, approximate, pointers, here=True)
        if warmup:
            with torch._C.DisableTorchFunction():
                return launch.warmup(*args, **kwargs)
        for hook in kernel.pre_run_hooks:
            hook(*args, **kwargs)
        with torch._C.DisableTorchFunction():  # the harness needs addresses of this process
            return launch[grid](*args, **kwargs)

    def tuned(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        return choices.run(tuner, args, kwargs)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(driver, "_active", StandInDriver(target, processors)))
        stack.enter_context(mock.patch.object(JITFunction, "run", run))
        stack.enter_context(mock.patch.object(Autotuner, "run", tuned))
        _without_times(stack)
        for name, answer in answers(target, processors).items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        _without_libraries(stack)
        stack.enter_context(OnTheCpu(pointers))
        yield


def _without_times(stack: contextlib.ExitStack) -> None:
    """Replace Triton's benchmarks and profiles by a line on stderr, once each: scripts call them in loops."""
    from triton import testing

    printed: set[str] = set()

    def print_once(text: str) -> None:
        if text not in printed:
            printed.add(text)
            print(f"{text}, because the emulator cannot measure times", file=sys.stderr)

    def untimed(function: Any, *args: Any, quantiles: Any = None, **kwargs: Any) -> Any:
        print_once("do_bench: called its function once, and gave NaN")
        function()
        return math.nan if quantiles is None else [math.nan] * len(quantiles)

    def no_report(mark: Any, *args: Any, **kwargs: Any) -> None:
        print_once(f"{getattr(mark.fn, '__name__', 'a benchmark')}: not run")

    def no_profile(name: str | None = None, *args: Any, **kwargs: Any) -> None:
        print_once(f"the profile {name or 'of Proton'}: not made")

    stack.enter_context(mock.patch.multiple(testing, do_bench=untimed, do_bench_cudagraph=untimed))
    stack.enter_context(mock.patch.object(testing.Mark, "run", no_report))
    with contextlib.suppress(ImportError):  # a build of Triton without Proton
        import triton.profiler

        for module in (triton.profiler, sys.modules["triton.profiler.profile"]):
            stack.enter_context(mock.patch.object(module, "start", no_profile))
            for name in ("activate", "deactivate", "finalize"):
                stack.enter_context(mock.patch.object(module, name, return_value=None))


def _without_libraries(stack: contextlib.ExitStack) -> None:
    """Make Triton's access to cuBLAS None, which the host code of its tutorials checks."""
    from triton._C.libtriton import nvidia

    if hasattr(nvidia, "cublas"):
        stack.enter_context(mock.patch.object(nvidia.cublas, "CublasLt", return_value=None))
