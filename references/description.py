"""The description of a number format (`Format`), and tensor and scalar arguments of a format."""

from __future__ import annotations

import ast
import functools
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

Dim = int | str


_FLOAT8 = {"e4m3": "fp8e4nv", "e5m2": "fp8e5"}
"""Triton's 8-bit types by format. Only tensors declared with `typed` have them; others are bytes."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """One number format.

    `nan` says which codes are NaN: "ieee" (all-ones exponent, trailing significand not zero), "fn" (every bit
    but the sign is one), or "none". `canonical_nan` is the NaN that PTX instructions generate. `ignored_bits`
    counts low bits of a code that carry no value (tf32). `storage` is the numpy dtype name of one storage
    unit, always an integer type; `codes_per_unit` codes share a unit, the first in its low bits, each in an
    equal slot. `element_type` is the Triton pointee name; formats that Triton cannot load as numbers are passed as raw
    integers. `view` names the numpy dtype whose values the storage unit holds ("module.name"), if there is one.
    """

    name: str
    code_bits: int
    kind: Literal["float", "signed", "unsigned"]
    storage: str
    element_type: str
    exponent_bits: int = 0
    mantissa_bits: int = 0
    bias: int = 0
    signed: bool = True
    infinity: bool = False
    nan: Literal["ieee", "fn", "none"] = "none"
    canonical_nan: int | None = None
    ignored_bits: int = 0
    codes_per_unit: int = 1
    packs: Format | None = None
    view: str | None = None

    def __getitem__(self, dims: Dim | tuple[Dim, ...]) -> Shaped:
        """`BF16["M", "N"]`: a tensor of this format; each dimension counts storage units, `E2M1X2["M",
        "N/2"]`.
        """
        return Shaped(self, dims if isinstance(dims, tuple) else (dims,))

    def __str__(self) -> str:
        return self.name

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """One line for notebooks: "float32: 1 sign, 8 exponent and 23 significand bits, in uint32"."""
        one = self.single
        if one.is_float:
            bits = f"{int(one.has_sign)} sign, {one.exponent_bits} exponent and {one.mantissa_bits} significand bits"
        else:
            bits = f"{one.code_bits} bits, {'with' if one.kind == 'signed' else 'without'} a sign"
        many = f"{self.codes_per_unit} times {one.name}, {bits} each" if self.codes_per_unit > 1 else bits
        printer.text(f"{self.name}: {many}, in {self.storage}")

    @property
    def scalar(self) -> Scalar:
        """A scalar of this format, which is passed to a kernel by value."""
        if self.codes_per_unit > 1:
            raise ValueError(f"{self.name} packs {self.codes_per_unit} codes a unit: a scalar holds one code")
        return Scalar(self)

    @property
    def typed(self) -> Format:
        """`E4M3.typed["N"]`: a tensor of a whole kernel with Triton's own 8-bit type, as torch.float8_e4m3fn has it.

        Without it the kernel gets bytes (`tl.uint8`). Raises ValueError if Triton has no such type.
        """
        if self.name not in _FLOAT8:
            raise ValueError(f"{self.name} has no 8-bit type of Triton's own; {' and '.join(_FLOAT8)} have")
        return replace(self, element_type=_FLOAT8[self.name])

    @property
    def is_float(self) -> bool:
        """Whether codes are floating-point numbers."""
        return self.kind == "float"

    @property
    def code_mask(self) -> int:
        """The bits of one code, as a non-negative integer."""
        return (1 << self.code_bits) - 1

    @property
    def magnitude_mask(self) -> int:
        """The bits of one code below its sign (all bits if there is no sign)."""
        return self.code_mask >> int(self.kind != "unsigned" and self.signed)

    @property
    def sign_shift(self) -> int:
        """The position of the sign bit; the code has no sign if `signed` is false or `kind` is unsigned."""
        return self.code_bits - 1

    @property
    def has_sign(self) -> bool:
        """Whether the top bit of a code is a sign."""
        return self.kind != "unsigned" and self.signed

    @property
    def has_zero(self) -> bool:
        """Whether the format has zero: e8m0 does not, because it has no trailing significand."""
        return not self.is_float or self.mantissa_bits > 0

    @property
    def unit_bits(self) -> int:
        """Bits of a storage unit."""
        return int(self.storage.lstrip("uint"))

    @property
    def slot_bits(self) -> int:
        """Bits that one code takes in a storage unit: e2m3x2 keeps 6-bit codes in bytes, padded with zeros on
        top.
        """
        return self.unit_bits // self.codes_per_unit

    @property
    def infinity_code(self) -> int | None:
        """The code of positive infinity, or None."""
        exponent = ((1 << self.exponent_bits) - 1) << (self.mantissa_bits + self.ignored_bits)
        return exponent if self.infinity else None

    @property
    def max_finite(self) -> int:
        """The code of the largest finite value."""
        if not self.is_float:
            return self.magnitude_mask
        top = self.magnitude_mask >> self.ignored_bits
        if self.infinity or self.nan == "ieee":
            top = (((1 << self.exponent_bits) - 1) << self.mantissa_bits) - 1
        elif self.nan == "fn":
            top -= 1
        return top << self.ignored_bits

    @property
    def min_normal(self) -> int:
        """The code of the smallest positive normal value."""
        return 1 << (self.mantissa_bits + self.ignored_bits) if self.has_zero else 0

    @property
    def min_positive(self) -> int:
        """The code of the smallest positive value."""
        return 1 << self.ignored_bits if self.has_zero else 0

    @property
    def min_exponent(self) -> int:
        """The exponent of the smallest normal value, as a power of two."""
        return 1 - self.bias if self.has_zero else -self.bias

    @property
    def precision(self) -> int:
        """Significant bits of a normal value, including the implicit one."""
        return self.mantissa_bits + 1

    @property
    def single(self) -> Format:
        """The format of a single code: `E2M1X2.single` is `E2M1`."""
        return self.packs or self

    def numpy_dtype(self) -> Any:
        """The numpy dtype of one storage unit."""
        import numpy as np

        return np.dtype(self.storage)

    def view_dtype(self) -> Any:
        """The numpy dtype whose values a storage unit holds; the storage dtype where numpy and ml_dtypes have
        none.
        """
        import importlib

        module, _, name = (self.view or f"numpy.{self.storage}").partition(".")
        return importlib.import_module("numpy").dtype(getattr(importlib.import_module(module), name))


@dataclass(frozen=True)
class Scalar:
    """A by-value kernel argument of a format."""

    format: Format

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(f"{self.format.name}, by value")


@dataclass(frozen=True)
class Shaped:
    """A tensor argument: a format and dimensions, each an integer or an expression in names of sizes.

    Expressions combine names and integers with `*`, `/`, `//`, `+`, `-`, parentheses, `ceil(...)` and `floor(...)`;
    the result must be a whole number: "ceil(N/32)". Dimensions count storage units. A tensor without dimensions is a
    single unit.
    """

    format: Format
    dims: tuple[Dim, ...]

    def __post_init__(self) -> None:
        """Reject an invalid dimension at once, so that the error points at its declaration."""
        for dim in self.dims:
            _names(dim)

    def __str__(self) -> str:
        return f"{self.format.name}[{', '.join(map(str, self.dims)) or '()'}]"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    @property
    def names(self) -> frozenset[str]:
        """The names of sizes that the dimensions mention."""
        return frozenset().union(*map(_names, self.dims))

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Evaluate the dimensions; `ValueError` for a missing name, a quotient with a remainder, a negative
        size.
        """
        try:
            return tuple(size_of(dim, sizes) for dim in self.dims)
        except ValueError as e:
            raise ValueError(f"{self}: {e}") from None


