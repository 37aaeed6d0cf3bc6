"""Nearest names, for messages about names that do not exist."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

C = TypeVar("C", bound=Callable[..., Any])

_CUTOFF = 0.6
_MOST = 3


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message, "; did you mean rcp.rn?", with the names most like a word in any case; "" if none is."""
    names = {name.lower(): name for name in known}
    near = [names[n] for n in difflib.get_close_matches(word.lower(), names, _MOST, _CUTOFF)]
    return f"; did you mean {' or '.join(near)}?" if near else ""


def known_keywords(fields_of: type | None = None) -> Callable[[C], C]:
    """A decorator of functions and dataclasses: a keyword that does not exist is a TypeError with the nearest names.

    fields_of: a dataclass whose fields are keywords too, for a function that passes them on.
    """

    def decorate(thing: C) -> C:
        if isinstance(thing, type):
            thing.__init__ = _checked(thing.__init__, thing.__name__, None)  # type: ignore[misc]
            return thing
        return _checked(thing, thing.__name__, fields_of)

    return decorate


def _checked(function: C, name: str, fields_of: type | None) -> C:
    parameters = inspect.signature(function).parameters.values()
    known = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)} - {"self"}
    if fields_of is not None:
        known |= {f.name for f in dataclasses.fields(fields_of) if f.init}

    @functools.wraps(function)
    def checked(*args: Any, **keywords: Any) -> Any:
        for word in keywords:
            if word not in known:
                near = did_you_mean(word, known)
                raise TypeError(f"{name}() has no keyword {word!r}{near or '; it has ' + ', '.join(sorted(known))}")
        return function(*args, **keywords)

    return cast("C", checked)
