"""Arithmetic on four numbers of 8 bits or fewer in a register (sm_100a).

The modifiers name the format of the result and then of the factors, in order. `B3210` after a register says that each
byte holds a code, `N6420` that the lower half of each byte does, `N3210` that the lower 16 bits hold four codes.
"""

from __future__ import annotations

from itertools import product

from ptxdiff.emulator.isa.float_alternate import add_alternate, fma_alternate, mul_alternate
from ptxdiff.emulator.isa.modifiers import CODES
from ptxdiff.sass.rows import row

_RESULTS = {"E4M3x4": "e4m3x4", "E5M2x4": "e5m2x4"}
_FACTORS = [
    *((name, "byte", ptx) for name, ptx in _RESULTS.items()),
    ("E3M2x4", "byte", "e3m2x4"),
    ("E2M3x4", "byte", "e2m3x4"),
    ("E8x4", "byte", "ue8m0x4"),
    ("E2M1x4", "nibble", "e2m1p4x4"),
    ("E2M1x4", "nibbles", "e2m1x4"),
]
"""Modifier, kind of operand, and PTX's name of the format."""


def qadd4(a: int, c: int, dtype: int, atype: int, satfinite: int) -> int:
    """Four sums."""
    return add_alternate(a, c, dtype, atype, satfinite)


def qmul4(a: int, b: int, dtype: int, atype: int, btype: int, satfinite: int) -> int:
    """Four products."""
    return mul_alternate(a, b, dtype, atype, btype, satfinite)


def qfma4(a: int, b: int, c: int, dtype: int, atype: int, btype: int, satfinite: int) -> int:
    """Four fused products and sums."""
    return fma_alternate(a, b, c, dtype, atype, btype, satfinite)


for (_result, _to), (_first, _kind, _of) in product(_RESULTS.items(), _FACTORS):
    _given = {"dtype": CODES[_to], "atype": CODES[_of]}
    row(f"QADD4.{_result}.{_first}{{.SATFINITE}}", f"R = {_kind},term", given=_given)(qadd4)
    for _second, _other, _by in _FACTORS:
        _name, _both = f"{_result}.{_first}.{_second}{{.SATFINITE}}", {**_given, "btype": CODES[_by]}
        row(f"QMUL4.{_name}", f"R = {_kind},{_other}", given=_both)(qmul4)
        row(f"QFMA4.{_name}", f"R = {_kind},{_other},term", given=_both)(qfma4)
