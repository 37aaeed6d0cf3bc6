"""Measures all forms of products within a time budget: one process for each core, which share the GPUs.

The cheapest forms come first. If there is not enough time for all, a limit holds for each form, chosen so that as many
forms as possible reach the goal and the others get about the same time.
"""

from __future__ import annotations

import hashlib
import math
import multiprocessing as mp
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxdiff.conformance import products, sparse_tiles
from ptxdiff.conformance.measure import Tally
from ptxdiff.conformance.product_forms import bounds_of
from ptxdiff.conformance.products import ProductDevice
from ptxdiff.emulator.errors import NotElementwise, PtxError
from ptxdiff.emulator.kernel.run import Buffer, load_kernel, run_kernel
from ptxdiff.emulator.kernel.warp import sparse_mma
from ptxdiff.emulator.numeric.vectorise import Array
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
    for index, each in enumerate(waiting):
        share = budget / (len(waiting) - index)
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
    from ptxdiff.conformance import group_rounds, products

    if not _device:
        _device.append(ProductDevice())
    if form.startswith("wgmma"):
        return group_rounds.measured(_device[0], form, tiles, seconds, start)
    if bounds_of()[form].form.operation != "mma":
        return measured(_device[0], form, tiles, seconds, start)
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
        for device_number in places_of_workers(number, target):
            places.put(device_number)
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
                    message = tally.refused or tally.failure or f"{tally.mismatches:,} of {tally.inputs:,} tiles differ"
                    progress(f"{name}: {message}")
    return done


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def places_of_workers(number: int, target: str) -> list[tuple[int | None, str | None]]:
    """For each process a core and a value of CUDA_VISIBLE_DEVICES; None leaves them as they are."""
    cores: list[int | None] = [*_cores()] if hasattr(os, "sched_setaffinity") else [None]
    fitting = [g for g in gpus() if g.target == target]
    names = {g.name for g in fitting[:1]}
    seen: list[str | None] = [g.visible for g in fitting if g.name in names] or [None]
    return [(cores[n % len(cores)], seen[n % len(seen)]) for n in range(number)]


# Compare sparse and block-scaled mma on this machine's GPU with the emulator, tile by tile -------------------------
#
# Like `products`, with further operands: the metadata of a sparse matrix, or the scales of both. The selector is 0;
# tests without a GPU check the layouts of its other values.

TILES = 1 << 13
"""Tiles of one launch."""
_SCALES = "%x{0}, {{0, 0}}, %x{1}, {{0, 0}}"
_BEHIND = {"mma_sp": (1, "%x{0}, 0"), "mma_scaled": (2, _SCALES)}
_BEHIND["mma_sp_scaled"] = (3, "%x{0}, 0, %x{1}, {{0, 0}}, %x{2}, {{0, 0}}")
"""Registers of further operands, and how they are written."""


@dataclass(frozen=True)
class OtherKernel:
    """A form's kernel as PTX, and the emulator's product for the instruction. `extra`: operands after c."""

    text: str
    kind: str
    product: Any
    extra: int

    @property
    def counts(self) -> tuple[int, ...]:
        """Registers of a, b, c, the further operands, and d."""
        return (*self.product.counts[1:], *[1] * self.extra, self.product.counts[0])


@cache
def program(form: str, target: str) -> OtherKernel:
    """The kernel of a form. Raises PtxError if the emulator refuses it."""
    bound = bounds_of()[form]
    kind = bound.form.operation
    extra, behind = _BEHIND[kind]
    counts = _counts(form)
    names = [*"abc", *"xyz"[:extra], "d"]
    lines = products.opening(target, names, f".reg .b32 %x<{sum(counts) + extra}>;")
    at, groups, moves = 0, [], []
    for name, count in zip(names, (*counts[1:], *[1] * extra, counts[0]), strict=True):
        groups.append("{" + ", ".join(f"%x{at + i}" for i in range(count)) + "}")
        moves.append(_moves(name, "st" if name == "d" else "ld", count, at))
        at += count
    behind = behind.format(*range(sum(counts[1:]), sum(counts[1:]) + extra))
    lines += [line for some in moves[:-1] for line in some]
    lines.append(f"  {bound.spelling} {groups[-1]}, {', '.join(groups[:3])}, {behind};")
    text = "\n".join(lines + moves[-1] + products.CLOSING) + "\n"
    step = next(s for s in load_kernel(text).program.steps if s.kind == kind)
    return OtherKernel(text, kind, step.detail, extra)


