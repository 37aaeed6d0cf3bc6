"""Triton kernels for a sweep: tallies of rows, the mask of flagged inputs, and the inputs.

Each kernel's text is generated for one oracle from its graph (`ptxdiff.sweep.fusion`) and compiled by
Triton, whose disk cache serves later processes. Tests compare the kernels with the plain oracle.
"""

from __future__ import annotations

import functools
import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ptxdiff.emulator import PtxError, sharing
from ptxdiff.inputs import InputSet
from ptxdiff.inputs.generated import Counted, CountedTuples, Generator
from ptxdiff.jobs import Job
from ptxdiff.judging.offenders import judged_padding
from ptxdiff.model.compilers import compiler_of
from ptxdiff.model.derive import DerivationError, asm_form, compiled_form
from ptxdiff.model.identity import digest_with_code
from ptxdiff.model.identity.definition import definition
from ptxdiff.model.variants import AsmVariant
from ptxdiff.references.formats import Format
from ptxdiff.sweep.fusion import RANGES, TRACED, Body, NotFused, Slots, Value, within
from ptxdiff.sweep.oracle import NEAR, PLACES, Oracle, numbers
from ptxdiff.sweep.result import ROW
from ptxdiff.triton.elementwise import InlineAsm

BLOCK = 2048
"""Inputs of a row that a program computes at a time. A row has at most 63 times as many, see `_BIN`."""

WARPS = 8

_BIN = 6  # bits of a count of distances; a 32-bit register holds five
MOST_STEPS = (1 << _BIN) - 1
"""The most steps in which a program may compute a row: each step adds at most 1 to each count of distances. With more,
counts overflow into each other."""

_HEAD = """
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def kernel({parameters}, ROW: tl.constexpr, BLOCK: tl.constexpr):
    row = {row}.to(tl.int64)
    base = tl.load(first) + row * ROW
"""


def traced(function: Callable[..., Any], formats: Sequence[Format]) -> Any:
    """The graph of a function of inputs' numbers and storage units. Raises NotFused."""
    from torch.fx.experimental.proxy_tensor import make_fx

    units = [torch.zeros(TRACED, dtype=_dtype(f)) for f in formats]
    try:
        return make_fx(function, tracing_mode="fake")(torch.zeros(TRACED, dtype=torch.int64), *units)
    except Exception as error:
        raise NotFused(f"{type(error).__name__}: {error}") from error


def _dtype(fmt: Format) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, f"int{fmt.unit_bits}")
    return dtype


class RowKernel:
    """A kernel with a program for each row.

    text: its Triton source. tables: constant tensors for look-ups, passed after `first`. block, warps: of a launch.
    Raises ValueError for a block with which counts of distances would overflow.
    """

    def __init__(self, text: str, tables: Sequence[Tensor], block: int = BLOCK, warps: int = WARPS) -> None:
        if ROW // block > MOST_STEPS:
            raise ValueError(
                f"a block of {block} inputs takes {ROW // block} steps for a row; at most {MOST_STEPS} fit"
            )
        self.text, self.tables, self.block, self.warps = text, tables, block, warps
        self.function = _compiled_text(text)
        self._placed: dict[str, list[Tensor]] = {}

    def __call__(self, rows: int, first: Tensor, *tensors: Tensor) -> None:
        """Launch it; tensors: the further arguments in the order of its text."""
        device = str(first.device)
        if device not in self._placed:
            self._placed[device] = [t.to(device) for t in self.tables]
        try:
            self.function[(rows,)](
                first,
                *tensors,
                *self._placed[device],
                ROW=ROW,
                BLOCK=self.block,
                num_warps=self.warps,
                enable_fp_fusion=False,
            )
        except Exception as error:
            if type(error).__module__.startswith("triton"):
                raise NotFused(f"{type(error).__name__}: {error}") from error
            raise


def _compiled_text(text: str) -> Any:
    """The kernel of a source text, which Triton reads through `linecache`."""
    name = f"<sweep {hash(text):x}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": "ptxdiff.sweep.kernels"}
    exec(compile(text, name, "exec"), namespace)
    return namespace["kernel"]


