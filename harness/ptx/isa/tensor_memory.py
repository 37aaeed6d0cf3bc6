"""The fifth generation of tensor cores (tcgen05): tensor memory, copies to it, and products (ISA 9.7.16).

Products of one block and of pairs (`.cta_group::2`) run, dense and sparse (`.sp`). The reducing load (`ld.red`) and
`.ashift` are declared, and refused with a message when a kernel is loaded.
"""

from __future__ import annotations

from harness.ptx.isa.registry import operation

_HAVE = "100f 110f"
_SINGLE = "100a 103a 107a 110a"
_GROUP = ".cta_group::1 .cta_group::2"
_TO_128 = ".x1 .x2 .x4 .x8 .x16 .x32 .x64 .x128"

operation(
    "tcgen05.alloc.group.sync.aligned{.space}.b32",
    "tcgen05_alloc",
    section="9.7.16.7.1",
    requires=_HAVE,
    group=_GROUP,
    space=".shared::cta",
)
operation(
    "tcgen05.dealloc.group.sync.aligned.b32", "tcgen05_dealloc", section="9.7.16.7.1", requires=_HAVE, group=_GROUP
)
operation(
    "tcgen05.relinquish_alloc_permit.group.sync.aligned",
    "tcgen05_relinquish",
    section="9.7.16.7.1",
    requires=_HAVE,
    group=_GROUP,
)

# A 16x128b or a 16x256b fills two or four registers, and there are at most 128.
for _shapes, _counts in (
    (".32x32b .16x64b .16x32bx2", _TO_128),
    (".16x128b", _TO_128.removesuffix(" .x128")),
    (".16x256b", _TO_128.removesuffix(" .x64 .x128")),
):
    for _name, _packing in (("ld", "pack::16b"), ("st", "unpack::16b")):
        operation(
            f"tcgen05.{_name}.sync.aligned.shape.num{{.{_packing}}}.b32",
            f"tcgen05_{_name}",
            section="9.7.16.8.1" if _name == "ld" else "9.7.16.8.2",
            requires=_HAVE,
            shape=_shapes,
            num=_counts,
        )
for _what in ("ld", "st"):
    operation(f"tcgen05.wait::{_what}.sync.aligned", f"tcgen05_wait_{_what}", section="9.7.16.8.3", requires=_HAVE)

for _shapes, _copies in (
    (".128x256b .4x256b .128x128b", ""),
    (".64x128b", ".warpx2::02_13 .warpx2::01_23"),
    (".32x128b", ".warpx4"),
):
    for _format in ("", ".b8x16.packed"):
        _given = {"group": _GROUP, "shape": _shapes} | ({"copies": _copies} if _copies else {})
        operation(
            f"tcgen05.cp.group.shape{'.copies' if _copies else ''}{_format}",
            "tcgen05_cp",
            section="9.7.16.9.2",
            requires=_HAVE,
            **_given,
            **({"packed": ".b6x16_p32 .b4x16_p64"} if _format else {}),
        )
operation("tcgen05.shift.group.down", "tcgen05_shift", section="9.7.16.9.3", requires=_SINGLE, group=_GROUP)

_OF_A = ".collector::a::fill .collector::a::use .collector::a::lastuse .collector::a::discard"
for _kinds, _requires in ((".kind::f16 .kind::tf32 .kind::f8f6f4", _HAVE), (".kind::i8", "100a 110a")):
    for _sparse, _section in (("", "9.7.16.10.9.1"), (".sp", "9.7.16.10.9.2")):
        operation(
            f"tcgen05.mma{_sparse}.group.kind{{.collector}}",
            "tcgen05_mma",
            section=_section,
            requires=_requires,
            group=_GROUP,
            kind=_kinds,
            collector=_OF_A,
        )
    for _sparse, _section in (("", "9.7.16.10.9.3"), (".sp", "9.7.16.10.9.4")):
        operation(
            f"tcgen05.mma.ws{_sparse}.cta_group::1.kind{{.collector}}",
            "tcgen05_mma",
            section=_section,
            requires=_requires,
            kind=_kinds,
            collector=" ".join(
                f".collector::b{n}::{x}" for n in range(4) for x in ("fill", "use", "lastuse", "discard")
            ),
        )
# Sizes are written as .block32 on all targets, and as .scale_vec::2X on some; of the sparse products only those of 4
# bits have the latter (ptxas 13.4).
for _kind, _blocks, _vectors in (
    (".kind::mxf8f6f4", "{.size} .block32", ".scale_vec::1X"),
    (".kind::mxf4", "{.size} .block32", ".scale_vec::2X"),
    (".kind::mxf4nvf4", ".size .block16 .block32", ".scale_vec::2X .scale_vec::4X"),
):
    _size, _, _choices = _blocks.partition(" ")
    for _pattern, _sizes, _requires in ((_size, _choices, _HAVE), (".size", _vectors, _SINGLE)):
        for _sparse, _section in (("", "9.7.16.10.9.1"), (".sp", "9.7.16.10.9.2")):
            operation(
                f"tcgen05.mma{_sparse}.group.kind.block_scale{_pattern}{{.collector}}",
                "tcgen05_mma",
                section=_section,
                requires=_SINGLE if _sparse and _kind != ".kind::mxf8f6f4" else _requires,
                group=_GROUP,
                kind=_kind,
                size=_sizes,
                collector=_OF_A,
            )

operation(
    "tcgen05.commit.group.mbarrier::arrive::one{.space}{.multicast::cluster}.b64",
    "tcgen05_commit",
    section="9.7.16.10.10",
    requires=_HAVE,
    group=_GROUP,
    space=".shared::cluster",
)
for _when in ("before", "after"):
    operation(f"tcgen05.fence::{_when}_thread_sync", f"tcgen05_{_when}", section="9.7.16.11.1", requires=_HAVE)

_KINDS = " ".join(f".kind::{k}" for k in ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4"))
for _pattern, _what in (
    ("tcgen05.mma.sp.group.kind.ashift{.collector}", "tcgen05_ashift"),
    ("tcgen05.mma.group.kind.ashift{.collector}", "tcgen05_ashift"),
):
    operation(
        _pattern,
        _what,
        section="9.7.16.10.9",
        requires=_HAVE,
        group=_GROUP,
        kind=_KINDS,
        collector=f"{_OF_A} .collector::b0::fill .collector::b1::fill .collector::b2::fill .collector::b3::fill",
    )
operation(
    "tcgen05.ld.red.sync.aligned.shape.num.op{.abs}{.NaN}.type",
    "tcgen05_ld_red",
    section="9.7.16.8.1",
    requires="101a 103f 110f",
    shape=".32x32b .16x32bx2",
    num=_TO_128,
    op=".min .max",
    type=".u32 .s32 .f32",
)
