"""The case model: one operation, its reference, its policies, and the variants that compute it.

A case file is a Python module that binds one or more `Case` objects to names. Nothing is registered or inherited:

    case = Case(
        inputs={"x": F32},
        outputs={"y": F32},
        reference=reciprocal.correctly_rounded,
        variants={"rcp.rn": asm("rcp.rn.f32 $0, $1;")},
    )

A reference takes one int64 tensor of codes for each input, in the order of `inputs`, and returns one for each output,
in the order of `outputs`. An input or output of a packed format has one code per element: its last dimension is
`codes_per_unit` times that of the storage. References see torch tensors, or numpy arrays where marked with
`numpy_reference`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

from harness.model.match import FTZ_POLICIES, NAN_POLICIES, Domain, FtzPolicy, Match, NanPolicy, exact
from harness.model.targets import ALL, NONE, TargetSet, target_set
from references.formats import Format, Scalar, Shaped

Reference = Callable[..., Any]
Argument = Format | Shaped | Scalar
Context = Literal["straight", "loop", "shared"]
CONTEXTS: tuple[Context, ...] = get_args(Context)
Targets = TargetSet | str | Sequence[str]
MatchPolicy = Match | Mapping[str, Match]
FtzPolicies = FtzPolicy | Mapping[str, FtzPolicy]
F = TypeVar("F", bound=Callable[..., Any])

# What a failure can be diagnosed as, beyond its class of difference. `harness.running.diagnosis` tests for each by
# reproducing the wrong bits.
DIAGNOSES = ("missing early clobber",)


class CaseError(ValueError):
    """A case that contradicts itself; the message names the case's part and what to write instead."""


def numpy_reference(function: F) -> F:
    """Mark a reference that takes and returns numpy int64 arrays; it runs on the host."""
    function.runs_on = "numpy"  # type: ignore[attr-defined]
    return function


def either(*references: Reference) -> Reference:
    """Several specifications, of which an implementation may meet any, element by element.

    For what the specification leaves open, such as whether a multiplication and an addition are contracted. Messages
    show the first one's answer.
    """

    def first(*codes: Any) -> Any:
        return references[0](*codes)

    first.alternatives = references  # type: ignore[attr-defined]
    first.runs_on = getattr(references[0], "runs_on", "torch")  # type: ignore[attr-defined]
    return first


def alternatives(reference: Reference) -> tuple[Reference, ...]:
    """The specifications behind a reference: one, or those given to `either`."""
    found: tuple[Reference, ...] = getattr(reference, "alternatives", (reference,))
    return found


@dataclass(frozen=True)
class Meets:
    """A promise about the case's own reference, for a variant that has another: `match` holds on `on`."""

    on: Domain
    match: Match


@dataclass(frozen=True)
class ExpectedFailure:
    """A failure that is known, explained and wanted in the report: it must fail, and for the stated reason.

    diagnosis: one of `DIAGNOSES`; the failure counts as expected only when the diagnosis reproduces the wrong bits.
    context: where it is expected, one context or several; in each of them that runs it must fail, elsewhere pass.
    reason: what a reader of the report should know.
    """

    diagnosis: str
    context: Context | Sequence[Context] = "straight"
    reason: str = ""

    @property
    def contexts(self) -> tuple[Context, ...]:
        """The contexts in which it is expected."""
        return (self.context,) if isinstance(self.context, str) else tuple(self.context)

    def __post_init__(self) -> None:
        if self.diagnosis not in DIAGNOSES:
            raise CaseError(f"no diagnosis is called {self.diagnosis!r}; known: {', '.join(DIAGNOSES)}")
        for context in self.contexts:
            if context not in CONTEXTS:
                raise CaseError(f"no context is called {context!r}; known: {', '.join(CONTEXTS)}")


