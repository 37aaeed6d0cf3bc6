"""Records as JSON objects and lines, and back."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ptxdiff.records.in_registers import InRegisters
from ptxdiff.records.key import Amount, Count, Key
from ptxdiff.records.rules import ContradictionError, check
from ptxdiff.records.types import (
    SCHEMA,
    CaseInfo,
    Disagreement,
    End,
    Mutation,
    Proof,
    Record,
    RecordError,
    Result,
    Run,
    StoredText,
    Text,
    Timing,
)
from ptxdiff.records.unedited import EditedError, refuse_edited

_KINDS: dict[str, type[Any]] = {
    "run": Run,
    "case": CaseInfo,
    "text": Text,
    "stored text": StoredText,
    "result": Result,
    "timing": Timing,
    "in registers": InRegisters,
    "disagreement": Disagreement,
    "mutation": Mutation,
    "proof": Proof,
    "end": End,
}
_NAMES = {cls: name for name, cls in _KINDS.items()}


def to_json(record: Record) -> dict[str, Any]:
    """A record as the JSON object of its line. Fields with their default values are left out."""
    return {"record": _NAMES[type(record)], **_plain(record)}


_SIMPLE = frozenset({str, int, float, bool, type(None)})


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in _SIMPLE:
        return value
    if dataclasses.is_dataclass(kind):
        return {name: _plain(v) for name, default in _fields(kind) if (v := getattr(value, name)) != default}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [v if type(v) in _SIMPLE else _plain(v) for v in value]
    return value


@functools.cache
def _fields(cls: type[Any]) -> tuple[tuple[str, Any], ...]:
    """The names of a record's fields, each with its default."""
    return tuple((f.name, _default(f)) for f in dataclasses.fields(cls))


def _default(f: dataclasses.Field[Any]) -> Any:
    if f.name == "schema":
        return dataclasses.MISSING  # always written: the reader needs it first
    return f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default


def from_json(obj: Mapping[str, Any]) -> Record:
    """The record that `to_json` wrote. Raises RecordError for anything else, and for a record that contradicts itself.

    A field with a default may be missing: older files lack it. An unknown field is refused, because it may change the
    meaning of the others.
    """
    if not isinstance(obj, Mapping):
        raise RecordError(f"not a record: {_shown(obj)} is no JSON object")
    fields = dict(obj)
    kind = fields.pop("record", None)
    cls = _KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise RecordError(f"not a record: no kind of record is called {_shown(kind)}; there are {', '.join(_KINDS)}")
    if cls is Run and fields.get("schema") != SCHEMA:
        raise RecordError(f"schema {_shown(fields.get('schema'))}; this version reads {SCHEMA}")
    try:
        record: Record = _build(cls, fields)
        check(record)
    except _Fault as e:
        raise RecordError(f"{kind}: {e}") from None
    except ContradictionError as e:
        raise RecordError(f"{kind}: {e}") from None
    return record


def parsed(text: bytes) -> Record:
    """The record of a line without its checksum. Raises RecordError, also for a result that was edited."""
    record = _as_written(text) or carefully_parsed(text)
    if isinstance(record, Result) and record.made:
        try:
            refuse_edited(text, record.made)
        except EditedError as e:
            raise RecordError(f"result of {_shown(str(record.key))}: {e}") from None
    return record


def carefully_parsed(text: bytes) -> Record:
    """The record of a line, by the reader that knows every rule and says what is wrong. Raises RecordError."""
    try:
        obj = _DECODER.decode(text.decode())
        if _SURROGATE.search(text):
            json.dumps(obj, ensure_ascii=False).encode()
    except _Fault as e:
        raise RecordError(str(e)) from None
    except (UnicodeDecodeError, UnicodeEncodeError) as e:
        raise RecordError(f"not UTF-8: {e.reason}") from None
    except (ValueError, RecursionError) as e:
        raise RecordError(f"not JSON: {e}") from None
    return from_json(obj)


_RESULT = b'{"record":"result",'


