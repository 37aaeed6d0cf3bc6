"""The judgements on one item's outcomes.

Equal bits of one variant are judged once for a backend, whichever target they come from (`judged`).
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ptxdiff.emulator import judging_emulated
from ptxdiff.inputs.sets import has_tuples
from ptxdiff.jobs import Backend, Job, Outcome
from ptxdiff.judging.answers import results_of
from ptxdiff.judging.judge import Judgement, Units, judge, judge_same
from ptxdiff.judging.judged_share import pooled, too_little, unwritten_error
from ptxdiff.model.case import Case
from ptxdiff.model.identity import digest
from ptxdiff.model.policies import Policies
from ptxdiff.model.variants import AsmVariant, Variant
from ptxdiff.records import Share
from ptxdiff.running.contexts import run_straight

KEPT = 512


class Judged:
    """The newest judgements, by case, variant, backend and pack, and by the bits of inputs and outputs.

    Case and variant are compared by identity. They are kept alive here, so that no other object gets their ids.
    """

    def __init__(self, size: int = KEPT) -> None:
        self.size = size
        self._found: OrderedDict[tuple[Any, ...], tuple[Case, Variant, Judgement]] = OrderedDict()

    def __call__(
        self, case: Case, variant: Variant, policy: Policies, inputs: Units, outputs: Units, pack: int
    ) -> Judgement:
        """The judgement that `judge` gives; policy: the variant's. Each caller gets a copy of its own."""
        key = (id(case), id(variant), results_of.get(), pack, digest(dict(inputs)), digest(dict(outputs)))
        if key not in self._found:
            self._found[key] = (case, variant, judge(case, policy, inputs, outputs, pack))
            while len(self._found) > self.size:
                self._found.popitem(last=False)
        self._found.move_to_end(key)
        return _own(self._found[key][2])


def _own(kept: Judgement) -> Judgement:
    """A copy whose collections a caller may change. Arrays are shared: no caller changes them."""
    return replace(
        kept,
        judged=dict(kept.judged),
        needed=dict(kept.needed),
        classes=dict(kept.classes),
        ulps=dict(kept.ulps),
        ulps_failing=dict(kept.ulps_failing),
        ulps_unchecked=dict(kept.ulps_unchecked),
        ranges=dict(kept.ranges),
        offenders=list(kept.offenders),
        notes=list(kept.notes),
        compared=dict(kept.compared),
    )


judged = Judged()


@contextlib.contextmanager
def judging_results_of(backend: str) -> Iterator[None]:
    """Within this block, references compute answers for results of this backend, and do not run it if it emulates."""
    before = results_of.set(backend)
    try:
        with judging_emulated(backend == "emulator"):
            yield
    finally:
        results_of.reset(before)


PADDINGS = (11, 12, 13)
"""Seeds of the bits with which undefined padding is filled, to find out whether a failure is due to it alone."""
PADDING_NOTE = (
    "undefined padding alone: where a pack is not full, the rest of its registers is undefined, and a result depends "
    "on it; filled with random bits, all results are right. If the asm may look at the whole pack, and is right "
    "whatever fills it, say so: asm(..., reads_padding=True)"
)
"""The note of a `Result.padding_alone`."""


class ItemJudge:
    """Judges the outcomes of one item, and keeps how much of the outputs was judged.

    shares: by input set, of straight runs. needed: by shape and input set, the codes of each output that had to be
    written, and those that were.
    """

    def __init__(self, case: Case, variant: Variant, policy: Policies, backend: Backend) -> None:
        self.case, self.variant, self.policy, self.backend = case, variant, policy, backend
        self.shares: dict[str, Mapping[str, Share]] = {}
        self.needed: dict[str, dict[str, Mapping[str, tuple[int, int]]]] = {}

    def judgement(self, job: Job, outcome: Outcome) -> Judgement:
        """The judgement on a job's outcome. Raises ReferenceFault or DomainError."""
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

    def passes(self, job: Job, outcome: Outcome) -> bool:
        """Whether the bits of an outcome pass. Raises ReferenceFault or DomainError."""
        return self.judgement(job, outcome).passed

    def passes_with_padding(self, job: Job, outcome: Outcome) -> bool:
        """Whether a straight run of asm fails only because padding is undefined: it is right with several fillings."""
        setup = job.setup
        if not isinstance(job.variant, AsmVariant) or self.backend.name != "emulator" or setup.context != "straight":
            return False
        if not outcome.findings or setup.padding is not None or not job.inputs:
            return False
        for seed in PADDINGS:
            filled = replace(job, setup=replace(setup, padding=seed, alone=True, alignment=16))
            other = self.backend.run(filled)
            if other.status != "ran" or other.findings or not self.passes(filled, other):
                return False
        return True

    def count(self, input_set: str, job: Job, judgement: Judgement) -> None:
        """Count how much a straight run judged.

        The first run of a set has all its inputs; further runs of the edges in other shapes do not count, and tuples
        have the same edges over and over.
        """
        if job.setup.context != "straight":
            return
        if not has_tuples(input_set):
            self.shares.setdefault(input_set, judgement.judged)
        self.needed.setdefault(job.setup.shape_text, {}).setdefault(input_set, judgement.needed)

    def too_little(self) -> str:
        """Why almost nothing was judged, or no output had to be written, so that anything would pass; "" if neither."""
        written = unwritten_error({shape: sets.values() for shape, sets in self.needed.items()})
        return too_little(self.policy, pooled(self.shares.values())) or written or ""
