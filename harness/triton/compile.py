"""Compiles a `KernelSpec` to a `Compilation`, or to a `Refusal`.

Triton's own stages run in a worker process, as far as PTX (`ptxdiff.triton.stages`); `ptxdiff.triton.assemble` calls
ptxas. Triton's own cache on disk is neither read nor written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.metadata
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from ptxdiff.diskcache import DiskCache
from ptxdiff.model.dialect import AsmCall
from ptxdiff.model.identity import digest_with_code
from ptxdiff.model.identity.definition import harness
from ptxdiff.model.identity.opened import take_over
from ptxdiff.processes.pool import DEFAULT_TIMEOUT, CallEnd, shared_pool
from ptxdiff.triton import builds
from ptxdiff.triton.builds import installation, installation_of
from ptxdiff.triton.diagnostics import Refusal, from_outcome
from ptxdiff.triton.elementwise import TEMPLATES
from ptxdiff.triton.from_ptx import taken_as_given
from ptxdiff.triton.ptx_text import BEGIN, files_named
from ptxdiff.triton.ptxas import beyond_every_call
from ptxdiff.triton.spec import (
    AsmSwap,
    Compilation,
    Compiled,
    DescriptorLayout,
    FunctionRef,
    KernelSpec,
    Lowered,
    Memo,
)
from ptxdiff.triton.tools import Tool

_memo: Memo[Compiled] = Memo(4096)


def identity_of(spec: KernelSpec) -> str:
    """A digest of what decides the PTX: code with all it calls, constants, options, Triton's version and tools."""
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

    Triton 3.6 has a static table of float8 conversions, made for the first target that a process compiles for: sm_80
    then gets the instructions of sm_89, or the reverse. 3.9 has no such table (triton-lang/triton pull request 9364).
    Versions between them were not tried.
    """
    match = re.match(r"(\d+)\.(\d+)", version)
    return match is None or (int(match[1]), int(match[2])) < (3, 9)


_swaps: tuple[AsmSwap, ...] = ()


@contextlib.contextmanager
def swapping(*swaps: AsmSwap) -> Iterator[None]:
    """Compile kernels within this block with other inline asm, which becomes part of their identity.

    Not thread-safe: `submit` reads a global. A kernel without the asm that a swap replaces is a `Refusal`.
    """
    global _swaps
    before, _swaps = _swaps, swaps
    try:
        yield
    finally:
        _swaps = before


class Rewriting:
    """A replacement of text in the PTX of compiled kernels, which are recorded.

    found: compilations, by their PTX. Those whose PTX has the text `before` are returned with `after` in its place.
    """

    def __init__(self, before: str = "", after: str = "") -> None:
        self.before, self.after = before, after
        self.found: dict[str, Compilation] = {}

    @property
    def used(self) -> bool:
        """Whether a kernel had the text that is replaced."""
        return self.before in self.found

    def of(self, compiled: Compiled) -> Compiled:
        """The compiled kernel with the replacement."""
        if isinstance(compiled, Refusal):
            return compiled
        self.found.setdefault(compiled.ptx, compiled)
        return replace(compiled, ptx=self.after) if compiled.ptx == self.before else compiled


_rewriting: Rewriting | None = None


@contextlib.contextmanager
def rewriting(one: Rewriting) -> Iterator[Rewriting]:
    """Apply a rewriting to the kernels that `compile_kernel` returns within this block. They are not stored.

    Memos and results are keyed by PTX text, so no rewritten kernel is taken for the original. Not thread-safe.
    """
    global _rewriting
    before, _rewriting = _rewriting, one
    try:
        yield one
    finally:
        _rewriting = before


Held = Mapping[FunctionRef, Any]
"""Functions that exist in this process alone, so that no worker can load them."""


def submit(spec: KernelSpec, *, held: Held | None = None, timeout: float = DEFAULT_TIMEOUT) -> Future[Compiled]:
    """Have a worker compile `spec` to PTX. Equal specs are compiled once in a process. Raises NoTriton.

    held: those of the spec's functions that a worker could not load. A fork of this process then compiles at once, and
    nothing is stored on disk, because patches and settings of this process may affect the PTX.
    """
    if spec.compiler and held:
        raise ValueError(f"compiler {spec.compiler} can compile only functions that its workers can import by name")
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
    """Compile `spec` to PTX and wait for it. An error or a crash of the compiler is a `Refusal`."""
    compiled = submit(spec, held=held, timeout=timeout).result()
    return compiled if _rewriting is None else _rewriting.of(compiled)


def _in_fork(spec: KernelSpec, held: Held, timeout: float) -> CallEnd:
    from ptxdiff.processes.pool import call_in_fork
    from ptxdiff.triton.stages import lower  # before the fork, so that it is imported once

    return call_in_fork(lower, spec, held, timeout=timeout)


def _start(spec: KernelSpec, identity: str, timeout: float, result: Future[Compiled]) -> None:
    if not spec.swaps and (known := find(identity, spec.compiler)):
        result.set_result(_compiled(spec, *known))
        return

    def finish(done: Future[CallEnd]) -> None:
        if done.cancelled():
            result.cancel()
        elif error := done.exception():
            result.set_exception(error)
        else:
            # Mutants are compiled once, and not stored on disk.
            result.set_result(_judge(spec, "" if spec.swaps else identity, done.result()))

    build = builds.build_called(spec.compiler) if spec.compiler else None
    version = build.version if build else _triton_version()
    pool = shared_pool(build.python if build else "", spec.target if _remembers_targets(version) else "")
    pool.submit("ptxdiff.triton.stages:lower", spec, timeout=timeout).add_done_callback(finish)


def _judge(spec: KernelSpec, identity: str, outcome: CallEnd) -> Compiled:
    """The compilation, or the compiler's refusal. identity: the key to store it under; "" stores nothing.

    Nothing is stored either from a worker in which a kernel's code has opened files, which the key does not know. They
    count among those that the case opens.
    """
    if outcome.reply is not None and outcome.reply.opened is not None:
        take_over(outcome.reply.opened)
        identity = ""
    refusal = from_outcome(outcome)
    if refusal or outcome.reply is None:
        return refusal or Refusal("error", "the compiler gave no answer")
    lowered: Lowered = outcome.reply.value
    if spec.compiler and (reason := _another(lowered.triton, spec.compiler)):
        return Refusal("error", reason)
    if identity:
        keep(identity, lowered, outcome.reply.warnings, spec.compiler)
    return _compiled(spec, lowered, outcome.reply.warnings)


def _another(used: str, compiler: str) -> str:
    """The fault, if a build's worker used another Triton; "" if it used the right one."""
    meant = builds.build_called(compiler).folder
    if os.path.realpath(used) == os.path.realpath(meant):
        return ""
    return f"compiler {compiler}: its worker found the Triton in {used} and not the one in {meant}"


