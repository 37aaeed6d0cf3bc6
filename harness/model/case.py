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
`codes_per_unit` times that of the storage. References get torch tensors, or numpy arrays if marked with
`numpy_reference`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from html import escape
from typing import Any

from ptxdiff.model.arguments import Argument, flushes, format_of
from ptxdiff.model.match import Domain, Generated, Match, NanPolicy, exact
from ptxdiff.model.policies import policies, valid_policy_names
from ptxdiff.model.targets import ALL, NONE, TargetSet, normal
from ptxdiff.model.tuning import configured, is_wrapped
from ptxdiff.model.variants import (
    COMPILER_NAME,
    DIAGNOSES,
    AsmVariant,
    CaseError,
    Differs,
    ExpectedFailure,
    FtzPolicies,
    MatchPolicy,
    Meets,
    PtxVariant,
    Reference,
    Targets,
    Variant,
    alternatives,
)
from ptxdiff.references import formats as all_formats
from ptxdiff.references.formats import Format, Scalar, Shaped, fraction
from ptxdiff.suggestions import known_keywords


@dataclass(frozen=True, kw_only=True)
class CaseDeclaration:
    """The fields of a case, before the checks. How references are called is at the top of this file.

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


@known_keywords()
@dataclass(frozen=True, kw_only=True)
class Case(CaseDeclaration):
    """One operation, named after its file. Raises CaseError for a declaration that contradicts itself.

    Its fields are those of `CaseDeclaration`; the module's docstring says how references are called.
    """

    def __post_init__(self) -> None:
        if isinstance(self.variants, Mapping):
            object.__setattr__(self, "variants", configured(self.variants))
        check_case(self)

    def __repr__(self) -> str:
        sides = (", ".join(f"{n}: {a}" for n, a in side.items()) for side in (self.inputs, self.outputs))
        return f"Case(({next(sides)}) -> ({next(sides)}); variants {', '.join(self.variants)})"

    def _repr_html_(self) -> str:
        """The variants as a table, for notebooks."""
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td><pre>{escape(_code(variant))}</pre></td></tr>"
            for name, variant in self.variants.items()
        )
        return f"<p>{escape(repr(self))}</p><table><tr><th>variant</th><th>code</th></tr>{rows}</table>"


def _code(variant: Variant) -> str:
    """A variant's text for one pack, or the name of its function."""
    texts = getattr(variant, "texts", None)
    if texts:
        return str(next(iter(texts.values())).text)
    return str(getattr(variant, "text", "")) or str(getattr(getattr(variant, "function", None), "__name__", ""))


# Checks of a case's declaration. They run when the case file is loaded, before any compilation ---------------------


def check_case(case: CaseDeclaration) -> None:
    """Raise `CaseError` for the first contradiction, with the part at fault and the remedy."""
    _check_arguments(case)
    _check_names(case)
    _check_sizes(case)
    _check_policy_words("the case", case)
    _check_format_of_reference(case, case.reference)
    for name, variant in case.variants.items():
        where = f"variant {name!r}"
        if not isinstance(variant, Variant):
            raise CaseError(
                f"{where} is a {type(variant).__name__}; write asm(...), plain(...), kernel(...) or ptx(...)"
            )
        _check_compiler(where, variant.compiler)
        _check_policy_words(where, variant)
        _check_variant(case, where, variant)
        if variant.reference is not None:
            _check_format_of_reference(case, variant.reference)


def _check_format_of_reference(case: CaseDeclaration, reference: Reference) -> None:
    """Refuse a function of `ptxdiff.references` that is left to compute in its default format, which the case has not.

    Such a function takes any codes, so its results would be wrong without an error.
    """
    for function in alternatives(reference):
        name = getattr(function, "__name__", "")
        if not getattr(function, "__module__", "").startswith("ptxdiff.references."):
            continue
        default = _default_format(function)
        formats = [format_of(a) for a in (*case.inputs.values(), *case.outputs.values())]
        formats = [f.packs or f for f in formats]
        if isinstance(default, Format) and default.name not in [f.name for f in formats]:
            constant = next((n for n, f in vars(all_formats).items() if f == formats[0]), "...")
            raise CaseError(
                f"reference={name} computes in {default} unless told otherwise, and no argument is {default}: "
                f"reference=functools.partial({name}, fmt={constant})"
            )


