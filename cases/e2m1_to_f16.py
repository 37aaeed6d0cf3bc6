"""e2m1, two in a byte, to float16, without and with a scale: cvt, shifts, a table by prmt, and Triton."""

from ptxdiff import ALL, Case, asm, only, plain
from ptxdiff.references import dequantise
from ptxdiff.references.formats import F16, F16X2, U8

from ._device.e2m1_to_f16 import SHIFTS, TABLE, alone, in_triton, scaled_in_triton, times_scale

FP4 = only("sm_100a", "sm_101a", "sm_103a", "sm_107a", "sm_110a", "sm_120a", "sm_121a")


HARDWARE = "mov.b32 {b, _, _, _}, $1; cvt.rn.f16x2.e2m1x2 t, b;"
DECODED = {"cvt": (HARDWARE, FP4), "shifts": (SHIFTS, ALL), "prmt": (TABLE, ALL)}


def each(form, constraints):
    """A variant for each way to decode."""
    return {
        name: asm(form(text), constraints=constraints, pack=1, targets=targets, refused=ALL - targets)
        for name, (text, targets) in DECODED.items()
    }


shared = {"outputs": {"y": F16X2}, "family": "dequantisation"}

case = Case(
    **shared,
    inputs={"q": U8},
    reference=dequantise.e2m1,
    variants={**each(alone, "=r,r"), "triton": plain(in_triton)},
    source="OCP Microscaling Formats 1.0, 5.3.3; PTX ISA, cvt",
)

scaled = Case(
    **shared,
    inputs={"q": U8, "scale": F16},
    reference=dequantise.scaled,
    variants={**each(times_scale, "=r,r,r"), "triton": plain(scaled_in_triton)},
    source="OCP Microscaling Formats 1.0, 5.3.3; PTX ISA, mul.f16x2",
)
