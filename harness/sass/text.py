"""Decodes the text of `nvdisasm -c -ndf -hex`: instructions with operands, encodings and control codes.

Operands come from the text. The value of a 32-bit immediate comes from the encoding, because the text of a floating
point immediate loses the payload of a NaN. Nothing is skipped: text of an unknown form raises `Unsupported`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from ptxdiff.emulator import ExecutionError, PtxError

# What running machine code can raise. All are `PtxError`s, so callers of the emulator catch them too ---------------


class Unsupported(PtxError):
    """Machine code that no row of the table describes. The message names the instruction."""


class MachineFault(ExecutionError):
    """Something that the machine code does wrong while it runs: an access outside of memory, a deadlock."""


class ScheduleDependence(MachineFault):
    """Stored bits depend on which side of a branch runs first."""


__all__ = ["ExecutionError", "MachineFault", "PtxError", "ScheduleDependence", "Unsupported"]


# Instructions and operands --------------------------------------------------------------------------------------------

BYTES = 16
"""The size of an instruction."""
SCALES = {"X4": 4, "X8": 8, "X16": 16}
"""What may follow the register of an address in shared memory: by how much it is multiplied."""


@dataclass(frozen=True, slots=True)
class Control:
    """What an instruction tells the scheduler. Execution here does not depend on it.

    stall: cycles. write, read: the scoreboard that the instruction sets when its result is there, or its operands have
    been read; 7 for none. waits: a mask of scoreboards. reuse: a mask of operands kept in the reuse cache.
    """

    stall: int
    yields: int
    write: int
    read: int
    waits: int
    reuse: int

    @classmethod
    def of(cls, high: int) -> Control:
        """The control code in the upper 64 bits of an encoding."""
        code = high >> 41 & 0x1FFFFF
        return cls(code & 15, code >> 4 & 1, code >> 5 & 7, code >> 8 & 7, code >> 11 & 63, code >> 17 & 15)


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand as written.

    kind: "R", "UR", "P", "UP", "B" (registers; `number`, -1 for RZ and URZ, 7 for PT and UPT), "c" (constant bank
    `bank` at `offset`, plus the register `base`), "int", "float" (immediates; `value` is the integer as written, for a
    float None), "mem" (an address: register `base` or none, whose suffix may be one of `SCALES`, `uniform` register or
    none, `offset`, `wide` for a 64-bit base), "mem32" (the same with a base of 32 bits, without sign, beside a uniform
    register of 64), "gdesc" (descriptors of matrices, from uniform register `number` on),
    "tmem" (an address of tensor memory in uniform register `number`, plus `offset`), "idesc" (a product's descriptor in
    uniform register `number`), "desc" (a descriptor of caching in uniform register `number`), "set" (numbers of
    scoreboards: `name`), "label" (`name`), "word" (a special register or another name). negated, absolute,
    inverted: `-`, `|x|`, and `~` or `!`. suffix: what follows a register or a float, such as "H0_H0".
    """

    kind: str
    number: int = 0
    negated: bool = False
    absolute: bool = False
    inverted: bool = False
    suffix: str = ""
    bank: int = 0
    offset: int = 0
    base: Operand | None = None
    uniform: Operand | None = None
    value: int | None = None
    name: str = ""
    wide: bool = False


class MachineInstruction(NamedTuple):  # made for each instruction of each kernel, which a dataclass takes longer for
    """One instruction. guard: the predicate after `@`, or None. modifiers: the words after the opcode, in order."""

    address: int
    guard: Operand | None
    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    low: int
    high: int
    text: str

    @property
    def control(self) -> Control:
        """Its control code."""
        return Control.of(self.high)

    @property
    def immediate(self) -> int:
        """The 32 bits of the encoding in which an immediate stands."""
        return self.low >> 32 & 0xFFFFFFFF


@dataclass(frozen=True)
class MachineFunction:
    """The code of one kernel, with functions that ptxas added to it. labels: addresses by name."""

    name: str
    instructions: tuple[MachineInstruction, ...]
    labels: dict[str, int] = field(default_factory=dict)


def plain(operand: Operand, *kinds: str) -> bool:
    """Whether an operand is of one of these kinds, without signs and suffixes."""
    return operand.kind in kinds and not (operand.negated or operand.absolute or operand.inverted or operand.suffix)


