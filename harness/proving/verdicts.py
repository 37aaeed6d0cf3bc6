"""Whether a variant's asm gives an accepted result for all inputs: proved, a counterexample, or not settled.

What is proved: for every input of the case's domain, each invocation of the block gives results that the judge's rules
accept, on one target, for each pack, in both readings where ptxas may contract, with instructions that compute what
their definitions say. A counterexample is run on the emulator before it is believed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptxdiff.emulator import PtxError, UndefinedBits
from ptxdiff.jobs import Backend
from ptxdiff.judging.judge import judge
from ptxdiff.judging.offenders import judged_padding
from ptxdiff.model.arguments import format_of
from ptxdiff.model.case import Case
from ptxdiff.model.derive import AsmForm, asm_form, packs_of
from ptxdiff.model.identity.definition import INCOMPARABLE, definition
from ptxdiff.model.load import LoadedCase
from ptxdiff.model.policies import Policies, policies, variant_on
from ptxdiff.model.reference import ReferenceFault
from ptxdiff.model.variants import AsmVariant, CaseError, Variant
from ptxdiff.proving import programs, queries
from ptxdiff.proving import terms as t
from ptxdiff.proving.on_device import arrays_of
from ptxdiff.proving.programs import Results
from ptxdiff.proving.solving import ProofSearch, SolverFault, TermFault, Verdict, ever, holds, needed
from ptxdiff.proving.terms import FALSE, TRUE, NotEvaluable, NotModelled, Term
from ptxdiff.records import Proof
from ptxdiff.references.formats import Format


@dataclass(frozen=True)
class _Unit:
    """What one proof is about: some invocations of a block, whose elements are numbered together. fuse: whether every
    product and sum is fused that may be; None: any of them. share: outputs in registers of inputs."""

    case: Case
    policy: Policies
    form: AsmForm
    target: str
    fuse: bool | None
    elements: int
    share: tuple[tuple[int, int], ...] = ()


def prove(
    case: Case,
    name: str,
    target: str,
    *,
    against: str = "reference",
    seconds: float = 60.0,
    solvers: Sequence[str] = (),
    packs: Sequence[int] = (),
) -> Verdict:
    """The verdict on a variant by its case's rules, or by another variant's bits (`against`).

    seconds: the processor's time for everything. solvers: those that are asked at the same time; by default one for
    each query. packs: those to prove; all of the variant by default.
    Raises CaseError for a name that the case lacks, TermFault for a fault of the terms.
    """
    variant = _named(case, name)
    other = None if against == "reference" else _named(case, against)
    search = _VariantSearch(seconds, tuple(solvers))
    done: list[int] = []
    result = Verdict("proved", target=target, against=against)
    first: _Goals | None = None
    try:
        for pack in packs or _packs(case, variant):
            for goals in _readings(case, variant, other, target, pack):
                first = first or goals
                verdict = search.settle(goals)
                if verdict.verdict != "proved":
                    result = verdict
                    break
                result = replace(
                    result,
                    program=_together(result.program, verdict.program),
                    rules=_together(result.rules, verdict.rules),
                )
            if result.verdict != "proved":
                break
            done.append(pack)
        if result.verdict == "proved":
            result = replace(result, **search.emptiness(first))
    except NotModelled as reason:
        result = Verdict("not settled", f"not modelled: {reason}")
    except (PtxError, CaseError) as error:
        result = Verdict("not settled", f"does not assemble: {' '.join(str(error).split())[:200]}")
    return replace(
        result,
        target=target,
        against=against,
        packs=tuple(done),
        solver=search.versions,
        seconds=seconds - search.left,
        tried=tuple(search.tried),
    )


def proof_of(
    loaded: LoadedCase,
    name: str,
    target: str,
    *,
    against: str = "reference",
    device: Backend | None = None,
    **options: Any,
) -> Proof:
    """The verdict on a variant as a record, or on its machine code (`against` is "sass"); options are those of
    `prove`.

    device: runs a counterexample before it is believed; by default this machine's GPU of the target, if there is one.
    """
    from ptxdiff.proving import on_device

    device = device or on_device.gpu_for(target)
    if against == SASS:
        from ptxdiff.proving.elements import prove_assembled

        _named(loaded.case, name)
        verdict = prove_assembled(loaded, name, target, device=device, **options)
        units = {n: tuple(f"0x{byte:02x}" for byte in row) for n, row in verdict.inputs.items()}
    else:
        as_kernel = not isinstance(_named(loaded.case, name), AsmVariant)
        if against == REFERENCE and as_kernel and loaded.case.elementwise:
            from ptxdiff.proving.elements import prove_elements

            verdict = prove_elements(loaded, name, target, **options)
        else:
            verdict = prove(loaded.case, name, target, against=against, **options)
            if against == REFERENCE and verdict.reason.startswith("undefined bits"):
                verdict = _in_its_kernel(loaded, name, target, verdict, options)
        if verdict.verdict == "counterexample" and device is not None:
            if against == REFERENCE:
                verdict = on_device.by_rules(loaded, name, verdict, device)
            else:
                verdict = on_device.by_variant(loaded, (name, against), verdict, device)
        units = {
            n: tuple(f"0x{u:0{max(format_of(loaded.case.inputs[n]).unit_bits // 4, 1)}x}" for u in row)
            for n, row in verdict.inputs.items()
        }
    return Proof(
        loaded.name, name, verdict.target, verdict.verdict, verdict.against, verdict.reason, verdict.packs,
        verdict.solver,
        round(verdict.seconds, 2), verdict.program, verdict.rules, units, verdict.tried, verdict.assembler,
        _fingerprint(loaded.case, loaded.case.variants[name]),
    )  # fmt: skip


def _fingerprint(case: Case, variant: Variant) -> dict[str, str]:
    """The digests of a definition; none where a part of it cannot be compared, so that no other one is the same."""
    parts = definition(case, variant)
    return {} if any(digest.startswith(INCOMPARABLE) for digest in parts.values()) else parts


def _in_its_kernel(loaded: LoadedCase, name: str, target: str, alone: Verdict, options: Mapping[str, Any]) -> Verdict:
    """The verdict on asm in Triton's kernel, which may define bits that are undefined in the asm alone.

    Where the kernel settles nothing, the verdict on the asm stands.
    """
    from ptxdiff.proving.elements import prove_elements

    in_kernel = prove_elements(loaded, name, target, **options)
    if in_kernel.verdict != "proved":
        return alone
    return replace(in_kernel, tried=(*alone.tried, "in Triton's kernel:", *in_kernel.tried))


REFERENCE, SASS = "reference", "sass"
"""What a variant is proved against: its case's rules; or, of its machine code, its PTX."""


