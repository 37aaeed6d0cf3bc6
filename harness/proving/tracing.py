"""The judge's rules and a case's reference as a graph of torch operations on storage units.

`make_fx` records the operations on tensors without values, so that a reference whose way depends on values is refused.
IEEE operations of `ptxdiff.references.arithmetic` become one operation of the graph each; while a graph is recorded,
those functions have other code, for every holder of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ptxdiff.model.arguments import format_of
from ptxdiff.model.case import Case
from ptxdiff.model.policies import Policies
from ptxdiff.model.reference import ReferenceFault, apply_reference, runs_on_host
from ptxdiff.model.variants import Reference, alternatives
from ptxdiff.proving import summaries
from ptxdiff.proving.terms import NotModelled
from ptxdiff.references import arithmetic, rounding
from ptxdiff.references.codes import as_codes
from ptxdiff.references.formats import F32, Format, unpack
from ptxdiff.sweep.oracle import Oracle

_library: Any = torch.library
_LIBRARY = _library.Library("ptxdiff_proving", "DEF")
_LIBRARY.define("ieee(str operation, int[] format, int rounding, bool ftz, Tensor[] codes) -> Tensor")


def _shape_alone(operation: str, format: list[int], rounding: int, ftz: bool, codes: list[Tensor]) -> Tensor:
    total: Any = sum(codes[1:], codes[0])
    shape = total.shape
    return torch.empty(shape, dtype=torch.int64, device=codes[0].device)


_LIBRARY.impl("ieee", _shape_alone, "CompositeExplicitAutograd")


def ieee(operation: str, codes: Sequence[Any], fmt: Format, mode: str, ftz: Any) -> Any:
    """An operation of `arithmetic` as one of the graph; None if it has no summary."""
    if fmt.ignored_bits or fmt.code_bits != 1 + fmt.exponent_bits + fmt.mantissa_bits:
        return None
    number = summaries.MODES.get(mode, -1)
    flushes = bool(ftz) and operation != "sqrt"
    if not summaries.known(operation, fmt.exponent_bits, fmt.mantissa_bits, number, flushes):
        return None
    tensors = [c if isinstance(c, Tensor) else torch.tensor(c) for c in codes]
    if ftz is True:
        tensors = [rounding.flush_subnormals(fmt, c) for c in tensors]
    return torch.ops.ptxdiff_proving.ieee(operation, [fmt.exponent_bits, fmt.mantissa_bits], number, flushes, tensors)


def original(name: str, *args: Any, **options: Any) -> Any:
    """What a function of `arithmetic` or `rounding` computes by its own code."""
    return _ORIGINALS[name](*args, **options)


# The other code. It runs with the globals of the functions whose code it replaces, so it imports what it needs.


def _add(a: Any, b: Any, *, fmt: Any = F32, rounding: Any = "rn", ftz: Any = False) -> Any:
    from ptxdiff.proving import tracing

    result = tracing.ieee("add", (a, b), fmt, rounding, ftz)
    return result if result is not None else tracing.original("add", a, b, fmt=fmt, rounding=rounding, ftz=ftz)


def _sub(a: Any, b: Any, *, fmt: Any = F32, rounding: Any = "rn", ftz: Any = False) -> Any:
    from ptxdiff.proving import tracing

    result = tracing.ieee("add", (a, b ^ (1 << fmt.sign_shift)), fmt, rounding, ftz)
    return result if result is not None else tracing.original("sub", a, b, fmt=fmt, rounding=rounding, ftz=ftz)


def _mul(a: Any, b: Any, *, fmt: Any = F32, rounding: Any = "rn", ftz: Any = False) -> Any:
    from ptxdiff.proving import tracing

    result = tracing.ieee("mul", (a, b), fmt, rounding, ftz)
    return result if result is not None else tracing.original("mul", a, b, fmt=fmt, rounding=rounding, ftz=ftz)


def _fma(a: Any, b: Any, c: Any, *, fmt: Any = F32, rounding: Any = "rn", ftz: Any = False) -> Any:
    from ptxdiff.proving import tracing

    result = tracing.ieee("fma", (a, b, c), fmt, rounding, ftz)
    return result if result is not None else tracing.original("fma", a, b, c, fmt=fmt, rounding=rounding, ftz=ftz)


def _div(a: Any, b: Any, *, fmt: Any = F32, rounding: Any = "rn", ftz: Any = False) -> Any:
    from ptxdiff.proving import tracing

    result = tracing.ieee("div", (a, b), fmt, rounding, ftz)
    return result if result is not None else tracing.original("div", a, b, fmt=fmt, rounding=rounding, ftz=ftz)


def _sqrt(a: Any, *, fmt: Any = F32, rounding: Any = "rn", ftz: Any = False) -> Any:
    from ptxdiff.proving import tracing

    result = tracing.ieee("sqrt", (a,), fmt, rounding, ftz)
    return result if result is not None else tracing.original("sqrt", a, fmt=fmt, rounding=rounding, ftz=ftz)


def _to_nearest_even(fmt: Any, source: Any, codes: Any) -> Any:
    """Without the sum whose rounding the function uses: by shifts of integers."""
    from ptxdiff.proving import tracing

    wide = codes if source.code_bits == 64 else codes.view(getattr(torch, source.name)).double().view(torch.int64)
    return tracing.original("_by_shifting", fmt, wide, "rn")


_REPLACED: dict[str, tuple[types.FunctionType, Callable[..., Any]]] = {
    "add": (arithmetic.add, _add),  # type: ignore[dict-item]
    "sub": (arithmetic.sub, _sub),  # type: ignore[dict-item]
    "mul": (arithmetic.mul, _mul),  # type: ignore[dict-item]
    "fma": (arithmetic.fma, _fma),  # type: ignore[dict-item]
    "div": (arithmetic.div, _div),  # type: ignore[dict-item]
    "sqrt": (arithmetic.sqrt, _sqrt),  # type: ignore[dict-item]
    "_to_nearest_even": (rounding._to_nearest_even, _to_nearest_even),  # type: ignore[dict-item]
}


def _copied(function: Any) -> Any:
    made = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


_ORIGINALS = {name: _copied(function) for name, (function, _) in _REPLACED.items()}
_ORIGINALS["_by_shifting"] = rounding._by_shifting


@contextlib.contextmanager
def summarised() -> Iterator[None]:
    """Within it, IEEE operations of references are recorded as one operation each."""
    if _without.get():
        yield
        return
    before = {name: function.__code__ for name, (function, _) in _REPLACED.items()}
    for function, other in _REPLACED.values():
        function.__code__ = other.__code__
    try:
        yield
    finally:
        for name, (function, _) in _REPLACED.items():
            function.__code__ = before[name]


_without: ContextVar[bool] = ContextVar("without", default=False)


@contextlib.contextmanager
def without_summaries(without: bool = True) -> Iterator[None]:
    """Within it, IEEE operations of references are recorded as they compute them, because their code is changed."""
    token = _without.set(without)
    try:
        yield
    finally:
        _without.reset(token)


def refusals(case: Case, policy: Policies, count: int) -> Any:
    """The graph of whether each result is refused: a function of the units of `count` inputs, then outputs.

    Raises NotModelled.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    if runs_on_host(policy.reference):
        raise NotModelled("the reference computes with numpy, and so leaves no graph of torch operations")
    for reference in {*alternatives(policy.reference), *(alternatives(case.reference) if policy.meets else ())}:
        _refuse_dependent(case, reference)
    oracle = Oracle(case, policy, None)  # type: ignore[arg-type]
    names = [*oracle.inputs]

    def refused(*units: Tensor) -> Tensor:
        codes = {n: unpack(f, as_codes(u)) for (n, f), u in zip(oracle.inputs.items(), units, strict=False)}
        got = oracle.codes_of_outputs(dict(zip(oracle.outputs, units[len(names) :], strict=True)))
        return oracle.flags(codes, got).flagged

    formats = [*oracle.inputs.values(), *oracle.outputs.values()]
    given = [torch.zeros(count, dtype=dtype_of(f)) for f in formats]
    graph = _recorded(make_fx, refused, given)
    if oracle.domains != {m.on for m in policy.match.values() if m.on is not None}:
        graph.meta["whole"] = False
    return graph


