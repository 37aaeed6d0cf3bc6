"""From a case's variant and a setup to a kernel launch: the kernel, its tensors, and its arguments.

The same description serves compiling ahead (pointers are `PointerType`s) and launching (pointers are tensors).
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ptxdiff.jobs import Job, Setup
from ptxdiff.model.arguments import Argument, format_of
from ptxdiff.model.case import Case
from ptxdiff.model.compilers import compiler_of
from ptxdiff.model.derive import asm_form, compiled_form
from ptxdiff.model.identity.definition import Experiment, experiment
from ptxdiff.model.policies import policies
from ptxdiff.model.tuning import ruled
from ptxdiff.model.variants import AsmVariant, CaseError, KernelVariant, LaunchedVariant, PlainVariant, PtxVariant
from ptxdiff.references.description import size_of
from ptxdiff.references.formats import Format, Scalar, Shaped
from ptxdiff.triton.build import Built, build
from ptxdiff.triton.diagnostics import Refusal
from ptxdiff.triton.elementwise import Elementwise, InlineAsm, PlainFunction
from ptxdiff.triton.from_ptx import given_spec
from ptxdiff.triton.spec import (
    Compilation,
    FunctionRef,
    GivenPtx,
    KernelSpec,
    Parameters,
    PointerType,
    entry_values,
    specialise,
)


@dataclass(frozen=True)
class TensorLayout:
    """A tensor of a launch. row_stride: units between the starts of rows; None if rows have no gaps."""

    name: str
    format: Format
    shape: tuple[int, ...]
    row_stride: int | None = None

    @property
    def extent(self) -> int:
        """Units from the first to the last, including gaps."""
        if self.row_stride is None or 0 in self.shape:
            return math.prod(self.shape)
        return (self.shape[0] - 1) * self.row_stride + self.shape[1]


@dataclass(frozen=True)
class Launch:
    """A kernel launch without its pointers.

    function: the kernel; None for the harness's own templates, which `elementwise` describes, and for `given` PTX.
    inputs, outputs: the tensors passed by pointer; one updated in place is in both. fixed: the other arguments, by
    name. compiler: the Triton build that compiles it. made: the kernel if another process has built it. options:
    further options of Triton's compiler.
    """

    inputs: tuple[TensorLayout, ...]
    outputs: tuple[TensorLayout, ...]
    grid: tuple[int, ...]
    setup: Setup
    elementwise: Elementwise | None = None
    function: Any = None
    names: tuple[str, ...] = ()
    fixed: Mapping[str, Any] | None = None
    given: GivenPtx | None = None
    compiler: str = ""
    made: Built | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tensors(self) -> tuple[TensorLayout, ...]:
        """Inputs, then outputs; each tensor once."""
        return tuple(dict.fromkeys((*self.inputs, *self.outputs)))

    def arguments(self, pointers: Mapping[str, Any], constexpr: Callable[[Any], Any]) -> dict[str, Any]:
        """All arguments by parameter name; those of tensors are taken from `pointers`, by tensor name."""
        if self.elementwise is not None:
            ins, outs = (tuple(pointers[t.name] for t in ts) for ts in (self.inputs, self.outputs))
            return self.elementwise.arguments(ins, outs, constexpr)
        fixed = self.fixed or {}
        return {name: pointers[name] if name in pointers else fixed[name] for name in self.names}

    def spec(self, target: str) -> KernelSpec:
        """The compilation for this launch."""
        return replace(self._spec(target), compiler=self.compiler)

    def _spec(self, target: str) -> KernelSpec:
        setup, portable = self.setup, bool(self.compiler)
        if self.elementwise is not None:
            return self.elementwise.spec(target, enable_fp_fusion=setup.fusion)
        if self.given is not None:
            return given_spec(self.given, self.names, target, enable_fp_fusion=setup.fusion)
        pointers = {
            t.name: PointerType(t.format.element_type, setup.alignment_of(t.name) % 16 == 0) for t in self.tensors
        }
        arguments = self.arguments(pointers, constexpr=lambda value: value)
        return specialise(
            FunctionRef.of(self.function, portable=portable),
            {name: _by_reference(value, portable) for name, value in arguments.items()},
            Parameters.of(self.function),
            target=target,
            enable_fp_fusion=setup.fusion,
            num_warps=setup.num_warps,
            options=tuple(self.options.items()),
        )

    def build(self, target: str) -> Built | Refusal:
        """Compile and assemble the kernel for a target, with the assembler of its setup."""
        if self.made is not None:
            return self.made
        built = build(self.spec(target), self.setup.assembler)
        if isinstance(built, Refusal) and self.elementwise is not None:
            return self.elementwise.explain(built)
        return built


def entry_parameters(launch: Launch, compilation: Compilation, pointers: Mapping[str, Any]) -> list[Any]:
    """The arguments of the compiled entry, in order: all but compile-time constants. pointers: by tensor name."""
    arguments = launch.arguments(pointers, constexpr=lambda value: value)
    return [v for name, kind in compilation.spec.signature for v in entry_values(kind, arguments[name])]


def launched_experiment(
    machine: str, job: Job, launch: Launch, compilation: Compilation, code: str | None = None
) -> Experiment:
    """The experiment of a launch: the code that the machine runs, and all its arguments.

    code: the text that identifies the code; by default the PTX as it stands, including its target.
    """
    pointers = {t.name: f"pointer to {t.name}" for t in launch.tensors}
    setup = job.setup
    given = (
        compilation.entry, entry_parameters(launch, compilation, pointers), launch.grid, compilation.num_warps,
        compilation.shared, launch.inputs, launch.outputs, setup.alignment, setup.fusion,
        *((setup.misaligned,) if setup.misaligned else ()), *((launch.given.block,) if launch.given else ()),
    )  # fmt: skip
    return experiment(machine, compilation.ptx if code is None else code, given, job.inputs)


def _by_reference(value: Any, portable: bool) -> Any:
    return FunctionRef.of(value, portable=portable) if hasattr(value, "arg_names") else value


def launch_of(job: Job) -> Launch:
    """The launch that a job asks for.

    Raises CaseError, ValueError or TypeError for a variant that cannot be launched so. The message says what to change.
    """
    if isinstance(job.variant, PtxVariant):
        return _given(job, job.variant)
    if isinstance(job.variant, KernelVariant):
        return _kernel(job, job.variant)
    return _elementwise(job)


def _elementwise(job: Job) -> Launch:
    case, setup = job.case, job.setup
    if not case.elementwise:
        raise CaseError("arguments with dimensions need kernel(...); asm(...) and plain(...) compute elementwise")
    computation = computation_of(case, job.variant, setup)
    carry = policies(case, job.variant).carry if setup.context == "loop" else None
    kernel = Elementwise(
        computation,
        tuple(format_of(a).element_type for a in case.inputs.values()),
        tuple(format_of(a).element_type for a in case.outputs.values()),
        setup.shape,
        block=setup.block,
        alignment=setup.alignment,
        num_warps=setup.num_warps,
        carry=_carried(case, carry) if carry is not None else None,
        steps=setup.steps,
    )
    stride = kernel.row_stride if len(setup.shape) == 2 else None

    def tensors(arguments: Mapping[str, Argument]) -> tuple[TensorLayout, ...]:
        return tuple(TensorLayout(n, format_of(a), setup.shape, stride) for n, a in arguments.items())

    compiler = compiler_of(case, job.variant)
    return Launch(
        tensors(case.inputs), tensors(case.outputs), kernel.grid, setup, elementwise=kernel, compiler=compiler
    )


def _carried(case: Case, carry: Mapping[str, str]) -> tuple[int, ...]:
    if not carry:
        raise CaseError("the loop context needs carry={output: input}")
    source = {into: list(case.outputs).index(out) for out, into in carry.items()}
    return tuple(source.get(name, -1) for name in case.inputs)


def computation_of(case: Case, variant: Any, setup: Setup) -> InlineAsm | PlainFunction:
    """What an elementwise kernel computes for a variant: its asm for a pack, or its function. Raises CaseError."""
    if isinstance(variant, AsmVariant):
        form = compiled_form(case, asm_form(case, variant, setup.pack))
        return InlineAsm(form.text, form.constraints, form.pack)
    if isinstance(variant, PlainVariant):
        portable = bool(compiler_of(case, variant))
        return PlainFunction(FunctionRef.of(variant.function, portable=portable), _constants(case, variant, portable))
    raise CaseError(f"a {type(variant).__name__} is no elementwise variant")


def _constants(case: Case, variant: PlainVariant, portable: bool) -> tuple[Any, ...]:
    """The constants in the order of the function's parameters after the inputs; defaults fill the gaps."""
    parameters = list(inspect.signature(variant.function.fn).parameters.values())
    name = variant.function.fn.__name__
    if len(parameters) < len(case.inputs):
        raise CaseError(f"{name} takes {len(parameters)} arguments, but the case has {len(case.inputs)} inputs")
    rest = parameters[len(case.inputs) :]
    unknown = set(variant.constants) - {p.name for p in rest}
    if unknown:
        raise CaseError(f"{name} has no parameter {sorted(unknown)[0]!r} after its {len(case.inputs)} inputs")
    missing = [p.name for p in rest if p.name not in variant.constants and p.default is p.empty]
    if missing:
        raise CaseError(
            f"{name}: no value for {missing[0]!r}; give it in plain(..., constants={{{missing[0]!r}: ...}})"
        )
    return tuple(_by_reference(variant.constants.get(p.name, p.default), portable) for p in rest)


