"""Instruction descriptors of tcgen05.mma (ISA 9.7.16.4.2, tables 42 to 44): fields by kind, in one table.

A bit outside all fields must be 0, and a field's value must be in the table. Bits that only some targets have are in
`LONGER`. The shapes of each kind are in ISA 9.7.16.2.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from ptxdiff.emulator.targets import Requirement, requirement


@dataclass(frozen=True)
class Field:
    """A field of a descriptor: its lowest bit, its width, and the meaning of each allowed value."""

    name: str
    at: int
    bits: int
    meanings: Mapping[int, object]


_NO, _FLAG = {0: 0}, {0: False, 1: True}
_ANY_TWO = {n: n for n in range(4)}
_NARROW = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}
_COLUMNS = {n: 8 * n for n in range(1, 33)}
_EVEN = {0: 0, 2: 2}


def _plain(d: Mapping[int, object], a: Mapping[int, object], *, integer: bool = False) -> tuple[Field, ...]:
    """Table 42. The sparsity selector is 0 without .sp, and the largest shift is 0 without .ws."""
    return (
        Field("saturate", 3, 1, _FLAG if integer else _NO),
        Field("d", 4, 2, d),
        Field("a", 7, 3, a),
        Field("b", 10, 3, a),
        Field("negate_a", 13, 1, _NO if integer else _FLAG),
        Field("negate_b", 14, 1, _NO if integer else _FLAG),
        Field("across_a", 15, 1, _FLAG),
        Field("across_b", 16, 1, _FLAG),
        Field("n", 17, 6, _COLUMNS),
        Field("m", 24, 5, {m >> 4: m for m in (32, 64, 128, 256)}),
        Field("shift", 30, 2, _ANY_TWO),
    )


def _scaled(
    a: Mapping[int, object], bits_of_b: int, scales: Mapping[int, object], parts: Mapping[int, object], across: bool
) -> tuple[Field, ...]:
    """Tables 43 and 44. parts: the bytes of a column at which scales may begin."""
    return (
        Field("part_b", 4, 2, parts),
        Field("a", 7, 3, a),
        Field("b", 10, bits_of_b, a),
        Field("negate_a", 13, 1, _FLAG),
        Field("negate_b", 14, 1, _FLAG),
        Field("across_a", 15, 1, _FLAG if across else _NO),
        Field("across_b", 16, 1, _FLAG if across else _NO),
        Field("n", 17, 6, _COLUMNS),
        Field("scale", 23, 1, scales),
        Field("m", 27, 2, {1: 128, 2: 256}),
        Field("part_a", 29, 2, parts),
    )


FIELDS: dict[str, tuple[Field, ...]] = {
    "f16": _plain({0: "f16", 1: "f32"}, {0: "f16", 1: "bf16"}),
    "tf32": _plain({1: "f32"}, {2: "tf32"}),
    "f8f6f4": _plain({0: "f16", 1: "f32"}, _NARROW),
    "i8": _plain({2: "s32"}, {0: "u8", 1: "s8"}, integer=True),
    "mxf8f6f4": _scaled(_NARROW, 3, {1: "ue8m0"}, _ANY_TWO, True),
    "mxf4": _scaled({1: "e2m1"}, 2, {1: "ue8m0"}, _EVEN, False),
    "mxf4nvf4": _scaled({1: "e2m1"}, 2, {0: "ue4m3", 1: "ue8m0"}, _EVEN, False),
}


@dataclass(frozen=True)
class Longer:
    """A bit of a dense product's descriptor that makes k longer, and the targets that have it. The emulator computes no
    such product: no published model says how these tensor cores add so many terms."""

    bit: int
    k: int
    targets: Requirement


_FOUR_BITS = (Longer(31, 96, requirement("103f")), Longer(3, 128, requirement("107f")))
LONGER = {"mxf8f6f4": (Longer(31, 64, requirement("107f")),), "mxf4": _FOUR_BITS, "mxf4nvf4": _FOUR_BITS}
"""ISA 9.7.16.4.2, table 44 (96); CUTLASS, include/cute/arch/mma_sm107_desc.hpp (64 and 128)."""

K = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}
SCALE_BLOCKS = {
    ("mxf8f6f4", None): 32, ("mxf8f6f4", "scale_vec::1X"): 32, ("mxf8f6f4", "block32"): 32,
    ("mxf4", None): 32, ("mxf4", "scale_vec::2X"): 32, ("mxf4", "block32"): 32,
    ("mxf4nvf4", "scale_vec::2X"): 32, ("mxf4nvf4", "block32"): 32,
    ("mxf4nvf4", "scale_vec::4X"): 16, ("mxf4nvf4", "block16"): 16,
}  # fmt: skip
"""How many elements share a scale, by kind and modifier."""


@dataclass(frozen=True)
class InstructionDescriptor:
    """A product's shape, its types by PTX name, and the options of its operands; `block`: elements that share a scale.

    `part_a`, `part_b`: the byte of a column at which a's and b's scales begin.
    """

    m: int
    n: int
    k: int
    d: str
    a: str
    b: str
    negate_a: bool = False
    negate_b: bool = False
    across_a: bool = False
    across_b: bool = False
    saturate: bool = False
    scale: str = ""
    block: int = 0
    part_a: int = 0
    part_b: int = 0
    sparse: bool = False
    selector: int = 0

    @property
    def stored(self) -> int:
        """How many elements of a row of a are stored."""
        return self.k // 2 if self.sparse else self.k


@cache
def decoded(
    code: int, kind: str, ws: bool, block: int, pair: bool = False, sparse: bool = False
) -> InstructionDescriptor | str:
    """The descriptor that 32 bits encode for a kind, or an error message if ISA 9.7.16.4.2 does not allow them.

    pair: two blocks multiply. sparse: bit 2 must be set, and bits 0 and 1 are the sparsity selector of f16 and tf32.
    """
    selector = code & 3 if sparse else 0
    if sparse:
        if not code & 4:
            return "bit 2 (sparsity) is 0, which a product with a sparse a (.sp) sets"
        if selector > (kind in ("f16", "tf32")):
            most = "0 or 1" if kind in ("f16", "tf32") else "0 alone"
            return f"the sparsity selector (bits 0 and 1) is {selector}; .kind::{kind} takes {most}"
        code &= ~7
    left, values = code, dict[str, object]()
    for one in FIELDS[kind]:
        value = code >> one.at & (1 << one.bits) - 1
        left &= ~((1 << one.bits) - 1 << one.at)
        if value not in one.meanings:
            known = ", ".join(map(str, one.meanings))
            return f"bits {one.at} to {one.at + one.bits - 1} ({one.name}) are {value}; .kind::{kind} takes {known}"
        values[one.name] = one.meanings[value]
    if left:
        return f"bits are set that no field of .kind::{kind} has (0x{left:x})"
    if values.pop("shift", 0) and not ws:
        return "the largest shift (bits 30, 31) is for tcgen05.mma.ws"
    shape = {"k": K[kind] * (1 + sparse), "block": block, "sparse": sparse, "selector": selector}
    found = InstructionDescriptor(**{"d": "f32", **shape, **values})  # type: ignore[arg-type]
    return _unshaped(found, kind, ws, pair) or found


def _unshaped(found: InstructionDescriptor, kind: str, ws: bool, pair: bool) -> str:
    """An error message for an invalid shape or combination of types; "" if both are valid.

    Numbers of columns are those of ISA 9.7.16.2.1, table 39, and for an N-major b of 8 bits an element those of the
    table in 9.7.16.10.1.
    """
    m, n = found.m, found.n
    sizes: object
    if kind == "f16" and found.a != found.b:
        return f"a is {found.a} and b is {found.b}; .kind::f16 multiplies numbers of one type"
    if kind == "f16" and found.d == "f16" and found.a == "bf16":
        return "products of bf16 go to f32"
    if pair and m not in (128, 256):
        return f"it has {m} rows; a pair of blocks (.cta_group::2) multiplies 128 or 256"
    if m == 256 and not pair:
        return "it has 256 rows, which a pair of blocks (.cta_group::2) alone takes"
    if pair and found.sparse and found.block and m == 128:
        return "it has 128 rows; sparse scaled products of a pair have 256 alone (ISA 9.7.16.2.1, table 39)"
    turned = found.across_b and found.b in ("e4m3", "e5m2", "s8", "u8")
    if pair:
        step = 32 if kind == "i8" or turned else 16
        sizes, good = f"multiples of {step} from a pair of blocks", n % step == 0
    elif ws:
        sizes = "64 or 128 where a is sparse" if found.sparse else "64, 128 or 256"
        good = n in ((64, 128) if found.sparse else (64, 128, 256))
    elif turned:
        sizes, good = "multiples of 16 of an N-major b of 8 bits an element", n % 16 == 0
    elif kind == "i8":
        sizes, good = "8, 16, 24 and multiples of 16", n in (8, 24) or n % 16 == 0
    else:
        sizes, good = "multiples of 8", True
    if m == 32 and not ws:
        return "it has 32 rows, which tcgen05.mma.ws alone takes"
    if not good:
        return f"it has {n} columns; .kind::{kind} with {m} rows takes {sizes}"
    if m == 128 and n % 16 and not (pair or ws or found.block):
        return (
            f"it has {n} columns and 128 rows: table 39 of the ISA has them, CUTLASS asserts multiples of 16, and no "
            "GPU has shown which is right; take a multiple of 16"
        )
    across = [t for t, whether in ((found.a, found.across_a), (found.b, found.across_b)) if whether]
    if any(t in ("e2m3", "e3m2", "e2m1") for t in across):
        return "a matrix of 6 or 4 bits an element is K-major"
    if block_parts(found) > 4 - max(found.part_a, found.part_b):
        return f"{block_parts(found)} scales a row begin at byte {max(found.part_a, found.part_b)} of a column's 4"
    return ""


def block_parts(found: InstructionDescriptor) -> int:
    """How many scales a row of a has; 0 for a kind without scales."""
    return found.stored // found.block if found.block else 0
