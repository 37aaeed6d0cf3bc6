"""The code of a function as bytes: its source, the source of everything it calls, and the values that these use.

The walk follows globals, closures, defaults, imports inside functions, attributes, methods, base classes and classes of
values. It ends at the standard library, at this package and at installed packages. For a small installed package the
whole file of the function counts. For this package and for large ones the version counts, but only for identities that
stay on one machine (`exact`): two machines with different versions of torch test the same case. Comments, docstrings
and layout do not count.
"""

from __future__ import annotations

import collections
import contextlib
import copyreg
import dataclasses
import enum
import functools
import hashlib
import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any, TypeGuard

from ptxdiff.locations import PACKAGE
from ptxdiff.model.identity.encoding import array, encode, only_here, tagged
from ptxdiff.model.identity.source import byte_code, file_text, imports_in, names_in, real_path, source

_LIBRARIES = tuple({str(Path(p).resolve()) for n, p in sysconfig.get_paths().items() if n in ("stdlib", "platstdlib")})
_PACKAGES = tuple({str(Path(p).resolve()) for n, p in sysconfig.get_paths().items() if n in ("purelib", "platlib")})
HARNESS = str(PACKAGE)
_REFERENCES = "ptxdiff.references"
_IN_PACKAGES = tuple(f"{folder}/" for folder in _PACKAGES)
_IN_LIBRARIES = tuple(f"{folder}/" for folder in (*_LIBRARIES, HARNESS))
_BY_VERSION = ("ptxdiff", "numpy", "torch", "triton", "numba", "ml_dtypes", "scipy", "mpmath")

# Names with which code accesses other names indirectly: in any module, and in its own. The whole module then counts.
_DYNAMIC = frozenset({"getattr", "vars", "globals", "eval", "exec", "__import__", "import_module", "__dict__"})
_DYNAMIC_HERE = _DYNAMIC - {"getattr", "__dict__"} | {"modules"}

_FIELD: Any = vars(collections.namedtuple("_FIELD", "name"))["name"]
_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType, type(_FIELD))

_COMPILED = tuple(importlib.machinery.EXTENSION_SUFFIXES)
"""The endings of the names of compiled modules."""

_COPYING = frozenset({"__reduce__", "__reduce_ex__", "__getstate__"})
"""Methods with which a class says what a copy of it holds; it may leave something out."""

