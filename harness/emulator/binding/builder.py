"""Build a program from a syntax tree: walk over the statements and bind each instruction to its form.

What ptxas would refuse is refused here, with the place in the text. Operations that the machine itself executes are
bound by functions that other modules register with `binds`. A module that builds programs must import those modules
(see `binding.operations`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ptxdiff.emulator import isa
from ptxdiff.emulator.binding import resolver
from ptxdiff.emulator.binding.program import Program, ReadSlot, Step, WriteSlot
from ptxdiff.emulator.binding.resolver import Resolver, Scope
from ptxdiff.emulator.binding.special_registers import SPECIAL_REGISTERS
from ptxdiff.emulator.errors import (
    InternalError,
    NotElementwise,
    OperandError,
    ParseError,
    PtxError,
    TooLarge,
    unexpected,
)
from ptxdiff.emulator.isa.forms import Bound, OperandSpec
from ptxdiff.emulator.isa.lookup import lookup
from ptxdiff.emulator.isa.selectors import SELECTORS, spellings
from ptxdiff.emulator.limits import INSTRUCTIONS, NESTING, REGISTERS
from ptxdiff.emulator.targets import AnyTarget
from ptxdiff.emulator.text.nodes import (
    BranchTargets,
    CodeBlock,
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
from ptxdiff.emulator.text.types import REGISTER_TYPES, TYPES, ScalarType


def selected(source: Source, node: Instruction, bound: Bound) -> tuple[Instruction, Bound]:
    """The instruction with plain operands, and the form with their selectors and signs.

    Raises OperandError for a selector that the operand does not take.
    """
    codes: dict[str, int] = {}
    plain: list[Operand] = []
    simd = any(s.selector in ("pair", "quad") for s in bound.form.operands)
    for operand, spec in zip(node.operands, bound.form.operands, strict=False):
        if isinstance(operand, Name):
            plain.append(_strip(source, node, operand, spec, codes))
        elif simd:
            message = f"operand {spec.name} of {node.spelling} must be a register"
            raise source.error(OperandError, message, operand.offset)
        else:
            plain.append(operand)
    plain += node.operands[len(plain) :]
    _check_signs(source, node, bound, codes)
    return replace(node, operands=plain), replace(bound, selected=tuple(codes.items()))


def _check_signs(source: Source, node: Instruction, bound: Bound, codes: dict[str, int]) -> None:
    product = codes.get("aneg", 0) ^ codes.get("bneg", 0)
    if product + codes.get("cneg", 0) + (bound.modifiers.get("po") is not None) > 1:
        message = f"{node.spelling} negates the product or c or adds one (.po): only one of the three"
        raise source.error(OperandError, message, node.offset)


def _strip(source: Source, node: Instruction, operand: Name, spec: OperandSpec, codes: dict[str, int]) -> Name:
    """The register's name without selector and sign, which go into `codes`."""
    where = f"operand {spec.name} of {node.spelling}"
    base, dot, word = operand.text.rpartition(".")
    if operand.minus:
        if not spec.negatable:
            raise source.error(OperandError, f"{where} cannot be negated", operand.offset)
        codes[spec.name + "neg"] = 1
    if not dot:
        return replace(operand, minus=False)
    if not spec.selector:
        raise source.error(OperandError, f"{where} takes no selector", operand.offset)
    code = SELECTORS[spec.selector].get(word)
    if code is None:
        message = f"{where} has no selector .{word}; it takes {spellings(spec.selector)}"
        raise source.error(OperandError, message, operand.offset)
    codes[spec.name + "sel"] = code
    return replace(operand, text=base, minus=False)


Binder = Callable[[Any, Instruction, Bound], Step]
"""Makes a step from a builder, an instruction and its form. Binders for kernels take a `KernelBuilder`."""

BINDERS: dict[str, Binder] = {}
"""For each operation (see `isa.registry.operation`), by name, the function that checks its operands."""


