"""Runs Triton's stages from a kernel to PTX, in a worker process or a fork. Imports triton."""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import importlib
import importlib.util
import linecache
import operator
import os
import re
import sys
import traceback
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import triton
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ASTSource, make_backend
from triton.runtime.jit import JITFunction

from ptxdiff.model.dialect import AsmCall, asm_calls, has_packs
from ptxdiff.model.identity import digest, digest_with_code
from ptxdiff.model.identity.definition import harness
from ptxdiff.model.identity.modules import execute_file
from ptxdiff.model.identity.opened import noting, watch
from ptxdiff.model.targets import capability
from ptxdiff.processes.footprint import collect_seldom
from ptxdiff.processes.worker import forget_output, nothing_written
from ptxdiff.triton.ptxas import called_with
from ptxdiff.triton.spec import AsmSwap, DescriptorLayout, FunctionRef, KernelSpec, Lowered

TREES_KEPT = 1000

_trees: OrderedDict[tuple[str, Any], Any] = OrderedDict()


@contextlib.contextmanager
def parsed_once() -> Iterator[None]:
    """Within this block, functions with equal source share a tree. Not thread-safe: it changes a class of Triton."""
    parse = JITFunction.parse
    own = "parse" in vars(JITFunction)

    @functools.wraps(parse)
    def kept(function: Any) -> Any:
        text = getattr(function, "_src", None)  # what Triton parses; `_unsafe_update_src` replaces it
        if not isinstance(text, str):
            return parse(function)
        key = text, parse
        if key not in _trees:
            _trees[key] = parse(function)
            while len(_trees) > TREES_KEPT:
                _trees.popitem(last=False)
        return _trees[key]

    JITFunction.parse = kept
    try:
        yield
    finally:
        if own:
            JITFunction.parse = parse
        else:
            del JITFunction.parse


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


def forget() -> None:
    """Forget the trees and the stages that later compilations of this process would share."""
    _trees.clear()
    _halfway.clear()


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
    stages = _halfway.get(key)
    if stages is not None and all(map(operator.is_, stages.functions, _functions(source))):
        return _from(stages, source, backend, options)
    return _to_ptx(source, backend, options, target, key)


def _functions(source: Any) -> tuple[Any, ...]:
    """The @triton.jit functions of a source: its own, and those among its constants."""
    constants = list(source.constants.values())
    functions = [source.fn]
    while constants:
        value = constants.pop()
        constants += value if type(value) is tuple else ()
        functions += [value] if hasattr(value, "arg_names") else []
    return tuple(functions)


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
                halfway = Halfway(
                    _functions(source), name, module, MappingProxyType(copy.deepcopy(metadata)), asm, tuple(warned)
                )
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


class CompileFailure(Exception):
    """A kernel that Triton's front end refuses; the message is one line."""


def lower(spec: KernelSpec, held: Mapping[FunctionRef, Any] | None = None) -> Lowered:
    """Compile to PTX. Raises CompileFailure with the root cause; LLVM may instead end the process.

    held: functions that exist in this process, as in a fork of the process that made them; others are loaded.
    """
    if not held:  # a worker compiles further kernels; a fork does not
        watch(noting=False)  # before it imports a module with a kernel, as the process of the run did
        collect_seldom()
    function = load(spec.function, held)
    constants = {position: _loaded(value, held) for position, value in spec.constants}
    forget_output()
    attributes = {position: [["tt.divisibility", 16]] for position in spec.divisible}
    source = _source_of(function)(function, dict(spec.signature), constants, attributes)
    options = {"num_warps": spec.num_warps, "enable_fp_fusion": spec.enable_fp_fusion, **dict(spec.options)}
    try:
        # A named build may be any Triton, in which nothing was tested; a fork compiles one kernel.
        with noting(), _swapped(spec.swaps), contextlib.nullcontext() if spec.compiler or held else parsed_once():
            ptx, metadata, asm, called = run_stages(
                source, capability(spec.target), options, _but_for_contraction(spec, held)
            )
    except Exception as error:
        raise CompileFailure(_root_cause(error)) from error
    return Lowered(
        ptx=ptx,
        entry=metadata["name"],
        shared=metadata.get("shared") or 0,
        num_warps=metadata.get("num_warps") or spec.num_warps,
        ptxas=_ptxas(capability(spec.target)),
        asm=asm,
        harness=harness(),
        triton=os.path.dirname(triton.__file__),
        scratch=_scratch(metadata),
        descriptors=tuple(_descriptor(d) for d in metadata.get("tensordesc_meta") or ()),
        called=called,
    )


def _but_for_contraction(spec: KernelSpec, held: Mapping[FunctionRef, Any] | None) -> str:
    """An identity shared by kernels that differ in contraction alone; "" for held functions, and for mutants."""
    if held or spec.swaps:
        return ""
    return digest_with_code(replace(spec, enable_fp_fusion=False), exact=True)


@contextlib.contextmanager
def _swapped(swaps: Sequence[AsmSwap]) -> Iterator[None]:
    """Replace inline asm as Triton's builder creates it. Raises CompileFailure if the kernel lacks a swap's asm."""
    if not swaps:
        yield
        return
    new = {(s.text, s.constraints): (s.new_text, s.new_constraints) for s in swaps}
    met: set[tuple[str, str]] = set()
    create = ir.builder.create_inline_asm

    def swapped(builder: Any, text: str, constraints: str, *more: Any) -> Any:
        met.add((text, constraints))
        return create(builder, *new.get((text, constraints), (text, constraints)), *more)

    ir.builder.create_inline_asm = swapped
    try:
        yield
    finally:
        ir.builder.create_inline_asm = create
    if missing := new.keys() - met:
        raise CompileFailure(f"the kernel has no inline asm {min(missing)[0]!r}, which was to be replaced")


