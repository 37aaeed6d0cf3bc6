"""Compare what whole kernels cost in two checkouts: `python -m tests.benchmarks.kernel_checks OTHER [--rounds N]`.

`--large`: products of 1024 x 1024 x 1024 and attention of eight heads, in tiles as kernels for these GPUs have them; a
multiplication and addition of 2^22 elements, and softmax of 4096 x 1024.

OTHER is the folder of another checkout, such as one before a change to the checks of races and synchronisation:

    git worktree add /tmp/before REVISION && python -m tests.benchmarks.kernel_checks /tmp/before

`--scaled`: kernels that repeat a block-scaled `mma`, dense or sparse, 32 times in 256 warps.

`--billion`: softmax of 65,536 x 1024, which is a thousand million instructions, once and here alone; it takes 1.5 GB.

Triton compiles each kernel once. Each checkout runs the same PTX in its own process, by turns. Printed are the median
processor seconds of both, those of forks among them, and the median of the ratios of neighbouring runs; then the same
of seconds on the wall; instructions, once for each thread, and processor time for each of them. Another load of the
machine changes the seconds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ptxdiff.locations import ROOT

# Runs kernels of a file of arrays and texts, one for each line of its input, and answers with seconds.
_SERVER = """
import importlib, os, pickle, sys, time
try:
    run = importlib.import_module("ptxdiff.emulator.kernel.run")
except ImportError:
    run = importlib.import_module("harness.ptx.kernel.run")
with open(sys.argv[1], "rb") as file:
    workloads = pickle.load(file)
for line in sys.stdin:
    text, arguments, blocks, grid, threads, shared, scratch = workloads[line.strip()]
    given = [run.Buffer(a.copy(), str(i)) if hasattr(a, "dtype") else a for i, a in enumerate(arguments)]
    count = 1
    for size in grid:
        count *= size
    kernel = run.load_kernel(text)
    begun = os.times(), time.perf_counter()
    done = run.run_kernel(
        kernel, [*given, *run.scratch(scratch, count)], grid, num_threads=threads, shared_bytes=shared, limit=None
    )
    spent = [after - before for before, after in zip(begun[0], os.times())]
    wall = time.perf_counter() - begun[1]
    print(sum(spent[:4]), wall, done.thread_instructions, flush=True)  # with ended forks
