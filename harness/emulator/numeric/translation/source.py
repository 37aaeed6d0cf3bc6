"""The syntax trees of functions."""

from __future__ import annotations

import ast
import functools
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

_PARSING = threading.Lock()
"""Python 3.11 counts the depth of `ast.parse` of trees for all threads together, and fails if two make them at once."""


class Untranslatable(Exception):
    """A definition has a construct that `translate` does not know."""


def code_of(function: Callable[..., Any]) -> CodeType:
    """A function's code object."""
    return function.__code__


@functools.cache
def _parsed(path: str) -> dict[tuple[str, int], tuple[ast.FunctionDef, CodeType]]:
    """The functions of a file with their code, by name and number of their first line."""
    with _PARSING:
        tree = ast.parse(Path(path).read_bytes())
        compiled = compile(tree, path, "exec", dont_inherit=True)
    codes = [c for c in compiled.co_consts if isinstance(c, CodeType)]
    made = {(c.co_name, c.co_firstlineno): c for c in codes}
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            which = node.name, min([node.lineno, *(d.lineno for d in node.decorator_list)])
            found[which] = node, made[which]
    return found


def tree(function: Callable[..., Any]) -> ast.FunctionDef:
    """A function's syntax tree, if its file has not changed since it was imported: both must give the same code."""
    code = code_of(function)
    try:
        node, again = _parsed(code.co_filename).get((code.co_name, code.co_firstlineno), (None, None))
    except (OSError, SyntaxError, ValueError):
        node, again = None, None
    if node is None or again != code:
        raise Untranslatable(f"{function.__module__}.{function.__qualname__}: its file is not the one it came from")
    return node
