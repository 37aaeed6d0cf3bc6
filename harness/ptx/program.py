"""From a syntax tree to a program: names resolved to register slots, instructions to forms, operands checked.

What ptxas would refuse is refused here, with the place in the text. A `Program` is immutable afterwards and is
shared by threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from . import braces, isa
from .bits import f32_round, f64_bits
from .errors import NotElementwise, OperandError, ParseError, PtxError, TooLarge, unexpected
from .isa.registry import Bound, OperandSpec, lookup
from .lexer import OPERAND
from .limits import INSTRUCTIONS, NESTING, REGISTERS
from .nodes import (
    Block,
    BranchTargets,
    Declaration,
    Immediate,
    Instruction,
    Label,
    Name,
    Operand,
    Pair,
    Sink,
    Source,
    Statement,
    Vector,
)
from .selection import selected
from .special import SPECIAL_REGISTERS
from .targets import AnyTarget
from .types import REGISTER_TYPES, TYPES, ScalarType, holds

T = TypeVar("T")

COMPONENTS = ({"x": 0, "y": 1, "z": 2, "w": 3}, {"r": 0, "g": 1, "b": 2, "a": 3})


@dataclass(frozen=True, slots=True)
class Register:
    """A register of the program: its place in the register file, its type, and its name as written."""

    slot: int
    type: ScalarType
    name: str


@dataclass(frozen=True, slots=True)
class Reader:
    """A source operand: a register slot or, with slot -1, a constant pattern; `width` bits of it are read."""

    slot: int
    width: int
    pattern: int = 0
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Writer:
    """A destination: a register slot (-1: the result is discarded) and how a narrower result is widened.

    `upper`: the slot of a .b128 register's upper half, which the widening fills.
    """

    slot: int
    width: int
    signed: bool = False
    upper: int = -1


@dataclass(slots=True)
class Step:
    """One executable instruction.

    `kind` is "scalar" (a definition over arrays), "branch", "exit", or the name of a machine operation, whose
    own operands are in `detail`.
    """

    kind: str
    node: Instruction
    bound: Bound
    sources: tuple[Reader, ...] = ()
    destinations: tuple[Writer, ...] = ()
    functions: tuple[Any, ...] = ()
    target: int = -1
    detail: Any = None
    guard: int = -1
    guard_negated: bool = False


@dataclass(slots=True)
class Program:
    """Steps in order, the types of all register slots, and the slot of the carry flag."""

    steps: list[Step]
    registers: list[Register]
    source: Source
    branches: bool


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
        return self._innermost(lambda scope: scope.registers, name)

    def label(self, name: str) -> int | None:
        """The step that a label of that name stands before."""
        return self._innermost(lambda scope: scope.labels, name)

    def branch_targets(self, name: str) -> list[Name] | None:
        """The labels that a .branchtargets of that name lists."""
        return self._innermost(lambda scope: scope.targets, name)

    def variable(self, name: str) -> Declaration | None:
        """The variable of that name."""
        return self._innermost(lambda scope: scope.variables, name)

    def _innermost(self, table: Callable[[Scope], dict[str, T]], name: str) -> T | None:
        scope: Scope | None = self
        while scope is not None:
            if name in table(scope):
                return table(scope)[name]
            scope = scope.outer
        return None


class Builder:
    """Builds a Program in one pass over the tree; jumps find their labels at the end."""

    def __init__(self, source: Source, target: AnyTarget | None, elementwise: bool) -> None:
        isa.load()
        self.source = source
        self.target = target
        self.elementwise = elementwise
        self.registers: list[Register] = []
        self.steps: list[Step] = []
        self.scope = Scope()
        self._jumps: list[tuple[Step, Name, Scope]] = []
        self._listed: list[tuple[Name, Scope]] = []
        self.statements = self.depth = self.at = 0
        self.carry = self.new_register("CC.CF", TYPES["pred"])

    def new_register(self, name: str, kind: ScalarType) -> Register:
        """A fresh register slot; a .b128 register takes two, for its lower and its upper half."""
        register = Register(len(self.registers), kind, name)
        self.registers.append(register)
        if kind.width == 128:
            self.registers.append(Register(register.slot + 1, TYPES["b64"], f"{name}[127:64]"))
        return register

    def declare_operand(self, number: int, register: Register) -> None:
        """Let `$number` of inline asm name a register."""
        self.scope.registers[f"{OPERAND}{number}"] = register

    # the walk --------------------------------------------------------------------------------------------

    def add(self, block: Block) -> None:
        """Walk a block: declare its names in the current scope, bind its instructions."""
        for statement in block.statements:
            self._add(statement)

    def nested(self, block: Block) -> None:
        """Walk a block within another, or the body of a function that is called. Raises TooLarge."""
        self.depth += 1
        if self.depth > NESTING.most:
            raise self.error(TooLarge, NESTING.refusal(self.depth), block.offset)
        self.add(block)
        self.depth -= 1

    def count(self, statement: Statement) -> None:
        """Count a statement, at each call anew where it stands in a function. Raises TooLarge."""
        self.statements += 1
        self.at = statement.offset
        if self.statements > INSTRUCTIONS.most:
            raise self.error(TooLarge, INSTRUCTIONS.refusal(self.statements), statement.offset)

    def _add(self, statement: Statement) -> None:
        scope = self.scope
        self.count(statement)
        if isinstance(statement, Instruction):
            self.steps.append(self._bind(statement))
        elif isinstance(statement, Block):
            self.scope = Scope(scope)
            self.nested(statement)
            self.scope = scope
        elif isinstance(statement, Label):
            self._declare_name("label", statement.name, scope, statement.offset)
            scope.labels[statement.name] = len(self.steps)
        elif isinstance(statement, BranchTargets):
            self._declare_name("label", statement.label, scope, statement.offset)
            scope.targets[statement.label] = statement.targets
            self._listed += [(name, scope) for name in statement.targets]
        elif statement.space == "reg":
            self._declare_registers(statement, scope)
        else:
            self._declare_variable(statement, scope)

    def _declare_name(self, what: str, name: str, scope: Scope, offset: int) -> None:
        """Note a label, or a register that is declared alone: a scope has one of a name."""
        if name in scope.names:
            raise self.error(OperandError, f"{what} {name} is declared twice", offset)
        scope.names.add(name)

    def _declare_variable(self, node: Declaration, scope: Scope) -> None:
        if self.elementwise:
            message = f"a variable in .{node.space} memory has no meaning for one element alone"
            raise self.error(NotElementwise, message, node.offset)
        if node.name in scope.variables:
            raise self.error(OperandError, f"{node.name} is declared twice", node.offset)
        scope.variables[node.name] = node

    def _declare_registers(self, node: Declaration, scope: Scope) -> None:
        if node.type not in REGISTER_TYPES:
            raise self.error(ParseError, f"there are no .{node.type} registers", node.offset)
        kind = TYPES[node.type]
        names = [f"{node.name}{i}" for i in range(node.count or 0)]
        if len(self.registers) + len(names) * node.vector > REGISTERS.most:
            raise self.error(TooLarge, REGISTERS.refusal(len(self.registers) + len(names) * node.vector), node.offset)
        if node.count is None:
            self._declare_name("register", node.name, scope, node.offset)
            names = [node.name]
        for name in names:
            if name in scope.registers:
                raise self.error(OperandError, f"register {name} is declared twice", node.offset)
            if node.vector == 1:
                scope.registers[name] = self.new_register(name, kind)
            else:
                parts = [self.new_register(f"{name}.{c}", kind) for c in "xyzw"[: node.vector]]
                scope.registers[name] = parts

    def built(self, tree: Block) -> Program:
        """The program of a whole tree. Raises PtxError, an InternalError at the statement where a check is missing."""
        try:
            self.add(tree)
            return self.build()
        except PtxError:
            raise
        except Exception as error:
            words = unexpected(error, "checking this statement")
            raise self.error(type(words), words.message, self.at) from error

    def jump(self, step: Step, label: Name) -> None:
        """Remember that `step` goes to a label which may come later."""
        self._jumps.append((step, label, self.scope))

    def build(self) -> Program:
        """The program, all jumps resolved. Raises OperandError for an unknown label."""
        for step, label, scope in self._jumps:
            target = scope.label(label.text)
            if target is None:
                raise self.error(OperandError, f"there is no label {label.text} here", label.offset)
            step.target = target
        for name, scope in self._listed:
            if scope.label(name.text) is None:
                raise self.error(OperandError, f"there is no label {name.text} here", name.offset)
        branches = any(s.kind in ("branch", "exit") for s in self.steps)
        return Program(self.steps, self.registers, self.source, branches)

    def error(self, kind: type[PtxError], message: str, offset: int) -> PtxError:
        """An error that points at `offset` of the text."""
        return self.source.error(kind, message, offset)

    def _bind(self, node: Instruction) -> Step:
        found = lookup(node, self.source, self.target, self.elementwise)
        first: PtxError | None = None
        # Forms with as many operands first: their complaints are to the point.
        for bound in sorted(found, key=lambda b: len(b.form.sources) + 1 != len(node.operands)):
            try:
                step = self._bind_form(node, bound)
                if node.guard is not None:
                    guard = self.predicate(node.guard.register)
                    step.guard, step.guard_negated = guard.slot, node.guard.negated
                return step
            except OperandError as error:
                first = first or error
        assert first is not None
        raise first

    def _bind_form(self, node: Instruction, bound: Bound) -> Step:
        form = bound.form
        if form.operation:
            from .operations import BINDERS

            return BINDERS[form.operation](self, node, bound)
        if form.selections:
            node, bound = selected(self.source, node, bound)
        writers, readers = self.operands(node, bound)
        readers += [Reader(self.carry.slot, 1) for _ in form.reads]
        writers += [[Writer(self.carry.slot, 1)] for _ in form.writes]
        wanted = [(i, w) for i, each in enumerate(writers) for w in each if w.slot >= 0]
        return Step(
            "scalar",
            node,
            bound,
            sources=tuple(readers),
            destinations=tuple(w for _, w in wanted),
            functions=tuple(bound.array_function(i) for i, _ in wanted),
        )

    def operands(self, node: Instruction, bound: Bound) -> tuple[list[list[Writer]], list[Reader]]:
        """Check and bind where each result of an instruction goes, and what it reads, as its form declares it."""
        written = [
            self._unspecial(o, bound, s)
            for o, s in zip(self._written_sources(node, bound), bound.form.sources, strict=True)
        ]
        writers = self._destinations(node, bound)
        return writers, [self.source_operand(o, bound, s) for o, s in zip(written, bound.form.sources, strict=True)]

    def _unspecial(self, node: Operand, bound: Bound, spec: OperandSpec) -> Operand:
        """A register for a special register where ptxas lets one stand: in cvt between integers, or between braces."""
        if not isinstance(node, Name) or not braces.is_special(node):
            return node
        kinds = [bound.type_of(s) for s in bound.form.operands]
        own = TYPES[SPECIAL_REGISTERS[node.text.partition(".")[0]][0]]
        integers = len(kinds) == 2 and all(k.kind in ("u", "s") for k in (own, *kinds))
        return self.special_moved(node) if bound.form.opcode == "cvt" and (integers or spec.vector) else node

    def special_moved(self, node: Name) -> Name:
        """A register that has what a special register has."""
        own = TYPES[SPECIAL_REGISTERS[node.text.partition(".")[0]][0]]
        name = f"({node.text})"
        register = self.new_register(name, TYPES[f"u{own.width}"])
        self.scope.registers[name] = register
        moved = Instruction("mov", (register.type.name,), [Name(name, node.offset), node], None, node.offset)
        self.steps.append(self._bind(moved))
        return Name(name, node.offset)

    def _written_sources(self, node: Instruction, bound: Bound) -> list[Operand]:
        """The source operands one by one, the elements between braces too, as many as the form has."""
        form = bound.form
        braced = sum(s.vector for s in form.sources)
        count = 1 + len(form.sources) - max(braced - 1, 0)
        if len(node.operands) != count:
            names = ", ".join(s.name for s in form.operands)
            message = f"{node.spelling} takes {count} operands ({names}), not {len(node.operands)}"
            raise self.error(OperandError, message, node.offset)
        if not braced:
            return node.operands[1:]
        at = 1 + next(i for i, s in enumerate(form.sources) if s.vector)
        vector = node.operands[at]
        if not isinstance(vector, Vector) or len(vector.elements) != braced:
            message = f"{node.spelling} takes {braced} registers in braces here"
            raise self.error(OperandError, message, vector.offset)
        spec = next(s for s in form.sources if s.vector)
        braces.agreed(self, vector.elements, bound.type_of(spec), f"vector of {bound.spelling}")
        return [*node.operands[1:at], *vector.elements, *node.operands[at + 1 :]]

    def _destinations(self, node: Instruction, bound: Bound) -> list[list[Writer]]:
        specs = list(bound.form.destinations)
        written = node.operands[0]
        parts: list[Operand] = [written]
        if isinstance(written, Pair):
            parts = [written.first, written.second]
            if all(isinstance(part, Sink) for part in parts):
                raise self.error(OperandError, "one of two destinations must be a register", written.offset)
            if len(specs) == 1 and isinstance(written.second, Sink):
                # ptxas lets any instruction with one destination be written `d|_`.
                parts.pop()
        if len(parts) > len(specs):
            raise self.error(OperandError, f"{node.spelling} has one destination, not two", written.offset)
        missing = next((s.name for s in specs[len(parts) :] if not s.optional), None)
        if missing:
            raise self.error(OperandError, f"{node.spelling} has a further destination, {missing}", written.offset)
        # The first of two destinations may be `_` even where both are needed (lop3), and the one of setp for halves.
        odd = bound.form.opcode == "setp" and any(bound.type_of(s).name in ("f16", "bf16") for s in bound.form.sources)
        writers = [
            self._written(p, bound, s, odd or s.optional or s is not specs[-1])
            for p, s in zip(parts, specs, strict=False)
        ]
        return writers + [[Writer(-1, 1)]] * (len(specs) - len(parts))

    def _written(self, node: Operand, bound: Bound, spec: OperandSpec, may_discard: bool) -> list[Writer]:
        kind = bound.type_of(spec)
        if registers := braces.all_written(self, node, bound, spec):
            return [Writer(r.slot, kind.width) for r in registers]
        return [self.destination(node, kind, bound, may_discard)]

    # operands --------------------------------------------------------------------------------------------

    def resolve(self, node: Name) -> Register:
        """The register that a name means. Raises OperandError if there is none."""
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

    def address_of(self, node: Name) -> Reader | None:
        """The address that a variable's name stands for; None if the name is no variable."""
        return None

    def parameter(self, node: Operand, size: int) -> tuple[str, int]:
        """The kernel parameter that `[name+offset]` means; there are none outside a kernel."""
        raise self.error(OperandError, "there are no parameters here", node.offset)

    def predicate(self, node: Name) -> Register:
        """A register that must be a predicate."""
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

    def destination(self, node: Operand, kind: ScalarType, bound: Bound, may_discard: bool = False) -> Writer:
        """Check and bind an operand that is written with a value of type `kind`."""
        if isinstance(node, Sink):
            if not may_discard:
                raise self.error(OperandError, f"{bound.spelling} cannot discard its result", node.offset)
            return Writer(-1, kind.width)
        if not isinstance(node, Name) or node.negated:
            raise self.error(OperandError, f"the destination of {bound.spelling} must be a register", node.offset)
        register = self.resolve(node)
        self.check(register, kind, bound.form.relaxed, node, f"destination of {bound.spelling}")
        if register.type.width == 128:
            return Writer(register.slot, 64, kind.signed, register.slot + 1)
        return Writer(register.slot, register.type.width, kind.signed)

    def source_operand(self, node: Operand, bound: Bound, spec: OperandSpec) -> Reader:
        """Check and bind an operand that is read, as a form declares it."""
        kind = bound.type_of(spec)
        role = f"operand {spec.name} of {bound.spelling}"
        constant = isinstance(node, Immediate)
        if spec.constant and not constant:
            raise self.error(OperandError, f"{role} must be a constant", node.offset)
        if constant and (refusal := self._refused_constant(node, bound, spec, kind)):
            raise self.error(OperandError, f"{role}{refusal}", node.offset)
        if (first := braces.first_read(self, node, bound, spec)) is not None:
            return Reader(first.slot, kind.width)
        if spec.name in bound.form.braces and isinstance(node, Immediate) and node.single is not None:
            # ptxas 13.4 loses the constant, and the code that it makes converts zero.
            return Reader(-1, kind.width, 0)
        if spec.vector and isinstance(node, Name) and not node.negated:
            # ptxas looks at the size only of what stands between braces.
            register = self.resolve(node)
            self.check(register, TYPES[f"b{kind.width}"], False, node, role)
            return Reader(register.slot, kind.width)
        return self.read(node, kind, bound.form.relaxed, role)

    def _refused_constant(self, node: Operand, bound: Bound, spec: OperandSpec, kind: ScalarType) -> str:
        """What ptxas has against a constant at an operand that otherwise takes one; empty if nothing."""
        types = {bound.type_of(s).name for s in bound.form.sources}
        if kind.kind == "pred" and types & {"bf16", "bf16x2"}:
            return " must be a predicate register here"
        if isinstance(node, Immediate):
            if spec.name in bound.form.small and isinstance(node.value, int) and not 0 <= node.value <= 255:
                return f": the constant {node.value} is not in 0 to 255"
            if "rna" in bound.chosen and isinstance(node.value, float) and node.single is None:
                return ": a constant is written 0f and eight hexadecimal digits here"
        return ""

    def read(self, node: Operand, kind: ScalarType, relaxed: bool, role: str) -> Reader:
        """Check and bind a source operand of type `kind`: a register, a negated predicate or a constant."""
        if isinstance(node, Immediate):
            return Reader(-1, kind.width, self.pattern(node, kind, role))
        if isinstance(node, Name):
            register = self.resolve(node)
            self.check(register, kind, relaxed, node, role)
            if node.negated and kind.kind != "pred":
                raise self.error(OperandError, f"{role}: only predicates can be negated with '!'", node.offset)
            return Reader(register.slot, kind.width, negated=node.negated)
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
