"""Many products of tensor cores at once, in the processor's vectors: the results of `tensorcore.dot`, bit for bit.

`tensorcore._dot` is the definition. It takes one term after the other, and its branches keep a compiler from using
vectors. Here the 16 lanes of a vector are columns of a tile, or tiles, and there are no branches. Three facts make that
exact:

- A product of two significands is exact in float32, or in float64 where exponents need its range.
- A term is truncated by a multiplication by a power of two, which is exact, and a conversion to an integer, which
  truncates towards zero. An aligned term is below 2^(F+2), so an int32 holds the sum of `_CHUNK` of them.
- What a NaN or an infinity gives depends on it alone, so tiles that contain one are left to the definition.

LLVM code is made for each model and its formats, because constants make it several times as fast. Before code is used
that this processor has not run yet, its results are compared with the definition's (`_right`): another processor, or
another LLVM, gives other machine code.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]

from ptxdiff.diskcache import DiskCache
from ptxdiff.emulator.limits import compiled_for
from ptxdiff.emulator.numeric import compilecache, tensorcore
from ptxdiff.emulator.numeric.tensorcore import _LOW, FLOATS, Float, Model
from ptxdiff.emulator.numeric.translation import machinecode
from ptxdiff.emulator.numeric.vectorise import Array

LANES = 16
"""Lanes of a vector."""
_CHUNK = 16  # terms whose sum an int32 holds
_I32, _I64, _ANY = ir.IntType(32), ir.IntType(64), ir.PointerType()
_INTS, _LONGS = ir.VectorType(_I32, LANES), ir.VectorType(_I64, LANES)
_FLOATS, _DOUBLES = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(ir.DoubleType(), LANES)


class _Code:
    """A function SYMBOL of numpy arrays and a number, under construction (see `machinecode.load`)."""

    def __init__(self, arrays: int) -> None:
        self.module = ir.Module()
        kind = ir.FunctionType(ir.VoidType(), [_ANY] * arrays + [_I64])
        self.function = ir.Function(self.module, kind, machinecode.SYMBOL)
        set.update(self.function.attributes, ("nounwind", '"prefer-vector-width"="512"'))
        self.b = ir.IRBuilder(self.function.append_basic_block())
        head = ir.Constant(_I64, machinecode.HEAD)
        places = [self.b.gep(a, [head], source_etype=ir.IntType(8)) for a in self.function.args[:-1]]
        self.arrays = [self.b.load(place, typ=_ANY) for place in places]
        self.count = self.function.args[-1]

    def loop(self, count: Any, body: Callable[[Any], None]) -> None:
        """Call `body` with the number of each round; it appends the round's instructions."""
        b, before = self.b, self.b.block
        start, end = b.append_basic_block(), b.append_basic_block()
        b.cbranch(b.icmp_signed(">", count, ir.Constant(_I64, 0)), start, end)
        b.position_at_end(start)
        number = b.phi(_I64)
        number.add_incoming(ir.Constant(_I64, 0), before)
        body(number)
        following = b.add(number, ir.Constant(_I64, 1))
        number.add_incoming(following, b.block)
        b.cbranch(b.icmp_signed("<", following, count), start, end)
        b.position_at_end(end)

    def place(self, array: int, index: Any, element: Any) -> Any:
        """The address of an element of an array."""
        return self.b.gep(self.arrays[array], [index], source_etype=element)

    def vector(self, array: int, index: Any, kind: Any) -> Any:
        """The vector of an array at an index, which counts vectors."""
        return self.b.load(self.place(array, index, kind), typ=kind, align=4)

    def set(self, array: int, index: Any, value: Any) -> None:
        """Store a vector."""
        self.b.store(value, self.place(array, index, value.type), align=4)

    def spread(self, value: Any, kind: Any) -> Any:
        """A vector with the same value in all lanes."""
        one = self.b.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(_I32, 0))
        return self.b.shuffle_vector(one, ir.Constant(kind, ir.Undefined), ir.Constant(_INTS, [0] * LANES))

    def max(self, x: Any, y: Any) -> Any:
        """The greater of signed integers, by lane."""
        return self.b.select(self.b.icmp_signed(">", x, y), x, y)

    def min(self, x: Any, y: Any) -> Any:
        """The lesser of signed integers, by lane."""
        return self.b.select(self.b.icmp_signed("<", x, y), x, y)

    def decoded(self, code: Any, of: Float) -> tuple[Any, Any, Any, Any]:
        """`tensorcore._decode`: size, sign (0 or -1), power, and whether the code is special; of <16 x i32> codes.

        A zero has the power `_LOW`; size and power of a special code have no meaning.
        """
        b = self.b
        code = b.lshr(code, _all(of.ignored))
        field = b.and_(b.lshr(code, _all(of.fraction)), _all((1 << of.exponent) - 1))
        low = b.and_(code, _all((1 << of.fraction) - 1))
        normal = b.zext(b.icmp_signed("!=", field, _all(0)), _INTS)
        size = b.or_(low, b.shl(normal, _all(of.fraction)))
        power = b.sub(b.add(field, _all(1 - of.bias)), normal)
        power = b.select(b.icmp_signed("==", size, _all(0)), _all(_LOW), power)
        minus = b.sub(_all(0), b.and_(b.lshr(code, _all(of.exponent + of.fraction)), _all(1)))
        digits = (1 << of.exponent + of.fraction) - 1
        return size, minus, power, b.icmp_signed(">=", b.and_(code, _all(digits)), _all(_least_special(of)))

    def truncated(self, total: Total, last: Any, kept: int) -> Any:
        """`tensorcore._encode` into float32, of totals below 2^40 or 2^32 (see `Total`), as <16 x i32>."""
        b, of, unit = self.b, total.of, self.unit(total, last, 23, -149)
        shift = b.sub(unit, last)
        size = b.shl(total.size, self.max(b.sub(of(0), shift), of(0)))
        # Terms alone are below 2^31. c makes them more only if its exponent, which is at least -126, is about theirs:
        # then the shift is at most 8. So a shift by 31 has the result of one by more.
        whole = b.lshr(size, self.min(self.max(shift, of(0)), of(total.bits - 1)))
        return self.packed(b.and_(whole, of(-(1 << 23 - kept))), unit, total, 23, -149, 0x7F800000, 31)

    def rounded(self, total: Total, last: Any) -> Any:
        """`tensorcore._encode` into float16, rounded to nearest even, of totals below 2^40 or 2^30."""
        b, of, unit = self.b, total.of, self.unit(total, last, 10, -24)
        shift = b.sub(unit, last)
        size = b.shl(total.size, self.max(b.sub(of(0), shift), of(0)))
        # So far down, no total reaches the middle.
        down = self.min(self.max(shift, of(0)), of(62 if total.bits == 64 else 31))
        whole = b.lshr(size, down)
        middle = b.lshr(b.shl(of(1), down), of(1))
        rest = b.add(b.sub(size, b.shl(whole, down)), b.and_(whole, of(1)))
        up = b.and_(b.icmp_signed(">", rest, middle), b.icmp_signed(">", down, of(0)))
        return self.packed(b.add(whole, b.zext(up, total.size.type)), unit, total, 10, -24, 0x7C00, 15)

    def unit(self, total: Total, last: Any, fraction: int, least: int) -> Any:
        """The exponent of the last bit of each result."""
        b = self.b
        # The exponent of a float64, which is exact here, is the place of the leading one. A float32 rounds a magnitude
        # that begins with 25 ones up to the next power of two; with that unit, its code is the same.
        if total.bits == 64:
            exponent = b.lshr(b.bitcast(b.sitofp(total.size, _DOUBLES), _LONGS), _long(52))
            place = b.sub(exponent, _long(1023))
        else:
            exponent = b.lshr(b.bitcast(b.sitofp(total.size, _FLOATS), _INTS), _all(23))
            place = b.select(b.icmp_signed("<", total.size, _all(0)), _all(31), b.sub(exponent, _all(127)))
        return self.max(b.add(last, b.sub(place, total.of(fraction))), total.of(least))

    def packed(
        self, whole: Any, unit: Any, total: Total, fraction: int, least: int, infinity: int, sign: int
    ) -> Any:  # fmt: skip
        """The codes of significands, with their leading one, in units."""
        b, of = self.b, total.of
        # More than the greatest exponent gives an infinity, too, and the code stays below 2^31.
        exponent = self.min(b.sub(unit, of(least)), of((infinity >> fraction) - 1))
        code = self.min(b.add(b.shl(exponent, of(fraction)), whole), of(infinity))
        none = b.or_(b.icmp_signed("==", total.size, of(0)), b.icmp_signed("==", code, of(0)))
        code = b.select(none, of(0), b.or_(code, b.and_(total.minus, of(1 << sign))))
        return code if total.bits == 32 else b.trunc(code, _INTS)

    def total(self, terms: Any, size_of_c: Any, minus_c: Any) -> Total:
        """The sum of the terms and of c, all vectors of integers of the same bits."""
        b, bits = self.b, size_of_c.type.element.width
        c = b.sub(b.xor(size_of_c, minus_c), minus_c)
        both = b.add(terms, c)
        # The sign of a sum that wraps is that of both.
        negative = both if bits == 64 else b.or_(b.and_(terms, c), b.and_(b.xor(terms, c), both))
        of = _all if bits == 32 else _long
        minus = b.ashr(negative, of(bits - 1))
        return Total(b.sub(b.xor(both, minus), minus), minus, bits)


