"""Compiling: `KernelSpec` in, `Compilation` or `Refusal` out.

Triton's own stages run in a worker process up to the PTX (`harness.triton.lower`); ptxas is called by
`harness.triton.assemble`. Triton's on-disk cache is neither read nor written.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from harness.model.identity import digest_with_code
from harness.processes.pool import DEFAULT_TIMEOUT, CallEnd, shared_pool
from harness.triton import kept
from harness.triton.diagnostics import Refusal, from_outcome
from harness.triton.spec import Compilation, Compiled, FunctionRef, KernelSpec, Lowered, Memo, Tool

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


def _in_fork(spec: KernelSpec, held: Held, timeout: float) -> CallEnd:
    from harness.processes.fork import call_in_fork
    from harness.triton.lower import lower  # before the fork, which would import it every time

    return call_in_fork(lower, spec, held, timeout=timeout)


def _start(spec: KernelSpec, identity: str, timeout: float, result: Future[Compiled]) -> None:
    if found := kept.find(identity):
        result.set_result(_compiled(spec, *found))
        return

    def finish(done: Future[CallEnd]) -> None:
        if done.cancelled():
            result.cancel()
        elif error := done.exception():
            result.set_exception(error)
        else:
            result.set_result(_judge(spec, identity, done.result()))

    shared_pool().submit("harness.triton.lower:lower", spec, timeout=timeout).add_done_callback(finish)


def _judge(spec: KernelSpec, identity: str, outcome: CallEnd) -> Compiled:
    """The compilation, or what the compiler had against it. identity: that under which it is kept; "": nowhere."""
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
