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
import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from harness.model.identity import digest, digest_with_code
from harness.processes.pool import DEFAULT_TIMEOUT, Completion, shared_pool
from harness.triton.diagnostics import Refusal, from_outcome
from harness.triton.ptxtext import body_hash

Type = str | tuple["Type", ...]
Place = tuple[int, ...]
"""Where an argument is: its number, and within tuples the element's number, ..."""


@dataclass(frozen=True)
class FunctionRef:
    """A module-level @triton.jit function, by where a worker can find it again.

    module: the name it was imported under, used if that name leads to the same file; else `path` is loaded by itself.
    code: digest of the function's code and of all that it calls; the worker refuses another function of that name. ""
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
        while type(function).__name__ in ("Heuristics", "Autotuner"):
            if type(function).__name__ == "Autotuner":
                raise ValueError(f"{_name(function)} is autotuned; give the @triton.jit function and one set of values")
            function = function.fn
        plain = getattr(function, "fn", None)
        if not inspect.isfunction(plain) or not hasattr(function, "arg_names"):
            raise ValueError(f"{_name(function)} is a {type(function).__name__}, not a @triton.jit function")
        if "<" in plain.__qualname__:
            raise ValueError(
                f"{plain.__qualname__} in {plain.__code__.co_filename} is defined inside a function; the compiler "
                "process finds functions by name: move it to the top of its module"
            )
        path = str(Path(plain.__code__.co_filename).resolve())
        return cls(plain.__module__, path, plain.__qualname__, digest_with_code(function, exact=True))


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
    return digest((spec, _triton_version(), tools))


@functools.cache
def _triton_version() -> str:
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return ""


def submit(spec: KernelSpec, *, timeout: float = DEFAULT_TIMEOUT) -> Future[Compiled]:
    """Have a worker compile `spec` to PTX; equal specs are compiled once a process."""
    result, first = _memo.claim(identity_of(spec))
    if first:
        try:
            _start(spec, timeout, result)
        except BaseException as error:
            result.set_exception(error)
            raise
    return result


def compile_kernel(spec: KernelSpec, *, timeout: float = DEFAULT_TIMEOUT) -> Compiled:
    """Compile `spec` to PTX and wait for it. A compiler's complaint, or its death, is a `Refusal`."""
    return submit(spec, timeout=timeout).result()


def _start(spec: KernelSpec, timeout: float, result: Future[Compiled]) -> None:
    def finish(done: Future[Completion]) -> None:
        if done.cancelled():
            result.cancel()
        elif error := done.exception():
            result.set_exception(error)
        else:
            result.set_result(_judge(spec, done.result()))

    shared_pool().submit("harness.triton.lower:lower", spec, timeout=timeout).add_done_callback(finish)


def _judge(spec: KernelSpec, outcome: Completion) -> Compiled:
    refusal = from_outcome(outcome)
    if refusal or outcome.reply is None:
        return refusal or Refusal("error", "the compiler gave no answer")
    from harness.ptx import written_input

    lowered: Lowered = outcome.reply.value
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
        notes=outcome.reply.warnings,
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
