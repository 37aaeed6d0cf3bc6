"""Compilations and their results: functions by reference, kernels with their options, PTX. How arguments of a launch
decide what is compiled."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from ptxdiff.model.dialect import AsmCall
from ptxdiff.model.identity import digest_with_code
from ptxdiff.triton.diagnostics import Refusal
from ptxdiff.triton.ptx_text import body_hash
from ptxdiff.triton.tools import Tool

Type = str | tuple["Type", ...]
Place = tuple[int, ...]
"""The place of an argument: its number, then, within tuples, the number of the element, ..."""


Digests = dict[tuple[int, bool], tuple[Any, str]]
"""The function and its digest, by the function's id and whether the digest is portable."""

_digests: Digests | None = None


@contextlib.contextmanager
def digests_from(known: Digests) -> Iterator[None]:
    """Take the digests of functions from `known` within this block, and add new ones to it.

    A digest also covers objects that merely have a name which the function uses. While such an object is changed on
    purpose, workers would refuse the function. Not thread-safe.
    """
    global _digests
    before, _digests = _digests, known
    try:
        yield
    finally:
        _digests = before


def _digest(function: Any, portable: bool) -> str:
    if _digests is None:
        return digest_with_code(function, exact=not portable)
    key = id(function), portable
    if key not in _digests:
        _digests[key] = function, digest_with_code(function, exact=not portable)
    return _digests[key][1]


@dataclass(frozen=True)
class FunctionRef:
    """A reference to a @triton.jit function: where a worker can load it, and a digest of its code.

    module: the name it was imported under, used if that name leads to the same file; else `path` is loaded by itself.
    code: digest of the function's code and of all that it calls; a worker refuses another function of that name. "" for
    a function of the harness's own. portable: the digest is the same in every Python and Triton.
    """

    module: str
    path: str
    qualname: str
    code: str = ""
    portable: bool = False

    @classmethod
    def of(cls, function: Any, *, portable: bool = False) -> FunctionRef:
        """The reference to a function, for `ptxdiff.triton.stages.load`. The function may lie within another one's
        scope.

        portable: for a compiler of another environment.

        Accepts a @triton.jit function, and one under @triton.heuristics. Raises ValueError for anything else, also for
        @triton.autotune, whose choice depends on timing.
        """
        while type(function).__name__ in ("Heuristics", "Autotuner"):
            if type(function).__name__ == "Autotuner":
                raise ValueError(f"{_name(function)} is autotuned; give the @triton.jit function and one set of values")
            function = function.fn
        plain = getattr(function, "fn", None)
        if not inspect.isfunction(plain) or not hasattr(function, "arg_names"):
            raise ValueError(f"{_name(function)} is a {type(function).__name__}, not a @triton.jit function")
        met = _met.get()
        if met is not None and (id(function), portable) in met:
            return met[id(function), portable][1]
        path = str(Path(plain.__code__.co_filename).resolve())
        code = _digest(function, portable)
        made = cls(plain.__module__, path, plain.__qualname__, code, portable)
        if met is not None:
            met[id(function), portable] = function, made  # keeps the function alive, so that no other gets its id
        return made

    def is_found(self, function: Any) -> bool:
        """Whether a worker that imports this reference's module would find `function` there.

        False in `__main__`, whose import would run the script or notebook again, and in a module that is being
        imported.
        """
        module = sys.modules.get(self.module)
        being_imported = getattr(getattr(module, "__spec__", None), "_initializing", False)
        if self.module == "__main__" or being_imported or not os.path.isfile(self.path):
            return False
        member: Any = module
        for part in self.qualname.split("."):
            member = getattr(member, part, None)
        return member is function


_met: ContextVar[dict[tuple[int, bool], tuple[Any, FunctionRef]] | None] = ContextVar("_met", default=None)


@contextlib.contextmanager
def digested_once() -> Iterator[None]:
    """Within this block, compute the digest of each function once: it is the same in all jobs of an item.

    A change of a function's globals in this block does not matter: a worker compiles the text of the file.
    """
    before = _met.set({})
    try:
        yield
    finally:
        _met.reset(before)


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", None) or getattr(getattr(function, "fn", None), "__name__", function))


@dataclass(frozen=True)
class GivenPtx:
    """A kernel that needs no compiler: a PTX module as its author gave it.

    block: threads along x, y and z. shared: bytes of dynamic shared memory.
    """

    text: str
    entry: str
    block: tuple[int, int, int]
    shared: int


@dataclass(frozen=True)
class AsmSwap:
    """Inline asm that replaces other inline asm wherever a kernel has it: a planted mistake."""

    text: str
    constraints: str
    new_text: str
    new_constraints: str


