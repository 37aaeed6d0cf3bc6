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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from ptxdiff.diskcache import DiskCache
from ptxdiff.extras import require
from ptxdiff.proving import queries
from ptxdiff.proving import terms as t
from ptxdiff.proving.queries import INTEGERS, Query
from ptxdiff.proving.terms import FALSE, TRUE, NotEvaluable, Term

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


# ---- Ask solvers about goals until the time of a verdict is over -----------------------------------------------------
#
# A goal is a term that must hold for no input. Answers of "no such input" are kept by the text of the query, which says
# all that they depend on, and by the solver's version.

Settled = Literal["proved", "counterexample", "not settled"]

LONGEST = 4_000_000
"""Terms of a query from which on no solver is asked."""

SHORT = 3.0
"""Seconds of a solver for each way of asking, before one of them gets more."""

_proofs = DiskCache("proofs")


class TermFault(RuntimeError):
    """Terms and the emulator give different bits for the same input: a fault of ptxdiff, never of a variant."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on a variant.

    reason: for "not settled" why, in a few words before a colon; for a counterexample what is wrong. inputs: the
    storage units of a counterexample, by input name, one for each element of its pack. solver: with its version; empty
    where the terms decided. program, rules: digests of what the block computes and of what is asked of it; of a proof
    of machine code, of what the PTX does and of what the machine code does. tried: the queries. assembler: what made
    the machine code.
    """

    verdict: Settled
    reason: str = ""
    target: str = ""
    packs: tuple[int, ...] = ()
    against: str = "reference"
    solver: str = ""
    seconds: float = 0.0
    program: str = ""
    rules: str = ""
    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    tried: tuple[str, ...] = ()
    assembler: str = ""


Believed = Callable[[Mapping[str, int], bool], Verdict | None]
"""From a model of a query, and whether it is a real input, to a counterexample; None if it is none."""


class ProofSearch:
    """The queries of one verdict, until its time is over."""

    def __init__(self, seconds: float, solvers: tuple[str, ...]) -> None:
        self.seconds, self.solvers = seconds, solvers
        self._started, self._asked = time.process_time(), 0.0
        self.tried: list[str] = []
        self.used: set[str] = set()

    @property
    def left(self) -> float:
        """The seconds that are left, of this process and those of solvers."""
        return self.seconds - (time.process_time() - self._started) - self._asked

    @property
    def versions(self) -> str:
        """The solvers that answered, with their versions."""
        return " and ".join(sorted(version(s) for s in self.used))

    def refute(
        self, goal: Term, assumptions: Sequence[Term], believed: Believed, left_open: Callable[[Query], str | None]
    ) -> Verdict | None:
        """None if a goal holds for no input that meets the assumptions, else the verdict.

        left_open: why a model that is no counterexample leaves the question open; None: another way may settle it.
        """
        if goal is FALSE:
            return None
        below = needed(assumptions, goal)
        waiting, last, settled = queries.ways([goal, *below]), "", ""
        for most in (SHORT, self.seconds):  # each way for a short time, and then those that need more
            ways, waiting = waiting, []
            for number, way in enumerate(ways):
                left = self.left
                if left < 0.5:
                    return Verdict("not settled", settled or last or "time: none was left for this pack")
                share = min(most, left if number == len(ways) - 1 else left / 2)
                asked = queries.query(goal, below, way)
                if asked.size > LONGEST:
                    return Verdict("not settled", f"size: {asked.size} terms")
                try:
                    answer = self.ask(asked, share)
                except SolverFault as fault:
                    last = f"solver: {fault}"
                    self.tried.append(f"{way}: {fault}")
                    continue
                self.tried.append(f"{way}: {answer.answer} after {answer.seconds:.1f} s, {asked.size} terms")
                if answer.answer == "unsat":
                    return None
                if answer.answer != "sat":
                    last = f"time: {way} took more than {share:.0f} s"
                    waiting.append(way)
                    continue
                verdict = believed(answer.model, asked.exact)
                if verdict is not None:
                    return verdict
                settled = left_open(asked) or settled
                if settled and not waiting:
                    return Verdict("not settled", settled)
                last = f"{way}: equal operands alone do not prove it"
        return Verdict("not settled", settled or last)

    def ask(self, asked: Query, seconds: float) -> SolverAnswer:
        """An answer; of a query that was refuted before, the kept one. Raises SolverFault."""
        key = asked.text.encode()
        chosen = (asked.solver,) if asked.way == "integers" else self.solvers or (asked.solver,)
        for solver in chosen:
            if _proofs.get(key, version(solver).encode()) == b"unsat":
                self.used.add(solver)
                return SolverAnswer("unsat", 0.0, solver)
        answer = ask(asked, seconds, chosen)
        self._asked += answer.seconds * len(chosen)
        if answer.answer in ("sat", "unsat"):
            self.used.add(answer.solver)
        if answer.answer == "unsat":
            _proofs.put(b"unsat", key, version(answer.solver).encode())
        return answer


def needed(assumptions: Sequence[Term], goal: Term) -> list[Term]:
    """The assumptions that share an input with a goal. Leaving one out can refuse a proof, never give one."""
    inputs = {x.detail for x in t.ordered([goal]) if x.op == "var"}
    return [a for a in assumptions if a is not TRUE and inputs & {x.detail for x in t.ordered([a]) if x.op == "var"}]


_GUESSES = 64


def ever(conditions: Sequence[Term]) -> bool:
    """Whether conditions hold together for one of a few inputs, so that no solver need be asked."""
    inputs = sorted({(x.detail, x.width) for x in t.ordered(conditions) if x.op == "var"})
    for seed in range(_GUESSES):
        random = np.random.default_rng(seed)
        if holds(conditions, {n: int.from_bytes(random.bytes(w // 8 + 1), "little") & t.ones(w) for n, w in inputs}):
            return True
    return False


def holds(conditions: Sequence[Term], numbers: Mapping[str, int]) -> bool:
    """Whether conditions hold for an input; an input that is not named is 0. False where a function has no numbers."""
    unset = {x.detail: 0 for x in t.ordered(conditions) if x.op == "var"}
    try:
        return all(t.evaluate(conditions, unset | dict(numbers)))
    except NotEvaluable:
        return False
