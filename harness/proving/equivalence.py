"""Whether two references, or two kernels, give the same for all inputs: what `mutate` asks about its survivors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from ptxdiff.emulator import Kernel, PtxError, contraction_open, fusable, load_kernel, undecided
from ptxdiff.model.case import Case
from ptxdiff.model.variants import Reference
from ptxdiff.proving import graphs, kernels, programs, tracing
from ptxdiff.proving import terms as t
from ptxdiff.proving.kernels import KernelResults, Thread
from ptxdiff.proving.solving import ProofSearch, Verdict
from ptxdiff.proving.terms import FALSE, NotModelled, Term


def prove_references(
    case: Case,
    reference: Reference,
    changed: Callable[[], AbstractContextManager[None]],
    differs: Callable[[Mapping[str, tuple[int, ...]]], bool],
    *,
    own_code: bool,
    flushings: Sequence[bool] = (False,),
    seconds: float = 60.0,
) -> Verdict:
    """Whether a reference of an elementwise case gives the same codes for all inputs of the domain after a change.

    changed: a context in which it is changed. differs: runs both on storage units of the inputs; without that no input
    is a counterexample. own_code: the change may lie within a function for which proofs have a summary, so that all
    summaries are left out. flushings: see `ptxdiff.model.reference.apply_reference`.
    """
    search = ProofSearch(seconds, ())
    formats = [*tracing.formats_of(case.inputs).values()]
    units = [t.variable(f"x{k}", max(f.unit_bits, 8)) for k, f in enumerate(formats)]

    def believed(model: Mapping[str, int], exact: bool) -> Verdict | None:
        numbers = {u.detail: 0 for u in units} | dict(model)
        inputs = {n: (numbers[u.detail],) for n, u in zip(case.inputs, units, strict=True)}
        return Verdict("counterexample", "other codes", inputs=inputs) if differs(inputs) else None

    try:
        with tracing.without_summaries(own_code):
            inside = tracing.domain(case, 1)
            assumptions = [] if inside is None else graphs.evaluated(inside, [[u] for u in units])
            assumptions += [t.ult(u, t.const(2, 8)) for f, u in zip(formats, units, strict=True) if f.unit_bits == 1]
            goal = FALSE
            for flushing in flushings:
                before = _codes(case, reference, flushing, units)
                with changed():
                    after = _codes(case, reference, flushing, units)
                goal = t.bor(goal, _apart(before, after))
        verdict = search.refute(goal, assumptions, believed, lambda asked: None) or Verdict("proved")
    except NotModelled as reason:
        verdict = Verdict("not settled", f"not modelled: {reason}")
    return replace(verdict, solver=search.versions, seconds=seconds - search.left, tried=tuple(search.tried))


def _codes(case: Case, reference: Reference, flushing: bool, units: Sequence[Term]) -> list[Term]:
    return graphs.evaluated(tracing.answers(case, reference, flushing), [[u] for u in units])


def _apart(before: Sequence[Term], after: Sequence[Term]) -> Term:
    if len(before) != len(after):
        raise NotModelled("another number of codes")
    differs = FALSE
    for one, other in zip(before, after, strict=True):
        differs = t.bor(differs, t.bnot(t.eq(one, other)))
    return differs


def prove_kernels(texts: tuple[str, str], entry: str | None, block: Sequence[int], *, seconds: float = 60.0) -> Verdict:
    """Whether two texts of a kernel store the same in every thread of every launch with this block, for all contents of
    memory, and the second loads from no other addresses and has no undefined bits that the first has not.

    What is not proved is "not settled", with what stands against it.
    """
    search = ProofSearch(seconds, ())
    try:
        goal, thread = FALSE, None
        for one, other in _readings(texts, entry):
            thread = thread or Thread.any_of(one, block)
            before = kernels.run(one, thread)
            after = kernels.run(other, thread, before.loads)
            if _ordering(one) != _ordering(other):
                raise NotModelled("other instructions that order the accesses of threads")
            goal = t.bor(goal, t.bor(_stored_apart(before, after), _loaded_apart(before, after)))
        assert thread is not None
        left_open = search.refute(goal, thread.assumptions, lambda *_: None, lambda asked: None)
        verdict = Verdict("proved") if left_open is None else Verdict("not settled", left_open.reason)
    except NotModelled as reason:
        verdict = Verdict("not settled", f"not modelled: {reason}")
    except PtxError as error:
        verdict = Verdict("not settled", f"does not run: {' '.join(str(error).split())[:200]}")
    return replace(verdict, solver=search.versions, seconds=seconds - search.left, tried=tuple(search.tried))


def _readings(texts: tuple[str, str], entry: str | None) -> list[tuple[Kernel, Kernel]]:
    """Both kernels with the same products and sums fused, for every choice. Raises NotModelled if these do not
    correspond."""
    one, other = (load_kernel(text, entry) for text in texts)
    if not (contraction_open(one.program) or contraction_open(other.program)):
        return [(one, other)]
    if len(fusable(one.program)) != len(fusable(other.program)):
        raise NotModelled("another number of products and sums that ptxas may fuse")
    return [(_numbered(one), _numbered(other))]


def _numbered(kernel: Kernel) -> Kernel:
    """A kernel with every choice of fusions, which are numbered, because places in two texts are not the same."""
    numbers = {f.pair: k for k, f in enumerate(fusable(kernel.program))}
    program = undecided(kernel.program)
    steps = [
        replace(s, detail=tuple((numbers[pair], 0) for pair in s.detail)) if s.kind == programs.FUSION else s
        for s in program.steps
    ]
    return replace(kernel, program=replace(program, steps=steps))


def _ordering(kernel: Kernel) -> list[str]:
    """The instructions without effect on one thread's registers, which may order what threads do."""
    return [s.bound.spelling for s in kernel.program.steps if s.kind == "nothing"]


def _loaded_apart(before: KernelResults, after: KernelResults) -> Term:
    """That the second kernel loads where the first does not."""
    differs = FALSE
    for one in after.loads:
        known = FALSE
        for other in before.loads:
            if other.size == one.size:
                known = t.bor(known, t.band(other.condition, t.eq(other.address, one.address)))
        differs = t.bor(differs, t.band(one.condition, t.bnot(known)))
    return differs


def _stored_apart(before: KernelResults, after: KernelResults) -> Term:
    if not before.stores or len(before.stores) != len(after.stores):
        raise NotModelled("another number of stores")
    differs = t.band(after.undefined, t.bnot(before.undefined))
    for one, other in zip(before.stores, after.stores, strict=True):
        if one.size != other.size:
            raise NotModelled("a store of another size")
        differs = t.bor(differs, t.bnot(t.eq(one.condition, other.condition)))
        apart = t.bor(t.bnot(t.eq(one.address, other.address)), t.bnot(t.eq(one.value, other.value)))
        differs = t.bor(differs, t.band(one.condition, apart))
    return differs


__all__ = ["prove_kernels", "prove_references"]
