"""Bind the operations that every machine has: moves, reads of special registers, branches, and what has no effect."""

from __future__ import annotations

from dataclasses import replace

from ptxdiff.emulator.binding import resolver
from ptxdiff.emulator.binding.builder import Builder, binds, binds_alone, expect
from ptxdiff.emulator.binding.program import UNDEFINED, ReadSlot, Register, Step, WriteSlot
from ptxdiff.emulator.binding.special_registers import NARROWER, NEEDS, SPECIAL_REGISTERS
from ptxdiff.emulator.errors import NotElementwise, OperandError, UnsupportedOnTarget
from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.numeric.bits import f64_bits
from ptxdiff.emulator.text.nodes import (
    CodeBlock,
    Declaration,
    Guard,
    Immediate,
    Instruction,
    Label,
    Name,
    Operand,
    Sink,
    Statement,
    Vector,
)
from ptxdiff.emulator.text.types import TYPES, ScalarType


@binds("mov")
def _bind_mov(builder: Builder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 2)
    kind = TYPES[bound.modifiers["type"] or ""]
    if all(isinstance(operand, Vector) for operand in node.operands):
        raise builder.error(OperandError, f"{node.spelling} takes a vector on one side, not on both", node.offset)
    to, what = (_unwrapped(_spread(builder, operand), kind) for operand in node.operands)
    if isinstance(what, Name) and what.text.partition(".")[0] in SPECIAL_REGISTERS:
        if what.displacement:
            builder.resolve(what)
        if what.negated:
            raise builder.error(OperandError, "only predicates can be negated with '!'", what.offset)
        return _bind_special(builder, node, bound, kind)
    if isinstance(to, Vector) and isinstance(what, Vector):
        raise builder.error(OperandError, f"{node.spelling} takes a vector on one side, not on both", what.offset)
    if isinstance(to, Vector):
        return _bind_unpack(builder, node, bound, kind, to, what)
    if isinstance(what, Vector):
        return _bind_pack(builder, node, bound, kind, to, what)
    if kind.width == 128:
        role = f"operand a of {bound.spelling}"
        return Step(
            "mov", node, bound, _halves_read(builder, what, kind, role), _halves_written(builder, to, kind, bound)
        )
    if isinstance(what, Name) and (address := builder.address_of(what)) is not None:
        if kind.width not in (32, 64) or kind.kind == "f":
            raise builder.error(OperandError, f"{node.spelling} cannot hold an address", what.offset)
        reader = replace(address, width=kind.width, pattern=address.pattern & ((1 << kind.width) - 1))
    else:
        reader = _strict_read(builder, what, kind, f"operand a of {bound.spelling}")
    return Step("mov", node, bound, (reader,), (_strict_write(builder, to, kind, bound),))


def _spread(builder: Builder, node: Operand) -> Operand:
    """The components of a vector register whose name stands without a component."""
    if isinstance(node, Name) and not node.negated and not node.displacement:
        parts = builder.scope.register(node.text)
        if isinstance(parts, list):
            return Vector([Name(p.name, node.offset) for p in parts], node.offset)
    return node


def _unwrapped(node: Operand, kind: ScalarType) -> Operand:
    """`{a}` of an untyped move is `a`."""
    if isinstance(node, Vector) and len(node.elements) == 1 and kind.kind == "b":
        only = node.elements[0]
        return node if isinstance(only, Sink) else only
    return node


def _strict_read(builder: Builder, node: Operand, kind: ScalarType, role: str) -> ReadSlot:
    return builder.read(node, kind, False, role)


def _strict_write(builder: Builder, node: Operand, kind: ScalarType, bound: Bound) -> WriteSlot:
    if isinstance(node, Name) and not node.negated:
        register = builder.resolve(node)
        builder.check(register, kind, False, node, f"destination of {bound.spelling}")
        return WriteSlot(register.slot, kind.width)
    return builder.destination(node, kind, bound)


def _element(builder: Builder, kind: ScalarType, vector: Vector, node: Instruction) -> ScalarType:
    """The type of one element when `kind` is split over the vector."""
    count = len(vector.elements)
    if all(isinstance(e, Sink) for e in vector.elements):
        raise builder.error(OperandError, "a vector of '_' alone has no element type", vector.offset)
    width = kind.width // count
    if kind.kind != "b" or count not in (2, 4) or width < 8:
        message = f"{node.spelling} cannot be split into {len(vector.elements)} elements"
        raise builder.error(OperandError, message, vector.offset)
    return TYPES[f"b{width}"]


def _bind_unpack(
    builder: Builder, node: Instruction, bound: Bound, kind: ScalarType, to: Vector, what: Operand
) -> Step:
    element = _element(builder, kind, to, node)
    resolver.moved(builder, to.elements, element, f"destination of {bound.spelling}")
    writers = tuple(
        WriteSlot(-1, element.width) if isinstance(e, Sink) else _strict_write(builder, e, element, bound)
        for e in to.elements
    )
    return Step("unpack", node, bound, _halves_read(builder, what, kind, f"operand a of {bound.spelling}"), writers)