def _counts(form: str) -> tuple[int, int, int, int]:
    """Registers of d, a, b and c, from the shape and the types alone."""
    from ptxdiff.emulator.numeric.tensorcore import BITS

    bound = bounds_of()[form]
    chosen = bound.modifiers
    k = int((chosen["shape"] or "").rpartition("k")[2])
    of_a, of_b = BITS[chosen["atype"] or ""], BITS[chosen["btype"] or ""]
    stored = k // 2 if bound.form.operation != "mma_scaled" else k
    if "scaled" in bound.form.operation:
        of_d = 32
        of_a, of_b = (4, 4) if k == (128 if stored < k else 64) else (8, 8)
    else:
        of_d = BITS[chosen["dtype"] or ""]
    return of_d // 8, 16 * stored * of_a // 1024, 8 * k * of_b // 1024, of_d // 8


def _moves(name: str, opcode: str, count: int, at: int) -> list[str]:
    lines = [
        f"  ld.param.u64 %q2, [{name}]; mul.wide.u32 %q3, %r2, {count * 128}; add.s64 %q2, %q2, %q3;",
        "  mul.wide.u32 %q3, %r3, 4; add.s64 %q2, %q2, %q3;",
    ]
    for i in range(count):
        register, address = f"%x{at + i}", f"[%q2+{i * 128}]"
        lines.append(
            f"  {opcode}.global.b32 " + (f"{register}, {address};" if opcode == "ld" else f"{address}, {register};")
        )
    return lines


def drawn(form: str, target: str, start: int, count: int) -> list[Array]:
    """Registers of a, b, c and the further operands, tiles x registers x lanes; equal for equal arguments."""
    known = program(form, target)
    return loaded(known, drawn_codes(form, target, start, count))


def drawn_codes(form: str, target: str, start: int, count: int) -> list[Array]:
    """Codes of a, b and c as matrices, and the words of the further operands, tiles x 1 x lanes."""
    known = program(form, target)
    seed = int.from_bytes(hashlib.sha256(f"{form} {start}".encode()).digest()[:7], "big")
    rng = np.random.default_rng(seed)
    kind = np.arange(count) % len(products.KINDS)
    scaled = "scaled" in known.kind
    types = ("f32", *known.product.types[:2], "f32") if scaled else known.product.arithmetic.types
    matrices = []
    for operand in (1, 2, 3):
        table = known.product.tables[operand]
        codes = products.codes(rng, types[operand], (count, *table.shape[1:]), kind, operand)
        if scaled and known.product.widths[operand] == 4:
            codes = codes >> np.uint64(2)  # 4-bit e2m1; those in a byte have two more bits below
        matrices.append(codes)
    scales = [_scales(rng, known, count) for _ in range(2)] if scaled else []
    if known.kind == "mma_scaled":
        return [*matrices, *scales]
    metadata = sparse_tiles.metadata(rng, known.product.storage, (count, 1, 32))
    if not scaled:
        sparse_tiles.cancel(rng, types, known.product.storage, matrices[0], matrices[1], kind)
    return [*matrices, metadata, *scales]


def loaded(known: OtherKernel, codes: list[Array]) -> list[Array]:
    """Registers of what `drawn_codes` gives."""
    by_operand = []
    for operand in (1, 2, 3):
        operand_words = products.registers(known.product, operand, codes[operand - 1])
        by_operand.append(operand_words.reshape(len(codes[0]), known.product.counts[operand], 32))
    return [*by_operand, *codes[3:]]


