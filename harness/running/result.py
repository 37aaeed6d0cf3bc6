"""The records of one item, and the arrays of a failure: each result is made from one outcome and its judgement."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.emulator import HOPPER
from ptxdiff.inputs.sets import tuple_bits
from ptxdiff.jobs import Job, Outcome
from ptxdiff.judging.failing_map import axes_of, packed
from ptxdiff.judging.judge import Judgement
from ptxdiff.judging.judged_share import FEW_INPUTS, left_by_domain
from ptxdiff.model.arguments import format_of
from ptxdiff.model.compilers import twin
from ptxdiff.model.describe import reference_name
from ptxdiff.model.identity import digest as digest_of_values
from ptxdiff.model.identity.dependencies import OF_THE_SESSION, dependencies, in_session, opened, portable
from ptxdiff.model.packs import packs_read
from ptxdiff.records import UNPROVED, Key, Result, Verdict
from ptxdiff.records.provenance import block_digests, digest
from ptxdiff.references.formats import pack
from ptxdiff.running.assemblers import Chosen, label_of, option_words
from ptxdiff.running.item import ItemResults
from ptxdiff.running.item_plan import ItemPlan
from ptxdiff.running.plan import WorkItem
from ptxdiff.running.replay import UNCERTAIN, Origin, remarks, token
from ptxdiff.sweep import Swept
from ptxdiff.triton.builds import NoBuild, build_called


class ItemRecord:
    """The results of one item so far. node: pytest's id of the item, for the repeat command."""

    def __init__(self, plan: ItemPlan, node: str = "") -> None:
        self.plan = plan
        self.node = node or f"{plan.item.loaded.path}::{plan.item.label}"
        self.item_results = ItemResults()
        self._tritons: dict[tuple[str, str, str], str] = {}

    @property
    def last(self) -> Result | None:
        """The newest result."""
        return self.item_results.results[-1] if self.item_results.results else None

    @last.setter
    def last(self, result: Result) -> None:
        self.item_results.results[-1] = result

    def add(self, item: WorkItem, outcome: Outcome, verdict: Verdict, seconds: float, words: str = "") -> None:
        """Add a result without a judgement on bits. words: its reason; else the outcome's."""
        result = self.result(item, None, outcome, verdict, seconds, Judgement())
        text = words or outcome.words
        where = f"{result.key.case}::{self.plan.item.label}"
        failed = verdict in ("fail", "error")
        message = f"{where}: {verdict}: {text}"
        if failed:
            message += f"\n  repeat    {self.command(result, item.setup.assembler)}"
        self.item_results.results.append(replace(result, words=text, message=message if failed else ""))

    def _ptxas(self, item: WorkItem) -> str:
        """The assembler, as records name it; "" on a backend that runs no machine code."""
        origin = self.plan.backend, self.plan.item.target, self.plan.item.compiler
        if origin not in self._tritons:
            self._tritons[origin] = label_of(None, *origin)
        return item.setup.assembler.label if item.setup.assembler else self._tritons[origin]

    def remark(self, words: str) -> None:
        """Add a remark to the first result."""
        first = self.item_results.results[0]
        self.item_results.results[0] = replace(first, notes=(*first.notes, words))

    def remark_on_coverage(self) -> None:
        """Remark on a domain that leaves few inputs, and on words that were sampled."""
        if not self.plan.case.elementwise:  # a whole kernel has other input sets
            return
        parts = (part for s in self.plan.sets() for part in s.chunks(FEW_INPUTS))
        for remark in (left_by_domain(self.plan.case, parts), self._sampled_words()):
            if remark:
                self.remark(remark)

    def _sampled_words(self) -> str:
        """What of the packs was not run, at the effort that runs all inputs that it can; "" if nothing is left."""
        case, names = self.plan.case, [r.key.input_set for r in self.item_results.results]
        if self.plan.effort != "exhaustive" or not any(name.startswith("exhaustive/") for name in names):
            return ""
        ran = {name.partition("+")[0] for name in names}
        packs = packs_read(case, self.plan.variant)
        left = [p for p in packs if p > 1 and f"all-words-{p}/1" not in ran]
        if not left or not case.inputs:
            return ""
        read = ", ".join(f"pack {p} reads {tuple_bits(case, p)} bits" for p in left)
        return f"{UNPROVED}all elements ran, and words were sampled: {read}; words of up to 32 bits run completely"

    def against(self, item: WorkItem) -> str:
        """What a work item's bits are compared with, in words."""
        if item.setup.context == "loop":
            steps = item.setup.steps
            return f"the same variant applied {steps} time{'s' * (steps > 1)} straight"
        if item.setup.context == "shared":
            return "the same variant with every operand in a register of its own"
        own = " (the variant's own)" if self.plan.variant.reference else ""
        return reference_name(self.plan.policy.reference) + own

    def command(self, result: Result, chosen: Chosen) -> str:
        """The command that repeats a result, with an assembler."""
        arguments = [f"pytest {shlex.quote(self.node)}", *self._builds(), *map(shlex.quote, option_words(chosen))]
        arguments += [f"--ptx-approximate={self.plan.approximate}"] * (self.plan.approximate != HOPPER)
        arguments += [f"--ptx-replay={shlex.quote(result.replay)}"] * bool(result.replay)
        return " ".join(arguments)

    def _builds(self) -> list[str]:
        """The options that name the Triton build which compiled the variant, for another run."""
        if not (name := self.plan.item.compiler):
            return []
        try:
            python = str(build_called(name).python)
        except NoBuild:
            return []  # an error about that build, which says how to name it
        options = [f"--ptx-compiler={shlex.quote(f'{name}={python}')}"]
        return options + [f"--ptx-also={name}"] * self.plan.item.variant_name.endswith(twin("", name))

    def result(
        self, item: WorkItem, job: Job | None, outcome: Outcome, verdict: Verdict, seconds: float, judgement: Judgement,
        swept: Swept | None = None,
    ) -> Result:  # fmt: skip
        """A result, which is not added. job: None if nothing was judged. swept: of a set too large to hold."""
        key = self.plan.key(item)
        first = judgement.offenders[0].index if judgement.offenders else 0
        place = swept.place if swept else self._unit(judgement, first) if judgement.offenders else outcome.element
        setup = job.setup if job and swept else item.setup
        artifacts = outcome.artifacts
        replayed = ""
        if verdict == "fail" and job and (job.inputs or not swept):
            inputs = digest(job.inputs) if setup.sizes else ""
            origin = Origin.of(
                self.plan.fingerprint, "" if swept else artifacts.body, inputs, self._around(), self._session()
            )
            replayed = token(setup, job.inputs, place, item.input_set, origin=origin)
        axes = axes_of(self.plan.case)
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
            seed=self.plan.seed(item),
            contraction_open=outcome.contraction_open,
            asm=self.item_results.keep("asm", self.plan.asm_text(item)),
            ptx=self.item_results.keep("ptx", artifacts.ptx),
            sass=self.item_results.keep("sass", artifacts.sass),
            resources=artifacts.resources,
            instructions=artifacts.instructions,
            fingerprint=self.plan.fingerprint,
            seconds=round(seconds, 4),
            sweep=swept.measured if swept else {},
            ptxas=self._ptxas(item) if verdict != "not run" else "",
            notes=(*self._remarks(artifacts.body), *(swept or outcome).notes),
            device=outcome.device,
            identity=outcome.identity,
            body=artifacts.body,
            weakest=outcome.weakest,
            fused=outcome.fused,
        )

    def _remarks(self, body: str) -> tuple[str, ...]:
        """What has changed since the token that is replayed was made."""
        replay = self.plan.replay
        if replay is None:
            return ()
        return remarks(replay, self.plan.fingerprint, body, self._around(), self._session())

    def _around(self) -> str:
        """A digest of what the item's results depend on besides the definition, for tokens.

        Without what a session of pytest adds: a cluster's node has none. `_session` is its digest.
        """
        path = self.plan.item.loaded.path
        files = opened(path)
        parts = {name: part for name, part in dependencies(path).items() if name not in OF_THE_SESSION}
        return digest_of_values({**parts, **portable(path, files.files)}) if not files.unknown else UNCERTAIN

    def _session(self) -> str:
        """A digest of the plugins and settings of the session of pytest, for tokens; "" without a session."""
        parts = dependencies(self.plan.item.loaded.path)
        return digest_of_values([parts["plugins"], parts["settings"]]) if in_session() else ""

    def _unit(self, judgement: Judgement, code_index: int) -> int:
        """The input element that belongs to a code of the first offender's output."""
        name = judgement.offenders[0].output.partition(" ")[0]
        return code_index // format_of(self.plan.case.outputs[name]).codes_per_unit