def _bind_pack(builder: Builder, node: Instruction, bound: Bound, kind: ScalarType, to: Operand, what: Vector) -> Step:
    element = _element(builder, kind, what, node)
    role = f"element of {bound.spelling}"
    if any(isinstance(e, Sink) for e in what.elements) and kind.width != 32:
        raise builder.error(
            OperandError, f"'_' may stand for a part of a 32-bit word only, not in {node.spelling}", what.offset
        )
    resolver.moved(builder, what.elements, element, role)
    readers = tuple(_source_element(builder, e, element, role) for e in what.elements)
    return Step("pack", node, bound, readers, _halves_written(builder, to, kind, bound))


def _source_element(builder: Builder, node: Operand, kind: ScalarType, role: str) -> ReadSlot:
    """An element of a source vector; `_` stands for an element with undefined bits.

    Of a floating-point constant ptxas takes the bits: the lower ones of a double, unless float32 is moved. An element
    of 16 bits or fewer becomes zero.
    """
    if isinstance(node, Sink):
        return ReadSlot(UNDEFINED, kind.width)
    if isinstance(node, Immediate):
        if isinstance(node.value, float) and kind.width < 32:
            return ReadSlot(-1, kind.width, 0)
        if isinstance(node.value, float) and (node.single is not None or kind.name != "f32"):
            bits = f64_bits(node.value) if node.single is None else node.single
            return ReadSlot(-1, kind.width, bits & ((1 << kind.width) - 1))
        return _strict_read(builder, node, kind, role)
    if isinstance(node, Name) and resolver.is_special(node):
        node = builder.special_moved(node)
    return _strict_read(builder, node, TYPES[f"b{kind.width}"], role)


def _halves_read(builder: Builder, node: Operand, kind: ScalarType, role: str) -> tuple[ReadSlot, ...]:
    """A source register, or the two 64-bit halves of a .b128 one, lower half first."""
    reader = _strict_read(builder, node, kind, role)
    if kind.width < 128:
        return (reader,)
    if reader.slot == -1:
        ones = (1 << 64) - 1
        return ReadSlot(-1, 64, reader.pattern & ones), ReadSlot(-1, 64, reader.pattern >> 64)
    return ReadSlot(reader.slot, 64), ReadSlot(reader.slot + 1, 64)


def _halves_written(builder: Builder, node: Operand, kind: ScalarType, bound: Bound) -> tuple[WriteSlot, ...]:
    """A destination register, or the two 64-bit halves of a .b128 one, lower half first."""
    writer = _strict_write(builder, node, kind, bound)
    return (writer,) if kind.width < 128 else (WriteSlot(writer.slot, 64), WriteSlot(writer.slot + 1, 64))


@binds("mov_vector")
def _bind_mov_vector(builder: Builder, node: Instruction, bound: Bound) -> Step:
    """`mov.v4.b32 {a,b,c,d}, {..}`: one plain move for each element, after all sources are read."""
    expect(builder, node, 2)
    count = int((bound.modifiers["vec"] or "v1")[1:])
    kind = TYPES[bound.modifiers["type"] or ""]
    to = builder.elements(node.operands[0], count)
    what = node.operands[1]
    if all(isinstance(e, Sink) for e in to):
        raise builder.error(OperandError, f"{node.spelling} cannot discard all of its result", node.offset)
    resolver.moved(builder, to, kind, f"destination of {bound.spelling}")
    untyped = TYPES[f"b{kind.width}"]
    writers = tuple(
        WriteSlot(-1, kind.width) if isinstance(e, Sink) else _strict_write(builder, e, untyped, bound) for e in to
    )
    if isinstance(what, Name) and what.text in SPECIAL_REGISTERS:
        if count != 4:
            raise builder.error(OperandError, f"{what.text} is read whole by mov.v4", what.offset)
        _check_special(builder, node, what, what.text, kind)
        return Step("special", node, bound, (), writers, detail=[(what.text, c) for c in "xyzw"])
    role = f"element of {bound.spelling}"
    plain = isinstance(what, Name) and isinstance(builder.scope.register(what.text), Register)
    if plain or isinstance(what, Immediate):
        return _split(builder, node, bound, kind, what, writers)
    elements = builder.elements(what, count)
    resolver.moved(builder, elements, kind, role)
    readers = tuple(_source_element(builder, e, kind, role) for e in elements)
    return Step("mov", node, bound, readers, writers)