_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")
_LABEL = re.compile(r"^([.$\w]+):\s*$")
_HEX = re.compile(r"/\*\s*0x([0-9a-f]{16})\s*\*/")
_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?P<text>[^/;]*?)\s*;\s*/\*\s*0x([0-9a-f]{16})\s*\*/\s*$")
_LONG = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?P<text>[^/;]*?)\s*;\s*$")  # its encoding is on the next line
_SECOND = re.compile(r"^\s*/\*\s*0x([0-9a-f]{16})\s*\*/\s*$")


def functions(text: str) -> dict[str, MachineFunction]:
    """The functions in nvdisasm's text, by name. Raises Unsupported for a line of unknown form."""
    found: dict[str, MachineFunction] = {}
    name, labels, instructions = "", {}, []  # type: ignore[var-annotated]
    pending: tuple[int, str, int] | None = None
    long: tuple[int, str] | None = None
    address = 0

    def end() -> None:
        if name:
            found[name] = MachineFunction(name, tuple(instructions), labels)

    for line in text.splitlines():
        if section := _SECTION.match(line):
            end()
            name, labels, instructions, address = section[1], {}, [], 0
        elif pending is not None:
            second = _SECOND.match(line)
            if second is None:
                raise Unsupported(f"nvdisasm's text lacks the second half of an encoding: {line.strip()}")
            instructions.append(_instruction(*pending, int(second[1], 16)))
            address = pending[0] + BYTES
            pending = None
        elif long is not None:
            first = _SECOND.match(line)
            if first is None:
                raise Unsupported(f"nvdisasm's text lacks an encoding: {line.strip()}")
            pending, long = (*long, int(first[1], 16)), None
        elif made := _INSTRUCTION.match(line):
            pending = int(made[1], 16), made["text"], int(made[3], 16)
        elif made := _LONG.match(line):
            long = int(made[1], 16), made["text"]
        elif label := _LABEL.match(line):
            labels[label[1]] = address
        elif name and (first := _SECOND.match(line)):  # an instruction for which nvdisasm has no text: none runs it
            pending = address, "", int(first[1], 16)
        elif "/*" in line and _HEX.search(line):
            raise Unsupported(f"nvdisasm's text has a line of unknown form: {line.strip()}")
    end()
    if pending is not None or long is not None or not found:
        raise Unsupported("nvdisasm's text has no whole function")
    return found


_Parts = tuple[Operand | None, str, tuple[str, ...], tuple[Operand, ...]]
_PARTS = re.compile(r"^(?:@(!?)(U?P\d|U?PT)\s+)?([A-Z][A-Z0-9]*)((?:\.[A-Za-z0-9_]+)*)\s*(.*)$")


def _instruction(address: int, text: str, low: int, high: int) -> MachineInstruction:
    return MachineInstruction(address, *_parts(text), low, high, text)


@lru_cache(1 << 16)
def _parts(text: str) -> _Parts:
    """Guard, opcode, modifiers and operands of an instruction. One of unknown form has no opcode, so that no row fits
    it and running it is refused."""
    try:
        return _known(text)
    except Unsupported:
        return None, "", (), ()


def _known(text: str) -> _Parts:
    parts = _PARTS.match(text)
    if parts is None:
        raise Unsupported(f"an instruction of unknown form: {text}")
    inverted, guard, opcode, modifiers, rest = parts.groups()
    if inverted and guard in ("PT", "UPT"):
        guarded: Operand | None = Operand("P", 7, inverted=True)
    else:
        guarded = operand(("!" if inverted else "") + guard) if guard else None
    operands = tuple(operand(o) for o in _split(rest))
    return guarded, opcode, tuple(modifiers.split(".")[1:]), operands


def _split(text: str) -> list[str]:
    """Operands of a list. RET writes a register and a label without a comma between them, BRX one and a number."""
    parts = [p.strip() for p in re.split(r",(?![^{}]*\})", text)] if text.strip() else []
    return [p for part in parts for p in re.split(r"\s+(?=`|-?0x)", part)]


_REGISTER = re.compile(r"^(UR|UP|R|P|B)(Z|T|\d+)((?:\.\w+)*)$")
_BANK = re.compile(r"^c\[0x([0-9a-f]+)\] ?\[([^\]]+)\]((?:\.\w+)*)$")
"""With a space where the instruction computes with halves, or reads signs."""
_MEMORY = re.compile(r"^(?:desc\[(UR\w+)\])?\[([^\]]*)\]$")
_DESCRIPTOR = re.compile(r"^gdesc\[UR(\d+)\]((?:\.\w+)*)$")
_POLICY = re.compile(r"^desc\[UR(\d+)\]$")
_SET = re.compile(r"^\{(\d(?:,\d)*)\}$")
_TENSOR = re.compile(r"^(tmem|idesc)\[UR(\d+)(?:\+(-?)0x([0-9a-f]+))?\]((?:\.\w+)*)$")
_INT = re.compile(r"^0x([0-9a-f]+)$")
_FLOAT = re.compile(r"^\+?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|INF|QNAN|SNAN)(?:\.(H[01]))?$")
_TARGET = re.compile(r"^`\(([^)]+)\)$")
_WORD = re.compile(r"^[A-Za-z_][\w.]*$")


