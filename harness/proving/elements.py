"""Whether an elementwise kernel gives every element an accepted result, for all inputs: variants in plain Triton.

What is proved: whatever a thread of the kernel that Triton makes for one target stores as an element of the outputs is
what the judge accepts for the element of the inputs in the same place. It holds for every thread, every length, and all
contents of memory. That every element is stored is not proved; a run shows it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptxdiff.backends.assembler import assembled
from ptxdiff.backends.compiled import CompiledKernel, compile_job, placed
from ptxdiff.emulator import (
    BufferPointer,
    Kernel,
    PtxError,
    contraction_open,
    fusable,
    load_kernel,
    run_kernel,
    undecided,
)
from ptxdiff.emulator.text import retargeted
from ptxdiff.jobs import Backend, Job, Outcome, Setup, block_of
from ptxdiff.judging.judge import judge
from ptxdiff.model.arguments import format_of
from ptxdiff.model.case import Case
from ptxdiff.model.compilers import PtxasChoice
from ptxdiff.model.derive import packs_of
from ptxdiff.model.load import LoadedCase
from ptxdiff.model.policies import Policies, policies, variant_on
from ptxdiff.model.reference import ReferenceFault
from ptxdiff.model.variants import AsmVariant, KernelVariant, Variant
from ptxdiff.proving import graphs, kernels, programs, queries, tracing
from ptxdiff.proving import terms as t
from ptxdiff.proving.kernels import Load, Store, Thread
from ptxdiff.proving.on_device import by_ptx
from ptxdiff.proving.solving import ProofSearch, Verdict, ever, needed
from ptxdiff.proving.terms import FALSE, NotModelled, Term
from ptxdiff.proving.translation import AssembledKernel, memory_of, prove_translation
from ptxdiff.references.formats import Format, Shaped
from ptxdiff.sass.cubin import disassembled, machine_code
from ptxdiff.sass.text import Unsupported
from ptxdiff.triton.ptxas import label_of_tool
from ptxdiff.triton.targets import tool

_WIDE = 80
"""Bits in which products of offsets in memory (64 bits) and sizes of elements do not wrap."""


def prove_elements(
    loaded: LoadedCase,
    name: str,
    target: str,
    *,
    seconds: float = 60.0,
    solvers: Sequence[str] = (),
    packs: Sequence[int] = (),
) -> Verdict:
    """The verdict on the kernels that Triton makes of a variant, one for each pack, by its case's rules."""
    case, variant = loaded.case, loaded.case.variants[name]
    search = ProofSearch(seconds, tuple(solvers))
    result, done = Verdict("not settled", "nothing to prove"), list[int]()
    try:
        for setup in _setups(case, variant, packs):
            job = Job(case, loaded.name, loaded.path, name, variant, target, setup)
            verdict = _proved(job, policies(case, variant_on(variant, target)), search)
            together = (result.program + verdict.program[:16], result.rules + verdict.rules[:16])
            result = verdict
            if result.verdict == "proved":
                result = replace(result, program=together[0], rules=together[1])
            if result.verdict != "proved":
                break
            done.append(setup.pack)
        # A pack counts once it is proved with every setting of fusion.
        done = [p for p in dict.fromkeys(done) if done.count(p) == len(variant.fusions)]
    except NotModelled as reason:
        result = Verdict("not settled", f"not modelled: {reason}")
    except PtxError as error:
        result = Verdict("not settled", f"does not run: {' '.join(str(error).split())[:200]}")
    return replace(
        result, target=target, packs=tuple(done), solver=search.versions, seconds=seconds - search.left,
        tried=tuple(search.tried),
    )  # fmt: skip


@dataclass(frozen=True)
class _ElementPlace:
    """One element that a thread loads or stores: its tensor, its offset in bytes from the tensor's start (64 bits), its
    bits, and when."""

    tensor: str
    size: int
    offset: Term
    value: Term
    condition: Term

    def apart(self, other: _ElementPlace) -> Term:
        """Whether two elements have different places in their tensors."""
        mine, theirs = (t.sext(x.offset, _WIDE) for x in (self, other))
        scaled = (t.mul(mine, t.const(other.size, _WIDE)), t.mul(theirs, t.const(self.size, _WIDE)))
        return t.bnot(t.eq(*scaled))


