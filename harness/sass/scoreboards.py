"""Finds results that machine code uses before they are there, from the control codes of its instructions.

An instruction whose latency is not fixed sets one of six scoreboards when its result is there (write barrier), or when
its operands have been read (read barrier). Whoever uses that register later must wait for the scoreboard first, which
the wait mask of its control code does, or of any instruction in between. This is a check of the code alone, along all
paths: execution on the CPU waits for everything and never sees such a fault. A uniform register is taken as read when
its instruction is issued, because ptxas overwrites it without a wait.

The control code is in the encoding, at bit 41 of the upper word: stall 4 bits, yield 1, write barrier 3, read barrier
3, wait mask 6, reuse 4. Results of instructions with a fixed latency are not checked: their latencies are not known.
Registers are those of the text, with the width that the opcode and its modifiers give; where that is not known, the
first register alone is taken, so that a fault may be missed and none is invented.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass

from ptxdiff.sass.text import BYTES, MachineFunction, MachineInstruction, Operand

_NONE = 7
Place = tuple[str, int]


@dataclass(frozen=True)
class EarlyUse:
    """An instruction that touches a register before the scoreboard of an earlier one was waited for.

    kind: "result" (the register is used before its result is there) or "operand" (it is overwritten before it was
    read).
    """

    kind: str
    register: Place
    scoreboard: int
    set_by: MachineInstruction
    used_by: MachineInstruction

    @property
    def words(self) -> str:
        """One line."""
        name = f"{self.register[0]}{self.register[1]}"
        what = (
            f"uses {name} before its result is there" if self.kind == "result" else f"writes {name} before it was read"
        )
        return (
            f"0x{self.used_by.address:04x} {self.used_by.text} {what}: nothing waits for scoreboard {self.scoreboard}, "
            f"which 0x{self.set_by.address:04x} {self.set_by.text} sets"
        )


_OF_MEMORY = ("ATOM", "LD", "RED", "SHFL", "ST")
_OF_SHARED = frozenset({"ATOMS", "LDGSTS", "LDS", "LDSM", "STS", "STSM", "SYNCS", "UGETNEXTWORKID", "USYNCS"})
_STORES = frozenset({"ST", "STG", "STS", "STL", "STSM", "RED", "REDG", "SUST", "UBLKRED", "REDAS"})
_CONVERTING = frozenset({"BREV", "F2F", "F2I", "FCHK", "FLO", "FRND", "I2F", "I2I", "MUFU", "POPC"})
"""Opcodes of the unit that converts and approximates, which reads operands and finishes in order, whichever scoreboards
are set. That BREV, FCHK, FLO and POPC are among them, ptxas shows: releases 12.8 to 13.5 do not wait between two of
them, nor before a conversion of 64 bits. After such a conversion they wait before an instruction of 32 bits."""
_LONG = frozenset({"F64", "S64", "U64"})
"""Modifiers of conversions of 64 bits."""
_OF_DOUBLES = frozenset({"DADD", "DFMA", "DMUL", "DSETP"})
"""Opcodes of the unit for float64, which reads the operands of its instructions in order. ptxas shows it: releases from
12.8 to 13.5 let one of these overwrite what another reads. Nothing shows that their results come in order."""
_BEFORE_LDS = frozenset({"ATOMS", "LDS", "SHFL"})
"""Opcodes whose results come before those of a later LDS. ptxas shows it: releases from 12.8 to 13.5 let LDS overwrite
the result of SHFL without a wait, and 13.5 that of ATOMS. The other way round ptxas waits."""
_NOTHING = frozenset({
    "ACQBULK", "ARRIVES", "BAR", "BPT", "BRA", "BREAK", "BRX", "BRXU", "BSSY", "BSYNC", "CALL", "CCTL", "DEPBAR",
    "ENDCOLLECTIVE", "ERRBAR", "EXIT", "FENCE", "JMP", "KILL", "LDGDEPBAR", "LDGSTS", "MEMBAR", "NANOSLEEP", "NOP",
    "PREEXIT", "RET", "UBLKCP", "UBLKPF", "UTMACCTL", "UTMALDG", "UTMAREDG", "UTMASTG", "UVIRTCOUNT", "WARPSYNC",
    "YIELD",
})  # fmt: skip
"""Opcodes whose operands are all read. So are those of every other opcode whose first operand is an address."""
_ADDRESSES = frozenset({"gdesc", "idesc", "mem", "mem32", "tmem"})


def early_uses(function: MachineFunction) -> list[EarlyUse]:
    """The uses of registers that no wait precedes, each pair of instructions once, in order."""
    at = {i.address: i for i in function.instructions}
    if not at:
        return []
    found: dict[tuple[int, int, Place], EarlyUse] = {}
    known: dict[int, frozenset[Pending]] = {}
    todo = deque([(min(at), frozenset[Pending]())])
    while todo:
        address, before = todo.popleft()
        instruction = at.get(address)
        if instruction is None or (address in known and before <= known[address]):
            continue
        pending = known[address] = known.get(address, frozenset()) | before
        after = pending if _changes_nothing(instruction, pending) else _after(instruction, pending, at, found)
        todo.extend((next_one, after) for next_one in _next(instruction, function))
    return sorted(found.values(), key=lambda f: (f.used_by.address, f.set_by.address))


Guard = tuple[Place, bool]
Pending = tuple[int, str, Place, int, Guard | None]
"""A scoreboard that was not waited for: its number, "result" or "operand", the register, and who set it. Then the
predicate under which that ran, and whether inverted: None for no predicate, or one that was written since."""


def _changes_nothing(instruction: MachineInstruction, pending: frozenset[Pending]) -> bool:
    """Whether `_after` is the same as before and finds nothing, as for most instructions."""
    control = instruction.high >> 41
    if control >> 5 & 7 != _NONE or control >> 8 & 7 != _NONE or instruction.opcode == "DEPBAR":
        return False
    if not pending:
        return True
    waits = control >> 11 & 63
    reads, writes = accesses(instruction)
    return not any(
        waits >> board & 1 or place in reads or place in writes or (under is not None and under[0] in writes)
        for board, _, place, _, under in pending
    )


def _after(
    instruction: MachineInstruction, pending: frozenset[Pending], at: dict[int, MachineInstruction],
    found: dict[tuple[int, int, Place], EarlyUse],
) -> frozenset[Pending]:  # fmt: skip
    control = instruction.control
    # Whose result is there has read its operands.
    done = {p[3] for p in pending if p[1] == "result" and control.waits >> p[0] & 1}
    left = [p for p in pending if not (control.waits >> p[0] & 1 or (p[1] == "operand" and p[3] in done))]
    if instruction.opcode == "DEPBAR":  # it waits for a scoreboard of its own operand: all are taken as waited for
        left = []
    reads, writes = accesses(instruction)
    guard = _guard(instruction)
    for number, kind, register, setter, under in left:
        if _in_other_lanes(guard, under):
            continue
        # One unit keeps the order of its instructions, and that of memory reads their operands in order.
        same = at[setter].opcode == instruction.opcode
        ordered = same and (control.write == number or instruction.opcode in _OF_SHARED)
        opcodes = at[setter].opcode, instruction.opcode
        ordered |= kind == "operand" and all(o.startswith(_OF_MEMORY) for o in opcodes)
        ordered |= kind == "operand" and _OF_DOUBLES.issuperset(opcodes)
        ordered |= _CONVERTING.issuperset(opcodes) and (
            _LONG.isdisjoint(at[setter].modifiers) or not _LONG.isdisjoint(instruction.modifiers)
        )
        ordered |= instruction.opcode == "LDS" and at[setter].opcode in _BEFORE_LDS
        if (register in writes and not ordered) or (kind == "result" and register in reads):
            key = setter, instruction.address, register
            found.setdefault(key, EarlyUse(kind, register, number, at[setter], instruction))
    kept = [p for p in left if p[2] not in writes or _in_other_lanes(guard, p[4])]
    if control.write != _NONE:
        # The predicate of a generic ATOM tells whether the address is of shared memory. It is there with the operands.
        early = control.read if instruction.opcode == "ATOM" and control.read != _NONE else control.write
        kept += [(early if r[0] == "P" else control.write, "result", r, instruction.address, guard) for r in writes]
    if control.read != _NONE:
        kept += [(control.read, "operand", r, instruction.address, guard) for r in reads if r[0] == "R"]
    return frozenset((*p[:4], None) if p[4] is not None and p[4][0] in writes else p for p in kept)


def _guard(instruction: MachineInstruction) -> Guard | None:
    guard = instruction.guard
    return None if guard is None or guard.number == 7 else ((guard.kind, guard.number), guard.inverted)


def _in_other_lanes(guard: Guard | None, other: Guard | None) -> bool:
    """Whether two instructions run in different lanes, because one has the other's predicate inverted."""
    return guard is not None and other is not None and guard[0] == other[0] and guard[1] != other[1]


