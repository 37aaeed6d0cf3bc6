"""List a program's instruction forms, which of them are models, and whether ptxas may contract the program."""

from __future__ import annotations

from dataclasses import dataclass

from ptxdiff.emulator.binding.contraction import contraction_open
from ptxdiff.emulator.binding.program import Program, Step


@dataclass(frozen=True)
class Analysis:
    """Facts about a block: its instruction forms by full spelling in the ISA's order, each once.

    `approximate`: the forms whose result here is a model. `contraction_open`: whether ptxas may fuse a product with a
    sum, so that the result depends on the assembler.
    """

    forms: tuple[str, ...]
    approximate: tuple[str, ...]
    contraction_open: bool


def describe(program: Program) -> Analysis:
    """The facts about a program."""
    forms = dict.fromkeys(form_of(s) for s in program.steps)
    models = dict.fromkeys(s.bound.name for s in program.steps if s.bound.form.approximate)
    return Analysis(tuple(forms), tuple(models), contraction_open(program))


def form_of(step: Step) -> str:
    """The form of a step; in brackets the GPU generation whose arithmetic it models, if no hardware confirmed that."""
    elsewhere = getattr(step.detail, "elsewhere", "")
    return f"{step.bound.name} ({elsewhere})" if elsewhere else step.bound.name
