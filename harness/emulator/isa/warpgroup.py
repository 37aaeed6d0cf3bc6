"""Asynchronous products of matrices on the four warps of a warpgroup (ISA 9.7.15).

A form of wgmma is a row of `ROWS`; `ptxdiff.emulator.kernel.wgmma.multiply` runs them all, with
`ptxdiff.emulator.numeric.tensorcore`. All have 64 rows. ptxas (12.9, 13.4) accepts every multiple of 8 columns, for
integers and single bits fewer. Forms with a sparse matrix a are rows of `SPARSE_ROWS`, with the k of the dense form;
`ptxdiff.emulator.kernel.wgmma.multiply` runs these, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ptxdiff.emulator.isa.facts import Facts
from ptxdiff.emulator.isa.registry import operation

_ALL = range(8, 257, 8)
_FEWER = (8, 16, 24, *range(32, 257, 16))
_F8 = ".e4m3 .e5m2"


@dataclass(frozen=True)
class GroupRow:
    """Forms of wgmma: k, types of d, a and b (b's only if it may differ), and the numbers of columns.

    `before`, `behind`: the modifiers before and after the types.
    """

    k: int
    d: str
    a: str
    b: str = ""
    columns: range | tuple[int, ...] = _ALL
    before: str = ""
    behind: str = ""


ROWS = (
    GroupRow(16, ".f16 .f32", ".f16"),
    GroupRow(16, ".f32", ".bf16"),
    GroupRow(8, ".f32", ".tf32"),
    GroupRow(32, ".f16 .f32", _F8, _F8),
    GroupRow(32, ".s32", ".s8 .u8", ".s8 .u8", _FEWER, before="{.satfinite}"),
    GroupRow(256, ".s32", ".b1", columns=_FEWER, behind=".and.popc"),
)
SPARSE_ROWS = (
    GroupRow(32, ".f16 .f32", ".f16"),
    GroupRow(32, ".f32", ".bf16"),
    GroupRow(16, ".f32", ".tf32"),
    GroupRow(64, ".f16 .f32", _F8, _F8),
    GroupRow(64, ".s32", ".s8 .u8", ".s8 .u8", _FEWER, before="{.satfinite}"),
)

_GROUP = Facts(exchanges="together", orders_parts=True)
_ORDER = replace(_GROUP, destinations=0, computes=False)
for _sparse, _operation, _section, _rows in (
    ("", "wgmma", "9.7.15.5.2", ROWS),
    (".sp", "wgmma_sp", "9.7.15.6.3", SPARSE_ROWS),
):
    for _row in _rows:
        operation(
            f"wgmma.mma_async{_sparse}.sync.aligned.shape{_row.before}.dtype.atype.btype{_row.behind}",
            _operation,
            section=_section,
            requires="90a",
            shape=" ".join(f".m64n{n}k{_row.k}" for n in _row.columns),
            dtype=_row.d,
            atype=_row.a,
            btype=_row.b or _row.a,
            facts=replace(_GROUP, product="warpgroup"),
        )
operation("wgmma.fence.sync.aligned", "wgmma_fence", section="9.7.15.7.1", requires="90a", facts=_ORDER)
operation("wgmma.commit_group.sync.aligned", "wgmma_commit", section="9.7.15.7.2", requires="90a", facts=_ORDER)
operation("wgmma.wait_group.sync.aligned", "wgmma_wait", section="9.7.15.7.3", requires="90a", facts=_ORDER)
