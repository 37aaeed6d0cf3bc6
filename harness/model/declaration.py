"""The parts of a case, as its author gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.model.arguments import Argument
from harness.model.match import Domain, NanPolicy, exact
from harness.model.targets import ALL, NONE
from harness.model.variants import FtzPolicies, MatchPolicy, Reference, Targets, Variant
from references.formats import Format


@dataclass(frozen=True, kw_only=True)
class CaseDeclaration:
    """What a case declares, not yet checked; `harness.model.case` says how references are called.

    inputs, outputs: formats by name; with dimensions for whole kernels. A name in both is a tensor that a whole kernel
    updates in place: the reference gets what it held, and gives what it is to hold.
    match, ftz, nan: policies for all variants that do not state their own; per output where a mapping is given (ftz:
    per input or output, names left out being "never"). ftz as a word speaks of float32, float16 and bfloat16 alone.
    targets: where every variant must work, unless it says otherwise; refused: where it must not assemble.
    carry: the output that becomes an input again in the loop context.
    hard_cases: tuples of input codes, in the order of `inputs`, that every run includes.
    where: the inputs on which the operation is defined at all; others are never generated. For whole kernels a mapping
    of an input's name to the domain of its elements, which knows the values of that input alone, or to `generated`.
    sizes: for whole kernels, the sizes to run, each a mapping of dimension names.
    generate: for whole kernels, inputs that matter to it, besides edges and random bits: a function of the sizes and a
    numpy random generator that gives each input's storage array by name.
    pytorch: the operation as PyTorch has it, a function of one tensor for each input: timed after torch.compile beside
    the variants, and not judged.
    source: where the reference's rule is written down.
    compiler: the name of the Triton build that compiles the variants that name none (`--ptx-compiler NAME=PATH`); "" is
    the Triton of this environment.
    family: the group of operations under which `ptxdiff list` shows it; it decides nothing else.
    """

    inputs: Mapping[str, Argument]
    outputs: Mapping[str, Argument]
    reference: Reference
    variants: Mapping[str, Variant]
    match: MatchPolicy = field(default_factory=exact)
    ftz: FtzPolicies = "never"
    nan: NanPolicy = "any"
    targets: Targets = ALL
    refused: Targets = NONE
    carry: Mapping[str, str] | None = None
    hard_cases: Sequence[tuple[int, ...]] = ()
    where: Domain | Mapping[str, Domain] | None = None
    sizes: Sequence[Mapping[str, int]] = ()
    generate: Callable[[Mapping[str, int], Any], Mapping[str, Any]] | None = None
    pytorch: Callable[..., Any] | None = None
    source: str = ""
    family: str = ""
    compiler: str = ""

    @property
    def domain(self) -> Domain | None:
        """`where` of an elementwise case; None where every input is meant, and for whole kernels."""
        return self.where if isinstance(self.where, Domain) else None

    @property
    def domains(self) -> Mapping[str, Domain]:
        """`where` of a whole kernel, by input name; empty for elementwise cases."""
        return self.where if isinstance(self.where, Mapping) else {}

    @property
    def elementwise(self) -> bool:
        """Whether every argument is one format without dimensions."""
        return all(isinstance(a, Format) for a in (*self.inputs.values(), *self.outputs.values()))

    @property
    def in_place(self) -> tuple[str, ...]:
        """The tensors that are input and output at once: the kernel finds the input there and leaves the output."""
        return tuple(name for name in self.outputs if name in self.inputs)
