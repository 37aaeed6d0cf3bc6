"""A cache of judgements: equal bits of one variant are judged once for a backend, whichever target they come from."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ptxdiff.emulator import judging_emulated
from ptxdiff.judging.answers import results_of
from ptxdiff.judging.judge import Judgement, Units, judge
from ptxdiff.model.case import Case
from ptxdiff.model.identity import digest
from ptxdiff.model.policies import Policies
from ptxdiff.model.variants import Variant

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