def default_target(case: Case, name: str, against: str = "reference") -> str:
    """sm_90a if the variant supports it, else the latest target that it names; of machine code, the latest whose forms
    are taught and whose machine code can be read here."""
    targets = [str(target) for target in policies(case, _named(case, name)).targets]
    if "sm_90a" in targets or not targets:
        return "sm_90a"
    if against == SASS:
        from ptxdiff.conformance.taught import targets as taught

        targets = [target for target in targets if target in taught() and not _unread(target)] or targets
    return targets[-1]


def _unread(target: str) -> str:
    from ptxdiff.triton.builds import NoTriton
    from ptxdiff.triton.unread import unread

    try:
        return unread(target)
    except NoTriton:
        return ""  # the proof says that it is missing


def _together(one: str, other: str) -> str:
    return other if not one else hashlib.sha256(f"{one} {other}".encode()).hexdigest()


def _named(case: Case, name: str) -> Variant:
    if name not in case.variants:
        raise CaseError(f"no variant is called {name!r}; there are {', '.join(case.variants)}")
    return case.variants[name]


def _packs(case: Case, variant: Variant) -> tuple[int, ...]:
    return packs_of(case, variant) if isinstance(variant, AsmVariant) else (1,)


@dataclass(frozen=True)
class _Goals:
    """Terms of which none may hold: for an element, that its result is refused, and that a bit is undefined.

    askable: what holds together for some input and some result if a proof says anything: that the first element's input
    lies in the domain, and that the rules refuse the result. shared: that a register that an output and an input share
    changes a bit.
    """

    unit: _Unit
    results: tuple[Results, ...]
    refused: tuple[Term, ...]
    undefined: Term
    assumptions: tuple[Term, ...]
    rules: str
    whole: bool
    askable: tuple[Term, ...]
    shared: tuple[Term, ...] = ()
    other: AsmForm | None = None