@dataclass(frozen=True)
class Total:
    """Sums of all terms: magnitudes and signs (0 or -1), vectors of integers of 32 or 64 bits.

    32 are four times as fast with AVX2, which knows few operations on 64. A magnitude may have all of them.
    """

    size: Any
    minus: Any
    bits: int

    def of(self, value: int) -> Any:
        """A vector of such integers, with the same value in all lanes."""
        return _all(value) if self.bits == 32 else _long(value)


def _least_special(of: Float) -> int:
    """The least code of an infinity or a NaN, without the sign; beyond all codes if there is none."""
    digits = (1 << of.exponent + of.fraction) - 1
    return {2: digits - (1 << of.fraction) + 1, 1: digits, 0: digits + 1}[of.special]


def _all(value: int) -> Any:
    return ir.Constant(_INTS, [value] * LANES)


def _long(value: int) -> Any:
    return ir.Constant(_LONGS, [value] * LANES)


@cache
def _preparation(of: Float, wide: bool) -> Any:
    """prepare(values, powers, special, codes, vectors): what `_decode` finds; a zero or special code is 0 and `_LOW`.

    special: an int32 for each vector, not 0 if it contains a special code.
    """
    code = _Code(4)
    b = code.b

    def body(number: Any) -> None:
        size, minus, power, special = code.decoded(code.vector(3, number, _INTS), of)
        size = b.select(special, _all(0), size)
        signed = b.sub(b.xor(size, minus), minus)
        if wide:
            exponent = b.sext(b.add(power, _all(1023 - of.fraction)), _LONGS)
            value = b.fmul(b.sitofp(signed, _DOUBLES), b.bitcast(b.shl(exponent, _long(52)), _DOUBLES))
        else:
            exponent = b.add(power, _all(127 - of.fraction))
            value = b.fmul(b.sitofp(signed, _FLOATS), b.bitcast(b.shl(exponent, _all(23)), _FLOATS))
        none = b.icmp_signed("==", size, _all(0))  # the scale of a zero has no meaning, and could be a NaN
        code.set(0, number, b.select(none, ir.Constant(value.type, [0.0] * LANES), value))
        code.set(1, number, b.select(special, _all(_LOW), power))
        bits = b.bitcast(special, ir.IntType(LANES))
        b.store(b.zext(bits, _I32), code.place(2, number, _I32))

    code.loop(code.count, body)
    b.ret_void()
    return _load(code)


