"""Resolve operands: the register that a name means, the bits of a constant, checked as ptxas checks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import TypeVar

from ptxdiff.emulator.binding.program import ReadSlot, Register, WriteSlot
from ptxdiff.emulator.binding.special_registers import SPECIAL_REGISTERS
from ptxdiff.emulator.errors import OperandError, PtxError
from ptxdiff.emulator.isa.forms import Bound, OperandSpec
from ptxdiff.emulator.numeric.bits import f32_round, f64_bits
from ptxdiff.emulator.targets import AnyTarget
from ptxdiff.emulator.text.lexer import OPERAND
from ptxdiff.emulator.text.nodes import Address, Declaration, Immediate, Name, Operand, Sink, Source, Vector
from ptxdiff.emulator.text.types import TYPES, ScalarType, holds

T = TypeVar("T")

_REGISTERS, _LABELS, _TARGETS, _VARIABLES = map(attrgetter, ("registers", "labels", "targets", "variables"))


class Scope:
    """Names visible in a block; a scope knows the one around it."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.outer = outer
        self.registers: dict[str, Register | list[Register]] = {}
        self.labels: dict[str, int] = {}
        self.targets: dict[str, list[Name]] = {}
        self.names: set[str] = set()
        self.variables: dict[str, Declaration] = {}

    def register(self, name: str) -> Register | list[Register] | None:
        """The register (or registers of a vector) of that name, from the innermost scope that has it."""
        return self._innermost(_REGISTERS, name)

    def label(self, name: str) -> int | None:
        """The number of the step after a label of that name."""
        return self._innermost(_LABELS, name)

    def branch_targets(self, name: str) -> list[Name] | None:
        """The labels that a .branchtargets of that name lists."""
        return self._innermost(_TARGETS, name)

    def variable(self, name: str) -> Declaration | None:
        """The variable of that name."""
        return self._innermost(_VARIABLES, name)

    def _innermost(self, table: Callable[[Scope], dict[str, T]], name: str) -> T | None:
        scope: Scope | None = self
        while scope is not None:
            entry = table(scope).get(name)
            if entry is not None:
                return entry
            scope = scope.outer
        return None


COMPONENTS = ({"x": 0, "y": 1, "z": 2, "w": 3}, {"r": 0, "g": 1, "b": 2, "a": 3})