def _readings(case: Case, variant: Variant, other: Variant | None, target: str, pack: int) -> Iterator[_Goals]:
    """The goals for each reading of a block: with and without contraction, where ptxas may choose."""
    if not case.elementwise:
        raise NotModelled("a whole kernel")
    for one in (variant, other):
        if one is not None and not isinstance(one, AsmVariant):
            raise NotModelled("a kernel, which has no asm of its own")
    assert isinstance(variant, AsmVariant)
    judged = variant_on(variant, target)
    assert isinstance(judged, AsmVariant)
    policy = policies(case, judged)
    form = asm_form(case, judged, pack)
    for fuse in _fusings(form, target):
        if other is None:
            yield _by_rules(_Unit(case, policy, form, target, fuse, pack))
        else:
            assert isinstance(other, AsmVariant)
            yield from _by_variant(case, policy, form, other, target, fuse, pack)


def _fusings(form: AsmForm, target: str) -> tuple[bool | None, ...]:
    """The readings of asm, whatever registers it is given: with contraction too, if ptxas may contract it; of several
    products and sums also with any of them fused."""
    from ptxdiff.emulator import assemble, contraction_open, fusable, sharing
    from ptxdiff.emulator.text import spelled

    written = spelled(form.text, form.constraints, form.convention)
    shares = [(), *(tuple(sorted(s.items())) for s in sharing(form.text, form.constraints, target).assignments)]
    blocks = [assemble(written.text, written.constraints, target, share).program for share in shares]
    if not any(contraction_open(one) for one in blocks):
        return (False,)
    return programs.readings_of(max((len(fusable(one)) for one in blocks), default=0))


def _assignments(form: AsmForm, target: str) -> list[tuple[tuple[int, int], ...]]:
    """Every way in which outputs may lie in registers of inputs that may change the bits.

    Raises NotModelled where these are too many, or an output begins with an input.
    """
    from ptxdiff.emulator import sharing

    shared = sharing(form.text, form.constraints, target)
    if not shared.complete or any(h.tied >= 0 for h in shared.hazards):
        raise NotModelled("an output that may share a register with an input, in too many ways")
    return [tuple(sorted(chosen.items())) for chosen in shared.assignments]


def _shared_apart(unit: _Unit, variables: Mapping[str, list[Term]], elements: Sequence[Sequence[Term]]) -> list[Term]:
    """For each assignment of shared registers, that a bit of a result is another one than with registers of its own, or
    is undefined."""
    goals = []
    for share in _assignments(unit.form, unit.target):
        results, others = _run(replace(unit, share=share), variables)
        pairs = zip(elements, others, strict=True)
        apart = _any(t.bnot(t.eq(a, b)) for mine, theirs in pairs for a, b in zip(mine, theirs, strict=True))
        goals.append(t.bor(apart, _any(r.undefined for r in results)))
    return goals