def _scales(rng: np.random.Generator, known: OtherKernel, count: int) -> Array:
    """Words of four scales: near one; for every eighth tile any code."""
    around = rng.integers(112, 143, (count, 1, 32, 4)) if known.product.types[2] == "ue8m0" else None
    codes = rng.integers(0, 256, (count, 1, 32, 4))
    if around is not None:
        codes = np.where((np.arange(count) % 8 == 0)[:, None, None, None], codes, around)
    scales: Array = np.ascontiguousarray(codes.astype(np.uint8)).view(np.uint32)[..., 0]
    return scales


def emulated(known: OtherKernel, operands: list[Array]) -> Array:
    """Registers of d, computed by the emulator."""
    count = len(operands[0])
    result = np.zeros((count, known.product.counts[0], 32), np.uint32)
    buffers = [Buffer(x, f"operand {i}") for i, x in enumerate([*operands, result])]
    run_kernel(
        load_kernel(known.text), [*buffers, count], (-(-count // products.WARPS),), num_threads=32 * products.WARPS,
        races=False, limit=None,
    )  # fmt: skip
    return result


def computed(known: OtherKernel, codes: list[Array], operands: list[Array]) -> Array:
    """Registers of d: by the definition's code where a is sparse, else as `emulated`.

    codes: what `drawn_codes` gives, narrowed. operands: the registers of these.
    """
    if known.kind != "mma_sp":
        return emulated(known, operands)
    product = known.product
    metadata = codes[3].reshape(-1, 32)
    where = sparse_mma.kept(sparse_mma.chunks_of(metadata, product.storage), product.storage)
    result = sparse_mma.multiplied(product.arithmetic, codes[0], codes[1], codes[2], where)
    return products.registers(product, 0, result).reshape(len(metadata), product.counts[0], 32)


def on_device(device: products.ProductDevice, known: OtherKernel, operands: list[Array]) -> Array:
    """Registers of d, computed by the GPU. Raises PtxError with ptxas's message."""
    result = np.zeros((len(operands[0]), known.product.counts[0], 32), np.uint32)
    device.launch(device.kernel(known.text), [*operands, result], 32 * len(result))
    return result


def measured(device: products.ProductDevice, form: str, count: int, seconds: float = math.inf, start: int = 0) -> Tally:
    """Compare the emulator with the device on `count` tiles, or as many as there is time for.

    The first TILES go through whole kernels. Further ones have a, b, c and what is behind of four of these. start:
    tells tiles of one run from those of another.
    """
    tally = Tally(form, "")
    ends = time.monotonic() + seconds
    try:
        known = program(form, device.identity.target)
        codes = drawn_codes(form, device.identity.target, start, min(TILES, count))
        operands = loaded(known, codes)
        codes = [products.narrow(x, w) for x, w in zip(codes, [*known.product.widths[1:], 32, 32, 32], strict=False)]
        expected = emulated(known, operands)
        if not np.array_equal(expected, computed(known, codes, operands)):
            tally.failure = products.APART
            return tally
        products.compare(tally, operands, expected, on_device(device, known, operands))
        tally.hosted = tally.reached = len(expected)
        turn = 0
        while tally.reached < count and time.monotonic() < ends and tally.mismatches <= tally.reached // 8:
            turn += 1
            some, moved = (
                [np.roll(x, turn * index * len(products.KINDS), axis=0) for index, x in enumerate(arrays)]
                for arrays in (codes, operands)
            )
            products.compare(tally, moved, computed(known, some, moved), on_device(device, known, moved))
            tally.reached += len(expected)
    except NotElementwise as e:
        tally.failure = str(e).splitlines()[0]
    except PtxError as e:
        tally.refused = str(e).splitlines()[0]
    return tally
