"""Special registers: their types, and which targets have them (ISA 10)."""

from __future__ import annotations

from ptxdiff.emulator.targets import Requirement

_CLUSTER = ("%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid", "%cluster_ctarank", "%cluster_nctarank")
_RESERVED = tuple(f"%reserved_smem_offset_{which}" for which in ("begin", "end", "cap", "0", "1"))

SPECIAL_REGISTERS: dict[str, tuple[str, bool]] = {
    "%tid": ("u32", True),
    "%ntid": ("u32", True),
    "%ctaid": ("u32", True),
    "%nctaid": ("u32", True),
    "%clusterid": ("u32", True),
    "%nclusterid": ("u32", True),
    "%cluster_ctaid": ("u32", True),
    "%cluster_nctaid": ("u32", True),
    "%cluster_ctarank": ("u32", False),
    "%cluster_nctarank": ("u32", False),
    "%is_explicit_cluster": ("pred", False),
    "%laneid": ("u32", False),
    "%warpid": ("u32", False),
    "%nwarpid": ("u32", False),
    "%smid": ("u32", False),
    "%nsmid": ("u32", False),
    "%gridid": ("u64", False),
    "%lanemask_eq": ("u32", False),
    "%lanemask_le": ("u32", False),
    "%lanemask_lt": ("u32", False),
    "%lanemask_ge": ("u32", False),
    "%lanemask_gt": ("u32", False),
    "%clock": ("u32", False),
    "%clock_hi": ("u32", False),
    "%clock64": ("u64", False),
    "%globaltimer": ("u64", False),
    "%globaltimer_lo": ("u32", False),
    "%globaltimer_hi": ("u32", False),
    "%dynamic_smem_size": ("u32", False),
    "%total_smem_size": ("u32", False),
    "%aggr_smem_size": ("u32", False),
    "%current_graph_exec": ("u64", False),
    **dict.fromkeys(_RESERVED, ("u32", False)),
    **{f"%envreg{i}": ("u32", False) for i in range(32)},
    **{f"%pm{i}": ("u32", False) for i in range(8)},
    **{f"%pm{i}_64": ("u64", False) for i in range(8)},
}
"""By name, the type and whether the register is a vector of .x .y .z .w."""

NEEDS = {
    **dict.fromkeys((*_CLUSTER, "%is_explicit_cluster", "%aggr_smem_size"), Requirement(minimum=90)),
    **dict.fromkeys(_RESERVED, Requirement(minimum=80)),
}
"""The targets that have a register; a register not listed here is on all targets."""

NARROWER = {**dict.fromkeys(("%tid", "%ntid", "%ctaid", "%nctaid"), (16,)), "%gridid": (16, 32)}
"""Additional sizes in which a register may be read, as programs for PTX 1.x did."""

OF_A_GRID = frozenset(_CLUSTER) | frozenset((
    "%tid", "%ntid", "%ctaid", "%nctaid", "%is_explicit_cluster", "%laneid", "%warpid", "%nwarpid", "%lanemask_eq",
    "%lanemask_le", "%lanemask_lt", "%lanemask_ge", "%lanemask_gt", "%dynamic_smem_size", "%total_smem_size",
))  # fmt: skip
"""Registers whose values the grid of a launch determines. Clocks, timers and numbers of processors are not among
them."""


def spelled(name: str, component: str) -> str:
    """A special register as programs write it: `%tid.x`, `%laneid`."""
    return f"{name}.{component}" if component else name