def _split(
    builder: Builder, node: Instruction, bound: Bound, kind: ScalarType, what: Operand, writers: tuple[WriteSlot, ...]
) -> Step:
    """A scalar moved to a vector, which is not in the ISA: ptxas (12.9, 13.4) splits its bits over the elements.

    Element i gets the n bits from bit i * n on, with zeros above; n is the width divided by the number of elements.
    Exception: of four 16-bit elements (n would be 4) the first gets all bits and the others zero.
    """
    if kind.kind not in "bus":
        message = f"{node.spelling} of one value converts parts of its bits, which the emulator does not do"
        raise builder.error(NotElementwise, message, what.offset)
    reader = _strict_read(builder, what, kind, f"operand a of {bound.spelling}")
    part = kind.width // len(writers)
    return Step("split", node, bound, (reader,), writers, detail=part if part >= 8 else kind.width)


def _bind_special(builder: Builder, node: Instruction, bound: Bound, kind: ScalarType) -> Step:
    what = node.operands[1]
    assert isinstance(what, Name)
    name, _, component = what.text.partition(".")
    component = _COLOURS.get(component, component)
    vector = SPECIAL_REGISTERS[name][1]
    if vector != bool(component) or (component and component not in "xyzw"):
        message = f"{name} has the components .x .y .z .w" if vector else f"{name} has no components"
        raise builder.error(OperandError, message, what.offset)
    _check_special(builder, node, what, name, kind)
    writer = _strict_write(builder, node.operands[0], kind, bound)
    return Step("special", node, bound, (), (writer,), detail=[(name, component)])


_COLOURS = {"r": "x", "g": "y", "b": "z", "a": "w"}
"""Other names of components."""


def _check_special(builder: Builder, node: Instruction, what: Name, register: str, kind: ScalarType) -> None:
    """Refuse a special register that the target lacks, or one that a move of this type cannot read."""
    needed, target = NEEDS.get(register), builder.target
    if needed and target and not target.has(needed):
        raise builder.error(UnsupportedOnTarget, f"{register} needs {needed}; the target is {target}", what.offset)
    width = TYPES[SPECIAL_REGISTERS[register][0]].width
    if kind.width != width and kind.width not in NARROWER.get(register, ()):
        message = f"{register} has {width} bits; {node.spelling} moves {kind.width}"
        raise builder.error(OperandError, message, what.offset)
    if kind.kind == "f":
        raise builder.error(OperandError, f"{node.spelling} cannot read a special register", what.offset)


# ---- Branches, and instructions that compute nothing -----------------------------------------------------------------


@binds("bra")
def _bind_bra(builder: Builder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 1)
    label = node.operands[0]
    if not isinstance(label, Name) or label.negated:
        raise builder.error(OperandError, "bra needs a label", node.offset)
    step = Step("branch", node, bound)
    builder.jump(step, label)
    return step


@binds("brx")
def _bind_brx(builder: Builder, node: Instruction, bound: Bound) -> Step:
    """A comparison and a branch for each target. An index past the last target, which the ISA leaves undefined, falls
    through."""
    expect(builder, node, 2)
    index, table = node.operands
    targets = builder.scope.branch_targets(table.text) if isinstance(table, Name) and not table.negated else None
    if targets is None or resolver.is_special(index):
        raise builder.error(
            OperandError, f"{node.spelling} takes a register and a label of .branchtargets", node.offset
        )
    met, end, at = Name("(met)", node.offset), Name("(end)", node.offset), (node.offset, node.location)
    parts: list[Statement] = [Declaration("reg", "pred", met.text, node.offset)]
    if node.guard is not None:
        over = Guard(node.guard.register, not node.guard.negated)
        parts.append(Instruction("bra", (), [end], over, *at))
    for number, target in enumerate(targets):
        compared: list[Operand] = [met, index, Immediate(number, node.offset)]
        parts.append(Instruction("setp", ("eq", "u32"), compared, None, *at))
        parts.append(Instruction("bra", (), [target], Guard(met, False), *at))
    builder.add(CodeBlock([CodeBlock([*parts, Label(end.text, node.offset)], node.offset)], node.offset))
    return Step("nothing", node, bound)


binds_alone("exit")


_EVENTS = {"pmevent": 15, "pmevent.mask": 0xFFFF}
"""Instructions that take a constant, each with the largest allowed value."""


@binds("nothing")
def _bind_nothing(builder: Builder, node: Instruction, bound: Bound) -> Step:
    """Bind an instruction without effect: nanosleep takes a time, pmevent the number of an event or a mask of
    events."""
    expect(builder, node, 1)
    what, most = node.operands[0], _EVENTS.get(bound.spelling)
    if most is None:
        builder.read(what, TYPES["u32"], False, f"operand of {bound.spelling}")
    elif not isinstance(what, Immediate) or isinstance(what.value, float) or not 0 <= what.value <= most:
        raise builder.error(OperandError, f"{bound.spelling} takes a constant from 0 to {most}", node.offset)
    return Step("nothing", node, bound)


@binds("kept")
def _bind_kept(builder: Builder, node: Instruction, bound: Bound) -> Step:
    """Bind an instruction for which ptxas generates no code after its checks: the destination keeps its value."""
    builder.operands(node, bound)
    return Step("nothing", node, bound)
