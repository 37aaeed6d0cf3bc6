"""Functions that loop over arrays themselves: as machine code, or in Python where numba is not installed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ptxdiff.emulator.numeric.vectorise import Array, count_without_compiler, on_arrays, register_helpers
from ptxdiff.extras import installed

_lock = threading.Lock()


class ArrayCode:
    """A function over arrays that makes none.

    kinds: its arguments' types, from numba's module of types. It is compiled at its first call, and cached on disk.
    Without numba it runs in Python, a thousand times slower.
    """

    def __init__(self, function: Callable[..., Any], kinds: Callable[[Any], tuple[Any, ...]]) -> None:
        self._function, self._kinds = function, kinds
        self._compiled: Any = None

    def __call__(self, *arguments: Any) -> None:
        """Run it. Integers are passed as they are; arrays must have the stated types."""
        if self._compiled is None:
            self._compiled = self.compiled() if installed("numba") else self.interpreted
        self._compiled(*arguments)

    def compiled(self) -> Any:
        """The machine code; needs numba."""
        with _lock:
            return on_arrays(self._function, self._kinds(register_helpers().types))

    def interpreted(self, *arguments: Any) -> None:
        """Run it in Python."""
        count_without_compiler(max((len(a) for a in arguments if hasattr(a, "dtype") and a.shape), default=0))
        self._function(*(_Integers(a) if hasattr(a, "dtype") and a.shape else int(a) for a in arguments))


class _Integers:
    """An array as compiled code sees it: elements are read as Python integers, and written modulo its width."""

    def __init__(self, array: Array) -> None:
        self.array, self.shape = array, array.shape
        self.ones = (1 << 8 * array.itemsize) - 1
        self.half = self.ones // 2 + 1 if array.dtype.kind == "i" else 0

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, at: Any) -> int:
        return int(self.array[at])

    def __setitem__(self, at: Any, value: int) -> None:
        self.array[at] = ((value + self.half) & self.ones) - self.half
