"""The known value of a Python expression: text with places, a name, a function, or unknown."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Value = Any
"""One of the classes here, or a plain int, float, bool, None, list, tuple or dict of such."""


class Unknown:
    """A value that the text does not determine. Two unknown values never count as equal."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Truth(Unknown):
    """A value of which only the truth value is known, by assumption on this path."""

    __slots__ = ("holds",)

    def __init__(self, reason: str, holds: bool) -> None:
        super().__init__(reason)
        self.holds = holds


@dataclass(frozen=True, eq=False)
class TextValue:
    """A string, and for each character its offset in the file (-1: none)."""

    value: str
    offsets: tuple[int, ...]

    @classmethod
    def plain(cls, value: str) -> TextValue:
        """A string without a place in the file."""
        return cls(value, (-1,) * len(value))

    def __add__(self, other: TextValue) -> TextValue:
        return TextValue(self.value + other.value, self.offsets + other.offsets)

    def part(self, start: int, stop: int) -> TextValue:
        """The characters from `start` to before `stop`."""
        return TextValue(self.value[start:stop], self.offsets[start:stop])


@dataclass(frozen=True)
class Ref:
    """An imported object, by its dotted name: `triton.language.float32`."""

    dotted: str

    @property
    def last(self) -> str:
        """The name after the last dot."""
        return self.dotted.rpartition(".")[2]


@dataclass(frozen=True, eq=False)
class Tensor:
    """A value of a kernel, of which only the element type may be known."""

    dtype: str | None = None


@dataclass(eq=False)
class NameScope:
    """Names and their values; a scope refers to the one around it."""

    outer: NameScope | None = None
    names: dict[str, Value] = field(default_factory=dict)

    def get(self, name: str) -> Value:
        """The value of a name; Unknown if no scope has it."""
        scope: NameScope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return Unknown(f"the name {name} is not bound in this file")

    def chain(self) -> Iterator[NameScope]:
        """This scope and those around it."""
        scope: NameScope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def has(self, name: str) -> bool:
        """Whether a scope binds the name."""
        return name in self.names or (self.outer is not None and self.outer.has(name))


@dataclass(frozen=True, eq=False)
class HelperFunction:
    """A function of the file, with the scope of its definition and the values of its defaults."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scope: NameScope
    defaults: dict[str, Value] = field(default_factory=dict)
    instance: Value = None

    @property
    def name(self) -> str:
        """Its name; lambdas have none."""
        return getattr(self.node, "name", "<lambda>")


@dataclass(frozen=True, eq=False)
class Class:
    """A class of the file: its names, and those that methods assign to an instance."""

    name: str
    scope: NameScope
    assigned: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Partial:
    """`functools.partial` of a function."""

    function: Value
    args: Sequence[Value]
    keywords: dict[str, Value]


def unresolved(*values: Value) -> Unknown | None:
    """The first value that is unknown."""
    return next((v for v in values if isinstance(v, Unknown)), None)


def native(value: Value) -> Value:
    """The Python value with strings instead of TextValues, for keys and formats."""
    if isinstance(value, TextValue):
        return value.value
    if isinstance(value, tuple):
        return tuple(native(v) for v in value)
    return value
