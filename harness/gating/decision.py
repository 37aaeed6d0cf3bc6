"""One decision of the gate, and the gate's exit codes."""

from __future__ import annotations

from dataclasses import dataclass

ACCEPTED, CORRECTNESS, USAGE, REGRESSION = 0, 1, 2, 3

RUN = "run"
"""The subject of decisions on the run as a whole."""


@dataclass(frozen=True)
class Objection:
    """One decision of the gate. code: the exit code that it requires; 0 for a remark."""

    code: int
    subject: str
    text: str
