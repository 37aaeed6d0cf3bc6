"""Makes the record of a work item from its outcome and judgement."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ptxdiff.emulator import HOPPER
from ptxdiff.inputs import InputSet
from ptxdiff.inputs.sets import tuple_bits
from ptxdiff.jobs import Backend, Job, Outcome
from ptxdiff.judging.failing_map import axes_of, packed
from ptxdiff.judging.judge import Judgement
from ptxdiff.judging.judged_share import FEW_INPUTS, left_by_domain
from ptxdiff.model.arguments import format_of
from ptxdiff.model.compilers import twin
from ptxdiff.model.derive import AsmForm, asm_form
from ptxdiff.model.describe import reference_name
from ptxdiff.model.identity import digest as digest_of_values
from ptxdiff.model.identity.dependencies import dependencies, opened, portable
from ptxdiff.model.policies import policies
from ptxdiff.model.variants import AsmVariant, CaseError
from ptxdiff.records import UNPROVED, Key, Result, Share, Verdict
from ptxdiff.records.provenance import block_digests, digest
from ptxdiff.running import plan as planning
from ptxdiff.running.assemblers import Chosen, label_of, option_words
from ptxdiff.running.item import Item, ItemResults, fingerprint_of
from ptxdiff.running.plan import WorkItem
from ptxdiff.running.replay import Origin, Replay, remarks, token
from ptxdiff.sweep import Swept
from ptxdiff.triton.builds import NoBuild, build_called, label


class Recording:
    """The results of one item, each made from the outcome of one work item."""

    def __init__(self, item: Item, backend: Backend, effort: str, node: str, dump: Path | None = None) -> None:
        self.item, self.backend, self.effort = item, backend, effort
        self.approximate: str = getattr(backend, "approximate", HOPPER)  # of the emulator
        self.case, self.variant = item.loaded.case, item.variant
        self.policy = policies(self.case, self.variant)
        self.node = node or f"{item.loaded.path}::{item.label}"
        self.dump = dump
        self.found = ItemResults()
        self.fingerprint = fingerprint_of(item)
        self.replay: Replay | None = None
        self.judged: dict[str, Mapping[str, Share]] = {}  # by input set, for straight runs
        self.needed: dict[str, dict[str, Mapping[str, tuple[int, int]]]] = {}  # by shape and input set
        self.assemblers: tuple[Chosen, ...] = (None,)
        self.reduced = False  # whether the PTX of a fault of ptxas has been reduced
        self._tritons: dict[tuple[str, str, str], str] = {}

    def _key(self, item: WorkItem) -> Key:
        place = self.item.loaded.name, self.item.variant_name, self.item.target, self.backend.name
        return planning.key_of(*place, item, label(self.item.compiler))

    def _ptxas(self, item: WorkItem) -> str:
        """The assembler, as records name it; "" on a backend that runs no machine code."""
        place = self.backend.name, self.item.target, self.item.compiler
        if place not in self._tritons:
            self._tritons[place] = label_of(None, *place)
        return item.setup.assembler.label if item.setup.assembler else self._tritons[place]

    def _sets(self) -> list[InputSet]:
        place = self.item.loaded.name, self.backend.name, self.effort
        return planning.sets_of(self.case, *place, self.variant)

    def _set(self, name: str) -> InputSet:
        return next(s for s in self._sets() if s.name == name)

    def _remark_on_domain(self) -> None:
        """Add to the first result a remark on a domain that leaves few inputs."""
        if not self.case.elementwise:  # a whole kernel has other input sets
            return
        parts = (part for s in self._sets() for part in s.chunks(FEW_INPUTS))
        if few := left_by_domain(self.case, parts):
            first = self.found.results[0]
            self.found.results[0] = replace(first, notes=(*first.notes, few))

    def _remark_on_words(self) -> None:
        """Add to the first result what of the packs was not run, at the effort that runs all inputs that it can."""
        if (
            self.effort != "exhaustive"
            or not self.case.elementwise
            or not any(r.key.input_set.startswith("exhaustive/") for r in self.found.results)
        ):
            return
        ran = {r.key.input_set.partition("+")[0] for r in self.found.results}
        left = [p for p in planning.packs_read(self.case, self.variant)
                if p > 1 and f"all-words-{p}/1" not in ran]  # fmt: skip
        if left and self.case.inputs:
            first = self.found.results[0]
            read = ", ".join(f"pack {p} reads {tuple_bits(self.case, p)} bits" for p in left)
            words = f"{UNPROVED}all elements ran, and words were sampled: {read}; words of up to 32 bits run completely"
            self.found.results[0] = replace(first, notes=(*first.notes, words))

    def _against(self, item: WorkItem) -> str:
        if item.setup.context == "loop":
            steps = item.setup.steps
            return f"the same variant applied {steps} time{'s' * (steps > 1)} straight"
        if item.setup.context == "shared":
            return "the same variant with every operand in a register of its own"
        return reference_name(self.policy.reference) + (" (the variant's own)" if self.variant.reference else "")

    def _command(self, result: Result, chosen: Chosen) -> str:
        words = [f"pytest {shlex.quote(self.node)}", *self._builds(), *map(shlex.quote, option_words(chosen))]
        words += [f"--ptx-approximate={self.approximate}"] * (self.approximate != HOPPER)
        words += [f"--ptx-replay={shlex.quote(result.replay)}"] * bool(result.replay)
        return " ".join(words)

    def _builds(self) -> list[str]:
        """The options that name the Triton build which compiled the variant, for another run."""
        if not (name := self.item.compiler):
            return []
        try:
            python = str(build_called(name).python)
        except NoBuild:
            return []  # an error about that build, which says how to name it
        words = [f"--ptx-compiler={shlex.quote(f'{name}={python}')}"]
        return words + [f"--ptx-also={name}"] * self.item.variant_name.endswith(twin("", name))

    def _record(self, item: WorkItem, outcome: Outcome, verdict: Verdict, seconds: float, words: str = "") -> None:
        result = self._result(item, None, outcome, verdict, seconds, Judgement())
        text = words or outcome.words
        where = f"{result.key.case}::{self.item.label}"
        failed = verdict in ("fail", "error")
        message = f"{where}: {verdict}: {text}"
        if self.node and failed:
            message += f"\n  repeat    {self._command(result, item.setup.assembler)}"
        self.found.results.append(replace(result, words=text, message=message if failed else ""))

    def _result(
        self, item: WorkItem, job: Job | None, outcome: Outcome, verdict: Verdict, seconds: float, judgement: Judgement,
        swept: Swept | None = None,
    ) -> Result:  # fmt: skip
        key = self._key(item)
        first = judgement.offenders[0].index if judgement.offenders else 0
        place = swept.place if swept else self._unit(judgement, first) if judgement.offenders else outcome.element
        setup = job.setup if job and swept else item.setup
        artifacts = outcome.artifacts
        replayed = ""
        if verdict == "fail" and job and (job.inputs or not swept):
            inputs = digest(job.inputs) if setup.sizes else ""
            origin = Origin.of(self.fingerprint, "" if swept else artifacts.body, inputs, self._around())
            replayed = token(setup, job.inputs, place, item.input_set, origin=origin)
        axes = axes_of(self.case)
        return Result(
            key=key,
            verdict=verdict,
            evidence=outcome.evidence,
            total=judgement.total,
            different=judgement.different,
            unchecked=judgement.unchecked,
            judged=judgement.judged,
            classes=judgement.classes,
            ulps=judgement.ulps,
            ulps_failing=judgement.ulps_failing,
            ulps_unchecked=judgement.ulps_unchecked,
            ranges=judgement.ranges,
            grid=packed(axes, judgement.failing) if judgement.failing is not None and axes else None,
            worst=judgement.worst,
            offenders=tuple(judgement.offenders),
            findings=outcome.findings,
            replay=replayed,
            inputs_digest=digest(job.inputs) if job and job.inputs and not swept else "",
            outputs_digest=swept.blocks if swept else block_digests(outcome.outputs),
            seed=self._seed(item),
            contraction_open=outcome.contraction_open,
            asm=self.found.keep("asm", self._asm(item)),
            ptx=self.found.keep("ptx", artifacts.ptx),
            sass=self.found.keep("sass", artifacts.sass),
            resources=artifacts.resources,
            instructions=artifacts.instructions,
            fingerprint=self.fingerprint,
            seconds=round(seconds, 4),
            sweep=swept.measured if swept else {},
            ptxas=self._ptxas(item) if verdict != "not run" else "",
            notes=(*self._remarks(artifacts.body), *(swept or outcome).notes),
            device=outcome.device,
            identity=outcome.identity,
            body=artifacts.body,
        )

    def _remarks(self, body: str) -> tuple[str, ...]:
        """What has changed since the token that is replayed was made."""
        return remarks(self.replay, self.fingerprint, body, self._around()) if self.replay is not None else ()

    def _around(self) -> str:
        """A digest of what the item's results depend on besides the definition, for tokens.

        Without plugins and settings: those of a replay, and of a cluster's node, are other ones.
        """
        path = self.item.loaded.path
        files = opened(path)
        parts = {name: part for name, part in dependencies(path).items() if name not in ("plugins", "settings")}
        return digest_of_values({**parts, **portable(path, files.files)}) if not files.unknown else ""

    def _unit(self, judgement: Judgement, code_index: int) -> int:
        """The input element that belongs to a code of the first offender's output."""
        name = judgement.offenders[0].output.partition(" ")[0]
        return code_index // format_of(self.case.outputs[name]).codes_per_unit

    def _seed(self, item: WorkItem) -> int:
        if not self.case.elementwise or item.input_set in ("none", "replay", ""):
            return 0
        return self._set(item.input_set).seed

    def _asm(self, item: WorkItem) -> str | None:
        if not isinstance(self.variant, AsmVariant):
            return None
        form = self._form(item)
        return form.text if form else self.variant.texts[min(self.variant.texts)].text

    def _form(self, item: WorkItem) -> AsmForm | None:
        """The asm of an item; None for a variant without asm, or if none can be derived."""
        if not isinstance(self.variant, AsmVariant):
            return None
        try:
            return asm_form(self.case, self.variant, item.setup.pack)
        except CaseError:
            return None
