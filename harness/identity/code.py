"""What a function is made of: its source, and that of all it calls, wherever it lives, with the values it names.

The walk follows globals, closures, defaults, attributes of functions, methods and base classes. It ends at the standard
library, at this package and at installed packages. Of a small installed package the file that holds the function counts
whole; of this one and of the large ones the version, and that only where identities stay on one machine (`exact`): two
machines with different versions of torch test the same case. Comments, docstrings and layout do not count.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import dis
import enum
import functools
import hashlib
import importlib
import importlib.metadata
import inspect
import linecache
import operator
import re
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping, Set
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from harness.identity.encoding import encode, is_plain, tagged

_LIBRARIES = tuple({str(Path(p).resolve()) for n, p in sysconfig.get_paths().items() if n in ("stdlib", "platstdlib")})
_PACKAGES = tuple({str(Path(p).resolve()) for n, p in sysconfig.get_paths().items() if n in ("purelib", "platlib")})
_HARNESS = str(Path(__file__).resolve().parents[1])
_BY_VERSION = ("harness", "numpy", "torch", "triton", "numba", "ml_dtypes", "scipy", "mpmath")

# Names by which code reaches what it does not spell: the whole module then counts.
_DYNAMIC = frozenset({"getattr", "vars", "globals", "eval", "exec", "__import__", "import_module", "__dict__"})

_OWN = frozenset({"vars", "globals", "eval", "exec"})
"""Names by which a function reaches what else its module holds: the module's text then counts."""

_CONTAINERS = (dict, list, tuple, set, frozenset)

_REDUCED = (range, slice, Decimal, date, operator.itemgetter, operator.attrgetter, operator.methodcaller)
"""What is made of code by neither the user nor us, and tells by `__reduce__` what it is made of."""

_IMPORT = dis.opmap["IMPORT_NAME"]

_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)

_sources: dict[str, str] = {}
"""The text of files as they were when a function of them was first looked at, or when the loader ran them."""


def executed(path: str, text: str) -> None:
    """Note the text of a file that was executed: what the file holds later is not what runs."""
    _sources[path] = text


