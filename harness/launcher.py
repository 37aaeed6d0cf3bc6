"""`emulated(kernel)[grid](...)`: launch a @triton.jit kernel on the CPU, for any GPU.

Triton compiles the kernel for the target, specialised for the arguments as in a launch. Its PTX runs on the arguments
in place: numpy arrays or CPU torch tensors. An access outside them is an error that names the PTX line and the line of
the Triton source.
"""

from __future__ import annotations

import inspect
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ptxdiff.emulator import (
    APPROXIMATE,
    BUFFER_SPACING,
    HOPPER,
    KERNEL_SECONDS,
    PADDED_NIBBLES,
    POINTED_BASE,
    Buffer,
    BufferPointer,
    HostMap,
    TooLarge,
    pointed_address,
)
from ptxdiff.extras import require
from ptxdiff.model.targets import capability, normal
from ptxdiff.model.tuning import passed_over
from ptxdiff.tracebacks import ShortTraceback

if TYPE_CHECKING:
    from ptxdiff.sass.cubin import MachineCode
    from ptxdiff.triton.spec import FunctionRef


# ---- Arguments: arrays and tensors as buffers, tensor descriptors as parameters --------------------------------------

MOST_POINTED = 1 << 18
"""The most addresses that host code can get in one session: those below the addresses of parameters."""


class LaunchError(ShortTraceback, ValueError):
    """A launch that is refused: for arguments that Triton does not accept, or a kernel that does not compile."""


def tensor_maps(target: str) -> bool:
    """Whether a target copies boxes by tensor maps (TMA): from sm_90 on."""
    return capability(normal(target)) >= 90


def is_descriptor(value: Any) -> bool:
    """Whether a value is a tensor descriptor: a tensor with the sizes of its blocks, for bulk copies (TMA)."""
    return type(value).__name__ == "TensorDescriptor"


def is_tensor(value: Any) -> bool:
    """Whether a value is a numpy array or a torch tensor, which becomes a pointer."""
    return isinstance(value, np.ndarray) or (
        type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "data_ptr")
    )


def address_of(tensor: Any) -> int:
    """The address of its first element."""
    return int(tensor.ctypes.data if isinstance(tensor, np.ndarray) else tensor.data_ptr())


class Pointed(Protocol):
    """Memory that host code has addresses of, by the numbers of these addresses (`pointed_address`)."""

    def memory(self, slot: int) -> NDArray[np.uint8] | None:
        """The bytes of a number; None if it has none, or if they have been freed."""


