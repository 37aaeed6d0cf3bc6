"""Bind and execute loads, stores, atomics and address conversions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ptxdiff.emulator.binding.builder import binds, binds_alone, expect
from ptxdiff.emulator.binding.program import ReadSlot, Register, Step, WriteSlot
from ptxdiff.emulator.binding.resolver import is_special
from ptxdiff.emulator.errors import ExecutionError, OperandError
from ptxdiff.emulator.isa.forms import Bound, find
from ptxdiff.emulator.kernel.builder import KernelBuilder, PassedPart
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.memory.space import LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, Access
from ptxdiff.emulator.machine.operations import runs
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array
from ptxdiff.emulator.text.nodes import Address, Instruction, Name, Operand, Sink, Vector
from ptxdiff.emulator.text.types import TYPES

_WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "global": 0, "param": 0}
"""The base of each space among generic addresses. Variables in constant memory have a generic address only through
`cvta.const`."""


def address(builder: KernelBuilder, node: Operand, space: str, *, parameters: bool = False) -> tuple[ReadSlot, int]:
    """Bind `[base+displacement]`: a ReadSlot for the base (a constant for a variable) and the displacement.

    parameters: whether the base may be a kernel parameter, as for tensor maps.
    """
    if not isinstance(node, Address):
        raise builder.error(OperandError, "a memory operand is written in brackets", node.offset)
    if node.base is None:
        return ReadSlot(-1, 64, node.displacement & 0xFFFFFFFFFFFFFFFF), 0
    displacement = ((node.displacement + (1 << 63)) & 0xFFFFFFFFFFFFFFFF) - (1 << 63)
    variable = builder.address_of(node.base)
    if variable is not None:
        return _in_space(builder, node.base, variable, space, parameters), displacement
    register = builder.resolve(node.base)
    narrow = register.type.width == 32 and space not in ("global", "")
    if register.type.kind in "fp" or not (register.type.width == 64 or narrow):
        shown = builder.show(register)
        raise builder.error(OperandError, f"{shown} cannot hold a {space or 'generic'} address", node.offset)
    return ReadSlot(register.slot, register.type.width), displacement


def _in_space(builder: KernelBuilder, name: Name, variable: ReadSlot, space: str, parameters: bool) -> ReadSlot:
    """The address of a variable for an access to `space` ("": generic).

    Raises OperandError if it lies in another space.
    """
    declared = builder.scope.variable(name.text)
    own = declared.space if declared is not None else "param"
    fits = own == space if space else own in _WINDOWS
    if not fits or (own == "param" and not parameters):
        asked = f".{space}" if space else "generic"
        raise builder.error(OperandError, f"{name.text} lies in .{own} memory; the access is {asked}", name.offset)
    return variable if space else replace(variable, pattern=variable.pattern + _WINDOWS[own])


def _space(bound: Bound) -> str:
    return (bound.modifiers.get("space") or "").partition("::")[0]


def _count(bound: Bound) -> int:
    return int((bound.modifiers.get("vec") or "v1")[1:])


@binds("ld")
def _bind_ld(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 2 + _hints(bound))
    kind = TYPES[bound.modifiers["type"] or ""]
    parts = elements(builder, node.operands[0], _count(bound))
    _refuse_unlike(builder, parts)
    writers = tuple(builder.destination(p, kind, bound, may_discard=True) for p in parts)
    space = _space(bound)
    if space == "param" and not builder.holds_address(node.operands[1]):
        passed = [builder.param_register(node.operands[1], i, kind.width) for i in range(len(writers))]
        if passed[0] is not None:
            return _passed(builder, node, bound, [p for p in passed if p], writers)
        size = kind.width // 8 * len(writers)
        return Step("ld_param", node, bound, (), writers, detail=builder.parameter(node.operands[1], size))
    reader, displacement = address(builder, node.operands[1], space)
    if kind.width == 128:  # the two halves of the register, lower half first
        writers = tuple(WriteSlot(slot, 64) for w in writers for slot in (w.slot, w.upper))
    access = Access(space, displacement, min(kind.width, 64), len(writers), _policy(builder, node, bound))
    return Step("ld", node, bound, (reader,), writers, detail=access)


def _passed(
    builder: KernelBuilder, node: Instruction, bound: Bound, passed: Sequence[Register], writers: tuple[WriteSlot, ...]
) -> Step:
    """A load of what a call passes, or gives back."""
    width = TYPES[bound.modifiers["type"] or ""].width
    parts = [builder.param_parts(p) for p in passed]
    if not any(parts):
        return Step("param_move", node, bound, tuple(ReadSlot(p.slot, width) for p in passed), writers)
    whole = [
        passed_parts or (PassedPart(p.slot, width, 0, width, 0),) for p, passed_parts in zip(passed, parts, strict=True)
    ]
    readers = tuple(ReadSlot(part.slot, part.width) for passed_parts in whole for part in passed_parts)
    return Step("param_parts", node, bound, readers, writers, detail=tuple(whole))


@binds("ldu")
def _bind_ldu(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    return replace(_bind_ld(builder, node, bound), kind="ldu")


def _hints(bound: Bound) -> int:
    return 1 if bound.modifiers.get("hint") else 0


def _policy(builder: KernelBuilder, node: Instruction, bound: Bound) -> ReadSlot | None:
    """The cache policy of an access, its last operand."""
    if not _hints(bound):
        return None
    return builder.read(node.operands[-1], TYPES["b64"], False, f"cache policy of {bound.spelling}")


def _refuse_undefined_policy(frame: KernelFrame, step: Step, access: Access, lanes: Array) -> None:
    """Raise UndefinedBits for a policy that no createpolicy made."""
    if access.policy is not None:
        _, mask = frame.read(access.policy)
        if mask is not None:
            frame.refuse_undefined(step, np.broadcast_to(mask, (frame.lanes,))[lanes], lanes, "a cache policy")


def elements(builder: KernelBuilder, node: Operand, count: int) -> list[Operand]:
    """The elements of a vector operand; `{ %r1 }` means the register, as Triton writes it."""
    if count == 1:
        return list(node.elements) if isinstance(node, Vector) and len(node.elements) == 1 else [node]
    return builder.elements(node, count)


def _refuse_unlike(builder: KernelBuilder, parts: Sequence[Operand]) -> None:
    """Raise OperandError if the registers of a vector differ in size."""
    names = [p for p in parts if isinstance(p, Name) and not is_special(p)]
    if len(parts) > 1 and len({builder.resolve(n).type.width for n in names}) > 1:
        raise builder.error(OperandError, "the registers of a vector have different sizes", names[0].offset)


@binds("st")
def _bind_st(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 2 + _hints(bound))
    kind = TYPES[bound.modifiers["type"] or ""]
    parts = elements(builder, node.operands[1], _count(bound))
    _refuse_unlike(builder, parts)
    space = _space(bound)
    readers = tuple(builder.read(p, kind, True, f"value of {bound.spelling}") for p in parts)
    if space == "param":
        passed = [builder.param_register(node.operands[0], i, kind.width) for i in range(len(readers))]
        if passed[0] is None:
            raise builder.error(OperandError, "a kernel's parameters cannot be written", node.offset)
        builder.note_stored(node, [p for p in passed if p])
        return Step("param_move", node, bound, readers, tuple(WriteSlot(p.slot, kind.width) for p in passed if p))
    base, displacement = address(builder, node.operands[0], space)
    if kind.width == 128:
        readers = tuple(half for reader in readers for half in _halves(builder, node, reader))
    access = Access(space, displacement, min(kind.width, 64), len(readers), _policy(builder, node, bound))
    return Step("st", node, bound, (base, *readers), (), detail=access)


def _halves(builder: KernelBuilder, node: Instruction, reader: ReadSlot) -> tuple[ReadSlot, ReadSlot]:
    """The halves of a register of 128 bits, lower half first."""
    if reader.slot < 0:
        raise builder.error(OperandError, f"{node.spelling} takes a register of 128 bits", node.offset)
    return ReadSlot(reader.slot, 64), ReadSlot(reader.slot + 1, 64)


@runs("ld_param")
def _run_ld_param(frame: KernelFrame, step: Step, active: Array | None) -> None:
    name, offset = step.detail
    width = TYPES[step.bound.modifiers["type"] or ""].width
    for number, writer in enumerate(step.destinations):
        pattern = frame.grid.parameter(name, offset + number * width // 8, width // 8)
        frame.write(writer, frame.constant(pattern, width), None, active)


@runs("ld")
def _run_ld(frame: KernelFrame, step: Step, active: Array | None) -> None:
    access: Access = step.detail
    lanes, place = frame.locate(step, step.sources[0], access, active)
    if len(lanes) == 0:
        return
    _refuse_undefined_policy(frame, step, access, lanes)
    values, masks = frame.load(step, access, lanes, place)
    for number, writer in enumerate(step.destinations):
        if writer.slot >= 0:
            frame.write_lanes(writer, values[number], masks[number], lanes, active)


@runs("ldu")
def _run_ldu(frame: KernelFrame, step: Step, active: Array | None) -> None:
    """ldu, for which all threads of a warp must give the same address (ISA 9.7.9.10)."""
    lanes = frame.locate(step, step.sources[0], step.detail, active)[0]
    addresses = np.zeros(frame.lanes, UNSIGNED[64])
    addresses[lanes] = np.broadcast_to(frame.read(step.sources[0])[0], frame.lanes)[lanes]
    warps = lanes // 32
    first = addresses[lanes[np.searchsorted(warps, warps)]]
    if (apart := addresses[lanes] != first).any():
        who = frame.who(int(lanes[np.flatnonzero(apart)[0]]))
        message = f"{who} and another of its warp give two addresses; all threads of a warp give ldu the same one"
        raise frame.fault(ExecutionError, step, message)
    _run_ld(frame, step, active)


@runs("st")
def _run_st(frame: KernelFrame, step: Step, active: Array | None) -> None:
    access: Access = step.detail
    lanes, place = frame.locate(step, step.sources[0], access, active)
    if len(lanes) == 0:
        return
    _refuse_undefined_policy(frame, step, access, lanes)
    values, masks = [], []
    for reader in step.sources[1:]:
        value, mask = frame.read(reader)
        values.append(value if active is None else value[lanes])
        masks.append(None if mask is None else np.broadcast_to(mask, (frame.lanes,))[lanes])
    frame.store(step, access, lanes, place, values, masks)


# atomics -------------------------------------------------------------------------------------------------


@binds("atom")
def _bind_atom(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    swap = bound.modifiers["op"] == "cas"
    expect(builder, node, 3 + swap + _hints(bound))
    return _atomic(builder, node, bound, node.operands[0], list(node.operands[1 : 3 + swap]))


@binds("red")
def _bind_red(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 2 + _hints(bound))
    return _atomic(builder, node, bound, Sink(node.offset), list(node.operands[:2]))


def _atomic(builder: KernelBuilder, node: Instruction, bound: Bound, to: Operand, rest: list[Operand]) -> Step:
    kind, count = TYPES[bound.modifiers["type"] or ""], _count(bound)
    if isinstance(to, Sink):
        writers = tuple(WriteSlot(-1, kind.width) for _ in range(count))
    else:
        parts = elements(builder, to, count)
        writers = tuple(builder.destination(p, kind, bound, may_discard=count > 1) for p in parts)
    space = _space(bound)
    base, displacement = address(builder, rest[0], space)
    operands = [part for o in rest[1:] for part in elements(builder, o, count)]
    readers = tuple(builder.read(o, kind, False, f"operand of {bound.spelling}") for o in operands)
    detail = (Access(space, displacement, kind.width, count, _policy(builder, node, bound)), update_of(bound))
    return Step("atom", node, bound, (base, *readers), writers, detail=detail)


_INTEGER: dict[str, Callable[..., int]] = {
    "and": lambda old, b: old & b,
    "or": lambda old, b: old | b,
    "xor": lambda old, b: old ^ b,
    "exch": lambda old, b: b,
    "cas": lambda old, b, c: c if old == b else old,
    "add": lambda old, b: old + b,
    "inc": lambda old, b: 0 if old >= b else old + 1,
    "dec": lambda old, b: b if old == 0 or old > b else old - 1,
    "min": lambda old, b: min(old, b),
    "max": lambda old, b: max(old, b),
}


def update_of(bound: Bound) -> Callable[..., int]:
    """The new value from the old one and the operands, on bit patterns."""
    op = bound.modifiers["op"] or ""
    kind = TYPES[bound.modifiers["type"] or ""]
    if kind.kind in "bus":
        function = _INTEGER[op]
        ones = (1 << kind.width) - 1

        def integer(*patterns: int) -> int:
            if kind.signed:
                half = 1 << (kind.width - 1)
                patterns = tuple((p ^ half) - half for p in patterns)
            return function(*patterns) & ones

        return integer
    # ISA: f32 addition flushes subnormals on global memory, but not on shared memory. Current hardware keeps them in
    # both for red and atom with .noftz types (f16, bf16). For min and max of halves, which only vectors have, the ISA
    # gives no more than the names; here they are those of the instructions min and max.
    modifiers = ("rn", kind.name) if op == "add" else (kind.name,)
    return find(op, modifiers)[0].array_function().one


@runs("atom")
def _run_atom(frame: KernelFrame, step: Step, active: Array | None) -> None:
    access, update = step.detail
    lanes, place = frame.locate(step, step.sources[0], access, active)
    if len(lanes) == 0:
        return
    _refuse_undefined_policy(frame, step, access, lanes)
    columns = []
    for reader in step.sources[1:]:
        value, mask = frame.read(reader)
        if mask is not None:
            frame.refuse_undefined(step, np.broadcast_to(mask, (frame.lanes,))[lanes], lanes, "an atomic operation")
        columns.append(value[lanes].tolist())
    overwrites = step.bound.modifiers.get("op") == "exch"
    for number, writer in enumerate(step.destinations):
        operands = columns if access.count == 1 else columns[number : number + 1]
        old, doubts = frame.atomic(step, access, lanes, place, operands, update, number, overwrites)
        if writer.slot >= 0:
            frame.write_lanes(writer, np.array(old, UNSIGNED[access.width]), doubts, lanes, active)


# address conversions and hints ---------------------------------------------------------------------------


@binds("cvta")
def _bind_cvta(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 2)
    width = TYPES[bound.modifiers["size"] or ""].width
    kind = TYPES[f"u{width}"]
    what = node.operands[1]
    variable = builder.address_of(what) if isinstance(what, Name) else None
    if variable is None:
        reader = builder.read(what, kind, False, f"operand of {bound.spelling}")
    else:
        if bound.modifiers["to"]:
            raise builder.error(OperandError, f"{bound.spelling} takes a register, not a variable", what.offset)
        assert isinstance(what, Name)
        variable = _in_space(builder, what, variable, _space(bound), parameters=True)
        reader = replace(variable, width=width, pattern=variable.pattern & ((1 << width) - 1))
    writer = builder.destination(node.operands[0], kind, bound)
    return Step("cvta", node, bound, (reader,), (writer,))


@runs("cvta")
def _run_cvta(frame: KernelFrame, step: Step, active: Array | None) -> None:
    value, mask = frame.read(step.sources[0])
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAMETER_WINDOW}.get(_space(step.bound), 0)
    if window and value.dtype == np.uint64:
        to = step.bound.modifiers["to"]
        value = value - np.uint64(window) if to else value + np.uint64(window)
    frame.write(step.destinations[0], value, mask, active)


@binds("policy")
def _bind_policy(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, 1, 2)
    writer = builder.destination(node.operands[0], TYPES["b64"], bound)
    return Step("policy", node, bound, (), (writer,))


@binds("policy_range")
def _bind_policy_range(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    """`policy, [first byte], primary size, total size`."""
    expect(builder, node, 4)
    writer = builder.destination(node.operands[0], TYPES["b64"], bound)
    base, _ = address(builder, node.operands[1], _space(bound))
    sizes = [builder.read(o, TYPES["u32"], False, f"a size of {bound.spelling}") for o in node.operands[2:]]
    return Step("policy", node, bound, (base, *sizes), (writer,))


@binds("policy_cvt")
def _bind_policy_cvt(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    """`policy, property`: that of an access property of CUDA C++."""
    expect(builder, node, 2)
    writer = builder.destination(node.operands[0], TYPES["b64"], bound)
    reader = builder.read(node.operands[1], TYPES["b64"], False, f"operand of {bound.spelling}")
    return Step("policy", node, bound, (reader,), (writer,))


@runs("policy")
def _run_policy(frame: KernelFrame, step: Step, active: Array | None) -> None:
    """A policy is opaque, and decides no value. One that is made of undefined bits is undefined."""
    doubt = np.zeros(frame.lanes, np.uint64)
    for reader in step.sources:
        _, mask = frame.read(reader)
        if mask is not None:
            doubt |= np.where(np.broadcast_to(mask, (frame.lanes,)) != 0, ~np.uint64(0), np.uint64(0))
    frame.write(step.destinations[0], frame.constant(0, 64), doubt if doubt.any() else None, active)


@binds("nothing_here")
def _bind_nothing_here(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    """A prefetch: only its operands are checked. It may name an address outside of memory, and does nothing then."""
    if node.opcode in ("prefetch", "prefetchu") and "tensormap" not in node.modifiers:
        expect(builder, node, 1)
        address(builder, node.operands[0], _space(bound))
    return Step("nothing", node, bound)


# copies to shared memory ---------------------------------------------------------------------------------


@binds("cp_async")
def _bind_cp_async(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    hints = _hints(bound)
    expect(builder, node, 3 + hints, 4 + hints)
    to, to_displacement = address(builder, node.operands[0], "shared")
    what, displacement = address(builder, node.operands[1], "global")
    size = int(getattr(node.operands[2], "value", 0))
    if size not in (4, 8, 16):
        raise builder.error(OperandError, f"cp.async copies 4, 8 or 16 bytes, not {size}", node.offset)
    readers = [to, what]
    if bound.modifiers["cop"] == "cg" and size != 16:
        raise builder.error(OperandError, f"cp.async.cg copies 16 bytes, not {size}", node.offset)
    if len(node.operands) - hints == 4:
        readers.append(_source_size(builder, node.operands[3]))
    from_there = Access("global", displacement, 32, size // 4, _policy(builder, node, bound))
    accesses = (Access("shared", to_displacement, 32, size // 4), from_there)
    return Step("cp_async", node, bound, tuple(readers), (), detail=accesses)


def _source_size(builder: KernelBuilder, node: Operand) -> ReadSlot:
    """The number of bytes to copy, or a predicate that is true to copy none."""
    if isinstance(node, Name) and builder.address_of(node) is None and builder.resolve(node).type.kind == "pred":
        return builder.read(node, TYPES["pred"], False, "ignore-src of cp.async")
    return builder.read(node, TYPES["u32"], False, "source size of cp.async")


@runs("cp_async")
def _run_cp_async(frame: KernelFrame, step: Step, active: Array | None) -> None:
    lanes = frame.every if active is None else np.flatnonzero(active)
    _refuse_undefined_policy(frame, step, step.detail[1], lanes)
    frame.copies.issue(step, active)


binds_alone("cp_commit")


@runs("cp_commit")
def _run_cp_commit(frame: KernelFrame, step: Step, active: Array | None) -> None:
    frame.copies.commit(active)


@binds("cp_wait")
def _bind_cp_wait(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    expect(builder, node, int("wait_group" in node.modifiers))
    left = int(getattr(node.operands[0], "value", 0)) if node.operands else -1
    return Step("cp_wait", node, bound, detail=left)


@runs("cp_wait")
def _run_cp_wait(frame: KernelFrame, step: Step, active: Array | None) -> None:
    frame.copies.wait(step.detail, active)
