"""Clusters of blocks and their distributed shared memory (ISA 9.7.9.20, 9.7.9.23, 9.7.9.24, 9.7.13.3)."""

from __future__ import annotations

from dataclasses import replace

from ptxdiff.emulator.isa.facts import ARITHMETIC, Facts
from ptxdiff.emulator.isa.registry import operation

_CLUSTER = Facts(orders_parts=True, reaches="cluster")
_BARRIER = replace(_CLUSTER, destinations=0, exchanges="together")
_ADDRESSES = {"space": ".shared::cluster", "type": ".u32 .s32 .u64 .s64"}
operation(
    "mapa{.space}.type",
    "cluster_mapa",
    section="9.7.9.23",
    requires=90,
    **_ADDRESSES,
    facts=replace(_CLUSTER, effects=False),
)
operation(
    "getctarank{.space}.type",
    "cluster_rank",
    section="9.7.9.24",
    requires=90,
    **_ADDRESSES,
    facts=replace(_CLUSTER, effects=False),
)
operation(
    "isspacep.space",
    "isspacep",
    section="9.7.9.18",
    space=".global .local .shared .shared::cta .const .param",
    facts=ARITHMETIC,
)
operation("isspacep.space", "isspacep", section="9.7.9.18", requires=70, space=".param::entry", facts=ARITHMETIC)
operation("isspacep.space", "isspacep", section="9.7.9.18", requires=90, space=".shared::cluster", facts=ARITHMETIC)

operation(
    "barrier.cluster.arrive{.sem}{.aligned}", "cluster_arrive", section="9.7.13.3", requires=90,
    sem=".release .relaxed", facts=_BARRIER,
)  # fmt: skip
operation(
    "barrier.cluster.wait{.acquire}{.aligned}",
    "cluster_wait",
    section="9.7.13.3",
    requires=90,
    facts=replace(_BARRIER, waits="phase"),
)
operation(
    "fence.mbarrier_init.release.cluster",
    "mbarrier_fence",
    section="9.7.13.4",
    requires=90,
    facts=Facts(destinations=0, orders_parts=True),
)

_TELLS = "mbarrier::complete_tx::bytes"
_WORDS, _DOUBLE_WORDS = ".b32 .u32 .s32 .f32", ".b64 .u64 .s64 .f64"
operation(
    f"st.async{{.weak}}{{.space}}.{_TELLS}{{.vec}}.type",
    "bulk_st",
    section="9.7.9.12",
    requires=90,
    space=".shared::cluster",
    vec=".v2 .v4",
    type=f"{_WORDS} {_DOUBLE_WORDS}",
    excludes=[f".v4 {kind}" for kind in _DOUBLE_WORDS.split()],
    facts=Facts(destinations=0, memory="writes", orders_parts=True, asynchronous=True),
)
for _ops, _types in (
    (".inc .dec", ".u32"), (".min .max", ".u32 .s32"), (".add", ".u32 .s32 .u64 .s64"), (".and .or .xor", ".b32"),
):  # fmt: skip
    operation(
        f"red.async.relaxed.cluster{{.space}}.{_TELLS}.op.type",
        "bulk_red",
        section="9.7.13.7",
        requires=90,
        space=".shared::cluster",
        op=_ops,
        type=_types,
        facts=Facts(destinations=0, memory="updates", orders_parts=True, asynchronous=True),
    )
