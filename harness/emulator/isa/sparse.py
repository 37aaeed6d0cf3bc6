"""Products of a sparse matrix and a dense one on a warp's tensor cores (ISA 9.7.14.6).

Half of a's elements are zero and not stored; a metadata operand says which. A form of mma.sp is a row of `ROWS`;
`ptxdiff.emulator.kernel.warp.sparse_mma` runs them all.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxdiff.emulator.isa.facts import Facts
from ptxdiff.emulator.isa.registry import operation
from ptxdiff.emulator.targets import Requirement

_ORDERED = ".sp::ordered_metadata"
_F8, _F8F6F4 = ".e4m3 .e5m2", ".e4m3 .e5m2 .e3m2 .e2m3 .e2m1"
_BYTES, _NIBBLES = ".u8 .s8", ".u4 .s4"


@dataclass(frozen=True)
class SparseRow:
    """Forms of mma.sp: shapes, types of d (and c) and a, the type of b if it may differ from a's, and requirements."""

    shapes: str
    d: str
    a: str
    b: str = ""
    requires: Requirement | int | str = 80
    variants: str = f".sp {_ORDERED}"
    kind: str = ""
    tail: str = ""


ROWS = (
    SparseRow("m16n8k16 m16n8k32", ".f16", ".f16"),
    SparseRow("m16n8k16 m16n8k32", ".f32", ".f16"),
    SparseRow("m16n8k16 m16n8k32", ".f32", ".bf16"),
    SparseRow("m16n8k8 m16n8k16", ".f32", ".tf32"),
    SparseRow("m16n8k64", ".f32", _F8, _F8, requires=89),
    SparseRow("m16n8k64", ".f16", _F8, _F8, requires="120f", variants=_ORDERED),
    SparseRow("m16n8k64", ".f32", _F8, _F8, requires="100f 110f", variants=_ORDERED, kind=".kind::f8f6f4"),
    SparseRow("m16n8k64", ".f32", _F8F6F4, _F8F6F4, requires="120f", variants=_ORDERED, kind=".kind::f8f6f4"),
    SparseRow("m16n8k64", ".f16", _F8F6F4, _F8F6F4, requires="120f", variants=_ORDERED, kind=".kind::f8f6f4"),
    SparseRow("m16n8k32 m16n8k64", ".s32", _BYTES, _BYTES, tail="{.satfinite}"),
    SparseRow("m16n8k64 m16n8k128", ".s32", _NIBBLES, _NIBBLES, tail="{.satfinite}"),
)

for _row in ROWS:
    operation(
        f"mma.variant.sync.aligned.shape.row.col{_row.kind}{_row.tail}.dtype.atype.btype.ctype",
        "mma_sp",
        section="9.7.14.6.3",
        requires=_row.requires,
        variant=_row.variants,
        shape=" ".join(f".{shape}" for shape in _row.shapes.split()),
        dtype=_row.d,
        atype=_row.a,
        btype=_row.b or _row.a,
        ctype=_row.d,
        facts=Facts(effects=False, exchanges="operands", product="warp"),
    )
