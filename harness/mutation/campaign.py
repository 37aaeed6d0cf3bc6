"""All mutants of a case on one target: of each variant's asm, and of each reference of its variants."""

from __future__ import annotations

import hashlib
import json
import random
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from ptxdiff.emulator import KERNEL_SECONDS
from ptxdiff.inputs.fill import kernel_inputs
from ptxdiff.model.arguments import codes_of
from ptxdiff.model.load import LoadedCase
from ptxdiff.model.policies import policies
from ptxdiff.model.reference import ReferenceFault, apply_reference
from ptxdiff.model.variants import AsmVariant, CaseError, KernelVariant, Reference
from ptxdiff.mutation import asm, kernels, source
from ptxdiff.mutation.asm import AsmMutant
from ptxdiff.mutation.settle import Search, Settlement, settle_asm, settle_reference
from ptxdiff.mutation.source import SourceMutant, swapped
from ptxdiff.mutation.trial import Subject, Trial, mutated, texts_of, trial_of, try_asm
from ptxdiff.records import Mutation, RecordError, Survivor, from_json, to_json
from ptxdiff.running.item import Item
from ptxdiff.running.plan import sets_of
from ptxdiff.running.reuse import key_of
from ptxdiff.triton.spec import Digests

SUBJECTS = ("asm", "ptx", "reference")
BY_DEFAULT = ("asm", "reference")
T = TypeVar("T")


@dataclass(frozen=True)
class Budget:
    """How many mutants run, and how survivors are searched.

    most: the most mutants of a variant or a reference (0: all). seed: of their random choice. limit: the time limit of
    an emulated kernel in seconds.
    """

    most: int = 0
    seed: int = 0
    search: Search = field(default_factory=Search)
    limit: float = KERNEL_SECONDS


def target_of(loaded: LoadedCase, names: Sequence[str]) -> str:
    """The default target: of those that the most variants support, sm_90a, else the latest."""
    counts = Counter(t for n in names for t in policies(loaded.case, loaded.case.variants[n]).targets)
    most = max(counts.values(), default=0)
    best = [t for t, count in counts.items() if count == most]
    return "sm_90a" if "sm_90a" in best or not best else best[-1]


Earlier = Callable[[str, tuple[str, ...]], Mutation | None]
"""Returns the stored mutation of a subject and its variants, or None."""
Tell = Callable[[Sequence[str], int], None]
"""Hears, before the mutants of a reference run, the variants that it judges and the number of mutants."""


def mutate(
    loaded: LoadedCase,
    names: Sequence[str],
    target: str,
    budget: Budget,
    subjects: Collection[str] = BY_DEFAULT,
    earlier: Earlier = lambda subject, names: None,
    tell: Tell = lambda names, count: None,
) -> Iterator[Mutation]:
    """Yield the mutations of some variants of a case, each when it is finished. subjects: some of SUBJECTS."""
    unfit: dict[str, str] = {}
    digests: Digests = {}

    def why_unfit(subject: Subject, name: str) -> str:
        if name not in unfit:
            unfit[name] = subject.baseline(name)
        return unfit[name]

    for kind, of in (("asm", _of_variant), ("ptx", _of_compiled)):
        for name in names if kind in subjects else ():
            subject = Subject(loaded, target, budget.limit, digests)
            yield earlier(kind, (name,)) or of(subject, name, budget, why_unfit)
    if "reference" not in subjects:
        return
    held: dict[int, tuple[Reference, list[str]]] = {}
    for name in names:
        policy = policies(loaded.case, loaded.case.variants[name])
        held.setdefault(id(policy.reference), (policy.reference, []))[1].append(name)
    for given, users in held.values():
        mutation = earlier("reference", tuple(users))
        if mutation is None:
            subject = Subject(loaded, target, budget.limit, digests)
            fit = [n for n in users if not why_unfit(subject, n)]
            mutation = _of_reference(subject, given, users, fit, budget, tell)
        yield mutation


