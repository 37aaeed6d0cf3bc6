"""Compiling: `KernelSpec` in, `Compilation` or `Refusal` out.

Triton's own stages run in a worker process up to the PTX (`harness.triton.lower`); ptxas is called by
`harness.triton.assemble`. Triton's on-disk cache is neither read nor written.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from harness.model.identity import digest_with_code
from harness.processes.pool import DEFAULT_TIMEOUT, CallEnd, shared_pool
from harness.triton import builds, kept
from harness.triton.diagnostics import Refusal, from_outcome
from harness.triton.elementwise import TEMPLATES
from harness.triton.given import taken_as_given
from harness.triton.ptxasoptions import beyond_every_call
from harness.triton.ptxtext import BEGIN
from harness.triton.spec import AsmSwap, Compilation, Compiled, FunctionRef, KernelSpec, Lowered, Memo, Tool

_memo: Memo[Compiled] = Memo(4096)


def identity_of(spec: KernelSpec) -> str:
    """What decides the PTX: the kernel's code with all it calls, types and bits of constants, options, and versions."""
    tools = sorted((n, v) for n, v in os.environ.items() if n.startswith("TRITON_") and n.endswith("_PATH"))
    version = builds.installation_of(spec.compiler) if spec.compiler else _triton_version()
    return digest_with_code((spec, version, tools), exact=True)  # constants may be of a user's class


@functools.cache
def _triton_version() -> str:
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _remembers_targets(version: str) -> bool:
    """Whether a process of this Triton serves one target only.

    Triton 3.6 keeps a static table of the conversions of float8, made for the first target that the process compiles
    for: sm_80 then gets the instructions of sm_89, or the other way round. 3.9 has none (triton-lang/triton pull
    request 9364); the versions between were not tried.
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is None or (int(found[1]), int(found[2])) < (3, 9)


_swaps: tuple[AsmSwap, ...] = ()


@contextlib.contextmanager
def swapping(*swaps: AsmSwap) -> Iterator[None]:
    """Compile kernels within this block with other inline asm, which becomes part of their identity.

    For one thread: `submit` reads what is in force. A kernel without the asm that a swap replaces is a `Refusal`.
    """
    global _swaps
    before, _swaps = _swaps, swaps
    try:
        yield
    finally:
        _swaps = before


class Rewriting:
    """The PTX of kernels as they are compiled: noted, and one text put in the place of another.

    found: what was compiled, by its PTX, of which the kernels with the text `before` were handed on with `after`.
    """

    def __init__(self, before: str = "", after: str = "") -> None:
        self.before, self.after = before, after
        self.found: dict[str, Compilation] = {}

    @property
    def used(self) -> bool:
        """Whether a kernel had the text that was to be replaced."""
        return self.before in self.found

    def of(self, compiled: Compiled) -> Compiled:
        """A compiled kernel as it is handed on."""
        if isinstance(compiled, Refusal):
            return compiled
        self.found.setdefault(compiled.ptx, compiled)
        return replace(compiled, ptx=self.after) if compiled.ptx == self.before else compiled


_rewriting: Rewriting | None = None


@contextlib.contextmanager
def rewriting(one: Rewriting) -> Iterator[Rewriting]:
    """Hand on kernels of `compile_kernel` within this block as a rewriting has them; nothing of that is kept.

    What runs is told apart by its PTX text, so no memo takes one for the other. For one thread.
    """
    global _rewriting
    before, _rewriting = _rewriting, one
    try:
        yield one
    finally:
        _rewriting = before


Held = Mapping[FunctionRef, Any]
"""Functions that this process has and no other can find."""


def submit(spec: KernelSpec, *, held: Held | None = None, timeout: float = DEFAULT_TIMEOUT) -> Future[Compiled]:
    """Have a worker compile `spec` to PTX; equal specs are compiled once a process. Raises NoTriton.

    held: those of the spec's functions that a worker would not find. A fork of this process then compiles, at once, and
    nothing is kept on disk: patches and settings of this process may have had a part in it.
    """
    if spec.compiler and held:
        raise ValueError(f"compiler {spec.compiler} compiles functions that it finds by name alone")
    if _swaps and spec.given is None:
        spec = replace(spec, swaps=_swaps)
    identity = identity_of(spec)
    result, first = _memo.claim(identity)
    if first:
        try:
            if spec.given is not None:
                result.set_result(taken_as_given(spec))
            elif held:
                result.set_result(_judge(spec, "", _in_fork(spec, held, timeout)))
            else:
                _start(spec, identity, timeout, result)
        except BaseException as error:
            result.set_exception(error)
            raise
    return result


def compile_kernel(spec: KernelSpec, *, held: Held | None = None, timeout: float = DEFAULT_TIMEOUT) -> Compiled:
    """Compile `spec` to PTX and wait for it. A compiler's complaint, or its death, is a `Refusal`."""
    compiled = submit(spec, held=held, timeout=timeout).result()
    return compiled if _rewriting is None else _rewriting.of(compiled)