# ---- The arrays of a failure in a file for numpy ---------------------------------------------------------------------

LONGEST_NAME = 200
"""Characters of a file's name. File systems allow 255 bytes."""


def file_name(key: Key) -> str:
    """The name of a result's file: the words of its key, and a digest, because some characters are replaced."""
    key_parts = (
        key.case, key.variant, key.target, key.backend, f"pack{key.pack}", key.shape, f"align{key.alignment}",
        f"warps{key.num_warps}", key.context, "fusion" * key.fusion, key.input_set,
    )  # fmt: skip
    text = "-".join(re.sub(r"[^\w.+=,]+", "_", w, flags=re.ASCII) for w in key_parts if w).lstrip(".")
    return f"{text[:LONGEST_NAME]}-{hashlib.sha256(str(key).encode()).hexdigest()[:8]}.npz"


def write_dump(
    folder: Path, key: Key, inputs: Mapping[str, Any], outputs: Mapping[str, Any], judgement: Judgement
) -> list[str]:
    """Write a failure's arrays, as storage units. Returns lines of Python that load them, or why they were not written.

    The arrays are `inputs/x`, `outputs/y`, `expected/y`, and `mask/y`, which is true where a unit of y has a wrong
    code. A format that numpy lacks is written as unsigned integers.
    """
    arrays = {f"inputs/{n}": _native(u) for n, u in inputs.items()}
    arrays |= {f"outputs/{n}": _native(u) for n, u in outputs.items()}
    for name, compared in judgement.compared.items():
        expected = pack(compared.fmt, compared.expected.reshape(compared.shape))
        wrong = compared.failing.reshape(*compared.units, compared.fmt.codes_per_unit)
        arrays[f"expected/{name}"] = _native(expected.view(compared.fmt.numpy_dtype()))
        arrays[f"mask/{name}"] = np.asarray(wrong.any(-1))
        arrays.setdefault(f"outputs/{name}", _native(pack(compared.fmt, compared.got.reshape(compared.shape))))
    path = folder / file_name(key)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        part.replace(path)
    except OSError as e:
        part.unlink(missing_ok=True)
        return [f"# --ptx-dump could not write {path}: {e.strerror}"]
    wrong_output = next((n for n, c in judgement.compared.items() if c.failing.any()), None)
    if wrong_output is None:
        shown = "{name: d[name].shape for name in d}"
    else:
        shown = ", ".join(f'd["{part}/{wrong_output}"][d["mask/{wrong_output}"]]' for part in ("outputs", "expected"))
    return ["import numpy as np", f"d = np.load({str(path)!r})", shown]


def _native(units: Any) -> NDArray[Any]:
    """The array in a dtype of numpy itself: one of any other package would load as raw bytes."""
    array = np.ascontiguousarray(units).reshape(np.shape(units))
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")
