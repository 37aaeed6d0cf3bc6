"""The runner: one test item (case, variant, target, backend), from its plan to its results."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.backends import builds
from ptxdiff.inputs.fill import kernel_inputs, shaped
from ptxdiff.inputs.sets import has_tuples
from ptxdiff.jobs import Backend, CompilingBackend, Job, Outcome, Setup, block_of
from ptxdiff.judging.answers import references_digested_once
from ptxdiff.judging.expectation import settle, settle_declared
from ptxdiff.judging.judge import Judgement, held_exactly, judge_same
from ptxdiff.judging.judged_share import pooled, too_little, unwritten_error
from ptxdiff.judging.message import headline, message
from ptxdiff.model.dialect import AsmCall
from ptxdiff.model.load import staying
from ptxdiff.model.match import DomainError
from ptxdiff.model.policies import Policies, differs_on
from ptxdiff.model.reference import ReferenceFault
from ptxdiff.model.tuning import passed_over
from ptxdiff.model.variants import AsmVariant, CaseError
from ptxdiff.processes.pool import default_size
from ptxdiff.records import Key, Verdict
from ptxdiff.records.provenance import digest
from ptxdiff.running import plan as planning
from ptxdiff.running.asm_faults import fault_of, shared_registers, special_registers_in, unfilled_places
from ptxdiff.running.assemblers import Chosen, with_assembler
from ptxdiff.running.contexts import run_loop, run_straight
from ptxdiff.running.diagnosis import diagnose, index_hint
from ptxdiff.running.dump import write_dump
from ptxdiff.running.item import Item, ItemResults
from ptxdiff.running.judged import judged, judging_results_of
from ptxdiff.running.plan import WorkItem
from ptxdiff.running.ptxas_fault import PtxasTrial, ended_badly
from ptxdiff.running.replay import Replay, check_formats
from ptxdiff.sweep import LARGE, OracleFault, Swept
from ptxdiff.sweep.dispatch import sweep
from ptxdiff.triton.spec import digested_once

Units = dict[str, NDArray[np.generic]]

PADDINGS = (11, 12, 13)
"""Seeds of the bits with which undefined padding is filled, to find out whether a failure is due to it alone."""
PADDING_NOTE = (
    "undefined padding alone: where a pack is not full, the rest of its registers is undefined, and a result depends "
    "on it; filled with random bits, all results are right. If the asm may look at the whole pack, and is right "
    "whatever fills it, say so: asm(..., reads_padding=True)"
)
"""The note of a `Result.padding_alone`."""


def run_item(
    item: Item,
    backend: Backend,
    effort: str,
    *,
    node: str = "",
    replay: Replay | None = None,
    dump: Path | None = None,
    stop: bool = False,
    assemblers: Sequence[Chosen] = (None,),
) -> ItemResults:
    """Run an item's whole plan, or one replay instead.

    node: pytest's id of the item, for the repeat command. dump: a folder for the arrays of failures. stop: end the plan
    at the first failure. assemblers: each runs the whole plan; None is Triton's own.

    An error of a compiler or a device ends the plan for one assembler: the other setups would only repeat the error.
    """
    with digested_once(), references_digested_once(), staying():
        return _ItemRun(item, backend, effort, node, dump).all(replay, stop, assemblers)


def judge_job(item: Item, backend: Backend, job: Job, outcome: Outcome) -> Judgement:
    """The judgement on one job's outcome, as in a run of the item. Raises ReferenceFault or DomainError."""
    return _ItemRun(item, backend, "quick", "")._judgement(job, outcome)


def run_again(
    item: Item,
    backend: Backend,
    effort: str,
    key: Key,
    block: tuple[int, int] = (0, 0),
    assemblers: Sequence[Chosen] = (None,),
) -> tuple[Job, Outcome]:
    """The job behind one of the item's results, and its outcome now.

    block: for a set too large to hold, the number of its first input, and how many. Raises LookupError if the plan has
    no such key, because the case was changed.
    """
    return _ItemRun(item, backend, effort, "").again(key, block, assemblers)


