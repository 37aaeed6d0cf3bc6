"""PTX on the CPU, bit for bit: parse it, bind it as Triton does, run it. Needs only numpy and ml_dtypes; llvmlite and
numba make it fast, and products of matrices need them.

`emulate` runs an inline asm block on arrays, `trace` runs it on one pack step by step, `analyse` lists its
instructions. `load_kernel` checks a module and `run_kernel` launches its kernel on `Buffer`s. Every error is a
`PtxError`. Other rooms import these names from here, the syntax tree from `ptxdiff.emulator.text`, forms of
instructions from `ptxdiff.emulator.isa` and traces of threads from `ptxdiff.emulator.kernel.trace`; README.md beside
this file explains them. Modules below are loaded at the first use of a name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptxdiff.emulator.facade import attribute_of

if TYPE_CHECKING:
    from ptxdiff.emulator.asm_block import (
        AsmBlock,
        Trace,
        TraceLine,
        analyse,
        assemble,
        emulate,
        program_text,
        refusal,
        repeated_name,
        trace,
        written_input,
    )
    from ptxdiff.emulator.binding.constraints import (
        REGISTER_WIDTH,
        AsmOperand,
        Constraint,
        bind,
        check_inputs,
        check_pack,
        destination,
        parse_constraints,
    )
    from ptxdiff.emulator.binding.contents import Analysis, form_of
    from ptxdiff.emulator.binding.contraction import (
        APPROXIMATE,
        HOPPER,
        ROUNDED,
        Fusable,
        Fuse,
        contraction_open,
        fusable,
        role_in_contraction,
        undecided,
    )
    from ptxdiff.emulator.binding.packed import in_tritons_form
    from ptxdiff.emulator.binding.special_registers import NEEDS, SPECIAL_REGISTERS
    from ptxdiff.emulator.constant_folding import built_constants
    from ptxdiff.emulator.dataflow import HAZARDS, Hazard, approximate_results, approximate_tensors, sharing
    from ptxdiff.emulator.errors import (
        ExecutionError,
        InputWritten,
        InternalError,
        NotElementwise,
        NotInstalled,
        OperandError,
        PtxError,
        TimeLimit,
        TooLarge,
        UndefinedBits,
        UnsupportedOnTarget,
        unexpected,
    )
    from ptxdiff.emulator.independence import judging_emulated
    from ptxdiff.emulator.kernel.async_copy.tensor_maps import PADDED_NIBBLES, HostMap, Pixels
    from ptxdiff.emulator.kernel.block_orders import TOGETHER, BlockOrder
    from ptxdiff.emulator.kernel.kernel import Kernel
    from ptxdiff.emulator.kernel.load import load_kernel
    from ptxdiff.emulator.kernel.memory.space import (
        BUFFER_SPACING,
        POINTED_BASE,
        Buffer,
        BufferPointer,
        pointed_address,
    )
    from ptxdiff.emulator.kernel.run import clusters_of, orders_of, run_kernel, scratch
    from ptxdiff.emulator.limits import KERNEL_SECONDS, SNIPPET_SECONDS, STILL_RUNNING, shared_memory
    from ptxdiff.emulator.machine.data import dtype_of, width_of
    from ptxdiff.emulator.machine.special_registers import unknown_registers
    from ptxdiff.emulator.numeric.vectorise import uncompiled
    from ptxdiff.emulator.targets import GENERATION, Requirement, Target, of_generation, requirement

_NAMES = {
    "asm_block": (
        "AsmBlock",
        "Trace",
        "TraceLine",
        "analyse",
        "assemble",
        "emulate",
        "program_text",
        "refusal",
        "repeated_name",
        "trace",
        "written_input",
    ),
    "binding.constraints": (
        "REGISTER_WIDTH",
        "AsmOperand",
        "Constraint",
        "bind",
        "check_pack",
        "parse_constraints",
        "check_inputs",
        "destination",
    ),
    "binding.contents": (
        "Analysis",
        "form_of",
    ),
    "binding.contraction": (
        "Fusable",
        "Fuse",
        "contraction_open",
        "fusable",
        "role_in_contraction",
        "undecided",
        "APPROXIMATE",
        "HOPPER",
        "ROUNDED",
    ),
    "binding.packed": ("in_tritons_form",),
    "binding.special_registers": (
        "NEEDS",
        "SPECIAL_REGISTERS",
    ),
    "constant_folding": ("built_constants",),
    "dataflow": (
        "approximate_results",
        "approximate_tensors",
        "HAZARDS",
        "Hazard",
        "sharing",
    ),
    "errors": (
        "ExecutionError",
        "InputWritten",
        "InternalError",
        "NotElementwise",
        "NotInstalled",
        "OperandError",
        "PtxError",
        "TimeLimit",
        "TooLarge",
        "UndefinedBits",
        "UnsupportedOnTarget",
        "unexpected",
    ),
    "independence": ("judging_emulated",),
    "kernel.async_copy.tensor_maps": (
        "PADDED_NIBBLES",
        "HostMap",
        "Pixels",
    ),
    "kernel.block_orders": (
        "TOGETHER",
        "BlockOrder",
    ),
    "kernel.kernel": ("Kernel",),
    "kernel.load": ("load_kernel",),
    "kernel.memory.space": (
        "BUFFER_SPACING",
        "POINTED_BASE",
        "Buffer",
        "BufferPointer",
        "pointed_address",
    ),
    "kernel.run": (
        "clusters_of",
        "orders_of",
        "run_kernel",
        "scratch",
    ),
    "limits": (
        "KERNEL_SECONDS",
        "SNIPPET_SECONDS",
        "STILL_RUNNING",
        "shared_memory",
    ),
    "machine.data": (
        "dtype_of",
        "width_of",
    ),
    "machine.special_registers": ("unknown_registers",),
    "numeric.vectorise": ("uncompiled",),
    "targets": (
        "GENERATION",
        "Requirement",
        "Target",
        "of_generation",
        "requirement",
    ),
}
"""The names that each module gives to other rooms."""

__all__ = [
    "APPROXIMATE",
    "BUFFER_SPACING",
    "GENERATION",
    "HAZARDS",
    "HOPPER",
    "KERNEL_SECONDS",
    "NEEDS",
    "PADDED_NIBBLES",
    "POINTED_BASE",
    "REGISTER_WIDTH",
    "ROUNDED",
    "SNIPPET_SECONDS",
    "SPECIAL_REGISTERS",
    "STILL_RUNNING",
    "TOGETHER",
    "Analysis",
    "AsmBlock",
    "AsmOperand",
    "BlockOrder",
    "Buffer",
    "BufferPointer",
    "Constraint",
    "ExecutionError",
    "Fusable",
    "Fuse",
    "Hazard",
    "HostMap",
    "InputWritten",
    "InternalError",
    "Kernel",
    "NotElementwise",
    "NotInstalled",
    "OperandError",
    "Pixels",
    "PtxError",
    "Requirement",
    "Target",
    "TimeLimit",
    "TooLarge",
    "Trace",
    "TraceLine",
    "UndefinedBits",
    "UnsupportedOnTarget",
    "analyse",
    "approximate_results",
    "approximate_tensors",
    "assemble",
    "bind",
    "built_constants",
    "check_inputs",
    "check_pack",
    "clusters_of",
    "contraction_open",
    "destination",
    "dtype_of",
    "emulate",
    "form_of",
    "fusable",
    "in_tritons_form",
    "judging_emulated",
    "load_kernel",
    "of_generation",
    "orders_of",
    "parse_constraints",
    "pointed_address",
    "program_text",
    "refusal",
    "repeated_name",
    "requirement",
    "role_in_contraction",
    "run_kernel",
    "scratch",
    "shared_memory",
    "sharing",
    "trace",
    "uncompiled",
    "undecided",
    "unexpected",
    "unknown_registers",
    "width_of",
    "written_input",
]


def __getattr__(name: str) -> Any:
    return attribute_of(__name__, _NAMES, name)


def __dir__() -> list[str]:
    return __all__