_PLAIN: Mapping[type, Callable[[Any], Any]] = {
    int: int.__index__,
    float: float.__float__,
    complex: complex.__complex__,
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    bytearray: lambda value: bytearray.__getitem__(value, slice(None)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    list: lambda value: list(list.__iter__(value)),
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    dict: lambda value: dict(dict.items(value)),
}
"""Types whose subclasses hold a value besides their attributes, and how to get it without methods of the subclass."""


class _Walk:
    """One walk from a function. A value that occurs again is encoded as a number, so that cycles end.

    exact: the byte code counts too. It differs between versions of Python.
    """

    def __init__(self, exact: bool) -> None:
        self.exact = exact
        self.met: dict[int, int] = {}
        self.kept: list[Any] = []

    def encode(self, value: Any) -> bytes:
        return encode(value, self.other)

    def other(self, value: Any) -> bytes | None:
        """The encoding of a value that is not plain; None if `encode` has a rule for it."""
        if not self._is_code(value):
            return None
        if id(value) in self.met:
            return tagged("again", str(self.met[id(value)]).encode())
        self.met[id(value)] = len(self.met)
        self.kept.append(value)
        try:
            made, machine_code = self._code(value), self._machine_code(value)
        except RecursionError:
            raise
        except Exception:  # the user's code was asked for an attribute, and answered as no class or function does
            return only_here(value)
        return made if made is None or not machine_code else tagged("compiled", machine_code, made)

    def _machine_code(self, value: Any) -> bytes:
        """The contents of the user's compiled module that a function or a class comes from; empty for other values."""
        if isinstance(value, types.ModuleType) or not callable(value):
            return b""
        owner = getattr(value, "__self__", None) if isinstance(value, types.BuiltinFunctionType) else None
        home = getattr(value, "__module__", None)
        module = owner if isinstance(owner, types.ModuleType) else sys.modules.get(home) if _is_text(home) else None
        file = getattr(module, "__file__", None)
        if module is None or not _is_text(file) or not file.endswith(_COMPILED):
            return b""
        return b"" if _is_outside(module) else file_text(file).encode()

    def _is_code(self, value: Any) -> bool:
        if isinstance(value, types.ModuleType | type | types.GenericAlias | types.UnionType) or callable(value):
            return True
        if dataclasses.is_dataclass(value) or isinstance(value, (enum.Enum, *_PLAIN)):
            return self._own(type(value)) or isinstance(value, collections.defaultdict)
        home = type(value).__module__.partition(".")[0]
        return home not in ("numpy", "torch", "ml_dtypes") and not isinstance(value, Mapping)

    def _own(self, cls: type) -> bool:
        """Whether a class is the user's. Classes of `references` hold plain values and belong to the harness."""
        if _of_references(cls.__module__):
            return False
        module = _home(cls)
        return module is None or not _is_outside(module)

    def _code(self, value: Any) -> bytes | None:
        if isinstance(value, types.ModuleType):
            return self._module(value)
        if type(value).__module__ == "typing" or isinstance(value, types.GenericAlias | types.UnionType):
            return tagged("type", repr(value).encode())
        if isinstance(value, _DESCRIPTORS):
            return tagged("slot", _name(value).encode())
        if isinstance(value, functools.partial):
            return tagged("partial", *map(self.encode, (value.func, value.args, value.keywords)))
        if isinstance(value, types.MethodType):
            return tagged("method", self.encode(value.__func__), self.encode(value.__self__))
        if isinstance(value, types.FunctionType):
            outside = self._outside(value)
            return self._function(value) if outside is None else tagged("closed", outside, self._cells(value))
        if isinstance(value, type):
            return self._outside(value) or self._class(value)
        if isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):
            return self._builtin(value)
        return self._instance(value) if self._own(type(value)) else self._foreign(value)

    def _module(self, module: types.ModuleType) -> bytes:
        """A module that is a value: any of its functions may be called."""
        outside = self._outside_module(module)
        if outside is not None:
            return tagged("module", outside)
        text = file_text(getattr(module, "__file__", None)).encode()
        return tagged("module", text, self.encode({n: v for n, v in vars(module).items() if callable(v)}))

    def _builtin(self, function: Any) -> bytes:
        owner = getattr(function, "__self__", None)  # for {...}.get this is the dictionary
        bound = [] if owner is None or isinstance(owner, types.ModuleType) else [self.encode(owner)]
        return tagged("builtin", f"{getattr(function, '__module__', '')}.{_name(function)}".encode(), *bound)

    def _instance(self, value: Any) -> bytes:
        """A value of a user's class: its attributes, its value as a list or a number, and the class."""
        cls = type(value)
        if isinstance(value, enum.Enum):
            return tagged("enum", value.name.encode(), self.encode(cls))
        held = next((get(value) for plain, get in _PLAIN.items() if issubclass(cls, plain)), None)
        encoded = tagged("instance", self.encode(cls), self.encode(_attributes(value)), self.encode(held))
        inner = b"" if held is not None else self._compiled_part(value)
        return encoded if not inner else tagged("instance of compiled", encoded, inner)

    def _compiled_part(self, value: Any) -> bytes:
        """What a value of a user's class holds as a value of a compiled class, such as an array or a deque."""
        base: type = next(c for c in _bases(type(value)) if not self._own(c))
        if _has_attributes_alone(base):
            return b""
        if issubclass(base, BaseException):
            return self.encode(value.args)
        encoded = array(value, self.other)
        if encoded is None:
            redefined = [c for c in type(value).__mro__ if self._own(c) and vars(c).keys() & _COPYING]
            encoded = None if redefined else self._reduced(lambda: base.__reduce_ex__(value, 2), value)
        return only_here(value) if encoded is None else encoded

    def _foreign(self, value: Any) -> bytes | None:
        """A value of a class that the walk does not enter; None if no property distinguishes it from other values."""
        if type(value).__name__ in ("Heuristics", "Autotuner"):
            rules = {n: getattr(value, n, None) for n in ("values", "configs", "keys")}
            return tagged("jit", type(value).__name__.encode(), self.encode(value.fn), self.encode(rules))
        if inspect.isfunction(function := getattr(value, "fn", None)):  # a @triton.jit function
            marks = {n: getattr(value, n, None) for n in ("noinline", "do_not_specialize", "debug")}
            marks["annotations"] = function.__annotations__  # they mark compile-time constants
            if self.exact:
                marks["text"] = getattr(value, "src", None)  # Triton's source; `_unsafe_update_src` replaces it
            return tagged("jit", type(value).__name__.encode(), self.encode(function), self.encode(marks))
        if callable(inner := getattr(value, "__wrapped__", None)):  # functools.cache
            return tagged("wrapped", type(value).__name__.encode(), self.encode(inner))
        reduce = copyreg.dispatch_table.get(type(value))
        attributes = getattr(value, "__dict__", None)
        if reduce is None and attributes is not None and _has_attributes_alone(type(value)):
            return tagged("instance", self.encode(type(value)), self.encode(dict(attributes)))
        encoded = self._reduced((lambda: reduce(value)) if reduce else (lambda: value.__reduce_ex__(2)), value)
        return tagged("made with", encoded, self.encode(dict(attributes))) if encoded and attributes else encoded

    def _reduced(self, reduce: Callable[[], Any], value: Any) -> bytes | None:
        """What a copy of a value is made of, by the protocol of pickle; None if it cannot be copied."""
        try:
            parts = reduce()
        except Exception:  # a class may raise anything when copied
            return None
        if isinstance(parts, str):
            known = any(getattr(m, parts, None) is value for m in _modules_of(value))
            return tagged("made", _name(type(value)).encode(), self.encode(parts)) if known else None
        # Elements of lists and dictionaries come as iterators, which would be encoded as such.
        listed = tuple(list(p) if index > 2 and p is not None else p for index, p in enumerate(parts))
        return tagged("made", _name(type(value)).encode(), self.encode(listed))

    def _function(self, function: types.FunctionType) -> bytes:
        attributes = {n: v for n, v in vars(function).items() if n != "__wrapped__"}
        values = (function.__defaults__, function.__kwdefaults__, attributes)
        names = names_in(function.__code__)
        if names & _DYNAMIC_HERE:
            names |= _public(function.__globals__)
        values_here = function.__globals__
        known = {n: values_here[n] for n in names if n in values_here and values_here[n] is not function}
        made_of = [source(function), *([byte_code(function.__code__)] if self.exact else [])]
        taken = (self._named(known, names, ()), self._imported(function, names))
        return tagged("function", *made_of, self._cells(function), *map(self.encode, values), *taken)

    def _imported(self, function: types.FunctionType, names: Set[str]) -> bytes:
        """The values that a function uses from modules that it imports itself."""
        parts = []
        for level, name, taken in imports_in(function.__code__):
            package = function.__globals__.get("__package__") or ""
            for module in (name, *(f"{name}.{t}" if name else t for t in taken)):  # no name in `from . import t`
                imported = self._importable("." * level + module, package)
                if imported is not None:
                    _note_import(function, imported)
                    parts += [
                        self.encode(module),
                        self._named({imported.__name__: imported}, names | {imported.__name__}, ()),
                    ]
        return tagged("imports", *parts)

    def _importable(self, name: str, package: str) -> types.ModuleType | None:
        """A user's module by name; None for other modules, which the function's source names."""
        try:
            name = importlib.util.resolve_name(name, package)
            top = name.partition(".")[0]
            if top in _BY_VERSION or top in sys.stdlib_module_names:
                return None
            module = importlib.import_module(name)
        except Exception:  # a name in a module, or a module that cannot be imported here: the call will report it
            return None
        return None if _is_outside(module) else module

    def _cells(self, function: types.FunctionType) -> bytes:
        """The values that a function closes over."""
        return self.encode([_cell(c) for c in function.__closure__ or ()])

    def _named(self, known: Mapping[str, Any], names: Set[str], inside: tuple[Any, ...]) -> bytes:
        """The values that code uses by name. Of a user's module, the attributes that the code may name."""
        parts = []
        for name in sorted(names & set(known)):
            value = known[name]
            if not isinstance(value, types.ModuleType) or _is_outside(value):
                parts += [self.encode(name), self.encode(value)]
            elif value not in inside:
                inner = names | _public(vars(value)) if names & _DYNAMIC else names
                parts += [self.encode(name), self._named(vars(value), inner, (*inside, value))]
        return tagged("names", *parts)

    def _class(self, cls: type) -> bytes:
        members = {n: _unwrapped(v) for n, v in vars(cls).items() if n not in _OF_EVERY_CLASS and not _generated(v)}
        if issubclass(cls, enum.Enum):
            functions = {n: f for n, f in members.items() if isinstance(f, types.FunctionType | tuple)}
            members = {n: f for n, f in functions.items() if self._outside(f) is None}
            members |= {m: v.value for m, v in cls.__members__.items()}
        elif dataclasses.is_dataclass(cls):
            members |= {f.name: (f.default, f.default_factory, f.init, f.compare) for f in dataclasses.fields(cls)}
        return tagged("class", cls.__qualname__.encode(), *map(self.encode, (cls.__bases__, type(cls), members)))

    def _outside(self, value: Any) -> bytes | None:
        """The encoding of a function or class that the walk does not enter; None for one that it enters."""
        module = _home(value)
        location = None if module is None else self._outside_module(module)
        return None if location is None else tagged("outside", location, _name(value).encode())

    def _outside_module(self, module: types.ModuleType) -> bytes | None:
        """The encoding of a module that the walk does not enter; None for one that it enters."""
        if not _is_outside(module):
            return None
        top, file = module.__name__.partition(".")[0], getattr(module, "__file__", None)
        if file is None or top in _BY_VERSION:
            return tagged("package", module.__name__.encode(), *([_version(top)] if self.exact else []))
        location = real_path(file)
        return _installed(module.__name__, file_text(location) if location.startswith(_IN_PACKAGES) else None)


