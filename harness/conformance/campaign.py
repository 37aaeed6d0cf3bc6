"""Measure all forms on all cores within a time budget.

Each worker process has its own core and its own context on the GPU, so that a fault stops one worker and not the
campaign. First every form gets a few inputs. Then each worker goes through its forms repeatedly, with four times as
many inputs each time, until the goal is reached or the time is up. So all forms get about the same number of inputs.
While the device compares, the host runs a million inputs of each form through the emulator with compiled definitions.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from ptxdiff.conformance import forms, measure
from ptxdiff.conformance.fetch import Executor, Hardware, Identity
from ptxdiff.conformance.forms import FormSnippet
from ptxdiff.conformance.inputs import EXHAUSTIVE_BITS, Inputs
from ptxdiff.conformance.kernels import NoDefinition
from ptxdiff.conformance.measure import Tally
from ptxdiff.emulator.machine.parallel import cores
from ptxdiff.emulator.targets import Target

GROUP = 40
"""Snippets of one module; those of one definition share its code."""
FIRST_HOST = 512
"""Inputs of each form through the emulator in the first round: few enough for definitions to run uncompiled."""
FIRST_DEVICE = 1 << 20
_ROUND = 4


@dataclass(frozen=True)
class Plan:
    """The extent of a campaign. `seconds`: the total time.

    `everything`: forms with at most this many inputs are tried on all of them; others on `inputs`. `emulated`: how many
    of those go through `ptxdiff.emulate`.
    """

    seconds: float = 600.0
    inputs: int = 1 << 28
    everything: int = 1 << EXHAUSTIVE_BITS
    emulated: int = 1 << 20


@dataclass(frozen=True)
class FormGroup:
    """Snippets that are prepared together, by form and position among the form's snippets."""

    number: int
    members: tuple[tuple[str, int], ...]

    def snippets(self) -> list[FormSnippet]:
        """The snippets themselves."""
        return [forms.snippets(form)[index] for form, index in self.members]


@dataclass
class Measured:
    """The result of a campaign: the device's identity, and the tallies of every snippet by form."""

    identity: Identity
    tallies: dict[str, list[Tally]] = field(default_factory=dict)


def groups(names: Iterable[str], target: str) -> list[FormGroup]:
    """The snippets of all forms that the target has, in groups of one definition each, shuffled."""
    by_function: dict[Any, list[tuple[str, int]]] = {}
    device = Target.parse(target)
    for form in names:
        for index, snippet in enumerate(forms.snippets(form)):
            if snippet.bound.requirement_unmet(device) is not None:
                continue
            key = snippet.bound.form.function or snippet.bound.form.operation
            by_function.setdefault(key, []).append((form, index))
    pieces = [m[i : i + GROUP] for m in by_function.values() for i in range(0, len(m), GROUP)]
    pieces.sort(key=len, reverse=True)
    return [FormGroup(n, tuple(piece)) for n, piece in enumerate(pieces)]


def run(
    names: Sequence[str],
    plan: Plan,
    *,
    device: Callable[[], Executor] = Hardware,
    workers: int | None = None,
    progress: Callable[[str], None] = lambda words: None,
) -> Measured:
    """Measure forms. `device` is called in each worker, and must be picklable; its exceptions are raised here."""
    began = time.monotonic()
    identity = _identity(device)
    pending = groups(names, identity.target)
    count = min(workers or cores(), max(len(pending), 1))
    progress(f"{sum(len(g.members) for g in pending)} snippets in {len(pending)} groups, {count} workers")
    outcome = Measured(identity)
    by_variant: dict[tuple[str, str], Tally] = {}
    group = _WorkerGroup(device, plan, began, count)
    try:
        for done, tallies in enumerate(group.prepared(pending), 1):
            by_variant.update({(t.form, t.variant): t for t in tallies})
            if done % 25 == 0 or done == len(pending):
                progress(f"{done} of {len(pending)} groups ready after {time.monotonic() - began:.0f} s")
        for tallies in group.extended():
            by_variant.update({(t.form, t.variant): t for t in tallies})
    finally:
        group.stop()
    for (form, _), tally in sorted(by_variant.items()):
        outcome.tallies.setdefault(form, []).append(tally)
    progress(f"done after {time.monotonic() - began:.0f} s")
    return outcome