def jobs(item: Item, backend: Backend, effort: str) -> Iterator[tuple[Key, Job | None]]:
    """The jobs of an item's plan, in order, each with its inputs, for callers that want bits rather than results.

    None takes the place of a job whose inputs are too many to hold. Raises CaseError if there is nothing to run.
    """
    yield from _ItemRun(item, backend, effort, "").jobs()


class _ItemRun(PtxasTrial):
    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._ahead: list[tuple[WorkItem, tuple[WorkItem, Units]]] = []  # items compiled ahead, with their inputs
        self._calls: dict[tuple[str, str, int], AsmCall] = {}  # the asm of Triton functions, with its fullest packs
        self._asm_findings: set[str] = set()

    def all(self, replay: Replay | None, stop: bool = False, assemblers: Sequence[Chosen] = (None,)) -> ItemResults:
        item = WorkItem(Setup(), "")
        try:
            self.replay = replay
            work = self._replayed(replay) if replay else self._planned()
            reason = builds.unavailable(self.item.compiler, self.backend.name, self.item.target)
            reason = reason or self.backend.unavailable(self.item.target)
            if reason is not None:
                self._record(work[0], Outcome("not run", reason), "not run", 0.0)
                return self.found
            keys: set[Key] = set()
            self.assemblers = tuple(assemblers)
            for assembler in assemblers:
                plan = with_assembler(assembler, work)
                for place, item in enumerate(plan):
                    if self._faulty(item) or (stop and self._failed()):
                        return self._settled(replay)
                    if replay is None and not stop:
                        self._compile_ahead(plan[place : place + 1 + default_size()])
                    if not self._go_on(item, replay, keys):
                        break
        except (CaseError, DomainError, ReferenceFault, OracleFault) as e:
            self._record(item, Outcome("error"), "error", 0.0, str(e))
        except KeyboardInterrupt:
            raise
        except (
            BaseException
        ) as e:  # pytest.skip, pytest.xfail and sys.exit raise no Exception, and would end no failure
            self._fault(item, e)
        return self._settled(replay)

    def _go_on(self, item: WorkItem, replay: Replay | None, keys: set[Key]) -> bool:
        """Run one work item, unless its key has a result already. Returns whether to run the rest of the plan."""
        if replay is None and self._is_large(item):
            return self._sweep(item)
        item, inputs = self._made(item) if replay is None else (item, self._refilled(item, replay))
        key = self._key(item)
        known = key in keys
        keys.add(key)
        return known or self._one(item, inputs)

    def _compile_ahead(self, plan: Sequence[WorkItem]) -> None:
        """Start compiling these in order, one on each core: they compile while the first one runs and is judged."""
        if not isinstance(self.backend, CompilingBackend):
            return
        for item in plan:
            if any(item is known for known, _ in self._ahead):
                continue
            try:
                if self._is_large(item):
                    continue
                made = self._filled(item)
                self.backend.prepare(self._job(*made))
            except Exception:  # the item will raise it again when it runs, and report it then
                return
            self._ahead.append((item, made))

    def _made(self, item: WorkItem) -> tuple[WorkItem, Units]:
        """The item with its shape and its inputs, made ahead or now."""
        found = [made for known, made in self._ahead if known is item]
        self._ahead = [pair for pair in self._ahead if pair[0] is not item]
        return found[0] if found else self._filled(item)

    def _settled(self, replay: Replay | None) -> ItemResults:
        """The item's results, after the checks that concern all of them together."""
        if replay is None:
            settle(self.found.results, self.variant.expected_failure, self.item.label)
            settle_declared(self.found.results, differs_on(self.variant, self.item.target), self.item.label)
            self._settle_promises()
            self._settle_packs()
        return self.found

    def _failed(self) -> bool:
        """Whether the newest result ends a run that stops at the first failure. One by padding alone does not."""
        last = self.found.results[-1] if self.found.results else None
        return last is not None and last.verdict in ("fail", "error") and not last.padding_alone

    def _right_with_padding(self, job: Job, outcome: Outcome) -> bool:
        """Whether a straight run of asm fails only because padding is undefined: it is right with several fillings."""
        variant, setup = job.variant, job.setup
        if not isinstance(variant, AsmVariant) or self.backend.name != "emulator" or setup.context != "straight":
            return False
        if not outcome.findings or setup.padding is not None or not job.inputs:
            return False
        for seed in PADDINGS:
            filled = replace(job, setup=replace(setup, padding=seed, alone=True, alignment=16))
            other = self.backend.run(filled)
            if other.status != "ran" or other.findings or not self._judgement(filled, other).passed:
                return False
        return True

    def jobs(self) -> Iterator[tuple[Key, Job | None]]:
        """See the function `jobs`."""
        keys = set()
        for item in self._planned():
            large = self._is_large(item)
            item, inputs = (self._sized(item), {}) if large else self._filled(item)
            key = self._key(item)
            if key not in keys:
                yield key, None if large else self._job(item, inputs)
            keys.add(key)

    def again(self, key: Key, block: tuple[int, int], assemblers: Sequence[Chosen]) -> tuple[Job, Outcome]:
        """See `run_again`."""
        planned = self._planned()
        for item in (item for assembler in assemblers for item in with_assembler(assembler, planned)):
            if self._is_large(item):
                inputs = self._set(item.input_set)
                if self._key(planning.sized(item, inputs.count)) != key:
                    continue
                part = inputs.take(*block)
                job = self._job(planning.sized(item, block[1]), part)
            else:
                item, units = self._filled(item)
                if self._key(item) != key:
                    continue
                job = self._job(item, units)
            return job, self.backend.run(job)
        raise LookupError(f"the plan has no {key}")

    def _planned(self) -> list[WorkItem]:
        name, case = self.item.loaded.name, self.case
        with judging_results_of(self.backend.name):  # some inputs are made from the reference's answers
            work = planning.plan(case, name, self.variant, self.backend.name, self.effort, self.item.target)
        if not work:
            raise CaseError(
                "there is nothing to run it on: where= excludes every input that was generated"
                if case.where is not None
                else "there is nothing to run it on: no input sets"
            )
        return work

    def _replayed(self, replay: Replay) -> list[WorkItem]:
        return [WorkItem(replay.setup, replay.input_set or "replay")]

    def _refilled(self, item: WorkItem, replay: Replay) -> Units:
        check_formats(replay, self.fingerprint)
        if not replay.input_set:
            return replay.fill(self.case)
        inputs = self._kernel_inputs(item)
        made_from = replay.origin.inputs if replay.origin else ""
        if made_from and not digest(inputs).startswith(made_from):
            raise CaseError(
                f"--ptx-replay: the inputs called {replay.input_set} are not those that this token was made from: the "
                "case or the harness makes others now, so there is nothing to repeat; run it without --ptx-replay"
            )
        return inputs

    def _fault(self, item: WorkItem, error: BaseException) -> None:
        """Record an exception of the harness, or of the case file's functions, as an error."""
        if not isinstance(error, Exception):
            kind = _ENDS_A_TEST.get(type(error).__name__, type(error).__name__)
            words = (
                f"the case's code ends the test itself, by {kind}: {error}; a case passes or fails by its bits alone"
            )
            self._record(item, Outcome("error"), "error", 0.0, words)
            return
        last = traceback.extract_tb(error.__traceback__)[-1]
        words = f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
        self._record(item, Outcome("error"), "error", 0.0, words)
        whole = "".join(traceback.format_exception(error))
        self.found.results[-1] = replace(self.found.results[-1], message=f"{self.found.results[-1].message}\n\n{whole}")

    def _filled(self, item: WorkItem) -> tuple[WorkItem, Units]:
        """The item with its shape, and its inputs in that shape."""
        if item.input_set == "none":
            return item, {}
        if not self.case.elementwise:
            return item, self._kernel_inputs(item)
        inputs = self._set(item.input_set)
        item = planning.sized(item, inputs.count)
        return item, shaped(inputs, item.setup.shape, item.shuffled)

    def _kernel_inputs(self, item: WorkItem) -> Units:
        return kernel_inputs(self.case, self.item.loaded.name, item.input_set, item.setup.sizes)

    def _job(self, item: WorkItem, inputs: Units) -> Job:
        return Job(
            self.case, self.item.loaded.name, self.item.loaded.path, self.item.variant_name, self.variant,
            self.item.target, item.setup, inputs, self.approximate,
        )  # fmt: skip

    def _is_large(self, item: WorkItem) -> bool:
        """Whether the item runs the whole of a set that is too large to hold."""
        if not self.case.elementwise or item.setup.shape or item.input_set == "none":
            return False
        return self._set(item.input_set).count > LARGE

    def _faulty(self, item: WorkItem) -> bool:
        """Whether the asm is wrong on every backend, whatever its outputs are; if so, records the error."""
        form = self._form(item)
        words = None
        if form is not None:
            words = fault_of(self._job(item, self._few() if special_registers_in(form) else {}), form)
        if words is None:
            return False
        self._record(self._sized(item), Outcome("ran", findings=(words,)), "fail", 0.0, words)
        return True

    def _few(self) -> Units:
        """At most a few inputs of the first set, to check asm whose item has other inputs, or none."""
        sets = planning.sets_of(self.case, self.item.loaded.name, "emulator", "quick")
        return dict(sets[0].take(0, min(sets[0].count, 1 << 16))) if sets else {}

    def _sized(self, item: WorkItem) -> WorkItem:
        """The item with its shape, without making its inputs."""
        if not self.case.elementwise or item.input_set in ("none", "replay"):
            return item
        return planning.sized(item, self._set(item.input_set).count)

    def _sweep(self, item: WorkItem) -> bool:
        """Run and judge a large set piece by piece. Returns whether to run the rest of the plan."""
        started = time.perf_counter()
        inputs = self._set(item.input_set)
        job = self._job(item, {})
        swept = sweep(self.backend, job, self.policy, inputs, self._judgement)
        seconds = time.perf_counter() - started
        item = planning.sized(item, inputs.count)
        # A replay repeats the pack of the first difference, in a shape of the same class.
        job = replace(job, setup=replace(job.setup, shape=(16 * block_of(job.setup.pack),)), inputs=swept.inputs or {})
        if swept.outcome.status == "ran":
            self._verdict(item, job, swept.outcome, seconds, swept.judgement, swept)
            return True
        self._not_run(item, job, swept.outcome, seconds)
        return False

    def _one(self, item: WorkItem, inputs: Units) -> bool:
        """Run one work item. Returns whether to run the rest of the plan."""
        started = time.perf_counter()
        job = self._job(item, inputs)
        if job.setup.context == "loop" and inputs:
            return self._loop(item, job)
        outcome = self.backend.run(job)
        return self._finished(item, job, outcome, time.perf_counter() - started)

    def _loop(self, item: WorkItem, job: Job) -> bool:
        """Run one work item of the loop context, and compare each of its steps."""
        started = time.perf_counter()
        try:
            job, outcome, judgement = run_loop(self.backend, job, self.policy.carry)
        except ReferenceFault as e:
            self._record(item, Outcome("error"), "error", time.perf_counter() - started, str(e))
            return True
        item = replace(item, setup=job.setup)
        return self._finished(item, job, outcome, time.perf_counter() - started, judgement)

    def _finished(
        self, item: WorkItem, job: Job, outcome: Outcome, seconds: float, judgement: Judgement | None = None
    ) -> bool:
        """Record the result of a work item. Returns whether to run the rest of the plan."""
        outcome = self._with_asm_tried(outcome)
        if outcome.status == "ran":
            self._judged(item, job, outcome, seconds, judgement)
            return True
        if outcome.status == "assembled":
            words = f"assembles, though {self.item.target} is declared in refused="
            refused = self.item.target in self.policy.refused
            reasons = [words] * refused + list(outcome.findings)
            self._record(item, outcome, "fail" if reasons else "pass", seconds, "; ".join(reasons))
            return True
        self._not_run(item, job, outcome, seconds)
        return False

    def _not_run(self, item: WorkItem, job: Job, outcome: Outcome, seconds: float) -> None:
        """Record why a job gave no machine code, or no bits. A crash of ptxas is a failure of ptxas."""
        if outcome.ended:
            self._record(item, outcome, "fail", seconds, outcome.words)
            self._blame_ptxas(item, ended_badly(job, outcome, self.assemblers))
            return
        verdict, words = self._refusal(job, outcome)
        blame = self._blamed(job, outcome) if outcome.status == "error" else None
        self._record(item, outcome, "fail" if blame else verdict, seconds, words)
        if blame is not None:
            self._blame_ptxas(item, blame)

    def _refusal(self, job: Job, outcome: Outcome) -> tuple[Verdict, str]:
        """The verdict on a job that did not run: `unsupported` if the case declares it, else a failure or an error."""
        if outcome.status == "error" and getattr(self.variant, "tuned", False) and passed_over(outcome.words):
            return "not run", f"Triton's autotuner passes over this configuration here: {outcome.words}"
        if outcome.status != "unsupported":
            return ("not run" if outcome.status == "not run" else "error"), outcome.words
        if self.item.target not in self.policy.targets:
            return "unsupported", outcome.words
        if accepted_somewhere(job, self.policy) is False:
            return "error", f"no target accepts this asm: {outcome.words}"
        required = "where it must work by targets= (without targets=: everywhere)"
        return "fail", f"unsupported on {self.item.target}, {required}: {outcome.words}"

    def _judgement(self, job: Job, outcome: Outcome) -> Judgement:
        if not outcome.outputs:
            return Judgement()
        if job.setup.context == "shared":
            straight = run_straight(self.backend, job)
            return judge_same(self.case, job.inputs, straight, outcome.outputs, job.setup.pack)
        judgement = self._judge(job, outcome.outputs)
        if judgement.passed and outcome.alternative:
            judgement = self._judge(job, outcome.alternative)
            judgement.notes.append("the readings with and without contraction differ; this is the one without")
        for words, outputs in outcome.orders.items():
            if judgement.passed:
                judgement = self._judge(job, outputs)
                judgement.notes.append(f"the bits depend on the order of blocks; these are the ones {words}")
        return judgement

    def _judge(self, job: Job, outputs: Mapping[str, Any]) -> Judgement:
        with judging_results_of(self.backend.name):
            return judged(self.case, self.variant, self.policy, job.inputs, outputs, job.setup.pack)

    def _judged(
        self, item: WorkItem, job: Job, outcome: Outcome, seconds: float, judgement: Judgement | None = None
    ) -> None:
        try:
            judgement = judgement or self._judgement(job, outcome)
        except (ReferenceFault, DomainError) as e:
            hint = index_hint(self.case, item.input_set, str(e))
            self._record(item, outcome, "error", seconds, "; ".join(filter(None, (str(e), hint))))
            return
        if hint := index_hint(self.case, item.input_set, " ".join(outcome.findings)):
            judgement.notes.append(hint)
        self._verdict(item, job, outcome, seconds, judgement)

    def _verdict(
        self,
        item: WorkItem,
        job: Job,
        outcome: Outcome,
        seconds: float,
        judgement: Judgement,
        swept: Swept | None = None,
    ) -> None:
        against = self._against(item)
        outcome = replace(outcome, findings=outcome.findings + held_exactly(self.policy, outcome.approximate))
        if (outcome.outputs or swept) and job.setup.context == "straight":
            # The first run of a set has all its inputs; further runs of the edges in other shapes do not count, and
            # tuples have the same edges over and over.
            if not has_tuples(item.input_set):
                self.judged.setdefault(item.input_set, judgement.judged)
            self.needed.setdefault(job.setup.shape_text, {}).setdefault(item.input_set, judgement.needed)
        passed = judgement.passed and not outcome.findings
        if self.item.target in self.policy.refused:
            self._record(item, outcome, "fail", seconds, f"runs, though {self.item.target} is declared in refused=")
            return
        result = self._result(item, job, outcome, "pass" if passed else "fail", seconds, judgement, swept)
        if not passed:
            alone = self._right_with_padding(job, outcome)
            judgement.notes += [PADDING_NOTE] * alone
            result = replace(result, diagnosis=diagnose(job, outcome), padding_alone=alone)
            # Findings on the asm alone hold for every assembler.
            by_asm = judgement.passed and self._asm_findings.issuperset(outcome.findings)
            result, story = (result, []) if by_asm else self._on_trial(result, job, outcome)
            load = write_dump(self.dump, result.key, job.inputs, outcome.outputs, judgement) if self.dump else ()
            head = headline(result.key, judgement, outcome.findings, result.diagnosis)
            result = replace(
                result,
                words=f"{head}; {result.words}" if story else head,
                message=message(
                    result, self.policy, judgement, self._command(result, item.setup.assembler), against, load, story
                ),
            )
        self.found.results.append(result)

    def _with_asm_tried(self, outcome: Outcome) -> Outcome:
        """The outcome with findings on the asm within Triton functions, each of them once in an item."""
        if isinstance(self.variant, AsmVariant):
            return outcome
        faults = []
        for call in outcome.artifacts.asm:
            key = call.text, call.constraints, call.pack
            if key not in self._calls:
                faults.append(shared_registers(call))
            before = self._calls.setdefault(key, replace(call, filled=0))
            if outcome.status == "ran" and call.filled > before.filled:
                self._calls[key] = call
        findings, notes = ([f for f in found if f] for found in ([f.finding for f in faults], [f.note for f in faults]))
        self._asm_findings.update(findings)
        return replace(outcome, findings=(*outcome.findings, *findings), notes=(*outcome.notes, *notes))

    def _settle_packs(self) -> None:
        """Fail, or add a remark, for asm of which some places of the pack hold padding in every launch."""
        if any(r.verdict in ("fail", "error") for r in self.found.results):
            return
        for call in self._calls.values():
            if not 0 < call.filled < call.pack:
                continue
            fault = unfilled_places(call)
            if fault.finding:
                self._record(
                    WorkItem(Setup(), ""), Outcome("ran", findings=(fault.finding,)), "fail", 0.0, fault.finding
                )
            else:
                first = self.found.results[0]
                self.found.results[0] = replace(first, notes=(*first.notes, fault.note))

    def _settle_promises(self) -> None:
        """Record an error if almost nothing was judged, or no output had to be written: then anything would pass."""
        if any(r.verdict in ("fail", "error") and not r.expected_failure for r in self.found.results):
            return
        written = unwritten_error({shape: sets.values() for shape, sets in self.needed.items()})
        if words := too_little(self.policy, pooled(self.judged.values())) or written:
            self._record(WorkItem(Setup(), ""), Outcome("error"), "error", 0.0, words)
        elif self.judged:
            self._remark_on_domain()
            self._remark_on_words()


_ENDS_A_TEST = {
    "Skipped": "pytest.skip",
    "XFailed": "pytest.xfail",
    "Failed": "pytest.fail",
    "SystemExit": "sys.exit",
}
"""By the names of exceptions that are no `Exception`: what raises them."""


def accepted_somewhere(job: Job, policy: Policies) -> bool | None:
    """Whether the assembler accepts it for any other target on which the variant is declared to work.

    None if no such target can be assembled for here.
    """
    from ptxdiff.backends.assembler import AssemblerBackend

    assembler = AssemblerBackend(disassemble="never")
    others = [t for t in policy.targets if t != job.target]
    served = [t for t in others if assembler.unavailable(t) is None]
    if others and not served:
        return None
    return any(assembler.run(replace(job, target=t)).status == "assembled" for t in reversed(served))