def _proved(job: Job, policy: Policies, search: ProofSearch) -> Verdict:
    case = job.case
    formats = {n: format_of(a) for side in (case.inputs, case.outputs) for n, a in side.items()}
    if any(_bytes(f) * 8 != max(f.unit_bits, 8) for f in formats.values()):
        raise NotModelled("elements that are no whole bytes in memory")
    job = replace(job, inputs={n: np.zeros(job.setup.shape, formats[n].numpy_dtype()) for n in case.inputs})
    made = compile_job(job)
    if isinstance(made, Outcome):
        return Verdict("not settled", f"does not compile: {made.words}")
    text, given = made.compilation.ptx, made.compilation.spec.given
    entry = None if given is None else made.compilation.entry
    if given is not None:
        text = retargeted(text, job.target)
    plain = load_kernel(text, entry)
    readings = programs.readings_of(len(fusable(plain.program))) if contraction_open(plain.program) else (False,)
    verdict = Verdict("not settled", "nothing to prove")
    for fuse in readings:
        kernel = load_kernel(text, entry, bool(fuse))
        if fuse is None:
            kernel = replace(kernel, program=undecided(kernel.program))
        verdict = _reading(job, policy, made, kernel, formats, search, open_=fuse is None)
        if verdict.verdict != "proved":
            break
    return verdict


def _reading(
    job: Job,
    policy: Policies,
    made: CompiledKernel,
    kernel: Kernel,
    formats: Mapping[str, Format],
    search: ProofSearch,
    open_: bool,
) -> Verdict:
    """The verdict on one reading. open_: any of its products and sums may be fused, so that nothing can be shown."""
    case = job.case
    launched = made.compilation.spec.given
    thread = Thread.any_of(kernel, launched.block if launched else (32 * made.compilation.num_warps,))
    does = kernels.run(kernel, thread)
    if not does.stores:
        return Verdict("not settled", "nothing to prove: the PTX stores nothing")
    bases = _bases(job, made, thread)
    moved: list[Term] = []
    given = [p for x in does.loads for p in _pieces(x, bases, formats, moved)]
    written = [p for x in does.stores for p in _pieces(x, bases, formats, moved)]
    first, *others = case.outputs
    graph = tracing.refusals(case, policy, 1)
    inside = tracing.domain(case, 1)
    misplaced = FALSE
    for one in moved:
        misplaced = t.bor(misplaced, one)
    program = t.digest(x for s in does.stores for x in (s.condition, s.address, s.value))
    goals: list[tuple[Term, tuple[Term, ...], dict[str, Term]]] = []
    for piece in (p for p in written if p.tensor == first):
        units: dict[str, Term] = {}
        for name, among in (*((n, given) for n in case.inputs), *((n, written) for n in others)):
            other = _beside(piece, [p for p in among if p.tensor == name], thread)
            misplaced = t.bor(misplaced, t.band(piece.condition, t.bor(piece.apart(other), t.bnot(other.condition))))
            units[name] = other.value
        units[first] = piece.value
        values = [[units[n]] for n in (*case.inputs, *case.outputs)]
        refused = FALSE  # a storage unit may hold several codes
        for one in graphs.evaluated(graph, values):
            refused = t.bor(refused, one)
        below = () if inside is None else tuple(graphs.evaluated(inside, values[: len(case.inputs)]))
        below += tuple(t.ult(units[n], t.const(2, 8)) for n in case.inputs if formats[n].unit_bits == 1)
        goals.append((t.band(piece.condition, refused), below, units))
    rules = tracing.digest_of(graph)
    result = Verdict("proved", program=program, rules=rules)

    def refuted(goal: Term, below: Sequence[Term], shown: Callable[[Mapping[str, int]], Verdict | None]) -> Any:
        last = queries.ways([goal, *needed(below, goal)])[-1]
        return search.refute(
            goal, below, lambda model, exact: shown(model), lambda asked: _open(asked, last, goal, kernel)
        )

    for goal, reason in ((does.undefined, "undefined bits: the PTX may use some"),
                        (misplaced, "places: that an element is made of those in its place is not shown")):  # fmt: skip
        if refuted(goal, thread.assumptions, lambda model: None) is not None:
            return Verdict("not settled", reason, program=program, rules=rules)
    for goal, below, units in goals:
        shown = lambda model, units=units: _shown(job, policy, made, kernel, units, model)  # noqa: E731
        verdict: Verdict | None = refuted(goal, (*thread.assumptions, *below), (lambda model: None) if open_ else shown)
        if verdict is not None:
            if open_ and not verdict.reason.startswith("time"):
                verdict = Verdict("not settled", programs.SOME_FUSED)
            return replace(verdict, program=program, rules=rules)
    if not _anything(graph, inside, case, formats):
        reason = "nothing to prove: no input of the domain is known with a result that the rules refuse"
        return Verdict("not settled", reason, program=program, rules=rules)
    return result


