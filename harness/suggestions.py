"""Nearest names, for messages about names that do not exist."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import pkgutil
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from ptxdiff.tracebacks import ShortTraceback

C = TypeVar("C", bound=Callable[..., Any])

_CUTOFF = 0.6
_MOST = 3


def nearest(word: str, known: Iterable[str], cutoff: float = _CUTOFF, most: int = _MOST) -> list[str]:
    """The names most like a word in any case, the nearest first. cutoff: how like, from 0 (anything) to 1 (equal)."""
    names = {name.lower(): name for name in known}
    return [names[n] for n in difflib.get_close_matches(word.lower(), names, most, cutoff)]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message, "; did you mean rcp.rn?", with the names most like a word in any case; "" if none is."""
    near = nearest(word, known)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def explained(error: BaseException) -> str:
    """`TypeError: ...`, an error of a user's code in one line; with the nearest names if it misspells one of ours."""
    return f"{type(error).__name__}: {error}{_nearest_of_ours(error)}"


_UNKNOWN_IMPORT = re.compile(
    r"cannot import name '(\w+)' from '(ptxdiff[\w.]*)'|No module named '(ptxdiff[\w.]*)\.(\w+)'"
)
_WRONG_CALL = re.compile(r"(\w+)\(\) (?:got an unexpected keyword argument '(\w+)'|takes .* positional|missing )")


def _nearest_of_ours(error: BaseException) -> str:
    """The end of the message of an error about a name that a module, object or function of ptxdiff does not have."""
    if isinstance(error, ImportError) and (match := _UNKNOWN_IMPORT.match(str(error))):
        name, module = match[1] or match[4], match[2] or match[3]
        return _among(name, sys.modules.get(module))
    if isinstance(error, AttributeError) and error.name and _is_ours(error.obj):
        return _among(error.name, error.obj)
    if isinstance(error, AttributeError) and isinstance(error.obj, str) and _is_of_formats(error.name):
        return f"; a format is a constant of ptxdiff.references.formats, such as F32, where {error.obj!r} was given"
    if isinstance(error, AttributeError | TypeError) and _number_for_a_tensor(error):
        return "; a reference takes tensors of codes, for numbers too: torch.full_like(a, 4) instead of 4"
    if isinstance(error, TypeError) and (match := _WRONG_CALL.match(str(error))):
        for module in [m for n, m in sys.modules.items() if n.startswith("ptxdiff.")]:
            function = vars(module).get(match[1])
            if inspect.isfunction(function) and function.__module__ == module.__name__:
                signature = inspect.signature(function)
                near = did_you_mean(match[2], signature.parameters) if match[2] else ""
                return near or f"; it is {match[1]}({_parameters(signature)})"
    return ""


def _parameters(signature: inspect.Signature) -> str:
    """A signature without types, and with formats by their names."""
    plain = [
        p.replace(annotation=p.empty, default=_DefaultText(p.default) if _is_ours(p.default) else p.default)
        for p in signature.parameters.values()
    ]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))[1:-1]


class _DefaultText:
    """A default value in a signature, as its own text: `float32`."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return str(self.value).upper() if type(self.value).__name__ == "Format" else repr(self.value)


def _number_for_a_tensor(error: AttributeError | TypeError) -> bool:
    """Whether a function of the references was given a number where it needs a tensor."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    where = frames[-1].f_globals.get("__name__", "") if frames else ""
    number = isinstance(getattr(error, "obj", None), int) or "must be Tensor, not int" in str(error)
    return number and where.startswith("ptxdiff.references.")


def _is_of_formats(name: str | None) -> bool:
    """Whether formats have an attribute of this name."""
    module = sys.modules.get("ptxdiff.references.description")
    if module is None or not name:
        return False
    return hasattr(module.Format, name) or name in module.Format.__annotations__


def _is_ours(thing: object) -> bool:
    name = thing.__name__ if inspect.ismodule(thing) else type(thing).__module__
    return name.partition(".")[0] == "ptxdiff"


def _among(name: str, owner: object) -> str:
    """Names of a module or object that are like one that it has not; where to find what an object of ours can do."""
    modules = [m.name for m in pkgutil.iter_modules(getattr(owner, "__path__", ()))]
    known = [n for n in (*dir(owner), *modules) if not n.startswith("_")]
    near = did_you_mean(name, known)
    if type(owner).__name__ == "Format":
        return near or "; functions of ptxdiff.references.formats take the format first, such as to_float64(F32, codes)"
    if getattr(owner, "__name__", "") == "ptxdiff.references.formats":
        return f"{near or ''}; ptxdiff list --formats prints all formats"
    if getattr(owner, "__name__", "").startswith("ptxdiff.references"):
        return f"{near}; ptxdiff list --references prints every function of references"
    return near


class KeywordError(ShortTraceback, TypeError):
    """A keyword that a function does not have."""


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
                raise KeywordError(f"{name}() has no keyword {word!r}{near or '; it has ' + ', '.join(sorted(known))}")
        return function(*args, **keywords)

    return cast("C", checked)
