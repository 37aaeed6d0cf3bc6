"""The functions and methods of Python that the linter evaluates: built-in ones, and those of strings, lists and
dictionaries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptxdiff.lint.extract import strings
from ptxdiff.lint.extract.values import Tensor, TextValue, Unknown, Value, native, unresolved

ELEMENTS = 256
"""The most elements of a sequence, and iterations of a loop, that are evaluated."""
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "str": str, "hex": hex, "int": int, "min": min, "max": max, "abs": abs,
}  # fmt: skip
BUILTINS = frozenset((
    "str", "int", "hex", "min", "max", "abs", "len", "range", "zip", "enumerate", "list", "tuple", "sorted", "reversed",
    "dict", "print", "isinstance", "getattr", "type",
))  # fmt: skip


def method(text: TextValue, name: str, args: list[Value], keywords: dict[str, Value]) -> Value:
    """The value of a string method."""
    if name == "format":
        return strings.brace_format(text, args, keywords)
    found = strings.METHODS.get(name)
    if found is None:
        return Unknown(f"the method {name} of a string")
    if unknown := unresolved(*args):
        return unknown
    try:
        return found(text, *args)
    except (TypeError, AttributeError, ValueError):
        return Unknown(f"the method {name} of a string")


def mutated(base: Value, name: str, args: list[Value]) -> Value:
    """Apply a method that changes a list or dictionary."""
    if isinstance(base, list) and name == "append" and args:
        base.append(args[0])
    elif isinstance(base, list) and name == "extend" and args and isinstance(args[0], (list, tuple)):
        base.extend(args[0])
    elif isinstance(base, dict) and name == "items":
        return [(TextValue.plain(k) if isinstance(k, str) else k, v) for k, v in base.items()]
    elif isinstance(base, dict) and name == "values":
        return list(base.values())
    elif isinstance(base, dict) and name == "get" and args and not isinstance(args[0], (Unknown, Tensor)):
        return base.get(native(args[0]), args[1] if len(args) > 1 else None)
    elif isinstance(base, list):
        base.append(Unknown(f"the list was changed by {name}"))
    return Unknown(f"the result of {name}")


def builtin(name: str, args: list[Value]) -> Value:
    """The value of a built-in function."""
    if name in ("constexpr", "const_expr", "dedent") or (name == "str" and args and isinstance(args[0], TextValue)):
        found = args[0] if args else Unknown(name)
        return strings.dedented(found) if name == "dedent" and isinstance(found, TextValue) else found
    if name in ("range", "static_range") and args and all(isinstance(a, int) for a in args):
        numbers = range(*args[:3])
        return list(numbers) if len(numbers) <= ELEMENTS else Unknown("a long range")
    if name in ("list", "tuple", "sorted", "reversed") and args and isinstance(args[0], (list, tuple)):
        return tuple(args[0]) if name == "tuple" else [*reversed(args[0])] if name == "reversed" else [*args[0]]
    if name == "zip" and args and all(isinstance(a, (list, tuple)) for a in args):
        return [tuple(each) for each in zip(*args, strict=False)]
    if name == "enumerate" and args and isinstance(args[0], (list, tuple)):
        return [*enumerate(args[0], *args[1:2])]
    if name == "len" and args and isinstance(args[0], (TextValue, list, tuple, dict)):
        return len(native(args[0]))
    if name in _FUNCTIONS and args and not unresolved(*args):
        plain = [native(a) for a in args]
        try:
            found = _FUNCTIONS[name](*plain)
        except (TypeError, ValueError):
            return Unknown(f"{name} of what it does not take")
        return TextValue.plain(found) if isinstance(found, str) else found
    return Unknown(f"the result of {name}")
