"""The emulator does not judge itself: while results of it are judged, it does not run for a reference.

A reference that asks the emulator gives its bits, right or wrong, so that every mistake of either would pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ptxdiff.emulator.errors import PtxError

_judging = False  # in all threads: a reference may start some


class JudgesItself(PtxError):
    """A reference ran the emulator, whose results it is to judge."""


@contextlib.contextmanager
def judging_emulated(emulated: bool = True) -> Iterator[None]:
    """Within this block `refuse_to_judge` raises. emulated: False leaves it as it is, for results of other machines."""
    global _judging
    before, _judging = _judging, emulated or _judging
    try:
        yield
    finally:
        _judging = before


def refuse_to_judge() -> None:
    """Raise JudgesItself while results of the emulator are judged. Called by all that runs it for others."""
    if _judging:
        raise JudgesItself(
            "a reference must not run the emulator on the emulator backend, where its own results would be their "
            "judge; compute the result from the specification"
        )
