"""Triton's stages from a kernel to PTX, shared by two compilations that differ in contraction alone.

Contraction matters only when LLVM writes PTX: the LLVM IR of a kernel compiled without it serves the kernel compiled
with it. No version of Triton promises that. So the options given to the stages record whether a stage reads the setting
for contraction, and only text that was made before the first such read is used again.
"""

from __future__ import annotations

import contextlib
import copy
import operator
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend

from ptxdiff.model.dialect import AsmCall, asm_calls, has_packs
from ptxdiff.model.identity import digest
from ptxdiff.processes.worker import nothing_written
from ptxdiff.triton.ptxasoptions import called_with

CONTRACTION = "enable_fp_fusion"
KEPT = 8  # the plan compiles a kernel with and without contraction one after the other


@dataclass(frozen=True)
class Halfway:
    """The text of a kernel after the stages that did not read the setting for contraction.

    functions: the kernel and the functions given to it; a file that is executed again makes others, on other lines.
    stage: the last one that ran. metadata, asm: as in `run_stages`. warned: Python's warnings.
    """

    functions: tuple[Any, ...]
    stage: str
    text: str
    metadata: Mapping[str, Any]
    asm: tuple[AsmCall, ...]
    warned: tuple[warnings.WarningMessage, ...]


_halfway: OrderedDict[str, Halfway] = OrderedDict()


Staged = tuple[str, dict[str, Any], tuple[AsmCall, ...], tuple[str, ...]]
"""PTX, the compiler's metadata, the kernel's inline asm as written, and options for ptxas."""


def run_stages(source: Any, arch: int, given: Mapping[str, Any], name: str = "") -> Staged:
    """Run Triton's stages up to the PTX.

    source: Triton's source object for the function. given: options. name: equal for kernels that differ in contraction
    alone, whose first stages are then run once; "" shares nothing.
    """
    target = GPUTarget("cuda", arch, 32)
    backend = make_backend(target)
    options = backend.parse_options(dict(given))
    if not name or not hasattr(options, "__dict__"):  # reads of a class with slots cannot be recorded
        return _to_ptx(source, backend, options, target)
    key = digest((name, arch, sorted((n, repr(v)) for n, v in vars(options).items() if n != CONTRACTION)))
    found = _halfway.get(key)
    if found is not None and all(map(operator.is_, found.functions, _functions(source))):
        return _from(found, source, backend, options)
    return _to_ptx(source, backend, options, target, key)


def _functions(source: Any) -> tuple[Any, ...]:
    """The @triton.jit functions of a source: its own, and those among its constants."""
    constants = list(source.constants.values())
    found = [source.fn]
    while constants:
        value = constants.pop()
        constants += value if type(value) is tuple else ()
        found += [value] if hasattr(value, "arg_names") else []
    return tuple(found)


def _from(found: Halfway, source: Any, backend: Any, options: Any) -> Staged:
    """As `run_stages`, starting from the text that another compilation left. Its warnings are repeated."""
    _warn(found.warned)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, source.language)
    metadata = copy.deepcopy(dict(found.metadata))
    module: Any = found.text
    names = list(stages)
    for name in names[names.index(found.stage) + 1 :]:
        module = stages[name](module, metadata)
        if name == "ptx":
            return module, metadata, found.asm, called_with(stages.get("cubin"), module, metadata)
    raise _no_ptx(stages, options.arch)


def _to_ptx(source: Any, backend: Any, options: Any, target: GPUTarget, key: str = "") -> Staged:
    """As `run_stages`, from the function on. key: the text before contraction is stored under it."""
    asked: list[str] = []
    if key:
        options = _watched(options, asked)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, source.language)
    metadata: dict[str, Any] = {"target": target}
    halfway = None
    with _warnings_repeated() as warned:
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        codegen = backend.get_codegen_implementation(options)
        module = source.make_ir(target, options, codegen, backend.get_module_map(), context)
        dialect = "" if "ttir" in stages else str(module)  # Gluon does not have this stage
        asm = asm_calls(dialect)
        for name, stage in stages.items():
            module = stage(module, metadata)
            if name == "ttir":
                dialect = str(module)
                asm = asm_calls(dialect)
            if name == "ttgir" and has_packs(dialect):
                asm = asm_calls(dialect, str(module))
            if name == "ptx":
                break
            if key and not asked and type(module) is str:
                halfway = Halfway(_functions(source), name, module, copy.deepcopy(metadata), asm, tuple(warned))
        else:
            raise _no_ptx(stages, options.arch)
    # A compiler that printed to standard error must print again for the second kernel, so nothing is shared.
    if halfway is not None and nothing_written():
        _halfway[key] = halfway
        while len(_halfway) > KEPT:
            _halfway.popitem(last=False)
    return module, metadata, asm, called_with(stages.get("cubin"), module, metadata)


@contextlib.contextmanager
def _warnings_repeated() -> Iterator[list[warnings.WarningMessage]]:
    """Record Python's warnings within this block, and emit them again at its end."""
    warned: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            yield warned
    finally:
        _warn(warned)


def _warn(warned: Iterable[warnings.WarningMessage]) -> None:
    for w in warned:
        warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)


def _watched(options: Any, asked: list[str]) -> Any:
    """The same options, in a class that records in `asked` when a stage reads contraction, or all options at once."""

    class Watched(type(options)):  # type: ignore[misc]
        # Triton caches results by the hash of options. Without equality to others, every read is recorded.
        __eq__ = object.__eq__
        __hash__ = object.__hash__

        def __getattribute__(self, name: str) -> Any:
            if name in (CONTRACTION, "__dict__"):
                asked.append(name)
            return super().__getattribute__(name)

    made = object.__new__(Watched)
    for name, value in vars(options).items():
        object.__setattr__(made, name, value)
    return made


def _no_ptx(stages: Mapping[str, Any], arch: Any) -> RuntimeError:
    return RuntimeError(f"Triton has no stage 'ptx' for {arch}; its stages are {', '.join(stages)}")