@cache
def _multiplication(
    fraction: int, terms: int, kept: int, zero: int, c_type: Float, d_type: Float, wide: bool, spread: bool
) -> Any:
    """multiply(d, special, c, va, pa, ka, vb, pb, kb, shape, tiles): one block of so many terms.

    v, p, k: values, powers, and the least power along the terms. Shapes: va and pa: tiles x rows x terms, of vectors if
    `spread`; ka: the same without terms. vb and pb: tiles x terms x columns of vectors, kb without terms. c and d:
    tiles x rows x columns of vectors. special: an int32 for each tile, not 0 if c has a special code. shape: rows,
    columns.
    """
    code, half = _Code(10), d_type.fraction == 10
    b, real = code.b, _DOUBLES if wide else _FLOATS
    # Each term is below 2^(fraction + 2), and c below half of that; see `truncated` and `rounded`.
    narrow = (terms << 2) + 2 << fraction <= 1 << 30 if half else terms <= _CHUNK and terms << fraction + 2 <= 1 << 31
    rows, columns = (b.load(code.place(9, ir.Constant(_I64, i), _I64), typ=_I64) for i in (0, 1))

    def tile(t: Any) -> None:
        def row(i: Any) -> None:
            first = b.add(b.mul(t, rows), i)

            def of_a(array: int, index: Any, kind: Any) -> Any:
                if spread:
                    return code.vector(array, index, kind)
                return code.spread(b.load(code.place(array, index, kind.element), typ=kind.element), kind)

            at_a = [b.add(b.mul(first, ir.Constant(_I64, terms)), ir.Constant(_I64, q)) for q in range(terms)]
            least_a = of_a(5, first, _INTS)

            def column(j: Any) -> None:
                at_c = b.add(b.mul(first, columns), j)
                at_k = b.add(b.mul(t, columns), j)
                start = b.add(b.mul(b.mul(t, columns), ir.Constant(_I64, terms)), j)
                at_b = [b.add(start, b.mul(columns, ir.Constant(_I64, q))) for q in range(terms)]
                size, minus, power, special = code.decoded(code.vector(2, at_c, _INTS), c_type)
                bits = b.zext(b.bitcast(special, ir.IntType(LANES)), _I32)
                seen = code.place(1, t, _I32)
                b.store(b.or_(b.load(seen, typ=_I32), bits), seen)
                size = b.select(special, _all(0), size)
                power = b.select(special, _all(_LOW), power)
                top = power
                for q in range(terms):
                    top = code.max(top, b.add(of_a(4, at_a[q], _INTS), code.vector(7, at_b[q], _INTS)))
                least = code.min(code.min(power, least_a), code.vector(8, at_k, _INTS))
                floor = b.select(b.icmp_signed("==", least, _all(_LOW)), _all(zero), _all(_LOW))
                top = code.max(top, floor)
                if wide:
                    limited = b.sext(code.max(top, _all(-900)), _LONGS)
                    scale = b.shl(b.sub(_long(fraction + 1023), limited), _long(52))
                else:  # below -90 all products are zero
                    scale = b.shl(b.sub(_all(fraction + 127), code.max(top, _all(-90))), _all(23))
                scale = b.bitcast(scale, real)
                up = b.sub(_all(fraction - c_type.fraction), b.sub(top, power))
                down = code.min(code.max(b.sub(_all(0), up), _all(0)), _all(31 if narrow else 63))
                up = code.max(up, _all(0))
                if not narrow:
                    size, up, down, minus = (b.sext(x, _LONGS) for x in (size, up, down, minus))
                of_c = b.lshr(b.shl(size, up), down)
                chunks = []
                for chunk in range(0, terms, _CHUNK):
                    some = _all(0)
                    for q in range(chunk, min(chunk + _CHUNK, terms)):
                        product = b.fmul(of_a(3, at_a[q], real), code.vector(6, at_b[q], real))
                        some = b.add(some, b.fptosi(b.fmul(product, scale), _INTS))
                    chunks.append(some if narrow else b.sext(some, _LONGS))
                total = code.total(reduce(b.add, chunks), of_c, minus)
                last = b.sub(top, _all(fraction))
                if not narrow:
                    last = b.sext(last, _LONGS)
                code.set(0, at_c, code.rounded(total, last) if half else code.truncated(total, last, kept))

            code.loop(columns, column)

        code.loop(rows, row)

    code.loop(code.count, tile)
    b.ret_void()
    return _load(code)


