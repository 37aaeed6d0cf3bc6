"""The runner: one test item (case, variant, target, backend) from its plan to its results."""

from __future__ import annotations

import hashlib
import inspect
import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness import plan as planning
from harness.backends import Backend, Job, Outcome, Setup
from harness.case import AsmVariant, CaseError, KernelVariant, Policies, Variant, format_of, policies
from harness.derive import asm_form, packs_of
from harness.diagnosis import diagnose
from harness.evaluate import ReferenceFault
from harness.inputs import InputSet, input_sets
from harness.judge import Judgement, judge, judge_same
from harness.loader import LoadedCase
from harness.message import headline, message
from harness.plan import WorkItem
from harness.records import Block, Key, Result, Text, Verdict, text_hash
from harness.replay import Replay, token
from references.formats import Shaped

Units = dict[str, NDArray[np.generic]]

DIGEST_BLOCK = 1 << 16  # inputs a digest covers: small enough to find a change in, few enough to store


@dataclass
class ItemResults:
    """What one item gave: results in the order of the plan, and the texts (asm, PTX, SASS) they refer to."""

    results: list[Result] = field(default_factory=list)
    texts: dict[str, Text] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """The item's verdict: its worst result's. An item without results is not run."""
        order: tuple[Verdict, ...] = ("error", "fail", "unsupported", "pass", "not run")
        found = {r.verdict for r in self.results if not r.expected_failure}
        if not found and self.results:
            return "fail"  # nothing but expected failures
        return next((v for v in order if v in found), "not run")

    def keep(self, kind: str, text: str | None) -> str:
        """Store a text and return its hash; an empty string for none."""
        if not text:
            return ""
        found = text_hash(text)
        self.texts.setdefault(found, Text(found, kind, text))
        return found


@dataclass(frozen=True)
class Item:
    """A test item: what pytest collects and a record's key begins with."""

    loaded: LoadedCase
    variant_name: str
    target: str
    backend: str

    @property
    def variant(self) -> Variant:
        """The variant itself."""
        return self.loaded.case.variants[self.variant_name]

    @property
    def label(self) -> str:
        """`rcp.rn[sm_90a-emulator]`."""
        return f"{self.variant_name}[{self.target}-{self.backend}]"


def run_item(item: Item, backend: Backend, effort: str, *, node: str = "", replay: Replay | None = None) -> ItemResults:
    """Run an item's whole plan, or one replay instead. `node` is what pytest calls it, for the repeat command.

    A compiler's or device's complaint ends the item: what one setup cannot do, the rest would only repeat.
    """
    return _ItemRun(item, backend, effort, node).all(replay)


def not_run(item: Item, reason: str) -> ItemResults:
    """The results of an item that nothing here can run."""
    key = Key(item.loaded.name, item.variant_name, item.target, item.backend)
    return ItemResults([Result(key=key, verdict="not run", words=reason)])


