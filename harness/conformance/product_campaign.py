"""Measures all forms of products within a time budget: one process for each core, which share the GPUs.

The cheapest forms come first. If there is not enough time for all, a limit holds for each form, chosen so that as many
forms as possible reach the goal and the others get about the same time.
"""

from __future__ import annotations

import math
import multiprocessing as mp
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ptxdiff.conformance.measure import Tally
from ptxdiff.conformance.product_forms import bounds_of
from ptxdiff.conformance.products import ProductDevice
from ptxdiff.emulator.targets import Target
from ptxdiff.processes.gpus import gpus

if TYPE_CHECKING:
    from ptxdiff.conformance.fetch import Identity
    from ptxdiff.conformance.ledger import Ledger

LEAST = 2.0
"""Seconds that must be left to begin a form."""
_device: list[ProductDevice] = []


_SETUP, _TILE = 4.0, 3e-6
_RATES = {
    "mma": {"f64": 20e6, "f16": 150e6, "bf16": 150e6, "tf32": 100e6, "e4m3": 150e6, "e5m2": 150e6, "": 500e6},
    "mma_sp": {"f16": 38e6, "bf16": 38e6, "tf32": 25e6, "e4m3": 30e6, "e5m2": 30e6, "s8": 150e6, "u8": 150e6, "": 76e6},
    "wgmma": {"b1": 300e9, "s8": 40e9, "u8": 40e9, "": 10e9},
    "wgmma_sp": {"s8": 40e9, "u8": 40e9, "": 10e9},
}
"""Multiplications per second of one process, by operation and type: mma on a core, wgmma on a sixteenth of a GPU."""


def estimate(form: str, tiles: int) -> float:
    """An estimate of the seconds that a process needs for this many tiles of a form, for dividing time."""
    bound = bounds_of()[form]
    m, rest = (bound.modifiers["shape"] or "")[1:].split("n")
    n, k = rest.split("k")
    thin = 2.0 if bound.form.operation.endswith("_sp") else 1.0
    rates = _RATES.get(bound.form.operation, _RATES["mma"])
    rate = rates.get(bound.modifiers.get("atype") or "", rates[""])
    if "alayout" in bound.modifiers:
        rate, thin = 27e6, 0.25  # four products at once, computed by instructions
    return _SETUP + tiles * (_TILE + int(m) * int(n) * int(k) / thin / rate)


def limit(estimates: Iterable[float], budget: float) -> float:
    """The limit in seconds for each form with which all of them together take no more than the budget."""
    waiting = sorted(estimates)
    for place, each in enumerate(waiting):
        share = budget / (len(waiting) - place)
        if share < each:
            return share
        budget -= each
    return math.inf


def in_turn(names: Iterable[str], tiles: int) -> list[str]:
    """Forms sorted by their estimates; those that a GPU computes alternate with those that a core computes."""
    sides: dict[bool, list[str]] = {True: [], False: []}
    for name in sorted(names, key=lambda n: (estimate(n, tiles), n)):
        sides[name.startswith("wgmma")].append(name)
    places = {name: n / len(side) for side in sides.values() for n, name in enumerate(side)}
    return sorted(places, key=lambda n: (places[n], n))


def left_to_do(names: Iterable[str], tiles: int, entries: Mapping[str, Any]) -> list[str]:
    """The forms that hardware has not confirmed on this many tiles, by the entries of `ledger.current`."""
    from ptxdiff.conformance.ledger import CONFIRMED

    return [n for n in names if entries[n].status != CONFIRMED or entries[n].inputs < tiles]


def before_of(names: Iterable[str], identity: Identity, book: Ledger) -> dict[str, int]:
    """Tiles on which this device, driver and assembler confirmed the present definitions of forms."""
    from ptxdiff.conformance.ledger import CONFIRMED, current

    entries = current(book)
    facts = (identity.device, identity.target, identity.driver, identity.ptxas)
    same = {n for n, r in book.runs.items() if (r.device, r.target, r.driver, r.ptxas) == facts}
    return {n: entries[n].inputs for n in names if entries[n].status == CONFIRMED and entries[n].run in same}


