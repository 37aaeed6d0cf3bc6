"""What is compiled, and what came of it: `KernelSpec` in, `Compilation` or `Refusal` out.

Triton's own stages run in a worker process up to the PTX (`harness.triton.lower`); ptxas is called by
`harness.triton.assemble`. Triton's on-disk cache is neither read nor written.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import inspect
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from harness.model.identity import digest_with_code
from harness.processes.pool import DEFAULT_TIMEOUT, Completion, shared_pool
from harness.triton.diagnostics import Refusal, from_outcome
from harness.triton.ptxtext import body_hash

Type = str | tuple["Type", ...]
Place = tuple[int, ...]
"""Where an argument is: its number, and within tuples the element's number, ..."""


@dataclass(frozen=True)
class FunctionRef:
    """A @triton.jit function, by where a worker can find it again and by a digest of its code.

    module: the name it was imported under, used if that name leads to the same file; else `path` is loaded by itself.
    code: digest of the function's code and of all that it calls; who compiles refuses another function of that name. ""
    for a function of the harness's own.
    """

    module: str
    path: str
    qualname: str
    code: str = ""

    @classmethod
    def of(cls, function: Any) -> FunctionRef:
        """The reference to a function; raises ValueError for one that cannot be found by its name.

        Accepts a @triton.jit function and looks through @triton.heuristics; refuses @triton.autotune, whose choice
        depends on timing.
        """
        reference = cls.of_any(function)
        if "<" in reference.qualname:
            raise ValueError(
                f"{reference.qualname} in {reference.path} is defined inside a function; the compiler "
                "process finds functions by name: move it to the top of its module"
            )
        return reference

    @classmethod
    def of_any(cls, function: Any) -> FunctionRef:
        """As `of`, also for a function that is not found by its name, which has to be `held` to be compiled."""
        while type(function).__name__ in ("Heuristics", "Autotuner"):
            if type(function).__name__ == "Autotuner":
                raise ValueError(f"{_name(function)} is autotuned; give the @triton.jit function and one set of values")
            function = function.fn
        plain = getattr(function, "fn", None)
        if not inspect.isfunction(plain) or not hasattr(function, "arg_names"):
            raise ValueError(f"{_name(function)} is a {type(function).__name__}, not a @triton.jit function")
        path = str(Path(plain.__code__.co_filename).resolve())
        return cls(plain.__module__, path, plain.__qualname__, digest_with_code(function, exact=True))

    def is_found(self, function: Any) -> bool:
        """Whether a worker that imports this reference's module finds `function` there, as far as can be told here.

        Not in `__main__`, whose import would run the script or notebook again, nor in a module that is being imported.
        """
        module = sys.modules.get(self.module)
        being_imported = getattr(getattr(module, "__spec__", None), "_initializing", False)
        if self.module == "__main__" or being_imported or not os.path.isfile(self.path):
            return False
        found: Any = module
        for part in self.qualname.split("."):
            found = getattr(found, part, None)
        return found is function


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", None) or getattr(getattr(function, "fn", None), "__name__", function))


@dataclass(frozen=True)
class KernelSpec:
    """One compilation of a @triton.jit kernel for one target. Hashable and picklable.

    signature: a Triton type for each parameter in order ("*fp32", "i32", "constexpr"), tuples for tuples.
    constants: the value of each "constexpr", by place; a `FunctionRef` stands for a @triton.jit function.
    divisible: the places of the arguments known to be divisible by 16 (addresses, sizes).
    target: "sm_90a"; Triton compiles for the capability in it.
    enable_fp_fusion: never left to Triton, whose default changes between releases.
    options: further options of Triton's compiler, such as ("num_stages", 2).
    """

    function: FunctionRef
    signature: tuple[tuple[str, Type], ...]
    constants: tuple[tuple[Place, Any], ...]
    divisible: tuple[Place, ...]
    target: str
    enable_fp_fusion: bool
    num_warps: int = 4
    options: tuple[tuple[str, Any], ...] = ()

    def for_target(self, target: str) -> KernelSpec:
        """The same kernel for another target."""
        return replace(self, target=target)


@dataclass(frozen=True)
class Tool:
    """An assembler on this machine."""

    path: str
    version: str


@dataclass(frozen=True)
class Compilation:
    """A kernel compiled to PTX.

    entry: the kernel's name in the PTX. shared: bytes of shared memory that the launch must give.
    ptxas: the assembler that Triton would use for this target. notes: warnings that Python raised on the way.
    """

    spec: KernelSpec
    ptx: str
    entry: str
    shared: int
    num_warps: int
    ptxas: Tool
    notes: tuple[str, ...] = ()

    @cached_property
    def body_hash(self) -> str:
        """Equal for kernels that differ in target, PTX version, comments and line numbers only (SHA-256, hex)."""
        return body_hash(self.ptx)

    @cached_property
    def ptx_hash(self) -> str:
        """SHA-256 of the whole text, hex."""
        return hashlib.sha256(self.ptx.encode()).hexdigest()