def _anything(graph: Any, inside: Any, case: Case, formats: Mapping[str, Format]) -> bool:
    """Whether the rules refuse some result for some input of the domain, so that a proof says something."""
    free = {n: [t.variable(f"free.{n}", 8 * _bytes(formats[n]))] for n in (*case.inputs, *case.outputs)}
    truths = {n for n, f in formats.items() if f.unit_bits == 1}
    free |= {n: [t.zext(t.variable(f"free.{n}", 1), 8)] for n in truths}
    conditions = [*graphs.evaluated(graph, [free[n] for n in (*case.inputs, *case.outputs)])][:1]
    if inside is not None:
        conditions += graphs.evaluated(inside, [free[n] for n in case.inputs])
    return ever(conditions)


def _bytes(fmt: Format) -> int:
    """Bytes of a storage unit; a truth value has one, which is 0 or 1."""
    return max(fmt.unit_bits, 8) // 8


def _open(asked: queries.Query, last: str, goal: Term, kernel: Kernel) -> str | None:
    approximate = sorted({s.bound.name for s in kernel.program.steps if s.bound.form.approximate})
    unknown = graphs.unknown([goal])
    if asked.way != last and not unknown:
        return None
    if approximate:
        return f"approximate: the bits of {', '.join(approximate)} are a model"
    if unknown:
        return f"reference: no solver knows {', '.join(unknown)}"
    if not asked.exact:
        return f"{asked.way}: equal operands alone do not prove it"
    return "policy: the judge accepts what the traced rules refuse"


def _bases(job: Job, made: CompiledKernel, thread: Thread) -> dict[str, str]:
    """The tensor to which each parameter points, by the variable's name."""
    parameters = placed(job, made, fuse=False).parameters
    tensors = {}
    for (_, term), value in zip(thread.parameters, parameters, strict=False):
        buffer = value.buffer if isinstance(value, BufferPointer) else value
        if hasattr(buffer, "name"):
            tensors[str(term.detail)] = buffer.name
    return tensors


def _pieces(
    access: Load | Store, bases: Mapping[str, str], formats: Mapping[str, Format], moved: list[Term]
) -> list[_ElementPlace]:
    """The elements of an access. Raises NotModelled if its address is not one of a tensor.

    moved: gets that an access is not at its tensor's start and an offset, which must hold for no input.
    """
    used = {x.detail for x in t.ordered([access.address]) if x.op == "var" and x.detail in bases}
    if len(used) != 1:
        raise NotModelled("an address that is not the start of one tensor and an offset")
    (base,) = used

    def from_zero(term: Term, args: tuple[Term, ...]) -> Term | None:
        return t.const(0, 64) if term.op == "var" and term.detail == base else None

    (offset,) = t.rebuilt([access.address], from_zero)
    elsewhere = t.bnot(t.eq(access.address, t.add(t.variable(base, 64), offset)))
    moved.append(t.band(access.condition, elsewhere))
    tensor = bases[base]
    size = _bytes(formats[tensor])
    if access.size % size:
        raise NotModelled(f"an access to {access.size} bytes of {tensor}")
    return [
        _ElementPlace(
            tensor,
            size,
            t.add(offset, t.const(k, 64)),
            t.extract(access.value, 8 * (k + size) - 1, 8 * k),
            access.condition,
        )
        for k in range(0, access.size, size)
    ]