class _ItemRun:
    def __init__(self, item: Item, backend: Backend, effort: str, node: str) -> None:
        self.item, self.backend, self.effort = item, backend, effort
        self.case, self.variant = item.loaded.case, item.variant
        self.policy = policies(self.case, self.variant)
        self.node = node or f"{item.loaded.path}::{item.label}"
        self.found = ItemResults()
        self.fingerprint = fingerprint(item.loaded, self.variant, self.policy)

    def all(self, replay: Replay | None) -> ItemResults:
        try:
            work = planning.plan(self.case, self.item.loaded.name, self.variant, self.backend.name, self.effort)
        except CaseError as e:
            self._record(WorkItem(Setup(), ""), Outcome("error", str(e)), "error", 0.0)
            return self.found
        reason = self.backend.unavailable(self.item.target)
        if reason is not None:
            self._record(work[0], Outcome("not run", reason), "not run", 0.0)
        elif replay is not None:
            item = WorkItem(replay.setup, replay.input_set or "replay")
            self._one(item, replay.fill(self.case) if not replay.input_set else self._kernel_inputs(item))
        else:
            for item in work:
                if not self._one(*self._filled(item)):
                    break
        self._settle_expectation()
        return self.found

    def _filled(self, item: WorkItem) -> tuple[WorkItem, Units]:
        """The item with its shape, and its inputs in that shape."""
        if item.input_set == "none":
            return item, {}
        if isinstance(self.variant, KernelVariant):
            return item, self._kernel_inputs(item)
        inputs = self._set(item.input_set)
        item = planning.sized(item, inputs.count)
        return item, shaped(inputs, item.setup.shape, item.shuffled)

    def _set(self, name: str) -> InputSet:
        return next(s for s in input_sets(self.case, self.item.loaded.name, self.effort) if s.name == name)

    def _kernel_inputs(self, item: WorkItem) -> Units:
        return kernel_inputs(self.item.loaded, item)

    def _one(self, item: WorkItem, inputs: Units) -> bool:
        """Run one work item; whether the rest of the plan is worth running."""
        started = time.perf_counter()
        job = Job(
            self.case, self.item.loaded.name, self.item.loaded.path, self.item.variant_name, self.variant,
            self.item.target, item.setup, inputs,
        )  # fmt: skip
        outcome = self.backend.run(job)
        seconds = time.perf_counter() - started
        if outcome.status == "ran":
            self._judged(item, job, outcome, seconds)
            return True
        if outcome.status == "assembled":
            words = f"assembles, though {self.item.target} is declared in refused="
            refused = self.item.target in self.policy.refused
            self._record(item, outcome, "fail" if refused else "pass", seconds, words if refused else "")
            return True
        verdict, words = self._refusal(job, outcome)
        self._record(item, outcome, verdict, seconds, words)
        return False

    def _refusal(self, job: Job, outcome: Outcome) -> tuple[Verdict, str]:
        """The verdict on a job that did not run: `unsupported` is accepted where the case declares it."""
        if outcome.status != "unsupported":
            return ("not run" if outcome.status == "not run" else "error"), outcome.words
        if self.item.target not in self.policy.targets:
            return "unsupported", outcome.words
        if not accepted_somewhere(job, self.policy):
            return "error", f"no target accepts this asm: {outcome.words}"
        return "fail", f"unsupported on {self.item.target}, where the case declares that it works: {outcome.words}"

    def _judged(self, item: WorkItem, job: Job, outcome: Outcome, seconds: float) -> None:
        against = self._against(item)
        judgement = Judgement()
        try:
            if outcome.outputs and job.setup.context == "loop":
                straight = self._straight(job)
                judgement = judge_same(self.case, job.inputs, straight, outcome.outputs, job.setup.pack)
            elif outcome.outputs:
                judgement = judge(self.case, self.policy, job.inputs, outcome.outputs, job.setup.pack)
                if judgement.passed and outcome.alternative:
                    judgement = judge(self.case, self.policy, job.inputs, outcome.alternative, job.setup.pack)
                    judgement.notes.append("the readings with and without contraction differ; this is the one without")
        except ReferenceFault as e:
            self._record(item, outcome, "error", seconds, str(e))
            return
        passed = judgement.passed and not outcome.findings
        if self.item.target in self.policy.refused:
            self._record(item, outcome, "fail", seconds, f"runs, though {self.item.target} is declared in refused=")
            return
        result = self._result(item, job, outcome, "pass" if passed else "fail", seconds, judgement)
        if not passed:
            result = replace(result, diagnosis=diagnose(job, outcome))
            result = replace(
                result,
                words=headline(result.key, judgement, outcome.findings),
                message=message(result, self.policy, judgement, self._command(result), against),
            )
        self.found.results.append(result)

    def _straight(self, job: Job) -> Mapping[str, Any]:
        """What the loop must equal: the same variant applied to its own results, one straight run after another."""
        carry = self.policy.carry
        inputs = dict(job.inputs)
        outputs: Mapping[str, Any] = {}
        for _ in range(job.setup.steps):
            setup = replace(job.setup, context="straight", steps=1)
            outcome = self.backend.run(replace(job, setup=setup, inputs=inputs))
            if outcome.status != "ran" or not outcome.outputs:
                raise ReferenceFault(f"the straight run that the loop must equal: {outcome.words or outcome.findings}")
            outputs = outcome.outputs
            inputs |= {carry[o]: outputs[o] for o in carry}
        return outputs

    def _against(self, item: WorkItem) -> str:
        if item.setup.context == "loop":
            return f"the same variant applied {item.setup.steps} times straight"
        name = getattr(self.policy.reference, "__qualname__", "reference")
        module = getattr(self.policy.reference, "__module__", "")
        return f"{module}.{name}" + (" (the variant's own)" if self.variant.reference else "")

    def _command(self, result: Result) -> str:
        return f"pytest {shlex.quote(self.node)} --ptx-replay={shlex.quote(result.replay)}"

    def _record(self, item: WorkItem, outcome: Outcome, verdict: Verdict, seconds: float, words: str = "") -> None:
        result = self._result(item, None, outcome, verdict, seconds, Judgement())
        text = words or outcome.words
        where = f"{result.key.case}::{self.item.label}"
        failed = verdict in ("fail", "error")
        self.found.results.append(replace(result, words=text, message=f"{where}: {verdict}: {text}" if failed else ""))

    def _result(
        self, item: WorkItem, job: Job | None, outcome: Outcome, verdict: Verdict, seconds: float, judgement: Judgement
    ) -> Result:
        key = planning.key_of(self.item.loaded.name, self.item.variant_name, self.item.target, self.backend.name, item)
        first = judgement.offenders[0].index if judgement.offenders else 0
        replayed = token(item.setup, job.inputs, self._unit(judgement, first), item.input_set) if job else ""
        artifacts = outcome.artifacts
        return Result(
            key=key,
            verdict=verdict,
            evidence=outcome.evidence,
            total=judgement.total,
            different=judgement.different,
            unchecked=judgement.unchecked,
            classes=judgement.classes,
            ulps=judgement.ulps,
            ranges=judgement.ranges,
            worst=judgement.worst,
            offenders=tuple(judgement.offenders),
            findings=outcome.findings,
            replay=replayed if verdict == "fail" else "",
            inputs_digest=digest(job.inputs) if job and job.inputs else "",
            outputs_digest=block_digests(outcome.outputs),
            seed=self._seed(item),
            contraction_open=outcome.contraction_open,
            asm=self.found.keep("asm", self._asm(item)),
            ptx=self.found.keep("ptx", artifacts.ptx),
            sass=self.found.keep("sass", artifacts.sass),
            resources=artifacts.resources,
            instructions=artifacts.instructions,
            fingerprint=self.fingerprint,
            seconds=round(seconds, 4),
        )

    def _unit(self, judgement: Judgement, code_index: int) -> int:
        """The input element behind a code of the first offender's output."""
        if not judgement.offenders:
            return 0
        name = judgement.offenders[0].output.partition(" ")[0]
        return code_index // format_of(self.case.outputs[name]).codes_per_unit

    def _seed(self, item: WorkItem) -> int:
        if isinstance(self.variant, KernelVariant) or item.input_set in ("none", "replay", ""):
            return 0
        return self._set(item.input_set).seed

    def _asm(self, item: WorkItem) -> str | None:
        if not isinstance(self.variant, AsmVariant):
            return None
        try:
            return asm_form(self.case, self.variant, item.setup.pack).text
        except CaseError:
            return self.variant.texts[min(self.variant.texts)].text

    def _settle_expectation(self) -> None:
        """Mark the expected failures, and turn an expected failure that did not come, or came otherwise, into one."""
        expected = self.variant.expected_failure
        if expected is None:
            return
        concerned = [
            k for k, r in enumerate(self.found.results)
            if r.key.context == expected.context and r.verdict in ("pass", "fail") and r.total
        ]  # fmt: skip
        for k in concerned:
            result = self.found.results[k]
            if result.verdict == "fail" and result.diagnosis == expected.diagnosis:
                self.found.results[k] = replace(result, expected_failure=True)
        if concerned and not any(self.found.results[k].expected_failure for k in concerned):
            last = self.found.results[concerned[-1]]
            words = f"expected to fail in the {expected.context} context ({expected.diagnosis}) and did not"
            if last.verdict == "pass":
                self.found.results[concerned[-1]] = replace(
                    last, verdict="fail", words=words, message=f"{last.key.case}::{self.item.label}: {words}"
                )