def prove_sharing(
    case: Case,
    variant: AsmVariant,
    target: str,
    pack: int,
    shown: Callable[[Mapping[str, tuple[int, ...]]], str],
    *,
    fusion: bool,
    seconds: float = 10.0,
) -> Verdict:
    """Whether outputs of asm give the same bits in registers of inputs, in every assignment and for all inputs.

    shown: runs the asm on the storage units of one invocation, and returns what is wrong then, or "". Without that no
    input is a counterexample. fusion: whether ptxas may contract; then every reading must give the same bits.
    """
    search = ProofSearch(seconds, ())

    def believed(model: Mapping[str, int], exact: bool) -> Verdict | None:
        numbers = {f"x{i}_{k}": 0 for i in range(len(case.inputs)) for k in range(pack)} | dict(model)
        units = {n: tuple(numbers[f"x{i}_{k}"] for k in range(pack)) for i, n in enumerate(case.inputs)}
        bits = "" if case.domain is not None and not np.all(_inside(case, _arrays(case, units))) else shown(units)
        return Verdict("counterexample", bits, inputs=units) if bits else None

    try:
        form = asm_form(case, variant, pack)
        variables = _variables(case, pack)
        assumptions = _assumptions(case, variables, pack)
        outcome = None
        for fuse in _fusings(form, target) if fusion else (False,):
            unit = _Unit(case, policies(case, variant), form, target, fuse, pack)
            results, elements = _run(unit, variables)
            goals = (_any(r.undefined for r in results), *_shared_apart(unit, variables, elements))
            refuted = (search.refute(goal, assumptions, believed, lambda asked: None) for goal in goals)
            outcome = next((verdict for verdict in refuted if verdict is not None), None)
            if outcome is not None:
                break
    except NotModelled as reason:
        outcome = Verdict("not settled", f"not modelled: {reason}")
    except (PtxError, CaseError) as error:
        outcome = Verdict("not settled", f"does not assemble: {' '.join(str(error).split())[:200]}")
    outcome = outcome or Verdict("proved")
    return replace(outcome, target=target, packs=(pack,), solver=search.versions, seconds=seconds - search.left)


def _variables(case: Case, count: int) -> dict[str, list[Term]]:
    """The storage units of each input; a unit of one bit is a condition."""
    formats = {n: format_of(a) for n, a in case.inputs.items()}
    return {n: [t.variable(f"x{i}_{k}", _width(f)) for k in range(count)] for i, (n, f) in enumerate(formats.items())}


def _width(fmt: Format) -> int:
    return fmt.unit_bits if fmt.unit_bits > 1 else 0


def _run(unit: _Unit, variables: Mapping[str, list[Term]]) -> tuple[tuple[Results, ...], list[list[Term]]]:
    """The results of as many invocations as the elements need, and the elements of each output."""
    from ptxdiff.emulator import assemble, bind, parse_constraints, undecided
    from ptxdiff.emulator.text import spelled

    case, pack = unit.case, unit.form.pack
    written = spelled(unit.form.text, unit.form.constraints, unit.form.convention)
    widths = [[_bits(format_of(a)) for a in side.values()] for side in (case.inputs, case.outputs)]
    operands = bind(parse_constraints(written.constraints), widths[0], widths[1], pack, unit.form.convention)
    block = assemble(written.text, written.constraints, unit.target, unit.share, bool(unit.fuse))
    if unit.fuse is None:
        block = replace(block, program=undecided(block.program))
    results: list[Results] = []
    elements: list[list[Term]] = [[] for _ in case.outputs]
    for first in range(0, unit.elements, pack):
        given = [v[first : first + pack] for v in variables.values()]
        one = programs.run(block, operands, given, widths[1], pack)
        results.append(one)
        for k, own in enumerate(one.outputs):
            elements[k] += own
    return tuple(results), elements


def _bits(fmt: Format) -> int:
    """MaskedTerm of an element as the constraints count them: a truth value has one."""
    kind = np.dtype(fmt.numpy_dtype())
    return 1 if kind == np.bool_ else kind.itemsize * 8


def _assumptions(case: Case, variables: Mapping[str, list[Term]], count: int) -> tuple[Term, ...]:
    from ptxdiff.proving import graphs, tracing

    inside = tracing.domain(case, count)
    return () if inside is None else tuple(graphs.evaluated(inside, [_stored(v) for v in variables.values()]))


