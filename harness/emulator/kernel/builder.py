"""Build the program of one kernel of a module: variables in memory, parameters, and functions that it calls.

The body of a called function replaces the call. Parameter registers are copied. For variables in .param memory, a
register replaces each byte range that is stored. A load reads this register, a part of it, or several registers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ptxdiff.emulator.binding.builder import Builder
from ptxdiff.emulator.binding.program import ReadSlot, Register, Step
from ptxdiff.emulator.binding.resolver import Scope
from ptxdiff.emulator.errors import NotElementwise, OperandError, TooLarge
from ptxdiff.emulator.kernel.kernel import places_of, size_of
from ptxdiff.emulator.kernel.memory.space import SHARED_BASE, VARIABLES_BASE
from ptxdiff.emulator.limits import LOCAL, STATIC_SHARED, VARIABLES
from ptxdiff.emulator.targets import AnyTarget
from ptxdiff.emulator.text.nodes import (
    Address,
    Declaration,
    Function,
    Instruction,
    Module,
    Name,
    Operand,
    Sink,
    Statement,
    Vector,
)
from ptxdiff.emulator.text.types import TYPES

END = "\x02end"
"""The label after an inlined body, and how its parameter registers begin; no PTX text can contain it."""
_MOVED = frozenset({"b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"})
"""Types of parameter registers. ptxas passes no predicate and no narrower number in one."""


def called(node: Instruction) -> Name | None:
    """The name of the called function; None for a call through a register."""
    return next((o for o in node.operands if isinstance(o, Name)), None)


def passed(node: Instruction) -> list[list[Operand]]:
    """What a call passes: the list of results and the list of arguments."""
    if called(node) is None:
        return [[], []]
    at = next(i for i, o in enumerate(node.operands) if isinstance(o, Name))
    groups = [node.operands[:at], node.operands[at + 1 :]]
    return [[e for o in group if isinstance(o, Vector) for e in o.elements] for group in groups]


def passed_names(node: Instruction) -> list[list[Name]]:
    """The names that a call passes: the list of results and the list of arguments."""
    return [[e for e in group if isinstance(e, Name)] for group in passed(node)]


@dataclass(frozen=True)
class PassedPart:
    """Bits of a load from a .param variable: the register they lie in, its width, from which bit on, how many, and
    where they go.
    """

    slot: int
    width: int
    shift: int
    bits: int
    to: int


class KernelBuilder(Builder):
    """A builder for kernels, with variables in memory, parameters, and calls of functions.

    `passed`: the registers that stand for .param variables, by declaration, offset and width; `stored`: those of them
    that are written; `calling`: the functions
    whose bodies are being put in place; `tensor_group`: the .cta_group of tcgen05 instructions, which all share it.
    """

    def __init__(self, module: Module, function: Function, target: AnyTarget) -> None:
        super().__init__(module.source, target, elementwise=False)
        self.module = module
        self.functions = {f.name: f for f in module.functions if not f.kernel and f.body is not None}
        self.passed: dict[tuple[int, int, int], Register] = {}
        self.stored: set[tuple[int, int, int]] = set()
        self.calling: list[str] = []
        self.tensor_group = ""
        self.parameters = {p.name: p for p in function.parameters}
        self.scope.names |= set(self.parameters)
        self.parameter_places = places_of(function.parameters)
        self.sizes = {"shared": 0, "local": 0, "global": 0}
        self.variables = bytearray()
        self.const_spans: list[tuple[int, int]] = []  # of variables in constant memory: first byte, and the end
        self.dynamic: list[str] = []
        self.offsets: dict[int, int] = {}
        for variable in module.variables:
            self.scope.variables[variable.name] = variable
        for variable in module.variables:
            self.place(variable)

    def _add(self, statement: Statement) -> None:
        if isinstance(statement, Instruction) and statement.opcode == "call":
            name = called(statement)
            if name is not None and name.text in self.functions:
                self._inline(statement, self.functions[name.text])
                return
        super()._add(statement)

    def _bind(self, node: Instruction) -> Step:
        step = super()._bind(node)
        return self._returning(step) if step.kind == "exit" else step

    def place(self, node: Declaration) -> None:
        """Assign a variable its offset in its space."""
        space = "global" if node.space == "const" else node.space
        if space not in self.sizes or id(node) in self.offsets:
            return
        width = TYPES[node.type].width // 8
        align = max(node.align, width)
        elements = node.size  # do not change the tree: kernels of all targets share it
        if elements is None and node.values:
            elements = -(-len(node.values) // node.vector)
        if elements is None:
            self.dynamic.append(node.name)
            self.offsets[id(node)] = -align
            return
        start = -(-self.sizes[space] // align) * align
        self.offsets[id(node)] = start
        size = start + width * node.vector * elements
        most = {"local": LOCAL, "shared": STATIC_SHARED, "global": VARIABLES}[space]
        if size > most.most:
            raise self.error(TooLarge, most.refusal(size), node.offset)
        if len(node.values) > node.vector * elements:
            message = f"{node.name} has {node.vector * elements} elements and {len(node.values)} initial values"
            raise self.error(OperandError, message, node.offset)
        self.sizes[space] = size
        if space == "global":
            self.variables.extend(bytes(self.sizes[space] - len(self.variables)))
            if node.space == "const":
                self.const_spans.append((start, size))
            for number, value in enumerate(node.values):
                at = start + number * width
                self.variables[at : at + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")

    def address_of(self, node: Name) -> ReadSlot | None:
        """The address of a shared or local variable, or of a parameter of the kernel."""
        variable = self.scope.variable(node.text)
        if variable is None and node.text in self.functions:
            message = (
                f"the address of the function {node.text}: calls through a register are not run, calls by name are"
            )
            raise self.error(NotElementwise, message, node.offset)
        if variable is None:
            at = self.parameter_places.get(node.text)
            return None if at is None else ReadSlot(-1, 64, at + node.displacement)
        self.place(variable)
        offset = self.offsets.get(id(variable))
        if offset is None:
            message = f"{node.text} lies in .{variable.space} memory, whose variables have no address here"
            raise self.error(OperandError, message, node.offset)
        if offset < 0:
            # Dynamic shared memory begins after the static variables, which Triton does not use.
            offset = -(-self.sizes["shared"] // -offset) * -offset
        base = VARIABLES_BASE if variable.space in ("global", "const") else SHARED_BASE
        return ReadSlot(-1, 64, base + offset + node.displacement, shared=variable.space == "shared")

    def parameter(self, node: Operand, size: int) -> tuple[str, int]:
        """The parameter, and the offset in it, for `[name+offset]`."""
        if not isinstance(node, Address) or node.base is None or node.base.text not in self.parameters:
            raise self.error(OperandError, "no parameter of this kernel has this name", node.offset)
        declared = self.parameters[node.base.text]
        whole = size_of(declared)
        if not 0 <= node.displacement <= whole - size:
            raise self.error(OperandError, f"{size} bytes lie outside parameter {declared.name}", node.offset)
        return declared.name, node.displacement

    def holds_address(self, node: Operand) -> bool:
        """Whether `[base+displacement]` has a register as its base, and not a parameter of the kernel."""
        named = isinstance(node, Address) and node.base is not None and node.base.text in self.parameters
        return not named and super().holds_address(node)

    # calls -----------------------------------------------------------------------------------------------

    def param_register(self, node: Operand, number: int, width: int) -> Register | None:
        """The register for element `number` of an access to a .param variable; None for a kernel's parameter.

        Raises OperandError if the access lies outside the variable.
        """
        if not isinstance(node, Address) or node.base is None:
            raise self.error(OperandError, "an argument of a call is named in brackets", node.offset)
        declared = self.scope.variable(node.base.text)
        if declared is None or declared.space != "param":
            return None
        size, offset = width // 8, node.displacement + number * width // 8
        if not 0 <= offset <= TYPES[declared.type].width // 8 * (declared.size or 1) - size:
            raise self.error(OperandError, f"{size} bytes lie outside {declared.name}", node.offset)
        return self.slot_of(declared, offset, width)

    def param_parts(self, register: Register) -> tuple[PassedPart, ...]:
        """The stored ranges that make a load of a .param variable; none where one was stored as it is loaded.

        Compilers write a word and read one byte of it, or write bytes and read a word.
        """
        (variable, first, width), *_ = (k for k, r in self.passed.items() if r is register)
        known = sorted(k[1:] for k in self.stored if k[0] == variable and k[2] <= 64)
        parts, at, end = list[PassedPart](), first, first + width // 8
        while (variable, first, width) not in self.stored and width <= 64 and at < end:
            begin, wide = next(((b, w) for b, w in known if b <= at < b + w // 8), (at, 0))
            if not wide:
                return ()  # nobody stores it: it is undefined
            behind = min(end, begin + wide // 8)
            slot = self.passed[variable, begin, wide].slot
            parts.append(PassedPart(slot, wide, 8 * (at - begin), 8 * (behind - at), 8 * (at - first)))
            at = behind
        return tuple(parts)

    def note_stored(self, node: Instruction, registers: Iterable[Register]) -> None:
        """Remember which ranges of .param variables are stored. Raises NotElementwise for two that overlap."""
        slots = {r.slot for r in registers}
        for variable, first, width in [k for k, r in self.passed.items() if r.slot in slots]:
            for _, begin, wide in (k for k in self.stored if k[0] == variable):
                meet = begin < first + width // 8 and first < begin + wide // 8
                if meet and (begin, wide) != (first, width):
                    text = "stores to one .param variable in two widths, which the emulator does not run"
                    raise self.error(NotElementwise, f"{node.spelling}: {text}", node.offset)
            self.stored.add((variable, first, width))

    def slot_of(self, declared: Declaration, offset: int, width: int) -> Register:
        """The register that replaces a byte range of a .param variable."""
        key = (id(declared), offset, width)
        if key not in self.passed:
            self.passed[key] = self.new_register(f"{declared.name}+{offset}", TYPES[f"b{width}"])
        return self.passed[key]

    def _inline(self, node: Instruction, function: Function) -> None:
        """Replace a call by the function's body. Raises NotElementwise for a recursive or predicated call."""
        if function.name in self.calling:
            raise self.error(
                NotElementwise, f"{function.name} calls itself, which the emulator does not run", node.offset
            )
        if node.guard is not None:
            raise self.error(
                NotElementwise, "the emulator runs no call under a predicate; branch around it", node.offset
            )
        assert function.body is not None
        inner = Scope()
        inner.variables |= {v.name: v for v in self.module.variables}
        results, arguments = passed(node)
        moved: list[tuple[str, Operand, Declaration]] = []  # what leaves the body in registers
        for given, declared in ((results, function.results), (arguments, function.parameters)):
            if len(given) != len(declared):
                text = f"{function.name} takes {len(declared)} here, not {len(given)}"
                raise self.error(OperandError, text, node.offset)
            for operand, parameter in zip(given, declared, strict=True):
                if parameter.space == "reg":
                    name = f"{END}{len(self.registers)}"
                    register = self.new_register(parameter.name, TYPES[parameter.type])
                    inner.registers[parameter.name] = register
                    inner.names.add(parameter.name)
                    self.scope.registers[name] = register
                    if given is arguments:
                        self._move(node, parameter, Name(name, node.offset), operand)
                    else:
                        moved.append((name, operand, parameter))
                    continue
                variable = self.scope.variable(operand.text) if isinstance(operand, Name) else None
                if variable is None or variable.space != "param":
                    text = f"{operand.text if isinstance(operand, Name) else 'a constant'} is no .param variable"
                    raise self.error(OperandError, text, operand.offset)
                inner.variables[parameter.name] = variable
        outer, self.scope = self.scope, inner
        self.calling.append(function.name)
        self.nested(function.body)
        self.calling.pop()
        inner.labels[END] = len(self.steps)
        self.scope = outer
        for name, operand, parameter in moved:
            if not isinstance(operand, Sink):
                self._move(node, parameter, operand, Name(name, node.offset))

    def _move(self, node: Instruction, parameter: Declaration, to: Operand, given: Operand) -> None:
        """Copy a register, or a constant, that a call passes in a parameter register."""
        if parameter.count is not None or parameter.vector != 1 or parameter.type not in _MOVED:
            text = f"a call with a parameter register of type .{parameter.type}, which the emulator does not run"
            raise self.error(NotElementwise, text, node.offset)
        self._add(Instruction("mov", (parameter.type,), [to, given], None, node.offset, node.location))

    def _returning(self, step: Step) -> Step:
        """`ret` in an inlined body jumps to the body's end; in the kernel it ends the thread."""
        if not self.calling or step.node.opcode != "ret":
            return step
        there = Step("branch", step.node, step.bound, guard=step.guard, guard_negated=step.guard_negated)
        self.jump(there, Name(END, step.node.offset))
        return there
