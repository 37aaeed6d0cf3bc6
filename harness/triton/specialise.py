"""From launch arguments to a `KernelSpec`: the decisions that Triton's launcher makes before it compiles.

Triton compiles a kernel anew for every class of arguments: an integer that equals one becomes a constant, integers and
addresses divisible by 16 are marked, and of all others only the type counts. This module follows these rules without a
device, so that a kernel compiled ahead is the one that a launch would run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ptxdiff.triton.spec import FunctionRef, KernelSpec, Place, Type


@dataclass(frozen=True)
class PointerType:
    """A tensor argument: Triton's name of its element type, and whether its address is divisible by 16."""

    element: str
    aligned: bool = True


@dataclass(frozen=True)
class DescriptorType:
    """A tensor descriptor as an argument: Triton's name of its element type, and the sizes of its blocks.

    layout: the layout of a block in shared memory, which a descriptor for Gluon states, as text; "": Triton chooses it.
    """

    element: str
    block: tuple[int, ...]
    layout: str = ""


@dataclass(frozen=True)
class Constant:
    """A compile-time value in a place for run-time values, such as in a tuple."""

    value: Any


@dataclass(frozen=True)
class Parameters:
    """A kernel's declarations of its parameters, by name.

    constexprs: compile-time. unspecialised: those whose values Triton must not compile in. annotated: types that
    replace the value's own ("i64"). const: pointers that the kernel only reads (`tl.const`).
    """

    constexprs: frozenset[str] = frozenset()
    unspecialised: frozenset[str] = frozenset()
    annotated: Mapping[str, str] = field(default_factory=dict)
    const: frozenset[str] = frozenset()

    @classmethod
    def of(cls, function: Any) -> Parameters:
        """Those of a @triton.jit function. Raises ValueError for the object that TRITON_INTERPRET puts in its place."""
        if not hasattr(function, "params"):
            raise ValueError(f"{type(function).__name__} is not a compilable kernel; unset TRITON_INTERPRET")
        ordinary = [p for p in function.params if not p.is_constexpr]
        return cls(
            constexprs=frozenset(p.name for p in function.params if p.is_constexpr),
            unspecialised=frozenset(p.name for p in ordinary if p.do_not_specialize),
            annotated={p.name: p.annotation_type for p in ordinary if p.annotation_type},
            const=frozenset(p.name for p in ordinary if p.is_const),
        )


def specialise(
    function: FunctionRef,
    arguments: Mapping[str, Any],
    parameters: Parameters,
    *,
    target: str,
    enable_fp_fusion: bool,
    num_warps: int = 4,
    options: tuple[tuple[str, Any], ...] = (),
) -> KernelSpec:
    """The compilation that launching `function` with `arguments` asks for.

    arguments: all of them, by name, in the order of the parameters: `PointerType`s, `DescriptorType`s, Python numbers,
    None, `Constant`s, tuples of these, and any value for a compile-time parameter. Raises TypeError for a value that
    Triton could not pass.
    """
    signature: list[tuple[str, Type]] = []
    facts = _Facts([], [])
    for number, (name, value) in enumerate(arguments.items()):
        if name in parameters.constexprs:
            value = Constant(value)
        special = name not in parameters.unspecialised
        prescribed = parameters.annotated.get(name)
        if prescribed is None:
            signature.append((name, _type(name, value, (number,), special, name in parameters.const, facts)))
            continue
        signature.append((name, prescribed))
        if special and not prescribed.startswith(("fp", "bf", "u1")) and isinstance(value, int) and value % 16 == 0:
            facts.divisible.append((number,))
    return KernelSpec(
        function=function,
        signature=tuple(signature),
        constants=tuple(facts.constants),
        divisible=tuple(facts.divisible),
        target=target,
        enable_fp_fusion=enable_fp_fusion,
        num_warps=num_warps,
        options=options,
    )


@dataclass(frozen=True)
class _Facts:
    """Facts on arguments beyond their types, by place."""

    constants: list[tuple[Place, Any]]
    divisible: list[Place]


def _type(name: str, value: Any, place: Place, special: bool, const: bool, facts: _Facts) -> Type:
    """The value's type; its other facts are added to `facts`."""
    if isinstance(value, tuple):
        return tuple(_type(name, v, (*place, n), special, const, facts) for n, v in enumerate(value))
    if isinstance(value, PointerType):
        if value.aligned and special:
            facts.divisible.append(place)
        return f"*{'k' if const else ''}{value.element}"
    if isinstance(value, DescriptorType):
        stated = f",{value.layout}" if value.layout else ""
        return f"tensordesc<{value.element}{list(value.block)}{stated}>"
    if isinstance(value, Constant) or value is None:
        facts.constants.append((place, value.value if isinstance(value, Constant) else None))
        return "constexpr"
    if isinstance(value, bool):
        return "u1"
    if isinstance(value, int):
        if special and value == 1:
            facts.constants.append((place, 1))
            return "constexpr"
        if special and value % 16 == 0:
            facts.divisible.append(place)
        return integer_type(value)
    if isinstance(value, float):
        return "fp32"
    if isinstance(value, str):
        raise TypeError(
            f"{name}: Triton accepts no str as an argument, and {value!r} is one; only a tl.constexpr parameter takes "
            f"it. In a case, a number that depends on the sizes is in sizes=, as in {{'N': 128, {name!r}: 128}}"
        )
    raise TypeError(f"{name}: Triton accepts no {type(value).__name__} as an argument")


def entry_values(kind: Type, value: Any) -> Iterator[Any]:
    """The values of an argument that are parameters of the compiled entry, in order: all but compile-time constants."""
    if isinstance(kind, tuple):
        for inner, element in zip(kind, value, strict=True):
            yield from entry_values(inner, element)
    elif kind != "constexpr":
        yield value


def integer_type(value: int) -> str:
    """The type under which Triton passes a Python integer."""
    if -(2**31) <= value < 2**31:
        return "i32"
    if -(2**63) <= value < 2**63:
        return "i64"
    if value < 2**64 and value > 0:
        return "u64"
    raise TypeError(f"{value} has more than 64 bits, the most that Triton passes")