def _stored(units: Sequence[Term]) -> list[Term]:
    """Units as torch holds them: a truth value in a byte."""
    return [t.as_bits(u, 8) if u.width == 0 else u for u in units]


def _by_rules(unit: _Unit) -> _Goals:
    """The goals against the reference: that the judge's rules refuse an element."""
    from ptxdiff.proving import graphs, tracing

    case, count = unit.case, unit.elements
    graph = tracing.refusals(case, unit.policy, count)
    variables = _variables(case, count)
    results, elements = _run(unit, variables)
    given = [*variables.values(), *elements]
    refused = graphs.evaluated(graph, [_stored(g) for g in given])
    masks = judged_padding(case)
    for name, own in zip(case.outputs, elements, strict=True):
        if name in masks:
            bad = [t.nonzero(t.and_(e, t.const(masks[name], e.width))) for e in own]
            refused = [t.bor(r, b) for r, b in zip(refused, bad, strict=True)]
    anything = [[t.variable(f"y{i}_{k}", e.width) for k, e in enumerate(own)] for i, own in enumerate(elements)]
    refusable, *_ = graphs.evaluated(graph, [_stored(g) for g in (*variables.values(), *anything)])
    assumptions = _assumptions(case, variables, count)
    return _Goals(
        unit,
        results,
        tuple(refused),
        _any(r.undefined for r in results),
        assumptions,
        tracing.digest_of(graph),
        graph.meta.get("whole", True),
        (refusable, *assumptions[:1]),
        tuple(_shared_apart(unit, variables, elements)),
    )


def _by_variant(
    case: Case, policy: Policies, form: AsmForm, other: AsmVariant, target: str, fuse: bool | None, pack: int
) -> Iterator[_Goals]:
    """The goals against another variant: that a bit of an element differs."""
    from ptxdiff.emulator import analyse

    own = packs_of(case, other)
    chosen = pack if pack in own else min(own)
    against = asm_form(case, other, chosen)
    count = max(pack, chosen)
    variables = _variables(case, count)
    unit = _Unit(case, policy, form, target, fuse, count)
    results, elements = _run(unit, variables)
    if analyse(against.text, against.constraints, target=target).contraction_open:
        raise NotModelled("another variant that ptxas may contract")
    beside = _Unit(case, policy, against, target, False, count)
    theirs, wanted = _run(beside, variables)
    shared = (*_shared_apart(unit, variables, elements), *_shared_apart(beside, variables, wanted))
    refused = [
        _any(t.bnot(t.eq(mine[k], one[k])) for mine, one in zip(elements, wanted, strict=True)) for k in range(count)
    ]
    undefined = _any(r.undefined for r in (*results, *theirs))
    rules = t.digest([e for row in wanted for e in row])
    assumptions = _assumptions(case, variables, count)
    yield _Goals(
        unit, (*results, *theirs), tuple(refused), undefined, assumptions, rules, True, assumptions[:1], shared, against
    )


def _any(conditions: Any) -> Term:
    either = FALSE
    for condition in conditions:
        either = t.bor(either, condition)
    return either