@dataclass(frozen=True)
class AsmText:
    """The asm of one pack factor as its author wrote it; `constraints` None means: derive them."""

    text: str
    constraints: str | None = None


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What all variants share; None means: as the case says.

    reference: this variant's own specification, where the case's does not describe it; `meets` then states the
    domain on which it must also meet the case's.
    targets: where it must work. refused: where it must not assemble.
    carry: output to input, for the loop context.
    fusion: run with Triton's fusion of multiplications and additions on or off only; None runs both.
    """

    match: MatchPolicy | None = None
    ftz: FtzPolicies | None = None
    nan: NanPolicy | None = None
    reference: Reference | None = None
    meets: Meets | None = None
    targets: Targets | None = None
    refused: Targets | None = None
    carry: Mapping[str, str] | None = None
    fusion: bool | None = None
    expected_failure: ExpectedFailure | None = None
    note: str = ""

    @property
    def kind(self) -> str:
        """The word that reports use: asm, plain or kernel."""
        return type(self).__name__.removesuffix("Variant").lower()


@dataclass(frozen=True, kw_only=True)
class AsmVariant(Variant):
    """Inline PTX: one text for each pack factor, or one single-instruction text from which they are derived."""

    texts: Mapping[int, AsmText]
    derived_packs: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PlainVariant(Variant):
    """A @triton.jit function from element tensors to one tensor or a tuple; it may contain inline asm itself."""

    function: Any
    constants: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class KernelVariant(Variant):
    """A whole @triton.jit kernel with its own launch.

    Its parameters are filled by name: inputs and outputs by pointer (scalars by value), sizes as integers, the rest
    from `meta`. `grid` is a tuple, or a function of the mapping of all sizes and meta values.
    """

    function: Any
    grid: Callable[[Mapping[str, Any]], tuple[int, ...]] | tuple[int, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)
    num_warps: int = 4


DERIVED_PACKS = (1, 2, 4)


def asm(
    text: str | Mapping[int, str | tuple[str, str]],
    constraints: str | None = None,
    *,
    pack: int | None = None,
    packs: Sequence[int] | None = None,
    **policies: Any,
) -> AsmVariant:
    """A variant in inline PTX, as `tl.inline_asm_elementwise` takes it.

    One instruction without constraints or pack is derived for several pack factors (`packs`, by default 1, 2 and 4).
    Longer asm belongs to one `pack` (1 if not given); a mapping gives a text, or a text with constraints, for each.
    Constraints that are not given are derived from the formats, outputs as early clobbers. Further keywords are the
    fields of `Variant`.
    """
    if isinstance(text, Mapping):
        if constraints is not None or pack is not None or packs is not None:
            raise CaseError("a mapping of pack to asm carries the packs itself; give (text, constraints) as its values")
        texts = {p: AsmText(*((t,) if isinstance(t, str) else t)) for p, t in text.items()}
        return AsmVariant(texts=texts, **policies)
    if pack is None and constraints is None and packs is None and _is_one_instruction(text):
        packs = DERIVED_PACKS
    if packs is not None:
        if constraints is not None or pack is not None:
            raise CaseError("packs= asks for derived forms; it excludes constraints= and pack=")
        return AsmVariant(texts={1: AsmText(text)}, derived_packs=tuple(packs), **policies)
    return AsmVariant(texts={pack or 1: AsmText(text, constraints)}, **policies)


def _is_one_instruction(text: str) -> bool:
    from harness.model.derive import single_instruction

    return single_instruction(text) is not None


def plain(function: Any, *, constants: Mapping[str, Any] | None = None, **policies: Any) -> PlainVariant:
    """A variant in ordinary Triton: a @triton.jit function of the inputs' element tensors."""
    return PlainVariant(function=function, constants=dict(constants or {}), **policies)


