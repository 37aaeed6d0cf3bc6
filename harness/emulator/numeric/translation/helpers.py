"""LLVM code of the helpers of `bits` that are not plain arithmetic.

`translation` puts it into the emulator's own code, `bits_compiled` into numba's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

INT32, INT64 = ir.IntType(32), ir.IntType(64)
FLOAT, DOUBLE = ir.FloatType(), ir.DoubleType()


def _high64(b: Any, x: Any, y: Any) -> Any:
    wide = ir.IntType(128)
    product = b.mul(b.zext(x, wide), b.zext(y, wide))
    return b.trunc(b.lshr(product, ir.Constant(wide, 64)), INT64)


def _square_root(b: Any, x: Any) -> Any:
    return b.call(b.module.declare_intrinsic("llvm.sqrt", [DOUBLE]), [x])


BUILDERS: dict[str, tuple[Callable[..., Any], Any, tuple[Any, ...]]] = {
    "wrap64": (lambda b, x: x, INT64, (INT64,)),
    "shr64": (lambda b, x, n: b.lshr(x, n), INT64, (INT64, INT64)),
    "shl64": (lambda b, x, n: b.shl(x, n), INT64, (INT64, INT64)),
    "high64": (_high64, INT64, (INT64, INT64)),
    "udiv64": (lambda b, x, y: b.udiv(x, y), INT64, (INT64, INT64)),
    "clz64": (lambda b, x: b.ctlz(x, ir.Constant(ir.IntType(1), 0)), INT64, (INT64,)),
    "popcount64": (lambda b, x: b.ctpop(x), INT64, (INT64,)),
    "f32_value": (lambda b, x: b.fpext(b.bitcast(b.trunc(x, INT32), FLOAT), DOUBLE), DOUBLE, (INT64,)),
    "f32_round": (lambda b, x: b.zext(b.bitcast(b.fptrunc(x, FLOAT), INT32), INT64), INT64, (DOUBLE,)),
    "f64_value": (lambda b, x: b.bitcast(x, DOUBLE), DOUBLE, (INT64,)),
    "f64_bits": (lambda b, x: b.bitcast(x, INT64), INT64, (DOUBLE,)),
    "divide": (lambda b, x, y: b.fdiv(x, y), DOUBLE, (DOUBLE, DOUBLE)),
    "square_root": (_square_root, DOUBLE, (DOUBLE,)),
    "to_float": (lambda b, x: b.sitofp(x, DOUBLE), DOUBLE, (INT64,)),
    "to_int": (lambda b, x: b.fptosi(x, INT64), INT64, (DOUBLE,)),
}
"""For each name in `bits`: what emits its code, the type of its result, and the types of its arguments."""
