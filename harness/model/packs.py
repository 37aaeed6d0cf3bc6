"""How many elements one invocation of the asm of a variant that is no `asm()` may read.

Of Triton functions the calls of `inline_asm_elementwise` are read in the text that Triton compiles, with what it names.
Whatever cannot be followed may call asm with any pack: to leave one out would leave its tuples out of the inputs.
"""

from __future__ import annotations

import ast
import builtins
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ptxdiff.model.arguments import format_of
from ptxdiff.model.case import Case
from ptxdiff.model.constants import closure_of, constants_of, given_by, of_a_library, plain_function
from ptxdiff.model.derive import packs_of
from ptxdiff.model.variants import AsmVariant, KernelVariant, PlainVariant, PtxVariant, Variant

PACKS = (2, 4, 8, 16)
_LOAD = re.compile(
    r"\bld(?!\.(?:param|const|shared|local))(?:\.\w+(?:::\w+)*)*?(?:\.v(?P<vector>[248]))?\.[busf](?P<bits>8|16|32|64)\b"
)


def packs_read(case: Case, variant: Variant) -> tuple[int, ...]:
    """How many elements one invocation of a variant's asm may read, for each of its packs."""
    if isinstance(variant, AsmVariant):
        return packs_of(case, variant)
    return packs_in_code(variant, [format_of(a).unit_bits for a in case.inputs.values()])


