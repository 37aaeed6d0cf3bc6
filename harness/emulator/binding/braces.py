"""Elements between braces: whether their types are compatible, and braces that ptxas accepts where the ISA has none.

For some operands that are no vectors, ptxas does not check for braces. It then reads the first element of a source,
and writes the result to all elements of a destination. This is ptxas's rule, not the ISA's. It holds for operands of
bf16 and bf16x2 below sm_90 (ptxas 12.9), for those of arithmetic on four narrow values, and for those that a form names
in `braces` (ptxas 13.4). The emulator refuses constants between such braces, even where ptxas accepts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ptxdiff.emulator.binding.program import Register
from ptxdiff.emulator.binding.resolver import Resolver
from ptxdiff.emulator.binding.special_registers import SPECIAL_REGISTERS
from ptxdiff.emulator.errors import OperandError
from ptxdiff.emulator.isa.forms import Bound, OperandSpec
from ptxdiff.emulator.text.nodes import Immediate, Name, Operand, Sink, Vector
from ptxdiff.emulator.text.types import TYPES, ScalarType, holds

_OLD = 90  # targets below it are assembled by ptxas 12.9
_NARROW_ARITHMETIC = ("add", "sub", "mul", "fma")


def agreed(resolver: Resolver, elements: Sequence[Operand], kind: ScalarType, role: str) -> ScalarType:
    """The common type of the elements of an operand of type `kind`; untyped if they have none.

    Raises OperandError if two neighbours are of different kinds and neither is untyped (special registers are untyped),
    or if the common type does not fit the operand.
    """
    types = [t for e in elements if (t := _type_of(resolver, e)) is not None]
    return _fitting(resolver, _common(resolver, types, kind, elements[0], role), kind, elements[0], role)


def moved(resolver: Resolver, elements: Sequence[Operand], kind: ScalarType, role: str) -> None:
    """Check the elements of a vector that `mov` reads or writes as `agreed` does. Each has the size of `kind`.

    For mov a constant has a type, and integer registers may be moved as f32 if all elements are integer registers.
    Where no floats are moved and the first element is a float of the elements' size, ptxas refuses a float constant of
    the other size. Of elements below 32 bits at least one must not be a float constant.
    """
    if kind.kind != "f" and _wrong_floats(elements, kind):
        message = f"{role}: these constants cannot be elements of one vector"
        raise resolver.error(OperandError, message, elements[0].offset)
    types = [_constant_type(e, kind) if isinstance(e, Immediate) else _type_of(resolver, e) for e in elements]
    together = _common(resolver, [t for t in types if t], kind, elements[0], role)
    if kind.kind != "f" or together.kind not in "us":
        _fitting(resolver, together, kind, elements[0], role)


def _wrong_floats(elements: Sequence[Operand], kind: ScalarType) -> bool:
    sizes = [(32 if e.single is not None else 64) if _is_float(e) else 0 for e in elements if isinstance(e, Immediate)]
    if kind.width < 32:
        return len(sizes) == len(elements) and all(sizes)
    return _is_float(elements[0]) and sizes[0] == kind.width and 96 - kind.width in sizes


def _is_float(node: Operand) -> bool:
    return isinstance(node, Immediate) and isinstance(node.value, float)


def _constant_type(node: Immediate, kind: ScalarType) -> ScalarType:
    if isinstance(node.value, int):
        return TYPES[f"u{kind.width}"]
    if kind.kind == "f":
        return kind
    return TYPES["f32" if node.single is not None else "f64"]


def _common(resolver: Resolver, types: Sequence[ScalarType], kind: ScalarType, first: Operand, role: str) -> ScalarType:
    for one, other in pairwise(types):
        if "b" not in (one.kind, other.kind) and _family(one) != _family(other):
            message = f"{role}: .{one.name} and .{other.name} cannot be elements of one vector"
            raise resolver.error(OperandError, message, first.offset)
    return types[0] if len(set(types)) == 1 else TYPES[f"b{kind.width}"]


def _fitting(resolver: Resolver, together: ScalarType, kind: ScalarType, first: Operand, role: str) -> ScalarType:
    if not holds(together, kind, False):
        message = f"{role}: elements that are all .{together.name} do not fit; needed: .{kind.name}"
        raise resolver.error(OperandError, message, first.offset)
    return together


def _family(kind: ScalarType) -> str:
    return "us" if kind.kind in "us" else kind.kind


def _type_of(resolver: Resolver, node: Operand) -> ScalarType | None:
    """The type of one element; None if it has none or is refused elsewhere."""
    if isinstance(node, Immediate):
        return TYPES["f32"] if isinstance(node.value, float) else None
    if not isinstance(node, Name):
        return None
    if is_special(node):
        return TYPES["b32"]
    return resolver.resolve(node).type


def is_special(node: Operand) -> bool:
    """Whether the operand names a special register."""
    return isinstance(node, Name) and node.text.partition(".")[0] in SPECIAL_REGISTERS


def first_read(resolver: Resolver, node: Operand, bound: Bound, spec: OperandSpec) -> Register | None:
    """The register of a source whose type ptxas does not check; None for a source whose type it checks."""
    if not _unchecked(resolver, bound, spec):
        return None
    kind = bound.type_of(spec)
    untyped = TYPES[f"b{kind.width}"]
    role = f"operand {spec.name} of {bound.spelling}"
    loose = spec.name in bound.form.braces
    elements = _elements(resolver, node)
    if elements is None:
        if not loose or not isinstance(node, Name) or node.negated or is_special(node):
            return None
        elements = [node]
    else:
        _count(resolver, elements, role)
        agreed(resolver, elements, untyped if loose else kind, role)
    for element in elements:
        _register(resolver, element, untyped, role)
    return _register(resolver, elements[0], untyped, role)


def all_written(resolver: Resolver, node: Operand, bound: Bound, spec: OperandSpec) -> list[Register]:
    """All registers between the braces of a destination where ptxas does not check for braces; else an empty list.

    A vector that begins with `_`, or names a register twice, is refused: ptxas crashes on it, or leaves bits undefined.
    """
    elements = _elements(resolver, node)
    if elements is None or not _unchecked(resolver, bound, spec):
        return []
    kind = bound.type_of(spec)
    role = f"destination of {bound.spelling}"
    _count(resolver, elements, role)
    together = agreed(resolver, elements, kind, role)
    registers = [_register(resolver, e, TYPES[f"b{kind.width}"], role) for e in elements if not isinstance(e, Sink)]
    if isinstance(elements[0], Sink) or len({r.slot for r in registers}) < len(registers) or together.kind in "us":
        message = f"{role}: a vector here begins with a register, names none twice, and has no .u or .s register"
        raise resolver.error(OperandError, message, node.offset)
    return registers


def _unchecked(resolver: Resolver, bound: Bound, spec: OperandSpec) -> bool:
    kind = bound.type_of(spec)
    narrow = kind.kind == "x" and kind.name.endswith("x4") and bound.form.opcode in _NARROW_ARITHMETIC
    if spec.name in bound.form.braces or narrow:
        return True
    return kind.name in ("bf16", "bf16x2") and resolver.target is not None and resolver.target.older_than(_OLD)


def _elements(resolver: Resolver, node: Operand) -> list[Operand] | None:
    """The elements of a vector; None for any other operand."""
    if isinstance(node, Vector):
        return list(node.elements)
    if isinstance(node, Name):
        parts = resolver.scope.register(node.text)
        if isinstance(parts, list):
            return [Name(p.name, node.offset) for p in parts]
    return None


def _count(resolver: Resolver, elements: Sequence[Operand], role: str) -> None:
    if len(elements) not in (1, 2, 4):
        message = f"{role}: a vector has 1, 2 or 4 elements, not {len(elements)}"
        raise resolver.error(OperandError, message, elements[0].offset)


def _register(resolver: Resolver, node: Operand, untyped: ScalarType, role: str) -> Register:
    """The register that an element names; it must have the size of `untyped`."""
    if isinstance(node, Name) and is_special(node):
        node = resolver.special_moved(node)
    if not isinstance(node, Name) or node.negated:
        raise resolver.error(OperandError, f"{role}: an element between braces must be a register here", node.offset)
    register = resolver.resolve(node)
    resolver.check(register, untyped, False, node, role)
    return register
