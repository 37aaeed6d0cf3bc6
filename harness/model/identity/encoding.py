"""Encode values as bytes: two values that differ in type, bits or order have different encodings.

`==` does not suffice: 0.0 == -0.0, True == 1 and 2 == 2.0. Here every value is encoded with its type and length.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import os
import struct
import sys
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import PurePath
from typing import Any

_NONCE = os.urandom(8)
_kept: list[Any] = []

_MANY = 64

Fallback = Callable[[Any], "bytes | None"]


def tagged(tag: str, *parts: bytes) -> bytes:
    """A tag and parts with their lengths, so that different lists of parts have different encodings."""
    return b"".join((tag.encode(), b":", *[b"%d:%b" % (len(p), p) for p in parts]))


def encode(value: Any, other: Fallback | None = None) -> bytes:
    """The encoding of a value, which is equal for equal types and bits in every process.

    None, bool, int, float (by its bits), str, bytes, Fraction, enums, paths, tuples, lists, sets, mappings (in order),
    dataclasses, and numpy's arrays, numbers and dtypes. other: called first for every value whose type is not plain,
    such as a function or an object of a user's class; it returns an encoding or None. Any other object gets an encoding
    that no other object has, and that differs between processes.
    """
    kind = type(value)
    plain = _PLAIN.get(kind)
    if plain is not None:
        return plain(value)
    if kind is tuple or kind is list:
        return _sequence(value, other)
    if kind is dict:
        return _mapping(value, other)
    if value.__class__ is not type(value):  # questions about its class would get wrong answers
        return only_here(value)
    encoded = _scalar(value)
    if encoded is not None:
        return encoded
    if type(value) not in _CONTAINERS and other is not None and (encoded := other(value)) is not None:
        return encoded
    if isinstance(value, enum.Enum):
        return tagged("enum", _class(value), value.name.encode(), encode(value.value, other))
    if isinstance(value, str):
        return tagged("str", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes | bytearray):
        return tagged("bytes", bytes(value))
    if isinstance(value, tuple | list):
        return _sequence(value, other)
    if isinstance(value, set | frozenset):
        return tagged("set", *sorted(encode(v, other) for v in value))
    if isinstance(value, Mapping):
        return _mapping(value, other)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = ((name, encode(getattr(value, field), other)) for field, name in _fields(type(value)))
        return tagged("data", _class(value), *(part for pair in parts for part in pair))
    encoded = array(value, other)
    return only_here(value) if encoded is None else encoded


def _sequence(value: tuple[Any, ...] | list[Any], other: Fallback | None) -> bytes:
    if len(value) > _MANY and all(type(v) is int for v in value):  # one by one a large table would take seconds
        return tagged(f"{type(value).__name__} of int", repr(list(value)).encode())
    return tagged(type(value).__name__, *[encode(v, other) for v in value])


def _mapping(value: Mapping[Any, Any], other: Fallback | None) -> bytes:
    return tagged("map", *[part for k, v in value.items() for part in (encode(k, other), encode(v, other))])


@functools.cache
def _fields(cls: type) -> tuple[tuple[str, bytes], ...]:
    """The names of a dataclass's fields, each with its encoding."""
    return tuple((f.name, encode(f.name)) for f in dataclasses.fields(cls))


_CONTAINERS = (tuple, list, set, frozenset, dict)


def _scalar(value: Any) -> bytes | None:
    """The encoding of a value that is neither of a type in `_PLAIN` nor a container."""
    if value is Ellipsis or value is NotImplemented:
        return _word(value)
    if isinstance(value, slice | range):
        return tagged(type(value).__name__, *map(encode, (value.start, value.stop, value.step)))
    if isinstance(value, PurePath) and type(value).__module__.partition(".")[0] == "pathlib":
        return tagged("path", str(value).encode())
    if type(value) is Fraction:
        return tagged("fraction", str(value).encode())
    if type(value) is complex:
        return tagged("complex", struct.pack(">dd", value.real, value.imag))
    return None


def _word(value: Any) -> bytes:
    return tagged("is", repr(value).encode())


_NONE, _TRUE, _FALSE = _word(None), _word(True), _word(False)


def _text(value: str) -> bytes:
    """`tagged("str", ...)` in one step: most values of an identity are texts."""
    encoded = value.encode("utf-8", "surrogatepass")
    return b"str:%d:%b" % (len(encoded), encoded)


def _integer(value: int) -> bytes:
    digits = b"%d" % value
    return b"int:%d:%b" % (len(digits), digits)


_PLAIN: Mapping[type, Callable[[Any], bytes]] = {
    type(None): lambda value: _NONE,
    bool: lambda value: _TRUE if value else _FALSE,
    int: _integer,
    float: lambda value: tagged("float", struct.pack(">d", value)),
    str: _text,
    bytes: lambda value: tagged("bytes", value),
    bytearray: lambda value: tagged("bytes", bytes(value)),
}