@dataclass(frozen=True)
class KernelSpec:
    """One compilation of a @triton.jit kernel for one target, or a kernel given as PTX. Hashable and picklable.

    signature: a Triton type for each parameter in order ("*fp32", "i32", "constexpr"), tuples for tuples.
    constants: the value of each "constexpr", by place; for a @triton.jit function, a `FunctionRef`.
    divisible: the places of the arguments known to be divisible by 16 (addresses, sizes).
    target: "sm_90a"; Triton compiles for the capability in it.
    enable_fp_fusion: never left to Triton, whose default changes between releases.
    options: further options of Triton's compiler, such as ("num_stages", 2).
    given: the PTX, where nothing is to be compiled; of the other fields signature, target and enable_fp_fusion count.
    compiler: the name of the Triton build that compiles (`ptxdiff.triton.builds`).
    swaps: inline asm to be replaced on the way; a kernel that has none of a swap's asm is refused.
    """

    function: FunctionRef
    signature: tuple[tuple[str, Type], ...]
    constants: tuple[tuple[Place, Any], ...]
    divisible: tuple[Place, ...]
    target: str
    enable_fp_fusion: bool
    num_warps: int = 4
    options: tuple[tuple[str, Any], ...] = ()
    given: GivenPtx | None = None
    compiler: str = ""
    swaps: tuple[AsmSwap, ...] = ()

    def for_target(self, target: str) -> KernelSpec:
        """The same kernel for another target."""
        return replace(self, target=target)


UNASKED = Tool("", "")
"""A placeholder: the assembler that serves the target, found when it is needed."""


@dataclass(frozen=True)
class DescriptorLayout:
    """What the compiler decides about a tensor descriptor of the host: codes of the tensor map, and the box."""

    swizzle: int
    element: int
    box: tuple[int, ...]


@dataclass(frozen=True)
class Compilation:
    """A kernel compiled to PTX.

    entry: the kernel's name in the PTX. shared: bytes of shared memory that a launch must provide. ptxas: the assembler
    that Triton would use for this target; `UNASKED` if Triton was not asked. notes: Python's warnings during the
    compilation. scratch: bytes of global memory for each block. descriptors: of each tensor descriptor among the
    arguments. asm: its inline asm, as Triton got it. called: the options with which Triton
    itself would call ptxas, without files; () if no Triton compiled it.
    """

    spec: KernelSpec
    ptx: str
    entry: str
    shared: int
    num_warps: int
    ptxas: Tool
    notes: tuple[str, ...] = ()
    scratch: int = 0
    descriptors: tuple[DescriptorLayout, ...] = ()
    asm: tuple[AsmCall, ...] = ()
    called: tuple[str, ...] = ()

    @cached_property
    def body_hash(self) -> str:
        """SHA-256 in hex, equal for kernels that differ only in target, PTX version, comments and line numbers."""
        return body_hash(self.ptx)

    @cached_property
    def ptx_hash(self) -> str:
        """SHA-256 of the whole text, hex."""
        return hashlib.sha256(self.ptx.encode()).hexdigest()


Compiled = Compilation | Refusal
T = TypeVar("T")


class Memo(Generic[T]):
    """The newest `size` results by key. Threads that need the same key at the same time share one computation."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._futures: OrderedDict[Any, Future[T]] = OrderedDict()
        self._lock = threading.Lock()

    def claim(self, key: Any) -> tuple[Future[T], bool]:
        """The future for `key`, and whether the caller is the first to claim it and must set its result."""
        with self._lock:
            future = self._futures.get(key)
            first = future is None or future.cancelled() or (future.done() and future.exception() is not None)
            if future is None or first:
                future = self._futures[key] = Future()
                while len(self._futures) > self.size:
                    self._futures.popitem(last=False)
            self._futures.move_to_end(key)
            return future, first

    def clear(self) -> None:
        """Forget all results. Computations that run go on, and are not shared any more."""
        with self._lock:
            self._futures.clear()


@dataclass(frozen=True)
class Lowered:
    """A worker's answer."""

    ptx: str
    entry: str
    shared: int
    num_warps: int
    ptxas: tuple[str, str]
    asm: tuple[AsmCall, ...] = ()
    """The inline asm in it."""
    harness: str = ""
    """Digest of the harness that the worker runs."""
    triton: str = ""
    """The folder of the Triton that compiled it."""
    scratch: int = 0
    descriptors: tuple[DescriptorLayout, ...] = ()
    called: tuple[str, ...] = ()
    """The options with which Triton's own stage calls ptxas, without files."""


# ---- From launch arguments to a `KernelSpec`: the decisions that Triton's launcher makes before it compiles ----------
#
# Triton compiles a kernel anew for every class of arguments: an integer that equals one becomes a constant, integers
# and addresses divisible by 16 are marked, and of all others only the type counts. What follows keeps these rules
# without a device, so that a kernel compiled ahead is the one that a launch would run.


@dataclass(frozen=True)
class PointerType:
    """A tensor argument: Triton's name of its element type, and whether its address is divisible by 16."""

    element: str
    aligned: bool = True


@dataclass(frozen=True)
class DescriptorType:
    """A tensor descriptor as an argument: Triton's name of its element type, and the sizes of its blocks.

    layout: the layout of a block in shared memory, which a descriptor for Gluon states, as text; "": Triton chooses it.
    """

    element: str
    block: tuple[int, ...]
    layout: str = ""


@dataclass(frozen=True)
class Constant:
    """A compile-time value in a place for run-time values, such as in a tuple."""

    value: Any