INPUTS = 257


def _refuse_dependent(case: Case, reference: Reference) -> None:
    """Raise NotModelled if a reference gives an input alone, or a second time, another result than among others.

    A graph is recorded for a few inputs, and must hold for any number of them, in any place.
    """
    codes = _some_codes(case)
    per = {n: format_of(a).codes_per_unit for n, a in (*case.inputs.items(), *case.outputs.items())}
    count = min(len(c) // per[n] for n, c in codes.items())
    if count < 2:
        return  # no input of the domain is among those that are tried
    reason = "a reference that gives an input alone another result than among others"
    try:
        whole, again = (apply_reference(case, reference, codes) for _ in range(2))
        for k in (0, 1, count // 2, count - 1):
            alone = apply_reference(case, reference, {n: c[k * per[n] : (k + 1) * per[n]] for n, c in codes.items()})
            for name, codes_alone in alone.items():
                among = (w[name].reshape(-1)[k * per[name] : (k + 1) * per[name]] for w in (whole, again))
                if not all(np.array_equal(codes_alone.reshape(-1), a) for a in among):
                    raise NotModelled(reason)
    except ReferenceFault as error:
        raise NotModelled(f"a reference that refuses an input of the domain ({str(error)[:200]})") from error


def _some_codes(case: Case) -> dict[str, Any]:
    """Random codes of the inputs, within the case's domain if it can be evaluated."""
    from ptxdiff.sweep.oracle import float_values

    random = np.random.default_rng(31)
    formats = {n: format_of(a) for n, a in case.inputs.items()}
    codes = {}
    for name, fmt in formats.items():
        bits = random.integers(-(1 << 63), (1 << 63) - 1, INPUTS * fmt.codes_per_unit, np.int64)
        codes[name] = bits & fmt.code_mask if fmt.code_bits < 64 else bits
    if case.domain is None or any(f.codes_per_unit > 1 for f in formats.values()):
        return codes
    held = case.domain.holds({n: float_values(formats[n], torch.from_numpy(c)).numpy() for n, c in codes.items()})
    return {n: c[held] for n, c in codes.items()}


def answers(case: Case, reference: Reference, flushing: bool) -> Any:
    """The graph of the codes of all outputs that a reference gives for one storage unit of each input.

    Raises NotModelled.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    if runs_on_host(reference):
        raise NotModelled("the reference computes with numpy, and so leaves no graph of torch operations")
    _refuse_dependent(case, reference)
    formats = formats_of(case.inputs)

    def codes_of(*units: Tensor) -> Tensor:
        given = [unpack(f, as_codes(u)) for f, u in zip(formats.values(), units, strict=True)]
        answer = reference(*given, **({"ftz": "results"} if flushing else {}))
        parts = answer if isinstance(answer, tuple | list) else (answer,)
        if len(parts) != len(case.outputs) or any(p.dtype != torch.int64 for p in parts):
            raise NotModelled("a reference that does not return codes")
        return torch.stack([p.reshape(-1)[k] for p in parts for k in range(p.numel())])

    return _recorded(make_fx, codes_of, [torch.zeros(1, dtype=dtype_of(f)) for f in formats.values()])


def formats_of(arguments: Mapping[str, Any]) -> dict[str, Format]:
    """The formats of a case's inputs or outputs, by name."""
    return {n: format_of(a) for n, a in arguments.items()}


def domain(case: Case, count: int) -> Any:
    """The graph of whether each input lies in the case's domain; None if all inputs are meant. Raises NotModelled."""
    from torch.fx.experimental.proxy_tensor import make_fx

    from ptxdiff.sweep.oracle import float_values, in_kernel, traceable

    if case.domain is None:
        return None
    held = case.domain
    formats = {n: format_of(a) for n, a in case.inputs.items()}
    if any(f.codes_per_unit > 1 for f in formats.values()) or not traceable(held, formats):
        raise NotModelled(f"the domain {held.text!r}, which torch's operators cannot evaluate")

    def inside(*units: Tensor) -> Tensor:
        values = {n: float_values(f, unpack(f, as_codes(u))) for (n, f), u in zip(formats.items(), units, strict=True)}
        return in_kernel(held, values)

    return _recorded(make_fx, inside, [torch.zeros(count, dtype=dtype_of(f)) for f in formats.values()])


def dtype_of(fmt: Format) -> torch.dtype:
    """The integer type of a format's storage unit."""
    dtype: torch.dtype = getattr(torch, f"int{max(fmt.unit_bits, 8)}")
    return dtype


def _recorded(make_fx: Any, function: Callable[..., Tensor], given: Sequence[Tensor]) -> Any:
    try:
        with summarised():
            graph = make_fx(function, tracing_mode="fake")(*given)
    except NotModelled:
        raise
    except Exception as error:
        message = " ".join(str(error).split())[:200]
        raise NotModelled(f"the reference cannot be traced ({type(error).__name__}: {message})") from error
    graph.graph.eliminate_dead_code()
    return graph


def digest_of(graph: Any) -> str:
    """A digest of a graph of torch operations and its constant tensors."""
    parts = [graph.code.encode()]
    for name, value in sorted(graph.__dict__.items()):
        if name.startswith(("_tensor_constant", "_param_constant")):
            parts.append(repr((name, value.dtype, value.tolist())).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()
