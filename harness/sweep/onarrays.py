"""Evaluate domains on the device that holds the inputs.

A domain's predicate is written for numpy. Here it gets torch tensors that implement numpy's operators and functions
(`__array_ufunc__`, `__array_function__`), so that it runs on a device.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.model.match import Domain

# numpy's names of functions with another name in torch.
_NAMES = {"invert": "bitwise_not", "conjugate": "conj", "absolute": "abs", "rint": "round", "power": "pow",
          "fabs": "abs", "equal": "eq", "not_equal": "ne", "mod": "remainder"}  # fmt: skip


class OnDevice(np.lib.mixins.NDArrayOperatorsMixin):
    """A tensor that numpy's functions and Python's operators accept as an array."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Any:
        name = _NAMES.get(ufunc.__name__, ufunc.__name__)
        function = getattr(torch, name, None)
        if method != "__call__" or options or function is None:
            return NotImplemented
        like = self.tensor
        tensors = [o.tensor if isinstance(o, OnDevice) else _number(o, like) for o in operands]
        return OnDevice(function(*tensors))


def _number(value: Any, like: Tensor) -> Tensor:
    """A number as a tensor: numpy computes with float64 where torch would with float32."""
    array = np.asarray(value)
    return torch.as_tensor(array.astype(np.float64) if array.dtype.kind == "f" else array, device=like.device)


def holds_on_tensors(domain: Domain, values: Mapping[str, Tensor]) -> Tensor:
    """Whether a domain holds, for float64 tensors of the inputs' values; on the host if its predicate needs numpy."""
    like = next(iter(values.values()))
    try:
        found = domain.predicate(MappingProxyType({n: OnDevice(v) for n, v in values.items()}))
        held = found.tensor if isinstance(found, OnDevice) else None
    except Exception:
        held = None  # the host gives the same result, or raises the predicate's own error
    if held is not None and held.dtype == torch.bool and held.shape == like.shape:
        return held
    host = domain.holds({n: v.cpu().numpy() for n, v in values.items()})
    return torch.from_numpy(np.array(host)).to(like.device)
