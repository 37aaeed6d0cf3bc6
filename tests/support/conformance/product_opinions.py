"""Compare products of 8, 6 and 4-bit floats that no available hardware has with a definition independent of the
emulator's.

    python tests/support/conformance/product_opinions.py --write

runs each form of mma, dense, sparse and block-scaled, on tiles of seven kinds of magnitudes. It writes into the ledger
on how many elements of d the definition of `tensor_products` agreed with the emulator. Registers go through a whole
kernel, so that the places of elements, scales and metadata are compared too. A form that targets compute in different
ways is run for each.
"""

from __future__ import annotations

import argparse
import re
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxdiff.conformance import ledger, product_campaign, product_forms, products
from ptxdiff.emulator.targets import Target
from tests.support.conformance import product_tiles
from tests.support.conformance import tensor_products as t
from tests.support.conformance.opinions import Verdict
from tests.support.conformance.packed_opinions import finished
from tests.support.conformance.product_tiles import KINDS, Tiles

TILES = 56 * len(KINDS)
"""The number of tiles of a form; each has 128 elements of d."""
PUBLISHED = "published model in float64"
_FORM = re.compile(
    r"mma(?P<sparse>\.sp::ordered_metadata)?\.sync\.aligned\.m16n8k(?P<k>\d+)\.row\.col(?:\.kind::(?P<kind>\w+))?"
    r"(?:\.block_scale(?:\.scale_vec::(?P<blocks>\d)X)?)?\.(?P<to>f32|f16)\.(?P<a>e\dm\d)\.(?P<b>e\dm\d)\.(?P=to)"
    r"(?:\.(?P<scale>ue\dm\d))?(?P<other> ?)"
)


@dataclass(frozen=True)
class Product:
    """What the name of a form says. `blocks`: the number of scales along k, 0 if there are none."""

    form: str
    sparse: bool
    k: int
    kind: str
    to: str
    names: tuple[str, str]
    scale: str
    blocks: int

    @property
    def targets(self) -> tuple[str, ...]:
        """A target that has the form; and sm_120a, if that has the form and computes it in another way."""
        bound = product_forms.bounds_of()[self.form]
        first = product_forms.target_of(bound)
        both = first != "sm_120a" and bound.requirement_unmet(Target.parse("sm_120a")) is None
        return (first, "sm_120a") if both else (first,)

    @property
    def bits(self) -> int:
        """The bits of an element of a or b."""
        return 4 if self.k == 64 and self.scale else 8


def product(form: str) -> Product | None:
    """What a form multiplies; None if this module has no definition of it."""
    found = _FORM.fullmatch(form)
    if found is None or (found["sparse"] and found["scale"]):  # `dot_sparse` is for sparse and scaled ones
        return None
    w = found.groupdict()
    blocks = int(w["blocks"] or (2 if w["k"] == "64" else 1)) if w["scale"] else 0
    return Product(
        form, bool(w["sparse"]), int(w["k"]), w["kind"] or "", w["to"], (w["a"], w["b"]), w["scale"] or "", blocks
    )


def known() -> dict[str, Product]:
    """The forms of the ledger that hardware has not confirmed and that this module defines."""
    found = {form: product(form) for form, e in ledger.current().items() if e.status == ledger.SPECIFICATION}
    return {form: c for form, c in found.items() if c is not None}


def tiles(c: Product, count: int) -> Tiles:
    """The tiles of a form; the same in every call."""
    seed = zlib.crc32(c.form.encode())
    return product_tiles.drawn(c.names, c.k, c.to, count, c.scale, c.blocks, c.sparse, seed)


def operands(c: Product, some: Tiles) -> list[Any]:
    """Registers of a, b and c, and of scales or metadata."""
    rng = np.random.default_rng(2)
    a, b = some.a, some.b
    if c.bits == 8:
        a, b = (product_tiles.contained(x, n, rng) for x, n in zip((a, b), c.names, strict=True))
    found = [product_tiles.of_rows(a, c.bits, True), product_tiles.of_rows(b, c.bits, False)]
    found.append(product_tiles.of_c(some.c, 32 if c.to == "f32" else 16))
    if c.sparse:
        found.append(product_tiles.of_metadata(some.kept))
    if c.scale:
        found += [product_tiles.of_scales(some.a_scales), product_tiles.of_scales(some.b_scales)]
    return found


