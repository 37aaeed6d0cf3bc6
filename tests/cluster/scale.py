"""How many GPUs one driver can feed: `python -m tests.cluster.scale [--gpus 1000] [--items 1000000] [--seconds 0.5
...]`.

Measures on this machine the driver's cost of a task of Ray, of an item's records and of a shard's line
(`tests.cluster.overhead`), then simulates a cluster with these costs. For each length of an item and each batch size
the simulation gives the time of the run, the shares in which driver and GPUs work, and the least batch size at which
the driver is not the limit. At the end come the GPU hours of a nightly run. `--task` and the other options in
microseconds state costs instead of measuring them.

Measured: the costs. Assumed: the seconds of an item on a GPU, the results of an item, and that the network is not full.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

BATCHES = (1, 2, 5, 10, 20, 50, 100, 200, 500)
LENGTHS = (0.1, 0.5, 2.0)
"""Seconds of an item on a GPU. Assumed: from an item whose kernels are cached to one whose kernels are compiled."""
RESULTS = 12
"""Results of an item. Assumed: about as many as an item of the catalogue has at quick effort on one target."""
IN_FLIGHT = 2
"""Tasks that the driver has sent to each GPU: one runs, and one waits."""
COSTS = ("task", "watch", "item", "record", "worker")


@dataclass(frozen=True)
class DriverCosts:
    """Seconds. task: the driver's, for a task that it sends, waits for and fetches. watch: the driver's, added to a
    task by each task in flight. item: the driver's, for an item in a task. record: the driver's, for a result that it
    reads, checks and writes. worker: the worker's, between two tasks."""

    task: float
    watch: float
    item: float
    record: float
    worker: float

    def of(self, batch: int, results: int, gpus: int) -> float:
        """The driver's seconds for a task of so many items while all GPUs have tasks."""
        return self.task + IN_FLIGHT * gpus * self.watch + batch * (self.item + results * self.record)


@dataclass(frozen=True)
class Simulated:
    """A run. seconds: from the first task to the last record. driver, gpus: the shares of these seconds in which they
    worked."""

    batch: int
    seconds: float
    driver: float
    gpus: float


def simulate(
    costs: DriverCosts, *, gpus: int, items: int, batch: int, seconds: float, results: int = RESULTS, seed: int = 0
) -> Simulated:
    """Simulate one driver, which does one thing at a time, and GPUs that run their tasks one after another.

    seconds: of an item, on average. Lengths are distributed exponentially, because a few items are much longer than
    most.
    """
    lengths = _lengths(items, batch, seconds, seed)
    driver = used = worked = 0.0
    free = [0.0] * gpus
    running: list[tuple[float, int, int]] = []  # the end of a task, its GPU, and its number of items

    def send(gpu: int) -> None:
        nonlocal driver, used, worked
        for size, length in itertools.islice(lengths, 1):
            driver += costs.task / 2
            used += costs.task / 2
            free[gpu] = max(driver, free[gpu]) + costs.worker + length
            worked += length
            heapq.heappush(running, (free[gpu], gpu, size))

    for gpu in itertools.chain.from_iterable(range(gpus) for _ in range(IN_FLIGHT)):
        send(gpu)
    while running:
        end, gpu, size = heapq.heappop(running)
        fetched = costs.task / 2 + (1 + len(running)) * costs.watch + size * (costs.item + results * costs.record)
        driver = max(driver, end) + fetched
        used += fetched
        send(gpu)
    return Simulated(batch, driver, used / driver, worked / (driver * gpus))


def _lengths(items: int, batch: int, seconds: float, seed: int) -> Iterator[tuple[int, float]]:
    """The items and the seconds of each task: a sum of exponential lengths has a gamma distribution."""
    random = np.random.default_rng(seed)
    sizes = [min(batch, items - first) for first in range(0, items, batch)]
    return zip(sizes, random.gamma(sizes, seconds).tolist(), strict=True)


