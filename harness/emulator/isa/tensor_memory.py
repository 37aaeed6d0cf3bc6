"""The fifth generation of tensor cores (tcgen05): tensor memory, copies to it, and products (ISA 9.7.16).

An instruction is a row of `ROWS`. Products of one block and of pairs (`.cta_group::2`) run, dense and sparse (`.sp`).
`.ashift` is declared, and refused with a message when a kernel is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ptxdiff.emulator.isa.facts import Facts
from ptxdiff.emulator.isa.registry import operation

_HAVE = "100f 110f"
_SINGLE = "100a 103a 107a 110a"
_INTEGERS = "100a 110a"
_GROUP = ".cta_group::1 .cta_group::2"
_TO_128 = ".x1 .x2 .x4 .x8 .x16 .x32 .x64 .x128"
_FLOATS = ".kind::f16 .kind::tf32 .kind::f8f6f4"
_KINDS = f"{_FLOATS} .kind::i8 .kind::mxf8f6f4 .kind::mxf4 .kind::mxf4nvf4"
_HINTS = ("fill", "use", "lastuse", "discard")
_OF_A = " ".join(f".collector::a::{hint}" for hint in _HINTS)
_OF_B = " ".join(f".collector::b{n}::{hint}" for n in range(4) for hint in _HINTS)
_SHIFTED = f"{_OF_A} {' '.join(f'.collector::b{n}::fill' for n in range(4))}"


@dataclass(frozen=True)
class TensorRow:
    """Forms of tcgen05: what stands behind the opcode, section, operation, what they need, choices of modifiers."""

    pattern: str
    section: str
    operation: str
    requires: str = _HAVE
    choices: Mapping[str, str] = field(default_factory=dict)


def _moves(shapes: str, counts: str) -> tuple[TensorRow, ...]:
    """Loads and stores. A 16x128b or a 16x256b fills two or four registers, and at most 128 are there."""
    given = {"shape": shapes, "num": counts}
    return (
        TensorRow("ld.sync.aligned.shape.num{.pack::16b}.b32", "8.1", "ld", choices=given),
        TensorRow("st.sync.aligned.shape.num{.unpack::16b}.b32", "8.2", "st", choices=given),
    )


def _reductions() -> tuple[TensorRow, ...]:
    """Loads that also give the least or the greatest number of each thread."""
    given = {"shape": ".32x32b .16x32bx2", "num": _TO_128.removeprefix(".x1 "), "op": ".min .max"}
    pattern, requires = "ld.red.sync.aligned.shape.num.op", "101a 103f 110f"
    return (
        TensorRow(f"{pattern}{{.abs}}{{.NaN}}.f32", "8.1", "ld_red", requires, given),
        TensorRow(f"{pattern}.type", "8.1", "ld_red", requires, given | {"type": ".u32 .s32"}),
    )


def _copies(shapes: str, copies: str = "") -> tuple[TensorRow, ...]:
    """Copies of bytes, and of elements of 6 or 4 bits, which get a byte each."""
    pattern = f"cp.group.shape{'.copies' if copies else ''}"
    given = {"group": _GROUP, "shape": shapes} | ({"copies": copies} if copies else {})
    packed = given | {"packed": ".b6x16_p32 .b4x16_p64"}
    return (
        TensorRow(pattern, "9.2", "cp", choices=given),
        TensorRow(f"{pattern}.b8x16.packed", "9.2", "cp", choices=packed),
    )


def _products(kinds: str, requires: str) -> tuple[TensorRow, ...]:
    """Products without scales, by a block or a pair, and by the warps of a block (.ws)."""
    whole = {"group": _GROUP, "kind": kinds, "collector": _OF_A}
    warps = {"kind": kinds, "collector": _OF_B}
    return (
        TensorRow("mma.group.kind{.collector}", "10.9.1", "mma", requires, whole),
        TensorRow("mma.sp.group.kind{.collector}", "10.9.2", "mma", requires, whole),
        TensorRow("mma.ws.cta_group::1.kind{.collector}", "10.9.3", "mma", requires, warps),
        TensorRow("mma.ws.sp.cta_group::1.kind{.collector}", "10.9.4", "mma", requires, warps),
    )


def _scaled(kind: str, size: str, sizes: str, requires: str) -> tuple[TensorRow, ...]:
    """Products with block scales; sparse products of 4 bits alone are single targets' only (ptxas 13.4)."""
    given = {"group": _GROUP, "kind": f".kind::{kind}", "size": sizes, "collector": _OF_A}
    of_sparse = requires if kind == "mxf8f6f4" else _SINGLE
    return (
        TensorRow(f"mma.group.kind.block_scale{size}{{.collector}}", "10.9.1", "mma", requires, given),
        TensorRow(f"mma.sp.group.kind.block_scale{size}{{.collector}}", "10.9.2", "mma", of_sparse, given),
    )


