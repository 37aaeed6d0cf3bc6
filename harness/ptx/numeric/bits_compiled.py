"""Compiled forms of the helpers of `bits` that are not plain arithmetic; imported with numba at the first
compilation."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core.extending import intrinsic

INT32, INT64 = ir.IntType(32), ir.IntType(64)
FLOAT, DOUBLE = ir.FloatType(), ir.DoubleType()
i8 = types.int64
f8 = types.float64


def _intrinsic(build: Any, result: Any, *arguments: Any) -> Any:
    """A numba intrinsic of this signature; `build(builder, *values)` emits its code."""
    signature = result(*arguments)

    def generate(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        cast = [context.cast(builder, v, have, want) for v, have, want in zip(values, sig.args, arguments, strict=True)]
        return build(builder, *cast)

    if len(arguments) == 1:

        @intrinsic
        def one(typing: Any, a: Any) -> Any:
            return signature, generate

        return one

    @intrinsic
    def two(typing: Any, a: Any, b: Any) -> Any:
        return signature, generate

    return two


@intrinsic
def wide_vectors(typing: Any) -> Any:
    """Let the calling function use vectors of 512 bits if the processor has them.

    LLVM prefers 256 bits on such processors; loops over 64-bit lanes then take 1.4 times as long (Xeon, 2023).
    """

    def generate(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        # llvmlite's own method takes only attributes without a value.
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.void(), generate


def _high64(b: Any, x: Any, y: Any) -> Any:
    wide = ir.IntType(128)
    product = b.mul(b.zext(x, wide), b.zext(y, wide))
    return b.trunc(b.lshr(product, ir.Constant(wide, 64)), INT64)


def _call(name: str, kind: Any, *more: Any) -> Any:
    def build(b: Any, x: Any) -> Any:
        function = b.module.declare_intrinsic(name, [kind])
        return b.call(function, [x, *more])

    return build


INTRINSICS = {
    "wrap64": _intrinsic(lambda b, x: x, i8, i8),
    "shr64": _intrinsic(lambda b, x, n: b.lshr(x, n), i8, i8, i8),
    "shl64": _intrinsic(lambda b, x, n: b.shl(x, n), i8, i8, i8),
    "high64": _intrinsic(_high64, i8, i8, i8),
    "udiv64": _intrinsic(lambda b, x, y: b.udiv(x, y), i8, i8, i8),
    "clz64": _intrinsic(lambda b, x: b.ctlz(x, ir.Constant(ir.IntType(1), 0)), i8, i8),
    "popcount64": _intrinsic(lambda b, x: b.ctpop(x), i8, i8),
    "f32_value": _intrinsic(lambda b, x: b.fpext(b.bitcast(b.trunc(x, INT32), FLOAT), DOUBLE), f8, i8),
    "f32_round": _intrinsic(lambda b, x: b.zext(b.bitcast(b.fptrunc(x, FLOAT), INT32), INT64), i8, f8),
    "f64_value": _intrinsic(lambda b, x: b.bitcast(x, DOUBLE), f8, i8),
    "f64_bits": _intrinsic(lambda b, x: b.bitcast(x, INT64), i8, f8),
    "divide": _intrinsic(lambda b, x, y: b.fdiv(x, y), f8, f8, f8),
    "square_root": _intrinsic(_call("llvm.sqrt", DOUBLE), f8, f8),
    "to_float": _intrinsic(lambda b, x: b.sitofp(x, DOUBLE), f8, i8),
    "to_int": _intrinsic(lambda b, x: b.fptosi(x, INT64), i8, f8),
}
"""For each name in `bits`, the intrinsic that numba uses."""
