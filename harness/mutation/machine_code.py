"""Machine code of variants and their mutants. A mutant with the original's machine code is equivalent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ptxdiff.jobs import Job, Setup, block_of
from ptxdiff.model.derive import packs_of
from ptxdiff.model.variants import AsmVariant, KernelVariant, PlainVariant
from ptxdiff.mutation.trial import Subject
from ptxdiff.triton.assemble import assemble
from ptxdiff.triton.compile import compile_kernel
from ptxdiff.triton.cubin import loaded_sections
from ptxdiff.triton.diagnostics import Refusal
from ptxdiff.triton.installation import NoTriton
from ptxdiff.triton.launch import launch_of
from ptxdiff.triton.targets import assembler

Code = tuple[Mapping[str, bytes], ...]


def setups_of(subject: Subject, name: str) -> list[Setup]:
    """One setup for each different kernel of a variant; for asm only that of the largest pack."""
    variant = subject.case.variants[name]
    # With fusion, Triton's default, because only then ptxas treats `add` and `add.rn` differently after `mul`.
    fusion = variant.fusion is not False
    if isinstance(variant, AsmVariant):
        pack = max(packs_of(subject.case, variant))
        return [Setup(pack=pack, block=block_of(pack), shape=(1024,), fusion=fusion)]
    assert isinstance(variant, PlainVariant | KernelVariant)
    if subject.case.elementwise:
        return [Setup(shape=(1024,), fusion=fusion)]
    warps = variant.num_warps if isinstance(variant, KernelVariant) else 4
    return [Setup(sizes=dict(sizes), num_warps=warps, fusion=fusion) for sizes in subject.case.sizes]


def job_of(subject: Subject, name: str, setup: Setup) -> Job:
    """The job of a variant in a setup, without inputs."""
    variant = subject.case.variants[name]
    return Job(subject.case, subject.loaded.name, subject.loaded.path, name, variant, subject.target, setup)


def machine_code(subject: Subject, name: str) -> Code | None:
    """The machine code of a variant's present text, one part for each setup; None if one does not compile or assemble.

    None must not be compared: two refused texts are not equivalent.
    """
    found = []
    for setup in setups_of(subject, name):
        job = job_of(subject, name, setup)
        try:
            compilation = compile_kernel(launch_of(job).spec(job.target))
            if isinstance(compilation, Refusal):
                return None
            assembly = assemble(replace(compilation, ptxas=assembler(job.target)))
            if isinstance(assembly, Refusal):
                return None
            found.append(loaded_sections(assembly.cubin))
        except (ValueError, TypeError, NoTriton):
            return None
    return tuple(found) or None