def _of_variant(subject: Subject, name: str, budget: Budget, unfit: Callable[[Subject, str], str]) -> Mutation:
    """The mutants of one variant's asm.

    unfit: gives the reason why mutants of a variant would be meaningless, "" for none. It is called only if there is
    asm, because it runs the variant.
    """
    started = time.monotonic()
    tally = _Tally(subject, "asm", name)
    variant = subject.case.variants[name]
    if isinstance(variant, AsmVariant):
        reason = unfit(subject, name)
        return tally.done(reason, started) if reason else _of_asm(subject, name, variant, budget, tally)
    if kernels.is_given(subject, name):
        return _of_kernels(subject, name, budget, tally, unfit)
    blocks = kernels.blocks_of(subject, name)
    reason = blocks if isinstance(blocks, str) else unfit(subject, name)
    if reason or isinstance(blocks, str):
        return tally.done(reason, started)
    return _of_inline(subject, name, blocks, budget, tally)


def _of_compiled(subject: Subject, name: str, budget: Budget, unfit: Callable[[Subject, str], str]) -> Mutation:
    """The mutants of the PTX that Triton makes of a whole kernel. unfit: as in `_of_variant`."""
    started = time.monotonic()
    tally = _Tally(subject, "ptx", name)
    if not isinstance(subject.case.variants[name], KernelVariant):
        return tally.done("it is no kernel() of a whole-kernel case", started)
    return _of_kernels(subject, name, budget, tally, unfit)


def _of_kernels(
    subject: Subject, name: str, budget: Budget, tally: _Tally, unfit: Callable[[Subject, str], str]
) -> Mutation:
    """The mutants of the PTX of a variant's kernels."""
    started = time.monotonic()
    from ptxdiff.emulator import PtxError

    if reason := unfit(subject, name):
        return tally.done(reason, started)
    compiled_kernels = kernels.kernels_of(subject, name)
    if isinstance(compiled_kernels, str):
        return tally.done(compiled_kernels, started)
    try:
        every = list(kernels.placed_mutants(compiled_kernels))
    except PtxError as e:
        return tally.done(" ".join(str(e).split()), started)
    subject = subject.limited(min(budget.limit, kernels.seconds_of(subject, name)))
    _placed(subject, name, every, budget, tally, kernels.try_kernel, kernels.settle_kernels)
    return tally.done("", started)


def _placed(
    subject: Subject,
    name: str,
    every: Sequence[Any],
    budget: Budget,
    tally: _Tally,
    tried: Callable[..., Trial],
    settled: Callable[..., Iterable[Settlement]],
) -> None:
    """Run mutants that replace a part of a kernel, and settle those that survive."""
    survivors = []
    for one in tally.some(every, budget):
        trial = tried(subject, name, one)
        if trial.fate == "survived":
            survivors.append(one)
        else:
            tally.add(one.mutant.operator, one.mutant.change, trial)
    for one, settlement in zip(survivors, settled(subject, name, survivors, budget.search), strict=True):
        tally.settle(one.mutant.operator, one.mutant.change, settlement)


def _of_asm(subject: Subject, name: str, variant: AsmVariant, budget: Budget, tally: _Tally) -> Mutation:
    """The mutants of the asm texts of a variant."""
    started = time.monotonic()
    from ptxdiff.emulator import PtxError

    try:
        texts = texts_of(subject.case, variant)
        every = [
            (pack, mutant)
            for pack, (text, _) in texts.items()
            for mutant in asm.mutants(text.text, text.constraints or "", len(subject.case.outputs))
        ]
    except (PtxError, CaseError) as e:
        return tally.done(" ".join(str(e).split()), started)
    survivors: dict[int, list[tuple[AsmMutant, AsmVariant]]] = {pack: [] for pack in texts}
    for pack, mutant in tally.some(every, budget):
        text, base = texts[pack]
        try:
            wrong = mutated(subject.case, base, pack, text, mutant)
        except CaseError:
            tally.refused += 1
            continue
        trial = try_asm(subject, name, wrong)
        if trial.fate == "survived":
            survivors[pack].append((mutant, wrong))
        else:
            tally.add(mutant.operator, mutant.change, trial)
    for pack, surviving in survivors.items():
        settled = settle_asm(subject, name, texts[pack][1], [wrong for _, wrong in surviving], budget.search)
        for (mutant, _), settlement in zip(surviving, settled, strict=True):
            tally.settle(mutant.operator, mutant.change, settlement)
    return tally.done("", started)


