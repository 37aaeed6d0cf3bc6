"""A sweep without memory: inputs made, run and judged in the registers of one kernel, beside the three kernels of now.

`python tests/gpu/sweep_in_registers.py [NAME ...]` prints for each case of `sweep_speed` the milliseconds for 2^32
inputs of a copy, of the kernels of today (the sweep's own first pass: the variant, then the judge with the next
inputs), and of one kernel at several numbers of inputs and warps of a program. Each kernel's tallies are compared with
those of today's kernels, row by row: "other tallies" is a mistake of this file, and its time counts for nothing.

`--count` needs no GPU: it compiles the kernels for sm_90a and prints the machine instructions of one input, by the unit
that runs them. A multiprocessor of Hopper issues 128 lanes of instructions a clock, 64 of them of integers.
"""

import re
import sys
from collections import Counter
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sweep_speed import CASES, case_of, timed

from ptxdiff.inputs import input_sets
from ptxdiff.jobs import Job, Setup
from ptxdiff.model.derive import asm_form
from ptxdiff.model.policies import policies
from ptxdiff.sweep.fused import kernels
from ptxdiff.sweep.oracle import Oracle
from ptxdiff.sweep.result import ROW

SHAPES = ((1024, 4), (2048, 4), (2048, 8), (4096, 8), (1024, 8), (512, 4))
INTEGER = ("IADD", "LOP3", "SHF", "LEA", "IMNMX", "VIMNMX", "ISETP", "SEL", "PRMT", "VIADD", "BMSK", "SGXT", "PLOP3")
TYPES = {32: "int32", 16: "int16", 8: "int8"}


def oracle_of(name):
    case = case_of(name)
    inputs = next(s for s in input_sets(case, name, "exhaustive") if s.name.startswith("exhaustive"))
    return Oracle(case, policies(case, case.variants[name]), inputs.generator), case


def row_kernels(name):
    """The tally of today, and one that makes inputs and runs the asm itself instead of loading results."""
    oracle, case = oracle_of(name)
    variant = case.variants[name]
    bits = kernels.number_bits(oracle)
    today = kernels.tally_kernel(oracle, bits)
    pack = max(variant.derived_packs or variant.texts)
    form = asm_form(case, variant, pack)
    lines, given = [], []
    for k, (inputs, fmt) in enumerate(oracle.inputs.items()):
        made = kernels._units_body(oracle, inputs, bits, "base")
        lines += kernels._indented(made.lines)
        word = f"tl.broadcast_to({made.results[0].text}, [BLOCK]).to(tl.{TYPES[fmt.unit_bits]})"
        lines.append(f"        in{k} = {word}")
        given.append(f"in{k}")
    outputs = [TYPES[f.unit_bits] for f in oracle.outputs.values()]
    assert len(outputs) == 1
    asm = f"tl.inline_asm_elementwise({form.text!r}, {form.constraints!r}, [{', '.join(given)}], "
    asm += f"dtype=tl.{outputs[0]}, is_pure=True, pack={pack})"
    lines.append(f"        u0 = {asm}" + (".to(tl.int32)" if outputs[0] != "int32" else ""))
    load = kernels._loads(list(oracle.outputs.values()))[0]
    assert today.text.count(load) == 1
    text = today.text.replace(load, "\n".join(lines)).replace("first, table, p0", "first, table")
    return oracle, today, kernels.RowKernel(text, today.tables)


# ---- Counting machine instructions, without a GPU ------------------------------------------------------------------


def machine_code(kernel, pointers, block, warps):
    """nvdisasm's text of a row kernel for sm_90a."""
    import subprocess
    import tempfile

    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from ptxdiff.triton.targets import tool

    signature = {n: pointers.get(n, "*i64") for n in kernel.function.arg_names if n not in ("ROW", "BLOCK")}
    signature |= {f"t{k}": f"*{short(t.dtype)}" for k, t in enumerate(kernel.tables)}
    constants = {"ROW": ROW, "BLOCK": block}
    source = ASTSource(kernel.function, signature | dict.fromkeys(constants, "constexpr"), constants)
    options = {"num_warps": warps, "enable_fp_fusion": False}
    cubin = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["cubin"]
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([tool("nvdisasm"), "-c", file.name], capture_output=True, text=True, check=True).stdout


def short(dtype):
    """Triton's short name of a torch dtype."""
    return str(dtype).removeprefix("torch.").replace("uint", "u").replace("int", "i").replace("float", "fp")


