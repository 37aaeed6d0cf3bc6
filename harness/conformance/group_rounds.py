"""wgmma on very many tiles: a GPU runs the instruction and compares it with the definition's arithmetic itself.

A layout's matrices are drawn once. From round to round, a, b, the metadata and c are combined anew, within each kind of
magnitude. Three checks tie the comparison to the definition. Some tiles of each layout run in whole kernels of the
emulator. More of them, from the first round, are computed here by the definition's code. And one round gives the
arithmetic other matrices than the instruction: it must differ. Agreeing results are counted, so that a comparison that
did not run is detected.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptxdiff.conformance import device_model, group_products, products
from ptxdiff.conformance.group_products import GroupKernel
from ptxdiff.conformance.measure import OFFENDERS, Tally
from ptxdiff.emulator.errors import NotElementwise, PtxError
from ptxdiff.emulator.kernel.warp import sparse_mma
from ptxdiff.emulator.numeric.tensorcore import BITS, FLOATS
from ptxdiff.emulator.numeric.vectorise import Array

KINDS = len(products.KINDS)
DRAWN = 64 * KINDS
"""Tiles that are drawn for a layout of 64 columns or more; narrower layouts have more tiles."""
LAYOUTS = 4
"""Layouts of a form; each form has other layouts."""
HOSTED = 8 * KINDS
"""Tiles of a layout that the definition's code computes on the host."""
TURNS = 32
"""Rounds between two checks of the counts."""
BLIND = "the comparison on the device does not see other matrices"
"""The failure of a form whose comparison does not detect wrong matrices."""


