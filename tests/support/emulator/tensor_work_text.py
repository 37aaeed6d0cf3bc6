"""PTX of tcgen05 operations that are under way."""

from __future__ import annotations

from dataclasses import replace

from ptxdiff.emulator.kernel.tcgen05.operands import SWIZZLES, MatrixDescriptor
from tests.support.emulator import tensor_memory_text as tm
from tests.support.emulator.tensor_products import PRODUCTS

MATRIX = MatrixDescriptor(tm.BASE + tm.DATA, 128, 256, SWIZZLES[0]).code


WHOLE, SMALL = PRODUCTS[0], replace(PRODUCTS[0], m=64, n=8)


D, A, ELSEWHERE = 0, 16, 32
"""First columns of d, of an a in tensor memory, and of cells that no other operation accesses."""


def mma(at: int = D, a: int | None = None, product: object = WHOLE, enable: bool = False, mask: str = "") -> str:
    code = product.idesc  # type: ignore[attr-defined]
    left = "%a" if a is None else f"[%base+{a}]"
    given = f"  mov.b32 %x, {code};\n  setp.ne.u32 %p0, {int(enable)}, 0;\n"
    return f"{given}  @%first tcgen05.mma.cta_group::1.kind::f16 [%base+{at}], {left}, %a, %x{mask}, %p0;\n"