Compiled = Compilation | Refusal
T = TypeVar("T")


class Memo(Generic[T]):
    """The last `size` results by key. Askers of one key at the same time share one computation."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._futures: OrderedDict[Any, Future[T]] = OrderedDict()
        self._lock = threading.Lock()

    def claim(self, key: Any) -> tuple[Future[T], bool]:
        """The future under `key`, and whether the caller is the first to ask and has to see to its result."""
        with self._lock:
            future = self._futures.get(key)
            first = future is None or future.cancelled() or (future.done() and future.exception() is not None)
            if future is None or first:
                future = self._futures[key] = Future()
                while len(self._futures) > self.size:
                    self._futures.popitem(last=False)
            self._futures.move_to_end(key)
            return future, first


_memo: Memo[Compiled] = Memo(4096)


def identity_of(spec: KernelSpec) -> str:
    """What decides the PTX: the kernel's code with all it calls, types and bits of constants, options, and versions."""
    tools = sorted((n, v) for n, v in os.environ.items() if n.startswith("TRITON_") and n.endswith("_PATH"))
    return digest_with_code((spec, _triton_version(), tools), exact=True)  # constants may be of a user's class


@functools.cache
def _triton_version() -> str:
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return ""


Held = Mapping[FunctionRef, Any]
"""Functions that this process has and no other can find."""


def submit(spec: KernelSpec, *, held: Held | None = None, timeout: float = DEFAULT_TIMEOUT) -> Future[Compiled]:
    """Have a worker compile `spec` to PTX; equal specs are compiled once a process.

    held: those of the spec's functions that a worker would not find. A fork of this process then compiles, at once, and
    nothing is kept on disk: patches and settings of this process may have had a part in it.
    """
    identity = identity_of(spec)
    result, first = _memo.claim(identity)
    if first:
        try:
            if held:
                result.set_result(_judge(spec, "", _in_fork(spec, held, timeout)))
            else:
                _start(spec, identity, timeout, result)
        except BaseException as error:
            result.set_exception(error)
            raise
    return result


def compile_kernel(spec: KernelSpec, *, held: Held | None = None, timeout: float = DEFAULT_TIMEOUT) -> Compiled:
    """Compile `spec` to PTX and wait for it. A compiler's complaint, or its death, is a `Refusal`."""
    return submit(spec, held=held, timeout=timeout).result()


def _in_fork(spec: KernelSpec, held: Held, timeout: float) -> Completion:
    from harness.processes.fork import call_in_fork
    from harness.triton.lower import lower  # before the fork, which would import it every time

    return call_in_fork(lower, spec, held, timeout=timeout)


def _start(spec: KernelSpec, identity: str, timeout: float, result: Future[Compiled]) -> None:
    from harness.triton import kept

    if found := kept.find(identity):
        result.set_result(_compiled(spec, *found))
        return

    def finish(done: Future[Completion]) -> None:
        if done.cancelled():
            result.cancel()
        elif error := done.exception():
            result.set_exception(error)
        else:
            result.set_result(_judge(spec, identity, done.result()))

    shared_pool().submit("harness.triton.lower:lower", spec, timeout=timeout).add_done_callback(finish)


def _judge(spec: KernelSpec, identity: str, outcome: Completion) -> Compiled:
    """The compilation, or what the compiler had against it. identity: that under which it is kept; "": nowhere."""
    from harness.triton import kept

    refusal = from_outcome(outcome)
    if refusal or outcome.reply is None:
        return refusal or Refusal("error", "the compiler gave no answer")
    lowered: Lowered = outcome.reply.value
    if identity:
        kept.keep(identity, lowered, outcome.reply.warnings)
    return _compiled(spec, lowered, outcome.reply.warnings)


def _compiled(spec: KernelSpec, lowered: Lowered, notes: tuple[str, ...]) -> Compiled:
    from harness.ptx import written_input

    for text, constraints in lowered.asm:
        if words := written_input(text, constraints):
            return Refusal("error", f"inline asm, {' '.join(words.split())}")
    return Compilation(
        spec=spec,
        ptx=lowered.ptx,
        entry=lowered.entry,
        shared=lowered.shared,
        num_warps=lowered.num_warps,
        ptxas=Tool(*lowered.ptxas),
        notes=notes,
    )


@dataclass(frozen=True)
class Lowered:
    """What the worker sends back."""

    ptx: str
    entry: str
    shared: int
    num_warps: int
    ptxas: tuple[str, str]
    asm: tuple[tuple[str, str], ...] = ()
    """Text and constraints of the inline asm in it."""
    harness: str = ""
    """Digest of the harness that the worker runs."""