def _scratch(metadata: Mapping[str, Any]) -> int:
    """Bytes of global scratch memory for each block, as Triton's launcher allocates them."""
    size, align = metadata.get("global_scratch_size") or 0, metadata.get("global_scratch_align") or 1
    return -(-size // align) * align


def _descriptor(found: Mapping[str, Any]) -> DescriptorLayout:
    if found.get("is_im2col"):
        text = (
            "launches have no tensor descriptors of im2col: run the PTX by `run_kernel` and a `HostMap` with `pixels`"
        )
        raise CompileFailure(text)
    return DescriptorLayout(found["swizzle"], found["elem_type"], tuple(found["block_size"]))


def _source_of(function: Any) -> Any:
    """Triton's source object for a function: a Gluon kernel states its layouts, and starts one stage later."""
    if type(function).__name__ != "GluonJITFunction":
        return ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    return GluonASTSource


def _root_cause(error: BaseException) -> str:
    """The message of the first cause, with the line of the kernel, or of a called function, where Triton was."""
    source_line = _place(error)
    while error.__cause__ is not None:
        error = error.__cause__
        source_line = _place(error) or source_line
    message = getattr(error, "error_message", None)
    if not isinstance(message, str):
        message = f"{type(error).__name__}: {error}"
    # Triton wraps the original exception as its repr: ValueError('...').
    elif wrapped := re.fullmatch(r"(\w+)\((['\"])(.*)\2,?\)", message, flags=re.DOTALL):
        message = f"{wrapped[1]}: {wrapped[3]}"
    return f"{message} [{source_line}]" if source_line else message


def _place(error: BaseException) -> str:
    """`file:line: text` of the innermost node of a kernel that Triton's code generator was visiting, or ""."""
    source_line = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        visitor, node = frame.f_locals.get("self"), frame.f_locals.get("node")
        file, begin = getattr(visitor, "file_name", None), getattr(visitor, "begin_line", None)
        if isinstance(file, str) and isinstance(begin, int) and isinstance(node, ast.stmt | ast.expr):
            line = begin + node.lineno
            source_line = f"{file}:{line}: {linecache.getline(file, line).strip()}".removesuffix(": ")
    return source_line


def _ptxas(arch: int) -> tuple[str, str]:
    from triton.backends.nvidia.compiler import get_ptxas

    tool = get_ptxas(arch)
    return tool.path, tool.version


def _loaded(value: Any, held: Mapping[FunctionRef, Any] | None) -> Any:
    if isinstance(value, FunctionRef):
        return load(value, held)
    return tuple(_loaded(v, held) for v in value) if type(value) is tuple else value


def load(ref: FunctionRef, held: Mapping[FunctionRef, Any] | None = None) -> Any:
    """The function that `ref` refers to: from `held`, or from its file. Raises CompileFailure if neither has it.

    A file may bind the same name to several functions. If the one that is bound now differs from `ref`, the function
    with the code of `ref` is taken, among all that the file made under that name.
    """
    module = None if held and ref in held else _module(ref)
    function_found: Any = held[ref] if held and module is None else _named(module, ref.qualname)
    while type(function_found).__name__ in ("Heuristics", "Autotuner"):
        function_found = function_found.fn  # the caller has applied the heuristics already
    if function_found is not None and not ref.code:
        return function_found
    made = (f for f in _made if f.fn.__qualname__ == ref.qualname and module and f.fn.__globals__ is vars(module))
    for function in ([function_found] if function_found is not None else []) + list(made):
        if digest_with_code(function, exact=not ref.portable) == ref.code:
            return function
    raise CompileFailure(
        f"{ref.path} has no function {ref.qualname} with the code that was to be compiled: the file was changed, or "
        "makes another function each time it is executed; start the process again"
    )


_made: list[Any] = []
"""Every @triton.jit function of this process, kept alive even if its name is bound to another one by now."""


def _note_functions() -> None:
    make = JITFunction.__init__

    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        _made.append(self)

    JITFunction.__init__ = noted


_note_functions()


def _named(module: ModuleType | None, qualname: str) -> Any:
    """What a module has under a qualified name; None if it has nothing."""
    value: Any = module
    for part in qualname.split("."):
        value = getattr(value, part, None)
    return value


def _module(ref: FunctionRef) -> ModuleType:
    """The module, imported under its own name if that leads to the same file, so that its relative imports work."""
    known = sys.modules.get(ref.module)
    if known is not None and _same_file(getattr(known, "__file__", None), ref.path):
        return known
    if ref.module != "__main__" and _same_file(_origin(ref.module), ref.path):
        return importlib.import_module(ref.module)
    status = os.stat(ref.path)
    return _from_file(ref.path, status.st_mtime_ns, status.st_size)


def _origin(name: str) -> str | None:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return spec.origin if spec else None


def _same_file(one: str | None, other: str) -> bool:
    return one is not None and os.path.realpath(one) == os.path.realpath(other)


@functools.cache
def _from_file(path: str, mtime_ns: int, size: int) -> ModuleType:
    """Load a file by path; load it again if it has changed."""
    name = f"_ptxdiff_{abs(hash((path, mtime_ns, size))):x}"
    try:
        return execute_file(Path(path), name, watched=False)
    except ImportError as error:
        raise CompileFailure(str(error)) from error
