"""LLVM code of a loop over lanes round a scalar definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from harness.ptx.numeric.translation.expressions import int_constant
from harness.ptx.numeric.translation.functions import texts, unit
from harness.ptx.numeric.translation.helpers import INT64
from harness.ptx.numeric.translation.machinecode import SYMBOL

_ANY = ir.PointerType()


def specialised(
    function: Callable[..., int], constants: Sequence[int], sources: Sequence[tuple[int, bool]], width: int
) -> str:
    """The function SYMBOL(out, source, ..., lanes), with operands and results as wide as in memory.

    `sources`: a pair (width, signed) for each operand. Raises Untranslatable.
    """
    loop = _LaneLoop(1 + len(sources))
    values = [loop.read(k, bits, signed) for k, (bits, signed) in enumerate(sources, 1)]
    return loop.text(function, [*values, *map(int_constant, constants)], width)


def shared(function: Callable[..., int], sources: int, constants: int) -> str:
    """The function SYMBOL(out, source, ..., constants, lanes), with everything 64 bits wide. Raises Untranslatable."""
    loop = _LaneLoop(2 + sources)
    fixed = [loop.constant(k) for k in range(constants)]
    return loop.text(function, [*(loop.read(1 + k, 64, True) for k in range(sources)), *fixed], 64)


def _stored(width: int) -> Any:
    """The type of a register in memory; a predicate is a byte."""
    return INT64 if width == 64 else ir.IntType(max(width, 8))


class _LaneLoop:
    """A loop under construction: at the place in its body where the next instruction goes."""

    def __init__(self, pointers: int) -> None:
        self.module = ir.Module()
        self.llvm = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [_ANY] * pointers + [INT64]), SYMBOL)
        # Vectors of 512 bits: LLVM prefers 256, with which loops over 64-bit lanes take 1.4 times as long (Xeon, 2023).
        # llvmlite's own method takes only attributes without a value.
        set.update(self.llvm.attributes, ("nounwind", '"prefer-vector-width"="512"'))
        self.llvm.args[0].add_attribute("noalias")
        self.entry, self.body, self.end = (self.llvm.append_basic_block(name) for name in ("entry", "body", "end"))
        self.first = ir.IRBuilder(self.entry)
        self.b = ir.IRBuilder(self.body)
        self.lane = self.b.phi(INT64)

    def read(self, pointer: int, width: int, signed: bool) -> Any:
        """The operand of this lane, as definitions expect it."""
        kind = _stored(width)
        place = self.b.gep(self.llvm.args[pointer], [self.lane], source_etype=kind)
        value = self.b.load(place, typ=kind)
        if kind is INT64:
            return value
        return self.b.sext(value, INT64) if signed else self.b.zext(value, INT64)

    def constant(self, number: int) -> Any:
        """An entry of the constants, which are the last pointer's."""
        place = self.first.gep(self.llvm.args[-2], [int_constant(number)], source_etype=INT64)
        return self.first.load(place, typ=INT64)

    def text(self, function: Callable[..., int], values: Sequence[Any], width: int) -> str:
        """The finished module: the definition's result for these values, as wide as `width` says."""
        b, called = self.b, unit(function, (INT64,) * len(values))
        definition = ir.Function(self.module, ir.FunctionType(called.result, [INT64] * len(values)), called.name)
        result = b.call(definition, values)
        if width == 1:
            result = b.and_(result, int_constant(1))
        kind = _stored(width)
        if kind is not INT64:
            result = b.trunc(result, kind)
        b.store(result, b.gep(self.llvm.args[0], [self.lane], source_etype=kind))
        following = b.add(self.lane, int_constant(1))
        lanes = self.llvm.args[-1]
        b.cbranch(b.icmp_signed("<", following, lanes), self.body, self.end)
        self.first.cbranch(self.first.icmp_signed(">", lanes, int_constant(0)), self.body, self.end)
        self.lane.add_incoming(int_constant(0), self.entry)
        self.lane.add_incoming(following, self.body)
        ir.IRBuilder(self.end).ret_void()
        return "\n".join([*texts(called).values(), str(self.llvm)])
