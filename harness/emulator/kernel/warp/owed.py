"""Exchanges that a thread owes to others of its warp, which wait in them (ISA 9.7.9.6, of shfl.sync: "causes executing
thread to wait until all non-exited threads corresponding to membermask have executed shfl.sync with the same qualifiers
and same membermask value")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ptxdiff.emulator.errors import ExecutionError
from ptxdiff.emulator.numeric.vectorise import Array

AT_A_BARRIER = "and a thread of that mask waits at a barrier instead"


@dataclass
class Owed:
    """How often a thread has to execute an exchange that other lanes of its warp executed before it.

    `error`: what to raise, with the words that say what the thread does instead. `waiting`: the lanes of the warp that
    wait, as 32 booleans.
    """

    error: Callable[[str], ExecutionError]
    waiting: Array
    times: int = 0
