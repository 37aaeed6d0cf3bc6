"""From launch arguments to a `KernelSpec`: what Triton's launcher decides before it compiles.

Triton compiles a kernel anew for every class of arguments: an integer that equals one becomes a constant, integers and
addresses divisible by 16 are marked as such, everything else only gives its type. The same rules here, without a
device, so that what is compiled ahead is what a launch would run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from harness.triton.compile import FunctionRef, KernelSpec, Place, Type


@dataclass(frozen=True)
class Pointer:
    """A tensor argument: Triton's name of its element type, and whether its address is divisible by 16."""

    element: str
    aligned: bool = True


@dataclass(frozen=True)
class Constant:
    """A compile-time value where a run-time one could stand, such as in a tuple."""

    value: Any


def parameter_types(function: Any) -> tuple[set[str], dict[str, str], set[str]]:
    """Of a @triton.jit function: the constexpr parameters, annotated types by name, and the unspecialised ones."""
    constexprs = {p.name for p in function.params if p.is_constexpr}
    annotated = {p.name: p.annotation_type for p in function.params if p.annotation_type and not p.is_constexpr}
    return constexprs, annotated, {p.name for p in function.params if p.do_not_specialize}


def specialise(
    function: FunctionRef,
    arguments: Mapping[str, Any],
    *,
    target: str,
    enable_fp_fusion: bool,
    constexprs: Collection[str],
    annotated: Mapping[str, str] | None = None,
    unspecialised: Collection[str] = (),
    num_warps: int = 4,
    options: tuple[tuple[str, Any], ...] = (),
) -> KernelSpec:
    """The compilation that launching `function` with `arguments` asks for.

    arguments: by name in the order of the parameters, all of them: `Pointer`s, Python numbers, None, `Constant`s,
    tuples of these, and any value for a parameter in `constexprs`. annotated: types that the kernel prescribes.
    Raises TypeError for a value that Triton could not pass.
    """
    signature, found = [], list[tuple[Place, str, Any]]()
    for number, (name, value) in enumerate(arguments.items()):
        if name in constexprs:
            value = Constant(value)
        kind = _type(name, value, name not in unspecialised, (number,), found)
        signature.append((name, (annotated or {}).get(name, kind) if kind != "constexpr" else kind))
    return KernelSpec(
        function=function,
        signature=tuple(signature),
        constants=tuple((place, value) for place, what, value in found if what == "constant"),
        divisible=tuple(place for place, what, _ in found if what == "divisible"),
        target=target,
        enable_fp_fusion=enable_fp_fusion,
        num_warps=num_warps,
        options=options,
    )


def _type(name: str, value: Any, special: bool, place: Place, found: list[tuple[Place, str, Any]]) -> Type:
    """The value's type; what is known of it goes to `found`."""
    if isinstance(value, tuple):
        return tuple(_type(name, v, special, (*place, n), found) for n, v in enumerate(value))
    if isinstance(value, Pointer):
        if value.aligned and special:
            found.append((place, "divisible", True))
        return f"*{value.element}"
    if isinstance(value, Constant) or value is None:
        found.append((place, "constant", value.value if isinstance(value, Constant) else None))
        return "constexpr"
    if isinstance(value, bool):
        return "u1"
    if isinstance(value, int):
        if special and value == 1:
            found.append((place, "constant", 1))
            return "constexpr"
        if special and value % 16 == 0:
            found.append((place, "divisible", True))
        return integer_type(value)
    if isinstance(value, float):
        return "fp32"
    raise TypeError(f"{name}: Triton takes no {type(value).__name__} as an argument")


def integer_type(value: int) -> str:
    """The type under which Triton passes a Python integer."""
    if -(2**31) <= value < 2**31:
        return "i32"
    if -(2**63) <= value < 2**63:
        return "i64"
    if value < 2**64 and value > 0:
        return "u64"
    raise TypeError(f"{value} has more than 64 bits")