def accepted_somewhere(job: Job, policy: Policies) -> bool:
    """Whether any target on which the variant is declared to work accepts it, by the assembler's word."""
    from harness.backends.assembler import AssemblerBackend

    assembler = AssemblerBackend(disassemble="never")
    others = [t for t in policy.targets if t != job.target and assembler.unavailable(t) is None]
    return any(assembler.run(replace(job, target=t)).status == "assembled" for t in reversed(others))


def shaped(inputs: InputSet, shape: tuple[int, ...], shuffled: int | None = None) -> Units:
    """A set's inputs in a shape: all of them where the sizes agree, else evenly spread ones, or repeats.

    shuffled: a seed for a permutation of them.
    """
    size = int(np.prod(shape))
    chosen = np.arange(size) % inputs.count
    if size < inputs.count:
        chosen = np.linspace(0, inputs.count - 1, size).astype(np.int64)
    if shuffled is not None:
        chosen = np.random.default_rng(shuffled).permutation(chosen)
    return {n: u[chosen].reshape(shape) for n, u in inputs.all().items()}


def kernel_inputs(loaded: LoadedCase, item: WorkItem) -> Units:
    """Inputs of a whole kernel: each tensor filled with edges or random bits of its format, in an order of its own."""
    from harness.inputs.sets import stream

    units: Units = {}
    for name, argument in loaded.case.inputs.items():
        shape = argument.shape(item.setup.sizes) if isinstance(argument, Shaped) else ()
        size = int(np.prod(shape))
        units[name] = stream(format_of(argument), f"{loaded.name}/{name}", item.input_set, size).reshape(shape)
    return units


