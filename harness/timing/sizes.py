"""The sizes at which a case is timed, from the device's L2: small, as large as the L2, and several times larger."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ptxdiff.jobs import FILLING_BLOCK, Setup, block_of
from ptxdiff.model.arguments import format_of
from ptxdiff.model.case import Case
from ptxdiff.model.derive import packs_of
from ptxdiff.model.variants import AsmVariant, LaunchedVariant, Variant
from ptxdiff.references.formats import Shaped

SMALL = 1 << 16  # elements
TIMES_L2 = 4  # tensors of this many times the L2 leave none of their own lines in it


@dataclass(frozen=True)
class Size:
    """One size. name: "small", "L2", "large", or "" for one that was asked for.

    elements: storage units of the elementwise shape, or of a whole kernel's largest tensor; bytes: all inputs read
    once and all outputs written once. sizes: for whole kernels, the value of each dimension's name.
    """

    name: str
    elements: int
    bytes: int
    sizes: Mapping[str, int] = field(default_factory=dict)


def sizes_of(case: Case, l2: int) -> list[Size]:
    """The three sizes: 2^16 elements; the largest power of two that fits into the L2; the smallest of 4 times the L2.

    For a whole kernel, the first dimension of its largest `sizes` grows by powers of two; the others stay as the case
    has them. l2: bytes.
    """
    if not case.elementwise:
        return _kernel_sizes(case, l2)
    unit = unit_bytes(case)
    within = 1 << max(0, (l2 // unit).bit_length() - 1)
    beyond = 1 << max(0, -(-TIMES_L2 * l2 // unit) - 1).bit_length()
    return [Size("small", SMALL, SMALL * unit), Size("L2", within, within * unit), Size("large", beyond, beyond * unit)]


def sized(case: Case, elements: int) -> Size:
    """The size with this many elements, or the next above it that a whole kernel's first dimension allows."""
    if case.elementwise:
        return Size("", elements, elements * unit_bytes(case))
    return next(s for s in _grown(case) if s.elements >= elements)


def _kernel_sizes(case: Case, l2: int) -> list[Size]:
    found = list(_grown(case, TIMES_L2 * l2))
    within = [s for s in found if s.bytes <= l2] or found[:1]
    small = next((s for s in found if s.elements >= SMALL), found[-1])
    chosen = {"small": small, "L2": within[-1], "large": found[-1]}
    return [Size(name, s.elements, s.bytes, s.sizes) for name, s in chosen.items()]


def _grown(case: Case, limit: int = 1 << 40) -> list[Size]:
    """The case's largest size, and larger ones with its first dimension doubled, up to `limit` bytes."""
    largest = max(case.sizes, key=lambda sizes: _measured(case, sizes)[1])
    first = next(iter(largest))
    found: list[Size] = []
    rows = 1 << max(0, largest[first] - 1).bit_length()
    while not found or (found[-1].bytes < limit and found[-1].elements < 1 << 30):
        sizes = {**largest, first: rows << len(found)}
        found.append(Size("", *_measured(case, sizes), sizes))
    return found


def _measured(case: Case, sizes: Mapping[str, int]) -> tuple[int, int]:
    """The units of the largest tensor, and the bytes of all."""
    tensors = [a for a in (*case.inputs.values(), *case.outputs.values()) if isinstance(a, Shaped)]
    units = [math.prod(a.shape(sizes)) for a in tensors]
    return max(units), sum(n * format_of(a).unit_bits // 8 for n, a in zip(units, tensors, strict=True))


def unit_bytes(case: Case) -> int:
    """Bytes of one element over all inputs and outputs of an elementwise case."""
    return sum(format_of(a).unit_bits // 8 for a in (*case.inputs.values(), *case.outputs.values()))


def setup_of(case: Case, variant: Variant, size: Size) -> Setup:
    """How a variant is launched for timing: its largest pack, blocks of 1024 elements, aligned pointers."""
    if isinstance(variant, LaunchedVariant):
        shape = () if size.sizes else (size.elements,)
        return Setup(shape=shape, sizes=size.sizes, num_warps=variant.num_warps, fusion=bool(variant.fusion))
    pack = max(packs_of(case, variant)) if isinstance(variant, AsmVariant) else 1
    return Setup(
        pack=pack, shape=(size.elements,), block=max(FILLING_BLOCK, block_of(pack)), fusion=bool(variant.fusion)
    )
