"""Comparisons, class tests and selection on codes: `setp`, `set`, `testp`, `slct`, `selp`.

Results of comparisons are torch bools. Source: PTX ISA 9, comparison and selection instructions; IEEE 754-2019 5.11:
zeros of either sign are equal, and NaN is unordered with everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ptxdiff.references import integers
from ptxdiff.references.formats import F32, I32, Format, is_finite, is_infinity, is_nan, is_subnormal, ordinal, sign
from ptxdiff.references.lazily import torch
from ptxdiff.references.rounding import Ftz, operand

if TYPE_CHECKING:
    from torch import Tensor

_ORDERED: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    # from (less, equal, greater), of which at most one is true; none if the operands are unordered
    "eq": lambda less, equal, greater: equal,
    "ne": lambda less, equal, greater: less | greater,
    "lt": lambda less, equal, greater: less,
    "le": lambda less, equal, greater: less | equal,
    "gt": lambda less, equal, greater: greater,
    "ge": lambda less, equal, greater: greater | equal,
    "num": lambda less, equal, greater: less | equal | greater,
}
# Unsigned integer spellings, and the unordered float comparisons: true for NaN, otherwise like the ordered one.
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_UNORDERED = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}
COMPARISONS = (*_ORDERED, *_UNSIGNED, *_UNORDERED, "nan")


def compare(a: Tensor, b: Tensor, operator: str, *, fmt: Format = F32, ftz: Ftz = False) -> Tensor:
    """`setp.<operator>`: eq ne lt le gt ge, unsigned lo ls hi hs, unordered equ neu ltu leu gtu geu, num nan.

    `ftz=True` compares subnormal operands as zeros. `ValueError` for another operator, or one that the format's kind
    does not have.
    """
    float_only = operator in _UNORDERED or operator in ("num", "nan")
    if operator not in COMPARISONS or (fmt.is_float and operator in _UNSIGNED) or (not fmt.is_float and float_only):
        raise ValueError(f"setp has no comparison {operator!r} for {fmt.name}; known: {', '.join(COMPARISONS)}")
    if not fmt.is_float:
        less, greater = integers.less(fmt, a, b), integers.less(fmt, b, a)
        return _ORDERED[_UNSIGNED.get(operator, operator)](less, ~(less | greater), greater)
    unordered: Tensor = is_nan(fmt, a) | is_nan(fmt, b)
    if operator == "nan":
        return unordered
    place_a, place_b = ordinal(fmt, operand(fmt, a, ftz)), ordinal(fmt, operand(fmt, b, ftz))
    terms = (place_a < place_b, place_a == place_b, place_a > place_b)
    ordered = _ORDERED[_UNORDERED.get(operator, operator)](*(term & ~unordered for term in terms))
    return ordered | unordered if operator in _UNORDERED else ordered


def compare_all(a: Tensor, b: Tensor, *, operators: Sequence[str], fmt: Format = F32, ftz: Ftz = False) -> Tensor:
    """Several comparisons in one code: bit k is the comparison of a and b with `operators[k]`."""
    holds = [compare(a, b, operator, fmt=fmt, ftz=ftz).to(torch.int64) << k for k, operator in enumerate(operators)]
    return torch.stack(holds).sum(0)


def has_property(a: Tensor, name: str, *, fmt: Format = F32) -> Tensor:
    """`testp`: finite, infinite, number, notanumber, normal, subnormal; zeros count as normal (ISA)."""
    table: dict[str, Callable[[Format, Tensor], Tensor]] = {
        "finite": is_finite,
        "infinite": is_infinity,
        "number": lambda f, x: ~is_nan(f, x),
        "notanumber": is_nan,
        "normal": lambda f, x: is_finite(f, x) & ~is_subnormal(f, x),
        "subnormal": is_subnormal,
    }
    if name not in table:
        raise ValueError(f"testp has no property {name!r}; known: {', '.join(table)}")
    return table[name](fmt, a)


def select_by_sign(a: Tensor, b: Tensor, c: Tensor, *, fmt: Format = I32, ftz: Ftz = False) -> Tensor:
    """`slct`: a where c >= 0, else b, bits unchanged; `fmt` is the format of c. -0 selects a, NaN selects b.

    `ftz=True` takes a subnormal c as zero, which selects a; a and b are never flushed.
    """
    if fmt.is_float:
        return torch.where(compare(c, torch.zeros_like(c), "ge", fmt=fmt, ftz=ftz), a, b)
    return torch.where(sign(fmt, c) == 0, a, b)