@functools.cache
def _default_format(function: Callable[..., Any]) -> Any:
    """The default of a function's parameter `fmt`; None if it has none."""
    return getattr(inspect.signature(function).parameters.get("fmt"), "default", None)


def _check_arguments(case: CaseDeclaration) -> None:
    for side, arguments in (("inputs", case.inputs), ("outputs", case.outputs)):
        if not isinstance(arguments, Mapping):
            raise CaseError(f"{side}={arguments!r}: write names with their formats, {side}={{'x': F32}}")
        for name, argument in arguments.items():
            if not isinstance(argument, Format | Shaped | Scalar):
                raise CaseError(
                    f"{side}: {name!r} is {argument!r}, no format; use one of ptxdiff.references.formats, such as F32"
                )
    scalars = [name for name, argument in case.outputs.items() if isinstance(argument, Scalar)]
    if scalars:
        raise CaseError(
            f"output {scalars[0]!r} is passed by value, so that nothing could come back; give it dimensions"
        )
    if not callable(case.reference):
        raise CaseError(f"reference={case.reference!r}; give a function from codes to codes")
    if case.pytorch is not None and not callable(case.pytorch):
        raise CaseError(f"pytorch={case.pytorch!r}; give a function from torch tensors to torch tensors")
    if not isinstance(case.family, str) or case.family != " ".join(case.family.split()):
        raise CaseError(f"family={case.family!r}; give the words that `ptxdiff list` puts above it: family='bits'")
    _check_compiler("the case", case.compiler)
    if not isinstance(case.variants, Mapping):
        raise CaseError("variants are given by name: variants={'name': asm(...)}")


def _check_compiler(where: str, name: object) -> None:
    if not isinstance(name, str) or (name and not COMPILER_NAME.fullmatch(name)):
        raise CaseError(
            f"{where}: compiler={name!r}; give the name of a Triton build, such as compiler='tlx': letters, digits, "
            "dots, dashes and underscores; --ptx-compiler NAME=PATH says where it is"
        )


def _check_sizes(case: CaseDeclaration) -> None:
    """Check a whole kernel's sizes: at least one, each naming every dimension, and every dimension a whole number."""
    if case.elementwise:
        if case.sizes:
            raise CaseError("sizes= gives values to the names of dimensions; no argument of this case has any")
        arguments = (*case.inputs.items(), *case.outputs.items())
        if typed := [n for n, a in arguments if format_of(a).element_type.startswith("fp8")]:
            raise CaseError(f"{_listed(typed)}: .typed is for tensors of whole kernels; elements of 8 bits are bytes")
        if case.domains:
            raise CaseError("where= of an elementwise case is one domain of all its inputs: where=finite('x')")
        if isinstance(case.domain, Generated):
            raise CaseError("where=generated is for an input of a whole kernel, which generate= makes")
        return
    _check_domains(case)
    if not case.sizes:
        raise CaseError("arguments with dimensions need sizes to run: sizes=[{'M': 4, 'N': 64}]")
    for sizes in case.sizes:
        for argument in (*case.inputs.values(), *case.outputs.values()):
            if isinstance(argument, Shaped):
                try:
                    argument.shape(sizes)
                except ValueError as e:
                    raise CaseError(f"sizes {dict(sizes)}: {e}") from None


def _check_domains(case: CaseDeclaration) -> None:
    """Check `where` of a whole kernel: a mapping from inputs to domains."""
    if case.domain is not None:
        name = next(iter(case.inputs), "x")
        raise CaseError(
            "where= of a whole kernel is a domain for each input that has one, as the inputs have shapes of their own: "
            f"where={{{name!r}: finite({name!r})}}"
        )
    for name in case.domains:
        if name not in case.inputs:
            raise CaseError(f"where= names {name!r}; the inputs are {', '.join(case.inputs)}")
        if isinstance(case.domains[name], Generated) and case.generate is None:
            raise CaseError(f"where= says that {name!r} is generated; give generate=, which makes it")


