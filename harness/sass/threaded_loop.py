"""Machine code of this processor that runs records (`sass.threaded_records`), one after the other.

It does for each what `ptxdiff.sass.machine.Computed` does: it finds the lanes in which the guard holds, collects the
sources of these lanes in rows of 64-bit numbers, calls the definitions' code, and then stores all results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from ptxdiff.extras import installed
from ptxdiff.sass.threaded_records import (
    CONSTANT,
    HEAD,
    OF_WARPS,
    PAIR,
    PREDICATE,
    PREDICATE_OF_WARPS,
    REGISTER,
    RESULT,
    SOURCE,
    TO_PAIR,
    TO_PREDICATE,
    TO_REGISTER,
    WORD,
)

LANES, AT_REGISTERS, AT_PREDICATES, AT_UNIFORM, AT_UNIFORM_PREDICATES, WARPS, AT_VALUES, AT_RESULTS = range(8)
AT_CHOSEN, ARRAYS = 8, 9
"""Places in the numbers of a machine that its code reads: how many lanes, addresses of its tables, how many warps, room
for operands, for results and for lanes whose guard holds; then three heads of arrays, as definitions take them."""


@cache
def runner() -> Callable[[int, int, int, int, int], None] | None:
    """The code that runs records: of the addresses of a machine's numbers, of the first record and of its counts, the
    lanes (the id of their array, 0 for all), and of how many lanes and how many records, the latter in the upper half.
    None without llvmlite."""
    if not installed("llvmlite"):
        return None
    from ptxdiff.emulator.numeric.translation import machinecode

    code: Callable[[int, int, int, int, int], None] = machinecode.load(text())
    return code


def text() -> str:
    """The LLVM code of `runner`."""
    from llvmlite import ir  # type: ignore[import-untyped]

    from ptxdiff.emulator.numeric.translation.machinecode import HEAD as ARRAY_HEAD
    from ptxdiff.emulator.numeric.translation.machinecode import SYMBOL

    any_, i64, i32, i8 = ir.PointerType(), ir.IntType(64), ir.IntType(32), ir.IntType(8)
    module = ir.Module()

    def number(value: int) -> Any:
        return ir.Constant(i64, value)

    def function(name: str, *kinds: Any) -> tuple[Any, Any]:
        made = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
        if name != SYMBOL:
            made.linkage = "internal"
            for argument in made.args:
                if argument.type is any_:
                    argument.add_attribute("noalias")
        set.update(made.attributes, ("nounwind", '"prefer-vector-width"="512"'))
        return made, ir.IRBuilder(made.append_basic_block("entry"))

    def at(b: Any, base: Any, place: Any, kind: Any = i64) -> Any:
        return b.gep(base, [place], source_etype=kind)

    def get(b: Any, base: Any, place: Any, kind: Any = i64) -> Any:
        return b.load(at(b, base, place if not isinstance(place, int) else number(place), kind), typ=kind)

    @contextmanager
    def loop(b: Any, count: Any) -> Iterator[Any]:
        with b.goto_entry_block():
            slot = b.alloca(i64)
        b.store(number(0), slot)
        head, body, end = (b.append_basic_block() for _ in range(3))
        b.branch(head)
        b.position_at_end(head)
        at_lane = b.load(slot, typ=i64)
        b.cbranch(b.icmp_unsigned("<", at_lane, count), body, end)
        b.position_at_end(body)
        yield at_lane
        b.store(b.add(at_lane, number(1)), slot)
        b.branch(head)
        b.position_at_end(end)

    def each(b: Any, lanes: Any, count: Any, work: Callable[[Any, Any, Any], None]) -> None:
        """Do work(builder, place, lane) for all lanes, or for those of a list."""
        with b.if_else(b.icmp_unsigned("==", b.ptrtoint(lanes, i64), number(0))) as (all_lanes, some):
            with all_lanes, loop(b, count) as place:
                work(b, place, place)
            with some, loop(b, count) as place:
                work(b, place, get(b, lanes, place))

    def gathers(name: str, kind: Any, warp: bool = False) -> Any:
        made, b = function(name, any_, any_, any_, i64)
        to, row, lanes, count = made.args

        def work(b: Any, place: Any, lane: Any) -> None:
            lane = b.lshr(lane, number(5)) if warp else lane
            b.store(b.zext(get(b, row, lane, kind), i64), at(b, to, place))

        each(b, lanes, count, work)
        b.ret_void()
        return made

    words, bytes_ = gathers("words", i32), gathers("bytes", i8)
    words_of_warps, bytes_of_warps = gathers("words_of_warps", i32, True), gathers("bytes_of_warps", i8, True)

    pairs, b = function("pairs", any_, any_, any_, any_, i64)
    to, low, high, lanes, count = pairs.args

    def join(b: Any, place: Any, lane: Any) -> None:
        upper = b.shl(b.zext(get(b, high, lane, i32), i64), number(32))
        b.store(b.or_(upper, b.zext(get(b, low, lane, i32), i64)), at(b, to, place))

    each(b, lanes, count, join)
    b.ret_void()

    same, b = function("same", any_, i64, i64)
    with loop(b, same.args[2]) as place:
        b.store(same.args[1], at(b, same.args[0], place))
    b.ret_void()

    change, b = function("change", any_, any_, i64)
    values, how, count = change.args
    shift, part, times, keep, flip, plus, low_bits, extend = (get(b, how, k) for k in range(8))
    with loop(b, count) as place:
        x = get(b, values, place)
        x = b.mul(b.and_(b.lshr(x, shift), part), times)
        x = b.and_(b.add(b.xor(b.and_(x, keep), flip), plus), low_bits)
        b.store(b.ashr(b.shl(x, extend), extend), at(b, values, place))
    b.ret_void()

    def scatters(name: str, kind: Any, mask: int = 0) -> Any:
        made, b = function(name, any_, any_, any_, i64, i64)
        row, results, lanes, count, shift = made.args

        def work(b: Any, place: Any, lane: Any) -> None:
            value = b.trunc(b.lshr(get(b, results, place), shift), kind)
            value = b.and_(value, ir.Constant(kind, mask)) if mask else value
            b.store(value, at(b, row, lane, kind))

        each(b, lanes, count, work)
        b.ret_void()
        return made

    to_words, to_bytes = scatters("to_words", i32), scatters("to_bytes", i8, 1)

    # The lanes of a list, or all, in which a predicate holds; how many they are is in front of them.
    holds, b = function("holds", any_, any_, any_, i64, i64)
    to, predicate, lanes, count, inverted = holds.args
    with b.goto_entry_block():
        held_at = b.alloca(i64)
    b.store(number(0), held_at)

    def choose(b: Any, place: Any, lane: Any) -> None:
        held = b.load(held_at, typ=i64)
        b.store(lane, at(b, to, b.add(held, number(1))))
        is_one = b.zext(b.icmp_unsigned("!=", get(b, predicate, lane, i8), ir.Constant(i8, 0)), i64)
        b.store(b.add(held, b.xor(is_one, inverted)), held_at)

    each(b, lanes, count, choose)
    b.store(b.load(held_at, typ=i64), to)
    b.ret_void()

    run, b = function(SYMBOL, any_, any_, any_, any_, i64)
    machine, first, counts, lanes_array, how_many = run.args

    def slot_of(kind: Any, value: Any) -> Any:
        with b.goto_entry_block():
            made = b.alloca(kind)
        b.store(value, made)
        return made

    null = ir.Constant(any_, None)
    every = slot_of(any_, null)
    with b.if_then(b.icmp_unsigned("!=", b.ptrtoint(lanes_array, i64), number(0))):
        b.store(b.load(at(b, lanes_array, number(ARRAY_HEAD), i8), typ=any_), every)
    given = b.load(every, typ=any_)
    total, given_count = b.lshr(how_many, number(32)), b.and_(how_many, number(WORD))
    tables = [b.inttoptr(get(b, machine, k), any_) for k in range(ARRAYS)]
    width, warps = get(b, machine, LANES), get(b, machine, WARPS)
    heads = [at(b, machine, number(ARRAYS + k * (ARRAY_HEAD // 8 + 1))) for k in range(3)]
    slots = [at(b, head, number(ARRAY_HEAD), i8) for head in heads]
    b.store(tables[AT_VALUES], slots[1])
    record_at, lanes_at, count_at = slot_of(any_, first), slot_of(any_, given), slot_of(i64, given_count)

    def row(table: Any, which: Any, kind: Any, length: Any = None) -> Any:
        return at(b, table, b.mul(which, width if length is None else length), kind)

    with loop(b, total) as step:
        here = b.load(record_at, typ=any_)
        length, guard, inverted, sources, results = (get(b, here, k) for k in range(HEAD))
        b.store(given, lanes_at)
        b.store(given_count, count_at)
        with b.if_then(b.icmp_signed(">=", guard, number(0))):
            chosen = tables[AT_CHOSEN]
            b.call(holds, [chosen, row(tables[AT_PREDICATES], guard, i8), given, given_count, inverted])
            held = get(b, chosen, 0)
            with b.if_then(b.icmp_unsigned("!=", held, given_count)):
                b.store(at(b, chosen, number(1)), lanes_at)
                b.store(held, count_at)
        lanes, count = b.load(lanes_at, typ=any_), b.load(count_at, typ=i64)
        with b.if_then(b.icmp_unsigned("!=", count, number(0))):
            b.store(b.add(get(b, counts, step), count), at(b, counts, step))
            with loop(b, sources) as k:
                source = at(b, here, b.add(number(HEAD), b.mul(k, number(SOURCE))))
                to = at(b, tables[AT_VALUES], b.mul(k, count))
                which = get(b, source, 1)
                cases = {
                    REGISTER: lambda: b.call(words, [to, row(tables[AT_REGISTERS], which, i32), lanes, count]),
                    PAIR: lambda: b.call(pairs, [
                        to, row(tables[AT_REGISTERS], which, i32),
                        row(tables[AT_REGISTERS], b.add(which, number(1)), i32), lanes, count]),
                    PREDICATE: lambda: b.call(bytes_, [to, row(tables[AT_PREDICATES], which, i8), lanes, count]),
                    OF_WARPS: lambda: b.call(
                        words_of_warps, [to, row(tables[AT_UNIFORM], which, i32, warps), lanes, count]),
                    PREDICATE_OF_WARPS: lambda: b.call(
                        bytes_of_warps, [to, row(tables[AT_UNIFORM_PREDICATES], which, i8, warps), lanes, count]),
                    CONSTANT: lambda: b.call(same, [to, which, count]),
                }  # fmt: skip
                _switch(b, get(b, source, 0), cases)
                with b.if_then(b.icmp_unsigned("!=", get(b, source, 3), number(0))):
                    b.call(change, [to, at(b, source, number(4)), count])
            behind = at(b, here, b.add(number(HEAD), b.mul(sources, number(SOURCE))))
            with loop(b, results) as k:
                result = at(b, behind, b.mul(k, number(RESULT)))
                b.store(at(b, tables[AT_RESULTS], b.mul(k, width)), slots[0])
                b.store(b.inttoptr(get(b, result, 1), any_), slots[2])
                kind = ir.FunctionType(ir.VoidType(), [any_, any_, any_, i64])
                b.call(b.inttoptr(get(b, result, 0), kind.as_pointer()), [*heads, count])
            with loop(b, results) as k:
                result = at(b, behind, b.mul(k, number(RESULT)))
                made = at(b, tables[AT_RESULTS], b.mul(k, width))
                which = get(b, result, 3)
                zero = number(0)

                def to_register(further: int) -> None:
                    register = row(tables[AT_REGISTERS], b.add(which, number(further)), i32)
                    b.call(to_words, [register, made, lanes, count, number(32 * further)])

                def to_pair() -> None:
                    to_register(0)
                    to_register(1)

                _switch(b, get(b, result, 2), {
                    TO_REGISTER: lambda: to_register(0),
                    TO_PAIR: to_pair,
                    TO_PREDICATE: lambda: b.call(
                        to_bytes, [row(tables[AT_PREDICATES], which, i8), made, lanes, count, zero]),
                })  # fmt: skip
        b.store(at(b, here, length), record_at)
    b.ret_void()
    return str(module)


def _switch(b: Any, value: Any, cases: Mapping[int, Callable[[], object]]) -> None:
    """Do what belongs to a value; nothing for another value."""
    end = b.append_basic_block()
    switch = b.switch(value, end)
    for number, work in cases.items():
        block = b.append_basic_block()
        switch.add_case(number, block)
        b.position_at_end(block)
        work()
        b.branch(end)
    b.position_at_end(end)