def least_batch(costs: DriverCosts, gpus: int, seconds: float, results: int = RESULTS) -> int | None:
    """The least batch size at which the driver keeps up with all GPUs; None if no size is enough.

    It keeps up if its work for a task, times the number of GPUs, takes at most a task's seconds on its GPU.
    """
    gained = seconds - gpus * (costs.item + results * costs.record)  # by one more item in each task
    if gained <= 0:
        return None
    return max(1, math.ceil((gpus * costs.of(0, results, gpus) - costs.worker) / gained))


def most_gpus(costs: DriverCosts, seconds: float, batch: int, results: int = RESULTS) -> int:
    """The number of GPUs that one driver keeps busy."""
    low, high = 0, 1 << 24
    while high - low > 1:
        middle = (low + high) // 2
        enough = middle * costs.of(batch, results, middle) <= costs.worker + batch * seconds
        low, high = (middle, high) if enough else (low, middle)
    return low


@dataclass(frozen=True)
class Nightly:
    """The cost of a variant on a GPU in one night, in seconds. All figures but `exhaustive` are assumed.

    items: its items at full effort. exhaustive: a sweep of 2^32 inputs, judged on the device. timing: its sessions at
    three sizes, alone on the GPU. spent: the share of a GPU's hours that this work takes; in the rest the GPU waits.
    """

    items: float = 60.0
    exhaustive: float = 0.03
    timing: float = 20.0
    spent: float = 0.9

    def hours(self, variants: int, generations: int) -> float:
        """GPU hours of a night."""
        return variants * generations * (self.items + self.exhaustive + self.timing) / self.spent / 3600


def main(words: list[str] | None = None) -> int:
    """Measure, simulate, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.scale", description=__doc__.partition(":")[0])
    parser.add_argument("--gpus", type=int, default=1000)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, nargs="+", default=LENGTHS, help="of an item on a GPU (assumed)")
    parser.add_argument("--results", type=int, default=RESULTS, help="of an item (assumed)")
    for name in COSTS:
        parser.add_argument(f"--{name}", type=float, metavar="US", help="microseconds, instead of measuring")
    given = parser.parse_args(words)
    costs = _costs(given)
    print("microseconds: " + ", ".join(f"{n} {getattr(costs, n) * 1e6:.1f}" for n in COSTS))
    for seconds in given.seconds:
        _simulated(costs, given.gpus, given.items, seconds, given.results)
    print(f"\na night of 200 variants on five generations: {Nightly().hours(200, 5):.1f} GPU hours ({Nightly()})")
    return 0


def _simulated(costs: DriverCosts, gpus: int, items: int, seconds: float, results: int) -> None:
    """Print a table by batch size, and the size from which the driver is not the limit."""
    ideal = items * seconds / gpus
    print(f"\n{items} items of {seconds:g} s and {results} results on {gpus} GPUs; without a driver {ideal:.0f} s")
    for batch in BATCHES:
        if batch * gpus * IN_FLIGHT > items:
            break
        found = simulate(costs, gpus=gpus, items=items, batch=batch, seconds=seconds, results=results)
        reach = most_gpus(costs, seconds, batch, results)
        shares = f"driver busy {found.driver:4.0%}, GPUs {found.gpus:4.0%}"
        print(f"  batch {batch:>4}: {found.seconds:>8.0f} s, {shares}; one driver keeps {reach} GPUs busy")
    least = least_batch(costs, gpus, seconds, results)
    print(f"  the driver keeps up from batches of {least} on" if least else "  the driver keeps up with no batch size: "
          "it reads and writes too many results; share the cases between drivers, and merge their records")  # fmt: skip


def _costs(given: argparse.Namespace) -> DriverCosts:
    stated = {name: getattr(given, name) for name in COSTS}
    if None in stated.values():
        from tests.cluster.overhead import measured

        found = measured()
        print(found)
        stated = {n: getattr(found, n) * 1e6 if us is None else us for n, us in stated.items()}
    return DriverCosts(**{n: us / 1e6 for n, us in stated.items()})


if __name__ == "__main__":
    raise SystemExit(main())