class _VariantSearch(ProofSearch):
    """The proof of one variant."""

    def settle(self, goals: _Goals) -> Verdict:
        """The verdict on one reading."""
        program = t.digest(e for r in goals.results for own in r.outputs for e in own)
        result = Verdict("proved", program=program, rules=goals.rules)
        for goal in _distinct([goals.undefined, *goals.refused], goals.unit.elements):
            verdict = self._goal(goals, goal)
            if verdict is not None:
                return replace(verdict, program=program, rules=goals.rules)
        for goal in goals.shared:
            if self.refute(goal, goals.assumptions, lambda *_: None, lambda asked: None) is not None:
                reason = "not modelled: an output that may share a register with an input, and then may give other bits"
                return Verdict("not settled", reason, program=program, rules=goals.rules)
        return result

    def emptiness(self, goals: _Goals | None) -> dict[str, Any]:
        """What changes in a verdict where nothing was asked: no input in the domain, no result that is refused."""
        if goals is None:
            return {"verdict": "not settled", "reason": "nothing to prove: no pack"}
        if ever(goals.askable):
            return {}
        for way in queries.ways(goals.askable):
            asked = queries.query(TRUE, goals.askable, way)
            try:
                answer = self.ask(asked, max(self.left, 5.0))
            except SolverFault:
                continue
            if answer.answer == "sat" and (asked.exact or holds(goals.askable, answer.model)):
                return {}
        reason = "nothing to prove: no input of the domain is known with a result that the rules refuse"
        return {"verdict": "not settled", "reason": reason}

    def _goal(self, goals: _Goals, goal: Term) -> Verdict | None:
        """None if a goal holds for no input, else the verdict."""

        def believed(model: Mapping[str, int], exact: bool) -> Verdict | None:
            return self._believed(goals, model)

        if goals.unit.fuse is None:  # nobody is accused, because ptxas may never choose so
            refuted = self.refute(goal, goals.assumptions, lambda *_: None, lambda asked: None)
            if refuted is None or refuted.reason.startswith("time"):
                return refuted
            return Verdict("not settled", programs.SOME_FUSED)
        return self.refute(goal, goals.assumptions, believed, lambda asked: _open(goals, asked, goal))

    def _believed(self, goals: _Goals, model: Mapping[str, int]) -> Verdict | None:
        """A counterexample, if the emulator and the judge say so too; None if the model is none.

        Raises TermFault where the emulator computes other bits.
        """
        unit = goals.unit
        numbers = {f"x{i}_{k}": 0 for i in range(len(unit.case.inputs)) for k in range(unit.elements)} | dict(model)
        units = {n: tuple(numbers[f"x{i}_{k}"] for k in range(unit.elements)) for i, n in enumerate(unit.case.inputs)}
        try:
            reason = _ran_wrong(goals, units)
        except UndefinedBits as error:
            # Triton's kernel may define what is undefined in asm alone, so nobody is accused.
            return Verdict("not settled", f"undefined bits: {' '.join(str(error).split())[:200]}", inputs=units)
        _compare_with_terms(goals, numbers, units)
        if reason:
            return Verdict("counterexample", reason, inputs=units)
        return None


def _open(goals: _Goals, asked: queries.Query, goal: Term) -> str | None:
    """Why a model that is no counterexample leaves the question open; None if another way of asking may settle it."""
    from ptxdiff.proving import graphs

    approximate = sorted(set().union(*(r.approximate for r in goals.results)))
    unknown = graphs.unknown([goal])
    if asked.way != queries.ways([goal, *needed(goals.assumptions, goal)])[-1]:
        by_rules = goals.other is None and goal is not goals.undefined
        if approximate and by_rules:
            return f"approximate: the bits of {', '.join(approximate)} are a model"
        return f"reference: no solver knows {', '.join(unknown)}" if unknown else None
    if goal is goals.undefined:
        return "undefined bits: the rules for them are coarser here than the emulator's"
    if approximate:
        return f"approximate: the bits of {', '.join(approximate)} are a model"
    if unknown:
        return f"reference: no solver knows {', '.join(unknown)}"
    if not asked.exact:
        return f"{asked.way}: equal operands alone do not prove it"
    if not goals.whole:
        return "policy: the rules for a domain are stricter here than the judge's"
    return "policy: the judge accepts what the traced rules refuse"


def _distinct(goals: Sequence[Term], elements: int) -> list[Term]:
    """Goals without those that are another one with another element's inputs."""
    seen: set[str] = set()
    different = []
    for goal in goals:
        places = {x.detail.partition("_")[2] for x in t.ordered([goal]) if x.op == "var"}
        if len(places) == 1:
            (element,) = places

            def renamed(term: Term, args: tuple[Term, ...]) -> Term | None:
                return t.variable(f"{term.detail.partition('_')[0]}_0", term.width) if term.op == "var" else None

            (first,) = t.rebuilt([goal], renamed) if element != "0" else (goal,)
            key = t.digest([first])
            if key in seen:
                continue
            seen.add(key)
        different.append(goal)
    return different


