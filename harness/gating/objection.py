"""One decision of the gate, and the exit codes that it may call for."""

from __future__ import annotations

from dataclasses import dataclass

ACCEPTED, CORRECTNESS, USAGE, REGRESSION = 0, 1, 2, 3

RUN = "run"
"""The subject of what concerns the run as a whole."""


@dataclass(frozen=True)
class Objection:
    """One decision: `code` is the exit code it calls for, 0 where it is only stated."""

    code: int
    subject: str
    text: str