def _beside(piece: _ElementPlace, among: Sequence[_ElementPlace], thread: Thread) -> _ElementPlace:
    """The element of another tensor in the same place, as far as a few inputs show; a solver is asked later."""
    for other in among:
        wrong = t.band(piece.condition, t.bor(piece.apart(other), t.bnot(other.condition)))
        if not ever([wrong, *needed(thread.assumptions, wrong)]):
            return other
    raise NotModelled("an element that the thread stores, and an input in its place that it does not load")


def _shown(
    job: Job,
    policy: Policies,
    made: CompiledKernel,
    kernel: Kernel,
    units: Mapping[str, Term],
    model: Mapping[str, int],
) -> Verdict | None:
    """A counterexample that a run of the kernel on the emulator shows: every element has the model's input."""
    case = job.case
    numbers = {x.detail: 0 for x in t.ordered(units.values()) if x.op == "var"} | dict(model)
    inputs = {n: t.evaluate([units[n]], numbers)[0] for n in case.inputs}
    arrays = {}
    for name, unit in inputs.items():
        kind = np.dtype(format_of(case.inputs[name]).numpy_dtype())
        arrays[name] = np.full(job.setup.shape, unit, f"u{kind.itemsize}").view(kind)
    if case.domain is not None:
        from ptxdiff.inputs.sets import within

        if not np.all(within(case.domain, {n: format_of(a) for n, a in case.inputs.items()}, dict(arrays))):
            return None
    ready = placed(replace(job, inputs=arrays), made, fuse=False)
    run_kernel(kernel, ready.parameters, ready.grid, num_threads=ready.block[0], shared_bytes=ready.shared)
    try:
        judgement = judge(case, policy, arrays, {n: ready.tensors[n].read() for n in case.outputs}, 1)
    except ReferenceFault as error:
        return Verdict("counterexample", f"reference: {error}", inputs={n: (u,) for n, u in inputs.items()})
    if judgement.different == 0:
        return None
    first = judgement.offenders[0]
    message = f"{first.output}: expected {first.expected.bits}, got {first.got.bits} ({first.difference})"
    if any(s.bound.form.approximate for s in kernel.program.steps) and case.outputs:
        approximate = "approximate: the bits of approximate instructions are a model"
        return Verdict("not settled", approximate)
    return Verdict("counterexample", message, inputs={n: (u,) for n, u in inputs.items()})


# Prove the machine code of a variant's kernels against their PTX, as Triton and ptxas make them --------------------
#
# A kernel is made for each pack, in the harness's template around the asm or the Triton function, or as the case gives
# it. Whatever the variant computes, the question is only whether ptxas kept it.

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
    result, done = Verdict("not settled", "nothing to prove"), list[int]()
    made_by = ""
    setups = _setups(case, case.variants[name], packs)
    for setup in setups:
        job = Job(
            case, loaded.name, loaded.path, name, case.variants[name], target, replace(setup, assembler=assembler)
        )
        made = translation_of(job)
        if isinstance(made, Verdict):
            result = made
        else:
            one, made_by = made
            verdict = prove_translation(one, search)
            if verdict.verdict == "counterexample" and device is not None:
                verdict = by_ptx(replace(job, inputs=_held(job, one, verdict)), verdict, device)
            result = replace(
                verdict,
                program=verdict.program and f"{result.program}{verdict.program[:16]}",
                rules=verdict.rules and f"{result.rules}{verdict.rules[:16]}",
            )
        if result.verdict != "proved":
            break
        done.append(setup.pack)
    done = [p for p in dict.fromkeys(done) if done.count(p) == sum(s.pack == p for s in setups)]
    return replace(
        result, target=target, against="sass", packs=tuple(done), solver=search.versions,
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
    inputs = {}
    for name, argument in job.case.inputs.items():
        shape = argument.shape(job.setup.sizes) if isinstance(argument, Shaped) else job.setup.shape
        inputs[name] = np.zeros(shape, format_of(argument).numpy_dtype())
    return inputs