"""


@dataclass(frozen=True)
class Workload:
    """A kernel of a test module, its arguments by name, and its launch."""

    function: Any
    arguments: dict[str, Any]
    grid: tuple[int, ...]
    target: str
    warps: int = 4
    stages: int = 3


def workloads() -> dict[str, Workload]:
    """Softmax, attention, and products with copies of threads, with boxes, and with specialised warps."""
    import triton.language as tl

    from tests.support import descriptor_kernels
    from tests.support.emulator import triton_kernels

    rng = np.random.default_rng(0)

    def normal(*shape: int, kind: Any = np.float16) -> np.ndarray[Any, Any]:
        return rng.standard_normal(shape).astype(kind)

    side = 256
    product = {"x": normal(side, side), "y": normal(side, side), "out": np.zeros((side, side), np.float16)}
    product |= {"M": side, "N": side, "K": side}
    boxes = product | {"BM": 128, "BN": 64, "BK": 64, "ACC": tl.float32}
    plain = product | {"out": np.zeros((side, side), np.float32), "B": 64, "STEP": 64, "ACC": tl.float32}
    rows = {"x": normal(1024, 1000, kind=np.float32), "y": np.zeros((1024, 1000), np.float32), "N": 1000, "B": 1024}
    heads = {name: normal(2, 256, 64) for name in ("q", "k", "v")} | {"out": np.zeros((2, 256, 64), np.float32)}
    heads |= {"N": 256, "SCALE": 0.18, "BM": 64, "BN": 64, "D": 64}
    made = descriptor_kernels.with_made_descriptors
    tiles = (side // 64, side // 64)
    return {
        "softmax": Workload(triton_kernels.softmax, rows, (1024,), "sm_90a"),
        "attention": Workload(descriptor_kernels.attention, heads, (4, 2), "sm_90a"),
        "attention sm_80": Workload(descriptor_kernels.attention, heads, (4, 2), "sm_80"),
        "matmul sm_80": Workload(triton_kernels.matmul, plain, tiles, "sm_80"),
        "matmul": Workload(triton_kernels.matmul, plain, tiles, "sm_90a"),
        "TMA matmul": Workload(made, boxes | {"TASKS": False}, (2, 4), "sm_90a"),
        "warp-specialised TMA matmul": Workload(made, boxes | {"TASKS": True}, (2, 4), "sm_90a"),
        "warp-specialised TMA matmul sm_100a": Workload(made, boxes | {"TASKS": True}, (2, 4), "sm_100a"),
    }  # fmt: skip


def large_workloads() -> dict[str, Workload]:
    """A product of 1024 x 1024 x 1024 in float16, and attention of 8 heads x 1024 x 64, for three generations; elements
    and rows."""
    import triton.language as tl

    from tests.support import descriptor_kernels
    from tests.support.emulator import triton_kernels

    rng, side = np.random.default_rng(0), 1024

    def normal(*shape: int) -> np.ndarray[Any, Any]:
        return rng.standard_normal(shape).astype(np.float16)

    product: dict[str, Any] = {"x": normal(side, side), "y": normal(side, side)}
    product["out"] = np.zeros((side, side), np.float32)
    product |= {"M": side, "N": side, "K": side, "B": 128}
    heads: dict[str, Any] = {name: normal(8, side, 64) for name in ("q", "k", "v")} | {
        "out": np.zeros((8, side, 64), np.float32)
    }
    heads |= {"N": side, "SCALE": 0.18, "BM": 128, "BN": 64, "D": 64}
    made = {}
    for target, step in (("sm_80", 32), ("sm_90a", 64), ("sm_100a", 64)):
        made[f"matmul {target}"] = Workload(
            triton_kernels.matmul, product | {"STEP": step, "ACC": tl.float32}, (8, 8), target
        )
        made[f"attention {target}"] = Workload(descriptor_kernels.attention, heads, (8, 8), target)
    count = 1 << 22
    x, z, y = (rng.standard_normal(count).astype(np.float32) for _ in range(3))
    elements = {"x": x, "z": z, "y": y, "n": count, "B": 1024}
    made["multiply and add 2^22"] = Workload(triton_kernels.multiply_add, elements, (count // 1024,), "sm_90a")
    rows = {"x": x.reshape(4096, 1024), "y": y.reshape(4096, 1024), "N": 1024, "B": 1024}
    made["softmax 4096 x 1024"] = Workload(triton_kernels.softmax, rows, (4096,), "sm_90a")
    return made


_SCALED = {
    "mxf8f6f4, e4m3": ("", "m16n8k32", "mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0"),
    "mxf4nvf4": ("", "m16n8k64", "mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"),
    "sparse mxf8f6f4, e4m3": (
        ".sp::ordered_metadata", "m16n8k64", "mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0",
    ),
    "sparse mxf4nvf4": (
        ".sp::ordered_metadata", "m16n8k128", "mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
    ),
}  # fmt: skip


def scaled() -> dict[str, tuple[Any, ...]]:
    """Kernels for sm_120a, as `compiled`. Elements and scales are words of each lane, without NaNs."""
    rng = np.random.default_rng(0)
    words = rng.integers(0, 1 << 32, (9, 32), dtype=np.uint32) & np.uint32(0x3F3F3F3F)
    made = {}
    for name, (sparse, shape, kind) in _SCALED.items():
        b = "{%r4, %r5, %r6, %r7}" if sparse else "{%r4, %r5}"
        meta = "%r10, 0, " if sparse else ""
        d = "{%f0, %f1, %f2, %f3}"
        line = (
            f"mma{sparse}.sync.aligned.{shape}.row.col.kind::{kind} {d}, {{%r0, %r1, %r2, %r3}}, {b}, {d}, "
            f"{meta}%r8, {{0, 0}}, %r9, {{0, 0}};"
        )
        loads = "\n".join(f"ld.global.b32 %r{i if i < 8 else 8}, [%rd1+{128 * i}];" for i in range(9))
        text = f"""
