"""Matrices in the registers of a warp: LDSM, STSM, and products by tensor cores (HMMA, IMMA, QMMA, OMMA); copies.

The layouts of fragments are those of PTX (`ptxdiff.emulator.kernel.warp.fragments`), and so is the arithmetic. A copy
from global to shared memory (LDGSTS) is made at once, so what waits for it does nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping

import numpy as np

from ptxdiff.emulator.isa import scaled  # noqa: F401  declares the forms of block-scaled mma
from ptxdiff.emulator.isa.forms import find
from ptxdiff.emulator.kernel.tensor_cores import arithmetic
from ptxdiff.emulator.kernel.warp import fragments, mma
from ptxdiff.emulator.numeric import scaledproducts
from ptxdiff.emulator.numeric.tensorcore import BITS
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array
from ptxdiff.emulator.targets import Target
from ptxdiff.sass.control import global_addresses, global_rows, refuse
from ptxdiff.sass.cubin import MachineCode
from ptxdiff.sass.machine import _WARP, Fibre, Lanes, Machine, MachineStep, StepCode
from ptxdiff.sass.shared import SharedBlocks, is_shared, shared_addresses
from ptxdiff.sass.text import BYTES, MachineInstruction, Operand, Unsupported, plain

Action = Callable[[Machine, Lanes, int], None]


class Act(MachineStep):
    """An instruction that the lanes of its guard carry out together."""

    def __init__(self, instruction: MachineInstruction, action: Action) -> None:
        super().__init__(instruction)
        self.action = action

    @property
    def code(self) -> StepCode:
        """The outermost function around the action, so that a change in any of them is seen."""
        outermost = self.action.__qualname__.partition(".")[0]
        return type(self), getattr(sys.modules[self.action.__module__], outermost)

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count:
            self.action(machine, lanes, count)
        fibre.pc += BYTES
        return True


def whole_warps(machine: Machine, lanes: Lanes, instruction: MachineInstruction) -> Array:
    """The warps of lanes. Raises Unsupported if a part of one is missing."""
    if lanes is None:
        return np.arange(machine.warps)
    warps = np.unique(lanes // _WARP)
    if len(lanes) != len(warps) * _WARP:
        raise Unsupported(f"{instruction.text}: only a part of a warp runs it")
    return warps


def _matrix(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """LDSM and STSM: matrices of 8 x 8 elements of 16 bits; each lane gives the address of a row of one matrix."""
    loads = instruction.opcode == "LDSM"
    found = re.fullmatch(r"16\.(M|MT)88(?:\.([24]))?", ".".join(instruction.modifiers))
    if found is None or len(instruction.operands) != 2:
        raise refuse(instruction)
    data, where = instruction.operands if loads else instruction.operands[::-1]
    count_of = int(found[2] or 1)
    transposed = found[1] == "MT"
    if not is_shared(where) or not plain(data, "R") or data.number < 0:
        raise refuse(instruction)

    def turned(matrices: Array) -> Array:
        return matrices.transpose(0, 2, 1) if transposed else matrices

    def move(machine: Machine, lanes: Lanes, count: int) -> None:
        warps = whole_warps(machine, lanes, instruction)
        shared = SharedBlocks.of(machine)
        addresses = shared_addresses(machine, lanes, count, where).reshape(-1, _WARP)
        for number in range(count_of):
            rows = slice(8 * number, 8 * number + 8)
            givers = (warps[:, None] * _WARP + np.arange(8 * number, 8 * number + 8)).reshape(-1)
            places = shared.places(instruction, addresses[:, rows].reshape(-1), 16, givers)
            if loads:
                matrices = turned(shared.load(instruction, places, 16, givers, False).view(np.uint16).reshape(-1, 8, 8))
                value = np.ascontiguousarray(matrices).reshape(-1, 64).view(np.uint32).reshape(-1)
                machine.write("R", data.number + number, lanes, value)
            else:
                held = np.ascontiguousarray(machine.read("R", data.number + number, lanes)).view(np.uint16)
                matrices = np.ascontiguousarray(turned(held.reshape(-1, 8, 8))).reshape(-1, 8).view(np.uint8)
                shared.store(instruction, places, matrices, givers)

    return Act(instruction, move)


_CACHES = frozenset({"BYPASS", "LTC64B", "LTC128B", "LTC256B", "EF", "EL", "LU", "EU", "NA"})
_SIZES = {"64": 8, "128": 16}


def _copy(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """LDGSTS: where its predicate is false, zeros instead of what is in global memory.

    With ZFILL the lowest bits of the address in global memory are no part of it: they say how many bytes at the end are
    not copied, but zeros.
    """
    words, operands = instruction.modifiers, instruction.operands
    if (
        len(set(words)) != len(words)
        or not {"E"} <= set(words) <= {"E", "ZFILL", *_CACHES, *_SIZES}
        or len(operands) not in (2, 3)
    ):
        raise refuse(instruction)
    to, source = operands[:2]
    chosen = operands[2] if len(operands) == 3 else None
    sizes = [_SIZES[w] for w in words if w in _SIZES] or [4]
    if len(sizes) > 1 or not is_shared(to) or source.kind != "mem":
        raise refuse(instruction)
    if chosen is not None and (chosen.kind != "P" or chosen.negated or chosen.absolute or chosen.suffix):
        raise refuse(instruction)
    size, fills = sizes[0], "ZFILL" in words

    def copy(machine: Machine, lanes: Lanes, count: int) -> None:
        every = machine._all if lanes is None else lanes
        shared = SharedBlocks.of(machine)
        places = shared.places(instruction, shared_addresses(machine, lanes, count, to), size, every)
        rows, read = np.zeros((count, size), np.uint8), np.ones(count, np.bool_)
        if chosen is not None:
            read = (machine.read("P", chosen.number, lanes) != 0) ^ chosen.inverted
        if read.any():
            addresses = global_addresses(machine, lanes, count, source)
            filled = addresses % size if fills else np.zeros(count, np.int64)
            for zeros in np.unique(filled[read]).tolist():
                some, unit = np.flatnonzero(read & (filled == zeros)), size if zeros == 0 else 1
                each = (addresses[some] - zeros)[:, None] + np.arange(0, size - zeros, unit)
                copied = global_rows(machine, instruction, each.reshape(-1), unit)
                rows[some, : size - zeros] = copied.reshape(len(some), size - zeros)
        shared.store(instruction, places, rows, every)

    return Act(instruction, copy)


_WAITS: Mapping[str, tuple[str, ...]] = {"LDGDEPBAR": (), "DEPBAR": ("LE",)}


def _wait(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    every = instruction.modifiers == () and [o.kind for o in instruction.operands] == ["set"]
    if instruction.modifiers != _WAITS[instruction.opcode] and not (instruction.opcode == "DEPBAR" and every):
        raise refuse(instruction, "has a modifier that is not known")
    return Act(instruction, lambda machine, lanes, count: None)


_SHAPES: Mapping[str, tuple[int, int, int]] = {
    "16816": (16, 8, 16), "1688": (16, 8, 8), "1684": (16, 8, 4), "16832": (16, 8, 32), "16864": (16, 8, 64),
    "8816": (8, 8, 16), "8832": (8, 8, 32),
}  # fmt: skip


def _types(instruction: MachineInstruction) -> tuple[tuple[str, str, str, str], str]:
    """The types of d, a, b and c, as PTX names them, and whether integers saturate."""
    _, *words = instruction.modifiers
    if instruction.opcode == "IMMA":
        saturates = words[-1:] == ["SAT"]
        kinds = tuple(w.lower() for w in (words[:-1] if saturates else words))
        if len(kinds) != 2 or not set(kinds) <= {"s8", "u8", "s4", "u4"}:
            raise refuse(instruction)
        return ("s32", kinds[0], kinds[1], "s32"), "satfinite" if saturates else ""
    if instruction.opcode == "QMMA":
        small = {w: w.lower() for w in ("E4M3", "E5M2", "E3M2", "E2M3", "E2M1")}
        if len(words) != 3 or words[0] not in ("F32", "F16") or not set(words[1:]) <= set(small):
            raise refuse(instruction)
        return (words[0].lower(), small[words[1]], small[words[2]], words[0].lower()), ""
    known = {("F32",): ("f32", "f16"), ("F16",): ("f16", "f16"), ("F32", "BF16"): ("f32", "bf16"),
             ("F32", "TF32"): ("f32", "tf32")}  # fmt: skip
    if tuple(words) not in known:
        raise refuse(instruction)
    total, factor = known[tuple(words)]
    return (total, factor, factor, total), ""


def _product(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """HMMA, IMMA and QMMA."""
    if instruction.modifiers[:1] == ("SF",):
        return _scaled_product(instruction, code)
    operands = instruction.operands
    if not instruction.modifiers or instruction.modifiers[0] not in _SHAPES or len(operands) != 4:
        raise refuse(instruction)
    m, n, k = _SHAPES[instruction.modifiers[0]]
    types, word = _types(instruction)
    # nvdisasm names the order of a and b with IMMA, and with QMMA on sm_89.
    suffixes = {"IMMA": [("", "ROW", "COL", "")], "QMMA": [("", "ROW", "COL", ""), ("", "", "", "")]}
    if tuple(o.suffix for o in operands) not in suffixes.get(instruction.opcode, [("", "", "", "")]):
        raise refuse(instruction)
    if any(o.kind != "R" or o.negated or o.absolute or o.inverted for o in operands):
        raise refuse(instruction)
    how = arithmetic(types, mma.generation(Target.parse(code.target)), False, word)
    if how is None:
        raise refuse(instruction, "has an arithmetic that is not known for this target")
    widths = [BITS[t] for t in types]
    tables = (
        fragments.of_c(m, n, widths[0]), fragments.of_a(m, k, widths[1]), fragments.of_b(k, n, widths[2]),
        fragments.of_c(m, n, widths[3]),
    )  # fmt: skip
    counts = [t.size // (_WARP * fragments.per_register(w)) for t, w in zip(tables, widths, strict=True)]

    def multiply(machine: Machine, lanes: Lanes, count: int) -> None:
        warps = whole_warps(machine, lanes, instruction)
        factors = [
            gathered(machine, o, c, lanes, len(warps), t, w)
            for o, c, t, w in zip(operands[1:], counts[1:], tables[1:], widths[1:], strict=True)
        ]
        tiles = how(*factors).astype(UNSIGNED[widths[0]], copy=False).reshape(len(warps), -1)
        scattered(machine, operands[0], counts[0], lanes, tiles, tables[0], widths[0])

    return Act(instruction, multiply)


_SCALED: Mapping[tuple[str, ...], tuple[str, str, str, str, int]] = {
    ("QMMA", "16832", "E8"): ("m16n8k32", "mxf8f6f4", "scale_vec::1X", "ue8m0", 1),
    ("OMMA", "16864", "E8"): ("m16n8k64", "mxf4", "scale_vec::2X", "ue8m0", 2),
    ("OMMA", "16864", "UE4M3", "4X"): ("m16n8k64", "mxf4nvf4", "scale_vec::4X", "ue4m3", 4),
}
"""By opcode, shape and words for scales: shape, kind, vector and type of scales of the form of mma; blocks of k."""


def _scaled_product(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """QMMA.SF and OMMA.SF: products of matrices in blocks, each with a scale. `d, a, b, c, scales, scales, selectors`.

    The selectors, in a uniform register: which byte and thread of a pair give the scales of a (bits 0, 1 and 2), and
    which byte and thread of a group of four those of b (bits 3, 4 and 5, 6).
    """
    operands, words = instruction.operands, instruction.modifiers
    known = _SCALED.get((instruction.opcode, *words[1:2], *words[5:]))
    if known is None or len(operands) != 7 or words[2] != "F32":
        raise refuse(instruction)
    shape, kind, vector, scales, blocks = known
    types = words[3].lower(), words[4].lower(), scales
    form = ("sync", "aligned", shape, "row", "col", f"kind::{kind}", "block_scale", vector, "f32", *types[:2], "f32")
    found = find("mma", (*form, scales))
    registers, selectors = operands[:6], operands[6]
    if len(found) != 1 or not all(plain(o, "R") for o in registers) or not plain(selectors, "UR"):
        raise refuse(instruction)
    if mma.generation(Target.parse(code.target)) != "RTX Blackwell":
        raise refuse(instruction, "has an arithmetic that is not known for this target")
    k = int(shape.rpartition("k")[2])
    packed = k == 64  # two elements of 4 bits in a byte
    widths = (32, *(4 if packed else BITS[t] for t in types[:2]), 32)
    tables = (
        fragments.of_c(16, 8, 32), fragments.of_a(16, k, widths[1]), fragments.of_b(k, 8, widths[2]),
        fragments.of_c(16, 8, 32),
    )  # fmt: skip
    counts = [t.size // (_WARP * fragments.per_register(w)) for t, w in zip(tables, widths, strict=True)]
    model = scaledproducts.BLACKWELL[kind]
    rows, columns = np.arange(16) % 8 * 4 + np.arange(16) // 8, np.arange(8) * 4  # lanes of thread 0

    def chosen(words: Array, giving: Array, first: int) -> Array:
        shift = (8 * (first + np.arange(blocks))).astype(np.uint32)
        return np.ascontiguousarray(words[giving][:, None] >> shift & np.uint32(255))

    def multiply(machine: Machine, lanes: Lanes, count: int) -> None:
        warps = whole_warps(machine, lanes, instruction)
        a, b, c = (
            np.ascontiguousarray(gathered(machine, o, n, lanes, len(warps), t, w), np.uint32)
            for o, n, t, w in zip(operands[1:4], counts[1:], tables[1:], widths[1:], strict=True)
        )
        if packed:
            a, b = a << np.uint32(2), b << np.uint32(2)  # the place of a 4-bit code in a byte
        turned, result = np.ascontiguousarray(b.transpose(0, 2, 1)), np.empty_like(c)
        of_a, of_b = (machine.read("R", o.number, lanes).reshape(-1, _WARP) for o in operands[4:6])
        for tile, selector in enumerate(machine.uniform_register(selectors.number)[warps].tolist()):
            byte_a, thread_a, byte_b, thread_b = selector & 3, selector >> 2 & 1, selector >> 3 & 3, selector >> 5 & 3
            if selector >> 7 or byte_a % blocks or byte_b % blocks:
                raise Unsupported(f"{instruction.text}: selectors of scales 0x{selector:x}")
            scales_of_a = chosen(of_a[tile], rows + 2 * thread_a, byte_a)
            scales_of_b = chosen(of_b[tile], columns + thread_b, byte_b)
            result[tile] = scaledproducts.dot(a[tile], turned[tile], c[tile], scales_of_a, scales_of_b, types, model)
        scattered(machine, operands[0], counts[0], lanes, result.reshape(len(warps), -1), tables[0], 32)

    return Act(instruction, multiply)


def gathered(
    machine: Machine, operand: Operand, count: int, lanes: Lanes, warps: int, table: Array, width: int
) -> Array:
    """The elements of an operand as tiles x rows x columns."""
    read = [machine.read("R", operand.number + k if operand.number >= 0 else -1, lanes) for k in range(count)]
    rows = np.ascontiguousarray(np.stack([r.reshape(warps, _WARP) for r in read], 1)).reshape(warps, -1)
    if width >= 8:
        values: Array = rows.view(UNSIGNED[width])
    else:  # two elements of 4 bits in a byte
        octets = rows.view(np.uint8)
        values = np.stack([octets & 15, octets >> 4], -1).reshape(warps, -1)
    return values.take(table.reshape(-1), axis=1).reshape(-1, *table.shape[1:])


def scattered(
    machine: Machine, operand: Operand, count: int, lanes: Lanes, tiles: Array, table: Array, width: int
) -> None:
    """Write the elements of a result, a row of them for each warp, to registers. width: bits of an element."""
    order = np.empty(table.size, np.int64)
    order[table.reshape(-1)] = np.arange(table.size)
    columns = tiles.take(order, axis=1).view(np.uint32).reshape(len(tiles), -1, _WARP)
    for number in range(count):
        machine.write("R", operand.number + number, lanes, np.ascontiguousarray(columns[:, number]).reshape(-1))


MATRICES: dict[str, Callable[[MachineInstruction, MachineCode], MachineStep]] = {
    "LDSM": _matrix,
    "STSM": _matrix,
    "HMMA": _product,
    "IMMA": _product,
    "QMMA": _product,
    "OMMA": _product,
    "LDGSTS": _copy,
    **dict.fromkeys(_WAITS, _wait),
}
