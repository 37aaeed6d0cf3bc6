"""The numbers in the code of a variant, written or built by asm from others: the places where code has special cases.

Of asm and given PTX those in the text; of Triton functions those in the functions, in what they call, and in the
globals that they name. Comments may add numbers, which does no harm: they only become further inputs.
"""

from __future__ import annotations

import itertools
import re
import struct
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ptxdiff.model.case import Case
from ptxdiff.model.derive import asm_form, packs_of
from ptxdiff.model.variants import AsmVariant, CaseError, ComparedPtx, KernelVariant, PlainVariant, PtxVariant, Variant

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


def built_constants_of(case: Case, variant: Variant) -> tuple[int | float, ...]:
    """The distinct numbers that the asm of a variant builds at run time and that meet its inputs.

    Those that `constants_of` has already are left out, and so are their negations and complements. Of Triton functions
    the asm whose text and constraints stand as strings in one function. None of whole kernels in PTX.
    """
    known = {n & mask for n in _as_written(constants_of(variant)) for mask in _MASKS}
    built = (pair for asm, constraints in _blocks(case, variant) for pair in _built(asm, constraints))
    return tuple(dict.fromkeys(n for bits, floats in built if bits not in known for n in (bits, *floats)))


_MASKS = tuple((1 << bits) - 1 for bits in (8, 16, 32, 64))


def _as_written(numbers: Iterable[int | float]) -> Iterator[int]:
    """The bits as which the machine may read numbers of the code: of either sign, complemented, or as floats."""
    for n in numbers:
        if isinstance(n, int):
            yield from (n, -n, ~n)
        else:
            for letters in ("eH", "fI", "dQ"):
                try:
                    bits = struct.unpack(f"<{letters[1]}", struct.pack(f"<{letters[0]}", n))[0]
                except OverflowError:
                    continue
                yield from (bits, bits ^ 1 << 8 * struct.calcsize(letters[1]) - 1)


def _built(asm: str, constraints: str) -> tuple[tuple[int, tuple[float, ...]], ...]:
    from ptxdiff.emulator import built_constants

    return built_constants(asm, constraints)


def _blocks(case: Case, variant: Variant) -> Iterator[tuple[str, str]]:
    """The asm blocks of a variant with their constraints, as far as they can be told without a compiler."""
    if isinstance(variant, AsmVariant):
        for pack in packs_of(case, variant):
            try:
                form = asm_form(case, variant, pack)
            except CaseError:  # the run reports it
                continue
            yield form.text, form.constraints
    elif isinstance(variant, PlainVariant | KernelVariant):
        for function in _functions(variant.function):
            texts = list(dict.fromkeys(_strings(function)))
            constraints = [t for t in texts if _CONSTRAINTS.fullmatch(t)]
            blocks = [t for t in texts if ";" in t and "$" in t]
            yield from itertools.islice(itertools.product(blocks, constraints), _BLOCKS)


_CONSTRAINTS = re.compile(r"\s*=[\w&=+,\s]+")
_BLOCKS = 64
"""Pairs of an asm text and constraints in one Triton function that are tried; those that do not fit give no number."""


def _strings(function: types.FunctionType) -> Iterator[str]:
    """The strings that stand in a function, and in globals that it names."""
    for code in _codes_of(function.__code__):
        named = (function.__globals__.get(name) for name in code.co_names)
        for value in (*code.co_consts, *named):
            value = value.value if type(value).__name__ == "constexpr" else value
            if isinstance(value, str):
                yield value


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
    return any(
        plain.__name__ == _INLINE_ASM or any(_INLINE_ASM in code.co_names for code in _codes_of(plain.__code__))
        for plain in _functions(function, _INLINE_ASM)
    )


def _functions(function: Any, also: str = "") -> Iterator[types.FunctionType]:
    """A Triton function and those that it calls: none of a library, but for one of the name `also`."""
    left, met = [function], set()
    while left:
        value = left.pop()
        plain = getattr(value, "fn", value)
        if also and getattr(plain, "__name__", "") == also:
            yield plain
        if not isinstance(plain, types.FunctionType) or id(plain) in met or _library(plain):
            continue
        met.add(id(plain))
        yield plain
        for code in _codes_of(plain.__code__):
            left += [plain.__globals__[n] for n in code.co_names if n in plain.__globals__]
        left += [c.cell_contents for c in plain.__closure__ or () if _is_filled(c)]


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
