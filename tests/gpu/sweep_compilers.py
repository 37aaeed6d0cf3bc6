"""The cost of a sweep's judge, as the kernel of `ptxdiff.sweep.fusion` and as torch.compile makes it.

`python tests/gpu/sweep_compilers.py [NAME ...]` prints both. Sweeps do not use torch.compile.

The figures of each case of `sweep_speed` are the seconds until the tally and the mask have first run, in a process
without compiled code on disk (cold) and in the next one (warm), and the milliseconds of a tally of 2^32 inputs. Each of
the four processes first compiles something small, so that no figure contains the start of a compiler.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parent)]

INPUTS = 1 << 26
NAMES = ("rcp.rn", "ex2.approx.ftz", "cvt.e4m3", "mul.f16")


class Fused:
    """A function of tensors as torch.compile makes it, from the operations of its first call on fake tensors."""

    def __init__(self, function):
        self.function, self.compiled = function, None

    def __call__(self, *tensors):
        import torch
        from torch.fx.experimental.proxy_tensor import make_fx

        if self.compiled is None:
            graph = make_fx(self.function, tracing_mode="fake")(*tensors)
            self.compiled = torch.compile(graph, fullgraph=True, dynamic=False)
        return self.compiled(*tensors)


def main(words):
    """Run this file once for each compiler, cold and warm, with an empty folder for compiled code."""
    names = words or list(NAMES)
    for compiler in ("ours", "torch.compile"):
        with tempfile.TemporaryDirectory() as folder:
            caches = {"TRITON_CACHE_DIR": f"{folder}/triton", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
            for state in ("cold", "warm"):
                subprocess.run(
                    [sys.executable, __file__, "--child", compiler, state, *names], env=os.environ | caches, check=True
                )


def child(compiler, state, names):
    """Compile and time the judges of some cases in this process."""
    import torch
    from sweep_speed import case_of, timed

    from ptxdiff.inputs.generated import Counted
    from ptxdiff.model.policies import policies
    from ptxdiff.sweep import kernels
    from ptxdiff.sweep.oracle import Oracle

    def oracle_of(name):
        case = case_of(name)
        return Oracle(case, policies(case, case.variants[name]), Counted(case.inputs))

    def made(oracle):
        if compiler == "ours":
            return kernels.tally_of(oracle), kernels.mask_of(oracle)
        return Fused(oracle.tally), Fused(oracle.mask)

    first = torch.zeros((), dtype=torch.int64, device="cuda")
    tiny = torch.arange(1 << 16, device="cuda")
    if compiler == "ours":
        kernels.fill_of(oracle_of("rcp.rn"), "x")(first, tiny.to(torch.int32))
    else:
        Fused(lambda x: x * 3 + 1)(tiny)
    torch.cuda.synchronize()
    for name in names:
        oracle = oracle_of(name)
        units = [
            torch.randint(0, 1 << 31, (INPUTS,), device="cuda").to(getattr(torch, f"int{f.unit_bits}"))
            for f in oracle.outputs.values()
        ]
        torch.cuda.synchronize()
        started = time.perf_counter()
        try:
            tally, mask = made(oracle)
            for function in (tally, mask):
                function(first, *units)
            torch.cuda.synchronize()
        except Exception as error:
            print(f"{name:16} {compiler:14} {state}: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
            continue
        seconds = time.perf_counter() - started
        pace = timed(lambda tally=tally, units=units: tally(first, *units)) * 1e3 * (1 << 32) / INPUTS
        print(f"{name:16} {compiler:14} {state}: {seconds:7.2f} s to the first results, {pace:7.1f} ms for 2^32 inputs",
              flush=True)  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3], sys.argv[4:])
    else:
        main(sys.argv[1:])
