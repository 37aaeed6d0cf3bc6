"""Make a function over arrays from a scalar definition: in Python for few lanes, as machine code for more.

A definition is compiled at most twice. First with its constants (modifiers, formats) as arguments, so that one
compilation serves every spelling of every form. A function used for many lanes is then compiled again with fixed
constants and operand widths: 3 to 30 times as fast.

`translation` makes LLVM code of a definition and compiles it, in about a twentieth of a second: numba, which
does more, takes five times as long. numba still compiles functions over tiles and whole arrays, which use
`register_helpers`. Both are imported when they are first needed, so that running a block on a few values, or only
analysing it, does not pay for them. Both are optional: without llvmlite every definition runs in Python, with the same
results, and only products of matrices need numba.
"""

from __future__ import annotations

import gc
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ptxdiff.emulator.limits import compiled_for
from ptxdiff.emulator.numeric import bits, compilecache
from ptxdiff.extras import SLOW_WITHOUT_COMPILER, installed

Array = npt.NDArray[Any]
UNSIGNED = {1: np.uint8, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
"""The storage type of a register of that many bits; a predicate is a byte of 0 or 1."""
SIGNED = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}

_PYTHON_LANES = 1500
"""After this many lanes in Python, compiling a function is worth its cost."""

_SHARED_LANES = 1 << 22
"""After this many lanes in shared code (10 to 400 million lanes a second), compiling a function for its own constants
is worth its cost."""

_MANY_PYTHON_LANES = 1 << 18
"""After this many lanes in Python because llvmlite is missing (about a second), a warning says how to install it."""

_BLOCK = 1 << 14
"""Lanes in one call of shared code, few enough that a block of 64-bit operands stays in the processor's cache."""

