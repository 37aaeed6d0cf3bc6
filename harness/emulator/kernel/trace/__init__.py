"""What a kernel's threads did: observers, traces of one thread, and the origin of values.

Other rooms import the names below from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptxdiff.emulator.facade import attribute_of

if TYPE_CHECKING:
    from ptxdiff.emulator.kernel.trace.observers import SeenOperand, ThreadStep, ThreadTrace, TooLong
    from ptxdiff.emulator.kernel.trace.origins import LOCAL, SHARED, TENSOR, WARP, Focus, Stored, Taken
    from ptxdiff.emulator.kernel.trace.thread import Launched, executed_steps, followed, storing_thread

_NAMES = {
    "observers": (
        "SeenOperand",
        "ThreadStep",
        "ThreadTrace",
        "TooLong",
    ),
    "origins": (
        "LOCAL",
        "SHARED",
        "TENSOR",
        "WARP",
        "Focus",
        "Stored",
        "Taken",
    ),
    "thread": (
        "Launched",
        "executed_steps",
        "followed",
        "storing_thread",
    ),
}
"""The names that each module gives to other rooms."""

__all__ = [
    "LOCAL",
    "SHARED",
    "TENSOR",
    "WARP",
    "Focus",
    "Launched",
    "SeenOperand",
    "Stored",
    "Taken",
    "ThreadStep",
    "ThreadTrace",
    "TooLong",
    "executed_steps",
    "followed",
    "storing_thread",
]


def __getattr__(name: str) -> Any:
    return attribute_of(__name__, _NAMES, name)


def __dir__() -> list[str]:
    return __all__
