"""Triton's interpreter (`TRITON_INTERPRET=1`) with the operation that it lacks: inline asm, by way of the emulator.

    from harness.triton.interpreter import install
    install()                       # in pytest, the plugin has done so

From then on kernels that contain `tl.inline_asm_elementwise` run under TRITON_INTERPRET=1 on the CPU, with print and a
debugger in them. The PTX is checked for `target`. Which elements share an invocation is no contract of Triton's, and
what pads a partial pack is undefined: `shuffle` and `padding` vary both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Settings:
    """How inline asm is run. shuffle: a seed for which elements share a pack; padding: a seed for padding's bits."""

    target: str = "sm_90a"
    shuffle: int | None = None
    padding: int | None = None


_settings = Settings()


def install(*, target: str = "sm_90a", shuffle: int | None = None, padding: int | None = None) -> None:
    """Give Triton's interpreter inline asm; calling it again changes the settings.

    Raises ImportError where Triton is not installed.
    """
    from triton.runtime.interpreter import InterpreterBuilder

    _settings.target, _settings.shuffle, _settings.padding = target, shuffle, padding
    InterpreterBuilder.create_inline_asm = create_inline_asm


class _Call:
    """What Triton's front end expects of the operation it created: numbered results."""

    def __init__(self, results: Sequence[Any]) -> None:
        self._results = results

    def get_result(self, index: int) -> Any:
        """Result number `index`."""
        return self._results[index]


def create_inline_asm(
    builder: Any, asm: str, constraints: str, values: Sequence[Any], types: Sequence[Any], is_pure: bool, pack: int
) -> _Call:
    """The interpreter's operation: `values` and the results are its handles around numpy arrays.

    Raises PtxError with line and column for asm that the target does not have or that is wrong.
    """
    from triton.runtime.interpreter import TensorHandle

    from harness.ptx import emulate

    wanted = [_array_dtype(_scalar(kind)) for kind in types]
    arguments = [np.asarray(value.data) for value in values]
    results = emulate(
        asm,
        constraints,
        [_bits(a) for a in arguments],
        [np.dtype(f"uint{8 * d.itemsize}") for d in wanted],
        pack=pack,
        target=_settings.target,
        order=_settings.shuffle,
        padding=_settings.padding,
    )
    assert isinstance(results, tuple)
    shapes = [tuple(getattr(kind, "shape", ())) for kind in types]
    handles = []
    for result, dtype, kind, shape in zip(results, wanted, types, shapes, strict=True):
        bits = np.ascontiguousarray(np.broadcast_to(result, shape))
        data = bits.astype(bool) if dtype == np.bool_ else bits.view(dtype)
        handles.append(TensorHandle(data.reshape(shape or (1,)), _scalar(kind)))
    return _Call(handles)


def _bits(array: Any) -> Any:
    """An array as unsigned integers of its width; the interpreter holds bfloat16 and float8 so already."""
    return np.ascontiguousarray(array).view(f"uint{8 * array.dtype.itemsize}")


def _scalar(kind: Any) -> Any:
    return getattr(kind, "scalar", kind)


def _array_dtype(kind: Any) -> np.dtype[Any]:
    """The numpy dtype in which the interpreter holds a Triton type."""
    from triton.runtime.interpreter import _get_np_dtype

    dtype: np.dtype[Any] = np.dtype(_get_np_dtype(kind))
    return dtype
