"""Elements between braces: whether their types go together, and braces that ptxas fails to refuse.

At some operands that are no vector ptxas does not look for braces. It reads the first element then, and writes the
result to all; that is ptxas's rule and not the ISA's. It does so at operands of bf16 and bf16x2 below sm_90 (ptxas
12.9), at those of arithmetic on four narrow values, and at those that a form names in `braces` (ptxas 13.4).
Constants between such braces are refused here, whatever ptxas makes of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from harness.ptx.binding.program import Register
from harness.ptx.binding.resolver import Resolver
from harness.ptx.binding.special import SPECIAL_REGISTERS
from harness.ptx.errors import OperandError
from harness.ptx.isa.forms import Bound, OperandSpec
from harness.ptx.text.nodes import Immediate, Name, Operand, Sink, Vector
from harness.ptx.text.types import TYPES, ScalarType, holds

_OLD = 90  # targets below it are assembled by ptxas 12.9
_NARROW_ARITHMETIC = ("add", "sub", "mul", "fma")


def agreed(resolver: Resolver, elements: Sequence[Operand], kind: ScalarType, role: str) -> ScalarType:
    """The type that the elements of an operand of type `kind` have together: their common one, else untyped.

    Raises OperandError where two neighbours are of different kinds and neither is untyped, as special registers are,
    or where the common type is no type for the operand.
    """
    types = [t for e in elements if (t := _type_of(resolver, e)) is not None]
    return _fitting(resolver, _common(resolver, types, kind, elements[0], role), kind, elements[0], role)


def moved(resolver: Resolver, elements: Sequence[Operand], kind: ScalarType, role: str) -> None:
    """Check the elements of a vector that `mov` reads or writes, each of the size of `kind`, as `agreed` does.

    For mov a constant has a type, and registers of integers may be moved as f32, if all are such. Where no floats are
    moved, ptxas wants no constant of the other size after a first element that is a float of the elements' size, and
    of smaller elements one that is no float.
    """
    if kind.kind != "f" and _wrong_floats(elements, kind):
        raise resolver.error(OperandError, f"{role}: these constants cannot stand side by side", elements[0].offset)
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
            message = f"{role}: .{one.name} and .{other.name} cannot stand side by side between braces"
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
    """The type of one element; None for what has none or is refused elsewhere."""
    if isinstance(node, Immediate):
        return TYPES["f32"] if isinstance(node.value, float) else None
    if not isinstance(node, Name):
        return None
    if is_special(node):
        return TYPES["b32"]
    return resolver.resolve(node).type


def is_special(node: Operand) -> bool:
    """Whether it names a special register."""
    return isinstance(node, Name) and node.text.partition(".")[0] in SPECIAL_REGISTERS


def first_read(resolver: Resolver, node: Operand, bound: Bound, spec: OperandSpec) -> Register | None:
    """The register that a source is, where ptxas checks less than the operand's type; None where it checks that."""
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
    """The registers that are all written, where ptxas does not look for braces round a destination and there are some.

    A vector that begins with `_`, or names a register twice, is refused: ptxas crashes, or leaves its bits undefined.
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
        message = f"{role}: a vector may stand here, but not this one"
        raise resolver.error(OperandError, message, node.offset)
    return registers


def _unchecked(resolver: Resolver, bound: Bound, spec: OperandSpec) -> bool:
    kind = bound.type_of(spec)
    narrow = kind.kind == "x" and kind.name.endswith("x4") and bound.form.opcode in _NARROW_ARITHMETIC
    if spec.name in bound.form.braces or narrow:
        return True
    return kind.name in ("bf16", "bf16x2") and resolver.target is not None and resolver.target.older_than(_OLD)


def _elements(resolver: Resolver, node: Operand) -> list[Operand] | None:
    """The elements of a vector, None for anything else."""
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
    """The register of that size that an element is."""
    if isinstance(node, Name) and is_special(node):
        node = resolver.special_moved(node)
    if not isinstance(node, Name) or node.negated:
        raise resolver.error(OperandError, f"{role}: an element between braces must be a register here", node.offset)
    register = resolver.resolve(node)
    resolver.check(register, untyped, False, node, role)
    return register
