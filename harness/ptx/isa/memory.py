"""Loads, stores, atomics, address conversions and copies, for whole kernels (ISA 9.7.9, 9.7.13)."""

from __future__ import annotations

from itertools import product

from .registry import operation

_DATA = ".b8 .b16 .b32 .b64 .u8 .u16 .u32 .u64 .s8 .s16 .s32 .s64 .f32 .f64"
_SPACE = ".global .shared .shared::cta .shared::cluster .local .param .param::entry .const"
_HINTS = {
    "l1": ".L1::evict_normal .L1::evict_unchanged .L1::evict_first .L1::evict_last .L1::no_allocate",
    "l2": ".L2::evict_normal .L2::evict_first .L2::evict_last",
    "hint": ".L2::cache_hint",
    "prefetch": ".L2::64B .L2::128B .L2::256B",
}

_LOAD_COPS, _STORE_COPS = ".ca .cg .cs .lu .cv", ".cg .cs .wb .wt"


def _clashes(cops: str, *ordering: str) -> list[str]:
    """What ptxas (13.4) refuses beside each other: a cache operator goes with neither eviction nor ordering."""
    pairs = [
        *product(cops.split(), _HINTS["l1"].split()),
        *product(cops.split(), (*ordering, ".volatile")),
        *product([".volatile"], [*_HINTS["l1"].split(), _HINTS["hint"]]),
    ]
    return [f"{one} {other}" for one, other in pairs]


operation(
    "ld{.sem}{.scope}{.space}{.cop}{.nc}{.l1}{.l2}{.hint}{.prefetch}{.vec}.type",
    "ld",
    section="9.7.9.8",
    sem=".weak .relaxed .acquire .volatile",
    scope=".cta .cluster .gpu .sys",
    space=_SPACE,
    vec=".v2 .v4 .v8",
    type=_DATA,
    cop=_LOAD_COPS,
    excludes=_clashes(_LOAD_COPS, ".relaxed", ".acquire"),
    **_HINTS,
)
operation(
    "st{.sem}{.scope}{.space}{.cop}{.l1}{.l2}{.hint}{.vec}.type",
    "st",
    section="9.7.9.11",
    sem=".weak .relaxed .release .volatile",
    scope=".cta .cluster .gpu .sys",
    space=_SPACE,
    vec=".v2 .v4 .v8",
    type=_DATA,
    cop=_STORE_COPS,
    excludes=_clashes(_STORE_COPS, ".relaxed", ".release"),
    **_HINTS,
)
_ATOMIC = {
    "sem": ".relaxed .acquire .release .acq_rel",
    "scope": ".cta .cluster .gpu .sys",
    "space": ".global .shared .shared::cta .shared::cluster",
    "op": ".and .or .xor .exch .cas .add .inc .dec .min .max",
    "hint": ".L2::cache_hint",
    "type": ".b16 .b32 .b64 .u32 .u64 .s32 .s64 .f16 .f16x2 .bf16 .bf16x2 .f32 .f64",
}
for _name in ("atom", "red"):
    operation(f"{_name}{{.sem}}{{.scope}}{{.space}}.op{{.noftz}}{{.hint}}.type", _name, section="9.7.13.4", **_ATOMIC)
operation("cvta{.to}.space.size", "cvta", section="9.7.9.19", space=_SPACE, size=".u32 .u64")
operation(
    "createpolicy.fractional.l2{.second}.b64",
    "policy",
    section="9.7.9.15",
    l2=".L2::evict_last .L2::evict_normal .L2::evict_first .L2::evict_unchanged",
    second=".L2::evict_unchanged .L2::evict_first",
)
operation("prefetch{.space}.level", "nothing_here", section="9.7.9.14", space=".global .local", level=".L1 .L2")
operation("prefetchu.L1", "nothing_here", section="9.7.9.14")
_CP = {"space": ".shared .shared::cta", "hint": ".L2::cache_hint", "prefetch": ".L2::64B .L2::128B .L2::256B"}
operation("cp.async.cop.space.global{.hint}{.prefetch}", "cp_async", section="9.7.9.25.3.1", cop=".ca .cg", **_CP)
operation("cp.async.commit_group", "cp_commit", section="9.7.9.25.3.2")
operation("cp.async.wait_group", "cp_wait", section="9.7.9.25.3.3")
operation("cp.async.wait_all", "cp_wait", section="9.7.9.25.3.3")
_MATRIX = {"num": ".x1 .x2 .x4", "space": ".shared .shared::cta"}
operation(
    "ldmatrix.sync.aligned.m8n8.num{.trans}{.space}.b16", "ldmatrix", section="9.7.14.5.15", requires=75, **_MATRIX
)
operation(
    "stmatrix.sync.aligned.m8n8.num{.trans}{.space}.b16", "stmatrix", section="9.7.14.5.16", requires=90, **_MATRIX
)
operation("call{.uni}", "call", section="9.7.12.5")
