"""The runner: one test item (case, variant, target, backend), from its plan to its results."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ptxdiff import backends
from ptxdiff.jobs import Backend, CompilingBackend, Job, Outcome, Setup, block_of
from ptxdiff.judging.answers import references_digested_once
from ptxdiff.judging.expectation import settle, settle_declared
from ptxdiff.judging.judge import Judgement, held_exactly
from ptxdiff.judging.message import headline, message
from ptxdiff.model.load import staying
from ptxdiff.model.match import DomainError
from ptxdiff.model.policies import Policies, differs_on
from ptxdiff.model.reference import ReferenceFault
from ptxdiff.model.tuning import passed_over
from ptxdiff.model.variants import REVERSED, AsmVariant, CaseError
from ptxdiff.processes.footprint import give_back
from ptxdiff.processes.pool import default_size
from ptxdiff.records import UNPROVED, Key, Result, Verdict
from ptxdiff.running import plan as planning
from ptxdiff.running.asm_faults import CalledAsm, fault_of, special_registers_in
from ptxdiff.running.assemblers import Chosen, with_assembler
from ptxdiff.running.contexts import SharedRegisters, run_loop
from ptxdiff.running.item import Item, ItemResults
from ptxdiff.running.item_plan import ItemPlan, Units
from ptxdiff.running.judgements import (
    PADDING_NOTE,
    PRUNED_NOTE,
    ItemJudge,
    bits_beside_elements,
    diagnose,
    index_hint,
)
from ptxdiff.running.plan import WorkItem
from ptxdiff.running.ptxas_fault import PtxasTrial, ended_badly
from ptxdiff.running.repairs import Repairs
from ptxdiff.running.replay import Replay
from ptxdiff.running.result import ItemRecord, write_dump
from ptxdiff.suggestions import explained
from ptxdiff.sweep import OracleFault, Swept
from ptxdiff.sweep.dispatch import sweep
from ptxdiff.triton.spec import digested_once


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
        plan = ItemPlan(item, backend, effort, replay)
        run = _ItemRun(plan, backend, ItemRecord(plan, node), dump=dump, assemblers=assemblers)
        found = run.all(stop)
        if run.undecided:
            plan = ItemPlan(item, backend, effort, replay, whole=True)
            found = _ItemRun(plan, backend, ItemRecord(plan, node), dump=dump, assemblers=assemblers).all(stop)
        return found


def judge_job(item: Item, backend: Backend, job: Job, outcome: Outcome) -> Judgement:
    """The judgement on one job's outcome, as in a run of the item. Raises ReferenceFault or DomainError."""
    return _judge_of(ItemPlan(item, backend, "quick"), backend).judgement(job, outcome)


def _judge_of(plan: ItemPlan, backend: Backend) -> ItemJudge:
    return ItemJudge(plan.case, plan.variant, plan.policy, backend, partial(_running, backend=backend))


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
    plan = ItemPlan(item, backend, effort)
    work = [*plan.work(), *plan.shared_on_cpu()]
    for one in (one for assembler in assemblers for one in with_assembler(assembler, work)):
        if plan.is_large(one):
            inputs = plan.set_called(one.input_set)
            if plan.key(planning.sized(one, inputs.count)) != key:
                continue
            job = plan.job(planning.sized(one, block[1]), inputs.take(*block))
        else:
            one, units = plan.filled(one)
            if plan.key(one) != key:
                continue
            job = plan.job(one, units)
        return job, _running(job, backend).run(job)
    raise LookupError(f"the plan has no {key}")


def jobs(item: Item, backend: Backend, effort: str) -> Iterator[tuple[Key, Job | None]]:
    """The jobs of an item's plan, in order, each with its inputs, for callers that want bits rather than results.

    None takes the place of a job whose inputs are too many to hold. Raises CaseError if there is nothing to run.
    """
    yield from ItemPlan(item, backend, effort).jobs()


def _running(job: Job, backend: Backend) -> Backend:
    """The backend that runs a job of this one: the emulator, if the job needs operands in registers that it chooses."""
    if job.setup.context != "shared" or backends.BACKENDS[backend.name].shares:
        return backend
    return backends.create("emulator")