def _home(value: Any) -> types.ModuleType | None:
    """The module of a class, or in which a function runs: functools.wraps copies the name of another."""
    home = value.__globals__.get("__name__") if isinstance(value, types.FunctionType) else None
    return sys.modules.get(home or getattr(value, "__module__", None) or "")


def _is_outside(module: types.ModuleType) -> bool:
    """Whether the walk does not enter a module. No file is read: this is asked of all modules of a process."""
    file, top = getattr(module, "__file__", None), module.__name__.partition(".")[0]
    if _of_references(module.__name__) or (file is None and top == "__main__"):
        return False
    return file is None or top in _BY_VERSION or real_path(file).startswith((*_IN_PACKAGES, *_IN_LIBRARIES))


@functools.lru_cache(maxsize=1024)
def _installed(name: str, text: str | None) -> bytes:
    """The encoding of an installed module by name, and by its text unless it is Python's or ours."""
    return tagged("package", name.encode(), *([] if text is None else [text.encode()]))


class _Bare:
    """A class whose values hold attributes alone."""


def _has_attributes_alone(cls: type[Any]) -> bool:
    """Whether values of a class hold attributes alone: what a compiled class or slots add makes them larger."""
    return cls.__basicsize__ <= _Bare.__basicsize__ and not cls.__itemsize__


