"""Values that code reaches through objects of compiled classes: all of it counts, or the object equals no other."""

from __future__ import annotations

import array
import collections
import copy
import ctypes
import decimal
import enum
import hashlib
import io
import pathlib
import random
import types
from fractions import Fraction

import numpy as np
import pytest
import torch

from ptxdiff.model.identity import digest_with_code
from ptxdiff.model.identity.encoding import digest, encode, without_encoding


class Array(np.ndarray):
    pass


class Queue(collections.deque):
    pass


class Text(io.StringIO):
    pass


class Fault(Exception):
    pass


class Chance(random.Random):
    pass


class Tensor(torch.Tensor):
    pass


class LeavesOut(collections.deque):
    """A copy of it holds nothing."""

    def __reduce__(self):
        return (LeavesOut, ())


class Attributes:
    """Its copies hold nothing, but it holds nothing besides attributes."""

    def __init__(self, by):
        self.by = by

    def __getstate__(self):
        raise TypeError("not to be copied")


class OtherNumber(int):
    def __int__(self):
        return 0

    __index__ = __int__


class OtherFloat(float):
    def __float__(self):
        return 0.0


class OtherText(str):
    def __str__(self):
        return ""

    def encode(self, *_):
        return b""


class OtherBytes(bytes):
    def __bytes__(self):
        return b""


class OtherList(list):
    def __iter__(self):
        return iter(())


class OtherTuple(tuple):
    __slots__ = ()

    def __iter__(self):
        return iter(())


class OtherSet(set):
    def __iter__(self):
        return iter(())


class OtherMap(dict):
    def keys(self):
        return []

    items = values = __iter__ = keys


class SaysNumber:
    """It says that it is an int, and is none."""

    def __init__(self, by):
        self.by = by

    @property
    def __class__(self):
        return int


class SaysEnum(SaysNumber):
    @property
    def __class__(self):
        return enum.Enum


class SaysFunction(SaysNumber):
    @property
    def __class__(self):
        return types.BuiltinFunctionType


class SaysPath(SaysNumber):
    @property
    def __class__(self):
        return pathlib.PurePosixPath

    def __str__(self):
        return ""


class AnswersAll(type):
    def __getattr__(cls, name):
        return 5


class Ratio(Fraction):
    pass


class Place(pathlib.PurePosixPath):
    pass


class NoAttributes:
    """It says that it has no attributes."""

    def __init__(self, by):
        object.__setattr__(self, "by", by)

    def __getattribute__(self, name):
        return {} if name == "__dict__" else object.__getattribute__(self, name)


class OtherAttributes:
    __slots__ = ("_hidden", "by")

    def __init__(self, by):
        self._hidden = {"by": by}

    @property
    def __dict__(self):
        return {}


class OtherSlot:
    __slots__ = ("by",)

    def __init__(self, by):
        self.by = by

    def __getattribute__(self, name):
        return 0 if name == "by" else object.__getattribute__(self, name)


def with_attribute(value, by):
    value.by = by
    return value


def cyclic(by):
    found = [by]
    found.append(found)
    return found


ENCODED = {
    "a deque": lambda by: collections.deque([by]),
    "a deque in a deque": lambda by: collections.deque([collections.deque([by])]),
    "a ctypes array": lambda by: (ctypes.c_int * 2)(1, by),
    "a ctypes number": ctypes.c_int,
    "an array of numbers": lambda by: array.array("i", [by]),
    "a text in memory": lambda by: io.StringIO(str(by)),
    "bytes in memory": lambda by: io.BytesIO(bytes([by])),
    "a decimal": decimal.Decimal,
    "a generator of random numbers": random.Random,
    "a user's generator of random numbers": Chance,
    "an iterator": lambda by: iter([by]),
    "the base of a view": lambda by: np.array([by, 0])[1:],
    "the bytes behind an array": lambda by: np.frombuffer(bytes([by, 0]), dtype=np.uint8)[1:],
    "a masked array": lambda by: np.ma.masked_array([0], mask=[True], fill_value=by),
    "metadata of a dtype": lambda by: np.dtype("f4", metadata={"by": by}),
    "metadata of an array's dtype": lambda by: np.zeros(1, np.dtype("f4", metadata={"by": by})),
    "metadata of a field": lambda by: np.dtype([("a", np.dtype("f4", metadata={"by": by}))]),
    "the offset of a field": lambda by: np.dtype({"names": ["a"], "formats": ["f4"], "offsets": [by]}),
    "an attribute of a tensor": lambda by: with_attribute(torch.zeros(1), by),
    "the storage of a view": lambda by: torch.tensor([by, 0])[1:],
    "an attribute of a view's base": lambda by: with_attribute(torch.zeros(2), by)[1:],
    "elements that a tensor repeats": lambda by: torch.tensor([by, 0]).expand(3, 2),
    "a user's array": lambda by: np.array([by]).view(Array),
    "an attribute of a user's array": lambda by: with_attribute(np.array([0]).view(Array), by),
    "a user's deque": lambda by: Queue([by]),
    "a user's text in memory": lambda by: Text(str(by)),
    "a user's exception": Fault,
    "a user's tensor": lambda by: torch.tensor([by]).as_subclass(Tensor),
    "an object that refuses copies": Attributes,
    "an attribute of a fraction": lambda by: with_attribute(Ratio(1), by),
    "an attribute of a path": lambda by: with_attribute(Place("a"), by),
    "an int with another number": OtherNumber,
    "a float with another number": OtherFloat,
    "a str with another text": lambda by: OtherText(str(by)),
    "bytes with other bytes": lambda by: OtherBytes([by]),
    "a list that shows none of its values": lambda by: OtherList([by]),
    "a tuple that shows none of its values": lambda by: OtherTuple([by]),
    "a set that shows none of its values": lambda by: OtherSet([by]),
    "a dict that shows none of its values": lambda by: OtherMap({"by": by}),
    "an object that hides its attributes": NoAttributes,
    "an object with other attributes than it has": OtherAttributes,
    "an object whose slot says otherwise": OtherSlot,
}