def loop_opcodes(text):
    """The opcodes of the longest loop: from a label to the last branch back to it."""
    lines = [line for line in text.splitlines() if re.search(r"^\s*/\*[0-9a-f]{4,}\*/|^\.L", line)]
    labels = {line.strip().rstrip(":"): k for k, line in enumerate(lines) if line.startswith(".L")}
    best = []
    for k, line in enumerate(lines):
        if m := re.search(r"BRA.*`\((\.L\w+)\)", line):
            start = labels.get(m[1], k)
            body = [m[1] for x in lines[start:k] if (m := re.search(r"\*/\s+(?:@!?U?P\w+ )?([A-Z][\w.]*)", x))]
            best = max(best, body, key=len)
    return best


def counted(name):
    oracle, today, single = row_kernels(name)
    bits = next(iter(oracle.outputs.values())).unit_bits
    for words, kernel, pointers in (("judge of today", today, {"p0": f"*i{bits}"}), ("one kernel", single, {})):
        for block, warps in SHAPES[:3]:
            opcodes = loop_opcodes(machine_code(kernel, pointers, block, warps))
            each = block / (32 * warps)
            if not opcodes:
                print(f"{name:16} {words:15} {block}/{warps}: no loop found")
                continue
            integers = sum(o.startswith(INTEGER) for o in opcodes) / each
            common = Counter(o.split(".")[0] for o in opcodes).most_common(9)
            listed = ", ".join(f"{o} {c / each:.1f}" for o, c in common)
            print(f"{name:16} {words:15} {block}/{warps}: {len(opcodes) / each:.1f} an input, {integers:.1f} of them "
                  f"integers' ({listed})", flush=True)  # fmt: skip


# ---- Timing on a GPU -----------------------------------------------------------------------------------------------


def measured(name):
    from ptxdiff.backends import gpu
    from ptxdiff.sweep.device import DeviceSweep
    from ptxdiff.sweep.device_time import copy_floor
    from ptxdiff.sweep.kernels import chunk_job, unit_bytes
    from ptxdiff.triton.launch import launch_of

    oracle, _, single = row_kernels(name)
    case = case_of(name)
    variant, policy = case.variants[name], policies(case, case.variants[name])
    inputs = next(s for s in input_sets(case, name, "exhaustive") if s.name.startswith("exhaustive"))
    pack = max(variant.derived_packs or variant.texts)
    job = Job(case, name, Path(__file__).resolve(), name, variant, gpu.device_target(), Setup(pack=pack))
    job = chunk_job(job, inputs, compiled=True)
    launch = launch_of(job)
    views = {t.name: gpu.torch_dtype(t.format) for t in launch.tensors}
    sweep = DeviceSweep(
        job, policy, inputs.generator, inputs.count, lambda p: gpu.start(job, launch, p), launch.tensors, views,
        device=gpu.DEVICE, compiled=True,
    )  # fmt: skip
    starts = range(0, inputs.count, sweep.chunk)

    def whole():
        for start in starts:
            sweep._chunk(start)
            sweep._tallied(start)

    floor = copy_floor(inputs.count * unit_bytes(job) // 2, gpu.DEVICE) * 1e3
    now = timed(whole) * 1e3
    print(f"{name:16} copy {floor:.2f} ms; today {now:.2f} ({now / floor:.2f})", flush=True)
    chunk, rows = starts[len(starts) // 3], inputs.count // ROW
    sweep._filled.clear()
    sweep._chunk(chunk)
    expected = sweep.tools.tally(sweep.number(chunk), *sweep.outputs().values())
    table = torch.empty((len(oracle.names), rows), dtype=torch.int64, device=gpu.DEVICE)
    for block, warps in SHAPES:
        kernels.BLOCK, kernels.WARPS = block, warps
        part = torch.empty_like(expected)
        try:
            single(part.shape[1], sweep.number(chunk), part)
            same = torch.equal(part, expected)
            pace = timed(lambda: single(rows, sweep.number(0), table)) * 1e3
        except Exception as error:
            print(f"  {block}/{warps}: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
            continue
        words = "" if same else ", OTHER TALLIES"
        print(f"  one kernel {block}/{warps}: {pace:.2f} ms ({pace / floor:.2f} of the copy){words}", flush=True)
    kernels.BLOCK, kernels.WARPS = 2048, 8


def main(words):
    for name in [w for w in words if not w.startswith("--")] or CASES:
        (counted if "--count" in words else measured)(name)


if __name__ == "__main__":
    main(sys.argv[1:])