def _identity(device: Callable[[], Executor]) -> Identity:
    """The device's identity, found in a separate process, so that this one creates no CUDA context."""
    context = mp.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_send_identity, args=(there, device), daemon=True)
    process.start()
    there.close()
    try:
        answer = here.recv()
    except EOFError:
        raise RuntimeError("the process that asks for the device died") from None
    process.join()
    if isinstance(answer, Exception):
        raise answer
    assert isinstance(answer, Identity)
    return answer


def _send_identity(connection: Connection[Any, Any], device: Callable[[], Executor]) -> None:
    try:
        connection.send(device().identity)
    except Exception as e:
        connection.send(e)


class _WorkerGroup:
    """The worker processes, as the parent controls them."""

    def __init__(self, device: Callable[[], Executor], plan: Plan, began: float, count: int) -> None:
        self.device, self.plan, self.began = device, plan, began
        self.context = mp.get_context("spawn")
        self.workers: dict[Connection[Any, Any], Any] = {}
        self.busy: dict[Connection[Any, Any], tuple[FormGroup, bool]] = {}
        self.given: dict[Connection[Any, Any], list[FormGroup]] = {}
        self.free = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(count))
        for number in range(count):
            self._start(self.free[number % len(self.free)])

    def _start(self, core: int) -> None:
        here, there = self.context.Pipe()
        left = self.plan.seconds - (time.monotonic() - self.began)
        process = self.context.Process(target=_work, args=(there, self.device, self.plan, left, core), daemon=True)
        process.start()
        there.close()
        self.workers[here] = (process, core)
        self.given[here] = []

    def prepared(self, pending: list[FormGroup]) -> Iterator[list[Tally]]:
        """Distribute the groups; yields the first tallies of each.

        A group that kills its worker is retried without `check`.
        """
        queue = [(g, True) for g in pending]
        while queue or self.busy:
            for connection in self.workers:
                if connection not in self.busy and queue:
                    group, checks = queue.pop(0)
                    self.busy[connection] = (group, checks)
                    connection.send(("prepare", group, checks))
            for connection in self._ready():
                group, checks = self.busy.pop(connection)
                try:
                    yield connection.recv()
                    self.given[connection].append(group)
                except (EOFError, OSError):
                    self._replace(connection)
                    if checks:
                        queue.insert(0, (group, False))
                    else:
                        yield [Tally(s.form, s.variant, failure="the worker died") for s in group.snippets()]

    def _ready(self) -> list[Connection[Any, Any]]:
        return [c for c in wait(list(self.busy)) if isinstance(c, Connection)]

    def _replace(self, connection: Connection[Any, Any]) -> None:
        process, core = self.workers.pop(connection)
        process.join(5)
        connection.close()
        self._start(core)

    def extended(self) -> Iterator[list[Tally]]:
        """Let every worker continue up to the goal or the time limit; yields its final tallies."""
        for connection in self.workers:
            connection.send(("extend",))
            self.busy[connection] = (FormGroup(-1, ()), True)
        while self.busy:
            for connection in self._ready():
                self.busy.pop(connection)
                try:
                    yield connection.recv()
                except (EOFError, OSError):
                    continue  # keep the first tallies

    def stop(self) -> None:
        """End the workers."""
        for connection, (process, _) in self.workers.items():
            try:
                connection.send(("stop",))
            except OSError:
                process.terminate()
            process.join(10)
            if process.is_alive():
                process.terminate()