REFUSED = {
    "an object behind a pointer": lambda by: ctypes.py_object(by),
    "a view of memory": lambda by: memoryview(bytes([by])),
    "an array of objects": lambda by: np.array([by, None]),
    "a tensor without memory": lambda by: torch.zeros(by, device="meta"),
    "a sparse tensor": lambda by: torch.eye(by).to_sparse(),
    "a generator": lambda by: (n for n in [by]),
    "a class that has every attribute": lambda by: AnswersAll("Any", (), {"by": by}),
    "an object that says it is an int": SaysNumber,
    "an object that says it is an enum": SaysEnum,
    "an object that says it is a function": SaysFunction,
    "an object that says it is a path": SaysPath,
    "a user's deque whose copies leave it out": lambda by: LeavesOut([by]),
}


@pytest.mark.parametrize("what", ENCODED)
def test_another_value_gives_another_digest_and_the_same_the_same(what):
    made = ENCODED[what]
    one, same, other = (digest_with_code(made(by), exact=True) for by in (6, 6, 7))
    assert one == same != other
    assert digest_with_code(made(6)) != digest_with_code(made(7))


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_encoded_equals_nothing(what):
    met = len(without_encoding())
    one, same = (digest_with_code(REFUSED[what](6), exact=True) for _ in range(2))
    assert one != same
    assert len(without_encoding()) > met


def test_a_list_that_contains_itself_has_no_encoding():
    met = len(without_encoding())
    digest_with_code(cyclic(6))
    assert len(without_encoding()) > met


def test_a_digest_does_not_change_a_value():
    """An iterator that was read would give nothing to the code that uses it."""
    values = [iter([1, 2]), collections.deque([1, 2]), random.Random(1)]
    before = [copy.copy(v) for v in values]
    for value in values:
        digest_with_code(value, exact=True)
    assert list(values[0]) == [1, 2]
    assert values[1] == before[1]
    assert values[2].random() == before[2].random()


def test_plain_arrays_keep_the_digests_of_accepted_baselines():
    """A view of a whole array, as reshape gives it, is like an array of that shape."""
    whole = np.arange(6).reshape(2, 3)
    assert digest_with_code(whole) == digest_with_code(whole.copy())
    assert digest_with_code(torch.arange(6).reshape(2, 3)) == digest_with_code(torch.arange(6).reshape(2, 3).clone())


_WIDE = np.arange(24, dtype=np.int32)
_NAMED = np.zeros(3, [("a", np.int8), ("b", np.float32)])


@pytest.mark.parametrize(
    "value",
    [
        _WIDE, _WIDE.reshape(4, 6), _WIDE.reshape(4, 6).T, _WIDE[::2], _WIDE[4:8], np.array(5, np.uint8),
        _WIDE.view(np.uint8), np.zeros((0, 3)), _WIDE.view(Array), _NAMED, _NAMED["a"], _WIDE > 3, _WIDE * 1j,
        np.array(["a", "bc"]), np.zeros(2, "datetime64[s]"), np.array([1, "a"], object), _WIDE.astype(">i4"),
        torch.arange(4), 3, {}, {"x": {"y": _WIDE}, "z": (_WIDE, "x")}, collections.OrderedDict(x=_WIDE),
    ],
    ids=lambda value: f"{type(value).__name__} {getattr(value, 'dtype', '')} {getattr(value, 'shape', '')}",
)  # fmt: skip
def test_a_digest_is_that_of_the_encoding(value):
    """It is computed without the copies that the encoding of large arrays makes."""
    for one in (value, {"in": value, "out": value}):
        assert digest(one) == hashlib.sha256(encode(one)).hexdigest()