class _Walk:
    """One walk from a function. A value met again is a number, so that circles end.

    exact: let the byte code count as well. Only the same Python makes the same of a source.
    """

    def __init__(self, exact: bool) -> None:
        self.exact = exact
        self.met: dict[int, int] = {}
        self.kept: list[Any] = []

    def encode(self, value: Any) -> bytes:
        return encode(value, self.other)

    def other(self, value: Any) -> bytes | None:
        """The encoding of what is no plain value; None where another rule has it."""
        if is_plain(value):
            return self._of_own_class(value)
        if not self._is_code(value):
            return None
        if id(value) in self.met:
            return tagged("again", str(self.met[id(value)]).encode())
        self.met[id(value)] = len(self.met)
        self.kept.append(value)
        return self._code(value)

    def _is_code(self, value: Any) -> bool:
        if isinstance(value, types.ModuleType | type | types.GenericAlias | types.UnionType) or callable(value):
            return True
        if isinstance(value, _DESCRIPTORS):
            return True
        if isinstance(value, (*_REDUCED, re.Pattern)):
            return True
        home = type(value).__module__.partition(".")[0]
        if home in ("numpy", "torch", "ml_dtypes"):
            return False
        if dataclasses.is_dataclass(value):
            return self._outside(type(value)) is None
        return home == "triton" or hasattr(value, "__dict__") or self._outside(type(value)) is None

    def _code(self, value: Any) -> bytes:
        if isinstance(value, types.ModuleType):
            own = _file_text(getattr(value, "__file__", None)).encode()
            return tagged("module", self._outside_module(value) or own)
        if type(value).__module__ == "typing" or isinstance(value, types.GenericAlias | types.UnionType):
            return tagged("type", repr(value).encode())
        if isinstance(value, _DESCRIPTORS):
            return tagged("slot", _name(value).encode())
        if type(value).__name__ in ("Heuristics", "Autotuner"):
            rules = {n: getattr(value, n, None) for n in ("values", "configs", "keys")}
            return tagged("jit", type(value).__name__.encode(), self.encode(value.fn), self.encode(rules))
        if isinstance(value, functools.partial):
            return tagged("partial", *map(self.encode, (value.func, value.args, value.keywords)))
        if isinstance(value, types.MethodType):
            return tagged("method", self.encode(value.__func__), self.encode(value.__self__))
        if isinstance(value, types.FunctionType):
            outside = self._outside(value)
            return self._function(value) if outside is None else tagged("closed", outside, self._cells(value))
        if isinstance(value, type):
            return self._outside(value) or self._class(value)
        if inspect.isfunction(getattr(value, "fn", None)):  # a @triton.jit function
            marks = {n: getattr(value, n, None) for n in ("noinline", "do_not_specialize", "debug")}
            return tagged("jit", type(value).__name__.encode(), self.encode(value.fn), self.encode(marks))
        if callable(inner := getattr(value, "__wrapped__", None)):  # functools.cache
            return tagged("wrapped", type(value).__name__.encode(), self.encode(inner))
        if isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):
            of = getattr(value, "__self__", None)  # a list, of its method
            known = of is None or isinstance(of, types.ModuleType | type)
            return tagged("builtin", self._builtin(value), *([] if known else [self.encode(of)]))
        if type(value).__name__ == "ufunc":  # that of numpy.frompyfunc hides its function: equal to itself alone
            return encode(value) if "(vectorized)" in _name(value) else tagged("ufunc", self._builtin(value))
        if isinstance(value, re.Pattern):
            return tagged("pattern", self.encode((value.pattern, value.flags)))
        if isinstance(value, _REDUCED):
            return tagged("reduced", type(value).__name__.encode(), self.encode(value.__reduce__()))
        if hasattr(value, "__dict__") or self._outside(type(value)) is None:
            number = value.__reduce_ex__(2)[1] if isinstance(value, int | float | complex) else None
            return tagged("instance", *map(self.encode, (type(value), _state(value), number)))
        return tagged("builtin", self._builtin(value))

    def _builtin(self, value: Any) -> bytes:
        return f"{getattr(value, '__module__', '')}.{_name(value)}".encode()

    def _of_own_class(self, value: Any) -> bytes | None:
        """A plain value with the code of its class, where that is the user's; None for any other."""
        if self._outside(type(value)) is not None:
            return None
        if id(value) in self.met:
            return tagged("again", str(self.met[id(value)]).encode())
        self.met[id(value)] = len(self.met)
        self.kept.append(value)
        base = next((b for b in _CONTAINERS if isinstance(value, b)), None)
        plain = base(value) if base else value.value if isinstance(value, enum.Enum) else str(value)
        return tagged("own", *map(self.encode, (type(value), getattr(value, "_name_", None), plain, _state(value))))

    def _function(self, function: types.FunctionType) -> bytes:
        attributes = {n: v for n, v in vars(function).items() if n != "__wrapped__"}
        values: tuple[Any, ...] = (function.__defaults__, function.__kwdefaults__, attributes)
        names = _names(function.__code__)
        known = {n: v for n, v in function.__globals__.items() if n in names and v is not function}
        known |= {f"import {n}": m for n, m in _imported(function, self.exact).items()}
        names |= {n for n in known if n.startswith("import ")}
        if names & _OWN:
            values += (_file_text(function.__code__.co_filename),)
        made_of = [source(function), *([byte_code(function.__code__)] if self.exact else [])]
        return tagged(
            "function", *made_of, self._cells(function), *map(self.encode, values), self._taken(known, names, ())
        )

    def _cells(self, function: types.FunctionType) -> bytes:
        """The values that a function closes over."""
        return self.encode([_cell(c) for c in function.__closure__ or ()])

    def _taken(self, known: Mapping[str, Any], names: Set[str], inside: tuple[Any, ...]) -> bytes:
        """What code takes by name; of a module of the user's, what the code may take from that."""
        parts = []
        for name in sorted(names & set(known)):
            value = known[name]
            if not isinstance(value, types.ModuleType) or self._outside_module(value) is not None:
                parts += [self.encode(name), self.encode(value)]
            elif all(value is not m for m in inside):
                parts += [self.encode(name), self._taken(vars(value), names, (*inside, value))]
                if names & _DYNAMIC:
                    parts.append(_file_text(getattr(value, "__file__", None)).encode())
        return tagged("names", *parts)

    def _class(self, cls: type) -> bytes:
        members = {n: v for n, v in vars(cls).items() if n not in _OF_EVERY_CLASS and not _generated(cls, n, v)}
        functions = {n: _unwrapped(v) for n, v in members.items()}
        made_of = (cls.__bases__, type(cls), functions)
        return tagged("class", cls.__qualname__.encode(), *map(self.encode, made_of))

    def _outside(self, value: Any) -> bytes | None:
        """A function or class that the walk does not enter; None for the user's own, and for those of references."""
        # Of a function, the module that runs it: functools.wraps gives it the name of another.
        known = value.__globals__ if isinstance(value, types.FunctionType) else {}
        module = sys.modules.get(known.get("__name__") or getattr(value, "__module__", None) or "")
        place = None if module is None else self._outside_module(module)
        return None if place is None else tagged("outside", place, _name(value).encode())

    def _outside_module(self, module: types.ModuleType) -> bytes | None:
        """What stands for a module that the walk does not enter; None for one that it does."""
        top = module.__name__.partition(".")[0]
        file = getattr(module, "__file__", None)
        if top == "references" or (file is None and top == "__main__"):
            return None
        name = module.__name__.encode()
        if file is None or top in _BY_VERSION:
            return tagged("package", name, *([_version(top)] if self.exact else []))
        place = str(Path(file).resolve())
        if any(place.startswith(f"{p}/") for p in _PACKAGES):
            return tagged("package", name, _file_text(place).encode())
        return tagged("package", name) if any(place.startswith(f"{p}/") for p in (*_LIBRARIES, _HARNESS)) else None


