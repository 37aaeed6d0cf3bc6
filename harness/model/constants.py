"""The numbers that stand in the code of a variant: the places where code has special cases.

Of asm and given PTX those in the text; of Triton functions those in the functions, in what they call, and in the
globals that they name. Comments may add numbers, which does no harm: they only become further inputs.
"""

from __future__ import annotations

import re
import struct
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ptxdiff.model.variants import AsmVariant, ComparedPtx, KernelVariant, PlainVariant, PtxVariant, Variant

_NUMBER = re.compile(
    r"(?<![\w.$%<])(?:0[fF](?P<single>[0-9a-fA-F]{8})|0[dD](?P<double>[0-9a-fA-F]{16})|0[xX](?P<hex>[0-9a-fA-F]+)|"
    r"0[bB](?P<binary>[01]+)|(?P<real>\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)|(?P<whole>\d+))U?(?![\w.>])"
)
_WIDEST = 64
_DEPTH = 8
"""Calls deep to which Triton functions are followed."""


def constants_of(variant: Variant) -> tuple[int | float, ...]:
    """The distinct numbers in a variant's code, without zero, in the order in which they occur.

    A float of PTX (`0f3F800000`) gives its bits as an integer and its value as a float.
    """
    numbers: list[int | float] = []
    if isinstance(variant, ComparedPtx):
        numbers += variant.numbers
    elif isinstance(variant, AsmVariant):
        for text in variant.texts.values():
            numbers += _of_text(text.text)
    elif isinstance(variant, PtxVariant):
        numbers += _of_text(variant.text)
    elif isinstance(variant, PlainVariant | KernelVariant):
        given = variant.constants if isinstance(variant, PlainVariant) else variant.meta
        numbers += [n for value in given.values() for n in _of_value(value, set(), 0)]
        numbers += _of_value(variant.function, set(), 0)
    distinct: dict[tuple[type, int | float], int | float] = {}
    for n in numbers:
        if n and (isinstance(n, float) or abs(n) < 1 << _WIDEST):
            distinct.setdefault((type(n), n), n)
    return tuple(distinct.values())


def packs_in_code(variant: Variant, unit_bits: Iterable[int]) -> tuple[int, ...]:
    """How many elements code that is no `asm()` variant may read at once, in ascending order; none if only one.

    Of Triton functions that name `inline_asm_elementwise`, the numbers of the code that can be its `pack=`; of given
    PTX the elements in one load. unit_bits: of each input.
    """
    if isinstance(variant, PtxVariant):
        widths = {int(m["vector"] or 1) * int(m["bits"]) for m in _LOAD.finditer(variant.text)}
        return tuple(sorted({w // bits for w in widths for bits in unit_bits} & set(_PACKS)))
    if isinstance(variant, PlainVariant | KernelVariant) and _names_inline_asm(variant.function):
        return tuple(sorted({n for n in constants_of(variant) if isinstance(n, int)} & set(_PACKS)))
    return ()


_PACKS = (2, 4, 8, 16)
_INLINE_ASM = "inline_asm_elementwise"
_LOAD = re.compile(
    r"\bld(?!\.(?:param|const|shared|local))(?:\.\w+(?:::\w+)*)*?(?:\.v(?P<vector>[248]))?\.[busf](?P<bits>8|16|32|64)\b"
)


def _names_inline_asm(function: Any) -> bool:
    """Whether a Triton function, or one that it calls, names `inline_asm_elementwise`, under whatever name."""
    left, met = [function], set()
    while left:
        value = left.pop()
        plain = getattr(value, "fn", value)
        if getattr(plain, "__name__", "") == _INLINE_ASM:
            return True
        if not isinstance(plain, types.FunctionType) or id(plain) in met or _library(plain):
            continue
        met.add(id(plain))
        for code in _codes_of(plain.__code__):
            if _INLINE_ASM in code.co_names:
                return True
            left += [plain.__globals__[n] for n in code.co_names if n in plain.__globals__]
        left += [c.cell_contents for c in plain.__closure__ or () if _is_filled(c)]
    return False


def _codes_of(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes_of(constant)


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True


def _of_text(text: str) -> Iterator[int | float]:
    for match in _NUMBER.finditer(text):
        kind, digits = match.lastgroup, match[match.lastgroup or 0]
        if kind in ("single", "double"):
            bits = int(digits, 16)
            yield bits
            wide = kind == "double"
            yield struct.unpack("<d" if wide else "<f", struct.pack("<Q" if wide else "<I", bits))[0]
        elif kind == "real":
            yield float(digits)
        else:
            yield int(digits, {"hex": 16, "binary": 2}.get(kind or "", 10))


def _of_value(value: Any, met: set[int], depth: int) -> Iterator[int | float]:
    """The numbers in a value that code names: a number, a text, a sequence of them, or a function."""
    if isinstance(value, bool) or value is None or depth > _DEPTH or id(value) in met:
        return
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, str):
        yield from _of_text(value)
    elif isinstance(value, Mapping):
        yield from _of_value(tuple(value.values()), met, depth + 1)
    elif isinstance(value, tuple | list | frozenset | set):
        for one in value:
            yield from _of_value(one, met, depth + 1)
    elif type(value).__name__ == "constexpr":
        yield from _of_value(value.value, met, depth + 1)
    elif isinstance(function := getattr(value, "fn", value), types.FunctionType) and not _library(function):
        met.add(id(value))
        yield from _of_function(function, met, depth)


def _library(function: types.FunctionType) -> bool:
    """Whether a function belongs to Triton or torch, whose helpers have special cases of their own by the hundred."""
    return function.__module__.partition(".")[0] in ("triton", "torch", "numpy")


def _of_function(function: types.FunctionType, met: set[int], depth: int) -> Iterator[int | float]:
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        text = code.co_consts[:1] if isinstance(function.__doc__, str) and code is function.__code__ else ()
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                codes.append(constant)
            elif constant not in text:
                yield from _of_value(constant, met, depth + 1)
        for name in code.co_names:
            if name in function.__globals__:
                yield from _of_value(function.__globals__[name], met, depth + 1)
    for cell in function.__closure__ or ():
        try:
            yield from _of_value(cell.cell_contents, met, depth + 1)
        except ValueError:  # a cell that is still empty
            continue
    yield from _of_value(function.__defaults__ or (), met, depth + 1)
