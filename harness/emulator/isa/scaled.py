"""Products of block-scaled matrices by a warp's tensor cores: MXFP8, 6 and 4 and NVFP4 (ISA 9.7.14.3, 9.7.14.5.14).

`ptxdiff.emulator.kernel.warp.scaled_mma` runs them; `ptxdiff.emulator.kernel.warp.sparse_scaled_mma` runs those of a
sparse matrix (9.7.14.6.3). ptxas (13.4) also accepts ue8m0 scales for sixteen elements, which are not in the ISA's
table.
"""

from __future__ import annotations

from ptxdiff.emulator.isa.facts import Facts
from ptxdiff.emulator.isa.registry import operation

_PRODUCT = Facts(effects=False, exchanges="operands", product="warp")
_SPARSE = {".m16n8k32": ".m16n8k64", ".m16n8k64": ".m16n8k128"}
_F8F6F4 = ".e4m3 .e5m2 .e3m2 .e2m3 .e2m1"

for _kind, _vector, _shape, _types, _scales in (
    ("mxf8f6f4", "{.scale_vec::1X}", ".m16n8k32", _F8F6F4, ".ue8m0"),
    ("mxf4", "{.scale_vec::2X}", ".m16n8k64", ".e2m1", ".ue8m0"),
    ("mxf4nvf4", ".scale_vec::2X", ".m16n8k64", ".e2m1", ".ue8m0"),
    ("mxf4nvf4", ".scale_vec::4X", ".m16n8k64", ".e2m1", ".ue8m0 .ue4m3"),
):
    operation(
        f"mma.sync.aligned.shape.row.col.kind::{_kind}.block_scale{_vector}.f32.atype.btype.f32.stype",
        "mma_scaled",
        section="9.7.14.5.14",
        requires="120f",
        shape=_shape,
        atype=_types,
        btype=_types,
        stype=_scales,
        facts=_PRODUCT,
    )
    operation(
        f"mma.sp::ordered_metadata.sync.aligned.shape.row.col.kind::{_kind}.block_scale{_vector}.f32.atype.btype.f32.stype",
        "mma_sp_scaled",
        section="9.7.14.6.3",
        requires="120f" if _kind == "mxf8f6f4" else "120a 121a",  # ptxas (13.4)
        shape=_SPARSE[_shape],
        atype=_types,
        btype=_types,
        stype=_scales,
        facts=_PRODUCT,
    )
