"""Speed in registers: the time of an application of an elementwise variant if nothing waits for memory.

At the memory's rate, variants are equally fast; in registers they are not. Both speeds together give the number of
results for each byte of memory traffic that a kernel must compute before the faster variant shortens it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from ptxdiff.records import statistics as speed
from ptxdiff.records.key import Amount, Count, Key
from ptxdiff.records.statistics import TOO_NOISY, Beside

Mode = Literal["throughput", "latency"]
MODES: tuple[Mode, ...] = get_args(Mode)
UNITS: Mapping[str, str] = {"throughput": "results a clock and SM", "latency": "clocks an application"}
ALONE = "(the loop alone)"
"""The variant's name for the loop without a variant."""
CLOCK = 1e-9
"""Seconds for one clock, because statistics expect seconds. All their results are ratios, or scaled back."""


@dataclass(frozen=True)
class InRegisters:
    """One elementwise variant repeated in registers, on one GPU: clocks of an application by a block of threads.

    key: backend "gpu"; shape is the mode, "throughput" (independent chains) or "latency" (one dependent chain); pack
    and num_warps are the loop's; context is "held" if the inputs keep their values, and "carried" if results become the
    next inputs; the variant `ALONE` is the loop without one. results: of one application. samples: in the order taken.
    low, high: 95% bootstrap interval of the median. noise: the smallest relative difference that the session's A/A run
    can tell from noise. opcodes: machine code of the loop by count, for throughput of one result, for latency of one
    application, without the loop's own. bytes: of an element's inputs and outputs. bytes_per_clock: those that a large
    copy reads and writes, for each SM and clock. megahertz: the SM's clock meanwhile. words: why nothing was timed;
    then there are no figures. device: the GPU's UUID. node, ptxas: as in `Result`; "" in older records.
    """

    key: Key
    results: Count = 0
    samples: tuple[Amount, ...] = ()
    median: Amount = 0.0
    low: Amount = 0.0
    high: Amount = 0.0
    noise: Amount = 0.0
    opcodes: Mapping[str, Amount] = field(default_factory=dict)
    bytes: Amount = 0.0
    bytes_per_clock: Amount = 0.0
    megahertz: Amount = 0.0
    words: str = ""
    device: str = ""
    node: str = ""
    ptxas: str = ""

    @property
    def mode(self) -> str:
        """ "throughput" or "latency"."""
        return self.key.shape

    @property
    def value(self) -> float:
        """Results a clock and SM (throughput), or clocks an application (latency)."""
        return self._value(self.median)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the value."""
        low, high = sorted((self._value(self.low), self._value(self.high)))
        return low, high

    def _value(self, clocks: float) -> float:
        return self.results / clocks if self.mode == "throughput" else clocks

    def beside(self, base: InRegisters, *, least: float = 0.0) -> Beside:
        """The ratio of an application's time to that of `base`, and whether it is a difference, as in `Timing`."""
        noise = max(self.noise, base.noise, least)
        if min(len(self.samples), len(base.samples)) > 1:
            one, other = ([CLOCK * s for s in m.samples] for m in (base, self))
            return speed.beside(one, other, noise)
        low, high = self.low / base.high, self.high / base.low
        return Beside(self.median / base.median, low, high, speed.verdict(low, high, noise))


def undecided(found: Beside, noise: float) -> bool:
    """Whether noise hides that one may be slower by more than `TOO_NOISY`. noise: the greater A/A figure of the two."""
    return found.verdict == "too noisy to say" and (noise > TOO_NOISY or found.high > 1 + TOO_NOISY)


def lost(before: InRegisters, after: InRegisters) -> dict[str, tuple[float, float]]:
    """Opcodes of which a loop has fewer than an earlier one did, with both counts of an application.

    An instruction that the compiler dropped, merged or moved out of the loop makes it faster, and is not measured.
    """
    pairs = {name: (count, after.opcodes.get(name, 0.0)) for name, count in before.opcodes.items()}
    return {name: (was, now) for name, (was, now) in pairs.items() if now < (1 - _ROUNDED) * was}


_ROUNDED = 0.02
"""A tolerance for counts: they are differences of two loops, divided, and not whole numbers for long loops."""


@dataclass(frozen=True)
class Pays:
    """Where a faster variant pays: above `intensity` results for each byte read or written.

    Below, a kernel waits for memory even with the slower one. each: results for each element, which has `bytes` bytes.
    """

    faster: str
    slower: str
    intensity: float
    each: float
    bytes: float


def pays(timed: Iterable[InRegisters]) -> Iterator[Pays | tuple[str, str, str]]:
    """Each variant beside the first, of one case on one target: where the faster one pays, or (one, first, verdict)."""
    group = [t for t in timed if t.mode == "throughput" and not t.words and t.key.variant != ALONE]
    for one in group[1:]:
        first = group[0]
        verdict = one.beside(first).verdict
        if verdict not in ("faster", "slower") or not first.bytes_per_clock:
            yield one.key.variant, first.key.variant, verdict
            continue
        faster, slower = (one, first) if verdict == "faster" else (first, one)
        intensity = slower.value / slower.bytes_per_clock
        yield Pays(faster.key.variant, slower.key.variant, intensity, intensity * slower.bytes, slower.bytes)


def pays_lines(timed: Sequence[InRegisters]) -> list[str]:
    """The results of `pays`, in sentences; the first states the memory's rate. Empty if nothing was timed."""
    known = next((t for t in timed if t.bytes_per_clock), None)
    if known is None:
        return []
    lines = [f"memory: {known.bytes_per_clock:.2f} bytes a clock and SM at {known.megahertz:.0f} MHz, by a copy"]
    for found in pays(timed):
        if isinstance(found, Pays):
            lines.append(
                f"{found.faster} pays over {found.slower} above {found.intensity:.2f} results for each byte of memory "
                f"traffic: {found.each:.1f} for each element of {found.bytes:g} bytes read and written"
            )
        else:
            one, first, verdict = found
            lines.append(f"{one} beside {first}: {verdict}; neither is faster")
    return lines