def _check_names(case: CaseDeclaration) -> None:
    if not case.outputs:
        raise CaseError("a case has at least one output: outputs={'y': F32}")
    if not case.variants:
        raise CaseError("a case has at least one variant: variants={'name': asm(...)}")
    _check_in_place(case)
    for name in (*case.inputs, *case.outputs):
        if not name.isidentifier():
            raise CaseError(f"{name!r} is no argument name; use letters, digits and underscores")
    for name in case.variants:
        if not name or set(name) & set("[]/\\:\n\t") or name != name.strip():
            raise CaseError(f"variant name {name!r}: leave out brackets, slashes, colons and outer spaces")
    from ptxdiff.model.arguments import unit_of_hard_case

    for codes in case.hard_cases:
        if len(codes) != len(case.inputs):
            raise CaseError(f"hard case {codes} has {len(codes)} codes for {len(case.inputs)} inputs")
        for (name, argument), code in zip(case.inputs.items(), codes, strict=True):
            try:
                unit_of_hard_case(format_of(argument), code)
            except ValueError as e:
                raise CaseError(f"hard case {codes}: {e} is no code of {name} ({format_of(argument).name})") from None
    _check_hard_cases(case)


def _check_in_place(case: CaseDeclaration) -> None:
    """Check the names that are inputs and outputs: tensors of whole kernels, declared alike on both sides."""
    for name in case.in_place:
        if case.elementwise:
            raise CaseError(
                f"{name!r} is an input and an output, as only a tensor of a whole kernel can be: give it dimensions, "
                "F32['N'], and sizes=, for kernel(...) or ptx(...). asm(...) and plain(...) make new elements: give "
                "the output a name of its own, such as 'y'; where asm reads and writes one register, the constraints "
                "say so: '=r,0', or '\"+r\"(y)' with convention='cuda'"
            )
        given, made = case.inputs[name], case.outputs[name]
        if given != made:
            raise CaseError(
                f"{name!r} is {given} among the inputs and {made} among the outputs. A tensor updated in place has one "
                "format and one shape; where the kernel only reads it, or only writes it, give the other a name of its "
                "own"
            )


def _check_hard_cases(case: CaseDeclaration) -> None:
    """Refuse hard cases that no run would include: inputs outside `where`, and hard cases of a whole kernel."""
    if not case.hard_cases:
        return
    if not case.elementwise:
        raise CaseError("hard_cases= are inputs of elementwise cases; a whole kernel takes them from generate=")
    if case.domain is None or not case.inputs:
        return
    import numpy as np

    from ptxdiff.model.arguments import units_of_hard_cases, values_of

    columns = zip(*case.hard_cases, strict=True)
    values = {}
    for (name, argument), column in zip(case.inputs.items(), columns, strict=True):
        fmt = format_of(argument)
        values[name] = values_of(fmt, units_of_hard_cases(fmt, column).astype(fmt.numpy_dtype()))
    inside = np.asarray(case.domain.holds(values)).reshape(len(case.hard_cases), -1).all(axis=1)
    if not inside.all():
        first = [case.hard_cases[k] for k in np.flatnonzero(~inside)[:4]]
        outside = ", ".join(f"({', '.join(map(_hexadecimal, codes))})" for codes in first)
        raise CaseError(
            f"hard case {outside}: where= excludes it ({case.domain.text}), so that no run would include it; "
            "take it out, or widen where="
        )


def _hexadecimal(given: int | Sequence[int]) -> str:
    return hex(given) if isinstance(given, int) else f"({', '.join(map(hex, given))})"


def _check_policy_words(where: str, owner: CaseDeclaration | Variant) -> None:
    policy_names = valid_policy_names()
    if owner.nan is not None and owner.nan not in policy_names["nan"]:
        raise CaseError(f"{where}: nan={owner.nan!r}; one of {', '.join(policy_names['nan'])}")
    ftz = [] if owner.ftz is None else owner.ftz.values() if isinstance(owner.ftz, Mapping) else [owner.ftz]
    for word in ftz:
        if word not in policy_names["ftz"]:
            raise CaseError(f"{where}: ftz={word!r}; one of {', '.join(policy_names['ftz'])}")


