"""Prove the machine code of a variant's kernels against their PTX, as Triton and ptxas make them.

A kernel is made for each pack, in the harness's template around the asm or the Triton function, or as the case gives
it. Whatever the variant computes, the question is only whether ptxas kept it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ptxdiff.backends.assembler import assembled
from ptxdiff.backends.compiled import CompiledKernel, placed
from ptxdiff.emulator.text import retargeted
from ptxdiff.jobs import Backend, Job, Outcome, Setup, block_of
from ptxdiff.model.arguments import format_of
from ptxdiff.model.assemblers import PtxasChoice
from ptxdiff.model.case import Case
from ptxdiff.model.derive import packs_of
from ptxdiff.model.load import LoadedCase
from ptxdiff.model.variants import AsmVariant, KernelVariant, Variant
from ptxdiff.proving.on_device import by_ptx
from ptxdiff.proving.search import ProofSearch, Verdict
from ptxdiff.proving.translation import AssembledKernel, memory_of, prove_translation
from ptxdiff.references.formats import Shaped
from ptxdiff.sass.cubin import machine_code
from ptxdiff.sass.disassembly import disassembled
from ptxdiff.sass.errors import Unsupported
from ptxdiff.triton.ptxas import label_of_tool
from ptxdiff.triton.targets import tool

ELEMENTS = 1000
"""Of the launch that is to show a counterexample; the last block is not full."""


def prove_assembled(
    loaded: LoadedCase,
    name: str,
    target: str,
    *,
    seconds: float = 60.0,
    solvers: Sequence[str] = (),
    packs: Sequence[int] = (),
    assembler: PtxasChoice | None = None,
    device: Backend | None = None,
) -> Verdict:
    """The verdict on the machine code of a variant's kernels; see `ptxdiff.proving.translation`.

    assembler: None for the one that Triton uses. device: runs a counterexample before it is believed. All else as for
    `ptxdiff.proving.verdicts.prove`.
    """
    case = loaded.case
    search = ProofSearch(seconds, tuple(solvers))
    found, done = Verdict("not settled", "nothing to prove"), list[int]()
    made_by = ""
    setups = _setups(case, case.variants[name], packs)
    for setup in setups:
        job = Job(
            case, loaded.name, loaded.path, name, case.variants[name], target, replace(setup, assembler=assembler)
        )
        made = translation_of(job)
        if isinstance(made, Verdict):
            found = made
        else:
            one, made_by = made
            verdict = prove_translation(one, search)
            if verdict.verdict == "counterexample" and device is not None:
                verdict = by_ptx(replace(job, inputs=_held(job, one, verdict)), verdict, device)
            found = replace(
                verdict,
                program=verdict.program and f"{found.program}{verdict.program[:16]}",
                rules=verdict.rules and f"{found.rules}{verdict.rules[:16]}",
            )
        if found.verdict != "proved":
            break
        done.append(setup.pack)
    done = [p for p in dict.fromkeys(done) if done.count(p) == sum(s.pack == p for s in setups)]
    return replace(
        found, target=target, against="sass", packs=tuple(done), solver=search.versions,
        seconds=seconds - search.left, tried=tuple(search.tried), assembler=made_by,
    )  # fmt: skip


def _setups(case: Case, variant: Variant, packs: Sequence[int]) -> list[Setup]:
    """One setup for each different kernel of a variant."""
    if not case.elementwise:
        warps = variant.num_warps if isinstance(variant, KernelVariant) else 4
        pairs = itertools.product(case.sizes, variant.fusions)
        return [Setup(sizes=dict(sizes), num_warps=warps, fusion=fusion) for sizes, fusion in pairs]
    own = packs or (packs_of(case, variant) if isinstance(variant, AsmVariant) else (1,))
    both = itertools.product(own, variant.fusions)
    return [Setup(pack=p, block=block_of(p), shape=(ELEMENTS,), fusion=fusion) for p, fusion in both]


def translation_of(job: Job) -> tuple[AssembledKernel, str] | Verdict:
    """A job's kernel and the name of its assembler; a verdict if there is no machine code of it."""
    job = replace(job, inputs=_zeros(job))
    made = assembled(job)
    if isinstance(made, Outcome):
        return Verdict("not settled", f"does not assemble: {made.words}")
    launch, built = made
    compilation = built.compilation
    if compilation.scratch:
        return Verdict("not settled", "not modelled: scratch memory of a kernel")
    try:
        text = disassembled(built.assembly.cubin, tool("nvdisasm"))
        code = machine_code(built.assembly.cubin, text, compilation.entry)
    except Unsupported as refusal:
        return Verdict("not settled", f"not modelled: {refusal.message}")
    given = compilation.spec.given
    block = given.block if given else (32 * compilation.num_warps, 1, 1)
    if math.prod(launch.grid) == 0:
        return Verdict("not settled", "nothing to prove: the grid has no blocks")

    def make() -> list[Any]:
        return placed(job, CompiledKernel(launch, compilation), fuse=False).parameters

    ptx = compilation.ptx if given is None else retargeted(compilation.ptx, job.target)
    entry = None if given is None else compilation.entry
    return AssembledKernel(ptx, entry, code, job.target, tuple(block), tuple(launch.grid), make), label_of_tool(
        compilation.ptxas
    )


def _held(job: Job, one: AssembledKernel, verdict: Verdict) -> dict[str, Any]:
    """The inputs of a launch that shows a counterexample."""
    memory = memory_of(one, verdict.inputs)
    return {
        name: np.ascontiguousarray(memory[name]).view(zeros.dtype).reshape(zeros.shape) if name in memory else zeros
        for name, zeros in _zeros(job).items()
    }


def _zeros(job: Job) -> dict[str, Any]:
    """Inputs of a launch, whose contents a counterexample replaces."""
    found = {}
    for name, argument in job.case.inputs.items():
        shape = argument.shape(job.setup.sizes) if isinstance(argument, Shaped) else job.setup.shape
        found[name] = np.zeros(shape, format_of(argument).numpy_dtype())
    return found
