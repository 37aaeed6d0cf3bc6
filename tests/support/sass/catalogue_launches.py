"""The first launch of each variant of the case files under each release of ptxas, as machine code, on one target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from ptxdiff.backends.sass import SCHEDULE, SassBackend
from ptxdiff.jobs import Job, Outcome
from ptxdiff.model.compilers import TRITONS_LEVEL
from ptxdiff.model.load import LoadedCase, load
from ptxdiff.running.assemblers import tritons_options
from ptxdiff.running.item import Item
from ptxdiff.running.run import jobs
from ptxdiff.triton.ptxas import assembler_at
from tests.support.sass.program_runs import Became, Result

SECONDS = 60.0
"""The time that one run of a launch may take."""
CASES = Path(__file__).parents[3] / "cases"


@dataclass(frozen=True)
class CatalogueVariant:
    """A variant of a case of a file, on one target."""

    path: Path
    case: str
    variant: str
    target: str

    @property
    def name(self) -> str:
        """`rcp::rcp.approx`."""
        return f"{self.case}::{self.variant}"


def variants(targets: Sequence[str], files: Sequence[Path] = ()) -> Iterator[CatalogueVariant]:
    """All variants of the case files; those of one case and variant on all targets follow each other."""
    for path in files or sorted(CASES.glob("*.py")):
        for loaded in _loaded(path):
            for variant in loaded.case.variants:
                yield from (CatalogueVariant(path, loaded.name, variant, target) for target in targets)


@lru_cache(maxsize=4)
def _loaded(path: Path) -> tuple[LoadedCase, ...]:
    return tuple(load(path))


def results(variant: CatalogueVariant, paths: Sequence[str]) -> Iterator[tuple[str, Result]]:
    """What became of a variant's first launch with each ptxas: its path, and the result."""
    backend = SassBackend(SECONDS)
    try:
        (loaded,) = (c for c in _loaded(variant.path) if c.name == variant.case)
        item = Item(loaded, variant.variant, variant.target, backend.name)
        job = next((job for _, job in jobs(item, backend, "quick") if job is not None), None)
    except Exception as error:  # a case that cannot be run here ends its own results alone
        yield from ((path, Result("open", f"no launch: {type(error).__name__}: {error}"[:200])) for path in paths)
        return
    for path in paths:
        yield path, Result("open", "no launch") if job is None else _result(backend, job, path)


def _result(backend: SassBackend, job: Job, path: str) -> Result:
    try:
        highest = _ran(backend, job, path, TRITONS_LEVEL)
        depends = SCHEDULE in highest.words
        if highest.outputs or not (highest.suspected or depends):
            return Result(_became(highest), highest.words[:300])
        lowest = _ran(backend, job, path, 0)
    except Exception as error:  # as above
        return Result("open", f"{type(error).__name__}: {error}"[:200])
    if not lowest.outputs:
        return Result("unsettled", f"{highest.words}; -O0: {lowest.words}"[:600])
    return Result("schedule" if depends else "wrong", highest.words[:600], differs=True)


def _ran(backend: SassBackend, job: Job, path: str, level: int) -> Outcome:
    chosen = assembler_at(path, level, options=tritons_options(job.target))
    return backend.run(replace(job, setup=replace(job.setup, assembler=chosen)))


def _became(outcome: Outcome) -> Became:
    """Of a launch that is not suspected."""
    words = outcome.words
    if outcome.outputs:
        return "right"
    if outcome.ended:
        return "crashed"
    if outcome.status == "error":  # a ptxas that does not know the target in this version of PTX, or no code for ptxas
        return "refused" if words.startswith("ptxas ") else "open"
    if words.startswith("machine code:"):
        return "unread"
    if words.startswith("unsettled:"):
        return "unsettled"
    return "open" if words.startswith("the PTX") else "refused"