def _of_inline(subject: Subject, name: str, blocks: kernels.Blocks, budget: Budget, tally: _Tally) -> Mutation:
    """The mutants of the inline asm within one variant's Triton functions."""
    started = time.monotonic()
    from ptxdiff.emulator import PtxError

    try:
        every = kernels.inline_mutants(blocks)
    except PtxError as e:
        return tally.done(" ".join(str(e).split()), started)
    _placed(subject, name, every, budget, tally, kernels.try_inline, kernels.settle_inline)
    return tally.done("", started)


def _of_reference(
    subject: Subject, reference: Reference, users: Sequence[str], fit: Sequence[str], budget: Budget, tell: Tell
) -> Mutation:
    """The mutants of one reference, in the lines that it executes on the case's inputs.

    users: the variants that are judged by it. fit: those of them that pass unchanged. tell: gets the number of mutants.
    """
    started = time.monotonic()
    tally = _Tally(subject, "reference", ", ".join(users))
    if not fit:
        return tally.done("none of its variants passes unchanged", started)
    lines = _lines_run(subject, reference, source.functions(reference))
    every = list(source.mutants(reference, lines))
    if not every:
        return tally.done("its source code is not available", started)
    survivors = []
    chosen = list(tally.some(every, budget))
    tell(users, len(chosen))
    for mutant in chosen:
        if _refused(subject, reference, mutant):
            tally.refused += 1
            continue
        trial = _try_reference(subject.fresh(), mutant, fit)
        if trial.fate == "survived":
            survivors.append(mutant)
        else:
            tally.add(mutant.operator, mutant.change, trial)
    settled = settle_reference(subject, fit, reference, survivors, budget.search)
    for mutant, settlement in zip(survivors, settled, strict=True):
        tally.settle(mutant.operator, mutant.change, settlement)
    return tally.done("", started)


def _try_reference(subject: Subject, mutant: SourceMutant, names: Sequence[str]) -> Trial:
    """Run variants with a mutant of their reference, up to the first that fails."""
    trial = Trial("undecided", "nothing ran")
    with swapped(mutant):
        for name in names:
            trial = trial_of(subject.run(name))
            if trial.fate != "survived":
                break
    return trial


