"""The kernel that repeats an elementwise variant in registers, and the opcodes of its machine code's loop."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ptxdiff.triton.assemble import Assembly, Disassembly, assemble, disassemble
from ptxdiff.triton.compile import compile_kernel
from ptxdiff.triton.diagnostics import Refusal
from ptxdiff.triton.elementwise import TEMPLATE_FILE, TEMPLATES, InlineAsm, PlainFunction, computation_arguments
from ptxdiff.triton.spec import Compilation, Constant, FunctionRef, KernelSpec, Parameters, PointerType, specialise


class NotALoop(ValueError):
    """The machine code is not the expected loop. The message says how it differs."""


@dataclass(frozen=True)
class Repeated:
    """A variant repeated in registers.

    inputs, outputs: Triton's names of element types. block: elements of a block of `warps` warps. unroll: applications
    in one step of the loop. bare: without the variant, so that only the code that feeds results back remains. held: the
    inputs keep their values, and one LOP3 for each makes them wait for the results; if false, results become the next
    inputs.
    """

    computation: InlineAsm | PlainFunction
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    block: int
    warps: int
    unroll: int
    fusion: bool = False
    bare: bool = False
    held: bool = True

    @property
    def carry(self) -> tuple[int, ...] | None:
        """The number of the output that becomes each input, -1 for none; None if inputs are held."""
        return None if self.held else tuple(k if k < len(self.outputs) else -1 for k in range(len(self.inputs)))

    def spec(self, target: str) -> KernelSpec:
        """The compilation for a worker."""
        arguments: dict[str, Any] = {
            "ins": tuple(PointerType(t) for t in self.inputs),
            "outs": tuple(PointerType(t) for t in self.outputs),
            "clocks": PointerType("i64"),
            "steps": 3,
            "zero": 3,
            "other": 3,
            **computation_arguments(self.computation, Constant),
            "CARRY": self.carry,
            "BARE": self.bare,
            "UNROLL": self.unroll,
            "BLOCK": self.block,
        }
        return specialise(
            FunctionRef(TEMPLATES, TEMPLATE_FILE, "in_registers"),
            arguments,
            Parameters(frozenset(filter(str.isupper, arguments)), unspecialised=frozenset({"steps", "zero", "other"})),
            target=target,
            enable_fp_fusion=self.fusion,
            num_warps=self.warps,
        )


@dataclass(frozen=True)
class Assembled:
    """Machine code with a loop. body: the count of each opcode in it. parameters: of the entry, with hidden ones."""

    compilation: Compilation
    assembly: Assembly
    body: Mapping[str, int]
    parameters: int


def assembled(kernel: Repeated, target: str, nvdisasm: str) -> Assembled | Refusal:
    """Compile, assemble and disassemble for a target. Raises NotALoop."""
    compilation = compile_kernel(kernel.spec(target))
    if isinstance(compilation, Refusal):
        return compilation
    compilation = replace(compilation, ptx=kept_rolled(compilation.ptx))
    assembly = assemble(compilation)
    if isinstance(assembly, Refusal):
        return assembly
    sass = disassemble(assembly, nvdisasm)
    if not isinstance(sass, Disassembly):
        return sass
    entry = compilation.ptx[compilation.ptx.index(".entry") :].partition(")")[0]
    return Assembled(compilation, assembly, loop_body(sass.text), entry.count(".param"))


_LABEL = re.compile(r"^\$L__BB\w+:[^\n]*\n", re.M)


def kept_rolled(ptx: str) -> str:
    """PTX whose loops ptxas does not unroll: a pragma follows the label of each block of code."""
    return _LABEL.sub(lambda m: m[0] + '\t.pragma "nounroll";\n', ptx) if "nounroll" not in ptx else ptx


_LINE = re.compile(
    r"^(?P<label>\.L_\w+):"
    r"|^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(?P<opcode>[A-Z][\w.]*)(?P<rest>[^;]*);",
    re.M,
)
_BRANCH = re.compile(r"`\((?P<label>\.L_\w+)\)")
# Opcodes that must not be in the loop: memory, clocks, barriers, and reads of special registers.
FOREIGN = ("LD", "ST", "ATOM", "RED", "CS2R", "S2", "BAR", "MEMBAR", "ERRBAR", "UBLK", "SHFL", "VOTE", "EXIT", "DEPBAR")


def loop_body(sass: str) -> dict[str, int]:
    """The opcodes of the innermost loop between the two readings of the clock, by count. Raises NotALoop.

    A subroutine that the loop calls, such as the slow path of a division, is not counted: it stands outside the loop.
    """
    places: dict[str, int] = {}
    code: list[tuple[str, str]] = []
    for line in _LINE.finditer(sass):
        if line["label"]:
            places[line["label"]] = len(code)
        else:
            code.append((line["opcode"], line["rest"]))
    clocks = [k for k, (opcode, rest) in enumerate(code) if "SR_CLOCK" in rest]
    if len(clocks) != 2:
        raise NotALoop(f"the clock is read {len(clocks)} times instead of before and after the loop")
    backward = []
    for k, (opcode, rest) in enumerate(code):
        target = _BRANCH.search(rest) if opcode.startswith("BRA") else None
        if target and clocks[0] < places.get(target["label"], len(code)) <= k < clocks[1]:
            backward.append((places[target["label"]], k))
    if len(backward) != 1:
        raise NotALoop(f"there are {len(backward)} loops between the readings of the clock instead of one")
    begin, end = backward[0]
    body = [opcode for opcode, _ in code[begin : end + 1]]
    if foreign := sorted({o for o in body if o.startswith(FOREIGN)}):
        raise NotALoop(f"the loop holds {', '.join(foreign)}")
    return dict(sorted(Counter(o for o in body if o != "NOP").items()))


def per_application(one: Assembled, two: Assembled, times: int) -> dict[str, float]:
    """The opcodes of one application, from loops of `times` and of twice as many applications. Raises NotALoop.

    The difference of the two loops leaves out the loop's own instructions. An application that was merged with another,
    moved out of the loop or dropped would make the difference too small.
    """
    grown = Counter(two.body)
    grown.subtract(one.body)
    total = sum(grown.values())
    own = sum(one.body.values()) - total
    if total < times:
        raise NotALoop(f"{times} more applications add {total} instructions: some were merged or moved out of the loop")
    if abs(own) > max(OWN, total // 10):
        raise NotALoop(f"the loop holds {own} instructions of its own, and {total} of the applications")
    return {opcode: count / times for opcode, count in sorted(grown.items()) if count}


OWN = 24  # counter, comparison, branch, and copies; for long loops a tenth, because ptxas chooses other instructions
