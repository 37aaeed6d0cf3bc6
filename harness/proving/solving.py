"""Ask solvers: each query in a process of its own, which is ended when its time is over.

Times are of the processor, so that a proof needs the same seconds on a busy machine.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ptxdiff.extras import require
from ptxdiff.proving.queries import INTEGERS, Query

SOLVERS = ("bitwuzla", "z3")
ANSWERS = ("sat", "unsat", "unknown")
PACKAGES = {"bitwuzla": "bitwuzla", "z3": "z3-solver", INTEGERS: "z3-solver"}
_PROCESS = Path(__file__).with_name("solver_process.py")


WAIT = 20
"""How many times the processor's seconds a query may take on a busy machine."""


class SolverFault(RuntimeError):
    """A solver's process failed; the message has its last words."""


@dataclass(frozen=True)
class SolverAnswer:
    """A solver's answer: "sat" with a model, "unsat", or "unknown" when its time was over.

    seconds: of the processor.
    """

    answer: str
    seconds: float
    solver: str
    model: Mapping[str, int] = field(default_factory=dict)


def available() -> bool:
    """Whether the extra is installed."""
    return all(importlib.util.find_spec(name) is not None for name in SOLVERS)


def require_solvers(purpose: str) -> None:
    """Raise MissingPackage if the extra is not installed."""
    require(*SOLVERS, purpose=purpose)


def version(solver: str) -> str:
    """A solver with its version, such as `bitwuzla 0.9.1`."""
    return f"{solver} {importlib.metadata.version(PACKAGES[solver])}"


def ask(query: Query, seconds: float, solvers: Sequence[str] = ()) -> SolverAnswer:
    """The first answer of these solvers, which run at the same time; by default of the one for the query.

    Raises SolverFault if all of them fail.
    """
    solvers = solvers or (query.solver,)
    latest = time.monotonic() + WAIT * seconds + 60
    running = {name: _started(name, query, seconds) for name in solvers}
    faults: list[str] = []
    unknown = None
    try:
        while running:
            for name, process in list(running.items()):
                if process.poll() is None:
                    continue
                del running[name]
                reply = _read(name, process, seconds)
                if isinstance(reply, str):
                    faults.append(reply)
                elif reply.answer != "unknown":
                    return reply
                else:
                    unknown = reply
            if time.monotonic() > latest:
                return SolverAnswer("unknown", seconds, "+".join(solvers))
            time.sleep(0.005)
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    if unknown is not None:
        return unknown
    raise SolverFault("; ".join(faults))


def _started(name: str, query: Query, seconds: float) -> subprocess.Popen[str]:
    asked = {"solver": name, "seconds": seconds, "text": query.text, "variables": dict(query.variables)}
    process = subprocess.Popen(
        [sys.executable, "-I", str(_PROCESS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    try:
        json.dump(asked, process.stdin)
        process.stdin.close()
    except BrokenPipeError:
        pass  # the process has ended; `_read` has its words
    return process


def _read(name: str, process: subprocess.Popen[str], seconds: float) -> SolverAnswer | str:
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout as out, process.stderr as err:
        text, errors = out.read(), err.read()
    if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return SolverAnswer("unknown", seconds, name)
    if process.returncode != 0 or not text:
        lines = errors.strip().splitlines()
        return f"{name} ended with {process.returncode}: {lines[-1] if lines else 'no words'}"
    try:
        reply = json.loads(text)
    except ValueError:
        reply = {}
    if not isinstance(reply, dict) or reply.get("answer") not in ANSWERS:
        return f"{name} gave no answer: {text.strip()[:80]}"
    return SolverAnswer(reply["answer"], reply["seconds"], name, reply["model"])