_OF_EVERY_CLASS = frozenset(
    {"__dict__", "__weakref__", "__module__", "__doc__", "__annotations__", "__firstlineno__", "__static_attributes__",
     "__dataclass_fields__", "__abstractmethods__", "_abc_impl", "__annotate_func__", "__annotations_cache__"}
)  # fmt: skip


def _state(value: Any) -> dict[str, Any]:
    """An object's attributes, those in slots included."""
    slots = [n for c in type(value).__mro__ for n in _slots(vars(c).get("__slots__", ()))]
    return {n: getattr(value, n) for n in slots if hasattr(value, n)} | dict(getattr(value, "__dict__", {}))


def _slots(written: Any) -> tuple[str, ...]:
    names = (written,) if isinstance(written, str) else tuple(written)
    return tuple(n for n in names if n not in ("__dict__", "__weakref__") and not n.startswith("__"))


def _generated(cls: type, name: str, member: Any) -> bool:
    """Whether a member of a class was written by `dataclass`, `NamedTuple` or `Enum` after the fields or members."""
    if dataclasses.is_dataclass(cls) and name.startswith("__"):
        code = getattr(member, "__code__", None)
        return code is None or code.co_filename.startswith("<") or code.co_filename == dataclasses.__file__
    if issubclass(cls, enum.Enum):
        return name.startswith("_") and getattr(member, "__code__", None) is None
    fields = vars(cls).get("_fields", ()) if issubclass(cls, tuple) else ()
    return bool(fields) and (name in fields or name in _OF_NAMED_TUPLES)


_OF_NAMED_TUPLES = frozenset(
    {"__new__", "_make", "_replace", "__replace__", "_asdict", "__repr__", "__getnewargs__", "__match_args__",
     "__orig_bases__"}
)  # fmt: skip


