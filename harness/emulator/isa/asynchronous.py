"""Barriers in shared memory, bulk copies, and tensor maps (ISA 9.7.9.25 to 9.7.9.27, 9.7.13.15, 9.7.13.16).

Only forms that the kernel machine runs are declared.
"""

from __future__ import annotations

from dataclasses import replace

from ptxdiff.emulator.isa.facts import Facts
from ptxdiff.emulator.isa.registry import operation

_SHARED = ".shared .shared::cta .shared::cluster"
_MBARRIER = "9.7.13.15"
_OWN = ".shared .shared::cta"
_PHASE = Facts(memory="updates", orders_parts=True)
_LOAD = Facts(memory="reads", orders_parts=True, asynchronous=True, proxy="async")
_STORE = Facts(memory="writes", orders_parts=True, asynchronous=True, proxy="async")
_MOVE = Facts(memory="copies", orders_parts=True, asynchronous=True, proxy="async")
_GROUP = Facts(destinations=0, orders_parts=True)
_MAP = Facts(memory="writes")
operation("mbarrier.init{.space}.b64", "mbarrier_init", section=f"{_MBARRIER}.9", requires=80, space=_OWN, facts=_PHASE)
operation(
    "mbarrier.inval{.space}.b64", "mbarrier_inval", section=f"{_MBARRIER}.10", requires=80, space=_OWN, facts=_PHASE
)
operation(
    "mbarrier.expect_tx{.sem}{.scope}{.space}.b64",
    "mbarrier_expect",
    section=f"{_MBARRIER}.11",
    requires=90,
    sem=".relaxed",
    scope=".cta .cluster",
    space=_SHARED,
    facts=_PHASE,
)
_ORDER = {"sem": ".release .relaxed", "scope": ".cta .cluster", "space": _SHARED}
operation(
    "mbarrier.arrive{.sem}{.scope}{.space}.b64",
    "mbarrier_arrive",
    section=f"{_MBARRIER}.13",
    requires=80,
    **_ORDER,
    facts=_PHASE,
)
operation(
    "mbarrier.arrive.expect_tx{.sem}{.scope}{.space}.b64",
    "mbarrier_arrive",
    section=f"{_MBARRIER}.13",
    requires=90,
    **_ORDER,
    facts=_PHASE,
)
for _name in ("arrive", "arrive_drop"):
    operation(
        f"mbarrier.{_name}.noComplete{{.sem}}{{.scope}}{{.space}}.b64", "mbarrier_arrive", section=f"{_MBARRIER}.13",
        requires=80, sem=".release", scope=".cta", space=_OWN, facts=_PHASE,
    )  # fmt: skip
operation(
    "mbarrier.arrive_drop{.sem}{.scope}{.space}.b64", "mbarrier_arrive", section=f"{_MBARRIER}.14", requires=80,
    **_ORDER, facts=_PHASE,
)  # fmt: skip
operation(
    "mbarrier.arrive_drop.expect_tx{.sem}{.scope}{.space}.b64", "mbarrier_arrive", section=f"{_MBARRIER}.14",
    requires=90, **_ORDER, facts=_PHASE,
)  # fmt: skip
operation(
    "mbarrier.pending_count.b64",
    "mbarrier_pending",
    section=f"{_MBARRIER}.17",
    requires=80,
    facts=replace(_PHASE, effects=False, memory=""),
)
operation(
    "mbarrier.complete_tx{.sem}{.scope}{.space}.b64", "mbarrier_complete", section=f"{_MBARRIER}.12", requires=90,
    sem=".relaxed", scope=".cta .cluster", space=_SHARED, facts=_PHASE,
)  # fmt: skip
operation(
    "cp.async.mbarrier.arrive{.noinc}{.space}.b64", "mbarrier_copies", section=f"{_MBARRIER}.15", requires=80,
    space=_OWN, facts=_PHASE,
)  # fmt: skip
for _name, _requires in (("test_wait", 80), ("try_wait", 90)):
    operation(
        f"mbarrier.{_name}{{.parity}}{{.sem}}{{.scope}}{{.space}}.b64",
        f"mbarrier_{_name}",
        section=f"{_MBARRIER}.16",
        requires=_requires,
        sem=".acquire .relaxed",
        scope=".cta .cluster",
        space=_OWN,
        facts=replace(_PHASE, waits="phase" if _name == "try_wait" else ""),
    )