# Helpers are inlined into their callers; entry points for Python and C would take most of the compilation.
_INLINED: Any = {"forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_F = TypeVar("_F", bound=Callable[..., object])
_IN_PLACE: list[Callable[..., Any]] = []

_lock = threading.RLock()
_registered: set[Callable[..., object]] = set()
_shared: dict[tuple[Callable[..., int], int], Any] = {}
"""Shared code (constants as arguments), by definition and number of operands, because an operand of one form may be a
constant of another."""
_uncompiled = 0
_lanes_without_compiler = 0


@contextmanager
def uncompiled() -> Iterator[None]:
    """Run all definitions in Python: for many small runs of different blocks, where compiling costs more.

    It applies to all threads, and changes only their speed.
    """
    global _uncompiled
    with _lock:
        _uncompiled += 1
    try:
        yield
    finally:
        with _lock:
            _uncompiled -= 1


class ArrayFunction:
    """A scalar definition, specialised on its constants, over arrays of lanes.

    `sources`: a pair (width, signed) for each argument. `width`: bits of the result. Arguments are unsigned arrays of
    equal length; the result is a new unsigned array.
    """

    def __init__(
        self,
        function: Callable[..., int],
        constants: tuple[int, ...],
        sources: tuple[tuple[int, bool], ...],
        width: int,
    ) -> None:
        self.function = function
        self.constants = constants
        self.sources = sources
        self.width = width
        self.dtype = UNSIGNED[width]
        self._kinds = tuple(np.dtype(UNSIGNED[w]) for w, _ in sources)
        self._words = np.array([_wrapped(c) for c in constants], np.int64)
        self._lanes = 0
        self._compiled: Any = None

    def __call__(self, lanes: int, *arguments: Array) -> Array:
        """The results for the first `lanes` entries of the arguments."""
        if self._compiled is None:
            self._lanes += 0 if _uncompiled else lanes
            shared = (self.function, len(self.sources)) in _shared
            if _uncompiled or (self._lanes < _PYTHON_LANES and not shared):
                return self._interpret(lanes, arguments)
            if self._lanes < _SHARED_LANES:
                return self.shared(lanes, *arguments)
        return self.compiled(lanes, *arguments)

    def shared(self, lanes: int, *arguments: Array) -> Array:
        """The results of the shared code, which takes the constants as arguments."""
        loop = _shared_loop(self.function, len(self.sources), len(self.constants))
        if loop is None:
            count_without_compiler(lanes)
            return self._interpret(lanes, arguments)
        out, rows = np.empty(lanes, self.dtype), _scratch.rows
        if len(rows) < len(arguments) * _BLOCK:
            rows = _scratch.grown(len(arguments))
        for start in range(0, lanes, _BLOCK):
            end = min(start + _BLOCK, lanes)
            count = end - start
            for k, (argument, (width, signed)) in enumerate(zip(arguments, self.sources, strict=True)):
                part = argument[start:end]
                rows[k * count : k * count + count] = part.view(SIGNED[width]) if signed or width == 64 else part
            loop(_scratch.found_id, _scratch.rows_id, id(self._words), count)
            found = _scratch.found[:count]
            out[start:end] = found & 1 if self.width == 1 else found
        return out

    def compiled(self, lanes: int, *arguments: Array) -> Array:
        """The results of code compiled for these constants."""
        if self._compiled is None:
            with _lock:
                if self._compiled is None:
                    self._compiled = _made(
                        self.function, lambda m: m.specialised(self.function, self.constants, self.sources, self.width)
                    )
        if self._compiled is _UNKNOWN:
            count_without_compiler(lanes)
            return self._interpret(lanes, arguments)
        for a, kind in zip(arguments, self._kinds, strict=True):
            plain = type(a) is np.ndarray and a.dtype == kind and a.ndim == 1
            if not plain or len(a) < lanes or not a.flags.c_contiguous:
                arguments = self._readable(lanes, arguments)
                break
        out = np.empty(lanes, self.dtype)
        self._compiled(id(out), *map(id, arguments), lanes)
        return out

    def _readable(self, lanes: int, arguments: tuple[Array, ...]) -> tuple[Array, ...]:
        """Operands as machine code reads them, which checks nothing: contiguous. Raises TypeError for others."""
        for argument, kind in zip(arguments, self._kinds, strict=True):
            if argument.dtype != kind or argument.ndim != 1 or len(argument) < lanes:
                raise TypeError(
                    f"{self.function.__qualname__}: an operand of {argument.dtype} and shape {argument.shape}, "
                    f"where {lanes} lanes of {kind} are needed"
                )
        return tuple(np.asarray(a, order="C") for a in arguments)

    def one(self, *patterns: int) -> int:
        """The result for one lane, in Python: bit patterns in (non-negative), bit pattern out."""
        values = [read(p, *source) for p, source in zip(patterns, self.sources, strict=True)]
        return int(self.function(*values, *self.constants)) & _ones(self.width)

    def _interpret(self, lanes: int, arguments: tuple[Array, ...]) -> Array:
        columns = [a[:lanes].tolist() for a in arguments]
        rows = zip(*columns, strict=True) if columns else ((),) * lanes
        return np.array([self.one(*row) for row in rows], self.dtype)


class _Scratch(threading.local):
    """Arrays of a thread that shared code reads and writes: a row for each operand, and the results.

    They are kept, with their ids: an id is an audit event, which `ptxdiff.model.identity.opened` looks at.
    """

    def __init__(self) -> None:
        self.found = np.empty(_BLOCK, np.int64)
        self.found_id = id(self.found)
        self.grown(4)

    def grown(self, operands: int) -> Array:
        """The rows, enough for so many operands."""
        self.rows = np.empty(operands * _BLOCK, np.int64)
        self.rows_id = id(self.rows)
        return self.rows


_scratch = _Scratch()


def _ones(width: int) -> int:
    return (1 << width) - 1


def _wrapped(constant: int) -> int:
    """The signed 64-bit integer with the constant's bits."""
    return (constant + (1 << 63)) % (1 << 64) - (1 << 63)


def read(pattern: int, width: int, signed: bool) -> int:
    """A bit pattern as scalar definitions expect it (see `bits`)."""
    if (signed or width == 64) and pattern >> (width - 1) & 1:
        return pattern - (1 << width)
    return pattern


def in_place(function: _F) -> _F:
    """Mark a helper of `on_arrays` that makes no arrays: numba then counts no references to those it is given, which
    takes longer than what the helper does."""
    _IN_PLACE.append(function)
    return function


def register_helpers() -> Any:
    """Register every function of `bits` with numba; returns the numba module.

    Digests of products contain this code, so it does not itself say which command installs numba (`errors` does).
    """
    import numba
    from numba.core.extending import overload, register_jitable

    from ptxdiff.emulator.numeric.bits_compiled import INTRINSICS

    for function, name in bits.COMPILED.items():
        if function not in _registered:
            _registered.add(function)
            names = function.__code__.co_varnames[: function.__code__.co_argcount]
            spell = ", ".join(names)
            text = f"lambda {spell}: lambda {spell}: target({spell})"
            overload(function, jit_options=_INLINED)(eval(text, {"target": INTRINSICS[name]}))
    for function in bits.SCALARS:
        if function not in _registered:
            _registered.add(function)
            register_jitable(**_INLINED, error_model="numpy")(function)
    return numba


def _shared_loop(function: Callable[..., int], sources: int, constants: int) -> Any:
    """The shared code of a definition, with rows of 64-bit patterns: the results, each operand, and the constants."""
    which = function, sources
    if which not in _shared:
        with _lock:
            if which not in _shared:
                _shared[which] = _made(function, lambda m: m.shared(function, sources, constants))
    return None if _shared[which] is _UNKNOWN else _shared[which]


_UNKNOWN = object()
"""In place of the machine code of a definition that can only be run in Python."""


def _made(function: Callable[..., int], text: Callable[[Any], str]) -> Any:
    """The machine code of LLVM code that `text` makes with `loops`; `_UNKNOWN` without llvmlite, and with a warning for
    a definition that cannot be translated."""
    if not installed("llvmlite"):
        return _UNKNOWN
    from ptxdiff.emulator.numeric.translation import loops, machinecode
    from ptxdiff.emulator.numeric.translation.source import Untranslatable

    started = time.monotonic()
    try:
        return machinecode.load(text(loops))
    except Untranslatable as reason:
        warnings.warn(f"{function.__qualname__} runs in Python, about 1000 times slower: {reason}", stacklevel=3)
        return _UNKNOWN
    finally:
        compiled_for(time.monotonic() - started)


def count_without_compiler(lanes: int) -> None:
    """Count lanes that run in Python because llvmlite is missing; once they are many, warn."""
    global _lanes_without_compiler
    before = _lanes_without_compiler
    _lanes_without_compiler += lanes
    if before < _MANY_PYTHON_LANES <= _lanes_without_compiler and not installed("llvmlite"):
        warnings.warn(SLOW_WITHOUT_COMPILER, stacklevel=2)


def on_arrays(function: Callable[..., Any], kinds: tuple[Any, ...]) -> Any:
    """numba's machine code of a function over whole arrays, for arguments of these types, loaded from the cache.

    For functions that loop over arrays themselves and make none; what they call is marked `in_place`.
    """
    numba = register_helpers()
    from numba.core.extending import register_jitable

    for helper in _IN_PLACE:
        if helper not in _registered:
            _registered.add(helper)
            register_jitable(**_INLINED, error_model="numpy", _nrt=False)(helper)
    started = time.monotonic()
    dispatcher = numba.njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True, _nrt=False)(function)
    key = f"{function.__module__}.{function.__qualname__}"
    compilecache.attach(dispatcher, key, function.__module__)
    with compilecache.compiling(key), wrapping(), _undisturbed():
        dispatcher.compile(kinds)
    dispatcher.disable_compile()
    compiled_for(time.monotonic() - started)
    return dispatcher


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Turn off the garbage collector, which takes a tenth of a compilation."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


@contextmanager
def wrapping() -> Iterator[None]:
    """Make compiled integer arithmetic wrap, as `bits` states.

    numba marks signed sums, differences and products as never overflowing, and LLVM uses this: the vectorised form of
    `a - b if a > b else b - a` becomes an absolute value that is wrong if the difference overflows.
    """
    from numba.cpython import numbers

    flags = numbers._int_arith_flags
    numbers._int_arith_flags = lambda kind: []
    try:
        yield
    finally:
        numbers._int_arith_flags = flags