_MANY_CODES = 1 << 15
"""Codes of one result; behind it, what judging has freed is given back to the system."""


class _ItemRun:
    """Runs the plan of one item: its plan, its judge, ptxas's trial and its record are objects of their own."""

    def __init__(
        self,
        plan: ItemPlan,
        backend: Backend,
        record: ItemRecord,
        *,
        dump: Path | None = None,
        assemblers: Sequence[Chosen] = (None,),
    ) -> None:
        self.plan, self.backend, self.record, self.dump = plan, backend, record, dump
        self.assemblers = tuple(assemblers)
        self.judge = _judge_of(plan, backend)
        self.trial = PtxasTrial(backend, self.assemblers, self.judge.passes, dump)
        self.called_asm, self.shared = CalledAsm(), SharedRegisters(partial(_running, backend=backend))
        self.repairs = Repairs(plan.policy)
        self.stops = False
        self.doubtful = False  # of a result, whether machine code may be wrong, which is not settled
        self.undecided = False  # of a smaller plan, whether the whole one has to decide
        self._ahead: list[tuple[WorkItem, tuple[WorkItem, Units]]] = []  # items compiled ahead, with their inputs

    def all(self, stop: bool = False) -> ItemResults:
        """Run everything. stop: end at the first failure."""
        item, self.stops = WorkItem(Setup(), ""), stop
        try:
            work = self.plan.work()
            compiler, target = self.plan.item.compiler, self.plan.item.target
            reason = backends.unavailable(compiler, self.backend.name, target) or self.backend.unavailable(target)
            if reason is not None:
                self.record.add(work[0], Outcome("not run", reason), "not run", 0.0)
                return self.record.item_results
            keys: set[Key] = set()
            for assembler in self.assemblers:
                items = with_assembler(assembler, work)
                for number, item in enumerate(items):
                    if self._asm_is_faulty(item) or (stop and self._failed()):
                        return self._settled()
                    if self.plan.replay is None and not stop:
                        self._compile_ahead(items[number : number + 1 + default_size()])
                    if not self._run_once(item, keys):
                        break
        except (CaseError, DomainError, ReferenceFault, OracleFault) as e:
            self.record.add(item, Outcome("error"), "error", 0.0, str(e))
        except KeyboardInterrupt:
            raise
        except (
            BaseException
        ) as e:  # pytest.skip, pytest.xfail and sys.exit raise no Exception, and would end no failure
            self._add_exception(item, e)
        return self._settled()

    def _run_once(self, item: WorkItem, keys: set[Key]) -> bool:
        """Run one work item, unless its key has a result already. Returns whether to run the rest of the plan."""
        if self.plan.is_large(item):
            return self._sweep(item)
        item, inputs = self._made(item)
        key = self.plan.key(item)
        known = key in keys
        keys.add(key)
        return known or self._one(item, inputs)

    def _compile_ahead(self, items: Sequence[WorkItem]) -> None:
        """Start compiling these in order, one on each core: they compile while the first one runs and is judged."""
        if not isinstance(self.backend, CompilingBackend):
            return
        for item in items:
            if any(item is known for known, _ in self._ahead):
                continue
            try:
                if self.plan.is_large(item):
                    continue
                made = self.plan.filled(item)
                self.backend.prepare(self.plan.job(*made))
            except Exception:  # the item will raise it again when it runs, and report it then
                return
            self._ahead.append((item, made))

    def _made(self, item: WorkItem) -> tuple[WorkItem, Units]:
        """The item with its shape and its inputs, made ahead or now."""
        ready = [made for known, made in self._ahead if known is item]
        self._ahead = [pair for pair in self._ahead if pair[0] is not item]
        return ready[0] if ready else self.plan.filled(item)

    def _settled(self) -> ItemResults:
        """The item's results, after the checks that concern all of them together."""
        if self.plan.replay is None:
            results = self.record.item_results.results
            variant, item = self.plan.variant, self.plan.item
            self._settle_sharing()
            settle(results, variant.expected_failure, item.label, whole=not self.plan.brief)
            settle_declared(results, differs_on(variant, item.target), item.label)
            self._settle_shares()
            if not self.plan.brief:  # some of its launches are those that fill the packs
                self._settle_packs()
            if results and any(r.verdict != "not run" for r in results) and (left := self.plan.left_out()):
                self.record.remark(left)
        return self.record.item_results

    def _failed(self) -> bool:
        """Whether the newest result ends a run that stops at the first failure. One by padding alone does not."""
        last = self.record.last
        return last is not None and last.verdict in ("fail", "error") and not last.padding_alone

    def _add_exception(self, item: WorkItem, error: BaseException) -> None:
        """Record an exception of the harness, or of the case file's functions, as an error."""
        if not isinstance(error, Exception):
            kind = _ENDS_A_TEST.get(type(error).__name__, type(error).__name__)
            text = f"the case's code ends the test itself, by {kind}: {error}; a case passes or fails by its bits alone"
            self.record.add(item, Outcome("error"), "error", 0.0, text)
            return
        last = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{explained(error)} ({Path(last.filename).name}:{last.lineno})"
        self.record.add(item, Outcome("error"), "error", 0.0, text)
        assert self.record.last is not None
        whole = "".join(traceback.format_exception(error))
        self.record.last = replace(self.record.last, message=f"{self.record.last.message}\n\n{whole}")

    def _asm_is_faulty(self, item: WorkItem) -> bool:
        """Whether the asm is wrong on every backend, whatever its outputs are; if so, records the error."""
        form = self.plan.form(item)
        fault = None
        if form is not None:
            inputs = self.plan.few_inputs() if special_registers_in(form) else {}
            fault = fault_of(self.plan.job(item, inputs), form)
        if fault is None:
            return False
        self.record.add(self.plan.sized(item), Outcome("ran", findings=(fault,)), "fail", 0.0, fault)
        return True

    def _sweep(self, item: WorkItem) -> bool:
        """Run and judge a large set piece by piece. Returns whether to run the rest of the plan."""
        started = time.perf_counter()
        inputs = self.plan.set_called(item.input_set)
        job = self.plan.job(item, {})
        swept = sweep(self.backend, job, self.plan.policy, inputs, self.judge.judgement)
        seconds = time.perf_counter() - started
        item = planning.sized(item, inputs.count)
        # A replay repeats the pack of the first difference, in a shape of the same class.
        job = replace(job, setup=replace(job.setup, shape=(16 * block_of(job.setup.pack),)), inputs=swept.inputs or {})
        if swept.outcome.status == "ran":
            self._add_judged(item, job, swept.outcome, seconds, swept.judgement, swept)
            return True
        return self._add_not_run(item, job, swept.outcome, seconds)

    def _one(self, item: WorkItem, inputs: Units) -> bool:
        """Run one work item, and record its result. Returns whether to run the rest of the plan."""
        started = time.perf_counter()
        job, judgement = self.plan.job(item, inputs), None
        if job.setup.context == "loop" and inputs:
            try:
                job, outcome, judgement = run_loop(self.backend, job, self.plan.policy.carry)
            except ReferenceFault as e:
                self.record.add(item, Outcome("error"), "error", time.perf_counter() - started, str(e))
                return True
            item = replace(item, setup=job.setup)
        else:
            outcome = self._outcome(job)
        outcome = self.trial.settled(job, outcome)
        seconds = time.perf_counter() - started
        if not isinstance(self.plan.variant, AsmVariant):
            outcome = self.called_asm.tried(outcome)
        if outcome.status == "ran":
            self._judge(item, job, outcome, seconds, judgement)
            return True
        if outcome.status == "assembled":
            reason = f"assembles, though {job.target} is declared in refused="
            reasons = [reason] * (job.target in self.plan.policy.refused) + list(outcome.findings)
            self.record.add(item, outcome, "fail" if reasons else "pass", seconds, "; ".join(reasons))
            return True
        return self._add_not_run(item, job, outcome, seconds)

    def _outcome(self, job: Job) -> Outcome:
        outcome = _running(job, self.backend).run(job)
        return self.shared.settled(job, outcome) if job.setup.context == "shared" else outcome

    def _judge(
        self, item: WorkItem, job: Job, outcome: Outcome, seconds: float, judgement: Judgement | None = None
    ) -> None:
        case = self.plan.case
        try:
            judgement = judgement or self.judge.judgement(job, outcome)
        except (ReferenceFault, DomainError) as e:
            hint = index_hint(case, item.input_set, str(e))
            self.record.add(item, outcome, "error", seconds, "; ".join(filter(None, (str(e), hint))))
            return
        if hint := index_hint(case, item.input_set, " ".join(outcome.findings)):
            judgement.notes.append(hint)
        self._add_judged(item, job, outcome, seconds, judgement)

    def _add_judged(
        self,
        item: WorkItem,
        job: Job,
        outcome: Outcome,
        seconds: float,
        judgement: Judgement,
        swept: Swept | None = None,
    ) -> None:
        """Record the result of a judgement; of a failure, with its diagnosis and its message."""
        policy, target = self.plan.policy, self.plan.item.target
        against = self.record.against(item)
        own = outcome
        outcome = replace(outcome, findings=outcome.findings + held_exactly(policy, outcome.approximate))
        if outcome.outputs or swept:
            self.judge.count(item.input_set, job, judgement)
        if target in policy.refused:
            self.record.add(item, outcome, "fail", seconds, f"runs, though {target} is declared in refused=")
            return
        passed = judgement.passed and not outcome.findings
        result = self.record.result(item, job, outcome, "pass" if passed else "fail", seconds, judgement, swept)
        if not passed:
            alone = own.findings == outcome.findings and self.judge.passes_with_padding(job, outcome)
            judgement.notes += [PADDING_NOTE] * alone
            judgement.notes += [PRUNED_NOTE] * getattr(self.plan.variant, "prunes", False)
            diagnosis = diagnose(job, outcome)
            if diagnosis == REVERSED and judgement.cause and not self.plan.variant.expected_failure:
                diagnosis = ""  # the cause names the order of codes, which hold whole registers
            result = replace(result, diagnosis=diagnosis, padding_alone=alone)
            # Findings on the asm alone hold for every assembler.
            by_asm = judgement.passed and self.called_asm.has_all(outcome.findings)
            result, story = (result, []) if by_asm else self.trial.explained(result, job, outcome)
            if self.backend.name == "emulator" and not self.stops:
                judgement.cause = self.repairs.confirmed(job, judgement.cause)
            if not self.stops and _unexplained(result, judgement):
                judgement.cause = bits_beside_elements(job)
            if self._wants_repair(result, judgement):
                judgement.cause = self.repairs.cause(job, judgement)
            load = write_dump(self.dump, result.key, job.inputs, outcome.outputs, judgement) if self.dump else ()
            head = headline(result.key, judgement, outcome.findings, result.diagnosis)
            repeat = self.record.command(result, item.setup.assembler)
            result = replace(
                result,
                words=f"{head}; {result.words}" if story else head,
                message=message(result, policy, judgement, repeat, against, load, story),
            )
        self.record.item_results.results.append(result)
        if judgement.total >= _MANY_CODES:
            give_back()

    def _wants_repair(self, result: Result, judgement: Judgement) -> bool:
        """Whether to search a change of the asm: for a failure that nothing else explains, and that nobody declared.

        Not where a run stops at the first failure: there only the verdict counts, of thousands of mutants.
        """
        if self.stops or self.backend.name != "emulator" or self.plan.variant.expected_failure:
            return False
        return _unexplained(result, judgement)

    def _add_not_run(self, item: WorkItem, job: Job, outcome: Outcome, seconds: float) -> bool:
        """Record why a job gave no machine code, or no bits. A crash of ptxas is a failure of ptxas.

        Returns whether to run the rest of the plan: after other bits than the PTX's, it may settle whose fault it is.
        """
        verdict: Verdict = "fail"
        if outcome.ended:
            reason, blame = outcome.words, ended_badly(job, outcome, self.assemblers)
        else:
            verdict, reason = self._refusal(job, outcome)
            blame = self.trial.blame(job, outcome) if outcome.status == "error" else None
        self.record.add(item, outcome, "fail" if blame else verdict, seconds, reason)
        if outcome.ended or blame is not None:
            last = self.record.last
            assert last is not None
            self.record.last = self.trial.with_blame(last, blame, self.record.command(last, item.setup.assembler))
        self.doubtful |= outcome.doubtful
        return outcome.doubtful

    def _refusal(self, job: Job, outcome: Outcome) -> tuple[Verdict, str]:
        """The verdict on a job that did not run: `unsupported` if the case declares it, else a failure or an error."""
        policy = self.plan.policy
        if outcome.status == "error" and getattr(job.variant, "tuned", False) and passed_over(outcome.words):
            return "not run", f"Triton's autotuner passes over this configuration here: {outcome.words}"
        if outcome.status != "unsupported":
            return ("not run" if outcome.status == "not run" else "error"), outcome.words
        if job.target not in policy.targets:
            return "unsupported", outcome.words
        if accepted_somewhere(job, policy) is False:
            return "error", f"no target accepts this asm: {outcome.words}"
        required = "where it must work by targets= (without targets=: everywhere)"
        return "fail", f"unsupported on {job.target}, {required}: {outcome.words}"

    def _settle_sharing(self) -> None:
        """Fail asm that passed with the registers of its kernels alone, if a result changes with others.

        A compiler may choose those in the next kernel. Runs that show no difference have no results: they say nothing
        of the kernels. A fault that the case declares is known.
        """
        results = self.record.item_results.results
        passed = any(r.verdict == "pass" for r in results) and all(r.verdict in ("pass", "not run") for r in results)
        expected = self.plan.variant.expected_failure
        if not passed or (expected is not None and "shared" in expected.contexts):
            return
        runs, untried = self.plan.shared_on_cpu(), dict[str, list[str]]()
        for item in runs:
            item, inputs = self.plan.filled(item)
            started, job = time.perf_counter(), self.plan.job(item, inputs)
            outcome = self._outcome(job)
            if outcome.findings:
                self._judge(item, job, outcome, time.perf_counter() - started)
                return
            if outcome.status != "ran":
                untried.setdefault(outcome.words, []).append(item.input_set)
        for words, sets in untried.items():
            on = "" if len(sets) == len(runs) else f" on the inputs {', '.join(dict.fromkeys(sets))}"
            self.record.remark(f"{UNPROVED}{_NO_SHARING.format(on=on)}{words}")

    def _settle_packs(self) -> None:
        """Fail, or add a remark, for asm of which some places of the pack hold padding in every launch."""
        if any(r.verdict in ("fail", "error") for r in self.record.item_results.results):
            return
        for fault in self.called_asm.unfilled():
            if fault.finding:
                outcome = Outcome("ran", findings=(fault.finding,))
                self.record.add(WorkItem(Setup(), ""), outcome, "fail", 0.0, fault.finding)
            else:
                self.record.remark(fault.note)

    def _settle_shares(self) -> None:
        """Record an error if almost nothing was judged, or no output had to be written: then anything would pass."""
        results = self.record.item_results.results
        if any(r.verdict in ("fail", "error") and not r.expected_failure for r in results):
            return
        complaint = self.judge.too_little()
        if (complaint or self.doubtful) and self.plan.brief:
            self.undecided = True  # a part that judges almost nothing would pass anything
        elif complaint:
            self.record.add(WorkItem(Setup(), ""), Outcome("error"), "error", 0.0, complaint)
        elif self.judge.shares:
            self.record.remark_on_coverage()


def _unexplained(result: Result, judgement: Judgement) -> bool:
    """Whether nothing is known yet of why a result fails."""
    return not (result.findings or result.diagnosis or judgement.cause)


_NO_SHARING = (
    "registers that outputs may share with inputs were not tried{on}, because the emulator does not run the asm alone: "
)
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
