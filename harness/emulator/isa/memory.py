"""Loads, stores, atomics, address conversions and copies, for whole kernels (ISA 9.7.9, 9.7.13)."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from ptxdiff.emulator.isa.facts import ARITHMETIC, Facts
from ptxdiff.emulator.isa.registry import operation

_SPACE = ".global .shared .shared::cta .shared::cluster .local .param .param::entry .const"
_ELSEWHERE = [s for s in _SPACE.split() if s != ".global"]
_NARROW, _WORDS = ".b8 .b16 .u8 .u16 .s8 .s16", ".b32 .u32 .s32 .f32"
_DOUBLE_WORDS = ".b64 .u64 .s64 .f64"
_L1 = ".L1::evict_normal .L1::evict_unchanged .L1::evict_first .L1::evict_last .L1::no_allocate"
_L2 = ".L2::evict_normal .L2::evict_first .L2::evict_last"
_HINTS = {"hint": ".L2::cache_hint", "prefetch": ".L2::64B .L2::128B .L2::256B"}


_FACTS = {
    "ld": Facts("volatile acquire", memory="reads", orders_blocks="volatile relaxed acquire", computes=False),
    "st": Facts(destinations=0, memory="writes", orders_blocks="volatile relaxed release", computes=False),
    "atom": Facts(memory="updates", orders_blocks=True),
    "red": Facts(destinations=0, memory="updates", orders_blocks=True),
}


def _move(pattern: str, name: str, section: str, cops: str, ordering: str) -> None:
    """Declare a load or store: of at most 128 bits, or since sm_100 of 256 bits of global memory. Only the latter may
    name an eviction policy of the L2.

    pattern: contains `{.l2}{.vec}` at the places of these. ptxas (13.4) refuses a cache operator together with eviction
    or ordering, and L1 eviction outside of global memory.
    """
    pairs = [
        *product(cops.split(), _L1.split()),
        *product(cops.split(), _L2.split()),
        *product(cops.split(), (*ordering.split(), ".volatile")),
        *product([".volatile"], [*_L1.split(), *_L2.split(), ".L2::cache_hint"]),
        *product(_ELSEWHERE, _L1.split()),
        *product(_ELSEWHERE, (".L2::cache_hint", *_HINTS["prefetch"].split())),
        *product((".nc",), (".weak", ".volatile", *ordering.split())),
        *product((".local", ".const", ".param", ".param::entry"), ordering.split()),
        *product((".const", ".param", ".param::entry"), (".volatile",)),
    ]
    read_only = [".const"] if name == "st" else []
    excludes = [*read_only, *(f"{one} {other}" for one, other in pairs)]
    common = {"sem": f".weak {ordering} .volatile", "scope": ".cta .cluster .gpu .sys", "cop": cops, "l1": _L1} | _HINTS
    operation(
        pattern.replace("{.l2}", ""), name, section=section, space=_SPACE, vec=".v2 .v4",
        type=f"{_NARROW} {_WORDS} {_DOUBLE_WORDS}",
        excludes=[*excludes, *(f".v4 {t}" for t in _DOUBLE_WORDS.split())], facts=_FACTS[name], **common,
    )  # fmt: skip
    for vec, types in ((".v8", _WORDS), (".v4", _DOUBLE_WORDS)):
        operation(
            pattern.replace("{.vec}", ".vec"), name, section=section, space=".global", requires=100, vec=vec,
            type=types, l2=_L2, excludes=excludes, facts=_FACTS[name], **common,
        )  # fmt: skip


_move(
    "ld{.sem}{.scope}{.space}{.cop}{.nc}{.l1}{.l2}{.hint}{.prefetch}{.vec}.type",
    "ld",
    "9.7.9.8",
    cops=".ca .cg .cs .lu .cv",
    ordering=".relaxed .acquire",
)
_move(
    "st{.sem}{.scope}{.space}{.cop}{.l1}{.l2}{.hint}{.vec}.type",
    "st",
    "9.7.9.11",
    cops=".cg .cs .wb .wt",
    ordering=".relaxed .release",
)
for _name, _ordering, _section in (("ld", ".relaxed .acquire", "9.7.9.8"), ("st", ".relaxed .release", "9.7.9.11")):
    operation(
        f"{_name}{{.sem}}{{.scope}}{{.space}}.type", _name, section=_section, requires=70, type=".b128",
        sem=f".weak {_ordering} .volatile", scope=".cta .cluster .gpu .sys",
        space=".global .shared .shared::cta .shared::cluster .local",
        excludes=[f".local {order}" for order in _ordering.split()], facts=_FACTS[_name],
    )  # fmt: skip
for _name, _ordering, _section in (("ld", ".relaxed .acquire", "9.7.9.8"), ("st", ".relaxed .release", "9.7.9.11")):
    operation(
        f"{_name}.mmio.sem.scope{{.space}}.type", _name, section=_section, requires=70, sem=_ordering, scope=".sys",
        space=".global", type=f"{_NARROW} {_WORDS} {_DOUBLE_WORDS}", facts=_FACTS[_name],
    )  # fmt: skip
operation(
    "ldu{.space}{.vec}.type", "ldu", section="9.7.9.10", space=".global", vec=".v2 .v4",
    type=f"{_NARROW} {_WORDS} {_DOUBLE_WORDS}", excludes=[f".v4 {t}" for t in _DOUBLE_WORDS.split()],
    facts=Facts(effects=False, memory="reads", computes=False),
)  # fmt: skip
_UPDATE = {
    "sem": ".relaxed .acquire .release .acq_rel",
    "scope": ".cta .cluster .gpu .sys",
    "space": ".global .shared .shared::cta .shared::cluster",
    "hint": ".L2::cache_hint",
}


def _update(tail: str, types: str, requires: int = 0, *, returns: bool = False, **choices: str) -> None:
    """Declare an atomic update as `atom` and, unless only its result matters (`returns`), as `red`.

    A `vec` updates each element separately, only in global memory.
    """
    vector = "vec" in choices
    place, end = (".space", ".vec.type") if vector else ("{.space}", ".type")
    common = _UPDATE | ({"space": ".global"} if vector else {})
    for name, section in (("atom", "9.7.13.5"), ("red", "9.7.13.6"))[: 1 if returns else 2]:
        pattern = f"{name}{{.sem}}{{.scope}}{place}{tail}{{.hint}}{end}"
        own = {"sem": ".relaxed .release"} if name == "red" else {}  # it reads nothing that it could acquire
        operation(
            pattern,
            name,
            section=section,
            requires=requires,
            type=types,
            facts=_FACTS[name],
            **choices,
            **(common | own),
        )


_update(".op", ".b16 .b32 .b64", returns=True, op=".cas")
_update(".op", ".b32 .b64", returns=True, op=".exch")
_update(".op", ".b32 .b64", op=".and .or .xor")
_update(".op", ".u32", op=".inc .dec")
_update(".op", ".u32 .s32 .u64 .s64", op=".min .max")
_update(".op", ".u32 .s32 .u64 .f32 .f64", op=".add")
_update(".op.noftz", ".f16 .f16x2", op=".add")
_update(".op.noftz", ".f32 .bf16 .bf16x2", 90, op=".add")
_update(".op{.noftz}", ".f32", 90, op=".add", vec=".v2 .v4")
_update(".op.noftz", ".f16x2 .bf16x2", 90, op=".add .min .max", vec=".v2 .v4")
_update(".op.noftz", ".f16 .bf16", 90, op=".add .min .max", vec=".v2 .v4 .v8")
operation(
    "cvta{.to}.space.size",
    "cvta",
    section="9.7.9.19",
    space=_SPACE,
    size=".u64",
    facts=replace(ARITHMETIC, computes=False),
)
operation(
    "createpolicy.fractional.l2{.second}.b64",
    "policy",
    section="9.7.9.15",
    requires=80,
    l2=".L2::evict_last .L2::evict_normal .L2::evict_first .L2::evict_unchanged",
    second=".L2::evict_unchanged .L2::evict_first",
    facts=ARITHMETIC,
)
operation(
    "createpolicy.range{.space}.l2{.second}.b64",
    "policy_range",
    section="9.7.9.15",
    requires=80,
    space=".global",
    l2=".L2::evict_last .L2::evict_normal .L2::evict_first .L2::evict_unchanged",
    second=".L2::evict_unchanged .L2::evict_first",
    facts=ARITHMETIC,
)
operation("createpolicy.cvt.L2.b64", "policy_cvt", section="9.7.9.15", requires=80, facts=ARITHMETIC)
_PREFETCH = Facts(destinations=0, computes=False)
operation(
    "prefetch{.space}.level", "nothing_here", section="9.7.9.14", space=".global .local", level=".L1 .L2",
    facts=_PREFETCH,
)  # fmt: skip
operation(
    "prefetch{.space}.tensormap", "nothing_here", section="9.7.9.14", requires=90, space=".const .param",
    facts=_PREFETCH,
)  # fmt: skip
operation("prefetchu.L1", "nothing_here", section="9.7.9.14", facts=_PREFETCH)
_CP = {"space": ".shared .shared::cta", "hint": ".L2::cache_hint", "prefetch": ".L2::64B .L2::128B .L2::256B"}
_COPY = Facts(memory="copies")
_WAIT = replace(_COPY, destinations=0)
operation(
    "cp.async.cop.space.global{.hint}{.prefetch}", "cp_async", section="9.7.9.25.3.1", cop=".ca .cg", facts=_COPY, **_CP
)
operation("cp.async.commit_group", "cp_commit", section="9.7.9.25.3.2", facts=Facts(destinations=0))
operation("cp.async.wait_group", "cp_wait", section="9.7.9.25.3.3", facts=_WAIT)
operation("cp.async.wait_all", "cp_wait", section="9.7.9.25.3.3", facts=_WAIT)
_MATRIX = {"num": ".x1 .x2 .x4", "space": ".shared .shared::cta"}
operation(
    "ldmatrix.sync.aligned.m8n8.num{.trans}{.space}.b16", "ldmatrix", section="9.7.14.5.15", requires=75,
    facts=Facts(effects=False, exchanges="operands", memory="reads"), **_MATRIX,
)  # fmt: skip
operation(
    "stmatrix.sync.aligned.m8n8.num{.trans}{.space}.b16", "stmatrix", section="9.7.14.5.16", requires=90,
    facts=Facts(exchanges="together", memory="writes"), **_MATRIX,
)  # fmt: skip
operation("call{.uni}", "call", section="9.7.12.5", facts=Facts(destinations=0, control="call"))