def tally_kernel(oracle: Oracle, number_bits: int, ahead: Sequence[str] = (), chunk: int = 0) -> RowKernel:
    """`Oracle.tally`: (first, table int64 [len(names), rows], the outputs' units). Raises NotFused.

    ahead: inputs whose units it also makes, for the numbers `chunk` further on, in the tensors after the outputs',
    because memory is idle while the judge computes.
    """
    formats = list(oracle.outputs.values())
    makes = []
    for k, name in enumerate(ahead):
        made = _units_body(oracle, name, number_bits, "ahead")
        makes += [*_indented(made.lines), _stored(f"q{k}", made.results[0], oracle.inputs[name].unit_bits)]
    if ahead:
        makes = [f"        ahead = base + {chunk}", *makes]
    pointers = [*_pointers(formats), *(f"q{k}" for k in range(len(ahead)))]
    return _tally(oracle, number_bits, pointers, _loads(formats), makes)


def tally_in_registers(
    oracle: Oracle, number_bits: int, asm: InlineAsm, *, block: int = BLOCK, warps: int | None = None
) -> RowKernel:
    """A kernel that makes the inputs of each row, runs the asm on them, and tallies the results: (first, table).

    Nothing but the tally is in memory. Each invocation gets the elements of one thread, which are no neighbours.
    warps: None for the most, up to 16, that leave a thread the elements of an invocation: with fewer elements a thread
    keeps fewer values in registers, and more warps run at a time. Raises NotFused.
    """
    warps = warps or max(WARPS, min(2 * WARPS, block // (32 * asm.pack)))
    if asm.pack * 32 * warps > block:
        raise NotFused(f"a thread has fewer elements than the {asm.pack} of an invocation")
    lines, given = [], []
    for k, (name, fmt) in enumerate(oracle.inputs.items()):
        made = _units_body(oracle, name, number_bits, "base")
        unit = f"tl.broadcast_to({made.results[0].text}, [BLOCK]).to(tl.int{fmt.unit_bits})"
        lines += [*_indented(made.lines), f"        x{k} = {unit}.to({_triton_type(fmt)}, bitcast=True)"]
        given.append(f"x{k}")
    formats = list(oracle.outputs.values())
    types = "".join(f"{_triton_type(f)}, " for f in formats)
    lines.append(f"        ys = tl.inline_asm_elementwise({asm.text!r}, {asm.constraints!r}, [{', '.join(given)}], "
                 f"dtype=({types}), is_pure={asm.is_pure}, pack={asm.pack})")  # fmt: skip
    lines += [
        f"        u{k} = ys[{k}].to(tl.int{f.unit_bits}, bitcast=True){_widened(f)}" for k, f in enumerate(formats)
    ]
    return _tally(oracle, number_bits, [], lines, [], block, warps)


def _triton_type(fmt: Format) -> str:
    short = fmt.element_type
    for prefix, name in (("fp", "float"), ("bf", "bfloat"), ("u", "uint"), ("i", "int")):
        if short.startswith(prefix):
            return f"tl.{name}{short.removeprefix(prefix)}"
    raise NotFused(f"elements of type {short}")


def _tally(
    oracle: Oracle, number_bits: int, pointers: Sequence[str], results: Sequence[str], makes: Sequence[str],
    block: int = BLOCK, warps: int = WARPS,
) -> RowKernel:  # fmt: skip
    """A kernel that tallies results. pointers: its tensors besides `first` and the table. results: lines that give the
    outputs' units their names `u0`, `u1`, ... makes: further lines of a step.
    """
    _require_single(oracle)
    body = _body(oracle.point, list(oracle.outputs.values()), number_bits)
    flagged, digest, *rest = body.results
    pairs = rest[len(oracle.open_outputs) :]
    tails: list[_Count | _Sum | _Distances | _Equal] = [_Count(flagged), _Sum(digest)]
    tails += [_Count(unchecked) for unchecked in rest[: len(oracle.open_outputs)]]
    for name, keep, steps in zip(oracle.floats, pairs[::2], pairs[1::2], strict=True):
        tails.append(_Equal(keep) if oracle.always_equal else _Distances(keep, steps, oracle.always_near(name)))
    lines = ["    rows = tl.num_programs(0)"]
    column = 0
    before, inside, after = [], [], []
    for k, tail in enumerate(tails):
        before += tail.before(k)
        inside += tail.inside(k)
        for text in tail.columns(k):
            after.append(f"    tl.store(table + {column} * rows + row, ({text}).to(tl.int64))")
            column += 1
    text = "\n".join([*lines, *before, _LOOP, *results, *_indented(body.lines), *inside, *makes, *after])
    return RowKernel(_head(pointers, body) + text + "\n", body.tables, block, warps)


_LOOP = "    for step in range(0, ROW, BLOCK):\n        off = step + tl.arange(0, BLOCK)"


def _require_single(oracle: Oracle) -> None:
    if any(f.codes_per_unit > 1 for f in oracle.outputs.values()) and not oracle.always_equal:
        raise NotFused("distances of packed outputs")


def histogram_kernel(oracle: Oracle, number_bits: int) -> RowKernel:
    """`Oracle.places`, counted: (first, table int32 [programs, floats, PLACES], the outputs' units, rows int64).

    rows: the row of each program. Raises NotFused.
    """
    _require_single(oracle)
    formats = list(oracle.outputs.values())
    body = _body(oracle.places, formats, number_bits)
    before = [f"    h{k} = tl.zeros([{PLACES}], tl.int32)" for k in range(len(body.results))]
    inside, after = [], []
    for k, bin_index in enumerate(body.results):
        inside.append(f"        h{k} += tl.histogram(tl.broadcast_to({bin_index.as_('int32')}, [BLOCK]), {PLACES})")
        table = f"table + (tl.program_id(0) * {len(body.results)} + {k}) * {PLACES}"
        after.append(f"    tl.store({table} + tl.arange(0, {PLACES}), h{k})")
    head = _head([*_pointers(formats), "rows"], body, row="tl.load(rows + tl.program_id(0))")
    text = "\n".join([*before, _LOOP, *_loads(formats), *_indented(body.lines), *inside, *after])
    return RowKernel(head + text + "\n", body.tables)


def mask_kernel(oracle: Oracle, number_bits: int) -> RowKernel:
    """`Oracle.mask`: (first, mask int8, the outputs' units). Raises NotFused."""
    formats = list(oracle.outputs.values())

    def flagged(number: Tensor, *units: Tensor) -> list[Tensor]:
        return [oracle.point(number, *units)[0]]

    return _pointwise(_body(flagged, formats, number_bits), formats, 8)


def fill_kernel(oracle: Oracle, name: str, number_bits: int) -> RowKernel:
    """The units of one input: (first, units). Raises NotFused."""
    return _pointwise(_units_body(oracle, name, number_bits, "base"), [], oracle.inputs[name].unit_bits)


def _units_body(oracle: Oracle, name: str, number_bits: int, base: str) -> Body:
    def units(number: Tensor) -> list[Tensor]:
        return [oracle.generator.units(name, number)]

    return Body(traced(units, []), [None], number_bits, base=base)


def _pointwise(body: Body, formats: Sequence[Format], bits: int) -> RowKernel:
    (result,) = body.results
    lines = [_LOOP, *_loads(formats), *_indented(body.lines), _stored("table", result, bits)]
    return RowKernel(_head(_pointers(formats), body) + "\n".join(lines) + "\n", body.tables)


def _stored(pointer: str, value: Value, bits: int) -> str:
    return f"        tl.store({pointer} + row * ROW + off, tl.broadcast_to({value.text}, [BLOCK]).to(tl.int{bits}))"


def _pointers(formats: Sequence[Format]) -> list[str]:
    return [f"p{k}" for k in range(len(formats))]


def _head(pointers: Sequence[str], body: Body, *, row: str = "tl.program_id(0)") -> str:
    tables = (f"t{k}" for k in range(len(body.tables)))
    return _HEAD.format(parameters=", ".join(["first", "table", *pointers, *tables]), row=row)


def _body(function: Callable[..., Any], formats: Sequence[Format], number_bits: int) -> Body:
    units = [Value(f"u{k}", "int", RANGES[f"int{f.unit_bits}"]) for k, f in enumerate(formats)]
    return Body(traced(function, formats), [None, *units], number_bits)


def _loads(formats: Sequence[Format]) -> list[str]:
    return [f"        u{k} = tl.load(p{k} + row * ROW + off){_widened(f)}" for k, f in enumerate(formats)]


def _widened(fmt: Format) -> str:
    return ".to(tl.int32)" if fmt.unit_bits < 32 else ""


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"        {line}" for line in lines]


class _Count:
    """Counts how often a condition holds in a row, for each code of a storage unit."""

    def __init__(self, value: Any) -> None:
        self.values: Sequence[Value] = value if isinstance(value, Slots) else (value,)

    def before(self, k: int) -> list[str]:
        return [f"    a{k} = tl.zeros([BLOCK], tl.int32)"]

    def inside(self, k: int) -> list[str]:
        return [f"        a{k} += ({value.text}).to(tl.int32)" for value in self.values]

    def columns(self, k: int) -> list[str]:
        return [f"tl.sum(a{k}, 0)"]


class _Equal(_Count):
    """Counts finite pairs of an output whose distances are all 0."""

    def columns(self, k: int) -> list[str]:
        return [*super().columns(k), *["row * 0"] * (2 + len(NEAR))]


class _Sum:
    """Sums hashes, modulo 2^64."""

    def __init__(self, value: Value) -> None:
        self.value = value

    def before(self, k: int) -> list[str]:
        return [f"    a{k} = tl.zeros([BLOCK], tl.int64)"]

    def inside(self, k: int) -> list[str]:
        return [f"        a{k} += {self.value.as_('int64')}"]

    def columns(self, k: int) -> list[str]:
        return [f"tl.sum(a{k}, 0)"]


class _Distances:
    """Counts finite pairs, the extremes of their distances, and the small distances, with five counts in one register.

    The counts are valid only for a row without larger distances; those of other rows are not used (`Near.far`).
    always_near: whether no row has larger distances, so that the counts give the extremes.
    """

    def __init__(self, keep: Value, steps: Value, always_near: bool) -> None:
        self.keep, self.steps, self.always_near = keep, steps, always_near
        self.kind = "int32" if within(steps.bounds, RANGES["int32"]) else "int64"

    def before(self, k: int) -> list[str]:
        kinds = {"bins": "int32"} if self.always_near else {"bins": "int32", "low": self.kind, "high": self.kind}
        return [f"    {name}{k} = tl.zeros([BLOCK], tl.{kind})" for name, kind in kinds.items()]

    def inside(self, k: int) -> list[str]:
        steps = self.steps.as_(self.kind)
        # What is not kept is added above the fifth count, in the two bits that are left, and what overflows is lost.
        lines = [
            f"        near{k} = tl.where({self.keep.text}, {steps}, {NEAR[-1] + 1})",
            f"        place{k} = ((near{k} + {-NEAR[0]}) * {_BIN}{'' if self.always_near else ' & 31'}).to(tl.int32)",
            f"        bins{k} += tl.full((), 1, tl.int32) << place{k}",
        ]
        if self.always_near:
            return lines
        return [
            *lines, f"        low{k} = tl.minimum(low{k}, {steps})", f"        high{k} = tl.maximum(high{k}, {steps})",
        ]  # fmt: skip

    def columns(self, k: int) -> list[str]:
        def count(distance: int) -> str:
            return f"tl.sum((bins{k} >> {(distance - NEAR[0]) * _BIN}) & {(1 << _BIN) - 1}, 0)"

        def extreme(distances: Sequence[int]) -> str:
            """The first of the distances that occurs, else 0."""
            first, *rest = distances
            return f"tl.where({count(first)} > 0, {first}, {extreme(rest) if rest else 0})"

        low, high = f"tl.min(low{k}, 0)", f"tl.max(high{k}, 0)"
        if self.always_near:
            low, high = extreme(range(NEAR[0], 0)), extreme(range(NEAR[-1], 0, -1))
        finite = " + ".join(count(d) for d in range(NEAR[0], NEAR[-1] + 1))
        return [finite, low, high, *(count(d) for d in NEAR)]


# ---- Functions for `ptxdiff.sweep.device` ------------------------------------------------------------------------


def tally_of(oracle: Oracle, ahead: Sequence[str] = (), chunk: int = 0) -> Callable[..., Tensor]:
    """`Oracle.tally` as a kernel; its last arguments are the units of inputs to make ahead. Raises NotFused."""
    kernel, columns = tally_kernel(oracle, number_bits(oracle), ahead, chunk), len(oracle.names)

    def tally(first: Tensor, *units: Tensor) -> Tensor:
        rows = units[0].numel() // ROW
        table = torch.empty((columns, rows), dtype=torch.int64, device=first.device)
        kernel(rows, first, table, *units)
        return table

    return tally


def histogram_of(oracle: Oracle) -> Callable[..., Tensor]:
    """`Tools.histogram` as a kernel. Raises NotFused."""
    kernel, floats = histogram_kernel(oracle, number_bits(oracle)), len(oracle.floats)

    def histogram(first: Tensor, rows: Tensor, *units: Tensor) -> Tensor:
        table = torch.empty((rows.numel(), floats, PLACES), dtype=torch.int32, device=first.device)
        kernel(rows.numel(), first, table, *units, rows)
        return table.sum(0, dtype=torch.int64)

    return histogram


def mask_of(oracle: Oracle) -> Callable[..., Tensor]:
    """`Oracle.mask` as a kernel. Raises NotFused."""
    kernel = mask_kernel(oracle, number_bits(oracle))

    def mask(first: Tensor, *units: Tensor) -> Tensor:
        failing = torch.empty(units[0].numel(), dtype=torch.int8, device=first.device)
        kernel(units[0].numel() // ROW, first, failing, *units)
        return failing.view(torch.bool)

    return mask


def fill_of(oracle: Oracle, name: str) -> Callable[[Tensor, Tensor], None]:
    """A kernel that makes an input. Raises NotFused."""
    kernel = fill_kernel(oracle, name, number_bits(oracle))

    def fill(first: Tensor, units: Tensor) -> None:
        kernel(units.numel() // ROW, first, units)

    return fill


def number_bits(oracle: Oracle) -> int:
    """Bits of the highest number of an oracle's inputs."""
    if isinstance(oracle.generator, Counted):
        return sum(f.unit_bits for f in oracle.inputs.values())
    return 62


# The functions of an oracle for a sweep: as kernels, or as plain torch ---------------------------------------------


@dataclass(frozen=True)
class Tools:
    """tally, mask: as in `Oracle`, functions of the number of a chunk's first input and its outputs. fill: makes an
    input. histogram: `Oracle.histogram`, a function of the number, some rows of the chunk, and its outputs.

    tally_ahead: takes names of inputs and returns a tally that also makes them for the next chunk; None if there is
    none.
    """

    tally: Callable[..., Tensor]
    mask: Callable[..., Tensor]
    fill: Mapping[str, Callable[[Tensor, Tensor], Any]]
    histogram: Callable[..., Tensor]
    tally_ahead: Callable[[tuple[str, ...]], Callable[..., Tensor] | None] = lambda _: None


def _filler(generator: Generator, name: str) -> Callable[[Tensor, Tensor], Any]:
    def fill(first: Tensor, units: Tensor) -> None:
        units.copy_(generator.units(name, numbers(first, units)).to(units.dtype))

    return fill


def plain_tools(oracle: Oracle) -> Tools:
    """The oracle's functions as plain torch, for a CPU."""
    fill = {n: _filler(oracle.generator, n) for n in oracle.inputs}
    return Tools(oracle.tally, oracle.mask, fill, oracle.histogram)


_kept: dict[tuple[Any, ...], Tools] = {}


def tools_of(oracle: Oracle, job: Job, chunk: int, device: str) -> Tools:
    """The kernels, cached for other variants and packs with the same judge; on a GPU calls may raise NotFused."""
    judged_by = definition(job.case, job.variant, exact=True)
    parts = tuple(judged_by[name] for name in ("reference", "policy", "meets", "formats"))
    key = (parts, digest_with_code(oracle.generator, exact=True), chunk, device)
    if key not in _kept:
        plain = plain_tools(oracle)
        _kept[key] = Tools(
            _fused(lambda: tally_of(oracle), plain.tally),
            _fused(lambda: mask_of(oracle), plain.mask),
            {n: _fused(functools.partial(fill_of, oracle, n), f) for n, f in plain.fill.items()},
            _fused(lambda: histogram_of(oracle), plain.histogram),
            _ahead(oracle, chunk, device),
        )
    return _kept[key]


def _ahead(oracle: Oracle, chunk: int, device: str) -> Callable[[tuple[str, ...]], Callable[..., Tensor] | None]:
    @functools.cache
    def made(names: tuple[str, ...]) -> Callable[..., Tensor] | None:
        if not device.startswith("cuda") or not isinstance(oracle.generator, Counted):
            return None
        try:
            return tally_of(oracle, names, chunk)
        except NotFused:
            return None

    return made


def _fused(make: Callable[[], Callable[..., Any]], plain: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that is made at its first call on a GPU; the call raises NotFused if none can be made."""
    made: list[Callable[..., Any]] = []

    def call(*tensors: Tensor) -> Any:
        if not made:
            made.append(make() if tensors[0].device.type == "cuda" else plain)
        return made[0](*tensors)

    return call


# ---- A sweep's first pass without memory: one kernel makes the inputs, runs the asm, and tallies its results ---------
#
# It is another kernel than the variant's, so it serves only asm whose results are the same in every kernel, and the
# variant's own kernel runs on a part of the inputs, where both must give the same tallies (`OWN`).

OWN = 32
"""Of so many chunks one runs as the variant's own kernel, beside those with special values.

With chunks of 2^23 inputs and a float32 input each has one sign and exponent, so 19 of 512 compare both kernels in as
many places as 19 of 256 did, with half as many inputs.
"""


def own_chunks(chunks: int) -> list[int]:
    """The chunks that run as the variant's own kernel.

    In sets that count, zeros, subnormals, infinities and NaNs lie at both ends and on both sides of the middle.
    """
    ends = {0, chunks // 2 - 1, chunks // 2, chunks - 1}
    spread = (k + k // OWN * 5 % OWN for k in range(0, chunks, OWN))
    return sorted({k for k in (*ends, *spread) if 0 <= k < chunks})


def asm_in_registers(job: Job, inputs: InputSet) -> InlineAsm | None:
    """The asm of a job, if its results cannot depend on the kernel around it; else None.

    They could by registers that an output shares with an input, by special registers, by products and sums that ptxas
    may fuse, by another assembler or Triton build, and in a loop. Of inputs in which neighbours belong together, such
    as words of packs, the kernel would make other ones.
    """
    variant, setup = job.variant, job.setup
    if not isinstance(variant, AsmVariant) or isinstance(inputs.generator, CountedTuples) or inputs.group > 1:
        return None
    if setup.context != "straight" or setup.fusion or setup.assembler is not None:
        return None
    if compiler_of(job.case, variant) or judged_padding(job.case):
        return None
    try:
        form = asm_form(job.case, variant, setup.pack)
        if "%" in form.text or sharing(form.text, form.constraints).hazards:
            return None
        form = compiled_form(job.case, form)
    except (DerivationError, PtxError):
        return None
    return InlineAsm(form.text, form.constraints, form.pack)


def sweep_in_registers(asm: InlineAsm, oracle: Oracle) -> Callable[[Tensor, int], Tensor]:
    """A function of the number of the first input and of a number of rows. It returns `Oracle.tally` of these rows.

    The first call makes the kernel, and raises NotFused if none can be made.
    """

    @functools.cache
    def kernel() -> RowKernel:
        return tally_in_registers(oracle, number_bits(oracle), asm)

    def tallies(first: Tensor, rows: int) -> Tensor:
        table = torch.empty((len(oracle.names), rows), dtype=torch.int64, device=first.device)
        kernel()(rows, first, table)
        return table

    return tallies


def rows_of(chunks: Sequence[int], size: int) -> Tensor:
    """The numbers of the rows of some chunks of `size` inputs each: int64."""
    each = size // ROW
    return torch.cat([torch.arange(k * each, (k + 1) * each) for k in chunks])
