"""A backend that gives the outcomes that a test wrote down."""

from __future__ import annotations

from typing import Any

from ptxdiff.jobs import Job, Outcome


class Scripted:
    """A backend that a test scripts: a function from jobs to outcomes."""

    name = "gpu"

    def __init__(self, answer: Any, reason: str | None = None) -> None:
        self.answer, self.reason = answer, reason
        self.jobs: list[Job] = []

    def unavailable(self, target: str) -> str | None:
        return self.reason

    def run(self, job: Job) -> Outcome:
        self.jobs.append(job)
        outcome: Outcome = self.answer(job)
        return outcome