def digest(units: Mapping[str, Any]) -> str:
    """A hash of arrays by name."""
    found = hashlib.sha256()
    for name, array in units.items():
        found.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:32]


def block_digests(outputs: Mapping[str, Any]) -> tuple[Block, ...]:
    """The output bits digested in blocks of inputs, all outputs together."""
    if not outputs:
        return ()
    flat = {n: np.ascontiguousarray(o).reshape(-1) for n, o in outputs.items()}
    count = max(len(o) for o in flat.values())
    blocks = []
    for first in range(0, count, DIGEST_BLOCK):
        part = {n: o[first : first + DIGEST_BLOCK] for n, o in flat.items()}
        blocks.append(Block(first, min(DIGEST_BLOCK, count - first), digest(part)))
    return tuple(blocks)


def fingerprint(loaded: LoadedCase, variant: Variant, policy: Policies) -> dict[str, str]:
    """Hashes of what a variant is made of, so that a gate can tell what changed since a baseline."""
    parts = {"policy": repr((policy.describe_match(), sorted(policy.ftz.items()), policy.nan)) + policy.targets.text}
    parts["reference"] = source_of(policy.reference)
    if isinstance(variant, AsmVariant):
        forms = [(p, *_form(loaded, variant, p)) for p in packs_of(loaded.case, variant)]
        parts["asm"] = repr([(p, text) for p, text, _ in forms])
        parts["constraints"] = repr([(p, constraints) for p, _, constraints in forms])
    else:
        parts["function"] = source_of(variant.function)  # type: ignore[attr-defined]
    return {name: text_hash(text) for name, text in parts.items()}


def _form(loaded: LoadedCase, variant: AsmVariant, pack: int) -> tuple[str, str]:
    try:
        form = asm_form(loaded.case, variant, pack)
    except CaseError as e:
        return str(e), ""
    return form.text, form.constraints


def source_of(function: Any) -> str:
    """The source of a function and its module's, where it can be had: a helper's change changes the reference."""
    function = getattr(function, "fn", function)  # a Triton function wraps a Python one
    function = getattr(function, "func", function)  # a functools.partial
    try:
        module = inspect.getmodule(function)
        return inspect.getsource(function) + (inspect.getsource(module) if module else "")
    except (OSError, TypeError):
        return repr(function)


def items_of(loaded: LoadedCase, targets: list[str], backends: list[str]) -> Iterator[Item]:
    """The items of a case, variant by variant."""
    for name in loaded.case.variants:
        for target in targets:
            for backend in backends:
                yield Item(loaded, name, target, backend)