def _unwrapped(member: Any) -> Any:
    """The function behind a static or class method, or the functions of a property."""
    if isinstance(member, property):
        return (member.fget, member.fset, member.fdel)
    if isinstance(member, functools.cached_property):
        return member.func
    return getattr(member, "__func__", member)


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _name(value: Any) -> str:
    return str(getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or type(value).__qualname__)


def _names(code: types.CodeType) -> set[str]:
    """The globals and attributes that code may name, its inner functions included."""
    inner = [_names(c) for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*inner)


def _imported(function: types.FunctionType, exact: bool) -> dict[str, Any]:
    """The modules that a function imports when it runs, imported now, by name; in words those that nobody enters."""
    package = function.__globals__.get("__package__") or ""
    found: dict[str, Any] = {}
    for name in sorted(set(_imports(function.__code__))):
        top = name.partition(".")[0]
        if top in _BY_VERSION or top in sys.stdlib_module_names:
            found[name] = f"{name} {_version(top).decode() if exact else ''}"
            continue
        with contextlib.suppress(Exception):  # where there is no such module, what runs says so
            found[name] = importlib.import_module(name, package)
    return found


def _imports(code: types.CodeType) -> Iterator[str]:
    """What code and the functions in it import, in the words of `importlib.import_module`."""
    level = 0
    names: tuple[Any, ...] | None = ()
    for step in dis.get_instructions(code) if _IMPORT in code.co_code[::2] else ():
        if step.opname == "IMPORT_NAME":
            module = "." * level + str(step.argval or "")
            yield from [module] * bool(step.argval)
            yield from (f"{module}{'.' * bool(step.argval)}{n}" for n in names or () if n != "*")
        elif isinstance(step.argval, int):
            level = step.argval
        elif step.argval is None or isinstance(step.argval, tuple):
            names = step.argval
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _imports(inner)
        elif isinstance(inner, str) and set(code.co_names) & {"import_module", "__import__"}:
            yield inner


@functools.cache
def _version(package: str) -> bytes:
    try:
        return importlib.metadata.version("ptxdiff" if package == "harness" else package).encode()
    except importlib.metadata.PackageNotFoundError:
        return b""


def _file_text(path: str | None) -> str:
    if not path:
        return ""
    if path not in _sources:
        try:
            _sources[path] = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            _sources[path] = "".join(linecache.getlines(path))
    return _sources[path]


def source(function: types.FunctionType) -> bytes:
    """A function's source without comments, docstrings and layout; its byte code where there is no source."""
    code = function.__code__
    if id(code) not in _made:
        node = _node(code)
        text = byte_code(code) if node is None else tagged("source", ast.unparse(node).encode())
        _made[id(code)] = (code, text)
    return _made[id(code)][1]


_made: dict[int, tuple[types.CodeType, bytes]] = {}
"""Code objects with their sources, by id, which stays theirs as they are kept here."""


def byte_code(code: types.CodeType) -> bytes:
    """What Python runs, with its constants and names, and that of inner functions."""
    constants = [byte_code(c) if isinstance(c, types.CodeType) else encode(c) for c in code.co_consts]
    return tagged("code", code.co_code, encode(code.co_names), *constants)


def _node(code: types.CodeType) -> ast.AST | None:
    """The definition in its file that a code object was made of; None where it cannot be told."""
    here = [n for n in _definitions(_file_text(code.co_filename)) if _first_line(n) == code.co_firstlineno]
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
    """The functions and lambdas of a file, docstrings taken out."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ()
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
            found.append(node)
        elif isinstance(node, ast.Lambda):
            found.append(node)
    return tuple(found)


def digest_with_code(value: Any, *, exact: bool = False) -> str:
    """SHA-256 of a value's encoding, in which functions stand for their code and all that it calls.

    exact: for use within one version of Python; byte code counts as well.
    """
    return hashlib.sha256(_Walk(exact).encode(value)).hexdigest()