def _as_written(text: bytes) -> Result | None:
    """The result of a line that is spelled as `to_text` spells it; None if it is not, or if anything is wrong with it.

    Nearly all lines of a run are such results, and msgspec reads a file of them in half the time. It accepts two
    members of one name, so what it read must be written as the same bytes. None is returned where msgspec is missing.
    """
    if not text.startswith(_RESULT) or (reader := _fast_reader()) is None:
        return None
    strict, encoder, decoder = reader
    try:
        if encoder.encode(strict.decode(text)) != text:
            return None
        result: Result = decoder.decode(text)
        check(result)
    except (ValueError, RecursionError, ContradictionError):  # msgspec's errors are ValueErrors
        return None
    return result


@functools.cache
def _fast_reader() -> tuple[Any, Any, Any] | None:
    """A decoder that checks names and types, its encoder, and a decoder of results that checks neither."""
    try:
        import msgspec
    except ImportError:  # it comes with the extra `report`
        return None
    strict = _twin(Result, record="result")
    return msgspec.json.Decoder(strict), msgspec.json.Encoder(), msgspec.json.Decoder(Result)


def _twin(hint: Any, record: str | None = None) -> Any:
    """The type by which msgspec checks what `_reader` checks: record classes become structs, which know their names."""
    import msgspec

    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Count, Amount):
        return typing.Annotated[args[0], msgspec.Meta(ge=0)]
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        fields = []
        for f in dataclasses.fields(hint):
            made: list[Any] = [f.name, _twin(hints[f.name])]
            if f.default_factory is not dataclasses.MISSING:
                made.append(msgspec.field(default_factory=f.default_factory))
            elif f.default is not dataclasses.MISSING:
                made.append(f.default)
            fields.append(tuple(made))
        return msgspec.defstruct(
            typing.cast(type[Any], hint).__name__, fields, frozen=True, omit_defaults=True, forbid_unknown_fields=True,
            tag_field="record" if record else None, tag=record,
        )  # fmt: skip
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(map(_twin, args))]  # noqa: UP007
    if origin is tuple:
        return tuple[tuple(a if a is ... else _twin(a) for a in args)]  # type: ignore[misc]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return dict[str, _twin(args[1])]  # type: ignore[misc]
    return hint


# The escape of half a surrogate pair, which is no character. The JSON that `to_text` writes has none.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise _Fault(f"two members called {_shown(next(n for n in names if names.count(n) > 1))} in one object")
    return found


def _no_constant(name: str) -> None:
    raise _Fault(f"{name} is no number of a record: NaN and infinities are written as bits")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant)


class _Fault(Exception):
    """A value of another type than its field's. The message names the field."""


Reader = Callable[[Any], Any]
"""A function from a field's JSON to its value. It raises _Fault."""


@dataclass(frozen=True)
class _Layout:
    """How to make an object of a record class from JSON."""

    readers: Mapping[str, tuple[str, type[Any] | None, Reader]]
    """By field, with its name: one string for all objects. JSON of the type, if one is given, is taken unchanged."""
    required: frozenset[str]
    empty: Mapping[str, Any]
    """The empty mappings of absent fields, one for all objects: nothing changes a record."""


def _build(cls: type[Any], obj: Any) -> Any:
    # A history of nightly runs has half a million of these. So types are resolved once for each class, and fields are
    # set without the frozen dataclass's __init__. Plain defaults stay attributes of the class: most fields have them.
    layout = _LAYOUTS.get(cls) or _layout(cls)
    if not isinstance(obj, dict):
        raise _Fault(f"expected an object, found {_shown(obj)}")
    made = object.__new__(cls)
    fields = made.__dict__
    fields.update(layout.empty)
    readers = layout.readers
    name = ""
    try:
        for name, value in obj.items():
            field, plain, reader = readers[name]
            fields[field] = value if type(value) is plain else reader(value)
    except KeyError:
        raise _Fault(f"unknown field {_shown(name)}; a newer version may have written it") from None
    except _Fault as e:
        raise _Fault(f"{name}: {e}") from None
    if not layout.required <= obj.keys():
        raise _Fault(f"without {', '.join(sorted(layout.required - obj.keys()))}")
    return made


_LAYOUTS: dict[type[Any], _Layout] = {}


def _layout(cls: type[Any]) -> _Layout:
    unset = dataclasses.MISSING
    fields = dataclasses.fields(cls)
    defaults = {f.name for f in fields if f.default is not unset}
    empty = {f.name: f.default_factory() for f in fields if f.default_factory is not unset}
    hints = typing.get_type_hints(cls, include_extras=True)
    readers = {f.name: (f.name, _AS_IT_STANDS.get(hints[f.name]), _reader(hints[f.name])) for f in fields}
    if cls is Key:
        readers |= {name: (name, None, _name) for name, hint in hints.items() if hint is str}
    required = frozenset(readers.keys() - defaults - empty.keys())
    return _LAYOUTS.setdefault(cls, _Layout(readers, required, empty))


