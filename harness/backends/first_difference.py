"""Where values of machine code first part from those of its PTX, in the thread that stores a word that differs.

Both are followed, and the wrong word is traced back through the machine code, by destination: to the first instruction
all of whose operands are values that the thread has in the PTX too. ptxas has values of its own, such as parts of
addresses, so the instruction is where to look, and no proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

from ptxdiff.conformance.taught import unsettled, unsettled_moves, weakest
from ptxdiff.emulator import Kernel, contraction_open, of_generation
from ptxdiff.emulator.kernel.trace import ThreadTrace
from ptxdiff.sass.run import Ran
from ptxdiff.sass.text import Operand
from ptxdiff.sass.trace import Place, TracedInstruction

_FLOATS = {"f16": (16, 10), "f16x2": (16, 10), "bf16": (16, 7), "bf16x2": (16, 7), "f32": (32, 23), "f32x2": (32, 23),
           "tf32": (32, 23), "f64": (64, 52)}  # fmt: skip
"""Width and bits of the significand of a number, by PTX type."""


def nan_on_the_way(trace: ThreadTrace) -> str:
    """The first instruction of a PTX thread whose result is a NaN, in words; "" if there is none.

    The ISA (9.7.3) leaves the bits of a NaN open.
    """
    for step in trace.steps:
        types = [_FLOATS[m] for m in step.step.node.modifiers if m in _FLOATS]
        for width, fraction in types if step.executed else ():
            for written in step.writes:
                if written.value is not None and any(
                    _nan(w, width, fraction) for w in _cut(written.value, written.width, width)
                ):
                    return f"line {step.line}: {step.text}"
    return ""


def _nan(code: int, width: int, fraction: int) -> bool:
    return code & (1 << width - 1) - 1 > (1 << width - 1) - (1 << fraction)


def _cut(value: int, width: int, part: int) -> list[int]:
    return [value >> k & (1 << part) - 1 for k in range(0, max(width, part), part)]


def first_difference(ptx: ThreadTrace, machine: Sequence[TracedInstruction], address: int, expected: int) -> str:
    """Where values first part, in words; "" if the trace of the machine code has no store to the address.

    address: of the word of 32 bits that differs. expected: the PTX's word there.
    """
    difference = _parted(machine, address, _values(ptx))
    for line in reversed(ptx.steps) if difference else ():
        if line.executed and any(w.value == expected for w in line.writes):
            return f"{difference}; the PTX has 0x{expected:08x} from line {line.line}: {line.text}"
    return difference


def first_difference_of_two(
    one: Sequence[TracedInstruction], two: Sequence[TracedInstruction], addresses: tuple[int, int]
) -> str:
    """Where values of two traces of machine code first part, in words. addresses: of the word, in each."""
    known = {0} | {v for step in one for v in (*step.reads.values(), *step.writes.values())}
    difference = _parted(two, addresses[1], known)
    stored = [(n, r) for n, s in enumerate(one) if (r := _register_of(s, addresses[0])) is not None]
    made = _maker(one, *stored[-1]) if stored else None
    if not difference or made is None:
        return difference
    value = one[made].writes[stored[-1][1]]
    return f"{difference}; the first has 0x{value:08x} from {one[made].words}"


def side_by_side(ptx: ThreadTrace, machine: Sequence[TracedInstruction]) -> list[tuple[str, str]]:
    """The instructions of a thread in PTX and in machine code, in order, those in one row that give the same value."""
    left, right = [], []
    for step in ptx.steps:
        if step.executed:
            values = [w.value for w in step.writes]
            loads = step.opcode == "ld" and "param" not in step.step.node.modifiers
            left.append((_key(values, loads), f"{step.line}: {step.text}{_given(values)}"))
    for traced in machine:
        joined = _joined(traced)
        loads = traced.instruction.opcode.startswith(_LOADS)
        right.append((_key(joined, loads), f"{traced.words}{_given(joined)}"))
    rows = []
    keys = [k if k is not None else f"ptx {n}" for n, (k, _) in enumerate(left)]
    others = [k if k is not None else f"machine {n}" for n, (k, _) in enumerate(right)]
    for word, a, b, c, d in SequenceMatcher(None, keys, others, autojunk=False).get_opcodes():
        if word == "equal":
            rows += [(x, y) for (_, x), (_, y) in zip(left[a:b], right[c:d], strict=True)]
        else:
            rows += [*((x, "") for _, x in left[a:b]), *(("", y) for _, y in right[c:d])]
    return rows


def _joined(step: TracedInstruction) -> list[int]:
    """The values that it writes; two neighbouring registers are one value."""
    places, values = list(step.writes), list(step.writes.values())
    if len(places) == 2 and places[0][0] == places[1][0] == "R" and places[1][1] == places[0][1] + 1:
        return [values[1] << 32 | values[0]]
    return values


_LOADS = ("LDG", "LDS", "LDL")


def _key(values: Sequence[int | None], loads: bool) -> tuple[bool, int] | None:
    """By what instructions are paired: the value of one register of more than one bit, and whether it was loaded."""
    return (loads, values[0]) if len(values) == 1 and values[0] is not None and values[0] > 1 else None


def _given(values: Sequence[int | None]) -> str:
    return " → " + ", ".join("undefined" if v is None else f"0x{v:x}" for v in values) if values else ""


def _parted(machine: Sequence[TracedInstruction], address: int, known: set[int]) -> str:
    stored = [(n, r) for n, s in enumerate(machine) if (r := _register_of(s, address)) is not None]
    if not stored:
        return ""
    number, register = stored[-1]
    at = _maker(machine, number, register)
    while at is not None:
        step = machine[at]
        unknown = [(p, v) for p, v in step.reads.items() if p[0] in ("R", "UR") and v not in known]
        makers = [m for p, _ in unknown if (m := _maker(machine, at, p)) is not None and _computes(machine[m])]
        if not makers or step.instruction.opcode.startswith(("LD", "ATOM")):
            break
        at = max(makers)
    if at is None:
        return ""
    step = machine[at]
    reads = ", ".join(_shown(p, v) for p, v in step.reads.items())
    writes = ", ".join(_shown(p, v) for p, v in step.writes.items())
    return f"values first differ at {step.words}, which reads {reads or 'no register'} and gives {writes}"


def _computes(step: TracedInstruction) -> bool:
    """Whether an instruction's result depends on registers, rather than on constants and the thread's place alone."""
    return any(register[0] in ("R", "UR") for register in step.reads)


def _shown(place: Place, value: int) -> str:
    return f"{place[0]}{place[1]} = {value}" if place[0].endswith("P") else f"{place[0]}{place[1]} = 0x{value:08x}"


def _maker(machine: Sequence[TracedInstruction], before: int, place: Place) -> int | None:
    return next((n for n in range(before - 1, -1, -1) if place in machine[n].writes), None)


def _values(ptx: ThreadTrace) -> set[int]:
    """All words of 32 bits that the thread has in registers, and the constants and memory that it read."""
    known_words = {0}
    for step in ptx.steps:
        for operand in (*step.reads, *step.writes):
            if operand.value is not None:
                known_words.update(_cut(operand.value, operand.width, 32))
        data = step.data if step.loads else b""
        known_words.update(int.from_bytes(data[k : k + 4], "little") for k in range(0, len(data), 4))
    return known_words


def _register_of(step: TracedInstruction, address: int) -> Place | None:
    """The register with the word that a store to global memory writes at an address; None if it writes none there."""
    instruction = step.instruction
    if instruction.opcode not in ("STG", "ST") or len(instruction.operands) != 2:
        return None
    where, data = instruction.operands
    size = next((int(w) // 8 for w in instruction.modifiers if w in ("64", "128")), 4)
    first = _address(step, where)
    if first is None or not first <= address < first + size:
        return None
    return "R", data.number + (address - first) // 4


def _address(step: TracedInstruction, where: Operand) -> int | None:
    parts: Iterable[Operand] = (p for p in (where.base, where.uniform) if p is not None and p.number >= 0)
    total = where.offset
    for part in parts:
        low, high = (step.reads.get((part.kind, part.number + k)) for k in (0, 1))
        if low is None or high is None:
            return None
        total += high << 32 | low
    return total


# What speaks against blaming ptxas for machine code whose bits -----------------------------------------------------
#
# What speaks against blaming ptxas for machine code whose bits, on the CPU, differ from those of its PTX.
#
# A false accusation is for machine code what a wrong pass is for the rest. So a difference accuses nobody if a form
# that ran is not believed on the target, or if PTX leaves the bits open: where ptxas may fuse a product into a sum, in
# approximate instructions (ptxas chooses the roundings of their inner steps), and in the order of atomic operations.
# The bits of a NaN are open too: the caller must see that none is on the way. Undefined bits, races and bits that
# depend on the schedule end a run before this is asked. The other half of a proof, another level or release of ptxas
# that gives the right bits, is for the caller to find.

_ATOMIC = ("atom", "red", "multimem")
"""Opcodes whose results, or what they leave in memory, may depend on the order of threads."""


def doubt_of_forms(ran: Ran, target: str) -> str:
    """Which form of machine code that ran is not believed on a target, in words; "" if all are."""
    for forms in (unsettled(ran.forms, target), unsettled_moves(ran.moves, target)):
        if forms:
            more = f" and {len(forms) - 1} more" if len(forms) > 1 else ""
            return f"{forms[0]}{more} is not taught for {target}"
    if ran.approximate and not of_generation(target):
        return f"{ran.approximate[0]} has the bits of another generation than {target}'s"
    return ""


def doubt_of_ptx(kernel: Kernel, fusion: bool) -> str:
    """What PTX leaves open that may explain other bits, in words; "" if it leaves nothing open.

    fusion: whether ptxas may fuse multiplications and additions.
    """
    if fusion and contraction_open(kernel.program):
        return "ptxas may fuse a multiplication and an addition"
    for step in kernel.program.steps:
        if step.bound.form.approximate:
            return f"{step.bound.name} is approximate, and ptxas chooses how its steps are rounded"
        if step.node.opcode in _ATOMIC:
            return f"the order of {step.node.opcode} is open"
    return ""


def standing(ran: Ran, target: str) -> str:
    """The weakest form that ran, in words: how often it was taught, and whether a GPU confirmed it."""
    form, contexts, confirmed = weakest(ran.forms, target)
    if not form:
        return "no instruction of the table ran"
    device = f"confirmed by a GPU in {confirmed}" if confirmed else "confirmed by no GPU"
    return f"the weakest form that ran is {form}, taught in {contexts} contexts, {device}"
