"""The numbers in the code of a variant, written or built by asm from others: the places where code has special cases.

Of asm and given PTX those in the text; of Triton functions those in the functions, in what they call, and in the
globals that they name. Comments may add numbers, which does no harm: they only become further inputs.
"""

from __future__ import annotations

import contextlib
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
        numbers += [n for value in given_by(variant).values() for n in _of_value(value, set(), 0)]
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
        for function in _functions(variant):
            texts = list(dict.fromkeys(_strings(function)))
            constraints = [t for t in texts if _CONSTRAINTS.fullmatch(t)]
            blocks = [t for t in texts if ";" in t and "$" in t]
            yield from itertools.islice(itertools.product(blocks, constraints), _BLOCKS)


_CONSTRAINTS = re.compile(r"\s*=[\w&=+,\s]+")
_BLOCKS = 64
"""Pairs of an asm text and constraints in one Triton function that are tried; those that do not fit give no number."""


def _strings(function: Any) -> Iterator[str]:
    """The strings that stand in a function, and in what it names."""
    constants = (constant for code in _codes_of(plain_function(function).__code__) for constant in code.co_consts)
    for value in (*constants, *_named(function)):
        value = value.value if type(value).__name__ == "constexpr" else value
        if isinstance(value, str):
            yield value


def given_by(variant: PlainVariant | KernelVariant) -> Mapping[str, Any]:
    """The compile-time arguments that a variant gives to its function."""
    return variant.constants if isinstance(variant, PlainVariant) else variant.meta


def _functions(variant: PlainVariant | KernelVariant) -> Iterator[Any]:
    """A variant's function, those that it gives to it, and those that they call, as code names them; none of a
    library."""
    left, met = [variant.function, *given_by(variant).values()], set()
    while left:
        function = left.pop()
        plain = plain_function(function)
        if isinstance(plain, types.FunctionType) and id(plain) not in met and not of_a_library(plain):
            met.add(id(plain))
            yield function
            left += _named(function)


def plain_function(value: Any) -> Any:
    """The Python function of a Triton function; any other value is its own."""
    return getattr(value, "fn", value)


def _named(function: Any) -> Iterator[Any]:
    """What the code of a function names, as it is now: globals, what it takes of modules that are no library's,
    closures and defaults."""
    plain = plain_function(function)
    for code in _codes_of(plain.__code__):
        found = [plain.__globals__[name] for name in code.co_names if name in plain.__globals__]
        met: set[int] = set()
        for value in found:  # what is found of modules follows
            yield value
            if isinstance(value, types.ModuleType) and not of_a_library(value) and id(value) not in met:
                met.add(id(value))
                found += [vars(value)[name] for name in code.co_names if name in vars(value)]
    yield from closure_of(plain).values()
    yield from (*(plain.__defaults__ or ()), *(plain.__kwdefaults__ or {}).values())


def _codes_of(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes_of(constant)


def closure_of(function: types.FunctionType) -> dict[str, Any]:
    """The values of a function's closure by name, but for those that have none yet."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):
            found[name] = cell.cell_contents
    return found


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
    elif isinstance(plain_function(value), types.FunctionType) and not of_a_library(plain_function(value)):
        met.add(id(value))
        yield from _of_function(value, met, depth)


def of_a_library(value: Any) -> bool:
    """Whether a function or module belongs to Triton, torch or numpy, whose helpers have special cases by the
    hundred."""
    name = value.__name__ if isinstance(value, types.ModuleType) else value.__module__ or ""
    return name.partition(".")[0] in ("triton", "torch", "numpy")


def _of_function(function: Any, met: set[int], depth: int) -> Iterator[int | float]:
    plain = plain_function(function)
    for code in _codes_of(plain.__code__):
        documentation = code.co_consts[:1] if isinstance(plain.__doc__, str) and code is plain.__code__ else ()
        for constant in code.co_consts:
            if not isinstance(constant, types.CodeType) and constant not in documentation:
                yield from _of_value(constant, met, depth + 1)
    for value in _named(function):
        yield from _of_value(value, met, depth + 1)