def _check_variant(case: CaseDeclaration, where: str, variant: Variant) -> None:
    for owner in (case, variant):
        if isinstance(owner.match, Mapping):
            _known(where, "match", owner.match, case.outputs, "outputs")
            _typed(where, owner.match.values(), lambda m: isinstance(m, Match))
        elif owner.match is not None:
            _typed(where, [owner.match], lambda m: isinstance(m, Match))
        if isinstance(owner.ftz, Mapping):
            arguments = {**case.inputs, **case.outputs}
            _known(where, "ftz", owner.ftz, arguments, "inputs and outputs")
            for name, word in owner.ftz.items():
                if word != "never" and not flushes(arguments[name]):
                    raise CaseError(
                        f"{where}: ftz= names {name!r}, which is {format_of(arguments[name]).name}: {word!r} can be "
                        "said of float32, float16 and bfloat16 only, because no other arithmetic flushes; leave it out"
                    )
    if variant.meets is not None and variant.reference is None:
        raise CaseError(f"{where}: meets= relates an own reference= to the case's; without one it says nothing")
    if variant.meets is not None and not isinstance(variant.meets, Meets):
        raise CaseError(f"{where}: meets={variant.meets!r}; write Meets(domain, match)")
    if variant.meets is not None and variant.meets.match.through is not None:
        raise CaseError(f"{where}: meets= takes a bound of the result; through= belongs to match=")
    resolved = policies(case, variant)
    for name, match in resolved.match.items():
        _check_bound(where, name, format_of(case.outputs[name]), match)
        if resolved.meets is not None:
            _check_bound(where, name, format_of(case.outputs[name]), resolved.meets.match)
    both = set(resolved.targets) & set(resolved.refused)
    if both:
        raise CaseError(f"{where}: {_listed(both)} both in targets= and in refused=")
    _check_carry(case, where, resolved.carry)
    if isinstance(variant, AsmVariant):
        bad = [p for p in (*variant.texts, *variant.derived_packs) if not isinstance(p, int) or p < 1]
        if bad:
            raise CaseError(f"{where}: a pack is a number of elements, at least 1, got {bad[0]!r}")
        if not case.elementwise:
            raise CaseError(f"{where}: asm() computes elementwise; arguments with dimensions need kernel(...)")
    elif isinstance(variant, PtxVariant):
        _check_parameters(case, where, variant)
    else:
        _check_function(case, where, variant)
    _check_differs(where, variant, resolved.targets)
    if variant.expected_failure is not None:
        _check_expected(where, variant, variant.expected_failure, bool(resolved.carry))


def _check_differs(where: str, variant: Variant, targets: TargetSet) -> None:
    if not variant.differs:
        return
    if not isinstance(variant.differs, Mapping):
        raise CaseError(f"{where}: differs={variant.differs!r}; write differs={{'sm_90': 'the reason'}}")
    for name, reason in variant.differs.items():
        try:
            target = normal(name)
        except (ValueError, AttributeError) as e:
            raise CaseError(f"{where}: differs=: {e}") from None
        if target not in targets:
            raise CaseError(f"{where}: differs= names {target}, which targets= leaves out; name it there as well")
        if isinstance(reason, Differs):
            if not callable(reason.reference):
                raise CaseError(f"{where}: differs= for {target}: {reason.reference!r} is no function of codes")
            reason = reason.why
        if not isinstance(reason, str) or not reason.strip():
            raise CaseError(f"{where}: differs= gives no reason for {target}; say why it gives other bits there")
    if variant.expected_failure:
        raise CaseError(f"{where}: differs= and expected_failure= both excuse failures; state one of them")