def _in_fork(spec: KernelSpec, held: Held, timeout: float) -> CallEnd:
    from harness.processes.fork import call_in_fork
    from harness.triton.lower import lower  # before the fork, which would import it every time

    return call_in_fork(lower, spec, held, timeout=timeout)


def _start(spec: KernelSpec, identity: str, timeout: float, result: Future[Compiled]) -> None:
    if not spec.swaps and (found := kept.find(identity, spec.compiler)):
        result.set_result(_compiled(spec, *found))
        return

    def finish(done: Future[CallEnd]) -> None:
        if done.cancelled():
            result.cancel()
        elif error := done.exception():
            result.set_exception(error)
        else:
            # Mutants are compiled once each, and not kept on disk.
            result.set_result(_judge(spec, "" if spec.swaps else identity, done.result()))

    build = builds.build_called(spec.compiler) if spec.compiler else None
    version = build.version if build else _triton_version()
    pool = shared_pool(build.python if build else "", spec.target if _remembers_targets(version) else "")
    pool.submit("harness.triton.lower:lower", spec, timeout=timeout).add_done_callback(finish)


def _judge(spec: KernelSpec, identity: str, outcome: CallEnd) -> Compiled:
    """The compilation, or why the compiler refused. identity: the key to keep it under, or ""."""
    refusal = from_outcome(outcome)
    if refusal or outcome.reply is None:
        return refusal or Refusal("error", "the compiler gave no answer")
    lowered: Lowered = outcome.reply.value
    if spec.compiler and (words := _another(lowered.triton, spec.compiler)):
        return Refusal("error", words)
    if identity:
        kept.keep(identity, lowered, outcome.reply.warnings, spec.compiler)
    return _compiled(spec, lowered, outcome.reply.warnings)


def _another(used: str, compiler: str) -> str:
    """What is wrong with the Triton that a worker of a build used; "" where it is the right one."""
    meant = builds.build_called(compiler).folder
    if os.path.realpath(used) == os.path.realpath(meant):
        return ""
    return f"compiler {compiler}: its worker found the Triton in {used} and not the one in {meant}"


def _compiled(spec: KernelSpec, lowered: Lowered, notes: tuple[str, ...]) -> Compiled:
    from harness.ptx import written_input

    ours = spec.function.module == TEMPLATES  # a user's own kernel may be right with one copy of a block
    for text, constraints in lowered.asm:
        called = ours and BEGIN not in text  # a variant's own asm was looked at before: `harness.running.asmfaults`
        if words := written_input(text, constraints) or (called and _no_function(text, constraints)):
            return Refusal("error", f"inline asm, {' '.join(words.split())}")
    return Compilation(
        spec=spec,
        ptx=lowered.ptx,
        entry=lowered.entry,
        shared=lowered.shared,
        num_warps=lowered.num_warps,
        ptxas=Tool(*lowered.ptxas, options=beyond_every_call(lowered.called)),
        notes=notes,
        scratch=lowered.scratch,
        descriptors=lowered.descriptors,
        asm=lowered.asm,
        called=lowered.called,
    )


def _no_function(text: str, constraints: str) -> str | None:
    """Why a block called from an elementwise function is none of its elements alone; None where nothing is found.

    Such a function runs in a few layouts, and says nothing of those that it is used in.
    """
    from harness.ptx import repeated_name

    if found := _PLACEMENT.search(text):
        return f"{found[0]} says where Triton has placed an element, which is no input of the function: use kernel(...)"
    return repeated_name(text, constraints)


_PLACEMENT = re.compile(r"%(?:n?tid|n?ctaid|n?warpid|laneid|lanemask_[a-z]+)\b")