def measured(device: products.ProductDevice, form: str, count: int, seconds: float = math.inf, start: int = 0) -> Tally:
    """Compare the emulator with the device on `count` tiles, or on as many as the time allows, layout by layout.

    start: a number that makes the tiles of one run differ from those of another.
    """
    tally = Tally(form, "")
    ends = time.monotonic() + seconds
    known = group_products.layouts_of(form)
    first, some = hashlib.sha256(f"{form} {start}".encode()).digest()[0], min(LAYOUTS, len(known))
    try:
        turn, operands, before = 0, [], 0
        while tally.reached < count and (not turn or time.monotonic() < ends) and not _settled(tally):
            kernel = group_products.program(form, device.identity.target, known[(first + turn) % len(known)])
            left = some - turn % some  # layouts that will still use these matrices
            if left == some:
                before = tally.reached
                operands = group_products.drawn(
                    kernel, f"{form} {start} {turn}", DRAWN * max(64 // kernel.product.b.rows, 1)
                )
            goal = tally.reached + -(-(count - tally.reached) // left)
            _layout(device, kernel, operands, tally, tally.reached - before, goal, _share(ends, left))
            turn += 1
    except NotElementwise as e:
        tally.failure = str(e).splitlines()[0]
    except PtxError as e:
        tally.refused = str(e).splitlines()[0]
    return tally


def _settled(tally: Tally) -> bool:
    return bool(tally.failure) or tally.mismatches > 64


def _share(ends: float, parts: int) -> float:
    now = time.monotonic()
    return now + (ends - now) / parts


def _cpu(target: str) -> str:
    return f"sm_{min(int(target.removeprefix('sm_').rstrip('af')), 90)}"


def _layout(
    device: products.ProductDevice, kernel: GroupKernel, operands: list[Array], tally: Tally, used: int, goal: int,
    ends: float,
) -> None:  # fmt: skip
    """Measure one layout until the form has `goal` tiles, time is up, or no rounds are left.

    used: tiles that were made of these matrices before.
    """
    tiles = len(operands[0])
    few = [x[:KINDS] for x in operands]
    given = group_products.arrays(kernel, few)
    if not np.array_equal(group_products.emulated(kernel, given), group_products.computed(kernel, few)):
        tally.failure = products.APART
        return
    turns = tiles // KINDS
    with loaded(device, kernel, operands) as rounds:
        got = rounds.run([0] * len(rounds.rolls))
        _hosted(tally, kernel, operands, got)
        # For this check the arithmetic gets each tile's neighbour of the same kind as b.
        if _right(rounds.check([0, KINDS, *[0] * 2], tiles), kernel).mean() > 0.5:
            tally.failure = BLIND
            return
        # Each layout continues where the previous one stopped, so that it has other tiles.
        start = turn = used // tiles
        while tally.reached < goal and turn < turns * turns and (turn == start or time.monotonic() < ends):
            batch = [_rolls(n, turns) for n in range(turn, min(turn + TURNS, turns * turns))]
            wrong = np.flatnonzero(~_right(rounds.agreeing(batch), kernel))
            tally.mismatches += len(wrong)
            tally.reached += len(batch) * tiles
            _explained(device, kernel, operands, tally, [(batch[w // tiles], int(w % tiles)) for w in wrong])
            if _settled(tally):
                return
            turn += len(batch)


def _rolls(turn: int, turns: int) -> list[int]:
    """The tiles by which a, b and the metadata are shifted: over all rounds, each a meets each b of its kind."""
    a = turn % turns
    return [KINDS * (n % turns) for n in (a, turn // turns + 2 * a, 3 * turn)]


def _right(agreeing: Array, kernel: GroupKernel) -> Array:
    """Which tiles agree in all of their results."""
    return np.asarray(agreeing == 64 * kernel.product.b.rows)


def _hosted(tally: Tally, kernel: GroupKernel, operands: list[Array], got: Array) -> None:
    """Compare the first tiles of the first round with the results of the definition's code on the host."""
    some = [x[:HOSTED] for x in operands]
    given = group_products.arrays(kernel, some)
    found = Tally(tally.form, "")
    group_products.compare(found, kernel, given, group_products.computed(kernel, some), got[:HOSTED])
    tally.hosted += KINDS
    tally.offenders += found.offenders[: OFFENDERS - len(tally.offenders)]
    if found.mismatches:
        # The rounds count these mismatches too, unless their comparison misses them.
        tally.mismatches += found.mismatches


def _explained(
    device: products.ProductDevice, kernel: GroupKernel, operands: list[Array], tally: Tally,
    wrong: list[tuple[list[int], int]],
) -> None:  # fmt: skip
    """Describe tiles that differ by their inputs and results, with the definition's code on the host."""
    for rolls, tile in wrong[: OFFENDERS - len(tally.offenders)]:
        one = _tile(operands, rolls, tile)
        given = group_products.arrays(kernel, one)
        found = Tally(tally.form, "")
        got = group_products.on_device(device, kernel, given)
        group_products.compare(found, kernel, given, group_products.computed(kernel, one), got)
        if not found.mismatches:
            tally.failure = "the definition gives other results on the device than on the host"
            return
        kind = products.KINDS[tile % KINDS]
        tally.offenders += [replace(o, variant=o.variant.replace(products.KINDS[0], kind, 1)) for o in found.offenders]


def _tile(operands: list[Array], rolls: list[int], tile: int) -> list[Array]:
    """a, b, c and the metadata of one tile of a round."""
    a, b, metadata = ((tile + n) % len(operands[0]) for n in rolls)
    where = [a, b, tile, *[metadata] * (len(operands) - 3)]
    return [x[n : n + 1] for x, n in zip(operands, where, strict=True)]


# on the device ----------------------------------------------------------------------------------------------------


@dataclass
class Rounds:
    """A layout's matrices on a device: the kernels of the instruction and of the comparison, and their addresses.

    `strides`: bytes of a tile: of the images, a's registers and the metadata; of the packed a and b, and of `w`.
    """

    device: products.ProductDevice
    kernels: tuple[Any, Any]
    tiles: int
    n: int
    result: Array
    places: dict[str, int]
    strides: dict[str, int]
    rolls: tuple[str, ...] = ("a", "b", "metadata")

    def run(self, rolls: list[int]) -> Array:
        """Run the instruction on all tiles of a round, and return its registers."""
        self._instruction(rolls)
        self.device.gpu.download(self.result, self.places["d"])
        return self.result

    def check(self, rolls: list[int], tiles: int) -> Array:
        """The number of agreeing results of each tile, for the round whose registers are in memory."""
        flags = np.zeros(tiles, np.uint32)
        self.device.gpu.upload(self.places["flags"], flags)
        self._compare(rolls, 0)
        self.device.gpu.download(flags, self.places["flags"])
        return flags

    def agreeing(self, batch: list[list[int]]) -> Array:
        """The number of agreeing results of each tile, over several rounds."""
        flags = np.zeros(len(batch) * self.tiles, np.uint32)
        self.device.gpu.upload(self.places["flags"], flags)
        for number, rolls in enumerate(batch):
            self._instruction(rolls)
            self._compare(rolls, number)
        self.device.gpu.download(flags, self.places["flags"])
        return flags

    def _instruction(self, rolls: list[int]) -> None:
        a, b, metadata = rolls
        given = [
            self._at("image", a), self._at("image", b), self._at("registers", a), self.places["c"],
            *([self._at("metadata", metadata)] if "metadata" in self.places else []), self.places["d"], self.tiles,
        ]  # fmt: skip
        self.device.gpu.launch(self.kernels[0], given, 128 * self.tiles)

    def _compare(self, rolls: list[int], number: int) -> None:
        a, b, metadata = rolls[:3]
        each = 64 * self.n // device_model.COLUMNS
        given = [
            self.places["flags"] + 4 * number * self.tiles, each, self._at("a", a), self._at("b", b),
            self._at("w", metadata), self.places["places"], self.places["c"], self.places["d"], self.n,
            each * self.tiles,
        ]  # fmt: skip
        self.device.gpu.launch(self.kernels[1], given, each * self.tiles)

    def _at(self, name: str, tile: int) -> int:
        return self.places[name] + tile * self.strides[name]


@contextmanager
def loaded(device: products.ProductDevice, kernel: GroupKernel, operands: list[Array]) -> Iterator[Rounds]:
    """The matrices of a layout on the device. Shifted ones lie there twice, so that a shift only changes an address."""
    gpu, tiles = device.gpu, len(operands[0])
    image, registers, c, *metadata = group_products.arrays(kernel, operands)
    found = {"image": image, "registers": registers, **decoded(kernel, operands)}
    if metadata:
        found["metadata"] = metadata[0]
    strides = {name: x.nbytes // tiles for name, x in found.items()}
    result = np.zeros_like(c)
    still = {
        "c": c, "d": result, "places": places(kernel), "flags": np.zeros(TURNS * tiles, np.uint32),
    }  # fmt: skip
    addresses: dict[str, int] = {}
    try:
        for name, array in {**{k: np.concatenate([x, x]) for k, x in found.items()}, **still}.items():
            addresses[name] = gpu.allocate(array.nbytes)
            gpu.upload(addresses[name], array)
        check = device_model.source(_cpu(device.identity.target), constants(kernel))
        launched = (device.kernel(kernel.apart), device.kernel(check, "check"))
        yield Rounds(device, launched, tiles, kernel.product.b.rows, result, addresses, strides)
    finally:
        for address in addresses.values():
            gpu.free(address)


def constants(kernel: GroupKernel) -> tuple[int, ...]:
    """The constants of the comparison's kernel: see `devicemodel.agreed`."""
    product = kernel.product
    words = 32 if product.a.type == "b1" else 1
    numbers = device_model.numbers(product.arithmetic).words()
    return (
        product.b.k // words, product.a.k // words, int(product.storage is not None), int(kernel.bits == 16), *numbers
    )  # fmt: skip


def decoded(kernel: GroupKernel, operands: list[Array]) -> dict[str, Array]:
    """a and b in the form of the comparison; for a sparse a, also the rows of b that its elements meet."""
    product = kernel.product
    a, b = (
        x ^ x.dtype.type(1 << BITS[m.type] - 1) if m.negative and m.type in FLOATS else x
        for x, m in zip(operands, (product.a, product.b), strict=False)
    )
    across = device_model.packed(np.ascontiguousarray(b.transpose(0, 2, 1)), product.b.type)
    found = {
        "a": device_model.packed(a, product.a.type), "b": np.ascontiguousarray(across.transpose(0, 2, 1)),
        "w": np.zeros((len(a), 1, 1), np.int32),
    }  # fmt: skip
    if product.storage is not None:
        where = sparse_mma.kept(sparse_mma.chunks_of(operands[3].reshape(-1, 32), product.storage), product.storage)
        found["w"] = where.reshape(a.shape).astype(np.int32)
    return found


def places(kernel: GroupKernel) -> Array:
    """The position of each of a tile's 64 x n results among its registers, counted in results."""
    table, per = kernel.product.table, 32 // kernel.bits
    word, half = np.divmod(table.reshape(16, -1).astype(np.int64), per)
    register, lane = np.divmod(word, 32)
    warps = np.arange(4)[:, None, None] * 32
    found = (register * 128 + warps + lane) * per + half
    return np.ascontiguousarray(found.reshape(64, -1).astype(np.int32))
