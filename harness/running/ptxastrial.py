"""Finds out whether ptxas is at fault for failures of an item, and if so, states it in their results."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from ptxdiff.jobs import Job, Outcome
from ptxdiff.judging.judge import Judgement
from ptxdiff.records import PTXAS, Result
from ptxdiff.running.plan import WorkItem
from ptxdiff.running.ptxasfault import PtxasBlame, blamed, filled
from ptxdiff.running.ptxasstory import attached, in_brief, message_lines
from ptxdiff.running.result import Recording


class PtxasTrial(Recording):
    """The results of one item, some of which may be faults of ptxas."""

    @abstractmethod
    def _judgement(self, job: Job, outcome: Outcome) -> Judgement:
        """The judgement on an outcome."""

    def _on_trial(self, result: Result, job: Job, outcome: Outcome) -> tuple[Result, list[str]]:
        """A failure and the lines that explain it. If ptxas is at fault, the words of the result name the assembler."""
        if result.diagnosis:
            return result, []
        job = filled(job)
        if not outcome.outputs:  # a sweep leaves its outputs on the device
            outcome = self.backend.run(job)
        blame = self._blamed(job, outcome)
        if blame is None:
            return result, []
        result = replace(result, diagnosis=PTXAS, words=in_brief(blame))
        return result, message_lines(blame, attached(self.dump, result.key, blame))

    def _blamed(self, job: Job, outcome: Outcome) -> PtxasBlame | None:
        """The fault of ptxas behind a job's result on a GPU; None if it is not proved."""
        if job.setup.context == "shared" or self.backend.name != "gpu":
            return None

        def passes(job: Job, outcome: Outcome) -> bool:
            return self._judgement(job, outcome).passed

        # A reduction takes up to half a minute, so only one failure of an item gets it; the others keep the variant's
        # PTX.
        blame = blamed(job, outcome, self.backend, self.assemblers, passes, smallest=not self.reduced)
        self.reduced = self.reduced or blame is not None
        return blame

    def _blame_ptxas(self, item: WorkItem, blame: PtxasBlame | None) -> None:
        """Blame ptxas for the newest result. blame: the fault, if it could be examined."""
        result = replace(self.found.results[-1], diagnosis=PTXAS)
        if blame is not None:
            story = message_lines(blame, attached(self.dump, result.key, blame))
            repeat = f"  repeat    {self._command(result, item.setup.assembler)}"
            message = "\n".join([result.message.removesuffix(f"\n{repeat}"), *story, repeat])
            result = replace(result, words=f"{result.words}; {in_brief(blame)}", message=message)
        self.found.results[-1] = result
