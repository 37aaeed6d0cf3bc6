"""Products of a warpgroup: HGMMA (float16, bfloat16, tf32), QGMMA (8-bit floats), IGMMA, BGMMA.

An instruction is translated to the form of wgmma that it stands for. Its matrices, their layouts in shared memory and
their arithmetic are those of that form (`ptxdiff.emulator.kernel.wgmma`); a combination that PTX does not have is
refused. A product is computed when it is issued, so what waits for it does nothing: the CPU never sees a product whose
registers or matrices are used too early.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from ptxdiff.emulator.isa import warpgroup  # noqa: F401  declares the forms of wgmma
from ptxdiff.emulator.isa.forms import Bound, find
from ptxdiff.emulator.kernel.warp import fragments
from ptxdiff.emulator.kernel.wgmma import descriptors
from ptxdiff.emulator.kernel.wgmma.multiply import Matrix, accumulators, arithmetic_of, arranged, shape_of, signed
from ptxdiff.emulator.numeric.tensorcore import BITS
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array
from ptxdiff.sass.control import refuse
from ptxdiff.sass.cubin import MachineCode
from ptxdiff.sass.machine import _WARP, Lanes, Machine, MachineStep
from ptxdiff.sass.matrices import Act, gathered, scattered, whole_warps
from ptxdiff.sass.shared import SharedBlocks
from ptxdiff.sass.text import MachineFault, MachineInstruction, Operand, Unsupported, plain

_WARPS = 4
_FLAGS = ("negA", "negB", "tnspA", "tnspB")
_HALVES = {
    ("F32",): ("f32", "f16", "f16"), ("F16",): ("f16", "f16", "f16"), ("F32", "BF16"): ("f32", "bf16", "bf16"),
    ("F32", "TF32"): ("f32", "tf32", "tf32"),
}  # fmt: skip
_NARROW = {"E4M3": "e4m3", "E5M2": "e5m2"}
_BYTES = {"S8": "s8", "U8": "u8"}


def _form(instruction: MachineInstruction) -> Bound | None:
    """The form of wgmma that an instruction stands for; None if there is none."""
    shape, *words = instruction.modifiers or ("",)
    size = re.fullmatch(r"64x(\d+)x(\d+)", shape)
    if size is None:
        return None
    types: tuple[str, ...] | None = None
    before: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    if instruction.opcode == "HGMMA":
        types = _HALVES.get(tuple(words))
    elif instruction.opcode == "QGMMA" and len(words) == 3:
        to, a, b = words
        if to in ("F16", "F32") and a in _NARROW and b in _NARROW:
            types = to.lower(), _NARROW[a], _NARROW[b]
    elif instruction.opcode == "IGMMA":
        saturates = words[-1:] == ["SAT"]
        factors = words[:-1] if saturates else words
        if len(factors) == 2 and set(factors) <= set(_BYTES):
            types, before = ("s32", _BYTES[factors[0]], _BYTES[factors[1]]), ("satfinite",) if saturates else ()
    elif instruction.opcode == "BGMMA" and words == ["AND", "POPC"]:
        types, behind = ("s32", "b1", "b1"), ("and", "popc")
    if types is None:
        return None
    written = "mma_async", "sync", "aligned", f"m64n{size[1]}k{size[2]}", *before, *types, *behind
    found = find("wgmma", written)
    return found[0] if len(found) == 1 else None


def _product(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """`d, [a,] descriptors, c[, uniform predicate][, gsb0]`: without the predicate or where it is true, c is added."""
    bound = _form(instruction)
    if bound is None or not code.target.startswith("sm_90"):
        raise refuse(instruction)
    operands = list(instruction.operands)
    if operands and operands[-1] == Operand("word", name="gsb0"):
        operands.pop()
    adds = operands.pop() if operands and operands[-1].kind == "UP" else None
    in_registers = len(operands) == 4
    if len(operands) not in (3, 4):
        raise refuse(instruction)
    to, described, added = operands[0], operands[-2], operands[-1]
    flags = described.suffix.split(".") if described.suffix else []
    how = arithmetic_of(bound)
    d_type, a_type, b_type, _ = how.types
    n, k = shape_of(bound)
    if (
        not plain(to, "R") or to.number < 0 or not plain(added, "R") or described.kind != "gdesc"
        or described.number < 0 or described.offset or not set(flags) <= set(_FLAGS) or len(set(flags)) != len(flags)
        or (BITS[a_type] != 16 and {"tnspA", "tnspB"} & set(flags))
    ):  # fmt: skip
        raise refuse(instruction)
    negative = "negA" in flags
    if in_registers:
        a = operands[1]
        negative = a.negated
        if a.kind != "R" or a.number < 0 or a.absolute or a.inverted or a.suffix or {"negA", "tnspA"} & set(flags):
            raise refuse(instruction)
    if (negative or "negB" in flags) and a_type in ("s8", "u8", "b1"):
        raise refuse(instruction)
    table = fragments.of_a(16, k, BITS[a_type]) if in_registers else None
    left = Matrix(64, k, a_type, "tnspA" in flags, negative, table)
    right = Matrix(n, k, b_type, "tnspB" in flags, "negB" in flags)
    width, table_d = BITS[d_type], accumulators(n, BITS[d_type])
    count = table_d.size // (_WARP * fragments.per_register(width))

    def multiply(machine: Machine, lanes: Lanes, number: int) -> None:
        warps = whole_warps(machine, lanes, instruction)
        groups = _groups(machine, warps, instruction)
        shape = len(groups), 64, n
        c = np.zeros(shape, UNSIGNED[width])
        if added.number >= 0:
            held = gathered(machine, added, count, lanes, len(warps), table_d, width).reshape(shape)
            c = np.where(_accumulates(machine, adds, groups, instruction)[:, None, None], held, c)
        at = described.number
        if table is not None:
            registers = table.size // (_WARP * fragments.per_register(BITS[a_type]))
            factors = gathered(machine, operands[1], registers, lanes, len(warps), table, BITS[a_type])
            factors = factors.reshape(len(groups), 64, k)
        else:
            factors = _loaded(machine, instruction, left, at, groups)
        # The descriptor of b has the second pair of registers, also where there is none of a.
        others = _loaded(machine, instruction, right, at + 2, groups).transpose(0, 2, 1)
        found = how(signed(factors, left), signed(others, right), c)
        tiles = found.astype(UNSIGNED[width], copy=False).reshape(len(warps), -1)
        scattered(machine, to, count, lanes, tiles, table_d, width)

    return Act(instruction, multiply)


def _groups(machine: Machine, warps: Array, instruction: MachineInstruction) -> Array:
    """The first warps of warpgroups. Raises Unsupported if a part of one is missing."""
    if machine.threads % (_WARPS * _WARP):
        raise Unsupported(f"{instruction.text}: a block whose threads are no whole warpgroups")
    groups = np.unique(warps // _WARPS) * _WARPS
    if len(warps) != len(groups) * _WARPS:
        raise Unsupported(f"{instruction.text}: only a part of a warpgroup runs it")
    return groups


def _alike(values: Array, instruction: MachineInstruction, groups: Array) -> Array:
    """Of a value for each warp those of warpgroups. Raises MachineFault if the warps of one have different ones."""
    each = values[groups[:, None] + np.arange(_WARPS)]
    if (each != each[:, :1]).any():
        raise MachineFault(f"{instruction.text}: the warps of a warpgroup give it different operands")
    found: Array = each[:, 0]
    return found


def _accumulates(machine: Machine, predicate: Operand | None, groups: Array, instruction: MachineInstruction) -> Array:
    if predicate is None:
        return np.ones(len(groups), np.bool_)
    held = _alike(machine.uniform_predicate(predicate.number), instruction, groups)
    return np.asarray(held == 0 if predicate.inverted else held != 0)


def _loaded(machine: Machine, instruction: MachineInstruction, matrix: Matrix, register: int, groups: Array) -> Array:
    """The matrix of the descriptors in two uniform registers, as warpgroups x rows x k."""
    low, high = (_alike(machine.uniform_register(register + i), instruction, groups).astype(np.uint64) for i in (0, 1))
    shared = SharedBlocks.of(machine)
    chunks = []
    for group, code in zip(groups.tolist(), (high << np.uint64(32) | low).tolist(), strict=True):
        found = descriptors.decoded(code)
        if isinstance(found, str):
            raise MachineFault(f"{instruction.text}: a descriptor: {found}")
        if not matrix.across and found.swizzle != 16 and matrix.depth > found.swizzle:
            raise Unsupported(f"{instruction.text}: {matrix.depth} bytes along k in a swizzle of {found.swizzle}")
        at = descriptors.addresses(found, matrix.across, matrix.rows, matrix.depth).reshape(-1).astype(np.int64)
        rows = None
        for warp in (0, 1):  # the second finds a race with what the first one stored
            lanes = np.full(len(at), (group + warp) * _WARP)
            # At level 0 ptxas adds products of descriptors that are 0, and uses their results for nothing.
            rows = shared.load(instruction, shared.places(instruction, at, 16, lanes, low=0), 16, lanes, False)
        chunks.append(rows)
    return arranged(np.stack(chunks), matrix)  # type: ignore[arg-type]


def _nothing(machine: Machine, lanes: Lanes, count: int) -> None:
    """Products are complete when they are issued."""


def _order(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """WARPGROUP.ARRIVE, before products that use registers, and WARPGROUP.DEPBAR, which waits for them."""
    words, operands = instruction.modifiers, instruction.operands
    waits = words == ("DEPBAR", "LE") and len(operands) == 2
    if waits and operands[0] == Operand("word", name="gsb0") and plain(operands[1], "int"):
        return Act(instruction, _nothing)
    if words == ("ARRIVE",) and not operands:
        return Act(instruction, _nothing)
    raise refuse(instruction)


WARPGROUPS: dict[str, Callable[[MachineInstruction, MachineCode], MachineStep]] = {
    **dict.fromkeys(("HGMMA", "QGMMA", "IGMMA", "BGMMA"), _product),
    "WARPGROUP": _order,
}