def _next(instruction: MachineInstruction, function: MachineFunction) -> list[int]:
    """Where the code goes on. A call returns behind itself; what it calls is checked on its own way too."""
    opcode, after = instruction.opcode, instruction.address + BYTES
    always = instruction.guard is None or (instruction.guard.number == 7 and not instruction.guard.inverted)
    if opcode in ("EXIT", "RET", "KILL", "BRX", "BRXU", "JMX"):
        under = opcode == "EXIT" and bool(instruction.operands)  # another predicate, under which alone lanes end
        return [] if always and not under else [after]
    if opcode in ("BRA", "JMP", "CALL"):
        targets = [function.labels[o.name] for o in instruction.operands if o.name in function.labels]
        conditions = any(o.kind in ("P", "UP") and o.number != 7 for o in instruction.operands)
        return [*targets, *([] if always and not conditions and opcode != "CALL" else [after])]
    return [after]


def accesses(instruction: MachineInstruction) -> tuple[frozenset[Place], frozenset[Place]]:
    """The registers and predicates that an instruction reads, and those that it writes."""
    if len(_accesses) > _MOST:
        _accesses.clear()
    found = _accesses.get(instruction.text)
    if found is None:
        found = _accesses[instruction.text] = _accessed(instruction)
    return found


_accesses: dict[str, tuple[frozenset[Place], frozenset[Place]]] = {}
_MOST = 1 << 16


