"""What one test item runs: its work items, and for each of them the inputs, the job and the record key."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ptxdiff.backends import BACKENDS
from ptxdiff.emulator import HOPPER
from ptxdiff.inputs import InputSet
from ptxdiff.inputs.fill import kernel_inputs, shaped
from ptxdiff.inputs.sets import seed_of
from ptxdiff.jobs import Backend, Job, Setup
from ptxdiff.model.derive import AsmForm, asm_form
from ptxdiff.model.policies import Policies, policies
from ptxdiff.model.variants import AsmVariant, CaseError
from ptxdiff.records import Key, brief_words
from ptxdiff.records.provenance import digest
from ptxdiff.running import plan as planning
from ptxdiff.running.item import Item, fingerprint_of
from ptxdiff.running.judgements import judging_results_of
from ptxdiff.running.plan import WorkItem
from ptxdiff.running.replay import Replay, check_formats
from ptxdiff.sweep import LARGE
from ptxdiff.triton.builds import label

Units = dict[str, NDArray[np.generic]]


class ItemPlan:
    """The plan of one item at one effort, or one replay in its place. It runs nothing.

    whole: all of the plan, also on a backend that `auto` chose and that is to run a part (`planning.brief_plan`).
    """

    def __init__(
        self, item: Item, backend: Backend, effort: str, replay: Replay | None = None, *, whole: bool = False
    ) -> None:
        self.item, self.effort, self.replay = item, effort, replay
        self.brief = bool(getattr(backend, "brief", False)) and effort == "quick" and replay is None and not whole
        self.backend = backend.name
        self.approximate: str = getattr(backend, "approximate", HOPPER)  # of the emulator
        self.case, self.variant = item.loaded.case, item.variant
        self.policy: Policies = policies(self.case, self.variant)
        self.fingerprint = fingerprint_of(item)
        self._work: list[WorkItem] | None = None

    def work(self) -> list[WorkItem]:
        """All that the item runs, in order, chosen once. Raises CaseError if there is nothing."""
        if self._work is None:
            self._work = self._chosen()
        return list(self._work)

    def _chosen(self) -> list[WorkItem]:
        if self.replay is not None:
            return [WorkItem(self.replay.setup, self.replay.input_set or "replay")]
        with judging_results_of(self.backend):  # some inputs are made from the reference's answers
            if self.brief:
                work = planning.brief_plan(self.case, self.variant, self.backend, self.item.target)
            else:
                work = planning.plan(self.case, self.variant, self.backend, self.effort, self.item.target)
        if not work:
            raise CaseError(
                "there is nothing to run it on: where= excludes every input that was generated"
                if self.case.where is not None
                else "there is nothing to run it on: no input sets"
            )
        return work

    def shared_on_cpu(self) -> list[WorkItem]:
        """The runs with shared registers that a backend leaves out which runs kernels and nothing else; [] for others.

        Such a backend shows only the registers that LLVM chose for its kernels. The emulator makes these runs for it.
        """
        kind = BACKENDS[self.backend]
        if kind.shares or not kind.executes or self.replay is not None or not isinstance(self.variant, AsmVariant):
            return []
        with judging_results_of(self.backend):
            return list(planning.shared_items(self.case, self.variant, self.effort))

    def kernels(self) -> list[Setup]:
        """The setups of the kernels that the plan runs, of some plans without making inputs. Raises CaseError."""
        if self.brief and self.case.elementwise:
            setups = planning.brief_setups(self.case, self.variant, self.item.target)
            if all(setup.shape for setup in setups):  # else the number of inputs decides the shape
                return setups
        return [self.sized(work).setup for work in self.work()]

    def left_out(self) -> str:
        """What a brief plan leaves out, in words; "" if nothing."""
        if not self.brief:
            return ""
        whole, done = ItemPlan.work(self._whole()), self.work()
        left = len({repr(i) for i in whole} - {repr(i) for i in done})
        return brief_words(len(done), len(done) + left) if left else ""

    def _whole(self) -> ItemPlan:
        other = copy.copy(self)
        other.brief, other._work = False, None
        return other

    def jobs(self) -> Iterator[tuple[Key, Job | None]]:
        """See `ptxdiff.running.run.jobs`."""
        keys = set()
        for item in self.work():
            large = self.is_large(item)
            item, inputs = (self.sized(item), {}) if large else self.filled(item)
            key = self.key(item)
            if key not in keys:
                yield key, None if large else self.job(item, inputs)
            keys.add(key)

    def sets(self) -> list[InputSet]:
        """The input sets of the case and of the variant."""
        return planning.sets_of(self.case, self.backend, self.effort, self.variant)

    def set_called(self, name: str) -> InputSet:
        """The input set of a name."""
        return next(s for s in self.sets() if s.name == name)

    def seed(self, item: WorkItem) -> int:
        """The seed of an item's input set; 0 without one."""
        if item.input_set in ("none", "replay", ""):
            return 0
        if not self.case.elementwise:
            return seed_of(item.input_set)
        return self.set_called(item.input_set).seed

    def is_large(self, item: WorkItem) -> bool:
        """Whether the item runs the whole of a set that is too large to hold."""
        if self.replay is not None or not self.case.elementwise or item.setup.shape or item.input_set == "none":
            return False
        return self.set_called(item.input_set).count > LARGE

    def sized(self, item: WorkItem) -> WorkItem:
        """The item with its shape, without making its inputs."""
        if not self.case.elementwise or item.input_set in ("none", "replay"):
            return item
        return planning.sized(item, self.set_called(item.input_set).count)

    def filled(self, item: WorkItem) -> tuple[WorkItem, Units]:
        """The item with its shape, and its inputs in that shape; of a replay, the replayed inputs."""
        if self.replay is not None:
            return item, self._replayed(item, self.replay)
        if item.input_set == "none":
            return item, {}
        if not self.case.elementwise:
            return item, self._kernel_inputs(item)
        inputs = self.set_called(item.input_set)
        item = planning.sized(item, inputs.count)
        return item, shaped(inputs, item.setup.shape, item.shuffled)

    def _kernel_inputs(self, item: WorkItem) -> Units:
        return kernel_inputs(self.case, item.input_set, item.setup.sizes)

    def _replayed(self, item: WorkItem, replay: Replay) -> Units:
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

    def few_inputs(self) -> Units:
        """At most 2^16 inputs of the first set, to check asm whose work item has other inputs, or none."""
        sets = planning.sets_of(self.case, "emulator", "quick")
        return dict(sets[0].take(0, min(sets[0].count, 1 << 16))) if sets else {}

    def job(self, item: WorkItem, inputs: Units) -> Job:
        """The job of a work item with these inputs."""
        return Job(
            self.case, self.item.loaded.name, self.item.loaded.path, self.item.variant_name, self.variant,
            self.item.target, item.setup, inputs, self.approximate,
        )  # fmt: skip

    def key(self, item: WorkItem) -> Key:
        """The record key of a sized work item."""
        item_key = self.item.loaded.name, self.item.variant_name, self.item.target, self.backend
        return planning.key_of(*item_key, item, label(self.item.compiler))

    def form(self, item: WorkItem) -> AsmForm | None:
        """The asm of a work item; None for a variant without asm, or if none can be derived."""
        if not isinstance(self.variant, AsmVariant):
            return None
        try:
            return asm_form(self.case, self.variant, item.setup.pack)
        except CaseError:
            return None

    def asm_text(self, item: WorkItem) -> str | None:
        """The asm's text, as records keep it; None for a variant without asm."""
        if not isinstance(self.variant, AsmVariant):
            return None
        form = self.form(item)
        return form.text if form else self.variant.texts[min(self.variant.texts)].text