def size_of(dim: Dim, sizes: Mapping[str, int]) -> int:
    """Evaluate one dimension; `ValueError` as in `Shaped.shape`."""
    used = ", ".join(f"{name} = {sizes[name]}" for name in sorted(_names(dim)) if name in sizes)
    missing = sorted(_names(dim) - set(sizes))
    if missing:
        given = ", ".join(sorted(sizes)) or "none"
        raise ValueError(f"no size given for {', '.join(missing)} (given: {given})")
    try:
        value = _evaluate(_parse(dim), sizes)
    except ZeroDivisionError:
        raise ValueError(f"dimension {dim!r} divides by zero with {used}") from None
    if value.denominator != 1 or value < 0:
        what = f"is negative ({value})" if value < 0 else f"is {value}, not a whole number"
        raise ValueError(f"dimension {dim!r} {what} with {used}; choose other sizes")
    return int(value)


_ROUNDINGS: dict[str, Callable[[Fraction], int]] = {"ceil": math.ceil, "floor": math.floor}
_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda a, b: Fraction(a // b),
    ast.Add: operator.add,
    ast.Sub: operator.sub,
}


def _parse(dim: Dim) -> ast.expr:
    if isinstance(dim, int) and not isinstance(dim, bool) and dim >= 0:
        return ast.Constant(dim)
    if isinstance(dim, str):
        try:
            return _tree(dim.strip())
        except SyntaxError:
            pass
    raise ValueError(f'dimension {dim!r}: expected a size, a name or an expression such as "N/16" or "ceil(N/32)"')


@functools.lru_cache(maxsize=1024)  # of texts alone: as keys, 1 and True are equal, and only one of them is a size
def _tree(text: str) -> ast.expr:
    """The tree of an expression. Every launch asks for its shapes anew; nobody changes the tree. Raises SyntaxError."""
    return ast.parse(text, mode="eval").body


def _names(dim: Dim) -> frozenset[str]:
    return _names_in(dim) if type(dim) is str else _names_of(dim)


@functools.lru_cache(maxsize=1024)
def _names_in(text: str) -> frozenset[str]:
    return _names_of(text)


def _names_of(dim: Dim) -> frozenset[str]:
    names = set()
    tree = _parse(dim)
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if id(node) in called:
            call = called[id(node)]
            if not isinstance(node, ast.Name) or node.id not in _ROUNDINGS or len(call.args) != 1 or call.keywords:
                raise ValueError(f"dimension {dim!r}: {ast.unparse(call)} is neither ceil(...) nor floor(...)")
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Constant):
            if type(node.value) is not int:
                raise ValueError(f"dimension {dim!r}: {node.value!r} is not an integer")
        elif not isinstance(node, (ast.BinOp, ast.Call, ast.expr_context, *_OPERATORS)):
            raise ValueError(f"dimension {dim!r}: only names, integers, * / // + -, ceil, floor and parentheses")
    return frozenset(names)


def _evaluate(node: ast.expr, sizes: Mapping[str, int]) -> Fraction:
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_evaluate(node.left, sizes), _evaluate(node.right, sizes))
    if isinstance(node, ast.Call):
        return Fraction(_ROUNDINGS[ast.unparse(node.func)](_evaluate(node.args[0], sizes)))
    if isinstance(node, ast.Name):
        return Fraction(sizes[node.id])
    return Fraction(ast.literal_eval(node))