def _begin(places: Any) -> None:
    """Give a process one GPU and one core: a kernel on several cores would only slow down the other processes."""
    core, gpu = places.get()
    if core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu


def measured_here(form: str, tiles: int, seconds: float, start: int) -> Tally:
    """Measure a form on this process's GPU."""
    from ptxdiff.conformance import group_rounds, other_products, products

    if not _device:
        _device.append(ProductDevice())
    if form.startswith("wgmma"):
        return group_rounds.measured(_device[0], form, tiles, seconds, start)
    if bounds_of()[form].form.operation != "mma":
        return other_products.measured(_device[0], form, tiles, seconds, start)
    return products.measured(_device[0], form, tiles, seconds, start)


def campaign(
    names: Iterable[str],
    tiles: int,
    target: str,
    *,
    seconds: float = math.inf,
    workers: int | None = None,
    progress: Callable[[str], None] = lambda words: None,
    found: Callable[[Tally], None] = lambda tally: None,
    before: Mapping[str, int] = MappingProxyType({}),
    measuring: Callable[[str, int, float, int], Tally] = measured_here,
) -> dict[str, list[Tally]]:
    """Measure forms, each on `tiles` tiles, or on as many as the time allows. Forms that the target lacks are left out.

    before: tiles on which an earlier run of this device found no mismatch; only others are tried, and all are counted.
    found: called with each tally when it is ready, in this process. measuring: called in the processes with a form, the
    number of tiles, the seconds allowed, and how many tiles came before; it must be picklable. Forms for which no time
    is left are not measured. A process that crashes, or very many errors, end the campaign; tallies up to then are
    kept.
    """
    ends = time.monotonic() + seconds
    device = Target.parse(target)
    todo = in_turn((n for n in names if bounds_of()[n].requirement_unmet(device) is None), tiles)
    number = min(workers or len(_cores()), max(len(todo), 1))
    done: dict[str, list[Tally]] = {}
    running: dict[Future[Tally], str] = {}
    failures = 0
    context = mp.get_context("spawn")
    with context.Manager() as manager:
        places = manager.Queue()
        for place in _places(number, target):
            places.put(place)
        with ProcessPoolExecutor(number, context, _begin, (places,)) as pool:
            while todo or running:
                while todo and len(running) < number:
                    left = ends - time.monotonic()
                    if left < LEAST:
                        progress(f"no time is left for {len(todo)} forms, from {todo[0]} on")
                        todo.clear()
                        break
                    unfinished = [estimate(n, tiles - before.get(n, 0)) for n in (*todo, *running.values())]
                    share = min(left, limit(unfinished, left * number))
                    name = todo.pop(0)
                    running[pool.submit(measuring, name, tiles - before.get(name, 0), share, before.get(name, 0))] = (
                        name
                    )
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    name = running.pop(future)
                    try:
                        tally = future.result()
                    except BrokenProcessPool:
                        progress(f"a process died, perhaps in {', '.join([name, *running.values()])}; no more forms")
                        return done
                    except Exception as e:
                        # The fault is not the form's: the GPU lost its context, or this program has an error.
                        progress(f"{name}: not measured, {type(e).__name__}: {str(e).splitlines()[:1]}")
                        failures += 1
                        if failures > number:
                            progress(f"{failures} forms in a row failed; no more forms")
                            todo.clear()
                        continue
                    failures = 0
                    if tally.reached:
                        tally.before = before.get(name, 0)
                    done[name] = [tally]
                    found(tally)
                    words = tally.refused or tally.failure or f"{tally.mismatches:,} of {tally.inputs:,} tiles differ"
                    progress(f"{name}: {words}")
    return done


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def _places(number: int, target: str) -> list[tuple[int | None, str | None]]:
    """For each process a core and a value of CUDA_VISIBLE_DEVICES; None leaves them as they are."""
    cores: list[int | None] = [*_cores()] if hasattr(os, "sched_setaffinity") else [None]
    fitting = [g for g in gpus() if g.target == target]
    names = {g.name for g in fitting[:1]}
    seen: list[str | None] = [g.visible for g in fitting if g.name in names] or [None]
    return [(cores[n % len(cores)], seen[n % len(seen)]) for n in range(number)]