operation(
    "fence.proxy.tensormap::generic.sem.scope",
    "proxy_nothing",
    section="9.7.13.4",
    requires=90,
    sem=".acquire .release",
    scope=".cta .cluster .gpu .sys",
    facts=Facts(destinations=0),
)

_HINT = ".L2::cache_hint"
_TO = ".shared::cta .shared::cluster"
_RANKS = " ".join(f".{rank}d" for rank in range(1, 6))
# With .cta_group, mbarriers may lie in the other block of a pair (ISA 9.7.9.27.1.2; targets: ptxas 13.4).
_GROUPS: tuple[tuple[str, int | str], ...] = (("", 90), (".group", "100f 110f"))
for _several, _places in (("", _TO), (".multicast::cluster", ".shared::cluster")):
    for _group, _needs in _GROUPS:
        operation(
            f"cp.async.bulk.tensor.rank.to.global{{.mode}}.mbarrier::complete_tx::bytes{_several}{_group}{{.hint}}",
            "bulk_tensor_load",
            section="9.7.9.27.1.2",
            requires=_needs,
            rank=_RANKS,
            to=_places,
            mode=".tile",
            hint=".L2::cache_hint",
            **({"group": ".cta_group::1 .cta_group::2"} if _group else {}),
            facts=_LOAD,
        )
operation(
    "cp.async.bulk.tensor.rank.global.shared::cta{.mode}.bulk_group{.hint}",
    "bulk_tensor_store",
    section="9.7.9.27.1.2",
    requires=90,
    rank=_RANKS,
    mode=".tile",
    hint=".L2::cache_hint",
    facts=_STORE,
)
# Boxes in other modes (ISA 5.5.3.4 to 5.5.5). Which targets have them: ptxas 12.9 and 13.5.
_OF_FAMILIES = "100f 110f"
_OF_IMAGES = " ".join(f".{rank}d" for rank in range(3, 6))
_MODES: tuple[tuple[str, str, int | str, int | str], ...] = (
    (".im2col", _OF_IMAGES, 90, 90),
    (".im2col::w", _OF_IMAGES, 100, _OF_FAMILIES),
    (".im2col::w::128", _OF_IMAGES, _OF_FAMILIES, _OF_FAMILIES),
    (".tile::gather4", ".2d", 100, _OF_FAMILIES),
)
"""Modes of loads: the numbers of dimensions, and the targets that have them to `.shared::cta`, and to a cluster."""
for _mode, _of, _own, _any in _MODES:
    for _several, _to, _needs in (
        ("", ".shared::cta", _own), ("", ".shared::cluster", _any), (".multicast::cluster", ".shared::cluster", _any),
    ):  # fmt: skip
        for _group, _pairs in _GROUPS:
            operation(
                f"cp.async.bulk.tensor.rank.to.global.mode.mbarrier::complete_tx::bytes{_several}{_group}{{.hint}}",
                "bulk_tensor_load",
                section="9.7.9.27.1.2",
                requires=_pairs if _group else _needs,
                rank=_of,
                to=_to,
                mode=_mode,
                hint=_HINT,
                **({"group": ".cta_group::1 .cta_group::2"} if _group else {}),
                facts=_LOAD,
            )
    operation(
        "cp.async.bulk.prefetch.tensor.rank.L2.global.mode{.hint}",
        "nothing_here",
        section="9.7.9.27.1.4",
        requires=_any,
        rank=_of,
        mode=_mode,
        hint=_HINT,
        facts=Facts(computes=False),
    )
for _mode, _of, _needs in ((".im2col_no_offs", _OF_IMAGES, 90), (".tile::scatter4", ".2d", _OF_FAMILIES)):
    operation(
        "cp.async.bulk.tensor.rank.global.shared::cta.mode.bulk_group{.hint}",
        "bulk_tensor_store",
        section="9.7.9.27.1.2",
        requires=_needs,
        rank=_of,
        mode=_mode,
        hint=_HINT,
        facts=_STORE,
    )
# ptxas (12.9, 13.5) takes .tile::scatter4 here too, which the ISA does not have, and writes a copy without a reduction.
for _group, _mode, _of in (("{.mode}", ".tile", _RANKS), (".mode", ".im2col_no_offs", _OF_IMAGES)):
    operation(
        f"cp.reduce.async.bulk.tensor.rank.global.shared::cta.op{_group}.bulk_group{{.hint}}",
        "bulk_tensor_store",
        section="9.7.9.27.1.3",
        requires=90,
        rank=_of,
        op=".add .min .max .inc .dec .and .or .xor",
        mode=_mode,
        hint=_HINT,
        facts=replace(_STORE, orders_blocks=True),
    )