def packs_in_code(variant: Variant, unit_bits: Iterable[int]) -> tuple[int, ...]:
    """How many elements code that is no `asm()` variant may read at once, in ascending order; none if only one.

    Of Triton functions with asm the `pack=` of its calls. All packs where one of them cannot be read. Where elements
    may move, so that asm may read several of them as operands, also every number of the code that can be a pack; whole
    kernels move them by their addresses. Of given PTX the elements in one load. unit_bits: of each input.
    """
    if isinstance(variant, PtxVariant):
        widths = {int(m["vector"] or 1) * int(m["bits"]) for m in _LOAD.finditer(variant.text)}
        return tuple(sorted({w // bits for w in widths for bits in unit_bits} & set(PACKS)))
    if not isinstance(variant, PlainVariant | KernelVariant):
        return ()
    read = _Calls(variant)
    if read.unknown or (isinstance(variant, KernelVariant) and variant.rules):
        return PACKS
    packs = read.packs
    if read.calls_asm and (read.moves or isinstance(variant, KernelVariant)):
        packs |= {n for n in constants_of(variant) if isinstance(n, int)}
    return tuple(sorted(packs & set(PACKS)))


_ASM = "inline_asm_elementwise"
_STAYING = {
    "abs", "add", "assume", "bfloat16", "cast", "cdiv", "ceil", "clamp", "constexpr", "core", "cos", "device_assert",
    "device_print", "div_rn", "dtype", "element_ty", "erf", "exp", "exp2", "fdiv", "float16", "float32", "float64",
    "float8e4b15", "float8e4b8", "float8e4nv", "float8e5", "float8e5b16", "floor", "fma", "full",
    "inline_asm_elementwise", "int1", "int16", "int32", "int64", "int8", "language", "log", "log2", "math",
    "max_constancy", "max_contiguous", "maximum", "minimum", "mul", "multiple_of", "primitive_bitwidth", "range",
    "rsqrt", "scalar", "shape", "sigmoid", "sin", "sqrt", "sqrt_rn", "static_assert", "static_print", "static_range",
    "sub", "tl", "to", "triton", "type", "uint16", "uint32", "uint64", "uint8", "umulhi", "value", "where", "zeros",
    "zeros_like",
}  # fmt: skip
"""Names in Triton, and of methods and attributes of its values, that leave each element where it is."""
_ACROSS_THREADS = re.compile(
    r"\b(?:shfl|redux|vote|match|activemask|movmatrix|ldmatrix|stmatrix|mma|wgmma|ld|st|atom)\b"
)
"""Opcodes by which asm itself may bring elements together."""
_PLAIN_VALUES = (bool, int, float, complex, str, bytes, type(None), type(...), re.Pattern)
_COMPUTING = {abs, hasattr, isinstance, len, max, min, print, repr, round, sum}
"""Functions of Python that give nothing that code does not name."""


@dataclass
class _Calls:
    """What the code of a variant says of packs.

    packs: those of the calls of asm that are read. calls_asm: whether there is any. unknown: whether something is named
    that cannot be followed, or a pack that cannot be read. moves: whether elements may come to other places.
    """

    variant: PlainVariant | KernelVariant
    packs: set[int] = field(default_factory=set)
    calls_asm: bool = False
    unknown: bool = False
    moves: bool = False
    _met: dict[int, Any] = field(default_factory=dict)  # by identity; the values keep it from being given again

    def __post_init__(self) -> None:
        self._given = given_by(self.variant)
        self._own = plain_function(self.variant.function)
        for value in self._given.values():
            self._value(value)
        self._function(self.variant.function)

    def _value(self, value: Any) -> None:
        """Follow a value that code names, but for the function that it calls there as asm."""
        if type(value).__name__ == "constexpr":
            value = value.value
        plain = plain_function(value)
        if isinstance(value, str):
            self.moves |= bool(_ACROSS_THREADS.search(value))
        if isinstance(value, _PLAIN_VALUES) or id(value) in self._met:
            return
        if plain is self._own:  # it may be called again, with other arguments than the variant gives
            self.unknown = True
            return
        self._met[id(value)] = value
        if isinstance(value, Mapping):
            value = tuple(value.values())
        if isinstance(value, tuple | list | set | frozenset):
            for one in value:
                self._value(one)
        elif isinstance(plain, types.FunctionType):
            self._of_function(value, plain)
        elif isinstance(value, types.ModuleType):  # as a value: who has it may take any function of it
            self.unknown |= not of_a_library(value)
        elif isinstance(value, types.BuiltinFunctionType):
            self.unknown |= value not in _COMPUTING
        elif isinstance(value, type):  # a class may have functions that make code
            self.unknown |= value.__module__ != "builtins" and not of_a_library(value)
        else:
            self.unknown |= not of_a_library(type(value))  # such as a type of elements

    def _of_function(self, value: Any, plain: types.FunctionType) -> None:
        if plain.__name__ == _ASM:
            self.unknown = self.calls_asm = True  # who has it may call it with any pack
        elif of_a_library(plain):
            self.moves |= plain.__name__ not in _STAYING
        elif value is not plain and hasattr(value, "parse"):
            self._function(value)
        elif hasattr(value, "__triton_builtin__"):
            self.unknown = True  # it makes code by itself
        # Triton calls any other function while it compiles: it computes numbers, and makes no code.

    def _function(self, function: Any) -> None:
        """Read a Triton function, and follow what it names."""
        plain = plain_function(function)
        if not hasattr(function, "parse"):  # only a Triton function keeps the text that it was made of
            self.unknown = True
            return
        nodes, code = list(ast.walk(function.parse())), plain.__code__
        arguments = {n.arg for n in nodes if isinstance(n, ast.arg)}
        assigned = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        everything = dict(vars(builtins)) | plain.__globals__ | closure_of(plain)
        names = {name: value for name, value in everything.items() if name not in arguments}
        packs = {name: value for name, value in names.items() if name not in assigned}
        if function is self.variant.function:
            taken = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]) - assigned
            packs |= {name: value for name, value in self._given.items() if name in taken}
        called = {id(n.func): n for n in nodes if isinstance(n, ast.Call)}
        bases = {id(n.value) for n in nodes if isinstance(n, ast.Attribute) and _meant(n, names) is not _UNKNOWN}
        for value in (*(plain.__defaults__ or ()), *(plain.__kwdefaults__ or {}).values()):
            self._value(value)
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                self._value(node.value)
            elif isinstance(node, ast.Subscript):
                self.moves |= any(isinstance(n, ast.Constant) and n.value is None for n in ast.walk(node.slice))
            elif isinstance(node, ast.Name | ast.Attribute):
                value = _meant(node, names)
                if _is_asm(node, value):
                    self.calls_asm = True
                    self._call(called.get(id(node)), packs)
                elif value is not _UNKNOWN and id(node) not in bases:
                    self._value(value)
                elif value is _UNKNOWN and isinstance(node, ast.Attribute):
                    self.moves |= node.attr not in _STAYING
                elif value is _UNKNOWN and isinstance(node, ast.Name):
                    self.unknown |= node.id not in arguments | assigned  # a name that has no value yet
                if isinstance(node, ast.Name) and node.id in assigned and id(node) in bases:
                    self.unknown = True  # it may be another value than the module that has this name elsewhere

    def _call(self, call: ast.Call | None, packs: Mapping[str, Any]) -> None:
        """Read the pack of a call of asm. call: None where asm is named without a call. packs: the values of names."""
        pack = next((k.value for k in call.keywords if k.arg == "pack"), None) if call else None
        value: Any = pack.value if isinstance(pack, ast.Constant) else None
        if isinstance(pack, ast.Name):
            value = packs.get(pack.id)
        value = value.value if type(value).__name__ == "constexpr" else value
        if type(value) is int:
            self.packs.add(value)
        else:
            self.unknown = True


_UNKNOWN = object()


def _meant(node: ast.Name | ast.Attribute, names: Mapping[str, Any]) -> Any:
    """The value of a name, or of an attribute of a module, where it is known; else `_UNKNOWN`."""
    if isinstance(node, ast.Name):
        return names.get(node.id, _UNKNOWN)
    base = _meant(node.value, names) if isinstance(node.value, ast.Name | ast.Attribute) else _UNKNOWN
    return getattr(base, node.attr, _UNKNOWN) if isinstance(base, types.ModuleType) else _UNKNOWN


def _is_asm(node: ast.Name | ast.Attribute, value: Any) -> bool:
    named = isinstance(node, ast.Attribute) and node.attr == _ASM
    return named or getattr(plain_function(value), "__name__", "") == _ASM
