"""Make a checked kernel from the text of a module."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache

from ptxdiff.emulator.binding import operations
from ptxdiff.emulator.binding.contraction import HOPPER, ROUNDED, Fuse, fused, rounded
from ptxdiff.emulator.binding.program import Program
from ptxdiff.emulator.errors import OperandError, TooLarge, UnsupportedOnTarget, only_own
from ptxdiff.emulator.kernel import calls
from ptxdiff.emulator.kernel.async_copy import bulk, mbarrier
from ptxdiff.emulator.kernel.builder import KernelBuilder
from ptxdiff.emulator.kernel.cluster import instructions, launch_control
from ptxdiff.emulator.kernel.kernel import Kernel, size_of
from ptxdiff.emulator.kernel.memory import access as memory_access
from ptxdiff.emulator.kernel.tcgen05 import allocation, commit, copies, loads, products
from ptxdiff.emulator.kernel.warp import exchange, matrices, mma, scaled_mma, sparse_mma, sparse_scaled_mma
from ptxdiff.emulator.kernel.wgmma import multiply
from ptxdiff.emulator.limits import BLOCK, BLOCK_THREADS, CLUSTER_BLOCKS, PARAMETERS
from ptxdiff.emulator.targets import AnyTarget, ByAnswers, Target
from ptxdiff.emulator.text.nodes import Function, Module
from ptxdiff.emulator.text.parser import parse_module, without_header

_LOADED = (
    operations, memory_access, bulk, calls, launch_control, instructions, matrices, mbarrier,
    scaled_mma, sparse_mma, sparse_scaled_mma, mma, allocation, commit, copies, loads, products, multiply, exchange,
)  # fmt: skip
"""Modules that register the binders of all operations, and the runners of those that only kernels have."""


@lru_cache(maxsize=128)
@only_own("a module")
def load_kernel(text: str, name: str | None = None, fuse: Fuse = False, approximate: str = HOPPER) -> Kernel:
    """Parse and check a PTX module, and return the kernel `name` (None: the only one).

    `fuse`: evaluate multiplications and additions without rounding modifiers as fma, as ptxas may; a tuple names the
    additions that are fused, each with its product, as `fusable` of the unfused program has them. `approximate`: the
    bits of approximate instructions, as `ptxdiff.emulate` has it. Raises PtxError.

    Modules that differ only in their headers are parsed once. They are checked once for all targets that give the same
    answers to the questions of the check.
    """
    common = without_header(text)
    module = _parsed(common.text)
    module.kernel(name)  # report a wrong kernel name before a wrong target
    target = common.target or module.target
    shared, answers = _checked.get(
        (common.text, name, fuse, approximate),
        Target.parse(target),
        lambda asked: _kernel(module, name, fuse, approximate, asked),
    )
    if common.target:
        module = replace(module, version=common.version, target=target)
    bound = hashlib.sha256(repr((common.text, shared.name, fuse, approximate, answers)).encode()).hexdigest()
    return replace(shared, module=module, target=target, bound=bound)


_checked: ByAnswers[Kernel] = ByAnswers(128)


@lru_cache(maxsize=64)
def _parsed(text: str) -> Module:
    """See `parse_module`. No later step changes the tree, so all targets share it."""
    return parse_module(text)


def _kernel(module: Module, name: str | None, fuse: Fuse, approximate: str, target: AnyTarget) -> Kernel:
    function = module.kernel(name)
    assert function.body is not None
    _check_parameters(module, function)
    builder = KernelBuilder(module, function, target)
    program = builder.built(function.body)
    if fuse:
        program = fused(program, fuse if isinstance(fuse, tuple) else None)
    if approximate == ROUNDED:
        program = rounded(program)
    required = function.directives.get("reqntid")
    x, y, z = block = (*(required or ()), 1, 1, 1)[:3]
    if not all(1 <= size <= most for size, most in zip(block, BLOCK, strict=True)) or x * y * z > BLOCK_THREADS:
        message = f".reqntid {x}, {y}, {z}: a block has at most {BLOCK_THREADS} threads, {BLOCK} along x, y and z"
        raise module.source.error(TooLarge, message, function.offset)
    cluster, explicit, most = _clusters(module, function, target)
    return Kernel(
        function.name,
        module,
        program,
        tuple(function.parameters),
        x * y * z if required else 0,
        block,
        builder.sizes["shared"],
        bool(builder.dynamic),
        builder.sizes["local"],
        bytes(builder.variables),
        _units(program),
        any(s.orders_blocks for s in program.steps),
        cluster=cluster,
        explicit_cluster=explicit,
        max_rank=most,
        const_spans=tuple(builder.const_spans),
    )


_CLUSTERS = ("reqnctapercluster", "explicitcluster", "maxclusterrank")


def _clusters(module: Module, function: Function, target: AnyTarget) -> tuple[tuple[int, int, int] | None, bool, int]:
    """The clusters that a kernel's directives state (ISA 11.7): the blocks, whether a launch must use clusters, the
    most blocks.

    Raises UnsupportedOnTarget and OperandError.
    """
    written = [d for d in _CLUSTERS if d in function.directives]
    if written and target.older_than(90):
        message = f".{written[0]} needs sm_90 and later; the target is {target}"
        raise module.source.error(UnsupportedOnTarget, message, function.offset)
    required, most = function.directives.get("reqnctapercluster"), function.directives.get("maxclusterrank")
    if required is not None and most is not None:
        message = ".reqnctapercluster and .maxclusterrank cannot both be specified"
        raise module.source.error(OperandError, message, function.offset)
    cluster = None
    if required:
        x, y, z = (*required, 1, 1, 1)[:3]
        cluster = (x, y, z)
        if x * y * z > CLUSTER_BLOCKS or min(cluster) < 1:
            message = f".reqnctapercluster {x}, {y}, {z}: a cluster has at most {CLUSTER_BLOCKS} blocks"
            raise module.source.error(TooLarge, message, function.offset)
    return cluster, "explicitcluster" in function.directives, most[0] if most else 0


def _check_parameters(module: Module, function: Function) -> None:
    """Raise OperandError and TooLarge for parameters that no kernel can have."""
    for parameter in function.parameters:
        if parameter.space != "param":
            message = f"parameter {parameter.name} of a kernel is .param, not .{parameter.space}"
            raise module.source.error(OperandError, message, parameter.offset)
    size = sum(size_of(p) for p in function.parameters)
    if size > PARAMETERS.most:
        raise module.source.error(TooLarge, PARAMETERS.refusal(size), function.offset)


def _units(program: Program) -> dict[str, int]:
    units = {"shared": 16, "global": 16}
    for step in program.steps:
        details = step.detail if isinstance(step.detail, tuple) else (step.detail,)
        for access in details:
            if hasattr(access, "displacement"):
                for space in ("shared", "global") if access.space == "" else (access.space,):
                    if space in units:
                        size = access.width // 8 if step.kind == "cp_async" else access.size
                        units[space] = min(units[space], size)
    return units
