"""Rows of the table in which the two definitions meet: an instruction, the reference of it, and their formats."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from references.formats import F32, Format, is_nan, ordinal, to_float64

Agree = Callable[[Format, Tensor, Tensor], Tensor]
LETTERS = {8: "r", 16: "h", 32: "r", 64: "l"}


def same_bits(fmt: Format, expected: Tensor, got: Tensor) -> Tensor:
    """Equal codes."""
    return expected == got


def any_nan(fmt: Format, expected: Tensor, got: Tensor) -> Tensor:
    """Equal codes, or two NaNs: where the ISA leaves NaN's bits open, and hardware keeps an operand's payload."""
    return (expected == got) | (is_nan(fmt, expected) & is_nan(fmt, got))


def within(bound: int, underflow: bool = False) -> Agree:
    """Equal codes, or finite numbers of one sign at most `bound` ulp apart: a rounded model of an approximation.

    underflow: what is within the bound of zero may be zero.
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
    """One instruction, or a few, and what they should give.

    text: asm with the outputs first, as `harness.emulate` takes it; `form` names the row.
    reference: codes of each input's format to codes of each output's.
    stands_for: the public functions that the row holds to the emulator, by name: "arithmetic.add".
    agree: how results are compared; anything but equal bits is explained where the row is written.
    on: the inputs' codes to the inputs that are compared, where that is not all.
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
    """The module's and the function's name: "arithmetic.add"."""
    while isinstance(function, functools.partial):
        function = function.func
    return f"{function.__module__.removeprefix('references.')}.{function.__name__}"


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
    """A row for one instruction, its operands in order; `text` where it takes more than that.

    also: further public functions that the reference uses. A reference made here stands for `also` alone.
    """
    inputs = tuple(inputs)
    operands = ", ".join(f"${k}" for k in range(len(inputs) + 1))
    functions = [f for f in (reference, *also) if not name_of(f).startswith("meeting")]
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
    """Every combination of modifiers, "" for none."""
    found: list[tuple[str, ...]] = [()]
    for choice in choices:
        found = [(*before, word) for before in found for word in choice]
    return found


def then(first: Callable[..., Tensor], *others: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """`first`, and the others on its result."""

    def composed(*codes: Tensor) -> Tensor:
        result = first(*codes)
        for other in others:
            result = other(result)
        return result

    composed.__module__ = "meeting"
    return composed


def side_by_side(function: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """Elements given one an operand, packed with the first operand's in the top of the unit."""

    def packed(*codes: Tensor) -> Tensor:
        return torch.stack([function(c) for c in reversed(codes)], -1).reshape(-1)

    packed.__module__ = "meeting"
    return packed