.version 8.8
.target sm_120a
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y)
.reqntid 128
{{
.reg .b32 %r<12>; .reg .f32 %f<4>; .reg .b64 %rd<4>; .reg .pred %p;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; mov.u32 %r11, %laneid; mul.wide.u32 %rd3, %r11, 4;
add.s64 %rd1, %rd1, %rd3;
{loads}
mov.b32 %r9, %r8; mov.b32 %r10, 0x44444444; mov.b32 %r11, 0;
mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
again:
{line}
add.u32 %r11, %r11, 1; setp.lt.u32 %p, %r11, 32; @%p bra again;
mov.u32 %r11, %ctaid.x; shl.b32 %r11, %r11, 7; mov.u32 %r0, %tid.x; add.u32 %r11, %r11, %r0;
mul.wide.u32 %rd3, %r11, 16; add.s64 %rd2, %rd2, %rd3; st.global.v4.f32 [%rd2], {d};
ret;
}}
"""
        made[name] = text, [words, np.zeros((256 * 32, 4), np.float32)], None, (64,), 128, 0, ()
    return made


def billion() -> dict[str, Workload]:
    """Softmax of 65,536 rows: 10^9 instructions, counted once for each thread."""
    from tests.support.emulator import triton_kernels

    rows, columns = 1 << 16, 1024
    x = np.random.default_rng(0).standard_normal((rows, columns), np.float32)
    arguments = {"x": x, "y": np.zeros_like(x), "N": columns, "B": columns}
    return {"softmax 65,536 x 1024": Workload(triton_kernels.softmax, arguments, (rows,), "sm_90a")}


def compiled(work: Workload) -> tuple[Any, ...]:
    """What the server needs: text, arguments, grid, threads, and bytes of shared and of scratch memory."""
    from ptxdiff.triton.compile import compile_kernel
    from ptxdiff.triton.spec import Compilation, FunctionRef, Parameters, PointerType, entry_values, specialise

    elements = {"float16": "fp16", "float32": "fp32"}
    described = {
        name: PointerType(elements[str(value.dtype)]) if hasattr(value, "dtype") else value
        for name, value in work.arguments.items()
    }
    spec = specialise(
        FunctionRef.of(work.function), described, Parameters.of(work.function), target=work.target,
        enable_fp_fusion=True, num_warps=work.warps, options=(("num_stages", work.stages),),
    )  # fmt: skip
    found = compile_kernel(spec)
    assert isinstance(found, Compilation), found
    given: list[Any] = []
    for name, kind in spec.signature:
        given += entry_values(kind, work.arguments[name])
    return found.ptx, given, None, work.grid, 32 * found.num_warps, found.shared, found.scratch


def main(words: list[str] | None = None) -> int:
    """Run the benchmark and print it."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.kernel_checks", description=__doc__)
    parser.add_argument("other", type=Path, nargs="?", default=ROOT, help="another checkout (default: this one)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--large", action="store_true", help="large products and attention instead")
    parser.add_argument("--scaled", action="store_true", help="block-scaled products instead")
    parser.add_argument(
        "--billion", action="store_true", help="one kernel of 10^9 instructions, in this checkout alone"
    )
    parser.add_argument("--only", action="append", help="a workload by its name")
    given = parser.parse_args(words)
    offered: dict[str, Any]
    if given.scaled:
        offered = scaled()
    else:
        offered = billion() if given.billion else large_workloads() if given.large else workloads()
    chosen = {name: work for name, work in offered.items() if not given.only or name in given.only}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "workloads"
        import pickle

        file.write_bytes(pickle.dumps({n: work if given.scaled else compiled(work) for n, work in chosen.items()}))
        servers = [
            subprocess.Popen(
                [sys.executable, "-c", _SERVER, str(file)], cwd=checkout, env=None, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )
            for checkout in ([ROOT] if given.billion else (given.other.resolve(), ROOT))
        ]  # fmt: skip
        if given.billion:
            for name in chosen:
                used, wall, count = _asked(servers[0], name)
                print(f"{name:<40}{used:>8.2f} s CPU{wall:>8.2f} s{count / 1e6:>9.1f} M{1e9 * used / count:>8.2f} ns")
            servers[0].communicate()
            return 0
        for name in chosen:
            seconds = np.array([[_asked(server, name) for server in servers] for _ in range(given.rounds + 1)][1:])
            before, here = np.median(seconds, axis=0)
            ratios = np.median(seconds[:, 1] / seconds[:, 0], axis=0)
            words = [f"{before[i]:>8.2f} s{here[i]:>8.2f} s{ratios[i]:>7.2f}" for i in range(2)]
            print(f"{name:<40}{'   '.join(words)}{here[2] / 1e6:>9.1f} M{1e9 * here[0] / here[2]:>8.2f} ns", flush=True)
        for server in servers:
            server.communicate()
    return 0


def _asked(server: subprocess.Popen[str], name: str) -> tuple[float, ...]:
    """Seconds of the processors, and of the clock on the wall; instructions, once for each thread."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(f"{name}\n")
    server.stdin.flush()
    return tuple(map(float, server.stdout.readline().split()))


if __name__ == "__main__":
    sys.exit(main())
