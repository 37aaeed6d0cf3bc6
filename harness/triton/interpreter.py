"""Adds inline asm to Triton's interpreter (`TRITON_INTERPRET=1`), which lacks it. The emulator runs the asm.

    from ptxdiff.triton.interpreter import install
    install()                       # under pytest, the plugin does this

After that, kernels with `tl.inline_asm_elementwise` run on the CPU under TRITON_INTERPRET=1, and prints and debuggers
work in them. The PTX is checked for `target`. Triton promises nothing about which elements share an invocation, and the
padding of a partial pack is undefined: `shuffle` and `padding` vary both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Settings:
    """How inline asm is run. shuffle: a seed that decides which elements share a pack. padding: a seed for its bits."""

    target: str = "sm_90a"
    shuffle: int | None = None
    padding: int | None = None


_settings = Settings()


def install(*, target: str = "sm_90a", shuffle: int | None = None, padding: int | None = None) -> None:
    """Add inline asm to Triton's interpreter; another call changes the settings.

    Raises ImportError if Triton is not installed.
    """
    from triton.runtime.interpreter import InterpreterBuilder

    _settings.target, _settings.shuffle, _settings.padding = target, shuffle, padding
    InterpreterBuilder.create_inline_asm = create_inline_asm


class _Call:
    """The object that Triton's front end expects for an operation: it has numbered results."""

    def __init__(self, results: Sequence[Any]) -> None:
        self._results = results

    def get_result(self, index: int) -> Any:
        """Result number `index`."""
        return self._results[index]


def create_inline_asm(
    builder: Any, asm: str, constraints: str, values: Sequence[Any], types: Sequence[Any], is_pure: bool, pack: int
) -> _Call:
    """The interpreter's operation. values, and the results, are the interpreter's handles of numpy arrays.

    Raises PtxError with line and column if the asm is wrong or the target lacks one of its instructions.
    """
    from triton.runtime.interpreter import TensorHandle

    from ptxdiff.emulator import emulate

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
    """An array as unsigned integers of its width, as the interpreter holds bfloat16 and float8 already."""
    return np.ascontiguousarray(array).view(f"uint{8 * array.dtype.itemsize}")


def _scalar(kind: Any) -> Any:
    return getattr(kind, "scalar", kind)


def _array_dtype(kind: Any) -> np.dtype[Any]:
    """The numpy dtype in which the interpreter holds a Triton type."""
    from triton.runtime.interpreter import _get_np_dtype

    dtype: np.dtype[Any] = np.dtype(_get_np_dtype(kind))
    return dtype