class Resolver:
    """The registers of a program and the current scope of names, with methods that resolve operands in it."""

    def __init__(self, source: Source, target: AnyTarget | None) -> None:
        self.source = source
        self.target = target
        self.registers: list[Register] = []
        self.scope = Scope()

    def new_register(self, name: str, kind: ScalarType) -> Register:
        """A fresh register slot; a .b128 register takes two, for its lower and its upper half."""
        register = Register(len(self.registers), kind, name)
        self.registers.append(register)
        if kind.width == 128:
            self.registers.append(Register(register.slot + 1, TYPES["b64"], f"{name}[127:64]"))
        return register

    def declare_operand(self, number: int, register: Register) -> None:
        """Make `$number` of inline asm a name of a register."""
        self.scope.registers[f"{OPERAND}{number}"] = register

    def error(self, kind: type[PtxError], message: str, offset: int) -> PtxError:
        """An error that points at `offset` of the text."""
        return self.source.error(kind, message, offset)

    def special_moved(self, node: Name) -> Name:
        """A new register with the value of a special register; only a Builder can add the move that sets it."""
        raise self.error(OperandError, f"special register {node.text} can be read by mov only", node.offset)

    def resolve(self, node: Name) -> Register:
        """The register that a name means. Raises OperandError if there is none."""
        if node.displacement:
            message = f"{node.text}+{node.displacement}: only the address of a variable has a constant added"
            raise self.error(OperandError, message, node.offset)
        register = self.scope.register(node.text)
        if register is None and "." in node.text:
            base, _, component = node.text.rpartition(".")
            vector = self.scope.register(base)
            index = next((c[component] for c in COMPONENTS if component in c), None)
            if isinstance(vector, list) and index is not None and index < len(vector):
                return vector[index]
        if isinstance(register, Register):
            return register
        shown = node.text.replace(OPERAND, "$")
        if isinstance(register, list):
            raise self.error(OperandError, f"{shown} is a vector; name one component, as in {shown}.x", node.offset)
        if node.text.partition(".")[0] in SPECIAL_REGISTERS:
            message = f"special register {shown} can be read by mov only"
        elif shown.startswith("$"):
            message = f"operand {shown} does not exist"
        else:
            message = f"no register {shown} is declared here"
            if shown[:1] == "%" and shown[1:].isdigit() and self.scope.register(f"{OPERAND}0"):
                message += f"; CUDA C++ writes operands so: write ${shown[1:]}, or give convention='cuda'"
        raise self.error(OperandError, message, node.offset)

    def elements(self, node: Operand, count: int) -> list[Operand]:
        """The elements of a vector operand: `{a, b}`, or a vector register."""
        found: list[Operand] | None = None
        if isinstance(node, Vector):
            found = node.elements
        elif isinstance(node, Name):
            parts = self.scope.register(node.text)
            if isinstance(parts, list):
                found = [Name(p.name, node.offset) for p in parts]
        if found is None or len(found) != count:
            raise self.error(OperandError, f"expected a vector of {count} elements", node.offset)
        return found

    def address_of(self, node: Name) -> ReadSlot | None:
        """The address of the variable of this name; None if the name is no variable."""
        return None

    def holds_address(self, node: Operand) -> bool:
        """Whether `[base+displacement]` has a register as its base."""
        if not isinstance(node, Address) or node.base is None:
            return False
        return self.scope.variable(node.base.text) is None and self.scope.register(node.base.text) is not None

    def parameter(self, node: Operand, size: int) -> tuple[str, int]:
        """The kernel parameter that `[name+offset]` means. Raises OperandError outside a kernel."""
        raise self.error(OperandError, "there are no parameters here", node.offset)

    def predicate(self, node: Name) -> Register:
        """The register of a name. Raises OperandError unless it is a predicate."""
        register = self.resolve(node)
        if register.type.kind != "pred":
            raise self.error(OperandError, f"{self.show(register)} is no predicate register", node.offset)
        return register

    def show(self, register: Register) -> str:
        """A register as messages name it: `%r1 (.b32)`."""
        return f"{register.name.replace(OPERAND, '$')} (.{register.type.name})"

    def check(self, register: Register, kind: ScalarType, relaxed: bool, node: Name, role: str) -> None:
        """Raise OperandError unless the register may be an operand of type `kind`."""
        if not holds(register.type, kind, relaxed):
            wanted = "a predicate" if kind.kind == "pred" else f"{kind.width} bits, .{kind.name}"
            raise self.error(OperandError, f"{role}: {self.show(register)} does not fit; needed: {wanted}", node.offset)

    def destination(self, node: Operand, kind: ScalarType, bound: Bound, may_discard: bool = False) -> WriteSlot:
        """Check and bind an operand that is written with a value of type `kind`."""
        if isinstance(node, Sink):
            if not may_discard:
                raise self.error(OperandError, f"{bound.spelling} cannot discard its result", node.offset)
            return WriteSlot(-1, kind.width)
        if not isinstance(node, Name) or node.negated:
            raise self.error(OperandError, f"the destination of {bound.spelling} must be a register", node.offset)
        register = self.resolve(node)
        # Of the operations of the machine only loads widen (ISA 9.4.1): `shfl` and `atom` need a register of their
        # size.
        relaxed = bound.form.relaxed and (bool(bound.form.operands) or bound.form.opcode in ("ld", "ldu"))
        self.check(register, kind, relaxed, node, f"destination of {bound.spelling}")
        if register.type.width == 128:
            return WriteSlot(register.slot, 64, kind.signed, register.slot + 1)
        return WriteSlot(register.slot, register.type.width, kind.signed)

    def read(self, node: Operand, kind: ScalarType, relaxed: bool, role: str) -> ReadSlot:
        """Check and bind a source operand of type `kind`: a register, a negated predicate or a constant."""
        if isinstance(node, Immediate):
            return ReadSlot(-1, kind.width, self.pattern(node, kind, role))
        if isinstance(node, Name):
            register = self.resolve(node)
            self.check(register, kind, relaxed, node, role)
            if node.negated and kind.kind != "pred":
                raise self.error(OperandError, f"{role}: only predicates can be negated with '!'", node.offset)
            return ReadSlot(register.slot, kind.width, negated=node.negated)
        raise self.error(OperandError, f"{role} must be a register or a constant", node.offset)

    def pattern(self, node: Immediate, kind: ScalarType, role: str) -> int:
        """The bit pattern of a constant in an operand of type `kind`, as ptxas converts it."""
        value = node.value
        if isinstance(value, int):
            if kind.kind in "fpx":
                hint = "; write 1.0 or 0f3F800000" if kind.name in ("f32", "f64") else "; move it to a register first"
                raise self.error(OperandError, f"{role}: an integer constant is no .{kind.name}{hint}", node.offset)
            return int(value != 0) if kind.kind == "pred" else value & ((1 << kind.width) - 1)
        if kind.name == "f32" or (kind.kind == "b" and kind.name == "b32" and node.single is not None):
            return node.single if node.single is not None else f32_round(value)
        if kind.name == "f64" or (kind.name == "b64" and node.single is None):
            return node.double if node.double is not None else f64_bits(value) & 0xFFFFFFFFFFFFFFFF
        raise self.error(OperandError, f"{role}: a floating-point constant is no .{kind.name}", node.offset)


# Elements between braces -------------------------------------------------------------------------------------------
#
# Whether their types are compatible, and braces that ptxas accepts where the ISA has none.
#
# For some operands that are no vectors, ptxas does not check for braces. It then reads the first element of a source,
# and writes the result to all elements of a destination. This is ptxas's rule, not the ISA's. It holds for operands of
# bf16 and bf16x2 below sm_90 (ptxas 12.9), for those of arithmetic on four narrow values, and for those that a form
# names in `braces` (ptxas 13.4). The emulator refuses constants between such braces, even where ptxas accepts them.

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
