"""Compiled forms of the helpers of `bits` that are not plain arithmetic; imported with numba at the first
compilation."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core.extending import intrinsic

from ptxdiff.emulator.numeric.translation.helpers import BUILDERS, DOUBLE, INT64

_TYPES = {INT64: types.int64, DOUBLE: types.float64}


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


INTRINSICS = {
    name: _intrinsic(build, _TYPES[result], *(_TYPES[a] for a in arguments))
    for name, (build, result, arguments) in BUILDERS.items()
}
"""For each name in `bits`, the intrinsic that numba uses."""
