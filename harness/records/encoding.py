"""Records as JSON objects and lines, and back."""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.records.types import SCHEMA, CaseInfo, Disagreement, End, Record, RecordError, Result, Run, Text, Timing

_KINDS: dict[str, type[Any]] = {
    "run": Run,
    "case": CaseInfo,
    "text": Text,
    "result": Result,
    "timing": Timing,
    "disagreement": Disagreement,
    "end": End,
}
_NAMES = {cls: name for name, cls in _KINDS.items()}


def to_json(record: Record) -> dict[str, Any]:
    """A record as the JSON object of its line; fields at their defaults are left out."""
    return {"record": _NAMES[type(record)], **_plain(record)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(v) for f in dataclasses.fields(value) if (v := getattr(value, f.name)) != _default(f)}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def _default(f: dataclasses.Field[Any]) -> Any:
    if f.name == "schema":
        return dataclasses.MISSING  # always written: a reader decides by it
    return f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default


def from_json(obj: Mapping[str, Any]) -> Record:
    """The record that `to_json` wrote. Raises RecordError for anything else."""
    try:
        fields = dict(obj)
        record: Record = _build(_KINDS[fields.pop("record")], fields)
    except RecordError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise RecordError(f"not a record: {type(e).__name__}: {e}") from e
    if isinstance(record, Run) and record.schema != SCHEMA:
        raise RecordError(f"schema {record.schema}; this version reads {SCHEMA}")
    return record


Converter = Callable[[Any], Any]


@dataclass(frozen=True)
class _Layout:
    """What is needed to make an object of a record class from JSON."""

    names: frozenset[str]
    required: frozenset[str]
    defaults: Mapping[str, Any]
    factories: tuple[tuple[str, Callable[[], Any]], ...]
    converters: tuple[tuple[str, Converter], ...]
    """Of the fields whose JSON is not already what they hold."""


def _build(cls: type[Any], obj: Mapping[str, Any]) -> Any:
    # A history of nightly runs is half a million of these: types are resolved once a class, the fields set past the
    # frozen dataclass's __init__, and all at once.
    layout = _LAYOUTS.get(cls) or _layout(cls)
    made = object.__new__(cls)
    fields = made.__dict__
    fields.update(layout.defaults)
    fields.update(obj)
    for name, factory in layout.factories:
        if name not in obj:
            fields[name] = factory()
    for name, convert in layout.converters:
        if name in obj:
            fields[name] = convert(obj[name])
    given = obj.keys()
    if not given <= layout.names:
        raise RecordError(f"{_NAMES.get(cls, cls.__name__)}: unknown field {min(given - layout.names)}")
    if not layout.required <= given:
        raise RecordError(f"{_NAMES.get(cls, cls.__name__)}: without {', '.join(sorted(layout.required - given))}")
    return made


_LAYOUTS: dict[type[Any], _Layout] = {}


def _layout(cls: type[Any]) -> _Layout:
    unset = dataclasses.MISSING
    fields = dataclasses.fields(cls)
    defaults = {f.name: f.default for f in fields if f.default is not unset}
    factories = tuple((f.name, f.default_factory) for f in fields if f.default_factory is not unset)
    hints = typing.get_type_hints(cls)
    converters = tuple((f.name, made) for f in fields if (made := _converter(hints[f.name])) is not None)
    names = frozenset(f.name for f in fields)
    required = names - defaults.keys() - {name for name, _ in factories}
    return _LAYOUTS.setdefault(cls, _Layout(names, required, defaults, factories, converters))


def _converter(hint: Any) -> Converter | None:
    """What turns a JSON value into one of this type; None where the value is already that."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return functools.partial(_build, typing.cast(type[Any], hint))
    if origin in (typing.Union, types.UnionType):
        inner = _converter(next(a for a in args if a is not type(None)))
        return inner and (lambda value: None if value is None else inner(value))
    if origin is tuple:
        item = _converter(args[0])
        return tuple if item is None else (lambda values: tuple(map(item, values)))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        value_of = _converter(args[1])
        return value_of and (lambda values: {k: value_of(v) for k, v in values.items()})
    return None


def to_line(record: Record) -> str:
    """A record as the line of its file, newline included. Raises RecordError for a NaN or an infinity."""
    try:
        return json.dumps(to_json(record), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"
    except ValueError as e:
        raise RecordError(f"{_NAMES[type(record)]}: NaN and infinities are written as bits: {e}") from e