class _Tally:
    """The counts of one variant's or one reference's mutants."""

    def __init__(self, subject: Subject, kind: str, variant: str) -> None:
        self.subject, self.kind, self.variant = subject, kind, variant
        self.killed: Counter[str] = Counter()
        self.refused = self.left_out = self.by_padding = 0
        self.survivors: list[Survivor] = []

    def some(self, every: Sequence[T], budget: Budget) -> Sequence[T]:
        """At most `budget.most` mutants, one at random from each of as many equal parts. Counts the others."""
        most = budget.most
        if not most or len(every) <= most:
            return every
        self.left_out = len(every) - most
        rng = random.Random(f"{budget.seed} {self.subject.loaded.name} {self.kind} {self.variant}")
        ends = [k * len(every) // most for k in range(most + 1)]
        return [every[rng.randrange(first, last)] for first, last in pairwise(ends)]

    def add(self, operator: str, change: str, trial: Trial) -> None:
        """Count a mutant that the run at quick effort decided, or could not run."""
        if trial.fate == "killed":
            self.killed[operator] += 1
        elif trial.fate == "padding":
            self.by_padding += 1
        elif trial.fate == "refused":
            self.refused += 1
        else:
            self.survivors.append(Survivor(operator, change, "undecided", trial.words))

    def settle(self, operator: str, change: str, settled: Settlement) -> None:
        """Record the settlement of a survivor."""
        self.survivors.append(Survivor(operator, change, settled.fate, settled.words, dict(settled.edge)))

    def done(self, words: str, started: float) -> Mutation:
        """The record of these mutants. words: the reason why there are none; "" otherwise."""
        return Mutation(
            self.subject.loaded.name, self.kind, self.variant, self.subject.target, dict(sorted(self.killed.items())),
            self.refused, self.left_out, tuple(self.survivors), words, round(time.monotonic() - started, 2),
            self.by_padding,
        )  # fmt: skip


def _some_codes(subject: Subject) -> Iterator[dict[str, Any]]:
    """Codes of the case's inputs at quick effort: enough of each set to execute the reference's branches."""
    case = subject.case
    if not case.elementwise:
        for sizes in case.sizes:
            set_name = "generated/1" if case.generate is not None else "random/1"
            yield codes_of(case.inputs, kernel_inputs(case, set_name, sizes))
        return
    for inputs in sets_of(case, "emulator", "quick"):
        yield codes_of(case.inputs, inputs.take(0, 4096))


def _lines_run(
    subject: Subject, reference: Reference, functions: Sequence[types.FunctionType]
) -> set[tuple[types.CodeType, int]]:
    """The lines of a reference's functions that run for this case, with flushing and without.

    Mutants of other lines would be equivalent.
    """
    codes = {c: f.__code__ for f in functions for c in _all_codes(f.__code__)}
    lines_run: set[tuple[types.CodeType, int]] = set()

    def trace(frame: types.FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        outer = codes.get(frame.f_code)
        if outer is None:
            return None
        lines_run.add((outer, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for inputs in _some_codes(subject):
            for flushing in (False, True):
                try:
                    apply_reference(subject.case, reference, inputs, flushing)
                except ReferenceFault:  # the reference does not support flushing
                    continue
    finally:
        sys.settrace(before)
    return lines_run


def _all_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _all_codes(constant)


def _refused(subject: Subject, reference: Reference, mutant: SourceMutant) -> bool:
    """Whether a mutant raises, or does not return codes, so that every run would be an error."""
    with swapped(mutant):
        try:
            for inputs in _some_codes(subject):
                apply_reference(subject.case, reference, inputs)
        except ReferenceFault:
            return True
    return False


# A journal of finished mutations -----------------------------------------------------------------------------------
#
# A journal of finished mutations, one line for each variant or reference, with which a stopped command continues.
#
# A line is reused only if everything that decides it is unchanged: the case, the harness, the installed packages, the
# target and the budget (`ptxdiff.running.reuse.key_of`).

_LASTING = ("", "it has no asm of its own")
"""Only mutations with these words are stored, because a case that does not pass or compile now may do so later."""


class MutationJournal:
    """The journal in a file, which is created at the first entry. Raises ValueError for a file of another kind."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, Mutation] = {}
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if text and not text.endswith("\n"):  # a process ended while it wrote its last line
            text = text[: text.rfind("\n") + 1]
            path.write_text(text, encoding="utf-8")
        for number, line in enumerate(text.splitlines(), 1):
            try:
                entry = json.loads(line)
                made = from_json(entry["mutation"])
                key = entry["key"]
            except (ValueError, KeyError, TypeError, RecordError) as e:
                raise ValueError(f"{path}:{number} is no line of a mutation journal ({e}); name another file") from e
            if isinstance(made, Mutation):
                self._known[key] = made

    def find(self, asked: MutationRequest) -> Mutation | None:
        """The stored mutation of a request; None if there is none, or if something has changed since."""
        key = asked.key()
        return self._known.get(key) if key else None

    def keep(self, asked: MutationRequest, made: Mutation) -> None:
        """Store a mutation, unless another attempt might decide more mutants."""
        key = asked.key()
        if key is None or made.words not in _LASTING or made.count("undecided") or key in self._known:
            return
        self._known[key] = made
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "mutation": to_json(made)}) + "\n")


@dataclass(frozen=True)
class MutationRequest:
    """A request: the mutants of a case's variants on a target. subject: asm, ptx or reference."""

    loaded: LoadedCase
    subject: str
    names: Sequence[str]
    target: str
    budget: Budget

    def key(self) -> str | None:
        """A digest of everything that decides the mutations; None if that is not known."""
        settings = ("mutants", self.subject, repr(self.budget))
        keys = [key_of(Item(self.loaded, name, self.target, "emulator"), *settings) for name in self.names]
        return None if None in keys else hashlib.sha256(" ".join(map(str, keys)).encode()).hexdigest()