def _arrays(case: Case, units: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Storage arrays."""
    return arrays_of(case.inputs, units)


def _emulated(unit: _Unit, form: AsmForm, arrays: Mapping[str, Any], fuse: bool) -> dict[str, Any]:
    """The outputs by the emulator, storage arrays by name. Raises PtxError."""
    from ptxdiff.emulator import emulate

    results = emulate(
        form.text,
        form.constraints,
        [arrays[n] for n in unit.case.inputs],
        [format_of(a).storage for a in unit.case.outputs.values()],
        pack=form.pack,
        target=unit.target,
        fuse=fuse,
        convention=form.convention,
    )
    assert isinstance(results, tuple)
    return dict(zip(unit.case.outputs, results, strict=True))


def _ran_wrong(goals: _Goals, units: Mapping[str, Sequence[int]]) -> str:
    """What is wrong with the results that the emulator gives for an input; "" if nothing is."""
    unit, case = goals.unit, goals.unit.case
    arrays = _arrays(case, units)
    if case.domain is not None and not np.all(_inside(case, arrays)):
        return ""
    try:
        outputs = _emulated(unit, unit.form, arrays, bool(unit.fuse))
        if goals.other is not None:
            wanted = _emulated(unit, goals.other, arrays, False)
            return _first_difference(outputs, wanted)
    except UndefinedBits:
        raise
    except PtxError as error:
        return " ".join(str(error).split())[:300]
    try:
        judgement = judge(case, unit.policy, arrays, outputs, unit.form.pack)
    except ReferenceFault as error:
        return f"reference: {error}"
    if judgement.different == 0:
        return ""
    first = judgement.offenders[0]
    return f"{first.output}: expected {first.expected.bits}, got {first.got.bits} ({first.difference})"


def _inside(case: Case, arrays: Mapping[str, Any]) -> Any:
    from ptxdiff.inputs.sets import within

    assert case.domain is not None
    return within(case.domain, {n: format_of(a) for n, a in case.inputs.items()}, dict(arrays))


def _first_difference(outputs: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    for name, mine in outputs.items():
        kind = f"u{mine.dtype.itemsize}"
        a, b = mine.view(kind), wanted[name].view(kind)
        for k in np.flatnonzero(a != b):
            return f"{name}[{k}]: 0x{int(b[k]):x} by the other variant, 0x{int(a[k]):x} by this one"
    return ""


def _compare_with_terms(goals: _Goals, numbers: Mapping[str, int], units: Mapping[str, Sequence[int]]) -> None:
    """Raise TermFault if terms and definitions disagree on an input; the message names the first such definition."""
    for results in goals.results:
        for one in results.computed:
            try:
                *sources, value = t.evaluate([*one.sources, one.value], numbers)
            except NotEvaluable:
                continue
            expected = one.function.one(*sources)
            if value != expected:
                given = ", ".join(hex(s) for s in sources)
                raise TermFault(
                    f"{one.spelling} of {given} is 0x{expected:x} by its definition and 0x{value:x} by its term"
                )
    unit = goals.unit
    try:
        outputs = _emulated(unit, unit.form, _arrays(unit.case, units), bool(unit.fuse))
    except PtxError:
        return
    pack = unit.form.pack
    for number, results in enumerate(goals.results[: unit.elements // pack]):
        for (name, got), own in zip(outputs.items(), results.outputs, strict=True):
            try:
                values = t.evaluate(own, numbers)
            except NotEvaluable:
                continue
            ran = got.view(f"u{got.dtype.itemsize}")[number * pack : (number + 1) * pack].tolist()
            if values != ran:
                raise TermFault(f"{name}: the emulator gives {[hex(v) for v in ran]}, terms {[hex(v) for v in values]}")