def _work(
    connection: Connection[Any, Any], device: Callable[[], Executor], plan: Plan, seconds: float, core: int
) -> None:
    """A worker process: prepares groups as they arrive, keeps them, and extends their measurement on request."""
    deadline = time.monotonic() + seconds
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    worker = _Worker(device(), plan, deadline)
    while True:
        try:
            word, *rest = connection.recv()
        except EOFError:
            return
        if word == "stop":
            return
        connection.send(worker.prepare(*rest) if word == "prepare" else worker.extend())


class _Worker:
    def __init__(self, device: Executor, plan: Plan, deadline: float) -> None:
        self.device, self.plan, self.deadline = device, plan, deadline
        self.kept: list[tuple[FormSnippet, Tally]] = []

    def prepare(self, group: FormGroup, checks: bool) -> list[Tally]:
        """Compile a group and give every snippet its first inputs."""
        snippets = group.snippets()
        tallies = [Tally(s.form, s.variant) for s in snippets]
        try:
            refused = self.device.compiled(snippets, checks)
        except NoDefinition:
            refused = self.device.compiled(snippets, False)
        for index, (snippet, tally) in enumerate(zip(snippets, tallies, strict=True)):
            if index in refused:
                tally.refused = refused[index]
                continue
            self._first(snippet, tally)
            self.kept.append((snippet, tally))
        return tallies

    def _first(self, snippet: FormSnippet, tally: Tally) -> None:
        lanes = FIRST_HOST if snippet.bound.form.function is not None else 1 << 16
        lanes = min(lanes, self.plan.emulated)
        measure.on_edges(self.device, snippet, tally, lanes // 2)
        if not tally.failure:
            measure.on_host(self.device, snippet, tally, lanes // 2)
        if not tally.failure and self.device.checks(snippet):
            measure.on_device(self.device, snippet, tally, min(FIRST_DEVICE, self._goal(snippet)))

    def _goal(self, snippet: FormSnippet) -> int:
        """Inputs of a snippet on the device; the snippets of one form share the form's inputs."""
        count = Inputs(snippet).count
        if count <= self.plan.everything:
            return count
        return max(self.plan.inputs // sum(s.bulk for s in forms.snippets(snippet.form)), 1)

    def extend(self) -> list[Tally]:
        """Try more inputs for all kept snippets, round by round, on the device and the host at the same time."""
        random.Random(len(self.kept)).shuffle(self.kept)
        chosen = [(s, t) for s, t in self.kept if s.bulk and not t.failure]
        checked = [(s, t, self._goal(s)) for s, t in chosen if self.device.checks(s)]
        checker = threading.Thread(target=self._rounds, args=(checked,))
        checker.start()
        self._through_emulate([(s, t) for s, t in chosen if not self.device.checks(s)], self.plan.emulated)
        plain = list({s.form: (s, t) for s, t in reversed(chosen)}.values())
        self._through_emulate(plain, self.plan.emulated)
        self._through_emulate([(s, t) for s, t in chosen if not self.device.checks(s)], self.plan.everything)
        checker.join()
        return [t for _, t in self.kept]

    def _rounds(self, checked: Sequence[tuple[FormSnippet, Tally, int]]) -> None:
        self.device.use()
        most = FIRST_DEVICE
        while self._left() and any(t.reached < goal for _, t, goal in checked if not t.failure):
            most *= _ROUND
            for snippet, tally, goal in checked:
                if self._left() and not tally.failure:
                    measure.on_device(self.device, snippet, tally, min(goal, most))

    def _through_emulate(self, chosen: Sequence[tuple[FormSnippet, Tally]], most: int) -> None:
        """Compare large arrays, for which definitions are compiled, as users run them; one step for each form in
        turn."""
        goal = min(measure.HOST, most)
        while goal <= most and self._left():
            for snippet, tally in chosen:
                if self._left() and not tally.failure:
                    measure.on_host(self.device, snippet, tally, goal)
            goal = goal + measure.HOST if goal < most and any(t.hosted >= goal for _, t in chosen) else most + 1

    def _left(self) -> bool:
        return time.monotonic() < self.deadline