def expected(c: Product, some: Tiles, target: str) -> Any:
    """Codes of d: tiles x 16 x 8."""
    shape = (*some.c.shape, some.a.shape[-1])
    a = np.broadcast_to(some.a[:, :, None, :], shape)
    if c.sparse:
        columns = np.broadcast_to(some.kept[:, :, None, :], shape)
        rows = np.broadcast_to(some.b[:, None], (*some.c.shape, c.k))
        b = np.take_along_axis(rows, columns, axis=-1)
    else:
        b = np.broadcast_to(some.b[:, None], shape)
    if c.scale:
        return _scaled(c, some, a, b)
    if target.startswith(("sm_10", "sm_11")):
        return t.widened(a, b, some.c, c.names, c.to)
    return t.block(a, b, some.c, c.names, c.to)


def _scaled(c: Product, some: Tiles, a: Any, b: Any) -> Any:
    (x, x_exponent), (y, y_exponent) = (t.parts(s, c.scale) for s in (some.a_scales, some.b_scales))
    scales = x[:, :, None] * y[:, None], x_exponent[:, :, None] + y_exponent[:, None]
    if c.kind == "mxf8f6f4":
        return t.block(a, b, some.c, c.names, c.to, scales=scales)
    each = c.k // t.GROUP // c.blocks
    return t.grouped(a, b, some.c, tuple(s.repeat(each, axis=-1) for s in scales))


def run(c: Product, target: str, registers: list[Any]) -> Any:
    """The emulator's registers of d."""
    module = product_campaign if c.sparse or c.scale else products
    return module.emulated(module.program(c.form, target), registers)


def verdict_on(c: Product, count: int = TILES) -> Verdict:
    """The verdict on one form, for each of its targets."""
    found = Verdict()
    some = tiles(c, count)
    registers = operands(c, some)
    for target in c.targets:
        codes = product_tiles.of_c(expected(c, some, target), 32 if c.to == "f32" else 16)
        got = run(c, target, registers)
        if c.to == "f16":
            codes, got = (x.astype(np.uint32).view(np.uint16) for x in (codes, got))
        found.add(c.form, got.ravel().astype(np.int64), {PUBLISHED: codes.ravel().astype(np.int64)}, _shown(c, target))
    return found


def _shown(c: Product, target: str) -> Any:
    halves = 2 if c.to == "f16" else 1

    def shown(place: int) -> str:
        lane = place // halves % 32
        tile, register = divmod(place // halves // 32, 4 // halves)
        return f"{target}: tile {tile} ({KINDS[tile % len(KINDS)]}), register {register} of lane {lane}"

    return shown


def verdicts(chosen: Iterable[Product], count: int = TILES) -> Iterator[dict[str, Verdict]]:
    """Yield the verdicts as they are ready."""
    for c in chosen:
        yield {c.form: verdict_on(c, count)}


def main() -> int:
    """Run all forms, print the differences, and with --write write the ledger if there are none."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tiles", type=int, default=TILES, help=f"tiles of a form (default: {TILES})")
    parser.add_argument("--only", default="", help="forms that begin so")
    parser.add_argument("--write", action="store_true", help="put the result into the ledger")
    args = parser.parse_args()
    chosen = [c for form, c in known().items() if form.startswith(args.only)]
    started, found = time.process_time(), {}
    for number, part in enumerate(verdicts(chosen, args.tiles), 1):
        found |= part
        if number % 20 == 0 or number == len(chosen):
            print(f"{number} of {len(chosen)} forms, {time.process_time() - started:.0f} s", flush=True)
    return finished(found, args.write)


if __name__ == "__main__":
    raise SystemExit(main())
