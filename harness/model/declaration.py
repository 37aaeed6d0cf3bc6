"""The parts of a case, as its author gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ptxdiff.model.arguments import Argument
from ptxdiff.model.match import Domain, NanPolicy, exact
from ptxdiff.model.targets import ALL, NONE
from ptxdiff.model.variants import FtzPolicies, MatchPolicy, Reference, Targets, Variant
from ptxdiff.references.formats import Format


@dataclass(frozen=True, kw_only=True)
class CaseDeclaration:
    """The fields of a case, before the checks; `ptxdiff.model.case` says how references are called.

    inputs, outputs: formats by name; with dimensions for whole kernels. A name in both is a tensor that a whole kernel
    updates in place: the reference takes its value before the kernel and returns its value after it.
    match, ftz, nan: policies for all variants that do not state their own. A mapping gives them by output (ftz: by
    input or output; missing names are "never"). A single word for ftz applies only to float32, float16 and bfloat16.
    targets: the targets on which every variant must work, unless it states its own. refused: the targets on which it
    must not assemble. carry: the output that becomes an input again in the loop context.
    hard_cases: tuples of input codes, in the order of `inputs`, that every run includes. For a packed format a code
    stands in every place of the word; a greater number is the whole word, and a tuple has a code for each place.
    where: the inputs on which the operation is defined; others are never generated. For whole kernels a mapping from an
    input's name to the domain of its elements, which can depend only on that input's values, or to `generated`.
    sizes: for whole kernels, the sizes to run, each a mapping of dimension names.
    generate: for whole kernels, further inputs besides edges and random bits: a function of the sizes and a numpy
    random generator that returns each input's storage array by name. pytorch: the same operation in PyTorch, a function
    of one tensor for each input. It is compiled with torch.compile and timed beside the variants, but not judged.
    source: the source of the reference's rule. compiler: the name of the Triton build (`--ptx-compiler NAME=PATH`) for
    variants that name none; "" is the Triton of this environment. family: the heading under which `ptxdiff list` shows
    the case; it has no other effect.
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
    hard_cases: Sequence[tuple[int | Sequence[int], ...]] = ()
    where: Domain | Mapping[str, Domain] | None = None
    sizes: Sequence[Mapping[str, int]] = ()
    generate: Callable[[Mapping[str, int], Any], Mapping[str, Any]] | None = None
    pytorch: Callable[..., Any] | None = None
    source: str = ""
    family: str = ""
    compiler: str = ""

    @property
    def domain(self) -> Domain | None:
        """`where` of an elementwise case; None if all inputs are meant, and for whole kernels."""
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
