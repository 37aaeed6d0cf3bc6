"""The first pass of a sweep in registers (`ptxdiff.sweep.kernels`), beside the one in memory.

`python tests/gpu/sweep_in_registers.py [NAME ...]` prints for each case of `sweep_speed` the milliseconds for 2^32
inputs of a copy, of the first pass in memory (the variant's kernel, then the judge with the next inputs), of the kernel
in registers at several numbers of inputs and warps of a program, and of the whole first pass of `ptxdiff sweep`, in
which some chunks run as the variant's kernel too. Tallies of both kernels are compared, row by row.

`--count` needs no GPU: it compiles the kernels for sm_90a and prints the machine instructions of one input, by the unit
that runs them. A multiprocessor of Hopper issues 128 lanes of instructions a clock, 64 of them of integers.
"""

import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sweep_speed import CASES, case_of, timed

from ptxdiff.inputs import input_sets
from ptxdiff.jobs import Job, Setup
from ptxdiff.model.derive import asm_form
from ptxdiff.model.policies import policies
from ptxdiff.sweep import dispatch, kernels
from ptxdiff.sweep.oracle import Oracle
from ptxdiff.sweep.result import ROW
from ptxdiff.triton.elementwise import InlineAsm

SHAPES = ((2048, 4), (2048, 8), (2048, 16), (4096, 8))
INTEGER = ("IADD", "LOP3", "SHF", "LEA", "IMNMX", "VIMNMX", "ISETP", "SEL", "PRMT", "VIADD", "BMSK", "SGXT", "PLOP3")


def oracle_of(name):
    case = case_of(name)
    inputs = next(s for s in input_sets(case, "exhaustive") if s.name.startswith("exhaustive"))
    return Oracle(case, policies(case, case.variants[name]), inputs.generator), case


def row_kernels(name, block=kernels.BLOCK, warps=kernels.WARPS):
    """The tally of results in memory, and the one that makes inputs and runs the asm itself."""
    oracle, case = oracle_of(name)
    variant = case.variants[name]
    bits = kernels.number_bits(oracle)
    form = asm_form(case, variant, max(variant.derived_packs or variant.texts))
    asm = InlineAsm(form.text, form.constraints, form.pack)
    in_memory = kernels.tally_kernel(oracle, bits)
    return oracle, in_memory, kernels.tally_in_registers(oracle, bits, asm, block=block, warps=warps)


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
    for block, warps in SHAPES:
        oracle, in_memory, single = row_kernels(name, block, warps)
        bits = next(iter(oracle.outputs.values())).unit_bits
        for words, kernel, pointers in (
            ("judge in memory", in_memory, {"p0": f"*i{bits}"}),
            ("in registers", single, {}),
        ):
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
    from ptxdiff.sweep.device import DeviceSweep, chunk_job, chunk_size, copy_floor, unit_bytes
    from ptxdiff.triton.launch import launch_of

    case = case_of(name)
    variant, policy = case.variants[name], policies(case, case.variants[name])
    inputs = next(s for s in input_sets(case, "exhaustive") if s.name.startswith("exhaustive"))
    pack = max(variant.derived_packs or variant.texts)
    given = Job(case, name, Path(__file__).resolve(), name, variant, gpu.device_target(), Setup(pack=pack))
    job = chunk_job(given, inputs, compiled=True)
    size = chunk_size(inputs.count, unit_bytes(job), compiled=True)  # as where all chunks are in memory
    job = replace(job, setup=replace(job.setup, shape=(size,)))
    launch = launch_of(job)
    views = {t.name: gpu.torch_dtype(t.format) for t in launch.tensors}
    sweep = DeviceSweep(
        job, policy, inputs.generator, inputs.count, lambda p: gpu.start(job, launch, p), launch.tensors, views,
        device=gpu.DEVICE, compiled=True,
    )  # fmt: skip
    starts = range(0, inputs.count, sweep.chunk)
    sampler = sweep._sampler(starts)
    floor = copy_floor(inputs.count * unit_bytes(job) // 2, gpu.DEVICE) * 1e3
    in_memory = min(sweep._chunks(starts, sampler).seconds for _ in range(3)) * 1e3
    print(f"{name:16} copy {floor:.2f} ms; in memory {in_memory:.2f} ({in_memory / floor:.2f})", flush=True)
    rows = inputs.count // ROW
    expected = sweep._chunks(starts, sampler).table
    for block, warps in SHAPES:
        oracle, _, single = row_kernels(name, block, warps)
        table = torch.empty((len(oracle.names), rows), dtype=torch.int64, device=gpu.DEVICE)
        try:
            pace = timed(lambda: single(rows, sweep.number(0), table)) * 1e3  # noqa: B023 - it runs here
        except Exception as error:
            print(f"  {block}/{warps}: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
            continue
        words = "" if torch.equal(table, expected) else ", OTHER TALLIES"
        print(f"  in registers {block}/{warps}: {pace:.2f} ms ({pace / floor:.2f} of the copy){words}", flush=True)
    swept = [dispatch.run(given, policy, inputs) for _ in range(3)]
    whole = min(s.measured["seconds"] for s in swept) * 1e3
    notes = [n for n in swept[0].notes if "registers" in n or "other results" in n]
    print(
        f"  the sweep: {whole:.2f} ms ({whole / floor:.2f}), {swept[0].judgement.different} differ; {notes}", flush=True
    )


def main(words):
    for name in [w for w in words if not w.startswith("--")] or CASES:
        (counted if "--count" in words else measured)(name)


if __name__ == "__main__":
    main(sys.argv[1:])