def kernel(
    function: Any,
    *,
    grid: Any,
    meta: Mapping[str, Any] | None = None,
    num_warps: int = 4,
    **policies: Any,
) -> KernelVariant:
    """A variant that is a whole Triton kernel; see `KernelVariant` for how its parameters are filled."""
    return KernelVariant(function=function, grid=grid, meta=dict(meta or {}), num_warps=num_warps, **policies)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One operation, named by its file. See the module's docstring for how references are called.

    inputs, outputs: formats by name; with dimensions for whole kernels.
    match, ftz, nan: policies for all variants that do not state their own; per output where a mapping is given (ftz:
    per input or output, names left out being "never"). ftz as a word speaks of float32, float16 and bfloat16 alone.
    targets: where every variant must work, unless it says otherwise; refused: where it must not assemble.
    carry: the output that becomes an input again in the loop context.
    hard_cases: tuples of input codes, in the order of `inputs`, that every run includes.
    where: the inputs on which the operation is defined at all; others are never generated.
    sizes: for whole kernels, the sizes to run, each a mapping of dimension names.
    generate: for whole kernels, inputs that matter to it, besides edges and random bits: a function of the sizes and a
    numpy random generator that gives each input's storage array by name.
    pytorch: the operation as PyTorch has it, a function of one tensor for each input: timed after torch.compile beside
    the variants, and not judged.
    source: where the reference's rule is written down.
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
    where: Domain | None = None
    sizes: Sequence[Mapping[str, int]] = ()
    generate: Callable[[Mapping[str, int], Any], Mapping[str, Any]] | None = None
    pytorch: Callable[..., Any] | None = None
    source: str = ""

    def __post_init__(self) -> None:
        from harness.model.check import check_case

        check_case(self)

    @property
    def elementwise(self) -> bool:
        """Whether every argument is one format without dimensions."""
        return all(isinstance(a, Format) for a in (*self.inputs.values(), *self.outputs.values()))


def format_of(argument: Argument) -> Format:
    """The format of an argument, whatever its shape."""
    return argument if isinstance(argument, Format) else argument.format


@dataclass(frozen=True)
class Policies:
    """The policies in force for one variant, with the case's filled in."""

    reference: Reference
    match: Mapping[str, Match]
    ftz: Mapping[str, FtzPolicy]
    nan: NanPolicy
    targets: TargetSet
    refused: TargetSet
    carry: Mapping[str, str]
    meets: Meets | None

    def describe_match(self) -> str:
        """The match policies in one phrase."""
        texts = {name: m.describe() for name, m in self.match.items()}
        same = set(texts.values())
        return same.pop() if len(same) == 1 else "; ".join(f"{n}: {t}" for n, t in texts.items())


def policies(case: Case, variant: Variant) -> Policies:
    """The case's policies with the variant's own laid over them."""
    match = case.match if variant.match is None else variant.match
    ftz = case.ftz if variant.ftz is None else variant.ftz
    arguments = {**case.inputs, **case.outputs}
    targets, refused = _target_sets(case, variant)
    return Policies(
        reference=variant.reference or case.reference,
        match=dict.fromkeys(case.outputs, match)
        if isinstance(match, Match)
        else {name: match.get(name, exact()) for name in case.outputs},
        ftz={n: "never" if isinstance(ftz, str) and not flushes(a) else ftz_of(ftz, n) for n, a in arguments.items()},
        nan=variant.nan or case.nan,
        targets=targets,
        refused=refused,
        carry=dict((case.carry if variant.carry is None else variant.carry) or {}),
        meets=variant.meets,
    )


FLUSHED = ("float32", "float16", "bfloat16")
"""Formats whose arithmetic has `.ftz` or may flush (PTX ISA, "Floating-Point Instructions" and "Half Precision"): all
that a word for ftz= speaks of. float64 supports subnormals always; narrow formats are converted, and lose none."""


def flushes(argument: Argument) -> bool:
    """Whether subnormals of an argument's format are flushed by any arithmetic."""
    return format_of(argument).single.name in FLUSHED


def ftz_of(ftz: FtzPolicies, name: str) -> FtzPolicy:
    """The word for one name; names that a mapping leaves out are "never"."""
    return ftz.get(name, "never") if isinstance(ftz, Mapping) else ftz


def _target_sets(case: Case, variant: Variant) -> tuple[TargetSet, TargetSet]:
    """Where a variant must work and must not assemble: what it says itself counts over what the case says."""
    targets = target_set(case.targets if variant.targets is None else variant.targets)
    refused = target_set(case.refused if variant.refused is None else variant.refused)
    if variant.targets is not None and variant.refused is None and set(targets) & set(refused):
        return targets, refused - targets
    if variant.targets is None and set(targets) & set(refused) and (variant.refused is not None or targets == ALL):
        return targets - refused, refused
    return targets, refused


def valid_policy_names() -> dict[str, tuple[str, ...]]:
    """The words that ftz= and nan= accept."""
    return {"ftz": FTZ_POLICIES, "nan": NAN_POLICIES}