def binds(name: str) -> Callable[[Binder], Binder]:
    """Register a binder."""

    def register(binder: Binder) -> Binder:
        BINDERS[name] = binder
        return binder

    return register


def expect(builder: Resolver, node: Instruction, *counts: int) -> None:
    """Raise OperandError unless the instruction has one of these numbers of operands."""
    if len(node.operands) not in counts:
        wanted = " or ".join(map(str, counts))
        message = f"{node.spelling} takes {wanted} operands, not {len(node.operands)}"
        raise builder.error(OperandError, message, node.offset)


def binds_alone(*names: str) -> None:
    """Register binders of operations that have no operands."""

    def bind(builder: Resolver, node: Instruction, bound: Bound) -> Step:
        expect(builder, node, 0)
        return Step(bound.form.operation, node, bound)

    for name in names:
        BINDERS[name] = bind


class Builder(Resolver):
    """Builds a Program in one pass over the tree; jumps find their labels at the end."""

    def __init__(self, source: Source, target: AnyTarget | None, elementwise: bool) -> None:
        isa.load()
        super().__init__(source, target)
        self.elementwise = elementwise
        self.steps: list[Step] = []
        self._jumps: list[tuple[Step, Name, Scope]] = []
        self._listed: list[tuple[Name, Scope]] = []
        self.statements = self.depth = self.at = 0
        self.carry = self.new_register("CC.CF", TYPES["pred"])

    # the walk --------------------------------------------------------------------------------------------

    def add(self, block: CodeBlock) -> None:
        """Walk a block: declare its names in the current scope, bind its instructions."""
        for statement in block.statements:
            self._add(statement)

    def nested(self, block: CodeBlock) -> None:
        """Walk a block within another, or the body of a function that is called. Raises TooLarge."""
        self.depth += 1
        if self.depth > NESTING.most:
            raise self.error(TooLarge, NESTING.refusal(self.depth), block.offset)
        self.add(block)
        self.depth -= 1

    def count(self, statement: Statement) -> None:
        """Count a statement; one in a called function counts once for each call. Raises TooLarge."""
        self.statements += 1
        self.at = statement.offset
        if self.statements > INSTRUCTIONS.most:
            raise self.error(TooLarge, INSTRUCTIONS.refusal(self.statements), statement.offset)

    def _add(self, statement: Statement) -> None:
        scope = self.scope
        self.count(statement)
        if isinstance(statement, Instruction):
            self.steps.append(self._bind(statement))
        elif isinstance(statement, CodeBlock):
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
        """Record a label, a variable, or a register declared alone. Raises OperandError if the scope has the name
        already."""
        if name in scope.names:
            raise self.error(OperandError, f"{what} {name} is declared twice", offset)
        scope.names.add(name)

    def _declare_variable(self, node: Declaration, scope: Scope) -> None:
        if self.elementwise:
            message = f"a variable in .{node.space} memory has no meaning for a single element"
            raise self.error(NotElementwise, message, node.offset)
        if node.name in scope.variables:
            raise self.error(OperandError, f"{node.name} is declared twice", node.offset)
        self._declare_name("variable", node.name, scope, node.offset)
        self._refuse_predefined(node.name, node.offset)
        scope.variables[node.name] = node

    def _refuse_predefined(self, name: str, offset: int) -> None:
        """Raise OperandError for the name of a special register (ISA 4.4: predefined identifiers).

        ptxas accepts such a declaration, and then refuses or misreads each use of the special register.
        """
        if name in SPECIAL_REGISTERS:
            raise self.error(OperandError, f"{name} is a special register, and cannot be declared", offset)

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
            self._refuse_predefined(name, node.offset)
            if node.vector == 1:
                scope.registers[name] = self.new_register(name, kind)
            else:
                parts = [self.new_register(f"{name}.{c}", kind) for c in "xyzw"[: node.vector]]
                scope.registers[name] = parts

    def built(self, tree: CodeBlock) -> Program:
        """The program of a whole tree. Raises PtxError: an InternalError, with the statement, if a check is missing."""
        try:
            self.add(tree)
            return self.build()
        except PtxError:
            raise
        except Exception as error:
            fault = unexpected(error, "checking this statement")
            raise self.error(type(fault), fault.message, self.at) from error

    def jump(self, step: Step, label: Name) -> None:
        """Record that `step` jumps to a label, which may be declared later."""
        self._jumps.append((step, label, self.scope))

    def build(self) -> Program:
        """The program, with all jumps resolved. Raises OperandError for an unknown label."""
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

    # forms -----------------------------------------------------------------------------------------------

    def _bind(self, node: Instruction) -> Step:
        candidates = lookup(node, self.source, self.target, self.elementwise)
        first: PtxError | None = None
        # Forms with the same number of operands come first: their errors describe the actual mistake.
        for bound in sorted(candidates, key=lambda b: len(b.form.sources) + 1 != len(node.operands)):
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
            return self._binder(node, form.operation)(self, node, bound)
        if form.selections:
            node, bound = selected(self.source, node, bound)
        writers, readers = self.operands(node, bound)
        readers += [ReadSlot(self.carry.slot, 1) for _ in form.reads]
        writers += [[WriteSlot(self.carry.slot, 1)] for _ in form.writes]
        wanted = [(i, w) for i, each in enumerate(writers) for w in each if w.slot >= 0]
        return Step(
            "scalar",
            node,
            bound,
            sources=tuple(readers),
            destinations=tuple(w for _, w in wanted),
            functions=tuple(bound.array_function(i) for i, _ in wanted),
        )

    def _binder(self, node: Instruction, operation: str) -> Binder:
        """The binder of an operation. Raises InternalError if no loaded module registers one."""
        binder = BINDERS.get(operation)
        if binder is None:
            message = f"{node.spelling}: no loaded module registers a binder for operation {operation!r}"
            raise self.error(InternalError, message, node.offset)
        return binder

    def operands(self, node: Instruction, bound: Bound) -> tuple[list[list[WriteSlot]], list[ReadSlot]]:
        """Check and bind the destinations and sources of an instruction as its form declares them."""
        written = [
            self._unspecial(o, bound, s)
            for o, s in zip(self._written_sources(node, bound), bound.form.sources, strict=True)
        ]
        writers = self._destinations(node, bound)
        return writers, [self.source_operand(o, bound, s) for o, s in zip(written, bound.form.sources, strict=True)]

    def _unspecial(self, node: Operand, bound: Bound, spec: OperandSpec) -> Operand:
        """An ordinary register for a special one where ptxas accepts it: in cvt between integers, or between braces."""
        if not isinstance(node, Name) or not resolver.is_special(node):
            return node
        kinds = [bound.type_of(s) for s in bound.form.operands]
        own = TYPES[SPECIAL_REGISTERS[node.text.partition(".")[0]][0]]
        integers = len(kinds) == 2 and all(k.kind in ("u", "s") for k in (own, *kinds))
        return self.special_moved(node) if bound.form.opcode == "cvt" and (integers or spec.vector) else node

    def special_moved(self, node: Name) -> Name:
        """A new register that holds the value of a special register."""
        own = TYPES[SPECIAL_REGISTERS[node.text.partition(".")[0]][0]]
        name = f"({node.text})"
        register = self.new_register(name, TYPES[f"u{own.width}"])
        self.scope.registers[name] = register
        moved = Instruction("mov", (register.type.name,), [Name(name, node.offset), node], None, node.offset)
        self.steps.append(self._bind(moved))
        return Name(name, node.offset)

    def _written_sources(self, node: Instruction, bound: Bound) -> list[Operand]:
        """The source operands, with vectors split into elements. Raises OperandError if the form has another number."""
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
        resolver.agreed(self, vector.elements, bound.type_of(spec), f"vector of {bound.spelling}")
        return [*node.operands[1:at], *vector.elements, *node.operands[at + 1 :]]

    def _destinations(self, node: Instruction, bound: Bound) -> list[list[WriteSlot]]:
        specs = list(bound.form.destinations)
        written = node.operands[0]
        parts: list[Operand] = [written]
        if isinstance(written, Pair):
            parts = [written.first, written.second]
            if all(isinstance(part, Sink) for part in parts):
                raise self.error(OperandError, "one of two destinations must be a register", written.offset)
            if len(specs) == 1 and isinstance(written.second, Sink):
                # ptxas accepts `d|_` for any instruction with one destination.
                parts.pop()
        if len(parts) > len(specs):
            raise self.error(OperandError, f"{node.spelling} has one destination, not two", written.offset)
        missing = next((s.name for s in specs[len(parts) :] if not s.optional), None)
        if missing:
            raise self.error(OperandError, f"{node.spelling} has a further destination, {missing}", written.offset)
        # `_` may stand for the first of two destinations even where both are needed (lop3), and for the only
        # destination of setp on halves.
        odd = bound.form.opcode == "setp" and any(bound.type_of(s).name in ("f16", "bf16") for s in bound.form.sources)
        writers = [
            self._written(p, bound, s, odd or s.optional or s is not specs[-1])
            for p, s in zip(parts, specs, strict=False)
        ]
        return writers + [[WriteSlot(-1, 1)]] * (len(specs) - len(parts))

    def _written(self, node: Operand, bound: Bound, spec: OperandSpec, may_discard: bool) -> list[WriteSlot]:
        kind = bound.type_of(spec)
        if registers := resolver.all_written(self, node, bound, spec):
            return [WriteSlot(r.slot, kind.width) for r in registers]
        return [self.destination(node, kind, bound, may_discard)]

    def source_operand(self, node: Operand, bound: Bound, spec: OperandSpec) -> ReadSlot:
        """Check and bind a source operand as the form declares it."""
        kind = bound.type_of(spec)
        role = f"operand {spec.name} of {bound.spelling}"
        constant = isinstance(node, Immediate)
        if spec.constant and not constant:
            raise self.error(OperandError, f"{role} must be a constant", node.offset)
        if constant and (refusal := self._refused_constant(node, bound, spec, kind)):
            raise self.error(OperandError, f"{role}{refusal}", node.offset)
        if (first := resolver.first_read(self, node, bound, spec)) is not None:
            return ReadSlot(first.slot, kind.width)
        if spec.name in bound.form.braces and isinstance(node, Immediate) and node.single is not None:
            # ptxas 13.4 loses the constant: its code converts zero.
            return ReadSlot(-1, kind.width, 0)
        if spec.vector and isinstance(node, Name) and not node.negated:
            # Between braces ptxas checks only the size.
            register = self.resolve(node)
            self.check(register, TYPES[f"b{kind.width}"], False, node, role)
            return ReadSlot(register.slot, kind.width)
        return self.read(node, kind, bound.form.relaxed, role)

    def _refused_constant(self, node: Operand, bound: Bound, spec: OperandSpec, kind: ScalarType) -> str:
        """Why ptxas refuses this constant at an operand that takes constants; empty if it accepts it."""
        types = {bound.type_of(s).name for s in bound.form.sources}
        if kind.kind == "pred" and types & {"bf16", "bf16x2"}:
            return " must be a predicate register here"
        if isinstance(node, Immediate):
            if spec.name in bound.form.small and isinstance(node.value, int) and not 0 <= node.value <= 255:
                return f": the constant {node.value} is not in 0 to 255"
            if "rna" in bound.chosen and isinstance(node.value, float) and node.single is None:
                return ": a constant is written 0f and eight hexadecimal digits here"
        return ""