def _kernel(job: Job, variant: KernelVariant) -> Launch:
    FunctionRef.of(variant.function)  # raises for anything but a @triton.jit function, before other errors
    tensors, sizes, scalars = _given_to_kernels(job)
    variant = ruled(variant, {**sizes, **scalars})
    parameters = inspect.signature(variant.function.fn).parameters
    values = {**sizes, **scalars, **variant.meta}
    fixed = {}
    for name, parameter in parameters.items():
        if name in tensors:
            continue
        if name in values:
            fixed[name] = values[name]
        elif parameter.default is not parameter.empty:
            fixed[name] = parameter.default
        else:
            raise CaseError(
                f"{variant.function.fn.__name__}: parameter {name!r} is no input, output or size "
                f"({', '.join((*tensors, *sizes))}); name an input or output of the case "
                "as the kernel names its pointer, or give the value in meta="
            )
    unused = [n for n in tensors if n not in parameters]
    if unused:
        raise CaseError(f"{variant.function.fn.__name__} has no parameter {unused[0]!r}; arguments are passed by name")
    return Launch(
        *_by_side(job.case, tensors),
        grid_of(variant, sizes),
        job.setup,
        function=variant.function,
        names=tuple(parameters),
        fixed=fixed,
        compiler=compiler_of(job.case, variant),
        options=variant.options,
    )


