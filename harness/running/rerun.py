"""Explains splits at the end of a run: one pair of setups of each split is run again, and their outputs are compared.

`ptxdiff.records.agreement` finds from digests that bits differ. The first input at which they differ, and the lines of
PTX that differ, need the outputs themselves. Running two setups again costs less than keeping the outputs of all, and
the result does not depend on which process ran what, or in which order.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ptxdiff.jobs import Backend, Job, Outcome
from ptxdiff.judging.judge import judge_same
from ptxdiff.model import load as loader
from ptxdiff.model.variants import CaseError
from ptxdiff.records import Block, CaseInfo, Disagreement, Key, Result, Split
from ptxdiff.running import reuse
from ptxdiff.running.assemblers import Chosen
from ptxdiff.running.item import Item, fingerprint_of
from ptxdiff.running.run import run_again

LINES_SHOWN = 12
PAIRS_LOOKED_AT = 24
"""The most splits of a run that are explained; the others are reported from their digests alone."""


class Agreement:
    """Runs a pair of setups of each split again and compares the outputs.

    root: the folder that the cases' paths are relative to, or one below it. backend: makes a backend by name.
    assemblers: those that run an item. settings: whatever else decides the outputs; disagreements are then stored for
    the next run, as results are. None: nothing is stored.
    """

    def __init__(
        self,
        root: Path,
        cases: Iterable[CaseInfo],
        backend: Callable[[str], Backend],
        effort: str,
        assemblers: Callable[[Item], Sequence[Chosen]] = lambda _: (None,),
        settings: tuple[Any, ...] | None = None,
    ) -> None:
        self.root, self.backend, self.effort = root, backend, effort
        self.assemblers, self.settings = assemblers, settings
        self.paths = {info.case: info.path for info in cases}
        self._loaded: dict[str, loader.LoadedCase] = {}
        self._made_of: dict[Key, Mapping[str, str]] = {}
        self._blocks: dict[Key, tuple[Block, ...]] = {}

    def disagreements(self, results: Sequence[Result], splits: Sequence[Split]) -> list[Disagreement]:
        """One disagreement for each of the first splits; a split that cannot be run again is left out."""
        blocks = self._blocks = {r.key: r.outputs_digest for r in results}
        self._made_of = {r.key: r.fingerprint for r in results}
        found = []
        for split in splits[:PAIRS_LOOKED_AT]:
            one, other = split.pair
            differing = next(
                ((a.first, a.count) for a, b in zip(blocks[one], blocks[other], strict=False) if a.digest != b.digest),
                (0, 0),
            )
            if (disagreement := self._look(one, other, differing)) is not None:
                found.append(disagreement)
        return found

    def _look(self, one: Key, other: Key, block: tuple[int, int]) -> Disagreement | None:
        try:
            items = self._item(one), self._item(other)
            stored_key = self._stored_key(one, other, block)
            if stored_key is not None and (known := reuse.find_disagreement(items, stored_key)) is not None:
                return known
            (job, first), (_, second) = self._again(items[0], one, block), self._again(items[1], other, block)
        except (LookupError, CaseError):  # the file was deleted or edited during the run
            return None
        if not first.outputs or not second.outputs:
            return None
        judgement = judge_same(job.case, job.inputs, first.outputs, second.outputs, job.setup.pack)
        if not judgement.offenders:
            return None
        lines = ptx_lines(first.artifacts.ptx or "", second.artifacts.ptx or "")
        found = Disagreement(one, other, judgement.different, judgement.offenders[0], lines)
        if stored_key is not None:
            reuse.keep_disagreement(items, found, stored_key)
        return found

    def _stored_key(self, one: Key, other: Key, block: tuple[int, int]) -> tuple[Any, ...] | None:
        """The key of a stored disagreement, apart from the items; it contains the bits that differ."""
        if self.settings is None:
            return None
        return one, other, block, self._blocks[one], self._blocks[other], self.effort, *self.settings

    def _item(self, key: Key) -> Item:
        if key.case not in self._loaded:
            places = (base / self.paths[key.case] for base in (self.root, *self.root.parents))
            for file in [place for place in places if place.is_file()][:1]:
                self._loaded |= {c.name: c for c in loader.load(file)}
        item = Item(self._loaded[key.case], key.variant, key.target, key.backend)
        if fingerprint_of(item) != self._made_of.get(key):
            raise LookupError(f"{key}: the case has changed since it was run")
        return item

    def _again(self, item: Item, key: Key, block: tuple[int, int]) -> tuple[Job, Outcome]:
        return run_again(item, self.backend(key.backend), self.effort, key, block, self.assemblers(item))


def ptx_lines(before: str, after: str) -> tuple[str, ...]:
    """The lines by which two PTX texts differ, marked `-` and `+`, without headers, comments and declarations."""
    from ptxdiff.triton.ptx_text import body

    if not before or not after or before == after:
        return ()
    was, now = ([line for line in body(ptx).splitlines() if not line.startswith(".reg")] for ptx in (before, after))
    lines = difflib.unified_diff(was, now, n=0, lineterm="")
    changed = [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    more = len(changed) - LINES_SHOWN
    return (*changed[:LINES_SHOWN], *([f"and {more} more"] if more > 0 else []))