operation("cp.async.bulk.commit_group", "bulk_commit", section="9.7.9.25.6.1", requires=90, facts=_GROUP)
operation(
    "cp.async.bulk.wait_group{.read}",
    "bulk_wait",
    section="9.7.9.25.6.2",
    requires=90,
    facts=replace(_GROUP, memory="copies"),
)

_MAPS = "90a 100a 100f 103a 110a 120a"
for _fields, _kind in (
    (".global_address", ".b64"),
    (".global_stride", ".b64"),
    (".rank .box_dim .global_dim .element_stride .elemtype .interleave_layout .swizzle_mode .fill_mode", ".b32"),
):
    operation(
        "tensormap.replace.tile.field{.space}.b1024.type",
        "tensormap_replace",
        section="9.7.9.28",
        requires=_MAPS,
        field=_fields,
        space=".global .shared::cta",
        type=_kind,
        facts=_MAP,
    )
operation(
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.scope.sync.aligned",
    "tensormap_copy",
    section="9.7.13.17",
    requires=90,
    scope=".cta .cluster .gpu .sys",
    facts=_MAP,
)

# Copies of bytes (ISA 9.7.9.25.4), and reductions with them (9.7.9.25.5).
_BYTES = "mbarrier::complete_tx::bytes"
operation(
    f"cp.async.bulk.to.global.{_BYTES}{{.hint}}",
    "bulk_load",
    section="9.7.9.25.4.1",
    requires=90,
    to=_TO,
    hint=_HINT,
    facts=_LOAD,
)
operation(
    f"cp.async.bulk.to.global.{_BYTES}.multicast::cluster{{.hint}}",
    "bulk_load",
    section="9.7.9.25.4.1",
    requires=90,
    to=".shared::cluster",
    hint=_HINT,
    facts=_LOAD,
)
operation(
    f"cp.async.bulk.to.shared::cta.{_BYTES}",
    "bulk_move",
    section="9.7.9.25.4.1",
    requires=90,
    to=".shared::cluster",
    facts=_MOVE,
)
operation(
    "cp.async.bulk.global.shared::cta.bulk_group{.hint}",
    "bulk_store",
    section="9.7.9.25.4.1",
    requires=90,
    hint=_HINT,
    facts=_STORE,
)
operation(
    "cp.async.bulk.global.shared::cta.bulk_group{.hint}.cp_mask",
    "bulk_store",
    section="9.7.9.25.4.1",
    requires=100,
    hint=_HINT,
    facts=_STORE,
)
operation(
    "cp.async.bulk.prefetch.L2.global{.hint}",
    "nothing_here",
    section="9.7.9.25.4.3",
    requires=90,
    hint=_HINT,
    facts=Facts(computes=False),
)
operation(
    "cp.async.bulk.prefetch.tensor.rank.L2.global{.mode}{.hint}",
    "nothing_here",
    section="9.7.9.27.1.4",
    requires=90,
    rank=_RANKS,
    mode=".tile",
    hint=_HINT,
    facts=Facts(computes=False),
)
for _ops, _types in (
    (".add", ".u32 .s32 .u64"), (".min .max", ".u32 .s32"), (".inc .dec", ".u32"), (".and .or .xor", ".b32"),
):  # fmt: skip
    operation(
        f"cp.reduce.async.bulk.to.shared::cta.{_BYTES}.op.type",
        "bulk_move",
        section="9.7.9.25.5.1",
        requires=90,
        to=".shared::cluster",
        op=_ops,
        type=_types,
        facts=_MOVE,
    )
for _tail, _ops, _types in (
    (".op.type", ".add", ".u32 .s32 .u64 .f32 .f64"), (".op.noftz.type", ".add", ".f16 .bf16 .f32"),
    (".op.type", ".min .max", ".u32 .s32 .u64 .s64 .f16 .bf16"), (".op.type", ".inc .dec", ".u32"),
    (".op.type", ".and .or .xor", ".b32 .b64"),
):  # fmt: skip
    operation(
        f"cp.reduce.async.bulk.global.shared::cta.bulk_group{{.hint}}{_tail}",
        "bulk_store",
        section="9.7.9.25.5.1",
        requires=90,
        hint=_HINT,
        op=_ops,
        type=_types,
        facts=replace(_STORE, orders_blocks=True),
    )
