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
from ptxdiff.jobs import FILLING_BLOCK, Job, Setup, block_of
from ptxdiff.model.arguments import format_of
from ptxdiff.model.case import Case
from ptxdiff.model.compilers import PtxasChoice, compiler_of
from ptxdiff.model.derive import packs_of
from ptxdiff.model.load import LoadedCase
from ptxdiff.model.variants import AsmVariant, LaunchedVariant, Variant
from ptxdiff.records import PYTORCH
from ptxdiff.references.formats import Format, Scalar, Shaped
from ptxdiff.timing.rounds import COPY, EMPTY, TWIN, Restoring, TimedCall
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
        if reason := gpu.unlaunched(launch, target):
            notes.append(f"{name}: {reason}")
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
    rng = np.random.default_rng(seed_of(INPUT_SET))
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
        patterns = torch.from_numpy(np.ascontiguousarray(units).view(f"i{units.dtype.itemsize}")).to(gpu.DEVICE)
        tensors[n] = patterns.repeat(-(-count // len(units)))[:count].view(gpu.torch_dtype(fmt))
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
    for slot, column in enumerate(codes):
        units |= column << (slot * fmt.slot_bits)
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


# The sizes at which a case is timed, from the device's L2 ----------------------------------------------------------
#
# Small, as large as the L2, and several times larger.

SMALL = 1 << 16  # elements
TIMES_L2 = 4  # tensors of this many times the L2 leave none of their own lines in it


@dataclass(frozen=True)
class Size:
    """One size. name: "small", "L2", "large", or "" for one that was asked for.

    elements: storage units of the elementwise shape, or of a whole kernel's largest tensor; bytes: all inputs read
    once and all outputs written once. sizes: for whole kernels, the value of each dimension's name.
    """

    name: str
    elements: int
    bytes: int
    sizes: Mapping[str, int] = field(default_factory=dict)


def sizes_of(case: Case, l2: int) -> list[Size]:
    """The three sizes: 2^16 elements; the largest power of two that fits into the L2; the smallest of 4 times the L2.

    For a whole kernel, the first dimension of its largest `sizes` grows by powers of two; the others stay as the case
    has them. l2: bytes.
    """
    if not case.elementwise:
        return _kernel_sizes(case, l2)
    unit = unit_bytes(case)
    within = 1 << max(0, (l2 // unit).bit_length() - 1)
    beyond = 1 << max(0, -(-TIMES_L2 * l2 // unit) - 1).bit_length()
    return [Size("small", SMALL, SMALL * unit), Size("L2", within, within * unit), Size("large", beyond, beyond * unit)]


def sized(case: Case, elements: int) -> Size:
    """The size with this many elements, or the next above it that a whole kernel's first dimension allows."""
    if case.elementwise:
        return Size("", elements, elements * unit_bytes(case))
    return next(s for s in _grown(case) if s.elements >= elements)


def _kernel_sizes(case: Case, l2: int) -> list[Size]:
    grown = list(_grown(case, TIMES_L2 * l2))
    within = [s for s in grown if s.bytes <= l2] or grown[:1]
    small = next((s for s in grown if s.elements >= SMALL), grown[-1])
    chosen = {"small": small, "L2": within[-1], "large": grown[-1]}
    return [Size(name, s.elements, s.bytes, s.sizes) for name, s in chosen.items()]


def _grown(case: Case, limit: int = 1 << 40) -> list[Size]:
    """The case's largest size, and larger ones with its first dimension doubled, up to `limit` bytes."""
    largest = max(case.sizes, key=lambda sizes: _measured(case, sizes)[1])
    first = next(iter(largest))
    sizes_grown: list[Size] = []
    rows = 1 << max(0, largest[first] - 1).bit_length()
    while not sizes_grown or (sizes_grown[-1].bytes < limit and sizes_grown[-1].elements < 1 << 30):
        sizes = {**largest, first: rows << len(sizes_grown)}
        sizes_grown.append(Size("", *_measured(case, sizes), sizes))
    return sizes_grown


def _measured(case: Case, sizes: Mapping[str, int]) -> tuple[int, int]:
    """The units of the largest tensor, and the bytes of all."""
    tensors = [a for a in (*case.inputs.values(), *case.outputs.values()) if isinstance(a, Shaped)]
    units = [math.prod(a.shape(sizes)) for a in tensors]
    return max(units), sum(n * format_of(a).unit_bits // 8 for n, a in zip(units, tensors, strict=True))


def unit_bytes(case: Case) -> int:
    """Bytes of one element over all inputs and outputs of an elementwise case."""
    return sum(format_of(a).unit_bits // 8 for a in (*case.inputs.values(), *case.outputs.values()))


def setup_of(case: Case, variant: Variant, size: Size) -> Setup:
    """How a variant is launched for timing: its largest pack, blocks of 1024 elements, aligned pointers."""
    if isinstance(variant, LaunchedVariant):
        shape = () if size.sizes else (size.elements,)
        return Setup(shape=shape, sizes=size.sizes, num_warps=variant.num_warps, fusion=bool(variant.fusion))
    pack = max(packs_of(case, variant)) if isinstance(variant, AsmVariant) else 1
    return Setup(
        pack=pack, shape=(size.elements,), block=max(FILLING_BLOCK, block_of(pack)), fusion=bool(variant.fusion)
    )
