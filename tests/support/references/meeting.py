"""The rows of the table that compares references with the emulator: an instruction, its reference, and their
formats."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ptxdiff.references.formats import F32, Format, is_nan, ordinal, to_float64

Agree = Callable[[Format, Tensor, Tensor], Tensor]
LETTERS = {8: "r", 16: "h", 32: "r", 64: "l"}


def same_bits(fmt: Format, expected: Tensor, got: Tensor) -> Tensor:
    """Equal codes."""
    return expected == got


def any_nan(fmt: Format, expected: Tensor, got: Tensor) -> Tensor:
    """Equal codes, or two NaNs. For instructions whose NaN bits the ISA leaves open and hardware keeps an operand's
    payload."""
    return (expected == got) | (is_nan(fmt, expected) & is_nan(fmt, got))


def within(bound: int, underflow: bool = False) -> Agree:
    """Equal codes, or finite numbers with the same sign at most `bound` ulp apart: for rounded models of
    approximations.

    underflow: a result within the bound of zero may be zero.
    """

    def agree(fmt: Format, expected: Tensor, got: Tensor) -> Tensor:
        top = fmt.infinity_code or fmt.max_finite
        a, b = ordinal(fmt, expected), ordinal(fmt, got)
        inside = (a.abs() < top) & (b.abs() < top) & ((a * b > 0) | (underflow & (a * b == 0)))
        return (expected == got) | (inside & ((a - b).abs() <= bound))

    return agree


def absolutely(bound: float) -> Agree:
    """Equal codes, two NaNs, or finite numbers at most `bound` apart."""

    def agree(fmt: Format, expected: Tensor, got: Tensor) -> Tensor:
        apart = (to_float64(fmt, expected) - to_float64(fmt, got)).abs()
        return any_nan(fmt, expected, got) | (apart <= bound)

    return agree


@dataclass(frozen=True)
class Row:
    """One instruction, or a few, and the expected results.

    text: asm with the outputs first, as `ptxdiff.emulate` takes it; `form` names the row.
    reference: a function from codes of each input's format to codes of each output's.
    stands_for: the public functions that the row compares with the emulator, by name: "arithmetic.add".
    agree: how results are compared. A row that needs more than equal bits gives the reason beside it.
    on: a function from the inputs' codes to a mask of the inputs that are compared, if not all are.
    """

    form: str
    text: str
    reference: Callable[..., Any]
    inputs: tuple[Format, ...]
    outputs: tuple[Format, ...]
    stands_for: frozenset[str]
    target: str = "sm_90a"
    agree: Agree = same_bits
    on: Callable[..., Tensor] | None = None

    def __str__(self) -> str:
        return self.form


def name_of(function: Callable[..., Any]) -> str:
    """The names of the module and of the function: "arithmetic.add"."""
    while isinstance(function, functools.partial):
        function = function.func
    return f"{function.__module__.removeprefix('ptxdiff.references.')}.{function.__name__}"


def row(
    form: str,
    reference: Callable[..., Any],
    inputs: Iterable[Format],
    output: Format = F32,
    *,
    text: str | None = None,
    also: Iterable[Callable[..., Any]] = (),
    target: str = "sm_90a",
    agree: Agree = same_bits,
    on: Callable[..., Tensor] | None = None,
) -> Row:
    """A row for one instruction with its operands in order; `text` if it needs more than one instruction.

    also: further public functions that the reference uses. If the reference is made here, the row stands for `also`
    alone.
    """
    inputs = tuple(inputs)
    operands = ", ".join(f"${k}" for k in range(len(inputs) + 1))
    functions = [f for f in (reference, *also) if not name_of(f).startswith(("meeting", "tests."))]
    return Row(
        form=form,
        text=text or f"{form} {operands};",
        reference=reference,
        inputs=inputs,
        outputs=(output,),
        stands_for=frozenset(map(name_of, functions)),
        target=target,
        agree=agree,
        on=on,
    )


def product_of(*choices: Iterable[str]) -> list[tuple[str, ...]]:
    """Every combination of modifiers; "" is no modifier."""
    found: list[tuple[str, ...]] = [()]
    for choice in choices:
        found = [(*before, word) for before in found for word in choice]
    return found


def then(first: Callable[..., Tensor], *others: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """A function that applies `first`, and then the others to its result."""

    def composed(*codes: Tensor) -> Tensor:
        result = first(*codes)
        for other in others:
            result = other(result)
        return result

    composed.__module__ = "meeting"
    return composed


def side_by_side(function: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """A function that packs its results for one element of each operand; the first operand's is at the top of the
    unit."""

    def packed(*codes: Tensor) -> Tensor:
        return torch.stack([function(c) for c in reversed(codes)], -1).reshape(-1)

    packed.__module__ = "meeting"
    return packed