def _check_expected(where: str, variant: Variant, expected: object, carried: bool) -> None:
    if not isinstance(expected, ExpectedFailure):
        raise CaseError(
            f"{where}: expected_failure={expected!r}; write expected_failure=ExpectedFailure(diagnosis, reason=...), "
            f"with one of the diagnoses {', '.join(DIAGNOSES)}"
        )
    if "loop" in expected.contexts and not carried:
        raise CaseError(f"{where}: a failure expected in the loop context needs carry={{output: input}}")
    if "shared" in expected.contexts and not isinstance(variant, AsmVariant):
        raise CaseError(f"{where}: only asm() runs in the shared context")
    shown = set(expected.contexts) - {"loop"}
    if expected.diagnosis == "missing early clobber" and shown != {"shared"}:
        raise CaseError(
            f'{where}: a missing early clobber shows where registers are shared: context="shared", or, where carry= '
            'makes it show in the loop too, context=("shared", "loop")'
        )


def _check_parameters(case: CaseDeclaration, where: str, variant: PtxVariant) -> None:
    """Check that the kernel gets every tensor, and that every name in `parameters` is defined."""
    sizes = {name for sizes in case.sizes for name in sizes} | ({"n"} if case.elementwise else set())
    known = dict.fromkeys([*case.inputs, *case.outputs, *sorted(sizes), *variant.meta])
    _known(where, "parameters=", [p for p in variant.parameters if isinstance(p, str)], known, "arguments and sizes")
    missing = [n for n in dict.fromkeys((*case.inputs, *case.outputs)) if n not in variant.parameters]
    if missing:
        raise CaseError(
            f"{where}: parameters= does not name {_listed(missing)}; the kernel is to be given all arguments"
        )


def _check_function(case: CaseDeclaration, where: str, variant: Variant) -> None:
    function = getattr(variant, "function", None)
    if is_wrapped(function):
        raise CaseError(
            f"{where}: plain() takes a @triton.jit function; @triton.autotune and @triton.heuristics are for kernel()"
        )
    if not callable(getattr(function, "fn", None)):
        raise CaseError(f"{where}: {variant.kind}() takes a Triton function; decorate {function!r} with @triton.jit")
    if variant.kind == "plain" and not case.elementwise:
        raise CaseError(f"{where}: plain() computes elementwise; arguments with dimensions need kernel(...)")


def _check_bound(where: str, output: str, fmt: Format, match: Match) -> None:
    """Refuse a bound that nearly every number meets, because wrong code would pass."""
    if match.through is not None:
        _check_bound(where, f"the intermediate value of {output}", match.through.fmt, match.through.bound)
    if match.kind == "ulp":
        too_wide = 4 * match.bound >= 1 << fmt.code_bits
    elif match.kind == "relative":
        too_wide = match.bound >= 1
    else:
        most = fraction(fmt, fmt.max_finite) if fmt.is_float else Fraction(1 << fmt.code_bits, 4)
        too_wide = match.kind == "absolute" and match.bound >= most
    if too_wide:
        raise CaseError(
            f"{where}: {match.describe()} on {output} ({fmt.name}) accepts nearly every number; "
            "give a bound that wrong code does not meet"
        )
    if match.outside is not None:
        _check_bound(where, output, fmt, match.outside)


def _check_carry(case: CaseDeclaration, where: str, carry: Mapping[str, str]) -> None:
    _known(where, "carry", carry, case.outputs, "outputs")
    _known(where, "carry", carry.values(), case.inputs, "inputs")
    for output, source in carry.items():
        made, taken = format_of(case.outputs[output]), format_of(case.inputs[source])
        if made.unit_bits != taken.unit_bits:
            raise CaseError(
                f"{where}: carry={{{output!r}: {source!r}}} feeds {made.name} ({made.unit_bits} bits) into "
                f"{taken.name} ({taken.unit_bits} bits); a carried result keeps its size"
            )


def _known(where: str, field: str, names: Iterable[str], known: Mapping[str, object], what: str) -> None:
    unknown = [n for n in names if n not in known]
    if unknown:
        raise CaseError(f"{where}: {field} names {_listed(unknown)}; the {what} are {', '.join(known)}")


def _typed(where: str, values: Iterable[object], accepts: Callable[[object], bool]) -> None:
    for value in values:
        if not accepts(value):
            raise CaseError(f"{where}: match={value!r}; write exact(), ulp(n), absolute(b) or relative(b)")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(n) for n in sorted(names))
