"""From a scalar definition to a function over arrays: Python for few lanes, numba for more.

numba compiles a definition twice at most. First with its constants (modifiers, formats) as arguments: one compilation
serves every spelling of every form with that definition. A function that many lanes pass through is then compiled
once more, with its constants and the widths of its operands fixed: 3 to 30 times as fast, a fifth of a second each.

numba is imported when the first function is compiled, so that running a snippet on a few values, or only
analysing one, needs none of its half second.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.ptx.limits import compiled_for
from harness.ptx.numeric import bits, compilecache

Array = npt.NDArray[Any]
UNSIGNED = {1: np.uint8, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
"""The storage type of a register of that many bits; a predicate is a byte of 0 or 1."""
SIGNED = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}

_PYTHON_LANES = 1500
"""Lanes that a function serves in Python before it is worth compiling (about a tenth of a second)."""

_SHARED_LANES = 1 << 22
"""Lanes that a function serves in its definition's shared code (10 to 400 million a second) before it is worth
compiling for its own constants."""

_BLOCK = 1 << 14
"""Lanes that shared code is given at a time; a block of 64-bit operands stays in the processor's cache."""

# Helpers vanish in what calls them; entry points of their own, for Python and for C, would be most of a compilation.
_INLINED: Any = {"forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

_lock = threading.RLock()
_registered: set[Callable[..., object]] = set()
_shared: dict[tuple[Callable[..., int], int], Any] = {}
"""The code that takes constants as arguments, once it was needed, of each definition and number of operands: what is
an operand of one form may be a constant of another."""
_uncompiled = 0


@contextmanager
def uncompiled() -> Iterator[None]:
    """Run definitions in Python, however often: for many small runs of many blocks, where compiling costs more.

    It holds for all threads, and changes how long they take, no bits.
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

    `sources` are pairs (width, signed) and tell how each argument is read; `width` is the result's. Arguments
    are unsigned arrays of equal length; the result is a new unsigned array.
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
        """The results by the code that takes the constants as arguments."""
        loop = _shared_loop(self.function, len(self.sources), len(self.constants))
        constants = np.array([_wrapped(c) for c in self.constants], np.int64)
        out = np.empty(lanes, self.dtype)
        for start in range(0, lanes, _BLOCK):
            end = min(start + _BLOCK, lanes)
            values = np.empty((1 + len(arguments), end - start), np.int64)
            for row, argument, (width, signed) in zip(values[1:], arguments, self.sources, strict=True):
                part = argument[start:end]
                row[:] = part.view(SIGNED[width]) if signed or width == 64 else part
            loop(values, constants)
            out[start:end] = values[0] & 1 if self.width == 1 else values[0]
        return out

    def compiled(self, lanes: int, *arguments: Array) -> Array:
        """The results by the code compiled for these constants alone."""
        if self._compiled is None:
            with _lock:
                if self._compiled is None:
                    started = time.monotonic()
                    self._compiled = _compile(self.function, self.constants, self.sources, self.width)
                    compiled_for(time.monotonic() - started)
        out = np.empty(lanes, self.dtype)
        self._compiled(out, *arguments)
        return out

    def one(self, *patterns: int) -> int:
        """The result for one lane, in Python: bit patterns in (non-negative), bit pattern out."""
        values = [read(p, *source) for p, source in zip(patterns, self.sources, strict=True)]
        return int(self.function(*values, *self.constants)) & _ones(self.width)

    def _interpret(self, lanes: int, arguments: tuple[Array, ...]) -> Array:
        columns = [a[:lanes].tolist() for a in arguments]
        rows = zip(*columns, strict=True) if columns else ((),) * lanes
        return np.array([self.one(*row) for row in rows], self.dtype)


def _ones(width: int) -> int:
    return (1 << width) - 1


def _wrapped(constant: int) -> int:
    """The number of 64 bits with sign that has the constant's bits."""
    return (constant + (1 << 63)) % (1 << 64) - (1 << 63)


def read(pattern: int, width: int, signed: bool) -> int:
    """A bit pattern as scalar definitions expect it (see `bits`)."""
    if (signed or width == 64) and pattern >> (width - 1) & 1:
        return pattern - (1 << width)
    return pattern


def register_helpers() -> Any:
    """Make every function of `bits` known to numba; returns the numba module."""
    import numba
    from numba.core.extending import overload, register_jitable

    from harness.ptx.numeric.bits_compiled import INTRINSICS

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


def _compile(
    function: Callable[..., int], constants: tuple[int, ...], sources: tuple[tuple[int, bool], ...], width: int
) -> Any:
    numba = register_helpers()
    from harness.ptx.numeric.bits_compiled import wide_vectors

    names = [f"a{i}" for i in range(len(sources))]
    reads = []
    for name, (bits_wide, signed) in zip(names, sources, strict=True):
        inner = f"s{bits_wide}({name}[i])" if signed else f"{name}[i]"
        reads.append(f"int64({inner})")
    consts = [repr(c) for c in constants]
    text = (
        f"def loop({', '.join(['out', *names])}):\n"
        f"    wide_vectors()\n"
        f"    for i in range(out.size):\n"
        f"        out[i] = store(function({', '.join(reads + consts)})){' & 1' if width == 1 else ''}\n"
    )
    scope: dict[str, Any] = {"__name__": __name__, "function": function, "int64": numba.int64, "store": np.int64}
    scope.update({f"s{w}": t for w, t in SIGNED.items()}, wide_vectors=wide_vectors)
    exec(text, scope)
    # Read-only in the signature takes both, so that an argument of the caller needs no copy.
    kinds = [numba.types.Array(numba.from_dtype(np.dtype(UNSIGNED[width])), 1, "C")]
    kinds += [numba.types.Array(numba.from_dtype(np.dtype(UNSIGNED[w])), 1, "C", readonly=True) for w, _ in sources]
    key = f"{function.__module__}.{function.__qualname__}({constants}, {sources}, {width})"
    return _loop(scope["loop"], tuple(kinds), key, function.__module__)


def _shared_loop(function: Callable[..., int], sources: int, constants: int) -> Any:
    """The loop over `values`, an array of 64-bit rows: the results, then each operand; and the constants, an array."""
    which = function, sources
    if which not in _shared:
        with _lock:
            if which not in _shared:
                started = time.monotonic()
                _shared[which] = _compile_shared(function, sources, constants)
                compiled_for(time.monotonic() - started)
    return _shared[which]


def _compile_shared(function: Callable[..., int], sources: int, constants: int) -> Any:
    numba = register_helpers()
    # Two arrays, however many operands there are: numba's entry point is a third of a compilation if it takes ten.
    operands = [f"values[{k + 1}, i]" for k in range(sources)] + [f"c{k}" for k in range(constants)]
    text = (
        "def loop(values, constants):\n"
        + "".join(f"    c{k} = constants[{k}]\n" for k in range(constants))
        + "    for i in range(values.shape[1]):\n"
        + f"        values[0, i] = function({', '.join(operands)})\n"
    )
    scope: dict[str, Any] = {"__name__": __name__, "function": function}
    exec(text, scope)
    kinds = (numba.types.Array(numba.int64, 2, "C"), numba.types.Array(numba.int64, 1, "C"))
    key = f"{function.__module__}.{function.__qualname__}: {sources} operands, {constants} constants as arguments"
    return _loop(scope["loop"], kinds, key, function.__module__)


def _loop(loop: Callable[..., None], kinds: tuple[Any, ...], key: str, module: str) -> Any:
    """A loop compiled for arguments of these kinds, or read from the disk, where `key` names it."""
    import numba

    dispatcher = numba.njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True)(loop)
    compilecache.attach(dispatcher, key, module)
    with compilecache.compiling(key), wrapping(), _undisturbed():
        dispatcher.compile(kinds)
    dispatcher.disable_compile()
    return dispatcher


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Without the collector of cycles, which takes a tenth of a compilation."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


@contextmanager
def wrapping() -> Iterator[None]:
    """Let compiled integer arithmetic wrap, as `bits` promises.

    numba tells LLVM that signed sums, differences and products never overflow, and LLVM makes use of it: the
    vectorised form of `a - b if a > b else b - a` becomes an absolute value that is wrong for distant a and b.
    """
    from numba.cpython import numbers

    flags = numbers._int_arith_flags
    numbers._int_arith_flags = lambda kind: []
    try:
        yield
    finally:
        numbers._int_arith_flags = flags