def _reader(hint: Any) -> Reader:
    """The function that reads the JSON of a field of this type."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if dataclasses.is_dataclass(hint):
        return functools.partial(_build, typing.cast(type[Any], hint))
    if origin is typing.Literal:
        return functools.partial(_one_of, args)
    if origin in (typing.Union, types.UnionType):
        inner = _reader(next(a for a in args if a is not type(None)))
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        return functools.partial(_sequence, _reader(args[0]), None if args[1:] == (...,) else len(args))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return functools.partial(_mapping, _reader(args[1]))
    raise TypeError(f"no reader for {hint}")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise _Fault(f"expected a string, found {_shown(value)}")


_known = sys.intern
"""The one string of a text that many records have: names, and digests of definitions. A file repeats each."""


def _name(value: Any) -> str:
    return _known(value) if type(value) is str else _text(value)


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _Fault(f"expected true or false, found {_shown(value)}")


def _whole(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _Fault(f"expected a whole number, found {_shown(value)}")


def _count(value: Any) -> int:
    if _whole(value) >= 0:
        return typing.cast(int, value)
    raise _Fault(f"expected a count, found {_shown(value)}")


def _number(value: Any) -> float:
    if not isinstance(value, float):
        return _whole(value)
    if math.isfinite(value):
        return value
    raise _Fault(f"expected a finite number, found {value}")


def _amount(value: Any) -> float:
    if _number(value) >= 0:
        return typing.cast(float, value)
    raise _Fault(f"expected a number of at least 0, found {_shown(value)}")


def _anything(value: Any) -> Any:
    if isinstance(value, dict):
        _mapping(_anything, value)
    elif isinstance(value, list | tuple):
        _sequence(_anything, None, value)
    elif isinstance(value, float):
        _number(value)
    return value


_PLAIN: dict[Any, Reader] = {
    str: _text,
    bool: _truth,
    int: _whole,
    float: _number,
    Count: _count,
    Amount: _amount,
    Any: _anything,
}
_AS_IT_STANDS: dict[Any, type[Any]] = {str: str, bool: bool, int: int}


def _one_of(allowed: tuple[str, ...], value: Any) -> str:
    if isinstance(value, str) and value in allowed:
        return value
    raise _Fault(f"expected one of {', '.join(allowed)}, found {_shown(value)}")


def _sequence(item: Reader, length: int | None, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, list | tuple):
        raise _Fault(f"expected a list, found {_shown(values)}")
    if length is not None and len(values) != length:
        raise _Fault(f"expected {length} values, found {len(values)}")
    return tuple(values if _alike(item, values) else map(item, values))


def _mapping(item: Reader, values: Any) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise _Fault(f"expected an object, found {_shown(values)}")
    try:
        if item is _text and _alike(item, values.values()):
            return {_known(name): _known(value) for name, value in values.items()}
        if _alike(item, values.values()):
            return {_known(name): value for name, value in values.items()}
        return {name: item(value) for name, value in values.items()}
    except _Fault as e:
        raise _Fault(f"a value of it: {e}") from None


def _alike(item: Reader, values: Collection[Any]) -> bool:
    """Whether no value needs conversion, as for texts, and for counts in mappings, which are most of a file."""
    if item is _text:
        return set(map(type, values)) <= {str}
    if item is _whole:
        return set(map(type, values)) <= {int}
    if item is _count:
        return not values or (set(map(type, values)) == {int} and min(values) >= 0)
    return False


def _shown(value: Any) -> str:
    """A value from a file, for an error message: short, on one line."""
    text = "null" if value is None else ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def to_text(record: Record) -> bytes:
    """A record as the JSON of its line. Raises RecordError for a NaN or an infinity."""
    try:
        text = json.dumps(to_json(record), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as e:
        raise RecordError(f"{_NAMES[type(record)]}: NaN and infinities are written as bits: {e}") from e
    return text.encode("utf-8", "replace")  # half a surrogate pair in a name or a message must not cost the run
