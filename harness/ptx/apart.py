"""The emulator does not judge itself: while results of it are judged, it does not run for a reference.

A reference that asks the emulator gives its bits, right or wrong, so that every mistake of either would pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from harness.ptx.errors import PtxError

_judging: ContextVar[bool] = ContextVar("_judging", default=False)


class JudgesItself(PtxError):
    """A reference ran the emulator, whose results it is to judge."""


@contextlib.contextmanager
def judging_emulated(emulated: bool = True) -> Iterator[None]:
    """Within this block `refuse_to_judge` raises. emulated: False leaves it as it is, for results of other machines."""
    before = _judging.set(emulated or _judging.get())
    try:
        yield
    finally:
        _judging.reset(before)


def refuse_to_judge() -> None:
    """Raise JudgesItself while results of the emulator are judged. Called by all that runs it for others."""
    if _judging.get():
        raise JudgesItself(
            "a reference must not run the emulator on the emulator backend, where its own results would be their "
            "judge; compute the result from the specification"
        )
