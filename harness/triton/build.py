"""From a `KernelSpec` to machine code, or to a refusal that says whether every target refuses it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ptxdiff.model.compilers import PtxasChoice
from ptxdiff.model.targets import capability
from ptxdiff.triton.assemble import Assembly, assemble
from ptxdiff.triton.compile import compile_kernel
from ptxdiff.triton.diagnostics import PIPELINE, Refusal
from ptxdiff.triton.spec import UNASKED, Compilation, KernelSpec
from ptxdiff.triton.targets import assembler, available
from ptxdiff.triton.tools import Tool

# LLVM has no instruction of the target for an operation of the kernel.
_NO_INSTRUCTION = re.compile(r"Cannot select")


@dataclass(frozen=True)
class Built:
    """A compiled and assembled kernel."""

    compilation: Compilation
    assembly: Assembly


def build(spec: KernelSpec, chosen: PtxasChoice | None = None) -> Built | Refusal:
    """Compile and assemble for the spec's target, with the chosen assembler, or else with Triton's.

    ptxas often gives the same message for an instruction that the target lacks as for a misspelt one ("Arguments
    mismatch", "Unknown modifier"), above all the older release, which serves older targets. So a kernel that it refuses
    is `unsupported` if it assembles for another target, and an `error` if no target accepts it. The same holds for a
    kernel on which one of Triton's passes fails or crashes.
    """
    built = _build(spec, chosen)
    if not isinstance(built, Refusal) or not _could_be_the_targets(built):
        return built
    return _of_the_target(built, accepting(spec, _others(spec), chosen))


def compiled(spec: KernelSpec) -> Compilation | Refusal:
    """Compile to PTX, without assembling. A refusal says, as in `build`, whether every target refuses it."""
    found = compile_kernel(spec)
    if not isinstance(found, Refusal) or not _could_be_the_targets(found):
        return found
    taken = (t for t in _others(spec) if not isinstance(compile_kernel(spec.for_target(t)), Refusal))
    return _of_the_target(found, next(taken, None))


def accepting(spec: KernelSpec, targets: Iterable[str], chosen: PtxasChoice | None = None) -> str | None:
    """The first of `targets` for which the kernel can be built; None if there is none."""
    return next((t for t in targets if isinstance(_build(spec.for_target(t), chosen), Built)), None)


def _build(spec: KernelSpec, chosen: PtxasChoice | None = None) -> Built | Refusal:
    compilation = compile_kernel(spec)
    if isinstance(compilation, Refusal):
        return compilation
    if chosen is not None:
        compilation = replace(compilation, ptxas=Tool.of(chosen))
    elif compilation.ptxas == UNASKED:
        compilation = replace(compilation, ptxas=assembler(spec.target))
    assembly = assemble(compilation)
    return assembly if isinstance(assembly, Refusal) else Built(compilation, assembly)


def _could_be_the_targets(refusal: Refusal) -> bool:
    """Whether another target might accept it. None does if the constraints or the kernel's source are at fault."""
    if refusal.ended or refusal.kind != "error":
        return False
    return refusal.stage == "ptxas" or bool(_NO_INSTRUCTION.search(refusal.words)) or PIPELINE in refusal.detail


def _of_the_target(refusal: Refusal, taken: str | None) -> Refusal:
    """The refusal, marked as one of this target alone if another target accepts the kernel."""
    return replace(refusal, kind="unsupported", words=f"{refusal.words}; {taken} accepts it") if taken else refusal


def _others(spec: KernelSpec) -> list[str]:
    """All targets except the spec's own, the newest first."""
    return sorted((t for t in available(spec.compiler) if t != spec.target), key=capability, reverse=True)
