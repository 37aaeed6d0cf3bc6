"""Evaluate domains on the device that holds the inputs.

A domain's predicate is written for numpy. Here it gets torch tensors that implement numpy's operators and functions
(`__array_ufunc__`, `__array_function__`), so that it runs on a device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ptxdiff.model.match import Domain
from ptxdiff.references.formats import Format, to_float64

# numpy's names of functions with another name in torch.
_NAMES = {"invert": "bitwise_not", "conjugate": "conj", "absolute": "abs", "rint": "round", "power": "pow",
          "fabs": "abs", "equal": "eq", "not_equal": "ne", "mod": "remainder"}  # fmt: skip


class OnDevice(np.lib.mixins.NDArrayOperatorsMixin):
    """A tensor that numpy's functions and Python's operators accept as an array."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __bool__(self) -> bool:
        raise TypeError("an array has no truth value; combine conditions with & and |")

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Any:
        name = _NAMES.get(ufunc.__name__, ufunc.__name__)
        function = getattr(torch, name, None)
        if method != "__call__" or options or function is None:
            return NotImplemented
        like = self.tensor
        tensors = [o.tensor if isinstance(o, OnDevice) else _number(o, like) for o in operands]
        return type(self)(function(*tensors))


class InKernel(OnDevice):
    """An `OnDevice` whose functions give numpy's bits wherever they run, a kernel included; others raise TypeError."""

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Any:
        if ufunc.__name__ not in _SAME_BITS:
            raise TypeError(f"{ufunc.__name__} may give other bits on a device than in numpy")
        numbers = [_written(o, self.tensor, first=k == 0) for k, o in enumerate(operands)]
        return InKernel(getattr(torch, _NAMES.get(ufunc.__name__, ufunc.__name__))(*numbers))


# IEEE 754 arithmetic, rounded once, and what does not round.
_SAME_BITS = {
    "add", "subtract", "multiply", "divide", "negative", "absolute", "fabs", "less", "less_equal", "greater",
    "greater_equal", "equal", "not_equal", "bitwise_and", "bitwise_or", "bitwise_xor", "invert", "logical_not",
    "isnan", "isinf", "isfinite", "signbit",
}  # fmt: skip


def _written(value: Any, like: Tensor, *, first: bool) -> Any:
    """An operand for torch: a tensor, or a number, of which torch accepts no first one."""
    if isinstance(value, OnDevice):
        return value.tensor
    number = np.asarray(value).item()
    number = float(number) if isinstance(number, int) and not isinstance(number, bool) else number
    if not isinstance(number, (bool, float)):
        raise TypeError(f"{value!r} is no number")
    kind = torch.bool if isinstance(number, bool) else torch.float64
    return torch.full_like(like, number, dtype=kind) if first or kind == torch.bool else number


def traceable(domain: Domain, names: Iterable[str]) -> bool:
    """Whether `in_kernel` can evaluate a domain of these inputs."""
    try:
        held = in_kernel(domain, {n: torch.zeros(3, dtype=torch.float64) for n in names})
    except Exception:
        return False
    return bool(held.dtype == torch.bool) and held.shape == (3,)


def in_kernel(domain: Domain, values: Mapping[str, Tensor]) -> Tensor:
    """Whether a domain holds, by operations that give numpy's bits in a kernel, too.

    values: float64 tensors of the inputs' values. Raises what the predicate raises; TypeError for other operations.
    """
    result = domain.predicate(MappingProxyType({n: InKernel(v) for n, v in values.items()}))
    if not isinstance(result, InKernel):
        raise TypeError(f"domain {domain.text!r} gave {type(result).__name__}, not an array of booleans")
    return result.tensor


def _number(value: Any, like: Tensor) -> Tensor:
    """A number as a tensor: numpy computes with float64 where torch would with float32."""
    array = np.asarray(value)
    return torch.as_tensor(array.astype(np.float64) if array.dtype.kind == "f" else array, device=like.device)


def float_values(fmt: Format, codes: Tensor) -> Tensor:
    """The values of int64 codes as float64, rounded for integers beyond 2^53."""
    if not fmt.is_float and fmt.code_bits == 64:
        unsigned = codes.double() + (codes < 0) * 2.0**64
        return codes.double() if fmt.has_sign else unsigned
    values: Tensor = to_float64(fmt, codes)
    return values


def holds_on_tensors(domain: Domain, values: Mapping[str, Tensor]) -> Tensor:
    """Whether a domain holds, for float64 tensors of the inputs' values; on the host if its predicate needs numpy."""
    like = next(iter(values.values()))
    try:
        result = domain.predicate(MappingProxyType({n: OnDevice(v) for n, v in values.items()}))
        held = result.tensor if isinstance(result, OnDevice) else None
    except Exception:
        held = None  # the host gives the same result, or raises the predicate's own error
    if held is not None and held.dtype == torch.bool and held.shape == like.shape:
        return held
    host = domain.holds({n: v.cpu().numpy() for n, v in values.items()})
    return torch.from_numpy(np.array(host)).to(like.device)