_OF_GROUP = {"group": _GROUP}
ROWS = (
    TensorRow(
        "alloc.group.sync.aligned{.space}.b32", "7.1", "alloc", choices=_OF_GROUP | {"space": ".shared::cta"}
    ),
    TensorRow("dealloc.group.sync.aligned.b32", "7.1", "dealloc", choices=_OF_GROUP),
    TensorRow("relinquish_alloc_permit.group.sync.aligned", "7.1", "relinquish", choices=_OF_GROUP),
    *_moves(".32x32b .16x64b .16x32bx2", _TO_128),
    *_moves(".16x128b", _TO_128.removesuffix(" .x128")),
    *_moves(".16x256b", _TO_128.removesuffix(" .x64 .x128")),
    TensorRow("wait::ld.sync.aligned", "8.3", "wait_ld"),
    TensorRow("wait::st.sync.aligned", "8.3", "wait_st"),
    *_copies(".128x256b .4x256b .128x128b"),
    *_copies(".64x128b", ".warpx2::02_13 .warpx2::01_23"),
    *_copies(".32x128b", ".warpx4"),
    TensorRow("shift.group.down", "9.3", "shift", _SINGLE, _OF_GROUP),
    *_products(_FLOATS, _HAVE),
    *_products(".kind::i8", _INTEGERS),
    # Sizes are written as .block32 on all, and as .scale_vec::2X on single targets.
    *_scaled("mxf8f6f4", "{.size}", ".block32", _HAVE),
    *_scaled("mxf8f6f4", ".size", ".scale_vec::1X", _SINGLE),
    *_scaled("mxf4", "{.size}", ".block32", _HAVE),
    *_scaled("mxf4", ".size", ".scale_vec::2X", _SINGLE),
    *_scaled("mxf4nvf4", ".size", ".block16 .block32", _HAVE),
    *_scaled("mxf4nvf4", ".size", ".scale_vec::2X .scale_vec::4X", _SINGLE),
    TensorRow(
        "commit.group.mbarrier::arrive::one{.space}{.multicast::cluster}.b64", "10.10", "commit",
        choices=_OF_GROUP | {"space": ".shared::cluster"},
    ),
    TensorRow("fence::before_thread_sync", "11.1", "before"),
    TensorRow("fence::after_thread_sync", "11.1", "after"),
    *(
        TensorRow(
            f"mma{sparse}.group.kind.ashift{{.collector}}", "10.9", "ashift",
            choices=_OF_GROUP | {"kind": _KINDS, "collector": _SHIFTED},
        )
        for sparse in (".sp", "")
    ),
    *_reductions(),
)  # fmt: skip

_FACTS = Facts(orders_parts=True, reaches="pair")
_OWN_FACTS = {
    "mma": replace(_FACTS, product="tensor cores"),
    "ld_red": replace(_FACTS, destinations=2),
    **dict.fromkeys(
        ("dealloc", "relinquish", "wait_ld", "wait_st", "before", "after"), replace(_FACTS, destinations=0)
    ),
}
for _row in ROWS:
    operation(
        f"tcgen05.{_row.pattern}",
        f"tcgen05_{_row.operation}",
        section=f"9.7.16.{_row.section}",
        requires=_row.requires,
        facts=_OWN_FACTS.get(_row.operation, _FACTS),
        **_row.choices,
    )