def _bases(cls: type) -> Iterator[type]:
    """A class and those whose memory it extends, up to `object`."""
    above: type | None = cls
    while above is not None:
        yield above
        above = above.__base__


_OF_EVERY_CLASS = frozenset(
    {"__dict__", "__weakref__", "__module__", "__doc__", "__annotations__", "__firstlineno__", "__static_attributes__",
     "__dataclass_fields__", "__dataclass_params__", "__replace__", "__abstractmethods__", "_abc_impl",
     "__annotate_func__", "__annotations_cache__", "__slotnames__"}
)  # fmt: skip


def _attributes(value: Any) -> dict[str, Any]:
    """The attributes of a value, and its slots, without asking the value, whose class may answer otherwise."""
    classes = type(value).__mro__
    slots = {n: v for c in classes for n, v in vars(c).items() if isinstance(v, types.MemberDescriptorType)}
    own = (vars(c).get("__dict__") for c in classes)
    attributes: dict[str, Any] = next((d.__get__(value) for d in own if isinstance(d, types.GetSetDescriptorType)), {})
    filled = {}
    for name, slot in slots.items():
        with contextlib.suppress(AttributeError):  # it is empty
            filled[name] = slot.__get__(value)
    return filled | dict(attributes)


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str)


def _of_references(module: str) -> bool:
    """Whether a module belongs to `ptxdiff.references`, whose code decides results like the user's."""
    return module == _REFERENCES or module.startswith(f"{_REFERENCES}.")


def is_users(module: types.ModuleType) -> bool:
    """Whether a module is neither ours, nor Python's, nor of an installed package."""
    return not _of_references(module.__name__) and not _is_outside(module)


def _note_import(function: types.FunctionType, module: types.ModuleType) -> None:
    """Note that a function opens the file of a module that was imported in its place, and what that imports.

    What the module does may decide results although the function uses no name of it.
    """
    from ptxdiff.model.identity.modules import imported_texts  # which asks this module whose a module is
    from ptxdiff.model.identity.opened import note

    if file := getattr(module, "__file__", None):
        note(function.__code__.co_filename, [file, *imported_texts(Path(file))])


def _modules_of(value: Any) -> list[types.ModuleType | None]:
    """The modules that may have a value under its name."""
    names = (getattr(value, "__module__", None), type(value).__module__, "numpy", "scipy.special")
    return [sys.modules.get(n) for n in names if isinstance(n, str)]


def _public(names: Mapping[str, Any]) -> set[str]:
    return {n for n in names if not n.startswith("__")}


def _generated(member: Any) -> bool:
    """Whether `dataclass` or `namedtuple` generated a method: the text differs between versions of Python."""
    return isinstance(member, types.FunctionType) and member.__code__.co_filename.startswith("<string>")


def _unwrapped(member: Any) -> Any:
    """The function of a static or class method, or the functions of a property."""
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


@functools.cache
def _version(package: str) -> bytes:
    try:
        return importlib.metadata.version(package).encode()
    except importlib.metadata.PackageNotFoundError:
        return b""


def digest_with_code(value: Any, *, exact: bool = False) -> str:
    """SHA-256 of a value's encoding, in which functions are encoded as their code and everything that it calls.

    exact: for use within one version of Python; byte code counts too.
    """
    try:
        return hashlib.sha256(_Walk(exact).encode(value)).hexdigest()
    except RecursionError:  # a list that contains itself
        return hashlib.sha256(only_here(value)).hexdigest()
