"""Make a snippet from a call and its arguments, for every spelling of inline asm in Python."""

from __future__ import annotations

import ast
import re
from typing import Any

from ptxdiff.lint.extract.strings import File
from ptxdiff.lint.extract.values import Ref, Tensor, TextValue, Truth, Unknown, Value
from ptxdiff.lint.snippet import Snippet, TextOrigin

ELEMENTWISE = "inline_asm_elementwise"
MLIR = "inline_asm"
NAMES = frozenset((ELEMENTWISE, MLIR))

_PARAMETERS = {
    ELEMENTWISE: ("asm", "constraints", "args", "dtype", "is_pure", "pack"),
    MLIR: ("res", "operands_", "asm_string", "constraints"),
}
_SYNONYMS = {"asm_str": "asm", "operands": "operands_"}

_DTYPES = {
    **{name: name for name in ("bool", "float16", "bfloat16", "float32", "float64")},
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "int1": "bool", "half": "float16", "float": "float32", "double": "float64", "long": "int64", "int": "int32",
    "short": "int16", "float8e5": "float8_e5m2", "float8e4nv": "float8_e4m3fn", "float8e4b8": "float8_e4m3fnuz",
    "float8e5b16": "float8_e5m2fnuz", "float8e4b15": "uint8", "float8_e4m3fn": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2", "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64",
    "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2", "fp8e4b15": "uint8", "pointer": "int64",
}  # fmt: skip
_MLIR_TYPES = {
    "i1": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "f16": "float16", "bf16": "bfloat16",
    "f32": "float32", "f64": "float64",
}  # fmt: skip
_CUTE = {
    **{f"{sign}Int{bits}": f"{sign.lower()}int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)},
    "Float16": "float16", "BFloat16": "bfloat16", "Float32": "float32", "Float64": "float64", "Boolean": "bool",
}  # fmt: skip


def dtype_name(value: Value) -> str | None:
    """The dtype that a value names: `tl.float32`, `torch.bfloat16`, 'fp8e5'; None if it names none."""
    if isinstance(value, Ref):
        return _DTYPES.get(value.last)
    return _DTYPES.get(value.value) if isinstance(value, TextValue) else None


def _dtypes(value: Value) -> tuple[str | None, ...] | None:
    if isinstance(value, (list, tuple)):
        return tuple(dtype_name(v) for v in value)
    if isinstance(value, Unknown):
        # A parameter may be a dtype or a tuple of them.
        return None
    return (dtype_name(value),)


def argument_dtype(value: Value) -> str | None:
    """The dtype of an argument, or None if it is not known."""
    if isinstance(value, Tensor):
        return value.dtype
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float):
        return "float32"
    return "int32" if -(2**31) <= value < 2**31 else "uint32" if 0 <= value < 2**32 else "int64"


class Unresolved(Exception):
    """A call whose asm or constraints the file's text does not determine; the message says what is missing."""


def snippet_of(
    file: File, node: ast.Call, name: str, args: list[Value], keywords: dict[str, Value], function: str
) -> Snippet:
    """The snippet of a call. Raises Unresolved."""
    given: dict[str, Value] = {_SYNONYMS.get(k, k): v for k, v in keywords.items()}
    inputs = None
    if name == ELEMENTWISE and "asm_str" in keywords:  # torch: the tensors come first
        inputs = args
    else:
        given = {**dict(zip(_PARAMETERS[name], args, strict=False)), **given}
        inputs = given.get("args" if name == ELEMENTWISE else "operands_")
    asm = _text(given, "asm" if name == ELEMENTWISE else "asm_string")
    constraints = _text(given, "constraints")
    (line, column), (last, last_column) = map(file.place, file.span(node))

    def origin(text: TextValue) -> TextOrigin:
        return TextOrigin(file.path, line, column, text.offsets, last, file.starts, last_column)

    common: dict[str, Any] = {
        "function": function,
        "origin": origin(asm),
        "constraints_origin": origin(constraints),
        "inputs": _inputs(inputs),
    }
    if name == ELEMENTWISE:
        pack = given.get("pack", 1)
        # Torch's operator takes only pure blocks, which is its default.
        default: Value = True if "asm_str" in keywords else Unknown("is_pure")
        pure = _flag(given.get("is_pure", default))
        return Snippet(
            asm.value,
            constraints.value,
            "triton",
            pure,
            pack if isinstance(pack, int) and not isinstance(pack, bool) else None,
            _dtypes(given.get("dtype", Unknown("dtype"))),
            **common,
        )
    effects = _flag(given.get("has_side_effects", False))
    pure = None if effects is None else not effects
    return Snippet(asm.value, constraints.value, "llvm", pure, 1, _mlir_results(given.get("res")), **common)


def _flag(value: Value) -> bool | None:
    """The truth value of an argument, or None if it is not known."""
    if isinstance(value, Truth):
        return value.holds
    return None if isinstance(value, (Unknown, TextValue)) else bool(value)


def _text(given: dict[str, Value], name: str) -> TextValue:
    value = given.get(name)
    if isinstance(value, TextValue):
        return value
    if isinstance(value, Unknown):
        raise Unresolved(f"{'the asm' if name.startswith('asm') else name} is not known: {value.reason}")
    raise Unresolved(f"{'the asm' if name.startswith('asm') else name} is no string that can be read here")


def _inputs(value: Value) -> tuple[str | None, ...] | None:
    if not isinstance(value, (list, tuple)):
        return None
    if any(isinstance(v, Unknown) and v.reason.startswith("*") for v in value):
        return None
    return tuple(argument_dtype(v) for v in value)


def _mlir_results(value: Value) -> tuple[str | None, ...] | None:
    """The results of an operation, from its MLIR type: `T.f32()`, a struct, or None for no result."""
    if value is None:
        return ()
    if isinstance(value, MlirType):
        return value.elements
    if isinstance(value, (list, tuple)):
        return None
    return None


class MlirType(Unknown):
    """An MLIR type: the types of its elements; a plain type has one."""

    __slots__ = ("elements",)

    def __init__(self, elements: tuple[str | None, ...]) -> None:
        super().__init__("an MLIR type")
        self.elements = elements


def mlir_call(written: str, function: Value, args: list[Value]) -> Value | None:
    """The value of a call that makes an MLIR type or value; None for any other call."""
    last = function.last if isinstance(function, Ref) else written
    if last in _MLIR_TYPES and not args:
        return MlirType((_MLIR_TYPES[last],))
    if last in ("get_literal", "struct") and args and isinstance(args[0], (list, tuple)):
        parts = [v.elements[0] if isinstance(v, MlirType) and len(v.elements) == 1 else None for v in args[0]]
        return MlirType(tuple(parts))
    if last == "parse" and args and isinstance(args[0], TextValue):
        struct = re.fullmatch(r"!llvm\.struct<\(([^()<>]*)\)>", args[0].value.strip())
        names = struct[1].split(",") if struct else [args[0].value]
        return MlirType(tuple(_MLIR_TYPES.get(n.strip()) for n in names))
    if last in _CUTE:
        return Tensor(_CUTE[last])
    return None
