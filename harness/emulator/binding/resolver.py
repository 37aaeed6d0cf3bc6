"""Resolve operands: the register that a name means, the bits of a constant, checked as ptxas checks them."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TypeVar

from ptxdiff.emulator.binding.program import ReadSlot, Register, WriteSlot
from ptxdiff.emulator.binding.special_registers import SPECIAL_REGISTERS
from ptxdiff.emulator.errors import OperandError, PtxError
from ptxdiff.emulator.isa.forms import Bound
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
            found = table(scope).get(name)
            if found is not None:
                return found
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
        found = self.scope.register(node.text)
        if found is None and "." in node.text:
            base, _, component = node.text.rpartition(".")
            vector = self.scope.register(base)
            index = next((c[component] for c in COMPONENTS if component in c), None)
            if isinstance(vector, list) and index is not None and index < len(vector):
                return vector[index]
        if isinstance(found, Register):
            return found
        shown = node.text.replace(OPERAND, "$")
        if isinstance(found, list):
            raise self.error(OperandError, f"{shown} is a vector; name one component, as in {shown}.x", node.offset)
        if node.text.partition(".")[0] in SPECIAL_REGISTERS:
            message = f"special register {shown} can be read by mov only"
        elif shown.startswith("$"):
            message = f"operand {shown} does not exist"
        else:
            message = f"no register {shown} is declared here"
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