def _accessed(instruction: MachineInstruction) -> tuple[frozenset[Place], frozenset[Place]]:
    reads: set[Place] = set()
    writes: set[Place] = set()
    if instruction.guard is not None:
        _add(reads, instruction.guard, 1)
    operands = list(instruction.operands)
    known = instruction.opcode in _STORES | _NOTHING
    if not known and operands and operands[0].kind not in _ADDRESSES:
        # Predicates before the first register, or after it, are results too, as far as no source precedes them.
        _add(writes, operands[0], _width(instruction))
        first = 1
        # The predicate of SHFL stands before its register, and the reduction of LDTM.STAT before what it loads.
        if instruction.opcode == "SHFL" or (instruction.opcode == "LDTM" and "STAT" in instruction.modifiers):
            _add(writes, operands[1], 1)
            first = 2
        while first < len(operands) - 1 and operands[first].kind in ("P", "UP") and not operands[first].inverted:
            if instruction.opcode not in _TWO_RESULTS or first > _TWO_RESULTS[instruction.opcode]:
                break
            _add(writes, operands[first], 1)
            first += 1
        operands = operands[first:]
    size = _width(instruction) if instruction.opcode in _STORES else 1
    for operand in operands:
        for part in (operand.base, operand.uniform):
            if part is not None:
                # An address of shared memory has 32 bits, and so have a uniform register in it and a constant's index.
                narrow = operand.base is not None and operand.kind != "mem32"
                narrow |= instruction.opcode in _OF_SHARED or operand.kind == "c"
                narrow |= not known and operand is instruction.operands[0]
                _add(reads, part, 2 if operand.wide or (part.kind == "UR" and not narrow) else 1)
        _add(reads, operand, size if operand.kind == "R" else 1)
        if operand.kind in ("gdesc", "idesc", "tmem") and operand.number >= 0:
            reads.add(("UR", operand.number))
    for found in _CACHING.finditer(instruction.text):
        reads |= {("UR", int(found[1])), ("UR", int(found[1]) + 1)}
    return frozenset(reads), frozenset(writes)


_CACHING = re.compile(r"\bdesc\[UR(\d+)\]")
"""The descriptor of caching beside an address: 64 bits in uniform registers. Operands do not keep it."""
_TWO_RESULTS = {"ISETP": 1, "FSETP": 1, "DSETP": 1, "HSETP2": 1, "PLOP3": 1, "UISETP": 1, "UPLOP3": 1, "VOTE": 1,
                "MATCH": 1, "LOP3": 1, "IADD3": 2, "UIADD3": 2, "LEA": 1, "ULEA": 1, "ATOMG": 1}  # fmt: skip
"""Opcodes with predicates among their results, and how many operands after the first may be such."""
_WIDE = frozenset({"DADD", "DMUL", "DFMA", "CS2R"})
_WORDS = {"64": 2, "128": 4, "WIDE": 2}


def _width(instruction: MachineInstruction) -> int:
    """How many registers the result has, or what a store stores."""
    if instruction.opcode in ("LDS", "LDG", "LD", "LDL", "LDC", "ULDC", "LDCU", *_STORES):
        return max((_WORDS[w] for w in instruction.modifiers if w in ("64", "128")), default=1)
    if instruction.opcode in _WIDE:
        return 1 if "32" in instruction.modifiers else 2
    if instruction.opcode in ("IMAD", "UIMAD") and "WIDE" in instruction.modifiers:
        return 2
    return 1


def _add(into: set[Place], operand: Operand, count: int) -> None:
    if operand.kind in ("R", "UR") and operand.number >= 0:
        into.update((operand.kind, operand.number + k) for k in range(count))
    elif operand.kind in ("P", "UP") and operand.number != 7:
        into.add((operand.kind, operand.number))