def array(value: Any, other: Fallback | None = None) -> bytes | None:
    """The encoding of an array, number or dtype of numpy, or of a tensor; None for other values, and for arrays of
    objects.

    Everything that code can reach from the value counts: attributes, the memory behind a view, metadata of a dtype.
    """
    home = type(value).__module__.partition(".")[0]
    if home == "torch" and type(value).__name__ in ("dtype", "device", "layout", "memory_format"):
        return tagged("torch", str(value).encode())
    if "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor):
        return _tensor(value, other)
    if "numpy" not in sys.modules:
        return None
    import numpy as np

    if isinstance(value, np.ndarray | np.generic) and not np.asarray(value).dtype.hasobject:
        plain = np.ascontiguousarray(value).view(np.ndarray)
        kind = str(plain.dtype).encode()
        encoded = tagged("array", kind, encode(np.shape(value)), plain.tobytes())
        beyond = _beyond_dtype(plain.dtype, other) + _beyond_array(value, other)
        return tagged("array with", encoded, *beyond) if beyond else encoded
    if isinstance(value, np.dtype):
        kind, beyond = tagged("dtype", str(value).encode()), _beyond_dtype(value, other)
        return tagged("dtype with", kind, *beyond) if beyond else kind
    return None


def _tensor(value: Any, other: Fallback | None) -> bytes | None:
    import torch

    try:
        flat = value.detach().cpu().contiguous().reshape(-1)
        raw = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        encoded = tagged("tensor", str(value.dtype).encode(), encode(tuple(value.shape)), raw)
        beyond = [encode(dict(vars(value)), other)] if vars(value) else []
        if value.requires_grad or value.grad is not None:
            beyond.append(encode((value.requires_grad, value.grad), other))
        storage = value.untyped_storage()
        if value.device.type == "cpu" and storage.nbytes() != len(raw):  # a view: its storage can be reached
            memory = torch.empty(0, dtype=torch.uint8).set_(storage).numpy().tobytes()
            beyond += [encode((value.stride(), value.storage_offset())), memory]
        if value._base is not None and vars(value._base):
            beyond.append(encode(dict(vars(value._base)), other))
    except (RuntimeError, NotImplementedError, TypeError):  # it has no memory here, such as on the device "meta"
        return None
    return tagged("tensor with", encoded, *beyond) if beyond else encoded


def _beyond_dtype(dtype: Any, other: Fallback | None) -> list[bytes]:
    """What the text of a dtype does not show."""
    parts = [encode(dict(dtype.metadata), other)] if dtype.metadata else []
    if dtype.names:
        fields = [(name, dtype.fields[name][1:]) for name in dtype.names]
        parts += [encode((fields, dtype.itemsize)), *(array(dtype.fields[n][0], other) or b"" for n in dtype.names)]
    elif dtype.subdtype is not None:
        parts += _beyond_dtype(dtype.subdtype[0], other)
    return parts


def _beyond_array(value: Any, other: Fallback | None) -> list[bytes]:
    """What an array leads to besides its elements: its attributes, and the memory of which it is a view."""
    import numpy as np

    attributes = getattr(value, "__dict__", None)
    parts = [encode((type(value).__name__, dict(attributes)), other)] if attributes else []
    base = value.base
    if base is None:
        return parts
    alike = type(base) is np.ndarray and base.nbytes == value.nbytes and not _beyond_array(base, other)
    return parts if alike else [*parts, encode(base, other)]


def _class(value: Any) -> bytes:
    return type(value).__qualname__.encode()


def without_encoding() -> list[Any]:
    """The objects without an encoding so far, in the order of their encoding."""
    return _kept


def only_here(value: Any) -> bytes:
    """An encoding that differs from that of every other object, in this and every other process."""
    _kept.append(value)  # kept alive, so that no other object gets its id
    return tagged("object", _class(value), _NONCE, str(id(value)).encode())


def digest(value: Any, other: Fallback | None = None) -> str:
    """SHA-256 of a value's encoding, in hexadecimal."""
    digested = hashlib.sha256()
    for part in _parts(value, other):
        digested.update(part)
    return digested.hexdigest()


def _parts(value: Any, other: Fallback | None) -> list[Any]:
    """The encoding of a value in parts, of which those of arrays are their own memory: inputs of a run have hundreds of
    megabytes, and `encode` copies them once for each level."""
    if type(value) is dict:
        return _tagged_parts("map", [_parts(part, other) for pair in value.items() for part in pair])
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray or not _is_plain(value):
        return [encode(value, other)]
    shape = [encode(value.shape)]
    memory = memoryview(value.reshape(-1).view(numpy.uint8)) if value.size else b""
    parts = _tagged_parts("array", [[str(value.dtype).encode()], shape, [memory]])
    if _is_whole(value):
        return parts
    return _tagged_parts("array with", [parts, _parts(value.base, other)])


def _is_plain(value: Any) -> bool:
    """Whether an array's dtype has nothing beside its name, and its memory holds the elements in order."""
    dtype = value.dtype
    return dtype.kind in "biuf" and dtype.metadata is None and bool(value.flags.c_contiguous)


def _is_whole(value: Any) -> bool:
    """Whether an array leads to nothing but its elements (`_beyond_array`)."""
    base = value.base
    return base is None or (type(base) is type(value) and base.nbytes == value.nbytes and _is_whole(base))


def _tagged_parts(tag: str, parts: list[list[Any]]) -> list[Any]:
    """As `tagged`, of parts that are lists of bytes."""
    joined: list[Any] = [tag.encode() + b":"]
    for part in parts:
        joined += [b"%d:" % sum(map(len, part)), *part]
    return joined
