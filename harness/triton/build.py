"""From a `KernelSpec` to machine code, and whether one target refuses it or all do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from harness.model.assemblers import PtxasChoice
from harness.model.targets import capability
from harness.triton.assemble import Assembly, assemble
from harness.triton.compile import compile_kernel
from harness.triton.diagnostics import PIPELINE, Refusal
from harness.triton.spec import UNASKED, Compilation, KernelSpec, Tool
from harness.triton.targets import assembler, available

# LLVM knows no instruction of the target for what a kernel asks.
_NO_INSTRUCTION = re.compile(r"Cannot select")


@dataclass(frozen=True)
class Built:
    """A kernel that compiled and assembled."""

    compilation: Compilation
    assembly: Assembly


def build(spec: KernelSpec, chosen: PtxasChoice | None = None) -> Built | Refusal:
    """Compile and assemble for the spec's target; by the assembler that Triton uses, where none is chosen.

    ptxas often says of an instruction that the target lacks what it says of a misspelt one ("Arguments mismatch",
    "Unknown modifier"), above all the older release that serves the older targets. So code that it calls wrong counts
    as `unsupported` where it assembles for another target, and as an `error` where no target takes it. The same holds
    for a kernel on which one of Triton's passes fails or dies.
    """
    built = _build(spec, chosen)
    if not isinstance(built, Refusal) or not _could_be_the_targets(built):
        return built
    return _of_the_target(built, accepting(spec, _others(spec), chosen))


def compiled(spec: KernelSpec) -> Compilation | Refusal:
    """Triton's part of `build`, up to PTX, with the same word on what refuses it: this target or every one."""
    found = compile_kernel(spec)
    if not isinstance(found, Refusal) or not _could_be_the_targets(found):
        return found
    taken = (t for t in _others(spec) if not isinstance(compile_kernel(spec.for_target(t)), Refusal))
    return _of_the_target(found, next(taken, None))


def accepting(spec: KernelSpec, targets: Iterable[str], chosen: PtxasChoice | None = None) -> str | None:
    """The first of `targets` for which the kernel can be built."""
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
    """Whether another target might take it: none does where the constraints or the kernel's source are at fault."""
    if refusal.ended or refusal.kind != "error":
        return False
    return refusal.stage == "ptxas" or bool(_NO_INSTRUCTION.search(refusal.words)) or PIPELINE in refusal.detail


def _of_the_target(refusal: Refusal, taken: str | None) -> Refusal:
    """The refusal of a target by itself, where another one takes the kernel."""
    return replace(refusal, kind="unsupported", words=f"{refusal.words}; {taken} takes it") if taken else refusal


def _others(spec: KernelSpec) -> list[str]:
    """The targets but the spec's own, the newest first."""
    return sorted((t for t in available(spec.compiler) if t != spec.target), key=capability, reverse=True)
