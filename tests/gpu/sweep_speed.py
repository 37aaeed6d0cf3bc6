"""How fast sweeps are on this GPU, against a copy of as many bytes: `python tests/gpu/sweep_speed.py [NAME ...]`.

It prints the times of each case: of the whole sweep, cold and warm, and of its parts, which are making inputs, the
kernel and the fused judge. `--tune` also times the judge with other numbers of warps, and as torch.compile makes it.
`--stratified` sweeps 2^30 random inputs instead.
"""

import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sweep_compilers import Fused

from ptxdiff.backends.gpu import GpuBackend, device_target
from ptxdiff.inputs import input_sets, stratified
from ptxdiff.jobs import Job, Setup
from ptxdiff.model.case import Case
from ptxdiff.model.match import ulp
from ptxdiff.model.policies import policies
from ptxdiff.model.variants import asm
from ptxdiff.references import arithmetic, conversion, exponential, reciprocal
from ptxdiff.references.formats import E4M3, F16, F32
from ptxdiff.sweep import dispatch, kernels
from ptxdiff.sweep.device import stopwatch
from ptxdiff.sweep.dispatch import sweep


def to_e4m3(x):
    return conversion.convert(x, source=F32, target=E4M3, satfinite=True)


def product(a, b):
    return arithmetic.mul(a, b, fmt=F16)


E4M3_PAIR = "{ .reg .b16 t; cvt.rn.satfinite.e4m3x2.f32 t, $1, $1; cvt.u32.u16 $0, t; and.b32 $0, $0, 255; }"
CASES = {
    "rcp.rn": (F32,), "rcp.approx.ftz": (F32,), "ex2.approx.ftz": (F32,), "cvt.e4m3": (F32,), "mul.f16": (F16, F16),
}  # fmt: skip


def case_of(name):
    if name == "cvt.e4m3":
        return Case(
            inputs={"x": F32}, outputs={"y": E4M3}, reference=to_e4m3, variants={name: asm(E4M3_PAIR, "=&r,r", pack=1)}
        )
    if name == "mul.f16":
        inline = asm("mul.rn.f16 $0, $1, $2;", packs=(2,))
        return Case(inputs={"a": F16, "b": F16}, outputs={"y": F16}, reference=product, variants={name: inline})
    if name == "rcp.rn":
        return Case(
            inputs={"x": F32},
            outputs={"y": F32},
            reference=reciprocal.correctly_rounded,
            variants={name: asm("rcp.rn.f32 $0, $1;")},
        )
    reference = reciprocal.correctly_rounded if name.startswith("rcp") else exponential.ex2
    approximate = asm(f"{name}.f32 $0, $1;", match=ulp(2), ftz="required")
    return Case(inputs={"x": F32}, outputs={"y": F32}, reference=reference, variants={name: approximate})


def timed(function, repeat=5):
    function()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeat):
        with stopwatch("cuda") as seconds:
            function()
        times.append(seconds())
    return sorted(times)[repeat // 2]


sweeps = []


class StoredSweep(dispatch.DeviceSweep):
    """A sweep that is stored in `sweeps`, so that its parts can be timed afterwards."""

    def run(self):
        sweeps[:] = [self]
        return super().run()


def judge_times(sweep, first):
    """Milliseconds of the judge on one chunk, by "block/warps", and as torch.compile makes it."""
    outputs = tuple(sweep.outputs().values())
    found = {}
    for block, warps in ((2048, 4), (2048, 8), (2048, 16), (4096, 8), (4096, 16)):
        kernels.BLOCK, kernels.WARPS = block, warps
        tally = kernels.tally_of(sweep.oracle)
        found[f"{block}/{warps}"] = timed(lambda tally=tally: tally(first, *outputs)) * 1e3
    kernels.BLOCK, kernels.WARPS = 2048, 8
    compiled = Fused(sweep.oracle.tally)
    found["torch.compile"] = timed(lambda: compiled(first, *outputs)) * 1e3
    return found


def main(words):
    tune, random = "--tune" in words, "--stratified" in words
    dispatch.DeviceSweep = StoredSweep
    backend = GpuBackend()
    for name in [w for w in words if not w.startswith("--")] or CASES:
        case = case_of(name)
        variant = case.variants[name]
        policy = policies(case, variant)
        if random:
            inputs = stratified(case, 1 << 30)
        else:
            inputs = next(s for s in input_sets(case, "exhaustive") if s.name.startswith("exhaustive"))
        pack = max(variant.derived_packs or variant.texts)
        job = Job(case, name, Path(__file__).resolve(), name, variant, device_target(), Setup(pack=pack))
        walls = []
        torch.cuda.reset_peak_memory_stats()
        for _ in range(3):
            sweeps.clear()
            started = time.perf_counter()
            swept = sweep(backend, job, policy, inputs, judge=None)
            walls.append(time.perf_counter() - started)
        memory = torch.cuda.max_memory_allocated() / 2**30
        if swept.outcome.status != "ran" or not swept.measured:
            print(name, swept.outcome.status, swept.outcome.words, swept.notes)
            continue
        s = sweeps[-1]
        chunks = inputs.count // s.chunk
        first = s.number(s.chunk)
        parts = {
            "inputs": timed(lambda s=s, f=first: [t(f, s.buffers[n].units) for n, t in s.tools.fill.items()]),
            "kernel": timed(lambda s=s: s.launch({n: b.pointer for n, b in s.buffers.items()})),
            "judge": timed(lambda s=s, f=first: s.tools.tally(f, *s.outputs().values())),
        }
        m, j = swept.measured, swept.judgement
        print(f"{name:16} 2^{inputs.count.bit_length() - 1} inputs: {m['seconds'] * 1e3:.1f} ms, "
              f"copy {m['copy'] * 1e3:.1f} ms, ratio {m['seconds'] / m['copy']:.2f}; "
              f"wall cold {walls[0]:.2f} s, warm {walls[-1]:.2f} s; {memory:.2f} GiB; "
              + ", ".join(f"{n} {t * chunks * 1e3:.1f} ms" for n, t in parts.items())
              + f"; different {j.different} {j.classes} ulps {j.ulps} {swept.outcome.findings} {swept.notes}",
              flush=True)  # fmt: skip
        if tune:
            times = judge_times(s, first)
            print("  judge, ms for all: " + ", ".join(f"{n} {t * chunks:.1f}" for n, t in times.items()), flush=True)
        del s


if __name__ == "__main__":
    main(sys.argv[1:])
