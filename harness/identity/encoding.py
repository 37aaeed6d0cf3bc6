"""Values as bytes: two values that differ in type, bits or order have different encodings.

`==` is no identity: it takes 0.0 for -0.0, True for 1 and 2 for 2.0. Here every value carries its type and length.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import os
import struct
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import PurePath
from typing import Any

_NONCE = os.urandom(8)
_kept: list[Any] = []

_MANY = 64

Fallback = Callable[[Any], "bytes | None"]


def tagged(tag: str, *parts: bytes) -> bytes:
    """A tag and parts with their lengths, so that no two lists of parts read the same."""
    return tag.encode() + b":" + b"".join(str(len(p)).encode() + b":" + p for p in parts)


def encode(value: Any, other: Fallback | None = None) -> bytes:
    """The encoding of a value: equal for equal types and bits, in every process.

    None, bool, int, float (by its bits), str, bytes, Fraction, enums, paths, tuples, lists, sets, mappings (in order),
    dataclasses, and numpy's arrays, numbers and dtypes. other: gives the encoding of any further value, such as a
    function, or None. What nobody can encode is equal to itself in this process only.
    """
    if other is not None and is_plain(value) and (own := other(value)) is not None:
        return own
    if isinstance(value, enum.Enum):
        return tagged("enum", _class(value), value.name.encode(), encode(value.value, other))
    found = _scalar(value)
    if found is not None:
        return found
    if isinstance(value, tuple | list):
        if len(value) > _MANY and all(type(v) is int for v in value):  # a table: one by one it would take seconds
            return tagged(f"{type(value).__name__} of int", repr(list(value)).encode())
        return tagged(type(value).__name__, *(encode(v, other) for v in value))
    if isinstance(value, set | frozenset):
        return tagged("set", *sorted(encode(v, other) for v in value))
    if isinstance(value, Mapping):
        return tagged("map", *(part for k, v in value.items() for part in (encode(k, other), encode(v, other))))
    if other is not None and (found := other(value)) is not None:
        return found
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        return tagged("data", _class(value), *(encode(p, other) for pair in parts for p in pair))
    found = _array(value)
    return _only_here(value) if found is None else found


def is_plain(value: Any) -> bool:
    """Whether this is an enum's member, a container or text of a class of its own, which may hold code besides."""
    if type(value) in (dict, list, tuple, set, frozenset, str):
        return False
    return isinstance(value, (enum.Enum, dict, list, tuple, set, frozenset, str))


def _scalar(value: Any) -> bytes | None:
    if value is None or value is ... or isinstance(value, bool):
        return tagged("is", repr(value).encode())
    if isinstance(value, PurePath):
        return tagged("path", str(value).encode())
    if isinstance(value, Fraction):
        return tagged("fraction", str(value).encode())
    if type(value) is int:
        return tagged("int", str(value).encode())
    if type(value) is float:
        return tagged("float", struct.pack(">d", value))
    if type(value) is complex:
        return tagged("complex", struct.pack(">dd", value.real, value.imag))
    if isinstance(value, str):
        return tagged("str", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes | bytearray):
        return tagged("bytes", bytes(value))
    return None


def _array(value: Any) -> bytes | None:
    """numpy's arrays, numbers and dtypes, and torch's tensors on the CPU."""
    home = type(value).__module__.partition(".")[0]
    if home == "torch" and hasattr(value, "data_ptr"):
        import torch

        flat = value.detach().cpu().contiguous().reshape(-1)
        raw = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        return tagged("tensor", str(value.dtype).encode(), encode(tuple(value.shape)), raw)
    if home == "torch" and type(value).__name__ in ("dtype", "device", "layout", "memory_format"):
        return tagged("torch", str(value).encode())
    if home not in ("numpy", "ml_dtypes"):
        return None
    import numpy as np

    if isinstance(value, np.ndarray | np.generic) and not np.asarray(value).dtype.hasobject:
        array = np.ascontiguousarray(value)
        return tagged("array", str(array.dtype).encode(), encode(np.shape(value)), array.tobytes())
    if isinstance(value, np.dtype):
        return tagged("dtype", str(value).encode())
    return None


def _class(value: Any) -> bytes:
    return type(value).__qualname__.encode()


def _only_here(value: Any) -> bytes:
    """An encoding that no other process can repeat, nor another object of this one."""
    _kept.append(value)  # alive, so that no other object gets its id
    return tagged("object", _class(value), _NONCE, str(id(value)).encode())


def digest(value: Any, other: Fallback | None = None) -> str:
    """SHA-256 of a value's encoding, in hexadecimal."""
    return hashlib.sha256(encode(value, other)).hexdigest()