@dataclass(frozen=True)
class Parameters:
    """A kernel's declarations of its parameters, by name.

    constexprs: compile-time. unspecialised: those whose values Triton must not compile in. annotated: types that
    replace the value's own ("i64"). const: pointers that the kernel only reads (`tl.const`).
    """

    constexprs: frozenset[str] = frozenset()
    unspecialised: frozenset[str] = frozenset()
    annotated: Mapping[str, str] = field(default_factory=dict)
    const: frozenset[str] = frozenset()

    @classmethod
    def of(cls, function: Any) -> Parameters:
        """Those of a @triton.jit function. Raises ValueError for the object that TRITON_INTERPRET puts in its place."""
        if not hasattr(function, "params"):
            raise ValueError(f"{type(function).__name__} is not a compilable kernel; unset TRITON_INTERPRET")
        ordinary = [p for p in function.params if not p.is_constexpr]
        return cls(
            constexprs=frozenset(p.name for p in function.params if p.is_constexpr),
            unspecialised=frozenset(p.name for p in ordinary if p.do_not_specialize),
            annotated={p.name: p.annotation_type for p in ordinary if p.annotation_type},
            const=frozenset(p.name for p in ordinary if p.is_const),
        )


def specialise(
    function: FunctionRef,
    arguments: Mapping[str, Any],
    parameters: Parameters,
    *,
    target: str,
    enable_fp_fusion: bool,
    num_warps: int = 4,
    options: tuple[tuple[str, Any], ...] = (),
) -> KernelSpec:
    """The compilation that launching `function` with `arguments` asks for.

    arguments: all of them, by name, in the order of the parameters: `PointerType`s, `DescriptorType`s, Python numbers,
    None, `Constant`s, tuples of these, and any value for a compile-time parameter. Raises TypeError for a value that
    Triton could not pass.
    """
    signature: list[tuple[str, Type]] = []
    facts = _Facts([], [])
    for number, (name, value) in enumerate(arguments.items()):
        if name in parameters.constexprs:
            value = Constant(value)
        special = name not in parameters.unspecialised
        prescribed = parameters.annotated.get(name)
        if prescribed is None:
            signature.append((name, _type(name, value, (number,), special, name in parameters.const, facts)))
            continue
        signature.append((name, prescribed))
        if special and not prescribed.startswith(("fp", "bf", "u1")) and isinstance(value, int) and value % 16 == 0:
            facts.divisible.append((number,))
    return KernelSpec(
        function=function,
        signature=tuple(signature),
        constants=tuple(facts.constants),
        divisible=tuple(facts.divisible),
        target=target,
        enable_fp_fusion=enable_fp_fusion,
        num_warps=num_warps,
        options=options,
    )


@dataclass(frozen=True)
class _Facts:
    """Facts on arguments beyond their types, by place."""

    constants: list[tuple[Place, Any]]
    divisible: list[Place]


def _type(name: str, value: Any, place: Place, special: bool, const: bool, facts: _Facts) -> Type:
    """The value's type; its other facts are added to `facts`."""
    if isinstance(value, tuple):
        return tuple(_type(name, v, (*place, n), special, const, facts) for n, v in enumerate(value))
    if isinstance(value, PointerType):
        if value.aligned and special:
            facts.divisible.append(place)
        return f"*{'k' if const else ''}{value.element}"
    if isinstance(value, DescriptorType):
        stated = f",{value.layout}" if value.layout else ""
        return f"tensordesc<{value.element}{list(value.block)}{stated}>"
    if isinstance(value, Constant) or value is None:
        facts.constants.append((place, value.value if isinstance(value, Constant) else None))
        return "constexpr"
    if isinstance(value, bool):
        return "u1"
    if isinstance(value, int):
        if special and value == 1:
            facts.constants.append((place, 1))
            return "constexpr"
        if special and value % 16 == 0:
            facts.divisible.append(place)
        return integer_type(value)
    if isinstance(value, float):
        return "fp32"
    if isinstance(value, str):
        raise TypeError(
            f"{name}: Triton accepts no str as an argument, and {value!r} is one; only a tl.constexpr parameter takes "
            f"it. In a case, a number that depends on the sizes is in sizes=, as in {{'N': 128, {name!r}: 128}}"
        )
    raise TypeError(f"{name}: Triton accepts no {type(value).__name__} as an argument")


def entry_values(kind: Type, value: Any) -> Iterator[Any]:
    """The values of an argument that are parameters of the compiled entry, in order: all but compile-time constants."""
    if isinstance(kind, tuple):
        for inner, element in zip(kind, value, strict=True):
            yield from entry_values(inner, element)
    elif kind != "constexpr":
        yield value


def integer_type(value: int) -> str:
    """The type under which Triton passes a Python integer."""
    if -(2**31) <= value < 2**31:
        return "i32"
    if -(2**63) <= value < 2**63:
        return "i64"
    if value < 2**64 and value > 0:
        return "u64"
    raise TypeError(f"{value} has more than 64 bits, the most that Triton passes")
