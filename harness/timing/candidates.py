"""The arms of a timing: a case's variants at one size, and the launches beside them, on one set of buffers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ptxdiff.backends import gpu
from ptxdiff.inputs.sets import seed_of
from ptxdiff.jobs import Job, Setup
from ptxdiff.model.arguments import format_of
from ptxdiff.model.assemblers import PtxasChoice
from ptxdiff.model.case import Case
from ptxdiff.model.compilers import compiler_of
from ptxdiff.model.load import LoadedCase
from ptxdiff.records import PYTORCH
from ptxdiff.references.formats import Format, Scalar
from ptxdiff.timing.rounds import COPY, EMPTY, TWIN, Restoring, TimedCall
from ptxdiff.timing.sizes import Size, setup_of
from ptxdiff.triton import templates
from ptxdiff.triton.diagnostics import Refusal, one_line
from ptxdiff.triton.launch import launch_of
from ptxdiff.triton.ptxas import label_of_tool

INPUT_SET = "timing/1"
PERIOD = 1 << 20  # units of an input that are generated; a larger tensor repeats them
BINADES = 8  # floats lie within this many binades of 1, on either side: no instruction takes a slow path there


@dataclass(frozen=True)
class Arms:
    """launches: the arms, by name. setups: of the variants among them. notes: on variants that could not be built.

    ptxas: the assembler of each variant, as records name it.
    """

    launches: Mapping[str, TimedCall]
    setups: Mapping[str, Setup]
    notes: tuple[str, ...]
    ptxas: Mapping[str, str] = field(default_factory=dict)


def arms_of(
    loaded: LoadedCase, target: str, size: Size, variants: Sequence[str] = (), assembler: PtxasChoice | None = None
) -> Arms:
    """A case's arms at a size. variants: those to take; all if none is named. assembler: None for Triton's own.

    Raises ValueError, with the compiler's words, if none can be built here.
    """
    case = loaded.case
    scalars, tensors = inputs_of(case, loaded.name, size)
    launches: dict[str, TimedCall] = {}
    setups: dict[str, Setup] = {}
    notes: list[str] = []
    ptxas: dict[str, str] = {}
    outputs: dict[str, Any] = {}
    for name in variants or case.variants:
        if compiler := compiler_of(case, case.variants[name]):
            notes.append(f"{name}: compiled by {compiler}, whose kernels are not launched here")
            continue
        setup = replace(setup_of(case, case.variants[name], size), assembler=assembler)
        job = Job(case, loaded.name, loaded.path, name, case.variants[name], target, setup, scalars)
        launch = launch_of(job)
        built = launch.build(target)
        if isinstance(built, Refusal):
            notes.append(f"{name}: {built.kind}: {built.words}")
            continue
        if words := gpu.unlaunched(launch, target):
            notes.append(f"{name}: {words}")
            continue
        for t in launch.outputs:
            outputs.setdefault(t.name, _tensor(t.format, t.extent))
        pointers = {t.name: outputs[t.name] if t.name in outputs else tensors[t.name] for t in launch.tensors}
        launches[name] = _restoring(gpu.prepared(job, launch, pointers), case, tensors, outputs)
        setups[name] = setup
        ptxas[name] = label_of_tool(built.compilation.ptxas)
    if not launches:
        raise ValueError("; ".join(notes))
    first = next(iter(launches.values()))
    if case.pytorch is not None and not variants and assembler is None:  # it is not compiled by another ptxas
        try:
            launches[PYTORCH] = _compiled(case, tensors)
            setups[PYTORCH] = replace(setup_of(case, next(iter(case.variants.values())), size), pack=1)
        except Exception as error:  # torch.compile may raise anything; the variants can be timed without it
            notes.append(f"{PYTORCH}: {type(error).__name__}: {one_line(str(error))[:300]}")
    launches |= {TWIN: first, COPY: _copy(size.bytes), EMPTY: lambda: templates.empty[(1,)]()}
    return Arms(launches, setups, tuple(notes), ptxas)


def _restoring(launch: TimedCall, case: Case, before: Mapping[str, Any], changed: Mapping[str, Any]) -> TimedCall:
    """A launch that changes tensors, with a function that restores them; the launch alone if it changes none.

    before, changed: tensors by name. Without this the second launch would quantise the result of the first, and a sum
    would grow from launch to launch until it is infinite.
    """
    if not case.in_place:
        return launch
    pairs = [(changed[name], before[name]) for name in case.in_place]

    def restore() -> None:
        for into, given in pairs:
            into.view(torch.uint8).copy_(given.view(torch.uint8))

    return Restoring(launch, restore)


def inputs_of(case: Case, name: str, size: Size) -> tuple[dict[str, Any], dict[str, Any]]:
    """The by-value scalars as numpy units, and the tensors on the device, by name."""
    rng = np.random.default_rng(seed_of(name, INPUT_SET))
    made: Mapping[str, Any] = {}
    if case.generate is not None:
        made = case.generate(_few(size), rng)
    scalars, tensors = {}, {}
    for n, argument in case.inputs.items():
        fmt = format_of(argument)
        if isinstance(argument, Scalar):
            scalars[n] = np.asarray(made[n]).view(fmt.numpy_dtype()) if n in made else typical(fmt, 1, rng)[0]
            continue
        count = math.prod(argument.shape(size.sizes)) if size.sizes else size.elements  # type: ignore[union-attr]
        units = np.asarray(made[n]).reshape(-1) if n in made else typical(fmt, min(count, PERIOD), rng)
        found = torch.from_numpy(np.ascontiguousarray(units).view(f"i{units.dtype.itemsize}")).to(gpu.DEVICE)
        tensors[n] = found.repeat(-(-count // len(units)))[:count].view(gpu.torch_dtype(fmt))
    return scalars, tensors


def typical(fmt: Format, count: int, rng: np.random.Generator) -> NDArray[Any]:
    """Units as programs use them: floats of ordinary size and either sign, uniform bits for other formats."""
    codes = rng.integers(0, 1 << min(fmt.code_bits, 63), (fmt.codes_per_unit, count), dtype=np.int64)
    if fmt.is_float and fmt.code_bits > 8:
        fraction = fmt.mantissa_bits + fmt.ignored_bits
        near = min(BINADES, fmt.bias - 1)
        exponents = rng.integers(fmt.bias - near, fmt.bias + near, codes.shape, dtype=np.int64)
        codes &= (1 << fraction) - 1
        codes |= exponents << fraction
        if fmt.has_sign:
            codes |= rng.integers(0, 2, codes.shape, dtype=np.int64) << fmt.sign_shift
    units = np.zeros(count, dtype=np.int64)
    for place, column in enumerate(codes):
        units |= column << (place * fmt.slot_bits)
    return units.astype(fmt.numpy_dtype())


def _few(size: Size) -> dict[str, int]:
    """A whole kernel's sizes with a smaller first dimension, so that the largest tensor has about PERIOD units."""
    first = next(iter(size.sizes))
    return {**size.sizes, first: max(1, size.sizes[first] * PERIOD // max(PERIOD, size.elements))}


def _tensor(fmt: Format, extent: int) -> Any:
    return torch.empty(extent * fmt.unit_bits // 8, dtype=torch.uint8, device=gpu.DEVICE).view(gpu.torch_dtype(fmt))


def _copy(size: int) -> TimedCall:
    """A copy that reads and writes `size` bytes in total."""
    source = torch.zeros(max(1, size // 2), dtype=torch.uint8, device=gpu.DEVICE).random_()
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _compiled(case: Case, tensors: Mapping[str, Any]) -> TimedCall:
    """The case's expression in PyTorch after torch.compile, on tensors whose types hold the formats' values."""
    assert case.pytorch is not None
    arguments, copies = [], {}
    for name, argument in case.inputs.items():
        fmt = format_of(argument)
        natural = getattr(torch, fmt.view_dtype().name, None)
        mine = copies[name] = tensors[name].clone()  # it may write to its arguments, which the variants read
        arguments.append(mine.view(natural) if natural is not None else mine)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of the compiler, which pytest may be told to turn into errors
        torch._dynamo.reset()  # it keeps few compilations of one function, and counts torch's own as one
        fused = torch.compile(case.pytorch, fullgraph=True, dynamic=False)
        fused(*arguments)

    def launch() -> Any:
        with torch.no_grad():
            return fused(*arguments)

    return _restoring(launch, case, tensors, copies)
