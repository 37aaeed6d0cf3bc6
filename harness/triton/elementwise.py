"""The elementwise kernel of one setup: how it is compiled, and with which arguments it is launched.

Compiling and launching use the same description, so the kernel compiled ahead is the one that runs.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ptxdiff.triton.diagnostics import Refusal
from ptxdiff.triton.ptx_text import marked
from ptxdiff.triton.spec import Constant, FunctionRef, KernelSpec, Parameters, PointerType, specialise

TEMPLATES = "ptxdiff.triton.templates"
TEMPLATE_FILE = str(Path(__file__).resolve().with_name("templates.py"))


@dataclass(frozen=True)
class InlineAsm:
    """The arguments of `tl.inline_asm_elementwise` that describe the asm."""

    text: str
    constraints: str
    pack: int = 1
    is_pure: bool = True


@dataclass(frozen=True)
class PlainFunction:
    """A user's @triton.jit function of the element tensors, and the constants that follow them as arguments."""

    function: FunctionRef
    constants: tuple[Any, ...] = ()


def computation_arguments(computation: InlineAsm | PlainFunction, constexpr: Any) -> dict[str, Any]:
    """The arguments that give a kernel template its computation. constexpr: marks a compile-time value."""
    asm = computation if isinstance(computation, InlineAsm) else None
    plain = computation if isinstance(computation, PlainFunction) else None
    return {
        "constants": tuple(constexpr(c) for c in plain.constants) if plain else (),
        "ASM": marked(asm.text) if asm else None,
        "CONSTRAINTS": asm.constraints if asm else None,
        "PACK": asm.pack if asm else None,
        "PURE": asm.is_pure if asm else None,
        "FUNCTION": plain.function if plain else None,
    }


@dataclass(frozen=True)
class Elementwise:
    """One elementwise kernel.

    inputs, outputs: Triton's names of the element types ("fp32", "u8"). shape: one or two dimensions, the same for all
    tensors. alignment: bytes by which all pointers are aligned; 16 or more lets Triton vectorise. carry: for the loop
    context, the number of the output that becomes each input in the next step, -1 for none; None for the straight
    context. block: elements of a program; in two dimensions, of its tile.
    """

    computation: InlineAsm | PlainFunction
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shape: tuple[int, ...]
    block: int = 256
    alignment: int = 16
    num_warps: int = 4
    carry: tuple[int, ...] | None = None
    steps: int = 1

    def __post_init__(self) -> None:
        if not self.inputs or not self.outputs:
            raise ValueError("an elementwise kernel has at least one input and one output")
        if len(self.shape) not in (1, 2):
            raise ValueError(f"shape {self.shape}: elementwise kernels have one or two dimensions")
        if math.prod(self.shape) > 2**31 - self.block:
            raise ValueError(
                f"shape {self.shape}: Triton counts elements in 32 bits; use fewer than 2^31 - {self.block}"
            )
        if self.block < 1 or self.block & (self.block - 1):
            raise ValueError(f"block {self.block} is no power of two")

    @property
    def template(self) -> str:
        """The template's name in `ptxdiff.triton.templates`."""
        return f"elementwise_{len(self.shape)}d"

    @property
    def tile(self) -> tuple[int, ...]:
        """The shape of a program's tile."""
        if len(self.shape) == 1:
            return (self.block,)
        columns = min(self.block, 1 << max(0, self.shape[1] - 1).bit_length())
        return (self.block // columns, columns)

    @property
    def grid(self) -> tuple[int, ...]:
        """The number of programs in each dimension."""
        return tuple(-(-size // tile) for size, tile in zip(self.shape, self.tile, strict=True))

    @property
    def row_stride(self) -> int:
        """Units from one row to the next: the columns and a gap, which reveals stores past a row's end.

        Divisible by 16 if and only if the number of columns is.
        """
        columns = self.shape[-1]
        return columns + (16 if columns % 16 == 0 else 1)

    @property
    def extent(self) -> int:
        """Units from the first element to the last, including gaps between rows."""
        if len(self.shape) == 1 or 0 in self.shape:
            return math.prod(self.shape)
        return (self.shape[0] - 1) * self.row_stride + self.shape[1]

    def arguments(self, ins: Any, outs: Any, constexpr: Any) -> dict[str, Any]:
        """All arguments by name, in the template's order.

        ins, outs: the tuples of pointers. constexpr: marks a value inside a tuple as a compile-time one.
        """
        common = {"steps": self.steps, **computation_arguments(self.computation, constexpr), "CARRY": self.carry}
        if len(self.shape) == 1:
            return {"ins": ins, "outs": outs, "n": self.shape[0], **common, "BLOCK": self.block}
        strides = {"in_strides": (self.row_stride,) * len(ins), "out_strides": (self.row_stride,) * len(outs)}
        rows, columns = self.tile
        sizes = {"rows": self.shape[0], "columns": self.shape[1], **strides}
        return {"ins": ins, "outs": outs, **sizes, **common, "BLOCK_ROWS": rows, "BLOCK_COLUMNS": columns}

    @property
    def registers(self) -> tuple[int, int]:
        """The numbers of registers of one asm invocation: of its results and of its arguments, as the constraints must
        list.

        Triton passes the elements of a pack in 32-bit registers, several in one if they are narrower (the last register
        is padded), and each 64-bit element in a 64-bit register.
        """
        pack = self.computation.pack if isinstance(self.computation, InlineAsm) else 1
        outs, ins = (sum(_registers(t, pack) for t in types) for types in (self.outputs, self.inputs))
        return outs, ins

    def explain(self, refusal: Refusal) -> Refusal:
        """The refusal; if it is about numbers of registers, with the numbers that the constraints need."""
        asm = self.computation
        if not isinstance(asm, InlineAsm) or not re.search(
            "constraints does not match|without outputs|with one output cannot", refusal.words
        ):
            return refusal
        given = [c.strip() for c in asm.constraints.split(",") if c.strip() and not c.strip().startswith("~")]
        outs = sum(c.startswith("=") for c in given)
        types = f"{', '.join(self.inputs)} -> {', '.join(self.outputs)}"
        need = " and ".join(_count(n, what) for n, what in zip(self.registers, ("output", "input"), strict=True))
        counts = f"pack {asm.pack} of {types} takes {need}; the constraints list {outs} and {len(given) - outs}"
        return replace(refusal, words=f"{refusal.words}; {counts}")

    def spec(self, target: str, *, enable_fp_fusion: bool) -> KernelSpec:
        """The compilation for a worker, specialised as Triton specialises a launch of `arguments`."""
        aligned = self.alignment % 16 == 0
        ins, outs = (tuple(PointerType(t, aligned) for t in types) for types in (self.inputs, self.outputs))
        arguments = self.arguments(ins, outs, constexpr=Constant)
        return specialise(
            FunctionRef(TEMPLATES, TEMPLATE_FILE, self.template),
            arguments,
            Parameters(frozenset(filter(str.isupper, arguments)), unspecialised=frozenset({"steps"})),
            target=target,
            enable_fp_fusion=enable_fp_fusion,
            num_warps=self.num_warps,
        )


def _registers(element: str, pack: int) -> int:
    match = re.search(r"(?:fp|bf|[iu])(\d+)", element)
    bits = int(match[1]) if match else 32
    return pack if bits >= 32 else -(-pack * bits // 32)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