def _given(job: Job, variant: PtxVariant) -> Launch:
    """The launch of a kernel in PTX: its parameters in order, named by tensor where they are tensors."""
    tensors, sizes, scalars = _given_to_kernels(job)
    values = {**sizes, **scalars, **variant.meta}
    names, fixed = [], {}
    for number, parameter in enumerate(variant.parameters):
        if isinstance(parameter, str) and parameter in tensors:
            names.append(parameter)
            continue
        if isinstance(parameter, str) and parameter not in values:
            raise CaseError(
                f"ptx(): parameter {number} is {parameter!r}, which is no input, output or size "
                f"({', '.join((*tensors, *values))}); give its value in meta="
            )
        names.append(f"parameter {number}")
        fixed[names[-1]] = values[parameter] if isinstance(parameter, str) else parameter
    if unused := [n for n in tensors if n not in names]:
        raise CaseError(f"ptx(): parameters= does not name {unused[0]!r}; arguments are passed by name")
    given = GivenPtx(variant.text, variant.entry, variant.block, variant.shared)
    sides = _by_side(job.case, tensors)
    return Launch(*sides, grid_of(variant, sizes), job.setup, names=tuple(names), fixed=fixed, given=given)


def _given_to_kernels(job: Job) -> tuple[dict[str, TensorLayout], dict[str, int], dict[str, Any]]:
    """By name: the tensors, the sizes, and the arguments passed by value."""
    case, setup = job.case, job.setup
    sizes = dict(setup.sizes)
    by_pointer = {n: a for n, a in {**case.inputs, **case.outputs}.items() if not isinstance(a, Scalar)}
    tensors = {n: TensorLayout(n, format_of(a), _shape(a, setup)) for n, a in by_pointer.items()}
    if case.elementwise:
        sizes.setdefault("n", math.prod(setup.shape))
    scalars = {n: _scalar(a.format, job.inputs.get(n)) for n, a in case.inputs.items() if isinstance(a, Scalar)}
    return tensors, sizes, scalars


def _by_side(
    case: Case, tensors: Mapping[str, TensorLayout]
) -> tuple[tuple[TensorLayout, ...], tuple[TensorLayout, ...]]:
    inputs, outputs = (tuple(t for n, t in tensors.items() if n in side) for side in (case.inputs, case.outputs))
    return inputs, outputs


def grid_of(variant: LaunchedVariant, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The grid of a kernel for these sizes. Raises CaseError if a dimension is no whole, non-negative number."""
    if isinstance(variant, KernelVariant):
        variant = ruled(variant, sizes)
    values = {**sizes, **variant.meta}
    grid = variant.grid(values) if callable(variant.grid) else variant.grid
    whole = {n: int(v) for n, v in values.items() if isinstance(v, int)}
    try:
        sizes_of_grid = grid if isinstance(grid, tuple | list) else (grid,)
        return tuple(size_of(g if isinstance(g, str) else operator.index(g), whole) for g in sizes_of_grid)
    except (TypeError, ValueError) as e:
        raise CaseError(f"grid={grid!r} of {_name(variant)}: {e}") from None


def _name(variant: LaunchedVariant) -> str:
    return str(variant.function.fn.__name__) if isinstance(variant, KernelVariant) else "ptx()"


def _shape(argument: Argument, setup: Setup) -> tuple[int, ...]:
    return argument.shape(setup.sizes) if isinstance(argument, Shaped) else setup.shape


def _scalar(fmt: Format, unit: Any) -> int | float:
    """A by-value argument as the Python number for Triton; without inputs, a number that Triton does not specialise."""
    if unit is None:
        return 1.5 if fmt.is_float else 3
    if fmt.is_float:
        return float(unit.view(fmt.view_dtype())[()])
    return int(unit.view(f"i{unit.dtype.itemsize}")[()]) if fmt.kind == "signed" else int(unit[()])