class Arguments:
    """The tensors of a launch as emulated buffers. One tensor passed twice is one buffer.

    pointed: memory that the kernel reaches through addresses: 64-bit integers among the arguments, or stored in them.
    """

    def __init__(self, values: Mapping[str, Any], unwritten: frozenset[str], pointed: Pointed | None = None) -> None:
        self._buffers: dict[tuple[int, int], tuple[Any, bool]] = {}
        self.pointed: list[Any] = []
        if pointed is not None:
            self._reach(list(values.values()), pointed)
        unknown = unwritten - set(values)
        if unknown:
            raise LaunchError(f"unwritten= names {', '.join(sorted(unknown))}; the arguments are {', '.join(values)}")
        for name, value in values.items():
            self._take(name, value, name in unwritten)

    def _take(self, name: str, value: Any, unwritten: bool) -> None:
        if isinstance(value, tuple | list):
            for number, element in enumerate(value):
                self._take(f"{name}[{number}]", element, unwritten)
        if is_descriptor(value):
            value = value.base
        if not is_tensor(value):
            return
        raw = span(name, value)
        first, last = address_of(raw), address_of(raw) + raw.nbytes
        if raw.nbytes and self._holder(first, last):
            if unwritten:
                raise LaunchError(
                    f"unwritten= names {name}, whose address the kernel finds in memory too; leave it out"
                )
            return
        for other_first, other_last in self._buffers:
            if (other_first, other_last) != (first, last) and first < other_last and other_first < last:
                raise LaunchError(f"{name} overlaps another argument; pass the tensor that contains both, once")
        if (first, last) not in self._buffers:
            buffer = Buffer(raw, name, defined=not unwritten, residue=first % 256)
            self._buffers[first, last] = (buffer, unwritten)

    def placed(self, value: Any) -> Any:
        """A value with tensors replaced by their buffers."""
        if isinstance(value, tuple | list):
            return tuple(self.placed(v) for v in value)
        if not is_tensor(value):
            return value
        raw = span("", value)
        first, last = address_of(raw), address_of(raw) + raw.nbytes
        if raw.nbytes and (holder := self._holder(first, last)):
            return BufferPointer(holder, first - address_of(holder.array))
        return self._buffers[first, last][0]

    def _holder(self, first: int, last: int) -> Any:
        """The pointed buffer that contains these addresses of the host; None if none does."""
        starts = ((b, address_of(b.array)) for b in self.pointed)
        return next((b for b, start in starts if start <= first and last <= start + b.size), None)

    def _reach(self, values: list[Any], pointed: Pointed) -> None:
        """Make buffers of all memory that values point to, and of all memory that this memory points to."""
        by_slot: dict[int, Any] = {}
        while values:
            for slot in _slots(values.pop()):
                memory = None if slot in by_slot else pointed.memory(slot)
                if memory is not None:
                    name = f"the tensor at 0x{pointed_address(slot, address_of(memory)):x}"
                    by_slot[slot] = Buffer(memory, name, residue=address_of(memory) % 256, slot=slot)
                    values.append(memory[: len(memory) // 8 * 8].view(np.int64))
        self.pointed = list(by_slot.values())

    def described(self, name: str, value: Any, layout: Any, target: str) -> list[Any]:
        """A tensor descriptor as parameters of the entry: the map, the sizes and the strides.

        layout: the compiler's; None for a target without tensor maps. There Triton turns copies by a descriptor into
        loads and stores, and the descriptor's fields replace the map (Triton's `decompose_descriptor`).
        """
        if getattr(value, "round_f32_to_tf32", False):
            raise LaunchError(f"{name}: the emulator has no tensor descriptors that round to tf32")
        sizes, strides = tuple(map(int, value.shape)), tuple(map(int, value.strides))
        fill = int(getattr(value, "padding", "zero") == "nan")
        base = self.placed(value.base)
        if layout is None:
            if tensor_maps(target):
                raise LaunchError(f"{name}: Triton gave no layout of this descriptor for {target}")
            flags = [fill, 0] if hasattr(value, "round_f32_to_tf32") else [fill]  # tf32: since Triton 3.7
            return [base, *sizes, *strides, *flags, *sizes, *strides]
        buffer, offset = (base.buffer, base.offset) if isinstance(base, BufferPointer) else (base, 0)
        counted = (*sizes[:-1], 2 * sizes[-1]) if layout.element == PADDED_NIBBLES else sizes
        whole = HostMap(buffer, offset, counted, strides, layout.box, layout.element, layout.swizzle, fill)
        return [whole, *sizes, *strides]

    def check_written(self) -> None:
        """Raise UndefinedBits for a byte of an unwritten argument that the kernel never wrote."""
        from ptxdiff.emulator import UndefinedBits

        for buffer, unwritten in self._buffers.values():
            left = buffer.unwritten
            if unwritten and left is not None and left.any():
                raise UndefinedBits(
                    f"{int(left.sum())} bytes of {buffer.name} were never written, first {int(left.argmax())}"
                )


def _slots(value: Any) -> Iterator[int]:
    """The numbers of the addresses among 64-bit integers: one integer, or the elements of an array or tensor."""
    if isinstance(value, tuple | list):
        for element in value:
            yield from _slots(element)
        return
    if isinstance(value, int) and 0 <= value < 1 << 63:
        numbers = np.array([value])
    elif is_tensor(value) and str(value.dtype).removeprefix("torch.") in ("int64", "uint64"):
        numbers = span("an argument", value).view(np.int64)
    else:
        return
    slots = (numbers - POINTED_BASE) // BUFFER_SPACING
    yield from np.unique(slots[(slots >= 0) & (slots < MOST_POINTED)]).tolist()


def span(name: str, tensor: Any) -> NDArray[np.uint8]:
    """The bytes from a tensor's first element to its last, in its own memory: all that its pointer may be used for.

    Raises LaunchError for a tensor on a device, and for negative strides.
    """
    if isinstance(tensor, np.ndarray):
        if any(s < 0 for s in tensor.strides):
            raise LaunchError(f"{name} has negative strides, which a pointer cannot express; pass a copy")
        extent = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True)) + tensor.itemsize
        extent = extent if tensor.size else 0
        units = tensor.view(f"u{tensor.itemsize}")
        flat = np.lib.stride_tricks.as_strided(units, (extent // tensor.itemsize,), (tensor.itemsize,))
        return flat.view(np.uint8)
    if tensor.device.type != "cpu":
        raise LaunchError(f"{name} is on {tensor.device}; the emulator works on CPU tensors")
    import torch

    extent = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1 if tensor.numel() else 0
    flat = tensor.detach().as_strided((extent,), (1,))
    raw: NDArray[np.uint8] = flat.view(torch.uint8).numpy()
    return raw


# ---- Launches --------------------------------------------------------------------------------------------------------

_NO_OPTIONS = {
    "num_warps", "enable_fp_fusion", "debug",  # read apart
    "arch", "backend_name", "warp_size", "supported_fp8_dtypes", "deprecated_fp8_dot_operand_dtypes",  # the target's
    "extern_libs",  # judged apart
    "ir_override",  # a file
}  # fmt: skip
"""What Triton's compiler calls options, and a launch here cannot give."""

_ON = ("1", "true", "on", "yes", "y")

# Triton's names of element types, by their names in numpy, ml_dtypes and torch.
_ELEMENTS = {
    "float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "bool": "i1",
    "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5",
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
}  # fmt: skip


@dataclass(frozen=True)
class Emulated:
    """A kernel bound to a target. Index it with a grid, and call the result as Triton's own launcher is called.

    pointed: memory that kernels find through addresses in memory. here: compile in a fork, and import no file of a
    kernel.
    """

    kernel: Any
    target: str = "sm_100a"
    races: bool = True
    limit: float | None = KERNEL_SECONDS
    approximate: str = HOPPER
    pointed: Pointed | None = None
    here: bool = False
    level: str = "ptx"
    ptxas: str | None = None
    opt: int | None = None

    def __getitem__(
        self, grid: Sequence[int] | int | Callable[[Mapping[str, Any]], Sequence[int]]
    ) -> Callable[..., Any]:
        """The launcher for a grid: one to three sizes, or a function of the arguments by name."""

        def launch(*args: Any, **kwargs: Any) -> Any:
            from ptxdiff.emulator import PtxError

            try:
                return self._launch(grid, args, kwargs)
            except (LaunchError, PtxError) as error:  # the emulator's traceback does not help
                raise error.with_traceback(None) from error.__cause__

        return launch

    def _launch(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        require("triton", purpose="emulated(kernel)")
        if _tuned(self.kernel):
            return self._tuned_launch(grid, args, kwargs)
        from ptxdiff.emulator import load_kernel, run_kernel, scratch
        from ptxdiff.triton.spec import entry_values

        unwritten = frozenset(kwargs.pop("unwritten", ()))
        values, compilation, signature, fusion = self._prepared(args, kwargs)
        memory = Arguments(values, unwritten, self.pointed)
        program = load_kernel(compilation.ptx, approximate=self.approximate)
        sizes = _blocks(grid(values) if callable(grid) else grid, program.cluster)
        layouts = iter(compilation.descriptors)
        parameters: list[Any] = []
        for name, kind in signature:
            if is_descriptor(values[name]):
                parameters += memory.described(name, values[name], next(layouts, None), self.target)
            else:
                parameters += entry_values(kind, memory.placed(values[name]))
        parameters += scratch(compilation.scratch, math.prod(sizes))
        if self.level == "sass":
            machine = _machine_code(compilation.ptx, compilation.entry, self.ptxas, self.opt, fusion)
            threads, shared = 32 * compilation.num_warps, compilation.shared
            return _run_machine_code(machine, memory, parameters, sizes, threads, shared, self.limit)
        report = run_kernel(
            program,
            parameters,
            sizes,
            num_threads=32 * compilation.num_warps,
            shared_bytes=compilation.shared,
            races=self.races,
            limit=self.limit,
            pointed=memory.pointed,
        )
        memory.check_written()
        return report

    def _prepared(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Any], Any, Any, bool]:
        """The arguments by name, the compiled kernel, its signature, and whether products and sums may be fused."""
        num_warps = kwargs.pop("num_warps", 4)
        if num_warps not in (1, 2, 4, 8, 16, 32):
            raise LaunchError(f"num_warps={num_warps!r}: a block has 1, 2, 4, 8, 16 or 32 warps (1024 threads at most)")
        fusion = bool(kwargs.pop("enable_fp_fusion", True))  # Triton's default up to 3.9
        own_names = set(getattr(self.kernel, "arg_names", ()))
        if "extern_libs" not in own_names:
            _refuse_libraries(kwargs.pop("extern_libs", None) or {})
        names = _options() - own_names
        options = {name: kwargs.pop(name) for name in sorted(names & kwargs.keys())}
        if _debugs(self.kernel, kwargs.pop("debug", None)):
            options["debug"] = True
        values = self._bound(args, kwargs)
        return values, *self._compiled(values, num_warps, fusion, options), fusion

    def warmup(self, *args: Any, **kwargs: Any) -> WarmedUp:
        """Compile without a launch. Raises LaunchError if Triton or ptxas refuses the kernel."""
        from ptxdiff.triton.assemble import assemble
        from ptxdiff.triton.diagnostics import Refusal

        options = {"num_warps", "enable_fp_fusion", "debug", *_options()} - set(getattr(self.kernel, "arg_names", ()))
        kept = {name: kwargs[name] for name in options & kwargs.keys()}
        _, compilation, _, _ = self._prepared(args, kwargs)
        assembly = assemble(compilation)
        if isinstance(assembly, Refusal):
            raise LaunchError(f"{compilation.entry}: {assembly.words}")
        return WarmedUp(self, kept, compilation, assembly)

    def _tuned_launch(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch a kernel under @triton.autotune with the first configuration that the target can hold."""
        below = replace(self, kernel=self.kernel.fn)
        if type(self.kernel).__name__ != "Autotuner":  # rules above the tuner do not know its values
            named = dict(zip(self.kernel.arg_names, args, strict=False))
            for name, rule in self.kernel.values.items():
                kwargs[name] = rule({**named, **kwargs})
            return below._launch(grid, args, kwargs)
        tuner = self.kernel
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        try:
            return first_that_runs(tuner, kwargs, lambda more: below._launch(grid, args, {**kwargs, **more}))[0]
        finally:
            tuner.nargs = None

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Every argument by name, defaults filled in, in the order of the kernel's parameters."""
        plain, rules = self.kernel, dict[str, Any]()
        while plain is not None and not inspect.isfunction(plain):  # below @triton.heuristics and similar decorators
            rules |= getattr(plain, "values", None) or {}
            plain = getattr(plain, "fn", None)
        if plain is None:
            raise LaunchError(f"{self.kernel!r} is no @triton.jit function")
        signature = inspect.signature(plain)
        try:
            for name, rule in rules.items():
                kwargs[name] = rule(dict(signature.bind_partial(*args, **kwargs).arguments))
            bound = signature.bind(*args, **kwargs)
        except TypeError as e:
            raise LaunchError(f"{plain.__name__}: {e}") from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def _compiled(
        self, values: Mapping[str, Any], num_warps: int, fusion: bool, options: Mapping[str, Any]
    ) -> tuple[Any, Any]:
        from ptxdiff.triton.compile import compile_kernel
        from ptxdiff.triton.diagnostics import Refusal
        from ptxdiff.triton.spec import Parameters, specialise

        if _compiling():
            raise LaunchError(
                "the kernel was launched while a compiler's process imported the file that defines it: "
                'put the code that runs kernels under `if __name__ == "__main__":`'
            )
        held: dict[FunctionRef, Any] = {}
        try:
            kernel = _unwrapped(self.kernel)
            reference = _reference(self.kernel, held)
            if self.here or any(map(_of_a_class_only_here, values.values())):
                held[reference] = kernel
            spec = specialise(
                reference,
                {name: _described(value, held) for name, value in values.items()},
                Parameters.of(kernel),
                target=normal(self.target),
                enable_fp_fusion=fusion,
                num_warps=num_warps,
                options=tuple(options.items()),
            )
        except (TypeError, ValueError) as e:
            raise LaunchError(str(e)) from None
        compiled = compile_kernel(spec, held=held)
        if isinstance(compiled, Refusal):
            location = f"{reference.path}:{kernel.fn.__code__.co_firstlineno}"
            raise LaunchError(f"{reference.qualname} ({location}) does not compile for {self.target}: {compiled.words}")
        return compiled, spec.signature


class WarmedUp:
    """A kernel that is compiled, with what Triton's compiled kernel says of its registers and its shared memory.

    Index it with a grid to launch it, as Triton's: with every parameter by position, compile-time values too. Registers
    and spills are those of ptxas.
    """

    def __init__(self, kernel: Emulated, options: Mapping[str, Any], compilation: Any, assembly: Any) -> None:
        self._kernel, self._options = kernel, options
        used = assembly.resources
        self.n_regs = used["registers"]
        self.n_spills = (used["spill_stores"] + used["spill_loads"]) // 4
        self.metadata = SimpleNamespace(
            shared=compilation.shared, num_warps=compilation.num_warps, name=compilation.entry
        )
        self.asm = {"ptx": compilation.ptx, "cubin": assembly.cubin}

    def _init_handles(self) -> None:
        """Does nothing: there is no GPU to load the code on. Triton's host code calls it before it reads `n_regs`."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """The launcher for a grid."""
        return lambda *args: self._kernel[grid](*args, **self._options)


def _tuned(kernel: Any) -> bool:
    """Whether a kernel is autotuned, perhaps below heuristics."""
    while type(kernel).__name__ == "Heuristics":
        kernel = kernel.fn
    return type(kernel).__name__ == "Autotuner"


def first_that_runs(
    tuner: Any, kwargs: Mapping[str, Any], launch: Callable[[dict[str, Any]], Any], known: Any = None
) -> tuple[Any, Any]:
    """What a launch returned, with the first configuration of an autotuner that runs, in its order; and that one.

    tuner: its `nargs` are the positional arguments by name. launch: is given a configuration's values and options.
    known: the configuration to take. Nothing is timed. A configuration is skipped if Triton's own autotuner would give
    it an infinite time: a `static_assert` fails, or a block needs more shared memory than the target has. All other
    errors are raised. Pruning and hooks follow Triton's `Autotuner.run`. Raises LaunchError if no configuration is
    left.
    """
    several = len(tuner.configs) > 1 and known is None
    refused: list[str] = []
    for config in [known] if known is not None else tuner.prune_configs(dict(kwargs)) if several else tuner.configs:
        if conflicts := sorted(kwargs.keys() & config.kwargs.keys()):
            raise LaunchError(f"{', '.join(conflicts)}: given both in the launch and by the autotuner")
        values = {**tuner.nargs, **kwargs, **config.all_kwargs()}
        if several:
            tuner.pre_hook(dict(values), reset_only=True)
        if config.pre_hook is not None:
            config.pre_hook(dict(values))
        try:
            return launch(config.all_kwargs()), config
        except (LaunchError, TooLarge) as refusal:
            if not several or not (isinstance(refusal, TooLarge) or passed_over(str(refusal))):
                raise
            refused.append(f"{config}: {refusal}")
    raise LaunchError("no configuration of the autotuner runs: " + "; ".join(refused))


def _options() -> set[str]:
    """The launch options of the installed Triton that its compiler takes, such as num_stages, maxnreg or clc."""
    from triton.backends.nvidia.compiler import CUDAOptions

    return {field.name for field in fields(CUDAOptions)} - _NO_OPTIONS


def _refuse_libraries(libraries: Any) -> None:
    """Raise LaunchError for `extern_libs=` other than Triton's own libdevice, which is linked in any case."""
    from triton.backends.nvidia import compiler

    own = Path(compiler.__file__).parent / "lib" / "libdevice.10.bc"
    for name, path in dict(libraries).items():
        try:
            same = name == "libdevice" and Path(path).read_bytes() == own.read_bytes()
        except OSError as fault:
            raise LaunchError(f"extern_libs: the library {name!r} cannot be read: {fault}") from None
        if not same:
            raise LaunchError(
                f"extern_libs: {name!r} ({path}) is not the libdevice of this Triton, which alone is linked; leave "
                "extern_libs= out, or compile the kernel with Triton and run its PTX with ptxdiff.run_ptx"
            )


def _blocks(grid: Any, cluster: tuple[int, int, int] | None) -> tuple[Any, ...]:
    """The blocks of a launch. Triton's grid counts clusters, whose blocks (num_ctas) lie along x."""
    sizes = tuple(grid) if hasattr(grid, "__iter__") else (grid,)
    if cluster is None or not sizes:
        return sizes
    return tuple(size * of for size, of in zip((*sizes, 1, 1)[:3], cluster, strict=True))


def _unwrapped(kernel: Any) -> Any:
    while type(kernel).__name__ == "Heuristics":
        kernel = kernel.fn
    return kernel


def _reference(function: Any, held: dict[FunctionRef, Any]) -> FunctionRef:
    """The reference to a function. If a compiler's process could not load the function, it is added to `held`."""
    from ptxdiff.triton.spec import FunctionRef

    reference = FunctionRef.of(function)
    if not reference.is_found(function):
        held[reference] = _unwrapped(function)
    return reference


def _of_a_class_only_here(value: Any) -> bool:
    """Whether a compile-time value is of a class that other processes cannot import: of a script, or of a function."""
    if isinstance(value, tuple | list):
        return any(map(_of_a_class_only_here, value))
    return type(value).__module__ == "__main__" or "<" in type(value).__qualname__


def _debugs(kernel: Any, asked: bool | None) -> bool:
    """Whether assertions are compiled in, decided as Triton does: debug=, @triton.jit(debug=True) or TRITON_DEBUG."""
    while asked is None and kernel is not None:
        asked, kernel = getattr(kernel, "debug", None), getattr(kernel, "fn", None)
    return bool(asked) or os.environ.get("TRITON_DEBUG", "").lower() in _ON


def _compiling() -> bool:
    """Whether this is a compiler's process, which imports the file of a kernel and must not launch it."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == "ptxdiff.processes.worker"


def emulated(
    kernel: Any,
    target: str = "sm_100a",
    *,
    races: bool = True,
    limit: float | None = KERNEL_SECONDS,
    approximate: str = HOPPER,
    level: str = "ptx",
    ptxas: str | None = None,
    opt: int | None = None,
) -> Emulated:
    """A launcher that runs `kernel` on the CPU as `target` would: `emulated(kernel)[grid](*args, num_warps=4, **meta)`.

    Arguments: numpy arrays (ml_dtypes too) and CPU torch tensors, changed in place; Python numbers; tuples;
    compile-time values by keyword. An autotuned kernel takes its first configuration that the target can hold, because
    nothing is timed. Further keywords: num_warps, num_stages, num_ctas, maxnreg, enable_fp_fusion (on
    by default, as in Triton), debug (device_assert is compiled in), and unwritten=("y",): arguments whose contents
    count as never written, so that reading them first, or leaving a byte of them unwritten, is an error. races=False
    skips the race detector. limit: seconds that the whole launch may run, compiling not counted (60); None: any.
    approximate: the bits of approximate instructions, "hopper" or "rounded", as `ptxdiff.emulate` has it. level: "ptx",
    or "sass": run the machine code that ptxas makes of the PTX (see `run_cubin`). ptxas: the path of one; None: the one
    that Triton carries. opt: its optimisation level, 0 to 3.

    device_print prints to standard output. The call returns a report with the number of thread instructions. Raises
    LaunchError for what cannot be launched, and PtxError (MemoryFault, UndefinedBits, ExecutionError, TimeLimit) for
    what the kernel does wrong, a store to a read-only array included; arrays are then unchanged.
    """
    if approximate not in APPROXIMATE:
        raise LaunchError(f"approximate={approximate!r} is none of {', '.join(map(repr, APPROXIMATE))}")
    _check_level(level)
    return Emulated(kernel, target, races, limit, approximate, level=level, ptxas=ptxas, opt=opt)


def run_ptx(
    text: str | os.PathLike[str],
    grid: Sequence[int] | int,
    block: Sequence[int] | int | None,
    *args: Any,
    entry: str | None = None,
    shared: int = 0,
    target: str | None = None,
    unwritten: Sequence[int] = (),
    races: bool = True,
    limit: float | None = KERNEL_SECONDS,
    cluster: Sequence[int] | int | None = None,
    level: str = "ptx",
    ptxas: str | None = None,
    opt: int | None = None,
) -> Any:
    """Run a kernel of a PTX module on the CPU, whatever compiler wrote it.

    text: the module, or the path of a file that holds it. grid: blocks along x, y and z. block: threads along x, y
    and z; None where the kernel states them (`.reqntid`). args: for each parameter of the kernel, in order: a numpy
    array or CPU torch tensor (its address; changed in place), a number, or bytes for a structure. entry: the kernel's
    name, where the module has several. shared: bytes of dynamic shared memory. target: the GPU; None: the one that the
    module names. unwritten: numbers of the arguments whose contents count as never written. races, limit: as for
    `emulated`. cluster: blocks of a cluster along x, y and z; None: what the kernel states (`.reqnctapercluster`).
    level, ptxas, opt: as for `emulated`.

    Returns a report with the number of thread instructions. Raises LaunchError for what cannot be launched, and
    PtxError for text that is wrong and for what the kernel does wrong; arrays are then unchanged.
    """
    from ptxdiff.emulator import load_kernel, run_kernel
    from ptxdiff.emulator.text import retargeted

    if isinstance(text, os.PathLike):
        text = Path(text).read_text(encoding="utf-8")
    elif text.endswith(".ptx"):
        raise LaunchError(f"{text!r} is no text of PTX; for a file pass a path: run_ptx(Path({text!r}), ...)")
    if target is not None:
        text = retargeted(text, normal(target))
    _check_level(level)
    kernel = load_kernel(text, entry)
    if level == "sass":
        from ptxdiff.emulator import clusters_of

        sizes = (*((grid,) if isinstance(grid, int) else grid), 1, 1)[:3]
        given = (cluster,) if isinstance(cluster, int) else cluster
        clusters = clusters_of(kernel, given, (sizes[0], sizes[1], sizes[2]))
        machine = _machine_code(text, kernel.name, ptxas, opt, True)
        return _launch_machine_code(machine, grid, block or kernel.block, args, shared, unwritten, limit, clusters)
    if len(args) != len(kernel.parameters):
        raise LaunchError(f"kernel {kernel.name} has {len(kernel.parameters)} parameters, but {len(args)} were given")
    values = {f"argument {number}": arg for number, arg in enumerate(args)}
    memory = Arguments(values, frozenset(f"argument {number}" for number in unwritten))
    report = run_kernel(
        kernel,
        [memory.placed(v.item() if isinstance(v, np.generic) else v) for v in values.values()],
        (grid,) if isinstance(grid, int) else tuple(grid),
        num_threads=(block,) if isinstance(block, int) else block,
        shared_bytes=shared,
        races=races,
        limit=limit,
        cluster=(cluster,) if isinstance(cluster, int) else cluster,
    )
    memory.check_written()
    return report


def run_cubin(
    cubin: bytes | str | os.PathLike[str],
    grid: Sequence[int] | int,
    block: Sequence[int] | int,
    *args: Any,
    entry: str | None = None,
    shared: int = 0,
    unwritten: Sequence[int] = (),
    limit: float | None = KERNEL_SECONDS,
    nvdisasm: str | os.PathLike[str] | None = None,
) -> Any:
    """Run a kernel's machine code on the CPU, bit for bit.

    cubin: the file that ptxas wrote, as bytes or a path. nvdisasm: the path of one; None: the one that Triton carries.
    All else as for `run_ptx`. It runs several times, with other contents of registers that were never written, and
    where lanes of a warp part, in several orders. The report has the number of thread instructions and how often each
    form of machine instruction ran; whether a form is believed, `ptxdiff.conformance.taught` says.

    Raises LaunchError for what cannot be launched, and PtxError: Unsupported (of `ptxdiff.sass.text`) for an
    instruction that is not in the table, UndefinedBits, MachineFault and TimeLimit. Arrays are then unchanged. Races
    in global memory and faults of timing are not seen.
    """
    data = cubin if isinstance(cubin, bytes) else Path(cubin).read_bytes()
    return _launch_machine_code(
        _read(data, entry, None if nvdisasm is None else os.fspath(nvdisasm)),
        grid,
        block,
        args,
        shared,
        unwritten,
        limit,
    )


def _check_level(level: str) -> None:
    if level not in ("ptx", "sass"):
        raise LaunchError(f"level={level!r} is neither 'ptx' nor 'sass'")


def _machine_code(text: str, entry: str | None, ptxas: str | None, opt: int | None, fusion: bool) -> MachineCode:
    """The machine code that ptxas makes of a text. Raises LaunchError if it refuses."""
    from ptxdiff.emulator.text import without_header
    from ptxdiff.triton.assemble import NotAssembled, cubin_of
    from ptxdiff.triton.targets import assembler

    path = ptxas or assembler(without_header(text).target or "sm_90a").path
    try:
        return _read(cubin_of(text, path, opt, contracts=fusion), entry, None)
    except NotAssembled as refusal:
        raise LaunchError(str(refusal)) from None


def _read(cubin: bytes, entry: str | None, nvdisasm: str | None) -> MachineCode:
    from ptxdiff.sass.cubin import disassembled, machine_code
    from ptxdiff.triton.targets import tool

    return machine_code(cubin, disassembled(cubin, nvdisasm or tool("nvdisasm")), entry)


def _launch_machine_code(
    machine: MachineCode, grid: Any, block: Any, args: Sequence[Any], shared: int, unwritten: Sequence[int],
    limit: Any, cluster: tuple[int, int, int] | None = None,
) -> Any:  # fmt: skip
    if len(args) != len(machine.parameters):
        message = f"kernel {machine.name} has {len(machine.parameters)} parameters, but {len(args)} were given"
        raise LaunchError(message)
    values = {f"argument {number}": arg for number, arg in enumerate(args)}
    memory = Arguments(values, frozenset(f"argument {number}" for number in unwritten))
    parameters = [memory.placed(v.item() if isinstance(v, np.generic) else v) for v in values.values()]
    sizes = (grid,) if isinstance(grid, int) else tuple(grid)
    return _run_machine_code(machine, memory, parameters, sizes, block, shared, limit, cluster)


def _run_machine_code(
    machine: MachineCode, memory: Arguments, parameters: list[Any], grid: Any, block: Any, shared: int, limit: Any,
    cluster: tuple[int, int, int] | None = None,
) -> Any:  # fmt: skip
    from ptxdiff.sass.run import run_machine_code

    report = run_machine_code(machine, parameters, grid, block, shared_bytes=shared, limit=limit, cluster=cluster)
    memory.check_written()
    return report


def _described(value: Any, held: dict[FunctionRef, Any]) -> Any:
    """An argument for `specialise`: tensors become pointers. held: gets functions that only this process has."""
    from ptxdiff.triton.spec import DescriptorType, PointerType

    if isinstance(value, tuple | list):
        return tuple(_described(v, held) for v in value)
    if hasattr(value, "arg_names"):
        return _reference(value, held)
    if is_descriptor(value):
        described = _described(value.base, held)
        stated = repr(value.layout) if hasattr(value, "layout") else ""  # Gluon's descriptors have one
        return DescriptorType(described.element, tuple(value.block_shape), stated)
    if not is_tensor(value):
        return value.item() if isinstance(value, np.generic) else value
    name = str(value.dtype).removeprefix("torch.")
    if name not in _ELEMENTS:
        raise TypeError(f"Triton has no pointer to {name}")
    return PointerType(_ELEMENTS[name], aligned=address_of(value) % 16 == 0)
