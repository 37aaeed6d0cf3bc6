"""LLVM code of a loop over lanes round a scalar definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from ptxdiff.emulator.numeric.translation.expressions import int_constant
from ptxdiff.emulator.numeric.translation.functions import texts, unit
from ptxdiff.emulator.numeric.translation.helpers import INT64
from ptxdiff.emulator.numeric.translation.machinecode import HEAD, SYMBOL

_ANY = ir.PointerType()
_BYTE = ir.IntType(8)


def specialised(
    function: Callable[..., int], constants: Sequence[int], sources: Sequence[tuple[int, bool]], width: int
) -> str:
    """The function SYMBOL(out, source, ..., lanes) of numpy arrays, whose entries are as wide as registers.

    `sources`: a pair (width, signed) for each operand. Raises Untranslatable.
    """
    loop = _LaneLoop(1 + len(sources))
    values = [loop.read(k, loop.lane, bits, signed) for k, (bits, signed) in enumerate(sources, 1)]
    return loop.text(function, [*values, *map(int_constant, constants)], width)


def shared(function: Callable[..., int], sources: int, constants: int) -> str:
    """The function SYMBOL(out, values, constants, lanes) of int64 arrays; `values` has a row for each operand.

    Raises Untranslatable.
    """
    loop = _LaneLoop(3)
    fixed = [loop.constant(k) for k in range(constants)]
    return loop.text(function, [*(loop.read(1, loop.in_row(k), 64, True) for k in range(sources)), *fixed], 64)


def _stored(width: int) -> Any:
    """The type of a register in memory; a predicate is a byte."""
    return INT64 if width == 64 else ir.IntType(max(width, 8))


def of_arrays(name: str, arrays: int) -> Any:
    """An empty function of the data of some arrays and a number, in a module of its own, compiled for wide vectors."""
    made = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), [_ANY] * arrays + [INT64]), name)
    made.linkage = "internal"
    # Vectors of 512 bits: LLVM prefers 256, with which loops over 64-bit lanes take 1.4 times as long (Xeon, 2023).
    # llvmlite's own method takes only attributes without a value.
    set.update(made.attributes, ("noinline", "nounwind", '"prefer-vector-width"="512"'))
    return made


def of_array_objects(inner: Any) -> Any:
    """The function SYMBOL, which takes numpy's array objects and gives their data to one that `of_arrays` made."""
    outer = ir.Function(inner.module, inner.ftype, SYMBOL)
    b = ir.IRBuilder(outer.append_basic_block())
    places = [b.gep(a, [int_constant(HEAD)], source_etype=_BYTE) for a in outer.args[:-1]]
    b.call(inner, [*(b.load(place, typ=_ANY) for place in places), outer.args[-1]])
    b.ret_void()
    return outer


class _LaneLoop:
    """A loop under construction: at the place in its body where the next instruction goes."""

    def __init__(self, arrays: int) -> None:
        self.llvm = of_arrays("lanes", arrays)
        self.llvm.args[0].add_attribute("noalias")  # results are always a new array
        self.entry, self.body, self.end = (self.llvm.append_basic_block(name) for name in ("entry", "body", "end"))
        self.first = ir.IRBuilder(self.entry)
        self.b = ir.IRBuilder(self.body)
        self.lane = self.b.phi(INT64)

    def read(self, array: int, place: Any, width: int, signed: bool) -> Any:
        """An entry of an array, as definitions expect it."""
        kind = _stored(width)
        value = self.b.load(self.b.gep(self.llvm.args[array], [place], source_etype=kind), typ=kind)
        if kind is INT64:
            return value
        return self.b.sext(value, INT64) if signed else self.b.zext(value, INT64)

    def in_row(self, number: int) -> Any:
        """The place of this lane in a row of an array."""
        return self.b.add(self.first.mul(self.llvm.args[-1], int_constant(number)), self.lane)

    def constant(self, number: int) -> Any:
        """An entry of the last array."""
        place = self.first.gep(self.llvm.args[-2], [int_constant(number)], source_etype=INT64)
        return self.first.load(place, typ=INT64)

    def text(self, function: Callable[..., int], values: Sequence[Any], width: int) -> str:
        """The finished module: the definition's result for these values, as wide as `width` says."""
        b, called = self.b, unit(function, (INT64,) * len(values))
        definition = ir.Function(self.llvm.module, ir.FunctionType(called.result, [INT64] * len(values)), called.name)
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
        return "\n".join([*texts(called).values(), str(self.llvm), str(of_array_objects(self.llvm))])