def _compiled(spec: KernelSpec, lowered: Lowered, notes: tuple[str, ...]) -> Compiled:
    from ptxdiff.emulator import written_input

    ours = spec.function.module == TEMPLATES  # users' kernels may run a single copy of a block
    for call in lowered.asm:
        text, constraints = call.text, call.constraints
        called = ours and BEGIN not in text  # a variant's own asm is checked elsewhere (`asmfaults`)
        if reason := written_input(text, constraints) or (called and _no_function(text, constraints)):
            return Refusal("error", f"inline asm, {' '.join(reason.split())}")
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
    """Why a block of asm called from an elementwise function depends on more than its elements; None if it does not.

    Such a function is run in a few layouts only, and another layout could give other results.
    """
    from ptxdiff.emulator import repeated_name

    if match := _PLACEMENT.search(text):
        return f"{match[0]} depends on where Triton places an element, which a function is not given: use kernel(...)"
    return repeated_name(text, constraints)


_PLACEMENT = re.compile(r"%(?:n?tid|n?ctaid|n?warpid|laneid|lanemask_[a-z]+)\b")


# PTX stored between runs, by the identity of its compilation -------------------------------------------------------
#
# The key holds everything that decides the text: the kernel's code with all it calls, constants with their types and
# bits, options and target (`compile.identity_of`), each file of the installed Triton, the assemblers that environment
# variables name, and the text of this package. PTX also has line numbers of the user's files: an entry holds a digest
# of each file that its PTX names, and is not used if one of them has changed.
#
# Refusals of a compiler are not stored. An entry is stored only if the worker that compiled it runs the same harness.

_kept = DiskCache("ptx", 40_000, 1 << 30)


def forget() -> None:
    """Forget what this process has compiled; what is kept in files stays."""
    _memo.clear()


def find(identity: str, compiler: str = "") -> tuple[Lowered, tuple[str, ...]] | None:
    """The compiled kernel of that identity, with the warnings of its compilation; None if none is stored.

    compiler: the name of the Triton build that compiles it.
    """
    stored = _kept.get(*_key(identity, compiler))
    if stored is None:
        return None
    try:
        entry = json.loads(zlib.decompress(stored))
        fields = entry["lowered"]
        asm = tuple(
            AsmCall(**{**c, "inputs": tuple(c["inputs"]), "outputs": tuple(c["outputs"])}) for c in fields.pop("asm")
        )
        path, version = fields.pop("ptxas")
        descriptors = tuple(
            DescriptorLayout(d["swizzle"], d["element"], tuple(d["box"])) for d in fields.pop("descriptors")
        )
        called = tuple(fields.pop("called"))
        lowered = Lowered(**fields, ptxas=(path, version), asm=asm, descriptors=descriptors, called=called)
        files, notes = entry["files"], tuple(entry["notes"])
    except (ValueError, KeyError, TypeError, zlib.error):
        return None
    return (lowered, notes) if files == files_named(lowered.ptx) else None


def keep(identity: str, lowered: Lowered, notes: tuple[str, ...], compiler: str = "") -> None:
    """Store the kernel that a worker of that Triton build compiled for that identity. notes: warnings."""
    if lowered.harness != harness():
        return
    entry = {"lowered": dataclasses.asdict(lowered), "notes": notes, "files": files_named(lowered.ptx)}
    _kept.put(zlib.compress(json.dumps(entry).encode(), 1), *_key(identity, compiler))


def _key(identity: str, compiler: str = "") -> tuple[bytes, ...]:
    made_by = installation_of(compiler) if compiler else installation()
    return identity.encode(), made_by.encode(), harness().encode()
