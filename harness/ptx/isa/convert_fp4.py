"""cvt to and from e2m1 pairs (ISA 9.7.9.22)."""

from __future__ import annotations

from harness.ptx.bits import f32_value, scalar

from .registry import instruction

_FP4 = "100a 100f 101a 101f 103a 103f 110a 110f 120a 120f 121a 121f"


@scalar
def e2m1_from_f64(x: float, negative: int, relu: int) -> int:
    """e2m1 code of a value, to nearest even, clamped to 6; NaN gives 6 (code 7).

    The eight magnitudes are 0, 0.5, 1, 1.5, 2, 3, 4, 6; ties go to the code with last bit 0.
    """
    if x != x:
        return 7
    if negative and relu:
        return 0
    m = abs(x)
    code = (m > 0.25) + (m >= 0.75) + (m > 1.25) + (m >= 1.75) + (m > 2.5) + (m >= 3.5) + (m > 5.0)
    return code | 8 if negative else code


@instruction("cvt.rn.satfinite{.relu}.e2m1x2.f32", "d:e2m1x2, a, b", section="9.7.9.22", requires=_FP4)
def cvt_e2m1x2_f32(a: int, b: int, relu: int) -> int:
    """Two float32 to a byte: `a` to the upper four bits, `b` to the lower."""
    high = e2m1_from_f64(f32_value(a), a >> 31, relu)
    return high << 4 | e2m1_from_f64(f32_value(b), b >> 31, relu)
