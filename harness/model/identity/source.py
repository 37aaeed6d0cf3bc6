"""The text of a function: its definition without comments, docstrings and layout, or its byte code if there is no text.

The text is that of the file when it was executed. `names_in` and `imports_in` list the names that code uses.
"""

from __future__ import annotations

import ast
import dis
import functools
import hashlib
import linecache
import os
import types
from pathlib import Path
from typing import Any

from ptxdiff.model.identity.encoding import encode, tagged

_sources: dict[str, str] = {}
"""The text of files at the first look at one of their functions, or when the loader executed them."""


def forget() -> None:
    """Forget the texts of all files, so that the next look at a function reads its file again."""
    _sources.clear()


def executed(path: str, text: str) -> None:
    """Record the executed text of a file. A later edit of the file does not change the running code."""
    _sources[path] = text


@functools.cache
def real_path(file: str) -> str:
    """Where a file is, without symbolic links. Asked once in a process: asking each time was a third of a short run."""
    folder, name = os.path.split(file)
    if not os.path.isabs(file) or name in ("", ".", "..") or os.path.islink(file):
        return os.path.realpath(file)
    return os.path.join(_real_folder(folder), name)  # many files are in one folder


_real_folder = functools.cache(os.path.realpath)


def file_text(path: str | None) -> str:
    """The executed text of a file, for machine code a digest of its bytes; empty for None."""
    if not path:
        return ""
    if path not in _sources:
        try:
            _sources[path] = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            _sources[path] = "".join(linecache.getlines(path)) or _digest_of(path)
    return _sources[path]


def _digest_of(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def source(function: types.FunctionType) -> bytes:
    """A function's source without comments, docstrings and layout; its byte code if there is no source."""
    code = function.__code__
    if id(code) not in _made:
        node = _node(code)
        text = byte_code(code) if node is None else tagged("source", ast.unparse(node).encode())
        _made[id(code)] = (code, text)
    return _made[id(code)][1]


_made: dict[int, tuple[types.CodeType, bytes]] = {}
"""Code objects with their sources, by id; they are kept alive, so that the ids stay unique."""


def byte_code(code: types.CodeType) -> bytes:
    """The byte code with its constants and names, and that of inner functions."""
    if id(code) not in _bytes:
        constants = [byte_code(c) if isinstance(c, types.CodeType) else encode(c) for c in code.co_consts]
        _bytes[id(code)] = (code, tagged("code", code.co_code, encode(code.co_names), *constants))
    return _bytes[id(code)][1]


_bytes: dict[int, tuple[types.CodeType, bytes]] = {}
"""Code objects with their byte code, by id, as in `_made`. Code objects never change."""


def _node(code: types.CodeType) -> ast.AST | None:
    """The definition in a file from which a code object was compiled; None if it cannot be determined."""
    here = [n for n in _definitions(file_text(code.co_filename)) if _first_line(n) == code.co_firstlineno]
    here = [n for n in here if getattr(n, "name", "<lambda>") == code.co_name]
    if len(here) > 1:
        inside = [(a, b) for a, _, b, _ in code.co_positions() if a and b is not None and a > 0]
        here = [n for n in here if all(_holds(n, line, column) for line, column in inside)]
        here.sort(key=lambda n: (n.end_lineno or 0, n.end_col_offset or 0))
        here = here[:1]
    return here[0] if here else None


def _holds(node: Any, line: int, column: int) -> bool:
    first, last = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
    return bool(first <= (line, column) < last)


def _first_line(node: Any) -> int:
    return int(min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))]))


@functools.lru_cache(maxsize=256)
def _definitions(text: str) -> tuple[Any, ...]:
    """The functions and lambdas of a file, without docstrings."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ()
    definitions: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
            definitions.append(node)
        elif isinstance(node, ast.Lambda):
            definitions.append(node)
    return tuple(definitions)


def names_in(code: types.CodeType) -> set[str]:
    """The globals and attributes that code and its inner functions may name."""
    inner = [names_in(c) for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*inner)


@functools.lru_cache(maxsize=4096)
def imports_in(code: types.CodeType) -> tuple[tuple[int, str, tuple[str, ...]], ...]:
    """The imports inside a function and its inner functions: level, module, imported names."""
    imports: list[tuple[int, str, tuple[str, ...]]] = []
    given: list[Any] = [None, None]
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            level, taken = given
            imports.append((level or 0, step.argval, tuple(taken or ())))
        given = [given[1], step.argval]
    inner = (imports_in(c) for c in code.co_consts if isinstance(c, types.CodeType))
    return (*imports, *(one for many in inner for one in many))