def _load(code: _Code) -> Any:
    started = time.monotonic()
    try:
        found = machinecode.load(str(code.module))
    finally:
        compiled_for(time.monotonic() - started)
    return found


def _wide(of: Float) -> bool:
    """Whether products of a format need the range of float64."""
    return of.exponent > 5


def _prepared(codes: Array, of: Float, wide: bool) -> tuple[Array, Array, Array]:
    """Values, powers, and for each vector whether it has a special code."""
    shape, vectors = codes.shape, -(-codes.size // LANES)
    if codes.size < vectors * LANES:
        codes = np.concatenate([codes.reshape(-1), np.zeros(vectors * LANES - codes.size, np.uint32)])
    values = np.empty(vectors * LANES, np.float64 if wide else np.float32)
    powers, special = np.empty(vectors * LANES, np.int32), np.empty(vectors, np.int32)
    _preparation(of, wide)(id(values), id(powers), id(special), id(codes), vectors)
    count = int(np.prod(shape))
    return values[:count].reshape(shape), powers[:count].reshape(shape), special


_kept = DiskCache("checked")


@cache
def _right(types: tuple[str, str, str, str], model: Model, spread: bool) -> bool:
    """Whether the machine code for a model and its formats gives the definition's results, on `_sample`.

    Compares once for each machine code, and warns if it differs: then the definition is used, which is slower.
    """
    parts = (repr((types, model, spread)), compilecache.stamp(__name__), *machinecode.identity())
    key = tuple(part.encode() for part in parts)
    if _kept.get(*key) is None:
        a, b, c = _sample(types, model.terms, spread)
        if not np.array_equal(_block(a, b, c, types, model, spread), tensorcore.dot(a, b, c, types, model)):
            text = f"products of {' x '.join(types[1:3])} run about 10 times slower: on this processor the code that "
            warnings.warn(text + "LLVM makes for its vectors gives wrong results", RuntimeWarning, stacklevel=4)
            return False
        _kept.put(b"right", *key)
    return True


def _sample(types: tuple[str, str, str, str], terms: int, spread: bool) -> tuple[Array, Array, Array]:
    """Operands of 64 tiles with all signs: equal and different exponents, cancelling terms, tiny results, and zeros."""
    rng, n = np.random.default_rng(terms), 8 if spread else 32
    found = []
    for kind, shape in zip(types[1:], ((64, 4, terms), (64, terms, n), (64, 4, n)), strict=True):
        of = FLOATS[kind]
        most, digits = (1 << of.exponent) - 1, (1 << of.exponent + of.fraction) - 1
        span = np.minimum(np.array([0, 1, 3, most // 4, most])[np.arange(64) % 5], most)[:, None, None]
        first = np.array([most // 2, most // 3, 0])[np.arange(64) // 5 % 3][:, None, None]
        field = np.minimum(first + rng.integers(0, span + 1, shape), most)
        codes = np.minimum(field << of.fraction | rng.integers(0, 1 << of.fraction, shape), _least_special(of) - 1)
        codes[rng.random(shape) < np.where(np.arange(64) % 4 == 3, 0.3, 0.0)[:, None, None]] = 0
        codes |= rng.integers(0, 2, shape) * (digits + 1)
        found.append((codes << of.ignored).astype(np.uint32))
    a, b, c = found
    of, pairs = FLOATS[types[1]], terms // 2 * 2
    a[::3, :, 1:pairs:2] = a[::3, :, :pairs:2] ^ np.uint32(1 << of.exponent + of.fraction + of.ignored)
    b[::3, 1:pairs:2] = b[::3, :pairs:2]  # so the terms of these tiles cancel
    return a, b, c


def dot(a: Array, b: Array, c: Array, types: tuple[str, str, str, str], model: Model) -> Array:
    """As `tensorcore.dot`."""
    terms, spread, following = model.terms, c.shape[2] < LANES, (*types[:3], types[0])
    starts = range(0, a.shape[2], terms)
    if not _right(types, model, spread) or (len(starts) > 1 and not _right(following, model, spread)):
        return tensorcore.dot(a, b, c, types, model)
    for start in starts:
        some = slice(start, start + terms)
        c = _block(a[:, :, some], b[:, some], c, types if start == 0 else following, model, spread)
    return c


# Tiles as lanes ----------------------------------------------------------------------------------------------------
#
# Small tiles: those of 16 warps, a group, fill the lanes of vectors. Factors are prepared once, however many products
# they belong to.


@dataclass(frozen=True)
class Factor:
    """A factor of many products, prepared for `multiplied`: blocks x groups x rows x columns x LANES.

    `least`: for each block the least powers along its terms. `special`: which groups have a special code.
    """

    values: Array
    powers: Array
    least: tuple[Array, ...]
    special: Array


def wide_range(types: tuple[str, str, str, str]) -> bool:
    """Whether products of the types of a and b need the range of float64."""
    return _wide(FLOATS[types[1]]) or _wide(FLOATS[types[2]])


def factor(codes: Array, kind: str, wide: bool, axis: int, widths: Sequence[int]) -> Factor:
    """Prepare codes, blocks x groups x rows x columns x LANES. axis: that of the terms. widths: a block's terms that
    count; the others have a code of zero."""
    values, powers, special = _prepared(codes, FLOATS[kind], wide)
    some = (slice(None), slice(None)) if axis == 3 else (slice(None),)
    least = [np.minimum.reduce(p[(*some, slice(w))], axis=axis - 1) for p, w in zip(powers, widths, strict=True)]
    apart = special.any() and special.reshape(*codes.shape[:2], -1).any(axis=(0, 2))
    return Factor(values, powers, tuple(map(np.ascontiguousarray, least)), np.broadcast_to(apart, codes.shape[1:2]))


def multiplied(a: Factor, b: Factor, c: Array, types: tuple[str, str, str, str], model: Model) -> tuple[Array, Array]:
    """The codes of d, as those of c: groups x rows x columns x LANES; and the groups for which only the definition has
    the result, because of a special code."""
    groups, m, columns = c.shape[:3]
    wide, zero = wide_range(types), model.zero16 if types[0] == "f16" else model.zero32
    special, shape = np.zeros(groups, np.int32), np.array([m, columns])
    for block in range(len(a.values)):
        of_c = FLOATS[types[3] if block == 0 else types[0]]
        multiply = _multiplication(model.fraction, model.terms, model.kept, zero, of_c, FLOATS[types[0]], wide, True)
        d = np.empty_like(c)
        arrays = (
            d, special, c, a.values[block], a.powers[block], a.least[block], b.values[block], b.powers[block],
            b.least[block], shape,
        )  # fmt: skip
        multiply(*map(id, arrays), groups)
        c = d
    return c, (special != 0) | a.special | b.special


def usable(types: tuple[str, str, str, str], model: Model, blocks: int) -> bool:
    """Whether `multiplied` has the definition's results on this processor (`_right`)."""
    return _right(types, model, True) and (blocks == 1 or _right((*types[:3], types[0]), model, True))


def _block(
    a: Array, b: Array, c: Array, types: tuple[str, str, str, str], model: Model, spread: bool
) -> Array:  # fmt: skip
    """`dot` for at most as many terms as one block has; `spread`: the lanes of a vector are tiles, not columns."""
    (tiles, m, width), n, terms = a.shape, c.shape[2], model.terms
    d_type, a_type, b_type, c_type = types
    of_a, of_b = FLOATS[a_type], FLOATS[b_type]
    wide = _wide(of_a) or _wide(of_b)
    if spread:
        groups, columns = -(-tiles // LANES), n
        laid = [_by_tile(x, shape) for x, shape in ((a, (m, terms)), (b, (terms, n)), (c, (m, n)))]
    else:
        groups, columns = tiles, -(-n // LANES)
        padded = columns * LANES
        laid = [_filled(x, shape) for x, shape in ((a, (m, terms)), (b, (terms, padded)), (c, (m, padded)))]
    values_a, powers_a, special_a = _prepared(laid[0], of_a, wide)
    values_b, powers_b, special_b = _prepared(laid[1], of_b, wide)
    least_a = np.ascontiguousarray(np.minimum.reduce(powers_a[:, :, :width], axis=2))
    least_b = np.ascontiguousarray(np.minimum.reduce(powers_b[:, :width], axis=1))
    d, special = np.empty_like(laid[2]), np.zeros(groups, np.int32)
    zero = model.zero16 if d_type == "f16" else model.zero32
    multiply = _multiplication(
        model.fraction, terms, model.kept, zero, FLOATS[c_type], FLOATS[d_type], wide, spread
    )  # fmt: skip
    arrays = (d, special, laid[2], values_a, powers_a, least_a, values_b, powers_b, least_b, np.array([m, columns]))
    multiply(*map(id, arrays), groups)
    if spread:
        d = np.ascontiguousarray(d.transpose(0, 3, 1, 2).reshape(-1, m, n)[:tiles])
    elif n != d.shape[2]:
        d = np.ascontiguousarray(d[:, :, :n])
    if special.any() or special_a.any() or special_b.any():
        apart = _special_tiles(a, of_a) | _special_tiles(b, of_b) | _special_tiles(c, FLOATS[c_type])
        rest = [np.ascontiguousarray(x[apart]) for x in (a, b, c)]
        d[apart] = tensorcore.dot(rest[0], rest[1], rest[2], types, model)
    return d


def _filled(codes: Array, shape: tuple[int, int]) -> Array:
    """Matrices enlarged to a shape by codes of zero."""
    if codes.shape[1:] == shape:
        return np.ascontiguousarray(codes)
    found = np.zeros((len(codes), *shape), np.uint32)
    found[:, : codes.shape[1], : codes.shape[2]] = codes
    return found


def _by_tile(codes: Array, shape: tuple[int, int]) -> Array:
    """Matrices enlarged to a shape: groups x rows x columns x the tiles of a group."""
    groups = -(-len(codes) // LANES)
    if len(codes) < groups * LANES or codes.shape[1:] != shape:
        whole = np.zeros((groups * LANES, *shape), np.uint32)
        whole[: len(codes), : codes.shape[1], : codes.shape[2]] = codes
        codes = whole
    return np.ascontiguousarray(codes.reshape(groups, LANES, *shape).transpose(0, 2, 3, 1))


def _special_tiles(codes: Array, of: Float) -> Array:
    """Which tiles have a special code."""
    digits = (1 << of.exponent + of.fraction) - 1
    least = _least_special(of)
    return np.asarray((((codes >> of.ignored) & digits) >= least).any(axis=(1, 2)))