@lru_cache(1 << 14)  # few texts, such as R3, are most operands
def operand(text: str) -> Operand:
    """One operand. Raises Unsupported for an unknown form."""
    text = text.strip()
    if found := _TARGET.match(text):
        return Operand("label", name=found[1])
    negated = inverted = absolute = False
    if text.startswith(("-", "!", "~")):
        negated, inverted, text = text[0] == "-", text[0] != "-", text[1:]
    if wrapped := re.match(r"^\|([^|]+)\|((?:\.\w+)*)$", text):
        absolute, text = True, wrapped[1] + wrapped[2]
    if found := _REGISTER.match(text):
        words = [w for w in found[3].split(".")[1:] if w != "reuse"]
        number = {"Z": -1, "T": 7}.get(found[2])
        return Operand(
            found[1], int(found[2]) if number is None else number, negated, absolute, inverted, ".".join(words)
        )
    if found := _BANK.match(text):
        base, offset = _inner(found[2])
        return Operand(
            "c", 0, negated, absolute, inverted, found[3].lstrip("."), int(found[1], 16), offset, base[0], base[1]
        )
    if (found := _DESCRIPTOR.match(text)) and not (negated or inverted or absolute):
        return Operand("gdesc", int(found[1]), suffix=found[2].lstrip("."))
    if (found := _POLICY.match(text)) and not (negated or inverted or absolute):
        return Operand("desc", int(found[1]))
    if (found := _SET.match(text)) and not (negated or inverted or absolute):
        return Operand("set", name=found[1])
    if (found := _TENSOR.match(text)) and not (negated or inverted or absolute):
        offset = int(found[4] or "0", 16) * (-1 if found[3] else 1)
        return Operand(found[1], int(found[2]), suffix=found[5].lstrip("."), offset=offset)
    if found := _INT.match(text):
        return Operand("int", value=-int(found[1], 16) if negated else int(found[1], 16), absolute=absolute,
                       inverted=inverted)  # fmt: skip
    if found := _FLOAT.match(text):  # its sign is in the encoding
        return Operand("float", absolute=absolute, inverted=inverted, suffix=found[1] or "")
    if found := _MEMORY.match(text):
        base, offset = _inner(found[2])
        if base[0] == _NO_OFFSET and base[1] is not None:
            base = None, base[1]
        wide = base[0] is not None and base[0].suffix == "64"
        if base[0] is not None and base[0].suffix == "U32" and base[1] is not None:
            return Operand("mem32", offset=offset, base=base[0], uniform=base[1], name=found[1] or "")
        if base[0] is not None and base[0].suffix not in ("", "64", *SCALES):
            raise Unsupported(f"an address of unknown form: {text}")
        return Operand("mem", offset=offset, base=base[0], uniform=base[1], wide=wide, name=found[1] or "")
    if _WORD.match(text) and not (negated or absolute):
        return Operand("word", name=text, inverted=inverted)
    raise Unsupported(f"an operand of unknown form: {text}")


_NO_OFFSET = Operand("R", -1, suffix="U32")
"""RZ.U32 before a uniform register: the address is that of the register."""


def _inner(text: str) -> tuple[tuple[Operand | None, Operand | None], int]:
    """The registers and the offset of an address: `R2.64+UR4+0x10`."""
    offset, base, uniform = 0, None, None
    if not re.fullmatch(r"[\w.]+(?:[+-]-?[\w.]+)*", text):
        raise Unsupported(f"an address of unknown form: [{text}]")
    for sign, part in re.findall(r"(^|[+-])(-?[\w.]+)", text):
        if number := re.match(r"^(-?)0x([0-9a-f]+)$", part):
            value = int(number[2], 16)
            offset += -value if (sign == "-") != (number[1] == "-") else value
        else:
            register = operand(part)
            if sign == "-" or register.kind not in ("R", "UR") or register.negated:
                raise Unsupported(f"an address of unknown form: [{text}]")
            if register.kind == "R" and base is None:
                base = register
            elif register.kind == "UR" and uniform is None:
                uniform = register
            else:
                raise Unsupported(f"an address of unknown form: [{text}]")
    return (base, uniform), offset
