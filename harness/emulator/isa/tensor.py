"""Products of small matrices on a warp's tensor cores, and moves of their fragments (ISA 9.7.14.5).

A form of mma is a row of `ROWS`; `ptxdiff.emulator.kernel.warp.mma` runs them all, with
`ptxdiff.emulator.numeric.tensorcore`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ptxdiff.emulator.isa.facts import Facts
from ptxdiff.emulator.isa.registry import operation
from ptxdiff.emulator.targets import Requirement


@dataclass(frozen=True)
class Row:
    """Forms of mma: shapes, types of d, a, b and c, and requirements. `tail`: modifiers after the types."""

    shapes: str
    d: str
    a: str
    b: str = ""
    c: str = ""
    requires: Requirement | int | str = 80
    layouts: str = ".row.col"
    tail: str = ""
    kind: str = ""


_F8, _F8F6F4 = ".e4m3 .e5m2", ".e4m3 .e5m2 .e3m2 .e2m3 .e2m1"
_SAT = "{.satfinite}"

# Forms in which two types must be equal (a and b of f16, c and d of f16) have their own rows.
ROWS = (
    Row("m8n8k4", ".f16", ".f16", c=".f16", requires=70, layouts=".alayout.blayout"),
    Row("m8n8k4", ".f32", ".f16", c=".f16 .f32", requires=70, layouts=".alayout.blayout"),
    Row("m16n8k8", ".f16", ".f16", requires=75),
    Row("m16n8k8", ".f32", ".f16", requires=75),
    Row("m16n8k16", ".f16", ".f16"),
    Row("m16n8k16", ".f32", ".f16"),
    Row("m16n8k8 m16n8k16", ".f32", ".bf16"),
    Row("m16n8k4 m16n8k8", ".f32", ".tf32"),
    Row("m16n8k16 m16n8k32", ".f32", _F8, _F8, requires=89),
    Row("m16n8k16 m16n8k32", ".f16", _F8, _F8, requires=89),
    *(
        Row(shape, d, types, types, requires=requires, kind=".kind::f8f6f4")
        for d in (".f32", ".f16")
        for shape, types, requires in (
            ("m16n8k16", _F8, "100f 110f 120f"),
            ("m16n8k32", _F8, "100f 110f"),
            ("m16n8k32", _F8F6F4, "120f"),
        )
    ),
    Row("m8n8k4", ".f64", ".f64", layouts=".row.col", tail="{.rnd}"),
    Row("m16n8k4 m16n8k8 m16n8k16", ".f64", ".f64", requires=90, tail="{.rnd}"),
    Row("m8n8k16", ".s32", ".u8 .s8", ".u8 .s8", requires=75, tail=_SAT),
    Row("m16n8k16 m16n8k32", ".s32", ".u8 .s8", ".u8 .s8", tail=_SAT),
    Row("m8n8k32", ".s32", ".u4 .s4", ".u4 .s4", requires=75, tail=_SAT),
    Row("m16n8k32 m16n8k64", ".s32", ".u4 .s4", ".u4 .s4", tail=_SAT),
)


_PRODUCT = Facts(effects=False, exchanges="operands", product="warp")


def _declare(row: Row) -> None:
    choices = {"shape": " ".join(f".{s}" for s in row.shapes.split()), "dtype": row.d, "atype": row.a}
    if row.layouts != ".row.col":
        choices |= {"alayout": ".row .col", "blayout": ".row .col"}
    choices |= {"btype": row.b or row.a, "ctype": row.c or row.d}
    if row.tail == "{.rnd}":
        choices["rnd"] = ".rn .rz .rm .rp"
    # The ISA puts .rnd and .satfinite between the types; the order of modifiers that are no types is free.
    operation(
        f"mma.sync.aligned.shape{row.layouts}{row.kind}{row.tail}.dtype.atype.btype.ctype",
        "mma",
        section="9.7.14.5.14",
        requires=row.requires,
        facts=_PRODUCT,
        **choices,
    )


for _row in ROWS:
    _declare(_row)
operation(
    "mma.sync.aligned.shape.row.col.s32.b1.b1.s32.op.popc",
    "mma",
    section="9.7.14.5.14",
    requires=75,
    shape=".m8n8k128",
    op=".xor",
    facts=_PRODUCT,
)
operation(
    "mma.sync.aligned.shape.row.col.s32.b1.b1.s32.op.popc",
    "mma",
    section="9.7.14.5.14",
    requires=80,
    shape=".m16n8k128 .m16n8k256",
    op=".xor",
    facts=_PRODUCT,
)
operation(
    "mma.sync.aligned.shape.row.col.s32.b1.b1.s32.op.popc",
    "mma",
    section="9.7.14.5.14",
    requires=80,
    shape=".m8n8k128 .m16n8k128 .m16n8k256",
    op=".and",
    facts=_PRODUCT,
)
operation(
    "movmatrix.sync.aligned.m8n8.trans.b16",
    "movmatrix",
    section="9.7.14.5.17",
    requires=75,
    facts=replace(_PRODUCT, product=""),
)
