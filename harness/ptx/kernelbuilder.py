"""From a module to the program of one of its kernels: variables in memory, parameters, and functions that it calls."""

from __future__ import annotations

from . import operations_call
from .errors import OperandError, TooLarge
from .limits import LOCAL, STATIC_SHARED, VARIABLES
from .memory import SHARED_BASE, VARIABLES_BASE
from .nodes import Address, Declaration, Function, Instruction, Module, Name, Operand, Statement
from .program import Builder, Reader, Register, Step
from .targets import AnyTarget
from .types import TYPES

__all__ = ["KernelBuilder", "size_of"]


def size_of(parameter: Declaration) -> int:
    """Bytes of a parameter."""
    return TYPES[parameter.type].width // 8 * parameter.vector * (1 if parameter.size is None else parameter.size)


class KernelBuilder(Builder):
    """A builder that knows variables in memory, kernel parameters, and the functions that a kernel calls.

    `passed`: the registers that stand for .param variables, by declaration, offset and width; `calling`: the functions
    whose bodies are being put in place.
    """

    def __init__(self, module: Module, function: Function, target: AnyTarget) -> None:
        super().__init__(module.source, target, elementwise=False)
        self.module = module
        self.functions = {f.name: f for f in module.functions if not f.kernel and f.body is not None}
        self.passed: dict[tuple[int, int, int], Register] = {}
        self.calling: list[str] = []
        self.parameters = {p.name: p for p in function.parameters}
        self.sizes = {"shared": 0, "local": 0, "global": 0}
        self.variables = bytearray()
        self.dynamic: list[str] = []
        self.offsets: dict[int, int] = {}
        for variable in module.variables:
            self.scope.variables[variable.name] = variable
        for variable in module.variables:
            self.place(variable)

    def _add(self, statement: Statement) -> None:
        if isinstance(statement, Instruction) and statement.opcode == "call":
            name = operations_call.called(statement)
            if name is not None and name.text in self.functions:
                operations_call.inlined(self, statement, self.functions[name.text])
                return
        super()._add(statement)

    def _bind(self, node: Instruction) -> Step:
        step = super()._bind(node)
        return operations_call.returning(self, step) if step.kind == "exit" else step

    def place(self, node: Declaration) -> None:
        """Give a variable its offset in its space."""
        space = "global" if node.space == "const" else node.space
        if space not in self.sizes or id(node) in self.offsets:
            return
        width = TYPES[node.type].width // 8
        align = max(node.align, width)
        elements = node.size  # the tree is shared by the kernels of all targets, and stays as it is
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
            for number, value in enumerate(node.values):
                at = start + number * width
                self.variables[at : at + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")

    def address_of(self, node: Name) -> Reader | None:
        """The address of a shared or local variable."""
        variable = self.scope.variable(node.text)
        if variable is None:
            return None
        self.place(variable)
        offset = self.offsets.get(id(variable))
        if offset is None:
            message = f"{node.text} lies in .{variable.space} memory, whose variables have no address here"
            raise self.error(OperandError, message, node.offset)
        if offset < 0:
            # Dynamic shared memory begins behind the static variables, which Triton has none of.
            offset = -(-self.sizes["shared"] // -offset) * -offset
        base = VARIABLES_BASE if variable.space in ("global", "const") else SHARED_BASE
        return Reader(-1, 64, base + offset)

    def parameter(self, node: Operand, size: int) -> tuple[str, int]:
        """The parameter and the offset in it that `[name+offset]` means."""
        if not isinstance(node, Address) or node.base is None or node.base.text not in self.parameters:
            raise self.error(OperandError, "no parameter of this kernel has this name", node.offset)
        declared = self.parameters[node.base.text]
        whole = size_of(declared)
        if not 0 <= node.displacement <= whole - size:
            raise self.error(OperandError, f"{size} bytes lie outside parameter {declared.name}", node.offset)
        return declared.name, node.displacement
